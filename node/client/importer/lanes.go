package importer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/client"
)

// Bounds of bundles under way.
const (
	bundlesInOrder  = 8  // of a lane that keeps its order
	bundlesLoose    = 16 // of another lane
	bundlesUnderWay = 64 // of all lanes, but each may have some
	// Below so many under way a lane gives away what it has; else it waits until a bundle is full.
	fewInOrder, fewLoose = 2, 4
	// maxLanes is how many lanes there may be before those that have nothing to do are forgotten.
	maxLanes = 256
	maxAsks  = 32 // questions under way, whether a line is over
)

// What is told of lines that cross shards.
const (
	firstPause, longestPause = 2 * time.Millisecond, time.Second
	// registeredTime is how long after a registration a node may not know the organisation.
	registeredTime = 10 * time.Second
)

// laneKind is what a lane is for.
type laneKind uint8

const (
	// lines of one shard alone, in the order in which they are queued
	laneInOrder     laneKind = iota
	laneOfOpenings           // openings of accounts of one shard
	laneOfCrossings          // lines that concern the same shards, two and more
)

// lane is jobs that go into the same bundles.
type lane struct {
	kind     laneKind
	entry    ledger.ShardID   // the shard where its bundles enter
	shards   []ledger.ShardID // of laneOfCrossings
	queue    []*job
	underWay int          // bundles
	in       chan *bundle // to the goroutine of a lane that keeps its order; nil: not begun
}

// lanes are all lanes, in the order in which they were begun.
type lanes struct {
	all      []*lane
	underWay int // bundles
}

// bundle is jobs under way, signed.
type bundle struct {
	lane   *lane
	jobs   []*job
	bundle *ledger.Bundle
	sent   bool // a node has it
}

// lines tells which lines a bundle is for, for a message.
func (b *bundle) lines() string {
	return fmt.Sprintf("lines %d to %d", b.jobs[0].line.number, b.jobs[len(b.jobs)-1].line.number)
}

func (l *lanes) add(kind laneKind, entry ledger.ShardID, shards []ledger.ShardID, its *job) {
	for _, each := range l.all {
		if each.kind == kind && each.entry == entry && slices.Equal(each.shards, shards) {
			each.queue = append(each.queue, its)
			return
		}
	}
	if len(l.all) >= maxLanes {
		l.all = slices.DeleteFunc(l.all, func(each *lane) bool {
			return each.kind != laneInOrder && each.underWay == 0 && len(each.queue) == 0
		})
	}
	l.all = append(l.all, &lane{kind: kind, entry: entry, shards: shards, queue: []*job{its}})
}

func (l *lanes) done(b *bundle) {
	b.lane.underWay--
	l.underWay--
}

// take takes a bundle's worth of jobs from a lane, none where it is better to wait for more.
func (l *lane) take(full, most, few int, hurry bool) []*job {
	if len(l.queue) == 0 || l.underWay >= most {
		return nil
	}
	count, size := 0, 0
	for ; count < min(len(l.queue), full) && size < enoughBytes; count++ {
		size += l.queue[count].size
	}
	if count < full && size < enoughBytes && l.underWay >= few && !hurry {
		return nil
	}
	taken := slices.Clone(l.queue[:count])
	l.queue = slices.Delete(l.queue, 0, count)
	return taken
}

// dispatch gives away what the lanes have.
func (r *run) dispatch(ctx context.Context) error {
	for again := true; again; {
		again = false
		for _, each := range r.lanes.all {
			if r.lanes.underWay >= bundlesUnderWay && each.underWay >= fewInOrder {
				// a lane that goes nowhere, since a shard is down, does not keep the others from
				// going
				continue
			}
			if r.stopped != nil {
				each.queue = slices.DeleteFunc(each.queue, func(its *job) bool {
					return r.isPastStop(its.line)
				})
			}
			most, few := bundlesLoose, fewLoose
			if each.kind == laneInOrder {
				most, few = bundlesInOrder, fewInOrder
				if !r.shard(each.entry).direct {
					most = 1
				}
			}
			jobs := each.take(r.options.few, most, few, r.atEnd)
			if jobs == nil {
				continue
			}
			if err := r.give(ctx, each, jobs); err != nil {
				return err
			}
			again = true
		}
	}
	return nil
}

