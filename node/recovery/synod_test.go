package recovery

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// world is a small chain with a synod on every node: processes stop and start, messages are lost, delayed and reordered, groups order blocks, halt and end in order.
type world struct {
	plant   fault
	random  *rand.Rand
	seed    uint64
	nodes   []*simulated
	flight  []flying
	decided map[Generation]Decision
	// durable is the highest block that a majority of the chain's members stored, counting only members of the generation in which it was ordered.
	durable Head
}

type simulated struct {
	synod   *Synod
	up      bool
	disk    State
	head    Head // on disk
	working Generation
	group   []order.ServerID
}

// fault is a bug planted to see that it is found.
type fault uint8

const (
	none fault = iota
	forgetsPromises
	promisesWhileWorking
	reportsStaleHead
)

type flying struct {
	from, to order.ServerID
	message  Message
}

func newWorld(seed uint64, servers int) *world {
	w := &world{seed: seed, random: rand.New(rand.NewPCG(seed, 1)), decided: map[Generation]Decision{}}
	for range servers {
		w.nodes = append(w.nodes, &simulated{disk: State{Disk: DiskID(len(w.nodes) + 1)}})
	}
	return w
}

// violation is what a broken property panics with; the synod's own assertions panic with a string.
type violation string

func (w *world) fail(format string, arguments ...any) {
	panic(violation(fmt.Sprintf("seed %d, %d nodes: %s\nreplay: go test ./node/recovery -run TestSynodUnderFaults -args -seed %d", w.seed, len(w.nodes), fmt.Sprintf(format, arguments...), w.seed)))
}

func (w *world) start(i int) {
	n := w.nodes[i]
	synod, err := NewSynod(Config{Self: order.ServerID(i), Servers: len(w.nodes), State: n.disk, Grace: 6, Patience: 4})
	if err != nil {
		w.fail("%v", err)
	}
	n.synod, n.up, n.working = synod, true, 0
	if w.plant == reportsStaleHead && n.head.Height > 0 {
		synod.Report(Head{Generation: n.head.Generation})
	} else {
		synod.Report(n.head)
	}
	for peer := range w.nodes {
		synod.Linked(order.ServerID(peer), w.nodes[peer].up)
		if w.nodes[peer].up && peer != i {
			w.nodes[peer].synod.Linked(order.ServerID(i), true)
		}
	}
}

func (w *world) stop(i int) {
	w.nodes[i].up = false
	for peer, n := range w.nodes {
		if n.up && peer != i {
			n.synod.Linked(order.ServerID(i), false)
		}
	}
}

// drain does what a node's synod wants done: save, send, adopt.
func (w *world) drain(i int) {
	n := w.nodes[i]
	if n.synod.MustEnd() {
		n.working = 0
		n.synod.Idle(n.head, 0) // the last round has not come here
	}
	ready := n.synod.Ready()
	if ready.MustSave {
		state, err := DecodeState(ready.State.Encode())
		if err != nil {
			w.fail("state does not survive its encoding: %v", err)
		}
		if w.plant == forgetsPromises {
			state.Promised, state.Accepted, state.AcceptedValue = Ballot{}, Ballot{}, nil
		}
		n.disk = state
	}
	for _, envelope := range ready.Messages {
		message, err := DecodeMessage(envelope.Message.Encode(nil))
		if err != nil {
			w.fail("message does not survive its encoding: %v", err)
		}
		w.flight = append(w.flight, flying{order.ServerID(i), envelope.To, message})
	}
	if ready.Decided != nil {
		w.adopt(i, *ready.Decided)
	}
}

