package node_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// liar is a member that says anything at any time: it has the identity of a member, and no node
// behind it. Its conversation follows from a sequence of bytes.
type liar struct {
	host    rdmanet.Host
	choices []byte

	mu    sync.Mutex
	heard map[string][][]byte
}

// lanesOfNodes are the lanes that a node listens on.
var lanesOfNodes = []string{"order", "control", "blocks"}

// hear keeps the last frames of a lane.
func (l *liar) hear(lane string, frames [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, frame := range frames {
		const kept = 256
		if len(l.heard[lane]) == kept {
			l.heard[lane] = slices.Delete(l.heard[lane], 0, 1)
		}
		l.heard[lane] = append(l.heard[lane], slices.Clone(frame))
	}
}

// recorder is the host of a true member that will be a liar later. It keeps the first frames that
// nodes say to it.
type recorder struct {
	*memory.Host
	liar *liar
}

func (r recorder) Receive(lane string, receive func(rdmanet.Peer, [][]byte)) error {
	return r.Host.Receive(lane, func(from rdmanet.Peer, frames [][]byte) {
		r.liar.hear(lane, frames)
		receive(from, frames)
	})
}

// begin takes the place of a member. Nodes no longer hear the true one.
func (l *liar) begin(s *shard, i int) {
	host, err := s.network.Host(s.peers[i])
	if err != nil {
		s.t.Fatal(err)
	}
	l.host = host
	for _, lane := range lanesOfNodes {
		if err := host.Receive(lane, func(_ rdmanet.Peer, frames [][]byte) {
			l.hear(lane, frames)
		}); err != nil {
			s.t.Fatal(err)
		}
	}
	members := map[rdmanet.PeerID]string{}
	for k, peer := range s.peers {
		if k != i {
			members[peer] = ""
		}
	}
	if err := host.SetMembers(members); err != nil {
		s.t.Fatal(err)
	}
}

// choose returns a number below n, or 0 once the choices are used up.
func (l *liar) choose(n int) int {
	if len(l.choices) < 2 {
		l.choices = nil
		return 0
	}
	choice := int(binary.LittleEndian.Uint16(l.choices)) % n
	l.choices = l.choices[2:]
	return choice
}

// truth returns a frame that a node sent, of any lane.
func (l *liar) truth() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	frames := l.heard[lanesOfNodes[l.choose(len(lanesOfNodes))]]
	if len(frames) == 0 {
		return []byte{byte(l.choose(16))}
	}
	return slices.Clone(frames[l.choose(len(frames))])
}

// frame makes the next frame: true, changed, cut, extended, of two halves, or noise.
func (l *liar) frame() []byte {
	frame := l.truth()
	switch l.choose(8) {
	case 0:
	case 1: // a few bits
		for range 1 + l.choose(3) {
			if len(frame) > 0 {
				frame[l.choose(len(frame))] ^= 1 << l.choose(8)
			}
		}
	case 2: // the largest numbers
		for at := l.choose(len(frame) + 1); at < len(frame) && l.choose(6) != 0; at++ {
			frame[at] = 0xff
		}
	case 3:
		frame = frame[:l.choose(len(frame)+1)]
	case 4:
		frame = append(frame, make([]byte, l.choose(1<<12))...)
	case 5:
		other := l.truth()
		frame = append(frame[:l.choose(len(frame)+1)], other[l.choose(len(other)+1):]...)
	case 6:
		if len(frame) > 0 {
			frame[0] = byte(l.choose(256))
		}
	case 7:
		noise := rand.New(rand.NewPCG(uint64(l.choose(1<<16)), 1))
		frame = make([]byte, l.choose(1<<16))
		for i := range frame {
			frame[i] = byte(noise.Uint32())
		}
	}
	return frame
}

// talk says everything that the choices say, to all nodes. A node may break its lane.
func (l *liar) talk(ctx context.Context, to []rdmanet.PeerID, choices []byte) {
	l.choices = choices
	for len(l.choices) > 0 {
		frame, name := l.frame(), lanesOfNodes[l.choose(len(lanesOfNodes))]
		lane, err := l.host.Lane(to[l.choose(len(to))], name)
		if err != nil {
			continue
		}
		for range 1 + l.choose(4) {
			if sent, err := lane.TrySend(frame); err != nil || !sent {
				break
			}
		}
		if l.choose(32) == 1 {
			bounded, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			_ = lane.Flushed(bounded) // the node may take no more of this member
			cancel()
		}
	}
}

// hostileShard is three nodes that order, and a liar with the identity of the fourth member. Before
// that, the fourth ordered with them.
func hostileShard(t testing.TB) (*shard, *liar, []rdmanet.PeerID) {
	s, l := newShard(t, 4, nil), &liar{heard: map[string][][]byte{}}
	s.hosts = func(i int, host rdmanet.Host) rdmanet.Host {
		if i == 3 {
			return recorder{host.(*memory.Host), l}
		}
		return host
	}
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.kill(3)
	s.gone[3] = true
	s.submit(0, report.LevelDurable, s.transfer())
	l.begin(s, 3)
	return s, l, s.peers[:3]
}

