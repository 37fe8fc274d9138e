package multicast

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestTabulatedLeavesOutNothing checks that tabulated searches with and without rules reach the
// same states at rest, with and without faults. The errors that a crash brings are among them.
func TestTabulatedLeavesOutNothing(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	cases := []struct {
		options              SearchOptions
		reduced, whole, rest int // states
	}{
		{SearchOptions{Replicas: 2}, 310, 2253, 4},
		{SearchOptions{Replicas: 2, Crashes: 1}, 483, 9089, 148},
		{SearchOptions{Replicas: 2, Leads: 1}, 2293, 39598, 39},
	}
	if testing.Short() {
		cases = cases[:2]
	}
	for _, c := range cases {
		compareRests(t, c.options, c.reduced, c.whole, c.rest)
	}
}

// compareRests compares the states at rest of a search of DARE with and without rules.
func compareRests(t *testing.T, options SearchOptions, reduced, whole, rest int) {
	t.Helper()
	options.Engine, options.Groups, options.Messages = EngineDARE, 1, 1
	options.Tabulated = true
	var rests [2]map[fingerprint]bool
	for i, states := range []int{reduced, whole} {
		options.Unreduced, options.rests = i == 1, map[fingerprint]bool{}
		result, err := Search(t.Context(), options)
		if err != nil || !result.Complete || result.States != states {
			t.Errorf("%+v, want %d states, %v", result, states, err)
		}
		rests[i] = options.rests
		t.Logf("unreduced %v: %d states, %d transitions, %d ends, depth %d",
			options.Unreduced, result.States, result.Transitions, result.Ends, result.Depth)
	}
	if len(rests[0]) != rest || !maps.Equal(rests[0], rests[1]) {
		t.Errorf("%d states at rest, without rules %d, want %d", len(rests[0]), len(rests[1]), rest)
	}
}

// TestThreeServersOfDARE searches three servers, without and with faults, and compares the states
// at rest with those of a search without rules.
func TestThreeServersOfDARE(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	for _, c := range []struct {
		options              SearchOptions
		reduced, whole, rest int // states
	}{
		{SearchOptions{Begin: BeginElected}, 1106, 30825, 16},
		{SearchOptions{Begin: BeginOffered, Crashes: 1}, 42, 604, 57},
		{SearchOptions{Begin: BeginOffered, Leads: 1}, 204, 10251, 64},
		{SearchOptions{Begin: BeginOffered, Leads: 1, Crashes: 1}, 730, 73196, 1535},
	} {
		if c.options.Replicas = 3; testing.Short() && c.whole > 20_000 {
			continue
		}
		compareRests(t, c.options, c.reduced, c.whole, c.rest)
	}
}

// TestTurnsDependOnWhatAProcessSees checks that the turns of a process may be computed once for all
// states that look the same to it.
func TestTurnsDependOnWhatAProcessSees(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	for _, options := range []SearchOptions{
		{Replicas: 2, Crashes: 1},
		{Replicas: 3, Begin: BeginElected},
		{Replicas: 3, Begin: BeginOffered, Leads: 1, Crashes: 1},
		{Replicas: 3, Begin: BeginOffered, Hears: []Hearing{{1, 1}, {0, 1}}},
	} {
		options.Engine, options.Groups, options.Messages = EngineDARE, 1, 1
		options.Tabulated = true
		once, err := Search(t.Context(), options)
		if err != nil || !once.Complete {
			t.Fatalf("%+v: %+v, %v", options, once, err)
		}
		options.forgets = true
		again, err := Search(t.Context(), options)
		if err != nil || again.States != once.States || again.Transitions != once.Transitions ||
			again.Ends != once.Ends {
			t.Errorf("%+v: once %+v, again and again %+v, %v", options, once, again, err)
		}
		t.Logf("%+v: %d states, %d transitions", options, once.States, once.Transitions)
	}
}

// TestACandidateAwaitsWords checks that a search looks at the moments when the words of a candidate
// come: a leader sends its first heartbeat only where not many words are under way.
func TestACandidateAwaitsWords(t *testing.T) {
	t.Parallel()
	options := SearchOptions{Engine: EngineDARE, Groups: 1, Replicas: 3, Messages: 1, Leads: 1,
		Tabulated: true, Begin: BeginOffered}
	x := &explorer{ctx: t.Context(), options: options}
	var err error
	if x.play, err = newPlay(options, nil); err != nil {
		t.Fatal(err)
	}
	s, err := newTabulation(x)
	if err != nil {
		t.Fatal(err)
	}
	g := s.begin(s.table.first())
	g = s.table.take(g, step{kind: choiceLead, a: 1, b: 1})
	g = s.table.take(g, step{kind: choicePoll, a: 1})
	for _, awaits := range []bool{true, false} {
		one := step{}
		for _, w := range s.table.local(&g, 1).ways {
			if w.owner != 2 {
				continue
			}
			if one = w.step(1, choiceLand); w.awaited != awaits {
				t.Errorf("%d words under way, and the candidate awaits them: %v",
					len(w.operations), w.awaited)
			}
		}
		g = s.table.take(g, one)
	}
}

