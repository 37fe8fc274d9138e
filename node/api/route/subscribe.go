package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// Subscribe streams the blocks of this shard's chain, or of all chains.
func (r *router) Subscribe(ctx context.Context,
	request *connect.Request[ledgerdv1.SubscribeRequest],
	stream *connect.ServerStream[ledgerdv1.SubscribeResponse]) error {
	if !request.Msg.GetBook() {
		return r.Service.Subscribe(ctx, request, stream)
	}
	end := func() {}
	defer func() { end() }()
	return r.StreamBlocks(ctx, request, stream, func(ctx context.Context) (api.Following, error) {
		admitted, err := r.watches.admit(r.shards.Tree().Shards())
		if err != nil {
			return nil, err
		}
		end = admitted
		next, silent, err := r.begin(ctx, request.Msg)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, send api.Sent) error {
			return r.followAll(ctx, next, silent, request.Msg.GetWithTransactions(), send)
		}, nil
	})
}

// begin returns the height at which a subscription begins in each chain, by shard, and the shards
// that do not answer, ascending. Height 0 stands for the height after the head that the shard names
// first, because no node of it has been heard yet.
func (r *router) begin(ctx context.Context, request *ledgerdv1.SubscribeRequest) (
	next []ledger.Height, silent []uint32, err error) {
	named, err := api.Begin(request)
	if err != nil {
		return nil, nil, err
	}
	r.awaitShards(ctx, named)
	next = make([]ledger.Height, r.shards.Tree().Shards())
	var open []ledger.ShardID
	goesOn := true // so far, all shards are named
	for i := range next {
		shard := ledger.ShardID(i)
		height, is := named[shard]
		switch {
		case is:
		case goesOn && i >= r.shards.Tree().GenesisShards():
			height = 1 // the reader goes on, and the shard was added while it was away
		default:
			height, goesOn = ledger.Height(request.GetFromHeight()), false
		}
		delete(named, shard)
		if next[i] = height; height == 0 && shard != r.shards.Own() {
			open = append(open, shard)
		}
	}
	if len(named) > 0 {
		return nil, nil, connect.NewError(connect.CodeInvalidArgument,
			fmt.Errorf("begin: the book has %d shards, from 0 on", len(next)))
	}
	next[r.shards.Own()] = r.After(next[r.shards.Own()])
	heads, failures := callAll(ctx, askTime, open, r.headOf)
	states := r.shards.States()
	failed := make(map[ledger.ShardID]bool)
	for i, shard := range open {
		failed[shard] = failures[i] != nil
		if failures[i] == nil {
			next[shard] = heads[i] + 1
		} else if heard := states[shard].Height; heard > 0 {
			next[shard] = heard + 1
		}
	}
	for i := range next { // there may be further states by now
		state := &states[i]
		gone := state.Mode == report.ShardSilent && !state.LastHeard.IsZero()
		if shard := ledger.ShardID(i); shard != r.shards.Own() && (failed[shard] || gone) {
			silent = append(silent, uint32(shard))
		}
	}
	return next, silent, nil
}

