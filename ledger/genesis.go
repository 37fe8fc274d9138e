package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
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
	genesisVersion = 1
	genesisDomain  = "ledgerd/genesis/1\x00"
)

// Member is a node of the group that keeps the chain.
type Member struct {
	// Name has the form of an organisation's name.
	Name string `json:"name"`
	// Key is the node's public key, in the form that the fabric has it; the ledger only keeps it.
	Key []byte `json:"key"`
	// Address is where the fabric finds the node.
	Address string `json:"address"`
}

// Genesis is the beginning of a chain. Its JSON form is the genesis file.
type Genesis struct {
	// Chain is the chain's name, of the form of an organisation's name.
	Chain string `json:"chain"`
	// Time is the time of block 0.
	Time    Milliseconds `json:"time"`
	Members []Member     `json:"members"`
	// Operators may sign administrative changes.
	Operators []PublicKey `json:"operators,omitempty"`
	// RegistrationByOperator says that an organisation is registered only with an operator's signature.
	RegistrationByOperator bool `json:"registration_by_operator,omitempty"`
}

// ErrGenesis says why a genesis is not valid.
var ErrGenesis = errors.New("ledger: invalid genesis")

// Validate returns ErrGenesis if names, bounds or members do not fit.
func (g *Genesis) Validate() error {
	switch {
	case !validWord(g.Chain, MaxChainName):
		return fmt.Errorf("%w: chain name %.80q", ErrGenesis, g.Chain)
	case len(g.Members) == 0 || len(g.Members) > MaxMembers:
		return fmt.Errorf("%w: %d members, 1 to %d allowed", ErrGenesis, len(g.Members), MaxMembers)
	case len(g.Operators) > MaxOperators:
		return fmt.Errorf("%w: %d operators, at most %d allowed", ErrGenesis, len(g.Operators), MaxOperators)
	case g.RegistrationByOperator && len(g.Operators) == 0:
		return fmt.Errorf("%w: registration by operator without an operator", ErrGenesis)
	}
	names := make(map[string]bool, len(g.Members))
	for _, member := range g.Members {
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

// Encode returns the canonical encoding, which the genesis hash is made of.
func (g *Genesis) Encode() []byte {
	to := appendString([]byte{genesisVersion}, g.Chain)
	to = binary.BigEndian.AppendUint64(to, uint64(g.Time))
	to = binary.AppendUvarint(to, uint64(len(g.Members)))
	for _, member := range g.Members {
		to = appendString(to, member.Name)
		to = appendString(to, member.Key)
		to = appendString(to, member.Address)
	}
	to = binary.AppendUvarint(to, uint64(len(g.Operators)))
	for _, operator := range g.Operators {
		to = append(to, operator[:]...)
	}
	return appendBool(to, g.RegistrationByOperator)
}

// DecodeGenesis takes a canonical encoding apart, or returns ErrMalformed or ErrGenesis. The genesis shares the memory of data.
func DecodeGenesis(data []byte) (*Genesis, error) {
	r := reader{data: data}
	if version := r.byte(); version != genesisVersion {
		r.fail("genesis version %d", version)
	}
	g := &Genesis{Chain: r.string("bytes of chain name", MaxChainName), Time: Milliseconds(r.uint64())}
	g.Members = make([]Member, r.count("members", MaxMembers, 3))
	for i := range g.Members {
		g.Members[i] = Member{Name: r.string("bytes of name", MaxOrganisationName), Key: r.bytes("bytes of key", MaxMemberKey), Address: r.string("bytes of address", MaxAddress)}
	}
	if count := r.count("operators", MaxOperators, 32); count > 0 {
		g.Operators = make([]PublicKey, count)
		for i := range g.Operators {
			copy(g.Operators[i][:], r.take(32))
		}
	}
	g.RegistrationByOperator = r.bool()
	if err := r.end(); err != nil {
		return nil, err
	}
	return g, g.Validate()
}

// Hash returns the identity of the chain, and of block 0: the SHA-256 of "ledgerd/genesis/1", a zero byte and the canonical encoding.
func (g *Genesis) Hash() Hash { return sum256(append([]byte(genesisDomain), g.Encode()...)) }

// Block returns the chain's block 0.
func (g *Genesis) Block() *Block { return &Block{Header: Header{Time: g.Time}, Hash: g.Hash()} }

// IsOperator reports whether the key is an operator's.
func (g *Genesis) IsOperator(key PublicKey) bool {
	for i := range g.Operators {
		if g.Operators[i] == key {
			return true
		}
	}
	return false
}
