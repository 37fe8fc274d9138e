package tram

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/order"
)

func TestRelayStory(t *testing.T) {
	t.Parallel()
	relay := NewRelay(Binary(7), 1) // parent 0, children 3 and 4
	for _, step := range []struct {
		number  uint64
		to      []order.GroupID
		outcome string
	}{
		{0, groups(1), "delivered"},
		{0, groups(1, 3), "delivered 3:1"},
		{0, groups(3, 4), "3:2 4:1"},
		{0, groups(1, 2), "not covered"}, // enters at the root only
		{0, groups(3, 99), "not covered"},
		{0, nil, "not covered"},
		{2, groups(1, 2), "gap"},
		{1, groups(1, 2), "delivered"},
		{1, groups(1, 2), "duplicate"},
		{2, groups(2, 4, 5), "4:2"},
		{4, groups(1), "gap"},
		{3, groups(5), "not covered"}, // the parent errs; its stream goes on
		{3, groups(1, 5), "duplicate"},
		{4, groups(0, 1, 2, 3, 4, 5, 6), "delivered 3:3 4:3"},
		{^uint64(0), groups(1), "gap"},
	} {
		outcome := relay.Order(Item{Number: step.number, Message: order.Multicast{To: step.to}})
		if got := describe(outcome); got != step.outcome {
			t.Errorf("item %d to %v: %s, want %s", step.number, step.to, got, step.outcome)
		}
	}
	if relay.Position() != 4 || relay.Issued(3) != 3 || relay.Issued(4) != 3 ||
		relay.Issued(2) != 0 || relay.Self() != 1 {
		t.Errorf("position %d, issued %d and %d", relay.Position(), relay.Issued(3),
			relay.Issued(4))
	}
	root := NewRelay(Binary(7), 0)
	if got := root.Order(Item{Number: 1, Message: order.Multicast{To: groups(0)}}); got.Skipped !=
		SkipUncovered || root.Position() != 0 {
		t.Errorf("the root takes an item of a parent: %s", describe(got))
	}
}

// describe formats an outcome in a line.
func describe(o Outcome) string {
	if o.Skipped != SkipNone {
		return o.Skipped.String()
	}
	var words []string
	if o.Delivered {
		words = append(words, "delivered")
	}
	for _, f := range o.Forwards {
		words = append(words, fmt.Sprintf("%d:%d", f.Child, f.Number))
	}
	return strings.Join(words, " ")
}

func TestRelayState(t *testing.T) {
	t.Parallel()
	tree := Binary(7)
	relay := NewRelay(tree, 1)
	for number := range uint64(5) {
		relay.Order(Item{Number: number, Message: order.Multicast{To: groups(1, 3)}})
	}
	state := relay.AppendState(nil)
	again, err := RestoreRelay(tree, 1, state)
	if err != nil || !slices.Equal(again.AppendState(nil), state) {
		t.Fatalf("state %x, error %v; want %x", again.AppendState(nil), err, state)
	}
	clone := relay.Clone()
	clone.Order(Item{Message: order.Multicast{To: groups(4)}})
	if relay.Issued(4) != 0 || clone.Issued(4) != 1 {
		t.Error("a clone and its original share their state")
	}
	for name, bad := range map[string]func() (*Relay, error){
		"empty": func() (*Relay, error) { return RestoreRelay(tree, 1, nil) },
		"one byte more": func() (*Relay, error) {
			return RestoreRelay(tree, 1, append(slices.Clone(state), 0))
		},
		"of another group": func() (*Relay, error) { return RestoreRelay(tree, 2, state) },
		"of a leaf":        func() (*Relay, error) { return RestoreRelay(tree, 3, state) },
		"of no group":      func() (*Relay, error) { return RestoreRelay(tree, 7, state) },
		"a root's position": func() (*Relay, error) {
			return RestoreRelay(tree, 0, append(make([]byte, 3),
				append([]byte{0, 0, 0, 0, 2}, state[8:]...)...))
		},
	} {
		if _, err := bad(); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v, want ErrState", name, err)
		}
	}
}

