package shards

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
)

// ErrMalformed means that bytes are no message of this package.
var ErrMalformed = errors.New("shards: malformed message")

const (
	announcementVersion = 1
	announcementNumbers = 8
	// The size before the texts and lists.
	announcementFixed = 1 + 1 + 4 + announcementNumbers*8 + ledger.HashSize
	streamedSize      = 4 + 8
	// What an announcement says of the membership.
	announcedGenesis    = 0
	announcedMembership = 1
	announcedEpoch      = 2
	// apiAddressMax bounds the API's address in an announcement, in bytes. A longer address is left
	// out.
	apiAddressMax = math.MaxUint8

	fullVersion = 1
	// fullMax bounds the shards that a shard says it is full for. More of them are down to other
	// shards in any case.
	fullMax = 64

	verdictsVersion = 1
	// testimoniesVersion is the version of a question for testimonies about lost shards.
	testimoniesVersion = 2
	// groupVersion is the version of a message with a group of verdicts.
	groupVersion = 2
	verdictSize  = ledger.HashSize + 4 + ledger.ResultSize
	// verdictsMax bounds the verdicts of one message, and queryMax the transactions of a query.
	// Both keep messages short on a lane of small, urgent messages.
	verdictsMax = 1024
	queryMax    = 1024
)

// Encode returns the announcement's encoding, little-endian: version u8, mode u8, shard u32, then
// u64 each: heights (ordered, stored, durable), transactions, accounts, pending, carried, number of
// the membership or the epoch; the head's hash; the API's address after its length u8; the streams
// after their number u16, each the child u32 and the number u64; a byte that is 0 for neither
// membership nor epoch, 2 for an epoch, or 1 if the membership follows: height u64, round u64,
// members after their number u16, each the index u32, joined u64, then after their lengths the key
// (u8), the name (u8) and the address (u16).
func (a *Announcement) Encode() []byte {
	b := make([]byte, 0, announcementFixed+64+len(a.APIAddress)+len(a.Streamed)*streamedSize)
	b = binary.LittleEndian.AppendUint32(append(b, announcementVersion, byte(a.Mode)),
		uint32(a.Shard))
	number := uint64(a.Epoch)
	if a.Membership != nil {
		number = a.Membership.Number
	}
	for _, value := range [announcementNumbers]uint64{uint64(a.Heights.Ordered),
		uint64(a.Heights.Stored), uint64(a.Heights.Durable), a.Transactions, a.Accounts, a.Pending,
		a.Carried, number} {
		b = binary.LittleEndian.AppendUint64(b, value)
	}
	b = append(b, a.Head[:]...)
	address := a.APIAddress
	if len(address) > apiAddressMax {
		address = ""
	}
	b = append(append(b, byte(len(address))), address...)
	streamed := a.Streamed[:min(len(a.Streamed), ledger.MaxShards)]
	b = binary.LittleEndian.AppendUint16(b, uint16(len(streamed)))
	for _, stream := range streamed {
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b,
			uint32(stream.Child)), stream.Number)
	}
	switch {
	case a.Membership != nil:
		return appendMembership(append(b, announcedMembership), a.Membership)
	case a.Epoch > 0:
		return append(b, announcedEpoch)
	}
	return append(b, announcedGenesis)
}

func appendMembership(b []byte, membership *ledger.Membership) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(membership.Height))
	b = binary.LittleEndian.AppendUint64(b, uint64(membership.Round))
	list := membership.Members[:min(len(membership.Members), ledger.MaxMembers)]
	b = binary.LittleEndian.AppendUint16(b, uint16(len(list)))
	for i := range list {
		member := &list[i]
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b,
			uint32(member.Index)), uint64(member.Joined))
		// A chain's member is within these bounds.
		key, name, address := member.Key[:min(len(member.Key), ledger.MaxMemberKey)],
			member.Name[:min(len(member.Name), math.MaxUint8)],
			member.Address[:min(len(member.Address), ledger.MaxAddress)]
		b = append(append(b, byte(len(key))), key...)
		b = append(append(b, byte(len(name))), name...)
		b = append(binary.LittleEndian.AppendUint16(b, uint16(len(address))), address...)
	}
	return b
}

