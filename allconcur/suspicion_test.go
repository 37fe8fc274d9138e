package allconcur

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestLinkGivenUpBehindItsRevocation: server 0's message revokes its notification of server 1's
// failure. Then the link from server 1 is given up because it holds more messages than can be of
// use. The revocation cannot be recalled, so server 0 suspects server 1 anew once it is
// A-delivered. Otherwise the group would wait for ever after server 1's crash.
func TestLinkGivenUpBehindItsRevocation(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			const n = 3
			w, err := newNetwork(1, Config{Engine: engine, Servers: n, Reliable: overlays(t, n)[0]})
			if err != nil {
				t.Fatal(err)
			}
			w.suspected[0*n+1] = true
			must(t, w.engines[0].Suspect(1))
			must(t, w.engines[0].Trust(1))
			w.pump(0)
			must(t, w.submit(0, false))
			must(t, w.receive(0, 1)) // the notification, so that 1 runs the round reliably, too
			must(t, w.submit(1, false))
			own := (*w.channel(1, 0))[len(*w.channel(1, 0))-1]
			for range heldMax(n) + 1 {
				must(t, w.engines[0].Receive(1, own))
			}
			if l := w.engines[0].linkFrom(1); !l.cut || l.sequence != 1 {
				t.Fatalf("the link from server 1 is not given up: %+v", l)
			}
			must(t, w.run(0, 0))
			for p, e := range w.engines {
				if !slices.Contains(e.Notifications(), Notification{Target: 1, Owner: 0}) {
					t.Errorf("server %d at rest does not know that 0 suspects 1 anew: %v", p,
						e.Notifications())
				}
			}

			w.crash(1)
			must(t, w.submit(0, false))
			must(t, w.run(0, 0))
			for _, p := range []int{0, 2} {
				if members := w.engines[p].Status().Members; !slices.Equal(members,
					[]order.ServerID{0, 2}) {
					t.Errorf("server %d has the members %v behind the crash", p, members)
				}
			}
		})
	}
}

// channel returns the frames under way from one server to another.
func (w *network) channel(from, to int) *[][]byte { return &w.channels[from*w.n()+to] }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// belowMajority returns a network of three servers. Server 0 suspects both others, is below a
// majority, and holds two messages from server 1: server 1's and then server 2's. With revokes,
// server 0's message contains the revocation of its suspicion of server 1.
func belowMajority(t *testing.T, revokes bool) *network {
	t.Helper()
	w, err := newNetwork(1, Config{Engine: EngineAllConcur, Servers: 3,
		Reliable: overlays(t, 3)[0]})
	if err != nil {
		t.Fatal(err)
	}
	must(t, w.engines[0].Suspect(1))
	must(t, w.engines[0].Suspect(2))
	if revokes {
		must(t, w.engines[0].Trust(1))
	}
	must(t, w.submit(0, false))
	if revokes {
		must(t, w.engines[0].Suspect(1))
	}
	must(t, w.submit(1, false))
	must(t, w.submit(2, false))
	must(t, w.receive(2, 1)) // which relays it to 0
	for len(*w.channel(1, 0)) > 0 {
		must(t, w.receive(1, 0))
	}
	if e := w.engines[0]; !e.OutsideMajority() || len(e.linkFrom(1).held) != 2 {
		t.Fatalf("server 0 is not outside of a majority, or holds %d messages of server 1",
			len(e.linkFrom(1).held))
	}
	return w
}

// TestReleasedMessagesAreDecidedTogether: a server below a majority that trusts a predecessor again
// takes everything that it holds from it before it decides. The first message alone would make a
// majority, and a set that the others have not decided.
func TestReleasedMessagesAreDecidedTogether(t *testing.T) {
	t.Parallel()
	w := belowMajority(t, false)
	must(t, w.engines[0].Trust(1))
	votes := w.engines[0].Votes()
	if len(votes) != 1 || len(votes[0].Delivery.Messages) != 3 {
		t.Errorf("server 0 votes %+v, want the messages of all three", votes)
	}
}

// TestTrustBehindARevocationReleases: the detector suspects a predecessor again and then trusts it
// after all, while a message that revokes the first suspicion is under way. The held messages are
// taken without any further event.
func TestTrustBehindARevocationReleases(t *testing.T) {
	t.Parallel()
	w := belowMajority(t, true)
	must(t, w.engines[0].Trust(1))
	if !w.engines[0].Status().Decided {
		t.Errorf("server 0 still waits: %+v", w.engines[0].Status())
	}
}

// TestMajorityThatSkippedHaltsWhoDecided: server 0 has decided a set of [[2,1]] when it learns that
// the two others, a majority, are in [[2,2]]. It can never go on, and halts.
func TestMajorityThatSkippedHaltsWhoDecided(t *testing.T) {
	t.Parallel()
	e, err := New(Config{Engine: EngineAllConcurPlus, Servers: 3, Reliable: overlays(t, 3)[0]})
	if err != nil {
		t.Fatal(err)
	}
	must(t, e.Broadcast(nil))
	for p := order.ServerID(1); p <= 2; p++ {
		must(t, e.Receive(p, encodeMessage(kindUnreliable, 0, 1, 1, p, nil)))
	}
	must(t, e.Suspect(1))
	must(t, e.Receive(2, encodeMessage(kindReliable, 0, 2, 1, 2, nil)))
	must(t, e.Receive(2, encodeFailure(0, 1, 2, 1)))
	if s := e.Status(); !s.Decided || s.Epoch != 2 || s.Round != 1 {
		t.Fatalf("server 0 has not decided in [[2,1]]: %+v", s)
	}
	skipped := [][]byte{encodeMessage(kindReliable, 0, 2, 2, 2, nil),
		encodeMessage(kindReliable, 0, 2, 2, 1, nil)}
	for range 2 {
		must(t, e.Receive(2, skipped[0]))
	}
	if s := e.Status(); s.Halted != "" {
		t.Fatalf("server 0 halts because of one other: %s", s.Halted)
	}
	must(t, e.Receive(2, skipped[1]))
	if s := e.Status(); s.Halted == "" {
		t.Errorf("server 0 waits for ever: %+v", s)
	}
}
