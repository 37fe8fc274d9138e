package importer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// fewer returns a third of a number if the race detector is on.
func fewer(number int) int {
	if raceDetector {
		return number / 3
	}
	return number
}

// trees are the shapes of the tests' books.
var trees = map[string][]ledger.ShardID{
	"two":     {0, 0},
	"breadth": {0, 0, 0, 0},
	"chain":   {0, 0, 1, 2},
	"fork":    {2, 2, 2, 1},
}

// journal is a file and the outcome of its lines when they are executed one after the other.
type journal struct {
	text   string
	sums   map[string]int64
	failed []uint64
}

// add adds a line that moves an amount from one account to two others. The second of these may be
// empty.
func (j *journal) add(number int, from, to, third string, amount, part int64) {
	postings := fmt.Sprintf(`{"account":%q,"amount":%d},{"account":%q,"amount":%d}`, from, -amount,
		to, amount-part)
	after := maps.Clone(j.sums)
	after[from] -= amount
	after[to] += amount - part
	if third != "" {
		postings += fmt.Sprintf(`,{"account":%q,"amount":%d}`, third, part)
		after[third] += part
	}
	j.text += fmt.Sprintf(`{"n":%d,"postings":[%s]}`+"\n", number, postings)
	for account, sum := range after {
		if sum < 0 && account != "mint" {
			j.failed = append(j.failed, uint64(number))
			return
		}
	}
	j.sums = after
}

// drawJournal draws a file with a few accounts, which are repeatedly spent to the last unit.
func drawJournal(t *rapid.T, lines int, overdrafts bool) *journal {
	j := &journal{sums: map[string]int64{}}
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	account := rapid.SampledFrom(names)
	for number := 1; number <= lines; number++ {
		to := account.Draw(t, "to")
		rich := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return j.sums[name] == 0 || name == to
		})
		if len(rich) == 0 || rapid.IntRange(0, 3).Draw(t, "mint") == 0 {
			j.add(number, "mint", to, "", rapid.Int64Range(1, 3).Draw(t, "amount"), 0)
			continue
		}
		from := rapid.SampledFrom(rich).Draw(t, "from")
		amount := j.sums[from]
		if overdrafts && rapid.IntRange(0, 5).Draw(t, "overdraft") == 0 {
			amount++
		}
		third := ""
		var part int64
		if amount > 1 && rapid.Bool().Draw(t, "split") {
			third, part = account.Filter(func(name string) bool {
				return name != to && name != from
			}).Draw(t, "third"), 1
		}
		j.add(number, from, to, third, amount, part)
	}
	return j
}

func (j *journal) run(b *book, options Options) (Result, error) {
	source, err := Stream(strings.NewReader(j.text))
	if err != nil {
		return Result{}, err
	}
	options.Key, options.Issuers, options.Connect = testKey, []string{"mint"}, b.connect
	options.now = b.now
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return Run(ctx, door{b, ledger.ShardID(len(b.shards) - 1)}, source, options)
}

// check returns what is wrong with an import.
func (j *journal) check(b *book, result Result) error {
	var failed []uint64
	for _, failure := range result.Failures {
		failed = append(failed, failure.Line)
	}
	if !slices.Equal(failed, j.failed) {
		return fmt.Errorf("lines %v failed, want %v: %+v", failed, j.failed, result.Failures)
	}
	sums := b.sums()
	for account, sum := range j.sums {
		if sums[account] != sum {
			return fmt.Errorf("%s has %d, want %d", account, sums[account], sum)
		}
	}
	return nil
}

// An import has the same result as if its lines had been executed one after the other, whichever
// lines cross shards and whichever messages overtake others.
func TestSpread(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parents := trees[rapid.SampledFrom(slices.Sorted(maps.Keys(trees))).Draw(t, "tree")]
		options := Options{Organisations: rapid.IntRange(1, 9).Draw(t, "organisations"),
			few: rapid.IntRange(1, 8).Draw(t, "few")}
		options.window = uint64(options.few * rapid.IntRange(2, 6).Draw(t, "window"))
		j := drawJournal(t, rapid.IntRange(1, fewer(45)).Draw(t, "lines"),
			rapid.Bool().Draw(t, "overdrafts"))
		b := newBook(rapid.Uint64().Draw(t, "seed"), parents...)
		defer b.close()
		result, err := j.run(b, options)
		if err == nil {
			err = j.check(b, result)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, j.text)
		}
		// Again, as on another machine: the transactions are the same, so nothing is new.
		before := b.transactions()
		b.quiet()
		b.later(time.Duration(rapid.IntRange(0, 30).Draw(t, "days")) * 24 * time.Hour)
		result, err = j.run(b, options)
		if err == nil {
			err = j.check(b, result)
		}
		if err != nil || b.transactions() != before {
			t.Fatalf("the second time: %d transactions and not %d, %v\n%s", b.transactions(),
				before, err, j.text)
		}
	})
}

