package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// AccountProof proves what an account has after a block, from the block's state digest. That is a
// hash over the root of a Merkle tree of all accounts, by their numbers, and a digest of all else
// (package state), in chains of version AccountTreeVersion and later. It can be checked offline, by
// VerifyAccountProof or by any program with SHA-256. The verifier must know from another source
// that the header is one of the chain, or have the finality that proves it.
type AccountProof struct {
	Header  []byte      `json:"header"` // encoded
	Account AccountPath `json:"account"`
	// Entry is the value of the account's entry of the state.
	Entry []byte `json:"entry"`
	// Accounts is the number of accounts, which gives the tree's shape.
	Accounts uint64 `json:"accounts"`
	// Siblings are the hashes of the other children of each node on the way from the account to the
	// root, the lowest node first, in the order of their places.
	Siblings []Hash `json:"siblings"`
	// Others is the digest of all entries of the state but the accounts.
	Others Hash `json:"others"`
	// Finality proves that the block is final. It is nil if the proof has none.
	Finality *Finality `json:"finality,omitempty"`
}

const (
	// accountProofVersion follows those of a transaction's proofs.
	accountProofVersion = 4
	// accountTreeArity is how many children a node of the tree of accounts has.
	accountTreeArity = 4
	accountTreeLeaf  = 0
	accountTreeNode  = 1
	// maxAccountEntry bounds the value of an account's entry.
	maxAccountEntry = 1 << 20
	// maxAccountSiblings bounds the siblings: three for each level of a tree of 2^64 leaves.
	maxAccountSiblings = 3 * 32

	accountStateDomain = "ledgerd/state/2\x00"
)

// VerifyAccountProof returns the account and the header of the block after which it is so, or
// ErrProof. It does not check the finality.
func VerifyAccountProof(p *AccountProof) (Account, Header, error) {
	fail := func(format string, arguments ...any) (Account, Header, error) {
		return Account{}, Header{}, fmt.Errorf("%w: account %.150q: "+format,
			append([]any{ErrProof, string(p.Account)}, arguments...)...)
	}
	header, err := DecodeHeader(p.Header)
	if err != nil {
		return fail("header: %w", err)
	}
	if err := p.Account.Validate(); err != nil {
		return fail("%w", err)
	}
	account, err := decodeAccountEntry(p.Account, p.Entry)
	if err != nil {
		return fail("%w", err)
	}
	if account.Number == 0 || account.Number > p.Accounts {
		return fail("it is number %d of %d", account.Number, p.Accounts)
	}
	entry := append([]byte{accountTreeLeaf, 'a'}, p.Account...)
	hash := Hash(sha256.Sum256(append(append(entry, 0), p.Entry...)))
	siblings := p.Siblings
	for place, length := account.Number-1, p.Accounts; length > 1; {
		first := place / accountTreeArity * accountTreeArity
		count := min(accountTreeArity, length-first)
		if count > 1 {
			if uint64(len(siblings)) < count-1 {
				return fail("it has too few hashes")
			}
			data := []byte{accountTreeNode}
			for child := first; child < first+count; child++ {
				if child == place {
					data = append(data, hash[:]...)
					continue
				}
				data, siblings = append(data, siblings[0][:]...), siblings[1:]
			}
			hash = sha256.Sum256(data)
		}
		place, length = place/accountTreeArity, (length+accountTreeArity-1)/accountTreeArity
	}
	if len(siblings) > 0 {
		return fail("it has too many hashes")
	}
	data := binary.BigEndian.AppendUint64([]byte(accountStateDomain), p.Accounts)
	data = append(append(data, hash[:]...), p.Others[:]...)
	if digest := Hash(sha256.Sum256(data)); digest != header.StateDigest {
		return fail("the state digest of block %d is another one", header.Height)
	}
	return account, header, nil
}

// VerifyFinalAccountProof is VerifyAccountProof that also checks that the block is final in the
// chain of the genesis. It returns ErrCertificate if not.
func VerifyFinalAccountProof(p *AccountProof, genesis *Genesis) (Account, Header, error) {
	account, header, err := VerifyAccountProof(p)
	if err != nil {
		return Account{}, Header{}, err
	}
	if p.Finality == nil {
		return Account{}, Header{}, fmt.Errorf("%w: block %d: the proof has no certificate",
			ErrCertificate, header.Height)
	}
	err = NewAuditor(genesis).Verify(p.Finality, header.Height, header.Hash())
	if err != nil {
		return Account{}, Header{}, err
	}
	return account, header, nil
}

