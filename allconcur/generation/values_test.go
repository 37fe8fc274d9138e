package generation

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestHeadsInOrder: each of these heads is before all that follow it.
func TestHeadsInOrder(t *testing.T) {
	t.Parallel()
	heads := []Head{
		{Generation: 1, Round: 5, Height: 5}, {Generation: 1, Round: 5, Height: 6},
		{Generation: 1, Round: 6, Height: 4}, {Generation: 2, Round: 1, Height: 1},
	}
	for i, a := range heads {
		for j, b := range heads {
			if a.Before(b) != (i < j) {
				t.Errorf("%+v before %+v: %v", a, b, i >= j)
			}
		}
	}
}

// TestEqualValues changes one field at a time: a difference in any field makes another value.
func TestEqualValues(t *testing.T) {
	t.Parallel()
	round := func() TailRound {
		return TailRound{Round: 3, Epoch: 2, Reliable: true, Origins: members(3),
			Removed: []order.ServerID{4}, Content: [32]byte{1}}
	}
	for name, change := range map[string]func(*TailRound){
		"round": func(r *TailRound) { r.Round++ }, "epoch": func(r *TailRound) { r.Epoch++ },
		"reliable": func(r *TailRound) {
			r.Reliable = false
		}, "origins": func(r *TailRound) { r.Origins = members(2) },
		"removed": func(r *TailRound) {
			r.Removed = nil
		}, "content": func(r *TailRound) { r.Content[1]++ },
	} {
		other := round()
		change(&other)
		if round().Equal(other) || !round().Equal(round()) {
			t.Errorf("another %s: equal", name)
		}
		known := KnownVote{Round: 3, Epoch: 2, Reliable: true, Origins: members(3)}
		if named := name != "removed" && name != "content"; known.isFor(other) == named ||
			!known.isFor(round()) {
			t.Errorf("another %s: a known vote is for both, or for neither", name)
		}
	}
	decision := func() Decision {
		return Decision{Generation: 4, Base: Head{Generation: 3, Round: 2},
			Tail: []TailRound{round()}, Members: members(2), Disks: []DiskID{{1}, {2}}}
	}
	for name, change := range map[string]func(*Decision){
		"generation": func(d *Decision) {
			d.Generation++
		}, "base": func(d *Decision) { d.Base.Hash[3]++ },
		"tail": func(d *Decision) {
			d.Tail[0].Epoch++
		}, "members": func(d *Decision) { d.Members[1] = 7 },
		"disks": func(d *Decision) { d.Disks[1] = DiskID{3} },
		"bound": func(d *Decision) { d.Bound = BoundOf(3) },
	} {
		other := decision()
		change(&other)
		if decision().Equal(other) || !decision().Equal(decision()) {
			t.Errorf("another %s: equal", name)
		}
	}
	membership := func() Membership {
		return Membership{Number: 3, Members: members(2), Disks: []DiskID{{}, {1}}}
	}
	for name, change := range map[string]func(*Membership){
		"number": func(m *Membership) {
			m.Number++
		}, "members": func(m *Membership) { m.Members = []order.ServerID{0, 2} },
		"fewer": func(m *Membership) {
			m.Members = members(1)
		}, "disk": func(m *Membership) { m.Disks[1] = DiskID{2} },
		"another disk": func(m *Membership) { m.Disks[0] = DiskID{2} },
	} {
		other := membership()
		change(&other)
		if membership().Equal(other) || !membership().Equal(membership()) {
			t.Errorf("another %s: equal", name)
		}
	}
	if !(Membership{Members: members(2)}).Equal(Membership{Members: members(2),
		Disks: make([]DiskID, 2)}) {
		t.Error("no disks and disks without names differ")
	}
}

