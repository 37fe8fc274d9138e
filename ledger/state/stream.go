package state

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// stream is the position of one numbered stream of bundles, from the parent shard's chain or to a
// child's. A stream that has not begun is not an entry of the state.
type stream struct {
	shard  ledger.ShardID
	number uint64
	mark   mark
	// late is for FaultChildLate.
	late bool
	// ended is set in the block whose change of the tree ends the stream.
	ended bool
}

func (x *stream) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = append(binary.BigEndian.AppendUint32(append(to, kindStream), uint32(x.shard)), 0)
	keyLength = len(to) - start
	return binary.AppendUvarint(to, x.number), keyLength
}

// advance increments the stream's number and returns it.
func (s *State) advance(x *stream) uint64 {
	s.touchStream(x)
	x.number++
	return x.number
}

func (s *State) touchStream(x *stream) {
	if x.mark.touched {
		return
	}
	if x.number == 0 {
		x.mark = mark{touched: true}
	} else {
		x.mark = s.keep(x.appendEntry)
	}
	s.touchedStreams = append(s.touchedStreams, x)
}

// newStreams creates the streams of a shard: one from its parent, unless it is the root, and one to
// each child.
func (s *State) newStreams() {
	s.parent, s.children = nil, nil
	if parent, below := s.tree.Parent(s.shard); below {
		s.parent = &stream{shard: parent}
	}
	for _, child := range s.tree.Children(s.shard) {
		s.children = append(s.children, &stream{shard: child})
	}
}

func (s *State) streamOf(shard ledger.ShardID) *stream {
	if s.parent != nil && s.parent.shard == shard {
		return s.parent
	}
	for _, child := range s.children {
		if child.shard == shard {
			return child
		}
	}
	return nil
}

// restoreStream puts the entry of a stream into the state. It reports whether there was one
// already.
func (s *State) restoreStream(key []byte, r *reader) (restored entry, again bool, err error) {
	if len(key) != 1+4+1 {
		return nil, false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	shard := ledger.ShardID(binary.BigEndian.Uint32(key[1:]))
	found := s.streamOf(shard)
	if found == nil && (s.tree == nil || shard == s.shard || shard >= ledger.MaxShards) {
		return nil, false, fmt.Errorf("%w: a stream from or to shard %d", ErrEntry, shard)
	}
	if found == nil {
		if found, again = s.growth.streamTo(shard); again {
			return found, true, nil
		}
	}
	again = found.number != 0
	if found.number = r.Uvarint(); found.number == 0 {
		r.Fail("a stream that has not begun")
	}
	return found, again, nil
}

// Carried returns the position of the stream from the parent shard: the number of its last entry in
// this chain. It is 0 at the root.
func (s *State) Carried() uint64 {
	if s.parent == nil {
		return 0
	}
	return s.parent.number
}

// Streamed returns the position of the stream to a child: the number of its last entry. Of a shard
// that was a child and hangs below another one now, it is that of the last entry there ever was. It
// is 0 for a shard that was never a child.
func (s *State) Streamed(child ledger.ShardID) uint64 {
	for _, each := range s.children {
		if each.shard == child {
			return each.number
		}
	}
	for _, each := range slices.Backward(s.growth.rehung) {
		if each.From == s.shard && each.Shard == child {
			return each.last
		}
	}
	return 0
}
