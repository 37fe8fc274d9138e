package book

import (
	"fmt"
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// In some books a member that begins with a snapshot has no earlier blocks, but their outlines: the
// ids and results of their transactions. In some of them it gets the blocks from fellows, one after
// the other. Operators never take the last disk with all blocks from a shard.

// outline draws whether new disks begin with outlines, and whether members fill them in. Where
// organisations move they do: what leaves with one may be in earlier blocks. So they do where
// members are replaced: the last one with all blocks does not leave. The chance is apart from
// others, so that other books stay as they were.
func (p *plan) outline(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1<<47))
	p.outlines = random.IntN(2) == 0
	p.fills = random.IntN(2) == 0 || p.movers != nil || p.replacers != nil
}

// isAbsent reports whether a member has only the outline of a block.
func (m *member) isAbsent(height int) bool { return height <= m.absent }

// fill fills in some of the blocks that a member lacks, if a fellow has them.
func (m *member) fill() {
	w := m.group.world
	if m.absent > 0 && w.plan.fills && w.random.IntN(6) == 0 && m.group.someoneHasAll(m) {
		m.absent -= 1 + w.random.IntN(m.absent)
	}
}

// someoneHasAll reports whether a member that takes part, other than one, has all blocks.
func (g *group) someoneHasAll(but *member) bool {
	for _, m := range g.members {
		if m != but && m.takesPart() && m.absent == 0 {
			return true
		}
	}
	return false
}

// isLastHolder reports whether a shard lacks blocks without a member.
func (m *member) isLastHolder() bool {
	return m.group.world.plan.outlines && m.absent == 0 && !m.group.someoneHasAll(m)
}

// answerAbsent answers for an entry of a block of which the member has the outline, as a store
// does.
func (m *member) answerAbsent(at place, asks ledger.ShardID) (said ledger.Verdict, known bool) {
	g := m.group
	if g.world.options.Plant == plantOutlineUnread {
		return ledger.Verdict{}, false
	}
	entry := m.outlined(at)
	said, known, open := m.state.AnswersAbsent(&entry, asks)
	if !open {
		return said, known
	}
	said, known, _ = state.AnswerOfChain(said, g.genesis.Book(), asks, g.shards(),
		func(id ledger.Hash) (bool, error) { return m.ids[id], nil },
		func(id ledger.Hash) (bool, error) { return m.hasSettled(id), nil }) // no disk fails
	return said, known
}

// outlined returns an entry as the outline of its block has it: without the transaction.
func (m *member) outlined(at place) ledger.Entry {
	block := m.records[at.height-1].block
	entries, err := ledger.DecodeOutline(&block.Header, block.Outline())
	if err != nil {
		m.group.world.fail(Contract, fmt.Sprintf("%v: the outline of block %d: %v", m, at.height,
			err))
	}
	return ledger.Entry{ID: entries[at.index].ID, Result: entries[at.index].Result,
		Decoded: new(ledger.Transaction)}
}

// hasSettled reports whether the chain has a verdict of another shard with which its transaction
// took effect.
func (m *member) hasSettled(id ledger.Hash) bool {
	if !m.ids[id] {
		return false
	}
	for _, r := range m.records {
		for i := range r.block.Unpacked {
			if entry := &r.block.Unpacked[i]; entry.ID == id {
				return entry.Result.Code == ledger.Settled
			}
		}
	}
	return false
}
