package ledger

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// The first byte of the body of a transaction that places a schedule, of one that ends it, and of
// an occurrence.
const (
	scheduleVersion    = 18
	scheduleEndVersion = 19
	occurrenceVersion  = 20
)

// Bounds of schedules.
const (
	// MaxSchedulePostings bounds the postings of each occurrence.
	MaxSchedulePostings = 16
	// MaxScheduleNote bounds the bytes of the note of each occurrence.
	MaxScheduleNote = 256
	// MaxOccurrences bounds the occurrences of a schedule.
	MaxOccurrences = 1 << 12
	// MaxScheduleStep bounds the minutes, days, weeks or months between two occurrences.
	MaxScheduleStep = 366
	// MaxScheduleTime is how far ahead of a block a schedule in it may begin.
	MaxScheduleTime = Milliseconds(10 * 366 * day)
	// MaxScheduleSpan is the most time from the first occurrence of a schedule to the last one.
	MaxScheduleSpan = Milliseconds(50 * 366 * day)
)

const day = 24 * 60 * 60 * 1000

// Period is the unit of the time between two occurrences of a schedule.
type Period uint8

// The periods. Their numbers are part of the encoding and never change.
const (
	// Once is the period of a schedule that has one occurrence.
	Once Period = iota
	// Minutes are for what happens several times a day.
	Minutes
	// Days are 24 hours each, in UTC.
	Days
	// Weeks are 7 days each.
	Weeks
	// Months are those of the Gregorian calendar in UTC. An occurrence is on the day of the month
	// of the first one, or on the last day of a month that has no such day.
	Months
	periods
)

var periodNames = [periods]string{"once", "minutes", "days", "weeks", "months"}

// String returns the period in words.
func (p Period) String() string {
	if p < periods {
		return periodNames[p]
	}
	return fmt.Sprintf("period %d", uint8(p))
}

// ParsePeriod parses the output of Period.String.
func ParsePeriod(text string) (Period, error) {
	if at := slices.Index(periodNames[:], text); at >= 0 {
		return Period(at), nil
	}
	return Once, fmt.Errorf("%w: period %.20q, which is none of %v", ErrMalformed, text,
		periodNames)
}

// MarshalText returns the period in words.
func (p Period) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (p *Period) UnmarshalText(text []byte) error {
	parsed, err := ParsePeriod(string(text))
	*p = parsed
	return err
}

// Schedule makes a transaction place a schedule: an entry that is executed by itself at agreed
// times, once or again and again. The id of the transaction is that of the schedule. Its note, of
// at most MaxScheduleNote bytes, is that of each occurrence.
//
// A chain issues the occurrences in the order of their times, each once, in its first block whose
// time is that of the occurrence or later (see Occurrence). An occurrence may fail, as any entry.
// It is then skipped, and its result says why. Occurrences that fell due while there were no blocks
// follow in the next ones.
//
// Its signer consents to all occurrences at once, so all accounts that the postings take from are
// the signer's. The signer may end a schedule at any time (ScheduleEnd).
type Schedule struct {
	// Shard is the root of the book's tree, which issues the occurrences; 0 in a book of one shard.
	Shard    ShardID   `json:"shard"`
	Postings []Posting `json:"postings"`
	// First is the time of the first occurrence. There is another one every so many periods, up to
	// Count of them if it is not 0, and not after Until if that is not 0.
	First  Milliseconds `json:"first"`
	Period Period       `json:"period"`
	Every  uint64       `json:"every"`
	Count  uint64       `json:"count,omitempty"`
	Until  Milliseconds `json:"until,omitempty"`
}

// ScheduleEnd makes a transaction end a schedule of its signer. There are no occurrences after it.
type ScheduleEnd struct {
	// Shard is that of the schedule, and Schedule its id.
	Shard    ShardID `json:"shard"`
	Schedule Hash    `json:"schedule"`
}

// Occurrence makes a transaction an occurrence of a schedule. A block has it without a signature,
// in a bundle of its own: it follows from the schedule, and with it from the signatures of the
// transaction that placed it. Clients cannot submit it. The postings and the note are those of the
// schedule. So the id follows from the schedule and the number.
type Occurrence struct {
	Schedule Hash `json:"schedule"`
	// Number counts the occurrences of the schedule from 1.
	Number uint64 `json:"number"`
	// Time is the time for which the occurrence was scheduled. The block may have a later one.
	Time Milliseconds `json:"time"`
}

