package api

import (
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Changes of the book's shards are shown with the tree while they are under way, and for a while
// after. Only its new home knows how far an organisation's move has come (package route asks it).

const (
	// MaxChangesShown bounds the changes that a tree shows.
	MaxChangesShown = 100
	// changesShownFor is how long a change is shown that is over, from its block on.
	changesShownFor = 10 * time.Minute
)

// The states of a change of the book's shards, as clients see them.
const (
	ChangeOrdered   = "ordered"
	ChangeDeparting = "departing"
	ChangeArriving  = "arriving"
	ChangeMoving    = "moving"
	ChangeDone      = "done"
	ChangeNever     = "never"
	ChangeUnknown   = "unknown"
)

// IsOver reports whether nothing comes of a change any more.
func IsOver(change *ledgerdv1.ShardChange) bool {
	return change.GetState() == ChangeDone || change.GetState() == ChangeNever
}

// RecentMoves returns the moves of organisations to this shard that are under way, and those
// between any shards that were made lately, by number. Those to other shards have no state.
func (s *Service) RecentMoves() (shown []*ledgerdv1.ShardChange) {
	opened := s.backend.Store()
	if !opened.HasMoves() {
		return nil
	}
	moves, coming, next := opened.MovesUnderWay()
	at := make(map[uint64]int, len(coming))
	for i := range coming {
		at[coming[i].Number] = i
	}
	recent, under := true, 0
	for i := range slices.Backward(moves) {
		move := &moves[i]
		here, comes := at[move.Number]
		if !recent && under == len(coming) {
			break
		}
		if !comes && !recent {
			continue
		}
		height, since := s.ChangedAt(move.Height)
		recent = recent && s.IsRecent(since) && i >= len(moves)-MaxChangesShown
		if comes {
			under++
		} else if !recent {
			continue
		}
		from := uint32(move.From)
		change := &ledgerdv1.ShardChange{Number: move.Number, Kind: "move",
			Organisation: string(move.Organisation), From: &from, To: uint32(move.To),
			Height: height, SinceMs: since}
		if move.To == opened.Shard() {
			switch {
			case move.Arrived > 0:
				change.State = ChangeDone
				change.DoneHeight, change.DoneMs = s.ChangedAt(move.Arrived)
			case !comes:
				change.State = ChangeNever
			case next[here] == ledger.Hash{}:
				change.State, change.WaitsFor = ChangeDeparting, []uint32{from}
			default:
				change.State, change.WaitsFor = ChangeArriving, []uint32{from}
			}
		}
		shown = append(shown, change)
	}
	slices.Reverse(shown)
	return shown
}

// IsRecent reports whether a change with a block of this time is shown although it is over.
func (s *Service) IsRecent(sinceMs uint64) bool {
	return sinceMs > 0 &&
		s.options.Clock().Sub(time.UnixMilli(int64(sinceMs))) < changesShownFor
}

// ChangedAt returns the height and the time of the block with a change, or 0 for what is not known.
func (s *Service) ChangedAt(height ledger.Height) (at, timeMs uint64) {
	if height == 0 {
		return 0, 0
	}
	header, _, err := s.backend.Store().Header(height)
	if err != nil {
		return uint64(height), 0
	}
	return uint64(height), uint64(header.Time)
}