// TestTwoLeadersOfThreeServers searches all schedules of three servers with two changes of leaders.
func TestTwoLeadersOfThreeServers(t *testing.T) {
	t.Parallel()
	if raceEnabled || testing.Short() {
		t.Skip("the search is not parallel, and it takes its time")
	}
	result, err := Search(t.Context(), SearchOptions{Engine: EngineDARE, Groups: 1, Replicas: 3,
		Messages: 1, Leads: 2, Tabulated: true, Begin: BeginOffered})
	if err != nil || !result.Complete || result.States != 25937 || result.Violation != nil {
		t.Errorf("%+v, %v", result, err)
	}
}

// TestListsOfChanges checks that the searches of all lists of one change together see the states at
// rest of a search with one change.
func TestListsOfChanges(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	options := SearchOptions{Engine: EngineDARE, Groups: 1, Replicas: 3, Messages: 1, Leads: 1,
		Tabulated: true, Begin: BeginOffered, rests: map[fingerprint]bool{}}
	if result, err := Search(t.Context(), options); err != nil || !result.Complete {
		t.Fatalf("%+v, %v", result, err)
	}
	all := options.rests
	options.Leads, options.rests = 0, map[fingerprint]bool{}
	for replica := range options.Replicas {
		for leader := 1; leader < options.Replicas; leader++ { // all have heard of 0
			options.Hears = []Hearing{{replica, leader}}
			if result, err := Search(t.Context(), options); err != nil || !result.Complete {
				t.Fatalf("%+v, %v", result, err)
			}
		}
	}
	if !maps.Equal(options.rests, all) {
		t.Errorf("%d states at rest by lists, want %d", len(options.rests), len(all))
	}
}

// TestParseHearings parses lists of changes of leaders.
func TestParseHearings(t *testing.T) {
	t.Parallel()
	if all, err := ParseHearings("1:1,2:1"); err != nil ||
		!slices.Equal(all, []Hearing{{1, 1}, {2, 1}}) {
		t.Errorf("%v, %v", all, err)
	}
	for _, text := range []string{"", "1", "1:1,", "a:b", "1:1 ", "01:1"} {
		if all, err := ParseHearings(text); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v, %v", text, all, err)
		}
	}
}

// TestOneOrderSettles checks that the search may let everything come in one order: with two
// servers, two operations that come last lead to the same state in both orders, in all states.
func TestOneOrderSettles(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	for _, options := range []SearchOptions{
		{Replicas: 2, Messages: 1, Crashes: 1},
		{Replicas: 2, Messages: 1, Leads: 1},
	} {
		options.Engine, options.Groups, options.Tabulated = EngineDARE, 1, true
		options.StatesMax, options.DepthMax = StatesMaxDefault, DepthMaxDefault
		x := &explorer{ctx: t.Context(), options: options}
		var err error
		if x.play, err = newPlay(options, nil); err != nil {
			t.Fatal(err)
		}
		s, err := newTabulation(x)
		if err != nil {
			t.Fatal(err)
		}
		s.explore(s.table.first(), 0)
		pairs := 0
		for g := range s.seen {
			pairs += s.orders(t, g)
		}
		if x.result.Bound != "" || pairs == 0 {
			t.Errorf("%+v: %d pairs of operations, %+v", options, pairs, x.result)
		}
	}
}

// orders lets everything come from a state, as settle does, and compares both orders of each two
// operations that come next. It returns their number.
func (s *tabulation) orders(t *testing.T, g tabled) (pairs int) {
	for more := true; more; more = s.unsettled(&g, new([]step)) {
		var all []step
		for holder := range s.play.standings {
			l := s.table.local(&g, holder)
			for i := range l.ways {
				if !l.crashed {
					all = append(all, l.ways[i].step(holder, choiceLand))
				}
			}
		}
		for i, one := range all {
			for _, other := range all[:i] {
				pairs++
				if s.table.take(s.table.take(g, one), other) !=
					s.table.take(s.table.take(g, other), one) {
					t.Fatalf("the order of %+v and %+v matters", one, other)
				}
			}
		}
	}
	for _, one := range s.strays(&g) {
		pairs += s.orders(t, s.table.take(g, one))
	}
	return pairs
}

