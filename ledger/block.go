package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// HeaderSize is the size of an encoded header in bytes.
const HeaderSize = 1 + 8 + HashSize + 8 + 8 + 8 + 4*HashSize + 4 + 8

// MaxBlockTransactions bounds the transactions of a block: as many as a round of the largest group
// can carry.
const MaxBlockTransactions = 1 << 24

const (
	headerVersion = 1
	// byBundleVersion is that of headers with ByBundle.
	byBundleVersion = 2
	blockDomain     = "ledgerd/block/1\x00"
)

// ErrBlock reports that a block's parts do not match its header.
var ErrBlock = errors.New("ledger: block does not match its header")

// Header is the part of a block that its hash covers. The encoding has a fixed size: version (1
// byte: 1, or 2 with ByBundle), then the other fields in order, integers big-endian.
type Header struct {
	Height Height `json:"height"`
	// Previous is the hash of the previous block. In block 1 it is the genesis hash.
	Previous Hash  `json:"previous"`
	Epoch    Epoch `json:"epoch"`
	Round    Round `json:"round"`
	// Time is the lower median of the proposers' clocks that count. It is the time of the previous
	// block if that is later or if no clock counts. See MaxStep.
	Time Milliseconds `json:"time"`
	// TransactionsRoot is the RFC 6962 root over the ids, in order.
	TransactionsRoot Hash `json:"transactions_root"`
	// ResultsRoot is the RFC 6962 root over the results. A leaf covers the id, the code (1 byte)
	// and the item (4 bytes).
	ResultsRoot Hash `json:"results_root"`
	// BundlesRoot is the RFC 6962 root over the bundles' seals: the number of ids (uvarint), their
	// root and the signatures. In a bundle from the parent shard, a zero byte and the bundle's
	// number in the stream (uvarint) come first.
	BundlesRoot Hash `json:"bundles_root"`
	// StateDigest is the SHA-256 of the LtHash of the state after the block.
	StateDigest Hash `json:"state_digest"`
	// Transactions is the number of transactions in the block. Total is their number in all blocks
	// up to this one.
	Transactions uint32 `json:"transactions"`
	Total        uint64 `json:"total"`
	// ByBundle says that TransactionsRoot and ResultsRoot have a leaf for each bundle, as from
	// version PackedVersion of a chain on. Only then the block may have packed bundles.
	ByBundle bool `json:"by_bundle,omitempty"`
}

// Encode returns the HeaderSize bytes that the block's hash covers.
func (h *Header) Encode() []byte {
	version := byte(headerVersion)
	if h.ByBundle {
		version = byBundleVersion
	}
	to := append(make([]byte, 0, HeaderSize), version)
	to = binary.BigEndian.AppendUint64(to, uint64(h.Height))
	to = append(to, h.Previous[:]...)
	to = binary.BigEndian.AppendUint64(to, uint64(h.Epoch))
	to = binary.BigEndian.AppendUint64(to, uint64(h.Round))
	to = binary.BigEndian.AppendUint64(to, uint64(h.Time))
	to = append(to, h.TransactionsRoot[:]...)
	to = append(to, h.ResultsRoot[:]...)
	to = append(to, h.BundlesRoot[:]...)
	to = append(to, h.StateDigest[:]...)
	to = binary.BigEndian.AppendUint32(to, h.Transactions)
	return binary.BigEndian.AppendUint64(to, h.Total)
}

// Hash returns the block's hash: the SHA-256 of "ledgerd/block/1", a zero byte and the encoded
// header.
func (h *Header) Hash() Hash { return sum256(append([]byte(blockDomain), h.Encode()...)) }

// DecodeHeader decodes a header, or returns ErrMalformed.
func DecodeHeader(data []byte) (Header, error) {
	r := read(data)
	header := r.header()
	return header, r.End()
}

func (r *reader) header() Header {
	version := r.Byte()
	if version != headerVersion && version != byBundleVersion {
		r.Fail("header version %d", version)
	}
	return Header{
		Height: Height(r.Uint64()), Previous: r.Hash(), Epoch: Epoch(r.Uint64()),
		Round: Round(r.Uint64()), Time: Milliseconds(r.Uint64()),
		TransactionsRoot: r.Hash(), ResultsRoot: r.Hash(), BundlesRoot: r.Hash(),
		StateDigest:  r.Hash(),
		Transactions: r.Uint32(), Total: r.Uint64(), ByBundle: version == byBundleVersion,
	}
}

