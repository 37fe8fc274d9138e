package shards

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/node/report"
)

// A shard is full for another one from fullFrom waiting transactions on, until fewer than fullUntil
// wait. What other nodes admit until they hear of it, which they do at once, still finds room. So
// a shard says at most once in fullFrom-fullUntil transactions that it is full.
const (
	fullFrom  = state.MaxWaiting / 4 * 3
	fullUntil = state.MaxWaiting / 2
)

// backAfter bounds how long a shard that was down has to order before it is not down any more. One
// report counts for ReportLifetime.
const backAfter = 2 * ReportLifetime

// lookMost bounds what a look adds to how long a shard has been seen not to order. A node that was
// paused has heard nothing meanwhile, whatever the others did.
const lookMost = 2 * time.Second

// ObstaclesConfig is the configuration of Obstacles.
type ObstaclesConfig struct {
	Directory *Directory
	// RefuseAfter is how long another shard must not order until it counts as down. 0 means that
	// there are no obstacles but shards that are lost.
	RefuseAfter time.Duration
	// Waiting returns how many transactions of this node's shard wait for a shard.
	Waiting func(ledger.ShardID) int
	// Filled is called when this node's shard becomes full for another one, so that the others hear
	// of it at once: what they admit until then still has to find room. It must not block, and may
	// be nil.
	Filled func()
	// Logger may be nil.
	Logger *slog.Logger
}

// Obstacles are why transactions that cross to some shards are refused at admission. A shard is in
// the way while it is down: no member has reported for a while that it orders. And while many of
// its transactions wait for another shard, it is in the way of what concerns both. Neither flaps:
// see outage and fullFrom. A shard that the operators settled with is in the way for ever. All
// methods are safe for concurrent use.
type Obstacles struct {
	config ObstaclesConfig

	mutex   sync.Mutex
	looked  time.Time
	outages []outage                // by shard, as many as at the last look
	full    map[fullShard]time.Time // since when
	list    atomic.Pointer[[]report.Obstacle]
}

// fullShard is a shard with too many transactions that wait for another.
type fullShard struct{ shard, awaited ledger.ShardID }

// outage follows whether a shard orders.
type outage struct {
	since  time.Time     // when it was last seen to order, or the first look
	silent time.Duration // how long it was seen not to order, without a break
	back   time.Duration // how long it was seen to order, without a break
	down   bool
}

// look notes whether the shard orders now, this long after the look before. A shard goes down after
// it has not ordered for as long as after, and up again after it has ordered for that long, or for
// backAfter.
func (o *outage) look(now time.Time, step time.Duration, orders bool, after time.Duration) {
	if o.since.IsZero() {
		o.since, step = now, 0 // a shard that was added since the look before
	}
	if !orders {
		o.back = 0
		o.silent += step
		o.down = o.down || o.silent >= after
		return
	}
	o.silent = 0
	o.back += step
	if o.down = o.down && o.back < min(after, backAfter); !o.down {
		o.since = now
	}
}

