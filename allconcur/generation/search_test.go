package generation

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// searchNode is one home of a server, with a frozen engine. A server may have two homes: the one
// that it lost, and the one that the chain admitted.
type searchNode struct {
	server   order.ServerID
	original bool
	state    State // as it is on disk
	report   Report
	attempts int // how often it may still propose
	// blocks are the hashes of the blocks that it holds, if that is judged: a node that accepts a
	// value holds its base.
	blocks [][32]byte
	synod  *Synod
	// sum is that of the attempts, the synod and the state. A step changes one node, and the others
	// keep theirs.
	sum [32]byte
}

// searchSetting is the start of a search: every node's engine is frozen.
type searchSetting struct {
	nodes    []searchNode
	restarts int
	// delivered are the rounds that were A-delivered somewhere.
	delivered []TailRound
	fault     Fault
}

type searchMessage struct {
	from, to order.ServerID
	message  Message
}

// searchWorld is one state of a search. Messages are lost by never being delivered.
type searchWorld struct {
	nodes    []searchNode
	flight   []int // messages by number, ascending
	restarts int
	decided  *Decision
}

// search visits all reachable states: a node proposes, a proposer stops waiting for more promises,
// a message arrives, a node restarts, in any order.
type search struct {
	setting  searchSetting
	messages []searchMessage
	numbers  map[string]int
	seen     map[[16]byte]bool
	most     int
	broken   string
	path     []string
	scratch  []byte
}

func (x *search) newSynod(n *searchNode, report Report) *Synod {
	s, err := NewSynod(Config{Self: n.server, State: n.state, Original: n.original, Report: report,
		Grace: 1, Patience: 1 << 30, Fault: x.setting.fault})
	if err != nil {
		panic(err)
	}
	return s
}

// run searches until all states are seen, or more than most. It returns the number of states, and
// whether that is all.
func (x *search) run() (states int, all bool) {
	x.numbers, x.seen = map[string]int{}, map[[16]byte]bool{}
	w := &searchWorld{nodes: slices.Clone(x.setting.nodes), restarts: x.setting.restarts}
	for i := range w.nodes {
		n := &w.nodes[i]
		n.synod = x.newSynod(n, n.report)
		n.synod.remembers, n.synod.votes, n.synod.seen = n.state.Activated != 0, n.report.Votes,
			n.report.Known
		n.synod.Report(n.report)
		x.add(n)
	}
	x.visit(w)
	return len(x.seen), x.broken == "" && len(x.seen) <= x.most
}

func (w *searchWorld) clone(but int) *searchWorld {
	c := *w
	c.nodes, c.flight = slices.Clone(w.nodes), slices.Clone(w.flight)
	c.nodes[but].synod = w.nodes[but].synod.Clone()
	return &c
}

// add sums up a node.
func (x *search) add(n *searchNode) {
	x.scratch = n.synod.AppendState(append(x.scratch[:0], byte(n.attempts)))
	x.scratch = append(x.scratch, n.state.Encode()...)
	n.sum = sha256.Sum256(x.scratch)
}

func (x *search) key(w *searchWorld) (key [16]byte) {
	b := append(x.scratch[:0], byte(w.restarts))
	b = binary.AppendUvarint(b, uint64(len(w.flight)))
	for _, number := range w.flight {
		b = binary.AppendUvarint(b, uint64(number))
	}
	for i := range w.nodes {
		b = append(b, w.nodes[i].sum[:]...)
	}
	if w.decided != nil {
		b = appendDecision(b, w.decided, true)
	}
	x.scratch = b
	sum := sha256.Sum256(b)
	copy(key[:], sum[:])
	return key
}

func (x *search) visit(w *searchWorld) {
	key := x.key(w)
	if x.seen[key] || x.broken != "" || len(x.seen) > x.most {
		return
	}
	x.seen[key] = true
	for i := range w.nodes {
		if w.nodes[i].attempts > 0 {
			x.do(w, i, fmt.Sprintf("node %d proposes", i), func(w *searchWorld, n *searchNode) {
				n.attempts--
				n.synod.prepare()
			})
		}
		if w.nodes[i].synod.phase == phasePreparing {
			x.do(w, i, fmt.Sprintf("node %d waits no longer", i), func(w *searchWorld,
				n *searchNode) {
				n.synod.waited = 2
				n.synod.tryAccept()
				n.synod.waited = 0
			})
		}
		if w.restarts > 0 {
			x.do(w, i, fmt.Sprintf("node %d restarts", i), func(w *searchWorld, n *searchNode) {
				w.restarts--
				report := n.report
				report.Votes, report.Known = nil, nil
				n.synod = x.newSynod(n, report)
			})
		}
	}
	for at, number := range w.flight {
		m := x.messages[number]
		for i := range w.nodes {
			if w.nodes[i].server == m.to {
				text := fmt.Sprintf("node %d hears %d: kind %d, ballot %d", i, m.from,
					m.message.Kind, m.message.Ballot.Number)
				x.do(w, i, text, func(w *searchWorld, n *searchNode) {
					w.flight = slices.Delete(w.flight, at, at+1)
					n.synod.Receive(m.from, m.message)
				})
			}
		}
	}
}

