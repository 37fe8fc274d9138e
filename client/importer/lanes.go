package importer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Bounds of the bundles under way.
const (
	bundlesInOrder  = 8  // of a lane that keeps its order
	bundlesLoose    = 16 // of any other lane
	bundlesUnderWay = 64 // of all lanes; each lane may still have some
	// Below this number of bundles under way a lane sends a partial bundle; else it waits for a
	// full one.
	fewInOrder, fewLoose = 2, 4
	// maxLanes is the number of lanes at which idle lanes are dropped, except those that keep their
	// order.
	maxLanes = 256
	maxAsks  = 32 // concurrent queries for whether a line is over
)

// Times of lines that cross shards.
const (
	firstPause, longestPause = 2 * time.Millisecond, time.Second
	// registeredTime is how long after a registration a node may not know the organisation.
	registeredTime = 10 * time.Second
)

// laneKind is the purpose of a lane.
type laneKind uint8

const (
	// Lines of one shard alone, in the order in which they are queued.
	laneInOrder     laneKind = iota
	laneOfOpenings           // openings of accounts of one shard
	laneOfCrossings          // lines that concern the same two or more shards
)

// lane is a queue of jobs that go into the same bundles.
type lane struct {
	kind     laneKind
	entry    ledger.ShardID   // the shard that its bundles enter
	shards   []ledger.ShardID // of laneOfCrossings
	queue    []*job
	underWay int          // bundles
	in       chan *bundle // to the goroutine of a lane that keeps its order; nil: not started
}

// lanes holds all lanes, in the order in which they were created.
type lanes struct {
	all      []*lane
	underWay int // bundles
}

// bundle is a signed bundle of jobs under way.
type bundle struct {
	lane   *lane
	jobs   []*job
	bundle *ledger.Bundle
	sent   bool // a node has it
}

// lines names the lines of a bundle, for a message.
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

// take takes a bundle's worth of jobs from a lane, or none if it is better to wait for more.
func (l *lane) take(full, most, few int, hurry bool) []*job {
	if len(l.queue) == 0 || l.underWay >= most {
		return nil
	}
	if l.queue[0].packed() {
		full = l.queue[0].run.bundle.Len() // all of them were queued together
	} else if packed := slices.IndexFunc(l.queue, (*job).packed); packed >= 0 {
		full = min(full, packed)
	}
	count, size := 0, 0
	for ; count < min(len(l.queue), full) && size < enoughBytes; count++ {
		if !l.queue[count].packed() {
			size += l.queue[count].size
		}
	}
	if count < full && size < enoughBytes && l.underWay >= few && !hurry {
		return nil
	}
	taken := slices.Clone(l.queue[:count])
	l.queue = slices.Delete(l.queue, 0, count)
	return taken
}

