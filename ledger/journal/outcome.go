package journal

import (
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// The outcomes of an entry, as its own block says.
const (
	applied  = "applied"
	failed   = "failed"
	waiting  = "waiting"  // for the verdicts of other shards
	passed   = "passed"   // the entry is only for other shards
	heard    = "heard"    // the entry is a verdict after which another entry still waits
	settled  = "settled"  // the entry is the verdict by which another entry took effect
	released = "released" // the entry is the verdict by which another entry failed
)

// OutcomeOf returns the outcome of an entry as its own block says, such as "applied", and the
// reason if it failed.
func OutcomeOf(entry *ledger.Entry) (outcome, reason string) {
	return outcomeOf(entry, entry.Transaction())
}

// outcomeOf returns the outcome of an entry, and the reason if it failed.
func outcomeOf(entry *ledger.Entry, t *ledger.Transaction) (outcome, reason string) {
	switch code := entry.Result.Code; {
	case code == ledger.Settled:
		return settled, ""
	case code == ledger.Released:
		return released, t.Verdict.Result.Code.String()
	case t.Verdict != nil:
		return heard, ""
	case code == ledger.SetAside:
		return waiting, ""
	case code == ledger.Relayed:
		return passed, ""
	case entry.Result.OK():
		return applied, ""
	default:
		return failed, code.String()
	}
}

// timeOf returns the time of a block.
func timeOf(block *ledger.Block) time.Time {
	return time.UnixMilli(int64(block.Header.Time)).UTC()
}

// timeText returns a block's time as RFC 3339 with milliseconds.
func timeText(block *ledger.Block) string {
	return timeOf(block).Format("2006-01-02T15:04:05.000Z")
}
