package route

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

const (
	// watchWait is how long another shard's node may wait for the next block before it answers.
	watchWait = 10 * time.Second
	// watchPage bounds the headers of one answer.
	watchPage = 100
	// maxRecent bounds the blocks that a watch keeps for its readers, and maxKept the bytes of
	// those that all watches keep with their transactions. In memory these take about three times
	// as much as encoded.
	maxRecent = 32
	maxKept   = 16 << 20
	// maxHeight bounds the heights that other shards' nodes are believed, so that no sum of heights
	// overflows. No chain becomes as long.
	maxHeight = 1 << 62
	// maxShown is how many transactions of a block a subscription shows, as api.Service does.
	maxShown = 1000
)

// watches has a watch on each other shard whose blocks subscriptions follow now. So there is one
// call under way to a shard for all of them.
type watches struct {
	mutex     sync.Mutex
	all       map[ledger.ShardID]*watch
	followers int // of all subscriptions, one for each shard
}

// maxFollowers bounds the goroutines of all subscriptions to the book. Each has one for each shard.
const maxFollowers = 1 << 14

// admit makes room for a subscription to a book of so many shards. The caller ends it with the
// returned function.
func (w *watches) admit(shards int) (func(), error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.followers+shards > maxFollowers {
		return nil, api.Retryable(connect.CodeResourceExhausted, errors.New("this node already "+
			"serves its maximum of subscriptions to the book: try again later or ask another node"),
			nil)
	}
	w.followers += shards
	return func() {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.followers -= shards
	}, nil
}

// watch follows the head of another shard's chain.
type watch struct {
	readers int // guarded by the mutex of watches
	cancel  context.CancelFunc
	ended   chan struct{}

	mutex   sync.Mutex
	known   bool   // whether the shard has named its head
	head    uint64 // of its chain, as it answered last
	recent  []*watchedBlock
	silent  bool
	changed chan struct{} // closed at the next change
	// kept is the size of the recent blocks that are here with their transactions, at most limit.
	kept, limit int
}

// watchedBlock is a block that several subscriptions may take. The watch's mutex guards its fields
// other than the header.
type watchedBlock struct {
	header *ledgerdv1.BlockHeader
	whole  *ledgerdv1.Block // with its transactions, if it is kept
	size   int              // of whole
	asking *asking          // the call under way for whole
}

// asking is a call for a block with its transactions, on behalf of all readers that want it.
type asking struct {
	done chan struct{} // closed at the end, after which the other fields do not change
	// The reader that made the call has ended, so the block is as unknown as before.
	abandoned bool
	block     *ledgerdv1.Block
	err       error
}

// open returns the watch on a shard. The caller ends its use with the returned function, after
// which the watch has no goroutine any more if nobody else uses it.
func (w *watches) open(r *router, shard ledger.ShardID) (*watch, func()) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	found := w.all[shard]
	if found == nil {
		ctx, cancel := context.WithCancel(context.Background())
		found = &watch{cancel: cancel, ended: make(chan struct{}), changed: make(chan struct{}),
			limit: maxKept / r.shards.Tree().Shards()}
		if w.all == nil {
			w.all = make(map[ledger.ShardID]*watch)
		}
		w.all[shard] = found
		go found.run(ctx, r, shard)
	}
	found.readers++
	return found, func() {
		w.mutex.Lock()
		found.readers--
		last := found.readers == 0
		if last {
			delete(w.all, shard)
		}
		w.mutex.Unlock()
		if last {
			found.cancel()
			<-found.ended
		}
	}
}

// run asks for blocks until the context ends.
func (w *watch) run(ctx context.Context, r *router, shard ledger.ShardID) {
	defer close(w.ended)
	for ctx.Err() == nil {
		begun := time.Now()
		came := false
		err := r.guarded(func() (err error) {
			came, err = w.ask(ctx, r, shard)
			return err
		})
		if err != nil && ctx.Err() == nil {
			w.change(func() { w.silent = true })
		}
		// An older program does not wait.
		if err != nil || !came && time.Since(begun) < retryPause {
			sleep(ctx, retryPause)
		}
	}
}

