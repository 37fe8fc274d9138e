package generation

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// members returns the servers 0 to n-1.
func members(n int) (list []order.ServerID) {
	for i := range n {
		list = append(list, order.ServerID(i))
	}
	return list
}

// A server with a lost disk is not a non-voter. Of five members A, B, C and D entered [1,r+2], and
// so voted for [1,1] (t = 4). D A-delivered round 1 and is cut off. C lost its disk and came back
// with a new one. A, B and E remember.
func TestLostDiskIsNoNonVoter(t *testing.T) {
	t.Parallel()
	original := []DiskID{{1}, {2}, {3}, {4}, {5}}
	for name, c := range map[string]struct {
		disks []DiskID // that the chain names
		fault Fault
		tail  int
	}{
		"no disks named": {tail: 1},
		"disks named":    {disks: original, tail: 1},
		"planted":        {fault: FaultLostDiskIgnored, tail: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shard := Membership{Members: members(5), Disks: c.disks}
			decided := &Decision{Generation: 1, Members: shard.Members, Disks: original}
			vote := Vote{TailRound: testRound(1, 1), Voters: shard.Members}
			silent := Report{Head: Head{Generation: 1}, Run: NewRun(1, 0), Shard: shard,
				Membership: shard}
			voter := silent
			voter.Votes = []Vote{vote}
			state := State{Disk: original[0], Decided: decided, Instance: 1}
			s, err := NewSynod(Config{State: state, Original: true, Report: voter, Grace: 1,
				Patience: 4,
				Fault:    c.fault})
			if err != nil {
				t.Fatal(err)
			}
			s.Working(NewRun(1, 0), shard)
			s.Idle(voter, 0)
			s.Tick()
			promise := func(from order.ServerID, r Report, disk DiskID, original bool) {
				r.Disk, r.Original = disk, original
				s.Receive(from, Message{Kind: KindPromise, Generation: 2, Ballot: s.ballot,
					Report: r,
					Known:  decided})
			}
			promise(1, voter, original[1], true)
			promise(2, Report{Shard: shard, Membership: shard}, DiskID{77}, false)
			if c.fault == FaultNone {
				s.Tick()
				s.Tick()
				w := s.Waiting()
				if s.phase != phasePreparing || w.Missing != 1 ||
					!slices.Equal(w.Forgot, []order.ServerID{2}) ||
					!slices.Equal(w.Unreachable, []order.ServerID{3, 4}) {
					t.Fatalf("phase %d, waits for %+v", s.phase, w)
				}
			}
			promise(4, silent, original[4], true)
			for range 2 {
				s.Tick()
			}
			if s.phase != phaseAccepting || len(s.value.Tail) != c.tail {
				t.Fatalf("phase %d, value %+v", s.phase, s.value)
			}
			if c.fault == FaultNone && s.value.Includes(2) {
				t.Fatalf("the learner is a member: %+v", s.value)
			}
		})
	}
}

// A learner's acceptance decides nothing.
func TestLearnersAcceptNothing(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultLostDiskIgnored} {
		shard := Membership{Members: members(3), Disks: []DiskID{{1}, {2}, {3}}}
		s, err := NewSynod(Config{State: State{Disk: DiskID{1}}, Report: Report{Membership: shard},
			Grace: 1, Patience: 4, Fault: fault})
		if err != nil {
			t.Fatal(err)
		}
		s.Tick()
		s.Receive(1, Message{Kind: KindPromise, Generation: 1, Ballot: s.ballot,
			Report: Report{Shard: shard, Membership: shard, Disk: DiskID{2}}})
		for range 2 {
			s.Tick()
		}
		s.Receive(2, Message{Kind: KindAccepted, Generation: 1, Ballot: s.ballot, Disk: DiskID{9},
			Original: true})
		if decided := s.Decided() != nil; decided != (fault != FaultNone) {
			t.Fatalf("fault %d: decided %v", fault, s.Decided())
		}
		s.Receive(1, Message{Kind: KindAccepted, Generation: 1, Ballot: s.ballot, Disk: DiskID{2}})
		if d := s.Decided(); d == nil || !slices.Equal(d.Members, []order.ServerID{0, 1}) {
			t.Fatalf("decided %+v", d)
		}
	}
}

