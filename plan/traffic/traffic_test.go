package traffic

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// anyBook draws a small book.
func anyBook(t *rapid.T, shardsMax, partiesMax int) Book {
	shards := rapid.IntRange(1, shardsMax).Draw(t, "shards")
	parents := make([]order.GroupID, shards)
	for shard := 1; shard < shards; shard++ {
		parents[shard] = order.GroupID(rapid.IntRange(0, shard-1).Draw(t, "parent"))
	}
	tree, err := tram.NewTree(parents)
	if err != nil {
		t.Fatal(err)
	}
	parties := rapid.IntRange(1, partiesMax).Draw(t, "parties")
	var collector Collector
	for range rapid.IntRange(0, 12).Draw(t, "flows") {
		var names []string
		for range rapid.IntRange(1, 3).Draw(t, "of") {
			names = append(names, fmt.Sprint("p", rapid.IntRange(0, parties-1).Draw(t, "party")))
		}
		if err := collector.Add(rapid.Uint64Range(0, 9).Draw(t, "count"), names...); err != nil {
			t.Fatal(err)
		}
	}
	cost := rapid.Float64Range(0.5, 30)
	book := Book{Tree: tree, Traffic: collector.Traffic(), Costs: Costs{cost.Draw(t, "single"),
		cost.Draw(t, "plain"), cost.Draw(t, "crossing"), cost.Draw(t, "relay"),
		cost.Draw(t, "verdict")}}
	for range book.Traffic.Names {
		book.Homes = append(book.Homes, order.GroupID(rapid.IntRange(0, shards-1).Draw(t, "home")))
	}
	return book
}

// relayed counts what the relays of all shards do with the transactions, one by one.
func relayed(t *rapid.T, book Book) []Counts {
	counts := make([]Counts, book.Tree.Groups())
	relays := make([]*tram.Relay, book.Tree.Groups())
	for shard := range relays {
		relays[shard] = tram.NewRelay(book.Tree, order.GroupID(shard))
	}
	for _, flow := range book.Traffic.Flows {
		var to []order.GroupID
		for _, party := range flow.Parties {
			if home := book.Homes[party]; !slices.Contains(to, home) {
				to = append(to, home)
			}
		}
		slices.Sort(to)
		var take func(shard order.GroupID, number uint64)
		take = func(shard order.GroupID, number uint64) {
			outcome := relays[shard].Order(tram.Item{Number: number,
				Message: order.Multicast{To: to}})
			if outcome.Skipped != tram.SkipNone {
				t.Fatalf("shard %d: %v", shard, outcome.Skipped)
			}
			at := &counts[shard]
			switch {
			case len(to) == 1:
				at.Plain++
			case number == 0:
				at.Entered++
			default:
				at.Carried++
			}
			if outcome.Delivered {
				at.Verdicts += uint64(len(to) - 1)
			} else {
				at.Passed++
			}
			for _, forward := range slices.Clone(outcome.Forwards) {
				take(forward.Child, forward.Number)
			}
		}
		for range flow.Count {
			take(book.Tree.LCA(to), 0)
		}
	}
	return counts
}

// The counts of an estimate are those of the relays, and they add up.
func TestEstimateAgainstRelays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		book := anyBook(t, 6, 8)
		e, err := EstimateOf(book)
		if err != nil {
			t.Fatal(err)
		}
		var entries, parties uint64
		for shard, want := range relayed(t, book) {
			load := e.Loads[shard]
			if load.Counts != want {
				t.Fatalf("shard %d: %+v, the relays have %+v", shard, load.Counts, want)
			}
			if load.Work > e.Loads[e.Bottleneck].Work {
				t.Fatalf("shard %d has more work than the bottleneck, %d", shard, e.Bottleneck)
			}
			entries += load.Plain + load.Entered
			parties += uint64(load.Parties)
		}
		if entries != e.Transactions || parties != uint64(len(book.Traffic.Names)) ||
			(e.Crossings == 0) != (e.MostSteps == 0) ||
			e.MeanSteps > float64(e.MostSteps) {
			t.Fatalf("%+v", e)
		}
	})
}

