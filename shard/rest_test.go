package shard

import (
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// newRestingMember returns server 0 of three that order and have nothing to do.
func newRestingMember(t *testing.T) (*Member, *bookChain) {
	t.Helper()
	m, chain := newTestMember(t, 3)
	run := generation.Run(1 << 16)
	m.work(3, run)
	for server := range order.ServerID(3) {
		if p := m.peer(server); server > 0 {
			p.Mode, p.Group = Ordering, *groupOf(3, run)
		}
	}
	m.flushed = m.chain.Heights().Durable
	m.announced = m.now
	m.news = false
	return m, chain
}

// announcements gives a member ticks in steps and returns at which of them it announced itself.
func announcements(m *Member, steps ...int) (at []int) {
	began := m.now
	for _, step := range steps {
		for range step {
			m.Step(Tick{})
		}
		for server := range order.ServerID(3) {
			if p := m.peer(server); server > 0 && p.at > 0 {
				p.at = m.now // heard all the time
			}
		}
		for _, e := range m.Ready() {
			if announce, is := e.(Announce); is && announce.All {
				at = append(at, m.now-began)
			}
		}
	}
	return at
}

func TestRest(t *testing.T) {
	t.Parallel()
	timing := DefaultTiming()
	m, _ := newRestingMember(t)
	if got := m.Rest(); got != timing.Rest {
		t.Fatalf("a member that rests needs a tick after %d, want %d", got, timing.Rest)
	}
	// The driver may choose when it announces, within Announce.
	early := timing.Rest - timing.Announce + 1
	at := announcements(m, timing.Rest, early, timing.Announce, 1)
	if len(at) != 3 || at[0] != timing.Rest || at[1] != timing.Rest+early ||
		at[2] != timing.Rest+early+timing.Announce+1 {
		t.Errorf("it announced itself after %d ticks", at)
	}
	if got := m.Rest(); got != timing.Rest {
		t.Errorf("after an announcement it needs a tick after %d", got)
	}
	// A change is announced at once, and does not wait for a tick.
	m.Step(Stopping{})
	if effects := m.Ready(); len(effects) == 0 {
		t.Error("news are not announced")
	}
	if at := announcements(m, timing.Announce); len(at) != 1 {
		t.Error("a member that does not rest announces itself seldom")
	}
}

// Whatever a member counts ticks for keeps it from resting.
func TestNoRest(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(m *Member, chain *bookChain){
		"no group":       func(m *Member, _ *bookChain) { m.group = nil },
		"starting":       func(m *Member, _ *bookChain) { m.starting = m.group },
		"at work":        func(m *Member, _ *bookChain) { m.job = fetching },
		"halted":         func(m *Member, _ *bookChain) { m.view.Mode = Halted },
		"stalled":        func(m *Member, _ *bookChain) { m.stalled = true },
		"stopping":       func(m *Member, _ *bookChain) { m.stopping = true },
		"ended":          func(m *Member, _ *bookChain) { m.end = ErrFork },
		"member removed": func(m *Member, _ *bookChain) { m.removed = []order.ServerID{2} },
		"member lags":    func(m *Member, _ *bookChain) { m.lags = []lag{{server: 1, ticks: 1}} },
		"decided":        func(m *Member, _ *bookChain) { m.pending = &generation.Decision{} },
		"saving":         func(m *Member, _ *bookChain) { m.saving = true },
		"unsaved":        func(m *Member, _ *bookChain) { m.unsaved = true },
		"full":           func(m *Member, _ *bookChain) { m.full = "no space" },
		"low":            func(m *Member, _ *bookChain) { m.low = true },
		"no space":       func(m *Member, _ *bookChain) { m.noSpace = true },
		"learner":        func(m *Member, _ *bookChain) { m.view.Learner = true },
		"unflushed":      func(m *Member, chain *bookChain) { chain.changed, m.flushed = 9, 8 },
		"unheard":        func(m *Member, _ *bookChain) { m.peer(1).at -= m.config.Timing.Hearsay },
		"cut off":        func(m *Member, _ *bookChain) { m.peer(1).linked = false },
		"other run":      func(m *Member, _ *bookChain) { m.peer(2).Group.Run++ },
		"other stalled":  func(m *Member, _ *bookChain) { m.peer(2).Stalled = true },
		"troubled":       func(m *Member, _ *bookChain) { m.troubled(2) },
		"own trouble":    func(m *Member, _ *bookChain) { m.troubled(0) },
	} {
		m, chain := newRestingMember(t)
		disturb(m, chain)
		if got := m.Rest(); got != 1 {
			t.Errorf("%s: it needs a tick after %d", name, got)
		}
	}
	m, _ := newRestingMember(t)
	m.troubled(1)
	m.now += m.config.Timing.Trouble
	m.peer(1).at, m.peer(2).at = m.now, m.now
	if !m.rests() {
		t.Error("an old trouble keeps a member from resting")
	}
}
