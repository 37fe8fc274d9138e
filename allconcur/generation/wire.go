package generation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// ErrMessage says that bytes are not a valid message or state of the synod.
var ErrMessage = errors.New("generation: malformed synod message")

// serversMax bounds the lists of servers that a decoder accepts.
const serversMax = 1024

// wireVersion is the first byte of a message, so that nodes of other versions drop it.
// wireVersionRecords is that of a promise with recorded rounds, wireVersionVouched that of one with
// rounds that prompt delivery may have A-delivered, wireVersionBound that of a message about a run
// with another bound than AllConcur's, and wireVersionLog that of one about a run that was ordered
// by a log. Nodes that know of none drop it.
const (
	wireVersion        = 2
	wireVersionRecords = 3
	wireVersionVouched = 4
	wireVersionBound   = 5
	wireVersionLog     = 6
)

// The layout. All numbers are little-endian.
//
//	message     version u8, kind u8, flags u8, generation u64, ballot, working u64, accepted
//	            ballot, holders; then as the flags say: disk and original u8, report, value, known
//	ballot      number u64, proposer u32, disk
//	disk        16 bytes
//	head        generation u64, height u64, hash 32 bytes, round u64
//	servers     count u16, u32 each
//	membership  number u64, servers, count u16 (that of the servers, or 0), disks
//	round       round u64, epoch u64, reliable u8, origins, removed, content 32 bytes
//	vote        round, confirmed u8, voters
//	known vote  voter u32, round u64, epoch u64, reliable u8, confirmed u8, origins
//	report      head, disk, original u8, durable u64, perhaps u8, perhaps-to u64, run u64,
//	            restarted u8, shard, membership, in versions 5 and 6 bound u8, with a log's bound
//	            the stamp u64 and index u64 of the last entry, count u8, votes, count u16, known
//	            votes, count u16, former memberships with their heights; in versions 3 to 6 also
//	            count u8, the recorded rounds; in versions 4 to 6 also count u8, the vouched rounds
//	decision    generation u64, head, in versions 5 and 6 bound u8, count u8, rounds, members, disks
const (
	flagRegroup = 1 << iota
	flagValue
	flagKnown
	flagReport
	flagDisk
	flagsAll = flagRegroup | flagValue | flagKnown | flagReport | flagDisk
)

func appendBool(b []byte, value bool) []byte { return append(b, byte(truth(value))) }

func appendBallot(b []byte, ballot Ballot) []byte {
	b = binary.LittleEndian.AppendUint64(b, ballot.Number)
	b = binary.LittleEndian.AppendUint32(b, uint32(ballot.Proposer))
	return append(b, ballot.Disk[:]...)
}

func appendHead(b []byte, head Head) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(head.Generation))
	b = binary.LittleEndian.AppendUint64(b, head.Height)
	b = append(b, head.Hash[:]...)
	return binary.LittleEndian.AppendUint64(b, uint64(head.Round))
}

func appendServers(b []byte, servers []order.ServerID) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(servers)))
	for _, server := range servers {
		b = binary.LittleEndian.AppendUint32(b, uint32(server))
	}
	return b
}

func appendMembership(b []byte, m Membership) []byte {
	b = appendServers(binary.LittleEndian.AppendUint64(b, m.Number), m.Members)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Disks)))
	for _, disk := range m.Disks {
		b = append(b, disk[:]...)
	}
	return b
}

func appendRound(b []byte, r TailRound) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Round))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Epoch))
	b = appendBool(b, r.Reliable)
	b = appendServers(b, r.Origins)
	b = appendServers(b, r.Removed)
	return append(b, r.Content[:]...)
}