// Counts follows the disks that the chain names.
func TestCounts(t *testing.T) {
	t.Parallel()
	m := Membership{Members: members(2), Disks: []DiskID{{}, {7}}}
	for _, c := range []struct {
		server   order.ServerID
		disk     DiskID
		original bool
		counts   bool
	}{
		{0, DiskID{1}, true, true}, {0, DiskID{1}, false, false}, {0, DiskID{}, true, true},
		{1, DiskID{7}, false, true}, {1, DiskID{7}, true, true}, {1, DiskID{8}, true, false},
		{1, DiskID{}, true, false}, {2, DiskID{1}, true, false},
	} {
		if m.Counts(c.server, c.disk, c.original) != c.counts {
			t.Errorf("%+v", c)
		}
	}
	if !(Membership{Members: members(1)}).Counts(0, DiskID{3}, true) {
		t.Error("an original disk does not count where the chain names none")
	}
}

// promisedBy returns a promise of a server that did not restart, with its disk {server + 1}.
func promisedBy(server order.ServerID, m Membership, round order.Round) Promised {
	return Promised{server, Report{Head: Head{Generation: 1, Height: uint64(round), Round: round},
		Disk: DiskID{byte(server + 1)}, Original: true, Run: NewRun(1, 0), Shard: m, Membership: m}}
}

// A change that no promise knows to be durable needs a majority of the membership before it, too.
// Here C's old disk may have come back, and A and that disk may go on without the change.
func TestChangeThatMayNotBeEffective(t *testing.T) {
	t.Parallel()
	before := Membership{Members: members(3)}
	after := Membership{Number: 1, Members: members(3), Disks: []DiskID{{}, {}, {33}}}
	b, c := promisedBy(1, after, 9), promisedBy(2, after, 9)
	b.Report.Former = []Former{{before, 9}}
	c.Report.Disk, c.Report.Original, c.Report.Former = DiskID{33}, false, b.Report.Former
	enough := func(fault Fault, promises ...Promised) bool {
		v := furthestSurvey(promises, nil, fault)
		return v.enough(true)
	}
	if enough(FaultNone, b, c) {
		t.Error("a majority of the new membership alone is enough")
	}
	if !enough(FaultFormerIgnored, b, c) {
		t.Error("the planted bug goes unnoticed")
	}
	known := c
	known.Report.Durable = 9
	if !enough(FaultNone, b, known) {
		t.Error("the change is known to be durable, and the membership before is still needed")
	}
	if a := promisedBy(0, before, 8); !enough(FaultNone, a, b, c) {
		t.Error("majorities of both are not enough")
	}
}

// The shard goes on from a learner's head if the others are enough for that. Otherwise the head is
// left out.
func TestLearnersHead(t *testing.T) {
	t.Parallel()
	m := Membership{Members: members(3)}
	learner := promisedBy(2, m, 9)
	learner.Report.Disk, learner.Report.Original, learner.Report.Run = DiskID{33}, false, 0
	promises := []Promised{promisedBy(0, m, 8), promisedBy(1, m, 8), learner}
	if base, _ := choose(promises, nil, FaultNone); base.Round != 9 {
		t.Errorf("goes on from round %d, and a learner holds round 9", base.Round)
	}
	// The learner's chain lets in two more members, whose promises are missing.
	promises[2].Report.Membership = Membership{Number: 2, Members: members(5)}
	v := furthestSurvey(promises, nil, FaultNone)
	if base, _ := v.choose(nil); base.Round != 8 || !v.enough(true) {
		t.Errorf("goes on from round %d, enough %v", base.Round, v.enough(true))
	}
}

