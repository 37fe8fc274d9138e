package book

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/tram/stream"
)

// Changes of the tree. Each shard executes them at its own time, so at any moment there are several
// trees: each member talks to those that are its neighbours as it knows them.

// handed is an entry of a stream to a child that is in a block.
type handed struct {
	number uint64
	height int
}

// source is where an entry of a stream comes from.
type source struct {
	shard  ledger.ShardID
	number uint64
}

// handed returns the number of the last entry of the stream to a child.
func (g *group) handed(child ledger.ShardID) uint64 {
	all := g.forwarded[child]
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].number
}

// treeOfBeginning returns the tree with which the chain begins.
func (g *group) treeOfBeginning(s *state.State) *ledger.ShardTree {
	tree := g.genesis.ShardTree()
	for _, each := range s.Rehangs() {
		if each.Height == 0 {
			tree = tree.Rehang(each.Number, &ledger.ShardRehang{Shard: each.Shard,
				Parent: each.To})
		}
	}
	return tree
}

// tree returns the tree as the durable blocks of a member's chain have it.
func (m *member) tree() *ledger.ShardTree {
	if m.durable > 0 {
		return m.records[m.durable-1].tree
	}
	return m.group.firstTree()
}

// firstTree is treeOfBeginning without a state of the chain.
func (g *group) firstTree() *ledger.ShardTree {
	if g.begins == nil {
		begun, err := state.Begin(g.genesis, g.seed)
		if err != nil {
			g.world.fail(SameChain, fmt.Sprintf("shard %d does not begin: %v", g.shard, err))
		}
		g.begins = g.treeOfBeginning(begun)
	}
	return g.begins
}

// fed returns the shards to which a member offers entries: its children, and those that were and
// may still need some.
func (m *member) fed(tree *ledger.ShardTree) []ledger.ShardID {
	fed := slices.Clone(tree.Children(m.group.shard))
	if m.group.world.options.Plant != plantLetGo {
		fed = append(fed, tree.FormerChildren(m.group.shard)...)
	}
	return slices.DeleteFunc(fed, func(child ledger.ShardID) bool {
		return int(child) >= len(m.group.world.groups) // it has not begun
	})
}

// tellAbove tells a parent, present or former, how far the chain has the streams from above.
func (m *member) tellAbove(tree *ledger.ShardTree) {
	w := m.group.world
	parent, below := tree.Parent(m.group.shard)
	if !below || w.random.IntN(4) > 0 || m.durable == 0 {
		return
	}
	if former := tree.FormerParents(m.group.shard); len(former) > 0 && w.random.IntN(2) == 0 {
		parent = former[w.random.IntN(len(former))]
	}
	if at := m.taken.Position(); at.Known {
		m.send(m.someone(parent), letter{position: &at.Durable})
	}
}

// beginTaking begins with what the chain has of the streams from above, unless that is known.
func (m *member) beginTaking() {
	if m.group.world.options.Plant == plantHeightsKept {
		m.taken.Plant(stream.FaultHeightsKept)
	}
	height, position := len(m.records), m.state.Carried()
	life, _ := m.taken.Begun()
	m.taken.Base(life, uint64(height), position)
}

// judgeTaken judges that a shard never loses what a member would tell that it has.
func (m *member) judgeTaken() {
	g, at, has := m.group, m.taken.Position(), uint64(0)
	if g.durable > 0 {
		has = g.records[g.durable-1].position
	}
	if at.Known && at.Durable > has {
		g.world.fail(Durability, fmt.Sprintf("%v believes that its chain has the stream from "+
			"above durably up to %d, and that has it up to %d", m, at.Durable, has))
	}
}

// hang draws changes of the tree. Some are refused: a shard hangs there already, or the place is
// below itself.
func (p *plan) hang() {
	if p.hangers == nil {
		return
	}
	at := max(Turn(40), p.workload.upgradedAt)
	if added := len(p.addedAt); added > 0 {
		at = max(at, p.addedAt[added-1])
	}
	tree, number := p.tree, uint64(len(p.additions))
	for i := range p.additions {
		tree = tree.Grow(p.additions[i].Parent)
	}
	for range 1 + p.hangers.IntN(5) {
		at += Turn(p.hangers.IntN(1 + p.hangers.IntN(40))) // often before the first is executed
		change := &ledger.ShardRehang{}
		for try := 0; try == 0 || try < 10 && tree.MayRehang(change) != ledger.Applied; try++ {
			change.Shard = ledger.ShardID(p.hangers.IntN(p.shards()))
			change.Parent = ledger.ShardID(p.hangers.IntN(p.shards()))
		}
		number++
		if tree.MayRehang(change) == ledger.Applied {
			tree = tree.Rehang(number, change)
		}
		p.submissions = append(p.submissions, submission{number: len(p.submissions) + 1, at: at,
			what: fmt.Sprintf("change %d hangs shard %d below shard %d", number, change.Shard,
				change.Parent),
			bundle: p.workload.change(&ledger.BookChange{Number: number, Rehang: change}),
			member: p.hangers.IntN(MembersMax)})
		p.calm = max(p.calm, at+20)
	}
}

// hangs returns the chance of a book's changes of the tree, or nil if it has none. It is apart from
// others, so that other books stay as they were without them.
func hangs(seed uint64) *rand.Rand {
	random := rand.New(rand.NewPCG(seed, 1<<42))
	if random.IntN(3) > 0 {
		return nil
	}
	return random
}
