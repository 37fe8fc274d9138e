package verdicts

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// groupBook is a vouched exchange of a member of shard 0, and its chain as plain maps. Shards 1 and
// 2 have three members each.
type groupBook struct {
	*Exchange
	takes   bool
	arrived map[ledger.Hash]bool
	over    map[Key]bool
}

func newGroupBook(fault Fault, change func(*Bounds)) *groupBook {
	bounds := DefaultBounds()
	if change != nil {
		change(&bounds)
	}
	b := &groupBook{takes: true, arrived: map[ledger.Hash]bool{}, over: map[Key]bool{}}
	b.Exchange = New(Config{Vouched: true, Shards: func() int { return 3 }, Bounds: bounds,
		Members: func(ledger.ShardID) []ledger.MemberIndex { return []ledger.MemberIndex{0, 1, 2} },
		Groups:  func() bool { return b.takes }, Fault: fault})
	return b
}

func (b *groupBook) standing(verdict *ledger.Verdict) (Standing, error) {
	known := b.arrived[verdict.ID]
	return StandingOf(known && !b.over[KeyOf(verdict)], known), nil
}

// tell makes members tell a group.
func (b *groupBook) tell(told ledger.VerdictGroup, members ...ledger.MemberIndex) {
	for _, index := range members {
		b.HearGroup(Member{told.Shard, index}, told, told.ID())
	}
}

// judge judges all that was received.
func (b *groupBook) judge() {
	for _, verdict := range b.TakeReceived(1 << 16) {
		if standing, _ := b.standing(&verdict); !b.Knows(KeyOf(&verdict)) {
			b.Place(&verdict, standing, b.Blocks())
		}
	}
	for {
		judged, any := b.TakeGroup()
		if !any {
			return
		}
		_ = judged.Judge(b.standing) // only ever nil
		b.PlaceGroup(&judged, b.Blocks())
	}
}

// arrive applies a block with transactions, and take one with verdicts.
func (b *groupBook) arrive(ids ...ledger.Hash) {
	block := &ledger.Block{}
	for _, id := range ids {
		b.arrived[id] = true
		block.Unpacked = append(block.Unpacked, ledger.Entry{ID: id,
			Decoded: &ledger.Transaction{}, Result: good})
	}
	b.Applied(block)
}

func (b *groupBook) take(code ledger.Code, taken ...ledger.Verdict) {
	block := &ledger.Block{}
	for i := range taken {
		b.over[KeyOf(&taken[i])] = true
		for shard := range ledger.ShardID(3) {
			if code != ledger.Applied {
				b.over[Key{ID: taken[i].ID, Shard: shard}] = true
			}
		}
		block.Unpacked = append(block.Unpacked, ledger.Entry{ID: ledger.Hash{byte(i), 99},
			Decoded: &ledger.Transaction{Verdict: &taken[i]}, Result: ledger.Result{Code: code}})
	}
	b.Applied(block)
}

func (b *groupBook) proposes() (groups []ledger.VerdictGroup) {
	groups, _ = b.ProposeWithin(1<<20, ledger.MaxBatchVerdicts, 0, 0)
	return groups
}

// look takes a look at all that waits.
func (b *groupBook) look(a *Asking, now time.Duration) []Question {
	var pending []state.Pending
	for _, id := range slices.SortedFunc(maps.Keys(b.arrived), func(x, y ledger.Hash) int {
		return Key{ID: x}.order(Key{ID: y})
	}) {
		one := state.Pending{ID: id}
		for shard := ledger.ShardID(1); shard < 3; shard++ {
			if !b.over[Key{ID: id, Shard: shard}] {
				one.Waits = append(one.Waits, shard)
			}
		}
		if len(one.Waits) > 0 {
			pending = append(pending, one)
		}
	}
	due := a.Overdue(pending, now, false)
	b.Sweep(a)
	questions, _ := b.Questions(a, due, now, 1<<10, 2)
	return questions
}

