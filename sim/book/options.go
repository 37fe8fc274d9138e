package book

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/faults"
)

// ErrOptions is returned for options that describe no run.
var ErrOptions = errors.New("bad options")

// Limits of a run.
const (
	ShardsMax       = 8
	MembersMax      = 7
	SubmissionsMax  = 40
	submissionLimit = 1000
)

// Faults is a set of kinds of fault that a run may have.
type Faults uint16

// The kinds of fault.
const (
	// FaultCrash makes a member lose power.
	FaultCrash Faults = 1 << iota
	// FaultStop makes all members of a shard lose power at once.
	FaultStop
	// FaultReplace makes members of a shard lose their disks, one after the other.
	FaultReplace
	// FaultSlow makes a disk flush nothing for a while.
	FaultSlow
	// FaultNetwork loses, repeats and holds up messages between shards.
	FaultNetwork
	// FaultLie makes a minority of a shard's members lie to other shards and to their fellows, in a
	// book with vouched crossings.
	FaultLie
	// FaultLose makes operators settle with shards that are lost for good, or that they take for
	// lost, in some books.
	FaultLose
	// FaultMembers replaces members of a shard by new ones that begin with a snapshot, in some
	// books: some, or all of them one after the other.
	FaultMembers
	faultsEnd

	// FaultsAll is every kind.
	FaultsAll = faultsEnd - 1
)

var faultNames = faults.Names[Faults]{"crash", "stop", "replace", "slow", "network", "lie", "lose",
	"members"}

// FaultNames lists the kinds of fault as ParseFaults reads them.
func FaultNames() []string { return slices.Clone(faultNames) }

// ParseFaults reads a list of kinds separated by commas, or "none" or "all" alone. The error wraps
// ErrOptions.
func ParseFaults(list string) (Faults, error) {
	set, err := faultNames.Parse(list)
	if err != nil {
		return 0, fmt.Errorf("%w: %w, or all, or none", ErrOptions, err)
	}
	return set, nil
}

// String lists the kinds as ParseFaults reads them.
func (f Faults) String() string {
	if f == FaultsAll {
		return "all"
	}
	return faultNames.Format(f)
}

// The bugs that Options.Plant can plant beside those of state.Faults.
const (
	// plantEarlyVerdict tells verdicts of blocks that are not durable.
	plantEarlyVerdict = "verdict-before-durable"
	// plantEarlyEntry offers stream entries of blocks that are not durable.
	plantEarlyEntry = "entry-before-durable"
	// plantNotAsked never asks for a verdict.
	plantNotAsked = "verdict-not-asked-for"
	// plantAskedOnce asks for a verdict once only.
	plantAskedOnce = "verdict-asked-for-once"
	// plantEarlyDeparture forgets the word that an organisation has left if it comes before the
	// move.
	plantEarlyDeparture = "early-departure-forgotten"
	// plantBelievedOne believes one member of another shard, in a book with vouched crossings.
	plantBelievedOne = "believed-from-one"
	// plantRelayedForgotten does not remember the ids of relayed transactions.
	plantRelayedForgotten = "relayed-not-remembered"
	// plantNoAtDeadline takes it for granted, once a transaction's deadline is over, that those
	// shards have refused it that have said nothing.
	plantNoAtDeadline = "no-at-deadline"
	// plantSnapshot begins a new disk without what the snapshot's blocks still owe other shards.
	plantSnapshot = "snapshot-without-debts"
	// plantSnapshotVerdicts begins a new member without the own verdicts of the snapshot's blocks,
	// and plantSnapshotEntries without the stream entries above each child's position.
	plantSnapshotVerdicts = "snapshot-without-verdicts"
	plantSnapshotEntries  = "snapshot-without-entries"
	// plantCountDeparted counts the words of members that left, in a book with vouched crossings.
	plantCountDeparted = "departed-counted"
	// plantLetGo offers nothing to a shard that was hung elsewhere, although it has not taken all.
	plantLetGo = "parent-lets-go"
	// plantNotHandedOver hands no copy of a transaction over to a shard that never gets it.
	plantNotHandedOver = "late-not-handed-over"
	// plantLateUnchecked keeps copies that are too late without a look at their signatures, and
	// plantLateKept any number of copies of a shard.
	plantLateUnchecked = "late-unchecked"
	plantLateKept      = "late-kept"
	// plantOutlineUnread answers only for blocks that are here.
	plantOutlineUnread = "outline-unread"
	// plantHeightsKept keeps the positions in the parent's stream of blocks that were lost.
	plantHeightsKept = "heights-kept"
	// plantGroupOfOne believes a group of verdicts that one member of another shard tells.
	plantGroupOfOne = "group-from-one"
	// plantForeseenKnown foresees failures of transactions that are in the chain.
	plantForeseenKnown = "foreseen-though-known"
)

