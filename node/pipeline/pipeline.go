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
	"github.com/ledgerd/ledgerd/machine"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/verification"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// QueueMax bounds the deliveries that wait for execution. Each holds the rounds of one step of the
// engine.
const QueueMax = 32

// diskRetry is the time between two attempts to execute a round on a full disk.
const diskRetry = 500 * time.Millisecond

// Errors of the pipeline; match them with errors.Is.
var (
	// ErrFork reports that a peer executed another block than this node at some height. One of the
	// two is wrong, and the node stops.
	ErrFork = errors.New("fork: the nodes do not hold the same chain")
	// ErrStopping reports that the node is stopping.
	ErrStopping = errors.New("the node is stopping")
)

// Config configures a pipeline.
type Config struct {
	Pool *mempool.Pool
	// Self is this node's index among the members of the chain.
	Self order.ServerID
	// Stored is called once after each sync of the disk in a run, by the goroutine that synced it.
	// Calls of several goroutines may overlap, and come in another order than the syncs.
	Stored func(Stored)
	// Recorded is like Stored, for the complete rounds that this disk recorded with a sync. It may
	// be nil if Record is never called. EncodeRecord returns a record's bytes, and sets its Rounds.
	// The rounds have the chain's epochs.
	Recorded     func(run uint64, members []order.ServerID, rounds []shard.Recorded)
	EncodeRecord func(r *shard.Record, rounds []order.Delivery) []byte
	// Verification verifies the batches of rounds. The store should use the same. It is required,
	// and the caller closes it after the pipeline.
	Verification *verification.Pool
	// Forged is called if a round has bundles with wrong signatures, with the member that proposed
	// them, their number, the run, and the first error. Nil means that only the log names them. It
	// must be quick, and must not call the pipeline.
	Forged func(run uint64, member order.ServerID, bundles int, err error)
	// Vouched is called for each batch of a round that has a voucher of its proposer or of another
	// member. It may be nil. It must be quick, and must not call the pipeline.
	Vouched func(*ledger.VerifiedBatch)
	// Failed is called, once, with an error after which the node cannot continue: a fork, a damaged
	// store.
	Failed func(error)
	Logger *slog.Logger

	// The hooks below report the chain's progress to parts that work beside the pipeline. Each may
	// be nil. They are called one at a time, in the order of events. The only lock held is the one
	// that keeps this order. They must be quick. They may query the pipeline, but must not call
	// Sync, Exchange, PeerStored or PeerDurable.

	// Applied is called for every executed block, from this shard's rounds and from peers alike,
	// once the block is readable in the store and its waiters are notified.
	Applied func(*ledger.Block)
	// DurableTo is called with ascending heights that a majority has on disk. Applied is always
	// called first for the block of that height.
	DurableTo func(height ledger.Height)
	// Exchanged is called after another store replaced the one before. Blocks reported earlier may
	// not be in the chain any more, and the heights start again with those that Heights returns.
	Exchanged func()
}

// Run is one run of an engine: a group of members whose rounds are executed and whose disks count.
type Run struct {
	Number uint64
	// First is the run's first round. The round before it counts as executed, even if it was empty.
	First order.Round
	// Members are the members of the group, by their indexes in the chain, ascending.
	Members []order.ServerID
	// Bound is that of the run's engine.
	Bound generation.Bound
	// Shard are all members of the chain. A majority of their disks makes a block durable. For
	// Former see shard.Durability.
	Shard  generation.Membership
	Former []generation.Former
}

// Stored says how far this disk has got in a run.
type Stored struct {
	Run     uint64
	Members []order.ServerID // of the run
	// Proposers are the members that proposed something in the blocks since the last time. Callers
	// at these wait for the blocks to be durable.
	Proposers []order.ServerID
	Height    ledger.Height // up to which this disk holds the chain
}

// proposed says who proposed a block's batches.
type proposed struct {
	height ledger.Height
	by     []order.ServerID
}