func (w *world) adopt(i int, d Decision) {
	if known, ok := w.decided[d.Generation]; ok {
		if !known.Equal(d) {
			w.fail("generation %d decided twice: %v and %v", d.Generation, known, d)
		}
	} else {
		w.decided[d.Generation] = d
		if d.Base.Before(w.durable) {
			w.fail("generation %d goes on from %v, but %v is durable", d.Generation, d.Base, w.durable)
		}
		working := 0
		for _, n := range w.nodes {
			if n.up && n.working != 0 && n.working < d.Generation {
				working++
			}
		}
		if working > len(w.nodes)/2 {
			w.fail("generation %d decided while %d nodes work", d.Generation, working)
		}
	}
	n := w.nodes[i]
	if n.working != 0 || n.synod.Frozen(d.Generation) {
		return
	}
	// Blocks up to the base come from whoever has them, at once.
	n.head = d.Base
	if d.Includes(order.ServerID(i)) {
		n.working, n.group = d.Generation, d.Members
		n.head.Generation = d.Generation
		n.synod.Report(n.head)
		if w.plant != promisesWhileWorking {
			n.synod.Working(d.Generation)
		}
		w.drain(i)
	}
}

// orderBlock lets the members of the latest generation that can, a majority of the chain, order one block; a random part of them stores it before the next event.
func (w *world) orderBlock() {
	latest := Generation(0)
	for g := range w.decided {
		latest = max(latest, g)
	}
	d, ok := w.decided[latest]
	if !ok {
		return
	}
	var active []int
	top := Head{}
	for _, member := range d.Members {
		if n := w.nodes[member]; n.up && n.working == latest {
			active = append(active, int(member))
			if top.Before(n.head) {
				top = n.head
			}
		}
	}
	if len(active) <= len(w.nodes)/2 {
		return
	}
	next := Head{Generation: latest, Height: top.Height + 1}
	next.Hash[0] = byte(next.Height)
	next.Hash[1] = byte(latest)
	stored := 0
	for _, i := range active {
		if w.random.IntN(4) > 0 {
			w.nodes[i].head = next
			w.nodes[i].synod.Report(next)
			stored++
		}
	}
	if stored > len(w.nodes)/2 && w.durable.Before(next) {
		w.durable = next
	}
}

// endInOrder lets the group of the latest generation deliver its last round at one of its members, which brings its block with it.
func (w *world) endInOrder() {
	latest := Generation(0)
	for g := range w.decided {
		latest = max(latest, g)
	}
	top := -1
	for i, n := range w.nodes {
		if n.up && n.working == latest && latest != 0 && (top < 0 || w.nodes[top].head.Before(n.head)) {
			top = i
		}
	}
	if top < 0 {
		return
	}
	n := w.nodes[top]
	n.working = 0
	n.synod.Idle(n.head, latest)
	w.drain(top)
}

func (w *world) step() {
	// Some seeds restart and lose far more than others: forgotten promises show only when attempts meet half-way.
	rough := w.seed%3 == 2
	if rough && w.random.IntN(12) == 0 {
		i := w.random.IntN(len(w.nodes))
		if w.nodes[i].up {
			w.stop(i)
		}
		w.start(i)
		w.drain(i)
	}
	switch choice := w.random.IntN(100); {
	case choice < 45 && len(w.flight) > 0:
		k := w.random.IntN(len(w.flight))
		f := w.flight[k]
		w.flight = slices.Delete(w.flight, k, k+1)
		if n := w.nodes[f.to]; n.up && (w.random.IntN(20) > 0) && !(rough && f.message.Kind == KindDecided && w.random.IntN(4) > 0) {
			n.synod.Receive(f.from, f.message)
			w.drain(int(f.to))
		}
	case choice < 88:
		i := w.random.IntN(len(w.nodes))
		if w.nodes[i].up {
			w.nodes[i].synod.Tick()
			w.drain(i)
		} else if w.random.IntN(3) == 0 {
			w.start(i)
			w.drain(i)
		}
	case choice < 96:
		w.orderBlock()
	case choice < 98:
		w.endInOrder()
	default:
		if i := w.random.IntN(len(w.nodes)); w.nodes[i].up {
			w.stop(i)
		}
	}
}