func groupOf(shard ledger.ShardID, ids ...int) ledger.VerdictGroup {
	group := ledger.VerdictGroup{Shard: shard}
	for _, id := range ids {
		group.IDs = append(group.IDs, name(id))
	}
	return group
}

// scenarios are runs of a group, each with what it proves. They return a text if it does not hold.
// Each of the faults breaks at least one of them.
var scenarios = map[string]func(fault Fault) string{
	"one word is too few": func(fault Fault) string {
		b := newGroupBook(fault, nil)
		b.arrive(name(1), name(2))
		b.tell(groupOf(1, 1, 2), 0, 0)
		if b.judge(); len(b.proposes()) > 0 {
			return "a group that one member told is proposed"
		}
		if b.tell(groupOf(1, 1, 2), 2); b.Counts().Received != 2 {
			return "a group that two members told is not believed"
		}
		if b.judge(); len(b.proposes()) != 1 || b.Counts().Awaited != 2 {
			return "a believed group is not proposed"
		}
		return ""
	},
	"halves are other groups": func(fault Fault) string {
		b := newGroupBook(fault, nil)
		b.arrive(name(1), name(2), name(3))
		b.tell(groupOf(1, 1, 3), 0)
		b.tell(groupOf(1, 1, 2, 3), 1)
		b.tell(groupOf(2, 1, 3), 1)
		if b.judge(); len(b.proposes()) > 0 {
			return "words on two groups count as words on one"
		}
		return ""
	},
	"judged again when one is taken": func(fault Fault) string {
		b := newGroupBook(fault, nil)
		group := groupOf(1, 1, 2, 3)
		b.arrive(group.IDs...)
		b.tell(group, 0, 1)
		b.judge()
		b.take(ledger.Settled, group.Verdict(0))
		if b.judge(); len(b.proposes()) != 1 {
			return "a group of which verdicts are awaited is proposed no more"
		}
		b.take(ledger.Settled, group.Verdict(1), group.Verdict(2))
		if b.judge(); len(b.proposes()) > 0 || len(b.groups.by) > 0 {
			return "a group that is over is proposed"
		}
		if b.tell(group, 2); len(b.groups.by) > 0 || b.Counts().Words > 0 {
			return "a late word on a group makes a new one"
		}
		return ""
	},
	"proposed when one arrives": func(fault Fault) string {
		b := newGroupBook(fault, nil)
		b.tell(groupOf(1, 1, 2), 0, 1)
		if b.judge(); b.Counts().Early != 2 {
			return "the group is not early"
		}
		b.arrive(name(1))
		if b.judge(); len(b.proposes()) != 1 {
			return "the group is not proposed when its transaction arrives"
		}
		return ""
	},
	"over with another shard's verdict": func(fault Fault) string {
		b := newGroupBook(fault, nil)
		b.arrive(name(1), name(2))
		b.tell(groupOf(1, 1, 2), 0, 1)
		b.judge()
		bad := groupOf(2, 1, 2)
		b.take(ledger.Released, bad.Verdict(0), bad.Verdict(1))
		if b.judge(); len(b.proposes()) > 0 {
			return "the group is proposed"
		}
		return ""
	},
}

// TestGroups: each run holds without faults, and each fault breaks a run.
func TestGroups(t *testing.T) {
	t.Parallel()
	for what, run := range scenarios {
		if wrong := run(FaultNone); wrong != "" {
			t.Errorf("%s: %s", what, wrong)
		}
	}
	for _, fault := range []Fault{FaultQuorumOfOne, FaultGroupOfOne, FaultGroupUnchecked,
		FaultWatchedOnce, FaultForgetArrived} {
		found := false
		for _, run := range scenarios {
			found = found || run(fault) != ""
		}
		if !found {
			t.Errorf("fault %d breaks nothing", fault)
		}
	}
}

