package ledger

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// A statement is what a member signs of a block: that its disk holds the block, and that it knows
// of a majority of the members whose disks hold it. No correct member ever sets such a block aside,
// so it never signs two blocks of one height. The statements of a majority of the members are the
// block's certificate. They are the members before the block: if the block changes the members, the
// old ones certify it, so certificates lead from the members of the genesis to any later ones (see
// Auditor).

// MembersEpoch numbers the sets of members that a chain has had: the number of joins and leaves
// before a block. The genesis' members have epoch 0. An admission of a disk begins no epoch, since
// it changes no key.
type MembersEpoch uint64

const (
	statementDomain    = "ledgerd/stored/1\x00"
	certificateVersion = 1
	// StatementSize is the size in bytes of an encoded Statement.
	StatementSize = 8 + 8 + HashSize + 4 + ed25519.SignatureSize
	// MaxCertificateBytes bounds the encoding of a certificate.
	MaxCertificateBytes = 1 + 8 + 8 + HashSize + 5 + MaxMembers*(4+ed25519.SignatureSize) + 1 +
		5 + maxProofBytes
	maxProofBytes = MaxTransactionBytes + HeaderSize + 3*(1+maxPath*HashSize) + 4*HashSize + 64 +
		MaxBundleSignatures*(MaxOrganisationName+100)
)

// ErrCertificate reports that a statement or a certificate does not hold: it is signed wrongly, or
// by too few members, or by members of another epoch.
var ErrCertificate = errors.New("ledger: certificate does not hold")

// Seal is a member's signature of a statement.
type Seal struct {
	Member    MemberIndex                 `json:"member"`
	Signature [ed25519.SignatureSize]byte `json:"signature"`
}

// Statement is a member's word that it stored a block.
type Statement struct {
	Height Height
	Hash   Hash
	Epoch  MembersEpoch
	Seal
}

// SignStatement makes a member's statement about a block. The chain is the genesis' hash, the key
// the node's.
func SignStatement(key ed25519.PrivateKey, chain Hash, member MemberIndex, epoch MembersEpoch,
	height Height, hash Hash) Statement {
	s := Statement{Height: height, Hash: hash, Epoch: epoch, Seal: Seal{Member: member}}
	copy(s.Signature[:], ed25519.Sign(key, statementMessage(chain, epoch, height, hash)))
	return s
}

// statementMessage returns what a member signs: "ledgerd/stored/1", a zero byte, the genesis' hash,
// the members' epoch, the height and the block's hash, integers big-endian.
func statementMessage(chain Hash, epoch MembersEpoch, height Height, hash Hash) []byte {
	to := append(make([]byte, 0, len(statementDomain)+2*HashSize+16), statementDomain...)
	to = append(to, chain[:]...)
	to = binary.BigEndian.AppendUint64(to, uint64(epoch))
	to = binary.BigEndian.AppendUint64(to, uint64(height))
	return append(to, hash[:]...)
}

// Verify returns ErrCertificate unless the member with this key has signed the statement for the
// chain.
func (s *Statement) Verify(chain Hash, key []byte) error {
	if len(key) != NodeKeySize || !(&Signature{Key: PublicKey(key), Bytes: s.Signature}).verify(
		statementMessage(chain, s.Epoch, s.Height, s.Hash)) {
		return fmt.Errorf("%w: the signature of member %d of block %d", ErrCertificate, s.Member,
			s.Height)
	}
	return nil
}

// Encode returns the encoding of a fixed size: epoch, height, hash, member (4 bytes), signature.
func (s *Statement) Encode() []byte {
	to := binary.BigEndian.AppendUint64(make([]byte, 0, StatementSize), uint64(s.Epoch))
	to = binary.BigEndian.AppendUint64(to, uint64(s.Height))
	to = append(to, s.Hash[:]...)
	return s.Seal.append(to)
}