// Entry is a transaction in a block.
type Entry struct {
	ID Hash
	// Decoded is the transaction. It is nil for a transfer of a packed bundle; see Transaction.
	Decoded *Transaction
	// packed is the content of the packed bundle that the transfer is in, or nil.
	packed *packed
	// Body is the canonical encoding. It is nil for a transfer of a packed bundle; see Block.Body.
	Body []byte
	// Result is the outcome, once the block is executed.
	Result Result
	// Bundle is the index of the transaction's bundle in the block. Place is its index in that
	// bundle.
	Bundle, Place int
}

// Transaction returns the transaction. It makes a transfer of a packed bundle anew each time:
// nothing else holds one.
func (e *Entry) Transaction() *Transaction {
	if e.packed != nil {
		return e.packed.transaction(e.Place)
	}
	return e.Decoded
}

// BundleSeal is the part of a bundle that a block keeps beside the transactions. It is enough to
// verify the signatures again.
type BundleSeal struct {
	// IDs are the ids of all transactions that the signatures cover, including those that were
	// dropped, for example as duplicates. Kept marks those that are in the block. Both are nil for
	// a packed bundle, of which all are.
	IDs        []Hash
	Kept       []bool
	Signatures []Signature
	// Number is the bundle's number in the stream from the parent shard; 0 if it entered in this
	// shard.
	Number uint64
	// Root is the RFC 6962 Merkle root over the ids (IDRoot), which the signatures sign.
	Root Hash
	// tree is over the ids, until the block's roots are known.
	tree idTree
	// packed is the content of a packed bundle, and nil for any other.
	packed *packed
	// results are those of a packed bundle's transfers, or nil if all were applied.
	results []Result
}

// Packed reports whether it is a packed bundle.
func (s *BundleSeal) Packed() bool { return s.packed != nil }

// Len returns the number of transactions that the signatures cover.
func (s *BundleSeal) Len() int {
	if s.packed != nil {
		return s.packed.count
	}
	return len(s.IDs)
}

// ID returns the id of the transaction at a place of the bundle.
func (s *BundleSeal) ID(place int) Hash {
	if s.packed != nil {
		return packedID(&s.Root, place)
	}
	return s.IDs[place]
}

// Transfers returns the transfers of a packed bundle, which Packed reports.
func (s *BundleSeal) Transfers() Transfers { return Transfers{s.packed} }

// Result returns the result of a packed bundle's transfer at a place.
func (s *BundleSeal) Result(place int) Result {
	if s.results == nil {
		return appliedWhole
	}
	return s.results[place]
}

// SetResults sets the results of all transfers of a packed bundle. It keeps a copy, and nothing if
// all were applied, as they are before it is called.
func (s *BundleSeal) SetResults(results []Result) {
	s.results = nil
	if slices.ContainsFunc(results, func(r Result) bool { return r != appliedWhole }) {
		s.results = slices.Clone(results)
	}
}

// appendNumber appends, for a bundle from the parent's stream, a mark and the bundle's number. The
// mark is 0, which is never a count of transactions.
func (s *BundleSeal) appendNumber(to []byte) []byte {
	if s.Number == 0 {
		return to
	}
	return binary.AppendUvarint(append(to, 0), s.Number)
}

// packedMark begins a packed bundle in a block: a count of 0, and a number of 0, which no bundle of
// a stream has.
var packedMark = []byte{0, 0}

func (s *BundleSeal) leaf() Hash {
	data := s.appendNumber(make([]byte, 0, 256))
	if s.packed != nil {
		data = append(data, packedMark...)
	}
	data = binary.AppendUvarint(data, uint64(s.Len()))
	return leafHash(appendSignatures(append(data, s.Root[:]...), s.Signatures))
}

// Block is one round of the chain. It is read-only. The genesis is the block at height 0: it has no
// transactions, its Hash is the genesis hash, and its header holds only the time.
type Block struct {
	Header Header
	Hash   Hash
	// Unpacked are the transactions of the bundles that are not packed, in order. A packed bundle
	// has hundreds of transfers, which the block has in the form of its seal only. Len, Entry, All,
	// Parts and Heads are about all transactions.
	Unpacked []Entry
	// Bundles are the seals of all bundles, in order. AddPacked adds that of a packed one.
	Bundles []BundleSeal
	// packs are the places of the packed bundles, in order.
	packs []pack
}

// Encode returns the canonical encoding.
func (b *Block) Encode() []byte {
	size := HeaderSize + 16
	for i := range b.Unpacked {
		size += len(b.Unpacked[i].Body) + 10
	}
	for i := range b.Bundles {
		size += 8 + len(b.Bundles[i].Signatures)*(MaxOrganisationName+100)
		if packed := b.Bundles[i].packed; packed != nil {
			size += len(packed.content) + 8
		}
	}
	return b.appendTo(make([]byte, 0, size))
}