// Blocks that a disk perhaps had are given up only if enough other disks did not have them.
func TestPerhaps(t *testing.T) {
	t.Parallel()
	m := Membership{Members: members(5)}
	at := func(server order.ServerID, round order.Round, perhaps bool, to uint64) Promised {
		p := promisedBy(server, m, round)
		p.Report.Perhaps, p.Report.PerhapsTo = perhaps, to
		return p
	}
	never := func(p Promised) Promised {
		p.Report.Run = 0
		return p
	}
	after := func(p Promised) Promised { // a run of a later generation than the head's
		p.Report.Run = NewRun(p.Report.Head.Generation+1, 0)
		return p
	}
	for name, c := range map[string]struct {
		promises []Promised
		waits    bool
	}{
		"nobody": {[]Promised{at(0, 7, false, 0), at(1, 7, false, 0), at(2, 6, false, 0)}, false},
		"one that took part in no run": {[]Promised{never(at(0, 7, true, 0)), at(1, 7, false, 0),
			at(2, 6, false, 0)}, false},
		"too few had not": {[]Promised{at(0, 7, true, 0), at(1, 7, false, 0), at(2, 6, false, 0)},
			true},
		"three had not": {[]Promised{at(0, 7, true, 0), at(1, 7, false, 0), at(2, 6, false, 0),
			at(3, 5, false, 0)}, false},
		"four had, and one is not there": {[]Promised{at(0, 7, true, 0), at(1, 7, true, 0),
			at(2, 6, true, 0),
			at(3, 6, true, 0)}, true},
		"all had, and no more than two are damaged": {[]Promised{at(0, 7, true, 0),
			at(1, 7, true, 0), at(2, 6, true, 0),
			at(3, 6, true, 0), at(4, 6, true, 0)}, false},
		"held whole elsewhere": {[]Promised{at(0, 7, true, 9), at(1, 9, false, 0),
			at(2, 6, true, 7)}, false},
		"as high, in an older generation": {[]Promised{after(at(0, 9, false, 0)),
			after(at(1, 7, true, 9)),
			after(at(2, 6, false, 0))}, true},
		"one block more": {[]Promised{at(0, 7, true, 10), at(1, 9, false, 0), at(2, 6, true, 10)},
			true},
	} {
		v := furthestSurvey(c.promises, nil, FaultNone)
		if v.perhaps() != c.waits {
			t.Errorf("%s: waits %v", name, v.perhaps())
		}
		v.fault = FaultPerhapsIgnored
		if v.perhaps() {
			t.Errorf("%s: the planted bug changes nothing", name)
		}
	}
}

// A proposer that needs restarted servers waits for the others that it reaches, however long. It
// goes on once it reaches none.
func TestWaitsForMemory(t *testing.T) {
	t.Parallel()
	shard := Membership{Members: members(3), Disks: []DiskID{{1}, {2}, {3}}}
	decided := &Decision{Generation: 1, Members: shard.Members, Disks: shard.Disks}
	report := Report{Head: Head{Generation: 1}, Run: NewRun(1, 0), Shard: shard, Membership: shard}
	s, err := NewSynod(Config{State: State{Disk: DiskID{1}, Decided: decided, Instance: 1,
		Activated: NewRun(1, 0), Shard: shard}, Report: report, Grace: 1, Patience: 2})
	if err != nil {
		t.Fatal(err)
	}
	s.Linked(2, true)
	restarted := report
	restarted.Disk, restarted.Restarted = DiskID{2}, true
	answer := func() {
		for range 10 {
			s.Tick()
			if s.phase == phasePreparing {
				s.Receive(1, Message{Kind: KindPromise, Generation: 2, Ballot: s.ballot,
					Report: restarted})
			}
		}
	}
	for range 100 {
		answer()
		if s.phase == phaseAccepting {
			t.Fatal("proposes, although a server that may remember can be reached")
		}
	}
	w := s.Waiting()
	if !w.Memory || w.Missing != 0 || !slices.Equal(w.Restarted, members(2)) ||
		!slices.Equal(w.Silent, []order.ServerID{2}) {
		t.Fatalf("waits for %+v", w)
	}
	s.Linked(2, false)
	answer()
	if s.phase != phaseAccepting {
		t.Fatalf("phase %d, waits for %+v", s.phase, s.Waiting())
	}
}

