package search

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Properties that this package judges besides those of package order.
const (
	// Contract: an engine does not panic, not even by an assertion, and accepts what a correct peer
	// sends.
	Contract order.Property = "contract"
	// Accuracy: only servers that have failed, or are suspected falsely, are removed.
	Accuracy order.Property = "accuracy"
	// Survival: if no more servers crash, or edges err, than the group tolerates, only servers that
	// take part in a false suspicion halt.
	Survival order.Property = "survival"
)

// judge judges what the servers of a group A-delivered. It only has each server's outcome, and
// judges each combination once.
type judge struct {
	servers    int
	nonUniform bool
	prompt     bool
	// ringVotes says that servers vote as those of rings do.
	ringVotes bool
	tolerated int
	// deaf makes the judge find nothing wrong.
	deaf bool

	outcomes   []outcome
	outcomeIDs map[outcome]uint32
	// rounds are the A-delivered rounds, each with what the server A-delivered before. 0 is
	// nothing.
	rounds   []deliveredRound
	roundIDs map[string]uint32
	verdicts map[string]verdict
	key      []byte
	// records are the recorded rounds, each with what the server recorded before. 0 is nothing.
	records   []record
	recordIDs map[record]uint32
	// closings are the closed rounds, each with what the server closed before. 0 is nothing.
	closings   []closedRound
	closingIDs map[string]uint32
	// promises are what servers would promise. 0 is nothing.
	promises   []promise
	promiseIDs map[string]uint32
}

// outcome is all that the judge needs to know about a server.
type outcome struct {
	id        order.ServerID
	crashed   bool
	halted    bool
	accused   serverSet
	submitted uint32
	delivered uint32
	recorded  uint32
	concluded uint32
	promise   uint32
}

type deliveredRound struct {
	before   uint32
	delivery order.Delivery
}

// closedRound is a closing, with what the server closed before.
type closedRound struct {
	before  uint32
	closing order.Closing
}

// verdict is the judgement of a combination of outcomes.
type verdict struct {
	broken *order.Violation
	// stalled reports that the group stands still and may do so: more servers failed than it
	// tolerates.
	stalled bool
}

func newJudge(o Options, m *model) *judge {
	return &judge{
		servers: o.Servers, tolerated: m.tolerated, ringVotes: m.votes && !o.Prompt,
		nonUniform: o.NonUniform && !o.JudgeUniform,
		prompt:     o.Prompt, closings: make([]closedRound, 1), closingIDs: map[string]uint32{},
		promises: make([]promise, 1), promiseIDs: map[string]uint32{},
		outcomeIDs: map[outcome]uint32{}, rounds: make([]deliveredRound, 1),
		roundIDs: map[string]uint32{}, verdicts: map[string]verdict{},
		records: make([]record, 1), recordIDs: map[record]uint32{},
	}
}

// deliver numbers the sequence of rounds that a server has A-delivered after another round.
func (j *judge) deliver(before uint32, d order.Delivery) uint32 {
	k := binary.LittleEndian.AppendUint32(j.key[:0], before)
	k = binary.LittleEndian.AppendUint64(k, uint64(d.Epoch))
	k = binary.LittleEndian.AppendUint64(k, uint64(d.Round))
	k = append(k, byte(len(d.Messages)))
	for _, m := range d.Messages {
		k = append(append(k, byte(m.Origin), byte(len(m.Payload))), m.Payload...)
	}
	for _, p := range d.Removed {
		k = append(k, byte(p))
	}
	j.key = k
	id, known := j.roundIDs[string(k)]
	if !known {
		id = uint32(len(j.rounds))
		d.Messages, d.Removed = slices.Clone(d.Messages), slices.Clone(d.Removed)
		j.rounds = append(j.rounds, deliveredRound{before, d})
		j.roundIDs[string(k)] = id
	}
	return id
}

// close numbers the sequence of rounds that a server has closed after another round.
func (j *judge) close(before uint32, c order.Closing) uint32 {
	k := binary.LittleEndian.AppendUint32(j.key[:0], before)
	k = binary.LittleEndian.AppendUint64(k, uint64(c.Epoch))
	k = binary.LittleEndian.AppendUint64(k, uint64(c.Round))
	for _, p := range c.Removed {
		k = append(k, byte(p))
	}
	j.key = k
	id, known := j.closingIDs[string(k)]
	if !known {
		id = uint32(len(j.closings))
		c.Removed = slices.Clone(c.Removed)
		j.closings = append(j.closings, closedRound{before, c})
		j.closingIDs[string(k)] = id
	}
	return id
}

// closingsOf lists what a server closed, oldest first.
func (j *judge) closingsOf(o outcome) []order.Closing {
	var all []order.Closing
	for id := o.concluded; id != 0; id = j.closings[id].before {
		all = append(all, j.closings[id].closing)
	}
	slices.Reverse(all)
	return all
}

// removal is a round with which a server removes others.
type removal struct {
	epoch   order.Epoch
	round   order.Round
	removed []order.ServerID
}

// removalsOf lists the rounds with which a server removed others, oldest first.
func (j *judge) removalsOf(o outcome) []removal {
	var all []removal
	for _, d := range j.deliveries(o.delivered) {
		all = append(all, removal{d.Epoch, d.Round, d.Removed})
	}
	for _, c := range j.closingsOf(o) {
		all = append(all, removal{c.Epoch, c.Round, c.Removed})
	}
	return slices.DeleteFunc(all, func(r removal) bool { return len(r.removed) == 0 })
}