// DecodeAnnouncement reads the encoding of Encode, or returns ErrMalformed. The result shares no
// memory with b. The membership is bounded, but not validated.
func DecodeAnnouncement(b []byte) (a Announcement, err error) {
	r := reader{rest: b}
	if version := r.uint8(); version != announcementVersion {
		r.fail("an announcement of version %d", version)
	}
	a.Mode, a.Shard = report.NodeMode(r.uint8()), ledger.ShardID(r.uint32())
	if a.Mode < report.ModeStarting || a.Mode > report.ModeStopping {
		r.fail("mode %d", a.Mode)
	}
	a.Heights = report.Heights{Ordered: ledger.Height(r.uint64()),
		Stored: ledger.Height(r.uint64()), Durable: ledger.Height(r.uint64())}
	a.Transactions, a.Accounts, a.Pending, a.Carried = r.uint64(), r.uint64(), r.uint64(),
		r.uint64()
	number := r.uint64()
	copy(a.Head[:], r.take(ledger.HashSize))
	a.APIAddress = r.text(int(r.uint8()))
	if count := r.count(int(r.uint16()), ledger.MaxShards, streamedSize); count > 0 {
		a.Streamed = make([]Streamed, count)
		for i := range a.Streamed {
			a.Streamed[i] = Streamed{Child: ledger.ShardID(r.uint32()), Number: r.uint64()}
		}
	}
	switch has := r.uint8(); {
	case has == announcedMembership:
		a.Membership = r.membership(number)
	case has == announcedEpoch && number > 0:
		a.Epoch = ledger.MembersEpoch(number)
	case has != announcedGenesis || number != 0:
		r.fail("membership %d is said to be %d", number, has)
	}
	if err := r.end(); err != nil {
		return Announcement{}, err
	}
	return a, nil
}

func (r *reader) membership(number uint64) *ledger.Membership {
	m := &ledger.Membership{Number: number, Height: ledger.Height(r.uint64()),
		Round: ledger.Round(r.uint64())}
	m.Members = make([]ledger.GroupMember, r.count(int(r.uint16()), ledger.MaxMembers, 4+8+1+1+2))
	for i := range m.Members {
		member := &m.Members[i]
		member.Index, member.Joined = ledger.MemberIndex(r.uint32()), ledger.Height(r.uint64())
		member.Key = append([]byte(nil), r.take(r.count(int(r.uint8()), ledger.MaxMemberKey, 1))...)
		member.Name = r.text(int(r.uint8()))
		member.Address = r.text(r.count(int(r.uint16()), ledger.MaxAddress, 1))
	}
	return m
}

// encodeFull encodes the shards that the sender's shard is full for, ascending, little-endian:
// version u8, then each u32. No shard means that it is not full any more.
func encodeFull(awaited []ledger.ShardID) []byte {
	awaited = awaited[:min(len(awaited), fullMax)]
	b := append(make([]byte, 0, 1+len(awaited)*4), fullVersion)
	for _, shard := range awaited {
		b = binary.LittleEndian.AppendUint32(b, uint32(shard))
	}
	return b
}