// A vote of a server that restarted counts if another server saw it.
func TestKnownVotesCount(t *testing.T) {
	t.Parallel()
	m := Membership{Members: members(3)}
	value := testRound(9, 2)
	value.Origins = members(3)
	other := testRound(9, 3)
	other.Origins = members(2)
	see := func(of TailRound, confirmed bool) KnownVote {
		return KnownVote{Voter: 1, Round: 9, Epoch: of.Epoch, Reliable: true, Origins: of.Origins,
			Confirmed: confirmed}
	}
	voter, restarted := promisedBy(0, m, 8), promisedBy(1, m, 8)
	voter.Report.Votes = []Vote{{TailRound: value, Voters: members(3)}}
	restarted.Report.Restarted = true
	silent := promisedBy(2, m, 8)
	for name, c := range map[string]struct {
		seen []KnownVote
		tail int
	}{
		"nothing seen":       {nil, 0}, // one vote, and one unknown: q is three
		"for this value":     {[]KnownVote{see(value, false)}, 0},
		"confirmed":          {[]KnownVote{see(value, true)}, 1},
		"for another":        {[]KnownVote{see(other, false)}, 0},
		"another, confirmed": {[]KnownVote{see(other, true)}, 0},
	} {
		voter.Report.Known = c.seen
		if _, tail := choose([]Promised{voter, restarted, silent},
			nil, FaultNone); len(tail) != c.tail {
			t.Errorf("%s: %d rounds", name, len(tail))
		}
	}
	// Without the third server the restarted one is needed: the vote that another server saw rules
	// the value out.
	voter.Report.Known = nil
	if _, tail := choose([]Promised{voter, restarted}, nil, FaultNone); len(tail) != 1 {
		t.Error("both unknown servers may have voted for the value, and it is not taken")
	}
	voter.Report.Known = []KnownVote{see(other, false)}
	if _, tail := choose([]Promised{voter, restarted}, nil, FaultNone); len(tail) != 0 {
		t.Error("server 1 is known to have voted for another value, and counts as unknown")
	}
}

// A node whose chain of an earlier generation is longer does not hold a base of a later generation.
// Its chain may have blocks that the later generation gave up.
func TestBaseOfAnotherGeneration(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultBaseWithoutGeneration} {
		shard := Membership{Members: members(3)}
		s, err := NewSynod(Config{State: State{Disk: DiskID{1}, Activated: NewRun(1, 0),
			Shard: shard},
			Original: true, Grace: 1, Patience: 4, Fault: fault,
			Report: Report{Head: Head{Generation: 1, Height: 9, Round: 9, Hash: [32]byte{1}},
				Membership: shard}})
		if err != nil {
			t.Fatal(err)
		}
		d := &Decision{Generation: 2, Members: members(3), Disks: []DiskID{{1}, {2}, {3}}}
		value := &Decision{Generation: 3, Base: Head{Generation: 2, Height: 8, Round: 8,
			Hash: [32]byte{2}},
			Members: d.Members, Disks: d.Disks}
		s.Receive(1, Message{Kind: KindDecided, Generation: 2, Value: d})
		s.Receive(1, Message{Kind: KindAccept, Generation: 3,
			Ballot: Ballot{Number: 1, Proposer: 1}, Value: value})
		if accepted := s.Ready().State.AcceptedValue != nil; accepted != (fault != FaultNone) {
			t.Fatalf("fault %d: accepted %v, wants %v", fault, accepted, s.Wanted())
		}
	}
}

