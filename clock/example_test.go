package clock_test

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/clock"
)

// The time of a block is the lower median of its round's times. A time that is an hour ahead does
// not count, unless the clocks of a majority prove it.
func ExampleRound() {
	const parent, hour = clock.Milliseconds(1_000_000), clock.Milliseconds(3_600_000)
	members := func() []clock.MemberIndex { return []clock.MemberIndex{0, 1, 2} }
	round := clock.Round{Parent: parent, Members: members}
	round.Add(parent+20, nil)
	round.Add(parent+hour, nil)
	round.Add(parent+30, nil)
	fmt.Println("the block is", round.Block()-parent, "ms after its parent")

	idle := clock.Round{Parent: parent, Members: members}
	idle.Add(parent+hour, []clock.MemberClock{{Member: 0}, {Member: 2, Offset: -15}})
	fmt.Println("after an idle hour it is", idle.Block()-parent, "ms after it")
	// Output:
	// the block is 20 ms after its parent
	// after an idle hour it is 3600000 ms after it
}

// A node proposes its clock only while the clocks of a majority are near it.
func ExampleClocks() {
	clocks := clock.New(0, clock.FaultNone)
	clocks.SetMembers([]clock.MemberIndex{0, 1, 2})
	view := clocks.View(5_000_000, time.Second)
	fmt.Println(view.Warning())

	clocks.Heard(1, 5_000_040, time.Second) // member 1 announced its time
	view = clocks.View(5_000_000, time.Second)
	fmt.Println("may propose", view.Time, "near", view.Near)

	view = clocks.View(5_060_000, time.Second) // the clock of this node jumps
	fmt.Println("too far from the others:", view.Far(), "by", view.Offset, "ms")
	// Output:
	// it hears the clocks of 1 of 3 members, fewer than a majority: it proposes no time for blocks
	// may propose 5000000 near [{0 0} {1 40}]
	// too far from the others: true by 59960 ms
}
