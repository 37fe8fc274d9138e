package stream

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// story is some writers and carriers. The test decides when their wires deliver.
type story struct {
	t        *testing.T
	writers  []*Writer
	carriers []*Carrier
	rings    map[[2]int]heap
	pending  map[[2]int][]Write
	cut      map[[2]int]bool
	lives    map[[2]int]Life
}

func newStory(t *testing.T, writers, carriers int, change func(*Config)) *story {
	t.Helper()
	s := &story{t: t, rings: map[[2]int]heap{}, pending: map[[2]int][]Write{},
		cut: map[[2]int]bool{}, lives: map[[2]int]Life{}}
	config := Config{Stretch: 1, Patience: 10, Entries: 8, EntryMax: 16, RingSize: 200, Depth: 8}
	for id := range writers {
		config.Writers = append(config.Writers, order.ServerID(id))
	}
	for id := range carriers {
		config.Carriers = append(config.Carriers, order.ServerID(id))
	}
	if change != nil {
		change(&config)
	}
	for id := range writers {
		config.Self = order.ServerID(id)
		writer, err := NewWriter(config)
		if err != nil {
			t.Fatal(err)
		}
		s.writers = append(s.writers, writer)
	}
	for id := range carriers {
		config.Self = order.ServerID(id)
		carrier, err := NewCarrier(config, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.carriers = append(s.carriers, carrier)
		for w := range writers {
			s.connect(w, id)
		}
	}
	return s
}

// connect gives a writer a ring at a carrier.
func (s *story) connect(w, c int) {
	s.t.Helper()
	at := [2]int{w, c}
	s.lives[at]++
	s.rings[at] = make(heap, s.carriers[c].config.RingSize)
	if err := s.carriers[c].Attach(order.ServerID(w), s.lives[at], s.rings[at]); err != nil {
		s.t.Fatal(err)
	}
	if err := s.writers[w].Attach(order.ServerID(c), s.lives[at], 0); err != nil {
		s.t.Fatal(err)
	}
}

// offer offers entries up to a number to writers. Entry n is n bytes of n.
func (s *story) offer(last uint64, writers ...int) {
	s.t.Helper()
	for _, w := range writers {
		for number := s.writers[w].Next(); number <= last; number++ {
			if err := s.writers[w].Offer(number, slices.Repeat([]byte{byte(number)},
				int(number)%17)); err != nil {
				s.t.Fatalf("writer %d does not take entry %d: %v", w, number, err)
			}
		}
	}
}

// write makes all writes of the writers land, and returns the numbers by carrier.
func (s *story) write(writers ...int) map[int][]uint64 {
	written := map[int][]uint64{}
	for _, w := range writers {
		for _, write := range s.writers[w].Writes() {
			c := int(write.Carrier)
			if s.cut[[2]int{w, c}] {
				continue
			}
			copy(s.rings[[2]int{w, c}][write.Offset:], write.Bytes)
			s.writers[w].Completed(write.Carrier)
			for i := range write.Entries {
				written[c] = append(written[c], write.Number+uint64(i))
			}
		}
	}
	return written
}

// proposes polls a carrier, and checks that it proposes exactly these numbers.
func (s *story) proposes(c int, want ...uint64) {
	s.t.Helper()
	s.carriers[c].Poll()
	var got []uint64
	for _, entry := range s.carriers[c].Propose(1 << 20) {
		if !slices.Equal(entry.Payload, slices.Repeat([]byte{byte(entry.Number)},
			int(entry.Number)%17)) {
			s.t.Errorf("carrier %d proposes entry %d as %x", c, entry.Number, entry.Payload)
		}
		got = append(got, entry.Number)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("carrier %d proposes %v, want %v", c, got, want)
	}
}

// ordered tells all members how far the child's log has the stream.
func (s *story) ordered(number uint64) {
	for c, carrier := range s.carriers {
		carrier.Advance(number, number)
		for _, report := range carrier.Reports() {
			s.writers[report.Writer].Feedback(order.ServerID(c), report.Feedback)
		}
	}
}

func (s *story) tick(now uint64) {
	for _, writer := range s.writers {
		writer.Tick(now)
	}
	for _, carrier := range s.carriers {
		carrier.Tick(now)
	}
}

// TestStoryRotation: f+1 members write to f+1 members, which propose. The members in charge rotate
// with the number.
func TestStoryRotation(t *testing.T) {
	t.Parallel()
	s := newStory(t, 3, 3, nil)
	s.offer(3, 0, 1, 2)
	for w, want := range []map[int][]uint64{
		// entry 1: writers 0, 1 to carriers 0, 1; entry 2: 1, 2; entry 3: 2, 0
		{0: {1, 3}, 1: {1}, 2: {3}},
		{0: {1}, 1: {1, 2}, 2: {2}},
		{0: {3}, 1: {2}, 2: {2, 3}},
	} {
		got := s.write(w)
		for c := range 3 {
			if !slices.Equal(got[c], want[c]) {
				t.Errorf("writer %d writes %v to carrier %d, want %v", w, got[c], c, want[c])
			}
		}
	}
	s.proposes(0, 1)    // 3 has to wait for 2, which others propose
	s.proposes(1, 1, 2) // a run
	s.proposes(2)
	s.ordered(2)
	s.proposes(0, 3)
	s.proposes(1)
	s.proposes(2, 3)
	s.ordered(3)
	for at, ring := range s.rings {
		if slices.ContainsFunc(ring, func(b byte) bool { return b != 0 }) {
			t.Errorf("ring %v is not clear", at)
		}
	}
}

// TestStoryTakeover: the first writers are cut off from the first carriers, and no member crashes.
// The third takes over.
func TestStoryTakeover(t *testing.T) {
	t.Parallel()
	s := newStory(t, 3, 3, func(c *Config) { c.Stretch = 100 })
	for w := range 2 {
		for c := range 3 {
			s.cut[[2]int{w, c}] = true
		}
	}
	s.cut[[2]int{2, 0}], s.cut[[2]int{2, 1}] = true, true
	s.offer(2, 0, 1, 2)
	s.write(0, 1, 2)
	s.tick(19)
	if got := s.write(2); len(got) > 0 {
		t.Fatalf("writer 2 writes %v before it was its turn", got)
	}
	if due, waits := s.writers[2].Deadline(); !waits || due != 20 {
		t.Errorf("writer 2 takes over at %d, %v; want 20", due, waits)
	}
	s.tick(20)
	if got := s.write(2); !slices.Equal(got[2], []uint64{1, 2}) || !s.writers[2].TookOver() {
		t.Fatalf("writer 2 writes %v to carrier 2, want 1 and 2", got[2])
	}
	s.proposes(2) // it is not its turn
	if due, waits := s.carriers[2].Deadline(); !waits || due != 40 {
		t.Errorf("carrier 2 takes over at %d, %v; want 40", due, waits)
	}
	s.tick(40)
	if status := s.writers[2].Status(); status.Position != 0 || status.Known != 2 ||
		status.Waited != 40 || !status.TookOver || len(status.Rings) != 3 ||
		status.Rings[2].Used == 0 {
		t.Errorf("writer 2 says %+v", status)
	}
	s.proposes(2, 1, 2)
	if status := s.carriers[2].Status(); status.Ordered != 0 || status.Proposed != 2 ||
		status.Held != 2 || status.Waited != 0 || !status.TookOver || len(status.Writers) != 3 {
		t.Errorf("carrier 2 says %+v", status)
	}
	s.proposes(2)
	// The log lost the proposal, so it is proposed again.
	s.tick(60)
	s.proposes(2, 1, 2)
	s.ordered(2)
	if _, waits := s.carriers[2].Deadline(); waits || s.carriers[2].TookOver() ||
		s.writers[2].TookOver() {
		t.Error("there is still something to take over")
	}
}

// TestStoryRingTakenAway: a carrier loses its writer and the writer's ring, and has the entry all
// the same.
func TestStoryRingTakenAway(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultForgottenRing} {
		s := newStory(t, 3, 1, func(c *Config) { c.Fault = fault })
		s.offer(2, 0, 1)
		s.write(0, 1)
		s.carriers[0].Poll() // entry 1 from writers 0 and 1; the one of writer 0 counts
		s.carriers[0].Detach(0)
		clear(s.rings[[2]int{0, 0}])
		if fault == FaultNone {
			s.proposes(0, 1, 2)
		} else {
			s.proposes(0) // and no writer writes it again: each has
			s.tick(1000)
			s.write(1)
			s.proposes(0)
		}
	}
}

