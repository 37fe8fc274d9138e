package state

import (
	"crypto/sha256"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/pairs"
)

// accountTree is a Merkle tree over the accounts of a chain, in the order of their numbers. The
// numbers begin at 1 and have no gaps, and no account ever vanishes. So the tree depends only on
// the accounts, and a change touches one leaf.
//
// The hash of a leaf is SHA-256(0x00, entry of the account), and that of a node SHA-256(0x01,
// hashes of its children). A node has four children; the last node of a level may have two or
// three, and a single one moves up unchanged. Four children take half of the hashing that two take:
// a node with four compresses three blocks of SHA-256, and the three nodes that it stands for would
// compress six.
type accountTree struct {
	// levels begin with the leaves. The last one has a single hash.
	levels []treeLevel
}

// treeLevel has the hashes of one level, in pages, so that it grows without being copied.
type treeLevel struct {
	pages  [][]ledger.Hash
	length int
	// stale are the places whose hashes have to be computed anew, in no order, and isStale has a
	// bit for each of them.
	stale   []int
	isStale []uint64
}

const (
	treeArity = 4
	// hashesPerPage is a multiple of treeArity, so the children of a node are in one page.
	hashesPerPage = 1 << 12
)

// The first bytes of what is hashed.
const (
	treeLeaf = 0
	treeNode = 1
)

// accountHash returns the hash of a leaf. The entry is the account's key and value.
func accountHash(entry []byte) ledger.Hash {
	var buffer [512]byte
	return sha256.Sum256(append(append(buffer[:0], treeLeaf), entry...))
}

// nodeHash returns the hash over children.
func nodeHash(children []ledger.Hash) ledger.Hash {
	if len(children) == 1 {
		return children[0]
	}
	var data nodeData
	return sha256.Sum256(data.of(children))
}

// nodeData is the memory for what is hashed of a node.
type nodeData [1 + treeArity*ledger.HashSize]byte

// of returns what is hashed of a node with these children.
func (d *nodeData) of(children []ledger.Hash) []byte {
	d[0] = treeNode
	to := d[:1]
	for i := range children {
		to = append(to, children[i][:]...)
	}
	return to
}

// set sets what is hashed of a node with all children.
func (d *nodeData) set(children *[treeArity]ledger.Hash) {
	d[0] = treeNode
	for i := range children {
		*(*ledger.Hash)(d[1+i*ledger.HashSize:]) = children[i]
	}
}

// hashNodes computes the hashes of count nodes of a level, whose places are given. Two at a time
// take little longer than one.
func hashNodes(level, below *treeLevel, count int, place func(i int) int) {
	var pair pairs.Pair
	i := 0
	for ; i+1 < count; i += 2 {
		one, other := place(i), place(i+1)
		first, second := below.children(one), below.children(other)
		if len(first) < treeArity || len(second) < treeArity {
			*level.at(one), *level.at(other) = nodeHash(first), nodeHash(second)
			continue
		}
		data, otherData := pair.Room(len(nodeData{}))
		(*nodeData)(data).set((*[treeArity]ledger.Hash)(first))
		(*nodeData)(otherData).set((*[treeArity]ledger.Hash)(second))
		*level.at(one), *level.at(other) = pair.SumRoom()
	}
	if i < count {
		*level.at(place(i)) = nodeHash(below.children(place(i)))
	}
}

func (l *treeLevel) at(place int) *ledger.Hash {
	return &l.pages[place/hashesPerPage][place%hashesPerPage]
}

// children returns the hashes below the node at a place of the level above.
func (l *treeLevel) children(place int) []ledger.Hash {
	page, first := l.pages[place*treeArity/hashesPerPage], place*treeArity%hashesPerPage
	return page[first:min(first+treeArity, len(page))]
}

// grow appends hashes that have no value yet.
func (l *treeLevel) grow(length int) {
	for l.length < length {
		if l.length%hashesPerPage == 0 {
			l.pages = append(l.pages, nil)
		}
		last := &l.pages[len(l.pages)-1]
		more := min(length-l.length, hashesPerPage-len(*last))
		if more == hashesPerPage {
			*last = make([]ledger.Hash, more)
		} else {
			*last = append(*last, make([]ledger.Hash, more)...)
		}
		l.length += more
	}
	for len(l.isStale)*64 < length {
		l.isStale = append(l.isStale, 0)
	}
}

