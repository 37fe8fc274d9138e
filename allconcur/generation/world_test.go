package generation

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// world is a small chain with a synod and a model of an engine on every node. The model has no
// messages: servers vote, confirm and A-deliver whatever the voting rules allow, at any time.
// Processes stop and start, and forget. Synod messages are lost, doubled, delayed and reordered.
// The network is cut in two. Members come and go.
type world struct {
	random    *rand.Rand
	seed      uint64
	fault     Fault
	nodes     []*simulated
	flight    []flying
	side      []int // of the cut
	decided   map[Generation]Decision
	forgiven  map[Generation]bool
	blocks    map[[32]byte]*block
	contents  map[[32]byte]content
	runs      map[Run]*groupRun
	delivered []*block // tips that were A-delivered by some node
	settling  bool
	rounds    int // A-delivered since settle began
	decisions int
	tails     int
	eons      int
	forgave   int
	genesis   *block
	disks     int // disks made to replace others
	admitted  int
	returned  int
	hurt      int
	waits     bool // for a tail that some disks perhaps had, or for disks: no member may go on
}

// block is one A-delivered round of the chain.
type block struct {
	parent     *block
	hash       [32]byte
	height     uint64
	membership Membership
	changed    uint64 // the height of the last change
	// storedBy are the disks that had the block while their nodes worked. Other disks do not count:
	// what they promised before may go on from less.
	storedBy []DiskID
}

// storedAt records that a working node has a block, and all before it, on disk.
func (b *block) storedAt(n *simulated) {
	for ; b != nil && !slices.Contains(b.storedBy, n.disk.Disk); b = b.parent {
		b.storedBy = append(b.storedBy, n.disk.Disk)
	}
}

// common returns the last block that two chains share.
func (b *block) common(other *block) *block {
	for !other.has(b) {
		b = b.parent
	}
	return b
}

// former lists the memberships before the changes above a height.
func (b *block) former(durable uint64) (list []Former) {
	for ; b.parent != nil && b.height > durable; b = b.parent {
		if b.membership.Number != b.parent.membership.Number {
			list = append(list, Former{b.parent.membership, b.height})
		}
	}
	slices.Reverse(list)
	return list
}

type content struct {
	run    Run
	round  order.Round
	kind   int // 1 unreliable, 2 and 3 sets; 3 leaves a member out
	change bool
	id     [32]byte
	out    []order.ServerID
	// admit is the member whose disk the change names, if admits.
	admits bool
	admit  order.ServerID
	disk   DiskID
}

// groupRun is what all votes of a run have in common.
type groupRun struct {
	shard    Membership
	members  []order.ServerID
	start    *block
	last     order.Round // the run's last, 0 while unknown
	inOrder  bool        // the last round ends the generation, not just the eon
	votes    map[[32]byte][]order.ServerID
	confirms map[[32]byte][]order.ServerID
}

type simulated struct {
	id    order.ServerID
	synod *Synod
	up    bool
	home
	attic   *home // another home of the member, which may come back
	head    *block
	label   Generation // of the chain that was followed
	working Run
	members []order.ServerID // left in the run
	votes   []Vote
	pending *Decision
	idle    int
}

// home is the content of a node's disk.
type home struct {
	disk     State
	original bool
	stored   *block
	side     map[[32]byte]bool // beside the chain
	durable  uint64            // the height known to be durable
	perhaps  bool              // there was perhaps more than stored
	damaged  bool              // there was in fact
}

type flying struct {
	from, to order.ServerID
	message  Message
}

const worldNodes = 7

