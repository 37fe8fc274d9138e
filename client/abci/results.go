package abci

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// transactionHash is the hash by which CometBFT's clients know a transaction: its SHA-256.
type transactionHash [sha256.Size]byte

// block is what is kept of an executed block.
type block struct {
	height       int64
	hash         ledger.Hash
	time         time.Time
	transactions [][]byte
	results      []TxResult
	events       []Event
	validators   []ValidatorUpdate
	params       *ConsensusParams
	appHash      []byte
	size         int
}

// place is where a transaction is.
type place struct {
	block *block
	index int
}

// results keeps the last blocks within bounds. It is safe for concurrent use.
type results struct {
	blocksMax, bytesMax int

	mutex   sync.Mutex
	blocks  []*block // consecutive heights
	bytes   int
	places  map[transactionHash]place
	durable int64 // the last durable block, as nodes said
	// begun is the block that the application was at when it connected; its results are not known.
	begun *block
}

func newResults(config ResultsConfig) *results {
	return &results{blocksMax: config.Blocks, bytesMax: config.Bytes,
		places: make(map[transactionHash]place)}
}

// add takes an executed block. The oldest blocks go if there is no room, but never the last one.
func (r *results) add(b *block) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.blocks = append(r.blocks, b)
	r.bytes += b.size
	for i, transaction := range b.transactions {
		r.places[sha256.Sum256(transaction)] = place{b, i}
	}
	for len(r.blocks) > 1 && (len(r.blocks) > r.blocksMax || r.bytes > r.bytesMax) {
		r.removeFirst()
	}
}

func (r *results) removeFirst() {
	first := r.blocks[0]
	r.blocks[0] = nil
	r.blocks = r.blocks[1:]
	r.bytes -= first.size
	for _, transaction := range first.transactions {
		hash := transactionHash(sha256.Sum256(transaction))
		if r.places[hash].block == first {
			delete(r.places, hash)
		}
	}
}

// find returns the place of a transaction in the blocks that are kept.
func (r *results) find(hash transactionHash) (place, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	at, found := r.places[hash]
	return at, found
}

// at returns the block of a height, or the last one for 0; nil if it is not kept.
func (r *results) at(height int64) *block {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if len(r.blocks) == 0 {
		return nil
	}
	if height == 0 {
		return r.blocks[len(r.blocks)-1]
	}
	if i := height - r.blocks[0].height; i >= 0 && i < int64(len(r.blocks)) {
		return r.blocks[i]
	}
	return nil
}

// begin sets where the application is when it connects.
func (r *results) begin(b *block) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.begun = b
	if last := len(r.blocks) - 1; last >= 0 && r.blocks[last].height != b.height {
		for len(r.blocks) > 0 { // it was set back, or another adapter fed it
			r.removeFirst()
		}
	}
}

// beginning returns where the application was when it connected, without results, or nil.
func (r *results) beginning() *block {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.begun
}

// head returns the height that the application is at.
func (r *results) head() int64 {
	if _, last, _ := r.span(); last != nil {
		return last.height
	}
	if begun := r.beginning(); begun != nil {
		return begun.height
	}
	return 0
}

// span returns the first and the last block that are kept, and the last durable height.
func (r *results) span() (first, last *block, durable int64) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if len(r.blocks) == 0 {
		return nil, nil, r.durable
	}
	return r.blocks[0], r.blocks[len(r.blocks)-1], r.durable
}

func (r *results) setDurable(height int64) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.durable = max(r.durable, height)
}
