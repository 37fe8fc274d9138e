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

// ErrFull reports that the pool has no room now. The same bundle may be offered again.
var ErrFull = errors.New("the node is overloaded, retry in a moment")

// Tip is the last executed block, for a batch's header.
type Tip struct {
	Height ledger.Height
	Hash   ledger.Hash
	Time   ledger.Milliseconds
}

// Clock knows the time, as far as the clocks of a majority of the members confirm it.
type Clock interface {
	// View returns the current state of this node's clock. It must be quick and must not call the
	// pool.
	View() clock.View
}

// Config configures a pool.
type Config struct {
	// BytesMax bounds the bundles in the pool, by their encodings. A packed bundle counts for more:
	// heldTransfer bytes for each transfer, and what the names of its accounts take. An empty pool
	// takes any bundle, so that none is refused for ever.
	BytesMax int
	// Tip returns the last executed block. It must be quick and must not call the pool.
	Tip func() Tip
	// Now measures how long bundles wait. Nil means time.Now.
	Now func() time.Time
	// Clock dates batches. Nil means a clock that never knows the time.
	Clock Clock
	// Beside is the input from other shards. It is nil in a book of one shard.
	Beside Beside
	// Vouch signs, with ledger.Batch.Vouch, what a batch has of other shards, and the entries of
	// the parent's stream that it is given. It is nil unless the book has vouched crossings. It
	// must be quick and must not call the pool.
	Vouch func(*ledger.Batch, []ledger.Vouched)
	// Misplaced gets a bundle that a round carried and no block took, because it has to enter at
	// another shard: the directory of the organisations changed between its admission and its
	// round. The bundle has left the pool. Misplaced is called with no lock held and must be quick.
	// It is nil in a book of one shard.
	Misplaced func(*ledger.Bundle)
	// Expires reports whether a transaction's last valid block is a block of this chain. Nil means
	// always, as in a book of one shard. It may wait for the store, and is called with no lock
	// held.
	Expires func(*ledger.Transaction) bool
}

// expiredMax is how many expired transactions the pool remembers, so that their senders learn why
// they are in no block.
const expiredMax = 1 << 16

// heldTransfer is about what a transfer has in a bundle of bodies, without the names of accounts,
// and takes beside the encoding of a packed bundle when it is decoded. The names count besides:
// encoded, a long one may have a few bytes.
const heldTransfer = 128

// never is later than every height.
const never = ^ledger.Height(0)

// item is one admitted bundle.
type item struct {
	bundle   *ledger.Bundle
	encoded  []byte
	held     int    // what it counts for of Config.BytesMax
	print    uint64 // hash of encoded
	admitted time.Time
	expires  ledger.Height
	missing  int32    // places of transactions that are in no block yet
	gone     bool     // all in blocks, or expired; compact removes it from the queue
	only     [1]place // of the transaction, if there is only one
}

// Pool is safe for concurrent use.
type Pool struct {
	config Config
	ready  chan struct{}

	mu      sync.Mutex
	queue   []*item // admitted, in order; those before next are under way
	next    int     // the first one that no round has taken yet
	places  places  // of the transactions that are in no block yet
	bytes   int
	blocks  int      // blocks applied
	watches []*watch // of the look-ups that blocks came in between of too often
	expires int      // items that may expire
	// earliest is a lower bound of the height after which the next waiting item expires.
	earliest ledger.Height
	marks    Marks // for the next batch
	due      bool  // the next batch goes into a round even if it holds nothing
	expired  map[ledger.Hash]ledger.Height
	oldest   []ledger.Hash // of expired, oldest first
	// turn is the side that goes first in the next batch with input from Beside.
	turn turn
	// With Config.Vouch, woken reports that Beside is a reason for a round, and besides that it may
	// have input.
	woken, besides bool
	// meeting is the distance of meetings (Meet).
	meeting uint64
	// seed and prints find the bundles of a batch.
	seed   maphash.Seed
	prints map[uint64]*item
}

// New makes an empty pool.
func New(config Config) *Pool {
	if config.Now == nil {
		config.Now = time.Now
	}
	p := &Pool{config: config, meeting: MeetingDefault, ready: make(chan struct{}, 1),
		places:  newPlaces(),
		expired: map[ledger.Hash]ledger.Height{}, earliest: never,
		seed: maphash.MakeSeed(), prints: map[uint64]*item{}}
	return p
}

