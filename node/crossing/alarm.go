package crossing

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/crossing/shards"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	// lookEvery is the minimum time between two looks at what waits.
	lookEvery = time.Second
	// complainEvery is the minimum time between two lines of the log about entries that wait.
	complainEvery = time.Minute
	// namedMax bounds the shards that one line names.
	namedMax = 8
)

// waitingChain is a chain whose entries wait for other shards. A store is one.
type waitingChain interface {
	Waiting(time ledger.Milliseconds) (by []store.Wait, old uint64, err error)
	Untaken(child ledger.ShardID, taken uint64, time ledger.Milliseconds) (store.Wait, error)
	FirstUntaken(child ledger.ShardID, taken uint64) (first, last uint64, any bool)
	Stream(child ledger.ShardID, from uint64, limit int, upTo ledger.Height) ([]ledger.Carried,
		error)
	AppendedHeight() ledger.Height
	Absent() ledger.Height
}

// alarm knows what entries of this shard's chain wait for. The times of their blocks say for how
// long. Entries that wait for longer than a bound are overdue: the alarm is on, and the log says so
// once a minute.
type alarm struct {
	// after is the bound. If it is 0, no entry is ever overdue.
	after time.Duration
	// children returns the shards right below this one, and those that were.
	children func() []ledger.ShardID
	// taken returns how many entries of its stream a child is known to have. It returns false if
	// nothing is known of the child.
	taken func(child ledger.ShardID) (uint64, bool)
	// gone reports whether all other members of this shard have said that they lack the blocks from
	// 1 up to a height.
	gone func(height ledger.Height) bool
	// settledWith, which may be nil, reports whether the operators settled with a child. It takes
	// nothing any more then.
	settledWith func(child ledger.ShardID) bool

	mu sync.Mutex
	// began is the time of the first look at each child, which may have been added since the node
	// started. looked is the time of the last look, and found what it found.
	began  map[ledger.ShardID]time.Time
	looked time.Time
	found  report.Waiting
	// on reports that the last line of the log, at logged, said that entries are overdue.
	on     bool
	logged time.Time
}

// line is a line of the log. over reports that nothing is overdue any more.
type line struct {
	over bool
	text string
}

// look returns what entries wait for. It reads the chain at most every lookEvery. If it fails, it
// also returns what it found before. It returns a line if one is due.
func (a *alarm) look(chain waitingChain, now time.Time) (report.Waiting, *line, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if since := now.Sub(a.looked); !a.looked.IsZero() && since >= 0 && since < lookEvery {
		return a.found, nil, nil
	}
	a.looked = now
	found, err := a.read(chain, now)
	if err != nil {
		return a.found, nil, err
	}
	a.found = found
	return found, a.due(now), nil
}

// read reads the chain.
func (a *alarm) read(chain waitingChain, now time.Time) (found report.Waiting, err error) {
	bound := now.Add(-a.after)
	cutoff := ledger.Milliseconds(bound.UnixMilli())
	if a.after == 0 {
		cutoff = math.MinInt64 // no block is as old
	}
	by, old, err := chain.Waiting(cutoff)
	if err != nil {
		return report.Waiting{}, err
	}
	found.Overdue = old
	for i := range by {
		found.Verdicts = append(found.Verdicts, waitOf(&by[i]))
		if since := found.Verdicts[i].Since; i == 0 || since.Before(found.Since) {
			found.Since = since
		}
	}
	for _, child := range a.children() {
		if a.settledWith != nil && a.settledWith(child) {
			continue
		}
		if _, known := a.began[child]; !known {
			a.began[child] = now
		}
		if wait := a.untaken(chain, child, bound, cutoff); wait.Overdue > 0 {
			found.Streams = append(found.Streams, wait)
		}
	}
	return found, nil
}

// untaken returns how entries of the stream to a child wait. If it is not known which entries the
// child has, or the block of the first one that it lacks is not here, the entries wait since this
// node has looked at the child.
func (a *alarm) untaken(chain waitingChain, child ledger.ShardID, bound time.Time,
	cutoff ledger.Milliseconds) report.Wait {
	if _, _, some := chain.FirstUntaken(child, 0); a.after == 0 || !some {
		return report.Wait{}
	}
	taken, known := a.taken(child)
	first, last, lacks := chain.FirstUntaken(child, taken)
	if !lacks {
		return report.Wait{}
	}
	wait := report.Wait{Shard: child, Count: last - first + 1, Since: a.began[child]}
	if !wait.Since.After(bound) {
		wait.Overdue = wait.Count
	}
	if known {
		if at, err := chain.Untaken(child, taken, cutoff); err == nil {
			wait = waitOf(&at)
		}
		// What was given to the child may be on its way into the child's chain for a moment.
		if wait.Overdue > 0 {
			wait.Lost, wait.LostHeight = a.lost(chain, child, first, wait.Count)
		}
	}
	return wait
}

// lost returns how many of the entries that a child lacks are lost: they are in blocks that are not
// here, because this node began with a snapshot, and no other member has any of these blocks. All
// that members have of these they have passed on by then, so that all lack the same.
func (a *alarm) lost(chain waitingChain, child ledger.ShardID, first, count uint64) (uint64,
	ledger.Height) {
	absent := chain.Absent()
	if absent == 0 {
		return 0, 0
	}
	here := func(i int) bool {
		_, err := chain.Stream(child, first+uint64(i), 1, chain.AppendedHeight())
		return !errors.Is(err, store.ErrAbsent)
	}
	if here(0) || !a.gone(absent) {
		return 0, 0
	}
	return uint64(sort.Search(int(count), here)), absent
}