// TestSoundValues breaks one rule at a time.
func TestSoundValues(t *testing.T) {
	t.Parallel()
	sound := func() Decision {
		return Decision{Generation: 4, Base: Head{Generation: 3, Round: 2}, Members: members(3),
			Disks: make([]DiskID, 3),
			Tail: []TailRound{{Round: 3, Origins: members(3), Removed: members(1)}, {Round: 4},
				{Round: 5}}}
	}
	if d := sound(); !d.sound() || d.First() != 6 {
		t.Fatalf("a sound decision is not, or begins with round %d", d.First())
	}
	descending := []order.ServerID{1, 0}
	for name, change := range map[string]func(*Decision){
		"no generation": func(d *Decision) { d.Generation, d.Base.Generation = 0, 0 },
		"base of generation 0": func(d *Decision) {
			d.Generation, d.Base.Generation = 0, ^Generation(0)
		},
		"base of its own":      func(d *Decision) { d.Base.Generation = 4 },
		"base of a later one":  func(d *Decision) { d.Base.Generation = 5 },
		"no members":           func(d *Decision) { d.Members, d.Disks = nil, nil },
		"fewer disks":          func(d *Decision) { d.Disks = d.Disks[:2] },
		"members out of order": func(d *Decision) { d.Members[0] = 2 },
		"a member twice":       func(d *Decision) { d.Members[0] = 1 },
		"four rounds": func(d *Decision) {
			d.Tail = append(d.Tail, TailRound{Round: 6})
		},
		"a gap behind it": func(d *Decision) { d.Base.Round = 1 },
		"a gap between":   func(d *Decision) { d.Tail[1].Round = 5 },
		"origins":         func(d *Decision) { d.Tail[0].Origins = descending },
		"removed":         func(d *Decision) { d.Tail[0].Removed = descending },
	} {
		d := sound()
		change(&d)
		if d.sound() {
			t.Errorf("%s: sound", name)
		}
	}
	for _, c := range []struct {
		m     Membership
		sound bool
	}{
		{Membership{}, true}, {Membership{Members: members(2)}, true},
		{Membership{Members: members(2), Disks: make([]DiskID, 2)}, true},
		{Membership{Members: members(2), Disks: make([]DiskID, 1)}, false},
		{Membership{Members: descending}, false},
		{Membership{Members: descending, Disks: make([]DiskID, 2)}, false},
	} {
		if c.m.sound() != c.sound {
			t.Errorf("%+v: sound %v", c.m, !c.sound)
		}
	}
}

// TestGroupOfADecision: a group leaves out servers that are no longer members, and those whose disk
// no longer counts. A seat belongs to a member with the disk that promised.
func TestGroupOfADecision(t *testing.T) {
	t.Parallel()
	d := Decision{Members: members(4), Disks: []DiskID{{1}, {2}, {3}, {4}}}
	after := Membership{Members: []order.ServerID{0, 1, 2}, Disks: []DiskID{{}, {2}, {9}}}
	if got := d.Group(after); !slices.Equal(got, []order.ServerID{0, 1}) {
		t.Errorf("the group is %v", got)
	}
	for _, c := range []struct {
		server order.ServerID
		disk   DiskID
		seats  bool
	}{{1, DiskID{2}, true}, {1, DiskID{3}, false}, {4, DiskID{4}, false}, {4, DiskID{}, false}} {
		if d.Seats(c.server, c.disk) != c.seats {
			t.Errorf("%+v", c)
		}
	}
}

// TestBallotsInOrder: each of these ballots is less than all that follow it.
func TestBallotsInOrder(t *testing.T) {
	t.Parallel()
	ballots := []Ballot{{}, {1, 0, DiskID{}}, {1, 0, DiskID{1}}, {1, 1, DiskID{}},
		{2, 0, DiskID{9}}, {2, 1, DiskID{0, 1}}}
	for i, a := range ballots {
		for j, b := range ballots {
			if a.Less(b) != (i < j) {
				t.Errorf("%+v less than %+v: %v", a, b, i >= j)
			}
		}
	}
}
