package api

import (
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// While an organisation is on its way to another home, no shard can say what it has: the old home
// does not change it any more, and the new one has not got it yet. So a read of it is refused, with
// the hint to ask again, and lists name it.

// MaxMovingNamed bounds the organisations on their way that a list names.
const MaxMovingNamed = 100

// movesOf returns where an organisation lived before, and whether it is on its way here.
func (s *Service) movesOf(name ledger.OrganisationName) (moving bool,
	earlier []*ledgerdv1.EarlierHome) {
	for _, each := range s.backend.Store().Moves(name) {
		earlier = append(earlier, &ledgerdv1.EarlierHome{Shard: uint32(each.From),
			Change: each.Number})
	}
	return s.backend.Store().IsComing(name), earlier
}

// livesHere returns an error if this shard cannot say what an organisation has because of a move:
// it is on its way here, or this node or the one that passed the call on does not know of it yet.
func (s *Service) livesHere(name ledger.OrganisationName) error {
	opened := s.backend.Store()
	if opened.ShardTree() == nil {
		return nil
	}
	moves := opened.Moves(name)
	if len(moves) == 0 {
		_, known := opened.Organisation(name)
		if known && opened.HomeShard(name) != opened.Shard() {
			return Retryable(connect.CodeUnavailable, fmt.Errorf("this node of shard %d does not "+
				"know yet that organisation %s moves here: ask again", opened.Shard(), name), nil)
		}
		return nil
	}
	last := &moves[len(moves)-1]
	switch {
	case opened.LivesHere(name):
		return nil
	case last.To != opened.Shard():
		return Retryable(connect.CodeUnavailable, fmt.Errorf("organisation %s has moved to shard "+
			"%d: ask again", name, last.To), nil)
	case opened.IsStranded(name):
		from := last.From
		for i := range moves {
			if opened.Lost(moves[i].From) {
				from = moves[i].From
			}
		}
		return LostShard(from, fmt.Sprintf("organisation %s was on its way from there", name))
	}
	return Retryable(connect.CodeUnavailable, fmt.Errorf("organisation %s is on its way here, "+
		"from shard %d to shard %d: ask again", name, last.From, last.To), nil)
}

// hasChanges returns an error if this node's chain has fewer changes of the book's shards.
func (s *Service) hasChanges(changes uint64) error {
	if changes <= s.backend.Store().BookChanges() {
		return nil
	}
	return Retryable(connect.CodeUnavailable, fmt.Errorf("this node's chain has not all of %d "+
		"changes of the book's shards: try again, or another node", changes), nil)
}

// LostShard is the error of a call that only a shard can answer that is lost for good. It is the
// same whenever it is asked.
func LostShard(shard ledger.ShardID, besides string) *connect.Error {
	obstacle := report.Obstacle{Shard: shard, Lost: true}
	refusal := obstacle.Refusal()
	if besides != "" {
		refusal.Reason += "; " + besides
	}
	return RefusalError(refusal)
}

// comingWith returns the organisations on their way here that may have accounts with a prefix, by
// the order of their moves.
func (s *Service) comingWith(prefix string) (names []string) {
	coming, _ := s.backend.Store().Coming()
	for i := range coming {
		all := string(coming[i].Organisation) + ":"
		if len(names) < MaxMovingNamed &&
			(strings.HasPrefix(all, prefix) || strings.HasPrefix(prefix, all)) {
			names = append(names, string(coming[i].Organisation))
		}
	}
	return names
}
