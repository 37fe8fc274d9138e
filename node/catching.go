package node

import (
	"context"
	"errors"
	"sort"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/catchup"
)

// errOtherChain says that a peer that orders holds another block than this node at the same height.
var errOtherChain = errors.New("the peers hold another chain")

// caughtUp is how an attempt to catch up ended.
type caughtUp struct {
	err    error
	common ledger.Height // with errOtherChain: the last height at which the peer holds the same block
	// reached is the peer's announcement that this node has caught up with: it holds that very block now. Nil otherwise.
	reached *candidate
}

// catchUp fetches what this node misses, up to a height if one is given, from the first peer that gives it, in a goroutine of its own.
func (s *supervisor) catchUp(peers []candidate, limit ledger.Height) {
	defer s.workers.Done()
	var failures []error
	for i := range peers {
		outcome := s.catchUpWith(&peers[i], limit)
		if outcome.err == nil || errors.Is(outcome.err, errOtherChain) {
			s.caught <- outcome
			return
		}
		failures = append(failures, outcome.err)
		if s.context.Err() != nil {
			break
		}
	}
	s.caught <- caughtUp{err: errors.Join(failures...)}
}

func (s *supervisor) catchUpWith(p *candidate, limit ledger.Height) caughtUp {
	tip := s.node.pipeline.Tip()
	if same, err := s.holds(p); err != nil {
		return caughtUp{err: err}
	} else if !same && p.heights.Ordered <= tip.Height {
		return s.otherChain(p, nil)
	}
	to := p.heights.Ordered
	if limit != 0 {
		to = min(to, limit)
	}
	err := s.node.exchange.Fetch(s.context, s.node.peers.id(p.server), catchup.Point{Height: tip.Height, Hash: tip.Hash}, to, func(block *ledger.Block) error {
		return s.node.pipeline.Append(s.context, block)
	})
	switch {
	case errors.Is(err, catchup.ErrFork):
		return s.otherChain(p, err)
	case err != nil && !errors.Is(err, catchup.ErrBehind):
		return caughtUp{err: err}
	}
	if tip := s.node.pipeline.Tip(); tip.Height == p.heights.Ordered && tip.Hash == p.tip {
		return caughtUp{reached: p}
	}
	return caughtUp{}
}

// holds tells whether this node holds the block that the peer announced as its last.
func (s *supervisor) holds(p *candidate) (bool, error) {
	opened := s.node.pipeline.Store()
	if p.heights.Ordered > opened.Head().Height {
		return false, nil
	}
	_, hash, err := opened.Header(p.heights.Ordered)
	return hash == p.tip, err
}

// errSame says that a peer holds the block that it was asked to follow up.
var errSame = errors.New("the peer holds the same block")

// otherChain finds out up to where a peer's chain and this node's are the same.
func (s *supervisor) otherChain(p *candidate, cause error) caughtUp {
	opened := s.node.pipeline.Store()
	var failure error
	differs := func(height int) bool {
		if failure != nil {
			return false
		}
		_, hash, err := opened.Header(ledger.Height(height))
		if err != nil {
			failure = err
			return false
		}
		ctx, cancel := context.WithCancel(s.context)
		defer cancel()
		err = s.node.exchange.Fetch(ctx, s.node.peers.id(p.server), catchup.Point{Height: ledger.Height(height), Hash: hash}, ledger.Height(height)+1, func(*ledger.Block) error { return errSame })
		switch {
		case errors.Is(err, catchup.ErrFork):
			return true
		case !errors.Is(err, errSame) && !errors.Is(err, catchup.ErrBehind):
			failure = err
		}
		return false
	}
	// The genesis is the same; the peer's head is no lower than it announced.
	first := sort.Search(int(min(opened.Head().Height, p.heights.Ordered))+1, differs)
	if failure != nil {
		return caughtUp{err: failure}
	}
	return caughtUp{err: errors.Join(errOtherChain, cause), common: ledger.Height(max(first, 1) - 1)}
}

// onCaught hears how catching up went.
func (s *supervisor) onCaught(outcome caughtUp) {
	if tip := s.node.pipeline.Tip(); tip.Height > s.from {
		s.fetchedTo = tip.Height
	}
	switch err := outcome.err; {
	case err == nil:
		if outcome.reached == nil {
			break
		}
		if outcome.reached.orders() {
			s.followed = max(s.followed, outcome.reached.run.Generation())
		}
		s.believeDurable(outcome.reached.announcement) // as it was said, this node was behind, and could not take the word for it
	case errors.Is(err, errOtherChain):
		s.node.logger.Warn("this node's chain is not the group's", "common", outcome.common, "error", err)
		s.forked, s.common = true, outcome.common
	case errors.Is(err, store.ErrFailed), errors.Is(err, store.ErrDamaged):
		s.node.fail(err)
	case s.context.Err() == nil:
		s.node.logger.Warn("blocks could not be fetched; trying again", "error", err)
	}
}
