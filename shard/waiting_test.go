package shard

import (
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// A member that waits names the servers it waits for, and says what an operator can do.
func TestWaitingIsExplained(t *testing.T) {
	t.Parallel()
	servers := func(servers ...order.ServerID) []order.ServerID { return servers }
	of := func(n int) (m generation.Membership) {
		for i := range n {
			m.Members = append(m.Members, order.ServerID(i))
		}
		return m
	}
	const recover = "; too few disks remember: stop all nodes, and see `ledgerd recover --help`"
	for _, c := range []struct {
		name    string
		n       int
		waiting generation.Waiting
		unheard []order.ServerID
		want    string
	}{
		{"nothing is known", 3, generation.Waiting{}, servers(1, 2),
			"waiting for a majority of the 3 nodes"},
		{"nothing is missing", 3, generation.Waiting{Silent: servers(2)}, nil,
			"a majority of the 3 nodes is present, and about to agree on how to continue"},
		{"alone", 3, generation.Waiting{Missing: 1, Unreachable: servers(1, 2)}, servers(1, 2),
			"waiting for a majority of the 3 nodes; 1 more needed; members 1, 2 unreachable: " +
				"start or reconnect them"},
		{"one forgot, one is away", 3,
			generation.Waiting{Missing: 1, Unreachable: servers(1), Forgot: servers(2)}, servers(1),
			"waiting for a majority of the 3 nodes; 1 more needed; member 1 unreachable: start " +
				"or reconnect it; member 2 forgot (a new disk)"},
		{"all are there, and one forgot: that one does not matter", 3,
			generation.Waiting{Forgot: servers(2)}, nil,
			"a majority of the 3 nodes is present, and about to agree on how to continue; " +
				"member 2 forgot (a new disk)"},
		{"all are there, and two forgot", 3,
			generation.Waiting{Missing: 1, Forgot: servers(0, 2)}, nil,
			"waiting for a majority of the 3 nodes; 1 more needed; " +
				"members 0, 2 forgot (a new disk)" + recover},
		{"two of four forgot, one is away that cannot help alone", 4,
			generation.Waiting{Missing: 1, Unreachable: servers(3), Forgot: servers(1, 2)},
			servers(3),
			"waiting for a majority of the 4 nodes; 1 more needed; member 3 unreachable: start " +
				"or reconnect it; members 1, 2 forgot (a new disk); start the others; if that " +
				"does not help, see `ledgerd recover --help`"},
		{"the only member forgot, and may not know of others", 1,
			generation.Waiting{Forgot: servers(0)}, nil,
			"waiting for a majority of the 1 nodes; member 0 forgot (a new disk); start the " +
				"others; if that does not help, see `ledgerd recover --help`"},
		{"votes are forgotten, and somebody may know them", 3,
			generation.Waiting{Memory: true, Silent: servers(2), Restarted: servers(0, 1)}, nil,
			"waiting for a majority of the 3 nodes; member 2 reachable, no promise yet; " +
				"members 0, 1 restarted, and the others may know more"},
		{"one that is reachable says nothing", 3,
			generation.Waiting{Missing: 1, Silent: servers(2), Unreachable: servers(1)}, servers(1),
			"waiting for a majority of the 3 nodes; 1 more needed; member 1 unreachable: start " +
				"or reconnect it; member 2 reachable, no promise yet"},
		{"a disk had perhaps more", 3,
			generation.Waiting{Unreachable: servers(2), Perhaps: servers(1)}, servers(2),
			"waiting for a majority of the 3 nodes; member 2 unreachable: start or reconnect it; " +
				"member 1 may have had more blocks before a crash: start more members"},
		{"a durable block is gone", 3, generation.Waiting{Durable: 7}, nil,
			"waiting for a majority of the 3 nodes; " +
				"block 7 is durable, but too few disks hold it" + recover},
		{"a durable block is gone, or with a member that is away", 3,
			generation.Waiting{Durable: 7, Unreachable: servers(0)}, servers(0),
			"waiting for a majority of the 3 nodes; member 0 unreachable: start or reconnect it; " +
				"block 7 is durable, but too few disks hold it"},
	} {
		reason := Reason{Waiting: c.waiting}
		none := func(order.ServerID) bool { return false }
		reason.Recover = helpless(of(c.n), &reason, c.unheard, none)
		if got := explainWaiting(of(c.n), &reason, c.unheard); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// An explanation stays for a moment, unless nothing asked for it recently. An attempt that has just
// begun has no promises yet.
func TestWaitingIsSaidForAMoment(t *testing.T) {
	t.Parallel()
	const before = "member 1 unreachable: start or reconnect it"
	const after = "members 1, 2 unreachable: start or reconnect them"
	m, _ := newTestMember(t, 3)
	m.peer(1).linked = false
	says := func(when, want string) {
		t.Helper()
		if _, got := m.waitingFor(); !strings.HasSuffix(got, "; "+want) {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	m.peer(2).linked = true
	says("at first", before)
	m.peer(2).linked = false
	for range m.config.Timing.Announce {
		says("a moment later", before)
		m.now++
	}
	says("then", after)
	m.peer(2).linked = true
	m.now++
	says("it changes back", after)
	m.now++
	says("it changes back", after)
	m.now += 2
	says("nobody asked for a while", before)
}

// The explanation includes what the members announce about their disks, and what this one knows of
// its own.
func TestWaitingTellsOfLearners(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Member, *bookChain)
		want   string
	}{
		"peers": {func(m *Member, _ *bookChain) {
			m.peer(1).Learner, m.peer(3).Learner = true, true
		}, "members 1, 3 forgot (a new disk)"},
		"a replaced disk that came back": {func(m *Member, c *bookChain) {
			c.membership.Number, c.membership.Disks = 1, []generation.DiskID{{}, diskOf(9), {}, {}}
		}, "member 1 forgot (a new disk)"},
		"a disk that a later change admitted": {func(m *Member, c *bookChain) {
			c.membership.Number, c.membership.Disks = 1,
				[]generation.DiskID{{}, {}, diskOf(9), diskOf(9)}
			m.peer(2).Changes, m.peer(3).Learner = 2, true
		}, "member 3 forgot (a new disk)"},
		"itself": {func(_ *Member, c *bookChain) {
			c.membership.Disks = []generation.DiskID{diskOf(9), {}, {}, {}}
		}, "member 0 forgot (a new disk)"},
		"one that was not heard": {func(m *Member, _ *bookChain) {
			m.peer(1).Learner, m.peer(1).at = true, 0
		}, "member 1 unreachable"},
		"not a member": {func(_ *Member, c *bookChain) {
			c.membership.Members = []order.ServerID{1, 2}
		}, "fetching the chain up to the block that let this node in"},
	} {
		m, chain := newTestMember(t, 4)
		c.change(m, chain)
		if _, got := m.waitingFor(); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A server that left by a durable block need not be started: its home may be gone. It can help if
// that block is not yet durable, or if it knows of a later change.
func TestLeftForGood(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	chain.membership = generation.Membership{Number: 1, Members: serversTo(2)}
	chain.former = []Former{{Server: 2, Left: 9}}
	forGood := func() bool { return m.leftForGood(chain.membership)(2) }
	if !forGood() || m.leftForGood(chain.membership)(1) {
		t.Error("it is server 2 that left for good")
	}
	m.peer(2).Changes = 2
	if forGood() {
		t.Error("its chain has a later change")
	}
	m.peer(2).Changes, chain.durable = 1, 8
	if forGood() {
		t.Error("the block may be given up")
	}
}

// A member whose chain lacks the block that let a server in, such as the chain of a new disk, does
// not know which disks count now. It learns that from the server's announcement or promise, and
// then calls no operator.
func TestRecoverNeedsTheNewestMembership(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		learn func(m *Member)
		want  bool
	}{
		"nobody knows more": {func(*Member) {}, true},
		"one that joined says so": {func(m *Member) {
			p := m.peer(2)
			p.heard, p.linked, p.at, p.Changes = true, true, m.now, 1
		}, false},
		"one that joined said so, and is away": {func(m *Member) {
			p := m.peer(2)
			p.heard, p.Changes = true, 1
		}, false},
		"one that joined, or left, knows no more": {func(m *Member) {
			p := m.peer(2)
			p.heard, p.linked, p.at = true, true, m.now
		}, true},
	} {
		m, chain := newTestMember(t, 2)
		chain.membership.Disks = []generation.DiskID{diskOf(9), {}}
		c.learn(m)
		var r Reason
		for range m.config.Timing.Hearsay + 2*m.config.Timing.Announce {
			m.now++
			m.peer(1).at = m.now
			r, _ = m.waitingFor()
		}
		if r.Recover != c.want || len(r.Newer) > 0 == c.want {
			t.Errorf("%s: %+v, want recover %v", name, r, c.want)
		}
	}
	two := generation.Membership{Members: serversTo(2)}
	told := &Reason{Waiting: generation.Waiting{Missing: 1, Forgot: serversTo(1), Changes: 1}}
	if none := func(order.ServerID) bool { return false }; helpless(two, told, nil, none) {
		t.Error("a promise told of a later membership")
	}
}
