package api

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
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

// wherever returns a transaction from all chains that have it, or should have it.
func (s *service) wherever(ctx context.Context, others Shards,
	status report.Status) (*ledgerdv1.Transaction, error) {
	here, err := s.shown(ctx, status)
	if err != nil || status.Outcome == report.OutcomePending {
		return here, err // a transaction in the mempool here enters here
	}
	found := &sightings{id: status.ID, asked: make(map[ledger.ShardID]shardAnswer)}
	found.asked[others.Own()] = shardAnswer{transaction: here}
	if !status.InBlock() {
		if to, known := s.sent.of(status.ID); known {
			s.ask(ctx, others, found, to.entry, to.home)
		}
		if found.anywhere() == nil {
			s.ask(ctx, others, found, otherShards(others)...)
		}
	}
	any := found.anywhere()
	if any == nil {
		return found.nowhere(status)
	}
	s.ask(ctx, others, found, wayTo(others.Tree(), concerned(any))...)
	return s.assemble(others.Tree(), found), nil
}

// ask asks those of the shards that were not asked yet.
func (s *service) ask(ctx context.Context, others Shards, found *sightings,
	shards ...ledger.ShardID) {
	var wanted []ledger.ShardID
	for _, shard := range shards {
		if _, asked := found.asked[shard]; !asked && !slices.Contains(wanted, shard) {
			wanted = append(wanted, shard)
		}
	}
	answers, failures := callAll(ctx, askTime,
		wanted, func(ctx context.Context, shard ledger.ShardID) (*ledgerdv1.Transaction, error) {
			answer, err := others.Client(shard).GetTransaction(ctx,
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
		if state := place.GetState(); found == nil || state == placeSettled ||
			state == placeRefused {
			found = f.asked[shard].transaction
			if state == placeSettled || state == placeRefused {
				return found
			}
		}
	}
	return found
}

// nowhere returns a transaction that no chain has, if it is in another shard's mempool or expired.
// Else it is not found.
func (f *sightings) nowhere(status report.Status) (*ledgerdv1.Transaction, error) {
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
		return nil, retryable(connect.CodeUnavailable,
			fmt.Errorf("no transaction %s is known to the shards that answer, and shards %v do "+
				"not: try again", status.ID, silent), nil)
	}
	return nil,
		notFound("no transaction %s is known to this node, nor to those of the other shards",
			status.ID)
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

// wayTo returns the given shards and all shards above them. A transaction that concerns them came
// through one of these.
func wayTo(tree *ledger.ShardTree, shards []ledger.ShardID) []ledger.ShardID {
	var way []ledger.ShardID
	for _, shard := range shards {
		for below := true; below && int(shard) < tree.Shards(); {
			if !slices.Contains(way, shard) {
				way = append(way, shard)
			}
			shard, below = tree.Parent(shard)
		}
	}
	return way
}

// assemble makes one transaction of the shards' answers. The signer's home gives its outcome; if
// the home does not know it yet, a shard that does.
func (s *service) assemble(tree *ledger.ShardTree, found *sightings) *ledgerdv1.Transaction {
	shown := found.anywhere()
	destinations := concerned(shown)
	home := s.backend.Store().HomeShard(ledger.OrganisationName(shown.GetBody().GetSigner()))
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
			place = &ledgerdv1.ShardPlace{Shard: uint32(shard), State: placeAbsent}
			if each.silent {
				place.State = placeUnanswered
			}
		default:
			continue
		}
		places = append(places, place)
	}
	for _, place := range places {
		place.Home = ledger.ShardID(place.GetShard()) == home
	}
	if at := found.asked[home]; at.place() != nil && at.place().GetState() != placePassed {
		shown = at.transaction
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
