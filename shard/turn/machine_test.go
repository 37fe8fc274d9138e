package turn_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// scripted is an engine that follows a test's script.
type scripted struct {
	undelivered, solicited bool
	status                 order.Status
	ready                  order.Ready
	refuse                 error // of Receive, Suspect and Trust
	received               []order.ServerID
	looks                  int
}

func (s *scripted) CanBroadcast() bool     { return true }
func (s *scripted) Solicited() bool        { return s.solicited }
func (s *scripted) Undelivered() bool      { return s.undelivered }
func (s *scripted) Broadcast([]byte) error { return nil }
func (s *scripted) Receive(from order.ServerID, _ []byte) error {
	s.received = append(s.received, from)
	return s.refuse
}
func (s *scripted) Suspect(order.ServerID) error { return s.refuse }
func (s *scripted) Trust(order.ServerID) error   { return s.refuse }
func (s *scripted) Ready() order.Ready {
	ready := s.ready
	s.ready = order.Ready{}
	return ready
}
func (s *scripted) Status() order.Status {
	s.looks++
	return s.status
}

// newScripted returns the machine of server 1 of four, over a scripted engine.
func newScripted() (*turn.Machine, *scripted) {
	engine := &scripted{}
	return turn.New(turn.Config{Engine: engine, Self: 1, Servers: 4}), engine
}

// kinds returns the kinds of a turn's actions.
func kinds(m *turn.Machine) (list []turn.Kind) {
	for do := m.Next(); do.Kind != turn.Done; do = m.Next() {
		list = append(list, do.Kind)
	}
	return list
}

// deliver makes the engine A-deliver a round in the next turn.
func (s *scripted) deliver(epoch order.Epoch, messages ...order.Message) {
	s.ready.Deliveries = append(s.ready.Deliveries,
		order.Delivery{Epoch: epoch, Messages: messages})
}

// TestEmptyMessagesWaitForOwnBatches: while an own batch is not A-delivered, an empty message
// follows at once, otherwise after a linger. Messages of others and own empty messages do not
// count.
func TestEmptyMessagesWaitForOwnBatches(t *testing.T) {
	t.Parallel()
	m, engine := newScripted()
	engine.undelivered = true
	if !m.Broadcast([]byte("a")) || !m.Broadcast(nil) {
		t.Fatal("an empty message behind an own batch waits")
	}
	engine.deliver(1, order.Message{Origin: 0, Payload: []byte("b")}, order.Message{Origin: 1})
	kinds(m)
	if !m.Broadcast(nil) {
		t.Fatal("the own batch is not A-delivered yet, and the empty message waits")
	}
	engine.deliver(1, order.Message{Origin: 1, Payload: []byte("a")})
	kinds(m)
	if m.Broadcast(nil) {
		t.Fatal("no own batch is under way, and there was no linger")
	}
	if !slices.Equal(kinds(m), []turn.Kind{turn.Linger}) || m.Broadcast(nil) {
		t.Fatal("one linger is asked for")
	}
	m.LingerOver()
	if !m.Broadcast(nil) {
		t.Fatal("the linger is over, and the empty message waits")
	}
}

// TestFramesBehindThoseOfASilencedServer: frames that follow those of a silenced server still
// count.
func TestFramesBehindThoseOfASilencedServer(t *testing.T) {
	t.Parallel()
	m, engine := newScripted()
	m.Step(nil, []turn.Opinion{{Server: 0, Kind: turn.Gone, Cause: errCut}})
	m.Step([]turn.Arrival{{From: 0}, {From: 2}}, nil)
	if !slices.Equal(engine.received, []order.ServerID{2}) {
		t.Errorf("the engine has frames of %v", engine.received)
	}
}

// TestEngineThatHalted: a halted engine is noticed wherever that is possible, and the first reason
// is kept.
func TestEngineThatHalted(t *testing.T) {
	t.Parallel()
	for name, notice := range map[string]func(*turn.Machine, *scripted){
		"look":    func(m *turn.Machine, _ *scripted) { m.Look() },
		"receive": func(m *turn.Machine, _ *scripted) { m.Step([]turn.Arrival{{From: 0}}, nil) },
		"suspect": func(m *turn.Machine, _ *scripted) { m.Step(nil, []turn.Opinion{{Server: 0}}) },
		"trust": func(m *turn.Machine, engine *scripted) {
			engine.refuse = nil
			m.Step(nil, []turn.Opinion{{Server: 0}})
			engine.refuse = order.ErrHalted
			m.Step(nil, []turn.Opinion{{Server: 0, Kind: turn.Trust}})
		},
		"an epoch": func(m *turn.Machine, engine *scripted) {
			engine.deliver(1)
			kinds(m)
		},
		"removed": func(m *turn.Machine, engine *scripted) {
			engine.ready.Deliveries = []order.Delivery{{Removed: []order.ServerID{1}}}
			kinds(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, engine := newScripted()
			engine.refuse, engine.status.Halted = order.ErrHalted, "why"
			if m.Over() {
				t.Fatal("over at the start")
			}
			notice(m, engine)
			m.Halt("another reason")
			if !m.Over() || m.Halted() != "why" {
				t.Errorf("over %v, halted: %q", m.Over(), m.Halted())
			}
		})
	}
}