// settle lets everyone run, or just a majority, with nothing lost until the shard orders again.
func (w *world) settle() {
	up := 0
	for _, n := range w.nodes {
		if n.up {
			up++
		}
	}
	for i, n := range w.nodes {
		if !n.up && (w.seed%2 == 0 || up <= len(w.nodes)/2) {
			up++
			w.start(i)
			w.drain(i)
		}
	}
	for range 4000 {
		if w.ordering() {
			return
		}
		for i, n := range w.nodes {
			if n.up {
				n.synod.Tick()
				w.drain(i)
			}
		}
		for len(w.flight) > 0 {
			f := w.flight[0]
			w.flight = w.flight[1:]
			if w.nodes[f.to].up {
				w.nodes[f.to].synod.Receive(f.from, f.message)
				w.drain(int(f.to))
			}
		}
		// A group without a majority halts, as the engine does.
		working := map[Generation]int{}
		for _, n := range w.nodes {
			if n.up {
				working[n.working]++
			}
		}
		for i, n := range w.nodes {
			if n.up && n.working != 0 && working[n.working] <= len(w.nodes)/2 {
				n.working = 0
				n.synod.Idle(n.head, 0)
				w.drain(i)
			}
		}
	}
	w.fail("the shard does not order again: %s", w)
}

func (w *world) ordering() bool {
	working := map[Generation]int{}
	for _, n := range w.nodes {
		if n.up && n.working != 0 {
			working[n.working]++
		}
	}
	for _, count := range working {
		if count > len(w.nodes)/2 {
			return true
		}
	}
	return false
}

func (w *world) String() string {
	text := ""
	for i, n := range w.nodes {
		text += fmt.Sprintf("\n  node %d: up %v, works in %d, head %d/%d, instance %d, decided %v", i, n.up, n.working, n.head.Generation, n.head.Height, n.disk.Instance, n.disk.Decided)
	}
	return text
}

// run plays one seed and gives what broke, "" for nothing.
func run(seed uint64, plant fault) (broken string) {
	w := newWorld(seed, 1+int(seed%7))
	w.plant = plant
	defer func() {
		if reason := recover(); reason != nil {
			broken = fmt.Sprint(reason)
		}
	}()
	for range 400 {
		w.step()
	}
	w.settle()
	w.orderBlock()
	return ""
}

var replay = flag.Int64("seed", -1, "play only this seed")

func TestSynodUnderFaults(t *testing.T) {
	t.Parallel()
	first, seeds := uint64(0), uint64(5000)
	if testing.Short() {
		seeds = 500
	}
	if *replay >= 0 {
		first, seeds = uint64(*replay), 1
	}
	for seed := first; seed < first+seeds; seed++ {
		if broken := run(seed, none); broken != "" {
			t.Fatal(broken)
		}
	}
}

// The judge of TestSynodUnderFaults can fail: each planted bug is found.
func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]fault{"a promise is forgotten at a restart": forgetsPromises, "a node that works promises": promisesWhileWorking, "a stale head is reported": reportsStaleHead} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(5000) {
				if broken := run(seed, plant); broken != "" {
					t.Logf("found: %.200s", broken)
					return
				}
			}
			t.Fatal("not found in 5,000 seeds")
		})
	}
}

// A node whose disk was lost holds nothing: with its help alone a majority must not go on from less than what is durable.
func TestLostDiskDoesNotCount(t *testing.T) {
	t.Parallel()
	known := &Decision{Generation: 1, Members: []order.ServerID{0, 1, 2}, Disks: []DiskID{10, 11, 12}}
	durable := Head{Generation: 1, Height: 7}
	behind, err := NewSynod(Config{Self: 2, Servers: 3, State: State{Disk: 12, Instance: 1, Decided: known}, Grace: 1, Patience: 5})
	if err != nil {
		t.Fatal(err)
	}
	behind.Report(Head{Generation: 1, Height: 3})
	for behind.phase != phasePreparing {
		behind.Tick()
	}
	behind.Receive(0, Message{Kind: KindPromise, Generation: 2, Ballot: behind.ballot, Disk: 20}) // node 0 lost its disk
	for range 3 {
		behind.Tick()
		if behind.phase == phaseAccepting {
			t.Fatal("a node that lost its disk made the majority")
		}
	}
	behind.Receive(1, Message{Kind: KindPromise, Generation: 2, Ballot: behind.ballot, Disk: 11, Head: durable, Known: known})
	behind.Tick()
	if behind.phase != phaseAccepting || behind.value.Base != durable || len(behind.value.Members) != 3 {
		t.Fatalf("phase %d, value %v: want to go on from %v with all three", behind.phase, behind.value, durable)
	}
}

