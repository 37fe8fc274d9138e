package route_test

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// changesAt returns the changes that a node shows with the tree, in short.
func (b *book) changesAt(door int) (short []string) {
	b.Helper()
	answer, err := b.clients[door].GetTree(b.context(),
		connect.NewRequest(&ledgerdv1.GetTreeRequest{}))
	if err != nil {
		b.Fatal(err)
	}
	for _, each := range answer.Msg.GetTree().GetChanges() {
		if each.GetSinceMs() == 0 || each.GetHeight() == 0 {
			b.Errorf("when was %v?", each)
		}
		if (each.GetKind() == "move" && each.GetState() == "done") != (each.GetDoneMs() > 0) {
			b.Errorf("it is %s, since %d", each.GetState(), each.GetDoneMs())
		}
		short = append(short, fmt.Sprintf("%d %s %s%d: %d to %d %s %d", each.GetNumber(),
			each.GetKind(), each.GetOrganisation(), each.GetShard(), each.GetFrom(), each.GetTo(),
			each.GetState(), each.GetWaitsFor()))
	}
	return short
}

// shows waits until a node shows these changes with the tree.
func (b *book) shows(door int, want ...string) {
	b.Helper()
	var last []string
	defer func() {
		if b.Failed() {
			b.Logf("node of shard %d shows %q, want %q", door, last, want)
		}
	}()
	b.until(fmt.Sprintf("%q", want), func() bool {
		last = b.changesAt(door)
		return fmt.Sprint(last) == fmt.Sprint(want)
	})
}

// The tree shows a move while it is under way: what it waits for, and that nobody knows whether it
// has arrived while its new home does not answer. It shows it for a while after.
func TestTheTreeShowsMoves(t *testing.T) {
	t.Parallel()
	b := newChangingBook(t)
	b.shows(0)
	b.startMove()
	for _, door := range []int{0, 1} {
		b.shows(door, "1 move org20: 2 to 1 departing [2]")
	}
	b.Silence(1, true)
	b.shows(0, "1 move org20: 2 to 1 unknown [1]")
	b.Silence(1, false)
	b.shows(0, "1 move org20: 2 to 1 departing [2]")
	b.finishMove()
	for door := range 3 {
		b.shows(door, "1 move org20: 2 to 1 done []")
	}
	// What is over stays so, also while its home does not answer.
	b.Silence(1, true)
	b.shows(0, "1 move org20: 2 to 1 done []")
}

// A move that the new home's chain does not have yet is ordered, and no more.
func TestTheTreeShowsMovesThatAreOrdered(t *testing.T) {
	t.Parallel()
	b := newChangingBook(t)
	b.Stand(1, true)
	b.change(ledger.BookChange{Number: 1,
		Move: &ledger.OrganisationMove{Organisation: "org2", To: 1}})
	b.shows(0, "1 move org20: 2 to 1 ordered [1]")
	b.Stand(1, false)
	b.shows(0, "1 move org20: 2 to 1 done []")
}

// The tree shows a shard that is hung elsewhere, until it takes its entries from there.
func TestTheTreeShowsHangings(t *testing.T) {
	t.Parallel()
	b := newChangingBook(t)
	b.Stand(2, true)
	b.change(ledger.BookChange{Number: 1, Rehang: &ledger.ShardRehang{Shard: 2, Parent: 1}})
	b.shows(0, "1 rehang 2: 0 to 1 moving [0]")
	b.Stand(2, false)
	b.shows(0, "1 rehang 2: 0 to 1 done []")
}
