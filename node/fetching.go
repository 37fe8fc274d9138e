package node

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/catchup"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// errOtherChain reports that an ordering peer holds another block than this node at the same
// height.
var errOtherChain = errors.New("the peers hold another chain")

// fetch appends the blocks that this node lacks, from the first peer that gives them. It stops at
// e.Limit if that is not 0.
func (l *life) fetch(e shard.Fetch) {
	fetched := shard.Fetched{Reached: -1}
	var failures []error
	for i := range e.From {
		common, err := ledger.Height(0), error(nil)
		if !e.Vouches(&e.From[i]) {
			err = l.holdsBase(&e.From[i], catchup.Point{Height: ledger.Height(e.Limit),
				Hash: e.Base})
		}
		if err == nil {
			common, err = l.fetchFrom(&e.From[i], ledger.Height(e.Limit))
		}
		if l.context.Err() != nil {
			return
		}
		if errors.Is(err, errOtherChain) {
			l.node.logger.Warn("this node's chain is not the group's", "common", common, "error",
				err)
			fetched.Forked, fetched.Parted, fetched.Common = true, i, uint64(common)
			break
		}
		if err == nil {
			if tip := l.node.pipeline.Tip(); uint64(tip.Height) == e.From[i].Height &&
				tip.Hash == e.From[i].Hash {
				fetched.Reached = i
			}
			failures = nil
			break
		}
		failures = append(failures, err)
	}
	err := errors.Join(failures...)
	if errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrDamaged) {
		l.node.fail(err)
		return
	}
	if err := errors.Join(l.unsaid(failures)...); err != nil {
		l.node.logger.Warn("blocks could not be fetched; trying again", "error", err)
	}
	l.enqueue(fetched)
}

// otherBaseError reports that a peer does not have the wanted block at that height.
type otherBaseError struct {
	server order.ServerID
	base   catchup.Point
}

func (e *otherBaseError) Error() string {
	return fmt.Sprintf("member %d does not have the block to go on from, %v", e.server, e.base)
}

// holdsBase asks a peer whether its chain has a block. It returns an otherBaseError if not.
func (l *life) holdsBase(from *shard.Source, base catchup.Point) error {
	behind := (*catchup.BehindError)(nil)
	err := l.node.exchange.Fetch(l.context, l.node.peers.id(from.Server), base, base.Height+1,
		func(*ledger.Block) error { return errSame })
	switch {
	case errors.Is(err, errSame), errors.As(err, &behind) && behind.Head == base.Height:
		l.mu.Lock()
		delete(l.strays, from.Server)
		l.mu.Unlock()
		return nil
	case errors.Is(err, catchup.ErrFork), behind != nil:
		return &otherBaseError{from.Server, base}
	}
	return err
}

// unsaid leaves out failures that were logged before. A peer stays on another branch until it gives
// that branch up, and it is asked several times a second.
func (l *life) unsaid(failures []error) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(failures, func(err error) bool {
		other := (*otherBaseError)(nil)
		if !errors.As(err, &other) {
			return false
		}
		said := l.strays[other.server] == other.base
		l.strays[other.server] = other.base
		return said
	})
}

// fetchFrom fetches from one peer. With errOtherChain it returns the last height at which the peer
// holds the same block.
func (l *life) fetchFrom(from *shard.Source, limit ledger.Height) (common ledger.Height,
	err error) {
	tip := l.node.pipeline.Tip()
	height := ledger.Height(from.Height)
	if height <= tip.Height {
		_, hash, err := l.node.Store().Header(height)
		if err != nil {
			return 0, err
		}
		if hash != from.Hash {
			return l.otherChain(from, nil)
		}
		return 0, nil
	}
	to := height
	if limit != 0 {
		to = min(to, limit)
	}
	peer := l.node.peers.id(from.Server)
	after := catchup.Point{Height: tip.Height, Hash: tip.Hash}
	err = l.node.exchange.Fetch(l.context, peer, after, to, func(block *ledger.Block) error {
		return l.node.pipeline.Append(l.context, block)
	})
	switch {
	case errors.Is(err, catchup.ErrFork):
		return l.otherChain(from, err)
	case err != nil && !errors.Is(err, catchup.ErrBehind):
		return 0, err
	}
	return 0, nil
}

// errSame reports that a peer holds the block that it was asked to continue from.
var errSame = errors.New("the peer holds the same block")

// errChanged reports that a peer that held another chain holds this one now.
var errChanged = errors.New("the peer's chain has changed meanwhile")

// otherChain finds the last height at which a peer's chain and this node's are the same.
func (l *life) otherChain(from *shard.Source, cause error) (ledger.Height, error) {
	opened := l.node.pipeline.Store()
	peer := l.node.peers.id(from.Server)
	common, forked, err := lastSame(min(opened.Head().Height,
		ledger.Height(from.Height)), func(height ledger.Height) (bool, error) {
		_, hash, err := opened.Header(height)
		if err != nil {
			return false, err
		}
		after := catchup.Point{Height: height, Hash: hash}
		err = l.node.exchange.Fetch(l.context, peer, after, height+1, func(*ledger.Block) error {
			return errSame
		})
		switch {
		case errors.Is(err, catchup.ErrFork):
			return true, nil
		case errors.Is(err, errSame), errors.Is(err, catchup.ErrBehind):
			return false, nil
		}
		return false, err
	})
	switch {
	case err != nil:
		return 0, err
	case !forked:
		// Set nothing aside for a chain that is gone: the peer may now hold all that this chain
		// holds.
		return 0, errChanged
	}
	return common, errors.Join(errOtherChain, cause)
}

// lastSame returns the last height up to head at which two chains are the same, and whether they
// differ above it. They are always the same at the genesis.
func lastSame(head ledger.Height, differs func(ledger.Height) (bool, error)) (common ledger.Height,
	forked bool, err error) {
	first := sort.Search(int(head)+1, func(height int) bool {
		if err != nil {
			return false
		}
		var other bool
		other, err = differs(ledger.Height(height))
		return other
	})
	return ledger.Height(max(first, 1) - 1), first <= int(head), err
}