// work is one entry of the queue: rounds of a run, a round of an earlier run, a block from a peer,
// or a barrier.
type work struct {
	deliveries []order.Delivery
	replayed   *order.Delivery
	bound      generation.Bound // of the run of the replayed round
	block      *ledger.Block
	done       chan error // for a block, a replayed round and a barrier
}

// Pipeline executes and stores blocks. All methods are safe for concurrent use, but one goroutine
// must make all calls of Begin and Exchange.
type Pipeline struct {
	config   Config
	ledger   atomic.Pointer[openLedger]
	progress *progress
	meter    *meter
	queue    chan work
	sync     chan struct{} // one buffered value: there is something to sync
	lazily   chan struct{} // one buffered value: the same, and it need not be at once
	stopping chan struct{}
	stop     sync.Once
	workers  sync.WaitGroup
	fail     sync.Once
	stalled  atomic.Pointer[string] // why execution waits; nil if it does not
	total    atomic.Uint64
	records  atomic.Uint64 // that this disk got
	leftOut  atomic.Uint64 // records that it did not get
	syncing  sync.Mutex    // held while the disk is synced, and while another store is put in
	telling  *hookCaller   // nil without hooks

	mu        sync.Mutex
	run       Run
	baseEpoch ledger.Epoch
	marks     mempool.Marks    // executed in this run
	round     order.Round      // the last executed one
	disks     shard.Durability // which heights the disks of the run's members hold
	counted   ledger.Height    // the height up to which it is known which disks count
	tip       mempool.Tip      // the last block up to round
	recorder  shard.Recorder   // which complete rounds go to the disk
	proposals []proposed       // of the blocks after the height that Stored had last, in this run
}

// openLedger is the ledger in its two forms: the state machine that rounds drive, and the store
// that everything else reads.
type openLedger struct {
	machine machine.StateMachine[*store.Store, *ledger.Block]
	store   *store.Store
}

// New makes a pipeline on an open store and starts its goroutines.
func New(config Config, opened *store.Store) *Pipeline {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	p := &Pipeline{
		config: config, meter: &meter{started: time.Now()}, queue: make(chan work, QueueMax),
		sync: make(chan struct{}, 1), lazily: make(chan struct{}, 1),
		stopping: make(chan struct{}),
	}
	p.progress = newProgress(report.Heights{})
	p.adopt(opened)
	p.telling = newTelling(&p.config, opened.Head().Height)
	p.workers.Add(2)
	go p.execute()
	go p.syncDisk()
	return p
}

// Exchange replaces the store. The function change gets the current store, closes it, and returns
// the new one. Nothing may be under way. The heights start again with those of the new store.
// Waiters for a transaction start to wait again: it may be in no block any more. If change returns
// an error, Exchange returns it and keeps the store.
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
	p.ledger.Store(&openLedger{machine: machine.Of(opened), store: opened})
	head := opened.Head()
	p.total.Store(head.Total)
	p.mu.Lock()
	p.round, p.tip = order.Round(head.Round), p.Tip()
	p.recorder.Drop()
	p.mu.Unlock()
	p.progress.update(func(h *report.Heights) {
		*h = report.Heights{
			Ordered: head.Height, Stored: opened.DurableHeight(),
			Durable: max(min(h.Durable, head.Height), opened.KnownDurable()),
		}
	})
}

// stopCounting drops what the members of the last run reported as stored. From here on the chain
// grows by blocks of others, possibly at the same heights.
func (p *Pipeline) stopCounting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disks.End()
}

func (p *Pipeline) store() *store.Store { return p.ledger.Load().store }

// Store returns the open store.
func (p *Pipeline) Store() *store.Store { return p.store() }

// Tip returns the last executed block.
func (p *Pipeline) Tip() mempool.Tip {
	head := p.store().Head()
	return mempool.Tip{Height: head.Height, Hash: head.Hash, Time: head.Time}
}

// Heights returns the chain's heights, with a channel that is closed at the next change.
func (p *Pipeline) Heights() (report.Heights, <-chan struct{}) { return p.progress.get() }

