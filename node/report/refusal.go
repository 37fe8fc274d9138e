package report

import (
	"errors"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// RefusalCode is the kind of a refusal.
type RefusalCode uint8

// The kinds of refusal. Those from RefusedOverloaded on are temporary: the caller may send the same
// bytes again, or to another node.
const (
	RefusedMalformed           RefusalCode = iota + 1 // it cannot be decoded, or exceeds a limit
	RefusedSignature                                  // a signature is wrong or missing
	RefusedUnknownOrganisation                        // the signer is not registered
	RefusedExpired                                    // its last valid block has passed
	RefusedShardLost                                  // a shard that it concerns is lost
	RefusedForeseen                                   // it must fail, whatever is ordered before it
	RefusedOverloaded                                 // the mempool is full
	// This node takes no writes now: it follows, is halted, starts or stops, or its disk is nearly
	// full.
	RefusedNotWriting
	// In a submission in order, a bundle before it was refused.
	RefusedPredecessor
	// It crosses to a shard that has been down for a while (Obstacle).
	RefusedShardDown
	// It crosses to a shard that is full (Obstacle).
	RefusedShardFull
)

// The words for refusals because of another shard.
const (
	ReasonShardDown = "shard_down"
	ReasonShardFull = "shard_full"
	ReasonShardLost = "shard_lost"
)

// Refusal is the reason why a bundle was not admitted. Nothing of a refused bundle is kept.
type Refusal struct {
	Code   RefusalCode
	Reason string // a sentence that says what to do, without a full stop at its end
	// Writers are the API addresses of nodes that take writes, for RefusedNotWriting.
	Writers []string
	// Unsure says that the bundle, or a transaction of it, may have been taken before.
	Unsure bool
	// Foreseen is the stable word for the result that all transactions of the bundle would have,
	// for RefusedForeseen.
	Foreseen string
}

// Error implements error.
func (r *Refusal) Error() string {
	if len(r.Writers) == 0 {
		return r.Reason
	}
	return r.Reason + "; " + TheseTakeWrites(r.Writers)
}

// TheseTakeWrites names nodes that take writes, as Error does at its end.
func TheseTakeWrites(writers []string) string {
	return "these nodes take writes: " + strings.Join(writers, ", ")
}

// Word returns a stable word for programs, or "" if the kind of refusal has none.
func (r *Refusal) Word() string {
	switch r.Code {
	case RefusedShardDown:
		return ReasonShardDown
	case RefusedShardFull:
		return ReasonShardFull
	case RefusedShardLost:
		return ReasonShardLost
	case RefusedForeseen:
		return r.Foreseen
	}
	return ""
}

// Retry reports whether the refusal is temporary.
func (r *Refusal) Retry() bool { return r.Code >= RefusedOverloaded }

// RefusalOf returns the refusal of a bundle for an error of ledger.VerifyBundle.
func RefusalOf(failure error) *Refusal {
	code := RefusedMalformed
	switch {
	case errors.Is(failure, ledger.ErrUnknownOrganisation):
		code = RefusedUnknownOrganisation
	case errors.Is(failure, ledger.ErrSignature), errors.Is(failure, ledger.ErrUnauthorised):
		code = RefusedSignature
	}
	return &Refusal{Code: code, Reason: failure.Error()}
}
