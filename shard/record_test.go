package shard

import (
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

func roundsTo(first, last order.Round) (rounds []order.Delivery) {
	for round := first; round <= last; round++ {
		rounds = append(rounds, order.Delivery{Round: round, Epoch: 3})
	}
	return rounds
}

// A record has the complete rounds behind the last executed one, once those before are executed.
func TestRecorder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                  string
		first, last, executed order.Round
		want                  []order.Round
	}{
		{"one round", 7, 7, 6, []order.Round{7}},
		{"two rounds", 7, 8, 6, []order.Round{7, 8}},
		{"the first is executed", 7, 8, 7, []order.Round{8}},
		{"both are executed", 7, 8, 8, nil},
		{"execution is behind", 7, 8, 5, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var r Recorder
			r.Offer(roundsTo(c.first, c.last))
			if r.Waits(c.executed) != (c.want != nil) {
				t.Error("it says otherwise before")
			}
			var taken []order.Round
			for _, d := range r.Take(c.executed) {
				taken = append(taken, d.Round)
			}
			if !slices.Equal(taken, c.want) {
				t.Errorf("it takes %v, want %v", taken, c.want)
			}
			if c.want != nil && r.Take(c.executed) != nil {
				t.Error("it takes them twice")
			}
			if r.Drop(); r.Take(c.first-1) != nil {
				t.Error("it takes what was dropped")
			}
		})
	}
	r := Recorder{Fault: FaultRecordLastOnly}
	r.Offer(roundsTo(7, 8))
	if taken := r.Take(6); len(taken) != 1 || taken[0].Round != 8 {
		t.Errorf("the planted bug takes %+v", taken)
	}
}

// A round with an epoch counts for the block of that round and that epoch, once both are known, and
// for all blocks before it, next to the blocks that other members stored.
func TestRecordsCountLikeBlocks(t *testing.T) {
	t.Parallel()
	run := generation.NewRun(2, 1)
	begin := func() *Durability {
		d := &Durability{}
		d.Begin(run, generation.Membership{Members: serversTo(5)}, nil)
		return d
	}
	said := []Recorded{{Round: 8, Epoch: 3}, {Round: 9, Epoch: 3}}
	for _, recordedFirst := range []bool{false, true} {
		d := begin()
		execute := func() {
			d.Executed(4, Recorded{Round: 8, Epoch: 3})
			d.Executed(5, Recorded{Round: 9, Epoch: 4})
		}
		if !recordedFirst {
			execute()
		}
		d.Recorded(run, 0, said)
		d.Recorded(run, 3, said)
		d.Stored(run, 1, 6)
		if recordedFirst {
			execute()
		}
		if d.Height() != 4 || d.Holds(0) != 4 || d.Holds(1) != 6 || d.Holds(9) != 0 {
			t.Errorf("durable up to %d, and 0 holds %d", d.Height(), d.Holds(0))
		}
		if d.Recorded(run, 7, said) || d.Recorded(run-1, 2, said) {
			t.Error("a server that is no member counts, or another run")
		}
		if d.Stored(run, 2, 5); d.Height() != 4 {
			t.Errorf("a round of another epoch counts: durable up to %d", d.Height())
		}
		d.End()
		if d.Executed(6, Recorded{}); d.Recorded(run, 0, said) || d.Height() != 0 {
			t.Error("it counts after the end")
		}
	}
	// The planted bug counts a round of another epoch, but no other round.
	d := begin()
	d.Fault = FaultRecordOfAnyValue
	d.Executed(5, Recorded{Round: 9, Epoch: 4})
	if d.Recorded(run, 0, said[:1]); d.Holds(0) != 0 {
		t.Errorf("another round counts up to %d", d.Holds(0))
	}
	if d.Recorded(run, 0, said[1:]); d.Holds(0) != 5 {
		t.Errorf("with the planted bug, the round counts up to %d", d.Holds(0))
	}
	// A member whose disk is replaced counts up to the block before.
	d = begin()
	to := generation.Membership{Members: serversTo(5), Disks: make([]generation.DiskID, 5)}
	to.Disks[0] = generation.DiskID{7}
	d.Changed(to, 4)
	d.Executed(4, said[0])
	if d.Recorded(run, 0, said); d.Holds(0) != 3 {
		t.Errorf("the replaced disk counts up to %d", d.Holds(0))
	}
	// The lists are bounded, and the newest count.
	d = begin()
	for round := range order.Round(3 * recordsMax) {
		d.Executed(uint64(round)+1, Recorded{round, 1})
		for member := range order.ServerID(3) {
			d.Recorded(run, member, []Recorded{{round, 1}})
		}
	}
	if len(d.blocks) != recordsMax || len(d.recorded[0]) != recordsMax ||
		d.Height() != 3*recordsMax {
		t.Errorf("%d blocks, %d rounds, durable up to %d", len(d.blocks), len(d.recorded[0]),
			d.Height())
	}
}