// TestGroupsFollowTheChain: whatever happens, after a look exactly the believed groups are proposed
// of which a verdict is awaited, and those are kept of which a transaction may arrive.
func TestGroupsFollowTheChain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newGroupBook(FaultNone, nil)
		told := []ledger.VerdictGroup{groupOf(1, 0, 1, 2), groupOf(1, 3, 4), groupOf(2, 1, 3, 5),
			groupOf(1, 2, 3), groupOf(2, 0, 4)}
		said, ids := make([]map[ledger.MemberIndex]bool, len(told)), rapid.IntRange(0, 5)
		for i := range said {
			said[i] = map[ledger.MemberIndex]bool{}
		}
		asking := NewAsking(time.Second, time.Second)
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1:
				at := rapid.IntRange(0, len(told)-1).Draw(t, "group")
				by := ledger.MemberIndex(rapid.IntRange(0, 2).Draw(t, "member"))
				said[at][by] = true
				b.tell(told[at], by)
			case 2:
				b.arrive(name(ids.Draw(t, "arrives")))
			case 3, 4:
				var taken []ledger.Verdict
				shard := ledger.ShardID(rapid.IntRange(1, 2).Draw(t, "shard"))
				for id := range 6 {
					verdict := ledger.Verdict{ID: name(id), Shard: shard, Result: good}
					at, _ := b.standing(&verdict)
					if at == Awaited && rapid.Bool().Draw(t, "taken") {
						taken = append(taken, verdict)
					}
				}
				b.take(rapid.SampledFrom([]ledger.Code{ledger.Applied, ledger.Settled}).
					Draw(t, "code"), taken...)
			case 5:
				b.judge()
			default:
				b.look(asking, time.Duration(step)*time.Second)
			}
		}
		b.look(asking, time.Hour)
		b.judge()
		var want, got []string
		kept := 0
		for i := range told {
			if len(said[i]) < 2 {
				continue
			}
			awaited, waits := false, false
			for j := range told[i].IDs {
				verdict := told[i].Verdict(j)
				at, _ := b.standing(&verdict)
				awaited, waits = awaited || at == Awaited, waits || at == Early
			}
			if awaited {
				want = append(want, fmt.Sprint(told[i]))
			} else if waits {
				kept += len(told[i].IDs)
			}
		}
		for _, group := range b.proposes() {
			got = append(got, fmt.Sprint(group))
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) || b.Counts().Early != kept {
			t.Fatalf("proposed %v, want %v; %d are early, want %d", got, want, b.Counts().Early,
				kept)
		}
		if facts := len(b.groups.awaited) + len(b.groups.early); factsIn(t, &b.facts) > facts {
			t.Fatalf("%d facts for %d groups", factsIn(t, &b.facts), facts)
		}
		for id := range 6 {
			b.take(ledger.Settled, ledger.Verdict{ID: name(id), Shard: 1, Result: good},
				ledger.Verdict{ID: name(id), Shard: 2, Result: good})
			b.arrived[name(id)] = true
		}
		b.look(asking, 2*time.Hour)
		if b.judge(); len(b.groups.awaited)+len(b.groups.early) > 0 {
			t.Fatal("groups that are over are kept")
		}
	})
}

// A verdict of a group that is proposed is not asked for. One of a group that is not believed, or
// that was dropped, is.
func TestGroupsAreNotAskedFor(t *testing.T) {
	t.Parallel()
	b := newGroupBook(FaultNone, func(bounds *Bounds) { bounds.Awaited = 3 })
	b.arrive(name(1), name(2), name(3), name(4), name(5))
	b.tell(groupOf(1, 1, 2), 0, 1)
	b.tell(groupOf(1, 4, 5), 0)
	asking := NewAsking(time.Second, time.Second)
	b.look(asking, 0)
	questions := b.look(asking, time.Minute) // before it is judged, too
	if b.judge(); len(questions) != 2 || len(questions[0].IDs) != 3 || len(questions[1].IDs) != 5 {
		t.Fatalf("asked %v", questions)
	}
	if questions = b.look(asking, 2*time.Minute); len(questions[0].IDs) != 3 {
		t.Errorf("asked %v", questions)
	}
	// Only one of two groups has room: the first one in canonical order.
	b.tell(groupOf(1, 4, 5), 1)
	b.judge()
	first := groupOf(1, 1, 2)
	if other := groupOf(1, 4, 5); byID(&group{id: other.ID()}, first.ID()) < 0 {
		first = other
	}
	if proposed := b.proposes(); len(proposed) != 1 || proposed[0].ID() != first.ID() {
		t.Errorf("proposed %v", proposed)
	}
	if questions = b.look(asking, 3*time.Minute); len(questions[0].IDs) != 3 {
		t.Errorf("asked %v", questions)
	}
}

