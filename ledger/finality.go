package ledger

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

const (
	finalityVersion       = 1
	certifiedProofVersion = 2
	// MaxFinalityHeaders bounds the headers between a block and the certified one after it.
	MaxFinalityHeaders = 1 << 12
	// MaxFinalityBytes bounds an encoded Finality.
	MaxFinalityBytes = 64 << 20
)

// Finality proves to a reader with the genesis alone that a block is final: the certificates of
// the changes of the members up to the block, the headers from the block to the next certified one,
// and that block's certificate. The verifier trusts that at no time did a majority of the members
// lie or lose their keys, including members that left since.
type Finality struct {
	// Changes are the certificates of all joins and leaves before the certified block, in order.
	Changes []*Certificate `json:"changes,omitempty"`
	// Headers are the encoded headers of the blocks after the proven one, up to the certified one.
	// There are none if the block itself is certified.
	Headers     [][]byte     `json:"headers,omitempty"`
	Certificate *Certificate `json:"certificate"`
}

// Auditor follows the members of a chain from its genesis by certificates. It believes nothing
// else. The zero value is not usable: call NewAuditor.
//
// A copy of an Auditor is another auditor with the same knowledge.
type Auditor struct {
	members Members
	// group are the members as certificates tell of them: without disks. Follow replaces the list.
	group Membership
	// next is the index of the next member that joins.
	next MemberIndex
	last *Certificate
}

// NewAuditor makes an auditor that knows the members of the genesis.
func NewAuditor(genesis *Genesis) *Auditor {
	membership := genesis.Membership()
	return &Auditor{members: *MembersOf(genesis.Hash(), 1, &membership, nil), group: membership,
		next: MemberIndex(len(membership.Members))}
}

// Members returns the members that the auditor knows last. They are read-only.
func (a *Auditor) Members() *Members { return &a.members }

// Membership returns the members that the auditor knows last, with their names, addresses and the
// heights at which they joined. It follows from the genesis and the certificates alone. It differs
// from the chain's in two ways, because an admission of a disk needs no certificate: members have
// no disks, and Number counts joins and leaves only, so it is the members' epoch. Height and Round
// are those of the last join or leave. The list is read-only.
func (a *Auditor) Membership() Membership { return a.group }

// Last returns the last certificate that Follow or Check accepted, or nil.
func (a *Auditor) Last() *Certificate { return a.last }

// Check returns ErrCertificate unless the certificate is of a block of the present epoch and a
// majority of its members signed it.
func (a *Auditor) Check(c *Certificate) error {
	if err := a.members.Check(c); err != nil {
		return err
	}
	a.last = c
	return nil
}

// Follow checks the certificate of the next join or leave as Check does, and then knows the members
// after it. A certificate of an epoch that the auditor has passed changes nothing.
func (a *Auditor) Follow(c *Certificate) error {
	if c.Epoch < a.members.Epoch {
		return nil
	}
	if err := a.members.Check(c); err != nil {
		return err
	}
	change, err := c.change()
	if err != nil {
		return err
	}
	after := Members{Chain: a.members.Chain, Epoch: a.members.Epoch + 1, Since: c.Height,
		Keys: maps.Clone(a.members.Keys)}
	header, err := DecodeHeader(c.Change.Header)
	if err != nil {
		return fmt.Errorf("%w: block %d: %w", ErrCertificate, c.Height, err)
	}
	group := Membership{Number: a.group.Number + 1, Height: c.Height, Round: header.Round,
		Members: slices.Clone(a.group.Members)}
	switch {
	case change.Kind == ChangeJoin && a.members.has(change.Member.Key):
		// The transaction repeated what was so, and succeeded. The member would count twice.
		return fmt.Errorf("%w: the member that joined at block %d was one", ErrCertificate,
			c.Height)
	case change.Kind == ChangeJoin:
		after.Keys[a.next] = change.Member.Key
		group.Members = append(group.Members, GroupMember{Index: a.next,
			Member: change.Member.copy(), Joined: c.Height})
		a.next++
	case len(after.Keys) > 1 && after.Keys[change.Index] != nil:
		delete(after.Keys, change.Index)
		group.Members = slices.DeleteFunc(group.Members, func(each GroupMember) bool {
			return each.Index == change.Index
		})
	default:
		return fmt.Errorf("%w: member %d left at block %d, and was none", ErrCertificate,
			change.Index, c.Height)
	}
	a.members, a.group, a.last = after, group, c
	return nil
}

// CheckChange returns ErrCertificate unless the certificate proves the join or leave of its block.
func (c *Certificate) CheckChange() error {
	_, err := c.change()
	return err
}

// change returns the join or leave that the certificate's block made.
func (c *Certificate) change() (*MembershipChange, error) {
	if c.Change == nil || c.Change.BlockHash != c.Hash {
		return nil, fmt.Errorf("%w: block %d: it does not prove the change of the members",
			ErrCertificate, c.Height)
	}
	if err := VerifyProof(c.Change); err != nil {
		return nil, fmt.Errorf("%w: the change of the members in block %d: %w", ErrCertificate,
			c.Height, err)
	}
	header, err := DecodeHeader(c.Change.Header)
	if err != nil || header.Height != c.Height {
		return nil, fmt.Errorf("%w: block %d: the header of its change has another height",
			ErrCertificate, c.Height)
	}
	transaction, err := DecodeBody(c.Change.Body)
	if err != nil {
		return nil, fmt.Errorf("%w: block %d: %w", ErrCertificate, c.Height, err)
	}
	change := transaction.Change
	if change == nil || !change.OfMembers() || !c.Change.Result.OK() {
		return nil, fmt.Errorf("%w: block %d: the transaction changed no members", ErrCertificate,
			c.Height)
	}
	return change, nil
}

