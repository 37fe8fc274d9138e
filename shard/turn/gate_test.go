package turn_test

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// newGate opens run 5 for the first members of some servers.
func newGate(config turn.GateConfig, servers, members int) (*turn.Gate, []*turn.Sender) {
	g := turn.NewGate(config)
	senders := make([]*turn.Sender, servers)
	for i := range senders {
		senders[i] = turn.NewSender()
	}
	g.SetSenders(senders)
	group := make([]order.ServerID, members)
	for i := range group {
		group[i] = order.ServerID(i)
	}
	g.Activate(5, group)
	return g, senders
}

// TestGateIsBounded fills a gate with frames for the next turn and frames held for a later run, by
// number and by bytes.
func TestGateIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		config turn.GateConfig
		run    uint64
		sizes  []int // of frames for which there is room; after them there is none
	}{
		{"frames", turn.GateConfig{Frames: 2, Bytes: 10, Held: 1}, 5, []int{1, 1}},
		{"bytes", turn.GateConfig{Frames: 9, Bytes: 10, Held: 1}, 5, []int{4, 6}},
		{"held frames", turn.GateConfig{Frames: 1, Bytes: 10, Held: 2}, 6, []int{1, 1}},
		{"held bytes", turn.GateConfig{Frames: 1, Bytes: 10, Held: 9}, 6, []int{4, 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g, senders := newGate(c.config, 2, 1)
			want := turn.Taken
			if c.run > 5 {
				want = turn.Held
			}
			for i, size := range c.sizes {
				if g.Full(senders[0], c.run) {
					t.Fatalf("full before frame %d", i)
				}
				if got := g.Admit(senders[0], 1, c.run, make([]byte, size)); got != want {
					t.Fatalf("frame %d: verdict %d, want %d", i, got, want)
				}
			}
			if !g.Full(senders[0], c.run) {
				t.Fatal("not full")
			}
			if g.Full(senders[1], 5) {
				t.Error("a frame of no use waits for room: its sender is no member")
			}
			g.Dismiss(senders[0])
			if g.Full(senders[0], c.run) {
				t.Error("a frame of no use waits for room: its sender was dismissed")
			}
			if c.run == 5 {
				if frames, _ := g.Take(nil); len(frames) != len(c.sizes) {
					t.Errorf("%d frames taken", len(frames))
				}
				g.Admit(senders[0], 1, 5, nil)
				if g.Waiting() != 0 {
					t.Error("a dismissed sender's frame is taken")
				}
			}
		})
	}
}

// TestSenderLeavesRoom: a sender that floods has no room while others have, until the next turn.
// Together, the others fill the rest.
func TestSenderLeavesRoom(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]turn.GateConfig{
		"frames": {Frames: 8, Bytes: 1000, Held: 9}, "bytes": {Frames: 100, Bytes: 80, Held: 9},
	} {
		g, senders := newGate(config, 4, 4)
		flood := func(server order.ServerID) (taken int) {
			for !g.Full(senders[server], 5) {
				g.Admit(senders[server], 1, 5, make([]byte, 10))
				taken++
			}
			return taken
		}
		for range 2 {
			if taken := flood(0); taken != 6 || g.Full(senders[1], 5) {
				t.Errorf("%s: the sender filled %d of 8 places", name, taken)
			}
			g.Admit(senders[1], 1, 5, make([]byte, 10))
			if taken := flood(2); taken != 1 || !g.Full(senders[3], 5) {
				t.Errorf("%s: the others filled %d of 2 places", name, 1+taken)
			}
			g.Take(nil)
		}
	}
}

// TestGateTakesOneRun gives a gate frames of the previous run, of the running one, and after the
// last one.
func TestGateTakesOneRun(t *testing.T) {
	t.Parallel()
	config := turn.GateConfig{Frames: 9, Bytes: 10, Held: 9}
	g, senders := newGate(config, 2, 2)
	if !senders[0].Member() || !senders[1].Member() || turn.NewSender().Member() {
		t.Error("the members are servers 0 and 1")
	}
	if got := g.Admit(senders[0], 1, 4, nil); got != turn.Dropped {
		t.Errorf("a frame of an earlier run: verdict %d", got)
	}
	config.Fault = turn.FaultStaleFrames
	stale, planted := newGate(config, 2, 2)
	if got := stale.Admit(planted[0], 1, 4, nil); got != turn.Taken {
		t.Errorf("the planted bug: verdict %d", got)
	}
	g.Close()
	if got := g.Admit(senders[0], 1, 6, nil); got != turn.Dropped || g.Holds(senders[0]) != 0 {
		t.Errorf("a frame after Close: verdict %d", got)
	}
	if g.Malformed(senders[0], errors.New("no frame")) {
		t.Error("what comes after Close is news")
	}
}

// TestGateNotesOpinions gives a gate opinions that are new, and others.
func TestGateNotesOpinions(t *testing.T) {
	t.Parallel()
	g, _ := newGate(turn.GateConfig{Frames: 9, Bytes: 10, Held: 9}, 3, 2)
	cause := errors.New("silent")
	opinions := func(want ...turn.OpinionKind) {
		t.Helper()
		_, got := g.Take(nil)
		if len(got) != len(want) {
			t.Fatalf("%d opinions, want %d: %+v", len(got), len(want), got)
		}
		for i := range want {
			if got[i].Kind != want[i] || got[i].Server != 1 {
				t.Errorf("opinion %+v, want kind %d of server 1", got[i], want[i])
			}
		}
	}
	g.Trust(5, 1) // not suspected
	g.Suspect(4, 1, cause)
	g.Suspect(5, 2, cause) // not a member
	g.Suspect(5, 3, cause) // not a server
	g.Trust(5, 3)
	opinions()
	g.Suspect(5, 1, cause)
	g.Suspect(5, 1, cause)
	opinions(turn.Suspect)
	g.Trust(4, 1)
	opinions()
	g.Trust(5, 1)
	opinions(turn.Trust)
	// An opinion on a later run waits for that run, through the runs between, unless it is
	// withdrawn.
	g.Suspect(7, 0, cause)
	g.Suspect(7, 1, cause)
	g.Trust(7, 0)
	g.Activate(6, []order.ServerID{0, 1})
	opinions()
	g.Activate(7, []order.ServerID{0, 1})
	opinions(turn.Suspect)
	g.End()
	g.Suspect(7, 0, cause)
	opinions()
}

func TestFaults(t *testing.T) {
	t.Parallel()
	names := map[string]bool{turn.FaultNone.String(): true}
	for _, f := range turn.Faults() {
		if names[f.String()] {
			t.Errorf("fault %d has the name of another: %s", f, f)
		}
		names[f.String()] = true
	}
	last := turn.FaultRecordsAnyGroup
	if len(names) != int(last)+1 {
		t.Errorf("%d faults", len(names)-1)
	}
	if got := (last + 1).String(); got != "Fault(6)" {
		t.Errorf("what is no fault is named %s", got)
	}
}