// halting stops and starts shards in turn until the test ends.
func halting(b *book, seed uint64) (stop func()) {
	random := rand.New(rand.NewPCG(seed, 1))
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			shard := ledger.ShardID(random.IntN(len(b.shards)))
			for _, halted := range []bool{true, false} {
				select {
				case <-time.After(time.Duration(random.IntN(20)) * time.Millisecond):
				case <-stopped:
					b.halt(shard, false)
					return
				}
				b.halt(shard, halted)
			}
		}
	}()
	return func() { close(stopped); <-ended }
}

// An import that is repeatedly killed, while shards stop, lose their pools and come back, has the
// same result as an undisturbed one, with a progress file and without.
func TestSpreadInterrupted(t *testing.T) {
	t.Parallel()
	for seed := range 2 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			j := rapid.Custom(func(t *rapid.T) *journal {
				return drawJournal(t, fewer(300), true)
			}).Example(seed)
			path, state := writeFile(t, j.text), ""
			if seed%2 == 0 {
				state = t.TempDir()
			}
			b := newBook(uint64(seed), trees["fork"]...)
			defer b.close()
			stop := halting(b, uint64(seed))
			defer stop()
			var result Result
			runs := 0
			for err, length := error(context.Canceled), 20*time.Millisecond; err !=
				nil; runs, length = runs+1, 3*length/2 {
				source, failure := OpenFile(path)
				if failure != nil {
					t.Fatal(failure)
				}
				ctx, cancel := context.WithTimeout(testContext(t), length)
				result, err = Run(ctx, door{b, 1}, source,
					Options{Key: testKey, Organisations: 5, Issuers: []string{"mint"},
						Connect: b.connect, now: b.now, StateFolder: state, few: 10, window: 100})
				cancel()
				_ = source.Close()
				if err != nil && ctx.Err() == nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d runs, the last one skipped %d lines", runs, result.Skipped)
			if err := j.check(b, result); err != nil || runs < 2 {
				t.Fatalf("%d runs: %v", runs, err)
			}
		})
	}
}

// An import that is killed and continued weeks later, when other deadlines are due, imports each
// line once: also the lines whose outcome it did not see, with the progress file and without.
func TestSpreadLater(t *testing.T) {
	t.Parallel()
	for seed := range fewer(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			j := rapid.Custom(func(t *rapid.T) *journal {
				return drawJournal(t, 150, true)
			}).Example(seed)
			path, state := writeFile(t, j.text), ""
			if seed%2 == 0 {
				state = t.TempDir()
			}
			b := newBook(uint64(4*seed+1), trees["fork"]...)
			defer b.close()
			var result Result
			runs := 0
			for err, length := error(context.Canceled), 5*time.Millisecond; err !=
				nil; runs, length = runs+1, 2*length {
				b.quiet()
				b.later(time.Duration(runs*seed) * 24 * time.Hour)
				source, failure := OpenFile(path)
				if failure != nil {
					t.Fatal(failure)
				}
				ctx, cancel := context.WithTimeout(testContext(t), length)
				result, err = Run(ctx, door{b, 1}, source,
					Options{Key: testKey, Organisations: 5, Issuers: []string{"mint"},
						Connect: b.connect, StateFolder: state, few: 10, window: 100, now: b.now})
				cancel()
				_ = source.Close()
				if err != nil && ctx.Err() == nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d runs, the last one skipped %d lines", runs, result.Skipped)
			if err := j.check(b, result); err != nil {
				t.Fatalf("%d runs: %v", runs, err)
			}
		})
	}
}

