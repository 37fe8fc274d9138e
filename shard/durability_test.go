package shard

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// TestDurableChanges: no block from a change of the membership on is durable before each majority
// of the members before the change contains a disk with it.
func TestDurableChanges(t *testing.T) {
	t.Parallel()
	disks := func(n int, named ...order.ServerID) generation.Membership {
		m := generation.Membership{Members: serversTo(n), Disks: make([]generation.DiskID, n)}
		for _, server := range named {
			m.Disks[server] = generation.DiskID{33, byte(server)}
		}
		return m
	}
	for name, c := range map[string]struct {
		shard  generation.Membership
		former []generation.Former
		stored []uint64 // by member
		want   uint64
	}{
		"a new disk of three, and one old": {disks(3, 2),
			[]generation.Former{{Membership: disks(3), Until: 9}}, []uint64{0, 11, 11}, 8},
		"one old disk holds less than the change": {disks(3, 2),
			[]generation.Former{{Membership: disks(3), Until: 9}}, []uint64{8, 11, 11}, 8},
		"both old disks": {disks(3, 2),
			[]generation.Former{{Membership: disks(3), Until: 9}}, []uint64{9, 11, 11}, 11},
		"the old disks alone": {disks(3, 2),
			[]generation.Former{{Membership: disks(3), Until: 9}}, []uint64{10, 11, 0}, 10},
		"below the change": {disks(3, 2),
			[]generation.Former{{Membership: disks(3), Until: 9}}, []uint64{0, 5, 6}, 5},
		"a new disk of four": {disks(4, 2),
			[]generation.Former{{Membership: disks(4), Until: 9}}, []uint64{0, 11, 11, 11}, 11},
		"a new disk of five": {disks(5, 2),
			[]generation.Former{{Membership: disks(5), Until: 9}}, []uint64{0, 11, 11, 11, 0}, 8},
		"a join": {disks(4),
			[]generation.Former{{Membership: disks(3), Until: 9}}, []uint64{0, 11, 11, 11}, 11},
		"a leave": {disks(3),
			[]generation.Former{{Membership: disks(4), Until: 9}}, []uint64{0, 11, 11}, 11},
		"two changes, the first is not held enough": {disks(3, 1, 2),
			[]generation.Former{{Membership: disks(3), Until: 9},
				{Membership: disks(3, 2), Until: 10}}, []uint64{11, 11, 11}, 8},
		"a disk that was named before stays": {disks(3, 2),
			[]generation.Former{{Membership: disks(3, 1), Until: 9}}, []uint64{11, 11, 11}, 8},
	} {
		var d Durability
		d.Begin(1, c.shard, c.former)
		for member, height := range c.stored {
			d.Stored(1, order.ServerID(member), height)
		}
		if got := d.Height(); got != c.want {
			t.Errorf("%s: durable up to %d, want %d", name, got, c.want)
		}
	}
}

// TestReplacedDiskCountsNoMore: a block of the run names another disk for a member. Blocks that the
// old disk stores from there on do not count, whether the change or the report comes first.
func TestReplacedDiskCountsNoMore(t *testing.T) {
	t.Parallel()
	shard := generation.Membership{Members: serversTo(3), Disks: make([]generation.DiskID, 3)}
	named := generation.Membership{Number: 1, Members: serversTo(3),
		Disks: []generation.DiskID{{}, {33}, {}}}
	for name, early := range map[string]bool{"stored before the change is known": true,
		"afterwards": false} {
		var d Durability
		d.Begin(1, shard, nil)
		if early {
			d.Stored(1, 1, 12)
		}
		d.Changed(named, 9)
		// This change names no other disk for any member.
		d.Changed(generation.Membership{Number: 2, Members: serversTo(2)}, 10)
		d.Stored(1, 1, 12)
		if d.Stored(1, 0, 12); d.Height() != 8 {
			t.Errorf("%s: durable up to %d with a disk that was replaced at 9", name, d.Height())
		}
		if d.Stored(1, 2, 11); d.Height() != 11 {
			t.Errorf("%s: durable up to %d with the two others", name, d.Height())
		}
		d.Begin(2, named, nil)
		d.Stored(2, 1, 12)
		if d.Stored(2, 0, 12); d.Height() != 12 {
			t.Errorf("%s: durable up to %d in the next run", name, d.Height())
		}
	}
}

