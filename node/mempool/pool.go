package mempool

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/ledger"
)

// ErrFull says that the pool has no room now; the same bundle may be offered again.
var ErrFull = errors.New("the node is overloaded, retry in a moment")

// Tip is the last executed block, for a batch's header.
type Tip struct {
	Height ledger.Height
	Hash   ledger.Hash
	Time   ledger.Milliseconds
}

// Clock tells the time, as far as the clocks of a majority of the members confirm it.
type Clock interface {
	// View returns how this node's clock stands now. It must be quick and not call the pool.
	View() clock.View
}

// Config sets up a pool.
type Config struct {
	// BytesMax bounds the encoded bundles in the pool.
	BytesMax int
	// Tip gives the last executed block; it must be quick and not call the pool.
	Tip func() Tip
	// Now times how long bundles wait; nil stands for time.Now.
	Now func() time.Time
	// Clock dates batches; nil stands for one that never knows the time.
	Clock Clock
	// Beside is what other shards have for this one; nil in a book of one shard.
	Beside Beside
	// Misplaced gets a bundle that a round carried and no block took, because it has to enter
	// elsewhere: the directory of the organisations changed between its admission and its round. It
	// has left the pool. It is called with no lock held and must be quick; nil in a book of one
	// shard.
	Misplaced func(*ledger.Bundle)
	// Expires tells whether a transaction's last valid block is one of this chain; nil where all
	// are, as in a book of one shard. It may wait for the store, and is called with no lock held.
	Expires func(*ledger.Transaction) bool
}

// expiredMax is how many expired transactions are remembered, so that their senders learn why they
// are in no block.
const expiredMax = 1 << 16

// never is later than every height.
const never = ^ledger.Height(0)

// item is one admitted bundle.
type item struct {
	bundle   *ledger.Bundle
	encoded  []byte
	print    uint64 // of encoded, where misplaced bundles are handed over
	admitted time.Time
	expires  ledger.Height
	missing  int32 // transactions that are in no block yet
	gone     bool  // in blocks, or expired; it leaves the queue when it is met
}

// Pool is safe for concurrent use.
type Pool struct {
	config Config
	ready  chan struct{}

	mu      sync.Mutex
	queue   []*item // admitted, in order; those before next are under way
	next    int     // the first that no round has taken yet
	byID    map[ledger.Hash]*item
	bytes   int
	blocks  int // blocks applied
	expires int // items that may expire
	// earliest is at most the lowest height after which a waiting item expires.
	earliest ledger.Height
	marks    Marks // for the next batch
	expired  map[ledger.Hash]ledger.Height
	oldest   []ledger.Hash // of expired, oldest first
	// turn tells who goes first in the next batch with something beside.
	turn turn
	// seed and prints find the bundle that an own batch carried; nil where misplaced bundles are
	// not handed over.
	seed   maphash.Seed
	prints map[uint64]*item
}

// New makes an empty pool.
func New(config Config) *Pool {
	if config.Now == nil {
		config.Now = time.Now
	}
	p := &Pool{config: config, ready: make(chan struct{}, 1), byID: map[ledger.Hash]*item{},
		expired: map[ledger.Hash]ledger.Height{}, earliest: never}
	if config.Misplaced != nil {
		p.seed, p.prints = maphash.MakeSeed(), map[uint64]*item{}
	}
	return p
}

