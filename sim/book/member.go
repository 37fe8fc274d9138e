package book

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/tram/stream"
)

// member is a member of a shard. What is above the line of memory survives a loss of power.
type member struct {
	group *group
	// number is the member's index, and slot the place that it took, which is its number for one of
	// the genesis. heir is set while the one whose place it takes has not left. key signs for it.
	number, slot int
	heir         bool
	key          ed25519.PrivateKey
	// known are the members of other shards, if they are not those of the genesis.
	known map[ledger.ShardID][]ledger.MemberIndex

	// joined is the generation to which the disk belongs, and disk the blocks on it. diskless is
	// set after the disk was lost, until the member has a new one.
	joined   ledger.Epoch
	disk     []*record
	diskless bool
	// origin is the snapshot with which the disk began, nil for none: it has no blocks up to there.
	// latest is the state as it was flushed last.
	origin, latest *snapshot

	// absent is the last block of which the disk has only the outline, and not the block.
	absent int

	// up is set while the member has power. returns is the turn at which it has power again,
	// slowUntil the turn until which its disk flushes nothing, and liesUntil that until which it
	// lies.
	up                            bool
	returns, slowUntil, liesUntil Turn

	// The rest is memory. records are the executed blocks, and next is the place of the next round
	// in the log. durable is how many blocks the member knows to be durable.
	state   *state.State
	records []*record
	next    int
	durable int
	// ids are the transactions of the chain, and looked those of them that are not known by their
	// nonces.
	ids, looked map[ledger.Hash]bool
	pool        []pooled
	// accounts are the entries of all accounts, as a store keeps them: state may have only some.
	accounts map[ledger.AccountPath][]byte
	// taken is how far the chain has the parent's stream. A new generation does not change it, but
	// the blocks that replace others do.
	taken stream.Positions
	// asked is the block after which the member was asked last what it foresees.
	asked *record
	exchange
}

// pooled is a bundle that waits for a block.
type pooled struct {
	bundle  *ledger.Bundle
	encoded []byte
	since   Turn
}

// snapshot is a state at a block, as entries.
type snapshot struct {
	height int
	at     *record
	// passed is up to where each child had its stream, in the snapshot of a new member.
	passed map[ledger.ShardID]uint64
	keys   [][]byte
	values [][]byte
}

// patience is for how many turns a bundle waits in the memory of a member.
const patience = 30

// crash takes a member's power away.
func (m *member) crash() {
	m.up, m.state, m.records, m.pool = false, nil, nil, nil
	m.next, m.durable, m.ids, m.looked = 0, 0, nil, nil
	m.taken, m.exchange = stream.Positions{}, exchange{}
}

// loseDisk loses a member's disk. If the shard might lose a durable block with it, it does not
// happen: operators replace a disk only while enough others work.
func (m *member) loseDisk() {
	others := 0
	for _, other := range m.group.members {
		if other != m && other.takesPart() {
			others++
		}
	}
	if !m.group.running || others < m.group.majority() || m.isLastHolder() {
		return
	}
	m.disk, m.origin, m.latest, m.joined, m.diskless, m.absent = nil, nil, nil, 0, true, 0
	m.group.world.say("%v loses its disk", m)
}

func (m *member) String() string { return fmt.Sprintf("member %d/%d", m.group.shard, m.number) }

// start gives a member power. One without a disk needs a snapshot first.
func (m *member) start() {
	if m.diskless && !m.renew() {
		return // again in the next turn
	}
	m.up = true
	m.open(m.group.world.random.IntN(3) > 0)
}

// renew begins a new disk with a fellow's snapshot, and the blocks from there on that are durable,
// or with which the generation began. If there are none, it begins as in the beginning.
func (m *member) renew() bool {
	g := m.group
	if max(g.durable, g.base) == 0 {
		m.disk, m.origin, m.latest, m.joined, m.diskless = nil, nil, nil, g.generation, false
		return true
	}
	for _, other := range g.members {
		if other == m || !other.takesPart() || other.latest == nil ||
			other.latest.height > g.durable ||
			g.records[other.latest.height-1] != other.latest.at { // of a block that was lost
			continue
		}
		m.disk, m.origin, m.latest = slices.Clone(g.chain.records[:max(g.durable, g.base)]),
			other.latest, nil
		if g.world.plan.outlines {
			m.absent = other.latest.height
		}
		if m.slot != m.number || g.world.plan.outlines {
			began := *other.latest
			began.passed = other.passed()
			m.origin = &began
		}
		m.joined, m.diskless = g.generation, false
		g.world.say("%v begins with the snapshot of %v at block %d", m, other, other.latest.height)
		return true
	}
	return false
}

