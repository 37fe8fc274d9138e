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
	// BeginDivided is when, behind BeginElected, two servers of three lead, of earlier and later
	// terms, and each has ordered a message in its own log only. Server 0 has ordered the first
	// client's message, and nothing of what it wrote since has come. Server 2 then voted for server
	// 1, and suspects it since. Server 1 has ordered the second client's message.
	BeginDivided = "divided"
)

// Beginnings lists the values of SearchOptions.Begin, besides "".
func Beginnings() []string { return []string{BeginElected, BeginOffered, BeginDivided} }

// dividing are the changes of leaders before BeginDivided.
var dividing = []Hearing{{2, 1}, {1, 1}, {2, 0}}

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
	if !o.Tabulated && (o.Begin != "" || len(o.Hears) > 0 || o.Shuffle > 0) {
		return fmt.Errorf("%w: only a tabulated search begins late, takes a list of changes, or "+
			"has another order", ErrOptions)
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
	if o.Begin == BeginDivided && (o.Groups != 1 || o.Replicas != 3 || o.Messages != 2) {
		return fmt.Errorf("%w: a search that begins %q of %d messages and %d groups of %d; want "+
			"2 messages and one group of 3", ErrOptions, o.Begin, o.Messages, o.Groups, o.Replicas)
	}
	return nil
}

// divided returns the options with the changes of leaders that take place before the search.
func (o SearchOptions) divided() SearchOptions {
	switch {
	case o.Begin != BeginDivided:
	case len(o.Hears) > 0:
		o.Hears = slices.Concat(dividing, o.Hears)
	default:
		o.Leads += len(dividing)
	}
	return o
}

// begin returns the state that the search begins in. It keeps the steps to there in s.begun.
func (s *tabulation) begin(g tabled) tabled {
	if s.options.Begin == "" {
		return g
	}
	all := make([]int, len(s.play.standings))
	for process := range all {
		all[process] = process
	}
	switch g = s.calm(g, all, false); s.options.Begin {
	case BeginOffered:
		for process := range s.play.standings {
			g = s.offer(g, process)
		}
		g = s.calm(g, all, true)
	case BeginDivided:
		clients := s.options.Replicas
		g = s.calm(s.offer(g, clients), []int{0}, true)
		for _, h := range dividing {
			g = s.beginWith(g, step{kind: choiceLead, a: h.Replica, b: h.Leader})
			if h.Replica == 1 {
				g = s.calm(g, []int{1, 2}, true)
			}
		}
		g = s.calm(s.offer(g, clients+1), []int{1}, true)
	}
	return g
}

// offer makes a client hand its next message to all replicas. Other processes have none.
func (s *tabulation) offer(g tabled, process int) tabled {
	if !s.client(process) {
		return g
	}
	g = s.beginWith(g, step{kind: choiceSubmit, a: process})
	for _, l := range slices.Clone(s.table.rests[g.rest].links) {
		if l.from == process {
			g = s.beginWith(g, step{kind: choiceArrive, a: l.from, b: l.to})
		}
	}
	return g
}

// calm lets everything come that is under way between some processes, and makes the replicas among
// them poll, until nothing changes any more. It may hold back what is under way to regions that are
// shown.
func (s *tabulation) calm(g tabled, among []int, held bool) tabled {
	for before := (tabled{}); before != g && s.table.broken == nil; {
		before = g
		for _, process := range among {
			for one, comes := s.comes(&g, among, held); comes && s.table.broken == nil; {
				g = s.beginWith(g, one)
				one, comes = s.comes(&g, among, held)
			}
			if !s.client(process) {
				g = s.beginWith(g, step{kind: choicePoll, a: process})
			}
		}
	}
	return g
}

// beginWith takes a step before the search, unless it changes nothing or a property is broken.
func (s *tabulation) beginWith(g tabled, one step) tabled {
	if s.table.broken != nil {
		return g
	}
	next := s.table.take(g, one)
	if next != g {
		s.begun = append(s.begun, one)
	}
	return next
}

// comes returns an operation under way between some processes.
func (s *tabulation) comes(g *tabled, among []int, held bool) (one step, comes bool) {
	for _, holder := range among {
		l := s.table.local(g, holder)
		for i := range l.ways {
			w := &l.ways[i]
			if slices.Contains(among, w.owner) && !(held && s.table.shows(w.owner, w.region)) {
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
