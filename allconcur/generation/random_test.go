package generation

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

func (w *world) step() {
	i := w.random.IntN(len(w.nodes))
	n := w.nodes[i]
	rough := w.seed%3 == 2
	switch choice := w.random.IntN(1000); {
	case choice < 330:
		w.flightOne(rough)
	case choice < 600:
		if !n.up {
			if w.random.IntN(4) == 0 {
				w.start(i)
			} else {
				return
			}
		}
		w.tick(n)
		w.drain(i)
	case choice < 940:
		if n.up && n.working != 0 {
			w.engine(n)
			w.drain(i)
		}
	case choice < 965:
		if n.up {
			w.follow(n)
			w.join(n)
			w.drain(i)
		}
	case choice < 972:
		w.endInOrder(n)
	case choice < 980:
		for k := range w.side {
			w.side[k] = w.random.IntN(2)
		}
	case choice < 990:
		clear(w.side)
	case rough || choice < 993 && w.seed%3 == 1 || choice < 991 && w.random.IntN(3) == 0:
		switch kind := w.random.IntN(12); {
		case kind < 2:
			w.loses(n)
		case kind < 4:
			w.returns(n)
		case kind < 5:
			for _, other := range w.nodes {
				w.crashes(other)
			}
		default:
			w.crashes(n)
		}
	}
}

func (w *world) tick(n *simulated) {
	n.idle++
	for _, peer := range w.nodes {
		n.synod.Linked(peer.id, peer.up && w.side[peer.id] == w.side[n.id])
	}
	if n.working != 0 {
		n.synod.Stalled(n.idle > 15)
		n.synod.Tick()
	} else if n.pending == nil || n.idle > 10 || !n.pending.Seats(n.id, n.disk.Disk) {
		n.synod.Tick()
	}
}

func (w *world) flightOne(rough bool) {
	if len(w.flight) == 0 {
		return
	}
	k := w.random.IntN(len(w.flight))
	f := w.flight[k]
	if w.random.IntN(20) > 0 {
		w.flight = slices.Delete(w.flight, k, k+1) // otherwise it comes twice
	}
	lost := w.random.IntN(20) == 0 || rough && f.message.Kind == KindDecided && w.random.IntN(4) > 0
	if n := w.nodes[f.to]; n.up && w.side[f.from] == w.side[f.to] && !lost {
		n.synod.Receive(f.from, f.message)
		w.drain(int(f.to))
	}
}

// endInOrder makes a run's last round the furthest one with a vote: the round that holds the mark.
func (w *world) endInOrder(n *simulated) {
	g := w.runs[n.working]
	if g == nil || g.last != 0 {
		return
	}
	last := order.Round(n.head.height)
	for _, p := range w.nodes {
		if p.disk.Activated == n.working {
			last = max(last, order.Round(p.head.height)+2)
		}
	}
	g.last, g.inOrder = last, true
}

// settle lets all members run, or just a majority, without losses, until the shard orders again.
func (w *world) settle() {
	w.settling = true
	clear(w.side)
	w.repair()
	hurt := slices.ContainsFunc(w.nodes, func(n *simulated) bool { return n.perhaps })
	if w.seed%2 == 0 || hurt {
		for i, n := range w.nodes {
			if !n.up {
				w.start(i)
				w.drain(i)
			}
		}
	}
	for range 3000 {
		if w.rounds > 3 {
			return
		}
		w.enoughUp()
		for i, n := range w.nodes {
			if n.up {
				w.tick(n)
				w.drain(i)
				w.follow(n)
				w.join(n)
				for range 4 {
					if n.working != 0 {
						w.engine(n)
						w.drain(i)
					}
				}
			}
		}
		for deliveries := 0; len(w.flight) > 0 && deliveries < 2000; deliveries++ {
			f := w.flight[0]
			w.flight = w.flight[1:]
			if w.nodes[f.to].up {
				w.nodes[f.to].synod.Receive(f.from, f.message)
				w.drain(int(f.to))
			}
		}
	}
	if w.mayWait() {
		w.waits = true
		return
	}
	w.fail("the shard does not order again: %s", w)
}

// views lists all memberships that may need a majority: those on any disk, those before changes
// that are not known to be durable, and those that count in any node's last run.
func (w *world) views() (list []Membership) {
	for _, n := range w.nodes {
		list = append(list, n.head.membership, n.stored.membership, n.disk.Shard)
		for _, former := range n.stored.former(n.durable) {
			list = append(list, former.Membership)
		}
	}
	return list
}

// counting returns how many members of a membership have a disk that counts.
func (w *world) counting(m Membership) (count int) {
	for _, s := range m.Members {
		count += truth(w.nodes[s].counts(m))
	}
	return count
}

// repair brings back old homes if too few disks count.
func (w *world) repair() {
	for _, m := range w.views() {
		for _, s := range m.Members {
			n := w.nodes[s]
			if w.counting(m) < m.Quorum() && n.attic != nil && !n.counts(m) &&
				m.Counts(n.id, n.attic.disk.Disk, n.attic.original) {
				w.returns(n)
			}
		}
	}
}

