package route

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// The tree shows the changes of the shards that are under way, and those of late. This node's chain
// has all of them. But whether an organisation has arrived only its new home knows. So a node asks
// the homes of moves that are under way, each at most once in askedAgain for all of its clients,
// and no home that has said that all moves to it are over.

// askedAgain is the least time between two questions to a shard about the moves to it.
const askedAgain = 400 * time.Millisecond

// arrivals has what the new homes of organisations said of the moves to them.
type arrivals struct {
	mutex sync.Mutex
	// counted is the number of the last move that newest has: by home, the last move to it.
	counted uint64
	newest  map[ledger.ShardID]uint64
	homes   map[ledger.ShardID]*homeSaid
}

// homeSaid is what a home said.
type homeSaid struct {
	asked    time.Time
	answers  bool   // whether it did when it was asked last
	upTo     uint64 // how many changes of the book its chain has
	changes  map[uint64]*ledgerdv1.ShardChange
	underWay bool // whether any of them is
}

// toAsk returns the homes to ask now. It notes that they are asked.
func (a *arrivals) toAsk(r *router, now time.Time) (shards []ledger.ShardID) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	opened := r.backend.Store()
	if changes := opened.BookChanges(); changes > a.counted {
		if a.newest == nil {
			a.newest = make(map[ledger.ShardID]uint64)
			a.homes = make(map[ledger.ShardID]*homeSaid)
		}
		moves := opened.AllMoves()
		for i := range moves {
			a.newest[moves[i].To] = moves[i].Number
		}
		a.counted = changes
	}
	for home, newest := range a.newest {
		said := a.homes[home]
		if home == r.shards.Own() || opened.Lost(home) || said != nil &&
			(now.Sub(said.asked) < askedAgain || said.answers && said.upTo >= newest &&
				!said.underWay) {
			continue
		}
		if said == nil {
			said = &homeSaid{}
			a.homes[home] = said
		}
		said.asked = now
		if r.allHeard([]ledger.ShardID{home}) != nil {
			said.answers = false
			continue
		}
		shards = append(shards, home)
	}
	return shards
}

// ask asks the homes that have something to say.
func (a *arrivals) ask(ctx context.Context, r *router) {
	shards := a.toAsk(r, time.Now())
	if len(shards) == 0 {
		return
	}
	answers, failures := callAll(ctx, tellTime, shards, func(ctx context.Context,
		shard ledger.ShardID) (*ledgerdv1.Tree, error) {
		answer, err := r.shards.Client(shard).GetTree(ctx,
			connect.NewRequest(&ledgerdv1.GetTreeRequest{}))
		if err != nil {
			return nil, err
		}
		return answer.Msg.GetTree(), nil
	})
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for i, shard := range shards {
		a.homes[shard].take(shard, answers[i], failures[i])
	}
}

// take takes a home's answer.
func (h *homeSaid) take(home ledger.ShardID, tree *ledgerdv1.Tree, err error) {
	if h.answers = err == nil; err != nil {
		return
	}
	h.upTo, h.underWay = tree.GetChangesTotal(), false
	h.changes = make(map[uint64]*ledgerdv1.ShardChange)
	for _, each := range tree.GetChanges() {
		if each.GetKind() != "move" || each.From == nil || each.GetTo() != uint32(home) ||
			len(h.changes) == api.MaxChangesShown {
			continue
		}
		h.changes[each.GetNumber()] = each
		h.underWay = h.underWay || !api.IsOver(each)
	}
}

// changes returns the changes of the shards that are under way, and those of late.
func (r *router) changes(ctx context.Context, tree *ledger.ShardTree,
	states []report.ShardState) (shown []*ledgerdv1.ShardChange) {
	if r.backend.Store().BookChanges() == 0 {
		return nil
	}
	r.arrivals.ask(ctx, r)
	shown = append(shown, r.moves()...)
	shown = append(shown, r.additions(tree, states)...)
	shown = append(shown, r.rehangs(tree, states)...)
	// What is under way is shown first if there is not room for all.
	slices.SortStableFunc(shown, func(a, b *ledgerdv1.ShardChange) int {
		if over := api.IsOver(a); over != api.IsOver(b) {
			return map[bool]int{true: 1, false: -1}[over]
		}
		return cmp.Compare(b.GetNumber(), a.GetNumber())
	})
	shown = shown[:min(len(shown), api.MaxChangesShown)]
	slices.SortStableFunc(shown, func(a, b *ledgerdv1.ShardChange) int {
		return cmp.Compare(a.GetNumber(), b.GetNumber())
	})
	return shown
}