func (b *Block) appendTo(to []byte) []byte {
	to = append(to, b.Header.Encode()...)
	to = binary.AppendUvarint(to, uint64(len(b.Bundles)))
	entry := 0
	for i := range b.Bundles {
		seal := &b.Bundles[i]
		if seal.packed != nil {
			to = seal.appendPacked(to)
			continue
		}
		to = binary.AppendUvarint(seal.appendNumber(to), uint64(len(seal.IDs)))
		for j := range seal.IDs {
			to = codec.AppendBool(to, seal.Kept[j])
			if !seal.Kept[j] {
				to = append(to, seal.IDs[j][:]...)
				continue
			}
			to = codec.AppendString(to, b.Unpacked[entry].Body)
			to = appendResult(to, b.Unpacked[entry].Result)
			entry++
		}
		to = appendSignatures(to, seal.Signatures)
	}
	return to
}

// appendPacked appends a packed bundle: its mark, the content, the results that are not applied,
// each after its place, and the signatures.
func (s *BundleSeal) appendPacked(to []byte) []byte {
	to = codec.AppendString(append(to, packedMark...), s.packed.content)
	to = appendFailures(to, s.results)
	return appendSignatures(to, s.Signatures)
}

// Body returns the canonical encoding of the transaction at index. For a transfer of a packed
// bundle it makes what shows it; see DecodeBody.
func (b *Block) Body(index int) []byte {
	entry := b.Entry(index)
	if entry.packed != nil {
		return entry.packed.body(entry.Place)
	}
	return entry.Body
}