// TestStoryLogGoesBack: a log that goes back, as far as it was not durable, gets the entries again.
func TestStoryLogGoesBack(t *testing.T) {
	t.Parallel()
	s := newStory(t, 1, 1, nil)
	s.offer(4, 0)
	s.write(0)
	s.proposes(0, 1, 2, 3, 4)
	s.carriers[0].Advance(4, 2)
	s.carriers[0].Advance(2, 2)
	s.proposes(0, 3, 4)
	s.carriers[0].Advance(1, 1) // durable entries stay
	if s.carriers[0].Ordered() != 2 {
		t.Errorf("ordered %d, want 2", s.carriers[0].Ordered())
	}
}

// TestStoryRoomKept: a ring that was full of later entries still takes the earlier ones.
func TestStoryRoomKept(t *testing.T) {
	t.Parallel()
	s := newStory(t, 3, 1, func(c *Config) {
		c.Entries, c.EntryMax, c.RingSize = 32, 8, 3*RecordSize(8)
	})
	entry := make([]byte, 8)
	for number := range uint64(2) {
		if err := s.writers[2].Offer(number+1, entry); err != nil {
			t.Fatal(err)
		}
	}
	// Writer 2 writes entry 2, not entry 1, for which room is kept. There would be no room for a
	// third.
	if got := s.write(2); !slices.Equal(got[0], []uint64{2}) {
		t.Fatalf("writer 2 writes %v, want entry 2", got[0])
	}
	if err := s.writers[2].Offer(3, entry); err != nil {
		t.Fatal(err)
	}
	if got := s.write(2); len(got) > 0 {
		t.Fatalf("writer 2 writes %v into the room that is kept for entry 1", got[0])
	}
	s.tick(100)
	if got := s.write(2); !slices.Equal(got[0], []uint64{1}) {
		t.Fatalf("writer 2 takes over with %v, want entry 1", got[0])
	}
}