// give signs a bundle and gives it away.
func (r *run) give(ctx context.Context, to *lane, jobs []*job) error {
	made := &bundle{lane: to, jobs: jobs}
	transactions := make([]ledger.Transaction, len(jobs))
	var signers []int
	for i, its := range jobs {
		transactions[i] = its.transaction
		for _, signer := range its.signers {
			if !slices.Contains(signers, signer) {
				signers = append(signers, signer)
			}
		}
	}
	slices.Sort(signers)
	keys := make([]client.Key, len(signers))
	for i, signer := range signers {
		keys[i] = client.Key{Organisation: r.builder.organisations[signer].name,
			Private: r.options.Key.Private}
	}
	var err error
	if made.bundle, err = client.Sign(keys, transactions...); err != nil {
		return fmt.Errorf("%s: %w", made.lines(), err)
	}
	to.underWay++
	r.lanes.underWay++
	nodes := r.shard(to.entry)
	if to.kind != laneInOrder {
		r.work.Go(func() {
			statuses, err := r.settle(ctx, nodes.loose, made)
			r.tell(ctx, event{bundle: made, statuses: statuses, err: err})
		})
		return nil
	}
	if to.in == nil {
		to.in = make(chan *bundle, bundlesInOrder)
		after := r.after
		if r.builder.conflicting {
			after = ledger.Hash{}
		}
		r.work.Go(func() {
			(&inOrder{run: r, nodes: nodes.ordered, in: to.in, after: after}).follow(ctx)
		})
	}
	to.in <- made // no more are under way than it has room for
	return nil
}

// tell hands an event over.
func (r *run) tell(ctx context.Context, happened event) {
	select {
	case r.events <- happened:
	case <-ctx.Done():
	}
}

// inOrder gives bundles of a lane to the nodes in their order.
type inOrder struct {
	run   *run
	nodes Nodes
	in    <-chan *bundle
	queue []*bundle
	after ledger.Hash // the last acknowledged transaction
}

// follow does what the lane is given, until ctx ends or a bundle cannot be settled.
func (o *inOrder) follow(ctx context.Context) {
	for {
		for len(o.queue) == 0 {
			select {
			case next := <-o.in:
				o.queue = append(o.queue, next)
			case <-ctx.Done():
				return
			}
		}
		for more := true; more; {
			select {
			case next := <-o.in:
				o.queue = append(o.queue, next)
			default:
				more = false
			}
		}
		err := o.send(ctx)
		var statuses []*ledgerdv1.TransactionStatus
		if err == nil {
			// All before the first is acknowledged, so that submitting it again, to the same node
			// or to another one, keeps the order.
			statuses, err = o.run.settle(ctx, o.nodes, o.queue[0])
		}
		if err != nil {
			o.run.tell(ctx, event{err: err})
			return
		}
		first := o.queue[0]
		o.queue = o.queue[1:]
		o.after = first.bundle.ID(first.bundle.Len() - 1)
		o.run.tell(ctx, event{bundle: first, statuses: statuses})
	}
}