// decodeAccountEntry decodes the value of an account's entry of the state, in its one encoding.
func decodeAccountEntry(path AccountPath, value []byte) (Account, error) {
	r := read(value)
	account := Account{Path: path, Number: r.Uvarint(), Issuer: r.Bool(),
		Alias: r.String("bytes of alias", MaxAlias)}
	account.Opened, account.History = Height(r.Uvarint()), r.Uvarint()
	for range r.Count("balances", MaxAssets, 2) {
		account.Balances = append(account.Balances, Balance{Asset: AssetName(r.String(
			"bytes of asset", MaxAssetName)), Amount: r.amount()})
	}
	if r.Err != nil || len(r.Data) == 0 {
		return account, r.End()
	}
	holds := r.Count("holds", MaxAssets, 3)
	for range holds {
		held := Balance{Asset: AssetName(r.String("bytes of asset", MaxAssetName)),
			SetAside: r.amount(), Incoming: r.amount()}
		at, has := 0, false
		for at < len(account.Balances) && account.Balances[at].Asset < held.Asset {
			at++
		}
		if has = at < len(account.Balances) && account.Balances[at].Asset == held.Asset; !has {
			account.Balances = append(account.Balances[:at], append([]Balance{{Asset: held.Asset}},
				account.Balances[at:]...)...)
		}
		held.Amount = account.Balances[at].Amount.Minus(held.SetAside)
		account.Balances[at] = held
	}
	if r.Err != nil || len(r.Data) == 0 {
		if holds == 0 {
			r.Fail("no holds")
		}
		return account, r.End()
	}
	standing, err := DecodeStanding(r.Take(len(r.Data)))
	if err != nil {
		return account, err
	}
	account.Standing = standing
	return account, r.End()
}

// Encode returns the canonical encoding: version 4, the finality after its length or 0 without one,
// the header, the path and the entry after their lengths, the number of accounts, the siblings
// after their number (all uvarints), and the digest of the others.
func (p *AccountProof) Encode() []byte {
	var finality []byte
	if p.Finality != nil {
		finality = p.Finality.Encode()
	}
	to := codec.AppendString([]byte{accountProofVersion}, finality)
	to = append(to, p.Header...)
	to = codec.AppendString(to, p.Account)
	to = codec.AppendString(to, p.Entry)
	to = binary.AppendUvarint(to, p.Accounts)
	to = binary.AppendUvarint(to, uint64(len(p.Siblings)))
	for i := range p.Siblings {
		to = append(to, p.Siblings[i][:]...)
	}
	return append(to, p.Others[:]...)
}

// IsAccountProof reports whether data begins like the encoding of an AccountProof.
func IsAccountProof(data []byte) bool { return len(data) > 0 && data[0] == accountProofVersion }

// DecodeAccountProof decodes what AccountProof.Encode returned, or returns ErrMalformed. It
// verifies nothing. The proof shares the memory of data.
func DecodeAccountProof(data []byte) (*AccountProof, error) {
	r := read(data)
	if version := r.Byte(); version != accountProofVersion {
		r.Fail("account proof version %d", version)
	}
	finality := r.Bytes("bytes of finality", MaxFinalityBytes)
	p := &AccountProof{Header: r.Take(HeaderSize),
		Account: AccountPath(r.String("bytes of account", MaxAccountPath)),
		Entry:   r.Bytes("bytes of entry", maxAccountEntry), Accounts: r.Uvarint()}
	for range r.Count("siblings", maxAccountSiblings, HashSize) {
		p.Siblings = append(p.Siblings, r.Hash())
	}
	p.Others = r.Hash()
	if err := r.End(); err != nil {
		return nil, err
	}
	if len(finality) > 0 {
		var err error
		if p.Finality, err = DecodeFinality(finality); err != nil {
			return nil, err
		}
	}
	return p, nil
}
