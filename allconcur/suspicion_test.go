package allconcur

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestLinkGivenUpBehindItsRevocation: server 0's message revokes its notification of server 1's failure when the link from 1 is given up, more being held on it than can be
// of use. The revocation cannot be called back, so server 0 suspects 1 anew once it is A-delivered, and 1's crash is not waited out for ever.
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
					t.Errorf("server %d at rest does not know that 0 suspects 1 anew: %v", p, e.Notifications())
				}
			}

			w.crash(1)
			must(t, w.submit(0, false))
			must(t, w.run(0, 0))
			for _, p := range []int{0, 2} {
				if members := w.engines[p].Status().Members; !slices.Equal(members, []order.ServerID{0, 2}) {
					t.Errorf("server %d has the members %v behind the crash", p, members)
				}
			}
		})
	}
}

// channel is what is under way from a server to another.
func (w *network) channel(from, to int) *[][]byte { return &w.channels[from*w.n()+to] }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