// outdate notes that the hash at a place has to be computed anew.
func (l *treeLevel) outdate(place int) {
	if word, bit := &l.isStale[place/64], uint64(1)<<(place%64); *word&bit == 0 {
		*word |= bit
		l.stale = append(l.stale, place)
	}
}

// accounts returns the number of leaves.
func (t *accountTree) accounts() int {
	if len(t.levels) == 0 {
		return 0
	}
	return t.levels[0].length
}

// grow makes room for accounts, and for all nodes above them.
func (t *accountTree) grow(accounts int) {
	for level, length := 0, accounts; length > 0; level++ {
		if level == len(t.levels) {
			t.levels = append(t.levels, treeLevel{})
		}
		t.levels[level].grow(length)
		if length == 1 {
			return
		}
		length = (length + treeArity - 1) / treeArity
	}
}

// leaf returns the hash of the account with this number, which is one of the accounts or the next
// one. The next one has the hash zero, which is that of no entry. The caller may change the hash
// until the tree grows, and then calls outdate.
func (t *accountTree) leaf(number uint64) *ledger.Hash {
	place := int(number - 1)
	switch accounts := t.accounts(); {
	case place > accounts:
		panic(fmt.Sprintf("ledger: account %d follows account %d", number, accounts))
	case place == accounts:
		t.grow(accounts + 1)
	}
	return t.levels[0].at(place)
}

// outdate notes that the hash of the account with this number changed.
func (t *accountTree) outdate(number uint64) {
	if len(t.levels) > 1 {
		t.levels[1].outdate(int(number-1) / treeArity)
	}
}

// root brings all hashes up to date and returns that of the root; zero if there are no accounts.
// The computation is divided.
func (t *accountTree) root(divide Divide) ledger.Hash {
	if t.accounts() == 0 {
		return ledger.Hash{}
	}
	return refresh(t.levels, divide, func(level, below *treeLevel, places []int) {
		hashNodes(level, below, len(places), func(i int) int { return places[i] })
	})
}

// refresh computes the hashes of the nodes that are not up to date, level by level, and returns
// that of the root. Hash computes those of a level at some places. The computation is divided.
func refresh(levels []treeLevel, divide Divide,
	hash func(level, below *treeLevel, places []int)) ledger.Hash {
	for i := 1; i < len(levels); i++ {
		below, level := &levels[i-1], &levels[i]
		divided(divide, len(level.stale), func(from, to int) {
			hash(level, below, level.stale[from:to])
		})
		for _, place := range level.stale {
			level.isStale[place/64] &^= 1 << (place % 64)
			if i+1 < len(levels) {
				levels[i+1].outdate(place / treeArity)
			}
		}
		level.stale = level.stale[:0]
	}
	return *levels[len(levels)-1].at(0)
}

// newAccountTree returns the tree over accounts, whose numbers are 1 to their number, each once.
func newAccountTree(accounts []*account, divide Divide) *accountTree {
	t := &accountTree{}
	t.grow(len(accounts))
	divide(parts(len(accounts)), func(part int) {
		var entry []byte
		for _, each := range accounts[part*partSize : min((part+1)*partSize, len(accounts))] {
			entry, _ = each.appendEntry(entry[:0])
			*t.levels[0].at(int(each.number - 1)) = accountHash(entry)
		}
	})
	t.hashAll(divide)
	return t
}

// hashAll computes the hashes of all nodes from those of the leaves. The computation is divided.
func (t *accountTree) hashAll(divide Divide) {
	for i := 1; i < len(t.levels); i++ {
		below, level := &t.levels[i-1], &t.levels[i]
		divide(parts(level.length), func(part int) {
			from, to := part*partSize, min((part+1)*partSize, level.length)
			hashNodes(level, below, to-from, func(i int) int { return from + i })
		})
	}
}

// complete returns ErrEntry if a leaf has no hash.
func (t *accountTree) complete() error {
	for number, page := range t.levels[0].pages {
		for place := range page {
			if page[place] == (ledger.Hash{}) {
				return fmt.Errorf("%w: account %d of %d is missing", ErrEntry,
					number*hashesPerPage+place+1, t.accounts())
			}
		}
	}
	return nil
}