// Up to the even share the shards carry as much as one; beyond they do not.
func TestEvenShare(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{2, 3, 4, 7, 15} {
		for name, tree := range map[string]*tram.Tree{"breadth": tram.Breadth(shards),
			"binary": tram.Binary(shards), "chain": tram.Chain(shards)} {
			estimate := func(crossing int) Estimate {
				traffic, homes, err := Uniform(shards, crossing)
				if err != nil {
					t.Fatal(err)
				}
				e, err := EstimateOf(Book{tree, traffic, homes, MeasuredCosts})
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
			share := estimate(50).EvenShare
			if share <= 0 || share >= 1 || int(estimate(50).Crossings*2) !=
				int(estimate(50).Transactions) {
				t.Fatalf("%d %s: %v", shards, name, share)
			}
			if below := estimate(int(share * 100)); below.Gain() < 1 {
				t.Errorf("%d %s: gain %v below %v", shards, name, below.Gain(), share)
			}
			if above := estimate(int(share*100) + 1); above.Gain() >= 1 {
				t.Errorf("%d %s: gain %v above %v", shards, name, above.Gain(), share)
			}
		}
	}
}

func TestUniform(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2, 9} {
		for _, crossing := range []int{0, 30, 100} {
			traffic, homes, err := Uniform(shards, crossing)
			if err != nil {
				t.Fatal(err)
			}
			e, err := EstimateOf(Book{tram.Breadth(shards), traffic, homes, MeasuredCosts})
			if err != nil || e.Transactions == 0 {
				t.Fatalf("%d shards, %d %%: %+v, %v", shards, crossing, e, err)
			}
			if got := e.CrossingShare() * 100; shards > 1 && got != float64(crossing) {
				t.Errorf("%d shards, %d %%: %v", shards, crossing, got)
			}
		}
	}
	for _, wrong := range [][2]int{{0, 5}, {2000, 5}, {3, -1}, {3, 101}} {
		if _, _, err := Uniform(wrong[0], wrong[1]); !errors.Is(err, ErrBook) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

func TestBooksThatAreRefused(t *testing.T) {
	t.Parallel()
	good := func() Book {
		return Book{tram.Breadth(2), Traffic{[]string{"a", "b"}, []Flow{{[]int{0, 1}, 3}}},
			[]order.GroupID{0, 1}, MeasuredCosts}
	}
	if _, err := EstimateOf(good()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(b *Book){
		"no tree":         func(b *Book) { b.Tree = nil },
		"too few homes":   func(b *Book) { b.Homes = b.Homes[1:] },
		"no such shard":   func(b *Book) { b.Homes[1] = 2 },
		"no parties":      func(b *Book) { b.Traffic.Flows[0].Parties = nil },
		"no such party":   func(b *Book) { b.Traffic.Flows[0].Parties[1] = 2 },
		"not ascending":   func(b *Book) { b.Traffic.Flows[0].Parties[1] = 0 },
		"too many":        func(b *Book) { b.Traffic.Flows[0].Count = CountMax + 1 },
		"a cost of zero":  func(b *Book) { b.Costs.Relay = 0 },
		"a negative cost": func(b *Book) { b.Costs.Plain = -1 },
	} {
		b := good()
		change(&b)
		_, err := EstimateOf(b)
		_, homes := Advise(b, Limits{})
		_, tree := AdviseTree(b, Limits{})
		if err == nil || homes == nil || tree == nil ||
			!errors.Is(err, ErrBook) && !errors.Is(err, ErrTraffic) {
			t.Errorf("%s: %v, %v, %v", name, err, homes, tree)
		}
	}
	for _, limits := range []Limits{{Moves: -1}, {Moves: MovesMax + 1}, {Work: -1}} {
		_, err := Advise(good(), limits)
		if _, also := AdviseTree(good(), limits); !errors.Is(err, ErrBook) ||
			!errors.Is(also, ErrBook) {
			t.Errorf("%+v: %v, %v", limits, err, also)
		}
	}
}

// What a collector has does not depend on the order in which it got it, and neither does what
// follows from that.
func TestCollectorForgetsOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type line struct {
			count uint64
			names []string
		}
		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "é"})
		any := rapid.Custom(func(t *rapid.T) line {
			return line{rapid.Uint64Range(0, 9).Draw(t, "count"),
				rapid.SliceOfN(name, 1, 4).Draw(t, "names")}
		})
		lines := rapid.SliceOfN(any, 0, 9).Draw(t, "lines")
		var one, other Collector
		for _, l := range lines {
			if err := one.Add(l.count, l.names...); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range rapid.Permutation(lines).Draw(t, "permuted") {
			if err := other.Add(l.count, l.names...); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(one.Traffic(), other.Traffic()) {
			t.Fatalf("%+v\n%+v", one.Traffic(), other.Traffic())
		}
	})
}

func TestRead(t *testing.T) {
	t.Parallel()
	got, err := Read(strings.NewReader("# who deals with whom\nglobex,acme,3\n\nacme,4 # own\n" +
		"acme, globex, 2\nacme,globex,bank,1\nacme,acme,1\n"))
	want := Traffic{[]string{"acme", "bank", "globex"},
		[]Flow{{[]int{0}, 5}, {[]int{0, 1, 2}, 1}, {[]int{0, 2}, 5}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for text, reason := range map[string]string{
		"acme":                 "line 1: bad traffic: write organisations",
		"\nacme,globex":        "line 2: bad traffic: write organisations",
		"acme,globex,-1":       "write organisations",
		"acme,,5":              `"" is no name`,
		"ac me,5":              "is no name",
		"a,1099511627777":      "divide all counts",
		"a,1099511627776\nb,1": "line 2: bad traffic: more than",
	} {
		if _, err := Read(strings.NewReader(text)); !errors.Is(err, ErrTraffic) ||
			!strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Read(strings.NewReader(strings.Repeat("a", lineBytesMax+1))); err == nil {
		t.Error("a line without an end was read")
	}
}

func TestReadHomes(t *testing.T) {
	t.Parallel()
	homes, err := ReadHomes(strings.NewReader("acme,2\nglobex,0 # the first\n"), 3)
	if err != nil || !reflect.DeepEqual(homes, map[string]uint32{"acme": 2, "globex": 0}) {
		t.Errorf("%v, %v", homes, err)
	}
	for _, text := range []string{"acme", "acme,3", "acme,-1", "acme,1,2", ",1", "a,1\na,1"} {
		if _, err := ReadHomes(strings.NewReader(text), 3); !errors.Is(err, ErrTraffic) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What is read can be estimated, and reads the same when it is written again.
func FuzzRead(f *testing.F) {
	f.Add("acme,globex,120\nacme,5")
	f.Add("a,b,c,1#x\n\n b , a ,2")
	f.Fuzz(func(t *testing.T, text string) {
		read, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		var again strings.Builder
		if err := read.Write(&again); err != nil {
			t.Fatal(err)
		}
		second, err := Read(strings.NewReader(again.String()))
		if err != nil || !reflect.DeepEqual(read, second) {
			t.Fatalf("%+v\n%+v\n%v", read, second, err)
		}
		if _, err := EstimateOf(Book{tram.Breadth(1), read, make([]order.GroupID, len(read.Names)),
			MeasuredCosts}); err != nil {
			t.Fatal(err)
		}
	})
}
