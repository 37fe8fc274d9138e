package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// Bounds of a genesis.
const (
	MaxChainName = 64
	MaxMembers   = 1024
	MaxOperators = 64
	MaxMemberKey = 128
	MaxAddress   = 256
)

const (
	genesisVersion        = 1
	shardedGenesisVersion = 2
	// The versions of a genesis with a threshold of the operators above 1.
	chartersVersion        = 3
	shardedChartersVersion = 4
	// The versions of a genesis with quotas.
	quotasVersion        = 5
	shardedQuotasVersion = 6
	// The version of a genesis of several shards with VouchedCrossings.
	vouchedVersion = 8
	// The versions of a genesis that names the chain's version. They say which options follow.
	versionedVersion        = 9
	shardedVersionedVersion = 10
	// The version of a genesis of a shard that was added to the book.
	grownVersion  = 12
	genesisDomain = "ledgerd/genesis/1\x00"
	bookDomain    = "ledgerd/book/1\x00"
)

// Member is a node of the group that keeps the chain.
type Member struct {
	// Name has the form of an organisation's name.
	Name string `json:"name"`
	// Key is the node's public key, in the fabric's form. The ledger does not interpret it.
	Key []byte `json:"key"`
	// Address is the address at which the fabric finds the node.
	Address string `json:"address"`
}

// Genesis is the beginning of a chain. A book has one genesis for each of its shards. Its JSON form
// is the genesis file.
type Genesis struct {
	// Chain is the chain's name, in the form of an organisation's name.
	Chain string `json:"chain"`
	// Time is the time of block 0.
	Time    Milliseconds `json:"time"`
	Members []Member     `json:"members"`
	// Operators may sign administrative changes.
	Operators []PublicKey `json:"operators,omitempty"`
	// RegistrationByOperator requires an operator's signature to register an organisation.
	RegistrationByOperator bool `json:"registration_by_operator,omitempty"`
	// OperatorThreshold is the number of operators that have to sign. 0 means 1.
	OperatorThreshold int `json:"operator_threshold,omitempty"`
	// Quotas bound what each organisation keeps.
	Quotas Quotas `json:"quotas,omitzero"`
	// Shards are the members of all shards if the book has two shards or more. Members are then the
	// members of this chain's shard. In a book of one shard, this field and those below are empty.
	Shards [][]Member `json:"shards,omitempty"`
	// Tree has each shard's parent. The root is its own parent.
	Tree []ShardID `json:"tree,omitempty"`
	// Shard is the shard of this chain.
	Shard ShardID `json:"shard,omitempty"`
	// Grown are the shards that were added to the book while it ran, up to this chain's shard,
	// which is the last of them. It is empty if the book began with this chain's shard. The book's
	// identity does not depend on it.
	Grown []AddedShard `json:"grown,omitempty"`
	// VouchedCrossings requires more than half of a shard's members to vouch for what its chain
	// takes over from other shards. Then a minority of liars in any shard can forge nothing in
	// another one. The book must have several shards.
	VouchedCrossings bool `json:"vouched_crossings,omitempty"`
	// Version is the version of the chain's first block. 0 means FirstVersion.
	Version int `json:"version,omitempty"`
}

// ErrGenesis reports why a genesis is not valid.
var ErrGenesis = errors.New("ledger: invalid genesis")

// Validate returns ErrGenesis unless the names, bounds, members and shards are valid.
func (g *Genesis) Validate() error {
	switch {
	case !validWord(g.Chain, MaxChainName):
		return fmt.Errorf("%w: chain name %.80q", ErrGenesis, g.Chain)
	case len(g.Operators) > MaxOperators:
		return fmt.Errorf("%w: %d operators, at most %d allowed", ErrGenesis, len(g.Operators),
			MaxOperators)
	case g.RegistrationByOperator && len(g.Operators) == 0:
		return fmt.Errorf("%w: registration by operator without an operator", ErrGenesis)
	case g.OperatorThreshold < 0 || g.OperatorThreshold > max(1, len(g.Operators)):
		return fmt.Errorf("%w: %d of %d: %w", ErrGenesis, g.OperatorThreshold, len(g.Operators),
			errThreshold)
	case g.Version < 0:
		return fmt.Errorf("%w: version %d", ErrGenesis, g.Version)
	}
	if err := CheckVersion(g.Version); err != nil {
		return fmt.Errorf("%w: %w", ErrGenesis, err)
	}
	if err := g.Quotas.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrGenesis, err)
	}
	if err := validateMembers(g.Members); err != nil {
		return err
	}
	if err := g.validateShards(); err != nil {
		return err
	}
	return g.validateVouched()
}

