package state

import (
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// Schedules (ledger.Schedule). In a book of several shards they are at the root of the tree, which
// reaches every account. So a schedule stays where it is when its organisations move, and an
// occurrence goes down the tree as any other transaction across shards.
//
// What always holds:
//
//   - A block has exactly the occurrences that are due, in the order of their times and ids, up to
//     MaxDue of them. They follow from the state before the block and from its time. A block with
//     others is out of place.
//   - An occurrence is issued once, whatever its result is, and none after the end of its schedule.
//   - A schedule is placed once: before its first time only, and until then the state has it, even
//     if it has ended.
//   - A schedule leaves the state with its last occurrence, so the state is bounded by those that
//     are open.

// Bounds of the schedules that are open.
const (
	// MaxSchedules bounds those of one organisation.
	MaxSchedules = 1 << 10
	// SureSchedules is how many each organisation may have, whatever others have.
	SureSchedules = 1 << 4
	// MaxAllSchedules bounds those of all organisations beyond these.
	MaxAllSchedules = 1 << 16
	// MaxDue bounds the occurrences of one block. Others follow in the next blocks.
	MaxDue = 1 << 8
)

// scheduled is a schedule, as an entry of the state.
type scheduled struct {
	id ledger.Hash
	// placed is the transaction that placed it, as far as it says what the occurrences are.
	placed ledger.Transaction
	// issued is the number of occurrences that blocks have.
	issued uint64
	// over says that the schedule has ended before its first time, at which it leaves the state.
	over bool
	// next is the time of the next occurrence. place is that in the heap. ended says that it has
	// left the state.
	next  ledger.Milliseconds
	place int
	ended bool
	mark  mark
}

// scheduleSet are the schedules that are open.
type scheduleSet struct {
	by map[ledger.Hash]*scheduled
	// next has the schedule whose next occurrence comes first at its beginning.
	next scheduleHeap
	// of counts those of each organisation, and shared those beyond the first sure ones of each.
	of     holdCounts
	shared int
}

func newScheduleSet() scheduleSet {
	return scheduleSet{by: make(map[ledger.Hash]*scheduled), of: make(holdCounts)}
}

// scheduleHeap is a heap by the time of the next occurrence, and then by id.
type scheduleHeap []*scheduled

func (h scheduleHeap) Len() int           { return len(h) }
func (h scheduleHeap) Less(i, j int) bool { return h[i].before(h[j]) }

func (s *scheduled) before(other *scheduled) bool {
	return cmp.Or(cmp.Compare(s.next, other.next), bytes.Compare(s.id[:], other.id[:])) < 0
}

func (h scheduleHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push adds a schedule. It is for container/heap.
func (h *scheduleHeap) Push(each any) {
	added := each.(*scheduled)
	added.place = len(*h)
	*h = append(*h, added)
}

// Pop removes and returns the last schedule. It is for container/heap.
func (h *scheduleHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}

// Scheduled is a schedule that is open.
type Scheduled struct {
	ID     ledger.Hash             `json:"id"`
	Signer ledger.OrganisationName `json:"signer"`
	ledger.Schedule
	Note []byte `json:"note,omitempty"`
	// Issued is the number of occurrences that blocks have, and Next the time of the next one.
	Issued uint64              `json:"issued"`
	Next   ledger.Milliseconds `json:"next"`
}

// Schedule returns a schedule that is open.
func (s *State) Schedule(id ledger.Hash) (Scheduled, bool) {
	found := s.schedules.by[id]
	if found == nil || found.over {
		return Scheduled{}, false
	}
	return found.public(), true
}

func (s *scheduled) public() Scheduled {
	return Scheduled{ID: s.id, Signer: s.placed.Signer, Schedule: *s.placed.Schedule,
		Note: s.placed.Note, Issued: s.issued, Next: s.next}
}

// SchedulesOf returns the schedules of an organisation, or all if it is "", that are open, in the
// order of their next occurrences.
func (s *State) SchedulesOf(name ledger.OrganisationName) (of []Scheduled) {
	for _, each := range s.schedules.by {
		if !each.over && (name == "" || each.placed.Signer == name) {
			of = append(of, each.public())
		}
	}
	slices.SortFunc(of, func(a, b Scheduled) int {
		return cmp.Or(cmp.Compare(a.Next, b.Next), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return of
}

// IsDue reports whether a block of a time would have an occurrence. A member for whose clock that
// is so proposes a batch even if it has nothing else, so that an idle chain makes the block.
func (s *State) IsDue(at ledger.Milliseconds) bool {
	return s.firstBy(at) != nil && len(s.Due(at)) > 0
}

// firstBy returns the schedule at the beginning of the heap, if its next time is not after at.
func (s *State) firstBy(at ledger.Milliseconds) *scheduled {
	if len(s.schedules.next) == 0 || s.schedules.next[0].next > at {
		return nil
	}
	return s.schedules.next[0]
}

// Due returns the occurrences that the next block has, given its time. It changes nothing.
func (s *State) Due(at ledger.Milliseconds) (due []ledger.Transaction) {
	var coming scheduleHeap
	most := MaxDue
	switch s.fault {
	case FaultDueEarly:
		at += impatience * 20
	case FaultDueOneByOne:
		most = 1
	}
	// No schedule below one that is not due is due either.
	for look := []int{0}; len(look) > 0; look = look[1:] {
		if i := look[0]; i < len(s.schedules.next) && s.schedules.next[i].next <= at {
			if each := *s.schedules.next[i]; !each.over {
				coming = append(coming, &each)
			}
			look = append(look, 2*i+1, 2*i+2)
		}
	}
	heap.Init(&coming)
	for len(coming) > 0 && len(due) < most {
		first := coming[0]
		due = append(due, ledger.OccurrenceOf(&first.placed, first.id, first.issued+1))
		if first.advance(); first.issued == first.placed.Schedule.Occurrences() ||
			first.next > at {
			heap.Pop(&coming)
		} else {
			heap.Fix(&coming, 0)
		}
	}
	return due
}

// advance counts another occurrence as issued.
func (s *scheduled) advance() {
	s.issued++
	s.next = s.placed.Schedule.TimeOf(s.issued + 1)
}

// missesDue returns 1 if a block does not have exactly the occurrences that are due, or 0.
func (s *State) missesDue(block *ledger.Block) int {
	due := s.Due(s.time)
	for i := range block.Unpacked {
		entry := &block.Unpacked[i]
		if entry.Decoded.Occurrence == nil || block.Bundles[entry.Bundle].Number != 0 {
			continue
		}
		if len(due) == 0 {
			return 1
		}
		if want, _ := ledger.OccurrenceEntry(&due[0], 0); want.ID != entry.ID {
			return 1
		}
		due = due[1:]
	}
	if len(due) > 0 {
		return 1
	}
	return 0
}

// issue takes the next occurrence of a schedule from it, whatever its result will be. It returns
// false if the entry is not that, or not due.
func (s *State) issue(entry *ledger.Entry, seal *ledger.BundleSeal) bool {
	o := entry.Decoded.Occurrence
	found := s.schedules.by[o.Schedule]
	if found == nil || found.over || found.next > s.time && s.fault != FaultDueEarly ||
		o.Number != found.issued+1 ||
		len(seal.IDs) != 1 || len(seal.Signatures) != 0 {
		return false
	}
	next := ledger.OccurrenceOf(&found.placed, found.id, o.Number)
	if want, _ := ledger.OccurrenceEntry(&next, 0); want.ID != entry.ID {
		return false
	}
	s.touchSchedule(found)
	if found.advance(); found.issued == found.placed.Schedule.Occurrences() {
		s.dropSchedule(found)
	} else {
		heap.Fix(&s.schedules.next, found.place)
	}
	return true
}

// applyUnpacked executes an entry of a book of one shard.
func (s *State) applyUnpacked(entry *ledger.Entry, seal *ledger.BundleSeal) ledger.Result {
	if entry.Decoded.Occurrence != nil && !s.issue(entry, seal) {
		return whole(ledger.OutOfPlace)
	}
	return s.apply(entry.Decoded, seal.Root, seal.Signatures)
}

// attemptScheduling decides on a schedule, or on the end of one. It changes nothing.
func (s *State) attemptScheduling(t *ledger.Transaction,
	signatures []ledger.Signature) ledger.Code {
	if t.ScheduleEnd != nil {
		return s.attemptScheduleEnd(t, signatures)
	}
	return s.attemptSchedule(t, signatures)
}

// commitSchedule places or ends the schedule that a transaction places or ends.
func (s *State) commitSchedule(t *ledger.Transaction) {
	if t.Schedule != nil {
		s.placeSchedule(t)
	}
	if t.ScheduleEnd != nil {
		s.endSchedule(s.schedules.by[t.ScheduleEnd.Schedule])
	}
}

func (s *State) attemptSchedule(t *ledger.Transaction,
	signatures []ledger.Signature) ledger.Code {
	if !ledger.TakesSchedules(s.Version()) {
		return ledger.OutOfPlace // sealing leaves it out before the chain has the version
	}
	if code := s.attemptKeeper(t, t.Schedule.Shard, signatures); code != ledger.Applied {
		return code
	}
	for i := range t.Schedule.Postings {
		if s.organisations[t.Schedule.Postings[i].Account.Organisation()] == nil {
			return ledger.UnknownOrganisation
		}
	}
	set := &s.schedules
	ahead, has := t.Schedule.First-s.time, set.of[t.Signer]
	switch {
	case ahead <= 0 || ahead > ledger.MaxScheduleTime:
		return ledger.ScheduleTime
	case set.by[s.id] != nil:
		return ledger.SchedulePlaced
	case has >= SureSchedules && (has >= MaxSchedules || set.shared >= MaxAllSchedules):
		return ledger.TooManySchedules
	}
	return ledger.Applied
}

// attemptKeeper decides whether the signer of a schedule, or of its end, has signed, and whether
// the schedule is at this shard.
func (s *State) attemptKeeper(t *ledger.Transaction, shard ledger.ShardID,
	signatures []ledger.Signature) ledger.Code {
	if code := s.authorised(t.Signer, t, signatures); code != ledger.Applied {
		return code
	}
	if s.parent != nil || shard != s.shard {
		return ledger.UnknownShard
	}
	return ledger.Applied
}

// attemptScheduleEnd decides on the end of a schedule. It changes nothing.
func (s *State) attemptScheduleEnd(t *ledger.Transaction,
	signatures []ledger.Signature) ledger.Code {
	if !ledger.TakesSchedules(s.Version()) {
		return ledger.OutOfPlace
	}
	if code := s.attemptKeeper(t, t.ScheduleEnd.Shard, signatures); code != ledger.Applied {
		return code
	}
	found := s.schedules.by[t.ScheduleEnd.Schedule]
	if found == nil || found.over ||
		found.placed.Signer != t.Signer && s.fault != FaultScheduleEndsByAnyone {
		return ledger.UnknownSchedule
	}
	return ledger.Applied
}

// placeSchedule places a schedule that attemptSchedule allowed.
func (s *State) placeSchedule(t *ledger.Transaction) {
	schedule := *t.Schedule
	schedule.Postings = slices.Clone(schedule.Postings)
	for i := range schedule.Postings {
		p := &schedule.Postings[i]
		p.Account = ledger.AccountPath(strings.Clone(string(p.Account)))
		p.Asset = ledger.AssetName(strings.Clone(string(p.Asset)))
	}
	placed := &scheduled{id: s.id, mark: mark{touched: true}, next: schedule.First,
		placed: ledger.Transaction{Ledger: s.ledger, Signer: s.organisations[t.Signer].Name,
			Schedule: &schedule, Note: bytes.Clone(t.Note)}}
	s.addSchedule(placed)
	s.touchedSchedules = append(s.touchedSchedules, placed)
}

func (s *State) addSchedule(added *scheduled) {
	s.schedules.by[added.id] = added
	s.schedules.count(added.placed.Signer, 1)
	heap.Push(&s.schedules.next, added)
}

// count counts so many more schedules of an organisation.
func (s *scheduleSet) count(of ledger.OrganisationName, more int) {
	before := s.of[of]
	s.shared += max(0, before+more-SureSchedules) - max(0, before-SureSchedules)
	if s.of[of] = before + more; before+more == 0 {
		delete(s.of, of)
	}
}

// endSchedule ends a schedule of which there are occurrences to come. Before its first time the
// state keeps it, so that the transaction that placed it does not place it again.
func (s *State) endSchedule(found *scheduled) {
	if s.fault == FaultScheduleGoesOn {
		return
	}
	s.touchSchedule(found)
	if found.issued == 0 && found.next > s.time {
		found.over = true
	} else {
		s.dropSchedule(found)
	}
}

// dropSchedule removes a schedule that was touched from the state.
func (s *State) dropSchedule(found *scheduled) {
	found.ended = true
	heap.Remove(&s.schedules.next, found.place)
	delete(s.schedules.by, found.id)
	s.schedules.count(found.placed.Signer, -1)
}

// lapseSchedules removes schedules that ended before their first time, which has come. It runs
// before the entries of a block.
func (s *State) lapseSchedules() {
	for range MaxDue {
		found := s.firstBy(s.time)
		if found == nil || !found.over {
			break
		}
		s.touchSchedule(found)
		s.dropSchedule(found)
	}
}

func (s *State) touchSchedule(found *scheduled) {
	if !found.mark.touched {
		found.mark = s.keep(found.appendEntry)
		s.touchedSchedules = append(s.touchedSchedules, found)
	}
}

// finishSchedules collects the changes of schedules.
func (s *State) finishSchedules(changes *Changes) {
	for _, each := range s.touchedSchedules {
		if each.ended {
			s.remove(changes, each.mark)
		} else {
			s.settle(changes, each.mark, each.appendEntry)
		}
		each.mark = mark{}
	}
	clear(s.touchedSchedules)
	s.touchedSchedules = s.touchedSchedules[:0]
}

// appendEntry appends the entry: the id; signer, schedule, note, how many occurrences were issued,
// and whether it ended before its first time.
func (s *scheduled) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = append(append(append(to, kindSchedule), s.id[:]...), 0)
	keyLength = len(to) - start
	to = s.placed.Schedule.Append(codec.AppendString(to, s.placed.Signer))
	to = binary.AppendUvarint(codec.AppendString(to, s.placed.Note), s.issued)
	return codec.AppendBool(to, s.over), keyLength
}

// restoreSchedule puts the entry of a schedule into the state. It reports whether there was one
// already.
func (s *State) restoreSchedule(key []byte, r *reader) (of entry, again bool, err error) {
	restored, err := r.scheduled(key)
	if err != nil || s.schedules.by[restored.id] != nil {
		return restored, err == nil, err
	}
	restored.placed.Ledger = s.ledger
	s.schedules.by[restored.id] = restored
	return restored, false, nil
}

// scheduled reads the entry of a schedule.
func (r *reader) scheduled(key []byte) (*scheduled, error) {
	if !IsScheduleKey(key) {
		return nil, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	each := &scheduled{id: ledger.Hash(key[1 : 1+ledger.HashSize])}
	each.placed.Signer = r.organisationName()
	if r.Err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEntry, r.Err)
	}
	schedule, size, err := ledger.DecodeSchedule(r.Data, each.placed.Signer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	r.Take(size)
	each.placed.Schedule = schedule
	each.placed.Note = r.Bytes("bytes of note", ledger.MaxScheduleNote)
	each.issued, each.over = r.Uvarint(), r.Bool()
	if r.Err == nil && (each.issued >= schedule.Occurrences() || each.over && each.issued > 0) {
		r.Fail("a schedule of which %d occurrences were issued", each.issued)
	}
	each.next = schedule.TimeOf(each.issued + 1)
	return each, nil
}

// completeSchedules makes what follows from the schedules after all entries were restored.
func (s *State) completeSchedules() {
	all := s.schedules.by
	s.schedules = newScheduleSet()
	for _, each := range all {
		s.addSchedule(each)
	}
	if s.fault == FaultSchedulesNotResumed {
		s.schedules.next = nil
	}
}

// AppendScheduleKey appends the key of the entry of a schedule.
func AppendScheduleKey(to []byte, id ledger.Hash) []byte {
	return append(append(append(to, kindSchedule), id[:]...), 0)
}

// IsScheduleKey reports whether an entry with this key is one of a schedule.
func IsScheduleKey(key []byte) bool {
	return len(key) == 1+ledger.HashSize+1 && key[0] == kindSchedule
}

// DecodeScheduled decodes the entry of a schedule, or returns ErrEntry. It reports whether the
// schedule is open.
func DecodeScheduled(key, value []byte) (found Scheduled, open bool, err error) {
	r := read(value)
	each, err := r.scheduled(key)
	if err != nil {
		return Scheduled{}, false, err
	}
	if err := r.End(); err != nil {
		return Scheduled{}, false, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	return each.public(), !each.over, nil
}