// enoughUp starts members until a majority of every membership that counts for any node runs, on
// disks that count. While the group changes over, several memberships count.
func (w *world) enoughUp() {
	for _, m := range w.views() {
		up := 0
		for _, s := range m.Members {
			up += truth(w.nodes[s].up && w.nodes[s].counts(m))
		}
		for _, s := range m.Members {
			if up < m.Quorum() && !w.nodes[s].up {
				w.start(int(s))
				w.drain(int(s))
				up += truth(w.nodes[s].counts(m))
			}
		}
	}
}

// mayWait reports whether the shard may stand still: too few disks count in some membership, or
// some node reports that a block may be durable which no disk holds whole.
func (w *world) mayWait() bool {
	for _, m := range w.views() {
		if w.counting(m) < m.Quorum() {
			return true
		}
	}
	return slices.ContainsFunc(w.nodes, func(n *simulated) bool {
		return n.up && len(n.synod.Waiting().Perhaps) > 0
	})
}

func (w *world) String() string {
	text := ""
	for i, n := range w.nodes {
		text += fmt.Sprintf("\n  node %d: disk %.8v, original %v, perhaps %v, durable %d, up "+
			"%v, works in %x, activated %x, head %d/%d of %v, instance %d, votes %v",
			i, n.disk.Disk, n.original, n.perhaps, n.durable, n.up, n.working, n.disk.Activated,
			n.label, n.head.height, n.head.membership, n.disk.Instance, n.votes)
		if d := n.disk.Decided; d != nil {
			text += fmt.Sprintf(", decided %d from %d with %v", d.Generation, d.Base.Height,
				d.Members)
		}
		if n.up {
			text += fmt.Sprintf(", waits for %+v, phase %d, wants %v, left %v", n.synod.Waiting(),
				n.synod.phase, len(n.synod.Wanted()), n.members)
		}
	}
	for _, run := range slices.Sorted(maps.Keys(w.runs)) {
		g := w.runs[run]
		text += fmt.Sprintf("\n  run %x: shard %v, members %v, from %d, last %d", run, g.shard,
			g.members, g.start.height, g.last)
	}
	return text
}

// run plays one seed and returns what broke, "" for nothing.
func run(seed uint64, fault Fault) (broken string, w *world) {
	w = newWorld(seed, 1+int(seed%5), fault)
	defer func() {
		if reason := recover(); reason != nil {
			v, ok := reason.(violation)
			if !ok {
				panic(fmt.Sprintf("seed %d: %v", seed, reason))
			}
			broken = string(v)
			if *replay >= 0 {
				broken += w.String()
			}
		}
	}()
	for range 2500 {
		w.step()
	}
	w.settle()
	return "", w
}

var (
	replay = flag.Int64("seed", -1, "play only this seed")
	sweeps = flag.Uint64("seeds", 2000, "how many seeds to play")
)

func TestGenerationsUnderFaults(t *testing.T) {
	t.Parallel()
	first, seeds := uint64(0), *sweeps
	if testing.Short() {
		seeds = 40
	}
	if *replay >= 0 {
		first, seeds = uint64(*replay), 1
	}
	var decisions, tails, eons, forgave, blocks, admitted, returned, hurt, waits int
	for seed := first; seed < first+seeds; seed++ {
		broken, w := run(seed, FaultNone)
		if broken != "" {
			t.Fatal(broken)
		}
		decisions, tails, eons, forgave, blocks = decisions+w.decisions, tails+w.tails, eons+w.eons,
			forgave+w.forgave, blocks+len(w.delivered)
		admitted, returned, hurt, waits = admitted+w.admitted, returned+w.returned, hurt+w.hurt,
			waits+truth(w.waits)
	}
	t.Logf("%d disks admitted, %d homes that came back, %d hurt, %d shards that wait", admitted,
		returned, hurt, waits)
	t.Logf("%d generations, %d with a tail, %d after too many forgot, %d steps into a further "+
		"eon, %d deliveries", decisions, tails, forgave, eons, blocks)
	if *replay < 0 && waits > int(seeds)/4 {
		t.Error("too many shards wait at the end")
	}
	if *replay < 0 && (tails == 0 || eons == 0 || forgave == 0) {
		t.Error("the schedules do not reach what they are for")
	}
}

// The judges can fail: each planted bug is found.
func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it judges the test, not what is tested")
	}
	for name, fault := range map[string]Fault{
		"a promise does not freeze":          FaultPromiseDoesNotFreeze,
		"the tail is forgotten":              FaultTailForgotten,
		"a quorum is a minority":             FaultMinorityQuorum,
		"a promise is not persisted":         FaultPromiseNotPersisted,
		"a lost disk is ignored":             FaultLostDiskIgnored,
		"what a disk had perhaps is ignored": FaultPerhapsIgnored,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(2000) {
				if broken, _ := run(seed, fault); broken != "" {
					t.Logf("found: %.200s", broken)
					return
				}
			}
			t.Fatal("not found in 2,000 seeds")
		})
	}
}
