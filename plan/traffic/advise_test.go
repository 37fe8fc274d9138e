package traffic

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// standingOf returns the standing of a book, from its estimate.
func standingOf(book Book) Standing {
	e, err := EstimateOf(book)
	if err != nil {
		panic(err)
	}
	s := Standing{Bottleneck: e.Loads[e.Bottleneck].Work, Crossings: e.Crossings}
	for _, load := range e.Loads {
		s.Squares += float64(load.Work * load.Work)
	}
	return s
}

// withHome returns a book in which one party has another home.
func withHome(book Book, party int, home order.GroupID) Book {
	book.Homes = slices.Clone(book.Homes)
	book.Homes[party] = home
	return book
}

// checkAdvice compares advice with estimates of the book after each move.
func checkAdvice(book Book, advice Advice) error {
	for i, move := range advice.Moves {
		if book.Homes[move.Party] != move.From || move.From == move.To {
			return fmt.Errorf("move %d: %+v of a party in shard %d", i, move,
				book.Homes[move.Party])
		}
		was := standingOf(book)
		book = withHome(book, move.Party, move.To)
		now := standingOf(book)
		if now != move.After {
			return fmt.Errorf("move %d: after it %+v, it says %+v", i, now, move.After)
		}
		if now.Bottleneck > was.Bottleneck {
			return fmt.Errorf("move %d: it adds work to the bottleneck: %v, then %v", i,
				was.Bottleneck, now.Bottleneck)
		}
		if now.compare(was) >= 0 {
			return fmt.Errorf("move %d: it is no better: %+v, then %+v", i, was, now)
		}
	}
	after, err := EstimateOf(book)
	if err != nil || !reflect.DeepEqual(after, advice.After) ||
		!slices.Equal(book.Homes, advice.Homes) {
		return errors.Join(fmt.Errorf("after all moves the estimate is %+v, the advice says %+v",
			after, advice.After), err)
	}
	return nil
}

func TestAdvice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		book := anyBook(t, 5, 8)
		limits := Limits{Moves: rapid.IntRange(0, 9).Draw(t, "moves"),
			Work: rapid.SampledFrom([]int{0, 1, 100, 10_000}).Draw(t, "work")}
		advice, err := Advise(book, limits)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkAdvice(book, advice); err != nil {
			t.Fatal(err)
		}
		again, err := Advise(book, limits)
		if err != nil || !reflect.DeepEqual(advice, again) {
			t.Fatalf("%+v\n%+v\n%v", advice, again, err)
		}
		if len(advice.Moves) > cmp.Or(limits.Moves, MovesDefault) {
			t.Fatalf("%d moves", len(advice.Moves))
		}
	})
}

// Each move is the best of all, if no limit ends the search, and the end is no better than the best
// of all homes.
func TestAdviceAgainstAllHomes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		book := anyBook(t, 3, 4)
		advice, err := Advise(book, Limits{Moves: MovesMax})
		if err != nil {
			t.Fatal(err)
		}
		if !advice.Best {
			t.Fatal("the search did not end by itself")
		}
		at := book
		for _, move := range append(slices.Clone(advice.Moves), Move{Party: -1}) {
			least := standingOf(at)
			best := Move{Party: -1}
			for party := range at.Homes {
				for shard := range order.GroupID(book.Tree.Groups()) {
					if s := standingOf(withHome(at, party, shard)); s.compare(least) < 0 {
						best, least = Move{party, at.Homes[party], shard, s}, s
					}
				}
			}
			if best != move {
				t.Fatalf("%+v is best, not %+v", best, move)
			}
			if move.Party >= 0 {
				at = withHome(at, move.Party, move.To)
			}
		}
		if best := bestOfAll(book); best.compare(standingOf(at)) > 0 {
			t.Fatalf("advice ends at %+v, better than all homes, %+v", standingOf(at), best)
		}
	})
}

// bestOfAll tries all homes of all parties.
func bestOfAll(book Book) Standing {
	every := book
	every.Homes = make([]order.GroupID, len(book.Homes))
	best := standingOf(every)
	for place := 0; place < len(every.Homes); {
		if every.Homes[place]++; int(every.Homes[place]) == book.Tree.Groups() {
			every.Homes[place] = 0
			place++
			continue
		}
		place = 0
		if s := standingOf(every); s.compare(best) < 0 {
			best = s
		}
	}
	return best
}