// do takes a step from a state, and goes on from there.
func (x *search) do(w *searchWorld, i int, text string, step func(*searchWorld, *searchNode)) {
	if x.broken != "" {
		return
	}
	next := w.clone(i)
	n := &next.nodes[i]
	x.path = append(x.path, text)
	step(next, n)
	x.drain(next, n)
	if x.broken == "" {
		x.add(n)
		x.visit(next)
	}
	if x.broken == "" {
		x.path = x.path[:len(x.path)-1]
	}
}

// drain carries out what a synod wants. Everything that it wants to fetch is available.
func (x *search) drain(w *searchWorld, n *searchNode) {
	for more := true; more; {
		ready := n.synod.Ready()
		if ready.MustSave {
			n.state = ready.State
		}
		for _, e := range ready.Messages {
			x.send(w, n, e)
		}
		for _, fetch := range n.synod.Wanted() {
			if fetch.Base != nil && n.blocks != nil {
				n.blocks = append(slices.Clip(n.blocks), fetch.Base.Hash)
			}
			n.synod.Holds(fetch.ID())
		}
		if ready.Decided != nil && x.broken == "" {
			x.judge(w, n, *ready.Decided)
		}
		more = n.synod.dirty || len(n.synod.out) > 0 || n.synod.decided != nil
	}
	n.synod.askedFor = nil
}

// send puts a message in flight. It leaves out decisions and refusals, which decide nothing.
func (x *search) send(w *searchWorld, n *searchNode, e Envelope) {
	if e.Message.Kind == KindDecided || e.Message.Kind == KindRefuse {
		return
	}
	if v := n.state.AcceptedValue; e.Message.Kind == KindAccepted && n.blocks != nil &&
		!slices.Contains(n.blocks, v.Base.Hash) {
		x.broken = fmt.Sprintf("node %d accepts %+v, and holds %x", n.server, *v, n.blocks)
	}
	key := fmt.Sprintf("%d %d %s", n.server, e.To, e.Message.Encode(nil))
	number, found := x.numbers[key]
	if !found {
		number = len(x.messages)
		x.numbers[key] = number
		x.messages = append(x.messages, searchMessage{n.server, e.To, e.Message})
	}
	if at, found := slices.BinarySearch(w.flight, number); !found {
		w.flight = slices.Insert(w.flight, at, number)
	}
}

// judge compares a decision with the other one, and with what was A-delivered. A round may be lost
// only if servers restarted.
func (x *search) judge(w *searchWorld, n *searchNode, d Decision) {
	if w.decided != nil && !w.decided.Equal(d) {
		x.broken = fmt.Sprintf("two decisions: %+v and %+v", *w.decided, d)
	}
	w.decided = &d
	for _, r := range x.setting.delivered {
		at := int(r.Round) - int(d.Base.Round) - 1
		if w.restarts == x.setting.restarts && at >= 0 &&
			(at >= len(d.Tail) || !d.Tail[at].Equal(r)) {
			x.broken = fmt.Sprintf("round %d was A-delivered, and is not in %+v", r.Round, d)
		}
	}
}

// votersSetting is a group of n whose servers all voted for round 9, which the last one
// A-delivered.
func votersSetting(n, restarts int, attempts ...int) searchSetting {
	shard := Membership{Members: members(n)}
	value := testRound(9, 1)
	first := &Decision{Generation: 1, Members: shard.Members}
	for i := range n {
		first.Disks = append(first.Disks, DiskID{byte(i + 1)})
	}
	setting := searchSetting{restarts: restarts, delivered: []TailRound{value}}
	for i := range n {
		node := searchNode{server: order.ServerID(i), original: true}
		node.state = State{Disk: first.Disks[i], Activated: NewRun(1, 0), Shard: shard, Instance: 1,
			Decided: first}
		node.report = Report{Head: Head{Generation: 1, Height: 8, Round: 8}, Membership: shard,
			Votes: []Vote{{TailRound: value, Voters: shard.Members}}}
		if i == n-1 {
			node.report.Head, node.report.Votes = Head{Generation: 1, Height: 9, Round: 9,
				Hash: [32]byte{9}}, nil
		}
		if i < len(attempts) {
			node.attempts = attempts[i]
		}
		setting.nodes = append(setting.nodes, node)
	}
	return setting
}

