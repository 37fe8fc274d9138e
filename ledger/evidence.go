package ledger

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

const (
	evidenceVersion = 1
	evidenceDomain  = "ledgerd/evidence/1\x00"
)

// ErrEvidence reports that evidence proves nothing.
var ErrEvidence = errors.New("ledger: evidence proves nothing")

// Evidence is two signed accounts of one height that cannot both be true. Each is a certificate
// with one signature or more: a member's statement, or the statements of a majority.
//
// A member that signed both told two stories. If no member signed both, the signers of one of them
// are wrong. This takes a member that lies or whose key was stolen, or a recovery
// (`ledgerd recover`) that gave up blocks: members that had them then hold others.
type Evidence struct {
	First  *Certificate `json:"first"`
	Second *Certificate `json:"second"`
}

// Height returns the height of which the evidence is.
func (e *Evidence) Height() Height { return e.First.Height }

// Members returns the members that signed both blocks, in order. If there are none, the signers of
// one of the two blocks are wrong.
func (e *Evidence) Members() []MemberIndex {
	var both []MemberIndex
	for i := range e.First.Seals {
		for j := range e.Second.Seals {
			if e.First.Seals[i].Member == e.Second.Seals[j].Member {
				both = append(both, e.First.Seals[i].Member)
			}
		}
	}
	return both
}

// Verify returns ErrEvidence unless both sides are of one height and different blocks, and all
// their signatures are good. The chain is the genesis' hash. The key of a member is that of any
// time, since an index and its key belong to one member for ever; nil if there was no such member.
func (e *Evidence) Verify(chain Hash, key func(MemberIndex) []byte) error {
	if e.First.Height != e.Second.Height || e.First.Hash == e.Second.Hash {
		return fmt.Errorf("%w: blocks %d %s and %d %s can both be true", ErrEvidence,
			e.First.Height, e.First.Hash, e.Second.Height, e.Second.Hash)
	}
	for _, side := range []*Certificate{e.First, e.Second} {
		for _, statement := range side.Statements() {
			if err := statement.Verify(chain, key(statement.Member)); err != nil {
				return fmt.Errorf("%w: %w", ErrEvidence, err)
			}
		}
	}
	return nil
}

// Encode returns the canonical encoding: version 1 and both sides, each after its length (uvarint).
// The side with the smaller hash comes first, so that what is the same has one encoding. Proofs of
// changes are left out.
func (e *Evidence) Encode() []byte {
	first, second := *e.First, *e.Second
	first.Change, second.Change = nil, nil
	if bytes.Compare(first.Hash[:], second.Hash[:]) > 0 {
		first, second = second, first
	}
	to := codec.AppendString([]byte{evidenceVersion}, first.Encode())
	return codec.AppendString(to, second.Encode())
}

// DecodeEvidence decodes evidence, or returns ErrMalformed. It verifies nothing.
func DecodeEvidence(data []byte) (*Evidence, error) {
	r := read(data)
	if version := r.Byte(); version != evidenceVersion {
		r.Fail("evidence version %d", version)
	}
	e := &Evidence{First: r.enclosedCertificate(), Second: r.enclosedCertificate()}
	if r.Err == nil && (e.First.Change != nil || e.Second.Change != nil ||
		bytes.Compare(e.First.Hash[:], e.Second.Hash[:]) > 0) {
		r.Fail("evidence not in its canonical form")
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return e, nil
}

// ID returns the identity of the evidence: the SHA-256 of "ledgerd/evidence/1", a zero byte and the
// canonical encoding.
func (e *Evidence) ID() Hash { return sum256(append([]byte(evidenceDomain), e.Encode()...)) }

// Contradiction returns evidence if two certificates or statements are of one height and of
// different blocks, and otherwise nil.
func Contradiction(a, b *Certificate) *Evidence {
	if a.Height != b.Height || a.Hash == b.Hash {
		return nil
	}
	return &Evidence{First: a, Second: b}
}