// Figures returns the node's measurements over the last ten seconds.
func (p *Pipeline) Figures() Figures { return p.meter.figures() }

// Stalled returns why execution waits, or "" if it does not.
func (p *Pipeline) Stalled() string {
	if reason := p.stalled.Load(); reason != nil {
		return *reason
	}
	return ""
}

// Begin opens a run. Rounds delivered from now on belong to it. Its epochs count on from the last
// block's epoch. Nothing may be under way: call Barrier before.
func (p *Pipeline) Begin(run Run) {
	head := p.store().Head()
	stored := p.store().DurableHeight()
	p.mu.Lock()
	run.Members = slices.Clone(run.Members)
	p.run, p.baseEpoch, p.marks, p.round = run, head.Epoch, mempool.Marks{}, run.First-1
	p.counted, p.tip = head.Height, p.Tip()
	p.recorder.Drop()
	p.proposals = nil
	p.disks.Begin(generation.Run(run.Number), run.Shard, run.Former)
	p.disks.Stored(generation.Run(run.Number), p.config.Self, uint64(stored))
	p.mu.Unlock()
	// A single member is a majority, and may have nothing more to store.
	p.settleDurable()
	p.tellDurable()
}

// Marks returns the marks that were executed in this run.
func (p *Pipeline) Marks() mempool.Marks {
	p.mu.Lock()
	defer p.mu.Unlock()
	return mempool.Marks{
		Regroup: p.marks.Regroup, Entrants: slices.Clone(p.marks.Entrants),
		Benched: slices.Clone(p.marks.Benched),
	}
}

// Round returns the last executed round, as far as it is known. Empty rounds are unknown after a
// start, and for blocks from peers.
func (p *Pipeline) Round() order.Round {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.round
}

// ChainEpoch converts an epoch of the run's engine to an epoch of the chain.
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

// TryDeliver implements driver.PromptSink.
func (p *Pipeline) TryDeliver(deliveries []order.Delivery) (bool, error) {
	select {
	case <-p.stopping:
		return false, ErrStopping
	default:
	}
	select {
	case p.queue <- work{deliveries: deliveries}:
		return true, nil
	default:
		return false, nil
	}
}

// Append executes and stores a block from a peer, in its turn. Errors: ErrStopping, ctx's error,
// and the store's.
func (p *Pipeline) Append(ctx context.Context, block *ledger.Block) error {
	return p.await(ctx, work{block: block, done: make(chan error, 1)})
}

// Replay executes a round of a run that is over, in its turn. The round's epoch is the chain's, and
// bound is that of the run's engine. Errors: ErrStopping, ctx's error, and the store's.
func (p *Pipeline) Replay(ctx context.Context, delivery order.Delivery,
	bound generation.Bound) error {
	return p.await(ctx, work{replayed: &delivery, bound: bound, done: make(chan error, 1)})
}

// Barrier waits until everything delivered before is executed.
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
		if err := p.retryOnFullDisk(func() error { return p.store().Append(w.block) }); err != nil {
			return err
		}
		p.executed(order.Round(w.block.Header.Round), mempool.Marks{})
		p.applied(w.block)
		p.syncSoon()
		return nil
	}
	if w.replayed != nil {
		p.stopCounting()
		return p.take(w.replayed, ledger.Epoch(w.replayed.Epoch), w.bound)
	}
	for i := range w.deliveries {
		p.mu.Lock()
		epoch := p.baseEpoch + ledger.Epoch(w.deliveries[i].Epoch)
		bound := p.run.Bound
		p.mu.Unlock()
		if err := p.take(&w.deliveries[i], epoch, bound); err != nil {
			return err
		}
	}
	return nil
}

