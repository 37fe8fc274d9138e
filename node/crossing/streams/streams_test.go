package streams

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// The parent's entries arrive in order, each once, small and large.
func TestStream(t *testing.T) {
	bothWays(t, func(t *testing.T, vouched bool) {
		w := newWorld(t, 3, 3)
		w.vouched = vouched
		w.startAll()
		w.extend(500, 200)
		w.mustArrive()
		w.extend(6, EntryMax)
		w.mustArrive()
		w.extend(3000, 20)
		w.mustArrive()
		w.attached(3)
	})
}

// A member of the child is killed and comes back, then a member of the parent, each with a new
// life, while entries flow.
func TestRestarts(t *testing.T) {
	bothWays(t, func(t *testing.T, vouched bool) {
		w := newWorld(t, 3, 3)
		w.vouched = vouched
		w.startAll()
		for round, victim := range []rdmanet.PeerID{"1/0", "0/1", "1/2", "0/0", "1/0"} {
			w.extend(100, 100)
			w.stop(victim)
			w.extend(100+round, 3000)
			w.mustArrive()
			w.start(victim, 1)
			w.extend(100, 100)
			w.mustArrive()
		}
		w.attached(3)
	})
}

// All members of the child are killed at once, with entries in their rings; then all members of the
// parent.
func TestAShardRestarts(t *testing.T) {
	bothWays(t, func(t *testing.T, vouched bool) {
		w := newWorld(t, 3, 3)
		w.vouched = vouched
		w.startAll()
		for _, shard := range []string{"1", "0"} {
			w.attached(3)
			w.extend(300, 500)
			for _, i := range []string{"/0", "/1", "/2"} {
				w.stop(rdmanet.PeerID(shard + i))
			}
			w.extend(10, 10)
			for _, i := range []string{"/0", "/1", "/2"} {
				w.start(rdmanet.PeerID(shard+i), 1)
			}
			w.mustArrive()
		}
	})
}

// A member of the parent is cut off, and the others continue. A member of the child is cut off from
// all members of the parent.
func TestPartition(t *testing.T) {
	bothWays(t, func(t *testing.T, vouched bool) {
		w := newWorld(t, 3, 3)
		w.vouched = vouched
		w.startAll()
		w.attached(3)
		cut := func(do func(a, b rdmanet.PeerID), one rdmanet.PeerID, others ...rdmanet.PeerID) {
			for _, other := range others {
				do(one, other)
			}
		}
		cut(w.network.Cut, "0/1", "1/0", "1/1", "1/2")
		w.extend(1000, 300)
		w.mustArrive()
		cut(w.network.Mend, "0/1", "1/0", "1/1", "1/2")
		cut(w.network.Cut, "1/2", "0/0", "0/1", "0/2")
		w.extend(1000, 300)
		w.mustArrive()
		cut(w.network.Mend, "1/2", "0/0", "0/1", "0/2")
		w.attached(3)
		w.extend(100, 300)
		w.mustArrive()
	})
}

// The stores of the child's members are replaced, all at once, with entries under way. The rings
// are made anew although no host restarted.
func TestReset(t *testing.T) {
	bothWays(t, func(t *testing.T, vouched bool) {
		w := newWorld(t, 3, 3)
		w.vouched = vouched
		w.startAll()
		for range 5 {
			w.attached(3)
			w.extend(200, 300)
			w.mu.Lock()
			for _, n := range w.nodes {
				n.streams.Reset()
			}
			w.mu.Unlock()
			w.mustArrive()
		}
	})
}

// A member of the parent that began with a snapshot takes no part until the child is past the
// entries that it lacks. The only other member sends these.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, 2)
	w.start("1/0", 1)
	w.start("1/1", 1)
	w.extend(300, 100)
	w.start("0/0", 250)
	err := eventually(10*time.Second, func() (bool, error) {
		w.mu.Lock()
		n := w.nodes["0/0"]
		w.mu.Unlock()
		return n.streams.Status().Outgoing[0].Absent == 1, nil
	}, func() string { return "it does not see what it lacks" })
	if err != nil {
		t.Fatal(err)
	}
	w.start("0/1", 1)
	w.mustArrive()
	w.stop("0/1")
	w.extend(100, 100)
	w.mustArrive() // it takes part now
}

// All members of the parent began with snapshots, and the child needs entries from before. It gets
// them once one of these members has fetched their blocks.
func TestAllBeganWithSnapshots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, 2)
	w.start("1/0", 1)
	w.start("1/1", 1)
	w.extend(300, 100)
	began := []*testNode{w.start("0/0", 301), w.start("0/1", 301)}
	err := eventually(10*time.Second, func() (bool, error) {
		return began[0].streams.Status().Outgoing[0].Absent == 1 &&
			began[1].streams.Status().Outgoing[0].Absent == 1, nil
	}, func() string { return "they do not see what they lack" })
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	began[1].began = 1
	w.mu.Unlock()
	w.mustArrive()
}

// Members join and leave: new members get rings, and departed ones lose them.
func TestMembersChange(t *testing.T) {
	bothWays(t, func(t *testing.T, vouched bool) {
		w := newWorld(t, 2, 2)
		w.vouched = vouched
		w.startAll()
		w.extend(100, 100)
		w.mustArrive()
		parents := []Member{{0, "0/0"}, {1, "0/1"}, {5, "0/5"}}
		children := []Member{{0, "1/0"}, {1, "1/1"}, {7, "1/7"}}
		w.setMembers(parentShard, parents)
		w.setMembers(childShard, children)
		w.start("0/5", 1)
		w.start("1/7", 1)
		w.attached(3)
		w.extend(300, 100)
		w.mustArrive()
		w.setMembers(parentShard, parents[1:])
		w.setMembers(childShard, children[1:])
		w.stop("0/0")
		w.stop("1/0")
		w.attached(2)
		w.extend(300, 100)
		w.mustArrive()
		if rings := w.nodes["1/7"].streams.Status().Incoming.Rings; rings > 2 {
			t.Fatalf("%d rings of 2 writers", rings)
		}
	})
}
