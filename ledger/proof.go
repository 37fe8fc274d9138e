package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// ErrProof reports that a proof does not prove its claim.
var ErrProof = errors.New("ledger: proof does not hold")

const (
	proofVersion = 1
	// placedProofVersion is that of proofs in blocks with Header.ByBundle. Version 2 is a certified
	// proof.
	placedProofVersion = 3
)

// maxPath bounds an inclusion path, because no tree has more than 2^32 leaves.
const maxPath = 33

// Proof proves that a transaction is in a block, with its result, and that its bundle was signed.
// It can be checked offline, by VerifyProof or by any program with SHA-256 and ed25519. The
// verifier must know from another source that BlockHash is a block of the chain, and which keys
// belong to which organisation.
type Proof struct {
	// Body is the transaction's canonical encoding, or shows a transfer of a packed bundle; see
	// DecodeBody. ID is the transaction's id.
	Body []byte `json:"body"`
	ID   Hash   `json:"id"`
	// Header is the block's encoded header. BlockHash is its hash.
	Header    []byte `json:"header"`
	BlockHash Hash   `json:"block_hash"`
	// Index is the transaction's place among the Count transactions of the block. TransactionPath
	// leads from its id to the header's transactions root, and ResultPath from its result to the
	// results root (RFC 6962).
	Index           uint32 `json:"index"`
	Count           uint32 `json:"count"`
	TransactionPath []Hash `json:"transaction_path"`
	Result          Result `json:"result"`
	ResultPath      []Hash `json:"result_path"`
	// BundleIndex is the transaction's place among the BundleCount transactions of its bundle.
	// BundlePath leads from its id to BundleRoot. Signatures sign BundleRoot. For a packed bundle
	// BundlePath is the paths of all parts in the body, one after the other.
	BundleIndex uint32      `json:"bundle_index"`
	BundleCount uint32      `json:"bundle_count"`
	BundlePath  []Hash      `json:"bundle_path"`
	BundleRoot  Hash        `json:"bundle_root"`
	Signatures  []Signature `json:"signatures"`
	// Placing is nil unless the header says ByBundle. Then TransactionPath and ResultPath lead to
	// roots of the bundle, and not to those of the header.
	Placing *Placing `json:"placing,omitempty"`
}

// Proof returns the proof of the block's transaction at index, which must be below Len.
func (b *Block) Proof(index int) *Proof {
	entry := b.Entry(index)
	seal := &b.Bundles[entry.Bundle]
	p := &Proof{
		Body: b.Body(index), ID: entry.ID, Header: b.Header.Encode(), BlockHash: b.Hash,
		Index: uint32(index), Count: uint32(b.Len()), Result: entry.Result,
		BundleIndex: uint32(entry.Place), BundleCount: uint32(seal.Len()),
		BundleRoot: seal.Root, Signatures: seal.Signatures,
	}
	if seal.packed != nil {
		body, err := decodePackedBody(p.Body)
		if err != nil {
			panic(fmt.Sprintf("ledger: what shows a packed transfer is malformed: %v", err))
		}
		p.BundlePath = body.path(seal.packed.leaves())
	} else {
		p.BundlePath = merklePath(idLeaves(seal.IDs), entry.Place)
	}
	if b.Header.ByBundle {
		p.Placing = b.placing(p, index)
		return p
	}
	p.TransactionPath = merklePath(b.idLeaves(), index)
	p.ResultPath = merklePath(b.resultLeaves(make([]Hash, len(b.Unpacked))), index)
	return p
}

// Transaction returns the transaction that the proof is about, or ErrMalformed or ErrName.
func (p *Proof) Transaction() (*Transaction, error) { return DecodeBody(p.Body) }

// VerifyProof returns nil if the body has the id, the id and the result are in the block with
// BlockHash, the bundle holds the id, and all signatures of the bundle are good. Otherwise it
// returns ErrProof, joined with the error of a part that cannot be decoded.
func VerifyProof(p *Proof) error {
	header, err := DecodeHeader(p.Header)
	if err != nil {
		return fmt.Errorf("%w: header: %w", ErrProof, err)
	}
	if header.Hash() != p.BlockHash {
		return fmt.Errorf("%w: the header has another hash", ErrProof)
	}
	if header.Transactions != p.Count {
		return fmt.Errorf("%w: the block has %d transactions", ErrProof, header.Transactions)
	}
	kind, err := p.verifyBundle()
	if err != nil {
		return err
	}
	switch {
	case header.ByBundle != (p.Placing != nil) || kind == leafOfPacked && p.Placing == nil:
		return fmt.Errorf("%w: it is not of such a block", ErrProof)
	case header.ByBundle:
		return p.Placing.verify(p, &header, kind)
	}
	if err := verifyPath(leafHash(p.ID[:]), uint64(p.Index), uint64(p.Count), p.TransactionPath,
		header.TransactionsRoot); err != nil {
		return fmt.Errorf("transaction path: %w", err)
	}
	if err := verifyPath(p.Result.leaf(p.ID), uint64(p.Index), uint64(p.Count), p.ResultPath,
		header.ResultsRoot); err != nil {
		return fmt.Errorf("result path: %w", err)
	}
	return nil
}

