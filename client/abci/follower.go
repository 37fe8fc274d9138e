package abci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// ErrRefused reports an application, a ledger or a node that no retry mends: it is another one than
// before, or it answers what cannot be.
var ErrRefused = errors.New("abci: refused")

func refuse(format string, arguments ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrRefused}, arguments...)...)
}

// poll is how long a call waits for the next block. Then the application is asked whether it is
// still there.
const poll = 10 * time.Second

// idlePolls is after how many polls without a block another node is asked.
const idlePolls = 6

// keepEvery is how often the adapter's file is written at most. A file that is behind costs
// nothing: the application's own height counts.
const keepEvery = time.Second

// follower feeds the chain to the application. Only its goroutine uses it.
type follower struct {
	options     *Options
	teller      *teller
	application *application
	results     *results
	pool        *pool

	// finalised is the block that FinalizeBlock answered last, until Commit has.
	finalised *executed
	genesis   *ledger.Genesis // of the ledger's chain, once known
	kept      *kept           // nil: nothing yet
	tried     time.Time       // when the file was written, or could not be
	stale     bool            // the file is behind
	unkept    string          // why it could not be written the last time
	poll      time.Duration
	crossings crossings
	homeKnown bool // the organisation that posts lives in this shard
	next      ledger.Height
	last      ledger.Hash // of the block before next; zero: not known
}

// executed is a block with the application's answer. Left has what was left out of the block.
type executed struct {
	block   *ledger.Block
	request *blockRequest
	answer  finalAnswer
	left    []leftOut
}

// run feeds the application until the context ends or no retry helps.
func (f *follower) run(ctx context.Context) error {
	var err error
	if f.kept, err = readKept(f.options.Config.Folder); err != nil {
		return err
	}
	defer func() { f.keep(true) }()
	failing := time.Time{} // since when nothing has worked
	for pauses := 0; ; pauses++ {
		before := f.next
		err := f.feed(ctx)
		if ctx.Err() != nil || errors.Is(err, ErrRefused) || errors.Is(err, errGaveUp) {
			return err
		}
		if f.next > before {
			pauses, failing = 0, time.Time{}
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		giveUp := time.Duration(f.options.Config.Timing.GiveUp)
		if giveUp > 0 && time.Since(failing) >= giveUp {
			return fmt.Errorf("%w; %w after %s without progress: run the same command again to go "+
				"on", err, errGaveUp, giveUp)
		}
		f.teller.tell(Notice{Event: "retry", Height: int64(f.next) - 1, Error: err.Error()})
		f.application.consensus.close()
		if !errors.Is(err, ErrApplication) {
			f.options.Nodes.Rotate()
		}
		longest := time.Duration(f.options.Config.Timing.MaxBackoff)
		if !pause(ctx, min(100*time.Millisecond<<min(pauses, 10), longest)) {
			return ctx.Err()
		}
	}
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

// bounded returns a context for a call that the application should answer at once.
func (f *follower) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(f.options.Config.Timing.Check))
}