func FuzzRestoreRelay(f *testing.F) {
	tree := Binary(7)
	f.Add(NewRelay(tree, 1).AppendState(nil))
	f.Add(make([]byte, 32))
	f.Fuzz(func(t *testing.T, state []byte) {
		relay, err := RestoreRelay(tree, 1, state)
		if err == nil && !slices.Equal(relay.AppendState(nil), state) {
			t.Fatalf("%x comes back as %x", state, relay.AppendState(nil))
		}
	})
}

// network is a tree of groups of one ideal replica each. Logs are slices, and streams are carried
// in any order, with repeats.
type network struct {
	tree    *Tree
	history *order.History
	relays  []*Relay
	// streams[g] is the stream from g's parent, as the parent's relay numbered it.
	streams   [][]order.Multicast
	submitted []order.Multicast
	ordered   []map[order.MessageID]bool
	// forgetful plants a bug: a relay that accepts any number.
	forgetful bool
}

func newNetwork(tree *Tree) *network {
	n := &network{tree: tree, streams: make([][]order.Multicast, tree.Groups())}
	sizes := make([]int, tree.Groups())
	for g := range sizes {
		sizes[g] = 1
		n.relays = append(n.relays, NewRelay(tree, order.GroupID(g)))
		n.ordered = append(n.ordered, map[order.MessageID]bool{})
	}
	n.history = order.NewHistory(sizes...)
	return n
}

// submit makes a message enter at a group.
func (n *network) submit(at order.GroupID, to []order.GroupID) string {
	m := order.Multicast{ID: order.MessageID{Sender: order.Replica{Group: at},
		Sequence: uint64(len(n.submitted) + 1)}, To: to}
	n.submitted = append(n.submitted, m)
	n.history.Submit(m.ID, to...)
	return n.put(at, Item{Message: m})
}

// carry puts an entry of a group's stream into its log.
func (n *network) carry(to order.GroupID, number uint64) string {
	return n.put(to, Item{Number: number, Message: n.streams[to][number-1]})
}

// put appends to a group's log. It returns what is wrong, or "".
func (n *network) put(at order.GroupID, item Item) string {
	relay := n.relays[at]
	if n.forgetful && item.Number > 0 {
		relay.position = item.Number - 1
	}
	outcome := relay.Order(item)
	if outcome.Skipped != SkipNone {
		return ""
	}
	n.ordered[at][item.Message.ID] = true
	if outcome.Delivered {
		n.history.Deliver(order.Replica{Group: at}, item.Message.ID)
	}
	for _, f := range outcome.Forwards {
		n.streams[f.Child] = append(n.streams[f.Child], item.Message)
		if f.Number != uint64(len(n.streams[f.Child])) {
			return fmt.Sprintf("group %d numbers entry %d of group %d's stream %d",
				at, len(n.streams[f.Child]), f.Child, f.Number)
		}
	}
	return ""
}

// rest carries on until everything is where it should be.
func (n *network) rest() string {
	for _, g := range n.tree.walk { // parents first
		for number := range n.streams[g] {
			if wrong := n.carry(g, uint64(number)+1); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}

// run drives a network at random and returns what is broken at the end.
func (n *network) run(t *rapid.T) string {
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		wrong := ""
		if g := order.GroupID(rapid.IntRange(0, n.tree.Groups()-1).Draw(t,
			"group")); rapid.Bool().Draw(t, "carry") {
			if length := len(n.streams[g]); length > 0 {
				// Any number, but mostly a due one: out of turn, entries are skipped.
				number := rapid.Uint64Range(1, uint64(length)).Draw(t, "number")
				if due := n.relays[g].Position() + 1; due <= uint64(length) &&
					rapid.Bool().Draw(t, "due") {
					number = due
				}
				wrong = n.carry(g, number)
			}
		} else {
			to := drawDestinations(t, n.tree)
			enter := n.tree.LCA(to)
			for parent, ok := n.tree.Parent(enter); ok &&
				rapid.IntRange(0, 9).Draw(t, "higher") == 0; parent, ok = n.tree.Parent(enter) {
				enter = parent
			}
			wrong = n.submit(enter, to)
		}
		if wrong != "" {
			return wrong
		}
	}
	if wrong := n.rest(); wrong != "" {
		return wrong
	}
	for _, violation := range n.history.Judge(order.AtRest) {
		return violation.Error()
	}
	return ""
}

// TestRelaysMulticast: whatever a group's log does with the streams, the result is atomic
// multicast.
func TestRelaysMulticast(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := newNetwork(drawTree(t, 8))
		if wrong := n.run(t); wrong != "" {
			t.Fatal(wrong)
		}
		for _, m := range n.submitted {
			if n.tree.LCA(m.To) != m.ID.Sender.Group {
				continue
			}
			var span []order.GroupID
			for g := range n.ordered {
				if n.ordered[g][m.ID] {
					span = append(span, order.GroupID(g))
				}
			}
			if want := n.tree.Span(m.To); !slices.Equal(span, want) {
				t.Fatalf("%v to %v is ordered by %v, want %v", m.ID, m.To, span, want)
			}
		}
	})
}

