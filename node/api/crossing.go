package api

import (
	"errors"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

func shardNumbers(shards []ledger.ShardID) []uint32 {
	if len(shards) == 0 {
		return nil
	}
	numbers := make([]uint32, len(shards))
	for i, shard := range shards {
		numbers[i] = uint32(shard)
	}
	return numbers
}

// changedNothing reports whether a block's entry with this result code changed nothing. An entry
// that a shard set aside or passed on may still take effect.
func changedNothing(code ledger.Code) bool {
	switch code {
	case ledger.Applied, ledger.SetAside, ledger.Relayed, ledger.Settled, ledger.Released:
		return false
	}
	return true
}

// statusOfEntry returns the status of a transaction that is in a block. If the transaction waited
// for other shards, it looks up whether it took effect. If that cannot be read, the transaction is
// still shown as waiting.
func (s *Service) statusOfEntry(entry *ledger.Entry, height ledger.Height, index int,
	level report.Level) report.Status {
	status := report.Status{ID: entry.ID, Outcome: report.OutcomeExecuted, Level: level,
		Height: height, Index: uint32(index), Result: entry.Result}
	opened := s.backend.Store()
	if opened.ShardTree() != nil && entry.Transaction().Verdict == nil &&
		entry.Transaction().Change == nil {
		if concerned := opened.Concerned(entry.Transaction(), height); len(concerned) > 1 ||
			entry.Result.Code == ledger.Relayed {
			status.Destinations = concerned
		}
	}
	switch {
	case changedNothing(entry.Result.Code):
		status.Outcome = report.OutcomeFailed
	case entry.Result.Code == ledger.Relayed:
		status.Outcome = report.OutcomeRelayed
	case entry.Result.Code == ledger.SetAside:
		status.Outcome = report.OutcomeWaiting
		if crossing, err := opened.Crossing(entry.ID); err == nil {
			s.settle(&status, &crossing)
		}
	}
	return status
}

// settle completes the status of a transaction that its shard set aside.
func (s *Service) settle(status *report.Status, crossing *store.Crossing) {
	status.Destinations, status.Waits = crossing.Destinations, crossing.Waits
	if crossing.Settled == nil {
		return
	}
	status.Outcome, status.Settled, status.Level = report.OutcomeExecuted, crossing.Settled.Height,
		s.levelOf(crossing.Settled.Height)
	if crossing.Outcome == store.Refused {
		status.Outcome, status.Result = report.OutcomeFailed,
			crossing.Settled.Entry.Transaction().Verdict.Result
	}
}

// States of a ShardPlace.
const (
	PlaceSettled    = "settled"
	PlaceRefused    = "refused"
	PlaceWaiting    = "waiting"
	PlacePassed     = "passed"
	PlaceAbsent     = "absent"
	PlaceUnanswered = "unanswered"
)

// place returns where a transaction is in this shard's chain.
func (s *Service) place(crossing *store.Crossing) *ledgerdv1.ShardPlace {
	opened := s.backend.Store()
	own := opened.Shard()
	block, entry := crossing.Block, crossing.Entry
	number := block.Bundles[entry.Bundle].Number
	shown := &ledgerdv1.ShardPlace{
		Shard:        uint32(own),
		Height:       uint64(crossing.Height),
		Index:        uint32(crossing.Index),
		BlockHashHex: block.Hash.String(),
		TimeMs:       uint64(block.Header.Time),
		WaitsFor:     shardNumbers(crossing.Waits),
		Home: entry.Transaction().Signer == ledger.Operator ||
			opened.DecidedAt(entry.Transaction()) == own,
		Entry:        number == 0,
		Level:        ledgerdv1.Level(s.levelOf(crossing.Height)),
		StreamNumber: number,
	}
	if verdict, said := ledger.VerdictOf(entry, own); said {
		shown.Verdict = verdictWord(&verdict)
	}
	if settled := crossing.Settled; settled != nil {
		shown.SettledHeight, shown.SettledIndex = uint64(settled.Height), uint32(settled.Index)
		shown.Level = ledgerdv1.Level(s.levelOf(settled.Height))
	}
	switch crossing.Outcome {
	case store.TookEffect:
		shown.State = PlaceSettled
	case store.Refused:
		shown.State = PlaceRefused
	case store.Waiting:
		shown.State = PlaceWaiting
		waited := s.options.Clock().Sub(time.UnixMilli(int64(block.Header.Time)))
		shown.Overdue = s.options.AlarmAfter > 0 && waited >= s.options.AlarmAfter
	case store.PassedThrough:
		shown.State = PlacePassed
	}
	return shown
}

// cancelledPlace returns where the transaction that a cancellation in this shard's chain cancels is
// in the same chain.
func (s *Service) cancelledPlace(cancellation *ledger.Cancellation) *ledgerdv1.ShardPlace {
	opened := s.backend.Store()
	crossing, err := opened.Crossing(cancellation.Transaction)
	switch {
	case err == nil:
		return s.place(&crossing)
	case errors.Is(err, store.ErrNotFound):
		return &ledgerdv1.ShardPlace{Shard: uint32(opened.Shard()), State: PlaceAbsent}
	}
	// This node lacks the block, or cannot read it.
	return &ledgerdv1.ShardPlace{Shard: uint32(opened.Shard()), State: PlaceUnanswered}
}
