package search

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// RecordedRounds is what docs/design/rounds.md builds a log of rounds on. All records of a round
// have one value. If a majority recorded the value of a round that any server A-delivered, each of
// these disks shows that round for good: its last record has the round, or was made after the round
// was A-delivered there. The record then has the A-delivered value of the round before, too, unless
// that was A-delivered already.
const RecordedRounds order.Property = "recorded rounds"

// record is a round that was complete in a whole group: its state, and that of the complete round
// before it, if that was not A-delivered yet. A state determines its messages: all servers' are
// there, and each server A-broadcasts one in a state.
type record struct {
	// before is what the server recorded before.
	before uint32
	round  order.Round
	epoch  order.Epoch
	// previous is the epoch of the round before, 0 if that was A-delivered.
	previous order.Epoch
}

// completer is an engine that reports complete rounds. See allconcur.Engine.Complete.
type completer interface {
	Complete(after order.Round) (rounds []order.Delivery, whole bool)
}

// record numbers a server's records after it took an input. A record that was not flushed does not
// count for a majority, and one that was counts whether or not later ones were. So it is enough to
// record everything: the judge looks at each record by itself.
func (j *judge) record(before uint32, engine completer, anyGroup bool) uint32 {
	rounds, whole := engine.Complete(j.records[before].round)
	if len(rounds) == 0 || !whole && !anyGroup {
		return before
	}
	last := rounds[len(rounds)-1]
	r := record{before: before, round: last.Round, epoch: last.Epoch}
	if len(rounds) > 1 {
		r.previous = rounds[0].Epoch
	}
	id, known := j.recordIDs[r]
	if !known {
		id = uint32(len(j.records))
		j.records = append(j.records, r)
		j.recordIDs[r] = id
	}
	return id
}

// judgeRecords judges what the servers recorded.
func (j *judge) judgeRecords(outcomes []uint32) *order.Violation {
	epochs := map[order.Round]order.Epoch{}
	for _, id := range outcomes {
		for _, r := range j.recordsOf(id) {
			if epoch, known := epochs[r.round]; known && epoch != r.epoch {
				return recordViolation("round %d is recorded in the epochs %d and %d", r.round,
					epoch, r.epoch)
			}
			epochs[r.round] = r.epoch
		}
	}
	for _, id := range outcomes {
		var previous order.Epoch
		for _, d := range j.deliveries(j.outcomes[id].delivered) {
			if epoch, known := epochs[d.Round]; known && epoch == d.Epoch &&
				len(d.Messages) == j.servers {
				if broken := j.judgeRecorded(outcomes, d, previous); broken != nil {
					return broken
				}
			}
			previous = d.Epoch
		}
	}
	return nil
}

// judgeRecorded judges the records of an A-delivered round that was recorded. previous is the epoch
// of the round before it.
func (j *judge) judgeRecorded(outcomes []uint32, d order.Delivery,
	previous order.Epoch) *order.Violation {
	holders := 0
	for _, id := range outcomes {
		for _, r := range j.recordsOf(id) {
			if r.round == d.Round {
				holders++
			}
		}
	}
	if holders <= j.servers/2 {
		return nil
	}
	for _, id := range outcomes {
		holds := false
		records := j.recordsOf(id)
		for i := len(records) - 1; i >= 0; i-- { // oldest first
			r := records[i]
			holds = holds || r.round == d.Round
			switch {
			case !holds:
			case r.round == d.Round && r.previous != 0 && r.previous != previous:
				return recordViolation("server %d recorded round %d of epoch %d before round %d, "+
					"which was A-delivered after that round of epoch %d", j.outcomes[id].id,
					d.Round-1, r.previous, d.Round, previous)
			case r.round == d.Round+1 && r.previous != 0 && r.previous != d.Epoch:
				return recordViolation("server %d recorded round %d of epoch %d, which was "+
					"A-delivered in epoch %d, before round %d", j.outcomes[id].id, d.Round,
					r.previous, d.Epoch, r.round)
			}
		}
	}
	return nil
}

// recordsOf lists the records of a server, newest first.
func (j *judge) recordsOf(id uint32) []record {
	var all []record
	for at := j.outcomes[id].recorded; at != 0; at = j.records[at].before {
		all = append(all, j.records[at])
	}
	return all
}

func recordViolation(format string, arguments ...any) *order.Violation {
	return &order.Violation{Property: RecordedRounds,
		Evidence: []string{fmt.Sprintf(format, arguments...)}}
}