// open builds the memory from the disk.
func (m *member) open(fromLatest bool) {
	g := m.group
	from := m.origin
	if fromLatest && m.latest != nil && m.latest.height <= len(m.disk) &&
		m.disk[m.latest.height-1] == m.latest.at {
		from = m.latest
	}
	m.state = m.newState(from != nil)
	m.records, m.durable, m.exchange = nil, 0, m.newExchange()
	m.ids, m.looked = make(map[ledger.Hash]bool), make(map[ledger.Hash]bool)
	m.accounts = make(map[ledger.AccountPath][]byte)
	start := 0
	if from != nil {
		start = from.height
		for i := range from.keys {
			if err := m.state.Restore(from.keys[i], from.values[i]); err != nil {
				g.world.fail(SameChain, fmt.Sprintf("%v: restore: %v", m, err))
			}
			m.keep(from.keys[i], from.values[i])
		}
		if err := m.state.Complete(nil); err != nil ||
			m.state.Digest() != m.disk[start-1].block.Header.StateDigest {
			g.world.fail(SameChain, fmt.Sprintf("%v: the entries of the state after block %d give "+
				"another digest than the block has (%v)", m, start, err))
		}
		for _, each := range m.disk[:start] {
			m.note(each)
		}
	}
	for _, each := range m.disk[start:] {
		decoded, err := ledger.DecodeBlock(each.block.Encode())
		if err != nil {
			g.world.fail(SameChain, fmt.Sprintf("%v: block %d: %v", m, each.block.Header.Height,
				err))
		}
		again, _ := m.run(state.Redraft(decoded))
		if again.Hash != each.block.Hash {
			g.world.fail(SameChain, append([]string{fmt.Sprintf("%v executes block %d again, from "+
				"the state after block %d, and it is another one", m, each.block.Header.Height,
				start)}, differences(again, each.block)...)...)
		}
		m.note(each)
	}
	m.told = len(m.records) // others ask for what is missing
	m.beginTaking()
	m.findRound()
}

// newState returns the state after block 0, or one to restore the entries of a state into.
func (m *member) newState(restore bool) *state.State {
	s := state.New(m.group.genesis)
	if !restore {
		var err error
		if s, err = state.Begin(m.group.genesis, m.group.seed); err != nil {
			m.group.world.fail(SameChain, fmt.Sprintf("%v does not begin: %v", m, err))
		}
	}
	s.Plant(m.group.world.options.fault())
	if limit := m.group.world.plan.limit; limit > 0 {
		s.LimitWaiting(limit)
	}
	if limit := m.group.world.plan.assetsMax; limit > 0 {
		s.LimitAssets(limit)
	}
	s.LimitLate(m.group.world.plan.lateMax)
	return s
}

// findRound finds the next round to execute.
func (m *member) findRound() {
	m.next = 0
	if m.joined != m.group.generation || len(m.records) == 0 {
		return
	}
	last := m.records[len(m.records)-1].block.Header.Round
	for m.next < len(m.group.log) && m.group.log[m.next].number <= last {
		m.next++
	}
}

// note adds an executed block to what the member knows of its chain.
func (m *member) note(r *record) {
	m.records = append(m.records, r)
	for i := range r.block.Len() {
		entry := r.block.Entry(i)
		m.ids[entry.ID] = true
		if !state.KnownByNonce(entry.Result) && (entry.Result.Code != ledger.Relayed ||
			m.group.world.options.Plant != plantRelayedForgotten) {
			m.looked[entry.ID] = true
		}
	}
	m.exchange.note(m, r)
}

// seen reports whether a transaction is in the chain. As a store, it looks up only some ids.
func (m *member) seen(id ledger.Hash, t *ledger.Transaction) bool {
	if m.state.Unseen(t) && !m.looked[id] {
		return false
	}
	return m.ids[id]
}

// takesPart reports whether a member takes part in its shard's rounds.
func (m *member) takesPart() bool {
	return m.up && !m.diskless && m.joined == m.group.generation && m.group.running
}

// join makes a member part of the present generation: its disk gets the blocks with which the
// generation began, and loses those that did not last.
func (m *member) join() {
	g := m.group
	base := g.chain.records[:g.base]
	if m.origin != nil && common(m.disk, base) < m.origin.height {
		panic(fmt.Sprintf("sim/book: %v began with block %d, which is not in its chain", m,
			m.origin.height))
	}
	if len(m.disk) > common(m.disk, base) {
		g.world.say("%v takes back %d blocks", m, len(m.disk)-common(m.disk, base))
	}
	m.disk, m.joined = slices.Clone(base), g.generation
	pool, heard, before := m.pool, m.verdicts, m.records
	m.open(g.world.random.IntN(3) > 0)
	m.pool, m.verdicts = pool, heard
	m.verdicts.Reset()
	for i := common(before, m.records); i < len(m.records); i++ {
		m.taken.Applied(uint64(i+1), m.positionAt[i])
	}
}

