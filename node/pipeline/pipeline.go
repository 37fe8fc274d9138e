package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// QueueMax bounds the deliveries that wait for execution; each holds the rounds of one step of the
// engine.
const QueueMax = 32

// diskRetry is the time between two attempts at a round that a full disk holds up.
const diskRetry = 500 * time.Millisecond

// Errors of the pipeline; match them with errors.Is.
var (
	// ErrFork says that a peer executed another block at a height than this node: one of the two is
	// wrong, and the node stops.
	ErrFork = errors.New("fork: the nodes do not hold the same chain")
	// ErrStopping says that the node stops.
	ErrStopping = errors.New("the node is stopping")
)

// Config sets up a pipeline.
type Config struct {
	Pool *mempool.Pool
	// Self is this node's index among the members of the chain.
	Self order.ServerID
	// Stored is called after each sync of the disk in a run, once, with the run's members and the
	// height up to which this disk holds the chain now. The disk's goroutine calls it.
	Stored func(run uint64, members []order.ServerID, height ledger.Height)
	// Failed hears of an error after which the node cannot go on: a fork, a damaged store. Once.
	Failed func(error)
	Logger *slog.Logger

	// The hooks tell what works beside the pipeline how the chain goes; each may be nil. They are
	// called one at a time, in the order in which things happen, with none of the pipeline's locks
	// held but the one that keeps this order: they have to be quick, and may ask the pipeline, but
	// not Sync or Exchange it or tell it what peers have.

	// Applied hears of every block that was executed, this shard's rounds and what peers sent
	// alike, once it can be read in the store and who waits was told.
	Applied func(*ledger.Block)
	// DurableTo hears of heights that a majority has on disk, ascending, and never of one before
	// Applied heard of its block.
	DurableTo func(height ledger.Height)
	// Exchanged hears that another store took the place of the one before: what was heard before
	// may not be in the chain any more, and the heights begin anew with those that Heights says.
	Exchanged func()
}

// Run is an engine's life as the pipeline sees it: a group of members whose rounds it executes, and
// whose disks count.
type Run struct {
	Number uint64
	// First is the run's first round; what was executed before is the round before it, even if that
	// was empty.
	First order.Round
	// Members are those who take part, by their indexes in the chain, ascending.
	Members []order.ServerID
	// Shard are all members of the chain. A majority of their disks makes a block durable; for
	// Former see shard.Durability.
	Shard  generation.Membership
	Former []generation.Former
}

// work is one entry of the queue: rounds of a run, a round of an earlier one, a block from a peer,
// or a question that is answered when its turn comes.
type work struct {
	deliveries []order.Delivery
	replayed   *order.Delivery
	block      *ledger.Block
	done       chan error // for a block, a replayed round and a barrier
}

// Pipeline executes and stores. All methods may be called from several goroutines, but those that
// Begin a run and exchange the store come from one.
type Pipeline struct {
	config   Config
	ledger   atomic.Pointer[store.Store]
	progress *progress
	meter    *meter
	queue    chan work
	sync     chan struct{} // one buffered value: there is something to sync
	stopping chan struct{}
	stop     sync.Once
	workers  sync.WaitGroup
	fail     sync.Once
	stalled  atomic.Pointer[string] // why execution waits; nil while it does not
	total    atomic.Uint64
	syncing  sync.Mutex // held while the disk is synced, and while another store comes
	telling  *telling   // nil without hooks

	mu        sync.Mutex
	run       Run
	baseEpoch ledger.Epoch
	marks     mempool.Marks    // executed in this run
	round     order.Round      // the last that was executed
	disks     shard.Durability // which heights the disks of the run's members hold
	counted   ledger.Height    // up to where it is known which disks count
}

// New makes a pipeline over an open store and starts its goroutines.
func New(config Config, opened *store.Store) *Pipeline {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	p := &Pipeline{
		config: config, meter: &meter{started: time.Now()}, queue: make(chan work, QueueMax),
		sync: make(chan struct{}, 1), stopping: make(chan struct{}),
	}
	p.progress = newProgress(api.Heights{})
	p.adopt(opened)
	p.telling = newTelling(&p.config, opened.Head().Height)
	p.workers.Add(2)
	go p.execute()
	go p.syncDisk()
	return p
}

