package driver_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/node/detector"
	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// What a watched server notes of a run agrees with what it counts: every frame once, on its edge,
// and every round with its messages. The servers that it waits for are those whose messages have
// not come.
func TestRoundsAreNoted(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{allconcur.EngineAllConcurPlus, allconcur.EngineAllConcur} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			recorder := rounds.New()
			defer recorder.Watch()()
			c := newCluster(t, clusterOptions{engine: engine, servers: 5, rounds: recorder})
			members := []order.ServerID{0, 1, 3, 4}
			at := []int{0, 1, 3, 4}
			c.activate(7, at, members...)
			c.deliverSome(at, 0, 20)
			for _, i := range at {
				c.nodes[i].driver.Freeze()
			}
			events := recorder.From(1, rounds.Capacity).Events
			traffic := c.nodes[0].driver.Status().Traffic
			checkTraffic(t, events, traffic.FramesReceived, traffic.BytesReceived, rounds.Received)
			checkTraffic(t, events, traffic.FramesSent, traffic.BytesSent, rounds.Sent)
			delivered, own := 0, 0
			for i := range events {
				e := &events[i]
				for _, server := range append([]order.ServerID{e.From, e.To, e.Origin},
					e.Servers...) {
					if !slices.Contains(members, server) {
						t.Fatalf("not in the group: %+v", e)
					}
				}
				switch {
				case e.Run != 7:
					t.Errorf("another run: %+v", e)
				case e.Kind == rounds.Received && (e.To != 0 || e.From == 0),
					e.Kind == rounds.Sent && (e.From != 0 || e.To == 0):
					t.Errorf("not on an edge of the server: %+v", e)
				case e.Kind == rounds.Broadcast:
					own++
				case e.Kind == rounds.Delivered:
					delivered++
					if !slices.Equal(e.Servers, members) {
						t.Errorf("round %d has messages of %v", e.Round, e.Servers)
					}
				}
			}
			if uint64(delivered) != traffic.Rounds || uint64(own) != traffic.Broadcasts {
				t.Errorf("%d rounds, %d own messages, want %d and %d", delivered, own,
					traffic.Rounds, traffic.Broadcasts)
			}
			checkAwaited(t, events, members, engine == allconcur.EngineAllConcur)
			all, _ := recorder.Runs()
			if len(all) != 1 || !slices.Equal(all[0].Members, members) || all[0].Ended == 0 ||
				all[0].End == "" {
				t.Errorf("runs %+v", all)
			}
		})
	}
}

// checkTraffic compares the noted frames of a direction with the driver's count.
func checkTraffic(t *testing.T, events []rounds.Event, frames, bytes uint64, kind rounds.Kind) {
	t.Helper()
	var noted, size uint64
	for i := range events {
		if events[i].Kind == kind {
			noted++
			size += uint64(events[i].Bytes)
		}
	}
	// The last frames may be queued and not sent, since the run was frozen.
	if noted < frames || size < bytes || kind == rounds.Received && noted != frames || noted == 0 {
		t.Errorf("kind %d: noted %d frames of %d bytes, counted %d of %d", kind, noted, size,
			frames, bytes)
	}
}

// checkAwaited compares the servers that each note says the round waits for with the messages that
// are noted before it.
func checkAwaited(t *testing.T, events []rounds.Event, members []order.ServerID, reliable bool) {
	t.Helper()
	present := map[order.Round][]order.ServerID{}
	checked := 0
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == rounds.Broadcast,
			e.Kind == rounds.Received && (e.Frame == "BCAST" || e.Frame == "RBCAST"):
			present[e.Round] = append(present[e.Round], e.Origin)
		case e.Kind == rounds.Mode:
			if e.Reliable != reliable {
				t.Errorf("mode %+v", e)
			}
		case e.Kind == rounds.Waits && !e.Decided && e.Reliable == reliable:
			var missing []order.ServerID
			for _, member := range members {
				if !slices.Contains(present[e.Round], member) {
					missing = append(missing, member)
				}
			}
			if !slices.Equal(e.Servers, missing) {
				t.Errorf("event %d: round %d waits for %v, and %v are missing", e.Number, e.Round,
					e.Servers, missing)
			}
			checked++
		}
	}
	// A server whose own message is the last one of a round waits for nobody.
	if checked == 0 {
		t.Error("nothing is noted of whom a round waits for")
	}
}

// A crash shows: the suspicion or its notification, reliable rounds, where the message of the
// crashed server can still be, and its removal.
func TestCrashIsNoted(t *testing.T) {
	t.Parallel()
	recorder := rounds.New()
	defer recorder.Watch()()
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 5,
		rounds: recorder, memory: memory.Options{MendTimeout: time.Second},
		timing: detector.Timing{Heartbeat: 50 * time.Millisecond, Timeout: 20 * time.Second,
			Grace: 100 * time.Millisecond}})
	c.activate(1, c.all())
	c.deliverSome(c.all(), 0, 3)
	c.network.Kill(c.peers[4])
	alive := c.all()[:4]
	for _, i := range alive {
		eventually(t, fmt.Sprintf("server %d removes server 4", i), func() bool {
			c.nodes[0].pool.submit(batch(0, 100, 100))
			return slices.Equal(c.nodes[i].book.removals(), []order.ServerID{4})
		})
	}
	c.nodes[0].driver.Freeze()
	seen := map[string]bool{}
	for _, e := range recorder.From(1, rounds.Capacity).Events {
		switch {
		case e.Kind == rounds.Received && e.Frame == "FAIL" && e.Target == 4,
			(e.Kind == rounds.Suspected || e.Kind == rounds.Lost) && e.Origin == 4:
			seen["failure"] = true
		case e.Kind == rounds.Mode && e.Reliable:
			seen["mode"] = true
		case e.Kind == rounds.Tracks && e.Origin == 4 && len(e.Servers) > 0:
			seen["tracks"] = true
		case e.Kind == rounds.Removed && slices.Equal(e.Servers, []order.ServerID{4}):
			seen["removed"] = true
		}
	}
	if len(seen) != 4 {
		t.Errorf("seen %v", seen)
	}
}

// Nothing is noted of a run that nobody watches, except that it was.
func TestUnwatchedRounds(t *testing.T) {
	t.Parallel()
	recorder := rounds.New()
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 3,
		rounds: recorder})
	c.activate(1, c.all())
	c.deliverSome(c.all(), 0, 3)
	if w := recorder.From(1, 10); len(w.Events) != 0 || w.Next != 1 {
		t.Errorf("%+v", w)
	}
	if runs, _ := recorder.Runs(); len(runs) != 1 || runs[0].Number != 1 || runs[0].Ended != 0 {
		t.Errorf("runs %+v", runs)
	}
}
