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

// The tree shows the changes of the shards that are under way, and recent ones. This node's chain
// has all of them. But whether an organisation has arrived only its new home knows. So a node asks
// the homes of moves that are under way, each at most once in askedAgain for all of its clients,
// and no home that has said that all moves to it are over. Of the answer it takes only how far
// moves have come that its own chain has: the member that answers may lie.

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
	asked   time.Time
	answers bool   // whether it did when it was asked last
	upTo    uint64 // how many changes of the book its chain has
	// moves are those that it lists, by number. If some had no room, more is set.
	moves    map[uint64]moveSaid
	more     bool
	underWay bool // whether any of them is
}

// moveSaid is how far a move has come.
type moveSaid struct {
	state              string
	doneHeight, doneMs uint64
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
	// It is for all clients, also if this one goes away.
	ctx = context.WithoutCancel(ctx)
	answers, failures := callAll(ctx, tellTime, shards, func(ctx context.Context,
		shard ledger.ShardID) (*ledgerdv1.Tree, error) {
		answer, err := r.shards.Client(shard).GetTree(ctx,
			connect.NewRequest(&ledgerdv1.GetTreeRequest{}))
		if err != nil {
			return nil, err
		}
		return answer.Msg.GetTree(), nil
	})
	changes := r.backend.Store().BookChanges() // first: the moves are at least those among them
	to := r.movesTo()
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for i, shard := range shards {
		a.homes[shard].take(to[shard], changes, answers[i], failures[i])
	}
}

// movesTo returns the numbers of all moves by their new home.
func (r *router) movesTo() map[ledger.ShardID]map[uint64]bool {
	to := make(map[ledger.ShardID]map[uint64]bool)
	for _, move := range r.backend.Store().AllMoves() {
		if to[move.To] == nil {
			to[move.To] = make(map[uint64]bool)
		}
		to[move.To][move.Number] = true
	}
	return to
}

// take takes a home's answer about moves that this chain has, given how many changes of the book
// that has.
func (h *homeSaid) take(moves map[uint64]bool, changes uint64, tree *ledgerdv1.Tree,
	err error) {
	if h.answers = err == nil; err != nil {
		return
	}
	h.upTo, h.underWay, h.more = min(tree.GetChangesTotal(), changes), false, false
	h.moves = make(map[uint64]moveSaid)
	for _, over := range []bool{false, true} { // what is under way has room first, then the newest
		for _, each := range slices.Backward(tree.GetChanges()) {
			if each.GetKind() != "move" || !moves[each.GetNumber()] ||
				api.IsOver(each) != over {
				continue
			}
			switch each.GetState() {
			case api.ChangeDeparting, api.ChangeArriving, api.ChangeDone, api.ChangeNever:
			default:
				continue
			}
			if len(h.moves) == api.MaxChangesShown {
				h.more = true
				return
			}
			h.moves[each.GetNumber()] = moveSaid{each.GetState(), each.GetDoneHeight(),
				each.GetDoneMs()}
			h.underWay = h.underWay || !over
		}
	}
}

// changes returns the changes of the shards that are under way, and recent ones.
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

// moves returns the moves of organisations that are under way, and recent ones.
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
	if !r.arrivals.unsettled(r.shards.Own()) {
		return shown
	}
	// Some may be under way for long.
	for _, move := range slices.Backward(opened.AllMoves()) {
		said := r.arrivals.homes[move.To]
		if len(shown) >= api.MaxChangesShown {
			break
		}
		if known[move.Number] || move.To == r.shards.Own() || opened.Lost(move.To) ||
			!said.mayBeUnderWay(move.Number) {
			continue
		}
		from := uint32(move.From)
		height, since := r.ChangedAt(move.Height)
		change := &ledgerdv1.ShardChange{Number: move.Number, Kind: "move",
			Organisation: string(move.Organisation), From: &from, To: uint32(move.To),
			Height: height, SinceMs: since}
		said.describe(change, false)
		shown = append(shown, change)
	}
	return shown
}

// unsettled reports whether a home of another shard has not said that all moves to it are over. The
// caller holds the mutex.
func (a *arrivals) unsettled(own ledger.ShardID) bool {
	for home, newest := range a.newest {
		if said := a.homes[home]; home != own && (said == nil || said.upTo < newest ||
			said.underWay) {
			return true
		}
	}
	return false
}

// mayBeUnderWay reports whether a home has not said that a move to it is over.
func (h *homeSaid) mayBeUnderWay(number uint64) bool {
	if h == nil {
		return true
	}
	said, listed := h.moves[number]
	return h.upTo < number || listed && said.state != api.ChangeDone &&
		said.state != api.ChangeNever
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
	said, listed := h.moves[change.GetNumber()]
	switch {
	case listed && (said.state == api.ChangeDone || said.state == api.ChangeNever):
		change.State, change.WaitsFor = said.state, nil
		change.DoneHeight, change.DoneMs = said.doneHeight, said.doneMs
	case listed && h.answers:
		change.State, change.WaitsFor = said.state, []uint32{change.GetFrom()}
	case listed || h.more || !h.answers && h.upTo < change.GetNumber():
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

// rehangs returns the changes of the tree that are under way, and recent ones.
func (r *router) rehangs(tree *ledger.ShardTree,
	states []report.ShardState) (shown []*ledgerdv1.ShardChange) {
	opened := r.backend.Store()
	for _, each := range opened.Rehangs() {
		if int(each.Shard) >= len(states) || opened.Lost(each.Shard) {
			continue
		}
		carried := states[each.Shard].Carried
		over := carried >= ledger.StreamBase(each.Number)
		unheard := states[each.Shard].LastHeard.IsZero() && each.Shard != r.shards.Own()
		height, since := r.ChangedAt(each.Height)
		if (over || unheard) && !r.IsRecent(since) {
			continue // or nobody knows yet, since this node has just begun
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
			if unheard {
				change.State = api.ChangeUnknown
			}
		}
		shown = append(shown, change)
	}
	return shown
}
