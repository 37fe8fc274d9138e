package generation

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
)

// Records of complete rounds in the world of frozen engines: docs/design/rounds.md has the rules.

// recordPlant is a bug to plant in the keeping of records.
type recordPlant uint8

const (
	// recordAnnouncedEarly announces a record before it is on the disk.
	recordAnnouncedEarly recordPlant = 1 + iota
	// recordLastOnly records the last complete round without the one before it.
	recordLastOnly
)

// frozenRecords is what a server's disk has of its run.
type frozenRecords struct {
	// synced is the round up to which it has the A-delivered ones. rounds were recorded last, and
	// last is the highest round that was offered.
	synced, last order.Round
	rounds       []TailRound
	// writing are rounds on their way to the disk, together with the A-delivered ones up to
	// writingTo.
	writing   []TailRound
	writingTo order.Round
	// announced are the rounds that were announced in the run.
	announced []TailRound
}

// record lets a server record complete rounds, and lets its disk make progress, or not.
func (w *frozenWorld) record(s *frozenServer) {
	if !w.frozenSetting.records {
		return
	}
	disk := &s.records
	completer := s.engine.(interface {
		Complete(order.Round) ([]order.Delivery, bool)
	})
	if rounds, whole := completer.Complete(disk.last); len(rounds) > 0 {
		disk.last = rounds[len(rounds)-1].Round
		if whole && disk.writing == nil && w.rng.IntN(4) > 0 {
			if w.plant.record == recordLastOnly {
				rounds = rounds[len(rounds)-1:]
			}
			for _, d := range rounds {
				disk.writing = append(disk.writing, contentOf(d, s.group))
			}
			disk.writingTo = order.Round(len(s.delivered))
			if w.plant.record == recordAnnouncedEarly {
				disk.announced = append(disk.announced, disk.writing...)
			}
		}
	}
	switch w.rng.IntN(6) {
	case 0:
		disk.flush()
	case 1:
		if disk.writing == nil {
			disk.synced = order.Round(len(s.delivered))
		}
	}
}

// flush ends the flush that is under way, if any.
func (disk *frozenRecords) flush() {
	if disk.writing != nil {
		disk.rounds, disk.synced = disk.writing, max(disk.synced, disk.writingTo)
		disk.announced = append(disk.announced, disk.writing...)
		disk.writing = nil
	}
}

// recover sets what a server reports from its disk, and returns the round of its head. A server
// that did not restart waits for the flush that is under way. A crash keeps that or loses it.
func (w *frozenWorld) recover(s *frozenServer, r *Report) int {
	disk := &s.records
	head := order.Round(len(s.delivered))
	switch {
	case r.Restarted && disk.writing != nil && w.rng.IntN(2) == 0:
		disk.rounds, disk.synced = disk.writing, max(disk.synced, disk.writingTo)
		disk.writing = nil
	case r.Restarted:
		disk.writing = nil
	default:
		disk.flush()
	}
	r.Recorded = disk.rounds
	if r.Restarted {
		head = disk.synced
		r.Membership = s.shard
		if head == order.Round(len(s.delivered)) {
			r.Membership = s.membership
		}
	}
	return int(head)
}

// judgeRecords: a round that a majority of the shard announced, with the value that some server
// A-delivered, is in the base or the tail, whatever servers forgot.
func (w *frozenWorld) judgeRecords(base Head, tail []TailRound, run Run, shard Membership) error {
	for p, s := range w.servers {
		if s.run != run || len(s.shard.Members) != len(shard.Members) {
			continue
		}
		for _, d := range s.delivered[min(len(s.delivered), int(base.Round)):] {
			holders := 0
			for _, member := range shard.Members {
				other := w.servers[member]
				if other.run == run && slices.ContainsFunc(other.records.announced, d.Equal) {
					holders++
				}
			}
			if holders < shard.Quorum() {
				continue
			}
			at := int(d.Round - base.Round - 1)
			if at >= len(tail) || !d.Equal(tail[at]) {
				return fmt.Errorf("%w: server %d A-delivered round %d, and %d disks recorded it",
					errDisks, p, d.Round, holders)
			}
			w.out.recorded = max(w.out.recorded, at+1)
		}
	}
	return nil
}

// recordSettings are groups that are their whole shard.
func recordSettings() (list []frozenSetting) {
	for _, setting := range frozenSettings() {
		if setting.n == setting.shard && setting.engine == allconcur.EngineAllConcurPlus {
			setting.records = true
			list = append(list, setting)
		}
	}
	return list
}

// TestRecords tests engines' complete rounds, the reports of disks, and choose together.
func TestRecords(t *testing.T) {
	t.Parallel()
	seeds := *frozenSeeds
	if testing.Short() {
		seeds = 5
	}
	var all frozenTally
	recorded := 0
	for _, setting := range recordSettings() {
		for seed := *frozenFirst; seed < *frozenFirst+8*seeds; seed++ {
			out, err := runFrozen(seed, setting, frozenPlant{})
			if err != nil {
				t.Fatalf("%+v, seed %d: %v", setting, seed, err)
			}
			all.count(out)
			if out.recorded > 0 && out.forced {
				recorded++
			}
		}
	}
	t.Logf("%+v, durable by records alone: %d", all, recorded)
	if seeds >= 30 && recorded == 0 {
		t.Fatal("too little of what is to be tested came up")
	}
}