// TestRemovedServers: nothing more is exchanged with a removed server, whether a delivery or a
// closing removes it.
func TestRemovedServers(t *testing.T) {
	t.Parallel()
	removed := []order.ServerID{0, 1, 2}
	for name, c := range map[string]struct {
		ready order.Ready
		want  []turn.Kind
	}{
		"by a delivery": {order.Ready{Deliveries: []order.Delivery{{Removed: removed}, {}}},
			[]turn.Kind{turn.Removed, turn.Deliver}},
		"by a closing": {order.Ready{Closings: []order.Closing{{}, {Removed: removed}, {}}},
			[]turn.Kind{turn.Removed}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, engine := newScripted()
			engine.ready = c.ready
			if got := kinds(m); !slices.Equal(got, c.want) {
				t.Errorf("actions %v, want %v", got, c.want)
			}
			for server, lost := range []bool{true, false, true, false} {
				if m.Lost(order.ServerID(server)) != lost {
					t.Errorf("server %d is lost: %v", server, !lost)
				}
			}
			if engine.looks != 1 {
				t.Errorf("%d looks at the engine", engine.looks)
			}
		})
	}
}

// TestEonEnds: an eon ends with the delivery that begins an epoch, unless that delivery was
// refused.
func TestEonEnds(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{true, false} {
		m, engine := newScripted()
		engine.status.Members = []order.ServerID{0, 1}
		engine.deliver(0)
		kinds(m)
		if engine.looks > 0 {
			t.Error("looks at the engine, although no epoch began")
		}
		engine.status.Ended = true
		engine.deliver(1)
		for do := m.Next(); do.Kind != turn.Done; do = m.Next() {
			if do.Kind == turn.Deliver && !taken {
				m.Untaken(errors.New("the disk is full"))
			}
		}
		members, ended := m.Ended()
		if ended != taken || !m.Over() || (m.Halted() == "") != taken || taken &&
			len(members) != 2 {
			t.Errorf("taken %v: ended %v with %v, halted: %q", taken, ended, members, m.Halted())
		}
	}
}

// TestWaitsForCrowdedMembers: batches wait for a crowded member, unless this server or, as far as
// the engine knows, another one suspects it.
func TestWaitsForCrowdedMembers(t *testing.T) {
	t.Parallel()
	m, engine := newScripted()
	waits := func(want ...order.ServerID) {
		t.Helper()
		got, some := m.WaitsFor()
		if some != (len(want) > 0) || some && got != want[0] || m.MayBroadcast() == some {
			t.Errorf("waits for server %d: %v, want %v", got, some, want)
		}
	}
	waits()
	m.Crowded(0, true)
	m.Crowded(3, true)
	waits(0)
	engine.status.Suspected = []order.ServerID{0}
	waits(3)
	m.Step(nil, []turn.Opinion{{Server: 3}})
	waits()
	engine.status.Suspected = nil
	waits(0)
	m.Crowded(0, false)
	waits()
	m.Break(2, errCut)
	m.Crowded(2, true)
	m.Step(nil, []turn.Opinion{{Server: 2, Kind: turn.Trust}})
	waits()
}

// probed is an engine that may rest without noticing that a server is gone.
type probed struct {
	scripted
	probes int
}

func (p *probed) Probe() { p.probes++ }

// TestProbes: a probe reaches the engine of its run, also if a server is suspected already, and no
// engine that needs none.
func TestProbes(t *testing.T) {
	t.Parallel()
	engine := &probed{}
	m := turn.New(turn.Config{Engine: engine, Self: 1, Servers: 4})
	g, _ := newGate(turn.GateConfig{Frames: 1, Bytes: 1, Held: 1}, 4, 4)
	g.Probe(4)
	g.Probe(6)
	if g.Opinions() != 0 {
		t.Errorf("%d opinions on other runs", g.Opinions())
	}
	g.Suspect(5, 2, errors.New("silent"))
	for want := 1; want <= 2; want++ {
		g.Probe(5)
		m.Step(g.Take(nil))
		if kinds(m); engine.probes != want {
			t.Errorf("%d probes, want %d", engine.probes, want)
		}
	}
	plain, _ := newScripted()
	plain.Step(nil, []turn.Opinion{{Kind: turn.Probe}})
	if got := kinds(plain); len(got) != 0 {
		t.Errorf("a probe of an engine that needs none leads to %v", got)
	}
	g.End()
	g.Probe(5)
	if g.Opinions() != 0 {
		t.Error("an opinion on a run that is over")
	}
}
