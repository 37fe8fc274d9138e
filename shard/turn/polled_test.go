package turn_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// polledEngine is an engine that does what a test says.
type polledEngine struct {
	missing   []bool
	delivers  []order.Delivery
	log       order.FrozenLog
	ended     bool
	halted    string
	refuses   error
	broadcast int
	solicited bool
}

func (e *polledEngine) CanBroadcast() bool { return true }
func (e *polledEngine) Solicited() bool    { return e.solicited }
func (e *polledEngine) Waiting() bool      { return false }
func (e *polledEngine) Ended() bool        { return e.ended }
func (e *polledEngine) Halted() string     { return e.halted }
func (e *polledEngine) Status() order.Status {
	return order.Status{Members: []order.ServerID{0, 2}}
}
func (e *polledEngine) Missing(server order.ServerID, missing bool) { e.missing[server] = missing }

func (e *polledEngine) Broadcast([]byte) error {
	e.broadcast++
	return e.refuses
}

func (e *polledEngine) Deliveries() []order.Delivery {
	rounds := e.delivers
	e.delivers = nil
	return rounds
}

func (e *polledEngine) Freeze() (order.FrozenLog, error) { return e.log, nil }

// round returns a round with a message of place 2, which removes place 1.
func round(number order.Round) order.Delivery {
	return order.Delivery{Round: number, Removed: []order.ServerID{1},
		Messages: []order.Message{{Origin: 2, Payload: []byte("x")}}}
}

var polledMembers = []order.ServerID{3, 5, 9}

// TestPolledRunsEnd hands rounds over before the run ends, with the names of members.
func TestPolledRunsEnd(t *testing.T) {
	t.Parallel()
	e := &polledEngine{missing: make([]bool, 3), delivers: []order.Delivery{round(1)}, ended: true}
	p := turn.NewPolled(e, polledMembers, 3)
	p.Opine(func(member order.ServerID) bool { return member == 5 })
	if !slices.Equal(e.missing, []bool{false, true, false}) || p.Outside() || p.Waits() {
		t.Errorf("%v, outside %v, waits %v", e.missing, p.Outside(), p.Waits())
	}
	p.Opine(func(member order.ServerID) bool { return member != 5 })
	if !p.Outside() || !p.Waits() || p.MayBroadcast() {
		t.Errorf("outside %v, waits %v, may %v", p.Outside(), p.Waits(), p.MayBroadcast())
	}
	for range 2 { // they stay until they are taken
		rounds := p.Deliver()
		if len(rounds) != 1 || rounds[0].Messages[0].Origin != 9 || rounds[0].Removed[0] != 5 {
			t.Fatalf("%+v", rounds)
		}
	}
	if _, ended := p.Ended(); ended {
		t.Error("it ended with a round that was not taken")
	}
	p.Taken()
	if members, ended := p.Ended(); !ended || !slices.Equal(members, []order.ServerID{3, 9}) {
		t.Errorf("ended %v with %v", ended, members)
	}
}

// TestPolledRunsLeave: what was A-delivered and not taken comes before the rounds of the log.
func TestPolledRunsLeave(t *testing.T) {
	t.Parallel()
	e := &polledEngine{missing: make([]bool, 3), delivers: []order.Delivery{round(1)},
		log: order.FrozenLog{Index: 7, Stamp: 2, Rounds: []order.Delivery{round(3)}, RoundsMax: 4}}
	p := turn.NewPolled(e, polledMembers, 5)
	p.Deliver()
	e.delivers = []order.Delivery{round(2)}
	left, err := p.Freeze()
	if err != nil || len(left.Untaken) != 2 || left.Untaken[1].Round != 2 || len(left.Votes) != 1 ||
		left.Log.Rounds != nil || left.Log.Index != 7 {
		t.Fatalf("%+v, %v", left, err)
	}
	vote := left.Votes[0]
	if vote.Round != 3 || !slices.Equal(vote.Origins, []order.ServerID{9}) ||
		!slices.Equal(vote.Delivery.Removed, []order.ServerID{5}) {
		t.Errorf("%+v", vote)
	}
}

// TestPolledRunsAnswer: an empty batch is A-broadcast if others wait for it, and only then.
func TestPolledRunsAnswer(t *testing.T) {
	t.Parallel()
	e := &polledEngine{missing: make([]bool, 3)}
	p := turn.NewPolled(e, polledMembers, 3)
	if p.EmptyDue() || p.Broadcast(nil) || e.broadcast != 0 || p.Halted() != "" {
		t.Errorf("%d messages, halted %q", e.broadcast, p.Halted())
	}
	e.solicited = true
	if !p.EmptyDue() || !p.Broadcast(nil) || e.broadcast != 1 {
		t.Errorf("%d messages, and others wait for one", e.broadcast)
	}
}

// TestPolledRunsHalt: a refused batch halts a run, and nothing is handed over any more.
func TestPolledRunsHalt(t *testing.T) {
	t.Parallel()
	e := &polledEngine{missing: make([]bool, 3), delivers: []order.Delivery{round(1)},
		refuses: errors.New("no")}
	p := turn.NewPolled(e, polledMembers, 3)
	if !p.MayBroadcast() || p.Broadcast([]byte("x")) || p.Halted() != "no" || p.Deliver() != nil ||
		p.MayBroadcast() {
		t.Errorf("halted %q", p.Halted())
	}
	if _, ended := p.Ended(); ended {
		t.Error("a halted run ended")
	}
}

var _ turn.PolledEngine = (*polledEngine)(nil)
