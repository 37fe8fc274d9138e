package plan

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/fabric"
	"github.com/ledgerd/ledgerd/sim/network"
)

// TestDAREBounds compares with numbers computed by hand from the formulas of [Poke19, section
// 4.5.2] and Table 4.1, in microseconds. They are rounded, and count the gap of all s bytes of the
// data where the formulas have s-1.
func TestDAREBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers, bytes int
		read, write    float64
	}{
		{3, 64, 4.8, 6.3}, {3, 1024, 6.1, 8.8}, {3, 2048, 6.9, 10.3},
		{5, 64, 5.2, 7.5}, {5, 1024, 6.4, 9.9}, {5, 2048, 7.2, 11.4},
		{7, 64, 5.5, 8.8}, {9, 64, 5.9, 10.3},
	} {
		l, err := DAREOf(network.InfiniBandRDMA, c.servers, c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, pair := range []struct {
			name string
			got  time.Duration
			want float64
		}{{"read", l.ReadLatency(), c.read}, {"write", l.WriteLatency(), c.write}} {
			if got := float64(pair.got) / 1e3; math.Abs(got-pair.want) > 0.0525 {
				t.Errorf("n=%d, %d bytes: a %s takes at least %.3f us, want %.1f", c.servers,
					c.bytes, pair.name, got, pair.want)
			}
		}
	}
}

func TestDAREOfRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]int{{0, 1}, {-1, 1}, {ServersMax + 1, 1}, {3, 0}, {3, payloadMax + 1}} {
		if _, err := DAREOf(network.InfiniBandRDMA, c[0], c[1]); !errors.Is(err, ErrQuestion) {
			t.Errorf("%v: %v", c, err)
		}
	}
	alone, err := DAREOf(network.InfiniBandRDMA, 1, 64)
	if err != nil || alone.Reads != 0 || alone.Writes != 0 || alone.Datagrams == 0 {
		t.Errorf("one server: %+v, %v", alone, err)
	}
}

// TestDAREBoundsGrow: more servers and more bytes are never quicker, and a read needs less than a
// write.
func TestDAREBoundsGrow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		servers := rapid.IntRange(2, ServersMax-1).Draw(t, "servers")
		bytes := rapid.IntRange(1, 1<<20).Draw(t, "bytes")
		of := func(servers, bytes int) DARE {
			l, err := DAREOf(network.InfiniBandRDMA, servers, bytes)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		l, more := of(servers, bytes), of(servers+1, bytes)
		if l.Reads >= l.Writes || more.Reads < l.Reads || more.Writes < l.Writes ||
			more.Datagrams != l.Datagrams {
			t.Fatalf("%d servers, %d bytes: %+v, and with one more %+v", servers, bytes, l, more)
		}
		if inline := network.InfiniBandRDMA.InlineMax; bytes != inline {
			if longer := of(servers, bytes+1); longer.Datagrams < l.Datagrams ||
				longer.Writes < l.Writes {
				t.Fatalf("%d servers, %d bytes: %+v, and one byte more %+v", servers, bytes, l,
					longer)
			}
		}
	})
}

// accesses is a leader and its followers on the timed fabric.
type accesses struct {
	network *fabric.Network
	leader  *fabric.Host
	queue   rdmanet.Queue
	logs    []rdmanet.Attachment
}

func newAccesses(t *testing.T, servers int) *accesses {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a := &accesses{network: fabric.New(fabric.Options{
		Timing: fabric.LogGP{RDMA: network.InfiniBandRDMA}})}
	t.Cleanup(a.network.Close)
	var err error
	a.leader, err = a.network.Start("leader")
	must(err)
	a.queue, err = a.leader.Queue(16 * servers)
	must(err)
	for i := range servers - 1 {
		host, err := a.network.Start(rdmanet.PeerID(fmt.Sprint("follower-", i)))
		must(err)
		log, err := host.Expose("log", 1<<16)
		must(err)
		must(log.Grant(a.leader.Peer(), rdmanet.PermissionReadWrite))
		attachment, err := a.leader.Attach(context.Background(), host.ID(), "log")
		must(err)
		a.logs = append(a.logs, attachment)
	}
	return a
}

// post posts an operation to a follower, as part of a phase.
func (a *accesses) post(t *testing.T, follower, phase int, kind rdmanet.OperationKind, bytes int) {
	t.Helper()
	if err := a.queue.Post(rdmanet.Operation{To: a.logs[follower], Kind: kind,
		Tag: uint64(phase*ServersMax + follower), Bytes: make([]byte, bytes)}); err != nil {
		t.Fatal(err)
	}
}

// take waits for a number of completions of a phase, and returns the followers.
func (a *accesses) take(t *testing.T, phase, count int) (followers []int) {
	t.Helper()
	var done [1]rdmanet.Completion
	for len(followers) < count {
		if _, err := a.queue.Wait(context.Background(), done[:]); err != nil ||
			done[0].Err != nil {
			t.Fatal(err, done[0].Err)
		}
		if tag := int(done[0].Tag); tag/ServersMax == phase {
			followers = append(followers, tag%ServersMax)
		}
	}
	return followers
}

// TestDAREBoundsHoldOnTheTimedFabric makes a leader's accesses on the fabric of the simulator, one
// phase after the other. They are never quicker than the bounds without the polls that it makes
// while it waits. Where the link hardly matters, they are not much slower than the bounds.
func TestDAREBoundsHoldOnTheTimedFabric(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{2, 3, 4, 5, 7, 9} {
		for _, bytes := range []int{8, 64, 128, 256, 1024, 2048} {
			bound, err := DAREOf(network.InfiniBandRDMA, servers, bytes)
			if err != nil {
				t.Fatal(err)
			}
			needed := memoryQuorum(servers) - 1
			a := newAccesses(t, servers)
			for follower := range a.logs { // the terms
				a.post(t, follower, 0, rdmanet.OperationRead, 1)
			}
			a.take(t, 0, needed)
			reads := a.network.Now()

			a = newAccesses(t, servers)
			for follower := range a.logs { // the entry
				a.post(t, follower, 0, rdmanet.OperationWrite, bytes)
			}
			for _, follower := range a.take(t, 0, needed) { // the tail
				a.post(t, follower, 1, rdmanet.OperationWrite, 1)
			}
			// The commit pointer, for which it does not wait.
			for _, follower := range a.take(t, 1, needed) {
				a.post(t, follower, 2, rdmanet.OperationWrite, 1)
			}
			writes := a.leader.BusyUntil()

			hidden := time.Duration(needed-1) * network.InfiniBandRDMA.Polling
			for _, c := range []struct {
				name               string
				got, bound, hidden time.Duration
			}{{"reads", reads, bound.Reads, hidden}, {"writes", writes, bound.Writes, 2 * hidden}} {
				if c.got < c.bound-c.hidden ||
					bytes <= 128 && float64(c.got) > 1.1*float64(c.bound) {
					t.Errorf("n=%d, %d bytes: the %s take %v, bound %v", servers, bytes, c.name,
						c.got, c.bound)
				}
			}
		}
	}
}