// decodeFull reads the encoding of encodeFull by a member of a shard, or returns ErrMalformed. The
// member may know of shards that were added to the book lately, and this node not yet.
func decodeFull(b []byte, of ledger.ShardID) ([]ledger.ShardID, error) {
	r := reader{rest: b}
	if version := r.uint8(); version != fullVersion {
		r.fail("full shards of version %d", version)
	}
	if len(r.rest) == 0 {
		return nil, r.err
	}
	awaited := make([]ledger.ShardID, r.list(fullMax, 4))
	for i := range awaited {
		awaited[i] = ledger.ShardID(r.uint32())
		if awaited[i] == of || awaited[i] >= ledger.MaxShards ||
			i > 0 && awaited[i] <= awaited[i-1] {
			r.fail("shard %d is full for %d", of, awaited[i])
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return awaited, nil
}

// encodeVerdicts encodes up to verdictsMax verdicts of one shard, little-endian: version u8, then
// for each the transaction's id, the shard u32, and the result as in package ledger.
func encodeVerdicts(verdicts []ledger.Verdict) []byte {
	b := append(make([]byte, 0, 1+len(verdicts)*verdictSize), verdictsVersion)
	for i := range verdicts {
		v := &verdicts[i]
		b = v.Result.Append(binary.LittleEndian.AppendUint32(append(b, v.ID[:]...),
			uint32(v.Shard)))
	}
	return b
}

// decodeVerdicts reads verdicts of one shard, or returns ErrMalformed. It rejects the whole message
// if one verdict is not one that a shard can give: in a batch it would spoil the others.
func decodeVerdicts(b []byte, shard ledger.ShardID) ([]ledger.Verdict, error) {
	r := reader{rest: b}
	if version := r.uint8(); version != verdictsVersion {
		r.fail("verdicts of version %d", version)
	}
	verdicts := make([]ledger.Verdict, r.list(verdictsMax, verdictSize))
	for i := range verdicts {
		id := ledger.Hash(r.take(ledger.HashSize))
		if from := ledger.ShardID(r.uint32()); from != shard {
			r.fail("a verdict of shard %d from shard %d", from, shard)
		}
		result, err := ledger.DecodeResult(r.take(ledger.ResultSize))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		verdicts[i] = ledger.Verdict{ID: id, Shard: shard, Result: result}
		if err := verdicts[i].Validate(); err != nil {
			r.fail("a verdict that says %s: %w", result.Code, err)
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return verdicts, nil
}

// encodeGroup encodes a group of one shard's verdicts, little-endian: version u8, the shard u32,
// and the transactions' ids.
func encodeGroup(group *ledger.VerdictGroup) []byte {
	b := append(make([]byte, 0, 1+4+len(group.IDs)*ledger.HashSize), groupVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(group.Shard))
	for i := range group.IDs {
		b = append(b, group.IDs[i][:]...)
	}
	return b
}

// isGroup reports whether a message with verdicts has a group.
func isGroup(b []byte) bool { return len(b) > 0 && b[0] == groupVersion }

// decodeGroup reads the encoding of encodeGroup by a member of a shard, or returns ErrMalformed. In
// a batch a group that is not valid would spoil the others.
func decodeGroup(b []byte, shard ledger.ShardID) (group ledger.VerdictGroup, err error) {
	r := reader{rest: b}
	if version := r.uint8(); version != groupVersion {
		r.fail("a group of version %d", version)
	}
	if group.Shard = ledger.ShardID(r.uint32()); group.Shard != shard {
		r.fail("a group of shard %d from shard %d", group.Shard, shard)
	}
	group.IDs = make([]ledger.Hash, r.list(ledger.MaxVerdictGroup, ledger.HashSize))
	for i := range group.IDs {
		group.IDs[i] = ledger.Hash(r.take(ledger.HashSize))
	}
	if err := r.end(); err != nil {
		return ledger.VerdictGroup{}, err
	}
	if err := group.Validate(); err != nil {
		return ledger.VerdictGroup{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return group, nil
}

// someTransaction stands for a client's transaction; only the result matters here.
var someTransaction ledger.Transaction

// encodeQuery encodes up to queryMax ids: version u8, then the ids. A question for testimonies has
// another version, and the subject u32 before the ids.
func encodeQuery(ids []ledger.Hash, subject ledger.Subject) []byte {
	b := append(make([]byte, 0, 1+4+len(ids)*ledger.HashSize), verdictsVersion)
	if subject != 0 {
		b = binary.LittleEndian.AppendUint32(append(b[:0], testimoniesVersion), uint32(subject))
	}
	for i := range ids {
		b = append(b, ids[i][:]...)
	}
	return b
}

// decodeQuery reads the encoding of encodeQuery, or returns ErrMalformed.
func decodeQuery(b []byte) (ids []ledger.Hash, subject ledger.Subject, err error) {
	r := reader{rest: b}
	switch version := r.uint8(); version {
	case verdictsVersion:
	case testimoniesVersion:
		if subject = ledger.Subject(r.uint32()); subject == 0 {
			r.fail("a question for testimonies about nothing")
		}
	default:
		r.fail("a question of version %d", version)
	}
	ids = make([]ledger.Hash, r.list(queryMax, ledger.HashSize))
	for i := range ids {
		ids[i] = ledger.Hash(r.take(ledger.HashSize))
	}
	if err := r.end(); err != nil {
		return nil, 0, err
	}
	return ids, subject, nil
}

// reader parses a message. After the first error it returns zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
}

// zeros are returned for reads past the end. It is as large as the largest size that take gets
// without count.
var zeros [ledger.MaxAddress]byte

// take returns the next bytes. The size must not exceed that of zeros.
func (r *reader) take(size int) []byte {
	if r.err != nil || len(r.rest) < size {
		r.fail("it ends early")
		return zeros[:size:size]
	}
	taken := r.rest[:size:size]
	r.rest = r.rest[size:]
	return taken
}

func (r *reader) uint8() uint8   { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// text reads size bytes of UTF-8.
func (r *reader) text(size int) string {
	text := string(r.take(size))
	if !utf8.ValidString(text) {
		r.fail("text that is no UTF-8")
	}
	return text
}

// count checks a number of elements against its bound and the rest of the message.
func (r *reader) count(count, most, size int) int {
	if r.err != nil || count > most || count*size > len(r.rest) {
		r.fail("%d elements in %d bytes, at most %d allowed", count, len(r.rest), most)
		return 0
	}
	return count
}

// list returns the number of elements, at least one, that fill the rest.
func (r *reader) list(most, size int) int {
	if count := len(r.rest) / size; count > 0 && count*size == len(r.rest) {
		return r.count(count, most, size)
	}
	r.fail("a list of %d bytes of elements of %d", len(r.rest), size)
	return 0
}

func (r *reader) end() error {
	if len(r.rest) > 0 {
		r.fail("%d bytes too many", len(r.rest))
	}
	return r.err
}
