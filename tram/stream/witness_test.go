package stream

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestWitnessedStream: whatever happens to members and wires, whatever a minority of the writers
// writes, and whatever position a minority of the carriers reports, only the parent's entries are
// proposed and vouched for, and all arrive.
func TestWitnessedStream(t *testing.T) {
	t.Parallel()
	lies := 0
	for seed := range *seedsFlag {
		w := makeWorld(seed, FaultNone, true)
		if wrong := w.run(); wrong != "" {
			t.Fatalf("seed %d: %s", seed, wrong)
		}
		lies += w.lies
	}
	if lies == 0 {
		t.Error("no lie was found")
	}
}

// TestWitnessedPlanted: each planted bug is found.
func TestWitnessedPlanted(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultFewWitnesses, FaultRepeatedWitness, FaultNoTakeover,
		FaultLoneWriter, FaultEarlyReuse, FaultGreedyRing, FaultTrustedPosition} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(1000) {
				if wrong := makeWorld(seed, fault, true).run(); wrong != "" {
					t.Logf("seed %d: %s", seed, wrong)
					return
				}
			}
			t.Error("the planted bug is not found")
		})
	}
}

// TestWitnessLyingCarrier: what one carrier reports of the child's position makes no writer skip an
// entry.
func TestWitnessLyingCarrier(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultTrustedPosition} {
		s := witnesses(t, 1, 3, func(c *Config) { c.Fault = fault })
		w := s.writers[0]
		if err := w.Attach(2, 7, 1000); err != nil {
			t.Fatal(err)
		}
		w.Feedback(2, Feedback{Position: 2000, Life: 7})
		w.Ordered(2, 3000)
		skipped := w.Position() > 0
		if skipped != (fault != FaultNone) {
			t.Fatalf("%s: the position is %d", fault, w.Position())
		}
		if skipped {
			continue
		}
		s.offer(1, 0)
		w.Feedback(1, Feedback{Position: 1})
		if w.Position() != 1 {
			t.Errorf("position %d, want 1, which two of three reached", w.Position())
		}
		if err := w.SetMembers([]order.ServerID{0}, []order.ServerID{0, 1}); err != nil {
			t.Fatal(err)
		}
		if w.Position() != 1 {
			t.Errorf("position %d without the liar, want 1", w.Position())
		}
	}
}

// TestWitnessPlaced: the child's position is known once more than half of the carriers reported
// theirs.
func TestWitnessPlaced(t *testing.T) {
	t.Parallel()
	w, err := NewWriter(Config{Writers: []order.ServerID{0}, Carriers: []order.ServerID{0, 1, 2},
		Self: 0, Stretch: 1, Patience: 1, Entries: 4, EntryMax: 8, RingSize: 256, Depth: 2,
		Witnessed: true})
	if err != nil {
		t.Fatal(err)
	}
	for carrier, want := range []bool{false, true, true} {
		if err := w.Attach(order.ServerID(carrier), 1, 0); err != nil {
			t.Fatal(err)
		}
		if w.Placed() != want {
			t.Errorf("after carrier %d: placed is %t", carrier, !want)
		}
	}
}

// witnesses is a story of a witnessed stream.
func witnesses(t *testing.T, writers, carriers int, change func(*Config)) *story {
	t.Helper()
	return newStory(t, writers, carriers, func(c *Config) {
		c.Witnessed, c.Stretch = true, 100
		if change != nil {
			change(c)
		}
	})
}

// claim makes a writer write an entry with this content, to all carriers.
func (s *story) claim(writer int, number uint64, payload string) {
	s.t.Helper()
	w := s.writers[writer]
	if err := w.Offer(number, []byte(payload)); err != nil {
		s.t.Fatal(err)
	}
	w.spread = max(w.spread, number)
	w.outlets[0].cursor = 0
	s.write(writer)
}

// vouches polls a carrier, and checks that it vouches for exactly these entries from the log's end
// on, and proposes the same.
func (s *story) vouches(c int, want ...string) {
	s.t.Helper()
	carrier := s.carriers[c]
	carrier.Poll()
	var got []string
	for i, entry := range carrier.Vouch(100) {
		if entry.Number != carrier.Ordered()+uint64(i)+1 {
			s.t.Errorf("carrier %d vouches for entry %d as number %d", c, entry.Number, i)
		}
		got = append(got, string(entry.Payload))
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("carrier %d vouches for %q, want %q", c, got, want)
	}
	carrier.proposed = carrier.ordered
	if next, ok := carrier.Next(); ok && string(next.Payload) != want[0] {
		s.t.Errorf("carrier %d has %q as next, %v", c, next.Payload, ok)
	}
	for i, entry := range carrier.Propose(1 << 20) {
		if string(entry.Payload) != want[i] {
			s.t.Errorf("carrier %d proposes %q as entry %d", c, entry.Payload, entry.Number)
		}
	}
}

