package report

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// ShardMode is the current activity of a shard, according to the newest reports that a node has.
type ShardMode uint8

// The modes of a shard.
const (
	ShardSilent   ShardMode = iota // no node of it reported recently
	ShardOrdering                  // it orders
	ShardHalted                    // nodes of it reported, and none orders
	ShardLost                      // the operators settled with it
)

// String names the mode.
func (m ShardMode) String() string {
	switch m {
	case ShardOrdering:
		return "ordering"
	case ShardHalted:
		return "halted"
	case ShardLost:
		return "lost"
	}
	return "silent"
}

// ShardState is the state of a shard at one moment, as one node knows it.
type ShardState struct {
	Shard   ledger.ShardID
	Mode    ShardMode
	Members []ShardMember // by index
	// Height and Durable are the highest that any of its nodes reported.
	Height, Durable   ledger.Height
	TransactionsTotal uint64
	AccountsTotal     uint64
	// Transactions in its chain that wait for other shards.
	Pending uint64
	// Waiting is what they, and entries of its streams, wait for, as one of its nodes reported.
	Waiting Waiting
	// Carried is how much of the parent's stream is durable in its chain.
	Carried   uint64
	Streamed  map[ledger.ShardID]uint64 // by child: how many entries its stream to the child has
	LastHeard time.Time                 // when any of its nodes last reported; zero: never
}

// Obstacle is why a node refuses transactions that cross to a shard.
type Obstacle struct {
	Shard ledger.ShardID
	// Since is when the shard last ordered, or from when on it is full, as far as this node knows.
	Since time.Time
	// Full says that too many transactions of the shard wait for the shard Awaited. Otherwise the
	// shard is down.
	Full    bool
	Awaited ledger.ShardID
	// Lost says that the operators settled with the shard. It does not come back.
	Lost bool
}

// Code returns the kind of the refusals.
func (o *Obstacle) Code() RefusalCode {
	switch {
	case o.Lost:
		return RefusedShardLost
	case o.Full:
		return RefusedShardFull
	}
	return RefusedShardDown
}

// Refusal returns the refusal of a bundle because of the obstacle.
func (o *Obstacle) Refusal() *Refusal {
	if o.Lost {
		return &Refusal{Code: o.Code(), Reason: fmt.Sprintf("shard %d is lost, and the operators "+
			"settled with it: what it had is gone", o.Shard)}
	}
	since := o.Since.UTC().Format(time.RFC3339)
	reason := fmt.Sprintf("shard %d is down since %s: wait until it is back", o.Shard, since)
	if o.Full {
		reason = fmt.Sprintf("shard %d is full since %s, because too many of its transactions "+
			"wait for shard %d: wait until there are fewer", o.Shard, since, o.Awaited)
	}
	return &Refusal{Code: o.Code(), Reason: reason + ", or let the transaction wait with " +
		"--queue (queue in the API)"}
}

// ShardMember is a node of a shard, as another node knows it.
type ShardMember struct {
	Index         uint32
	Name          string
	APIAddress    string
	Mode          NodeMode // as it last reported; 0: no recent report
	OrderedHeight ledger.Height
	LastHeard     time.Time // zero: never
	Self          bool
}

// Waiting is what entries of a shard's chain wait for, as one of its nodes sees it.
type Waiting struct {
	// Overdue counts the transactions that have waited for the verdicts of other shards for longer
	// than the node's bound.
	Overdue uint64
	// Since is the time of the block with the oldest transaction that waits. It is zero if none
	// does.
	Since time.Time
	// Verdicts are the shards, ascending, for whose verdicts transactions wait.
	Verdicts []Wait
	// Streams are the child shards, ascending, that have not taken entries of their streams for
	// longer than the node's bound.
	Streams []Wait
	// Lacks is what the shard cannot take from the shard above, as the members of that one say:
	// Lost entries, which are lost up to their LostHeight.
	Lacks Wait
}

// Wait is how entries of a shard's chain wait for one other shard.
type Wait struct {
	Shard ledger.ShardID
	// Count counts the entries, and Overdue those that have waited for longer than the bound.
	Count, Overdue uint64
	// Since is the time of the block with the oldest of them. If this block is not known, Since is
	// the time since which the node has seen them wait.
	Since time.Time
	// Lost counts those, the first ones of a stream, that can never be taken: they are in blocks up
	// to LostHeight, and no member of the shard that they come from has these.
	Lost       uint64
	LostHeight ledger.Height
}

// Alarm reports whether entries have waited for longer than the bound, or are lost.
func (w *Waiting) Alarm() bool { return w.Overdue > 0 || len(w.Streams) > 0 || w.Lacks.Lost > 0 }

// None reports whether nothing waits.
func (w *Waiting) None() bool { return len(w.Verdicts) == 0 && len(w.Streams) == 0 }

// LostFor returns what a child can never take from a shard whose chain waits so.
func (w *Waiting) LostFor(above, child ledger.ShardID) Wait {
	for _, wait := range w.Streams {
		if wait.Shard == child && wait.Lost > 0 {
			wait.Shard = above
			return wait
		}
	}
	return Wait{}
}