// TestTabulatedFindsPlantedBugsOfDARE checks that a tabulated search finds bugs of elections and of
// logs, and describes the path.
func TestTabulatedFindsPlantedBugsOfDARE(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	for _, c := range []struct {
		plant, evidence string
		options         SearchOptions
	}{
		{"tail-before-entries", "I5", SearchOptions{Replicas: 2}},
		{"zombie-counted-as-vote", "I1", SearchOptions{Replicas: 2, Leads: 1}},
		{"vote-without-check", "I3", SearchOptions{Replicas: 3, Leads: 2, Begin: BeginOffered}},
		{"log-kept", "I4", SearchOptions{Replicas: 3, Leads: 2, Begin: BeginOffered}},
		{"commits-old-terms", "server 0 halts", SearchOptions{Replicas: 3, Messages: 2,
			Begin: BeginDivided, Hears: []Hearing{{0, 0}, {1, 1}}, Shuffle: 56}},
	} {
		c.options.Engine, c.options.Plant, c.options.Groups = EngineDARE, c.plant, 1
		c.options.Messages, c.options.Tabulated = max(c.options.Messages, 1), true
		result, err := Search(context.Background(), c.options)
		if err != nil || result.Violation == nil || result.Violation.Property != Invariant ||
			!strings.HasPrefix(result.Violation.Evidence[0], c.evidence) {
			t.Fatalf("%s: %+v, %v", c.plant, result, err)
		}
		t.Logf("%s: %d states\n%s\n%v", c.plant, result.States, strings.Join(result.Path, "\n"),
			result.Violation)
	}
}

// TestDivided checks where a search from BeginDivided begins, and that all changes of leaders that
// it was given are left.
func TestDivided(t *testing.T) {
	t.Parallel()
	for _, options := range []SearchOptions{{Leads: 2}, {Hears: []Hearing{{0, 0}, {1, 1}}}} {
		options.Engine, options.Groups, options.Replicas = EngineDARE, 1, 3
		options.Messages, options.Tabulated, options.Begin = 2, true, BeginDivided
		options = options.divided()
		p, err := newPlay(options, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newTabulation(&explorer{options: options, play: p})
		if err != nil {
			t.Fatal(err)
		}
		g := s.begin(s.table.first())
		if s.table.compose(&g); s.table.broken != nil || p.leads != 2 {
			t.Errorf("%v, %d changes are left", s.table.broken, p.leads)
		}
		for i, want := range []string{"leads in term 1, leader 0, log to 1, committed 0,",
			"leads in term 2, leader 1, log to 1, committed 0,",
			"follows in term 2, leader -1, log to 0, committed 0,"} {
			if is := p.form.(*dareServers).servers[i].String(); !strings.HasPrefix(is, want) {
				t.Errorf("server %d %s", i, is)
			}
		}
		owners := map[int]bool{}
		for _, w := range s.table.local(&g, 0).ways {
			owners[w.owner] = true
		}
		if !owners[1] || !owners[2] {
			t.Errorf("what server 0 wrote is under way to %v, want servers 1 and 2", owners)
		}
	}
}

// TestTabulatedRefuses checks that a search which cannot be tabulated says so.
func TestTabulatedRefuses(t *testing.T) {
	t.Parallel()
	for _, options := range []SearchOptions{
		{Engine: EngineSequencer, Groups: 1, Replicas: 1, Messages: 1},
		{Engine: EngineDARE, Groups: 1, Replicas: 2, Messages: 1, Ticks: 1},
		{Engine: EngineDARE, Groups: 1, Replicas: 2, Messages: 1, Hears: []Hearing{{2, 0}}},
		{Engine: EngineDARE, Groups: 1, Replicas: 2, Messages: 1, Leads: 1,
			Hears: []Hearing{{1, 1}}},
		{Engine: EngineDARE, Groups: 1, Replicas: 2, Messages: 1, Begin: "late"},
		{Engine: EngineDARE, Groups: 1, Replicas: 3, Messages: 1, Begin: BeginDivided},
		{Engine: EngineDARE, Groups: 1, Replicas: 2, Messages: 2, Begin: BeginDivided},
	} {
		options.Tabulated = true
		if _, err := Search(context.Background(), options); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", options, err)
		}
	}
}
