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
// disks, forget the votes of any of its servers, and damage the last groups of a minority of the
// disks. They judge that what a majority announced, and some server A-delivered, is found.

// roundLogs are the logs of all servers.
type roundLogs struct {
	disks []roundDisk
	// announced[p] are the rounds that server p announced. all are those of all servers.
	announced []map[announcedRound]bool
	all       []announcedRound
	// pace is how many steps of a server a flush takes, on average.
	pace  int
	fault logFault
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
	// beforeSynced and beforeRecord are what the disk had before the last flush. Damage to the last
	// group leaves that.
	beforeSynced order.Round
	beforeRecord *roundRecord
}

// keep changes what the disk has by a flush.
func (d *roundDisk) keep(synced order.Round, record *roundRecord) {
	d.beforeSynced, d.beforeRecord = d.synced, d.record
	d.synced, d.record = max(d.synced, synced), record
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
	// logFaultDamageIgnored takes a disk with a damaged last group for one that had nothing more.
	logFaultDamageIgnored
	// logFaultFlushNotAwaited promises without the record whose flush is under way.
	logFaultFlushNotAwaited
)

func newRoundLogs(servers, pace int, fault logFault) *roundLogs {
	l := &roundLogs{disks: make([]roundDisk, servers), pace: pace, fault: fault}
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
		start := e.config.FirstRound - 1
		*disk = roundDisk{run: run, synced: start, last: start, beforeSynced: start}
	}
	if rounds, whole := e.Complete(disk.last); len(rounds) > 0 {
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
	switch c.rng.IntN(3 * c.logs.pace) {
	case 0, 1, 2:
		c.logs.flush(p)
	case 3:
		if disk.writing == nil && disk.synced < e.delivered {
			disk.keep(e.delivered, disk.record)
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
		disk.keep(disk.writingTo, r)
		disk.writing = nil
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
	// remembers says that the votes of the engine are known, perhaps that the disk perhaps had
	// more.
	remembers, perhaps bool
}

// promise makes a promise of a server, of which the process may have restarted. A server that
// remembers waits for the flush that is under way. A crash keeps or loses that, and may leave a
// doubt. A server that restarted may find the last group damaged.
func (c *chaos) promise(p int, restarted, damaged bool) promisedLog {
	e, disk := c.engines[p], c.logs.disks[p]
	promised := promisedLog{run: e.config.Generation, head: disk.synced, record: disk.record,
		remembers: !restarted}
	switch {
	case disk.run != e.config.Generation:
		promised.head, promised.record = e.config.FirstRound-1, nil
	case damaged:
		promised.head, promised.record = disk.beforeSynced, disk.beforeRecord
		promised.perhaps = true
	case disk.writing != nil && (!restarted || c.rng.IntN(2) == 0):
		promised.head, promised.record = max(disk.synced, disk.writingTo), disk.writing
	case disk.writing != nil:
		promised.perhaps = c.rng.IntN(4) == 0 // it tore within a sector
	}
	if !restarted {
		promised.head = e.delivered
		switch c.logs.fault {
		case logFaultMemoryWithoutRecord:
			promised.record = nil
		case logFaultFlushNotAwaited:
			promised.record = disk.record
			c.logs.flush(p)
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
		restarts, damages := c.rng.IntN(4), 0
		if c.rng.IntN(2) == 0 {
			damages = c.n() - len(quorum)
		}
		if c.rng.IntN(2) == 0 {
			quorum = append(quorum, c.others(quorum)...)
		}
		restarted := make([]bool, c.n())
		promises := map[int]promisedLog{}
		for _, p := range quorum {
			restarted[p] = c.rng.IntN(3) < restarts
			damaged := restarted[p] && damages > 0 && c.rng.IntN(2) == 0
			if damaged {
				damages--
			}
			promises[p] = c.promise(p, restarted[p], damaged)
		}
		if c.waits(promises) {
			continue
		}
		if err := c.judgeQuorum(quorum, promises); err != nil {
			return fmt.Errorf("majority %v, restarted %v: %w", quorum, restarted, err)
		}
	}
	return nil
}

// others returns some of the servers that are not in a list.
func (c *chaos) others(list []int) (others []int) {
	for p := range c.n() {
		if !slices.Contains(list, p) && c.rng.IntN(2) == 0 {
			others = append(others, p)
		}
	}
	return others
}

// waits reports whether a proposer waits for more disks, because some of those that promised
// perhaps had more. Package generation has the argument (survey.perhaps).
func (c *chaos) waits(promises map[int]promisedLog) bool {
	had := 0
	for _, promised := range promises {
		if promised.perhaps {
			had++
		}
	}
	tolerated := (c.n() - 1) / 2
	return had > 0 && min(had, tolerated)+c.n()-len(promises) > tolerated &&
		c.logs.fault != logFaultDamageIgnored
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
			if d.Round <= head || !c.durable(d) && remembering <= c.n()/2 {
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
					s.check(t, seedsFor(n)+1)
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
		"records first": logFaultRecordsFirst, "damage ignored": logFaultDamageIgnored,
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

// TestFlushIsAwaited: a server that promises waits for the flush of its record. Here it has not
// voted for the round. The four others did, and two of them logged it, too. With the votes of the
// other two forgotten, only that record shows the round.
func TestFlushIsAwaited(t *testing.T) {
	t.Parallel()
	for _, fault := range []logFault{0, logFaultFlushNotAwaited} {
		c, err := newChaos(1, Config{Engine: EngineAllConcurPlus, Servers: 5,
			Reliable: overlays(t, 5)[0]})
		if err != nil {
			t.Fatal(err)
		}
		c.logs = newRoundLogs(5, 1, fault)
		for p := range c.logs.disks {
			c.logs.disks[p].run = c.engines[p].config.Generation
		}
		for round := range 3 {
			for p := range c.engines {
				if c.engines[p].CanBroadcast() {
					if err := c.submit(p, round > 0); err != nil {
						t.Fatal(err)
					}
				}
			}
			c.exchange(t)
			if round == 0 {
				for p := range 3 {
					rounds, _ := c.engines[p].Complete(0)
					c.logs.write(p, &roundRecord{rounds: rounds})
				}
				c.logs.flush(1)
				c.logs.flush(2)
				c.stalled[1*c.n()+0] = true // so server 0 does not get to round 3, to vote
			}
		}
		promises := map[int]promisedLog{}
		for p, restarted := range map[int]bool{0: false, 3: true, 4: true} {
			promises[p] = c.promise(p, restarted, false)
		}
		c.logs.flush(0) // the record is announced later, unless the fault announced it
		if len(c.delivered[1]) != 1 || !c.durable(c.delivered[1][0]) {
			t.Fatalf("server 1 A-delivered %v, which is not durable", c.delivered[1])
		}
		err = c.judgeQuorum([]int{0, 3, 4}, promises)
		if (err != nil) != (fault != 0) {
			t.Errorf("fault %d: %v", fault, err)
		}
	}
}

// exchange delivers all frames on links that do not stall.
func (c *chaos) exchange(t *testing.T) {
	t.Helper()
	for moved := true; moved; {
		moved = false
		for at := range c.channels {
			from, to := at/c.n(), at%c.n()
			for len(c.channels[at]) > 0 && !c.stalled[at] {
				if err := c.receive(from, to); err != nil {
					t.Fatal(err)
				}
				moved = true
			}
		}
	}
}
