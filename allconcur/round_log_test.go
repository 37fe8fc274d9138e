package allconcur

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// Logs of rounds, as docs/design/rounds.md derives them: a server of a whole group writes a round
// to its disk once it is complete, and announces that after the flush. The tests here give such
// logs to real engines under random schedules, freeze them at any moment, take any majority of the
// disks, and forget the votes of any of its servers. They judge that what a majority announced, and
// some server A-delivered, is found.

// roundLogs are the logs of all servers.
type roundLogs struct {
	disks []roundDisk
	// announced[p] are the rounds that server p announced. all are those of all servers.
	announced []map[announcedRound]bool
	all       []announcedRound
	fault     logFault
}

// roundDisk is one server's disk.
type roundDisk struct {
	run uint64
	// synced is the round up to which the disk has the A-delivered rounds, record the last record.
	synced order.Round
	record *roundRecord
	// writing is a record whose flush has not returned. It takes the A-delivered rounds up to
	// writingTo with it.
	writing   *roundRecord
	writingTo order.Round
	// last is the last round that a record was made of.
	last order.Round
}

// roundRecord has the complete rounds of a run after the last A-delivered one.
type roundRecord struct {
	run    uint64
	after  order.Round
	rounds []order.Delivery
}

// announcedRound names a value of a round. A digest of the round's contents would say the same as
// its epoch: a server A-broadcasts one message in a state.
type announcedRound struct {
	run   uint64
	round order.Round
	epoch order.Epoch
}

// logFault is a bug of a log, or of what is read from logs.
type logFault uint8

const (
	// logFaultAnnouncedEarly announces before the flush has returned.
	logFaultAnnouncedEarly logFault = 1 + iota
	// logFaultAnyGroup logs in a group that removed servers.
	logFaultAnyGroup
	// logFaultAnyValue counts announcements for a round that was A-delivered with another value.
	logFaultAnyValue
	// logFaultMemoryWithoutRecord drops the record of a server that did not restart.
	logFaultMemoryWithoutRecord
	// logFaultLastRoundOnly leaves a complete round before the last one out of a record.
	logFaultLastRoundOnly
	// logFaultRecordBeforeBlocks writes a record without the A-delivered rounds before it.
	logFaultRecordBeforeBlocks
	// logFaultIgnored reads no records.
	logFaultIgnored
	// logFaultRecordsFirst prefers records to the votes of a majority.
	logFaultRecordsFirst
)

func newRoundLogs(servers int, fault logFault) *roundLogs {
	l := &roundLogs{disks: make([]roundDisk, servers), fault: fault}
	for range servers {
		l.announced = append(l.announced, map[announcedRound]bool{})
	}
	return l
}

// writeLog lets the disk of a server that took a step make progress, or not.
func (c *chaos) writeLog(p int) error {
	if c.logs == nil || c.crashed[p] {
		return nil
	}
	e, disk := c.engines[p], &c.logs.disks[p]
	if run := e.config.Generation; disk.run != run {
		// A server begins a run with everything before it on its disk.
		c.logs.flush(p)
		*disk = roundDisk{run: run, synced: e.config.FirstRound - 1, last: e.config.FirstRound - 1}
	}
	rounds, whole := e.Complete()
	if len(rounds) > 0 && rounds[len(rounds)-1].Round > disk.last {
		// Each round gets one chance. The disk may be busy, or the server.
		disk.last = rounds[len(rounds)-1].Round
		if rounds[0].Round != e.delivered+1 {
			return fmt.Errorf("server %d completed rounds from %d on, and A-delivered %d", p,
				rounds[0].Round, e.delivered)
		}
		whole = whole || c.logs.fault == logFaultAnyGroup
		if whole && disk.writing == nil && c.rng.IntN(8) > 0 {
			c.logs.write(p, &roundRecord{disk.run, e.delivered, rounds})
		}
	}
	switch c.rng.IntN(8) {
	case 0, 1, 2:
		c.logs.flush(p)
	case 3:
		if disk.writing == nil {
			disk.synced = e.delivered
		}
	}
	return nil
}

// write begins to write a record.
func (l *roundLogs) write(p int, r *roundRecord) {
	disk := &l.disks[p]
	if l.fault == logFaultLastRoundOnly {
		r.rounds = r.rounds[len(r.rounds)-1:]
	}
	disk.writing, disk.writingTo = r, r.after
	switch l.fault {
	case logFaultAnnouncedEarly:
		l.announce(p, r)
	case logFaultRecordBeforeBlocks:
		disk.writingTo = disk.synced
	}
}

