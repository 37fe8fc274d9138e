package streams

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// The checks of these tests are checked too: each finds a planted bug.

// A writer comes back in a new life, and its entries arrive.
func TestWriterComesBack(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]fault{"as it is": 0,
		"the same ring is offered again": faultSameRing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1, 1)
			w.fault = fault
			w.startAll()
			w.extend(10, 10)
			w.mustArrive()
			w.stop("0/0")
			w.start("0/0", 1)
			w.extend(10, 10)
			w.judge(fault)
		})
	}
}

// The parent's chain takes back blocks that are not durable, and orders others.
func TestParentTakesBack(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]fault{"as it is": 0,
		"what is not durable is offered": faultBeyondDurable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1, 1)
			w.fault = fault
			w.startAll()
			w.extend(10, 10)
			w.mustArrive()
			w.mu.Lock()
			w.stream = append(w.stream, payload(1000, 10))
			w.appended++
			w.tellParent()
			w.mu.Unlock()
			if fault != 0 {
				w.mustArrive()
			}
			w.mu.Lock()
			w.stream = w.stream[:10]
			w.appended = 10
			if w.position > 10 {
				w.wrong = errTakenBack
			}
			w.mu.Unlock()
			w.extend(10, 10)
			w.judge(fault)
		})
	}
}

// The child's chain loses, at all members, blocks that are not durable, and gets their entries
// again.
func TestChildTakesBack(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]fault{"as it is": 0,
		"a position that is not durable is told": faultEarlyPosition} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1, 1)
			w.fault = fault
			w.startAll()
			w.extend(10, 10)
			w.mustArrive()
			w.mu.Lock()
			w.held = true
			w.mu.Unlock()
			w.extend(10, 10)
			w.mustArrive()
			if fault != 0 {
				w.told(20)
			}
			w.mu.Lock()
			w.held = false
			w.taken = w.taken[:w.childDurable]
			w.position = w.taken[w.childDurable-1]
			for _, n := range w.members(childShard) {
				n.streams.Reset()
			}
			w.mu.Unlock()
			w.judge(fault)
		})
	}
}

// judge expects that everything arrives, or with a bug that it does not.
func (w *world) judge(fault fault) {
	w.t.Helper()
	if fault == 0 {
		w.mustArrive()
		return
	}
	if err := w.arrive(time.Second); err == nil {
		w.t.Fatal("the planted bug is not found")
	}
}

// told waits until the parent's members know a position.
func (w *world) told(position uint64) {
	w.t.Helper()
	err := eventually(10*time.Second, func() (bool, error) {
		w.mu.Lock()
		members := w.members(parentShard)
		w.mu.Unlock()
		for _, n := range members {
			if n.streams.Status().Outgoing[0].Position < position {
				return false, nil
			}
		}
		return true, nil
	}, func() string { return "the position is not told" })
	if err != nil {
		w.t.Fatal(err)
	}
}

// Messages that are malformed, from no member, or for others are dropped, and so are asks of an
// ended life.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 1)
	w.startAll()
	w.attached(1)
	carrier, writer := w.nodes["1/0"].streams, w.nodes["0/0"].streams
	before := carrier.Status()
	ask := message{kind: messageAsk, child: childShard, attempt: 1 << 63}
	offer := message{kind: messageOffer, child: childShard, region: "x"}
	wrong := message{kind: messageAsk, child: 7, attempt: 1 << 63}
	carrier.receive(rdmanet.Peer{ID: "nobody", Incarnation: 1}, ask.encode(nil))
	carrier.receive(rdmanet.Peer{ID: "0/0", Incarnation: 1}, ask.encode(nil)) // an ended life
	carrier.receive(rdmanet.Peer{ID: "0/0", Incarnation: 1 << 63}, offer.encode(nil))
	carrier.receive(rdmanet.Peer{ID: "0/0", Incarnation: 1 << 63}, wrong.encode(nil))
	carrier.receive(rdmanet.Peer{ID: "0/0", Incarnation: 1 << 63}, []byte{9, 9})
	writer.receive(rdmanet.Peer{ID: "1/0", Incarnation: 1 << 63}, ask.encode(nil))
	w.extend(100, 100)
	w.mustArrive()
	if after := carrier.Status(); after.Incoming.Rings != before.Incoming.Rings {
		t.Fatalf("rings: %d, then %d", before.Incoming.Rings, after.Incoming.Rings)
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range []message{
		{kind: messageAsk, child: 3, attempt: 7}, {kind: messageOffer, child: 1, attempt: 7,
			life: 2, position: 9, region: "stream/1"}, {kind: messageFeedback, child: 2},
	} {
		f.Add(m.encode(nil))
	}
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		if again := m.encode(nil); string(again) != string(b) {
			t.Fatalf("%x becomes %x", b, again)
		}
	})
}