// DecodeBlock decodes a block and checks every part against the header. It does not check the
// header against a chain. It returns ErrMalformed, ErrName or ErrBlock. The block shares the memory
// of data, which must not change any more.
func DecodeBlock(data []byte) (*Block, error) {
	r := read(data)
	block := &Block{Header: r.header()}
	block.Hash = block.Header.Hash()
	if int(block.Header.Transactions) > MaxBlockTransactions ||
		int(block.Header.Transactions) > len(r.Data) {
		r.Fail("%d transactions", block.Header.Transactions)
	}
	if r.Err != nil {
		return nil, r.Err
	}
	slab := &blockSlab{postings: newPostingSlab(int(block.Header.Transactions))}
	bundles := r.Count("bundles", MaxBlockTransactions, 3)
	block.Bundles = make([]BundleSeal, 0, bundles)
	for range bundles {
		decode := block.decodeBundle
		if len(r.Data) >= 2 && r.Data[0] == 0 && r.Data[1] == 0 && block.Header.ByBundle {
			decode = block.decodePacked
		}
		if err := decode(&r, slab); err != nil {
			return nil, err
		}
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return block, block.checkRoots()
}

// blockSlab allocates the transactions of a block together. Those of packed bundles need none.
type blockSlab struct {
	free     []Transaction
	postings *postingSlab
}

// blockSlabMax bounds the transactions of one allocation.
const blockSlabMax = 512

// take returns an empty transaction. left is how many the block has from this one on.
func (s *blockSlab) take(left int) *Transaction {
	if len(s.free) == 0 {
		s.free = make([]Transaction, min(left, blockSlabMax))
	}
	taken := &s.free[0]
	s.free = s.free[1:]
	return taken
}

// left returns how many transactions are still to be decoded, as the header says.
func (b *Block) left() int { return int(b.Header.Transactions) - b.Len() }

func (b *Block) decodeBundle(r *reader, slab *blockSlab) error {
	index := len(b.Bundles)
	b.Bundles = append(b.Bundles, BundleSeal{})
	seal := &b.Bundles[index]
	count := r.Count("transactions", MaxBundleTransactions, 7)
	if count == 0 {
		// A count of 0 is the mark of appendNumber.
		if seal.Number = r.Uvarint(); seal.Number == 0 {
			r.Fail("an empty bundle")
		}
		if count = r.Count("transactions", MaxBundleTransactions, 7); count == 0 {
			r.Fail("an empty bundle")
		}
	}
	seal.IDs, seal.Kept = make([]Hash, count), make([]bool, count)
	for place := range count {
		if seal.Kept[place] = r.Bool(); !seal.Kept[place] {
			seal.IDs[place] = r.Hash()
			continue
		}
		body := r.Bytes("bytes of transaction", MaxTransactionBytes)
		result := r.result()
		if b.left() == 0 {
			r.Fail("more transactions than the header says")
		}
		if r.Err != nil {
			return r.Err
		}
		if b.Unpacked == nil {
			b.Unpacked = make([]Entry, 0, b.left())
		}
		transaction := slab.take(b.left())
		if err := decodeBody(body, transaction, slab.postings); err != nil {
			return err
		}
		if transaction.alone() && count > 1 {
			return fmt.Errorf("%w: %w", ErrMalformed, errNotAlone)
		}
		seal.IDs[place] = TransactionID(body)
		b.Unpacked = append(b.Unpacked, Entry{ID: seal.IDs[place], Decoded: transaction,
			Body: body, Result: result, Bundle: index, Place: place})
	}
	if err := b.checkVerdicts(index); err != nil {
		return err
	}
	seal.Signatures = r.signatures()
	seal.tree = newIDTree(seal.IDs)
	seal.Root = seal.tree.root()
	return r.Err
}

// checkVerdicts returns ErrMalformed if the last bundle, which has this index, has a verdict and
// something else than good verdicts of that shard.
func (b *Block) checkVerdicts(index int) error {
	seal := &b.Bundles[index]
	if len(seal.IDs) == 1 {
		return nil
	}
	first := len(b.Unpacked)
	for first > 0 && b.Unpacked[first-1].Bundle == index {
		first--
	}
	entries := b.Unpacked[first:]
	has := func(e Entry) bool { return e.Decoded.Verdict != nil }
	if !slices.ContainsFunc(entries, has) {
		return nil
	}
	for i := range entries {
		verdict := entries[i].Decoded.Verdict
		if len(entries) < len(seal.IDs) || verdict == nil ||
			!mayShare(entries[0].Decoded.Verdict, verdict) {
			return fmt.Errorf("%w: %w", ErrMalformed, errVerdictsApart)
		}
	}
	return nil
}

// decodePacked is decodeBundle for a packed bundle.
func (b *Block) decodePacked(r *reader, _ *blockSlab) error {
	r.Take(len(packedMark))
	content := read(r.Bytes("bytes of bundle", MaxBundleBytes))
	packed := content.packed(content.Data)
	if packed != nil && packed.count > b.left() {
		content.Fail("more transactions than the header says")
	}
	if err := content.End(); r.Err == nil && err != nil {
		return err
	}
	if r.Err != nil {
		return r.Err
	}
	seal := BundleSeal{packed: packed, Root: merkleRoot(packed.leaves())}
	seal.results = r.failures(packed.count)
	seal.Signatures = r.signatures()
	b.AddPacked(seal)
	return r.Err
}

// Complete computes the header's roots from the entries and bundles, sets the digest of the state
// after the block, and computes the block's hash.
func (b *Block) Complete(stateDigest Hash) {
	b.Header.TransactionsRoot, b.Header.ResultsRoot = b.roots()
	b.Header.BundlesRoot = b.bundlesRoot()
	b.Header.StateDigest = stateDigest
	b.Hash = b.Header.Hash()
}

// roots returns the roots over the ids and over the results. It drops the bundles' trees.
func (b *Block) roots() (ids, results Hash) {
	if b.Header.ByBundle {
		transactions, outcomes := b.leavesByBundle()
		for i := range b.Bundles {
			b.Bundles[i].tree = idTree{}
		}
		return merkleRoot(transactions), merkleRoot(outcomes)
	}
	hashes := make([]Hash, len(b.Unpacked)) // without ByBundle no bundle is packed
	ids = b.idRoot(hashes)
	for i := range b.Bundles {
		b.Bundles[i].tree = idTree{}
	}
	return ids, merkleRoot(b.resultLeaves(hashes))
}

func (b *Block) idLeaves() []Hash {
	leaves := make([]Hash, len(b.Unpacked))
	hashIDs(leaves, len(leaves), func(i int) *Hash { return &b.Unpacked[i].ID })
	return leaves
}

// resultLeaves overwrites leaves, which are as many as the entries.
func (b *Block) resultLeaves(leaves []Hash) []Hash {
	for i := range b.Unpacked {
		leaves[i] = b.Unpacked[i].Result.leaf(b.Unpacked[i].ID)
	}
	return leaves
}

func (b *Block) bundlesRoot() Hash {
	leaves := make([]Hash, len(b.Bundles))
	for i := range b.Bundles {
		leaves[i] = b.Bundles[i].leaf()
	}
	return merkleRoot(leaves)
}

func (b *Block) checkRoots() error {
	ids, results := b.roots()
	switch {
	case int(b.Header.Transactions) != b.Len():
		return fmt.Errorf("%w: %d transactions, the header says %d", ErrBlock, b.Len(),
			b.Header.Transactions)
	case ids != b.Header.TransactionsRoot:
		return fmt.Errorf("%w: transactions root", ErrBlock)
	case results != b.Header.ResultsRoot:
		return fmt.Errorf("%w: results root", ErrBlock)
	case b.bundlesRoot() != b.Header.BundlesRoot:
		return fmt.Errorf("%w: bundles root", ErrBlock)
	}
	return nil
}