// appendReport appends a report, with its bound and all lists if it is bounded.
func appendReport(b []byte, r Report, bounded bool) []byte {
	b = appendHead(b, r.Head)
	b = append(b, r.Disk[:]...)
	b = appendBool(b, r.Original)
	b = binary.LittleEndian.AppendUint64(b, r.Durable)
	b = appendBool(b, r.Perhaps)
	b = binary.LittleEndian.AppendUint64(b, r.PerhapsTo)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Run))
	b = appendBool(b, r.Restarted)
	b = appendMembership(b, r.Shard)
	b = appendMembership(b, r.Membership)
	if bounded {
		b = append(b, byte(r.Bound))
	}
	if r.Bound.Log() {
		b = binary.LittleEndian.AppendUint64(b, r.Last.Stamp)
		b = binary.LittleEndian.AppendUint64(b, r.Last.Index)
	}
	b = append(b, byte(len(r.Votes)))
	for _, v := range r.Votes {
		b = appendRound(b, v.TailRound)
		b = appendBool(b, v.Confirmed)
		b = appendServers(b, v.Voters)
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Known)))
	for _, k := range r.Known {
		b = binary.LittleEndian.AppendUint32(b, uint32(k.Voter))
		b = binary.LittleEndian.AppendUint64(b, uint64(k.Round))
		b = binary.LittleEndian.AppendUint64(b, uint64(k.Epoch))
		b = appendBool(b, k.Reliable)
		b = appendBool(b, k.Confirmed)
		b = appendServers(b, k.Origins)
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Former)))
	for _, former := range r.Former {
		b = appendMembership(b, former.Membership)
		b = binary.LittleEndian.AppendUint64(b, former.Until)
	}
	if bounded || len(r.Recorded)+len(r.Vouched) > 0 {
		b = appendRounds(b, r.Recorded)
	}
	if bounded || len(r.Vouched) > 0 {
		b = appendRounds(b, r.Vouched)
	}
	return b
}

func appendRounds(b []byte, rounds []TailRound) []byte {
	b = append(b, byte(len(rounds)))
	for _, r := range rounds {
		b = appendRound(b, r)
	}
	return b
}

// appendDecision appends a decision, with its bound if it is bounded.
func appendDecision(b []byte, d *Decision, bounded bool) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Generation))
	b = appendHead(b, d.Base)
	if bounded {
		b = append(b, byte(d.Bound))
	}
	b = append(b, byte(len(d.Tail)))
	for _, r := range d.Tail {
		b = appendRound(b, r)
	}
	b = appendServers(b, d.Members)
	for _, disk := range d.Disks {
		b = append(b, disk[:]...)
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
	if m.Kind == KindPromise {
		flags |= flagReport
	}
	if m.Kind == KindAccepted {
		flags |= flagDisk
	}
	version, bounded := byte(wireVersion), m.bounded()
	switch {
	case m.log():
		version = wireVersionLog
	case bounded:
		version = wireVersionBound
	case m.Kind != KindPromise:
	case len(m.Report.Vouched) > 0:
		version = wireVersionVouched
	case len(m.Report.Recorded) > 0:
		version = wireVersionRecords
	}
	b = append(b, version, byte(m.Kind), flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Generation))
	b = appendBallot(b, m.Ballot)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Working))
	b = appendBallot(b, m.Accepted)
	b = appendServers(b, m.Holders)
	if m.Kind == KindAccepted {
		b = appendBool(append(b, m.Disk[:]...), m.Original)
	}
	if m.Kind == KindPromise {
		b = appendReport(b, m.Report, bounded)
	}
	if m.Value != nil {
		b = appendDecision(b, m.Value, bounded)
	}
	if m.Known != nil {
		b = appendDecision(b, m.Known, bounded)
	}
	return b
}

// bounded reports whether a message is about a run with another bound than AllConcur's.
func (m Message) bounded() bool {
	return m.Kind == KindPromise && m.Report.Bound != 0 || anyBounded(m.Value, m.Known)
}

// log reports whether a message is about a run that was ordered by a log.
func (m Message) log() bool {
	return m.Kind == KindPromise && m.Report.Bound.Log() || anyLog(m.Value, m.Known)
}

// anyLog reports whether a decision follows a run that was ordered by a log.
func anyLog(decisions ...*Decision) bool {
	return slices.ContainsFunc(decisions, func(d *Decision) bool {
		return d != nil && d.Bound.Log()
	})
}