// moves returns the moves of organisations that are under way, and those of late.
func (r *router) moves() []*ledgerdv1.ShardChange {
	shown, opened := r.RecentMoves(), r.backend.Store()
	r.arrivals.mutex.Lock()
	defer r.arrivals.mutex.Unlock()
	known := make(map[uint64]bool)
	for _, each := range shown {
		known[each.GetNumber()] = true
		home := ledger.ShardID(each.GetTo())
		if each.GetState() == "" {
			r.arrivals.homes[home].describe(each, opened.Lost(home))
		}
	}
	for _, said := range r.arrivals.homes {
		for number, each := range said.changes {
			if known[number] || api.IsOver(each) {
				continue
			}
			// It is under way for long. Its height and time are not those of this chain.
			from := each.GetFrom()
			change := &ledgerdv1.ShardChange{Number: number, Kind: each.GetKind(),
				Organisation: each.GetOrganisation(), From: &from, To: each.GetTo(),
				SinceMs: each.GetSinceMs()}
			said.describe(change, opened.Lost(ledger.ShardID(each.GetTo())))
			shown = append(shown, change)
		}
	}
	return shown
}

// describe fills in how far a move has come, as its new home said.
func (h *homeSaid) describe(change *ledgerdv1.ShardChange, lost bool) {
	change.State, change.WaitsFor = api.ChangeUnknown, []uint32{change.GetTo()}
	if lost {
		change.State, change.WaitsFor = api.ChangeNever, nil
		return
	}
	if h == nil {
		return
	}
	said, listed := h.changes[change.GetNumber()]
	switch {
	case listed && (h.answers || api.IsOver(said)):
		change.State, change.WaitsFor = said.GetState(), said.GetWaitsFor()
		change.DoneHeight, change.DoneMs = said.GetDoneHeight(), said.GetDoneMs()
	case listed || !h.answers && h.upTo < change.GetNumber():
	case h.upTo >= change.GetNumber():
		change.State, change.WaitsFor = api.ChangeDone, nil
	default:
		change.State = api.ChangeOrdered
	}
}

// additions returns the shards that were added lately, and those that run and do not order yet.
func (r *router) additions(tree *ledger.ShardTree,
	states []report.ShardState) (shown []*ledgerdv1.ShardChange) {
	opened := r.backend.Store()
	for i, each := range opened.Additions() {
		shard := ledger.ShardID(tree.GenesisShards() + i)
		added, _ := opened.AddedAt(shard)
		if int(shard) >= len(states) || opened.Lost(shard) {
			continue
		}
		orders := states[shard].Height > 0
		height, since := r.ChangedAt(added)
		if !r.IsRecent(since) && (orders || states[shard].LastHeard.IsZero()) {
			continue
		}
		change := &ledgerdv1.ShardChange{Kind: "addition", Shard: uint32(shard),
			To: uint32(each.Parent), State: api.ChangeDone, Height: height, SinceMs: since}
		if !orders {
			change.State, change.WaitsFor = api.ChangeOrdered, []uint32{uint32(shard)}
		}
		shown = append(shown, change)
	}
	return shown
}

// rehangs returns the changes of the tree that are under way, and those of late.
func (r *router) rehangs(tree *ledger.ShardTree,
	states []report.ShardState) (shown []*ledgerdv1.ShardChange) {
	opened := r.backend.Store()
	for _, each := range opened.Rehangs() {
		if int(each.Shard) >= len(states) || opened.Lost(each.Shard) {
			continue
		}
		carried := states[each.Shard].Carried
		over := carried >= ledger.StreamBase(each.Number)
		height, since := r.ChangedAt(each.Height)
		if over && !r.IsRecent(since) {
			continue
		}
		from := uint32(each.From)
		change := &ledgerdv1.ShardChange{Number: each.Number, Kind: "rehang",
			Shard: uint32(each.Shard), From: &from, To: uint32(each.To), State: api.ChangeDone,
			Height: height, SinceMs: since}
		if !over {
			change.State, change.WaitsFor = api.ChangeMoving, formerParents(tree, each.Shard,
				carried)
			if states[each.Shard].Mode == report.ShardSilent {
				change.WaitsFor = []uint32{uint32(each.Shard)}
			}
		}
		shown = append(shown, change)
	}
	return shown
}