// flush ends the flush that is under way, if any.
func (l *roundLogs) flush(p int) {
	disk := &l.disks[p]
	if r := disk.writing; r != nil {
		disk.record, disk.synced, disk.writing = r, max(disk.synced, disk.writingTo), nil
		l.announce(p, r)
	}
}

func (l *roundLogs) announce(p int, r *roundRecord) {
	last := r.rounds[len(r.rounds)-1]
	at := announcedRound{r.run, last.Round, last.Epoch}
	l.announced[p][at] = true
	if !slices.Contains(l.all, at) {
		l.all = append(l.all, at)
	}
}

// majority reports whether a majority announced a round, with this value.
func (l *roundLogs) majority(d order.Delivery) bool {
	for _, at := range l.all {
		if at.round != d.Round || at.epoch != d.Epoch && l.fault != logFaultAnyValue {
			continue
		}
		count := 0
		for _, announced := range l.announced {
			if announced[at] {
				count++
			}
		}
		if count > len(l.announced)/2 {
			return true
		}
	}
	return false
}

// promisedLog is what a server reports in a promise.
type promisedLog struct {
	run    uint64
	head   order.Round
	record *roundRecord
	// remembers says that the votes of the engine are known.
	remembers bool
}

// promise makes a promise of a server, of which the process may have restarted. A server that
// remembers waits for the flush that is under way. A crash keeps or loses that.
func (c *chaos) promise(p int, restarted bool) promisedLog {
	e, disk := c.engines[p], c.logs.disks[p]
	promised := promisedLog{run: e.config.Generation, head: disk.synced, record: disk.record,
		remembers: !restarted}
	if disk.run != e.config.Generation {
		promised.head, promised.record = e.config.FirstRound-1, nil
	} else if disk.writing != nil && (!restarted || c.rng.IntN(2) == 0) {
		promised.head, promised.record = max(disk.synced, disk.writingTo), disk.writing
	}
	if !restarted {
		promised.head = e.delivered
		if c.logs.fault == logFaultMemoryWithoutRecord {
			promised.record = nil
		}
	}
	return promised
}

// judgeLogs takes random majorities, in which any servers restarted, and checks what the logs and
// the votes show together.
func (c *chaos) judgeLogs() error {
	if c.logs == nil {
		return nil
	}
	for range 8 {
		quorum := c.rng.Perm(c.n())[:c.n()/2+1]
		restarts := c.rng.IntN(4)
		restarted := make([]bool, c.n())
		promises := map[int]promisedLog{}
		for _, p := range quorum {
			restarted[p] = c.rng.IntN(3) < restarts
			promises[p] = c.promise(p, restarted[p])
		}
		if err := c.judgeQuorum(quorum, promises); err != nil {
			return fmt.Errorf("majority %v, restarted %v: %w", quorum, restarted, err)
		}
	}
	return nil
}

// judgeQuorum checks that the decision of a majority has every durable round and, if a majority
// remembers its votes, every round that any server A-delivered.
func (c *chaos) judgeQuorum(quorum []int, promises map[int]promisedLog) error {
	var run uint64
	var head order.Round
	for _, p := range quorum {
		run, head = max(run, promises[p].run), max(head, promises[p].head)
	}
	remembering := 0
	asked := make([]bool, c.n())
	for _, p := range quorum {
		// Only the votes in the newest run can be forgotten.
		if promises[p].remembers || promises[p].run != run {
			remembering++
			asked[p] = true
		}
	}
	var tail []order.Delivery
	for len(tail) < 2 {
		next, err := c.next(quorum, promises, run, head, tail, asked, remembering)
		if err != nil {
			return err
		}
		if next == nil {
			break
		}
		tail = append(tail, *next)
	}
	for p := range c.n() {
		for _, d := range c.delivered[p] {
			if d.Round <= head || !c.durable(d) && remembering < len(quorum) {
				continue
			}
			at := int(d.Round-head) - 1
			if at >= len(tail) || !equalDeliveries(tail[at], d) {
				return fmt.Errorf("server %d A-delivered %s, durable: %v; the head is %d and the "+
					"tail %v", p, formatDelivery(d), c.durable(d), head, tail)
			}
		}
	}
	return nil
}