// Exchange puts another store in the place of the one before, which change gets, closes, and
// replaces; nothing may be under way. The heights begin anew with what the new one holds, and
// whoever waits for a transaction waits for it anew: it may be in no block any more. An error of
// change is returned, and the store stays.
func (p *Pipeline) Exchange(change func(*store.Store) (*store.Store, error)) error {
	if err := p.exchange(change); err != nil {
		return err
	}
	p.telling.exchanged(func() (head, durable ledger.Height) {
		heights := p.progress.now()
		return p.store().Head().Height, heights.Durable
	})
	return nil
}

func (p *Pipeline) exchange(change func(*store.Store) (*store.Store, error)) error {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	opened, err := change(p.store())
	if err != nil {
		return err
	}
	p.stopCounting()
	p.adopt(opened)
	p.progress.renew()
	return nil
}

func (p *Pipeline) adopt(opened *store.Store) {
	p.ledger.Store(opened)
	head := opened.Head()
	p.total.Store(head.Total)
	p.mu.Lock()
	p.round = order.Round(head.Round)
	p.mu.Unlock()
	p.progress.update(func(h *api.Heights) {
		*h = api.Heights{
			Ordered: head.Height, Stored: opened.DurableHeight(),
			Durable: max(min(h.Durable, head.Height), opened.KnownDurable()),
		}
	})
}

// stopCounting forgets what the members of the last run stored: from here on the chain grows by
// others' blocks, at the same heights perhaps.
func (p *Pipeline) stopCounting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disks.End()
}

func (p *Pipeline) store() *store.Store { return p.ledger.Load() }

// Store is the open store.
func (p *Pipeline) Store() *store.Store { return p.store() }

// Tip is the last executed block.
func (p *Pipeline) Tip() mempool.Tip {
	head := p.store().Head()
	return mempool.Tip{Height: head.Height, Hash: head.Hash, Time: head.Time}
}

// Heights tells how far the chain has come, with a channel that is closed at the next change.
func (p *Pipeline) Heights() (api.Heights, <-chan struct{}) { return p.progress.get() }

// Figures are the node's measurements over the last ten seconds.
func (p *Pipeline) Figures() Figures { return p.meter.figures() }

// Stalled says why execution waits, "" while it does not.
func (p *Pipeline) Stalled() string {
	if reason := p.stalled.Load(); reason != nil {
		return *reason
	}
	return ""
}

// Begin opens a run: what is delivered from here on belongs to it. Its epochs count on from the
// last block's. Nothing may be under way: call Barrier before.
func (p *Pipeline) Begin(run Run) {
	head := p.store().Head()
	stored := p.store().DurableHeight()
	p.mu.Lock()
	run.Members = slices.Clone(run.Members)
	p.run, p.baseEpoch, p.marks, p.round = run, head.Epoch, mempool.Marks{}, run.First-1
	p.counted = head.Height
	p.disks.Begin(generation.Run(run.Number), run.Shard, run.Former)
	p.disks.Stored(generation.Run(run.Number), p.config.Self, uint64(stored))
	p.mu.Unlock()
	// A member alone is a majority, and may have nothing more to store.
	p.settleDurable()
	p.tellDurable()
}

// Marks are those that were executed in this run.
func (p *Pipeline) Marks() mempool.Marks {
	p.mu.Lock()
	defer p.mu.Unlock()
	return mempool.Marks{
		Regroup: p.marks.Regroup, Entrants: slices.Clone(p.marks.Entrants),
		Benched: slices.Clone(p.marks.Benched),
	}
}

// Round is the last round that was executed, as far as it is known: after a start, and for blocks
// that peers sent, empty rounds do not show.
func (p *Pipeline) Round() order.Round {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.round
}