// validateMembers checks the members of one shard.
func validateMembers(members []Member) error {
	if len(members) == 0 || len(members) > MaxMembers {
		return fmt.Errorf("%w: %d members, 1 to %d allowed", ErrGenesis, len(members), MaxMembers)
	}
	names := make(map[string]bool, len(members))
	for _, member := range members {
		switch {
		case !validWord(member.Name, MaxOrganisationName):
			return fmt.Errorf("%w: member name %.80q", ErrGenesis, member.Name)
		case names[member.Name]:
			return fmt.Errorf("%w: two members named %s", ErrGenesis, member.Name)
		case len(member.Key) > MaxMemberKey || len(member.Address) > MaxAddress:
			return fmt.Errorf("%w: member %s: key or address too long", ErrGenesis, member.Name)
		}
		names[member.Name] = true
	}
	return nil
}

// Encode returns the canonical encoding, which the genesis hash covers: version 1, chain name,
// time, members, operators and RegistrationByOperator. If the book has several shards, the version
// is 2. The members are then replaced by the number of shards and, for each shard, its parent and
// members, and the chain's shard comes last. If several operators have to sign, the version is 3 or
// 4 instead, and the threshold follows RegistrationByOperator. With quotas it is 5 or 6, and the
// threshold and the quotas follow. With VouchedCrossings it is 8, and the threshold, a byte that is
// 1 if there are quotas, and the quotas follow. If the chain's version is above 1, the version is 9
// or 10, and the threshold, the chain's version, VouchedCrossings, a byte that is 1 if there are
// quotas, and the quotas follow.
//
// The version of the genesis of a shard that was added later is 12. What follows is the encoding of
// the book's genesis without the shard at its end, the number of shards that were added up to this
// one, and for each its parent, its members and the hash of its directory.
func (g *Genesis) Encode() []byte {
	if len(g.Grown) > 0 {
		return g.appendGrown(nil)
	}
	to := g.appendBook(nil)
	if g.Sharded() {
		to = binary.AppendUvarint(to, uint64(g.Shard))
	}
	return to
}

// appendBook appends the part that all chains of the book have in common.
func (g *Genesis) appendBook(to []byte) []byte {
	version := byte(genesisVersion)
	if g.Sharded() {
		version = shardedGenesisVersion
	}
	switch {
	case g.Version > FirstVersion:
		version += versionedVersion - genesisVersion
	case g.VouchedCrossings:
		version = vouchedVersion
	case g.Quotas != Quotas{}:
		version += quotasVersion - genesisVersion
	case g.OperatorThreshold > 1:
		version += chartersVersion - genesisVersion
	}
	to = codec.AppendString(append(to, version), g.Chain)
	to = binary.BigEndian.AppendUint64(to, uint64(g.Time))
	if g.Sharded() {
		to = binary.AppendUvarint(to, uint64(len(g.Shards)))
		for i, members := range g.Shards {
			to = appendMembers(binary.AppendUvarint(to, uint64(g.Tree[i])), members)
		}
	} else {
		to = appendMembers(to, g.Members)
	}
	to = binary.AppendUvarint(to, uint64(len(g.Operators)))
	for _, operator := range g.Operators {
		to = append(to, operator[:]...)
	}
	to = codec.AppendBool(to, g.RegistrationByOperator)
	if version >= chartersVersion {
		to = binary.AppendUvarint(to, uint64(max(1, g.OperatorThreshold)))
	}
	quotas := version >= quotasVersion
	if version >= versionedVersion {
		to = binary.AppendUvarint(to, uint64(g.Version))
		to = codec.AppendBool(to, g.VouchedCrossings)
	}
	if version >= vouchedVersion {
		quotas = g.Quotas != Quotas{}
		to = codec.AppendBool(to, quotas)
	}
	if quotas {
		to = g.Quotas.append(to)
	}
	return to
}

