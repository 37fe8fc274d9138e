package streams

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// newVouched returns a world with vouchers.
func newVouched(t *testing.T, parents, children int) *world {
	w := newWorld(t, parents, children)
	w.vouched = true
	return w
}

// holding waits until a member of the child has received that many entries, of which it doubts
// some.
func (w *world) holding(id rdmanet.PeerID, held, doubted int) *testNode {
	w.t.Helper()
	w.mu.Lock()
	n := w.nodes[id]
	w.mu.Unlock()
	if err := eventually(20*time.Second, func() (bool, error) {
		status := n.streams.Status().Incoming
		return status.Held == held && status.Doubted == doubted, nil
	}, func() string {
		return fmt.Sprintf("%s: %+v, want %d entries, %d of them in doubt", id,
			n.streams.Status().Incoming, held, doubted)
	}); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// Members of the parent lie, and first are alone. Nothing of that arrives, and all true entries do.
// Every member of the child names them.
func TestLiars(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		parents int
		liars   []string
		fault   fault
	}{
		"one of three":                  {3, []string{"0/0"}, 0},
		"the last of four":              {4, []string{"0/3"}, 0},
		"two of five":                   {5, []string{"0/1", "0/4"}, 0},
		"each member of it is believed": {3, []string{"0/0"}, faultFewWitnesses},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			w := newVouched(t, test.parents, 3)
			w.fault = test.fault
			for _, liar := range test.liars {
				w.liars[rdmanet.PeerID(liar)] = true
				w.start(rdmanet.PeerID(liar), 1)
			}
			for _, member := range w.present[childShard] {
				w.start(member.Peer, 1)
			}
			w.extend(100, 100)
			if test.fault != 0 {
				if w.arrive(10*time.Second) == nil || w.wrongly() == nil {
					t.Fatal("the planted bug is not found")
				}
				return
			}
			for _, member := range w.present[childShard] {
				w.holding(member.Peer, 100, 100)
			}
			for _, member := range w.present[parentShard] {
				if !w.liars[member.Peer] {
					w.start(member.Peer, 1)
				}
			}
			w.mustArrive()
			w.named(len(test.liars))
			most := int32(len(test.liars)) * int32(1+time.Since(began)/liarsEvery)
			for _, member := range w.present[childShard] {
				if lines := w.nodes[member.Peer].log.liars.Load(); lines < 1 || lines > most {
					t.Errorf("%d lines name liars, want 1 to %d", lines, most)
				}
			}
			w.setMembers(parentShard, slices.DeleteFunc(slices.Clone(w.present[parentShard]),
				func(m Member) bool { return w.liars[m.Peer] }))
			w.named(0)
		})
	}
}

// wrongly returns what is wrong with the child's chain or with a batch.
func (w *world) wrongly() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrong
}

// named extends the stream until each member of the child names that many liars, and no one else.
func (w *world) named(liars int) {
	w.t.Helper()
	if err := eventually(20*time.Second, func() (bool, error) {
		all := true
		for _, member := range w.present[childShard] {
			named := w.nodes[member.Peer].streams.Status().Incoming.Liars
			all = all && len(named) == liars
			for _, l := range named {
				if !w.liars[l.Member.Peer] || l.Entries == 0 {
					return false, fmt.Errorf("%s names %+v", member.Peer, l)
				}
			}
		}
		if !all && liars > 0 {
			w.extend(20, 20)
			w.mustArrive()
		}
		return all, nil
	}, func() string { return "not all liars are named" }); err != nil {
		w.t.Fatal(err)
	}
}