// lied checks the lies that a carrier found.
func (s *story) lied(c int, want ...Lie) {
	s.t.Helper()
	if got := s.carriers[c].Lies(); !slices.Equal(got, want) {
		s.t.Errorf("carrier %d finds %+v, want %+v", c, got, want)
	}
}

// TestWitnessCount: an entry counts once more than half of the writers wrote it, and these act at
// once, to all carriers.
func TestWitnessCount(t *testing.T) {
	t.Parallel()
	for writers, want := range []int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3} {
		if writers == 0 {
			continue
		}
		s := witnesses(t, writers, 3, nil)
		for w := range writers {
			s.offer(1, w)
			before := len(s.carriers[1].Vouch(1))
			written := s.write(w)
			if eager := w < want; eager != (len(written) == 3) || !eager && len(written) > 0 {
				t.Errorf("writer %d of %d writes %v", w, writers, written)
			}
			s.carriers[1].Poll()
			if after := len(s.carriers[1].Vouch(1)); before+after != min(1, max(0, w+2-want))+
				min(1, max(0, w+1-want)) {
				t.Errorf("with writer %d of %d, carrier 1 vouches for %d entries, then %d", w,
					writers, before, after)
			}
		}
		if status := s.carriers[1].Status(); status.Held != 1 || status.Doubted != 0 {
			t.Errorf("%d writers: %+v", writers, status)
		}
		s.ordered(1)
		s.clear()
	}
}

// clear checks that all rings are clear.
func (s *story) clear() {
	s.t.Helper()
	for at, ring := range s.rings {
		if slices.ContainsFunc(ring, func(b byte) bool { return b != 0 }) {
			s.t.Errorf("ring %v is not clear", at)
		}
	}
}

// TestWitnessLiar: a writer that lies, at whatever time, changes nothing and is named. With either
// planted bug the lie counts.
func TestWitnessLiar(t *testing.T) {
	t.Parallel()
	for _, writers := range []int{3, 4, 5} {
		for liar := range writers {
			t.Run(fmt.Sprintf("writer %d of %d", liar, writers), func(t *testing.T) {
				t.Parallel()
				s := witnesses(t, writers, 2, nil)
				for w := range writers {
					s.claim(w, 1, map[bool]string{true: "lie", false: "true"}[w == liar])
					s.carriers[0].Poll()
				}
				s.vouches(0, "true")
				s.vouches(1, "true")
				s.lied(0, Lie{order.ServerID(liar), 1, 1})
				s.lied(0)
				s.ordered(1)
				s.clear()
			})
		}
	}
	s := witnesses(t, 3, 1, func(c *Config) { c.Fault = FaultFewWitnesses })
	s.claim(2, 1, "lie")
	s.vouches(0, "lie")
	for _, fault := range []Fault{FaultNone, FaultRepeatedWitness} {
		s := witnesses(t, 3, 1, func(c *Config) { c.Fault = fault })
		s.claim(2, 1, "lie")
		s.vouches(0)
		s.connect(2, 0)
		s.write(2)
		if s.vouches(0, map[Fault][]string{FaultRepeatedWitness: {"lie"}}[fault]...); fault == 0 {
			s.claim(1, 1, "true")
			s.vouches(0)
			s.claim(0, 1, "true")
			s.vouches(0, "true")
		}
	}
}

// TestWitnessVariants: two of five writers write two other variants, or change what they wrote.
func TestWitnessVariants(t *testing.T) {
	t.Parallel()
	s := witnesses(t, 5, 1, nil)
	s.claim(4, 1, "one")
	s.claim(3, 1, "other")
	s.claim(0, 1, "true")
	s.claim(1, 1, "true")
	s.vouches(0)
	if status := s.carriers[0].Status(); status.Held != 1 || status.Doubted != 1 {
		t.Errorf("status %+v", status)
	}
	if _, waits := s.carriers[0].Deadline(); waits {
		t.Error("the carrier waits for the log to take an entry that does not count")
	}
	s.lied(0)
	s.tick(5)
	s.claim(2, 1, "true")
	s.vouches(0, "true")
	if due, waits := s.carriers[0].Deadline(); !waits || due != 7 {
		t.Errorf("the carrier takes over at %d, %v; want 7", due, waits)
	}
	s.lied(0, Lie{3, 1, 1}, Lie{4, 1, 1})
	// A writer that wrote the truth writes something else, in another ring.
	fake := make([]byte, RecordSize(3))
	putRecord(fake, 1, []byte("lie"))
	s.connect(2, 0)
	copy(s.rings[[2]int{2, 0}], fake)
	s.vouches(0, "true")
	s.lied(0, Lie{2, 1, 1})
	// What lies in a ring changes after it was read.
	copy(s.rings[[2]int{0, 0}][recordHead:], "lied")
	s.vouches(0, "true")
	s.ordered(1)
	s.clear()
}

