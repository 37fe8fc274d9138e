package clock

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const (
	noon        = Milliseconds(1_700_000_000_000)
	thirtyYears = Milliseconds(30 * 365 * 86_400_000)
)

// of returns the clocks that node 0 knows of this number of members, all at noon at monotonic time
// 0.
func of(members int) *Clocks {
	c := New(0, FaultNone)
	var indexes []MemberIndex
	for i := range members {
		indexes = append(indexes, MemberIndex(i))
	}
	c.SetMembers(indexes)
	return c
}

// A minority of the clocks may show any time, and messages may be late by less than the bound. A
// proposed time is within the bound of a right clock. A node with a right clock that hears a
// majority of right clocks proposes its time.
func TestMinorityOfWildClocks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20_000) {
		random := rand.New(rand.NewPCG(seed, 7))
		n := 1 + random.IntN(9)
		c := of(n)
		wild := map[int]bool{}
		for range random.IntN((n + 1) / 2) {
			wild[random.IntN(n)] = true
		}
		wildClock := func() Milliseconds {
			switch random.IntN(4) {
			case 0:
				return noon + thirtyYears + Milliseconds(random.IntN(3)) // several of them agree
			case 1:
				return Milliseconds(random.Uint64())
			case 2:
				return noon + Milliseconds(random.IntN(60_000)) - 30_000
			}
			return Milliseconds(random.IntN(1000))
		}
		const drift = 2000 // of right clocks, including delays
		own, right := noon, 0
		if wild[0] {
			own = wildClock()
		} else {
			right++
		}
		for member := 1; member < n; member++ {
			if random.IntN(4) == 0 {
				continue
			}
			theirs := noon - Milliseconds(random.IntN(drift))
			if wild[member] {
				theirs = wildClock()
			} else {
				right++
			}
			c.Heard(MemberIndex(member), theirs, time.Minute)
		}
		view := c.View(own, time.Minute)
		if view.Time != NoTime && (view.Time > noon+Bound || view.Time < noon-drift-Bound) {
			t.Fatalf("seed %d: proposes %d from the right time, of %d with wild %v",
				seed, view.Time-noon, n, wild)
		}
		if !wild[0] && right > n/2 && view.Time != own {
			t.Fatalf("seed %d: proposes %d with a right clock and a majority", seed, view.Time)
		}
		if (view.Time != NoTime) != Proven(c.members, view.Near) && own > 0 {
			t.Fatalf("seed %d: proposes %d, and shows %v", seed, view.Time, view.Near)
		}
		if (view.Time == NoTime) == (view.Warning() == "") {
			t.Fatalf("seed %d: time %d, warning %q", seed, view.Time, view.Warning())
		}
	}
}