// After Reset all groups are judged anew, also those that were over, as single verdicts.
func TestGroupsAfterReset(t *testing.T) {
	t.Parallel()
	b := newGroupBook(FaultNone, nil)
	group, over := groupOf(1, 1, 2), groupOf(1, 3, 4)
	b.arrive(name(1), name(2), name(3), name(4))
	b.tell(group, 0, 1)
	b.tell(over, 0, 1)
	b.judge()
	b.take(ledger.Settled, group.Verdict(0), over.Verdict(0), over.Verdict(1))
	b.judge()
	judged, _ := b.TakeGroup() // none
	b.PlaceGroup(&judged, b.Blocks())
	clear(b.arrived)
	clear(b.over)
	b.Reset()
	if b.judge(); len(b.proposes()) > 0 || b.Counts().Early != 2 {
		t.Errorf("%+v", b.Counts())
	}
	b.arrive(name(1), name(3))
	if b.judge(); len(b.proposes()) != 1 {
		t.Error("the group is not proposed again")
	}
	asking := NewAsking(time.Second, time.Second)
	b.look(asking, 0)
	if asked := b.look(asking, time.Minute); len(asked) != 2 || len(asked[0].IDs) != 1 {
		t.Errorf("asked %v", asked)
	}
	// A group that is being judged meanwhile is judged again.
	b.again(b.groups.awaited[0])
	judged, _ = b.TakeGroup()
	_ = judged.Judge(func(*ledger.Verdict) (Standing, error) { return Over, nil })
	b.Reset()
	if b.PlaceGroup(&judged, b.Blocks()); b.Counts().Received != 2 {
		t.Errorf("%+v", b.Counts())
	}
}

// Before its version a chain takes no groups: what is told in groups is proposed as single
// verdicts. So it is if the chain is replaced by one that does not take them any more.
func TestGroupsBeforeTheirVersion(t *testing.T) {
	t.Parallel()
	for _, later := range []bool{false, true} {
		b := newGroupBook(FaultNone, nil)
		b.takes = later
		b.arrive(name(1), name(2))
		b.tell(groupOf(1, 1, 2), 0, 1)
		b.tell(groupOf(1, 3, 4), 1)
		if b.judge(); later {
			b.takes = false
			b.Reset()
			b.judge()
			b.look(NewAsking(time.Second, time.Second), 0)
			b.judge()
		}
		groups, verdicts := b.ProposeWithin(1<<20, 1<<10, 0, 0)
		if len(groups) > 0 || len(verdicts) != 2 || b.Counts().Awaited != 2 {
			t.Errorf("later %v: %v and %v are proposed", later, groups, verdicts)
		}
	}
}