func newWorld(seed uint64, servers int, fault Fault) *world {
	w := &world{seed: seed, fault: fault, random: rand.New(rand.NewPCG(seed, 1)),
		decided: map[Generation]Decision{}, forgiven: map[Generation]bool{},
		blocks:   map[[32]byte]*block{},
		contents: map[[32]byte]content{}, runs: map[Run]*groupRun{}, side: make([]int, worldNodes)}
	genesis := &block{hash: sha256.Sum256([]byte("genesis"))}
	for i := range servers {
		genesis.membership.Members = append(genesis.membership.Members, order.ServerID(i))
	}
	w.blocks[genesis.hash], w.genesis = genesis, genesis
	for i := range worldNodes {
		w.nodes = append(w.nodes, &simulated{id: order.ServerID(i), head: genesis,
			home: home{disk: State{Disk: DiskID{byte(i + 1)}}, original: true, stored: genesis,
				side: map[[32]byte]bool{}}})
	}
	return w
}

type violation string

func (w *world) fail(format string, arguments ...any) {
	panic(violation(fmt.Sprintf("seed %d: %s\nreplay: go test ./allconcur/generation -run "+
		"TestGenerationsUnderFaults -args -seed %d", w.seed, fmt.Sprintf(format, arguments...),
		w.seed)))
}

func (b *block) has(ancestor *block) bool {
	for b != nil && b.height > ancestor.height {
		b = b.parent
	}
	return b == ancestor
}

// content returns the value of a round of a kind, in its lineage.
func (w *world) content(run Run, after [32]byte, round order.Round, kind int,
	members []order.ServerID) content {
	b := append(after[:], byte(kind))
	b = binary.LittleEndian.AppendUint64(b, uint64(run))
	b = binary.LittleEndian.AppendUint64(b, uint64(round))
	id := sha256.Sum256(b)
	if known, found := w.contents[id]; found {
		return known
	}
	c := content{run: run, round: round, kind: kind, id: id, change: after[5]%8 == 0}
	if kind == 3 && len(members) > 1 {
		c.out = slices.Clone(members[len(members)-1:])
	}
	if before := w.blocks[after]; before != nil {
		for _, server := range before.membership.Members {
			n := w.nodes[server]
			caught := n.up && before.has(n.stored) && n.stored.height+4 > before.height
			if caught && !n.counts(before.membership) && id[7]%2 == 0 {
				c.change, c.admits, c.admit, c.disk = true, true, server, n.disk.Disk
			}
		}
	}
	w.contents[id] = c
	return c
}

// counts reports whether a node's disk counts under a membership.
func (n *simulated) counts(m Membership) bool {
	return m.Counts(n.id, n.disk.Disk, n.original)
}

// apply executes a round.
func (w *world) apply(b *block, c content) *block {
	hash := sha256.Sum256(append(b.hash[:], c.id[:]...))
	if known := w.blocks[hash]; known != nil {
		return known
	}
	next := &block{parent: b, hash: hash, height: b.height + 1, membership: b.membership,
		changed: b.changed}
	if c.change && (b.changed == 0 || next.height >= b.changed+3) {
		next.changed = next.height
		next.membership = w.change(b.membership, c, hash)
	}
	w.blocks[hash] = next
	return next
}

// change returns the membership after a change: another disk, another member, or one member less.
func (w *world) change(m Membership, c content, hash [32]byte) Membership {
	disks := map[order.ServerID]DiskID{}
	for _, server := range m.Members {
		disks[server] = m.Disk(server)
	}
	next := Membership{Number: m.Number + 1, Members: slices.Clone(m.Members)}
	newcomer := slices.IndexFunc(w.nodes, func(n *simulated) bool { return !m.Includes(n.id) })
	switch {
	case c.admits && m.Includes(c.admit):
		disks[c.admit] = c.disk
		w.admitted++
	case newcomer >= 0 && (hash[1]%2 == 0 || len(m.Members) < 3):
		next.Members = append(next.Members, order.ServerID(newcomer))
		slices.Sort(next.Members)
	default:
		at := int(hash[2]) % len(m.Members)
		next.Members = slices.Delete(next.Members, at, at+1)
	}
	for _, server := range next.Members {
		next.Disks = append(next.Disks, disks[server])
	}
	return next
}