// TimeOf returns the time of an occurrence, by its number.
func (s *Schedule) TimeOf(number uint64) Milliseconds {
	steps := int64(number-1) * int64(s.Every)
	switch s.Period {
	case Minutes:
		return s.First + Milliseconds(steps*60*1000)
	case Days:
		return s.First + Milliseconds(steps*day)
	case Weeks:
		return s.First + Milliseconds(steps*7*day)
	case Months:
		return addMonths(s.First, steps)
	}
	return s.First
}

// Occurrences returns how many occurrences the schedule has, or MaxOccurrences+1 if there are more
// than MaxOccurrences.
func (s *Schedule) Occurrences() uint64 {
	least, most := uint64(0), uint64(MaxOccurrences+1)
	if s.Period == Once {
		most = 1
	}
	if s.Count > 0 {
		most = min(most, s.Count)
	}
	if s.Until == 0 {
		return most
	}
	for least < most { // all up to least are in time, and none after most
		middle := (least + most + 1) / 2
		if s.TimeOf(middle) <= s.Until {
			least = middle
		} else {
			most = middle - 1
		}
	}
	return least
}

// Validate returns ErrMalformed or ErrName unless the schedule of a signer is well-formed.
func (s *Schedule) Validate(signer OrganisationName) error {
	switch {
	case len(s.Postings) < 2 || len(s.Postings) > MaxSchedulePostings:
		return fmt.Errorf("%w: a schedule of %d postings, 2 to %d allowed", ErrMalformed,
			len(s.Postings), MaxSchedulePostings)
	case s.First <= 0 || s.First > 1<<48 || s.Until < 0 || s.Until > 1<<49:
		return fmt.Errorf("%w: a schedule from %d until %d", ErrMalformed, s.First, s.Until)
	case s.Period >= periods, s.Period == Once && (s.Every != 0 || s.Count != 1 || s.Until != 0),
		s.Period != Once && (s.Every == 0 || s.Every > MaxScheduleStep):
		return fmt.Errorf("%w: a schedule of every %d %s, %d times", ErrMalformed, s.Every,
			s.Period, s.Count)
	}
	count := s.Occurrences()
	if count == 0 || count > MaxOccurrences || s.Count > MaxOccurrences ||
		s.TimeOf(count)-s.First > MaxScheduleSpan {
		return fmt.Errorf("%w: a schedule has 1 to %d occurrences within 50 years", ErrMalformed,
			MaxOccurrences)
	}
	for i := range s.Postings {
		p := &s.Postings[i]
		for _, err := range []error{p.Account.Validate(), p.Asset.Validate()} {
			if err != nil {
				return err
			}
		}
		if p.Amount.Sign() < 0 && p.Account.Organisation() != signer {
			return fmt.Errorf("%w: a schedule of %s takes from %s", ErrMalformed, signer, p.Account)
		}
	}
	entry := Transaction{Postings: s.Postings}
	if asset, err := entry.Balanced(); err != nil {
		return fmt.Errorf("%w: %w: asset %s", ErrMalformed, err, asset)
	}
	return nil
}

// Words returns when the occurrences are, in words.
func (s *Schedule) Words() string {
	if s.Period == Once {
		return fmt.Sprintf("once at %d", s.First)
	}
	words := fmt.Sprintf("every %d %s from %d on", s.Every, s.Period, s.First)
	if s.Count > 0 {
		words += fmt.Sprintf(", %d times", s.Count)
	}
	if s.Until > 0 {
		words += fmt.Sprintf(", until %d", s.Until)
	}
	return words
}

// taken returns what all occurrences take together, by asset, or nil if it is more than any amount.
func (s *Schedule) taken() []Balance {
	taken := []Balance{}
	for range s.Occurrences() {
		for i := range s.Postings {
			p := &s.Postings[i]
			if p.Amount.Sign() >= 0 {
				continue
			}
			at := slices.IndexFunc(taken, func(b Balance) bool { return b.Asset == p.Asset })
			if at < 0 {
				at, taken = len(taken), append(taken, Balance{Asset: p.Asset})
			}
			var err error
			if taken[at].Amount, err = taken[at].Amount.Sub(p.Amount); err != nil {
				return nil
			}
		}
	}
	return taken
}