// Members propose the same first groups and verdicts, within the room.
func TestProposeWithin(t *testing.T) {
	t.Parallel()
	b := newGroupBook(FaultNone, nil)
	for i := range 40 {
		b.arrive(name(i))
	}
	for i := range 10 {
		b.tell(groupOf(1, 3*i, 3*i+1, 3*i+2), 0, 1)
	}
	for i := 30; i < 40; i++ {
		for index := range ledger.MemberIndex(2) {
			b.Hear(Member{1, index}, []ledger.Verdict{{ID: name(i), Shard: 1, Result: good}})
		}
	}
	b.judge()
	all, singles := b.ProposeWithin(1<<20, ledger.MaxBatchVerdicts, 0, 0)
	if len(all) != 10 || len(singles) != 10 || !slices.IsSortedFunc(all,
		func(a, b ledger.VerdictGroup) int { return byID(&group{id: a.ID()}, b.ID()) }) {
		t.Fatalf("%d groups and %d verdicts", len(all), len(singles))
	}
	first := ledger.VerdictGroupSize(3)
	for _, test := range []struct{ room, most, groups, singles, parts int }{
		{1 << 20, 0, 0, 0, 0}, {0, 100, 0, 0, 0}, {1 << 20, 1, 0, 0, 1}, {1 << 20, 4, 1, 1, 0},
		{1 << 20, 12, 3, 3, 0}, {1 << 20, 40, 10, 10, 0}, {1 << 20, 36, 9, 9, 0},
		{1 << 20, 39, 10, 9, 0}, {1 << 20, 35, 9, 8, 0}, {1 << 20, 10, 2, 2, 2},
		{3*first + ledger.VerdictSize*3, 100, 3, 2, 1},
		{first, 100, 1, 0, 0}, {first - 1, 100, 0, 0, 2}, {20, 100, 0, 0, 0},
	} {
		groups, verdicts := b.ProposeWithin(test.room, test.most, 0, 0)
		size, parts := 0, 0
		for i := range groups {
			size += ledger.VerdictGroupSize(len(groups[i].IDs))
		}
		for i := range verdicts {
			if binary.BigEndian.Uint32(verdicts[i].ID[8:]) < 30 {
				parts++
			}
		}
		if size+len(verdicts)*ledger.VerdictSize > test.room ||
			3*len(groups)+len(verdicts) > test.most {
			t.Errorf("%+v: %d groups and %d verdicts are too much", test, len(groups),
				len(verdicts))
		}
		if len(groups) != test.groups || len(verdicts)-parts != test.singles ||
			parts != test.parts || !slices.IsSortedFunc(verdicts, func(a, b ledger.Verdict) int {
			return KeyOf(&a).order(KeyOf(&b))
		}) || fmt.Sprint(groups) != fmt.Sprint(all[:len(groups)]) {
			t.Errorf("%+v: %d, %d and %d", test, len(groups), len(verdicts)-parts, parts)
		}
	}
	// A group that never fits is taken in parts all the same.
	taken := 0
	for len(b.groups.awaited) > 0 && taken < 100 {
		_, verdicts := b.ProposeWithin(1<<20, 2, 0, 0)
		if taken += len(verdicts); len(verdicts) == 0 {
			t.Fatal("nothing is proposed")
		}
		b.take(ledger.Applied, verdicts...)
		b.judge()
	}
	if len(b.groups.by) > 0 {
		t.Errorf("%d groups are left", len(b.groups.by))
	}
}

// A member that invents groups pushes out its own words only, and memory for words is bounded.
func TestGroupWordsAreBounded(t *testing.T) {
	t.Parallel()
	b := newGroupBook(FaultNone, func(bounds *Bounds) { bounds.Grouped = 6 * 100 })
	b.arrive(name(1), name(2))
	b.tell(groupOf(1, 1, 2), 0)
	for i := range 100 {
		b.tell(groupOf(1, 10+3*i, 11+3*i, 12+3*i), 2)
	}
	if words := b.Counts().Words; words > 2+100 || len(b.groups.by) > 10 || b.dropped == 0 {
		t.Errorf("%d words on %d groups", words, len(b.groups.by))
	}
	b.tell(groupOf(1, 1, 2), 1)
	if b.judge(); len(b.proposes()) != 1 {
		t.Error("the words of others are lost")
	}
	// What is believed is bounded, too.
	b = newGroupBook(FaultNone, func(bounds *Bounds) { bounds.Received, bounds.Early = 4, 4 })
	for i := range 3 {
		b.tell(groupOf(1, 2*i, 2*i+1), 0, 1)
	}
	if b.Counts().Received != 4 || b.dropped != 2 {
		t.Errorf("%+v", b.Counts())
	}
	b.judge()
	b.tell(groupOf(1, 8, 9), 0, 1)
	if b.judge(); b.Counts().Early != 4 || b.groups.by[groupID(1, 0, 1)] != nil {
		t.Errorf("%+v", b.Counts())
	}
}