// take executes one A-delivered round of a run whose engine has a bound.
func (p *Pipeline) take(delivery *order.Delivery, epoch ledger.Epoch,
	bound generation.Bound) error {
	var batches, own, late [][]byte
	var proposers []order.ServerID
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
		verified := p.config.Verification.Batches([][]byte{batch})[0]
		if err := p.checkFork(message.Origin, verified); err != nil {
			return err
		}
		p.checkForgery(message.Origin, delivery.Round, verified)
		if p.config.Vouched != nil && verified != nil && verified.Voucher != nil &&
			verified.VoucherErr == nil {
			p.config.Vouched(verified)
		}
		if p.changesTooSoon(delivery.Round, bound, batch) {
			p.config.Logger.Info("a batch waits for the next eon: the members change already",
				"member", message.Origin, "round", delivery.Round)
			late = append(late, batch)
			continue
		}
		if message.Origin == p.config.Self && verified != nil {
			own = verified.Bundles
		}
		batches = append(batches, batch)
		proposers = append(proposers, message.Origin)
	}
	if len(late) > 0 {
		p.config.Verification.Forget(late)
	}
	if len(batches) > 0 {
		defer p.config.Verification.Forget(batches)
		var block *ledger.Block
		err := p.retryOnFullDisk(func() (err error) {
			_, block, err = p.ledger.Load().machine.Apply(machine.Round{Epoch: uint64(epoch),
				Number: uint64(delivery.Round), Payloads: batches})
			return err
		})
		if err != nil {
			return err
		}
		if block != nil {
			p.applied(block)
			p.settleBlock(block, proposers)
			p.syncBlock(block)
		}
		p.config.Pool.HandOverUnplaced(own)
	}
	p.executed(delivery.Round, marked)
	return nil
}

// changesTooSoon reports whether a batch has a change of the membership in a round that may be of
// the run that another change ends. A run counts with one change, and the ledger's own rule covers
// only the rounds of AllConcur's runs. So all nodes leave out the batch. Its proposer's pool keeps
// its bundles, and proposes them again in the next eon (Pool.Requeue). Blocks are executed as they
// are: the rule is only about what becomes of rounds.
func (p *Pipeline) changesTooSoon(round order.Round, bound generation.Bound, batch []byte) bool {
	opened, spacing := p.store(), ledger.Round(bound.ChangeRounds())
	if spacing <= ledger.ChangeRounds || opened.MembershipHeight() == 0 ||
		!ledger.MembershipChangeIn(batch, opened.Genesis(), opened.GenesisHash()) {
		return false
	}
	last := opened.Membership()
	return ledger.Round(round) < last.Round+spacing
}

// executed records the last executed round and its marks.
func (p *Pipeline) executed(round order.Round, marks mempool.Marks) {
	tip := p.Tip()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round, p.tip = round, tip
	if p.recorder.Waits(round) {
		p.syncSoon()
	}
	p.marks.Regroup = p.marks.Regroup || marks.Regroup
	p.marks.Entrants = append(p.marks.Entrants, marks.Entrants...)
	p.marks.Benched = append(p.marks.Benched, marks.Benched...)
}

// checkFork compares the block that a batch's sender had executed with ours, and returns ErrFork if
// they differ. A nil batch is one that cannot be decoded, which sealing drops at every node.
func (p *Pipeline) checkFork(origin order.ServerID, batch *ledger.VerifiedBatch) error {
	if batch == nil || batch.Header.Height > p.store().Head().Height {
		return nil // the sender is ahead; other nodes compare
	}
	_, hash, err := p.store().Header(batch.Header.Height)
	if err != nil {
		return err
	}
	if hash != batch.Header.Tip {
		return fmt.Errorf("%w: block %d is %s here and %s at node %d; stop the shard and "+
			"compare `ledgerd verify` of both", ErrFork, batch.Header.Height, hash,
			batch.Header.Tip, origin)
	}
	return nil
}