// A file of version 2 is decoded: its disks become the first half of the new ones.
func TestStateOfVersionTwo(t *testing.T) {
	t.Parallel()
	b := []byte(stateMagicV2)
	b = append(b, flagKnown)
	b = binary.LittleEndian.AppendUint64(b, 0x0807060504030201) // disk
	b = binary.LittleEndian.AppendUint64(b, uint64(NewRun(1, 0)))
	shard := binary.LittleEndian.AppendUint64(nil, 3)
	b = append(b, appendServers(shard, members(2))...)
	b = binary.LittleEndian.AppendUint64(b, 1) // instance
	for range 2 {                              // promised, accepted
		b = binary.LittleEndian.AppendUint64(b, 5)
		b = binary.LittleEndian.AppendUint32(b, 1)
	}
	b = binary.LittleEndian.AppendUint64(b, 1) // the decision: generation, base, no tail
	b = append(appendHead(b, Head{}), 0)
	b = appendServers(b, members(2))
	b = binary.LittleEndian.AppendUint64(b, 0x0807060504030201)
	b = binary.LittleEndian.AppendUint64(b, 9)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	s, err := DecodeState(b)
	if err != nil {
		t.Fatal(err)
	}
	disk := DiskID{1, 2, 3, 4, 5, 6, 7, 8}
	if s.Disk != disk || s.Decided == nil || s.Decided.Disks[0] != disk ||
		s.Decided.Disks[1] != (DiskID{9}) ||
		s.Promised != (Ballot{Number: 5, Proposer: 1}) || s.Shard.Number != 3 ||
		len(s.Shard.Members) != 2 {
		t.Fatalf("%+v, decided %+v", s, s.Decided)
	}
	again, err := DecodeState(s.Encode())
	if err != nil || !again.Decided.Equal(*s.Decided) || again.Disk != disk {
		t.Fatalf("%+v, %v", again, err)
	}
}

// The newest run counted with two members. Server 2 joined since, and that is known to be durable.
// No majority of the two is left, because server 1's disk is lost. A majority of the three is
// enough, since each of them meets the only majority of the two. The proposer waits for the votes
// of the old majority as long as a server may report them. The same holds if another disk was named
// for server 1.
func TestMajorityBeforeJoin(t *testing.T) {
	t.Parallel()
	disks := []DiskID{{1}, {2}, {3}}
	two := Membership{Number: 1, Members: members(2), Disks: disks[:2]}
	three := Membership{Number: 2, Members: members(3), Disks: disks}
	other := Membership{Number: 2, Members: members(2), Disks: []DiskID{{1}, {9}}}
	for name, c := range map[string]struct {
		now    Membership
		former []Former
		last   order.ServerID // the server that promises besides server 0
		enough bool
	}{
		"joined":          {now: three, last: 2, enough: true},
		"not yet durable": {now: three, last: 2, former: []Former{{two, 6}}},
		"another disk":    {now: other, last: 1, enough: true},
		"two changes":     {now: Membership{Number: 3, Members: members(3), Disks: disks}, last: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head := Head{Generation: 1, Height: 6, Round: 6}
			promises := []Promised{
				{0, Report{Head: head, Disk: disks[0], Durable: 5, Run: NewRun(1, 0), Shard: two,
					Membership: c.now, Former: c.former}},
				{c.last, Report{Head: head, Disk: c.now.Disk(c.last), Shard: c.now,
					Membership: c.now, Former: c.former}},
			}
			v := furthestSurvey(promises, nil, FaultNone)
			if v.enough(false) != c.enough {
				t.Errorf("a majority of %v is needed", v.memberships)
			}
			if v.enough(true) {
				t.Error("the votes of server 1 are not waited for")
			}
		})
	}
}