// acceptedSetting is votersSetting(3) after server 0 alone accepted an earlier ballot of its own.
// Two more attempts then make a third ballot.
func acceptedSetting() searchSetting {
	setting := votersSetting(3, 0, 1, 1)
	n := &setting.nodes[0]
	n.state.Instance = 2
	n.state.Promised = Ballot{Number: 1, Disk: n.state.Disk}
	n.state.Accepted = n.state.Promised
	n.state.AcceptedValue = &Decision{Generation: 2, Base: n.report.Head, Members: members(2),
		Disks: n.state.Decided.Disks[:2], Tail: []TailRound{testRound(9, 1)}}
	return setting
}

// eonSetting is a group of three that changes over. Round 9 names server 2's new disk, and servers
// 0 and 1 A-delivered the transitional round 11. Server 1 and the new disk began the next eon. The
// old disk of server 2 comes back. If the change is durable, server 1 knows it, and server 0 holds
// the change. Otherwise server 0 restarted before it had the change on disk.
func eonSetting(durable bool) searchSetting {
	before := Membership{Members: members(3)}
	after := Membership{Number: 1, Members: members(3), Disks: []DiskID{{}, {}, {33}}}
	first := &Decision{Generation: 1, Members: before.Members, Disks: []DiskID{{1}, {2}, {3}}}
	old, changed := Head{Generation: 1, Height: 8, Round: 8, Hash: [32]byte{8}},
		Head{Generation: 1, Height: 11, Round: 11, Hash: [32]byte{11}}
	node := func(server order.ServerID, disk DiskID, run Run, shard Membership, head Head,
		m Membership) searchNode {
		n := searchNode{server: server, original: disk != DiskID{33},
			report: Report{Head: head, Membership: m},
			state:  State{Disk: disk, Activated: run, Shard: shard, Instance: 1, Decided: first}}
		if m.Number > 0 {
			n.report.Former = []Former{{before, 9}}
		}
		return n
	}
	zero := node(0, DiskID{1}, NewRun(1, 0), before, old, before)
	one := node(1, DiskID{2}, NewRun(1, 1), after, changed, after)
	if durable {
		zero = node(0, DiskID{1}, NewRun(1, 0), before, changed, after)
		one.report.Durable, one.report.Former = 11, nil
	}
	zero.attempts, one.attempts = 1, 1
	return searchSetting{nodes: []searchNode{zero, one,
		node(2, DiskID{3}, NewRun(1, 0), before, old, before),
		node(2, DiskID{33}, NewRun(1, 1), after, changed, after)}}
}

// branchSetting is a group of three in which generation 2 gave up block 9 of generation 1, which
// server 0 still has. It goes on from another block 8, in which server 0 took no part.
func branchSetting() searchSetting {
	shard := Membership{Members: members(3)}
	second := &Decision{Generation: 2, Members: shard.Members, Disks: []DiskID{{1}, {2}, {3}}}
	setting := searchSetting{}
	for i := range 3 {
		node := searchNode{server: order.ServerID(i), original: true, blocks: [][32]byte{{2}},
			attempts: i % 2}
		node.state = State{Disk: second.Disks[i], Activated: NewRun(2, 0), Shard: shard,
			Instance: 2, Decided: second}
		node.report = Report{Head: Head{Generation: 2, Height: 8, Round: 8, Hash: [32]byte{2}},
			Membership: shard}
		setting.nodes = append(setting.nodes, node)
	}
	zero := &setting.nodes[0]
	zero.state.Activated = NewRun(1, 0)
	zero.report.Head, zero.blocks = Head{Generation: 1, Height: 9, Round: 9, Hash: [32]byte{1}},
		[][32]byte{{1}}
	return setting
}