// Add admits a verified bundle. encoded is its encoding, which the pool keeps. known reports, for
// each transaction, whether it is in the chain already; nil means that none is. It may read the
// disk. If every transaction of the bundle is known or in the pool, Add does nothing. It returns
// ErrFull if there is no room, and the error of known.
func (p *Pool) Add(bundle *ledger.Bundle, encoded []byte,
	known func(*ledger.Bundle) ([]bool, error)) error {
	expires, print := p.lastValid(bundle), maphash.Bytes(p.seed, encoded)
	inChain, err := p.lookUp(bundle, known)
	defer p.mu.Unlock()
	if err != nil {
		return err
	}
	ids := placedIDs(bundle)
	fresh := func(i int) bool {
		return (inChain == nil || !inChain[i]) && p.places.find(&ids[i]) == nil
	}
	first := 0
	for first < len(ids) && !fresh(first) {
		first++
	}
	if first == len(ids) {
		return nil
	}
	held := len(encoded)
	if bundle.Packed() {
		held += heldTransfer*bundle.Len() + bundle.Transfers().AccountBytes()
	}
	if p.bytes > 0 && p.bytes+held > p.config.BytesMax {
		return fmt.Errorf("%w: %d of %d bytes wait for a round", ErrFull, p.bytes,
			p.config.BytesMax)
	}
	it := &item{bundle: bundle, encoded: encoded, held: held, print: print,
		admitted: p.config.Now(), expires: expires}
	added := it.only[:]
	if len(ids)-first > 1 {
		added = make([]place, len(ids)-first)
	}
	for i := first; i < len(ids); i++ {
		if fresh(i) {
			added[i-first] = place{id: &ids[i], item: it, transfers: transfers(bundle)}
			p.places.add(&added[i-first])
			delete(p.expired, ids[i])
			it.missing++
		}
	}
	p.queue = append(p.queue, it)
	p.bytes += held
	p.prints[it.print] = it
	if it.expires != 0 {
		p.expires++
		p.earliest = min(p.earliest, it.expires)
	}
	p.signal()
	return nil
}

// placedIDs returns the ids of a bundle that have places. Those of a packed bundle share one: the
// bundle is in a block as a whole or not at all.
func placedIDs(bundle *ledger.Bundle) []ledger.Hash {
	if bundle.Packed() {
		return []ledger.Hash{bundle.ID(0)}
	}
	return bundle.IDs()
}

// transfers returns how many transfers share a place of the bundle; 0 if each has its own.
func transfers(bundle *ledger.Bundle) int {
	if bundle.Packed() {
		return bundle.Len()
	}
	return 0
}

// watch notes which of some transactions come in blocks. The pool's mutex guards it.
type watch struct{ came map[ledger.Hash]bool }

// lookUpsMost bounds the look-ups of a bundle.
const lookUpsMost = 4

// lookUp asks which transactions of a bundle are in the chain, and locks the pool. The answer holds
// for as long as the pool is locked.
func (p *Pool) lookUp(bundle *ledger.Bundle,
	known func(*ledger.Bundle) ([]bool, error)) (inChain []bool, err error) {
	for range lookUpsMost - 1 {
		// Look up the chain without the lock, and again if a block came in the meantime. A
		// transaction that is applied before it is added would never leave the pool.
		p.mu.Lock()
		blocks := p.blocks
		p.mu.Unlock()
		inChain, err = known(bundle)
		p.mu.Lock()
		if p.blocks == blocks || err != nil {
			return inChain, err
		}
		p.mu.Unlock()
	}
	// Blocks come faster than the disk answers: watch what they bring. A block is readable before
	// it is applied here. So the look-up finds what was applied before the watch began.
	ids := placedIDs(bundle)
	w := &watch{came: make(map[ledger.Hash]bool, len(ids))}
	for i := range ids {
		w.came[ids[i]] = false
	}
	p.mu.Lock()
	p.watches = append(p.watches, w)
	p.mu.Unlock()
	inChain, err = known(bundle)
	p.mu.Lock()
	at := slices.Index(p.watches, w)
	p.watches = slices.Delete(p.watches, at, at+1)
	for i := range ids {
		if err == nil && w.came[ids[i]] {
			if inChain == nil {
				inChain = make([]bool, bundle.Len())
			}
			inChain[i] = true
		}
	}
	return inChain, err
}

