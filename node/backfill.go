package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/catchup"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/order"
)

// BackfillBytesDefault is how many bytes of older blocks a node fetches per second if its
// configuration does not say.
const BackfillBytesDefault = 8 << 20

const (
	// backfillPieces is how many pieces are made durable per second at the full rate. Each piece
	// costs two syncs of the disk, and the ledger's syncs have to wait for them.
	backfillPieces = 4
	// backfillBlocks bounds the blocks in a piece.
	backfillBlocks = 1024
	// backfillPause is the pause after a failed attempt.
	backfillPause = time.Second
)

// backfill fetches the blocks before the snapshot that a node began with. It fetches them from
// members that have them, from the snapshot down. Then it executes all of them once, for the
// histories. It works beside the node's other work, at a bounded rate, in its own goroutine. The
// store records its progress, so backfill continues there after a restart.
//
// Blocks with entries that a shard below still lacks are fetched as fast as they come. Until then
// the node cannot give the shard these entries, and they are lost if those that can are lost.
type backfill struct {
	node    *Node
	limiter *rate.Limiter
	blocks  int  // wanted in the next piece
	bytes   int  // wanted in a piece
	turn    int  // rotates the holder that is asked first
	owes    bool // the next piece has entries that a shard below lacks

	context context.Context
	cancel  context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	source  string
	reason  string
	indexed ledger.Height

	borrowing chan struct{} // a place for each block under way for a read
}

func newBackfill(n *Node) *backfill {
	bytes := n.home.Config.Store.BackfillBytes
	if bytes == 0 {
		bytes = BackfillBytesDefault
	}
	b := &backfill{
		node: n, limiter: rate.NewLimiter(rate.Limit(bytes), bytes), blocks: 16,
		bytes: max(1, bytes/backfillPieces), done: make(chan struct{}),
		borrowing: make(chan struct{}, borrowsAtOnce),
	}
	b.context, b.cancel = context.WithCancel(context.Background())
	return b
}

func (b *backfill) start() { go b.run() }

// stop ends the goroutine and waits for its end.
func (b *backfill) stop() {
	b.cancel()
	<-b.done
}

// indexTerms executes all blocks once more if an earlier version wrote some of them, for the terms
// of the past that it did not keep. The node does without them, so it goes on if that fails, and
// the next start tries again.
func (b *backfill) indexTerms(opened *store.Store) {
	from := opened.TermsFrom()
	if from == 0 {
		return
	}
	logger := b.node.logger
	logger.Info("an earlier version did not keep the terms of accounts and assets that blocks "+
		"replaced: executing the blocks again for them", "blocks", from)
	err := opened.IndexTerms(b.context, func(_ ledger.Height, bytes int) error {
		return b.wait(bytes)
	})
	switch {
	case err == nil:
		logger.Info("the terms of the past are known")
	case b.context.Err() == nil:
		logger.Warn("the terms of the past are not known", "reason", err)
	}
}

// state returns the progress, or nil if nothing is missing.
func (b *backfill) state() *report.Backfill {
	opened := b.node.Store()
	shown := &report.Backfill{Snapshot: opened.Unindexed(), Absent: opened.Absent()}
	if shown.Snapshot == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	shown.Source, shown.Reason, shown.Indexed = b.source, b.reason, b.indexed
	return shown
}

func (b *backfill) show(source, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if reason != "" && reason != b.reason {
		b.node.logger.Info("older blocks cannot be fetched now", "reason", reason)
	}
	b.source, b.reason = source, reason
}

// run works until nothing is missing or the node ends. If setAside replaces the store, the new
// store has all blocks.
func (b *backfill) run() {
	defer close(b.done)
	logger := b.node.logger
	if opened := b.node.Store(); opened.Unindexed() > 0 {
		logger.Info("this node began with a snapshot: fetching the blocks before it from the "+
			"other members",
			"snapshot", opened.Unindexed(), "absent", opened.Absent())
	}
	for b.context.Err() == nil {
		opened := b.node.Store()
		var err error
		switch {
		case opened.Unindexed() == 0:
			b.indexTerms(opened)
			return
		case opened.Absent() > 0:
			err = b.fetch(opened)
		default:
			b.owes = false
			b.show("", "")
			if err = opened.Index(b.context, b.index); err == nil {
				logger.Info("all blocks before the snapshot were fetched and executed: nothing " +
					"is missing")
			}
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, store.ErrFailed), errors.Is(err, store.ErrDamaged):
			b.node.fail(fmt.Errorf("the blocks before the snapshot: %w", err))
			return
		case b.context.Err() != nil:
			return
		}
		b.show("", err.Error())
		select {
		case <-b.context.Done():
		case <-time.After(backfillPause):
		}
	}
}

