package catchup

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// errNoContent is the answer to a request for contents that are not here.
var errNoContent = errors.New("this node does not hold these contents")

// errNoChain is the answer while there is no chain to serve from.
var errNoChain = errors.New("this node serves no blocks now")

// largeBlock is the encoding of a block that is sent in parts.
type largeBlock struct {
	hash    ledger.Hash
	encoded []byte
}

// accept queues a request for the workers, or answers "busy".
func (x *Exchange) accept(r request) {
	if r.from.queued.Add(1) > SlotsPerPeer {
		r.from.queued.Add(-1)
		x.reply(r, answer{status: statusBusy})
		return
	}
	select {
	case x.queue <- r:
	default:
		r.from.queued.Add(-1)
		x.reply(r, answer{status: statusBusy})
	}
}

// prepareContent returns the requested part of some contents.
func (x *Exchange) prepareContent(r request) answer {
	var content []byte
	if x.contents != nil {
		content = x.contents(r.hash)
	}
	if r.offset >= uint64(len(content)) {
		return answer{status: statusUnavailable, reason: reasonOf(errNoContent)}
	}
	end := min(uint64(len(content)), r.offset+uint64(min(r.limits.bytes, x.piece.bytes)))
	return answer{status: statusPart, part: content[r.offset:end], total: uint64(len(content)),
		offset: r.offset}
}

// serve answers requests until the exchange is closed.
func (x *Exchange) serve() {
	for {
		select {
		case <-x.closed:
			return
		case r := <-x.queue:
			a := x.prepare(r)
			// Free the slot before the answer is sent, so that a peer that waits for the answer
			// finds it free.
			r.from.queued.Add(-1)
			x.reply(r, a)
		}
	}
}

func (x *Exchange) reply(r request, a answer) {
	a.id = r.id
	if err := x.trySend(r.from.id, a.encode()); err != nil {
		x.logger.Warn("an answer to a request for blocks was dropped", "peer", r.from.id, "after",
			r.after.Height, "error", err)
	}
}

// prepare returns the answer to a request.
func (x *Exchange) prepare(r request) answer {
	if r.content {
		return x.prepareContent(r)
	}
	chain := x.chain()
	if chain == nil {
		return answer{status: statusUnavailable, reason: reasonOf(errNoChain)}
	}
	a := answer{head: chain.AppendedHeight()}
	if r.after.Height > a.head {
		a.status = statusBehind
		return a
	}
	_, hash, err := chain.Header(r.after.Height)
	switch {
	case err != nil:
		return x.unreadable(r, r.after.Height, err)
	case hash != r.after.Hash:
		a.status, a.theirs = statusFork, Point{Height: r.after.Height, Hash: hash}
		return a
	case a.head == r.after.Height:
		a.status = statusBehind
		return a
	}
	if absent := chain.Absent(); absent > r.after.Height {
		a.status, a.absent = statusAbsent, absent
		return a
	}
	r.limits = limits{blocks: min(r.limits.blocks, x.piece.blocks),
		bytes: min(r.limits.bytes, x.piece.bytes)}
	if r.offset > 0 {
		return x.preparePart(chain, r, a)
	}
	return x.prepareBlocks(chain, r, a)
}

// prepareBlocks fills an answer with as many whole blocks as fit, or the first part of a block that
// does not fit.
func (x *Exchange) prepareBlocks(chain Chain, r request, a answer) answer {
	a.status = statusBlocks
	previous, left := r.after, int(r.limits.bytes)
	last := min(r.to, a.head, r.after.Height+ledger.Height(r.limits.blocks))
	for previous.Height < last {
		block, err := follow(chain, previous)
		switch {
		case err != nil && len(a.blocks) > 0:
			// The next request will get the error.
			return a
		case err != nil:
			return x.unreadable(r, previous.Height+1, err)
		}
		encoded := block.Encode()
		if len(encoded) > left {
			if len(a.blocks) == 0 {
				return x.cut(r, a, block.Hash, encoded)
			}
			return a
		}
		a.blocks, left = append(a.blocks, encoded), left-len(encoded)
		previous = Point{Height: block.Header.Height, Hash: block.Hash}
	}
	return a
}

// preparePart fills an answer with a later part of a large block.
func (x *Exchange) preparePart(chain Chain, r request, a answer) answer {
	block, err := follow(chain, r.after)
	if err != nil {
		return x.unreadable(r, r.after.Height+1, err)
	}
	x.largeMu.Lock()
	large := x.large
	x.largeMu.Unlock()
	if large.hash != block.Hash || large.encoded == nil {
		large = largeBlock{hash: block.Hash, encoded: block.Encode()}
	}
	return x.cut(r, a, large.hash, large.encoded)
}

// cut fills an answer with the requested part of a block's encoding. It keeps the encoding while
// more parts are left.
func (x *Exchange) cut(r request, a answer, hash ledger.Hash, encoded []byte) answer {
	a.total, a.offset = uint64(len(encoded)), r.offset
	if a.offset >= a.total {
		return answer{status: statusUnavailable, head: a.head,
			reason: reasonOf(fmt.Errorf("block %d has %d bytes, there is nothing at %d",
				r.after.Height+1, a.total, a.offset))}
	}
	end := min(a.total, a.offset+uint64(r.limits.bytes))
	a.status, a.part = statusPart, encoded[a.offset:end]
	x.largeMu.Lock()
	defer x.largeMu.Unlock()
	if end < a.total {
		x.large = largeBlock{hash: hash, encoded: encoded}
	} else if x.large.hash == hash {
		x.large = largeBlock{}
	}
	return a
}

// follow reads the block after a point, and checks that it follows the point.
func follow(chain Chain, previous Point) (*ledger.Block, error) {
	block, err := chain.Block(previous.Height + 1)
	if err != nil {
		return nil, err
	}
	if block.Header.Height != previous.Height+1 || block.Header.Previous != previous.Hash {
		return nil, fmt.Errorf("block %d does not follow block %s", block.Header.Height, previous)
	}
	return block, nil
}

// unreadable returns the answer for a block that should be here but cannot be served.
func (x *Exchange) unreadable(r request, height ledger.Height, err error) answer {
	x.logger.Error("a block that a peer asked for cannot be read", "peer", r.from.id, "height",
		height, "error", err)
	return answer{status: statusUnavailable,
		reason: reasonOf(fmt.Errorf("block %d: %w", height, err))}
}