// A record counts in the run that the disk took part in last, on the chain that it follows.
func TestRecordCounts(t *testing.T) {
	t.Parallel()
	run := generation.NewRun(2, 0)
	r := Record{Run: run, Height: 5, Hash: hashAt(5, 0), After: 9,
		Rounds: []generation.TailRound{{Round: 10, Epoch: 4}, {Round: 11, Epoch: 4}}}
	if r.Last() != 11 || !slices.Equal(r.Names(), []Recorded{{10, 4}, {11, 4}}) {
		t.Errorf("it ends with round %d, and names %v", r.Last(), r.Names())
	}
	damaged := errors.New("damaged")
	for name, c := range map[string]struct {
		run    generation.Run
		height uint64
		branch byte
		err    error
		counts bool
	}{
		"it counts":                {run, 6, 0, nil, true},
		"at the block":             {run, 5, 0, nil, true},
		"another run":              {run + 1, 6, 0, nil, false},
		"the chain is shorter":     {run, 4, 0, nil, false},
		"the chain is another":     {run, 6, 1, nil, false},
		"the chain cannot be read": {run, 6, 0, damaged, false},
	} {
		counts, err := r.Counts(c.run, c.height, func(height uint64) ([32]byte, error) {
			return hashAt(height, c.branch), c.err
		})
		if counts != c.counts || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", name, counts, err)
		}
	}
	report := generation.Report{Head: generation.Head{Height: 6, Round: 6}, Empty: 1}
	if r.Report(&report); report.Head.Round != 9 || report.Empty != 4 ||
		len(report.Recorded) != 2 {
		t.Errorf("%+v", report)
	}
	report = generation.Report{Head: generation.Head{Height: 9, Round: 10}}
	if r.Report(&report); report.Head.Round != 10 || report.Empty != 0 {
		t.Errorf("%+v", report)
	}
}

// TestReportsRecords: a member reports the record of the run that its disk took part in last, also
// after a restart. The planted bug leaves it out after a run.
func TestReportsRecords(t *testing.T) {
	t.Parallel()
	run := generation.NewRun(1, 0)
	for name, c := range map[string]struct {
		run     generation.Run
		fault   Fault
		works   bool
		worked  generation.Generation
		reports bool
	}{
		"of the run":              {run, FaultNone, false, 1, true},
		"of another run":          {run + 1, FaultNone, false, 1, false},
		"while it works":          {run, FaultNone, true, 1, true},
		"the planted bug":         {run, FaultRecordNotPromised, false, 1, false},
		"the bug, while it works": {run, FaultRecordNotPromised, true, 1, true},
		"the bug, restarted":      {run, FaultRecordNotPromised, false, 0, true},
	} {
		m, _ := newTestMember(t, 3)
		m.work(3, run)
		if !c.works {
			m.group = nil
		}
		m.config.Fault, m.worked = c.fault, c.worked
		m.recorded = &Record{Run: c.run, Height: 9, Hash: hashAt(9, 0), After: 9,
			Rounds: []generation.TailRound{{Round: 10}}}
		if got := m.holdings().Recorded; (len(got) == 1) != c.reports {
			t.Errorf("%s: it reports %v", name, got)
		}
		config := m.config
		config.Fault, config.Disk.Record = FaultNone, m.recorded
		config.Disk.State.Activated = run
		again, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		if got := again.holdings().Recorded; (len(got) == 1) != (c.run == run) {
			t.Errorf("%s: after a restart it reports %v", name, got)
		}
	}
}
