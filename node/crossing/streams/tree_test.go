package streams

import (
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// The parent goes on with the stream to a child that hangs elsewhere by its own chain, until that
// has all of it. The child is down meanwhile, and members of the parent begin again. Then the
// parent lets go, also members that begin again after that.
func TestFormerChild(t *testing.T) {
	bothWays(t, func(t *testing.T, vouched bool) {
		for name, fault := range map[string]fault{"as it is": 0, "let go at once": faultLetGo} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, 3, 3)
				w.vouched, w.fault = vouched, fault
				tree := (&ledger.Genesis{Tree: []ledger.ShardID{0, 0, 0},
					Shards: make([][]ledger.Member, 3)}).ShardTree()
				w.setTree(tree)
				w.startAll()
				w.extend(100, 300)
				w.mustArrive()
				for i := range 3 {
					w.stop(rdmanet.PeerID(fmt.Sprintf("1/%d", i)))
				}
				w.extend(200, 300)
				elsewhere := tree.Rehang(1, &ledger.ShardRehang{Shard: childShard, Parent: 2})
				w.mu.Lock()
				w.childTree = tree
				w.mu.Unlock()
				w.setTree(elsewhere)
				w.stop("0/1")
				w.start("0/1", 1)
				for i := range 3 {
					w.start(rdmanet.PeerID(fmt.Sprintf("1/%d", i)), 1)
				}
				if fault != 0 {
					if w.arrive(2*time.Second) == nil {
						t.Error("the planted bug was not found")
					}
					return
				}
				w.mustArrive()
				w.setChild(elsewhere)
				w.mustLetGo()
				w.stop("0/2")
				w.start("0/2", 1)
				w.mustLetGo()
			})
		}
	})
}

// The operators settle with a child, which nobody hears then. Its members are nobody's any more. So
// nothing can tell that it has all entries, and the parent lets go, also members that begin again.
func TestLostChild(t *testing.T) {
	bothWays(t, func(t *testing.T, vouched bool) {
		for _, former := range []bool{false, true} {
			t.Run(map[bool]string{false: "right below", true: "elsewhere"}[former],
				func(t *testing.T) {
					w := newWorld(t, 3, 2)
					w.vouched = vouched
					tree := (&ledger.Genesis{Tree: []ledger.ShardID{0, 0, 0},
						Shards: make([][]ledger.Member, 3)}).ShardTree()
					w.setTree(tree)
					w.startAll()
					w.extend(100, 300)
					w.mustArrive()
					w.stop("1/0")
					w.stop("1/1")
					w.extend(20, 300)
					if former {
						w.setTree(tree.Rehang(1, &ledger.ShardRehang{Shard: childShard,
							Parent: 2}))
					}
					w.setMembers(childShard, nil)
					w.mustLetGo()
					w.stop("0/2")
					w.start("0/2", 1)
					w.mustLetGo()
				})
		}
	})
}

// setChild makes the child execute the change of the tree.
func (w *world) setChild(tree *ledger.ShardTree) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.childTree = tree
	w.position = ledger.StreamBase(1)
	w.taken = append(w.taken, w.position)
	w.childDurable = ledger.Height(len(w.taken))
	for _, n := range w.members(childShard) {
		n.streams.Applied(w.childDurable, w.position)
		n.streams.DurableTo(w.childDurable)
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// mustLetGo waits until no member of the parent has a stream to the child any more.
func (w *world) mustLetGo() {
	w.t.Helper()
	err := eventually(20*time.Second, func() (bool, error) {
		w.mu.Lock()
		parents, children := w.members(parentShard), w.members(childShard)
		w.mu.Unlock()
		for _, n := range parents {
			for _, out := range n.streams.Status().Outgoing {
				if out.Child == childShard {
					return false, nil
				}
			}
		}
		for _, n := range children {
			if in := n.streams.Status().Incoming; in == nil || in.Parent != 2 || in.Rings > 0 {
				return false, nil
			}
		}
		return true, nil
	}, func() (text string) {
		for _, id := range w.all() {
			w.mu.Lock()
			n := w.nodes[id]
			w.mu.Unlock()
			if n != nil {
				status := n.streams.Status()
				text += fmt.Sprintf("\n%s: in %+v, out %+v", id, status.Incoming, status.Outgoing)
			}
		}
		return "the stream is not let go" + text
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