// NewObstacles returns Obstacles that know of none. It fails if a part of the configuration is
// missing.
func NewObstacles(config ObstaclesConfig) (*Obstacles, error) {
	if config.Directory == nil || config.Waiting == nil {
		return nil, errors.New("shards: obstacles need a directory, and how many transactions wait")
	}
	if config.Filled == nil {
		config.Filled = func() {}
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	o := &Obstacles{config: config, full: make(map[fullShard]time.Time)}
	o.list.Store(new([]report.Obstacle))
	return o, nil
}

// List returns the obstacles of the last Look, by shard: first that it is down, then what it is
// full for. The list is read-only.
func (o *Obstacles) List() []report.Obstacle { return *o.list.Load() }

// OwnFull returns the shards that this node's shard is full for, in ascending order.
func (o *Obstacles) OwnFull() (awaited []ledger.ShardID) {
	for _, each := range o.List() {
		if each.Full && each.Shard == o.config.Directory.Own() {
			awaited = append(awaited, each.Awaited)
		}
	}
	return awaited
}

// Look finds the obstacles anew. The node calls it at least once in lookMost.
func (o *Obstacles) Look(now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	var step time.Duration
	if !o.looked.IsZero() {
		step = max(0, min(now.Sub(o.looked), lookMost))
	}
	o.looked = now
	d := o.config.Directory
	if more := d.Tree().Shards() - len(o.outages); more > 0 {
		o.outages = append(o.outages, make([]outage, more)...)
	}
	var list []report.Obstacle
	for shard := range ledger.ShardID(len(o.outages)) {
		if since, lost := d.IsLost(shard); lost {
			list = append(list, report.Obstacle{Shard: shard, Since: since, Lost: true})
			continue
		}
		if o.config.RefuseAfter == 0 {
			continue
		}
		var awaited []ledger.ShardID
		if shard == d.Own() {
			awaited = o.ownFull()
		} else {
			outage := &o.outages[shard]
			outage.look(now, step, d.orders(shard), o.config.RefuseAfter)
			if outage.down {
				list = append(list, report.Obstacle{Shard: shard, Since: outage.since})
			}
			awaited = d.fullFor(shard)
		}
		for _, each := range awaited {
			key := fullShard{shard, each}
			since, before := o.full[key]
			if !before {
				since = now
			}
			list = append(list, report.Obstacle{Shard: shard, Since: since, Full: true,
				Awaited: each})
		}
	}
	o.change(list)
}

// ownFull returns the shards that this node's shard is full for now, in ascending order.
func (o *Obstacles) ownFull() (awaited []ledger.ShardID) {
	own := o.config.Directory.Own()
	for shard := range ledger.ShardID(len(o.outages)) {
		from := fullFrom
		if _, full := o.full[fullShard{own, shard}]; full {
			from = fullUntil
		}
		if shard != own && o.config.Waiting(shard) >= from {
			awaited = append(awaited, shard)
		}
	}
	return awaited
}

// Applied looks at this node's shard only. The node calls it after each block, with the number of
// transactions that wait in all, so that the shard does not fill up between two looks. That the
// shard is not full any more is left to the next Look.
func (o *Obstacles) Applied(now time.Time, pending int) {
	if o.config.RefuseAfter == 0 || pending < fullFrom {
		return
	}
	o.mutex.Lock()
	own := o.config.Directory.Own()
	filled := slices.ContainsFunc(o.ownFull(), func(awaited ledger.ShardID) bool {
		_, before := o.full[fullShard{own, awaited}]
		return !before
	})
	o.mutex.Unlock()
	if filled {
		o.Look(now)
	}
}

// change replaces the list, tells the node that its shard filled up, and logs what is new and what
// is over.
func (o *Obstacles) change(list []report.Obstacle) {
	before := o.List()
	same := func(obstacle report.Obstacle) func(report.Obstacle) bool {
		return func(other report.Obstacle) bool {
			return other.Shard == obstacle.Shard && other.Full == obstacle.Full &&
				other.Awaited == obstacle.Awaited && other.Lost == obstacle.Lost
		}
	}
	filled := false
	clear(o.full)
	for _, each := range list {
		if each.Full {
			o.full[fullShard{each.Shard, each.Awaited}] = each.Since
		}
		if !slices.ContainsFunc(before, same(each)) {
			filled = filled || each.Full && each.Shard == o.config.Directory.Own()
			o.config.Logger.Warn("transactions that cross to a shard are refused from now on",
				"reason", each.Refusal())
		}
	}
	for _, each := range before {
		if !slices.ContainsFunc(list, same(each)) {
			o.config.Logger.Info("transactions that cross to a shard are taken again", "shard",
				each.Shard, "refused", each.Refusal().Word())
		}
	}
	o.list.Store(&list)
	if filled {
		o.config.Filled()
	}
}