// try submits a transaction and does not insist: a liar may stop rounds.
func (s *shard) try(i int) (took bool) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
	defer cancel()
	bundle := s.client.Bundle(s.transfer())
	if s.nodes[i].Admit(ctx, []*ledger.Bundle{bundle}, false)[0] != nil {
		return false
	}
	statuses, err := s.nodes[i].Wait(ctx, bundle.IDs(), report.LevelDurable)
	return err == nil && statuses[0].Outcome == report.OutcomeExecuted
}

// A member that says anything at any time can stop the others: that is the fault model. It cannot
// end a node, change what is durable, or take memory that stays taken.
func TestMemberThatSaysAnything(t *testing.T) {
	s, liar, nodes := hostileShard(t)
	live := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	conversations := 40
	if testing.Short() {
		conversations = 8
	}
	before, most, took := live(), int64(0), 0
	for seed := range conversations {
		random := rand.New(rand.NewPCG(uint64(seed), 5))
		choices := make([]byte, 8<<10)
		for i := range choices {
			choices[i] = byte(random.Uint32())
		}
		liar.talk(t.Context(), nodes, choices)
		if s.try(seed % 3) {
			took++
		}
		most = max(most, live())
	}
	durable := s.nodes[0].State().Heights.Durable
	for i := range 3 {
		state := s.nodes[i].State() // a node that ended would not answer
		durable = min(durable, state.Heights.Durable)
		t.Logf("node %d: mode %v, %s", i, state.Mode, state.Reason)
	}
	_, want, err := s.nodes[0].Store().Header(durable)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, got, err := s.nodes[i].Store().Header(durable); err != nil || got != want {
			t.Errorf("node %d has block %d as %s, node 0 as %s: %v", i, durable, got, want, err)
		}
	}
	s.ordersWithout(liar, s.seatsUnknownDisk)
	t.Logf("%d conversations, %d transactions meanwhile, durable block %d, live heap %d MiB "+
		"before and at most %d MiB during", conversations, took, durable, before>>20, most>>20)
	if most > before+96<<20 {
		t.Errorf("the heap grew from %d to %d MiB", before>>20, most>>20)
	}
}

// seatsUnknownDisk reports whether a majority of the members believes a decision that seats a node
// with a disk that it does not have. The nodes had one disk each all the time, so the liar made the
// decision up. It can: where no true decision contradicts its word, nodes take it, and wait for the
// disk that it named. That stops them until an operator recovers the shard, as the fault model
// says.
func (s *shard) seatsUnknownDisk() bool {
	var states []generation.State
	for i := range 3 {
		text, err := os.ReadFile(s.homes[i].Generation())
		if err != nil {
			s.t.Fatal(err)
		}
		state, err := generation.DecodeState(text)
		if err != nil {
			s.t.Fatal(err)
		}
		states = append(states, state)
	}
	believe := 0
	for i, state := range states {
		s.t.Logf("node %d has disk %v and believes %+v", i, state.Disk, state.Decided)
		for k, other := range states {
			if d := state.Decided; d != nil && d.Includes(order.ServerID(k)) &&
				!d.Seats(order.ServerID(k), other.Disk) {
				believe++
				break
			}
		}
	}
	return believe >= 2
}

// ordersWithout ends a liar, and fails the test if the nodes do not order soon after that, unless
// one of the excuses holds.
func (s *shard) ordersWithout(l *liar, excuses ...func() bool) {
	if err := l.host.Close(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !s.try(0); {
		if time.Now().After(deadline) {
			for i := range 3 {
				state := s.nodes[i].State()
				s.t.Logf("node %d: mode %v, %s", i, state.Mode, state.Reason)
			}
			if slices.ContainsFunc(excuses, func(holds func() bool) bool { return holds() }) {
				return
			}
			s.t.Fatal("the nodes do not order although the liar is gone")
		}
	}
}

// repeat says frames again that nodes said, unchanged and on their own lanes, to any node.
func (l *liar) repeat(to []rdmanet.PeerID, choices []byte) {
	l.choices = choices
	for len(l.choices) > 0 {
		name := lanesOfNodes[l.choose(len(lanesOfNodes))]
		l.mu.Lock()
		heard := l.heard[name]
		var frame []byte
		if len(heard) > 0 {
			frame = slices.Clone(heard[l.choose(len(heard))])
		}
		l.mu.Unlock()
		if lane, err := l.host.Lane(to[l.choose(len(to))], name); err == nil && frame != nil {
			_, _ = lane.TrySend(frame)
		}
	}
}

// A member that repeats what others said, later, in its next life and to other members, may stop
// the others, but only for as long as it does so.
func TestMemberThatRepeats(t *testing.T) {
	s, liar, nodes := hostileShard(t)
	conversations := 20
	if testing.Short() {
		conversations = 4
	}
	took := 0
	for seed := range conversations {
		random := rand.New(rand.NewPCG(uint64(seed), 6))
		choices := make([]byte, 8<<10)
		for i := range choices {
			choices[i] = byte(random.Uint32())
		}
		liar.repeat(nodes, choices)
		if s.try(seed % 3) {
			took++
		}
	}
	s.ordersWithout(liar)
	liar.mu.Lock()
	defer liar.mu.Unlock()
	t.Logf("%d of %d transactions meanwhile; repeated frames of order %d, control %d, blocks %d",
		took, conversations, len(liar.heard["order"]), len(liar.heard["control"]),
		len(liar.heard["blocks"]))
}
