package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/order"
)

// errAnnouncement says that bytes are no announcement.
var errAnnouncement = errors.New("node: malformed announcement")

const (
	announcementVersion  = 3
	announcementNumbers  = 9
	announcementFixed    = 1 + 1 + 1 + announcementNumbers*8 + 2*ledger.HashSize // before the lists and texts
	announcementText     = 256
	announcementMembers  = 1 << 16
	announcementEntrants = 1 << 10
)

// announcement is what a node tells the others of itself, on the lane "control": several times a second, and after each sync of its disk.
//
// The layout, little-endian: version u8, mode u8, stalled u8, numbers u64 each (run, first round of the run, height before the run, membership number, decided, ordered, stored, durable, clock), two hashes of
// 32 bytes (tip, the block before the run), the members and the removed behind their numbers u16 (u32 each), the entrants behind theirs u16 (u32, u64 each), then two texts, each with its length
// in one byte: API address, settings.
type announcement struct {
	mode api.NodeMode
	// run is the one in which the sender's engine is, 0 for none; where it stalls, the sender does not order.
	run     generation.Run
	stalled bool
	// first, base and baseHash say where the run began, members with whom and entrants who of them entered with it; removed are those that left the group since.
	first    order.Round
	base     ledger.Height
	baseHash ledger.Hash
	members  []order.ServerID
	removed  []order.ServerID
	entrants []mempool.Entrant
	// changes is the number of the membership.
	changes uint64
	decided generation.Generation // the latest that the sender knows a decision of
	heights api.Heights
	tip     ledger.Hash // the block at heights.Ordered
	// clock is the sender's time of day.
	clock      ledger.Milliseconds
	apiAddress string
	settings   string // what all members have to have set alike
}

// orders tells whether the sender is in a group that gets on.
func (a *announcement) orders() bool { return a.run != 0 && !a.stalled }

// includes tells whether a server is in the sender's group.
func (a *announcement) includes(server order.ServerID) bool {
	return slices.Contains(a.members, server) && !slices.Contains(a.removed, server)
}

func (a *announcement) encode() []byte {
	b := make([]byte, 0, announcementFixed+8+4*len(a.members)+4*len(a.removed)+12*len(a.entrants)+len(a.apiAddress)+len(a.settings))
	b = append(b, announcementVersion, byte(a.mode), 0)
	if a.stalled {
		b[2] = 1
	}
	for _, number := range [announcementNumbers]uint64{uint64(a.run), uint64(a.first), uint64(a.base), a.changes, uint64(a.decided), uint64(a.heights.Ordered), uint64(a.heights.Stored), uint64(a.heights.Durable), uint64(a.clock)} {
		b = binary.LittleEndian.AppendUint64(b, number)
	}
	b = append(append(b, a.tip[:]...), a.baseHash[:]...)
	for _, servers := range [][]order.ServerID{a.members, a.removed} {
		servers = servers[:min(len(servers), announcementMembers-1)]
		b = binary.LittleEndian.AppendUint16(b, uint16(len(servers)))
		for _, server := range servers {
			b = binary.LittleEndian.AppendUint32(b, uint32(server))
		}
	}
	entrants := a.entrants[:min(len(a.entrants), announcementEntrants)]
	b = binary.LittleEndian.AppendUint16(b, uint16(len(entrants)))
	for _, entrant := range entrants {
		b = binary.LittleEndian.AppendUint32(b, entrant.Server)
		b = binary.LittleEndian.AppendUint64(b, entrant.Ticket)
	}
	for _, text := range []string{a.apiAddress, a.settings} {
		text = text[:min(len(text), announcementText-1)]
		b = append(append(b, byte(len(text))), text...)
	}
	return b
}

func decodeAnnouncement(b []byte) (a announcement, err error) {
	if len(b) < announcementFixed || b[0] != announcementVersion || b[2] > 1 {
		return a, fmt.Errorf("%w: %d bytes", errAnnouncement, len(b))
	}
	a.mode, a.stalled = api.NodeMode(b[1]), b[2] == 1
	numbers := [announcementNumbers]uint64{}
	for i := range numbers {
		numbers[i] = binary.LittleEndian.Uint64(b[3+8*i:])
	}
	a.run, a.first, a.base, a.changes = generation.Run(numbers[0]), order.Round(numbers[1]), ledger.Height(numbers[2]), numbers[3]
	a.decided = generation.Generation(numbers[4])
	a.heights = api.Heights{Ordered: ledger.Height(numbers[5]), Stored: ledger.Height(numbers[6]), Durable: ledger.Height(numbers[7])}
	a.clock = ledger.Milliseconds(numbers[8])
	rest := b[3+8*announcementNumbers:]
	rest = rest[copy(a.tip[:], rest):]
	rest = rest[copy(a.baseHash[:], rest):]
	list := func(size int) (encoded []byte, ok bool) {
		if len(rest) < 2 || len(rest)-2 < size*int(binary.LittleEndian.Uint16(rest)) {
			return nil, false
		}
		end := 2 + size*int(binary.LittleEndian.Uint16(rest))
		encoded, rest = rest[2:end], rest[end:]
		return encoded, true
	}
	for _, servers := range []*[]order.ServerID{&a.members, &a.removed} {
		encoded, whole := list(4)
		if !whole {
			return a, fmt.Errorf("%w: the members end early", errAnnouncement)
		}
		for ; len(encoded) > 0; encoded = encoded[4:] {
			*servers = append(*servers, order.ServerID(binary.LittleEndian.Uint32(encoded)))
		}
	}
	entrants, whole := list(12)
	if !whole || len(entrants) > 12*announcementEntrants {
		return a, fmt.Errorf("%w: the entrants end early", errAnnouncement)
	}
	for ; len(entrants) > 0; entrants = entrants[12:] {
		a.entrants = append(a.entrants, mempool.Entrant{Server: binary.LittleEndian.Uint32(entrants), Ticket: binary.LittleEndian.Uint64(entrants[4:])})
	}
	for _, text := range []*string{&a.apiAddress, &a.settings} {
		if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
			return a, fmt.Errorf("%w: a text ends early", errAnnouncement)
		}
		end := 1 + int(rest[0])
		*text, rest = string(rest[1:end]), rest[end:]
	}
	if len(rest) != 0 || a.mode < api.ModeStarting || a.mode > api.ModeStopping {
		return a, fmt.Errorf("%w: mode %d, %d bytes too many", errAnnouncement, a.mode, len(rest))
	}
	return a, nil
}