// OccurrenceOf returns the transaction that is an occurrence of a schedule, which the transaction
// with an id placed.
func OccurrenceOf(placed *Transaction, id Hash, number uint64) Transaction {
	return Transaction{Ledger: placed.Ledger, Signer: placed.Signer, Note: placed.Note,
		Postings: placed.Schedule.Postings, Occurrence: &Occurrence{Schedule: id, Number: number,
			Time: placed.Schedule.TimeOf(number)}}
}

// OccurrenceEntry returns an occurrence as an entry of a block, and the seal of its bundle, which
// has an index there.
func OccurrenceEntry(t *Transaction, bundle int) (Entry, BundleSeal) {
	entry := Entry{Decoded: t, Body: t.appendBody(nil), Bundle: bundle}
	entry.ID = TransactionID(entry.Body)
	ids := []Hash{entry.ID}
	return entry, BundleSeal{IDs: ids, Kept: []bool{true}, Root: IDRoot(ids)}
}

// scheduleAlone checks the parts of a transaction that places or ends a schedule, or is an
// occurrence.
func (t *Transaction) scheduleAlone() error {
	kinds := 0
	for _, is := range []bool{t.Schedule != nil, t.ScheduleEnd != nil, t.Occurrence != nil} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds != 1 || len(t.Registrations)+len(t.Openings)+len(t.Records) > 0 ||
		t.LastValid != 0 || t.Change != nil || t.Verdict != nil || t.Policy != nil ||
		t.Charter != nil || t.Cancellation != nil || t.Book != nil || t.Arrival != nil ||
		t.Asset != nil || t.Account != nil || t.Hold != nil || t.HoldEnd != nil ||
		t.Details != nil:
		return fmt.Errorf("%w: a schedule, its end or an occurrence stands alone in its "+
			"transaction", ErrMalformed)
	case t.Deadline < 0:
		return fmt.Errorf("%w: a deadline before 1970", ErrMalformed)
	case len(t.Note) > MaxScheduleNote:
		return fmt.Errorf("%w: too large: at most %d bytes of note", ErrMalformed, MaxScheduleNote)
	}
	return t.Signer.Validate()
}

// checkScheduleForm checks a transaction that places or ends a schedule, or is an occurrence.
func (t *Transaction) checkScheduleForm() error {
	if err := t.scheduleAlone(); err != nil {
		return err
	}
	if o := t.Occurrence; o != nil {
		if o.Number == 0 || o.Number > MaxOccurrences || t.Deadline != 0 || t.Nonce != (Nonce{}) {
			return fmt.Errorf("%w: an occurrence numbered %d, with a nonce or a deadline",
				ErrMalformed, o.Number)
		}
		once := Schedule{Postings: t.Postings, First: o.Time, Count: 1}
		return once.Validate(t.Signer)
	}
	if len(t.Postings) > 0 {
		return fmt.Errorf("%w: a schedule's own transaction has no postings", ErrMalformed)
	}
	if t.Schedule != nil {
		return t.Schedule.Validate(t.Signer)
	}
	return nil
}

// Keeper returns the shard that keeps the schedule which a transaction places or ends, and false
// for any other transaction.
func (t *Transaction) Keeper() (ShardID, bool) {
	switch {
	case t.Schedule != nil:
		return t.Schedule.Shard, true
	case t.ScheduleEnd != nil:
		return t.ScheduleEnd.Shard, true
	}
	return 0, false
}

// Schedules reports whether a transaction places or ends a schedule, or is an occurrence.
func (t *Transaction) Schedules() bool {
	return t.Schedule != nil || t.ScheduleEnd != nil || t.Occurrence != nil
}

// appendScheduled appends the encoding of a transaction that places a schedule: version 18, head,
// shard, first, period, every, count, until, postings, note; of one that ends it: version 19, head,
// shard, id, note; of an occurrence: version 20, ledger, signer, schedule, number, time, postings,
// note.
func (t *Transaction) appendScheduled(to []byte) []byte {
	switch {
	case t.Schedule != nil:
		to = t.Schedule.Append(t.appendHead(to, scheduleVersion))
	case t.ScheduleEnd != nil:
		to = t.appendHead(to, scheduleEndVersion)
		to = binary.AppendUvarint(to, uint64(t.ScheduleEnd.Shard))
		to = append(to, t.ScheduleEnd.Schedule[:]...)
	default:
		to = append(append(to, occurrenceVersion), t.Ledger[:]...)
		to = append(codec.AppendString(to, t.Signer), t.Occurrence.Schedule[:]...)
		to = binary.AppendUvarint(to, t.Occurrence.Number)
		to = binary.AppendUvarint(to, uint64(t.Occurrence.Time))
		to = appendPostings(to, t.Postings)
	}
	return codec.AppendString(to, t.Note)
}