// ask asks for the blocks after the head, and reports whether some came. The first time it asks for
// the head only.
func (w *watch) ask(ctx context.Context, r *router, shard ledger.ShardID) (bool, error) {
	w.mutex.Lock()
	known, head, silent := w.known, w.head, w.silent
	w.mutex.Unlock()
	ctx, cancel := context.WithTimeout(ctx, watchWait+r.Options().MaxReadTime)
	defer cancel()
	if !known {
		height, err := r.headOf(ctx, shard)
		if err == nil {
			w.change(func() { w.known, w.head, w.silent = true, uint64(height), false })
		}
		return err == nil, err
	}
	request := &ledgerdv1.ListBlocksRequest{FromHeight: head + 1, Ascending: true,
		PageSize: watchPage}
	if !silent { // else the readers wait to hear that the shard is back
		request.WaitMs = uint32(watchWait / time.Millisecond)
	}
	answer, err := r.shards.Client(shard).ListBlocks(ctx, connect.NewRequest(request))
	if err != nil {
		return false, err
	}
	headers := answer.Msg.GetBlocks()
	if head > maxHeight-watchPage {
		return false, impossible(shard, "a chain of %d blocks", head)
	}
	if err := follows(shard, head+1, headers); err != nil {
		return false, err
	}
	at := answer.Msg.GetHeadHeight()
	if len(headers) == 0 && at > 0 && at < head {
		// The node that named the head lied, or this one lags: ask for the head again.
		w.change(func() { w.known, w.kept, w.recent = false, 0, nil })
		return false, nil
	}
	if len(headers) == 0 && !silent {
		return false, nil
	}
	w.change(func() {
		w.silent = false
		w.head += uint64(len(headers))
		for _, header := range headers {
			w.recent = append(w.recent, &watchedBlock{header: header})
		}
		if surplus := len(w.recent) - maxRecent; surplus > 0 {
			for _, old := range w.recent[:surplus] { // a slow reader may still hold it
				w.drop(old)
			}
			w.recent = append([]*watchedBlock(nil), w.recent[surplus:]...)
		}
	})
	return len(headers) > 0, nil
}

// follows checks that headers are those of a shard's blocks from a height on, at most a page.
func follows(shard ledger.ShardID, next uint64, headers []*ledgerdv1.BlockHeader) error {
	if len(headers) > watchPage {
		return impossible(shard, "%d blocks instead of %d", len(headers), watchPage)
	}
	for i, header := range headers {
		if header.GetHeight() != next+uint64(i) || header.GetShard() != uint32(shard) {
			return impossible(shard, "block %d of shard %d instead of its block %d",
				header.GetHeight(), header.GetShard(), next+uint64(i))
		}
	}
	return nil
}

// impossible returns the error of an answer that no honest node of a shard gives.
func impossible(shard ledger.ShardID, format string, values ...any) error {
	return connect.NewError(connect.CodeDataLoss,
		fmt.Errorf("a node of shard %d answered with "+format, append([]any{shard}, values...)...))
}

// guarded calls f and turns a panic into an error. A goroutine of a subscription runs in it, so
// that a panic ends that subscription only.
func (r *router) guarded(f func() error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			r.Options().Logger.Error("panic in a subscription to the book", "panic", panicked,
				"stack", string(debug.Stack()))
			err = connect.NewError(connect.CodeInternal,
				errors.New("internal error: the node's log has the details"))
		}
	}()
	return f()
}

// change changes the watch and wakes its readers.
func (w *watch) change(f func()) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

// watchView is what a watch has for a reader.
type watchView struct {
	blocks  []*watchedBlock // from the reader's height on
	behind  bool            // the reader must ask the shard for its block
	known   bool
	head    uint64
	silent  bool
	changed <-chan struct{} // closed once there is something new
}

// look returns what there is from a height on.
func (w *watch) look(next ledger.Height) watchView {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	view := watchView{known: w.known, head: w.head, silent: w.silent, changed: w.changed}
	recent := uint64(len(w.recent))
	if next == 0 || !w.known || uint64(next) > w.head {
		return view
	}
	// The last recent block is the head.
	if before := w.head - uint64(next); before >= recent {
		view.behind = true
	} else {
		view.blocks = w.recent[recent-1-before : recent : recent]
	}
	return view
}

