package shard

import (
	"errors"
	"testing"
)

// Each time is at least a tick.
func TestTimesAreChecked(t *testing.T) {
	t.Parallel()
	var timing Timing
	times := []*int{
		&timing.Grace, &timing.Patience, &timing.Hearsay, &timing.Announce, &timing.Rest,
		&timing.Stall, &timing.Outside, &timing.Stuck, &timing.Full, &timing.Base,
		&timing.Enter, &timing.Mark, &timing.Bench, &timing.Trouble, &timing.Steady, &timing.Gap,
		&timing.Removed, &timing.Leaver,
	}
	for _, ticks := range times {
		*ticks = 1
	}
	if err := timing.check(); err != nil {
		t.Error(err)
	}
	for i, ticks := range times {
		*ticks = 0
		if err := timing.check(); !errors.Is(err, ErrConfig) {
			t.Errorf("time %d is 0: %v", i, err)
		}
		*ticks = 1
	}
}

// A change of the view is announced; setting it to the same is not.
func TestModeChanges(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 3)
	for i, c := range []struct {
		mode    Mode
		why     string
		news    bool
		between bool
	}{
		{Ordering, "", true, false}, {Ordering, "", false, false}, {Starting, "a", true, true},
		{Starting, "b", true, true},
		{Starting, "b", false, true}, {Halted, "b", true, false}, {Starting, "b", true, false},
	} {
		m.news, m.effects = false, nil
		m.setMode(c.mode, because(Between), "%s", c.why)
		if view := m.View(); m.news != c.news || len(m.effects) > 0 != c.news ||
			view.Between != c.between || view.Mode != c.mode || view.Why != c.why {
			t.Errorf("step %d: news %v, %+v", i, m.news, view)
		}
	}
	// One Changed is enough if several things change at once.
	m.effects = nil
	m.changed()
	m.changed()
	m.emit(Freeze{})
	m.changed()
	if len(m.effects) != 3 {
		t.Errorf("%+v", m.effects)
	}
}

// The first announcement goes to all.
func TestFirstAnnouncement(t *testing.T) {
	t.Parallel()
	_, chain := newTestMember(t, 3)
	m, err := New(Config{Disk: Disk{ID: diskOf(0), Original: true}, Chain: chain,
		Timing: DefaultTiming()})
	if err != nil {
		t.Fatal(err)
	}
	if got := effectsOf[Announce](m); len(got) != 1 || !got[0].All {
		t.Errorf("%+v", got)
	}
}

// A member that ended takes no more inputs, and ends once.
func TestTheEnd(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 3)
	m.group = groupOf(3, 1)
	m.Step(Failed{Err: ErrFork})
	m.finish(ErrRemoved)
	ends := effectsOf[End](m)
	if len(ends) != 1 || ends[0].Err != ErrFork || m.group != nil || m.view.Mode != Halted {
		t.Errorf("ends %+v, %+v", ends, m.View())
	}
	now := m.now
	m.Step(Tick{})
	m.advance(true)
	if m.now != now || len(m.effects) > 0 {
		t.Errorf("goes on: %+v", m.effects)
	}
}
