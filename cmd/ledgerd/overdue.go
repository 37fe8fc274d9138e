package main

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// waitsReport is what entries of a shard's chain wait for, in the reports of commands.
type waitsReport struct {
	// Overdue is the number of transactions that have waited for other shards for longer than
	// alarm_after.
	Overdue uint64 `json:"overdue"`
	// OldestWaitingSeconds is for how long the oldest transaction that waits has waited.
	OldestWaitingSeconds float64      `json:"oldest_waiting_seconds"`
	WaitsFor             []waitReport `json:"waits_for"` // the shards for whose verdicts they wait
	// UntakenBy are the shards below that have not taken entries for longer than alarm_after.
	UntakenBy []waitReport `json:"untaken_by"`
	// Lacks is what the shard can never take from the shard above, since it is lost there.
	Lacks *waitReport `json:"lacks,omitempty"`
}

// waitReport is how entries wait for one other shard.
type waitReport struct {
	Shard                uint32  `json:"shard"`
	Count                uint64  `json:"count"`
	Overdue              uint64  `json:"overdue"`
	OldestWaitingSeconds float64 `json:"oldest_waiting_seconds"`
	// Lost entries can never be taken: no member of the shard that they come from has the blocks up
	// to LostHeight.
	Lost       uint64 `json:"lost,omitempty"`
	LostHeight uint64 `json:"lost_height,omitempty"`
}

// waiting is what the API says of a shard or a node.
type waiting interface {
	GetOverdue() uint64
	GetOldestWaitingMs() uint64
	GetWaitsFor() []*ledgerdv1.ShardWait
	GetUntakenBy() []*ledgerdv1.ShardWait
	GetLacks() *ledgerdv1.ShardWait
}

// reportWaits converts what waits to a report. now is the time of the node that says so, in
// milliseconds.
func reportWaits(shown waiting, now uint64) waitsReport {
	seconds := func(since uint64) float64 {
		if since == 0 || since > now {
			return 0
		}
		return float64(now-since) / 1000
	}
	list := func(waits []*ledgerdv1.ShardWait) []waitReport {
		reports := []waitReport{}
		for _, wait := range waits {
			reports = append(reports, waitReport{wait.GetShard(), wait.GetCount(),
				wait.GetOverdue(), seconds(wait.GetSinceMs()), wait.GetLost(),
				wait.GetLostHeight()})
		}
		return reports
	}
	var lacks *waitReport
	if lost := shown.GetLacks(); lost != nil {
		lacks = &list([]*ledgerdv1.ShardWait{lost})[0]
	}
	return waitsReport{Lacks: lacks, Overdue: shown.GetOverdue(),
		OldestWaitingSeconds: seconds(shown.GetOldestWaitingMs()),
		WaitsFor:             list(shown.GetWaitsFor()), UntakenBy: list(shown.GetUntakenBy())}
}

// alarms returns a line for each shard that a shard has waited for longer than alarm_after. It
// returns nil if all is well.
func (r *waitsReport) alarms(shard uint32) (lines []string) {
	age := func(wait *waitReport) time.Duration {
		return time.Duration(wait.OldestWaitingSeconds * float64(time.Second)).Round(time.Second)
	}
	for i := range r.WaitsFor {
		if wait := &r.WaitsFor[i]; wait.Overdue > 0 {
			lines = append(lines, fmt.Sprintf("alarm: %s of shard %d overdue, waiting for "+
				"shard %d, the oldest for %s", plural(int(wait.Overdue), "transaction"), shard,
				wait.Shard, age(wait)))
		}
	}
	for i := range r.UntakenBy {
		wait := &r.UntakenBy[i]
		entries := "1 entry"
		if wait.Overdue != 1 {
			entries = fmt.Sprintf("%d entries", wait.Overdue)
		}
		lines = append(lines, fmt.Sprintf("alarm: %s of shard %d overdue, not taken by shard %d, "+
			"the oldest for %s", entries, shard, wait.Shard, age(wait)))
		if wait.Lost > 0 {
			lines = append(lines, lostLine(wait, shard, wait.Shard))
		}
	}
	return lines
}

// alarmAdvice says what to do about an alarm.
const alarmAdvice = "start the nodes of the shards that are waited for, or mend the network to " +
	"them: docs/shards.md"

// lostLine says which entries of the stream from one shard to another are lost.
func lostLine(wait *waitReport, from, to uint32) string {
	entries := "1 entry"
	if wait.Lost != 1 {
		entries = fmt.Sprintf("%d entries", wait.Lost)
	}
	return fmt.Sprintf("alarm: %s of shard %d that shard %d needs cannot be had any more: all "+
		"members of shard %d say that they lack the blocks up to %d", entries, from, to, from,
		wait.LostHeight)
}