// Plants returns the names of the bugs that can be planted.
func Plants() []string {
	plants := []string{plantEarlyVerdict, plantEarlyEntry, plantNotAsked, plantRelayedForgotten,
		plantNoAtDeadline, plantSnapshot, plantLetGo, plantSnapshotVerdicts, plantSnapshotEntries,
		plantCountDeparted}
	for _, fault := range state.Faults() {
		// Seeds hardly ever draw the two losses that it takes. The tests of ledger/state do.
		if fault != state.FaultTestimonyOutdated {
			plants = append(plants, fault.String())
		}
	}
	return append(plants, plantAskedOnce, plantEarlyDeparture, plantBelievedOne,
		plantNotHandedOver, plantHeightsKept, plantLateUnchecked, plantLateKept,
		plantOutlineUnread, plantGroupOfOne, plantForeseenKnown)
}

// Options describes a run. The same options give the same run.
type Options struct {
	// Plant is the name of a bug to plant, "" for none.
	Plant string
	// Seed draws everything that the other options leave open.
	Seed uint64
	// Shards is the number of shards, from 2 to ShardsMax, and Members that of each shard's
	// members, up to MembersMax. 0 lets the seed choose.
	Shards, Members int
	// Submissions is how many bundles clients submit beside those that set the book up. 0 lets the
	// seed choose, up to SubmissionsMax.
	Submissions int
	// Faults are the kinds of fault that the seed may draw.
	Faults Faults
	// OnlySubmissions and OnlyFaults keep only the bundles and faults of the plan with these
	// numbers; nil keeps all.
	OnlySubmissions, OnlyFaults []int
	// Trace receives the events, one a line, unless it is nil.
	Trace io.Writer
}

// Validate checks the options. The error wraps ErrOptions.
func (o *Options) Validate() error {
	switch {
	case o.Shards != 0 && (o.Shards < 2 || o.Shards > ShardsMax):
		return fmt.Errorf("%w: %d shards, want 2 to %d, or 0 to leave it to the seed", ErrOptions,
			o.Shards, ShardsMax)
	case o.Members < 0 || o.Members > MembersMax:
		return fmt.Errorf("%w: %d members in a shard, want 1 to %d, or 0 to leave it to the seed",
			ErrOptions, o.Members, MembersMax)
	case o.Submissions < 0 || o.Submissions > submissionLimit:
		return fmt.Errorf("%w: %d submissions, want 1 to %d, or 0 to leave it to the seed",
			ErrOptions, o.Submissions, submissionLimit)
	case o.Plant != "" && !slices.Contains(Plants(), o.Plant):
		return fmt.Errorf("%w: no such bug as %q; use one of %q", ErrOptions, o.Plant, Plants())
	}
	return nil
}

// fault returns the bug to plant in the states.
func (o *Options) fault() state.Fault {
	for _, fault := range state.Faults() {
		if fault.String() == o.Plant {
			return fault
		}
	}
	return state.FaultNone
}

// verdictsFault returns the bug to plant in the members' exchanges of verdicts.
func (o *Options) verdictsFault() verdicts.Fault {
	switch o.Plant {
	case plantAskedOnce:
		return verdicts.FaultAskedOnce
	case plantEarlyDeparture:
		return verdicts.FaultEarlyDeparture
	case plantBelievedOne:
		return verdicts.FaultQuorumOfOne
	case plantCountDeparted:
		return verdicts.FaultCountDeparted
	case plantLateUnchecked:
		return verdicts.FaultLateUnchecked
	case plantLateKept:
		return verdicts.FaultLateUnbounded
	case plantGroupOfOne:
		return verdicts.FaultGroupOfOne
	}
	return verdicts.FaultNone
}