// anyBounded reports whether a decision has another bound than AllConcur's.
func anyBounded(decisions ...*Decision) bool {
	return slices.ContainsFunc(decisions, func(d *Decision) bool {
		return d != nil && d.Bound != 0
	})
}

// DecodeMessage decodes a message. It accepts exactly the bytes that Encode returns for valid
// messages, and returns ErrMessage for any others.
func DecodeMessage(b []byte) (Message, error) {
	r := reader{bytes: b}
	switch version := r.u8(); version {
	case wireVersion:
	case wireVersionRecords:
		r.records = true
	case wireVersionVouched:
		r.records, r.vouched = true, true
	case wireVersionBound:
		r.records, r.vouched, r.bounded = true, true, true
	case wireVersionLog:
		r.records, r.vouched, r.bounded, r.logs = true, true, true, true
	default:
		return Message{}, fmt.Errorf("%w: version %d, this node reads only %d to %d", ErrMessage,
			version, wireVersion, wireVersionLog)
	}
	m := Message{Kind: Kind(r.u8())}
	flags := r.u8()
	m.Generation = Generation(r.u64())
	m.Ballot = r.ballot()
	m.Working = Generation(r.u64())
	m.Accepted = r.ballot()
	m.Holders = r.servers()
	m.Regroup = flags&flagRegroup != 0
	if flags&flagDisk != 0 {
		m.Disk, m.Original = r.disk(), r.bool()
	}
	if flags&flagReport != 0 {
		m.Report = r.report()
	}
	if flags&flagValue != 0 {
		m.Value = r.decision()
	}
	if flags&flagKnown != 0 {
		m.Known = r.decision()
	}
	if err := r.end(); err != nil {
		return Message{}, err
	}
	if m.Kind < KindPrepare || m.Kind > KindRefuse || flags&^byte(flagsAll) != 0 ||
		flags&flagReport != 0 != (m.Kind == KindPromise) ||
		flags&flagDisk != 0 != (m.Kind == KindAccepted) ||
		r.bounded != m.bounded() || r.logs != m.log() ||
		!r.bounded && r.vouched != (len(m.Report.Vouched) > 0) ||
		r.records && !r.vouched && len(m.Report.Recorded) == 0 {
		return Message{}, fmt.Errorf("%w: kind %d, flags %#x", ErrMessage, m.Kind, flags)
	}
	return m, nil
}

// stateMagic begins the state's file and names its format. stateMagicBound is that of a state with
// a decision after a run with another bound than AllConcur's, and stateMagicLog that of one with a
// decision after a run that was ordered by a log. Programs that know of none refuse it.
// stateMagicV2 is an older format. In it, a disk took 8 bytes, which are the first 8 of the 16
// here, and memberships and ballots named no disk.
const (
	stateMagic      = "ledgerd generation 3\n"
	stateMagicBound = "ledgerd generation 4\n"
	stateMagicLog   = "ledgerd generation 5\n"
	stateMagicV2    = "ledgerd generation 2\n"
)

