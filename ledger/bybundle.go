package ledger

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// The roots of a block whose header says ByBundle have one leaf for each bundle. So a packed bundle
// costs no hash for each of its transfers, and neither do the results of a bundle in which all
// transactions were applied.

// The kinds of bundles in the leaves.
const (
	leafOfIDs    = 1
	leafOfPacked = 2
)

// bundleLeaf is a leaf of a block's transactions root: the part of the block that is a bundle's.
type bundleLeaf struct {
	kind byte
	// first is the index of the bundle's first transaction in the block, and kept their number.
	first, kept uint32
	// root is the RFC 6962 root over the ids of the transactions that are in the block, or a packed
	// bundle's root.
	root Hash
}

const bundleLeafSize = 1 + 4 + 4 + HashSize

// append appends the data of the leaf.
func (l *bundleLeaf) append(to []byte) []byte {
	to = binary.BigEndian.AppendUint32(append(to, l.kind), l.first)
	to = binary.BigEndian.AppendUint32(to, l.kept)
	return append(to, l.root[:]...)
}

// hash returns the hash of the leaf in the tree of the transactions.
func (l *bundleLeaf) hash() Hash { return leafHash(l.append(make([]byte, 0, bundleLeafSize))) }

// resultsHash returns the hash of the bundle's leaf in the tree of the results. results is the RFC
// 6962 root over the bundle's results, or nil if all transactions were applied.
func (l *bundleLeaf) resultsHash(results *Hash) Hash {
	data := l.append(make([]byte, 0, bundleLeafSize+1+HashSize))
	data = codec.AppendBool(data, results != nil)
	if results != nil {
		data = append(data, results[:]...)
	}
	return leafHash(data)
}

// appliedWhole is the result of a transaction that was applied.
var appliedWhole = Result{Code: Applied, Item: NoItem}

// resultLeaf returns the leaf hash of a result in the tree over a bundle's results.
func (r Result) resultLeaf() Hash { return leafHash(appendResult(make([]byte, 0, ResultSize), r)) }

// resultsOf returns the leaf hashes over the results of a bundle, or nil if all were applied.
func resultsOf(count int, result func(int) Result) []Hash {
	failed := false
	for i := range count {
		failed = failed || result(i) != appliedWhole
	}
	if !failed {
		return nil
	}
	leaves := make([]Hash, count)
	for i := range leaves {
		// Most have the result of the one before: transactions that cross are all set aside.
		if i > 0 && result(i) == result(i-1) {
			leaves[i] = leaves[i-1]
		} else {
			leaves[i] = result(i).resultLeaf()
		}
	}
	return leaves
}

// resultsRoot returns the root over the leaf hashes of resultsOf, which it overwrites.
func resultsRoot(leaves []Hash) *Hash {
	if leaves == nil {
		return nil
	}
	root := merkleRoot(leaves)
	return &root
}

// idsOf returns the ids of entries.
func idsOf(entries []Entry) []Hash {
	ids := make([]Hash, len(entries))
	for i := range entries {
		ids[i] = entries[i].ID
	}
	return ids
}

// leaf returns the leaf of the bundle.
func (s *share) leaf() bundleLeaf {
	leaf := bundleLeaf{kind: leafOfIDs, first: uint32(s.first), kept: uint32(s.len())}
	switch {
	case s.seal.packed != nil:
		leaf.kind, leaf.root = leafOfPacked, s.seal.Root
	case len(s.entries) == len(s.seal.IDs):
		leaf.root = s.seal.Root
	default:
		leaf.root = IDRoot(idsOf(s.entries))
	}
	return leaf
}

// leavesByBundle returns the leaf hashes of the trees over the transactions and over the results.
func (b *Block) leavesByBundle() (transactions, results []Hash) {
	transactions, results = make([]Hash, len(b.Bundles)), make([]Hash, len(b.Bundles))
	for i, each := range b.shares() {
		leaf := each.leaf()
		transactions[i] = leaf.hash()
		results[i] = leaf.resultsHash(resultsRoot(each.results()))
	}
	return transactions, results
}

// Placing is the part of a proof that is only in blocks with Header.ByBundle. There, a path leads
// from the transaction to its bundle's leaf, and another one from the leaf to the block's root.
type Placing struct {
	// Bundle is the place of the transaction's bundle among the Bundles of the block.
	Bundle  uint32 `json:"bundle"`
	Bundles uint32 `json:"bundles"`
	// First is the index of the bundle's first transaction in the block, and Kept is how many of
	// its transactions are in the block.
	First uint32 `json:"first"`
	Kept  uint32 `json:"kept"`
	// TransactionPath and ResultPath lead from the leaves of the bundle to the header's
	// transactions root and results root.
	TransactionPath []Hash `json:"transaction_path"`
	ResultPath      []Hash `json:"result_path"`
	// AllApplied says that all transactions of the bundle that are in the block were applied. Then
	// there is no root over their results, and the proof's ResultPath is empty.
	AllApplied bool `json:"all_applied"`
}