// checkForgery reports the bundles of a batch that its sender forged. Sealing drops them at every
// node. A correct node proposes none, because it verifies what it admits.
func (p *Pipeline) checkForgery(origin order.ServerID, round order.Round,
	batch *ledger.VerifiedBatch) {
	if batch == nil {
		return
	}
	forged, first := batch.Forged()
	if forged == 0 {
		return
	}
	p.config.Logger.Error("forged bundles dropped", "member", origin, "round", round, "bundles",
		forged, "error", first)
	if p.config.Forged != nil {
		p.mu.Lock()
		run := p.run.Number
		p.mu.Unlock()
		p.config.Forged(run, origin, forged, first)
	}
}

// retryOnFullDisk repeats an attempt that fails on a full disk, or because the process can open no
// more files, until it can succeed.
func (p *Pipeline) retryOnFullDisk(attempt func() error) error {
	for {
		err := attempt()
		if !errors.Is(err, store.ErrDiskFull) && !errors.Is(err, store.ErrNoDescriptors) {
			if p.stalled.Swap(nil) != nil {
				p.config.Logger.Info("the disk takes writes again: execution continues")
			}
			return err
		}
		reason := err.Error()
		if p.stalled.Swap(&reason) == nil {
			p.config.Logger.Error("execution waits until the disk takes writes", "error", err)
		}
		select {
		case <-time.After(diskRetry):
		case <-p.stopping:
			return ErrStopping
		}
	}
}

// applied reports a block that is now readable in the store.
func (p *Pipeline) applied(block *ledger.Block) {
	admitted, expired := p.config.Pool.Applied(block)
	sharded := p.store().Genesis().Sharded()
	transactions := block.Len()
	if sharded {
		transactions = decided(block)
	}
	p.meter.applied(block.Header.Height, transactions, admitted)
	p.total.Store(block.Header.Total)
	p.progress.update(func(h *report.Heights) { h.Ordered = block.Header.Height })
	var statuses []report.Status
	switch {
	case !p.progress.anyone():
	case sharded:
		statuses = p.awaited(block)
	default:
		p.progress.settleBlock(block)
	}
	for _, id := range expired {
		statuses = append(statuses, report.Status{ID: id, Outcome: report.OutcomeExpired})
	}
	p.progress.settle(statuses)
	p.telling.applied(block)
}

// syncSoon wakes the disk's goroutine.
func (p *Pipeline) syncSoon() {
	select {
	case p.sync <- struct{}{}:
	default:
	}
}

// Total returns the number of transactions in the chain. In a book of several shards this includes
// verdicts and transactions that are only passed on.
func (p *Pipeline) Total() uint64 { return p.total.Load() }

// syncDisk syncs the disk for all blocks executed since the last sync.
func (p *Pipeline) syncDisk() {
	defer p.workers.Done()
	var due <-chan time.Time // nil if nothing is to be synced lazily
	for {
		stopping := false
		select {
		case <-p.stopping:
			stopping = true // once more, for the last blocks
		case <-p.lazily:
			if due == nil {
				due = time.After(lazySync)
			}
			continue
		case <-due:
		case <-p.sync:
		}
		due = nil
		if err := p.Sync(); err != nil {
			p.failed(err)
			return
		}
		if stopping {
			return
		}
	}
}

// Sync syncs all executed blocks to the disk, now.
func (p *Pipeline) Sync() error {
	synced, err := p.syncStore()
	if err != nil {
		return err
	}
	p.tellDurable()
	if p.config.Stored != nil && synced.counts {
		p.config.Stored(synced.Stored)
	}
	if p.config.Recorded != nil && synced.counts && len(synced.recorded) > 0 {
		p.config.Recorded(synced.Run, synced.Members, synced.recorded)
	}
	return nil
}

// synced is the result of a sync: the height on disk, the rounds that were recorded, and whether
// both count in the run.
type synced struct {
	Stored
	recorded []shard.Recorded
	counts   bool
}

