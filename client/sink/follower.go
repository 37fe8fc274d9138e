package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

// follower streams one shard's chain to the target. Only its goroutine uses it.
type follower struct {
	source  Source
	target  Target
	options *Options
	shard   ledger.ShardID

	chain Chain
	lane  Lane  // nil if none is open
	mark  *Mark // where the stream is, once a lane is open
	// kept is the mark that the target must have: of the last record, unless it keeps others, too.
	kept *Mark
	// last is the block before the one that is read next, zero if that is not known.
	last ledger.Hash
	next ledger.Height
	// skip is how many entries of the block at next the target has.
	skip int
	head ledger.Height // the last durable block
	// ends says that the stream ends, after the block at end.
	ends bool
	end  ledger.Height
	// added says that the shard was added to the book meanwhile.
	added bool
	// opened says that the stream has begun, or failed to, once. It writes after all of them have:
	// if one target is refused, nothing is written to any.
	opened func()
	all    <-chan struct{}
	// first is where the stream began after the head, 0 before that.
	first   ledger.Height
	written uint64
	batch   *Batch // that is being filled, or nil
	size    int    // of its lines
	// crossings are the transactions that wait for other shards, and whether the filter lets them
	// through.
	crossings map[ledger.Hash]bool
}

// run streams until the context ends, the stream is at its end, or no retry helps.
func (f *follower) run(ctx context.Context) (err error) {
	defer func() {
		if failed := f.close(); err == nil {
			err = failed
		}
	}()
	failing := time.Time{} // since when nothing has worked
	for pauses := 0; ; {
		written, mark := f.written, f.mark
		err := f.stream(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			return nil
		case f.final(err):
			return f.explain(err)
		}
		if f.written > written || f.mark != nil && mark != nil && f.mark.After(mark.Position) {
			failing, pauses = time.Time{}, 0
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		if f.options.GiveUp > 0 && time.Since(failing) >= f.options.GiveUp {
			return fmt.Errorf("%w; gave up after %s without progress: run the same command again "+
				"to go on", f.explain(err), f.options.GiveUp)
		}
		f.tell(Event{Event: "retry", Error: f.explain(err).Error()})
		f.opened() // the other streams do not wait for one whose nodes are down
		switch client.CodeOf(err) {
		case connect.CodeUnimplemented, connect.CodeInvalidArgument:
			f.source.Rotate() // the node is older than the others, or behind them
		}
		// The target says again where to go on: what it took of the last batch is unknown.
		if err := f.close(); err != nil {
			f.tell(Event{Event: "retry", Error: f.explain(err).Error()})
		}
		if !pause(ctx, min(f.options.Backoff<<min(pauses, 16), f.options.MaxBackoff)) {
			return ctx.Err()
		}
		pauses++
	}
}

// explain says which shard's stream an error is of.
func (f *follower) explain(err error) error {
	return fmt.Errorf("the stream of shard %d: %w", f.shard, err)
}

// final reports whether no retry helps.
func final(err error) bool {
	if errors.Is(err, ErrRefused) {
		return true
	}
	switch client.CodeOf(err) {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeInvalidArgument:
		return true
	}
	return false
}

// final reports whether no retry helps. A node may not know a shard yet that was added just now.
func (f *follower) final(err error) bool {
	return final(err) && !(f.added && client.CodeOf(err) == connect.CodeInvalidArgument)
}

func pause(ctx context.Context, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *follower) close() error {
	if f.lane == nil {
		return nil
	}
	lane := f.lane
	f.lane = nil
	return lane.Close()
}

func (f *follower) tell(event Event) {
	event.Shard, event.Written, event.Durable = f.shard, f.written, f.head
	if f.mark != nil {
		event.Height, event.Index = f.mark.Height, f.mark.Index
	}
	f.options.tell(event)
}

// stream opens a lane and streams until something fails or the stream is at its end.
func (f *follower) stream(ctx context.Context) error {
	if err := f.begin(ctx); err != nil {
		return err
	}
	f.opened()
	select {
	case <-f.all:
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := f.flush(ctx); err != nil { // the mark of the head
		return err
	}
	f.tell(Event{Event: "begin"})
	for !f.ends || f.next <= f.end {
		part, err := f.source.ReadChain(ctx, f.shard, f.next, f.options.Poll)
		if err != nil {
			return err
		}
		f.head = max(f.head, part.Durable)
		if f.ends && len(part.Blocks) == 0 {
			f.source.Rotate()
			return fmt.Errorf("block %d was durable, and the node does not have it", f.next)
		}
		for _, block := range part.Blocks {
			if block.Header.Height != f.next || !f.last.IsZero() &&
				block.Header.Previous != f.last {
				return Refuse("block %d does not follow the block that was streamed before it: "+
					"the node is of another ledger, or it lies; ask another node with --node",
					block.Header.Height)
			}
			if f.ends && f.next > f.end {
				break
			}
			if err := f.write(ctx, block); err != nil {
				return err
			}
			f.last, f.skip = block.Hash, 0
			f.next++
		}
		if err := f.flush(ctx); err != nil {
			return err
		}
	}
	f.tell(Event{Event: "end"})
	return nil
}

// begin opens a lane, and finds the place to go on.
func (f *follower) begin(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, f.options.CallTime)
	defer cancel()
	genesis, err := f.source.ShardGenesis(bounded, f.shard)
	if err != nil {
		return err
	}
	chain := Chain{Name: genesis.Chain, Genesis: genesis.Hash(), Shard: f.shard}
	if f.chain != (Chain{}) && f.chain != chain {
		return Refuse("the node is now of another ledger: its genesis is %s, and it was %s",
			chain.Genesis, f.chain.Genesis)
	}
	f.chain = chain
	part, err := f.source.ReadChain(bounded, f.shard, 1<<62, 0) // tells the head only
	if err != nil {
		return err
	}
	f.head = max(f.head, part.Durable)
	if f.lane, err = f.target.Open(bounded, chain); err != nil {
		return err
	}
	mark, err := f.lane.Mark(bounded)
	if err != nil {
		return err
	}
	if f.kept != nil && (mark == nil || f.kept.After(mark.Position)) {
		f.tell(Event{Event: "lost", Error: "the target lost what it had taken; it gets it again"})
	}
	f.mark, f.kept, f.batch, f.crossings = mark, mark, nil, make(map[ledger.Hash]bool)
	if f.options.Once && !f.ends {
		f.ends, f.end = true, f.head
	}
	if mark == nil {
		return f.beginAt(ctx, genesis)
	}
	return f.goOn(ctx, mark)
}

// beginAt begins a stream of which the target has nothing.
func (f *follower) beginAt(ctx context.Context, genesis *ledger.Genesis) error {
	if f.options.FromHead && !f.added {
		return f.beginAtHead(ctx)
	}
	f.next, f.last, f.skip = max(f.options.from(f.shard), 1), ledger.Hash{}, 0
	if f.added {
		f.next = 1
	}
	if f.next > f.head+1 {
		return Refuse("--from names block %d, and the chain ends with block %d: begin at %d or "+
			"before", f.next, f.head, f.head+1)
	}
	if f.next == 1 {
		f.last = genesis.Hash()
	}
	return nil
}

// beginAtHead begins a stream after the head. The target gets the mark of the head before there is
// anything to write, so that a stream that is interrupted until then does not begin later.
func (f *follower) beginAtHead(ctx context.Context) error {
	if !f.target.KeepsMarks() {
		return Refuse("--from head: this target keeps its position in what was written, so it "+
			"cannot keep where it began: name the block, such as --from %d=%d for the present "+
			"head of shard %[1]d, and the same one until something is written", f.shard, f.head+1)
	}
	if f.first == 0 {
		f.first = f.head + 1
	}
	// Before the first block the mark is the genesis.
	mark := Mark{Position: Position{Shard: f.shard}, Genesis: f.chain.Genesis,
		Block: f.chain.Genesis}
	if f.first > 1 {
		mark.Height = f.first - 1
		block, err := f.blockOf(ctx, &mark)
		if err != nil {
			return err
		}
		mark = markOf(f.chain, block, block.Len()-1)
	}
	f.next, f.last, f.skip = f.first, mark.Block, 0
	f.batch = &Batch{Chain: f.chain, Through: mark} // written once all streams are open
	return nil
}

// goOn checks the target's mark against the chain, and goes on after it.
func (f *follower) goOn(ctx context.Context, mark *Mark) error {
	if mark.Shard != f.shard || mark.Genesis != f.chain.Genesis {
		return Refuse("the target has the stream of another chain: its position is %s of the "+
			"chain with genesis %s, and this is shard %d with genesis %s; nothing was written. "+
			"Give this stream another name or place in the configuration, or ask the nodes of "+
			"the other ledger", mark.Position, mark.Genesis, f.shard, f.chain.Genesis)
	}
	if mark.Height == 0 && mark.Block == f.chain.Genesis { // it began before the first block
		f.next, f.last, f.skip = 1, f.chain.Genesis, 0
		return nil
	}
	block, err := f.blockOf(ctx, mark)
	if err != nil {
		return err
	}
	if block.Hash != mark.Block || mark.Index >= block.Len() {
		return Refuse("the target's position is entry %d of block %s at height %d, and the chain "+
			"has block %s of %d entries there: the target was filled from another history; "+
			"nothing was written. Check the nodes with ledgerd verify, or fill another target "+
			"from the beginning", mark.Index, mark.Block, mark.Height, block.Hash, block.Len())
	}
	f.next, f.last, f.skip = mark.Height, block.Header.Previous, mark.Index+1
	if f.skip == block.Len() {
		f.next, f.last, f.skip = f.next+1, block.Hash, 0
	}
	return nil
}

// blockOf returns the block of a mark. The node may be behind, so it waits for a while.
func (f *follower) blockOf(ctx context.Context, mark *Mark) (*ledger.Block, error) {
	deadline := time.Now().Add(f.options.Patience)
	for {
		wait := min(max(time.Until(deadline), 0), f.options.Poll)
		part, err := f.source.ReadChain(ctx, f.shard, mark.Height, wait)
		if err != nil {
			return nil, err
		}
		f.head = max(f.head, part.Durable)
		if len(part.Blocks) > 0 {
			return part.Blocks[0], nil
		}
		f.source.Rotate()
		if !time.Now().Before(deadline) {
			if f.head >= mark.Height { // another node has it
				return nil, fmt.Errorf("the node is behind the target, which has everything up to "+
					"block %d of %d", mark.Height, f.head)
			}
			return nil, Refuse("the target's position %s is past the chain, which ends with block "+
				"%d as the nodes say: nothing was written. Ask a node that has caught up with "+
				"--node, or check whether the ledger was set back", mark.Position, f.head)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// write adds the entries of a block to the batch, and writes each batch that is full.
func (f *follower) write(ctx context.Context, block *ledger.Block) error {
	for index, entry := range block.All() {
		if index < f.skip {
			continue
		}
		if f.batch == nil {
			f.batch, f.size = &Batch{Chain: f.chain, After: f.mark}, 0
		}
		t := entry.Transaction()
		streamed, err := f.streams(ctx, entry, t)
		if err != nil {
			return err
		}
		if streamed {
			record, err := newRecord(f.chain, block, index, entry, t)
			if err != nil {
				return err
			}
			f.batch.Records = append(f.batch.Records, record)
			f.size += len(record.Line)
		}
		f.batch.Through = markOf(f.chain, block, index)
		if len(f.batch.Records) < f.options.BatchRecords && f.size < f.options.BatchBytes {
			continue
		}
		if err := f.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// flush writes the batch, and remembers that the target has it.
func (f *follower) flush(ctx context.Context) error {
	batch := f.batch
	if f.batch = nil; batch == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, f.options.WriteTime)
	defer cancel()
	if err := f.lane.Write(bounded, batch); err != nil {
		return err
	}
	f.mark = &batch.Through
	if last := len(batch.Records) - 1; f.target.KeepsMarks() {
		f.kept = f.mark
	} else if last >= 0 {
		f.kept = &batch.Records[last].Mark
	}
	f.written += uint64(len(batch.Records))
	f.tell(Event{Event: "progress"})
	return nil
}

// maxCrossings bounds the waiting transactions that are kept for their verdicts.
const maxCrossings = 4096

// streams reports whether the filter lets an entry through.
func (f *follower) streams(ctx context.Context, entry *ledger.Entry,
	t *ledger.Transaction) (bool, error) {
	filter := &f.options.Filter
	if filter.all() {
		return true, nil
	}
	code := entry.Result.Code
	if t.Verdict == nil {
		matches := filter.matches(t)
		if code == ledger.SetAside && len(f.crossings) < maxCrossings {
			f.crossings[entry.ID] = matches
		}
		return matches, nil
	}
	id := t.Verdict.ID
	ended := code == ledger.Settled || code == ledger.Released
	matches, known := f.crossings[id]
	if !known {
		bounded, cancel := context.WithTimeout(ctx, f.options.CallTime)
		about, err := f.source.TransactionIn(bounded, f.shard, id)
		cancel()
		switch {
		case err == nil:
			matches = filter.matches(about)
		case client.CodeOf(err) != connect.CodeNotFound:
			return false, err
		case ended: // its transaction is in the chain before it, so this node is behind
			f.source.Rotate()
			return false, fmt.Errorf("the transaction %s of a verdict is not at this node yet: %w",
				id, err)
		default: // the verdict came before its transaction, and ends nothing
			return false, nil
		}
	}
	if ended {
		delete(f.crossings, id)
	}
	return matches, nil
}