// ChainEpoch is what an epoch of the run's engine is in the chain.
func (p *Pipeline) ChainEpoch(epoch order.Epoch) order.Epoch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return order.Epoch(p.baseEpoch) + epoch
}

// Deliver implements driver.Sink.
func (p *Pipeline) Deliver(ctx context.Context, deliveries []order.Delivery) error {
	select {
	case p.queue <- work{deliveries: deliveries}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.stopping:
		return ErrStopping
	}
}

// Append executes and stores a block that a peer sent, in its turn. ErrStopping, ctx's error, and
// the store's.
func (p *Pipeline) Append(ctx context.Context, block *ledger.Block) error {
	return p.await(ctx, work{block: block, done: make(chan error, 1)})
}

// Replay executes a round of a run that is over, in its turn; its epoch is the chain's.
// ErrStopping, ctx's error, and the store's.
func (p *Pipeline) Replay(ctx context.Context, delivery order.Delivery) error {
	return p.await(ctx, work{replayed: &delivery, done: make(chan error, 1)})
}

// Barrier waits until everything that was delivered before is executed.
func (p *Pipeline) Barrier(ctx context.Context) error {
	return p.await(ctx, work{done: make(chan error, 1)})
}

func (p *Pipeline) await(ctx context.Context, w work) error {
	select {
	case p.queue <- w:
	case <-ctx.Done():
		return ctx.Err()
	case <-p.stopping:
		return ErrStopping
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-p.stopping:
		return ErrStopping
	}
}

// Close ends the goroutines, after a last sync. The store stays open.
func (p *Pipeline) Close() {
	p.stop.Do(func() { close(p.stopping) })
	p.workers.Wait()
}

func (p *Pipeline) execute() {
	defer p.workers.Done()
	for {
		select {
		case <-p.stopping:
			return
		case w := <-p.queue:
			err := p.handle(w)
			if w.done != nil {
				w.done <- err
			} else if err != nil && !errors.Is(err, ErrStopping) {
				p.failed(err)
				return
			}
		}
	}
}

func (p *Pipeline) failed(err error) {
	p.fail.Do(func() {
		reason := err.Error()
		p.stalled.Store(&reason)
		p.config.Logger.Error("execution stops", "error", err)
		if p.config.Failed != nil {
			p.config.Failed(err)
		}
	})
}

func (p *Pipeline) handle(w work) error {
	if w.block != nil {
		p.stopCounting()
		if err := p.patiently(func() error { return p.store().Append(w.block) }); err != nil {
			return err
		}
		p.executed(order.Round(w.block.Header.Round), mempool.Marks{})
		p.applied(w.block)
		return nil
	}
	if w.replayed != nil {
		p.stopCounting()
		return p.take(w.replayed, ledger.Epoch(w.replayed.Epoch))
	}
	for i := range w.deliveries {
		if err := p.take(&w.deliveries[i],
			ledger.Epoch(p.ChainEpoch(w.deliveries[i].Epoch))); err != nil {
			return err
		}
	}
	return nil
}

// take executes one A-delivered round.
func (p *Pipeline) take(delivery *order.Delivery, epoch ledger.Epoch) error {
	var batches, own [][]byte
	var marked mempool.Marks
	for _, message := range delivery.Messages {
		batch, marks, err := mempool.SplitPayload(message.Payload)
		if err != nil {
			// Every node drops the same payload, so they stay equal.
			p.config.Logger.Error("malformed payload dropped", "member", message.Origin, "round",
				delivery.Round, "error", err)
			continue
		}
		marked.Regroup = marked.Regroup || marks.Regroup
		marked.Entrants = append(marked.Entrants, marks.Entrants...)
		marked.Benched = append(marked.Benched, marks.Benched...)
		if len(batch) == 0 {
			continue
		}
		bundles, err := p.alarm(message.Origin, batch)
		if err != nil {
			return err
		}
		if message.Origin == p.config.Self {
			own = bundles
		}
		batches = append(batches, batch)
	}
	if len(batches) > 0 {
		var block *ledger.Block
		err := p.patiently(func() (err error) {
			block, err = p.store().Apply(epoch, ledger.Round(delivery.Round), batches)
			return err
		})
		if err != nil {
			return err
		}
		if block != nil {
			p.applied(block)
			p.settleBlock(block)
		}
		p.config.Pool.Ordered(own)
	}
	p.executed(delivery.Round, marked)
	return nil
}