// blocksFrom asks another shard for blocks from a height on.
func (r *router) blocksFrom(ctx context.Context, shard ledger.ShardID,
	from ledger.Height) ([]*watchedBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Options().MaxReadTime)
	defer cancel()
	answer, err := r.shards.Client(shard).ListBlocks(ctx,
		connect.NewRequest(&ledgerdv1.ListBlocksRequest{FromHeight: uint64(from), Ascending: true,
			PageSize: watchPage}))
	if err != nil {
		return nil, err
	}
	if err := follows(shard, uint64(from), answer.Msg.GetBlocks()); err != nil {
		return nil, err
	}
	blocks := make([]*watchedBlock, len(answer.Msg.GetBlocks()))
	for i, header := range answer.Msg.GetBlocks() {
		blocks[i] = &watchedBlock{header: header}
	}
	return blocks, nil
}

// message returns the message of a subscription with a block, without the head's height. Others may
// send the same block, so it must not be changed. There is one call for a block that several
// readers want now. The block stays here only if it is one of the recent ones and there is room.
func (w *watch) message(ctx context.Context, r *router, shard ledger.ShardID, b *watchedBlock,
	withTransactions bool) (*ledgerdv1.SubscribeResponse, error) {
	if !withTransactions {
		return &ledgerdv1.SubscribeResponse{Block: &ledgerdv1.Block{Header: b.header}}, nil
	}
	for {
		w.mutex.Lock()
		whole, call := b.whole, b.asking
		first := whole == nil && call == nil
		if first {
			call = &asking{done: make(chan struct{})}
			b.asking = call
		}
		w.mutex.Unlock()
		switch {
		case whole != nil:
			return &ledgerdv1.SubscribeResponse{Block: whole}, nil
		case first:
			w.askFor(ctx, r, shard, b, call)
		default:
			select {
			case <-call.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if call.abandoned {
				continue
			}
		}
		if call.err != nil {
			return nil, call.err
		}
		return &ledgerdv1.SubscribeResponse{Block: call.block}, nil
	}
}

// askFor makes the call for a block.
func (w *watch) askFor(ctx context.Context, r *router, shard ledger.ShardID, b *watchedBlock,
	call *asking) {
	call.abandoned = true // unless the call ends as it should
	defer func() {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		b.asking = nil
		if call.block != nil {
			w.keep(b, call.block)
		}
		close(call.done)
	}()
	call.block, call.err = r.wholeBlock(ctx, shard, b.header)
	call.abandoned = call.err != nil && ctx.Err() != nil
}

// wholeBlock asks another shard for the block with a header.
func (r *router) wholeBlock(ctx context.Context, shard ledger.ShardID,
	header *ledgerdv1.BlockHeader) (*ledgerdv1.Block, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Options().MaxReadTime)
	defer cancel()
	answer, err := r.shards.Client(shard).GetBlock(ctx,
		connect.NewRequest(&ledgerdv1.GetBlockRequest{PageSize: maxShown,
			Block: &ledgerdv1.GetBlockRequest_Height{Height: header.GetHeight()}}))
	if err != nil {
		return nil, err
	}
	block := answer.Msg.GetBlock()
	if got := block.GetHeader(); got.GetShard() != uint32(shard) ||
		got.GetHeight() != header.GetHeight() || !bytes.Equal(got.GetHash(), header.GetHash()) {
		return nil, impossible(shard, "another block instead of block %d, %x", header.GetHeight(),
			header.GetHash())
	}
	return block, nil
}

// keep keeps a recent block with its transactions. It drops older ones if there is no room. The
// caller holds the lock.
func (w *watch) keep(b *watchedBlock, whole *ledgerdv1.Block) {
	if !slices.Contains(w.recent, b) {
		return
	}
	b.whole, b.size = whole, proto.Size(whole)
	w.kept += b.size
	for _, old := range w.recent {
		if w.kept <= w.limit {
			break
		}
		w.drop(old)
	}
}

// drop forgets the transactions of a recent block. The caller holds the lock.
func (w *watch) drop(b *watchedBlock) {
	w.kept -= b.size
	b.whole, b.size = nil, 0
}