// feed connects to the application, finds the place to go on, and feeds it blocks until something
// fails.
func (f *follower) feed(ctx context.Context) error {
	if err := f.handshake(ctx); err != nil {
		return err
	}
	// The wait for blocks ends with the connection, which others use, too.
	connected, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	f.application.consensus.whenDropped(func(why error) {
		cut(fmt.Errorf("%w: the connection was lost: %w", ErrApplication, why))
	})
	for idle := 0; ; {
		chain, err := f.options.Nodes.ReadChain(connected, f.options.Config.Shard, f.next, f.poll)
		if connected.Err() != nil {
			return context.Cause(connected)
		}
		if err != nil {
			return err
		}
		f.results.setDurable(int64(chain.Durable))
		for _, each := range chain.Blocks {
			if err := f.checkPlace(each); err != nil {
				return err
			}
			if err := f.execute(ctx, each); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		idle++
		if len(chain.Blocks) > 0 {
			idle = 0
			continue
		}
		f.keep(true)
		if err := f.ping(ctx); err != nil {
			return err
		}
		if idle%idlePolls == 0 {
			f.options.Nodes.Rotate() // this one may be cut off from the others
		}
	}
}

// ping finds out whether the application is still there. Nothing else does while the chain is idle.
func (f *follower) ping(ctx context.Context) error {
	bounded, cancel := f.bounded(ctx)
	defer cancel()
	return f.application.alive(bounded)
}

// handshake asks the application where it is, and checks that this is a place of this chain.
func (f *follower) handshake(ctx context.Context) error {
	config := f.options.Config
	genesis, err := f.options.Nodes.ShardGenesis(ctx, config.Shard)
	if err != nil {
		return checkShard(err)
	}
	if err := f.checkHome(ctx); err != nil {
		return err
	}
	if f.genesis != nil && f.genesis.Hash() != genesis.Hash() {
		return refuse("the node is now of another ledger: its genesis is %s, and it was %s",
			genesis.Hash(), f.genesis.Hash())
	}
	f.genesis = genesis
	if k := f.kept; k != nil && (k.Genesis != genesis.Hash() || k.Chain != config.Genesis.Chain ||
		k.Shard != config.Shard) {
		return refuse("the folder %s is of chain %s on shard %d of the ledger %s: give each "+
			"application a folder of its own", config.Folder, k.Chain, k.Shard, k.Genesis)
	}
	if err := f.application.block.enter(ctx); err != nil {
		return err
	}
	defer f.application.block.leave()
	f.application.begun = false
	if err := f.findPlace(ctx); err != nil {
		return err
	}
	f.application.begun = true
	return nil
}

// findPlace asks the application where it is, and has it begin or go on there.
func (f *follower) findPlace(ctx context.Context) (err error) {
	config := f.options.Config
	bounded, cancel := f.bounded(ctx)
	defer cancel()
	info, err := f.application.info(bounded, f.application.consensus)
	if err != nil {
		return err
	}
	was := int64(f.next) - 1
	if f.kept != nil {
		was = max(was, int64(f.kept.Height))
	}
	defer func() {
		if err == nil {
			f.teller.tell(Notice{Event: "begin", Height: int64(f.next) - 1, Was: max(was, 0)})
		}
	}()
	first := ledger.Height(config.Genesis.First)
	switch height := ledger.Height(info.Height); {
	case info.Height < 0:
		return refuse("the application says that its height is %d", info.Height)
	case height == 0:
		return f.initialise(ctx, first)
	case height < first:
		return refuse("the application is at height %d, and its chain begins with %d: it is of "+
			"another chain, or the genesis was changed", height, first)
	default:
		if done := f.finalised; done != nil && done.block.Header.Height == height {
			if !bytes.Equal(done.answer.appHash, info.AppHash) {
				return wrongHash(height, info.AppHash, done.answer.appHash, "")
			}
			f.committed(done) // only the answer to Commit was lost
		}
		return f.goOn(ctx, height, info.AppHash)
	}
}

// initialise begins the application's chain.
func (f *follower) initialise(ctx context.Context, first ledger.Height) error {
	genesis := f.options.Config.Genesis
	request := &initRequest{time: genesis.Time, chain: genesis.Chain, params: genesis.Params,
		validators: genesis.Validators, state: genesis.AppState, initialHeight: genesis.First}
	if request.time.IsZero() {
		request.time = time.UnixMilli(int64(f.genesis.Time)).UTC()
	}
	if request.params == nil {
		request.params = standardParams()
	}
	// An application may read a large state here, so it may take as long as it takes.
	var answer initAnswer
	if err := f.application.asks(ctx, callInit, genesis.First-1, request, &answer); err != nil {
		return err
	}
	f.results.begin(&block{height: genesis.First - 1, time: request.time, appHash: answer.appHash})
	f.pool.skipped(genesis.First - 1)
	f.next, f.last = first, ledger.Hash{}
	if first == 1 {
		f.last = f.genesis.Hash()
	}
	return nil
}

// goOn checks the application's height and hash, and goes on after it.
func (f *follower) goOn(ctx context.Context, height ledger.Height, appHash []byte) error {
	if k := f.kept; k != nil && height == k.Height && !bytes.Equal(appHash, k.AppHash) {
		return f.otherHash(height, appHash)
	}
	at, err := f.blockAt(ctx, height)
	if err != nil {
		return err
	}
	known := at.Hash
	if k := f.kept; k != nil && height == k.Height && known != k.Block {
		return refuse("block %d is %s, and it was %s when the application executed it: the ledger "+
			"was set back, or a node lies; ask another node with --node", height, known, k.Block)
	}
	f.pool.skipped(int64(height))
	f.next, f.last = height+1, known
	f.results.begin(&block{height: int64(height), hash: known,
		time: time.UnixMilli(int64(at.Header.Time)).UTC(), appHash: appHash})
	return nil
}

// wrongHash refuses an application with another hash than before. Mend says how to go on with it.
func wrongHash(height ledger.Height, hash, before []byte, mend string) error {
	return refuse("at height %d the application's hash is %X, and it was %X before: the "+
		"application is not deterministic, was changed, or lost a part of its state. Compare with "+
		"another replica%s", height, hash, before, mend)
}

// otherHash refuses an application with another hash than the adapter's file has.
func (f *follower) otherHash(height ledger.Height, hash []byte) error {
	return wrongHash(height, hash, f.kept.AppHash, fmt.Sprintf("; to go on with this one, remove "+
		"%s from %s", keptName, f.options.Config.Folder))
}

// blockAt returns a block. The node may be behind, so it waits for a while.
func (f *follower) blockAt(ctx context.Context, height ledger.Height) (*ledger.Block, error) {
	patience := time.Duration(f.options.Config.Timing.Patience)
	for deadline := time.Now().Add(patience); ; {
		wait := min(max(time.Until(deadline), 0), poll)
		chain, err := f.options.Nodes.ReadChain(ctx, f.options.Config.Shard, height, wait)
		if err != nil {
			return nil, err
		}
		f.results.setDurable(int64(chain.Durable))
		if len(chain.Blocks) > 0 {
			return chain.Blocks[0], nil
		}
		if !time.Now().Before(deadline) {
			return nil, refuse("the application is at height %d, and the chain of shard "+
				"%d ends with block %d as the nodes say: the application is of another ledger, "+
				"or the ledger was set back. Ask a node that has caught up, or begin with an "+
				"empty application", height, f.options.Config.Shard, chain.Durable)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f.options.Nodes.Rotate()
	}
}

// checkPlace checks that a block follows the one before it, and is the one that was there before.
func (f *follower) checkPlace(b *ledger.Block) error {
	if b.Header.Height != f.next || !f.last.IsZero() && b.Header.Previous != f.last {
		return refuse("block %d does not follow the block that was executed before it: the node "+
			"is of another ledger, or it lies; ask another node with --node", b.Header.Height)
	}
	if k := f.kept; k != nil && k.Height == f.next && k.Block != b.Hash {
		return refuse("block %d is %s, and it was %s when it was executed before: the ledger was "+
			"set back, or a node lies; ask another node with --node", f.next, b.Hash, k.Block)
	}
	return nil
}

// execute feeds a block to the application. Once FinalizeBlock is under way, the end of the context
// leaves it some time: an application that is left between FinalizeBlock and Commit may not know
// which of the two it finished.
func (f *follower) execute(ctx context.Context, b *ledger.Block) error {
	request := &blockRequest{hash: b.Hash[:], height: int64(b.Header.Height),
		time: time.UnixMilli(int64(b.Header.Time)).UTC()}
	all, err := f.transactionsIn(ctx, b)
	if err != nil {
		return err
	}
	if err := f.application.block.enter(ctx); err != nil {
		return err
	}
	defer f.application.block.leave()
	kept, left, err := sift(all, standardBounds, func(transactions [][]byte) (bool, error) {
		return f.application.accepts(ctx, request, transactions)
	})
	if err != nil {
		return err
	}
	request.transactions = kept
	graced, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	grace := time.Duration(f.options.Config.Timing.Grace)
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, func() {
			cancel(fmt.Errorf("the adapter was stopped in the middle of block %d, after %s of "+
				"grace: restart the application with it", b.Header.Height, grace))
		})
	})
	defer stop()
	before := f.finalised
	f.finalised = nil
	done := &executed{block: b, request: request, left: left}
	answer := &done.answer
	if err := f.application.asks(graced, callFinal, request.height, request,
		answer); err != nil {
		return err
	}
	if len(answer.results) != len(request.transactions) {
		return refuse("the application answered block %d with %d results for %d transactions: it "+
			"does not keep to ABCI 2.0", b.Header.Height, len(answer.results),
			len(request.transactions))
	}
	if k := f.kept; k != nil && k.Height == b.Header.Height &&
		!bytes.Equal(answer.appHash, k.AppHash) {
		return f.otherHash(b.Header.Height, answer.appHash)
	}
	if before != nil && before.block.Hash == b.Hash &&
		!bytes.Equal(answer.appHash, before.answer.appHash) {
		return wrongHash(b.Header.Height, answer.appHash, before.answer.appHash, ". If it went on "+
			"when its connection broke, it executed the block on top of itself: restart it")
	}
	f.finalised = done
	if err := f.application.commit(graced, request.height); err != nil {
		return err
	}
	f.committed(done)
	return nil
}

