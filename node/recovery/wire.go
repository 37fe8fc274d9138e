package recovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/ledgerd/ledgerd/order"
)

// ErrMessage says that bytes are no message, or no state, of the synod.
var ErrMessage = errors.New("recovery: malformed synod message")

// serversMax bounds the member lists that a decoder takes.
const serversMax = 1024

// The layout, all little-endian: kind u8, flags u8 (1 regroup, 2 value, 4 known), generation u64, ballot, working u64, accepted ballot, head, disk u64, value, known.
// A ballot is number u64, proposer u32; a head is generation u64, height u64, hash 32 bytes; a decision is generation u64, head, count u16, members u32 each, disks u64 each.
const (
	flagRegroup = 1 << iota
	flagValue
	flagKnown
	flagsAll = flagRegroup | flagValue | flagKnown
)

func appendBallot(b []byte, ballot Ballot) []byte {
	b = binary.LittleEndian.AppendUint64(b, ballot.Number)
	return binary.LittleEndian.AppendUint32(b, uint32(ballot.Proposer))
}

func appendHead(b []byte, head Head) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(head.Generation))
	b = binary.LittleEndian.AppendUint64(b, head.Height)
	return append(b, head.Hash[:]...)
}

func appendDecision(b []byte, d *Decision) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Generation))
	b = appendHead(b, d.Base)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(d.Members)))
	for _, member := range d.Members {
		b = binary.LittleEndian.AppendUint32(b, uint32(member))
	}
	for _, disk := range d.Disks {
		b = binary.LittleEndian.AppendUint64(b, uint64(disk))
	}
	return b
}

// Encode appends the message's bytes to b.
func (m Message) Encode(b []byte) []byte {
	var flags byte
	if m.Regroup {
		flags |= flagRegroup
	}
	if m.Value != nil {
		flags |= flagValue
	}
	if m.Known != nil {
		flags |= flagKnown
	}
	b = append(b, byte(m.Kind), flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Generation))
	b = appendBallot(b, m.Ballot)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Working))
	b = appendBallot(b, m.Accepted)
	b = appendHead(b, m.Head)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Disk))
	if m.Value != nil {
		b = appendDecision(b, m.Value)
	}
	if m.Known != nil {
		b = appendDecision(b, m.Known)
	}
	return b
}

// DecodeMessage reads a message; it takes exactly the bytes that Encode gives, and reports ErrMessage for any others.
func DecodeMessage(b []byte) (Message, error) {
	r := reader{bytes: b}
	m := Message{Kind: Kind(r.u8())}
	flags := r.u8()
	m.Generation = Generation(r.u64())
	m.Ballot = r.ballot()
	m.Working = Generation(r.u64())
	m.Accepted = r.ballot()
	m.Head = r.head()
	m.Disk = DiskID(r.u64())
	m.Regroup = flags&flagRegroup != 0
	if flags&flagValue != 0 {
		m.Value = r.decision()
	}
	if flags&flagKnown != 0 {
		m.Known = r.decision()
	}
	if err := r.end(); err != nil {
		return Message{}, err
	}
	if m.Kind < KindPrepare || m.Kind > KindRefuse || flags&^byte(flagsAll) != 0 {
		return Message{}, fmt.Errorf("%w: kind %d, flags %#x", ErrMessage, m.Kind, flags)
	}
	return m, nil
}

// stateMagic begins the state's file and names its format.
const stateMagic = "ledgerd generation 1\n"

// Encode gives the bytes of the state's file: magic, fields, CRC-32C.
func (s State) Encode() []byte {
	b := []byte(stateMagic)
	var flags byte
	if s.AcceptedValue != nil {
		flags |= flagValue
	}
	if s.Decided != nil {
		flags |= flagKnown
	}
	b = append(b, flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Disk))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Activated))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Instance))
	b = appendBallot(b, s.Promised)
	b = appendBallot(b, s.Accepted)
	if s.AcceptedValue != nil {
		b = appendDecision(b, s.AcceptedValue)
	}
	if s.Decided != nil {
		b = appendDecision(b, s.Decided)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// DecodeState reads the bytes of a state's file; it reports ErrMessage for any that Encode did not give.
func DecodeState(b []byte) (State, error) {
	if len(b) < len(stateMagic)+4 || string(b[:len(stateMagic)]) != stateMagic {
		return State{}, fmt.Errorf("%w: no generation file", ErrMessage)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return State{}, fmt.Errorf("%w: the generation file is damaged", ErrMessage)
	}
	r := reader{bytes: body[len(stateMagic):]}
	flags := r.u8()
	s := State{Disk: DiskID(r.u64()), Activated: Generation(r.u64()), Instance: Generation(r.u64()), Promised: r.ballot(), Accepted: r.ballot()}
	if flags&flagValue != 0 {
		s.AcceptedValue = r.decision()
	}
	if flags&flagKnown != 0 {
		s.Decided = r.decision()
	}
	if err := r.end(); err != nil {
		return State{}, err
	}
	if flags&^byte(flagValue|flagKnown) != 0 {
		return State{}, fmt.Errorf("%w: flags %#x", ErrMessage, flags)
	}
	return s, nil
}

// reader takes fixed fields off a slice; past the end it gives zeros and remembers that it was short.
type reader struct {
	bytes []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if len(r.bytes) < n {
		r.short, r.bytes = true, nil
		return make([]byte, n)
	}
	taken := r.bytes[:n]
	r.bytes = r.bytes[n:]
	return taken
}

func (r *reader) u8() byte    { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *reader) ballot() Ballot {
	return Ballot{Number: r.u64(), Proposer: order.ServerID(r.u32())}
}

func (r *reader) head() Head {
	h := Head{Generation: Generation(r.u64()), Height: r.u64()}
	copy(h.Hash[:], r.take(len(h.Hash)))
	return h
}

func (r *reader) decision() *Decision {
	d := &Decision{Generation: Generation(r.u64()), Base: r.head()}
	count := int(r.u16())
	if count > serversMax || 12*count > len(r.bytes) {
		r.short = true
		return nil
	}
	for range count {
		d.Members = append(d.Members, order.ServerID(r.u32()))
	}
	for range count {
		d.Disks = append(d.Disks, DiskID(r.u64()))
	}
	return d
}

func (r *reader) end() error {
	if r.short {
		return fmt.Errorf("%w: it ends early", ErrMessage)
	}
	if len(r.bytes) > 0 {
		return fmt.Errorf("%w: %d bytes too many", ErrMessage, len(r.bytes))
	}
	return nil
}
