package multicast

import (
	"fmt"
	"slices"
	"strings"
)

// This file is where a tabulated search begins, and which changes of leaders it has. A later
// beginning leaves out what may happen before it: faults, and other schedules of the same steps.

// The values of SearchOptions.Begin, besides "".
const (
	// BeginElected is when the first leader works: its election is over, and nothing is under way.
	BeginElected = "elected"
	// BeginOffered is when, besides, each client has submitted its first message, all replicas have
	// it, and the leader has ordered it, but nothing has come of what it wrote to the others' logs.
	BeginOffered = "offered"
)

// Beginnings lists the values of SearchOptions.Begin, besides "".
func Beginnings() []string { return []string{BeginElected, BeginOffered} }

// Hearing is a change of a leader oracle: it tells a replica of the group a leader, perhaps the
// same one again.
type Hearing struct{ Replica, Leader int }

// String returns the change as ParseHearings takes it.
func (h Hearing) String() string { return fmt.Sprintf("%d:%d", h.Replica, h.Leader) }

// ParseHearings parses a list of changes, for example "1:1,2:1". The error wraps ErrOptions.
func ParseHearings(text string) (all []Hearing, err error) {
	for part := range strings.SplitSeq(text, ",") {
		var h Hearing
		if _, err := fmt.Sscanf(part, "%d:%d", &h.Replica, &h.Leader); err != nil ||
			h.String() != part {
			return nil, fmt.Errorf("%w: a change of leaders %q, want a replica and a leader "+
				"like 1:2", ErrOptions, part)
		}
		all = append(all, h)
	}
	return all, nil
}

// checkHearings checks Hears.
func (o *SearchOptions) checkHearings() error {
	if !o.Tabulated && (o.Begin != "" || len(o.Hears) > 0) {
		return fmt.Errorf("%w: only a tabulated search begins late, or takes a list of changes",
			ErrOptions)
	}
	if len(o.Hears) > 0 && (o.Leads > 0 || o.Groups > 1) {
		return fmt.Errorf("%w: a list of changes of leaders, %d more, and %d groups; want no "+
			"more, and one group", ErrOptions, o.Leads, o.Groups)
	}
	for _, h := range o.Hears {
		if min(h.Replica, h.Leader) < 0 || max(h.Replica, h.Leader) >= o.Replicas {
			return fmt.Errorf("%w: the change of leaders %v among %d replicas", ErrOptions, h,
				o.Replicas)
		}
	}
	return nil
}

// checkBegin checks Begin.
func (o *SearchOptions) checkBegin() error {
	if o.Begin != "" && !slices.Contains(Beginnings(), o.Begin) {
		return fmt.Errorf("%w: a search that begins %q, use one of %v", ErrOptions, o.Begin,
			Beginnings())
	}
	return nil
}

// begin returns the state that the search begins in. It keeps the steps to there in s.begun.
func (s *tabulation) begin(g tabled) tabled {
	if s.options.Begin == "" {
		return g
	}
	g = s.calm(g, false)
	if s.options.Begin == BeginElected {
		return g
	}
	for process := range s.play.standings {
		if s.client(process) && s.table.broken == nil {
			g = s.beginWith(g, step{kind: choiceSubmit, a: process})
		}
	}
	for _, l := range slices.Clone(s.table.rests[g.rest].links) {
		if s.table.broken == nil {
			g = s.beginWith(g, step{kind: choiceArrive, a: l.from, b: l.to})
		}
	}
	return s.calm(g, true)
}

// calm lets everything come and all replicas poll, until nothing changes any more. It may hold back
// what is under way to regions that are shown.
func (s *tabulation) calm(g tabled, held bool) tabled {
	for before := (tabled{}); before != g && s.table.broken == nil; {
		before = g
		for process := range s.play.standings {
			for one, comes := s.comes(&g, held); comes && s.table.broken == nil; {
				g = s.beginWith(g, one)
				one, comes = s.comes(&g, held)
			}
			if s.table.broken == nil && !s.client(process) {
				g = s.beginWith(g, step{kind: choicePoll, a: process})
			}
		}
	}
	return g
}

// beginWith takes a step before the search, unless it changes nothing.
func (s *tabulation) beginWith(g tabled, one step) tabled {
	next := s.table.take(g, one)
	if next != g {
		s.begun = append(s.begun, one)
	}
	return next
}

// comes returns an operation under way.
func (s *tabulation) comes(g *tabled, held bool) (one step, comes bool) {
	for holder := range s.play.standings {
		l := s.table.local(g, holder)
		for i := range l.ways {
			if w := &l.ways[i]; !held || !s.table.shows(w.owner, w.region) {
				return w.step(holder, choiceLand), true
			}
		}
	}
	return step{}, false
}

// shows reports whether a process's region is the one that it shows.
func (t *table) shows(process, region int) bool {
	shown := t.shown[process]
	return shown[1] > 0 && t.start(process, region) == shown[0]
}
