package tram

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// ErrState is returned for bytes that are not a Relay's state, or not the state of this group in
// this tree.
var ErrState = errors.New("bad relay state")

// Item is an entry of a group's log, as the relay reads it.
type Item struct {
	// Number is 0 for a message that a client entered at this group. Otherwise it is the message's
	// number in the parent's stream, which starts at 1.
	Number uint64
	// Message is the message to order. The relay keeps none of its slices.
	Message order.Multicast
}

// Skip is the reason why an item has no effect.
type Skip uint8

const (
	// SkipNone means that the item took effect.
	SkipNone Skip = iota
	// SkipDuplicate means that the item with this number was taken before.
	SkipDuplicate
	// SkipGap means that an item with a smaller number has not been taken yet. The item must be put
	// into the log again, behind the missing ones.
	SkipGap
	// SkipUncovered means that the message does not concern this group. It entered here and has a
	// destination out of reach, or it came from the parent and has no destination within reach, or
	// it claims to come from a parent although this group is the root. Except at the root, an item
	// from the parent uses up its number all the same.
	SkipUncovered
)

// String returns the name of the reason.
func (s Skip) String() string {
	switch s {
	case SkipNone:
		return "taken"
	case SkipDuplicate:
		return "duplicate"
	case SkipGap:
		return "gap"
	case SkipUncovered:
		return "not covered"
	default:
		return fmt.Sprintf("skip(%d)", uint8(s))
	}
}

// Forward is a message's place in a child's stream.
type Forward struct {
	Child order.GroupID
	// Number counts the child's stream from 1, without gaps.
	Number uint64
}

// Outcome is the effect of an item on its group.
type Outcome struct {
	// Delivered reports whether the group is a destination. If so, its replicas A-deliver the
	// message now [TRAM, Algorithm 2, step 2.4].
	Delivered bool
	// Forwards are the message's places in the children's streams, by ascending child [TRAM,
	// Algorithm 2, step 2.5]. The relay owns the slice. It is valid until the next call of Order.
	Forwards []Forward
	// Skipped is the reason why the item had no effect. Both other fields are empty unless it is
	// SkipNone.
	Skipped Skip
}

// Relay is one group's part of TRAM over any log of the group. Its caller feeds it the items that
// the log orders, one by one. The relay returns what the group A-delivers and what goes into the
// numbered stream of each child. It is a pure state machine: all replicas of a group that feed it
// the same log produce the same streams. It is not safe for concurrent use.
type Relay struct {
	tree     *Tree
	self     order.GroupID
	position uint64
	// issued is the last number of each child's stream, in the order of Tree.Children.
	issued   []uint64
	route    []order.GroupID
	forwards []Forward
}

// NewRelay returns the relay of a group, with nothing ordered yet. It panics if the tree does not
// have the group.
func NewRelay(tree *Tree, self order.GroupID) *Relay {
	if !tree.Has(self) {
		panic(fmt.Sprintf("tram: group %d is not one of the tree's %d", self, tree.Groups()))
	}
	return &Relay{tree: tree, self: self, issued: make([]uint64, len(tree.Children(self)))}
}

// Order takes the next item of the log. It stops allocating once it has seen every number of
// children.
func (r *Relay) Order(item Item) Outcome {
	to := item.Message.To
	if item.Number == 0 {
		if !r.tree.Covers(r.self, to) {
			return Outcome{Skipped: SkipUncovered}
		}
	} else {
		if r.self == r.tree.root {
			return Outcome{Skipped: SkipUncovered}
		}
		if item.Number <= r.position {
			return Outcome{Skipped: SkipDuplicate}
		}
		if item.Number > r.position+1 {
			return Outcome{Skipped: SkipGap}
		}
		// The number is used up whatever the item holds. Otherwise the stream would wait forever.
		r.position = item.Number
	}
	delivered := slices.Contains(to, r.self)
	r.route = r.tree.AppendRoute(r.route[:0], r.self, to)
	if !delivered && len(r.route) == 0 {
		return Outcome{Skipped: SkipUncovered}
	}
	r.forwards = r.forwards[:0]
	for _, child := range r.route {
		at := r.place(child)
		r.issued[at]++
		r.forwards = append(r.forwards, Forward{Child: child, Number: r.issued[at]})
	}
	return Outcome{Delivered: delivered, Forwards: r.forwards}
}