func (n *simulated) report() Report {
	head := Head{Generation: n.label, Height: n.head.height, Hash: n.head.hash,
		Round: order.Round(n.head.height)}
	return Report{Head: head, Membership: n.head.membership, Former: n.head.former(n.durable),
		Votes:   n.votes,
		Durable: n.durable, Perhaps: n.perhaps}
}

// loses gives a member a new disk, which is a learner. The old home may come back.
func (w *world) loses(n *simulated) {
	w.disks++
	old := n.home
	n.up, n.attic = false, &old
	n.home = home{disk: State{Disk: DiskID{byte(n.id + 1), byte(w.disks), byte(w.disks >> 8)}},
		stored: w.genesis,
		side:   map[[32]byte]bool{}}
	n.head = w.genesis
}

// returns exchanges a member's home for its previous one.
func (w *world) returns(n *simulated) {
	if n.attic == nil {
		return
	}
	w.returned++
	n.up = false
	n.home, *n.attic = *n.attic, n.home
	n.head = n.stored
}

// crashes stops a process. Its disk then perhaps had more than it holds whole. If it was damaged,
// it no longer holds the last block whole.
func (w *world) crashes(n *simulated) {
	n.up = false
	if w.random.IntN(8) > 0 || n.perhaps {
		return
	}
	n.perhaps = true
	if w.random.IntN(2) == 0 && n.stored.parent != nil && n.stored.height > n.durable &&
		w.mayHurt(n) {
		w.hurt++
		n.stored, n.damaged = n.stored.parent, true
	}
}

// mayHurt reports whether another disk may be damaged: in each membership that may count, no more
// than the shard tolerates.
func (w *world) mayHurt(n *simulated) bool {
	for b := n.stored; b != nil; b = b.parent {
		damaged := 0
		for _, other := range w.nodes {
			if other.damaged && b.membership.Includes(other.id) {
				damaged++
			}
		}
		if damaged >= len(b.membership.Members)-b.membership.Quorum() {
			return false
		}
	}
	return true
}

// moves takes a node to another head. Blocks that it knows to be durable are never set aside.
func (w *world) moves(n *simulated, to *block) {
	if kept := n.stored.common(to); kept.height < n.durable {
		w.fail("node %d sets block %d aside, and knows block %d to be durable", n.id, kept.height+1,
			n.durable)
	}
	n.head, n.stored = to, to
}

// learnsDurable lets a node learn what is durable.
func (w *world) learnsDurable(n *simulated) {
	for b := n.stored; b.parent != nil && b.height > n.durable; b = b.parent {
		if w.durable(b) {
			n.durable = b.height
			return
		}
	}
}

func (w *world) start(i int) {
	n := w.nodes[i]
	n.head, n.working, n.votes, n.label, n.idle = n.stored, 0, nil, n.disk.Activated.Generation(), 0
	if n.damaged {
		n.label = 0
	}
	synod, err := NewSynod(Config{Self: n.id, State: n.disk, Report: n.report(), Grace: 6,
		Patience: 4, Original: n.original, Fault: w.fault})
	if err != nil {
		w.fail("%v", err)
	}
	n.synod, n.up = synod, true
	n.pending = n.disk.Decided
	for peer := range w.nodes {
		synod.Linked(order.ServerID(peer), w.nodes[peer].up)
	}
	for id := range n.side {
		synod.Holds(id)
	}
}

// idleNow ends the engine's work, for good.
func (w *world) idleNow(n *simulated, ended Generation) {
	n.working, n.stored = 0, n.head // reported blocks are on disk
	n.synod.Idle(n.report(), ended)
}

