package bench

import (
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

func testMulticastLoad() *multicastLoad {
	return newMulticastLoad(MulticastParameters{Engine: EngineTRAM, Tree: "breadth",
		Shape: tram.Breadth(2), Groups: 2, Replicas: 2, Destinations: 2, Size: 8, Clients: 1,
		Outstanding: 2,
		Fabric:      fabric.Memory, For: time.Second})
}

// TestMulticastEngines: every engine of the table has a story, and parameters that name it say how
// many hosts it needs and whether leaders can be taken away.
func TestMulticastEngines(t *testing.T) {
	t.Parallel()
	good := MulticastParameters{Shape: tram.Breadth(2), Groups: 2, Replicas: 3, Destinations: 2,
		Size: 8, Clients: 5, Outstanding: 1, Fabric: fabric.Memory, For: time.Second}
	hosts, led := map[string]int{}, map[string]bool{}
	for _, name := range MulticastEngines() {
		p := good
		p.Engine = name
		if err := p.Validate(); err != nil || MulticastStory(name) == "" {
			t.Errorf("%s: %v, story %q", name, err, MulticastStory(name))
		}
		hosts[name] = p.Hosts()
		p.Failover = FailoverChange
		led[name] = p.Validate() == nil
	}
	if hosts[EngineTRAM] != 11 || hosts[EngineTRAMLeaderless] != 6 || len(hosts) != 2 {
		t.Errorf("hosts %v", hosts)
	}
	if !led[EngineTRAM] || led[EngineTRAMLeaderless] {
		t.Errorf("leaders %v", led)
	}
	for _, name := range []string{"", "raft"} {
		p := good
		p.Engine = name
		if err := p.Validate(); !errors.Is(err, ErrParameters) {
			t.Errorf("%q: %v, want ErrParameters", name, err)
		}
	}
}

func TestMulticastLoadCountsFirstReplicas(t *testing.T) {
	t.Parallel()
	l := testMulticastLoad()
	woken := 0
	client := l.clients[0]
	client.wake = func() { woken++ }
	l.start()
	l.begin()
	var sent []order.Multicast
	for m, there := client.next(); there; m, there = client.next() {
		again, _ := client.next()
		if again.ID != m.ID {
			t.Fatalf("message %v, and then %v though nobody took the first", m.ID, again.ID)
		}
		client.taken()
		sent = append(sent, m)
	}
	if len(sent) != 2 {
		t.Fatalf("%d messages under way, want 2", len(sent))
	}
	// Two replicas of one group do not count as both groups.
	for _, at := range []order.Replica{{Group: 0, Server: 1}, {Group: 0, Server: 0}} {
		l.deliver(at, sent[0])
	}
	if _, there := client.next(); there || client.completed != 0 {
		t.Fatal("a message counts though a destination has not delivered it")
	}
	l.deliver(order.Replica{Group: 1, Server: 0}, sent[0])
	if _, there := client.next(); !there || client.completed != 1 || woken != 2 {
		t.Fatalf("%d messages are delivered and the client was woken %d times, want 1 and 2",
			client.completed, woken)
	}
	window, latency := l.end()
	if window.Requests != 1 || window.Bytes != 8 || latency.Quantile(0.5) == 0 {
		t.Errorf("the window has %+v", window)
	}
}

func TestMulticastGaps(t *testing.T) {
	t.Parallel()
	l := testMulticastLoad()
	l.watch()
	began := l.groups[1].last
	// The last goroutine to record a delivery may have delivered first.
	for _, after := range []time.Duration{time.Hour, 3 * time.Hour, 4 * time.Hour, 2 * time.Hour} {
		l.groups[1].delivered(began.Add(after))
	}
	if gap := l.longestGap([]order.GroupID{1}); gap != 2*time.Hour {
		t.Errorf("the longest gap is %v, want 2h", gap)
	}
	if gap := l.longestGap([]order.GroupID{0}); gap <= 0 || gap > time.Hour {
		t.Errorf("the gap of a group without deliveries is %v", gap)
	}
}

// TestMulticastDivergence lets replicas of a group deliver the same messages in another order, or
// not all of them.
func TestMulticastDivergence(t *testing.T) {
	t.Parallel()
	live := []order.Replica{{Group: 0, Server: 0}, {Group: 0, Server: 1}, {Group: 1, Server: 0},
		{Group: 1, Server: 1}}
	message := func(sequence uint64) order.Multicast {
		return order.Multicast{ID: order.MessageID{Sender: order.Replica{Group: order.Clients},
			Sequence: sequence}, To: []order.GroupID{0, 1}}
	}
	for _, test := range []struct {
		name   string
		second []uint64 // the messages that server 1 of group 0 delivers
		sent   uint64   // to group 0
		live   []order.Replica
		want   error
	}{
		{"the same", []uint64{1, 2, 3}, 3, live, nil},
		{"another order", []uint64{1, 3, 2}, 3, live, ErrDiverged},
		{"one less", []uint64{1, 2}, 3, live, ErrDiverged},
		{"all lack one", []uint64{1, 2, 3}, 4, live, ErrDiverged},
		{"all have one twice", []uint64{1, 2, 3}, 2, live, ErrDiverged},
		{"one less, and crashed", []uint64{1, 2}, 3, []order.Replica{live[0], live[2], live[3]},
			nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := testMulticastLoad()
			l.clients[0].sent = []uint64{test.sent, 3}
			for _, sequence := range []uint64{1, 2, 3} {
				for _, at := range []order.Replica{live[0], live[2], live[3]} {
					l.deliver(at, message(sequence))
				}
			}
			for _, sequence := range test.second {
				l.deliver(live[1], message(sequence))
			}
			if _, err := l.compare(test.live); !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}