// place returns the index of a child among the children. It panics if the group is not a child.
func (r *Relay) place(child order.GroupID) int {
	at, exact := slices.BinarySearch(r.tree.children[r.self], child)
	if !exact {
		panic(fmt.Sprintf("tram: a route of group %d leads to group %d, which is no child of it",
			r.self, child))
	}
	return at
}

// Self returns the relay's group.
func (r *Relay) Self() order.GroupID { return r.self }

// Position returns the number of the last item taken from the parent's stream, or 0 if there is
// none. The next item to take has this number plus 1.
func (r *Relay) Position() uint64 { return r.position }

// Issued returns the last number of a child's stream. It returns 0 if the stream is empty or the
// group is not a child.
func (r *Relay) Issued(child order.GroupID) uint64 {
	at, exact := slices.BinarySearch(r.tree.children[r.self], child)
	if !exact {
		return 0
	}
	return r.issued[at]
}

// Clone returns an independent relay in the same state. Both share the tree.
func (r *Relay) Clone() *Relay {
	return &Relay{tree: r.tree, self: r.self, position: r.position, issued: slices.Clone(r.issued)}
}

// Grow makes the relay go on in a tree that has further groups, whose numbers are above those of
// the groups before. The streams to new children are empty. It panics if the tree does not have the
// group's former children.
func (r *Relay) Grow(tree *Tree) {
	before, children := r.tree.Children(r.self), tree.Children(r.self)
	if len(children) < len(before) || !slices.Equal(children[:len(before)], before) {
		panic(fmt.Sprintf("tram: group %d had the children %v, and has %v in the grown tree",
			r.self, before, children))
	}
	r.tree = tree
	r.issued = append(r.issued, make([]uint64, len(children)-len(before))...)
}

// Rehang makes the relay go on in a tree in which a group hangs below another parent. The stream to
// the group from its new parent begins with the entry after this number, which is above all numbers
// of streams to the group before. It ends the stream from the old parent. Call it after the message
// with the change was ordered. It panics if the tree does not have the relay's group.
func (r *Relay) Rehang(tree *Tree, group order.GroupID, number uint64) {
	if !tree.Has(r.self) {
		panic(fmt.Sprintf("tram: group %d is not one of the tree's %d", r.self, tree.Groups()))
	}
	children := tree.Children(r.self)
	issued := make([]uint64, len(children))
	for i, child := range children {
		if issued[i] = r.Issued(child); child == group {
			issued[i] = number
		}
	}
	r.tree, r.issued = tree, issued
	if r.self == group {
		r.position = max(r.position, number)
	}
}

// AppendState appends everything that the relay's further behaviour depends on, for a snapshot or a
// comparison: the group, the number of children, the position and each child's last number, as 4,
// 4, 8 and 8 bytes, big-endian.
func (r *Relay) AppendState(state []byte) []byte {
	state = binary.BigEndian.AppendUint32(state, uint32(r.self))
	state = binary.BigEndian.AppendUint32(state, uint32(len(r.issued)))
	state = binary.BigEndian.AppendUint64(state, r.position)
	for _, number := range r.issued {
		state = binary.BigEndian.AppendUint64(state, number)
	}
	return state
}

// RestoreRelay returns the relay of a group in a state that AppendState wrote. It returns ErrState
// with the reason if the state does not fit.
func RestoreRelay(tree *Tree, self order.GroupID, state []byte) (*Relay, error) {
	const fixed = 16
	if !tree.Has(self) {
		return nil, fmt.Errorf("%w: group %d is not one of the tree's %d", ErrState,
			self, tree.Groups())
	}
	r := NewRelay(tree, self)
	if want := fixed + 8*len(r.issued); len(state) != want {
		return nil, fmt.Errorf("%w: %d bytes, want %d for group %d", ErrState, len(state), want,
			self)
	}
	group, children := binary.BigEndian.Uint32(state), binary.BigEndian.Uint32(state[4:])
	if group != uint32(self) || children != uint32(len(r.issued)) {
		return nil, fmt.Errorf("%w: it is of group %d with %d children, want group %d with %d",
			ErrState, group, children, self, len(r.issued))
	}
	r.position = binary.BigEndian.Uint64(state[8:])
	if self == tree.root && r.position != 0 {
		return nil, fmt.Errorf("%w: the root took %d items from a parent", ErrState, r.position)
	}
	for i := range r.issued {
		r.issued[i] = binary.BigEndian.Uint64(state[fixed+8*i:])
	}
	return r, nil
}