// drain carries out what a node's synod wants: save, send, fetch, adopt.
func (w *world) drain(i int) {
	n := w.nodes[i]
	if n.synod.MustEnd() {
		w.idleNow(n, 0)
	}
	if n.working == 0 {
		n.synod.Report(n.report())
	}
	ready := n.synod.Ready()
	if ready.MustSave {
		state, err := DecodeState(ready.State.Encode())
		if err != nil {
			w.fail("state does not survive its encoding: %v", err)
		}
		n.disk = state
	}
	for _, envelope := range ready.Messages {
		message, err := DecodeMessage(envelope.Message.Encode(nil))
		if err != nil {
			w.fail("message %+v does not survive its encoding: %v", envelope.Message, err)
		}
		if message.Kind == KindAccept && n.synod.phase == phaseAccepting &&
			n.synod.bound(&n.synod.surveyed) == nil && !n.synod.surveyed.enough(true) {
			w.forgiven[message.Generation] = true
		}
		w.flight = append(w.flight, flying{n.id, envelope.To, message})
	}
	if err := n.synod.Err(); err != nil {
		w.fail("%v", err)
	}
	for _, fetch := range ready.Fetch {
		w.fetch(n, fetch)
	}
	if ready.Decided != nil {
		w.judge(*ready.Decided)
		if n.working != 0 && n.working.Generation() < ready.Decided.Generation {
			w.idleNow(n, 0)
		}
		n.pending = ready.Decided
	}
	w.activate(n)
	if n.synod.dirty || len(n.synod.out) > 0 || n.synod.decided != nil {
		w.drain(i)
	}
}

func (w *world) fetch(n *simulated, f Fetch) {
	for _, from := range f.From {
		p := w.nodes[from]
		has := false
		switch {
		case !p.up || w.side[p.id] != w.side[n.id]:
		case f.Base != nil:
			has = p.head.has(w.blocks[f.Base.Hash]) || p.side[f.ID()]
		default:
			has = p.side[f.ID()] || slices.ContainsFunc(p.votes, func(v Vote) bool {
				return v.Content == f.ID()
			})
		}
		if has {
			n.side[f.ID()] = true
			n.synod.Holds(f.ID())
			return
		}
	}
}

// judge checks a decision that becomes known.
func (w *world) judge(d Decision) {
	if known, ok := w.decided[d.Generation]; ok {
		if !known.Equal(d) {
			w.fail("generation %d decided twice: %v and %v", d.Generation, known, d)
		}
		return
	}
	w.decided[d.Generation] = d
	w.decisions++
	if len(d.Tail) > 0 {
		w.tails++
	}
	tip := w.tip(d)
	// A single member sends no Accept that would show it.
	if w.forgiven[d.Generation] || len(d.Members) == 1 {
		w.forgave++
		w.delivered = slices.DeleteFunc(w.delivered, func(b *block) bool {
			return !tip.has(b) && !w.durable(b)
		})
	}
	for _, b := range w.delivered {
		if !tip.has(b) {
			w.fail("generation %d goes on from height %d (%d rounds in its tail), but a block "+
				"of height %d was A-delivered that it does not have", d.Generation, d.Base.Height,
				len(d.Tail), b.height)
		}
	}
}

// durable reports whether a majority of the members had the block on disk while they worked.
func (w *world) durable(b *block) bool {
	for _, m := range []Membership{b.membership, b.parent.membership} {
		count := 0
		for _, member := range m.Members {
			disk := m.Disk(member)
			if disk == (DiskID{}) {
				disk = DiskID{byte(member + 1)}
			}
			if slices.Contains(b.storedBy, disk) {
				count++
			}
		}
		if count < m.Quorum() {
			return false
		}
	}
	return true
}

// tip returns the block after a decision's base and tail.
func (w *world) tip(d Decision) *block {
	tip := w.blocks[d.Base.Hash]
	for _, r := range d.Tail {
		tip = w.apply(tip, w.contents[r.Content])
	}
	return tip
}