// executed notes how far execution has come.
func (p *Pipeline) executed(round order.Round, marks mempool.Marks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round = round
	p.marks.Regroup = p.marks.Regroup || marks.Regroup
	p.marks.Entrants = append(p.marks.Entrants, marks.Entrants...)
	p.marks.Benched = append(p.marks.Benched, marks.Benched...)
}

// alarm compares the block that a batch's sender had executed with ours. It gives the batch's
// bundles.
func (p *Pipeline) alarm(origin order.ServerID, encoded []byte) (bundles [][]byte, err error) {
	batch, err := ledger.DecodeBatch(encoded)
	if err != nil {
		return nil, nil // sealing drops it, at every node
	}
	if batch.Header.Height > p.store().Head().Height {
		return batch.Bundles, nil // the sender is ahead; others compare
	}
	_, hash, err := p.store().Header(batch.Header.Height)
	if err != nil {
		return nil, err
	}
	if hash != batch.Header.Tip {
		return nil, fmt.Errorf("%w: block %d is %s here and %s at node %d; stop the shard and "+
			"compare `ledgerd verify` of both", ErrFork, batch.Header.Height, hash,
			batch.Header.Tip, origin)
	}
	return batch.Bundles, nil
}

// patiently repeats what a full disk holds up until there is space.
func (p *Pipeline) patiently(attempt func() error) error {
	for {
		err := attempt()
		if !errors.Is(err, store.ErrDiskFull) {
			if p.stalled.Swap(nil) != nil {
				p.config.Logger.Info("there is disk space again: execution goes on")
			}
			return err
		}
		reason := err.Error()
		if p.stalled.Swap(&reason) == nil {
			p.config.Logger.Error("execution waits for disk space", "error", err)
		}
		select {
		case <-time.After(diskRetry):
		case <-p.stopping:
			return ErrStopping
		}
	}
}

// applied makes known a block that can be read in the store now.
func (p *Pipeline) applied(block *ledger.Block) {
	admitted, expired := p.config.Pool.Applied(block)
	sharded := p.store().Genesis().Sharded()
	transactions := len(block.Entries)
	if sharded {
		transactions = decided(block)
	}
	p.meter.applied(block.Header.Height, transactions, admitted)
	p.total.Store(block.Header.Total)
	p.progress.update(func(h *api.Heights) { h.Ordered = block.Header.Height })
	var statuses []api.Status
	switch {
	case !p.progress.anyone():
	case sharded:
		statuses = p.awaited(block)
	default:
		statuses = make([]api.Status, 0, len(block.Entries)+len(expired))
		for i := range block.Entries {
			statuses = append(statuses, statusOf(&block.Entries[i], block.Header.Height,
				i, api.LevelOrdered))
		}
	}
	for _, id := range expired {
		statuses = append(statuses, api.Status{ID: id, Outcome: api.OutcomeExpired})
	}
	p.progress.settle(statuses)
	p.telling.applied(block)
	select {
	case p.sync <- struct{}{}:
	default:
	}
}

// Total is the number of transactions in the chain; in a book of several shards these are all that
// its blocks hold, verdicts and those that are passed on among them.
func (p *Pipeline) Total() uint64 { return p.total.Load() }

// syncDisk has the disk hold what was executed: all of it at a time.
func (p *Pipeline) syncDisk() {
	defer p.workers.Done()
	for {
		stopping := false
		select {
		case <-p.stopping:
			stopping = true // once more, for what came last
		case <-p.sync:
		}
		if err := p.Sync(); err != nil {
			p.failed(err)
			return
		}
		if stopping {
			return
		}
	}
}