// awaitShards waits until this node knows the shards that a subscription names, for a while in all:
// another node may have known earlier that they were added to the book.
func (r *router) awaitShards(ctx context.Context, named map[ledger.ShardID]ledger.Height) {
	last := ledger.ShardID(0)
	for shard := range named {
		last = max(last, shard)
	}
	ctx, cancel := context.WithTimeout(ctx, learnTime)
	defer cancel()
	for last < ledger.MaxShards {
		changed := r.shards.TreeChanged()
		if int(last) < r.shards.Tree().Shards() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// headOf asks another shard for its chain's height. The node that answers is not believed more than
// the shard's members announce.
func (r *router) headOf(ctx context.Context, shard ledger.ShardID) (ledger.Height, error) {
	answer, err := r.shards.Client(shard).ListBlocks(ctx,
		connect.NewRequest(&ledgerdv1.ListBlocksRequest{PageSize: 1}))
	if err != nil || len(answer.Msg.GetBlocks()) == 0 { // there may be nothing but the genesis
		return 0, err
	}
	header := answer.Msg.GetBlocks()[0]
	height := header.GetHeight()
	if height > maxHeight || header.GetShard() != uint32(shard) {
		return 0, impossible(shard, "block %d of shard %d as its head", height, header.GetShard())
	}
	if announced := r.shards.States()[shard].Height; announced > 0 {
		return min(ledger.Height(height), announced), nil
	}
	return ledger.Height(height), nil
}

// news is what a subscription learns of one shard: a block, or whether the shard is silent and
// where its chain begins.
type news struct {
	shard   ledger.ShardID
	message *ledgerdv1.SubscribeResponse // nil if the news is the rest
	silent  bool
	begin   ledger.Height // 0 if it has been told
}

// followAll passes the blocks of all chains to send, those of one chain in their order, until the
// context ends or something fails. First, and whenever that changes, it tells which shards are
// silent and where their chains begin. Next has a height for each shard. A slow reader stops its
// own subscription only.
func (r *router) followAll(ctx context.Context, next []ledger.Height, silent []uint32,
	withTransactions bool, send api.Sent) error {
	first := &ledgerdv1.SubscribeResponse{SilentShards: silent}
	for i, height := range next {
		if height > 0 {
			first.Begin = append(first.Begin, placeOf(ledger.ShardID(i), height))
		}
	}
	if err := send(first); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	incoming, failed := make(chan news), make(chan error, 1)
	take := func(n news) error {
		select {
		case incoming <- n:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	follow := func(shard ledger.ShardID, height ledger.Height) {
		_, quiet := slices.BinarySearch(silent, uint32(shard))
		followers.Go(func() {
			err := r.guarded(func() error {
				if shard != r.shards.Own() {
					return r.followThere(ctx, shard, height, quiet, withTransactions, take)
				}
				return r.Follow(ctx, height, withTransactions,
					func(message *ledgerdv1.SubscribeResponse) error {
						return take(news{shard: shard, message: message})
					})
			})
			select {
			case failed <- err:
			default: // another one failed
			}
		})
	}
	for i, height := range next {
		follow(ledger.ShardID(i), height)
	}
	for followed := len(next); ; {
		changed := r.shards.TreeChanged()
		for ; followed < r.shards.Tree().Shards(); followed++ {
			// The shard was added since, and the reader gets its chain from the beginning.
			shard := ledger.ShardID(followed)
			if err := send(&ledgerdv1.SubscribeResponse{SilentShards: silent,
				Begin: []*ledgerdv1.ShardHeight{placeOf(shard, 1)}}); err != nil {
				return err
			}
			follow(shard, 1)
		}
		select {
		case <-changed:
		case n := <-incoming:
			message := n.message
			if message == nil {
				place, is := slices.BinarySearch(silent, uint32(n.shard))
				switch {
				case is == n.silent && n.begin == 0:
					continue
				case is == n.silent:
				case is:
					silent = slices.Delete(slices.Clone(silent), place, place+1)
				default:
					silent = slices.Insert(slices.Clone(silent), place, uint32(n.shard))
				}
				message = &ledgerdv1.SubscribeResponse{SilentShards: silent}
				if n.begin > 0 {
					message.Begin = append(message.Begin, placeOf(n.shard, n.begin))
				}
			}
			if err := send(message); err != nil {
				return err
			}
		case err := <-failed:
			return err
		}
	}
}

func placeOf(shard ledger.ShardID, height ledger.Height) *ledgerdv1.ShardHeight {
	return &ledgerdv1.ShardHeight{Shard: uint32(shard), Height: uint64(height)}
}

// followThere passes the blocks of another shard's chain to take, from a height on. silent says
// whether the reader knows the shard as silent.
func (r *router) followThere(ctx context.Context, shard ledger.ShardID, next ledger.Height,
	silent, withTransactions bool, take func(news) error) error {
	watch, end := r.watches.open(r, shard)
	defer end()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		view := watch.look(next)
		change := news{shard: shard}
		if next == 0 && view.known {
			next = ledger.Height(view.head) + 1
			change.begin = next
		}
		// A watch that has just begun knows neither.
		told := silent
		if view.known || view.silent {
			silent = view.silent
		}
		if change.silent = silent; silent != told || change.begin > 0 {
			if err := take(change); err != nil {
				return err
			}
			continue
		}
		blocks := view.blocks
		if view.behind {
			var err error
			if blocks, err = r.blocksFrom(ctx, shard, next); err != nil && !passes(err) {
				return r.forwardError(ctx, shard, err)
			}
		}
		for i, each := range blocks {
			message, err := watch.message(ctx, r, shard, each, withTransactions)
			if err != nil && !passes(err) {
				return r.forwardError(ctx, shard, err)
			}
			if err != nil {
				blocks = blocks[:i]
				break
			}
			message.HeadHeight = max(view.head, uint64(next))
			if err := take(news{shard: shard, message: message}); err != nil {
				return err
			}
			next++
		}
		switch {
		case len(blocks) > 0:
		case view.behind || len(view.blocks) > 0: // the shard does not answer now, or its node lags
			if !sleep(ctx, retryPause) {
				return ctx.Err()
			}
		default:
			select {
			case <-view.changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// passes reports whether another shard may answer the same call later.
func passes(err error) bool {
	code := connect.CodeOf(err)
	return !errors.Is(err, context.Canceled) && (unanswered(err) ||
		code == connect.CodeResourceExhausted || code == connect.CodeUnavailable ||
		code == connect.CodeNotFound)
}
