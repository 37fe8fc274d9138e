package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/shard"
)

// The numbers and names of levels and modes are those of the protobuf and of package shard, since
// values are converted by their numbers.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for number, name := range ledgerdv1.Level_name {
		level := report.Level(number)
		want := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "LEVEL_")), "_", "-")
		if level.String() != want &&
			level != report.LevelNone {
			t.Errorf("level %d is %v, not %s", number, level, want)
		}
	}
	for number, name := range ledgerdv1.NodeMode_name {
		mode := report.NodeMode(number)
		if want := strings.ToLower(strings.TrimPrefix(name, "NODE_MODE_")); number != 0 &&
			mode.String() != want {
			t.Errorf("mode %d is %v, not %s", number, mode, want)
		}
	}
	for of, mode := range map[shard.Mode]report.NodeMode{
		shard.Starting: report.ModeStarting, shard.Ordering: report.ModeOrdering,
		shard.Following: report.ModeFollowing, shard.Halted: report.ModeHalted,
		shard.Leaving: report.ModeStopping,
	} {
		if report.NodeMode(of) != mode {
			t.Errorf("the member's mode %v is %v", of, mode)
		}
	}
}

// A block has a level once it has the lower ones: a majority that is ahead of this node's disk does
// not make a block durable here.
func TestLevelOfBlock(t *testing.T) {
	t.Parallel()
	tests := []struct {
		heights report.Heights
		height  ledger.Height
		want    report.Level
	}{
		{report.Heights{Ordered: 4, Stored: 3, Durable: 2}, 2, report.LevelDurable},
		{report.Heights{Ordered: 4, Stored: 3, Durable: 2}, 3, report.LevelStored},
		{report.Heights{Ordered: 4, Stored: 3, Durable: 2}, 4, report.LevelOrdered},
		{report.Heights{Ordered: 4, Stored: 3, Durable: 2}, 5, report.LevelNone},
		{report.Heights{Ordered: 4, Stored: 2, Durable: 4}, 3, report.LevelOrdered},
	}
	for _, test := range tests {
		if got := test.heights.Level(test.height); got != test.want {
			t.Errorf("block %d of %+v is %v, not %v", test.height, test.heights, got, test.want)
		}
	}
}

// A transaction that waits for other shards is final where it only had to be admitted.
func TestStatus(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status   report.Status
		inBlock  bool
		decisive ledger.Height
		final    report.Level // the highest level at which it is final
	}{
		{report.Status{}, false, 0, none},
		{report.Status{Outcome: report.OutcomePending, Level: report.LevelAdmitted},
			false, 0, report.LevelAdmitted},
		{report.Status{Outcome: report.OutcomeExecuted, Level: report.LevelStored, Height: 3},
			true, 3, report.LevelStored},
		{report.Status{Outcome: report.OutcomeFailed, Level: report.LevelOrdered, Height: 3,
			Settled: 5}, true, 5, report.LevelOrdered},
		{report.Status{Outcome: report.OutcomeExpired}, false, 0, report.LevelDurable},
		{report.Status{Outcome: report.OutcomeWaiting, Level: report.LevelDurable, Height: 3},
			true, 0, report.LevelAdmitted},
		{report.Status{Outcome: report.OutcomeRelayed, Level: report.LevelDurable, Height: 3},
			true, 0, report.LevelAdmitted},
	}
	for _, test := range tests {
		s := test.status
		if s.InBlock() != test.inBlock || s.Decisive() != test.decisive {
			t.Errorf("%+v: in a block: %v, decided by block %d", s, s.InBlock(), s.Decisive())
		}
		for level := report.LevelNone; level <= report.LevelDurable; level++ {
			if want := test.final != none && level <= test.final; s.Final(level) != want {
				t.Errorf("%+v is final at level %v: %v", s, level, !want)
			}
		}
	}
}

// none is no level.
const none report.Level = 255

// Only the refusals that will pass invite to send the same bytes again.
func TestRefusal(t *testing.T) {
	t.Parallel()
	for code := report.RefusedMalformed; code <= report.RefusedShardFull; code++ {
		want := code == report.RefusedOverloaded || code == report.RefusedNotWriting ||
			code == report.RefusedPredecessor || code == report.RefusedShardDown ||
			code == report.RefusedShardFull
		if got := (&report.Refusal{Code: code}).Retry(); got != want {
			t.Errorf("code %d is temporary: %v", code, got)
		}
	}
	if word := (&report.Obstacle{Shard: 3, Lost: true}).Refusal().Word(); word != "shard_lost" {
		t.Errorf("a lost shard is refused as %q", word)
	}
	for word, obstacle := range map[string]report.Obstacle{
		"shard_down": {Shard: 2, Since: time.Unix(0, 0)},
		"shard_full": {Shard: 1, Since: time.Unix(0, 0), Full: true, Awaited: 2},
	} {
		if got := obstacle.Refusal(); got.Word() != word || !got.Retry() ||
			!strings.Contains(got.Reason, "since 1970-01-01T00:00:00Z") {
			t.Errorf("%s: %+v", word, got)
		}
	}
	refusal := report.Refusal{Reason: "this node follows", Writers: []string{"a", "b"}}
	if got := refusal.Error(); got != "this node follows; these nodes take writes: a, b" {
		t.Error(got)
	}
}