func waitOf(wait *store.Wait) report.Wait {
	return report.Wait{Shard: wait.Shard, Count: wait.Count, Overdue: wait.Old,
		Since: time.UnixMilli(int64(wait.Since))}
}

// due returns a line of the log if one is due. The caller holds the lock.
func (a *alarm) due(now time.Time) *line {
	on, since := a.found.Alarm(), now.Sub(a.logged)
	switch lately := !a.logged.IsZero() && since >= 0 && since < complainEvery; {
	case on && !lately:
		a.on, a.logged = true, now
		return &line{text: a.words()}
	case !on && a.on:
		a.on = false
		return &line{over: true}
	}
	return nil
}

// words names the shards for which entries have waited for longer than the bound.
func (a *alarm) words() string {
	var named []string
	add := func(waits []report.Wait, what string) {
		for _, wait := range waits {
			if wait.Overdue > 0 {
				named = append(named, fmt.Sprintf("shard %d since %s (%d %s)", wait.Shard,
					wait.Since.UTC().Format(time.RFC3339), wait.Overdue, what))
			}
		}
	}
	for _, wait := range a.found.Streams {
		if wait.Lost > 0 {
			named = append(named, fmt.Sprintf("shard %d for ever (%d that are lost: no member of "+
				"this shard has the blocks up to %d)", wait.Shard, wait.Lost, wait.LostHeight))
		}
	}
	add(a.found.Verdicts, "for its verdict")
	add(a.found.Streams, "that it has not taken")
	if more := len(named) - namedMax; more > 0 {
		named = append(named[:namedMax], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(named, ", ")
}

// newAlarm makes the alarm of a shard.
func newAlarm(after time.Duration, taken func(ledger.ShardID) (uint64, bool),
	gone func(ledger.Height) bool, children func() []ledger.ShardID) *alarm {
	return &alarm{after: after, taken: taken, gone: gone, children: children,
		began: make(map[ledger.ShardID]time.Time)}
}

// fed returns the shards right below this one, and those that were and may still need entries from
// here.
func (b *book) fed() []ledger.ShardID {
	tree, own := b.directory.Tree(), b.directory.Own()
	return slices.Sorted(slices.Values(append(tree.FormerChildren(own), tree.Children(own)...)))
}

// takenBy returns how many entries of its stream a child is known to have. What a former child had
// counts also if it was heard before this node started.
func (b *book) takenBy(child ledger.ShardID) (uint64, bool) {
	taken, known := b.heardTaken(child)
	if parent, _ := b.directory.Tree().Parent(child); parent != b.directory.Own() {
		return b.former.has(child, taken, known)
	}
	return taken, known
}

// heardTaken returns how many entries of its stream a child has: durably, as its members tell the
// streams, or else in its chain, as they announce.
func (b *book) heardTaken(child ledger.ShardID) (uint64, bool) {
	if b.started.Load() {
		for _, out := range b.streams.Status().Outgoing {
			if out.Child == child && out.Position > 0 {
				return out.Position, true
			}
		}
	}
	state := b.directory.States()[child]
	return state.Carried, !state.LastHeard.IsZero()
}

// gone reports whether all other members of this shard have said that they lack the blocks from 1
// up to a height. Those of which this node has not heard yet may have them. So may one that is
// away, but not if it lacked them when it was heard.
func (b *book) gone(height ledger.Height) bool {
	_, members := b.directory.Members(b.directory.Own())
	b.absentMu.Lock()
	defer b.absentMu.Unlock()
	for _, member := range members {
		if member.Peer != b.config.Self && b.absent[member.Peer] < height {
			return false
		}
	}
	return true
}

// heardAbsent notes up to which height a member of the own shard lacks the blocks.
func (b *book) heardAbsent(from rdmanet.PeerID, absent ledger.Height) {
	_, members := b.directory.Members(b.directory.Own())
	b.absentMu.Lock()
	defer b.absentMu.Unlock()
	b.absent[from] = absent
	maps.DeleteFunc(b.absent, func(peer rdmanet.PeerID, _ ledger.Height) bool {
		return !slices.ContainsFunc(members, func(m shards.Member) bool { return m.Peer == peer })
	})
}

// Waiting implements Crossing.
func (b *book) Waiting() report.Waiting {
	found, due, err := b.alarm.look(b.config.Node.Store(), b.config.Now())
	logger := b.config.Logger
	switch {
	case err != nil:
		logger.Debug("what waits for other shards is not known now", "error", err)
	case due == nil:
	case due.over:
		logger.Info("no entry has waited for another shard for longer than alarm_after any more")
	default:
		logger.Warn("entries have waited for other shards for longer than alarm_after: see "+
			"`ledgerd shards`, and start the nodes of these shards or mend the network to them "+
			"(docs/shards.md)", "alarm_after", b.config.AlarmAfter, "waits_for", due.text)
	}
	found.Lacks = b.directory.Lacks(b.Own())
	b.complain(&found.Lacks, b.config.Now())
	return found
}

// complain logs that entries of the stream from the shard above are lost, at most once in
// complainEvery.
func (b *book) complain(lacks *report.Wait, now time.Time) {
	b.absentMu.Lock()
	defer b.absentMu.Unlock()
	if since := now.Sub(b.complained); lacks.Lost == 0 ||
		!b.complained.IsZero() && since >= 0 && since < complainEvery {
		return
	}
	b.complained = now
	b.config.Logger.Error("this shard waits for ever for entries of the stream from the shard "+
		"above: all members of that shard say that they lack the blocks (docs/shards.md)",
		"from_shard", lacks.Shard, "entries", lacks.Lost, "lost_blocks_up_to", lacks.LostHeight)
}