// committed remembers an executed block, and tells those that wait for it.
func (f *follower) committed(done *executed) {
	b, request, answer := done.block, done.request, &done.answer
	f.finalised = nil
	f.next, f.last = b.Header.Height+1, b.Hash
	if f.kept == nil || f.kept.Height <= b.Header.Height {
		f.kept = &kept{Chain: f.options.Config.Genesis.Chain, Genesis: f.genesis.Hash(),
			Shard: f.options.Config.Shard, Height: b.Header.Height, Block: b.Hash,
			AppHash: answer.appHash}
		f.stale = true
		f.keep(false)
	}
	kept := &block{height: request.height, hash: b.Hash, time: request.time,
		transactions: request.transactions, results: answer.results, events: answer.events,
		validators: answer.validators, params: answer.params, appHash: answer.appHash,
		size: len(encode(nil, answer)) + 512}
	for _, transaction := range request.transactions {
		kept.size += len(transaction) + 128
	}
	f.results.add(kept)
	f.pool.executed(kept, done.left)
	f.teller.tell(Notice{Event: "block", Height: request.height,
		Transactions: len(request.transactions), LeftOut: len(done.left),
		AppHash: fmt.Sprintf("%X", answer.appHash)})
}

// keep writes the adapter's file, if it is behind and was not written just now. If that fails the
// application goes on: the file is behind then, and it is tried again.
func (f *follower) keep(now bool) {
	if !f.stale || !now && time.Since(f.tried) < keepEvery {
		return
	}
	f.tried = time.Now()
	if err := f.kept.write(f.options.Config.Folder); err != nil {
		if reason := err.Error(); reason != f.unkept {
			f.unkept = reason
			f.teller.tell(Notice{Event: "unkept", Height: int64(f.next) - 1, Error: reason})
		}
		return
	}
	f.stale = false
	if f.unkept != "" {
		f.unkept = ""
		f.teller.kept()
	}
}
