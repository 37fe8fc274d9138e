package replica

import (
	"encoding/binary"
	"strconv"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
)

// The names of a replica's regions. The buffer of client c is clientRegion followed by c.
const (
	boardRegion  = "tram/board"
	logRegion    = "tram/log"
	parentRegion = "tram/parent"
	clientRegion = "tram/client/"
)

func clientRegionName(client order.ServerID) string {
	return clientRegion + strconv.FormatUint(uint64(client), 10)
}

const word = protected.Word

// A row of a board has wordHalt besides the words that all boards have. One more word is free.
const (
	wordHalt = protected.WordsShared // not 0: the process leads, and excluded the board's owner
	rowWords = protected.WordsShared + 2
)

func (o *Options) logRing() protected.Ring {
	return protected.Ring{Slots: o.LogSlots, Slot: protected.Padded(o.messageMax()) + logTrailer}
}

func (o *Options) bufferRing() protected.Ring {
	return protected.BufferRing(o.BufferSlots, o.messageMax())
}

// The words behind the message of a log's entry, as offsets from the slot's end.
const (
	logTrailer   = 5 * word
	logTimestamp = -5 * word
	// upper half: how far below its index the leader knew all entries to be ordered; lower half:
	// how far below its index the leader knew all entries to be taken
	logKnown  = -4 * word
	logOrigin = -3 * word // the source, in the upper half; and the message's length
	logNumber = -2 * word // in the source's buffer
	logIndex  = -1 * word
)

// source is where an entry of the log came from.
type source uint32

// The sources. Client c is sourceClients+c.
const (
	sourceNone    source = iota // a no-op
	sourceParent                // the parent's buffer
	sourceClients               // the first client's buffer
)

// header is a log's entry without its message.
type header struct {
	timestamp protected.Timestamp
	decided   uint64 // all up to here was ordered when the entry was written, as its leader knew
	floor     uint64 // all up to here was taken by all members that are not excluded
	source    source
	length    int
	number    uint64
	index     uint64 // 0: there is no entry
}

// same reports whether two entries of one index hold the same message.
func (h header) same(other header) bool {
	return h.source == other.source && h.number == other.number
}

func (h header) known() uint64 { return (h.index-h.decided)<<32 | (h.index - h.floor) }

func (h header) origin() uint64 { return uint64(h.source)<<32 | uint64(h.length) }

// parse makes a header of the words of a trailer. Words that no replica writes give a header
// without an index.
func parse(stamp, known, origin, number, index uint64, messageMax int) header {
	h := header{timestamp: protected.Timestamp(stamp), decided: index - known>>32,
		floor: index - known&(1<<32-1), source: source(origin >> 32),
		length: int(origin & (1<<32 - 1)), number: number, index: index}
	if h.length > messageMax || known>>32 > index || known&(1<<32-1) > index {
		return header{}
	}
	return h
}

// parseTrailer makes a header of a trailer's bytes.
func parseTrailer(b []byte, messageMax int) header {
	at := func(offset int) uint64 { return binary.NativeEndian.Uint64(b[logTrailer+offset:]) }
	return parse(at(logTimestamp), at(logKnown), at(logOrigin), at(logNumber), at(logIndex),
		messageMax)
}
