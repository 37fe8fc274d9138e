package catchup

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/wire"
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

// serve answers the request of a peer.
func (x *Exchange) serve(ctx context.Context, asked *wire.Served) error {
	prepare, err := x.requested(asked)
	if err != nil {
		return err
	}
	var a answer
	var rest *run
	if err := x.read(ctx, func() { a, rest = prepare() }); err != nil {
		return err
	}
	for rest.more() {
		if err := asked.Send(a.parts()...); err != nil {
			return err
		}
		if err := x.read(ctx, func() { a.blocks = rest.chunk() }); err != nil {
			return err
		}
	}
	return asked.End(a.parts()...)
}

// requested decodes a request, and returns the function that prepares its answer.
func (x *Exchange) requested(asked *wire.Served) (prepare func() (answer, *run), err error) {
	switch asked.Kind {
	case kindBlocks:
		r, err := decodeRequest(asked.Head)
		r.from = asked.From.ID
		return func() (answer, *run) { return x.prepare(r) }, err
	case kindContents:
		r, err := decodeContentRequest(asked.Head)
		return func() (answer, *run) { return x.prepareContent(r), nil }, err
	case kindCertificates:
		r, err := decodeCertificatesRequest(asked.Head)
		return func() (answer, *run) { return x.prepareCertificates(r), nil }, err
	default:
		return nil, fmt.Errorf("%w: kind %d", errMessage, asked.Kind)
	}
}

// read runs a function that reads the chain, once it may.
func (x *Exchange) read(ctx context.Context, run func()) error {
	select {
	case x.reading <- struct{}{}:
		defer func() { <-x.reading }()
		run()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// prepareContent returns the requested part of some contents.
func (x *Exchange) prepareContent(r contentRequest) answer {
	var content []byte
	if x.contents != nil {
		content = x.contents(r.hash)
	}
	if r.offset >= uint64(len(content)) {
		return answer{status: statusUnavailable, reason: reasonOf(errNoContent)}
	}
	end := min(uint64(len(content)), r.offset+uint64(min(r.bytes, x.piece.bytes)))
	return answer{status: statusPart, part: content[r.offset:end], total: uint64(len(content)),
		offset: r.offset}
}

// prepare returns the answer to a request, and the blocks that follow in further chunks.
func (x *Exchange) prepare(r request) (answer, *run) {
	chain := x.chain()
	if chain == nil {
		return answer{status: statusUnavailable, reason: reasonOf(errNoChain)}, nil
	}
	a := answer{head: chain.AppendedHeight()}
	if r.after.Height > a.head {
		a.status = statusBehind
		return a, nil
	}
	_, hash, err := chain.Header(r.after.Height)
	switch {
	case err != nil:
		return x.unreadable(r, r.after.Height, err), nil
	case hash != r.after.Hash:
		a.status, a.theirs = statusFork, Point{Height: r.after.Height, Hash: hash}
		return a, nil
	case a.head == r.after.Height:
		a.status = statusBehind
		return a, nil
	}
	if absent := chain.Absent(); absent > r.after.Height {
		a.status, a.absent = statusAbsent, absent
		return a, nil
	}
	r.limits = limits{blocks: min(r.limits.blocks, x.piece.blocks),
		bytes: min(r.limits.bytes, x.piece.bytes)}
	if r.offset > 0 {
		return x.preparePart(chain, r, a), nil
	}
	return x.prepareBlocks(chain, r, a)
}

// prepareBlocks fills an answer with the first of as many whole blocks as fit, or the first part of
// a block that does not fit.
func (x *Exchange) prepareBlocks(chain Chain, r request, a answer) (answer, *run) {
	block, err := follow(chain, r.after)
	if err != nil {
		return x.unreadable(r, r.after.Height+1, err), nil
	}
	encoded := block.Encode()
	if len(encoded) > int(r.limits.bytes) {
		return x.cut(r, a, block.Hash, encoded), nil
	}
	rest := &run{chain: chain, next: encoded, left: int(r.limits.bytes),
		at:   Point{Height: block.Header.Height, Hash: block.Hash},
		last: min(r.to, a.head, r.after.Height+ledger.Height(r.limits.blocks))}
	a.status, a.blocks = statusBlocks, rest.chunk()
	return a, rest
}

// run is what is left of a piece of blocks. A nil run is empty.
type run struct {
	chain Chain
	// next is the encoding of the block at a point, which was read and not taken, or nil.
	next []byte
	at   Point
	last ledger.Height
	left int // bytes
}

func (n *run) more() bool { return n != nil && n.next != nil }

// chunk takes the blocks of one chunk, and reads the one after them.
func (n *run) chunk() (blocks [][]byte) {
	for size := 0; n.next != nil && size < chunkBytes; n.advance() {
		blocks, size, n.left = append(blocks, n.next), size+len(n.next), n.left-len(n.next)
	}
	return blocks
}

// advance reads the next block. The run ends if there is none, or it does not fit, or cannot be
// read: the next request will get the error.
func (n *run) advance() {
	n.next = nil
	if n.at.Height == n.last {
		return
	}
	block, err := follow(n.chain, n.at)
	if err != nil {
		return
	}
	if encoded := block.Encode(); len(encoded) <= n.left {
		n.next, n.at = encoded, Point{Height: block.Header.Height, Hash: block.Hash}
	}
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
	x.logger.Error("a block that a peer asked for cannot be read", "peer", r.from, "height",
		height, "error", err)
	return answer{status: statusUnavailable,
		reason: reasonOf(fmt.Errorf("block %d: %w", height, err))}
}