func groupID(shard ledger.ShardID, ids ...int) ledger.Hash {
	group := groupOf(shard, ids...)
	return group.ID()
}

// The words of members that left do not count, and fewer may be enough then.
func TestGroupWordsOfPresentMembers(t *testing.T) {
	t.Parallel()
	present := []ledger.MemberIndex{0, 1, 2}
	x := New(Config{Vouched: true, Shards: func() int { return 2 }, Bounds: DefaultBounds(),
		Members: func(ledger.ShardID) []ledger.MemberIndex { return present },
		Groups:  func() bool { return true }})
	told := groupOf(1, 1, 2)
	x.HearGroup(Member{1, 0}, told, told.ID())
	present = []ledger.MemberIndex{1, 2}
	if x.Recount(); x.Counts().Words != 0 || len(x.groups.by) > 0 {
		t.Error("a word of a member that left is kept")
	}
	x.HearGroup(Member{1, 1}, told, told.ID())
	present = []ledger.MemberIndex{1}
	if x.Recount(); x.Counts().Received != 2 {
		t.Error("the word of the only member is not enough")
	}
}

// Verdicts of groups that are believed to be bad are counted, and a believed group has none.
func TestAgainstGroups(t *testing.T) {
	t.Parallel()
	b := newGroupBook(FaultNone, nil)
	b.Believe(&ledger.Verdict{ID: name(2), Shard: 1,
		Result: ledger.Result{Code: ledger.InsufficientFunds}})
	b.tell(groupOf(1, 4, 5), 0, 1)
	told := []ledger.VerdictGroup{groupOf(1, 1, 2), groupOf(2, 1, 2), groupOf(1, 4, 5)}
	ids := []ledger.Hash{told[0].ID(), told[1].ID(), told[2].ID()}
	if count := b.AgainstGroups(told, ids); count != 1 {
		t.Errorf("%d are against what is believed", count)
	}
}

// TestSplit: what a block tells depends on the block alone, and each verdict is told once.
func TestSplit(t *testing.T) {
	t.Parallel()
	var own []state.OwnVerdict
	add := func(id int, result ledger.Result, to ...ledger.ShardID) {
		own = append(own, state.OwnVerdict{To: to,
			Verdict: ledger.Verdict{ID: name(id), Shard: 3, Result: result}})
	}
	for i := ledger.MaxVerdictGroup + 1; i > 0; i-- {
		add(i, good, 1)
	}
	add(5000, ledger.Result{Code: ledger.InsufficientFunds}, 1, 2)
	add(5002, good, 2, 4)
	add(5001, good, 2)
	parts := Split(own)
	if len(parts) != 3 || parts[0].To != 1 || parts[1].To != 2 || parts[2].To != 4 {
		t.Fatalf("%d parts", len(parts))
	}
	first := &parts[0]
	if len(first.Groups) != 1 || len(first.Groups[0].IDs) != ledger.MaxVerdictGroup ||
		first.Groups[0].IDs[0] != name(1) || first.Groups[0].Validate() != nil ||
		len(first.Singles) != 2 || first.Singles[0].ID != name(5000) ||
		first.Singles[1] != (ledger.Verdict{ID: name(ledger.MaxVerdictGroup + 1), Shard: 3,
			Result: good}) {
		t.Errorf("shard 1: %d groups, %v", len(first.Groups), first.Singles)
	}
	if want := groupOf(3, 5001, 5002); len(parts[1].Groups) != 1 ||
		!slices.Equal(parts[1].Groups[0].IDs, want.IDs) || len(parts[1].Singles) != 1 ||
		len(parts[2].Groups) != 0 || len(parts[2].Singles) != 1 {
		t.Errorf("%+v", parts[1:])
	}
	if len(Split(nil)) != 0 {
		t.Error("parts of nothing")
	}
}
