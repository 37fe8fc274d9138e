package route

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// sightings holds the answers of the shards about one transaction.
type sightings struct {
	id    ledger.Hash
	asked map[ledger.ShardID]shardAnswer
}

// shardAnswer is one shard's answer: the transaction as the shard knows it, or nil if the shard
// does not know it or, if silent, did not answer.
type shardAnswer struct {
	transaction *ledgerdv1.Transaction
	silent      bool
}

// place returns the transaction's place in the chain of the shard that answered, or nil if it is
// not there.
func (f shardAnswer) place() *ledgerdv1.ShardPlace {
	if places := f.transaction.GetPlaces(); len(places) > 0 {
		return places[0]
	}
	return nil
}

// GetTransaction returns a transaction from the chains of all shards that have it, and how far it
// has come.
func (r *router) GetTransaction(ctx context.Context,
	request *connect.Request[ledgerdv1.GetTransactionRequest]) (
	*connect.Response[ledgerdv1.GetTransactionResponse], error) {
	id, err := api.HashFrom(request.Msg.GetId(), request.Msg.GetIdHex(), "transaction id")
	if err != nil {
		return nil, err
	}
	return r.transaction(ctx, id)
}

// GetProof returns the path from a transaction to its block in the named shard's chain. Without a
// name, it is this shard's chain, or that of the signer's home if this one lacks the transaction.
func (r *router) GetProof(ctx context.Context,
	request *connect.Request[ledgerdv1.GetProofRequest]) (
	*connect.Response[ledgerdv1.GetProofResponse], error) {
	answer, err := inChain(ctx, r, request, r.Service.GetProof, client.GetProof)
	if code := connect.CodeOf(err); err == nil || request.Msg.Shard != nil ||
		code != connect.CodeNotFound && code != connect.CodeFailedPrecondition {
		return answer, err
	}
	id, invalid := api.HashFrom(request.Msg.GetId(), request.Msg.GetIdHex(), "transaction id")
	if invalid != nil {
		return nil, invalid
	}
	shown, failure := r.wherever(ctx, id, nil)
	if failure != nil {
		return nil, failure
	}
	if shown.GetStatus().GetHeight() == 0 {
		return nil, err
	}
	shard := shown.GetStatus().GetShard()
	return passOn(ctx, r, ledger.ShardID(shard), &ledgerdv1.GetProofRequest{Id: id[:],
		Shard: &shard}, client.GetProof)
}

// transaction returns a transaction from here and from the other shards that it concerns.
func (r *router) transaction(ctx context.Context,
	id ledger.Hash) (*connect.Response[ledgerdv1.GetTransactionResponse], error) {
	var here *ledgerdv1.Transaction
	answer, err := r.Service.GetTransaction(ctx,
		connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: id[:]}))
	switch {
	case err == nil:
		here = answer.Msg.GetTransaction()
	case connect.CodeOf(err) != connect.CodeNotFound:
		return nil, err
	}
	if here.GetStatus().GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING &&
		len(here.GetPlaces()) == 0 {
		return answer, nil // a transaction in the mempool here enters here
	}
	shown, err := r.wherever(ctx, id, here)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ledgerdv1.GetTransactionResponse{Transaction: shown}), nil
}

// wherever returns a transaction from all chains that have it, or should have it. Here is the
// transaction as this shard knows it, or nil.
func (r *router) wherever(ctx context.Context, id ledger.Hash,
	here *ledgerdv1.Transaction) (*ledgerdv1.Transaction, error) {
	found := &sightings{id: id, asked: make(map[ledger.ShardID]shardAnswer)}
	found.asked[r.shards.Own()] = shardAnswer{transaction: here}
	if len(here.GetPlaces()) == 0 {
		if to, known := r.sent.of(id); known {
			r.ask(ctx, found, to.entry, to.home)
		}
		if found.anywhere() == nil {
			r.ask(ctx, found, r.otherShards()...)
		}
	}
	any := found.anywhere()
	if any == nil {
		return found.nowhere()
	}
	r.ask(ctx, found, wayTo(r.shards.Tree(), concerned(any))...)
	return r.earlierOf(ctx, r.assemble(found)), nil
}

// ask asks those of the shards that were not asked yet.
func (r *router) ask(ctx context.Context, found *sightings,
	shards ...ledger.ShardID) {
	var wanted []ledger.ShardID
	for _, shard := range shards {
		if _, asked := found.asked[shard]; !asked && !slices.Contains(wanted, shard) {
			wanted = append(wanted, shard)
		}
	}
	answers, failures := callAll(ctx, askTime,
		wanted, func(ctx context.Context, shard ledger.ShardID) (*ledgerdv1.Transaction, error) {
			answer, err := r.shards.Client(shard).GetTransaction(ctx,
				connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: found.id[:]}))
			if err != nil {
				return nil, err
			}
			return answer.Msg.GetTransaction(), nil
		})
	for i, shard := range wanted {
		found.asked[shard] = shardAnswer{transaction: answers[i], silent: failures[i] != nil &&
			connect.CodeOf(failures[i]) != connect.CodeNotFound}
	}
}

// shards returns the shards that were asked, ascending.
func (f *sightings) shards() []ledger.ShardID {
	shards := make([]ledger.ShardID, 0, len(f.asked))
	for shard := range f.asked {
		shards = append(shards, shard)
	}
	slices.Sort(shards)
	return shards
}