// durable reports whether the announcements make an A-delivered round durable (rule 4). A round
// without the messages of all is a set.
func (c *chaos) durable(d order.Delivery) bool {
	whole := len(d.Messages) == c.n() || c.logs.fault == logFaultAnyValue
	return whole && c.logs.majority(d)
}

// next returns the value that a decision takes for the next round (rule 6).
func (c *chaos) next(quorum []int, promises map[int]promisedLog, run uint64, head order.Round,
	tail []order.Delivery, asked []bool, remembering int) (*order.Delivery, error) {
	round := head + order.Round(len(tail)) + 1
	candidates := c.candidates(asked, c.n(), round)
	i := slices.IndexFunc(candidates, func(o *candidate) bool { return o.confirmed })
	if i >= 0 {
		return &candidates[i].vote.Delivery, nil
	}
	votesDecide := remembering > c.n()/2 && c.logs.fault != logFaultRecordsFirst
	if !votesDecide && c.logs.fault != logFaultIgnored {
		recorded, err := c.recorded(quorum, promises, run, round, tail)
		if err != nil || recorded != nil {
			return recorded, err
		}
	}
	var best *candidate
	for _, o := range candidates {
		if best == nil || o.count > best.count {
			best = o
		}
	}
	if best == nil {
		return nil, nil
	}
	return &best.vote.Delivery, nil
}

// recorded returns the value of a round in the records of a majority, if it follows the tail. Two
// records never differ.
func (c *chaos) recorded(quorum []int, promises map[int]promisedLog, run uint64,
	round order.Round, tail []order.Delivery) (found *order.Delivery, err error) {
	for _, p := range quorum {
		r := promises[p].record
		if r == nil || r.run != run {
			continue
		}
		for i := range r.rounds {
			d := &r.rounds[i]
			if d.Round != round || i > 0 && len(tail) > 0 &&
				!equalDeliveries(r.rounds[i-1], tail[len(tail)-1]) {
				continue
			}
			if found != nil && !equalDeliveries(*found, *d) {
				return nil, fmt.Errorf("two records of a round: %s and %s", formatDelivery(*found),
					formatDelivery(*d))
			}
			found = d
		}
	}
	return found, nil
}

// logStorms are the schedules of the tests below.
func logStorms(n int, g *digraph.Digraph) map[string]storms {
	config := Config{Engine: EngineAllConcurPlus, Servers: n, Reliable: g}
	eons := config
	eons.Change, eons.Generation = changes, 7<<16
	return map[string]storms{
		"mistrust":        {config: config, mistrust: 40},
		"much mistrust":   {config: config, mistrust: 10, stall: 10},
		"stalls, crashes": {config: config, mistrust: 20, stall: 20, crashes: 1},
		"rarely":          {config: config, mistrust: 100, stall: 100, crashes: 1},
		"eons":            {config: eons, mistrust: 60, stall: 60, crashes: 1},
	}
}

// TestRoundLogs: what a majority announced and a server A-delivered is in the decision of any
// majority, whatever its servers remember.
func TestRoundLogs(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7} {
		for _, g := range overlays(t, n) {
			for name, s := range logStorms(n, g) {
				t.Run(fmt.Sprintf("%d/%s/%s", n, g.Kind(), name), func(t *testing.T) {
					t.Parallel()
					s.seed, s.logs = *firstSeed, true
					s.check(t, seedsFor(n)/3+1)
				})
			}
		}
	}
}

// TestRoundLogsCatch proves that TestRoundLogs can fail.
func TestRoundLogsCatch(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	for name, fault := range map[string]logFault{
		"announced before the flush": logFaultAnnouncedEarly, "any group": logFaultAnyGroup,
		"another value counted": logFaultAnyValue,
		"memory without record": logFaultMemoryWithoutRecord,
		"last round only":       logFaultLastRoundOnly,
		"record before blocks":  logFaultRecordBeforeBlocks, "ignored": logFaultIgnored,
		"records first": logFaultRecordsFirst,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := logStorms(3, overlays(t, 3)[0])
			for seed := uint64(1); seed < 3000; seed++ {
				for _, storm := range slices.Sorted(maps.Keys(all)) {
					s := all[storm]
					s.seed, s.logs, s.logFault = seed, true, fault
					if err := s.run(nil, &outcome{}); err != nil {
						t.Logf("%s, seed %d: %v", storm, seed, err)
						return
					}
				}
			}
			t.Fatal("the planted bug goes unnoticed")
		})
	}
}