// Who was proposing while the group still worked does not hold up the group that ended in order: its members propose at their first turn.
func TestGroupThatEndedInOrderProposesAtOnce(t *testing.T) {
	t.Parallel()
	s, err := NewSynod(Config{Self: 0, Servers: 3, State: State{Disk: 1}, Grace: 15, Patience: 10})
	if err != nil {
		t.Fatal(err)
	}
	s.Working(1)
	s.Receive(2, Message{Kind: KindPrepare, Generation: 2, Ballot: Ballot{Number: 7, Proposer: 2}})
	s.Idle(Head{Generation: 1}, 1)
	s.Receive(2, Message{Kind: KindPrepare, Generation: 2, Ballot: Ballot{Number: 8, Proposer: 2}})
	s.Ready()
	s.Tick()
	s.Tick()
	for _, envelope := range s.Ready().Messages {
		if envelope.Message.Kind == KindPrepare && envelope.Message.Regroup && envelope.Message.Ballot.Number > 8 {
			return
		}
	}
	t.Fatalf("no proposal after two ticks: phase %d, waited %d", s.phase, s.waited)
}

// A node that only heard that its generation ended stops and promises, but does not say so in turn: it has not delivered the last round.
func TestHearsayOfTheEndIsNotPassedOn(t *testing.T) {
	t.Parallel()
	s, err := NewSynod(Config{Self: 1, Servers: 3, State: State{Disk: 1}, Grace: 2, Patience: 2})
	if err != nil {
		t.Fatal(err)
	}
	s.Working(1)
	s.Receive(0, Message{Kind: KindPrepare, Generation: 2, Ballot: Ballot{Number: 1}, Regroup: true})
	if !s.MustEnd() {
		t.Fatal("the engine is not told to stop")
	}
	s.Idle(Head{Generation: 1}, 0)
	promised := false
	for _, envelope := range s.Ready().Messages {
		promised = promised || envelope.To == 0 && envelope.Message.Kind == KindPromise
	}
	if !promised {
		t.Fatal("no promise after the engine stopped")
	}
	for range 50 {
		s.Tick()
		for _, envelope := range s.Ready().Messages {
			if envelope.Message.Kind == KindPrepare && envelope.Message.Regroup {
				t.Fatal("hearsay is passed on as knowledge")
			}
		}
	}
}

func FuzzDecodeMessage(f *testing.F) {
	value := &Decision{Generation: 3, Base: Head{Generation: 2, Height: 9}, Members: []order.ServerID{0, 2}, Disks: []DiskID{5, 6}}
	f.Add(Message{Kind: KindPromise, Generation: 3, Ballot: Ballot{4, 1}, Value: value, Known: value, Regroup: true}.Encode(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil {
			return
		}
		if again := m.Encode(nil); string(again) != string(b) {
			t.Fatalf("%x decodes and encodes to %x", b, again)
		}
	})
}

func FuzzDecodeState(f *testing.F) {
	f.Add(State{Instance: 3, Decided: &Decision{Generation: 2, Members: []order.ServerID{1}, Disks: []DiskID{7}}}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeState(b)
		if err == nil && string(s.Encode()) != string(b) {
			t.Fatalf("%x decodes and encodes to %x", b, s.Encode())
		}
	})
}