// damagedSetting is a group of three in which block 9 names server 2's new disk. Servers 0 and 1
// synced it, and server 0 knows that it is durable. Server 1 alone accepted a value with that base,
// and then its disk lost the block. The old disk of server 2, which never had it, comes back.
func damagedSetting() searchSetting {
	before := Membership{Members: members(3)}
	after := Membership{Number: 1, Members: members(3), Disks: []DiskID{{}, {}, {33}}}
	first := &Decision{Generation: 1, Members: before.Members, Disks: []DiskID{{1}, {2}, {3}}}
	old := Head{Generation: 1, Height: 8, Round: 8, Hash: [32]byte{8}}
	changed := Head{Generation: 1, Height: 9, Round: 9, Hash: [32]byte{9}}
	node := func(server order.ServerID, disk DiskID, run Run, head Head, m Membership) searchNode {
		return searchNode{server: server, original: disk != DiskID{33},
			report: Report{Head: head, Membership: m},
			state:  State{Disk: disk, Activated: run, Shard: before, Instance: 1, Decided: first}}
	}
	zero, one := node(0, DiskID{1}, NewRun(1, 0), changed, after),
		node(1, DiskID{2}, NewRun(1, 0), old, before)
	zero.report.Durable = 9
	one.report.Perhaps, one.report.PerhapsTo = true, 9
	ballot := Ballot{Number: 1, Proposer: 1, Disk: DiskID{2}}
	for _, n := range []*searchNode{&zero, &one} {
		n.state.Instance, n.state.Promised, n.attempts = 2, ballot, 1
	}
	one.state.Accepted = ballot
	one.state.AcceptedValue = &Decision{Generation: 2, Base: changed, Members: members(2),
		Disks: first.Disks[:2]}
	fresh := node(2, DiskID{33}, 0, changed, after)
	fresh.state.Shard = Membership{}
	fresh.report.Former = []Former{{before, 9}}
	return searchSetting{nodes: []searchNode{zero, one,
		node(2, DiskID{3}, NewRun(1, 0), old, before), fresh}}
}

// abandonedSetting is a group of three without damaged disks. Block 9 of generation 1 names server
// 2's new disk. It is only on server 1's disk and on the new one, and was given up. Server 0 and
// the old disk of server 2 went on from block 8 as generation 2, and made block 10 durable. Server
// 1 fetched that while no member ordered, so its head is still of generation 1. It alone accepted
// block 10 as the base of generation 3. With decided, generation 3 is decided with that base, and
// no member works in it.
func abandonedSetting(decided bool) searchSetting {
	before := Membership{Members: members(3)}
	after := Membership{Number: 1, Members: members(3), Disks: []DiskID{{}, {}, {33}}}
	head := func(g Generation, height uint64, branch byte) Head {
		return Head{Generation: g, Height: height, Round: order.Round(height),
			Hash: [32]byte{byte(height), branch}}
	}
	latest := &Decision{Generation: 2, Base: head(1, 8, 0), Members: []order.ServerID{0, 2},
		Disks: []DiskID{{1}, {3}}}
	if decided {
		latest = &Decision{Generation: 3, Base: head(2, 10, 2), Members: latest.Members,
			Disks: latest.Disks}
	}
	node := func(server order.ServerID, disk DiskID, run Run, shard Membership, h Head,
		m Membership) searchNode {
		return searchNode{server: server, original: disk != DiskID{33},
			report: Report{Head: h, Membership: m},
			state:  State{Disk: disk, Activated: run, Shard: shard, Instance: 3, Decided: latest}}
	}
	zero := node(0, DiskID{1}, NewRun(2, 0), before, head(2, 10, 2), before)
	one := node(1, DiskID{2}, NewRun(1, 0), before, head(1, 10, 2), before)
	two := node(2, DiskID{3}, NewRun(2, 0), before, head(2, 10, 2), before)
	fresh := node(2, DiskID{33}, 0, Membership{}, head(1, 11, 1), after)
	fresh.report.Former = []Former{{before, 9}}
	zero.report.Durable, one.report.Durable, two.report.Durable = 10, 10, 10
	if !decided {
		one.state.Promised = Ballot{Number: 1, Proposer: 1, Disk: DiskID{2}}
		two.state.Promised, one.state.Accepted = one.state.Promised, one.state.Promised
		one.state.AcceptedValue = &Decision{Generation: 3, Base: head(2, 10, 2),
			Members: []order.ServerID{1, 2},
			Disks:   []DiskID{{2}, {3}}}
	}
	zero.attempts, one.attempts = 1, 1
	return searchSetting{nodes: []searchNode{zero, one, two, fresh}}
}