// A member vouches for an entry in every batch until the chain has it, as far as there is room, and
// calculates its hash once. It wakes the pool only when it is patient no longer.
func TestVouchedAgain(t *testing.T) {
	t.Parallel()
	w := newVouched(t, 3, 1)
	w.refuses = true
	w.startAll()
	w.extend(40, 100)
	n := w.holding("1/0", 40, 0)
	for _, room := range []int{4 << 20, 4<<20 + 1, 4 * 3 * ledger.VouchedSize, 4<<20 + 2, 0} {
		if made := n.batch(room); len(made.vouched) != min(40, room/4/ledger.VouchedSize) {
			t.Fatalf("a batch of %d bytes vouches for %d entries", room, len(made.vouched))
		}
	}
	w.mu.Lock()
	w.refuses = false
	w.mu.Unlock()
	w.mustArrive()
	w.holding("1/0", 0, 0)
	if made := n.batch(4 << 20); len(made.vouched)+len(made.carried) > 0 {
		t.Fatalf("a batch has %+v although the chain has all", made)
	}
	n.streams.mu.Lock()
	defer n.streams.mu.Unlock()
	if kept := len(n.streams.in.hashes); kept > 0 {
		t.Fatalf("%d hashes are kept", kept)
	}
}

// A hash is calculated once for an entry, and again if other bytes count.
func TestHashes(t *testing.T) {
	t.Parallel()
	w := newVouched(t, 1, 1)
	w.refuses = true
	w.startAll()
	w.extend(2, 100)
	n := w.holding("1/0", 2, 0)
	n.batch(4 << 20)
	change := func(do func(h *hashed)) ledger.Hash {
		n.streams.mu.Lock()
		h := n.streams.in.hashes[1]
		do(&h)
		n.streams.in.hashes[1] = h
		n.streams.mu.Unlock()
		return n.batch(4 << 20).vouched[0].Hash
	}
	mark := ledger.Hash{1}
	if change(func(h *hashed) { h.hash = mark }) != mark {
		t.Error("a hash is calculated again")
	}
	if change(func(h *hashed) {
		h.payload = bytes.Clone(h.payload)
	}) != ledger.CarriedHash(w.stream[0]) {
		t.Error("an entry has the hash of another one")
	}
}

// While the chain takes nothing, a node wakes the pool twice soon, and then once in its patience.
func TestVouchingIsPatient(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]fault{"as it is": 0,
		"the pool is woken whenever there is something": faultHasty} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newVouched(t, 3, 1)
			w.refuses, w.fault = true, fault
			w.startAll()
			w.extend(40, 100)
			n := w.holding("1/0", 40, 0)
			// What came last may wake it twice. Twice more it wakes the pool soon.
			eight := func() time.Duration {
				began, from := time.Now(), n.made.Load()
				if err := eventually(20*time.Second, func() (bool, error) {
					return n.made.Load() >= from+8, nil
				}, func() string { return "no batches are made" }); err != nil {
					t.Fatal(err)
				}
				return time.Since(began)
			}
			if fault == 0 {
				if took := eight(); took < 2*w.patience {
					t.Errorf("eight batches are made in %s", took)
				}
				return
			}
			for range 50 {
				if eight() < 2*w.patience {
					return
				}
			}
			t.Error("the planted bug is not found")
		})
	}
}

// An entry of the largest size gets into a batch that has only little more room, although many
// smaller ones are vouched for.
func TestVouchedRoom(t *testing.T) {
	t.Parallel()
	w := newVouched(t, 3, 3)
	w.refuses, w.room = true, EntryMax+16*ledger.VouchedSize
	w.startAll()
	w.extend(10, 100)
	w.extend(1, EntryMax)
	w.extend(300, 100)
	for _, member := range w.present[childShard] {
		w.holding(member.Peer, 311, 0)
	}
	w.mu.Lock()
	w.refuses = false
	w.mu.Unlock()
	w.mustArrive()
}

// More members vouch for an entry than carry it at once. All are woken when it is here.
func TestAllVouch(t *testing.T) {
	t.Parallel()
	w := newVouched(t, 3, 4)
	w.patience = 8 * time.Second
	w.startAll()
	w.extend(300, 100)
	if err := w.arrive(12 * time.Second); err != nil { // the others carry it after 16 s
		t.Fatal(err)
	}
}