// syncStore reads the run while no other store can be put in: a height of one chain means nothing
// in a run of another chain.
func (p *Pipeline) syncStore() (synced, error) {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	opened := p.ledger.Load()
	if heights := p.progress.now(); heights.Durable > opened.store.KnownDurable() {
		// blocks that were ahead of the head may be here by now
		opened.store.RecordDurable(heights.Durable)
	}
	record, err := p.putRecord(opened.store)
	if err != nil {
		return synced{}, err
	}
	durable, err := opened.machine.Sync()
	if err != nil {
		return synced{}, err
	}
	height := ledger.Height(durable)
	p.progress.update(func(h *report.Heights) { h.Stored = max(h.Stored, height) })
	p.mu.Lock()
	said := synced{counts: p.disks.Counts(), Stored: Stored{Run: p.run.Number,
		Members: p.run.Members, Proposers: p.takeProposers(height), Height: height}}
	p.disks.Stored(generation.Run(p.run.Number), p.config.Self, uint64(height))
	if record != nil && p.disks.Recorded(record.Run, p.config.Self, record.Names()) {
		p.records.Add(1)
		said.recorded = record.Names()
		p.settleRecorded()
	}
	p.mu.Unlock()
	p.settleDurable()
	return said, nil
}

// takeProposers returns the members that proposed something in blocks up to a height, since the
// last time. The caller holds mu.
func (p *Pipeline) takeProposers(height ledger.Height) (members []order.ServerID) {
	count := 0
	for ; count < len(p.proposals) && p.proposals[count].height <= height; count++ {
		for _, member := range p.proposals[count].by {
			if !slices.Contains(members, member) {
				members = append(members, member)
			}
		}
	}
	p.proposals = slices.Delete(p.proposals, 0, count)
	return members
}

// PeerStored records that a member has stored a height in a run.
func (p *Pipeline) PeerStored(run uint64, member order.ServerID, height ledger.Height) {
	if p.heardStored(run, member, height) {
		p.tellDurable()
	}
}

// heardStored records a member's stored height. It reports whether that counts in the current run.
func (p *Pipeline) heardStored(run uint64, member order.ServerID, height ledger.Height) bool {
	p.mu.Lock()
	current := p.disks.Stored(generation.Run(run), member, uint64(height))
	p.mu.Unlock()
	if current {
		p.settleDurable()
	}
	return current
}

// PeerDurable records that a peer knows a height to be durable, on the same chain.
func (p *Pipeline) PeerDurable(height ledger.Height) {
	p.madeDurable(height)
	p.tellDurable()
}

// settleDurable finds the highest height that a majority of the chain's members stored.
func (p *Pipeline) settleDurable() {
	p.mu.Lock()
	defer p.mu.Unlock() // held until it is recorded: stopCounting may be about to drop it
	// Members may have stored more than is executed here. This node does not know yet which blocks
	// its chain gets at those heights, and which disks count there.
	p.madeDurable(min(ledger.Height(p.disks.Height()), p.counted))
}

// settleBlock counts what the members reported of a block before it was executed here, and keeps
// the members that proposed its batches.
func (p *Pipeline) settleBlock(block *ledger.Block, proposers []order.ServerID) {
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
	p.proposals = append(p.proposals, proposed{block.Header.Height, proposers})
	p.disks.Executed(uint64(block.Header.Height), shard.Recorded{
		Round: order.Round(block.Header.Round), Epoch: order.Epoch(block.Header.Epoch)})
	p.settleRecorded()
	p.mu.Unlock()
	p.settleDurable()
}

// madeDurable records a height up to which the own chain is durable. The chain may have become
// shorter since the caller looked at it, by an Exchange.
func (p *Pipeline) madeDurable(height ledger.Height) {
	advanced := false
	p.progress.update(func(h *report.Heights) {
		height = min(height, h.Ordered)
		advanced = height > h.Durable
		h.Durable = max(h.Durable, height)
	})
	if advanced {
		p.store().RecordDurable(height) // the next sync writes it
		p.meter.madeDurable(height)
	}
}

// tellDurable passes the durable height to the hook.
func (p *Pipeline) tellDurable() {
	p.telling.durableTo(func() ledger.Height {
		heights := p.progress.now()
		return heights.Durable
	})
}

func notFound(err error) bool { return errors.Is(err, store.ErrNotFound) }
