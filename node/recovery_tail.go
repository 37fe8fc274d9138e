package node

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// A generation begins with a tail: rounds that may have been A-delivered before it. Each member
// that accepts the decision has their contents on its disk, and executes them before its engine
// starts. A block of the tail is durable only once a majority has executed and synced it. If all of
// these members forgot, the block may be left only in a home that accepted the decision and
// executed nothing yet. So a recovery executes the tail if the furthest chain ends within it.
//
// Without a newer decision, a home may have a record of complete rounds that follow the furthest
// chain. They may be durable, because a majority recorded them. So a recovery executes the furthest
// record likewise (docs/design/rounds.md). It may be in any home: the furthest one may have only
// followed the generation.

// replay is a round of a tail that the furthest home has not executed.
type replay struct {
	round   generation.TailRound
	content order.Delivery
}

// unexecuted returns the rounds of the newest tail that follow the furthest chain, as far as the
// homes hold them. Opened is the furthest home's store, or nil if it has none.
func (r *Recovery) unexecuted(opened *store.Store) ([]replay, error) {
	value := r.newestValue()
	if record := r.furthestRecord(); record != nil &&
		(value == nil || value.Generation <= record.Generation) {
		value = record // the home that has it executed the tail before it took part
	} else if value == nil || r.From.Activated >= value.Generation {
		return nil, nil // it executed the tail before it took part
	}
	rest, err := r.restOf(value, opened)
	if err != nil {
		return nil, err
	}
	var replays []replay
	for _, round := range rest {
		content := r.contentOf(round)
		if content == nil {
			break // later rounds do not count without it
		}
		delivery, err := decodeRound(content)
		if err != nil {
			return nil, err
		}
		replays = append(replays, replay{round, delivery})
	}
	return replays, nil
}

// furthestRecord returns the furthest record of the newest run, as a decision to go on with its
// rounds; nil for none.
func (r *Recovery) furthestRecord() *generation.Decision {
	var furthest *shard.Record
	var newest generation.Run
	for i := range r.Homes {
		each := &r.Homes[i]
		// A home began its run with all blocks of earlier runs. If it lost some since, a record of
		// an earlier run may have them.
		if state := each.counted(); state.Start.Height <= uint64(each.Head.Height) {
			newest = max(newest, state.Activated)
		}
		record := each.record
		if record != nil && (furthest == nil || furthest.Run < record.Run ||
			furthest.Run == record.Run && furthest.Last() < record.Last()) {
			furthest = record
		}
	}
	if furthest == nil || furthest.Run < newest {
		return nil
	}
	return &generation.Decision{Generation: furthest.Run.Generation(),
		Base: generation.Head{Height: furthest.Height, Hash: furthest.Hash,
			Round: furthest.After}, Tail: furthest.Rounds}
}

// newestValue returns the newest decision that any home knows. If a home accepted a value for a
// later generation, it returns the one of the highest ballot, since that may have been decided.
func (r *Recovery) newestValue() *generation.Decision {
	decided := r.newest()
	value := decided
	var highest generation.Ballot
	for i := range r.Homes {
		state := &r.Homes[i].state
		accepted := state.AcceptedValue
		if accepted == nil || decided != nil && accepted.Generation <= decided.Generation {
			continue // a decision stands, whatever was accepted in a lower ballot
		}
		if value != nil && (accepted.Generation < value.Generation ||
			accepted.Generation == value.Generation && !highest.Less(state.Accepted)) {
			continue
		}
		value, highest = accepted, state.Accepted
	}
	return value
}

// restOf returns the rounds of a tail that the furthest chain does not hold: all of them if the
// chain ends with the base, the later ones if it ends within the tail, none if it took another way.
func (r *Recovery) restOf(d *generation.Decision, opened *store.Store) ([]generation.TailRound,
	error) {
	head := r.From.report.Head
	if head.Height < d.Base.Height {
		return nil, nil
	}
	if opened == nil { // the chain is the genesis only
		if d.Base.Height == 0 && d.Base.Hash == head.Hash {
			return d.Tail, nil
		}
		return nil, nil
	}
	_, hash, err := opened.Header(ledger.Height(d.Base.Height))
	if err != nil || hash != d.Base.Hash {
		return nil, err
	}
	rest := d.Tail
	for height := ledger.Height(d.Base.Height) + 1; height <= ledger.Height(head.Height); height++ {
		header, _, err := opened.Header(height)
		if err != nil {
			return nil, err
		}
		for len(rest) > 0 && rest[0].Round < order.Round(header.Round) {
			rest = rest[1:] // a round that made no block
		}
		if len(rest) == 0 || rest[0].Round != order.Round(header.Round) {
			return nil, nil // the chain continues with another round
		}
		epoch, err := r.epochOf(rest[0])
		if err != nil {
			return nil, err
		}
		if epoch != order.Epoch(header.Epoch) {
			return nil, nil // likewise
		}
		rest = rest[1:]
	}
	return rest, nil
}

// epochOf returns the epoch of a round's block. With prompt delivery it is not that of the state
// which a decision names, but the last in which one of the messages was A-broadcast first, and the
// contents have it.
func (r *Recovery) epochOf(round generation.TailRound) (order.Epoch, error) {
	content := r.contentOf(round)
	if content == nil {
		return round.Epoch, nil
	}
	delivery, err := decodeRound(content)
	return delivery.Epoch, err
}

// contentOf looks for the contents of a round in all homes at hand.
func (r *Recovery) contentOf(round generation.TailRound) []byte {
	for i := range r.Homes {
		if content := r.Homes[i].contents[round.Content]; content != nil {
			return content
		}
		if content := newContents(r.Homes[i].home.Rounds()).get(round.Content); content != nil {
			return content
		}
	}
	return nil
}

// replayTail executes the rounds that unexecuted found.
func (r *Recovery) replayTail(opened *store.Store) error {
	for _, each := range r.replays {
		var batches [][]byte
		for _, message := range each.content.Messages {
			// Drop malformed payloads, as each node does.
			if batch, _, err := mempool.SplitPayload(message.Payload); err == nil &&
				len(batch) > 0 {
				batches = append(batches, batch)
			}
		}
		if len(batches) == 0 {
			continue
		}
		if _, err := opened.Apply(ledger.Epoch(each.content.Epoch),
			ledger.Round(each.content.Round), batches); err != nil {
			return err
		}
	}
	if opened.Membership().Number != r.Members.Number {
		return fmt.Errorf("%w: the members changed in rounds that %s has only now executed: look "+
			"at the homes again", ErrRecovery, r.From.Name)
	}
	return nil
}
