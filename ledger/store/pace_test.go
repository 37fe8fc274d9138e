package store

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// Work behind rests the longer, the more of the time blocks take, and never for longer than so that
// it comes to an end.
func TestRestFactor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ least, share, want float64 }{
		{leastRest, 0, 3}, {0, 0, 0}, {leastRest, 0.01, 6}, {0, 0.1, 30}, {leastRest, 0.1, 33},
		{0, 0.5, 60}, {leastRest, 1, 60},
	} {
		if got := restFactor(test.least, test.share); got != test.want {
			t.Errorf("%v: %v", test, got)
		}
	}
}

// The length of a rest depends on how long the work went on, and on the time that the store spent
// with blocks since the rest before.
func TestRestsAmidBlocks(t *testing.T) {
	t.Parallel()
	s := &Store{options: Options{slice: sliceDefault}}
	p := s.newPace()
	now, pressed := p.began, false
	length := func(worked, busy time.Duration) time.Duration {
		now = now.Add(worked)
		s.busy.Add(int64(busy))
		length := p.length(now)
		now = now.Add(length)
		p.began = now
		return length
	}
	const work = 10 * time.Millisecond
	if got := length(work, 0); got != leastRest*work {
		t.Errorf("without blocks it rests for %v", got)
	}
	if got := length(work, work*(1+leastRest)); got != mostRest*work {
		t.Errorf("with nothing but blocks it rests for %v", got)
	}
	if got := length(work, work*(1+mostRest)/10); got != (leastRest+restOfBusy/10)*work {
		t.Errorf("while blocks take a tenth of the time it rests for %v", got)
	}
	if got := length(work, 0); got != leastRest*work {
		t.Errorf("after the blocks it rests for %v", got)
	}
	p.presses = func() bool { return pressed }
	for _, pressed = range []bool{true, false} {
		want := time.Duration(mostRest)
		if pressed {
			want = leastRest
		}
		if got := length(work, time.Hour); got != want*work {
			t.Errorf("if blocks wait for it (%v), it rests for %v", pressed, got)
		}
	}
	// A slice that waited for the disk, or for another merge, counts as a few of them.
	if got := length(time.Minute, time.Hour); got != mostRest*mostSlices*sliceDefault {
		t.Errorf("after a minute it rests for %v", got)
	}
	if p.steady = true; length(work, time.Hour) != leastRest*work {
		t.Error("steady work rests for longer while blocks come")
	}
}

// What merges do while another one rests does not lengthen its rest.
func TestRestIsOfOwnWork(t *testing.T) {
	t.Parallel()
	options := small()
	options.slice = 10 * time.Millisecond
	s := open(t, t.TempDir(), options)
	p := s.newPace()
	p.least = 0
	// The length of the rest is asked for first. Then something becomes due, and is done meanwhile.
	p.presses = func() bool {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.merging.gone = []*run{{kind: rowSteps, number: 100}}
		return true
	}
	if err := s.rest(p); err != nil {
		t.Fatal(err)
	}
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	if s.merging.gone != nil {
		t.Error("the length of the rest has the time of what was done meanwhile")
	}
}

// Blocks count as the time that the store spends with them, and accounts that they need as read.
func TestBusyWithBlocks(t *testing.T) {
	t.Parallel()
	dir, options := t.TempDir(), small()
	options.AccountsInMemory, options.residentAtStart, options.keepCold = 1000, 3, true
	b := leavesBook(t, dir, options)
	s := open(t, dir, options)
	if s.busyWithBlocks() != 0 || s.cold.Load() != 0 {
		t.Error("a store that was opened is busy")
	}
	b.apply(t, s, 7)
	busy, cold := s.busyWithBlocks(), s.cold.Load()
	if busy <= 0 || cold == 0 {
		t.Errorf("a block took %v and %d accounts", busy, cold)
	}
	w := warmer{store: s}
	if !w.presses() || w.presses() {
		t.Error("the warmer knows nothing of the accounts")
	}
}

// levelRuns writes some runs of a level, each with some entries of its own and some that all have.
func levelRuns(t *testing.T, s *Store, level uint8, count int) (runs []*run) {
	t.Helper()
	for i := range count {
		var records [][2]string
		for key := range 40 {
			records = append(records, [2]string{fmt.Sprintf("k%02d", key),
				fmt.Sprintf("level %d, run %d", level, i)})
		}
		records = append(records, [2]string{fmt.Sprintf("of %d-%d", level, i), "its own"})
		r, err := writeRun(s, rowEntries, records)
		if err != nil {
			t.Fatal(err)
		}
		r.level = level
		runs = append(runs, r)
	}
	return runs
}