// shareOf returns the share of the bundle that has the transaction at index, and its index.
func (b *Block) shareOf(index int) (bundle int, its share) {
	for bundle, its = range b.shares() {
		if index < its.first+its.len() {
			break
		}
	}
	return bundle, its
}

// placing returns what a proof of the transaction at index has for a block with Header.ByBundle.
func (b *Block) placing(p *Proof, index int) *Placing {
	bundle, its := b.shareOf(index)
	placed := &Placing{Bundle: uint32(bundle), Bundles: uint32(len(b.Bundles)),
		First: uint32(its.first), Kept: uint32(its.len())}
	if its.seal.packed == nil {
		p.TransactionPath = merklePath(idLeaves(idsOf(its.entries)), index-its.first)
	} else {
		p.TransactionPath = []Hash{}
	}
	results := its.results()
	placed.AllApplied = results == nil
	p.ResultPath = merklePath(results, index-its.first)
	leaves, resultLeaves := b.leavesByBundle()
	placed.TransactionPath = merklePath(leaves, bundle)
	placed.ResultPath = merklePath(resultLeaves, bundle)
	return placed
}

// verify checks a proof's paths in a block with Header.ByBundle.
func (placed *Placing) verify(p *Proof, header *Header, kind byte) error {
	if p.Index < placed.First || p.Index-placed.First >= placed.Kept ||
		placed.Kept > p.Count || placed.First > p.Count-placed.Kept {
		return fmt.Errorf("%w: transaction %d is not among the %d of its bundle from %d on",
			ErrProof, p.Index, placed.Kept, placed.First)
	}
	leaf, err := placed.leaf(p, kind)
	if err != nil {
		return err
	}
	if err := verifyPath(leaf.hash(), uint64(placed.Bundle), uint64(placed.Bundles),
		placed.TransactionPath, header.TransactionsRoot); err != nil {
		return fmt.Errorf("transaction path of the bundle: %w", err)
	}
	var results *Hash
	if placed.AllApplied {
		if p.Result != appliedWhole || len(p.ResultPath) != 0 {
			return fmt.Errorf("%w: all transactions of the bundle were applied", ErrProof)
		}
	} else {
		root, err := pathRoot(p.Result.resultLeaf(), uint64(p.Index-placed.First),
			uint64(placed.Kept), p.ResultPath)
		if err != nil {
			return fmt.Errorf("result path: %w", err)
		}
		results = &root
	}
	if err := verifyPath(leaf.resultsHash(results), uint64(placed.Bundle), uint64(placed.Bundles),
		placed.ResultPath, header.ResultsRoot); err != nil {
		return fmt.Errorf("result path of the bundle: %w", err)
	}
	return nil
}

// leaf returns the leaf of the bundle, to which the proof's transaction path leads.
func (placed *Placing) leaf(p *Proof, kind byte) (leaf bundleLeaf, err error) {
	leaf = bundleLeaf{kind: kind, first: placed.First, kept: placed.Kept, root: p.BundleRoot}
	within := p.Index - placed.First
	if kind == leafOfPacked {
		if len(p.TransactionPath) != 0 || placed.Kept != p.BundleCount || within != p.BundleIndex {
			return leaf, fmt.Errorf("%w: a packed bundle is in a block as a whole", ErrProof)
		}
		return leaf, nil
	}
	if leaf.root, err = pathRoot(leafHash(p.ID[:]), uint64(within), uint64(placed.Kept),
		p.TransactionPath); err != nil {
		err = fmt.Errorf("transaction path: %w", err)
	}
	return leaf, err
}

// BundleLeaf returns the data of the bundle's leaf in the block's transactions root, to which the
// proof's transaction path leads. It returns nil for a block without Header.ByBundle, and for a
// proof that does not hold.
func (p *Proof) BundleLeaf() []byte {
	if p.Placing == nil {
		return nil
	}
	leaf, err := p.Placing.leaf(p, p.kind())
	if err != nil {
		return nil
	}
	return leaf.append(nil)
}

func (placed *Placing) append(to []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, placed.Bundle)
	to = binary.BigEndian.AppendUint32(to, placed.Bundles)
	to = binary.BigEndian.AppendUint32(to, placed.First)
	to = binary.BigEndian.AppendUint32(to, placed.Kept)
	to = appendPath(to, placed.TransactionPath)
	to = appendPath(to, placed.ResultPath)
	return codec.AppendBool(to, placed.AllApplied)
}

func (r *reader) placing() *Placing {
	return &Placing{Bundle: r.Uint32(), Bundles: r.Uint32(), First: r.Uint32(), Kept: r.Uint32(),
		TransactionPath: r.path(), ResultPath: r.path(), AllApplied: r.Bool()}
}