// DecodeStatement decodes a statement, or returns ErrMalformed. It verifies nothing.
func DecodeStatement(data []byte) (Statement, error) {
	r := read(data)
	s := Statement{Epoch: MembersEpoch(r.Uint64()), Height: Height(r.Uint64()), Hash: r.Hash(),
		Seal: r.seal()}
	if s.Height == 0 {
		r.Fail("a statement about the genesis")
	}
	return s, r.End()
}

func (s *Seal) append(to []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(s.Member))
	return append(to, s.Signature[:]...)
}

func (r *reader) seal() (s Seal) {
	member := r.Uint32()
	if member >= MaxMemberIndexes {
		r.Fail("member %d", member)
	}
	s.Member = MemberIndex(member)
	copy(s.Signature[:], r.Take(len(s.Signature)))
	return s
}

// Certificate is the statements of several members about one block. It proves that the block is
// final if Members.Check accepts it: then a majority of the members signed.
type Certificate struct {
	Height Height       `json:"height"`
	Hash   Hash         `json:"hash"`
	Epoch  MembersEpoch `json:"epoch"`
	// Seals are the signatures, ordered by member, one of each.
	Seals []Seal `json:"seals"`
	// Change is the proof of the join or leave in the block, if it has one. The members after the
	// block follow from it.
	Change *Proof `json:"change,omitempty"`
}

// Certify joins statements about one block into a certificate. The statements must have the same
// height, hash and epoch, and different members.
func Certify(statements []Statement) *Certificate {
	c := &Certificate{Height: statements[0].Height, Hash: statements[0].Hash,
		Epoch: statements[0].Epoch, Seals: make([]Seal, len(statements))}
	for i := range statements {
		c.Seals[i] = statements[i].Seal
	}
	slices.SortFunc(c.Seals, func(a, b Seal) int { return int(a.Member) - int(b.Member) })
	return c
}

// Statements returns what each of the signers said.
func (c *Certificate) Statements() []Statement {
	statements := make([]Statement, len(c.Seals))
	for i := range c.Seals {
		statements[i] = Statement{Height: c.Height, Hash: c.Hash, Epoch: c.Epoch, Seal: c.Seals[i]}
	}
	return statements
}

// Encode returns the canonical encoding: version 1, epoch, height, hash, the number of seals
// (uvarint), the seals, and whether a proof of a change follows, with its length.
func (c *Certificate) Encode() []byte {
	to := append(make([]byte, 0, 64+len(c.Seals)*(4+ed25519.SignatureSize)), certificateVersion)
	to = binary.BigEndian.AppendUint64(to, uint64(c.Epoch))
	to = binary.BigEndian.AppendUint64(to, uint64(c.Height))
	to = append(to, c.Hash[:]...)
	to = binary.AppendUvarint(to, uint64(len(c.Seals)))
	for i := range c.Seals {
		to = c.Seals[i].append(to)
	}
	to = codec.AppendBool(to, c.Change != nil)
	if c.Change != nil {
		to = codec.AppendString(to, c.Change.Encode())
	}
	return to
}

// DecodeCertificate decodes a certificate, or returns ErrMalformed. It verifies nothing except that
// no member signs twice. The certificate shares the memory of data.
func DecodeCertificate(data []byte) (*Certificate, error) {
	r := read(data)
	c := r.certificate()
	if err := r.End(); err != nil {
		return nil, err
	}
	return c, nil
}

func (r *reader) certificate() *Certificate {
	if version := r.Byte(); version != certificateVersion {
		r.Fail("certificate version %d", version)
	}
	c := &Certificate{Epoch: MembersEpoch(r.Uint64()), Height: Height(r.Uint64()), Hash: r.Hash()}
	if c.Height == 0 {
		r.Fail("a certificate of the genesis")
	}
	c.Seals = make([]Seal, r.Count("seals", MaxMembers, 4+ed25519.SignatureSize))
	for i := range c.Seals {
		c.Seals[i] = r.seal()
		if i > 0 && c.Seals[i].Member <= c.Seals[i-1].Member {
			r.Fail("seals not in the order of their members")
		}
	}
	if len(c.Seals) == 0 {
		r.Fail("a certificate without signatures")
	}
	if r.Bool() {
		encoded := r.Bytes("bytes of proof", maxProofBytes)
		if r.Err == nil {
			if c.Change, r.Err = DecodeProof(encoded); r.Err != nil {
				r.Data = nil
			}
		}
	}
	return c
}