// activate starts the engine of a decided generation once base and tail are here.
func (w *world) activate(n *simulated) {
	d := n.pending
	if d == nil || n.working != 0 || !d.Seats(n.id, n.disk.Disk) ||
		n.disk.Activated.Generation() >= d.Generation || n.synod.Frozen(NewRun(d.Generation, 0)) ||
		len(n.synod.Wanted()) > 0 {
		return
	}
	tip := w.tip(*d)
	members := d.Group(tip.membership)
	n.pending = nil
	if !slices.Contains(members, n.id) || len(members) < tip.membership.Quorum() {
		w.moves(n, tip) // the tail changed the membership: the next generation goes on
		return
	}
	w.begin(n, NewRun(d.Generation, 0), tip, members)
}

func (w *world) begin(n *simulated, run Run, tip *block, members []order.ServerID) {
	g := w.runs[run]
	if g == nil {
		g = &groupRun{shard: tip.membership, members: members, start: tip,
			votes: map[[32]byte][]order.ServerID{}, confirms: map[[32]byte][]order.ServerID{}}
		w.runs[run] = g
	}
	if g.start != tip || !slices.Equal(g.members, members) {
		w.fail("run %d begins differently at server %d: %v at %d, %v at %d", run, n.id, g.members,
			g.start.height, members, tip.height)
	}
	w.moves(n, tip)
	n.label, n.perhaps, n.damaged = run.Generation(), false, false
	n.working, n.members, n.votes, n.idle = run, slices.Clone(members), nil, 0
	n.synod.Report(n.report())
	n.synod.Working(run, g.shard)
	ready := n.synod.Ready()
	n.disk = ready.State
	tip.storedAt(n)
}

// engine takes one step of a node's engine that the rules of voting allow.
func (w *world) engine(n *simulated) {
	g := w.runs[n.working]
	if g == nil || n.synod.Frozen(n.working) {
		return
	}
	next := order.Round(n.head.height) + 1
	switch choice := w.random.IntN(4); {
	case choice == 0 || w.settling && len(n.votes) == 0:
		w.vote(n, g, next)
	case choice == 1 && !w.settling && len(n.votes) == 1 && !n.votes[0].Reliable:
		w.vote(n, g, next+1)
	case choice == 2 && len(n.votes) > 0:
		last := &n.votes[len(n.votes)-1]
		if last.Reliable && !last.Confirmed && len(g.votes[last.Content]) >= g.shard.Quorum() {
			last.Confirmed = true
			g.confirms[last.Content] = append(g.confirms[last.Content], n.id)
		}
	default:
		w.deliver(n, g)
	}
}

func (w *world) vote(n *simulated, g *groupRun, round order.Round) {
	if g.last != 0 && round > g.last || !slices.Contains(n.members, n.id) || len(n.votes) > 0 &&
		round != n.votes[0].Round+1 {
		return
	}
	after := n.head.hash
	if len(n.votes) > 0 {
		after = w.apply(n.head, w.contents[n.votes[0].Content]).hash
	}
	kind := 1
	if w.random.IntN(3) == 0 || len(n.votes) > 0 || round == g.last || w.settling {
		kind = 2 + truth(w.random.IntN(4) == 0 && !w.settling)
	}
	c := w.content(n.working, after, round, kind, n.members)
	if w.random.IntN(3) > 0 || w.settling { // go with the others
		for other := 1; other <= 3; other++ {
			o := w.content(n.working, after, round, other, n.members)
			if len(g.votes[o.id]) > len(g.votes[c.id]) &&
				(other > 1 || len(n.votes) == 0 && round != g.last) {
				c = o
			}
		}
	}
	v := Vote{TailRound: TailRound{Round: round, Epoch: 1, Reliable: c.kind > 1, Content: c.id,
		Origins: slices.Clone(n.members), Removed: c.out}, Voters: slices.Clone(n.members)}
	if c.kind == 3 {
		v.Origins = v.Origins[:len(v.Origins)-len(c.out)]
	}
	n.votes = append(n.votes, v)
	g.votes[c.id] = append(g.votes[c.id], n.id)
}