// marketBook has two groups of three parties, which deal with each other within the group, and
// homes that mix the groups up.
func marketBook(t *testing.T) Book {
	t.Helper()
	var collector Collector
	for _, group := range []string{"a", "b"} {
		for _, pair := range [][2]int{{0, 1}, {1, 2}, {0, 2}} {
			if err := collector.Add(100, fmt.Sprint(group, pair[0]),
				fmt.Sprint(group, pair[1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := collector.Add(1, "a0", "b0"); err != nil {
		t.Fatal(err)
	}
	return Book{tram.Breadth(2), collector.Traffic(), []order.GroupID{0, 0, 1, 1, 1, 0},
		MeasuredCosts}
}

// Two groups end in a shard each, which is the best of all homes.
func TestAdviceSeparatesMarkets(t *testing.T) {
	t.Parallel()
	book := marketBook(t)
	advice, err := Advise(book, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []order.GroupID{0, 0, 0, 1, 1, 1}; !slices.Equal(advice.Homes, want) ||
		advice.After.Crossings != 1 || !advice.Best || len(advice.Moves) != 2 {
		t.Errorf("%+v", advice)
	}
	book.Homes = advice.Homes
	if best := bestOfAll(book); best != standingOf(book) {
		t.Errorf("%+v is better than %+v", best, standingOf(book))
	}
	if short, err := Advise(marketBook(t), Limits{Moves: 1}); err != nil || short.Best ||
		len(short.Moves) != 1 {
		t.Errorf("%+v, %v", short, err)
	}
	if none, err := Advise(marketBook(t), Limits{Work: 1}); err != nil || none.Best ||
		len(none.Moves) != 0 {
		t.Errorf("%+v, %v", none, err)
	}
}

// TestAdviceCatchesPlantedBugs plants searches that overlook the bottleneck, or go on although
// nothing gets better.
func TestAdviceCatchesPlantedBugs(t *testing.T) {
	t.Parallel()
	for bug, compare := range map[string]func(a, b Standing) int{
		"fewer crossings at any price": func(a, b Standing) int {
			return cmp.Compare(a.Crossings, b.Crossings)
		},
		"balance before the bottleneck": func(a, b Standing) int {
			return cmp.Compare(a.Squares, b.Squares)
		},
		"moves that win nothing": func(a, b Standing) int {
			return cmp.Or(cmp.Compare(a.Bottleneck, b.Bottleneck), -1)
		},
	} {
		caught := false
		for seed := 0; seed < 2000 && !caught; seed++ {
			book := rapid.Custom(func(t *rapid.T) Book { return anyBook(t, 5, 8) }).Example(seed)
			advice, err := advise(book, Limits{}, compare)
			if err != nil {
				t.Fatal(err)
			}
			caught = checkAdvice(book, advice) != nil
		}
		if !caught {
			t.Errorf("not caught: %s", bug)
		}
	}
}

// Bitcoin's first addresses, from the files of the importer's tests: at random homes in four
// shards, most of what they do crosses. Advice lowers that.
func TestAdviceOnRealTraffic(t *testing.T) {
	t.Parallel()
	const whole = "../../../shared/data/bitcoin-blocks-0-14131.jsonl.gz"
	file, err := os.Open(whole)
	if errors.Is(err, fs.ErrNotExist) {
		t.Logf("there is no %s: taking an excerpt", whole)
		file, err = os.Open("../../client/importer/testdata/bitcoin-blocks-0-excerpt.jsonl.gz")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var collector Collector
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var entry struct{ Postings []struct{ Account string } }
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, posting := range entry.Postings {
			if posting.Account != "coinbase" {
				names = append(names, posting.Account)
			}
		}
		if err := collector.Add(1, names...); err != nil {
			t.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	book := Book{Tree: tram.Breadth(4), Traffic: collector.Traffic(), Costs: MeasuredCosts}
	for party := range book.Traffic.Names {
		book.Homes = append(book.Homes, order.GroupID(party*7919%31%4))
	}
	limits := Limits{Moves: 4, Work: 10_000_000}
	advice, err := Advise(book, limits)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkAdvice(book, advice); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d parties, %d transactions: %d crossings, then %d; capacity %.0f, then %.0f",
		len(book.Traffic.Names), advice.Before.Transactions, advice.Before.Crossings,
		advice.After.Crossings, advice.Before.Capacity, advice.After.Capacity)
	if advice.Before.Crossings > 0 && len(advice.Moves) > 0 &&
		advice.After.Capacity <= advice.Before.Capacity {
		t.Errorf("capacity %v, then %v", advice.Before.Capacity, advice.After.Capacity)
	}
}