func appendMembers(to []byte, members []Member) []byte {
	to = binary.AppendUvarint(to, uint64(len(members)))
	for i := range members {
		to = members[i].append(to)
	}
	return to
}

// DecodeGenesis decodes a genesis, or returns ErrMalformed or ErrGenesis. The genesis shares the
// memory of data.
func DecodeGenesis(data []byte) (*Genesis, error) {
	r := read(data)
	version := r.Byte()
	grown := version == grownVersion
	if grown {
		if version = r.Byte(); version%2 != 0 {
			r.Fail("a shard added to a book of one shard")
		}
	}
	if version < genesisVersion || version == vouchedVersion-1 ||
		version > shardedVersionedVersion {
		r.Fail("genesis version %d", version)
	}
	sharded := version%2 == 0
	g := &Genesis{Chain: r.String("bytes of chain name", MaxChainName),
		Time: Milliseconds(r.Uint64()), VouchedCrossings: version == vouchedVersion}
	if sharded {
		g.Shards = make([][]Member, r.Count("shards", MaxShards, 5))
		g.Tree = make([]ShardID, len(g.Shards))
		for i := range g.Shards {
			g.Tree[i], g.Shards[i] = r.shard(), r.members()
		}
	} else {
		g.Members = r.members()
	}
	if count := r.Count("operators", MaxOperators, 32); count > 0 {
		g.Operators = make([]PublicKey, count)
		for i := range g.Operators {
			copy(g.Operators[i][:], r.Take(32))
		}
	}
	g.RegistrationByOperator = r.Bool()
	if version >= chartersVersion {
		threshold := r.Count("signatures", MaxOperators, 0)
		if threshold == 0 || threshold == 1 && version < quotasVersion {
			r.Fail("a threshold of %d", threshold)
		}
		if threshold > 1 {
			g.OperatorThreshold = threshold
		}
	}
	if version >= versionedVersion {
		g.Version = r.chainVersion()
		g.VouchedCrossings = r.Bool()
	}
	if version >= quotasVersion && (version < vouchedVersion || r.Bool()) {
		g.Quotas = r.quotas()
	}
	switch {
	case grown:
		r.grown(g)
	case sharded:
		g.Shard = r.shard()
		if int(g.Shard) >= len(g.Shards) {
			r.Fail("shard %d of %d", g.Shard, len(g.Shards))
		} else {
			g.Members = g.Shards[g.Shard]
		}
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return g, g.Validate()
}

func (r *reader) members() []Member {
	members := make([]Member, r.Count("members", MaxMembers, 3))
	for i := range members {
		members[i] = r.member()
	}
	return members
}

// chainVersion reads the version of a chain. An encoding without one means FirstVersion.
func (r *reader) chainVersion() int {
	version := r.Uvarint()
	if version <= FirstVersion || version > maxVersion {
		r.Fail("version %d of the chain", version)
		return 0
	}
	return int(version)
}

func (r *reader) shard() ShardID { return ShardID(r.Uvarint32("shard")) }

// Hash returns the identity of the chain and of block 0: the SHA-256 of "ledgerd/genesis/1", a zero
// byte and the canonical encoding. Changes of the membership name it as their ledger.
func (g *Genesis) Hash() Hash { return sum256(append([]byte(genesisDomain), g.Encode()...)) }

// Book returns the identity of the book. It is the same for all shards of the book, and
// transactions name it as their ledger. In a book of one shard it is Hash. Otherwise it is the
// SHA-256 of "ledgerd/book/1", a zero byte and the canonical encoding without the shard at its end.
func (g *Genesis) Book() Hash {
	if !g.Sharded() {
		return g.Hash()
	}
	return sum256(g.appendBook([]byte(bookDomain)))
}

// Block returns the chain's block 0.
func (g *Genesis) Block() *Block { return &Block{Header: Header{Time: g.Time}, Hash: g.Hash()} }

// IsOperator reports whether the key is that of an operator of the genesis. The operators may have
// changed since; see Charter.
func (g *Genesis) IsOperator(key PublicKey) bool {
	for i := range g.Operators {
		if g.Operators[i] == key {
			return true
		}
	}
	return false
}