// TestStoryOneWrite: entries that follow each other, in memory and in the ring, are one write.
// Where either ends, the next write begins.
func TestStoryOneWrite(t *testing.T) {
	t.Parallel()
	s := newStory(t, 1, 1, func(c *Config) {
		c.Stretch, c.RingSize = 100, 2*RecordSize(16)+RecordSize(8)+8
	})
	w := s.writers[0]
	s.offer(2, 0)
	first := slices.Clone(w.Writes())
	if len(first) != 1 || first[0].Number != 1 || first[0].Entries != 2 ||
		len(first[0].Bytes) != RecordSize(1)+RecordSize(2) {
		t.Fatalf("writes %+v, want entries 1 and 2 at once", first)
	}
	copy(s.rings[[2]int{0, 0}], first[0].Bytes)
	if w.Ordered(w.outlets[0].carrier, 2); w.Status().Rings[0].UnderWay != 1 || w.head == w.tail {
		t.Error("what is under way is not kept")
	}
	if w.Completed(0); w.head != w.tail {
		t.Error("what has landed is kept")
	}
	s.carriers[0].Poll()
	s.ordered(2)
	s.offer(5, 0) // entry 4 does not fit before the end, and 5 has to wait
	second := slices.Clone(w.Writes())
	var counts []int
	for _, write := range second {
		counts = append(counts, write.Entries)
	}
	if !slices.Equal(counts, []int{1, 0, 1}) {
		t.Errorf("writes of %v entries, want them split where the ring ends", counts)
	}
	for _, write := range second {
		copy(s.rings[[2]int{0, 0}][write.Offset:], write.Bytes)
		w.Completed(0)
	}
	s.proposes(0, 3, 4)
	s.ordered(4)
	s.write(0)
	s.proposes(0, 5)
}