// Members are the members of one epoch: those that certify the blocks after the block Since, up to
// and including the block that makes the next change.
type Members struct {
	// Chain is the genesis' hash.
	Chain Hash
	Epoch MembersEpoch
	// Since is the height of the block that began the epoch; 0 for the genesis.
	Since Height
	// Keys has the node key of each member.
	Keys map[MemberIndex][]byte
}

// MembersOf returns the members that certify the block at a height: those of the membership before
// it. The membership must be the one after the block before; former are the members that left.
func MembersOf(chain Hash, height Height, before *Membership, former []FormerMember) *Members {
	m := &Members{Chain: chain, Keys: make(map[MemberIndex][]byte, len(before.Members))}
	begin := func(at Height) {
		if at > 0 && at < height {
			m.Epoch, m.Since = m.Epoch+1, max(m.Since, at)
		}
	}
	for i := range before.Members {
		m.Keys[before.Members[i].Index] = before.Members[i].Key
		begin(before.Members[i].Joined)
	}
	for i := range former {
		begin(former[i].Left)
		if _, counted := m.Keys[former[i].Index]; !counted {
			begin(former[i].Joined)
		}
	}
	return m
}

// has reports whether a member has this node key.
func (m *Members) has(key []byte) bool {
	for _, each := range m.Keys {
		if bytes.Equal(each, key) {
			return true
		}
	}
	return false
}

// Majority returns the smallest number that is more than half of the members.
func (m *Members) Majority() int { return clock.Majority(len(m.Keys)) }

// Check returns ErrCertificate unless a majority of the members signed the certificate, for a block
// of their epoch. It does not check Change.
func (m *Members) Check(c *Certificate) error {
	switch {
	case c.Epoch != m.Epoch:
		return fmt.Errorf("%w: block %d is certified by members of epoch %d, not %d",
			ErrCertificate,
			c.Height, c.Epoch, m.Epoch)
	case c.Height <= m.Since:
		return fmt.Errorf("%w: block %d is not of epoch %d, which began at block %d",
			ErrCertificate,
			c.Height, m.Epoch, m.Since)
	case len(c.Seals) < m.Majority():
		return fmt.Errorf("%w: %d of %d members signed block %d", ErrCertificate, len(c.Seals),
			len(m.Keys), c.Height)
	}
	return m.checkSeals(c)
}

// checkSeals returns ErrCertificate unless all signers are different members of the epoch and all
// their signatures are good.
func (m *Members) checkSeals(c *Certificate) error {
	message := statementMessage(m.Chain, c.Epoch, c.Height, c.Hash)
	signatures := make([]Signature, len(c.Seals))
	for i := range c.Seals {
		key := m.Keys[c.Seals[i].Member]
		if i > 0 && c.Seals[i].Member <= c.Seals[i-1].Member {
			return fmt.Errorf("%w: member %d signed block %d twice", ErrCertificate,
				c.Seals[i].Member, c.Height)
		}
		if len(key) != NodeKeySize {
			return fmt.Errorf("%w: of block %d: %d is no member of epoch %d", ErrCertificate,
				c.Height, c.Seals[i].Member, m.Epoch)
		}
		signatures[i] = Signature{Key: PublicKey(key), Bytes: c.Seals[i].Signature}
	}
	if at := verifier.verify([]signed{{message, signatures}})[0]; at >= 0 {
		return fmt.Errorf("%w: the signature of member %d of block %d", ErrCertificate,
			c.Seals[at].Member, c.Height)
	}
	return nil
}
