package node

import (
	"errors"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/catchup"
	"github.com/ledgerd/ledgerd/node/recovery"
)

// errOtherChain says that a peer that orders holds another block than this node at the same height.
var errOtherChain = errors.New("the peers hold another chain")

// caughtUp is how an attempt to catch up ended.
type caughtUp struct {
	err    error
	forked ledger.Height // the height at which the peers hold another block, with errOtherChain
}

// catchUp fetches what this node misses, up to a height if one is given, from the first peer that gives it, in a goroutine of its own.
func (s *supervisor) catchUp(peers []candidate, limit ledger.Height) {
	defer s.workers.Done()
	var failures []error
	for _, p := range peers {
		tip := s.node.pipeline.Tip()
		to := p.heights.Ordered
		if limit != 0 {
			to = min(to, limit)
		}
		if to < tip.Height {
			continue
		}
		after := catchup.Point{Height: tip.Height, Hash: tip.Hash}
		err := s.node.exchange.Fetch(s.context, s.node.peers[p.server], after, to, func(block *ledger.Block) error {
			return s.node.pipeline.Append(s.context, block)
		})
		switch {
		case err == nil:
			s.caught <- caughtUp{}
			return
		case errors.Is(err, catchup.ErrFork), errors.Is(err, store.ErrMismatch) && !errors.Is(err, store.ErrFailed):
			s.caught <- caughtUp{errors.Join(errOtherChain, err), s.node.pipeline.Tip().Height}
			return
		case errors.Is(err, catchup.ErrBehind):
			continue
		}
		failures = append(failures, err)
		if s.context.Err() != nil {
			break
		}
	}
	s.caught <- caughtUp{err: errors.Join(failures...)}
}

// onCaught hears how catching up went.
func (s *supervisor) onCaught(outcome caughtUp) {
	switch err := outcome.err; {
	case err == nil:
		if peers := s.ahead(); len(peers) > 0 && peers[0].heights.Ordered <= s.node.pipeline.Tip().Height {
			s.followed = max(s.followed, recovery.Generation(peers[0].generation))
		}
	case errors.Is(err, errOtherChain):
		s.node.logger.Warn("this node's chain is not the group's", "error", err)
		s.forkedAt = outcome.forked
	case errors.Is(err, store.ErrFailed), errors.Is(err, store.ErrDamaged):
		s.node.fail(err)
	case s.context.Err() == nil:
		s.node.logger.Warn("blocks could not be fetched; trying again", "error", err)
	}
}