// Result is the result of a run.
type Result struct {
	Seed uint64
	// Violations has the first broken property, or is empty if the run passed.
	Violations []*order.Violation
	// Plan describes what the seed decided before the run.
	Plan string
	// Shards and Members count those of the book, Submissions the submitted bundles, Faults the
	// faults that struck, Generations the new beginnings of shards, and Lost the blocks that were
	// executed and then lost.
	Shards, Members, Submissions, Faults, Generations, Lost int
	// Losses counts the settlements with lost shards, and Inherited the transactions that took
	// effect because another shard testified that the lost one had agreed.
	Losses, Inherited int
	// Blocks counts the blocks of all chains. Applied and Refused count the transactions of several
	// shards that took effect, and those that did not. Late counts the parts that a shard had set
	// aside, and released because another shard executed the transaction after its deadline.
	// Withdrawn counts those that another shard refused because a signer had cancelled it there.
	// Moved counts the organisations that arrived in another shard.
	Blocks, Applied, Refused, Late, Withdrawn, Moved int
	// Added counts the shards that began on the way. Stranded counts the organisations that never
	// arrived, because the shard that they were coming from was lost. Mixed says that the operators
	// made changes of all kinds.
	Added, Stranded int
	Mixed           bool
	// Grouped counts the verdicts that members told in groups.
	Grouped int
	// HandedOver counts the copies of transactions that a shard refused beside the order of the
	// tree, because they were too late and never reached it.
	HandedOver int
	// Held counts the holds, Posted and Voided those that a posting or a voiding ended, and Lapsed
	// those that expired.
	Held, Posted, Voided, Lapsed int
	// Keys counts the idempotency keys with which entries took effect, Refundable the entries that
	// could be refunded, and Refunds those that refunded one.
	Keys, Refundable, Refunds int
	// Occurred counts the occurrences of schedules.
	Occurred int
	// Foreseen counts the transactions of which members foresaw that they fail.
	Foreseen int
	// Replaced counts the members that new ones replaced.
	Replaced int
	// Rehung counts the shards that came below another parent.
	Rehung int
	// Turns is the virtual time of the run.
	Turns Turn
	// Hash covers everything that happened. Two runs with the same hash went alike.
	Hash uint64
	// submitted and struck are the numbers of the plan's bundles and faults.
	submitted, struck []int
}

// broken returns the property that the run breaks first, or "".
func (r Result) broken() order.Property {
	if len(r.Violations) == 0 {
		return ""
	}
	return r.Violations[0].Property
}

// Properties that this judge has beside those of package order.
const (
	// SameChain: the members of a shard seal and execute the same blocks.
	SameChain order.Property = "same chain"
	// Durability: a durable block stays in its chain.
	Durability order.Property = "durability"
	// Atomicity: a transaction takes effect in all of its shards or in none.
	Atomicity order.Property = "atomicity"
	// Conservation: the amounts of an asset add up to zero over all shards.
	Conservation order.Property = "conservation"
	// Supply: no more of an asset is issued than its cap over all shards, and what is issued is
	// what accounts are below zero.
	Supply order.Property = "supply"
	// Holds: what is held is never spent, each hold ends at most once, posts no more than it has,
	// and expires when its time is over and not before.
	Holds order.Property = "holds"
	// Keys: of the entries of an organisation with one idempotency key at most one takes effect,
	// and an entry is refused for its key exactly if another one has it.
	Keys order.Property = "keys"
	// Refunds: no more is given back of an entry than it posted, and a refund is refused exactly if
	// it asks for more than is left, or at a wrong time.
	Refunds order.Property = "refunds"
	// Schedules: the root issues each occurrence of a schedule once, in order, in the first block
	// of its time or later, and none after the end of the schedule.
	Schedules order.Property = "schedules"
	// Terms: no account goes beyond its terms, and they move with it.
	Terms order.Property = "terms"
	// Verdicts: a shard gives one verdict on a transaction, with a reason that the version of the
	// chain that takes it knows.
	Verdicts order.Property = "verdicts"
	// Deadline: a shard agrees to a transaction exactly if it executes it before its deadline.
	Deadline order.Property = "deadline"
	// Cancelling: a shard refuses a transaction as cancelled exactly if, before it, one of those
	// who have to sign it cancelled it there. It takes no cancellation of what it has agreed to.
	Cancelling order.Property = "cancelling"
	// Outcome: balances and records are those of the transactions that took effect.
	Outcome order.Property = "outcome"
	// SameRelay: tram.Relay hands on what the chain hands on.
	SameRelay order.Property = "relay"
	// Bounds: what others can make a member keep, or a block take, is bounded.
	Bounds order.Property = "bounds"
	// Progress: once faults end, the book comes to rest.
	Progress order.Property = "progress"
	// Foresight: what a member foresees to fail takes effect in no shard.
	Foresight order.Property = "foresight"
	// Contract: the ledger does not panic.
	Contract order.Property = "contract"
)
