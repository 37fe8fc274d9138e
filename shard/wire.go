package shard

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// ErrMessage says that bytes are not a valid announcement or wish.
var ErrMessage = errors.New("shard: malformed message")

const (
	announcementVersion = 4
	serversMax          = 1 << 16
	entrantsMax         = 1 << 10
	textMax             = 255

	flagStalled  = 1 << 0
	flagLearner  = 1 << 1
	flagFull     = 1 << 2
	flagOriginal = 1 << 3
	flagsAll     = flagStalled | flagLearner | flagFull | flagOriginal
)

// Encode appends the announcement's bytes to b, little-endian:
//
//   - version, mode and flags, u8 each
//   - run, first round, base, changes, follows, decided, ordered, stored, durable, absent and
//     clock, u64 each
//   - tip and base hash, 32 bytes each
//   - disk
//   - members and removed, each a count u16 and u32s
//   - entrants: a count u16, then for each its server u32, ticket u64 and disk
//   - API address and settings, each a length u8 and text
func (a *Announcement) Encode(b []byte) []byte {
	flags := byte(0)
	if a.Stalled {
		flags |= flagStalled
	}
	if a.Learner {
		flags |= flagLearner
	}
	if a.Full {
		flags |= flagFull
	}
	if a.Original {
		flags |= flagOriginal
	}
	b = append(b, announcementVersion, byte(a.Mode), flags)
	for _, number := range a.numbers() {
		b = binary.LittleEndian.AppendUint64(b, *number)
	}
	b = append(b, a.Tip[:]...)
	b = append(b, a.Group.BaseHash[:]...)
	b = append(b, a.Disk[:]...)
	for _, servers := range [][]order.ServerID{a.Group.Members, a.Removed} {
		servers = servers[:min(len(servers), serversMax-1)]
		b = binary.LittleEndian.AppendUint16(b, uint16(len(servers)))
		for _, server := range servers {
			b = binary.LittleEndian.AppendUint32(b, uint32(server))
		}
	}
	entrants := a.Group.Entrants[:min(len(a.Group.Entrants), entrantsMax)]
	b = binary.LittleEndian.AppendUint16(b, uint16(len(entrants)))
	for _, e := range entrants {
		b = binary.LittleEndian.AppendUint32(b, uint32(e.Server))
		b = binary.LittleEndian.AppendUint64(b, e.Ticket)
		b = append(b, e.Disk[:]...)
	}
	for _, text := range []string{a.APIAddress, a.Settings} {
		text = text[:min(len(text), textMax)]
		b = append(append(b, byte(len(text))), text...)
	}
	return b
}

// numbers lists the numbers of an announcement in the order of its encoding.
func (a *Announcement) numbers() []*uint64 {
	return []*uint64{
		(*uint64)(&a.Group.Run), (*uint64)(&a.Group.First), &a.Group.Base, &a.Changes,
		(*uint64)(&a.Follows), (*uint64)(&a.Decided), &a.Heights.Ordered, &a.Heights.Stored,
		&a.Heights.Durable,
		&a.Absent, &a.Clock,
	}
}

// DecodeAnnouncement decodes the result of Encode. It returns ErrMessage for anything else.
func DecodeAnnouncement(b []byte) (Announcement, error) {
	var a Announcement
	r := reader{bytes: b}
	version, mode, flags := r.u8(), Mode(r.u8()), r.u8()
	for _, number := range a.numbers() {
		*number = r.u64()
	}
	copy(a.Tip[:], r.take(len(a.Tip)))
	copy(a.Group.BaseHash[:], r.take(len(a.Group.BaseHash)))
	copy(a.Disk[:], r.take(len(a.Disk)))
	a.Stalled, a.Learner = flags&flagStalled != 0, flags&flagLearner != 0
	a.Full, a.Original, a.Mode = flags&flagFull != 0, flags&flagOriginal != 0, mode
	a.Group.Members, a.Removed = r.servers(), r.servers()
	for range r.count(entrantsMax, 4+8+len(a.Disk)) {
		e := Entrant{Server: order.ServerID(r.u32()), Ticket: r.u64()}
		copy(e.Disk[:], r.take(len(e.Disk)))
		a.Group.Entrants = append(a.Group.Entrants, e)
	}
	a.APIAddress = string(r.take(int(r.u8())))
	a.Settings = string(r.take(int(r.u8())))
	if version != announcementVersion || mode < Starting || mode > Leaving ||
		flags&^byte(flagsAll) != 0 || !a.Group.sound() {
		r.broken = true
	}
	if r.broken || len(r.bytes) > 0 {
		return Announcement{}, fmt.Errorf("%w: announcement of %d bytes", ErrMessage, len(b))
	}
	return a, nil
}

const wishSize = 1 + 8 + 16

// Encode appends the wish's bytes to b: kind u8, number u64 little-endian, disk.
func (w Wish) Encode(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, byte(w.Kind)), w.Number)
	return append(b, w.Disk[:]...)
}

// DecodeWish decodes the result of Encode. It returns ErrMessage for anything else.
func DecodeWish(b []byte) (Wish, error) {
	if len(b) != wishSize || b[0] < byte(WishEnter) || b[0] > byte(WishAdmit) {
		return Wish{}, fmt.Errorf("%w: wish of %d bytes", ErrMessage, len(b))
	}
	w := Wish{Kind: WishKind(b[0]), Number: binary.LittleEndian.Uint64(b[1:])}
	copy(w.Disk[:], b[9:])
	return w, nil
}

// reader takes fixed-size fields from a slice. Past the end it returns zeros and sets broken.
type reader struct {
	bytes  []byte
	broken bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.bytes) {
		r.broken, r.bytes = true, nil
		return make([]byte, n)
	}
	taken := r.bytes[:n]
	r.bytes = r.bytes[n:]
	return taken
}

func (r *reader) u8() byte    { return r.take(1)[0] }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// count reads the length of a list whose elements have the given size. The list has to fit into the
// remaining bytes.
func (r *reader) count(most, size int) int {
	count := int(binary.LittleEndian.Uint16(r.take(2)))
	if count > most || count*size > len(r.bytes) {
		r.broken, r.bytes = true, nil
		return 0
	}
	return count
}

// servers reads a list of servers, which has to be ascending.
func (r *reader) servers() []order.ServerID {
	var servers []order.ServerID
	for range r.count(serversMax, 4) {
		servers = append(servers, order.ServerID(r.u32()))
	}
	for i := 1; i < len(servers); i++ {
		r.broken = r.broken || servers[i-1] >= servers[i]
	}
	return servers
}