// TestRecordsCatch proves that TestRecords can fail.
func TestRecordsCatch(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it judges the test, not what is tested")
	}
	for name, plant := range map[string]frozenPlant{
		"records ignored": {choose: FaultRecordsIgnored},
		"records first":   {choose: FaultRecordsFirst},
		"announced early": {record: recordAnnouncedEarly},
		"last only":       {record: recordLastOnly},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(4000) {
				for _, setting := range recordSettings() {
					if setting.n > 5 {
						continue
					}
					if _, err := runFrozen(seed, setting, plant); err != nil {
						t.Logf("%+v, seed %d: %v", setting, seed, err)
						return
					}
				}
			}
			t.Fatal("the planted bug goes unnoticed")
		})
	}
}

// A recorded value is taken before votes are counted, unless a majority remembers its votes or
// another value is confirmed.
func TestChooseRecorded(t *testing.T) {
	t.Parallel()
	run, shard := NewRun(1, 0), Membership{Members: []order.ServerID{0, 1, 2, 3, 4}}
	value := func(round order.Round, epoch order.Epoch) TailRound {
		return TailRound{Round: round, Epoch: epoch, Content: [32]byte{byte(round), byte(epoch)}}
	}
	promised := func(server order.ServerID, restarted bool, recorded ...TailRound) Promised {
		return Promised{server, Report{Head: Head{Generation: 1, Height: 6, Round: 6},
			Original: true, Run: run, Restarted: restarted, Shard: shard, Membership: shard,
			Recorded: recorded}}
	}
	voted := func(p Promised, confirmed bool, values ...TailRound) Promised {
		for _, v := range values {
			v.Reliable = v.Epoch > 1
			p.Report.Votes = append(p.Report.Votes, Vote{TailRound: v, Voters: shard.Members,
				Confirmed: confirmed})
		}
		return p
	}
	set := value(7, 2)
	set.Reliable = true
	further := promised(1, true)
	further.Report.Head.Height, further.Report.Head.Round = 7, 7
	earlier := promised(1, true, value(7, 1))
	earlier.Report.Run--
	learner := promised(1, true, value(7, 1))
	learner.Report.Original = false
	for name, c := range map[string]struct {
		promises []Promised
		want     []TailRound
	}{
		"of one that remembers": {[]Promised{promised(0, false, value(7, 1)), promised(3, true),
			promised(4, true)}, []TailRound{value(7, 1)}},
		"of one that restarted": {[]Promised{promised(0, false), promised(3, true, value(7, 1)),
			promised(4, true)}, []TailRound{value(7, 1)}},
		"before votes": {[]Promised{voted(promised(0, false), false, set),
			voted(promised(1, false), false, set), promised(3, true, value(7, 1))},
			[]TailRound{value(7, 1)}},
		"not before a confirmed value": {[]Promised{voted(promised(0, false), true, set),
			promised(1, true), promised(3, true, value(7, 1))}, []TailRound{set}},
		"not if a majority remembers": {[]Promised{promised(0, false), promised(1, false),
			promised(2, false), promised(3, true, value(7, 1))}, nil},
		"two rounds": {[]Promised{promised(0, true, value(7, 1), value(8, 1)), promised(1, true),
			promised(2, true)}, []TailRound{value(7, 1), value(8, 1)}},
		"the second of another disk": {[]Promised{promised(0, true, value(7, 1)), promised(1, true,
			value(7, 1), value(8, 1)), promised(2, true)}, []TailRound{value(7, 1), value(8, 1)}},
		"the second, and the first of another disk": {[]Promised{promised(0, true, value(7, 1)),
			promised(1, true, value(8, 1)), promised(2, true)},
			[]TailRound{value(7, 1), value(8, 1)}},
		"the second after another": {[]Promised{voted(promised(0, false), true, set),
			promised(1, true, value(7, 1), value(8, 1)), promised(2, true)}, []TailRound{set}},
		"the second alone": {[]Promised{promised(0, true, value(7, 1), value(8, 1)), further,
			promised(2, true)}, []TailRound{value(8, 1)}},
		"none before it": {[]Promised{promised(0, true, value(8, 1)), promised(1, true),
			promised(2, true)}, nil},
		"of another run": {[]Promised{promised(0, true), earlier, promised(2, true)}, nil},
		"of a learner": {[]Promised{promised(0, true), learner, promised(2, true),
			promised(3, true)}, nil},
	} {
		_, tail := choose(c.promises, nil, FaultNone)
		if !slices.EqualFunc(tail, c.want, TailRound.Equal) {
			t.Errorf("%s: %+v, want %+v", name, tail, c.want)
		}
	}
}