func TestNeighbour(t *testing.T) {
	t.Parallel()
	two := Membership{Number: 1, Members: members(2), Disks: []DiskID{{1}, {2}}}
	for name, c := range map[string]struct {
		next Membership
		is   bool
	}{
		"a join": {Membership{Number: 2, Members: members(3),
			Disks: []DiskID{{1}, {2}, {3}}}, true},
		"a leave":   {Membership{Number: 2, Members: members(1), Disks: []DiskID{{1}}}, true},
		"a disk":    {Membership{Number: 2, Members: members(2), Disks: []DiskID{{1}, {9}}}, true},
		"two disks": {Membership{Number: 2, Members: members(2), Disks: []DiskID{{8}, {9}}}, false},
		"another branch": {Membership{Number: 2, Members: []order.ServerID{0, 3},
			Disks: []DiskID{{1}, {4}}}, false},
		"two changes": {Membership{Number: 3, Members: members(3),
			Disks: []DiskID{{1}, {2}, {3}}}, false},
		"one earlier": {Membership{Number: 0, Members: members(1), Disks: []DiskID{{1}}}, false},
		"no change":   {two, false},
		"a join, a disk": {Membership{Number: 2, Members: members(3),
			Disks: []DiskID{{1}, {9}, {3}}}, false},
	} {
		if two.neighbour(c.next) != c.is {
			t.Errorf("%s: %v", name, !c.is)
		}
	}
}

// The membership that counted in the newest run needs a majority, too. There is none if no disk
// that counts took part in any run.
func TestMembershipsThatAreAskedFor(t *testing.T) {
	t.Parallel()
	one, two := Membership{Members: members(3)}, Membership{Number: 1, Members: members(4)}
	three := Membership{Number: 2, Members: members(5)}
	promise := func(server order.ServerID, run Run, shard, membership Membership) Promised {
		p := promisedBy(server, membership, 9)
		p.Report.Run, p.Report.Shard = run, shard
		return p
	}
	for name, c := range map[string]struct {
		promises []Promised
		run      Run
		want     []Membership
	}{
		"none":    {nil, 0, nil},
		"no run":  {[]Promised{promise(0, 0, two, one)}, 0, []Membership{one}},
		"one run": {[]Promised{promise(0, 1, two, one)}, 1, []Membership{one, two}},
		"the newer run": {[]Promised{promise(0, 1, two, one),
			promise(1, 2, one, one)}, 2, []Membership{one}},
		"the newer, 1st": {[]Promised{promise(0, 2, two, one),
			promise(1, 1, one, one)}, 2, []Membership{one, two}},
		"the later membership of a run": {[]Promised{promise(0, 1, one, one),
			promise(1, 1, three, one)}, 1, []Membership{one, three}},
		"the later membership of a run, 1st": {[]Promised{promise(0, 1, three, one),
			promise(1, 1, one, one)}, 1, []Membership{one, three}},
		"of no member": {[]Promised{promise(0, 1, one, one),
			promise(4, 2, two, one)}, 1, []Membership{one}},
		"no members": {[]Promised{promise(0, 0, one, Membership{})}, 0, nil},
	} {
		v := newSurvey(c.promises, c.promises, nil, FaultNone)
		if v.run != c.run || !slices.EqualFunc(v.memberships, c.want, Membership.Equal) {
			t.Errorf("%s: run %d, memberships %+v", name, v.run, v.memberships)
		}
	}
	if quorum(three, FaultNone) != 3 || quorum(three, FaultMinorityQuorum) != 2 {
		t.Error("the majority of five is three")
	}
}

// TestNobodyRan: no memory is required of the membership of a server that took part in no run, even
// if it is the membership before the one at the furthest head, a learner's.
func TestNobodyRan(t *testing.T) {
	t.Parallel()
	before := Membership{Members: members(3)}
	after := Membership{Number: 1, Members: members(4)}
	promises := []Promised{shownBy(0, before, 0), shownBy(3, after, 5)}
	promises[1].Report.Original = false
	v := newSurvey(promises, promises, nil, FaultNone)
	if len(v.remembering) != 1 || !v.remembering[0].Equal(after) {
		t.Errorf("votes are asked for of %+v, want the membership at the head alone", v.remembering)
	}
}