// belowSetting is abandonedSetting(true) if server 1 has fetched no more than block 9. So neither
// its promise nor that of the new disk is at the decided base.
func belowSetting() searchSetting {
	setting := abandonedSetting(true)
	one := &setting.nodes[1].report
	one.Head, one.Durable = Head{Generation: 1, Height: 9, Round: 9, Hash: [32]byte{9, 2}}, 9
	return setting
}

// twiceSetting is abandonedSetting(false) if the branch that goes on has the same change of the
// membership at block 11, which is not durable. Server 1 holds that block.
func twiceSetting() searchSetting {
	setting := abandonedSetting(false)
	one, fresh := &setting.nodes[1].report, &setting.nodes[3].report
	one.Former = []Former{{one.Membership, 11}}
	one.Membership = fresh.Membership
	one.Head = Head{Generation: 1, Height: 11, Round: 11, Hash: [32]byte{11, 2}}
	fresh.Head = Head{Generation: 1, Height: 12, Round: 12, Hash: [32]byte{12, 1}}
	return setting
}

// TestSynodExhaustively examines everything that can happen to three acceptors, and much of what
// can happen to four.
func TestSynodExhaustively(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setting searchSetting
		most    int
		bounded bool
	}{
		"three, two ballots":            {votersSetting(3, 0, 1, 1), 70_000, false},
		"three, two ballots of others":  {votersSetting(3, 0, 0, 1, 1), 70_000, false},
		"three, two ballots, a restart": {votersSetting(3, 1, 1, 1), 10_000, true},
		"three, three ballots":          {acceptedSetting(), 10_000, true},
		"four, two ballots":             {votersSetting(4, 0, 1, 1), 10_000, true},
		"two branches of a chain":       {branchSetting(), 70_000, false},
		"a change of eon":               {eonSetting(false), 70_000, false},
		"a durable change of eon":       {eonSetting(true), 70_000, false},
		"a damaged disk accepted":       {damagedSetting(), 10_000, true},
		"an abandoned branch, accepted": {abandonedSetting(false), 20_000, true},
		"a change on two branches":      {twiceSetting(), 20_000, true},
		"an abandoned branch, decided":  {abandonedSetting(true), 10_000, true},
		"below the decided base":        {belowSetting(), 10_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				c.most, c.bounded = 500, true
			}
			x := search{setting: c.setting, most: c.most}
			states, all := x.run()
			t.Logf("%s: %d states, all %v", name, states, all)
			if x.broken != "" {
				t.Fatalf("%s\n%s", x.broken, strings.Join(x.path, "\n"))
			}
			if !all && !c.bounded {
				t.Fatal("the search is not complete")
			}
		})
	}
}

// TestSearchFindsPlantedBugs proves that the search can fail.
func TestSearchFindsPlantedBugs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it judges the test, not what is tested")
	}
	for name, c := range map[string]struct {
		setting searchSetting
		fault   Fault
	}{
		"accept below the promise": {votersSetting(3, 0, 1, 1),
			FaultAcceptBelowPromise},
		"promise not persisted": {votersSetting(3, 1, 1, 1),
			FaultPromiseNotPersisted},
		"lowest accepted value":                {acceptedSetting(), FaultLowestAccepted},
		"a chosen value is left out":           {votersSetting(3, 0, 0, 1, 1), FaultChosenLeftOut},
		"what disks had, where one accepted":   {damagedSetting(), FaultBoundIgnoresPerhaps},
		"durable on another branch":            {abandonedSetting(false), FaultDurableElsewhere},
		"durable on another branch, decided":   {belowSetting(), FaultDurableElsewhere},
		"a base of another generation":         {branchSetting(), FaultBaseWithoutGeneration},
		"quorum of the new membership dropped": {eonSetting(true), FaultNewMembershipDropped},
		"quorum of the membership before it":   {eonSetting(false), FaultFormerIgnored},
		"lost disk ignored":                    {eonSetting(true), FaultLostDiskIgnored},
		"the tail is forgotten":                {votersSetting(3, 0, 1, 1), FaultTailForgotten},
		"a quorum is a minority":               {votersSetting(3, 0, 1, 1), FaultMinorityQuorum},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := search{setting: c.setting, most: 70_000}
			x.setting.fault = c.fault
			states, _ := x.run()
			if x.broken == "" {
				t.Fatalf("not found in %d states", states)
			}
			t.Logf("%d states: %.200s\n%s", states, x.broken, strings.Join(x.path, "\n"))
		})
	}
}
