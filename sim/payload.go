package sim

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// A payload is what a server A-broadcasts in a round: at most one entry for the chain, before it
// the server's stamp of the time, and behind it the marks that end an eon or a generation. An empty
// payload has none of these.

// The first byte of an entry is its kind.
const (
	entryUser  byte = 'u' // a user submitted it
	entryJoin  byte = 'j' // the operator adds a server to the membership
	entryLeave byte = 'l' // the operator removes a server from it
	entryAdmit byte = 'a' // a member counts with another disk from here on
	// entryEngine says that the members order by another engine from the next eon on.
	entryEngine byte = 'e'
)

// change is an entry that changes the membership.
type change struct {
	kind   byte
	server order.ServerID
	// engine is the place of the engine in engineRows (entryEngine). It takes the server's place.
	engine int
	// disk is the disk that the member counts with (entryAdmit).
	disk generation.DiskID
	// by is the member that signed the entry. nonce distinguishes two such entries of the same
	// member.
	by    order.ServerID
	nonce uint64
}

// encode returns the entry of a change.
func (c change) encode() []byte {
	subject := uint32(c.server)
	if c.kind == entryEngine {
		subject = uint32(c.engine)
	}
	entry := binary.LittleEndian.AppendUint32([]byte{c.kind}, subject)
	entry = binary.LittleEndian.AppendUint32(entry, uint32(c.by))
	entry = binary.LittleEndian.AppendUint64(entry, c.nonce)
	return appendDisk(entry, c.disk)
}

// decodeChange reads the change in an entry, if it is one.
func decodeChange(entry []byte) (change, bool) {
	if len(entry) != changeSize || entry[0] == entryUser {
		return change{}, false
	}
	c := change{
		kind:  entry[0],
		by:    order.ServerID(binary.LittleEndian.Uint32(entry[5:])),
		nonce: binary.LittleEndian.Uint64(entry[9:]),
		disk:  diskAt(entry[17:]),
	}
	if subject := binary.LittleEndian.Uint32(entry[1:]); c.kind == entryEngine {
		c.engine = int(subject)
	} else {
		c.server = order.ServerID(subject)
	}
	return c, true
}

// String names a change, for traces.
func (c change) String() string {
	if c.kind == entryEngine {
		return "the engine " + engineRows[c.engine].name
	}
	return fmt.Sprintf("%c%d", c.kind, c.server)
}

const (
	changeSize = 1 + 4 + 4 + 8 + diskIDSize
	markSize   = 4 + 8 + diskIDSize
	// marksMax bounds the entrants of one payload.
	marksMax    = 16
	flagRegroup = 0x80
	flagBench   = 0x40
	flagStamp   = 0x20
	clockSize   = 4 + 4
	// overhead bounds the size of a payload besides its entry.
	overhead = marksMax*markSize + 4 + 1 + changeSize + 8 + 1 + clocksMax*clockSize
)

// marks are the requests to change the group that a payload carries.
type marks struct {
	entrants []shard.Entrant
	benched  []order.ServerID // at most one in a payload
	regroup  bool
}

func (m *marks) any() bool { return m.regroup || len(m.entrants)+len(m.benched) > 0 }

// stamp is what a payload with an entry says about the time: its server's time, and the clocks that
// prove it.
type stamp struct {
	time   clock.Milliseconds
	clocks []clock.MemberClock
}

// encodePayload puts a stamp before an entry, and marks behind it. Without an entry there is no
// stamp.
func encodePayload(said stamp, entry []byte, m marks) []byte {
	payload := make([]byte, 0, 8+1+len(said.clocks)*clockSize+len(entry)+len(m.entrants)*markSize+4+
		1)
	if len(entry) > 0 {
		payload = binary.LittleEndian.AppendUint64(payload, uint64(said.time))
		payload = append(payload, byte(len(said.clocks)))
		for _, each := range said.clocks {
			payload = binary.LittleEndian.AppendUint32(payload, uint32(each.Member))
			payload = binary.LittleEndian.AppendUint32(payload, uint32(each.Offset))
		}
		payload = append(payload, entry...)
	}
	for _, e := range m.entrants {
		payload = binary.LittleEndian.AppendUint32(payload, uint32(e.Server))
		payload = binary.LittleEndian.AppendUint64(payload, e.Ticket)
		payload = appendDisk(payload, e.Disk)
	}
	flags := byte(len(m.entrants))
	if m.regroup {
		flags |= flagRegroup
	}
	if len(entry) > 0 {
		flags |= flagStamp
	}
	if len(m.benched) > 0 {
		flags |= flagBench
		payload = binary.LittleEndian.AppendUint32(payload, uint32(m.benched[0]))
	}
	return append(payload, flags)
}

// splitPayload returns the entry of a payload, which shares its memory, and its marks.
func splitPayload(payload []byte) (entry []byte, m marks) {
	if len(payload) == 0 {
		return nil, marks{}
	}
	flags := payload[len(payload)-1]
	count := int(flags &^ (flagRegroup | flagBench | flagStamp))
	entry = payload[:len(payload)-1]
	if flags&flagStamp != 0 {
		entry = entry[9+int(entry[8])*clockSize:]
	}
	if flags&flagBench != 0 {
		if len(entry) < 4 {
			return nil, marks{}
		}
		m.benched = []order.ServerID{order.ServerID(
			binary.LittleEndian.Uint32(entry[len(entry)-4:]))}
		entry = entry[:len(entry)-4]
	}
	if count > marksMax || count*markSize > len(entry) {
		return nil, marks{}
	}
	m.regroup = flags&flagRegroup != 0
	encoded := entry[len(entry)-count*markSize:]
	entry = entry[:len(entry)-len(encoded)]
	for ; len(encoded) > 0; encoded = encoded[markSize:] {
		m.entrants = append(m.entrants, shard.Entrant{
			Server: order.ServerID(binary.LittleEndian.Uint32(encoded)),
			Ticket: binary.LittleEndian.Uint64(encoded[4:]),
			Disk:   diskAt(encoded[12:]),
		})
	}
	return entry, m
}

// stampOf returns the stamp of a payload.
func stampOf(payload []byte) stamp {
	if len(payload) == 0 || payload[len(payload)-1]&flagStamp == 0 {
		return stamp{}
	}
	said := stamp{time: clock.Milliseconds(binary.LittleEndian.Uint64(payload))}
	for i := range int(payload[8]) {
		at := payload[9+i*clockSize:]
		said.clocks = append(said.clocks, clock.MemberClock{
			Member: clock.MemberIndex(binary.LittleEndian.Uint32(at)),
			Offset: clock.Milliseconds(int32(binary.LittleEndian.Uint32(at[4:]))),
		})
	}
	return said
}

// changes implements allconcur.Config.Change: it reports whether a round holds a mark or a change
// of the membership.
func changes(d order.Delivery) bool {
	for _, m := range d.Messages {
		entry, marked := splitPayload(m.Payload)
		if _, is := decodeChange(entry); is || marked.any() {
			return true
		}
	}
	return false
}