// While a large merge rests, smaller ones go on, and what they replaced is removed. The large one
// waits for the checkpoint that puts in a smaller one's run. Nothing of either is lost.
func TestSmallMergesGoOn(t *testing.T) {
	t.Parallel()
	var s *Store
	var all []*run
	options, once := small(), sync.Once{}
	options.slice = 1
	options.onWrite = func(step string) {
		if step == "state" { // of the large merge, which has begun
			once.Do(func() { s.runs.runs.Store(&all) })
		}
	}
	s = open(t, t.TempDir(), options)
	large, little := levelRuns(t, s, 1, 3), levelRuns(t, s, 0, 3)
	all = slices.Concat(large, little)
	want, err := readMerged(s, all)
	if err != nil {
		t.Fatal(err)
	}
	s.adopt(large, nil)
	adoptNext := func() []*run {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			s.mutex.RLock()
			made := s.merging.made
			s.mutex.RUnlock()
			if made != nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("no merge ends")
			}
		}
		next, replaced := s.nextRuns(nil)
		s.adopt(next, replaced)
		return replaced
	}
	if replaced := adoptNext(); !slices.Equal(replaced, little) {
		t.Errorf("the first merge is of %v, want %v", replaced, little)
	}
	if replaced := adoptNext(); !slices.Equal(replaced, large) {
		t.Errorf("the second merge is of %v, want %v", replaced, large)
	}
	merged := s.runs.list()
	if len(merged) != 2 || merged[0].level != 2 || merged[1].level != 1 {
		t.Fatalf("the runs are %v", merged)
	}
	if got, err := readMerged(s, merged); err != nil || !slices.Equal(got, want) {
		t.Errorf("they have %v, %v; want %v", got, err, want)
	}
	s.runs.runs.Store(&[]*run{})
}

// A merge rests amid blocks, unless runs pile up.
func TestMergesRest(t *testing.T) {
	t.Parallel()
	options := small()
	options.slice = time.Hour // a rest is longer than any test
	s := open(t, t.TempDir(), options)
	var few []*run
	for number := range pileFactor*s.options.fanOut - 1 {
		few = append(few, &run{kind: rowSteps, level: 3, number: uint64(number)})
	}
	many := append(slices.Clone(few), &run{kind: rowSteps, level: 3, number: 100})
	p := s.newPace()
	// The merge that rests is of these runs, so neither the store nor the rest merges them.
	s.mutex.Lock()
	s.merging.under = []rank{{3, rowSteps}}
	s.runs.runs.Store(&many)
	s.mutex.Unlock()
	p.began = p.began.Add(-time.Hour)
	if err := s.rest(p); err != nil || p.due() {
		t.Errorf("although runs pile up, it rests: %v", err)
	}
	s.runs.runs.Store(&few)
	s.busy.Store(1 << 60)
	p.began = p.began.Add(-time.Hour)
	ended := make(chan error, 1)
	go func() { ended <- s.rest(p) }()
	select {
	case err := <-ended:
		t.Fatalf("it does not rest: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	s.runs.runs.Store(&[]*run{})
	closeStore(t, s)
	if err := <-ended; err != ErrClosed {
		t.Error(err)
	}
}

// An eager store takes no block while runs pile up that a merge is about to replace, and never
// waits for what only the next layer brings.
func TestEagerStoreWaitsForMerges(t *testing.T) {
	t.Parallel()
	options := small()
	options.Eager = true
	s := open(t, t.TempDir(), options)
	var few []*run
	for number := range s.options.fanOut + eagerPile - 1 {
		few = append(few, &run{kind: rowSteps, number: uint64(number)})
	}
	many := append(slices.Clone(few), &run{kind: rowSteps, number: 100})
	merges := merging{under: []rank{{0, rowSteps}}}
	made := merges
	made.made = few[0]
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, test := range []struct {
		runs    []*run
		merging merging
		want    bool
	}{{many, merges, false}, {few, merges, true}, {many, made, true}, {many, merging{}, true}} {
		s.runs.runs.Store(&test.runs)
		s.merging = test.merging
		if got := s.hasRoom(); got != test.want {
			t.Errorf("with %d runs and %+v it has room: %v", len(test.runs), test.merging, got)
		}
	}
	s.merging = merging{}
	s.runs.runs.Store(&[]*run{})
}

// An eager store goes on, whether layers bring much or little, and its runs do not pile up.
func TestEagerStoreGoesOn(t *testing.T) {
	t.Parallel()
	options := small()
	options.Eager, options.checkpointBlocks = true, 1
	s := open(t, t.TempDir(), options)
	b := newBook(40)
	for block := range 120 {
		many := 1
		if block < 60 {
			many = 30
		}
		b.apply(t, s, many)
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