// TestWitnessDetached: what a writer wrote counts without its ring while it is a member. A departed
// writer with a ring counts again when it comes back.
func TestWitnessDetached(t *testing.T) {
	t.Parallel()
	all := []order.ServerID{0, 1, 2}
	carriers := []order.ServerID{0}
	members := func(s *story, writers ...order.ServerID) {
		t.Helper()
		if err := s.carriers[0].SetMembers(writers, carriers); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(fault Fault) *story {
		s := witnesses(t, 3, 1, func(c *Config) { c.Fault = fault })
		s.claim(1, 1, "true")
		s.carriers[0].Detach(1)
		clear(s.rings[[2]int{1, 0}])
		s.claim(0, 1, "true")
		return s
	}
	s := begin(FaultNone)
	s.vouches(0, "true")
	members(s, 0, 1) // writer 1 stays, and has no ring
	s.vouches(0, "true")
	members(s, all...)
	members(s, 0, 2) // writer 1 leaves for good: it has no ring
	s.vouches(0)
	members(s, all...)
	s.vouches(0)
	s.connect(1, 0)
	s.write(1)
	s.vouches(0, "true")
	members(s, 0, 2) // and leaves while it has one
	s.vouches(0)
	members(s, all...)
	s.vouches(0, "true")
	members(s, 0, 2)
	s.carriers[0].Detach(1)
	members(s, all...)
	s.vouches(0)
	members(s, 0) // the other members change what is more than half
	s.vouches(0, "true")
	begin(FaultForgottenRing).vouches(0)
}

// TestWitnessDepartedLiar: the lies of a writer that left are no news.
func TestWitnessDepartedLiar(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{true, false} {
		s := witnesses(t, 3, 1, nil)
		leave := func() {
			if err := s.carriers[0].SetMembers([]order.ServerID{0, 1},
				[]order.ServerID{0}); err != nil {
				t.Fatal(err)
			}
		}
		s.claim(2, 1, "lie")
		s.vouches(0)
		if early {
			leave()
		}
		s.claim(0, 1, "true")
		s.claim(1, 1, "true")
		s.vouches(0, "true")
		if !early {
			leave()
		}
		s.lied(0)
	}
}

// TestWitnessRestart: a carrier that begins again, and a writer that begins again, count everything
// once.
func TestWitnessRestart(t *testing.T) {
	t.Parallel()
	s := witnesses(t, 3, 1, nil)
	s.claim(2, 1, "lie")
	s.claim(1, 1, "true")
	s.vouches(0)
	config := s.writers[1].config
	s.writers[1], _ = NewWriter(config)
	s.connect(1, 0)
	s.claim(1, 1, "true")
	s.vouches(0) // it is the same writer
	config = s.carriers[0].config
	s.carriers[0], _ = NewCarrier(config, 0, 0)
	for w := range 3 {
		s.connect(w, 0)
	}
	s.write(2)
	s.write(1)
	s.vouches(0)
	s.claim(0, 1, "true")
	s.vouches(0, "true")
	s.lied(0, Lie{2, 1, 1})
}

// TestWitnessTakeover: the writers that do not act at once do so one after the other.
func TestWitnessTakeover(t *testing.T) {
	t.Parallel()
	s := witnesses(t, 5, 1, nil)
	s.offer(2, 0, 1, 2, 3, 4)
	s.claim(0, 3, "true")
	s.write(0, 1)
	for w, want := range []uint64{10, 10, 10, 10, 20} {
		if due, waits := s.writers[w].Deadline(); w > 0 && (!waits || due != want) {
			t.Errorf("writer %d takes over at %d, %v; want %d", w, due, waits, want)
		}
	}
	s.proposes(0)
	s.tick(10)
	s.write(3)
	s.vouches(0, "\x01", "\x02\x02")
}

// TestWitnessHelp: a writer that took over writes what follows at once, for a while.
func TestWitnessHelp(t *testing.T) {
	t.Parallel()
	s := witnesses(t, 3, 1, nil)
	next := uint64(0)
	helps := func(want bool) {
		t.Helper()
		next++
		s.offer(next, 1, 2)
		s.write(1)
		if got := len(s.write(2)) > 0; got != want {
			t.Errorf("writer 2 writes entry %d at once: %v, want %v", next, got, want)
		}
		if !want {
			s.tick(s.writers[2].now + 10)
			s.write(2)
			other := s.writers[2].Clone()
			other.helps++
			if string(other.AppendState(nil)) == string(s.writers[2].AppendState(nil)) {
				t.Error("the state does not tell for how long the writer helps")
			}
		}
		s.carriers[0].Poll()
		if got := len(s.carriers[0].Vouch(9)); got != 1 {
			t.Errorf("%d entries count, want entry %d", got, next)
		}
		s.ordered(next)
	}
	helps(false)
	helps(true)
	s.tick(s.writers[2].now + 63*10)
	helps(true)
	s.tick(s.writers[2].now + 10)
	helps(false)
	helps(true)
}

// TestWitnessRepeat: a carrier that proposed before enough others vouched does so again, soon at
// first.
func TestWitnessRepeat(t *testing.T) {
	t.Parallel()
	s := witnesses(t, 3, 3, nil)
	s.offer(2, 0, 1, 2)
	s.write(0, 1)
	c := s.carriers[0]
	c.Poll()
	for number := uint64(1); number <= 2; number++ {
		now := c.now
		for _, wait := range []uint64{0, 2, 5, 10, 10} {
			before := c.Clone()
			if c.Tick(now + wait - min(1, wait)); wait > 0 && c.Pending() {
				t.Errorf("entry %d is proposed again before %d ticks", number, wait)
			}
			now += wait
			if c.Tick(now); !c.Pending() || len(c.Vouch(1)) != 1 || len(c.Propose(1<<20)) != 1 {
				t.Errorf("entry %d is not proposed after %d ticks", number, wait)
			}
			if wait > 0 && wait < 10 && string(before.AppendState(nil)) ==
				string(c.AppendState(nil)) {
				t.Error("the state does not tell when the entry is proposed again")
			}
		}
		c.Advance(number, number)
	}
}

// TestVouch: an entry is vouched for until the log has it. It is news once, and again after the
// patience.
func TestVouch(t *testing.T) {
	t.Parallel()
	s := witnesses(t, 2, 2, nil)
	s.offer(5, 0, 1)
	s.write(0, 1)
	c := s.carriers[1]
	c.Poll()
	vouch := func(limit int, want ...uint64) {
		t.Helper()
		var got []uint64
		for _, entry := range c.Vouch(limit) {
			got = append(got, entry.Number)
		}
		if !slices.Equal(got, want) {
			t.Errorf("vouches for %v, want %v", got, want)
		}
	}
	news := func(want bool) {
		t.Helper()
		if got := c.Unvouched(); got != want {
			t.Errorf("there is news: %v, want %v", got, want)
		}
	}
	news(true)
	if c.Pending() {
		t.Error("a carrier proposes what another one is to propose")
	}
	vouch(3, 1, 2, 3)
	news(false) // for 4 there is no room
	c.Advance(1, 0)
	news(true)
	vouch(100, 2, 3, 4, 5)
	vouch(100, 2, 3, 4, 5)
	news(false)
	c.Tick(c.now + 40)
	news(true)
	if !c.Pending() || len(c.Propose(1<<20)) > 0 {
		t.Error("a carrier that took over has nothing to propose, or does so before it vouches")
	}
	vouch(2, 2, 3)
	if got := len(c.Propose(1 << 20)); got != 2 || c.Pending() {
		t.Errorf("proposes %d entries, and %v; want as many as it vouches for", got, c.Pending())
	}
	vouch(100, 2, 3, 4, 5)
	if got := c.Propose(1 << 20); len(got) != 4 || got[0].Number != 2 || got[3].Number != 5 {
		t.Errorf("proposes %d entries, want the others and those before", len(got))
	}
	if got := c.Propose(1 << 20); len(got) != 4 || c.Pending() {
		t.Errorf("proposes %d entries, want those that the log lacks", len(got))
	}
	if got := c.Propose(len(c.slot(2).payload)); len(got) != 1 || got[0].Number != 2 {
		t.Errorf("proposes %d entries, want as many as fit", len(got))
	}
	c.Advance(4, 0)
	vouch(0)
	c.Advance(5, 0)
	vouch(100)
	news(false)
	c.Advance(2, 2) // the log goes back
	news(true)
	vouch(100, 3, 4, 5)
	if err := c.SetMembers([]order.ServerID{0, 1}, []order.ServerID{0}); err != nil {
		t.Fatal(err)
	}
	vouch(100)
	news(false)
	s = witnesses(t, 2, 2, func(config *Config) { config.Witnessed = false })
	s.offer(2, 0, 1)
	s.write(0, 1)
	held := 0
	for _, c = range s.carriers {
		c.Poll()
		held += c.Status().Held
		vouch(100) // a stream without witnesses needs no vouching
		news(false)
	}
	if held == 0 {
		t.Error("no carrier holds an entry")
	}
}

// TestWitnessMemory: a writer that gets one ring after the other has no more entries kept than fit
// into one, until the log has them. Then its ring is read further.
func TestWitnessMemory(t *testing.T) {
	t.Parallel()
	s := witnesses(t, 1, 1, func(c *Config) { c.Entries = 64 })
	c, largest := s.carriers[0], bytes.Repeat([]byte{7}, 16)
	number := uint64(0)
	for range 20 {
		s.connect(0, 0)
		for at := 0; at+RecordSize(16) <= 120; at += RecordSize(16) {
			number++
			putRecord(s.rings[[2]int{0, 0}][at:][:RecordSize(16)], number, largest)
		}
		c.Poll()
	}
	if held := c.Status().Held; held != 200/RecordSize(16) {
		t.Errorf("%d entries are held, want %d", held, 200/RecordSize(16))
	}
	if c.Poll() {
		t.Error("a ring that waits has news")
	}
	c.Advance(number-3, number-3)
	if c.Poll(); c.inboxes[0].held != uint64(3*RecordSize(16)) || c.Status().Held != 3 {
		t.Errorf("%d bytes and %d entries are held, want 3 entries", c.inboxes[0].held,
			c.Status().Held)
	}
	c.Advance(number+100, number+100)
	if c.inboxes[0].held != 0 {
		t.Errorf("%d bytes are held, want none", c.inboxes[0].held)
	}
	s.clear()
}

// TestWitnessState: a copy of a carrier is independent, and a state tells variants apart.
func TestWitnessState(t *testing.T) {
	t.Parallel()
	states := map[string]string{}
	for _, claims := range []string{"", "a", "b", "ab", "aa", "bb", "baa"} {
		s := witnesses(t, 3, 1, nil)
		for w, claim := range claims {
			clone := s.carriers[0].Clone()
			before := string(clone.AppendState(nil))
			s.claim(w, 1, string(claim))
			s.carriers[0].Poll()
			if string(clone.AppendState(nil)) != before {
				t.Errorf("%s: a copy changes with its original", claims)
			}
		}
		state := string(s.carriers[0].AppendState(nil))
		if other, same := states[state]; same {
			t.Errorf("%q and %q have the same state", claims, other)
		}
		states[state] = claims
		if string(s.carriers[0].Clone().AppendState(nil)) != state {
			t.Errorf("%q: a copy has another state", claims)
		}
	}
}

// TestProposalsAreRepeated: what a proposal repeats is bounded, and leaves the rest of the room for
// entries that were never proposed.
func TestProposalsAreRepeated(t *testing.T) {
	t.Parallel()
	s := witnesses(t, 1, 1, func(config *Config) {
		config.EntryMax, config.RingSize, config.Entries = 8<<10, 256<<10, 32
		config.Stretch = 32
	})
	for range 8 {
		if err := s.writers[0].Offer(s.writers[0].Next(), make([]byte, 6<<10)); err != nil {
			t.Fatal(err)
		}
	}
	s.write(0)
	c := s.carriers[0]
	c.Poll()
	propose := func(room int, want ...uint64) {
		t.Helper()
		c.Vouch(100)
		var got []uint64
		for _, entry := range c.Propose(room) {
			got = append(got, entry.Number)
		}
		if !slices.Equal(got, want) {
			t.Errorf("proposes %v, want %v", got, want)
		}
	}
	propose(24<<10, 1, 2, 3, 4)
	propose(24<<10, 1, 2, 5, 6)
	propose(1<<20, 1, 2, 7, 8)
	propose(1<<20, 1, 2)
	propose(7<<10, 1)
	c.Advance(2, 2)
	propose(1<<20, 3, 4)
	c.Advance(8, 8)
	propose(1 << 20)
}
