package book

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
)

// group is one shard: its members and what they agreed on.
type group struct {
	world   *world
	shard   ledger.ShardID
	genesis *ledger.Genesis
	// origin is block 0, and seed the directory with which the chain of an added shard begins.
	// begins is the tree with which it begins, once it was needed.
	origin  *ledger.Block
	seed    []byte
	begins  *ledger.ShardTree
	members []*member
	// slots are the places of all members by their indexes, former the members that left, and
	// replacing the replacements to make. attempts counts what was submitted for these.
	slots     []int
	former    []*member
	replacing []*replacement
	attempts  uint64
	// running is set while more than half of the members are up. generation counts how often the
	// shard began to run.
	running    bool
	generation ledger.Epoch
	// base is the number of blocks with which the generation began. log are its rounds, and rounds
	// is the number of the last round of any generation.
	base   int
	log    []*round
	rounds ledger.Round
	// durable is how many blocks more than half of the disks have had. grown is how many of them
	// were looked at for shards that they added.
	durable, grown int
	chain
}

// round is what the members agreed on in one round. The first member that executes it sets judged,
// and record if there is a block.
type round struct {
	epoch   ledger.Epoch
	number  ledger.Round
	batches []*ledger.VerifiedBatch
	judged  bool
	record  *record
	// lied says that one of the batches is a liar's: it may be forged.
	lied bool
}

func (g *group) majority() int { return len(g.members)/2 + 1 }

// head returns the number of blocks of the chain.
func (g *group) head() int { return len(g.chain.records) }

// adjust stops the shard or begins a new generation, if too few members are up or enough.
func (g *group) adjust() {
	up := 0
	for _, m := range g.members {
		if m.up && !m.diskless {
			up++
		}
	}
	switch {
	case up < g.majority():
		if g.running {
			g.world.say("shard %d stops", g.shard)
		}
		g.running = false
	case !g.running:
		g.form()
	}
}

// form begins a new generation. It begins with the best blocks of the members that are up: those
// of the latest generation, and of these the most. A member votes with what its disk has, or, if it
// stayed up, sometimes with what it executed.
func (g *group) form() {
	var best []*record
	var bestGeneration ledger.Epoch
	for _, m := range g.members {
		if !m.up || m.diskless {
			continue
		}
		blocks := m.disk
		if m.joined == g.generation && g.world.random.IntN(2) == 0 {
			blocks = m.records
		}
		if m.joined > bestGeneration || m.joined == bestGeneration && len(blocks) >= len(best) {
			best, bestGeneration = blocks, m.joined
		}
	}
	g.running = true
	g.generation++
	if g.generation > 1 {
		g.world.result.Generations++
	}
	if lost := g.head() - common(g.chain.records, best); lost > 0 {
		g.world.result.Lost += lost
	}
	g.world.say("shard %d begins generation %d with %d blocks of %d", g.shard, g.generation,
		len(best), g.head())
	if kept := common(g.chain.records, best); kept < g.durable {
		g.world.fail(Durability, fmt.Sprintf("shard %d: block %d was durable, and generation %d "+
			"began without it", g.shard, kept+1, g.generation))
	}
	g.adopt(slices.Clone(best))
	g.base, g.log = len(best), nil
}

// common returns how many blocks two chains have in common.
func common(a, b []*record) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// order orders a round of what the members propose, if more than half of them take part.
func (g *group) order() {
	if !g.running {
		return
	}
	var payloads [][]byte
	present, news, lied := 0, false, false
	for _, m := range g.members {
		if m.takesPart() {
			present++
		}
	}
	if present < g.majority() {
		return
	}
	for _, m := range g.members {
		if !m.takesPart() {
			continue
		}
		if batch, some := m.propose(); some {
			news = true
			payloads = append(payloads, batch)
			lied = lied || g.world.turn < m.liesUntil
		}
	}
	if !news {
		return
	}
	g.rounds++
	g.log = append(g.log, &round{epoch: g.generation, number: g.rounds,
		batches: ledger.VerifyBatches(payloads), lied: lied})
	g.world.say("shard %d orders round %d of %d batches", g.shard, g.rounds, len(payloads))
}

// take judges what a member made of a round: a block, or nil for none.
func (g *group) take(m *member, r *round, hash ledger.Hash, make func() *record) *record {
	if !r.judged {
		r.judged = true
		if make != nil {
			r.record = make()
			g.append(r.record)
		}
		return r.record
	}
	switch {
	case r.record == nil && make != nil, r.record != nil && make == nil:
		g.world.fail(SameChain, fmt.Sprintf("shard %d, round %d: for some members it has a block "+
			"and for others none; seen at member %d", g.shard, r.number, m.number))
	case r.record != nil && r.record.block.Hash != hash:
		mine := make()
		g.world.fail(SameChain, append([]string{fmt.Sprintf("shard %d: member %d has another "+
			"block %d than the first member that executed it", g.shard, m.number,
			r.record.block.Header.Height)}, differences(mine.block, r.record.block)...)...)
	}
	return r.record
}

// differences lists how two blocks differ.
func differences(a, b *ledger.Block) (lines []string) {
	if a.Len() != b.Len() {
		return []string{fmt.Sprintf("%d transactions and %d", a.Len(), b.Len())}
	}
	for i := range a.Len() {
		if x, y := a.Entry(i), b.Entry(i); x.ID != y.ID || x.Result != y.Result {
			lines = append(lines, fmt.Sprintf("transaction %s: %v, and %s: %v", short(x.ID),
				x.Result.Code, short(y.ID), y.Result.Code))
		}
	}
	if len(lines) == 0 && a.Header.StateDigest != b.Header.StateDigest {
		lines = append(lines, "the state digests differ")
	}
	return lines
}

func short(id ledger.Hash) string { return id.String()[:8] }

// settleDurable computes which blocks are on the disks of more than half of the members.
func (g *group) settleDurable() {
	var heights []int
	for _, m := range g.members {
		if m.joined == g.generation && !m.diskless {
			heights = append(heights, len(m.disk))
		}
	}
	if len(heights) < g.majority() {
		return
	}
	slices.SortFunc(heights, func(a, b int) int { return cmp.Compare(b, a) })
	g.durable = max(g.durable, heights[g.majority()-1])
}

// grow begins the shards that durable blocks of the chain have added. All chains must add a shard
// with the same directory.
func (g *group) grow() {
	w := g.world
	for ; g.grown < g.durable; g.grown++ {
		r := g.records[g.grown]
		for _, seed := range r.seeds {
			genesis, err := g.genesis.GrownTo(r.additions, seed.Shard)
			if err == nil {
				err = genesis.Validate()
			}
			if err != nil {
				w.fail(order.Integrity, fmt.Sprintf("shard %d, block %d adds shard %d: %v", g.shard,
					r.block.Header.Height, seed.Shard, err))
			}
			if int(seed.Shard) < len(w.groups) {
				if other := w.groups[seed.Shard]; other.genesis.Hash() != genesis.Hash() {
					w.fail(SameChain, fmt.Sprintf("shard %d, block %d adds shard %d with another "+
						"directory than the shard that added it first", g.shard,
						r.block.Header.Height, seed.Shard))
				}
				continue
			}
			w.say("shard %d begins below shard %d", seed.Shard,
				r.additions[len(r.additions)-1].Parent)
			w.tree = w.tree.Grow(genesis.Grown[len(genesis.Grown)-1].Parent)
			w.result.Added++
			w.found(genesis, seed.Directory)
		}
	}
}

// id returns the shard as a group of the tree.
func (g *group) id() order.GroupID { return order.GroupID(g.shard) }