// lastValid returns the last height at which any transaction of the bundle is valid. It returns 0
// if one of them never expires, or expires by the heights of another chain.
func (p *Pool) lastValid(bundle *ledger.Bundle) ledger.Height {
	var last ledger.Height
	for i := range bundle.Distinct() {
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

// Due makes the pool give a batch even if nothing waits. Its time leads to a block with what the
// chain does by itself at that time. The caller repeats it until the chain has the block.
func (p *Pool) Due() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = true
	p.signal()
}

// Ready implements driver.Source.
func (p *Pool) Ready() <-chan struct{} { return p.ready }

// headerRoom is the room for a batch's header, its counts and the marks.
const headerRoom = 128 + EntrantsMax*entrantSize + benchSize

// Next implements driver.Source. It returns as many waiting bundles, in order, and as much input
// from other shards as fit into one payload, or nil if there is nothing.
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
	return p.payload(stamp, room, Input{})
}

// idle reports whether there is certainly nothing for a round. The engine asks far more often than
// there is something.
func (p *Pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config.Beside == nil && p.next == len(p.queue) && !p.marks.Any() && !p.due
}

// stamp says in a batch what its proposer knows: its last block and its time, with the proof of it.
type stamp struct {
	header ledger.BatchHeader
	clocks []ledger.MemberClock
}

// stamp makes the next batch's stamp and subtracts its size from room. It leaves room for the
// largest bundle.
func (p *Pool) stamp(room *int) stamp {
	tip := p.config.Tip()
	s := stamp{header: ledger.BatchHeader{Height: tip.Height, Tip: tip.Hash}}
	if p.config.Clock == nil {
		return s
	}
	view := p.config.Clock.View()
	fits := func(clocks int) bool {
		return *room-ledger.ClocksSize(clocks) >= LargestBeside()
	}
	s.header.Time, s.clocks = clock.Stamp(&view, tip.Time, fits, clock.FaultNone)
	*room -= ledger.ClocksSize(len(s.clocks))
	return s
}

// payload takes as many bundles from the queue as the room holds, and encodes them with the input
// from other shards. The caller must hold the mutex.
func (p *Pool) payload(stamp stamp, room int, input Input) []byte {
	marks := p.marks
	p.marks = Marks{}
	due := p.due
	p.due = false
	var bundles [][]byte
	packed := 0
	for p.next < len(p.queue) && len(bundles) < ledger.MaxBatchBundles {
		it := p.queue[p.next]
		if !it.gone {
			size := ledger.BatchSize(len(it.encoded))
			packed += transfers(it.bundle)
			if size > room || packed > ledger.MaxBatchPacked {
				break
			}
			room -= size
			bundles = append(bundles, it.encoded)
		}
		p.next++
	}
	p.compact()
	if len(bundles) == 0 && input.empty() && !due {
		if !marks.Any() {
			return nil
		}
		return appendMarks(nil, marks)
	}
	batch := ledger.Batch{
		Header: stamp.header, Bundles: bundles, Carried: input.Carried,
		Verdicts: input.Verdicts, Groups: input.Groups, Clocks: stamp.clocks,
	}
	if !input.empty() && p.config.Vouch != nil {
		p.config.Vouch(&batch, input.Vouched)
	}
	return appendMarks(batch.Encode(), marks)
}

// compact removes finished items from the front of the queue, once that is worth the copying.
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

// Applied removes a block's transactions from the pool, and drops the bundles that have expired
// with it. It returns the admission times of this node's own bundles in the block, for the latency
// figures, and the ids that expired. Call it after the block is readable in the store.
func (p *Pool) Applied(block *ledger.Block) (admitted []time.Time, expired []ledger.Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks++
	var last *item
	for head := range block.Heads() {
		for _, w := range p.watches {
			if _, watched := w.came[head.ID]; watched {
				w.came[head.ID] = true
			}
		}
		it := p.places.remove(&head.ID)
		if it == nil {
			continue
		}
		if it != last {
			admitted, last = append(admitted, it.admitted), it
		}
		if it.missing--; it.missing == 0 {
			p.drop(it)
		}
	}
	p.progress(block)
	if p.expires > 0 && block.Header.Height >= p.earliest {
		expired = p.expire(block.Header.Height)
	}
	p.compact()
	return admitted, expired
}