func TestDurability(t *testing.T) {
	t.Parallel()
	const run = generation.Run(1 << 16)
	type said struct {
		run    generation.Run
		member order.ServerID
		height uint64
	}
	for _, c := range []struct {
		name    string
		members []order.ServerID
		said    []said
		want    uint64
	}{
		{"nobody said anything", []order.ServerID{0, 1, 2}, nil, 0},
		{"one of three", []order.ServerID{0, 1, 2}, []said{{run, 0, 9}}, 0},
		{"two of three", []order.ServerID{0, 1, 2}, []said{{run, 0, 9}, {run, 2, 7}}, 7},
		{"the highest counts", []order.ServerID{0, 1, 2},
			[]said{{run, 0, 9}, {run, 2, 7}, {run, 2, 5}}, 7},
		{"a member alone", []order.ServerID{3}, []said{{run, 3, 4}}, 4},
		{"two of five", []order.ServerID{0, 1, 2, 5, 7}, []said{{run, 0, 9}, {run, 7, 9}}, 0},
		{"three of five", []order.ServerID{0, 1, 2, 5, 7},
			[]said{{run, 0, 9}, {run, 1, 8}, {run, 7, 7}}, 7},
		{"a server that is no member", []order.ServerID{0, 1}, []said{{run, 0, 9}, {run, 2, 8}}, 0},
		{"another run", []order.ServerID{0, 1}, []said{{run, 0, 9}, {run + 1, 1, 8}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var d Durability
			d.Begin(run, generation.Membership{Members: c.members}, nil)
			for _, s := range c.said {
				d.Stored(s.run, s.member, s.height)
			}
			if got := d.Height(); got != c.want {
				t.Fatalf("durable up to %d, want %d", got, c.want)
			}
			d.End()
			if d.Stored(run, c.members[0], 100); d.Height() != 0 {
				t.Fatalf("durable up to %d after the run", d.Height())
			}
		})
	}
}

// Durability takes a report for every block from every member, so this must not allocate.
func TestWordsTakeNoMemory(t *testing.T) {
	var d Durability
	members := generation.Membership{Members: serversTo(7)}
	former := generation.Membership{Members: serversTo(6)}
	d.Begin(generation.NewRun(1, 0), members, []generation.Former{{Membership: former, Until: 1}})
	height := uint64(0)
	if allocations := testing.AllocsPerRun(100, func() {
		height++
		for _, member := range members.Members {
			d.Stored(generation.NewRun(1, 0), member, height)
			d.Height()
		}
	}); allocations != 0 {
		t.Errorf("%v allocations for a block", allocations)
	}
	if d.Height() != height {
		t.Errorf("durable up to %d, not %d", d.Height(), height)
	}
}

// TestOriginalDisksKeepCounting: a run counts an original disk under the memberships before it was
// replaced, although the chain names it since it was admitted again.
func TestOriginalDisksKeepCounting(t *testing.T) {
	t.Parallel()
	own, other := diskOf(0), diskOf(1)
	for name, c := range map[string]struct {
		self     bool // this member's own disk is original
		original bool // member 1 announced so
		renamed  bool // the chain admitted another disk of this member since
		disk     generation.DiskID
		before   []generation.DiskID
		want     []generation.DiskID
	}{
		"both":    {true, true, false, other, nil, []generation.DiskID{own, other, {}}},
		"none":    {false, false, false, other, nil, []generation.DiskID{{}, {}, {}}},
		"the own": {true, false, false, other, nil, []generation.DiskID{own, {}, {}}},
		"it has another by now": {false, true, false, diskOf(7), nil,
			[]generation.DiskID{{}, {}, {}}},
		"this member has another by the chain": {true, true, true, other, nil,
			[]generation.DiskID{{}, other, {}}},
		"named before": {true, true, false, other, []generation.DiskID{diskOf(8), {}, diskOf(9)},
			[]generation.DiskID{diskOf(8), other, diskOf(9)}},
	} {
		m, _ := newTestMember(t, 3)
		m.config.Disk.ID, m.config.Disk.Original = own, c.self
		p := m.peer(1)
		p.Disk, p.Original = c.disk, c.original
		m.peer(2).Original = true // and never announced a disk
		before := generation.Membership{Members: serversTo(3), Disks: c.before}
		now := generation.Membership{Members: serversTo(3),
			Disks: []generation.DiskID{own, other, {}}}
		if c.renamed {
			now.Disks[0] = diskOf(8)
		}
		kept := slices.Clone(c.before)
		got := m.withNames([]generation.Former{{Membership: before, Until: 9}}, &now)
		if len(got) != 1 || got[0].Until != 9 || !slices.Equal(got[0].Membership.Disks, c.want) {
			t.Errorf("%s: %v, want disks %v", name, got, c.want)
		}
		if !slices.Equal(before.Disks, kept) {
			t.Errorf("%s: changed the chain's membership to %v", name, before.Disks)
		}
	}
}

// TestStartNamesOriginalDisks: the memberships with which a run starts have these names too.
func TestStartNamesOriginalDisks(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	chain.durable, chain.changed = 7, 8
	chain.membership.Number, chain.membership.Disks = 1, []generation.DiskID{diskOf(0), {}, {}}
	g := groupOf(3, generation.NewRun(1, 1))
	g.Shard = chain.membership
	m.begin(g)
	m.Ready()
	m.onSaved()
	started := effectsOf[Start](m)
	if len(started) != 1 || len(started[0].Former) != 1 || started[0].Former[0].Until != 8 ||
		!slices.Equal(started[0].Former[0].Membership.Disks, chain.membership.Disks) {
		t.Errorf("starts %+v, want one former membership, which names disk 0", started)
	}
}