func shownBy(server order.ServerID, m Membership, height uint64) Promised {
	p := shown(server, m, height)
	return Promised{server, p.message.Report}
}

// If the chain names no disk for a member, the newest decision does.
func TestCountsUnderADecision(t *testing.T) {
	t.Parallel()
	unnamed := Membership{Members: members(2)}
	named := Membership{Members: members(2), Disks: []DiskID{{1}, {2}}}
	d := &Decision{Members: members(1), Disks: []DiskID{{9}}}
	for _, c := range []struct {
		m       Membership
		server  order.ServerID
		decided *Decision
		counts  bool
	}{
		{unnamed, 0, nil, true}, {unnamed, 0, d, false}, {unnamed, 1, d, true},
		{named, 0, d, true}, {named, 0, nil, true},
	} {
		if countsUnder(c.m, c.server, DiskID{byte(c.server + 1)}, true, c.decided) != c.counts {
			t.Errorf("%+v", c)
		}
	}
}

// TestGivenUpJoin: server 1 holds block 9, in which server 3 joined. Generation 2 was decided to go
// on from block 8, and no promise shows a block of it. So server 3 is not needed.
func TestGivenUpJoin(t *testing.T) {
	t.Parallel()
	before := Membership{Members: members(3)}
	after := Membership{Number: 1, Members: members(4)}
	head := func(height uint64, branch byte) Head {
		return Head{Generation: 1, Height: height, Round: order.Round(height),
			Hash: [32]byte{byte(height), branch}}
	}
	zero, one := promisedBy(0, before, 0), promisedBy(1, after, 0)
	zero.Report.Head, one.Report.Head = head(8, 0), head(9, 1)
	one.Report.Shard, one.Report.Former = before, []Former{{before, 9}}
	decided := &Decision{Generation: 2, Base: head(8, 0), Members: members(2),
		Disks: []DiskID{{1}, {2}}}
	other := *decided
	other.Base = head(8, 2)
	tailed := *decided
	tailed.Tail = []TailRound{{Round: 9}} // which may have the join
	late := zero
	late.Report.Head = Head{Generation: 2, Height: 9, Round: 9, Hash: [32]byte{9, 2}}
	for name, c := range map[string]struct {
		promises []Promised
		decided  *Decision
		enough   bool
		asked    int // memberships
	}{
		"decided":                {[]Promised{zero, one}, decided, true, 1},
		"decided, in turn":       {[]Promised{one, zero}, decided, true, 1},
		"the base alone":         {[]Promised{zero}, decided, false, 1},
		"no promise at the base": {[]Promised{zero, one}, &other, false, 2},
		"nothing decided":        {[]Promised{zero, one}, nil, false, 2},
		"decided with a tail":    {[]Promised{zero, one}, &tailed, false, 2},
		"a block of it":          {[]Promised{late, one}, decided, true, 1},
		"of the same generation": {[]Promised{zero, one},
			&Decision{Generation: 1, Base: head(8, 0)}, false, 2},
		"the furthest is the base": {[]Promised{zero, one},
			&Decision{Generation: 2, Base: head(9, 1)}, false, 2},
	} {
		v := furthestSurvey(c.promises, c.decided, FaultNone)
		if v.enough(false) != c.enough || len(v.memberships) != c.asked {
			t.Errorf("%s: enough %v, %d memberships are asked", name, v.enough(false),
				len(v.memberships))
		}
	}
}