// Encode returns the bytes of the state's file: magic, fields, CRC-32C.
func (s State) Encode() []byte {
	b, bounded := []byte(stateMagic), anyBounded(s.AcceptedValue, s.Decided)
	if bounded {
		b = []byte(stateMagicBound)
	}
	if anyLog(s.AcceptedValue, s.Decided) {
		b = []byte(stateMagicLog)
	}
	var flags byte
	if s.AcceptedValue != nil {
		flags |= flagValue
	}
	if s.Decided != nil {
		flags |= flagKnown
	}
	b = append(b, flags)
	b = append(b, s.Disk[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Activated))
	b = appendMembership(b, s.Shard)
	b = appendHead(b, s.Start)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Instance))
	b = appendBallot(b, s.Promised)
	b = appendBallot(b, s.Accepted)
	if s.AcceptedValue != nil {
		b = appendDecision(b, s.AcceptedValue, bounded)
	}
	if s.Decided != nil {
		b = appendDecision(b, s.Decided, bounded)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// DecodeState decodes the bytes of a state's file. No bytes decode to the zero value, the state of
// a new node. It returns ErrMessage for bytes that are not from Encode, in this version or an older
// one.
func DecodeState(b []byte) (State, error) {
	if len(b) == 0 {
		return State{}, nil
	}
	magic := ""
	if len(b) >= len(stateMagic)+4 {
		magic = string(b[:len(stateMagic)])
	}
	if !slices.Contains([]string{stateMagic, stateMagicBound, stateMagicLog, stateMagicV2}, magic) {
		return State{}, fmt.Errorf("%w: no generation file of this version", ErrMessage)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return State{}, fmt.Errorf("%w: the generation file is damaged", ErrMessage)
	}
	r := reader{bytes: body[len(stateMagic):], v2: magic == stateMagicV2,
		bounded: magic == stateMagicBound || magic == stateMagicLog, logs: magic == stateMagicLog}
	flags := r.u8()
	s := State{Disk: r.disk(), Activated: Run(r.u64()), Shard: r.membership()}
	if !r.v2 {
		s.Start = r.head()
	}
	s.Instance, s.Promised, s.Accepted = Generation(r.u64()), r.ballot(), r.ballot()
	if flags&flagValue != 0 {
		s.AcceptedValue = r.decision()
	}
	if flags&flagKnown != 0 {
		s.Decided = r.decision()
	}
	if err := r.end(); err != nil {
		return State{}, err
	}
	if flags&^byte(flagValue|flagKnown) != 0 ||
		r.bounded != anyBounded(s.AcceptedValue, s.Decided) ||
		r.logs != anyLog(s.AcceptedValue, s.Decided) {
		return State{}, fmt.Errorf("%w: flags %#x, format %q", ErrMessage, flags, magic)
	}
	return s, nil
}

// reader takes fixed-size fields from a slice. Past the end it returns zeros. It records why the
// bytes are short or not valid.
type reader struct {
	bytes  []byte
	broken string
	v2     bool // a state of version 2
	// records says that a report has recorded rounds, vouched that it also has vouched ones.
	records, vouched bool
	// bounded says that reports and decisions have bounds, and logs that one of these is a log's.
	bounded, logs bool
}

func (r *reader) fail(why string) {
	if r.broken == "" {
		r.broken = why
	}
	r.bytes = nil
}

func (r *reader) take(n int) []byte {
	if len(r.bytes) < n {
		r.fail("it ends early")
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

func (r *reader) bool() bool {
	value := r.u8()
	if value > 1 {
		r.fail("a boolean is neither 0 nor 1")
	}
	return value == 1
}

func (r *reader) ballot() Ballot {
	b := Ballot{Number: r.u64(), Proposer: order.ServerID(r.u32())}
	if !r.v2 {
		b.Disk = r.disk()
	}
	return b
}

func (r *reader) disk() (disk DiskID) {
	size := len(disk)
	if r.v2 {
		size = 8
	}
	copy(disk[:], r.take(size))
	return disk
}

// count reads the number of elements that follow, of at least size bytes each.
func (r *reader) count(size int) int {
	count := int(r.u16())
	if size*count > len(r.bytes) {
		r.fail("it lists more than it has")
		return 0
	}
	return count
}

func (r *reader) head() Head {
	h := Head{Generation: Generation(r.u64()), Height: r.u64()}
	copy(h.Hash[:], r.take(len(h.Hash)))
	h.Round = order.Round(r.u64())
	return h
}

func (r *reader) servers() []order.ServerID {
	count := int(r.u16())
	if count > serversMax || 4*count > len(r.bytes) {
		r.fail("it lists too many servers")
		return nil
	}
	var servers []order.ServerID
	for range count {
		servers = append(servers, order.ServerID(r.u32()))
	}
	if !ascending(servers) {
		r.fail("servers are not in order")
	}
	return servers
}

func (r *reader) membership() Membership {
	m := Membership{Number: r.u64(), Members: r.servers()}
	if r.v2 {
		return m
	}
	for range r.count(len(DiskID{})) {
		m.Disks = append(m.Disks, r.disk())
	}
	if !m.sound() {
		r.fail("not every member has a disk")
	}
	return m
}

func (r *reader) round() TailRound {
	t := TailRound{Round: order.Round(r.u64()), Epoch: order.Epoch(r.u64()), Reliable: r.bool(),
		Origins: r.servers(), Removed: r.servers()}
	copy(t.Content[:], r.take(len(t.Content)))
	return t
}

// bound reads a bound, if there are any.
func (r *reader) bound() Bound {
	if !r.bounded {
		return 0
	}
	b := Bound(r.u8())
	if !b.sound() || b.Log() && !r.logs {
		r.fail("no engine has this bound")
		return 0
	}
	return b
}

// rounds reads a number of rounds.
func (r *reader) rounds(most int) int {
	count := int(r.u8())
	if count > most {
		r.fail("it has too many rounds")
		return 0
	}
	return count
}

func (r *reader) report() Report {
	p := Report{Head: r.head(), Disk: r.disk(), Original: r.bool(), Durable: r.u64(),
		Perhaps: r.bool(), PerhapsTo: r.u64(), Run: Run(r.u64()), Restarted: r.bool(),
		Shard:      r.membership(),
		Membership: r.membership(), Bound: r.bound()}
	if p.Bound.Log() {
		p.Last = LogEnd{Stamp: r.u64(), Index: r.u64()}
	}
	for i := range r.rounds(p.Bound.Votes()) {
		v := Vote{TailRound: r.round(), Confirmed: r.bool(), Voters: r.servers()}
		if i > 0 && v.Round != p.Votes[i-1].Round+1 {
			r.fail("votes are not for successive rounds")
		}
		p.Votes = append(p.Votes, v)
	}
	for range r.count(4 + 8 + 8 + 2 + 2) {
		p.Known = append(p.Known, KnownVote{Voter: order.ServerID(r.u32()),
			Round: order.Round(r.u64()),
			Epoch: order.Epoch(r.u64()), Reliable: r.bool(), Confirmed: r.bool(),
			Origins: r.servers()})
	}
	for range r.count(8 + 2 + 2 + 8) {
		p.Former = append(p.Former, Former{Membership: r.membership(), Until: r.u64()})
	}
	if !r.records {
		return p
	}
	for i := range r.rounds(votesOfAllConcur) {
		recorded := r.round()
		if i > 0 && recorded.Round != p.Recorded[i-1].Round+1 {
			r.fail("recorded rounds are not successive")
		}
		if recorded.Reliable || len(recorded.Removed) > 0 {
			r.fail("a recorded round is not complete")
		}
		p.Recorded = append(p.Recorded, recorded)
	}
	if !r.vouched {
		return p
	}
	for i := range r.rounds(votesOfAllConcur) {
		vouched := r.round()
		if i > 0 && vouched.Round <= p.Vouched[i-1].Round || len(vouched.Removed) > 0 {
			r.fail("vouched rounds are not ascending, or remove servers")
		}
		p.Vouched = append(p.Vouched, vouched)
	}
	return p
}

func (r *reader) decision() *Decision {
	d := &Decision{Generation: Generation(r.u64()), Base: r.head(), Bound: r.bound()}
	for range r.rounds(d.Bound.Tail()) {
		d.Tail = append(d.Tail, r.round())
	}
	d.Members = r.servers()
	for range d.Members {
		d.Disks = append(d.Disks, r.disk())
	}
	if !d.sound() {
		r.fail("a decision is inconsistent")
	}
	return d
}

func (r *reader) end() error {
	if r.broken != "" {
		return fmt.Errorf("%w: %s", ErrMessage, r.broken)
	}
	if len(r.bytes) > 0 {
		return fmt.Errorf("%w: %d bytes too many", ErrMessage, len(r.bytes))
	}
	return nil
}