// While a shard is stopped, only the lines wait that concern it, and the lines that they conflict
// with.
func TestSpreadStoppedShard(t *testing.T) {
	t.Parallel()
	j := &journal{sums: map[string]int64{}}
	in := func(shard int) func(string) bool {
		return func(name string) bool { return placeOf(name, 4) == shard }
	}
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("account-", i))
	}
	first := func(shard int) string { return names[slices.IndexFunc(names, in(shard))] }
	home := placeOf("mint", 4)
	down := (home + 1) % 4
	if down == 0 {
		down++ // lines that cross go through the root
	}
	j.add(1, "mint", first(down), "", 5, 0)
	for i, name := range names {
		if placeOf(name, 4) != down {
			j.add(2+i, "mint", name, "", 1, 0)
		} else {
			j.text += "\n"
		}
	}
	b := newBook(1, trees["breadth"]...)
	defer b.close()
	if down == home {
		t.Fatal("the name of the issuer makes this no test")
	}
	// The organisations and the accounts of the stopped shard exist before.
	before := &journal{sums: map[string]int64{}}
	before.add(1, "mint", first(down), "", 1, 0)
	if _, err := before.run(b, Options{Organisations: 4}); err != nil {
		t.Fatal(err)
	}
	b.halt(ledger.ShardID(down), true)
	ended := make(chan error, 1)
	go func() {
		result, err := j.run(b, Options{Organisations: 4})
		if err == nil && result.Failed > 0 {
			err = fmt.Errorf("%+v", result)
		}
		ended <- err
	}()
	deadline := time.Now().Add(20 * time.Second)
	for _, name := range names {
		for !in(down)(name) && b.sums()[name] < 1 {
			if time.Now().After(deadline) {
				t.Fatalf("%s waits for a shard that it has nothing to do with", name)
			}
			time.Sleep(time.Millisecond)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("the import ended without shard %d: %v", down, err)
	default:
	}
	b.halt(ledger.ShardID(down), false)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := b.sums()[first(down)]; got != 6 {
		t.Fatalf("%s has %d", first(down), got)
	}
}

// Another number of organisations is refused, with a progress file and without one.
func TestSpreadOtherwise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, after int
	}{{1, 2}, {2, 1}, {3, 2}, {2, 3}, {4, 2}, {2, 8}} {
		for _, state := range []string{"", t.TempDir()} {
			t.Run(fmt.Sprint(c.before, c.after, state != ""), func(t *testing.T) {
				t.Parallel()
				j := &journal{sums: map[string]int64{}}
				for i := range 5 {
					j.add(i+1, "mint", fmt.Sprint("a", i), "", 1, 0)
				}
				path := writeFile(t, j.text)
				b := newBook(1, trees["two"]...)
				defer b.close()
				run := func(organisations int) error {
					source, err := OpenFile(path)
					if err != nil {
						t.Fatal(err)
					}
					defer source.Close()
					_, err = Run(testContext(t), door{b, 1}, source,
						Options{Key: testKey, Organisations: organisations,
							Issuers: []string{"mint"}, Connect: b.connect, StateFolder: state})
					return err
				}
				if err := run(c.before); err != nil {
					t.Fatal(err)
				}
				before := b.transactions()
				if err := run(c.after); !errors.Is(err, ErrOrganisations) {
					t.Fatalf("%d organisations after %d: %v", c.after, c.before, err)
				}
				if err := run(c.before); err != nil || b.transactions() != before {
					t.Fatalf("%v, %d transactions and not %d", err, b.transactions(), before)
				}
			})
		}
	}
}

// The check can fail: if lines do not wait for those that they conflict with, some lines fail that
// do not fail in the file's order.
func TestSpreadPlanted(t *testing.T) {
	t.Parallel()
	caught := 0
	for seed := range fewer(20) {
		j := rapid.Custom(func(t *rapid.T) *journal {
			return drawJournal(t, 100, false)
		}).Example(seed)
		b := newBook(uint64(seed), trees["breadth"]...)
		result, err := j.run(b, Options{Organisations: 4, planted: true})
		if err != nil {
			t.Fatal(err)
		}
		if j.check(b, result) != nil {
			caught++
		}
		b.close()
	}
	if caught < fewer(15) {
		t.Fatalf("%d of %d imports without waiting were caught", caught, fewer(20))
	}
}