// Verify returns ErrCertificate unless the block with this height and hash is final in the chain of
// the genesis. The auditor may know any members up to those of the block. Afterwards it knows
// those. A new auditor has verified each part of the finality.
func (a *Auditor) Verify(f *Finality, height Height, hash Hash) error {
	if f.Certificate == nil || len(f.Headers) > MaxFinalityHeaders {
		return fmt.Errorf("%w: block %d: no certificate near it", ErrCertificate, height)
	}
	for i, encoded := range f.Headers {
		header, err := DecodeHeader(encoded)
		switch {
		case err != nil:
			return fmt.Errorf("%w: header %d: %w", ErrCertificate, i, err)
		case header.Height != height+1 || header.Previous != hash:
			return fmt.Errorf("%w: header %d does not follow block %d", ErrCertificate, i, height)
		}
		height, hash = header.Height, header.Hash()
	}
	if f.Certificate.Height != height || f.Certificate.Hash != hash {
		return fmt.Errorf("%w: it is of block %d %s, not of block %d %s", ErrCertificate,
			f.Certificate.Height, f.Certificate.Hash, height, hash)
	}
	for i, change := range f.Changes {
		// Follow passes over old epochs. In this order it has verified each of the changes.
		if change.Epoch != f.Changes[0].Epoch+MembersEpoch(i) {
			return fmt.Errorf("%w: the changes of the members are not in order", ErrCertificate)
		}
		if err := a.Follow(change); err != nil {
			return err
		}
	}
	return a.Check(f.Certificate)
}

// Encode returns the canonical encoding: version 1, then the changes, the headers and the
// certificate. A list comes after its count, and a certificate after its length (uvarints).
func (f *Finality) Encode() []byte {
	to := binary.AppendUvarint([]byte{finalityVersion}, uint64(len(f.Changes)))
	for _, change := range f.Changes {
		to = codec.AppendString(to, change.Encode())
	}
	to = binary.AppendUvarint(to, uint64(len(f.Headers)))
	for _, header := range f.Headers {
		to = append(to, header...)
	}
	return codec.AppendString(to, f.Certificate.Encode())
}

// DecodeFinality decodes a Finality, or returns ErrMalformed. It verifies nothing. The result
// shares the memory of data.
func DecodeFinality(data []byte) (*Finality, error) {
	r := read(data)
	f := r.finality()
	if err := r.End(); err != nil {
		return nil, err
	}
	return f, nil
}

func (r *reader) finality() *Finality {
	if version := r.Byte(); version != finalityVersion {
		r.Fail("finality version %d", version)
	}
	f := &Finality{}
	if count := r.Count("changes", 2*MaxMemberIndexes, 128); count > 0 {
		f.Changes = make([]*Certificate, count)
	}
	for i := range f.Changes {
		f.Changes[i] = r.enclosedCertificate()
	}
	if count := r.Count("headers", MaxFinalityHeaders, HeaderSize); count > 0 {
		f.Headers = make([][]byte, count)
	}
	for i := range f.Headers {
		f.Headers[i] = r.Take(HeaderSize)
	}
	f.Certificate = r.enclosedCertificate()
	return f
}

// enclosedCertificate reads a certificate after its length.
func (r *reader) enclosedCertificate() *Certificate {
	enclosed := read(r.Bytes("bytes of certificate", MaxCertificateBytes))
	if r.Err != nil {
		return nil
	}
	c := enclosed.certificate()
	if err := enclosed.End(); err != nil {
		r.Data, r.Err = nil, err
	}
	return c
}

// CertifiedProof is a transaction's proof with the finality of its block. A reader needs nothing
// else but the genesis, and the keys of the organisations to know who signed the transaction.
type CertifiedProof struct {
	*Proof
	// Finality is nil in a proof of a node that had no certificate yet.
	Finality *Finality `json:"finality,omitempty"`
}

// VerifyCertifiedProof returns nil if VerifyProof accepts the proof, and its block is final in the
// chain of the genesis. Otherwise it returns ErrProof or ErrCertificate.
func VerifyCertifiedProof(p *CertifiedProof, genesis *Genesis) error {
	if err := VerifyProof(p.Proof); err != nil {
		return err
	}
	header, err := DecodeHeader(p.Header)
	if err != nil {
		return fmt.Errorf("%w: header: %w", ErrProof, err)
	}
	if p.Finality == nil {
		return fmt.Errorf("%w: block %d: the proof has no certificate", ErrCertificate,
			header.Height)
	}
	return NewAuditor(genesis).Verify(p.Finality, header.Height, p.BlockHash)
}

// Encode returns the canonical encoding: that of the proof if there is no finality. Otherwise
// version 2, the finality after its length (uvarint), and the encoding of the proof.
func (p *CertifiedProof) Encode() []byte {
	if p.Finality == nil {
		return p.Proof.Encode()
	}
	to := codec.AppendString([]byte{certifiedProofVersion}, p.Finality.Encode())
	return append(to, p.Proof.Encode()...)
}

// DecodeCertifiedProof decodes what CertifiedProof.Encode or Proof.Encode returned, or returns
// ErrMalformed. It verifies nothing. The proof shares the memory of data.
func DecodeCertifiedProof(data []byte) (*CertifiedProof, error) {
	p := &CertifiedProof{}
	if len(data) > 0 && data[0] == certifiedProofVersion {
		r := read(data[1:])
		encoded := r.Bytes("bytes of finality", MaxFinalityBytes)
		if r.Err != nil {
			return nil, r.Err
		}
		var err error
		if p.Finality, err = DecodeFinality(encoded); err != nil {
			return nil, err
		}
		data = r.Data
	}
	proof, err := DecodeProof(data)
	if err != nil {
		return nil, err
	}
	p.Proof = proof
	return p, nil
}