func (w *world) deliver(n *simulated, g *groupRun) {
	for k := len(n.votes) - 1; k >= 0; k-- {
		v := n.votes[k]
		t := threshold(len(g.shard.Members), len(v.Voters))
		if len(g.votes[v.Content]) < t && (!v.Reliable ||
			len(g.confirms[v.Content]) < g.shard.Quorum()) {
			continue
		}
		for _, d := range n.votes[:k+1] {
			c := w.contents[d.Content]
			before := n.head
			n.head = w.apply(n.head, c)
			n.idle = 0
			w.delivered = append(w.delivered, n.head)
			if w.settling {
				w.rounds++
			}
			n.members = slices.DeleteFunc(n.members, func(s order.ServerID) bool {
				return slices.Contains(c.out, s)
			})
			if n.head.membership.Number != before.membership.Number &&
				(g.last == 0 || g.last > d.Round+2) {
				g.last, g.inOrder = d.Round+2, false
			}
		}
		n.votes = slices.Delete(n.votes, 0, k+1)
		if w.random.IntN(2) == 0 {
			n.stored = n.head
			n.stored.storedAt(n)
		}
		if w.random.IntN(4) == 0 {
			w.learnsDurable(n)
		}
		w.ends(n, g)
		return
	}
}

// ends takes a node over the end of its run, if it has come.
func (w *world) ends(n *simulated, g *groupRun) {
	if g.last == 0 || order.Round(n.head.height) != g.last {
		if !slices.Contains(n.members, n.id) {
			w.idleNow(n, 0) // removed
		}
		return
	}
	n.stored = n.head
	if g.inOrder {
		w.idleNow(n, n.working.Generation())
		return
	}
	w.eons++
	run := n.working + 1
	members := w.next(n.head, n.members)
	if !slices.Contains(members, n.id) || !n.counts(n.head.membership) {
		w.idleNow(n, 0) // left, or another disk counts
		return
	}
	w.begin(n, run, n.head, members)
}

// next returns the group of the next eon: the remaining servers that are still members, and the new
// members.
func (w *world) next(tip *block, left []order.ServerID) []order.ServerID {
	var members []order.ServerID
	before := tip
	for before.membership.Number == tip.membership.Number {
		before = before.parent
	}
	for _, s := range tip.membership.Members {
		if slices.Contains(left, s) || !before.membership.Includes(s) ||
			before.membership.Disk(s) != tip.membership.Disk(s) {
			members = append(members, s)
		}
	}
	return members
}

// join lets a new member enter its first eon.
func (w *world) join(n *simulated) {
	for run, g := range w.runs {
		fits := run.Eon() > 0 && slices.Contains(g.members, n.id) && run > n.disk.Activated &&
			n.working == 0 && !n.synod.Frozen(run) && n.synod.Next() == run.Generation()+1
		newly := fits && n.counts(g.shard) && (!slices.Contains(w.runs[run-1].members, n.id) ||
			w.runs[run-1].shard.Disk(n.id) != g.shard.Disk(n.id))
		if newly {
			n.pending = nil
			w.begin(n, run, g.start, g.members)
			return
		}
	}
}

// follow lets a node that does not work take the chain of one that does.
func (w *world) follow(n *simulated) {
	for _, p := range w.nodes {
		if n.working == 0 && p.up && p.working != 0 &&
			p.working.Generation() >= max(n.label, n.disk.Activated.Generation()) &&
			w.side[p.id] == w.side[n.id] {
			if d := n.synod.Decided(); d == nil || d.Generation <= p.working.Generation() {
				if p.head.height < n.head.height && n.head.has(p.head) {
					return // it still has to deliver that itself
				}
				w.moves(n, p.head)
				n.label, n.perhaps, n.damaged = p.working.Generation(), false, false
				return
			}
		}
	}
}