// send gives the bundles that are not with a node yet to one, in their order. What is refused for
// now stays unsent; while others are under way they are waited for, else the pause here is all that
// helps.
func (o *inOrder) send(ctx context.Context) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		var unsent []*bundle
		var bundles []*ledger.Bundle
		after := o.after
		for _, each := range o.queue {
			if !each.sent {
				unsent, bundles = append(unsent, each), append(bundles, each.bundle)
			} else {
				after = each.bundle.ID(each.bundle.Len() - 1)
			}
		}
		if len(unsent) == 0 {
			return nil
		}
		outcomes, err := o.nodes.SubmitInOrder(ctx, bundles, after)
		switch {
		case err == nil:
			if err := o.noteAdmitted(unsent, outcomes); err != nil {
				return err
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case !o.run.mayRetry(err):
			return fmt.Errorf("%s: %w", unsent[0].lines(), err)
		case !o.run.patient():
			return fmt.Errorf("%w: %w", ErrNoProgress, err)
		}
		if o.queue[0].sent {
			return nil
		}
		if !o.run.patient() {
			return fmt.Errorf("%w: %w", ErrNoProgress, refusalOf(outcomes))
		}
		o.nodes.Rotate()
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func refusalOf(outcomes []*ledgerdv1.BundleOutcome) error {
	if len(outcomes) == 0 {
		return errors.New("no answer")
	}
	return errors.New(outcomes[0].GetRefused())
}

// noteAdmitted marks what was admitted, which is a prefix.
func (o *inOrder) noteAdmitted(unsent []*bundle, outcomes []*ledgerdv1.BundleOutcome) error {
	for i, outcome := range outcomes {
		if outcome.GetRefused() == "" {
			unsent[i].sent = true
			continue
		}
		if outcome.GetRetry() || o.run.lenient() {
			return nil
		}
		return fmt.Errorf("importer: %s were refused: %s", unsent[i].lines(), outcome.GetRefused())
	}
	return nil
}

// settle waits until a bundle is acknowledged. It asks by submitting the same bytes again, so that
// a node which lost them, or another one, has them then.
func (r *run) settle(ctx context.Context, nodes Nodes, its *bundle) ([]*ledgerdv1.TransactionStatus,
	error) {
	for {
		statuses, err := nodes.Submit(ctx, its.bundle, r.options.Wait)
		switch {
		case err == nil:
			return statuses, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !r.mayRetry(err):
			return nil, fmt.Errorf("%s: %w", its.lines(), err)
		case !r.patient():
			return nil, fmt.Errorf("%w: %w", ErrNoProgress, err)
		}
		nodes.Rotate()
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// mayRetry tells whether the same call may succeed later.
func (r *run) mayRetry(err error) bool {
	failure := (*client.Failure)(nil)
	return !errors.As(err, &failure) || failure.Retry || errors.Is(err, client.ErrOutcomeUnknown) ||
		r.lenient()
}

// lenient tells whether organisations were registered just now, so that a node that lags behind may
// not know them yet and refuse for good what it takes a moment later.
func (r *run) lenient() bool {
	return !r.registeredAt.IsZero() && time.Since(r.registeredAt) < registeredTime
}

// patient tells whether there was progress lately.
func (r *run) patient() bool {
	return time.Since(time.Unix(0, r.movedAt.Load())) < r.options.Patience
}

func (r *run) moved() { r.movedAt.Store(time.Now().UnixNano()) }

func sleep(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask finds out whether a line that crosses shards is over in all of them. What is known so far is
// what the shard of its signer says: the others learn of it from there, a moment later, and what
// comes after it in their chains must not come before that.
func (r *run) ask(ctx context.Context, l *line) {
	pause := l.pause
	l.pause = min(max(4*pause, firstPause), longestPause)
	id, shards, nodes := l.id, l.shards, r.shard(r.builder.home(l.posting.transaction.Signer)).loose
	r.asking++
	r.work.Go(func() {
		if pause > 0 && sleep(ctx, pause) != nil {
			return
		}
		select {
		case r.asks <- struct{}{}:
		case <-ctx.Done():
			return
		}
		shown, err := nodes.Transaction(ctx, id)
		<-r.asks
		r.tell(ctx, event{asked: l, over: err == nil &&
			overIn(shown.GetPlaces(), shards, r.options.Wait)})
	})
}

// overIn tells whether a transaction took effect, or failed, in all of some shards, and will not be
// forgotten.
func overIn(places []*ledgerdv1.ShardPlace, shards []ledger.ShardID, level ledgerdv1.Level) bool {
	if level == ledgerdv1.Level_LEVEL_UNSPECIFIED {
		level = ledgerdv1.Level_LEVEL_DURABLE
	}
	return !slices.ContainsFunc(shards, func(shard ledger.ShardID) bool {
		return !slices.ContainsFunc(places, func(place *ledgerdv1.ShardPlace) bool {
			return ledger.ShardID(place.GetShard()) == shard &&
				(place.GetState() == "settled" || place.GetState() == "refused") &&
				place.GetLevel() >= level
		})
	})
}
