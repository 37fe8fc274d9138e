package driver

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// countedLoan is a loan that counts.
type countedLoan struct{ holds atomic.Int32 }

func (l *countedLoan) Hold()    { l.holds.Add(1) }
func (l *countedLoan) Release() { l.holds.Add(-1) }

// lentSink is a fullSink that borrows.
type lentSink struct{ *fullSink }

func (lentSink) Borrows() {}

// TestOnlyPromptHostsLend: over another host, such as that of package memory, the memory of own
// messages is not used again.
func TestOnlyPromptHostsLend(t *testing.T) {
	t.Parallel()
	type plain struct{ rdmanet.Host }
	type prompt struct{ rdmanet.PromptHost }
	for _, test := range []struct {
		host rdmanet.Host
		want bool
	}{{plain{}, false}, {prompt{}, true}} {
		d := &Driver{config: Config{Host: test.host, Sink: lentSink{}}}
		if d.borrows() != test.want {
			t.Errorf("%T: %v", test.host, !test.want)
		}
	}
}

// mortal is a scripted engine that gives up frames.
type mortal struct {
	*scripted
	horizon, delivered atomic.Uint64
	memory             func(size int) []byte
}

func (m *mortal) Horizon() order.Round            { return order.Round(m.horizon.Load()) }
func (m *mortal) UseMemory(take func(int) []byte) { m.memory = take }
func (m *mortal) Delivered() order.Round          { return order.Round(m.delivered.Load()) }

// TestLoansAreGivenBack: a loan is given back when the engine, the lanes and the Sink have no use
// for its frames, and not before. Each case plays the steps in their order, with a turn after each.
func TestLoansAreGivenBack(t *testing.T) {
	t.Parallel()
	type stage struct {
		engine *mortal
		host   *promptHost
		sink   *fullSink
		loan   *countedLoan
		arrive func(run uint64)
	}
	delivered := func(s *stage) { s.engine.delivered.Store(5) }
	acknowledged := func(s *stage) { s.host.lanes["b"].pending.Store(0) }
	none := func(*stage) {}
	for name, c := range map[string]struct {
		begin func(*stage)
		steps []func(*stage)
		back  int // after so many steps it is given back, -1 for never
	}{
		"A-delivered, then acknowledged": {none, []func(*stage){delivered, acknowledged}, 2},
		"acknowledged, then A-delivered": {none, []func(*stage){acknowledged, delivered}, 2},
		"not A-delivered":                {none, []func(*stage){acknowledged, none}, -1},
		"not acknowledged":               {none, []func(*stage){delivered, none}, -1},
		"more frames on the way": {none, []func(*stage){
			delivered,
			// The second frame is behind the one that counts.
			func(s *stage) { s.engine.send("more"); s.host.lanes["b"].pending.Store(2) },
			func(s *stage) { s.host.lanes["b"].pending.Store(1) }}, 3},
		"a frame that is relayed late": {none, []func(*stage){
			func(s *stage) { s.engine.send("late"); s.host.lanes["b"].pending.Store(2) },
			func(s *stage) { s.host.lanes["b"].pending.Store(1) }, delivered, acknowledged}, 4},
		"no horizon for a while": {func(s *stage) { s.engine.horizon.Store(0) }, []func(*stage){
			acknowledged, delivered, func(s *stage) { s.engine.horizon.Store(5) }, none}, 4},
		"a full Sink": {none, []func(*stage){acknowledged, func(s *stage) {
			s.sink.room.Store(false)
			s.engine.delivered.Store(5)
			defer s.engine.lock()()
			s.engine.ready.Deliveries = []order.Delivery{{Round: 5}}
		}, none}, -1},
		"a frame of a later run": {func(s *stage) { s.arrive(2) }, []func(*stage){delivered,
			acknowledged, none}, -1},
		"a lane that is lost": {none, []func(*stage){func(s *stage) {
			s.host.lanes["b"].err = errors.New("broken")
			s.engine.send("lost")
		}, delivered, acknowledged, none}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stage{loan: &countedLoan{}}
			r, host, sink := newPromptRig(t, func(c *Config) {
				newEngine := c.NewEngine
				c.NewEngine = func(group Group, place order.ServerID) (order.Broadcaster, error) {
					engine, err := newEngine(group, place)
					s.engine = &mortal{scripted: engine.(*scripted)}
					s.engine.horizon.Store(5)
					return s.engine, err
				}
				c.Sink = lentSink{c.Sink.(*fullSink)}
			})
			s.host, s.sink = host, sink
			s.arrive = func(run uint64) {
				s.loan.Hold() // the host's own
				host.receiver.TryReceiveLent(rdmanet.Peer{ID: "b", Incarnation: 5},
					[][]byte{frameOf(run, "x")}, s.loan)
				s.loan.Release()
			}
			c.begin(s)
			s.engine.send("relayed")
			host.lanes["b"].pending.Store(1)
			s.arrive(1)
			host.receiver.Turn()
			for i, step := range c.steps {
				if s.loan.holds.Load() <= 0 {
					t.Fatalf("given back after %d steps", i)
				}
				step(s)
				host.receiver.Turn()
			}
			if back := s.loan.holds.Load() == 0; back != (c.back == len(c.steps)) {
				t.Errorf("%d holds are left", s.loan.holds.Load())
			}
			close(sink.open) // for the run's goroutine
			r.Close()
		})
	}
}

// send makes the engine send a frame to server 1.
func (s *scripted) send(text string) {
	defer s.lock()()
	s.ready.Sends = append(s.ready.Sends, order.Send{To: []order.ServerID{1},
		Frame: frameOf(1, text)})
}

// TestMemoryOfOwnMessages: memory that is given back serves the next message of about that size.
func TestMemoryOfOwnMessages(t *testing.T) {
	t.Parallel()
	engine := &mortal{}
	var l loans
	l.borrow(engine, 1)
	giveBack := func() {
		for _, loan := range l.open {
			loan.Release()
		}
		l.open = nil
	}
	first := engine.memory(50_000)
	if second := engine.memory(50_000); &first[0] == &second[0] {
		t.Fatal("two messages share their memory")
	}
	giveBack()
	for _, size := range []int{60_000, 20_000} {
		if again := engine.memory(size); len(again) != size || len(l.own) != 1 {
			t.Errorf("a message of %d bytes got %d, %d memories are left", size, len(again),
				len(l.own))
		}
		giveBack()
	}
	if engine.memory(5_000); len(l.own) != 1 || cap(l.open[0].(*ownMemory).bytes) > 10_000 {
		t.Error("a small message keeps a large memory")
	}
	if engine.memory(100); len(l.open) != 1 {
		t.Error("a very small message is lent its memory")
	}
	l.forget()
	if engine.memory(50_000); len(l.open) != 0 {
		t.Error("memory is lent after the loans were forgotten")
	}
}