// dispatch sends the jobs of the lanes in bundles.
func (r *run) dispatch(ctx context.Context) error {
	for again := true; again; {
		again = false
		for _, each := range r.lanes.all {
			if r.lanes.underWay >= bundlesUnderWay && each.underWay >= fewInOrder {
				// A lane that is stuck, since a shard is down, must not block the others.
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

// give signs a bundle and sends it.
func (r *run) give(ctx context.Context, to *lane, jobs []*job) error {
	made := &bundle{lane: to, jobs: jobs}
	timed := to.kind == laneOfCrossings && r.deadlines.needed
	if !timed {
		if err := r.sign(ctx, made); err != nil {
			return err
		}
	}
	to.underWay++
	r.lanes.underWay++
	nodes := r.shard(to.entry)
	if to.kind != laneInOrder {
		r.work.Go(func() {
			var err error
			if timed {
				if err = r.setDeadlines(ctx, made, nodes.loose); err == nil {
					err = r.sign(ctx, made)
				}
			}
			var statuses []*ledgerdv1.TransactionStatus
			if err == nil {
				statuses, err = r.settle(ctx, nodes.loose, made)
			}
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
	to.in <- made // never blocks: at most bundlesInOrder are under way
	return nil
}

// sign makes the bundle of the jobs, signed with the keys of all signers.
func (r *run) sign(ctx context.Context, its *bundle) error {
	if its.jobs[0].packed() {
		its.bundle = its.jobs[0].run.bundle
		if err := r.options.Key.SignBundle(ctx, its.bundle); err != nil {
			return fmt.Errorf("%s: %w", its.lines(), err)
		}
		return nil
	}
	transactions := make([]ledger.Transaction, len(its.jobs))
	var signers []int
	for i, each := range its.jobs {
		transactions[i] = each.transaction
		for _, signer := range each.signers {
			if !slices.Contains(signers, signer) {
				signers = append(signers, signer)
			}
		}
	}
	slices.Sort(signers)
	keys := make([]client.Key, len(signers))
	for i, signer := range signers {
		keys[i] = client.Key{Organisation: r.builder.organisations[signer].name,
			Signer: r.options.Key.Signer}
	}
	var err error
	if its.bundle, err = client.Sign(ctx, keys, transactions...); err != nil {
		return fmt.Errorf("%s: %w", its.lines(), err)
	}
	return nil
}

// tell sends an event.
func (r *run) tell(ctx context.Context, happened event) {
	select {
	case r.events <- happened:
	case <-ctx.Done():
	}
}

// inOrder sends the bundles of a lane to the nodes in their order.
type inOrder struct {
	run   *run
	nodes Nodes
	in    <-chan *bundle
	queue []*bundle
	after ledger.Hash // the last acknowledged transaction
}

// follow processes the lane's bundles until ctx ends or a bundle cannot be settled.
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
			// All bundles before the first one are acknowledged, so submitting it again, to the
			// same node or another, keeps the order.
			statuses, err = o.run.settle(ctx, o.nodes, o.queue[0])
		}
		if err == nil {
			err = o.run.findOutcomes(ctx, o.nodes, o.queue[0], statuses)
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

// send sends the bundles that no node has yet to a node, in their order. A bundle that is
// temporarily refused stays unsent. If the first bundle is already sent, send returns so that the
// caller can wait for it; else it pauses and tries again.
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
			if err := o.noteAdmitted(ctx, unsent, outcomes); err != nil {
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

// noteAdmitted marks the admitted bundles, which are a prefix.
func (o *inOrder) noteAdmitted(ctx context.Context, unsent []*bundle,
	outcomes []*ledgerdv1.BundleOutcome) error {
	for i, outcome := range outcomes {
		if outcome.GetRefused() == "" {
			unsent[i].sent = true
			continue
		}
		if outcome.GetRetry() || outcome.GetUnsure() || o.run.lenient() {
			return nil
		}
		if unsent[i].bundle.Packed() {
			return o.run.unpack(ctx, unsent[i])
		}
		return fmt.Errorf("importer: %s were refused: %s", unsent[i].lines(), outcome.GetRefused())
	}
	return nil
}

// settle waits until a bundle is acknowledged. If a node has it already, settle first asks for its
// transactions. Else, and whenever that fails, it submits the same bytes again. A node that lost
// them, or another node, then has them.
func (r *run) settle(ctx context.Context, nodes Nodes, its *bundle) ([]*ledgerdv1.TransactionStatus,
	error) {
	if its.sent && r.tree == nil {
		if statuses, err := r.await(ctx, nodes, its); err == nil {
			return statuses, nil
		}
	}
	for {
		statuses, err := nodes.Submit(ctx, its.bundle, r.options.Wait)
		switch {
		case err == nil:
			return statuses, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !r.mayRetry(err) && !its.bundle.Packed(): // which another node has taken
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

// mayRetry reports whether the same call may succeed later.
func (r *run) mayRetry(err error) bool {
	failure := (*client.Failure)(nil)
	return !errors.As(err, &failure) || failure.Retry || errors.Is(err, client.ErrOutcomeUnknown) ||
		r.lenient()
}

// lenient reports whether organisations were registered a short time ago. A node that lags behind
// may not know them yet, and refuse for good a bundle that it takes a moment later.
func (r *run) lenient() bool {
	return !r.registeredAt.IsZero() && time.Since(r.registeredAt) < registeredTime
}

// patient reports whether there was recent progress.
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

// ask finds out whether a line that crosses shards is over in all of them. So far only the result
// in the shard of its signer is known. The other shards learn of it a moment later, and later lines
// in their chains must not come before that.
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

// overIn reports whether a transaction took effect, or failed, at the given level in each of the
// given shards.
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