// verifyBundle checks that the body has the id, that the bundle holds it, and the signatures. It
// returns the bundle's kind.
func (p *Proof) verifyBundle() (kind byte, err error) {
	if kind = p.kind(); kind == leafOfPacked {
		err = p.verifyPacked()
	} else {
		err = p.verifyID()
	}
	if err != nil {
		return 0, err
	}
	message := signingMessage(p.BundleRoot, kind == leafOfPacked)
	for i := range p.Signatures {
		if !p.Signatures[i].verify(message) {
			return 0, fmt.Errorf("%w: signature of %q", ErrProof, p.Signatures[i].Organisation)
		}
	}
	return kind, nil
}

// kind returns the kind of the bundle that the body is from.
func (p *Proof) kind() byte {
	if len(p.Body) > 0 && p.Body[0] == packedBodyVersion {
		return leafOfPacked
	}
	return leafOfIDs
}

// verifyID checks the body of a transaction with an id of its own.
func (p *Proof) verifyID() error {
	if _, err := DecodeBody(p.Body); err != nil {
		return fmt.Errorf("%w: body: %w", ErrProof, err)
	}
	if TransactionID(p.Body) != p.ID {
		return fmt.Errorf("%w: the body has another id", ErrProof)
	}
	if err := verifyPath(leafHash(p.ID[:]), uint64(p.BundleIndex), uint64(p.BundleCount),
		p.BundlePath, p.BundleRoot); err != nil {
		return fmt.Errorf("bundle path: %w", err)
	}
	return nil
}

// verifyPacked checks the body of a transfer of a packed bundle.
func (p *Proof) verifyPacked() error {
	body, err := decodePackedBody(p.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%w: body: %w", ErrProof, err)
	case p.ID != packedID(&p.BundleRoot, body.place):
		return fmt.Errorf("%w: the body has another id", ErrProof)
	case p.BundleIndex != uint32(body.place) || p.BundleCount != uint32(body.count):
		return fmt.Errorf("%w: the body is transfer %d of %d", ErrProof, body.place, body.count)
	}
	if err := body.verify(p.BundlePath, p.BundleRoot); err != nil {
		return fmt.Errorf("bundle path: %w", err)
	}
	return nil
}

// Encode returns the canonical encoding.
func (p *Proof) Encode() []byte {
	version := byte(proofVersion)
	if p.Placing != nil {
		version = placedProofVersion
	}
	to := codec.AppendString([]byte{version}, p.Body)
	to = append(to, p.ID[:]...)
	to = codec.AppendString(to, p.Header)
	to = append(to, p.BlockHash[:]...)
	to = binary.BigEndian.AppendUint32(to, p.Index)
	to = binary.BigEndian.AppendUint32(to, p.Count)
	to = appendPath(to, p.TransactionPath)
	to = appendResult(to, p.Result)
	to = appendPath(to, p.ResultPath)
	if p.Placing != nil {
		to = p.Placing.append(to)
	}
	to = binary.BigEndian.AppendUint32(to, p.BundleIndex)
	to = binary.BigEndian.AppendUint32(to, p.BundleCount)
	to = appendPath(to, p.BundlePath)
	to = append(to, p.BundleRoot[:]...)
	return appendSignatures(to, p.Signatures)
}

// DecodeProof decodes a proof, or returns ErrMalformed. It does not verify the proof. The proof
// shares the memory of data.
func DecodeProof(data []byte) (*Proof, error) {
	r := read(data)
	version := r.Byte()
	if version != proofVersion && version != placedProofVersion {
		r.Fail("proof version %d", version)
	}
	p := &Proof{
		Body: r.Bytes("bytes of transaction", MaxTransactionBytes), ID: r.Hash(),
		Header: r.Bytes("bytes of header", HeaderSize), BlockHash: r.Hash(),
		Index: r.Uint32(), Count: r.Uint32(), TransactionPath: r.path(), Result: r.result(),
		ResultPath: r.path(),
	}
	if version == placedProofVersion {
		p.Placing = r.placing()
	}
	p.BundleIndex, p.BundleCount, p.BundlePath = r.Uint32(), r.Uint32(), r.path()
	p.BundleRoot, p.Signatures = r.Hash(), r.signatures()
	if err := r.End(); err != nil {
		return nil, err
	}
	return p, nil
}

func appendPath(to []byte, path []Hash) []byte {
	to = append(to, byte(len(path)))
	for i := range path {
		to = append(to, path[i][:]...)
	}
	return to
}

func (r *reader) path() []Hash {
	path := make([]Hash, r.Count("hashes", maxPath, HashSize))
	for i := range path {
		path[i] = r.Hash()
	}
	return path
}