// index is called by store.Index with its progress, and limits its pace.
func (b *backfill) index(height ledger.Height, bytes int) error {
	b.mu.Lock()
	b.indexed = height
	b.mu.Unlock()
	return b.wait(bytes)
}

// wait blocks until the rate allows that many more bytes. Nothing waits for what the node owes.
func (b *backfill) wait(bytes int) error {
	if b.owes {
		return b.context.Err()
	}
	for bytes > 0 {
		part := min(bytes, b.limiter.Burst())
		if err := b.limiter.WaitN(b.context, part); err != nil {
			return err
		}
		bytes -= part
	}
	return nil
}

// errNoHolder reports that no running member has the missing block.
var errNoHolder = errors.New("no member that runs has it")

// fetch fills in one piece, from the first holder that gives it.
func (b *backfill) fetch(opened *store.Store) error {
	absent := opened.Absent()
	b.owes = b.node.crossing.Owes()
	holders := b.holders(absent)
	if len(holders) == 0 {
		return fmt.Errorf("block %d: %w: start one that has it", absent, errNoHolder)
	}
	var failures []error
	b.turn++
	for i := range holders {
		holder := holders[(b.turn+i)%len(holders)]
		err := b.fetchFrom(opened, holder)
		if err == nil || errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrDamaged) ||
			errors.Is(err, store.ErrDiskFull) || b.context.Err() != nil {
			return err
		}
		b.blocks = max(1, b.blocks/2)
		failures = append(failures, fmt.Errorf("%s: %w", holder.name, err))
	}
	return errors.Join(failures...)
}

const (
	// borrowTime bounds how long a read waits for a block of another member.
	borrowTime = 3 * time.Second
	// borrowsAtOnce bounds the blocks that are under way for reads.
	borrowsAtOnce = 4
)

// borrow fetches one absent block for a read, from the first holder that gives it. The store keeps
// it in memory for a while.
func (b *backfill) borrow(ctx context.Context, height ledger.Height) error {
	ctx, cancel := context.WithTimeout(ctx, borrowTime)
	defer cancel()
	select {
	case b.borrowing <- struct{}{}:
		defer func() { <-b.borrowing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	opened := b.node.Store()
	if _, err := opened.Block(height); !errors.Is(err, store.ErrAbsent) {
		return err // it came meanwhile
	}
	_, before, err := opened.Header(height - 1)
	if err != nil {
		return err
	}
	failures := []error{fmt.Errorf("block %d: %w", height, errNoHolder)}
	for _, holder := range b.holders(height) {
		err := b.node.exchange.Fetch(ctx, b.node.peers.id(holder.server),
			catchup.Point{Height: height - 1, Hash: before}, height, opened.Borrow)
		if err == nil || ctx.Err() != nil {
			return err
		}
		failures = append(failures, fmt.Errorf("%s: %w", holder.name, err))
	}
	return errors.Join(failures...)
}

// holder is a member that has the next block.
type holder struct {
	server order.ServerID
	name   string
	absent ledger.Height // it has the blocks above
}

// holders returns the members that announced lately that they have a block.
func (b *backfill) holders(height ledger.Height) (holders []holder) {
	l := b.node.life
	lasts := l.hearsayLasts()
	for _, member := range b.node.Store().Membership().Members {
		server := order.ServerID(member.Index)
		h := l.heard(server)
		recent := h.linked && time.Since(h.at) < lasts
		absent := ledger.Height(h.Absent)
		if recent && absent < height && ledger.Height(h.Heights.Ordered) >= height {
			holders = append(holders, holder{server: server, name: member.Name, absent: absent})
		}
	}
	return holders
}

// fetchFrom fills in one piece from a member. The store checks every block against the chain.
func (b *backfill) fetchFrom(opened *store.Store, from holder) error {
	absent := opened.Absent()
	first := from.absent + 1
	if count := ledger.Height(b.blocks); absent-from.absent > count {
		first = absent - count + 1
	}
	_, before, err := opened.Header(first - 1)
	if err != nil {
		return err
	}
	b.show(from.name, "")
	taken := 0
	err = opened.Fill(first, func(add func(*ledger.Block) (int, error)) error {
		after := catchup.Point{Height: first - 1, Hash: before}
		return b.node.exchange.Fetch(b.context, b.node.peers.id(from.server), after,
			absent, func(block *ledger.Block) error {
				bytes, err := add(block)
				if err != nil {
					return err
				}
				taken += bytes
				return b.wait(bytes)
			})
	})
	if err != nil {
		return err
	}
	// If the next blocks are like these, the next piece has about the wanted number of bytes.
	perBlock := max(1, taken/int(absent-first+1))
	wanted := b.bytes
	if b.owes {
		wanted = BackfillBytesDefault / backfillPieces
	}
	b.blocks = min(max(1, wanted/perBlock), 2*b.blocks, backfillBlocks)
	return nil
}