// Add admits a verified bundle; encoded are its bytes, which the pool keeps. Known tells which ids
// are in the chain already; it may read the disk. It returns ErrFull where there is no room. A
// bundle of which every transaction is known or here already adds nothing.
func (p *Pool) Add(bundle *ledger.Bundle, encoded []byte, known func(ledger.Hash) bool) error {
	inChain, expires := make([]bool, bundle.Len()), p.lastValid(bundle)
	for attempt := 0; ; attempt++ {
		// What is in the chain is looked up without the lock, and again when a block came in the
		// meantime: a transaction that was applied before it is added would never leave the pool.
		p.mu.Lock()
		blocks := p.blocks
		p.mu.Unlock()
		for i := range inChain {
			inChain[i] = known(bundle.ID(i))
		}
		p.mu.Lock()
		if p.blocks == blocks {
			break
		}
		if attempt == 3 { // blocks come faster than the disk answers: once, hold them up
			for i := range inChain {
				inChain[i] = known(bundle.ID(i))
			}
			break
		}
		p.mu.Unlock()
	}
	defer p.mu.Unlock()
	fresh := make([]ledger.Hash, 0, bundle.Len())
	for i := range bundle.Len() {
		if id := bundle.ID(i); p.byID[id] == nil && !inChain[i] {
			fresh = append(fresh, id)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if p.bytes+len(encoded) > p.config.BytesMax {
		return fmt.Errorf("%w: %d of %d bytes wait for a round", ErrFull, p.bytes,
			p.config.BytesMax)
	}
	it := &item{bundle: bundle, encoded: encoded, admitted: p.config.Now(),
		missing: int32(len(fresh)), expires: expires}
	for _, id := range fresh {
		p.byID[id] = it
		delete(p.expired, id)
	}
	p.queue = append(p.queue, it)
	p.bytes += len(encoded)
	if p.prints != nil {
		it.print = maphash.Bytes(p.seed, encoded)
		p.prints[it.print] = it
	}
	if it.expires != 0 {
		p.expires++
		p.earliest = min(p.earliest, it.expires)
	}
	p.signal()
	return nil
}

// lastValid is the last height at which some transaction of the bundle is valid; 0 if one never
// expires, or by another chain's heights.
func (p *Pool) lastValid(bundle *ledger.Bundle) ledger.Height {
	var last ledger.Height
	for i := range bundle.Len() {
		transaction := bundle.Transaction(i)
		if transaction.LastValid == 0 || p.config.Expires != nil && !p.config.Expires(transaction) {
			return 0
		}
		last = max(last, transaction.LastValid)
	}
	return last
}

func (p *Pool) signal() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// Ready implements driver.Source.
func (p *Pool) Ready() <-chan struct{} { return p.ready }

// headerRoom is the room for a batch's header, its counts and the marks.
const headerRoom = 128 + EntrantsMax*entrantSize + benchSize

// Next implements driver.Source: the waiting bundles, in order, and what other shards have for this
// one, as many as go into one payload; nil when there is nothing.
func (p *Pool) Next(maxBytes int) []byte {
	if p.idle() {
		return nil
	}
	room := min(maxBytes, ledger.MaxBatchBytes) - headerRoom
	stamp := p.stamp(&room)
	if p.config.Beside != nil {
		return p.nextBeside(stamp, room)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.payload(stamp, room, nil, nil)
}

// idle reports whether there can be nothing for a round: the engine asks far more often than there
// is something.
func (p *Pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config.Beside == nil && p.next == len(p.queue) && !p.marks.Any()
}

// stamp is what a batch says of its proposer: its last block and its time, with what proves that.
type stamp struct {
	header ledger.BatchHeader
	clocks []ledger.MemberClock
}

// stamp makes the next batch's stamp, and takes the room for it. The largest bundle fits all the
// same.
func (p *Pool) stamp(room *int) stamp {
	tip := p.config.Tip()
	s := stamp{header: ledger.BatchHeader{Height: tip.Height, Tip: tip.Hash}}
	if p.config.Clock == nil {
		return s
	}
	view := p.config.Clock.View()
	fits := func(clocks int) bool {
		return *room-ledger.ClocksSize(clocks) >= ledger.CarriedSize(ledger.MaxBundleBytes)
	}
	s.header.Time, s.clocks = clock.Stamp(&view, tip.Time, fits, clock.FaultNone)
	*room -= ledger.ClocksSize(len(s.clocks))
	return s
}

// payload takes bundles from the queue, as many as the room holds, and encodes them and what is
// beside. It needs the mutex.
func (p *Pool) payload(stamp stamp, room int, carried []ledger.Carried,
	verdicts []ledger.Verdict) []byte {
	marks := p.marks
	p.marks = Marks{}
	var bundles [][]byte
	for p.next < len(p.queue) && len(bundles) < ledger.MaxBatchBundles {
		it := p.queue[p.next]
		if !it.gone {
			size := ledger.BatchSize(len(it.encoded))
			if size > room {
				break
			}
			room -= size
			bundles = append(bundles, it.encoded)
		}
		p.next++
	}
	p.compact()
	if len(bundles)+len(carried)+len(verdicts) == 0 {
		if !marks.Any() {
			return nil
		}
		return appendMarks(nil, marks)
	}
	batch := ledger.Batch{
		Header: stamp.header, Bundles: bundles, Carried: carried, Verdicts: verdicts,
		Clocks: stamp.clocks,
	}
	return appendMarks(batch.Encode(), marks)
}

// compact drops what is gone from the front of the queue, once it is worth the copying.
func (p *Pool) compact() {
	front := 0
	for front < p.next && p.queue[front].gone {
		front++
	}
	if front > 1024 || front == len(p.queue) {
		kept := copy(p.queue, p.queue[front:])
		clear(p.queue[kept:])
		p.queue = p.queue[:kept]
		p.next -= front
	}
}

// Applied takes what a block holds out of the pool and drops what has expired with it. It gives the
// admission times of this node's own transactions in the block, for the latency figures, and the
// ids that expired. Call it after the block can be read in the store.
func (p *Pool) Applied(block *ledger.Block) (admitted []time.Time, expired []ledger.Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks++
	for i := range block.Entries {
		id := block.Entries[i].ID
		it := p.byID[id]
		if it == nil {
			continue
		}
		delete(p.byID, id)
		admitted = append(admitted, it.admitted)
		if it.missing--; it.missing == 0 {
			p.drop(it)
		}
	}
	if p.expires > 0 && block.Header.Height >= p.earliest {
		expired = p.expire(block.Header.Height)
	}
	p.compact()
	return admitted, expired
}

func (p *Pool) drop(it *item) {
	it.gone = true
	p.bytes -= len(it.encoded)
	if p.prints != nil && p.prints[it.print] == it {
		delete(p.prints, it.print)
	}
	if it.expires != 0 {
		p.expires--
	}
}

// expire drops waiting bundles that no later block can hold. What is under way stays: its round may
// still come.
func (p *Pool) expire(height ledger.Height) (expired []ledger.Hash) {
	p.earliest = never
	for i, it := range p.queue {
		if it.gone || it.expires == 0 {
			continue
		}
		if i < p.next || it.expires > height {
			p.earliest = min(p.earliest, max(it.expires, height+1))
			continue
		}
		for i := range it.bundle.Len() {
			id := it.bundle.ID(i)
			if p.byID[id] != it {
				continue
			}
			delete(p.byID, id)
			p.remember(id, it.bundle.Transaction(i).LastValid)
			expired = append(expired, id)
		}
		p.drop(it)
	}
	return expired
}

func (p *Pool) remember(id ledger.Hash, lastValid ledger.Height) {
	if _, ok := p.expired[id]; !ok {
		p.oldest = append(p.oldest, id)
	}
	p.expired[id] = lastValid
	if len(p.oldest) > expiredMax {
		delete(p.expired, p.oldest[0])
		p.oldest = p.oldest[1:]
	}
}

// Again puts everything that was under way back to the front, in its old order: the group started
// anew, and rounds that were not delivered are void. Whatever was delivered all the same is dropped
// as a duplicate when the block is sealed.
func (p *Pool) Again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = 0
	p.marks = Marks{}
	if len(p.queue) > 0 {
		p.signal()
	}
}

// Ordered is told the bundles of a batch of this node's own that was executed, after Applied was
// told of its block. Those that no block took leave the pool and go to Config.Misplaced.
func (p *Pool) Ordered(bundles [][]byte) {
	if p.prints == nil {
		return
	}
	for _, left := range p.leftOut(bundles) {
		p.config.Misplaced(left)
	}
}

// leftOut takes out of the pool what is still in it of the bundles.
func (p *Pool) leftOut(bundles [][]byte) (left []*ledger.Bundle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, encoded := range bundles {
		it := p.prints[maphash.Bytes(p.seed, encoded)]
		if it == nil || !bytes.Equal(it.encoded, encoded) {
			continue
		}
		for _, id := range it.bundle.IDs() {
			if p.byID[id] == it {
				delete(p.byID, id)
			}
		}
		p.drop(it)
		left = append(left, it.bundle)
	}
	p.compact()
	return left
}

// Regroup has the next batch carry the mark that ends the generation.
func (p *Pool) Regroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marks.Regroup = true
	p.signal()
}

// Enter has the next batch carry an entrant's mark. An entrant says it again until it is in, so
// that one for which there is no room is dropped.
func (p *Pool) Enter(entrant Entrant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.marks.Entrants, entrant) || len(p.marks.Entrants) == EntrantsMax {
		return
	}
	p.marks.Entrants = append(slices.Clip(p.marks.Entrants), entrant)
	p.signal()
}

// Pending tells whether a transaction is in the pool.
func (p *Pool) Pending(id ledger.Hash) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byID[id] != nil
}

// Expired tells whether a transaction was dropped because its last valid block passed, and which
// block that was.
func (p *Pool) Expired(id ledger.Hash) (ledger.Height, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	height, ok := p.expired[id]
	return height, ok
}

// Size is the number of transactions in the pool, and their bytes.
func (p *Pool) Size() (transactions, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byID), p.bytes
}

// Bench marks a member that the next eon is to begin without, in the next batch. One that waits to
// be marked already is not replaced: the next batch is soon.
func (p *Pool) Bench(server uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.marks.Benched) > 0 {
		return
	}
	p.marks.Benched = []uint32{server}
	p.signal()
}