// anywhere returns the transaction as a chain has it, preferring a chain that has decided it, or
// nil if no chain has it.
func (f *sightings) anywhere() *ledgerdv1.Transaction {
	var found *ledgerdv1.Transaction
	for _, shard := range f.shards() {
		place := f.asked[shard].place()
		if place == nil {
			continue
		}
		if state := place.GetState(); found == nil || state == api.PlaceSettled ||
			state == api.PlaceRefused {
			found = f.asked[shard].transaction
			if state == api.PlaceSettled || state == api.PlaceRefused {
				return found
			}
		}
	}
	return found
}

// nowhere returns a transaction that no chain has, if it is in another shard's mempool or expired.
// Else it is not found.
func (f *sightings) nowhere() (*ledgerdv1.Transaction, error) {
	var silent []ledger.ShardID
	for _, shard := range f.shards() {
		each := f.asked[shard]
		if each.silent {
			silent = append(silent, shard)
		}
		if state := each.transaction.GetStatus().GetState(); state ==
			ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING ||
			state == ledgerdv1.TransactionState_TRANSACTION_STATE_EXPIRED {
			return each.transaction, nil
		}
	}
	if len(silent) > 0 {
		return nil, api.Retryable(connect.CodeUnavailable,
			fmt.Errorf("no transaction %s is known to the shards that answer, and shards %v do "+
				"not: try again", f.id, silent), nil)
	}
	return nil, connect.NewError(connect.CodeNotFound,
		fmt.Errorf("no transaction %s is known to this node, nor to those of the other shards",
			f.id))
}

// concerned returns the shards that a transaction in a chain concerns.
func concerned(t *ledgerdv1.Transaction) []ledger.ShardID {
	destinations := t.GetStatus().GetDestinations()
	if len(destinations) == 0 {
		return []ledger.ShardID{ledger.ShardID(t.GetStatus().GetShard())}
	}
	shards := make([]ledger.ShardID, len(destinations))
	for i, shard := range destinations {
		shards[i] = ledger.ShardID(shard)
	}
	return shards
}

// wayTo returns the given shards and all shards that are or were above them. A transaction that
// concerns them came through one of these.
func wayTo(tree *ledger.ShardTree, shards []ledger.ShardID) []ledger.ShardID {
	var way []ledger.ShardID
	for next := slices.Clone(shards); len(next) > 0; next = next[1:] {
		shard := next[0]
		if int(shard) >= tree.Shards() || slices.Contains(way, shard) {
			continue
		}
		way = append(way, shard)
		if parent, below := tree.Parent(shard); below {
			next = append(next, parent)
		}
		next = append(next, tree.FormerParents(shard)...)
	}
	return way
}

// assemble makes one transaction of the shards' answers. The shard that decides it, which is mostly
// the signer's home, gives its outcome; if that does not know it yet, a shard that does.
func (r *router) assemble(found *sightings) *ledgerdv1.Transaction {
	shown := found.anywhere()
	destinations := concerned(shown)
	home := r.backend.Store().HomeShard(ledger.OrganisationName(shown.GetBody().GetSigner()))
	if cancellation := shown.GetBody().GetCancellation(); cancellation != nil &&
		int(cancellation.GetShard()) < r.shards.Tree().Shards() {
		home = ledger.ShardID(cancellation.GetShard())
	}
	places := make([]*ledgerdv1.ShardPlace, 0, len(found.asked))
	for _, shard := range found.shards() {
		each := found.asked[shard]
		place := each.place()
		switch {
		case place != nil:
			if place.GetHome() {
				home = shard
			}
		case slices.Contains(destinations, shard):
			place = &ledgerdv1.ShardPlace{Shard: uint32(shard), State: api.PlaceAbsent}
			if each.silent {
				place.State = api.PlaceUnanswered
			}
		default:
			continue
		}
		places = append(places, place)
	}
	for _, place := range places {
		place.Home = ledger.ShardID(place.GetShard()) == home
	}
	if at := found.asked[home]; at.place() != nil && at.place().GetState() != api.PlacePassed {
		shown = at.transaction
	} else if failed(shown.GetStatus()) && r.mayBeApplied(shown, places, home, at.silent) {
		shown.Status = waitsFor(shown.GetStatus(), home)
	} else if state := shown.GetStatus().GetState(); state ==
		ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING {
		shown.Status.WaitsFor = []uint32{uint32(home)}
	}
	if len(destinations) < 2 {
		shown.Status.Destinations = nil
	}
	shown.Places = places
	return shown
}

// clockGrace is by how much the clocks of shards may differ, and more.
const clockGrace = time.Minute

// mayBeApplied reports whether a transaction that failed in a shard may have taken effect, or may
// still do so, given that the chain of its signer's home does not have it, or that no node of the
// home answers. After a move a copy may fail in one shard, although the transaction itself took
// effect before, or is still on its way to others.
func (r *router) mayBeApplied(shown *ledgerdv1.Transaction, places []*ledgerdv1.ShardPlace,
	home ledger.ShardID, silent bool) bool {
	opened, body := r.backend.Store(), shown.GetBody()
	if !opened.HasMoves() || opened.Lost(home) || body.GetSigner() == "" ||
		len(body.GetOrganisations()) > 0 || body.GetPolicy() != nil {
		return false // all shards decide what concerns all of them alike
	}
	over := time.UnixMilli(int64(body.GetDeadline())).Add(clockGrace)
	return silent || r.Options().Clock().Before(over) ||
		slices.ContainsFunc(places, func(place *ledgerdv1.ShardPlace) bool {
			return place.GetState() == api.PlaceWaiting
		})
}