// TestWriterRefuses: a writer refuses entries out of order and entries for which it has no room.
func TestWriterRefuses(t *testing.T) {
	t.Parallel()
	s := newStory(t, 1, 1, nil)
	w := s.writers[0]
	for _, test := range []struct {
		number uint64
		size   int
		want   error
	}{{2, 1, ErrNumber}, {0, 1, nil}, {1, 17, ErrTooLarge}, {1, 16, nil}, {1, 16, ErrNumber},
		{2, 16, nil}, {3, 16, nil}, {4, 16, nil}, {5, 16, nil}, {6, 16, ErrFull}} {
		if err := w.Offer(test.number, make([]byte, test.size)); !errors.Is(err, test.want) {
			t.Errorf("entry %d of %d bytes: %v, want %v", test.number, test.size, err, test.want)
		}
	}
	if err := w.Attach(7, 1, 0); !errors.Is(err, ErrMember) {
		t.Errorf("a carrier that is none: %v", err)
	}
	w.Completed(7)
	w.Completed(0)
	w.Detach(7)
	w.Feedback(7, Feedback{Position: 9})
	if w.Position() != 0 {
		t.Error("somebody who is no carrier moves the position")
	}
	// The child is past what this member has. The member does not need what it missed.
	w.Ordered(w.outlets[0].carrier, 1000)
	if w.Next() != 1001 || w.Offer(6, nil) != nil || w.Offer(1001, []byte("a")) != nil ||
		w.Offer(1003, nil) == nil {
		t.Errorf("next is %d", w.Next())
	}
	if err := w.SetMembers(nil, nil); !errors.Is(err, ErrConfig) {
		t.Errorf("no members: %v", err)
	}
	if err := s.carriers[0].SetMembers([]order.ServerID{1, 0}, []order.ServerID{0}); !errors.Is(err,
		ErrConfig) {
		t.Errorf("members in disorder: %v", err)
	}
	if err := s.carriers[0].Attach(0, 9, make(heap, 8)); !errors.Is(err, ErrConfig) {
		t.Errorf("a small ring: %v", err)
	}
	if _, err := s.carriers[0].Report(5); !errors.Is(err, ErrMember) {
		t.Errorf("a report for nobody: %v", err)
	}
}

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	good := Config{Writers: []order.ServerID{0}, Carriers: []order.ServerID{0}, Stretch: 1,
		Patience: 1, Entries: 1, EntryMax: 8, RingSize: 64, Depth: 2}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"stretch":          func(c *Config) { c.Stretch = 0 },
		"patience":         func(c *Config) { c.Patience = 0 },
		"no entries":       func(c *Config) { c.Entries = 0 },
		"too many entries": func(c *Config) { c.Entries = EntriesMax + 1 },
		"uneven ring":      func(c *Config) { c.RingSize = 65 },
		"small ring":       func(c *Config) { c.RingSize = 56 },
		"large ring":       func(c *Config) { c.RingSize = RingSizeMax + 8 },
		"no entry":         func(c *Config) { c.EntryMax = 0 },
		"huge entry":       func(c *Config) { c.EntryMax = int(^uint(0) >> 1) },
		"depth":            func(c *Config) { c.Depth = 1 },
		"no writers":       func(c *Config) { c.Writers = nil },
		"carriers twice":   func(c *Config) { c.Carriers = []order.ServerID{1, 1} },
		"fault":            func(c *Config) { c.Fault = faultEnd },
	} {
		config := good
		change(&config)
		if _, err := NewWriter(config); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: a writer: %v", name, err)
		}
		if _, err := NewCarrier(config, 0, 0); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: a carrier: %v", name, err)
		}
	}
	if _, err := NewCarrier(good, 1, 2); !errors.Is(err, ErrConfig) {
		t.Errorf("durable past ordered: %v", err)
	}
}

// TestBrokenRing: a ring that holds data that no writer writes is not read further, and is
// harmless.
func TestBrokenRing(t *testing.T) {
	t.Parallel()
	s := newStory(t, 2, 1, nil)
	binary.LittleEndian.PutUint64(s.rings[[2]int{0, 0}], 0x1234)
	s.offer(2, 1)
	s.tick(100)
	s.write(1)
	s.proposes(0, 1, 2)
	writers, reasons := s.carriers[0].Broken()
	if !slices.Equal(writers, []order.ServerID{0}) || !errors.Is(reasons[0], ErrRecord) {
		t.Errorf("broken: %v, %v", writers, reasons)
	}
	// An entry without a place.
	far := make([]byte, RecordSize(0))
	putRecord(far, 9, nil)
	s.connect(0, 0)
	copy(s.rings[[2]int{0, 0}], far)
	if s.carriers[0].Poll(); len(func() []order.ServerID {
		w, _ := s.carriers[0].Broken()
		return w
	}()) != 1 {
		t.Error("an entry beyond the last place is taken")
	}
}