// Sync has the disk hold what was executed, now.
func (p *Pipeline) Sync() error {
	synced, err := p.syncStore()
	if err != nil {
		return err
	}
	p.tellDurable()
	if p.config.Stored != nil && synced.counts {
		p.config.Stored(synced.run, synced.members, synced.height)
	}
	return nil
}

// synced is how far the disk holds the chain. The run is the one in which that counts, if it does.
type synced struct {
	height  ledger.Height
	counts  bool
	run     uint64
	members []order.ServerID
}

// syncStore finds out the run before another store can come: a height of one chain says nothing in
// a run of another.
func (p *Pipeline) syncStore() (synced, error) {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	opened := p.store()
	if heights := p.progress.now(); heights.Durable > opened.KnownDurable() {
		opened.KnowDurable(heights.Durable) // what was ahead of the head may be here by now
	}
	if err := opened.Sync(); err != nil {
		return synced{}, err
	}
	height := opened.DurableHeight()
	p.progress.update(func(h *api.Heights) { h.Stored = max(h.Stored, height) })
	p.mu.Lock()
	said := synced{height: height, counts: p.disks.Counts(), run: p.run.Number,
		members: p.run.Members}
	p.disks.Stored(generation.Run(p.run.Number), p.config.Self, uint64(height))
	p.mu.Unlock()
	p.settleDurable()
	return said, nil
}

// PeerStored tells that a member has stored a height in a run.
func (p *Pipeline) PeerStored(run uint64, member order.ServerID, height ledger.Height) {
	if p.heardStored(run, member, height) {
		p.tellDurable()
	}
}

// heardStored reports whether a member's word counts, and settles what is durable by it.
func (p *Pipeline) heardStored(run uint64, member order.ServerID, height ledger.Height) bool {
	p.mu.Lock()
	current := p.disks.Stored(generation.Run(run), member, uint64(height))
	p.mu.Unlock()
	if current {
		p.settleDurable()
	}
	return current
}

// PeerDurable tells that a peer knows a height to be durable, on the same chain.
func (p *Pipeline) PeerDurable(height ledger.Height) {
	p.madeDurable(height)
	p.tellDurable()
}

// settleDurable finds the highest height that a majority of the chain's members stored.
func (p *Pipeline) settleDurable() {
	p.mu.Lock()
	defer p.mu.Unlock() // until it is noted: stopCounting may be about to forget it
	// Members may have stored more than is executed here. What this chain gets at those heights,
	// and which disks count there, is not known yet.
	p.madeDurable(min(ledger.Height(p.disks.Height()), p.counted))
}

// settleBlock settles what the members said of a block before it was executed here.
func (p *Pipeline) settleBlock(block *ledger.Block) {
	var changed *generation.Membership
	if opened := p.store(); opened.MembershipHeight() == block.Header.Height {
		m := opened.Membership()
		to := generation.Membership{Number: m.Number}
		for i := range m.Members {
			to.Members = append(to.Members, order.ServerID(m.Members[i].Index))
			to.Disks = append(to.Disks, generation.DiskID(m.Members[i].Disk))
		}
		changed = &to
	}
	p.mu.Lock()
	if changed != nil {
		p.disks.Changed(*changed, uint64(block.Header.Height))
	}
	p.counted = block.Header.Height
	p.mu.Unlock()
	p.settleDurable()
}

func (p *Pipeline) madeDurable(height ledger.Height) {
	advanced := false
	p.progress.update(func(h *api.Heights) {
		advanced = height > h.Durable
		h.Durable = max(h.Durable, height)
	})
	if advanced {
		p.store().KnowDurable(height) // which the next sync writes
		p.meter.madeDurable(height)
	}
}

// tellDurable has the hook hear how far the chain is durable.
func (p *Pipeline) tellDurable() {
	p.telling.durableTo(func() ledger.Height {
		heights := p.progress.now()
		return heights.Durable
	})
}

func notFound(err error) bool { return errors.Is(err, store.ErrNotFound) }