func TestStories(t *testing.T) {
	t.Parallel()
	type words struct {
		member MemberIndex
		offset Milliseconds // from noon at monotonic time 0
		at     time.Duration
	}
	for _, c := range []struct {
		name    string
		members int
		heard   []words
		own     Milliseconds
		at      time.Duration
		want    Milliseconds // NoTime if none
		offset  Milliseconds
		warning string
	}{
		{"a shard of one", 1, nil, noon, 0, noon, 0, ""},
		{"alone of three", 3, nil, noon + thirtyYears, 0, 0, 0, "1 of 3 members"},
		{"a majority", 3, []words{{1, 5, 0}}, noon, 0, noon, 0, ""},
		{"of two, both", 2, []words{{1, 5, 0}}, noon, 0, noon, 0, ""},
		{"of two, one is off", 2, []words{{1, thirtyYears, 0}}, noon, 0, 0, 0, "only 1 of 2"},
		{"30 years ahead", 3, []words{{1, 0, 0}, {2, 4, 0}}, noon + thirtyYears, 0,
			0, thirtyYears - 4, "30 years ahead of"},
		{"a minute behind", 3, []words{{1, 0, 0}, {2, 4, 0}}, noon - 60_000, 0, 0, -60_000,
			"1m0s behind"},
		{"two others are 30 years ahead", 5, []words{{1, thirtyYears, 0}, {2, thirtyYears, 0},
			{3, 1, 0}, {4, 2, 0}}, noon, 0, noon, -2, ""},
		{"all differ", 3, []words{{1, thirtyYears, 0}, {2, -60_000, 0}}, noon, 0, 0,
			0, "only 1 of 3 are within 10s"},
		{"what was said is old", 3, []words{{1, 0, 0}, {2, 0, 0}}, noon + 6000, 6 * time.Second,
			0, 0, "1 of 3 members"},
		{"it goes on in between", 3, []words{{1, 0, 0}}, noon + 4000, 4 * time.Second, noon + 4000,
			0, ""},
		{"own clock jumps", 3, []words{{1, 0, 0}, {2, 0, 0}}, noon + thirtyYears, time.Second,
			0, thirtyYears - 1000, "30 years ahead of"},
		{"late messages", 3, []words{{1, 0, 0}, {1, -30_000, time.Second},
			{1, -29_000, 2 * time.Second}}, noon + 2000, 2 * time.Second, noon + 2000, 0, ""},
		{"a queue empties", 3, []words{{1, -60_000, 0}, {1, -30_000, 0}, {1, 0, 0}}, noon, 0,
			noon, 0, ""},
		{"a stranger", 3, []words{{7, 0, 0}}, noon, 0, 0, 0, "1 of 3 members"},
		{"itself", 3, []words{{0, 0, 0}}, noon, 0, 0, 0, "1 of 3 members"},
	} {
		clocks := of(c.members)
		for _, said := range c.heard {
			clocks.Heard(said.member, noon+said.offset, said.at)
		}
		view := clocks.View(c.own, c.at)
		if view.Time != c.want || view.Known && view.Offset != c.offset {
			t.Errorf("%s: time %d, want %d; offset %d, want %d", c.name, view.Time,
				c.want, view.Offset, c.offset)
		}
		if warning := view.Warning(); c.warning == "" && warning != "" ||
			!strings.Contains(warning, c.warning) {
			t.Errorf("%s: %q", c.name, warning)
		}
	}
}

// A node that left or has not joined proposes no time. The samples of a member that left are
// dropped.
func TestMembersChange(t *testing.T) {
	t.Parallel()
	c := of(3)
	c.Heard(1, noon, 0)
	c.SetMembers([]MemberIndex{0, 2, 5})
	if view := c.View(noon, 0); view.Time != NoTime || view.Heard != 1 {
		t.Errorf("after a member left: %+v", view)
	}
	c.Heard(5, noon, 0)
	if view := c.View(noon, 0); view.Time != noon {
		t.Errorf("with the new member: %+v", view)
	}
	c.SetMembers([]MemberIndex{2, 5})
	if view := c.View(noon, 0); view.Time != NoTime || view.Warning() != "" {
		t.Errorf("as no member: %+v", view)
	}
}

func TestChainWarning(t *testing.T) {
	t.Parallel()
	view := of(1).View(noon, 0)
	if warning := view.ChainWarning(noon + Bound); warning != "" {
		t.Error(warning)
	}
	if warning := view.ChainWarning(noon + thirtyYears); !strings.Contains(warning,
		"30 years ahead of") {
		t.Error(warning)
	}
}

// The number of kept samples is bounded, however many arrive.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	c := of(2)
	for i := range 100_000 {
		c.Heard(1, noon+Milliseconds(i), time.Duration(i)*time.Millisecond)
	}
	if kept := len(c.heard[1]); kept != 1 {
		t.Errorf("%d samples of a steady clock", kept)
	}
	for i := range 100_000 {
		c.Heard(1, noon-Milliseconds(i), time.Duration(200_000+i)*time.Millisecond)
	}
	if kept := len(c.heard[1]); kept > int(HeardLasts.Milliseconds())+1 {
		t.Errorf("%d samples of a clock that falls behind", kept)
	}
}