// TestFeedback: feedback of an earlier life, or impossible feedback, gives no room.
func TestFeedback(t *testing.T) {
	t.Parallel()
	f := Feedback{Position: 1 << 60, Life: 65535, Released: 1<<48 - 1}
	b := f.Append(nil)
	if len(b) != FeedbackSize || FeedbackFrom(b) != f || FeedbackAt(heap(b), 0) != f ||
		FeedbackFrom(b[1:]) != (Feedback{}) {
		t.Errorf("%v comes back as %v and %v", f, FeedbackFrom(b), FeedbackAt(heap(b), 0))
	}
	s := newStory(t, 1, 1, nil)
	s.offer(2, 0)
	s.write(0)
	o := s.writers[0].outlet(0)
	before := o.occupied()
	for _, late := range []Feedback{{Life: o.life - 1, Released: 32},
		{Life: o.life, Released: o.head + 8}, {Life: o.life, Released: 1<<48 - 8}} {
		s.writers[0].Feedback(0, late)
		if o.occupied() != before {
			t.Errorf("%v gives room", late)
		}
	}
	s.writers[0].Feedback(0, Feedback{Position: 1, Life: o.life, Released: uint64(RecordSize(1))})
	if o.occupied() != before-uint64(RecordSize(1)) {
		t.Errorf("%d bytes in use, want %d", o.occupied(), before-uint64(RecordSize(1)))
	}
}

// TestState: equal states are recognised at any time, and different ones told apart.
func TestState(t *testing.T) {
	t.Parallel()
	early, late := newStory(t, 2, 2, nil), newStory(t, 2, 2, nil)
	late.tick(7_000)
	states := func(s *story) string {
		return string(s.writers[0].AppendState(nil)) + string(s.carriers[0].AppendState(nil))
	}
	seen := states(early)
	if seen != states(late) {
		t.Error("idle members differ by the time alone")
	}
	for _, step := range []func(*story){
		func(s *story) { s.offer(2, 0) },
		func(s *story) { s.write(0) },
		func(s *story) { s.carriers[0].Poll() },
		func(s *story) { s.proposes(0, 1) },
		func(s *story) { s.ordered(1) },
	} {
		step(early)
		step(late)
		if states(early) != states(late) {
			t.Error("the same steps lead to different states")
		}
		if states(early) == seen {
			t.Error("a step leaves the state what it was")
		}
		seen = states(early)
	}
}

// TestClone: a copy behaves independently, even while records lie around the end of the writer's
// memory.
func TestClone(t *testing.T) {
	t.Parallel()
	s := newStory(t, 1, 1, nil)
	for last := uint64(3); last < 16; last++ {
		s.offer(last, 0)
		writer, carrier := s.writers[0].Clone(), s.carriers[0].Clone()
		before := string(writer.AppendState(nil)) + string(carrier.AppendState(nil))
		for number := writer.position + 1; number <= writer.known; number++ {
			if !slices.Equal(writer.entry(number).record, s.writers[0].entry(number).record) {
				t.Fatalf("the copy has entry %d as %x", number, writer.entry(number).record)
			}
		}
		s.write(0)
		s.carriers[0].Poll()
		if string(writer.AppendState(nil))+string(carrier.AppendState(nil)) != before {
			t.Fatal("a copy changes with its original")
		}
		s.proposes(0, unordered(s, last)...)
		s.ordered(last)
	}
}

// unordered lists the numbers up to last that the log does not have.
func unordered(s *story, last uint64) (numbers []uint64) {
	for number := s.carriers[0].Ordered() + 1; number <= last; number++ {
		numbers = append(numbers, number)
	}
	return numbers
}