// TestForgetfulRelay: a relay that takes numbers out of turn is detected.
func TestForgetfulRelay(t *testing.T) {
	t.Parallel()
	n := newNetwork(Breadth(3))
	n.forgetful = true
	n.submit(0, groups(1, 2))
	n.submit(0, groups(1, 2))
	n.carry(1, 2)
	n.carry(1, 1)
	if wrong := n.rest(); wrong != "" {
		t.Fatal(wrong)
	}
	if len(n.history.Judge(order.AtRest)) == 0 {
		t.Error("nobody noticed that group 1 took its stream out of turn")
	}
}

func TestOrderAllocatesNothing(t *testing.T) {
	relay := NewRelay(Binary(GroupsMax), 0)
	item := Item{Message: order.Multicast{To: groups(0, 5, 64, 700)}}
	relay.Order(item)
	if count := testing.AllocsPerRun(100, func() { relay.Order(item) }); count != 0 {
		t.Errorf("%v allocations for an item, want none", count)
	}
}

func BenchmarkOrder(b *testing.B) {
	relay := NewRelay(Binary(GroupsMax), 0)
	item := Item{Message: order.Multicast{To: groups(0, 5, 64, 700)}}
	b.ReportAllocs()
	for b.Loop() {
		relay.Order(item)
	}
}

// A group that hangs below another parent takes its stream from there: the old one ends with the
// message of the change, and the new one begins after it, with its own numbers.
func TestRelayRehang(t *testing.T) {
	t.Parallel()
	before, err := NewTree([]order.GroupID{0, 0, 0, 1})
	if err != nil {
		t.Fatal(err)
	}
	after, err := NewTree([]order.GroupID{0, 0, 0, 2})
	if err != nil {
		t.Fatal(err)
	}
	all := []order.GroupID{0, 1, 2, 3}
	const base = 1 << 40
	var relays []*Relay
	for group := range order.GroupID(4) {
		relays = append(relays, NewRelay(before, group))
	}
	numbers := map[order.GroupID]uint64{}
	order3 := func(from order.GroupID, to ...order.GroupID) {
		out := relays[from].Order(Item{Number: numbers[from], Message: order.Multicast{To: to}})
		delete(numbers, from)
		for _, forward := range out.Forwards {
			numbers[forward.Child] = forward.Number
		}
	}
	order3(0, all...)
	order3(1, all...)
	order3(2, all...)
	order3(3, all...)
	for _, relay := range relays {
		relay.Rehang(after, 3, base)
	}
	if relays[1].Issued(3) != 0 || relays[2].Issued(3) != base || relays[3].Position() != base ||
		relays[0].Issued(1) != 1 {
		t.Errorf("issued %d and %d, position %d", relays[1].Issued(3), relays[2].Issued(3),
			relays[3].Position())
	}
	order3(2, 3)
	if numbers[3] != base+1 {
		t.Errorf("entry %d", numbers[3])
	}
	late := relays[3].Order(Item{Number: 2, Message: order.Multicast{To: []order.GroupID{3}}})
	if late.Skipped != SkipDuplicate {
		t.Errorf("a late entry of the old parent is %v", late.Skipped)
	}
	order3(3, 3)
	if relays[3].Position() != base+1 {
		t.Errorf("position %d", relays[3].Position())
	}
}