// outcome numbers a server's outcome.
func (j *judge) outcome(s *server) uint32 {
	o := outcome{s.id, s.crashed, s.halted != "", s.accused, s.submitted, s.delivered,
		s.recorded, s.concluded, s.promise}
	id, known := j.outcomeIDs[o]
	if !known {
		id = uint32(len(j.outcomes))
		j.outcomes = append(j.outcomes, o)
		j.outcomeIDs[o] = id
	}
	return id
}

// deliveries lists what was A-delivered, oldest first.
func (j *judge) deliveries(id uint32) []order.Delivery {
	var all []order.Delivery
	for ; id != 0; id = j.rounds[id].before {
		all = append(all, j.rounds[id].delivery)
	}
	slices.Reverse(all)
	return all
}

// judge judges the servers' outcomes, by their numbers.
func (j *judge) judge(outcomes []uint32, moment order.Moment) verdict {
	k := append(j.key[:0], byte(moment))
	for _, id := range outcomes {
		k = binary.LittleEndian.AppendUint32(k, id)
	}
	j.key = k
	v, known := j.verdicts[string(k)]
	if !known {
		key := string(k)
		v = j.look(outcomes, moment)
		j.verdicts[key] = v
	}
	return v
}

func (j *judge) look(outcomes []uint32, moment order.Moment) verdict {
	if j.deaf {
		return verdict{}
	}
	history := order.NewRoundHistory(j.servers)
	if j.nonUniform {
		history.NonUniform()
	}
	if j.prompt {
		history.Prompt()
	}
	for _, id := range outcomes {
		o := j.outcomes[id]
		for round := range 32 {
			if o.submitted>>round&1 != 0 {
				history.Broadcast(o.id, []byte{byte(round)})
			}
		}
	}
	for _, id := range outcomes {
		for _, d := range j.deliveries(j.outcomes[id].delivered) {
			history.Deliver(j.outcomes[id].id, d)
		}
		for _, c := range j.closingsOf(j.outcomes[id]) {
			history.Close(j.outcomes[id].id, c)
		}
	}
	if broken := j.judgeRecords(outcomes); broken != nil {
		return verdict{broken: broken}
	}
	if j.prompt {
		if broken := j.judgePromises(outcomes); broken != nil {
			return verdict{broken: broken}
		}
	}
	if j.ringVotes {
		if broken := j.judgeVotes(outcomes); broken != nil {
			return verdict{broken: broken}
		}
	}
	f := j.failures(outcomes)
	for p := range j.servers {
		if f.gone.has(p) {
			history.Fail(order.ServerID(p))
		}
	}
	if moment == order.AtRest && f.beyond {
		return verdict{broken: first(history.Judge(order.UnderWay)),
			stalled: first(history.Judge(order.AtRest)) != nil}
	}
	if broken := first(history.Judge(moment)); broken != nil {
		return verdict{broken: broken}
	}
	return verdict{broken: j.judgeSurvival(outcomes, f)}
}

func first(broken []*order.Violation) *order.Violation {
	if len(broken) == 0 {
		return nil
	}
	return broken[0]
}

// failures are the failed servers of a run.
type failures struct {
	// crashed are the servers that crashed, halted those whose engine halted, accused those that
	// some server suspects falsely at some time, removed those that some server removed.
	crashed, halted, accused, removed serverSet
	// accusers are the servers that suspect another falsely at some time.
	accusers serverSet
	// beyond reports that the crashes, plus the edges with a false suspicion of a server that does
	// not crash, exceed the failures that the group tolerates. The group may then stand still until
	// it begins a new generation.
	beyond bool
	// gone are the servers that the group may have gone on without. No liveness is required of
	// them.
	gone serverSet
}

func (j *judge) failures(outcomes []uint32) failures {
	var f failures
	for _, id := range outcomes {
		o := j.outcomes[id]
		if o.crashed {
			f.crashed |= 1 << o.id
		}
		if o.halted {
			f.halted |= 1 << o.id
		}
		f.accused |= o.accused
		if o.accused != 0 {
			f.accusers |= 1 << o.id
		}
		for _, r := range j.removalsOf(o) {
			for _, p := range r.removed {
				f.removed |= 1 << p
			}
		}
	}
	failed := bits.OnesCount16(uint16(f.crashed))
	for _, id := range outcomes {
		failed += bits.OnesCount16(uint16(j.outcomes[id].accused &^ f.crashed))
	}
	f.beyond = failed > j.tolerated
	f.gone = f.crashed | f.accused&(f.halted|f.removed) | f.accusers&f.halted
	if f.beyond {
		f.gone |= f.halted | f.removed
	}
	return f
}

// judgeSurvival looks for a correct server that is removed or halts although few enough failed.
func (j *judge) judgeSurvival(outcomes []uint32, f failures) *order.Violation {
	for _, id := range outcomes {
		o := j.outcomes[id]
		for _, r := range j.removalsOf(o) {
			for _, p := range r.removed {
				if !(f.crashed | f.halted | f.accused).has(int(p)) {
					return &order.Violation{Property: Accuracy, Evidence: []string{
						fmt.Sprintf("server %d A-delivers [epoch %d, round %d], which removes "+
							"server %d", o.id, r.epoch, r.round, p),
						fmt.Sprintf("server %d has neither crashed nor halted, and no "+
							"server suspects it falsely", p),
					}}
				}
			}
		}
		if o.halted && !f.beyond && !(f.accused | f.accusers).has(int(o.id)) {
			return &order.Violation{Property: Survival, Evidence: []string{
				fmt.Sprintf("server %d halts, has no part in a false suspicion, and no more "+
					"servers failed than the group tolerates", o.id)}}
		}
	}
	return nil
}