// A block b is durable because of disks that meet each majority of a required membership. These
// disks need not be a majority of it. Fewer of them must not outvote disks that lost b.
func TestPerhapsAcrossAChange(t *testing.T) {
	t.Parallel()
	first, second := NewRun(1, 0), NewRun(1, 1)
	of := func(number uint64, n int) Membership {
		return Membership{Number: number, Members: members(n)}
	}
	damaged := func(p Promised) Promised {
		p.Report.Perhaps, p.Report.Restarted = true, true
		return p
	}
	with := func(p Promised, run Run, shard, now Membership, durable uint64,
		former ...Former) Promised {
		p.Report.Run, p.Report.Shard, p.Report.Membership = run, shard, now
		p.Report.Durable, p.Report.Former = durable, former
		return p
	}
	three, four, five := of(1, 3), of(2, 4), of(1, 5)
	left4 := of(2, 4)
	for name, promises := range map[string][]Promised{
		// Run 1.0 is of 0, 1 and 2. In block 10 server 3 joins. Block 11, of the same run, is
		// durable on 0 and 1. 2 has block 10 on its disk and knows that it is durable. 1 begins run
		// 1.1. Then all lose power, and 1's disk loses block 11. 0 stays away.
		"a join, and a block of the run with it": {
			damaged(with(promisedBy(1, three, 10), second, four, four, 9, Former{three, 10})),
			with(promisedBy(2, three, 10), first, three, four, 10),
			with(promisedBy(3, three, 10), 0, four, four, 0, Former{three, 10}),
		},
		// Run 1.0 is of 0 to 4. In block 10 server 4 leaves. Block 11 is durable on 0, 1 and 4.
		"a leave, and a block of the run with it": {
			damaged(with(promisedBy(1, five, 10), second, left4, left4, 9, Former{five, 10})),
			with(promisedBy(2, five, 10), first, five, left4, 10),
			with(promisedBy(3, five, 10), first, five, left4, 9, Former{five, 10}),
		},
		// Run 1.0 is of 0 to 3. In block 10 server 3 leaves. Run 1.1 is of 0 and 1; 1 crashes
		// before it begins. 2 follows. Block 10 is durable on 0 and 2, and 2's disk loses it. 0
		// stays away.
		"a leave that a follower holds": {
			with(promisedBy(1, four, 9), first, four, four, 9),
			damaged(with(promisedBy(2, four, 9), first, four, four, 9)),
			with(promisedBy(3, four, 9), first, four, four, 9),
		},
	} {
		if v := furthestSurvey(promises, nil, FaultNone); !v.enough(false) || !v.perhaps() {
			t.Errorf("%s: enough %v, waits %v", name, v.enough(false), v.perhaps())
		}
	}
}

// The run that a server took part in labels the blocks of one disk. Promises bind the server on any
// disk.
func TestStateOnAnotherDisk(t *testing.T) {
	t.Parallel()
	decided := &Decision{Generation: 2}
	left := State{Disk: DiskID{1}, Activated: NewRun(2, 0),
		Shard: Membership{Number: 1, Members: members(3)},
		Start: Head{Height: 8}, Instance: 3, Promised: Ballot{Number: 4}, Decided: decided}
	older := left
	older.Disk = DiskID{}
	for name, c := range map[string]struct {
		state    State
		disk     DiskID
		original bool
		keeps    bool
	}{
		"the same disk":                {left, DiskID{1}, true, true},
		"the same admitted disk":       {left, DiskID{1}, false, true},
		"another disk":                 {left, DiskID{2}, false, false},
		"another original disk":        {left, DiskID{2}, true, false},
		"an older version":             {older, DiskID{1}, true, true},
		"an older version, a new disk": {older, DiskID{1}, false, false},
	} {
		s := c.state.OnDisk(c.disk, c.original)
		kept := s.Activated == left.Activated && len(s.Shard.Members) == 3 && s.Start == left.Start
		dropped := s.Activated == 0 && s.Shard.Members == nil && s.Start == (Head{})
		if kept != c.keeps || dropped == c.keeps || s.Disk != c.disk ||
			s.Instance != 3 || s.Promised != left.Promised || s.Decided != decided {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
