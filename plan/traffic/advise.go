package traffic

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Defaults of Limits.
const (
	MovesDefault = 16
	MovesMax     = 1 << 10
	// WorkDefault keeps a search within some ten seconds.
	WorkDefault = 200_000_000
)

// Limits bound a search for advice. Zeros mean the defaults.
type Limits struct {
	// Moves bounds how many parties are moved. A search for a tree does not use it.
	Moves int
	// Work bounds how many parties of flows, and how many shards, the search looks at.
	Work int
}

// validate returns ErrBook for impossible limits.
func (l Limits) validate() error {
	if l.Moves < 0 || l.Moves > MovesMax || l.Work < 0 {
		return fmt.Errorf("%w: impossible limits %+v; at most %d moves", ErrBook, l, MovesMax)
	}
	return nil
}

// Move is the move of a party to another home.
type Move struct {
	Party    int // an index into Traffic.Names
	From, To order.GroupID
	// After is what the book does after this move and all before it.
	After Standing
}

// Standing is what a search compares: the work of the bottleneck in microseconds, the sum of the
// squares of all shards' work, and the number of crossings.
type Standing struct {
	Bottleneck, Squares float64
	Crossings           uint64
}

// compare is negative if s is better than other.
func (s Standing) compare(other Standing) int {
	return cmp.Or(cmp.Compare(s.Bottleneck, other.Bottleneck),
		cmp.Compare(s.Squares, other.Squares), cmp.Compare(s.Crossings, other.Crossings))
}

// Advice is what a search found.
type Advice struct {
	Before, After Estimate
	Moves         []Move
	// Homes are the parties' shards after the moves.
	Homes []order.GroupID
	// Best reports whether no single further move is better. Otherwise a limit ended the search.
	Best bool
}

// Advise proposes moves of parties to other shards. It returns ErrBook or ErrTraffic for a book
// that is not described completely, and for negative limits.
func Advise(book Book, limits Limits) (Advice, error) {
	return advise(book, limits, Standing.compare)
}

// advise is Advise with a judgement of two standings, which tests replace.
func advise(book Book, limits Limits, compare func(a, b Standing) int) (Advice, error) {
	if err := limits.validate(); err != nil {
		return Advice{}, err
	}
	before, err := EstimateOf(book)
	if err != nil {
		return Advice{}, err
	}
	s := newSearch(&book, limits, compare)
	advice := Advice{Before: before}
	for moves := cmp.Or(limits.Moves, MovesDefault); len(advice.Moves) < moves; {
		move, found := s.best()
		if !found {
			break
		}
		s.shift(move.Party, move.To)
		advice.Moves = append(advice.Moves, move)
	}
	if !s.spent {
		_, better := s.best()
		advice.Best = !better && !s.spent
	}
	advice.Homes, advice.After = slices.Clone(s.homes), s.estimate()
	return advice, nil
}

// search is a local search over the homes of parties.
type search struct {
	tally
	compare func(a, b Standing) int
	flows   [][]int // the flows of each party
	weights []int   // the parties of these flows
	left    int     // of Limits.Work
	spent   bool
}

func newSearch(book *Book, limits Limits, compare func(a, b Standing) int) *search {
	s := &search{tally: *newTally(book), compare: compare,
		flows:   make([][]int, len(book.Traffic.Names)),
		weights: make([]int, len(book.Traffic.Names)),
		left:    cmp.Or(limits.Work, WorkDefault)}
	for i := range book.Traffic.Flows {
		flow := &book.Traffic.Flows[i]
		s.add(flow, false)
		for _, party := range flow.Parties {
			s.flows[party] = append(s.flows[party], i)
			s.weights[party] += len(flow.Parties)
		}
	}
	return s
}

// count adds the flows of a party, with the home that it has now, or takes them away.
func (s *search) count(party int, away bool) {
	for _, flow := range s.flows[party] {
		s.add(&s.book.Traffic.Flows[flow], away)
	}
}

// shift gives a party another home, with all its flows.
func (s *search) shift(party int, to order.GroupID) {
	s.count(party, true)
	s.homes[party] = to
	s.count(party, false)
}

// best returns the best move of all that are better than staying. Among equals it is that of the
// first party, to the lowest shard. Without enough of Limits.Work left it finds none.
func (s *search) best() (best Move, found bool) {
	least := s.standing()
	for party, flows := range s.flows {
		if len(flows) == 0 {
			continue
		}
		// At each shard it looks at the flows twice and at all shards once.
		shards := len(s.counts)
		if s.left -= 2*s.weights[party]*shards + shards*shards; s.left < 0 {
			s.spent = true
			return Move{}, false
		}
		from := s.homes[party]
		s.count(party, true)
		for shard := range s.counts {
			to := order.GroupID(shard)
			if to == from {
				continue
			}
			s.homes[party] = to
			s.count(party, false)
			if now := s.standing(); s.compare(now, least) < 0 {
				best, found, least = Move{party, from, to, now}, true, now
			}
			s.count(party, true)
		}
		s.homes[party] = from
		s.count(party, false)
	}
	return best, found
}