func (p *Pool) drop(it *item) {
	it.gone = true
	p.bytes -= it.held
	if p.prints[it.print] == it {
		delete(p.prints, it.print)
	}
	if it.expires != 0 {
		p.expires--
	}
}

// expire drops waiting bundles that no later block can hold. Bundles under way stay: their round
// may still come.
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
		from := len(expired)
		for i, id := range it.bundle.IDs() {
			if p.places.find(&id) == it {
				p.remember(id, it.bundle.Transaction(i).LastValid)
				expired = append(expired, id)
			}
		}
		for i := range expired[from:] {
			p.places.remove(&expired[from+i]) // of a packed bundle, only the first one has a place
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

// Requeue puts all bundles under way back to the front, in their old order: the group restarted,
// and undelivered rounds are void. Transactions that were delivered after all are dropped as
// duplicates when the block is sealed.
func (p *Pool) Requeue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = 0
	p.marks = Marks{}
	p.woken = p.besides
	if len(p.queue) > 0 || p.woken {
		p.signal()
	}
}

// HandOverUnplaced gets the bundles of an executed batch of this node, after Applied got the block.
// Bundles that no block took leave the pool and go to Config.Misplaced.
func (p *Pool) HandOverUnplaced(bundles [][]byte) {
	if p.config.Misplaced == nil {
		return
	}
	for _, left := range p.leftOut(bundles) {
		p.config.Misplaced(left)
	}
}

// leftOut removes those of the bundles that are still in the pool, and returns them.
func (p *Pool) leftOut(bundles [][]byte) (left []*ledger.Bundle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, encoded := range bundles {
		it := p.find(maphash.Bytes(p.seed, encoded), encoded)
		if it == nil {
			continue
		}
		ids := placedIDs(it.bundle)
		for i := range ids {
			if p.places.find(&ids[i]) == it {
				p.places.remove(&ids[i])
			}
		}
		p.drop(it)
		left = append(left, it.bundle)
	}
	p.compact()
	return left
}

// find returns the item with an encoded bundle, whose hash is print, or nil. The caller must hold
// the mutex.
func (p *Pool) find(print uint64, encoded []byte) *item {
	if it := p.prints[print]; it != nil && bytes.Equal(it.encoded, encoded) {
		return it
	}
	return nil
}

// Bundle returns the bundle in the pool with this encoding, or nil.
func (p *Pool) Bundle(encoded []byte) *ledger.Bundle {
	print := maphash.Bytes(p.seed, encoded)
	p.mu.Lock()
	defer p.mu.Unlock()
	if it := p.find(print, encoded); it != nil {
		return it.bundle
	}
	return nil
}

// Regroup adds the mark that ends the generation to the next batch.
func (p *Pool) Regroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marks.Regroup = true
	p.signal()
}

// Enter adds an entrant's mark to the next batch. An entrant repeats its wish until it is in, so a
// mark without room is dropped.
func (p *Pool) Enter(entrant Entrant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.marks.Entrants, entrant) || len(p.marks.Entrants) == EntrantsMax {
		return
	}
	p.marks.Entrants = append(slices.Clip(p.marks.Entrants), entrant)
	p.signal()
}

// Pending reports whether a transaction is in the pool.
func (p *Pool) Pending(id ledger.Hash) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.places.find(&id) != nil
}

// Absent returns the places of those transactions that are not in the pool.
func (p *Pool) Absent(ids []ledger.Hash) (places []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range ids {
		if p.places.find(&ids[i]) == nil {
			places = append(places, i)
		}
	}
	return places
}

// Expired reports whether a transaction was dropped because its last valid block passed, and
// returns that block's height.
func (p *Pool) Expired(id ledger.Hash) (ledger.Height, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	height, ok := p.expired[id]
	return height, ok
}

// Size returns the number of transactions in the pool, and the bytes of their bundles, as
// Config.BytesMax bounds them.
func (p *Pool) Size() (transactions, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.places.transactions, p.bytes
}

// Bench adds a mark to the next batch: the next eon is to begin without this member. If another
// member is already marked, it does nothing, since the next batch is soon.
func (p *Pool) Bench(server uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.marks.Benched) > 0 {
		return
	}
	p.marks.Benched = []uint32{server}
	p.signal()
}
