package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// ErrProof reports that a proof does not prove its claim.
var ErrProof = errors.New("ledger: proof does not hold")

const proofVersion = 1

// maxPath bounds an inclusion path, because no tree has more than 2^32 leaves.
const maxPath = 33

// Proof proves that a transaction is in a block, with its result, and that its bundle was signed.
// It can be checked offline, by VerifyProof or by any program with SHA-256 and ed25519. The
// verifier must know from another source that BlockHash is a block of the chain, and which keys
// belong to which organisation.
type Proof struct {
	// Body is the transaction's canonical encoding. ID is its id.
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
	// BundlePath leads from its id to BundleRoot. Signatures sign BundleRoot.
	BundleIndex uint32      `json:"bundle_index"`
	BundleCount uint32      `json:"bundle_count"`
	BundlePath  []Hash      `json:"bundle_path"`
	BundleRoot  Hash        `json:"bundle_root"`
	Signatures  []Signature `json:"signatures"`
}

// Proof returns the proof of the block's transaction at index, which must be below len(Entries).
func (b *Block) Proof(index int) *Proof {
	entry := &b.Entries[index]
	seal := &b.Bundles[entry.Bundle]
	return &Proof{
		Body: entry.Body, ID: entry.ID, Header: b.Header.Encode(), BlockHash: b.Hash,
		Index: uint32(index), Count: uint32(len(b.Entries)),
		TransactionPath: merklePath(b.idLeaves(), index), Result: entry.Result,
		ResultPath:  merklePath(b.resultLeaves(make([]Hash, len(b.Entries))), index),
		BundleIndex: uint32(entry.Place), BundleCount: uint32(len(seal.IDs)),
		BundlePath: merklePath(idLeaves(seal.IDs), entry.Place),
		BundleRoot: seal.Root, Signatures: seal.Signatures,
	}
}

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
	if _, err := DecodeBody(p.Body); err != nil {
		return fmt.Errorf("%w: body: %w", ErrProof, err)
	}
	if TransactionID(p.Body) != p.ID {
		return fmt.Errorf("%w: the body has another id", ErrProof)
	}
	if header.Transactions != p.Count {
		return fmt.Errorf("%w: the block has %d transactions", ErrProof, header.Transactions)
	}
	leaf := leafHash(p.ID[:])
	if err := verifyPath(leaf, uint64(p.Index), uint64(p.Count), p.TransactionPath,
		header.TransactionsRoot); err != nil {
		return fmt.Errorf("transaction path: %w", err)
	}
	if err := verifyPath(p.Result.leaf(p.ID), uint64(p.Index), uint64(p.Count), p.ResultPath,
		header.ResultsRoot); err != nil {
		return fmt.Errorf("result path: %w", err)
	}
	if err := verifyPath(leaf, uint64(p.BundleIndex), uint64(p.BundleCount), p.BundlePath,
		p.BundleRoot); err != nil {
		return fmt.Errorf("bundle path: %w", err)
	}
	for i := range p.Signatures {
		if !p.Signatures[i].verify(SigningMessage(p.BundleRoot)) {
			return fmt.Errorf("%w: signature of %q", ErrProof, p.Signatures[i].Organisation)
		}
	}
	return nil
}

// Encode returns the canonical encoding.
func (p *Proof) Encode() []byte {
	to := codec.AppendString([]byte{proofVersion}, p.Body)
	to = append(to, p.ID[:]...)
	to = codec.AppendString(to, p.Header)
	to = append(to, p.BlockHash[:]...)
	to = binary.BigEndian.AppendUint32(to, p.Index)
	to = binary.BigEndian.AppendUint32(to, p.Count)
	to = appendPath(to, p.TransactionPath)
	to = appendResult(to, p.Result)
	to = appendPath(to, p.ResultPath)
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
	if version := r.Byte(); version != proofVersion {
		r.Fail("proof version %d", version)
	}
	p := &Proof{
		Body: r.Bytes("bytes of transaction", MaxTransactionBytes), ID: r.Hash(),
		Header: r.Bytes("bytes of header", HeaderSize), BlockHash: r.Hash(),
		Index: r.Uint32(), Count: r.Uint32(), TransactionPath: r.path(), Result: r.result(),
		ResultPath:  r.path(),
		BundleIndex: r.Uint32(), BundleCount: r.Uint32(), BundlePath: r.path(),
		BundleRoot: r.Hash(), Signatures: r.signatures(),
	}
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
