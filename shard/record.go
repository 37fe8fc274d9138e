package shard

import (
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Record is what a disk has of complete rounds that are not in its chain yet. A member may write
// rounds of a whole group to its disk before they are A-delivered, and say so. They then count for
// what is durable. docs/design/rounds.md has the rules, and the proof that they lose nothing.
type Record struct {
	// Run is the run of the rounds.
	Run generation.Run
	// Height and Hash name the last block before the rounds, After is the round before the first.
	// The disk had both when it got the record.
	Height uint64
	Hash   [32]byte
	After  order.Round
	// Rounds are one or two rounds in a row, as votes name them. The driver holds their contents.
	Rounds []generation.TailRound
}

// Last returns the last recorded round.
func (r *Record) Last() order.Round { return r.After + order.Round(len(r.Rounds)) }

// Recorded names a round that a disk recorded. A server A-broadcasts one message in a state, so the
// epoch says which messages a complete round has. A round that was rerun has another epoch.
type Recorded struct {
	Round order.Round
	// Epoch is the chain's.
	Epoch order.Epoch
}

// Names lists the recorded rounds as they are announced.
func (r *Record) Names() []Recorded {
	var names []Recorded
	for i := range r.Rounds {
		names = append(names, Recorded{r.Rounds[i].Round, r.Rounds[i].Epoch})
	}
	return names
}

// Recorder decides which complete rounds go to the disk. One flush at a time is under way.
type Recorder struct {
	// Fault plants a bug. Production leaves it FaultNone.
	Fault Fault

	// offered are the complete rounds that wait for a flush.
	offered []order.Delivery
}

// Offer takes the complete rounds of a whole group, as the turn's machine returns them. They
// replace those that wait: of these, one at most is not among them, and it has been A-delivered.
func (r *Recorder) Offer(rounds []order.Delivery) { r.offered = rounds }

// Waits reports whether a flush would take a record now. Executed is the last executed round. A
// record comes after all blocks before it, so a member whose execution is behind its engine waits.
func (r *Recorder) Waits(executed order.Round) bool {
	n := len(r.offered)
	return n > 0 && r.offered[0].Round <= executed+1 && r.offered[n-1].Round > executed
}

// Take returns the rounds of the record that the next flush takes, those behind the last executed
// round. It returns none if there is none to take yet. The record then has to be in the same flush
// as everything that was executed, or in a later one.
func (r *Recorder) Take(executed order.Round) []order.Delivery {
	if !r.Waits(executed) {
		return nil
	}
	rounds := r.offered
	r.offered = nil
	for rounds[0].Round <= executed {
		rounds = rounds[1:]
	}
	if r.Fault == FaultRecordLastOnly {
		rounds = rounds[len(rounds)-1:]
	}
	return rounds
}

// Drop forgets what waits. A member does so before it reports what its disk has (Settled), and
// takes no rounds of that run afterwards.
func (r *Recorder) Drop() { r.offered = nil }

// Counts reports whether a record still counts: it is of the run that the disk took part in last,
// and the chain on the disk, which ends at a height, goes on from the block that the record
// follows.
func (r *Record) Counts(activated generation.Run, head uint64,
	hash func(height uint64) ([32]byte, error)) (bool, error) {
	if r.Run != activated || head < r.Height {
		return false, nil
	}
	found, err := hash(r.Height)
	return err == nil && found == r.Hash, err
}

// Report adds a record that counts to what a member reports of its chain.
func (r *Record) Report(report *generation.Report) {
	report.Recorded = r.Rounds
	after := max(r.After, report.Head.Round)
	report.Empty += after - report.Head.Round
	report.Head.Round = after
}

// reportRecord adds the record of this member's disk to its report, if it counts.
func (m *Member) reportRecord(report *generation.Report) {
	r := m.recorded
	if r == nil || m.config.Fault == FaultRecordNotPromised && m.group == nil && m.worked != 0 {
		return
	}
	activated := m.config.Disk.State.OnDisk(m.config.Disk.ID, m.config.Disk.Original).Activated
	if m.synod != nil {
		activated = m.synod.Activated()
	}
	counts, err := r.Counts(activated, report.Head.Height, m.chain.Hash)
	if err != nil {
		m.finish(err)
		return
	}
	if counts {
		r.Report(report)
	}
}

// recordsMax bounds the recorded rounds that are remembered of a member, and the blocks that they
// are compared with. A member that is further behind counts what others stored.
const recordsMax = 64

// executed is a block of the run.
type executed struct {
	height uint64
	name   Recorded
}

// Recorded records that a member's disk has complete rounds of a run, as the member announced. It
// reports whether that counts, as Stored does.
func (d *Durability) Recorded(run generation.Run, member order.ServerID, rounds []Recorded) bool {
	at, found := slices.BinarySearch(d.members, member)
	if !found || run != d.run {
		return false
	}
	for _, name := range rounds {
		if !slices.Contains(d.recorded[at], name) {
			d.recorded[at] = bounded(d.recorded[at], name)
		}
	}
	d.match(at)
	return true
}

// Executed says that a round of the run made a block. Members that recorded that very round hold
// the chain up to the block: a disk that has a record has all blocks before it.
func (d *Durability) Executed(height uint64, name Recorded) {
	if d.quorum == 0 {
		return
	}
	d.blocks = bounded(d.blocks, executed{height, name})
	for at := range d.members {
		if len(d.recorded[at]) > 0 {
			d.match(at)
		}
	}
}

// match finds the last block that a member recorded.
func (d *Durability) match(at int) {
	for i := len(d.blocks) - 1; i >= 0; i-- {
		b := d.blocks[i]
		if b.height <= d.matched[at] {
			return
		}
		if slices.ContainsFunc(d.recorded[at], func(name Recorded) bool {
			return name == b.name || d.Fault == FaultRecordOfAnyValue && name.Round == b.name.Round
		}) {
			d.matched[at] = b.height
			return
		}
	}
}

// Holds returns the height up to which a member's disk holds each block or the record of its round.
func (d *Durability) Holds(member order.ServerID) uint64 {
	at, found := slices.BinarySearch(d.members, member)
	if !found {
		return 0
	}
	return d.holds(at)
}

// bounded appends to a list of at most recordsMax, of which it drops the oldest.
func bounded[T any](list []T, next T) []T {
	if len(list) == recordsMax {
		copy(list, list[1:])
		list = list[:recordsMax-1]
	}
	return append(list, next)
}