// Append appends the encoding of the schedule, as it is in transactions and in entries of states.
func (s *Schedule) Append(to []byte) []byte {
	to = binary.AppendUvarint(to, uint64(s.Shard))
	to = append(binary.AppendUvarint(to, uint64(s.First)), byte(s.Period))
	to = binary.AppendUvarint(binary.AppendUvarint(to, s.Every), s.Count)
	return appendPostings(binary.AppendUvarint(to, uint64(s.Until)), s.Postings)
}

func appendPostings(to []byte, postings []Posting) []byte {
	to = binary.AppendUvarint(to, uint64(len(postings)))
	for i := range postings {
		p := &postings[i]
		to = appendAmount(codec.AppendString(codec.AppendString(to, p.Account), p.Asset), p.Amount)
	}
	return to
}

func (r *reader) schedulePostings() []Posting {
	postings := make([]Posting, r.Count("postings", MaxSchedulePostings, 3))
	for i := range postings {
		postings[i] = Posting{Account: r.accountPath(),
			Asset: AssetName(r.String("bytes of asset", MaxAssetName)), Amount: r.amount()}
	}
	return postings
}

func (r *reader) schedule() *Schedule {
	s := &Schedule{Shard: r.shard(), First: Milliseconds(r.Uvarint()), Period: Period(r.Byte()),
		Every: r.Uvarint(), Count: r.Uvarint(), Until: Milliseconds(r.Uvarint())}
	s.Postings = r.schedulePostings()
	return s
}

// DecodeSchedule decodes what Append appends, before what follows it. It returns how many bytes it
// took, or ErrMalformed or ErrName.
func DecodeSchedule(data []byte, signer OrganisationName) (s *Schedule, size int, err error) {
	r := read(data)
	s = r.schedule()
	if r.Err != nil {
		return nil, 0, r.Err
	}
	return s, len(data) - len(r.Data), s.Validate(signer)
}

func (t *Transaction) decodeScheduled(r *reader, version byte) {
	switch version {
	case scheduleVersion:
		t.decodeHead(r)
		t.Schedule = r.schedule()
	case scheduleEndVersion:
		t.decodeHead(r)
		t.ScheduleEnd = &ScheduleEnd{Shard: r.shard(), Schedule: r.Hash()}
	default:
		t.Ledger = r.Hash()
		t.Signer = OrganisationName(r.String("bytes of organisation", MaxOrganisationName))
		t.Occurrence = &Occurrence{Schedule: r.Hash(), Number: r.Uvarint(),
			Time: Milliseconds(r.Uvarint())}
		t.Postings = r.schedulePostings()
	}
	t.Note = r.Bytes("bytes of note", MaxScheduleNote)
}

// addMonths returns the time so many months later in UTC, on the same day of the month, or on its
// last day.
func addMonths(from Milliseconds, months int64) Milliseconds {
	days, rest := int64(from)/day, int64(from)%day
	year, month, of := civil(days)
	months += year*12 + month - 1
	year, month = months/12, months%12+1
	last := daysOf(year+month/12, month%12+1, 1) - daysOf(year, month, 1)
	return Milliseconds((daysOf(year, month, min(of, last)))*day + rest)
}

// daysOf returns the days from 1970 to a date of the Gregorian calendar. The year begins in March,
// so that the day that some years have more is the last one. A cycle of 400 years has 146,097 days.
func daysOf(year, month, of int64) int64 {
	if month <= 2 {
		year, month = year-1, month+12
	}
	cycle, inCycle := year/400, year%400
	return cycle*146097 + inCycle*365 + inCycle/4 - inCycle/100 + (153*(month-3)+2)/5 + of - 1 -
		719468
}

// civil returns the date that daysOf has from 1970.
func civil(days int64) (year, month, of int64) {
	days += 719468
	cycle, inCycle := days/146097, days%146097
	year = (inCycle - inCycle/1460 + inCycle/36524 - inCycle/146096) / 365
	inYear := inCycle - (365*year + year/4 - year/100)
	month = (5*inYear + 2) / 153
	of = inYear - (153*month+2)/5 + 1
	year += cycle * 400
	if month += 3; month > 12 {
		return year + 1, month - 12, of
	}
	return year, month, of
}