// step does what a member does in a turn by itself.
func (m *member) step() {
	w := m.group.world
	if m.joined != m.group.generation {
		if m.group.running && w.random.IntN(2) == 0 {
			m.join()
		}
		return
	}
	for range w.random.IntN(4) {
		if m.next < len(m.group.log) {
			m.execute(m.group.log[m.next])
			m.next++
		}
	}
	if len(m.records) > len(m.disk) && w.turn >= m.slowUntil &&
		w.random.IntN(100) < w.plan.flush {
		m.disk = slices.Clone(m.records[:len(m.disk)+1+w.random.IntN(len(m.records)-len(m.disk))])
	}
	if count := len(m.disk); count > 0 && count == len(m.records) &&
		(m.latest == nil || m.latest.at != m.disk[count-1]) && w.random.IntN(4) == 0 {
		m.photograph()
	}
	if w.random.IntN(2) == 0 {
		m.durable = max(m.durable, min(len(m.records), m.group.durable))
		m.taken.DurableTo(uint64(m.durable))
		m.judgeTaken()
	}
	m.fill()
	m.pool = slices.DeleteFunc(m.pool, func(p pooled) bool {
		return w.turn > p.since+patience || m.hasAll(p.bundle)
	})
}

func (m *member) hasAll(bundle *ledger.Bundle) bool {
	for _, id := range bundle.IDs() {
		if !m.ids[id] {
			return false
		}
	}
	return true
}

// photograph takes a snapshot of the flushed state.
func (m *member) photograph() {
	taken := &snapshot{height: len(m.disk), at: m.disk[len(m.disk)-1]}
	add := func(key, value []byte) error {
		taken.keys = append(taken.keys, bytes.Clone(key))
		taken.values = append(taken.values, bytes.Clone(value))
		return nil
	}
	if err := m.state.Entries(add); err != nil {
		m.group.world.fail(SameChain, fmt.Sprintf("%v: the entries of its state: %v", m, err))
	}
	for _, path := range m.group.world.paths {
		if _, resident := m.state.Account(path); !resident && m.accounts[path] != nil {
			_ = add(state.AppendAccountKey(nil, path), m.accounts[path]) // only ever nil
		}
	}
	m.latest = taken
}

// execute seals a round and executes its block.
func (m *member) execute(r *round) {
	parent := state.Parent{Header: m.group.origin.Header, Hash: m.group.origin.Hash,
		Members: m.state.Membership}
	if count := len(m.records); count > 0 {
		parent.Header, parent.Hash = m.records[count-1].block.Header, m.records[count-1].block.Hash
	}
	m.try(r, &parent.Header)
	draft := m.state.Seal(parent, r.epoch, r.number, r.batches, m.seen)
	if draft == nil {
		m.group.take(m, r, ledger.Hash{}, nil)
		return
	}
	// A chain of an older version leaves out bundles that need a later one, as if they were
	// malformed.
	last := max(ledger.CancelVersion, m.group.genesis.Version, m.group.world.plan.upgrade)
	if !r.lied && (draft.Forged > 0 || draft.Malformed > 0 && m.state.Version() >= last) {
		m.group.world.fail(SameChain, fmt.Sprintf("%v: round %d: %d malformed, %d forged", m,
			r.number, draft.Malformed, draft.Forged))
	}
	block, changes := m.run(draft)
	m.note(m.group.take(m, r, block.Hash, func() *record {
		return m.group.newRecord(m, block, changes)
	}))
	m.taken.Applied(uint64(block.Header.Height), m.positionAt[len(m.records)-1])
	m.verdicts.Applied(block)
	m.late.Forget(block)
}

// propose returns the member's batch for the next round, and whether it has any news.
func (m *member) propose() (payload []byte, news bool) {
	w := m.group.world
	batch := &ledger.Batch{Header: ledger.BatchHeader{Time: m.now()}, Clocks: m.clocks()}
	for i := range m.pool {
		if !m.hasAll(m.pool[i].bundle) && w.random.IntN(4) > 0 {
			batch.Bundles = append(batch.Bundles, m.pool[i].encoded)
		}
	}
	m.carry(batch)
	// A schedule that is due by the member's clock is a reason for a block.
	if len(batch.Bundles)+len(batch.Carried)+len(batch.Verdicts)+len(batch.Groups) == 0 &&
		!m.state.IsDue(m.now()) {
		return nil, false
	}
	return batch.Encode(), true
}

// now is what the member's clock shows.
func (m *member) now() ledger.Milliseconds {
	return m.group.genesis.Time + turnLength*ledger.Milliseconds(m.group.world.turn) +
		ledger.Milliseconds(m.number)
}

// clocks are those that a batch shows after the chain has been idle for long.
func (m *member) clocks() (all []ledger.MemberClock) {
	last := m.group.origin.Header.Time
	if count := len(m.records); count > 0 {
		last = m.records[count-1].block.Header.Time
	}
	if m.now()-last <= ledger.MaxStep {
		return nil
	}
	for i, index := range m.group.world.plan.indexes {
		all = append(all, ledger.MemberClock{Member: index,
			Offset: ledger.Milliseconds(i - m.number)})
	}
	return all
}

// admit puts a client's bundle into the memory of a member.
func (m *member) admit(bundle *ledger.Bundle) {
	if !m.hasAll(bundle) {
		m.pool = append(m.pool, pooled{bundle: bundle, encoded: bundle.Encode(),
			since: m.group.world.turn})
	}
}
