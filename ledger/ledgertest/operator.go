package ledgertest

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// OperatedGenesis returns a genesis with one operator and this number of members: Member(0),
// Member(1) and so on.
func OperatedGenesis(members int) *ledger.Genesis {
	genesis := &ledger.Genesis{Chain: "test", Time: 1_700_000_000_000,
		Operators: []ledger.PublicKey{PublicKey("operator")}}
	for i := range members {
		genesis.Members = append(genesis.Members, Member(i))
	}
	return genesis
}

// Member returns member i, named node-i, with its own key and address.
func Member(i int) ledger.Member {
	name := fmt.Sprintf("node-%d", i)
	key := PublicKey(name)
	return ledger.Member{Name: name, Key: key[:], Address: fmt.Sprintf("127.0.0.1:%d", 7000+i)}
}

// Operator signs administrative transactions with Key("operator").
type Operator struct {
	Ledger   ledger.Hash
	Stream   uint64
	Sequence uint64
}

// NewOperator returns the operator of an OperatedGenesis, or of one shard of a ShardedGenesis.
func NewOperator(genesis *ledger.Genesis) *Operator { return &Operator{Ledger: genesis.Hash()} }

// Next returns the transaction that makes a change, with the operator's next nonce.
func (o *Operator) Next(change ledger.MembershipChange) ledger.Transaction {
	o.Sequence++
	return ledger.Transaction{Ledger: o.Ledger, Nonce: ledger.Nonce{Stream: o.Stream,
		Sequence: o.Sequence}, Change: &change}
}

// Join returns a signed bundle that adds a member.
func (o *Operator) Join(member ledger.Member) *ledger.Bundle {
	return o.Bundle("operator", o.Next(ledger.MembershipChange{Kind: ledger.ChangeJoin,
		Member: member}))
}

// Leave returns a signed bundle that removes a member.
func (o *Operator) Leave(index ledger.MemberIndex) *ledger.Bundle {
	return o.Bundle("operator", o.Next(ledger.MembershipChange{Kind: ledger.ChangeLeave,
		Index: index}))
}

// ChangeEngine returns a signed bundle that names the engine by which the members order.
func (o *Operator) ChangeEngine(name string) *ledger.Bundle {
	return o.Bundle("operator", o.Next(ledger.MembershipChange{Kind: ledger.ChangeEngine,
		Engine: name}))
}

// Bundle returns the transaction in a bundle signed as Operator with the key for a name. It panics
// if the transaction cannot be encoded.
func (o *Operator) Bundle(key string, transaction ledger.Transaction) *ledger.Bundle {
	bundle, err := ledger.NewBundle(transaction)
	if err == nil {
		err = bundle.Sign(ledger.Operator, Key(key))
	}
	if err != nil {
		panic(fmt.Sprintf("ledgertest: %v", err))
	}
	return bundle
}

// Disk returns the identity of disk i, for i from 1 on.
func Disk(i int) (disk ledger.DiskID) {
	binary.BigEndian.PutUint64(disk[8:], uint64(i))
	return disk
}

// Admit returns a bundle that names the disk of a member, signed with Key(signer): "operator", or
// the name of a member. It panics if it cannot be encoded.
func Admit(signer string, genesis *ledger.Genesis, now ledger.Membership, index ledger.MemberIndex,
	disk ledger.DiskID, head ledger.Height) *ledger.Bundle {
	bundle, err := ledger.NewAdmit(Key(signer), genesis.Hash(), &now, index, disk, head)
	if err != nil {
		panic(fmt.Sprintf("ledgertest: %v", err))
	}
	return bundle
}

// Certificate returns the certificate of a block that these members signed with the keys of Member.
func Certificate(genesis *ledger.Genesis, epoch ledger.MembersEpoch, block *ledger.Block,
	members ...ledger.MemberIndex) *ledger.Certificate {
	statements := make([]ledger.Statement, len(members))
	for i, member := range members {
		statements[i] = ledger.SignStatement(Key(Member(int(member)).Name), genesis.Hash(), member,
			epoch, block.Header.Height, block.Hash)
	}
	return ledger.Certify(statements)
}

// Charter returns charter 1 with this threshold, and with the operators PublicKey(name).
func Charter(threshold int, names ...string) ledger.Charter {
	charter := ledger.Charter{Number: 1, Threshold: threshold}
	for _, name := range names {
		charter.Operators = append(charter.Operators, PublicKey(name))
	}
	return charter
}

// ChangeCharter returns the transaction that makes this the charter of an unsharded book.
func (o *Operator) ChangeCharter(charter ledger.Charter) ledger.Transaction {
	o.Sequence++ // another id than that of the same change before
	return ledger.Transaction{Ledger: o.Ledger, Nonce: ledger.Nonce{Stream: o.Stream,
		Sequence: o.Sequence}, Charter: &ledger.CharterChange{Charter: charter}}
}

// ChangeBook returns the transaction that changes the shards of a book.
func (o *Operator) ChangeBook(change ledger.BookChange) ledger.Transaction {
	o.Sequence++ // another id than that of the same change before
	return ledger.Transaction{Ledger: o.Ledger, Nonce: ledger.Nonce{Stream: o.Stream,
		Sequence: o.Sequence}, Book: &change}
}
