//go:build verbs

package verbs

import (
	"bytes"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/verbs/ibverbs"
)

// chunkMax is the most that one part of a read takes, in bytes.
const chunkMax = 64 << 10

// collect is a read of more than a word under way. A device reads from the first byte to the last, or in whatever order its bus likes, while a writer writes from the first to the last: so the mark in the last word
// might be newer than what was read below. The memory contract wants it the other way round. A read therefore goes in parts from the last to the first, and each part is read twice, one right behind the other: if both
// are the same, that is what the part was at one moment in between. Where a writer is in the way the part is read again, smaller, down to a word, which
// is never torn. What is posted behind waits for the read to end, so that the order of operations holds.
type collect struct {
	operation *operation // nil when there is none
	high      int        // the operation's bytes from here on are read
	parts     []part     // at the device, from the last to the first
}

// part is some bytes of a read, as the two looks at them gave them; a part within a word needs no second.
type part struct {
	low, high     int // of the operation's bytes
	first, second []byte
}

// within tells whether the bytes at an offset lie in one word.
func within(offset, length int) bool { return offset%rdmanet.WordSize+length <= rdmanet.WordSize }

// collectMore posts the next parts of the read under way, as far as there is room; false if that is not at all. The caller holds the attachment's lock.
func (a *attachment) collectMore(room int) bool {
	c := &a.collect
	o := c.operation
	if a.chunk == 0 {
		a.chunk = chunkMax
	}
	for high := c.high; high > 0 && len(a.requests)+2 <= room; high = c.parts[len(c.parts)-1].low {
		begin := o.Offset + high - a.chunk
		low := max(0, (begin+rdmanet.WordSize-1)&^(rdmanet.WordSize-1)-o.Offset)
		p := part{low: low, high: high}
		looks := 2
		if within(o.Offset+low, high-low) {
			looks = 1
		}
		place, took := a.bounce.take(looks * (high - low))
		if place == nil {
			break
		}
		p.first, p.second = place[:high-low], place[(looks-1)*(high-low):]
		for look := range looks {
			a.requests = append(a.requests, ibverbs.Request{Opcode: ibverbs.OpcodeRead, Local: address(place[look*(high-low):]), Length: uint32(high - low),
				LocalKey: a.bounce.registered.LocalKey(), Remote: a.memory.base + uint64(o.Offset+low), RemoteKey: a.memory.key})
			a.pieces = append(a.pieces, piece{operation: o})
		}
		a.pieces[len(a.pieces)-1].ring = took
		c.parts = append(c.parts, p)
	}
	if len(c.parts) == 0 {
		return false
	}
	a.pieces[len(a.pieces)-1].judge = true
	return true
}

// judge takes over the parts that are sound, from the last on, and reports whether the read is complete. The caller holds the attachment's lock.
func (a *attachment) judge() bool {
	c := &a.collect
	sound := true
	for _, p := range c.parts {
		if !bytes.Equal(p.first, p.second) {
			a.chunk, sound = max((p.high-p.low)/4&^(rdmanet.WordSize-1), rdmanet.WordSize), false
			break
		}
		copy(c.operation.Bytes[p.low:p.high], p.first)
		c.high = p.low
	}
	if sound {
		a.chunk = min(2*a.chunk, chunkMax)
	}
	c.parts = c.parts[:0]
	if c.high > 0 {
		return false
	}
	c.operation = nil
	return true
}
