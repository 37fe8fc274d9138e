package replica

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
)

// TestExclude makes a member hang. Its group stops when the log has wrapped around, because the
// member may come back. It goes on once the member is excluded, and the member halts when it comes
// back.
func TestExclude(t *testing.T) {
	t.Parallel()
	const slots = 8
	g := newGroup(t, 1, 3, Options{LogSlots: slots, Window: 2, BufferSlots: 64})
	options := g.replicas[0].options
	client, err := NewClient(options, 0, g.hosts[3])
	if err != nil {
		t.Fatal(err)
	}
	hanging := g.replicas[2]
	g.replicas = g.replicas[:2]
	leader := g.replicas[0]
	leader.Lead(0)
	var tick func()
	tick = func() { g.network.After(5*time.Microsecond, tick) }
	tick()
	sent, delivered := uint64(0), 0
	run := func(span time.Duration, poll func()) {
		for end := g.network.Now() + span; g.network.Now() < end; {
			g.network.Step()
			if sent < 40 {
				err := client.Multicast(order.Multicast{
					ID: order.MessageID{Sender: order.Replica{Group: order.Clients},
						Sequence: sent + 1}, To: []order.GroupID{0}, Payload: []byte("payload")})
				if err == nil {
					sent++
				} else if !errors.Is(err, order.ErrNotNow) {
					t.Fatal(err)
				}
			}
			client.Poll(g.network.Now())
			attach(g.hosts[3], client)
			poll()
			delivered += len(leader.Delivered())
			g.replicas[1].Delivered()
		}
	}
	// All three run at first, so that the member is granted and written to.
	run(2*time.Millisecond, func() {
		g.poll()
		if sent < 4 {
			hanging.Poll(g.network.Now())
			attach(g.hosts[2], hanging)
		}
	})
	if s := leader.Status(); s.End > s.Taken+slots || delivered == 40 || s.Halted != "" {
		t.Errorf("with a member that hangs, %d messages are delivered: %+v", delivered, s)
	}
	leader.Exclude(2)
	run(5*time.Millisecond, g.poll)
	if delivered != 40 {
		t.Errorf("once it is excluded, %d messages of 40 are delivered: %v", delivered, leader)
	}
	if s := leader.Status(); len(s.Excluded) != 1 || s.Excluded[0] != 2 {
		t.Errorf("excluded are %v", s.Excluded)
	}
	run(time.Millisecond, func() {
		g.poll()
		hanging.Poll(g.network.Now())
		attach(g.hosts[2], hanging)
	})
	if why := hanging.Status().Halted; !strings.Contains(why, "excluded") {
		t.Errorf("the member halts because %q", why)
	}
	if hanging.Poll(g.network.Now()) {
		t.Error("a replica that halted works")
	}
}

// TestRefused checks that a client refuses messages that it cannot multicast.
func TestRefused(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, 1, Options{PayloadMax: 10, BufferSlots: 3})
	client, err := NewClient(g.replicas[0].options, 0, g.hosts[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Multicast(order.Multicast{To: []order.GroupID{0},
		Payload: make([]byte, 11)}); !errors.Is(err, order.ErrTooLarge) {
		t.Errorf("a large payload: %v", err)
	}
	for _, to := range [][]order.GroupID{nil, {1}, {0, 0}} {
		if err := client.Multicast(order.Multicast{To: to}); err == nil {
			t.Errorf("destinations %v pass", to)
		}
	}
	for range 3 {
		if err := client.Multicast(order.Multicast{To: []order.GroupID{0}}); err != nil {
			t.Error(err)
		}
	}
	if err := client.Multicast(order.Multicast{To: []order.GroupID{0}}); !errors.Is(err,
		order.ErrNotNow) || client.Pending() != 3 {
		t.Errorf("with all slots used: %v, %d pending", err, client.Pending())
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := client.Multicast(order.Multicast{To: []order.GroupID{0}}); !errors.Is(err,
		order.ErrHalted) {
		t.Errorf("closed: %v", err)
	}
}

// TestNobodysMessages puts data into a client's buffer that no client writes. All replicas skip it,
// and deliver the messages behind it.
func TestNobodysMessages(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, 3, Options{})
	good := AppendMessage(nil, order.Multicast{ID: order.MessageID{Sequence: 9},
		To: []order.GroupID{0}, Payload: []byte("good")})
	for number, message := range [][]byte{
		nil, []byte("nobody's"), AppendMessage(nil, order.Multicast{To: []order.GroupID{3}}),
		AppendMessage(nil, order.Multicast{To: []order.GroupID{0, 0}}), good,
	} {
		for _, r := range g.replicas {
			b := r.buffers[sourceClients]
			b.Fill(uint64(number+1), message)
			if message == nil { // a length that no message has
				lengths := b.Ring.End(uint64(number+1)) - 2*protected.Word
				b.Region.Store(lengths, 1<<40)
			}
		}
	}
	g.replicas[0].Lead(0)
	var tick func()
	tick = func() { g.network.After(5*time.Microsecond, tick) }
	tick()
	got := map[int][]order.Multicast{}
	for g.network.Now() < 3*time.Millisecond {
		g.network.Step()
		g.poll()
		for server, r := range g.replicas {
			got[server] = append(got[server], r.Delivered()...)
		}
	}
	for server, r := range g.replicas {
		if len(got[server]) != 1 || string(got[server][0].Payload) != "good" ||
			got[server][0].ID.Sequence != 9 {
			t.Errorf("replica %d delivers %+v: %v", server, got[server], r)
		}
	}
}
