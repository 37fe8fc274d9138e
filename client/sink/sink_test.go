package sink_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/client/sink/sinktest"
	"github.com/ledgerd/ledgerd/ledger"
)

// kept is a target in memory.
type kept struct {
	mutex sync.Mutex
	seen  map[ledger.ShardID][]sinktest.Seen
	about []string
	marks map[ledger.ShardID]*sink.Mark
	// careless keeps the mark a batch late, as a target with a planted bug.
	careless bool
	// bare keeps marks as part of records only.
	bare bool
}

func newKept() *kept {
	return &kept{seen: make(map[ledger.ShardID][]sinktest.Seen),
		marks: make(map[ledger.ShardID]*sink.Mark)}
}

type keptLane struct {
	*kept
	shard ledger.ShardID
}

func (k *kept) Open(_ context.Context, chain sink.Chain) (sink.Lane, error) {
	return &keptLane{k, chain.Shard}, nil
}

func (k *kept) Close() error { return nil }

func (k *kept) KeepsMarks() bool { return !k.bare }

func (l *keptLane) Close() error { return nil }

func (l *keptLane) Mark(context.Context) (*sink.Mark, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.marks[l.shard], nil
}

func (l *keptLane) Write(_ context.Context, batch *sink.Batch) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, record := range batch.Records {
		l.seen[l.shard] = append(l.seen[l.shard], sinktest.Seen{
			Position: record.Position.String(), Line: string(record.Line)})
		if !record.About.IsZero() {
			l.about = append(l.about, record.Outcome)
		}
	}
	through := batch.Through
	switch {
	case l.careless:
		l.marks[l.shard] = batch.After
	case !l.bare:
		l.marks[l.shard] = &through
	case len(batch.Records) > 0:
		last := batch.Records[len(batch.Records)-1].Mark
		l.marks[l.shard] = &last
	}
	return nil
}

// Each entry arrives once, wherever the lane breaks off. A target that keeps its mark apart from
// what it writes, a planted bug, is caught.
func TestOnce(t *testing.T) {
	t.Parallel()
	chain := sinktest.NewLedger("test", 30, 12)
	for seed := range uint64(20) {
		target := newKept()
		if err := sink.Run(t.Context(), chain, sinktest.Break(target, seed),
			sinktest.Options()); err != nil {
			t.Fatal(err)
		}
		if err := sinktest.Compare(target.seen[0], chain.Want(t)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	careless := newKept()
	careless.careless = true
	if err := sink.Run(t.Context(), chain, sinktest.Break(careless, 1),
		sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	if err := sinktest.Compare(careless.seen[0], chain.Want(t)); err == nil ||
		!strings.Contains(err.Error(), "twice") {
		t.Fatalf("a target that forgets its position: %v", err)
	}
}

// A target that keeps its position with records only has lost nothing if entries that do not match
// came after the last record.
func TestNothingIsLostBehindTheLastMatch(t *testing.T) {
	t.Parallel()
	chain := sinktest.NewLedger("test", 30, 12)
	want := slices.DeleteFunc(chain.Want(t), func(each sinktest.Seen) bool {
		return !strings.Contains(each.Line, "EUR")
	})
	retried := false
	for seed := range uint64(20) {
		target, options := newKept(), sinktest.Options()
		target.bare = true
		options.Filter.Assets = []ledger.AssetName{"EUR"}
		options.Report = func(event sink.Event) {
			retried = retried || event.Event == "retry"
			if event.Event == "lost" {
				t.Errorf("seed %d: %+v", seed, event)
			}
		}
		if err := sink.Run(t.Context(), chain, sinktest.Break(target, seed), options); err != nil {
			t.Fatal(err)
		}
		if err := sinktest.Compare(target.seen[0], want); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if !retried {
		t.Error("nothing broke off")
	}
}

// A run goes on where the one before it ended, in the middle of a block too.
func TestResume(t *testing.T) {
	t.Parallel()
	long := sinktest.NewLedger("test", 12, 7)
	target := newKept()
	for height := 1; height <= len(long.Blocks); height += 3 {
		short := sinktest.NewLedger("test", height, 7)
		if err := sink.Run(t.Context(), short, target, sinktest.Options()); err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.Run(t.Context(), long, target, sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	if err := sinktest.Compare(target.seen[0], long.Want(t)); err != nil {
		t.Fatal(err)
	}
	if mark := target.marks[0]; mark.Height != 12 || mark.Block != long.Blocks[11].Hash {
		t.Fatalf("the mark is %+v", mark)
	}
}

// A target of another chain, of another history, or ahead of the chain is refused, and left as it
// is.
func TestRefusals(t *testing.T) {
	t.Parallel()
	chain := sinktest.NewLedger("test", 5, 3)
	full := func() *kept {
		target := newKept()
		if err := sink.Run(t.Context(), chain, target, sinktest.Options()); err != nil {
			t.Fatal(err)
		}
		return target
	}
	rewritten := sinktest.NewLedger("test", 5, 4)
	for name, each := range map[string]struct {
		source *sinktest.Ledger
		words  string
	}{
		"another genesis": {sinktest.NewLedger("other", 5, 3), "another chain"},
		"another history": {rewritten, "another history"},
		"behind":          {sinktest.NewLedger("test", 4, 3), "past the chain"},
	} {
		target := full()
		before, mark := len(target.seen[0]), *target.marks[0]
		err := sink.Run(t.Context(), each.source, target, sinktest.Options())
		if !errors.Is(err, sink.ErrRefused) || !strings.Contains(err.Error(), each.words) {
			t.Errorf("%s: %v", name, err)
		}
		if len(target.seen[0]) != before || *target.marks[0] != mark {
			t.Errorf("%s: the target was changed", name)
		}
	}
	broken := sinktest.NewLedger("test", 5, 3)
	broken.Blocks[3] = sinktest.NewLedger("other", 5, 3).Blocks[3]
	if err := sink.Run(t.Context(), broken, newKept(), sinktest.Options()); !errors.Is(err,
		sink.ErrRefused) || !strings.Contains(err.Error(), "does not follow") {
		t.Errorf("a block of another chain: %v", err)
	}
	for from, words := range map[ledger.Height]string{6: "", 7: "ends with block 5"} {
		options := sinktest.Options()
		options.From = from
		err := sink.Run(t.Context(), chain, newKept(), options)
		if words == "" && err != nil || words != "" && (err == nil ||
			!strings.Contains(err.Error(), words)) {
			t.Errorf("from %d: %v", from, err)
		}
	}
	options := sinktest.Options()
	options.Shards = []ledger.ShardID{1}
	if err := sink.Run(t.Context(), chain, newKept(), options); err == nil ||
		!strings.Contains(err.Error(), "no shard 1") {
		t.Errorf("an unknown shard: %v", err)
	}
}

// A filter lets through what has one of its items in each list, and the mark moves on all the same.
func TestFilter(t *testing.T) {
	t.Parallel()
	chain := sinktest.NewLedger("test", 4, 3)
	for name, each := range map[string]struct {
		filter sink.Filter
		want   int
	}{
		"nothing":              {sink.Filter{}, 10},
		"asset":                {sink.Filter{Assets: []ledger.AssetName{"EUR"}}, 3},
		"account":              {sink.Filter{Accounts: []string{"acme:cash"}}, 10},
		"below":                {sink.Filter{Accounts: []string{"acme:*"}}, 10},
		"no such account":      {sink.Filter{Accounts: []string{"acme:c"}}, 0},
		"organisation":         {sink.Filter{Organisations: []ledger.OrganisationName{"acme"}}, 10},
		"another organisation": {sink.Filter{Organisations: []ledger.OrganisationName{"acm"}}, 0},
		"both": {sink.Filter{Accounts: []string{"acme:mint"},
			Assets: []ledger.AssetName{"unit", "USD"}}, 6},
	} {
		target, options := newKept(), sinktest.Options()
		options.Filter = each.filter
		if err := sink.Run(t.Context(), chain, target, options); err != nil {
			t.Fatal(err)
		}
		if len(target.seen[0]) != each.want || target.marks[0].Height != 4 {
			t.Errorf("%s: %d records up to block %d", name, len(target.seen[0]),
				target.marks[0].Height)
		}
	}
	for _, filter := range []sink.Filter{{Accounts: []string{"acme"}}, {Accounts: []string{"*"}},
		{Assets: []ledger.AssetName{"a b"}}, {Organisations: []ledger.OrganisationName{"a:b"}}} {
		options := sinktest.Options()
		options.Filter = filter
		if err := sink.Run(t.Context(), chain, newKept(), options); !errors.Is(err,
			sink.ErrRefused) {
			t.Errorf("%+v: %v", filter, err)
		}
	}
}

// flaky is a source with a node that is away, and one that is behind.
type flaky struct {
	*sinktest.Ledger
	away    int // so many times no node answers
	rotated int
	behind  bool // until another node is asked
}

func (f *flaky) Shards(ctx context.Context) (int, error) {
	if f.away--; f.away >= 0 {
		return 0, errors.New("no node answers")
	}
	return f.Ledger.Shards(ctx)
}

func (f *flaky) Rotate() { f.rotated++ }

func (f *flaky) ReadChain(ctx context.Context, shard ledger.ShardID, from ledger.Height,
	wait time.Duration) (client.Chain, error) {
	chain, err := f.Ledger.ReadChain(ctx, shard, from, wait)
	if f.behind && f.rotated == 0 && from > 3 {
		chain.Blocks = nil
	}
	return chain, err
}

// Nodes that do not answer at the beginning are asked again. A run up to the present head does not
// wait for ever for a node that is behind: it asks another one, and gives up.
func TestNodesThatAreAwayOrBehind(t *testing.T) {
	t.Parallel()
	source := &flaky{Ledger: sinktest.NewLedger("test", 12, 2), away: 3, behind: true}
	target, options, told := newKept(), sinktest.Options(), 0
	options.Report = func(event sink.Event) {
		if event.Event == "shards" {
			told++
		}
	}
	if err := sink.Run(t.Context(), source, target, options); err != nil {
		t.Fatal(err)
	}
	if err := sinktest.Compare(target.seen[0], source.Want(t)); err != nil {
		t.Fatal(err)
	}
	if told != 3 || source.rotated == 0 {
		t.Errorf("%d events, %d turns", told, source.rotated)
	}
	// The mark is past this node, and the nodes are known to have more.
	source.behind, source.rotated = true, 0
	options.Patience = time.Nanosecond
	if err := sink.Run(t.Context(), source, target, options); err != nil {
		t.Fatal(err)
	}
	options.GiveUp = time.Nanosecond
	if err := sink.Run(t.Context(), &flaky{Ledger: source.Ledger, away: 9}, newKept(),
		options); err == nil || !strings.Contains(err.Error(), "no node answers; gave up") {
		t.Error(err)
	}
}

// two is a book of two shards, whose chains are the same.
type two struct{ *sinktest.Ledger }

func (two) Shards(context.Context) (int, error) { return 2, nil }

// If the target of one shard is refused, nothing is written for another one.
func TestAllAreOpenedFirst(t *testing.T) {
	t.Parallel()
	chain := two{sinktest.NewLedger("test", 5, 3)}
	for range 20 {
		target := newKept()
		target.marks[1] = &sink.Mark{Position: sink.Position{Shard: 1, Height: 3}}
		if err := sink.Run(t.Context(), chain, target, sinktest.Options()); !errors.Is(err,
			sink.ErrRefused) || len(target.seen[0]) != 0 {
			t.Fatalf("%d records: %v", len(target.seen[0]), err)
		}
	}
	if err := sink.Run(t.Context(), chain, newKept(), sinktest.Options()); err != nil {
		t.Fatal(err)
	}
}

func TestPositions(t *testing.T) {
	t.Parallel()
	position := sink.Position{Shard: 3, Height: 12, Index: 4}
	if parsed, err := sink.ParsePosition(position.String()); err != nil || parsed != position {
		t.Errorf("%v %v", parsed, err)
	}
	for _, text := range []string{"", "1/2", "1/2/3/4", "1/2/-3", "01/2/3", "1/2/3 ", "x/2/3"} {
		if parsed, err := sink.ParsePosition(text); err == nil {
			t.Errorf("%q is %v", text, parsed)
		}
	}
}

// What comes while a sink is down that began at the head, and has written nothing yet, is not lost.
// A target that cannot keep the head is told the height to begin with.
func TestFromHead(t *testing.T) {
	t.Parallel()
	options := sinktest.Options()
	options.FromHead = true
	for _, head := range []int{0, 5} {
		target, short := newKept(), sinktest.NewLedger("test", 5, 3)
		short.Blocks = short.Blocks[:head]
		if err := sink.Run(t.Context(), short, target, options); err != nil ||
			len(target.seen[0]) != 0 {
			t.Fatalf("%d records: %v", len(target.seen[0]), err)
		}
		long := sinktest.NewLedger("test", 8, 3)
		if err := sink.Run(t.Context(), long, target, options); err != nil {
			t.Fatal(err)
		}
		want := long.Want(t)
		short.Blocks = long.Blocks[:head]
		if err := sinktest.Compare(target.seen[0], want[len(short.Want(t)):]); err != nil {
			t.Errorf("from block %d on: %v", head+1, err)
		}
	}
	bare := newKept()
	bare.bare = true
	if err := sink.Run(t.Context(), sinktest.NewLedger("test", 5, 3), bare,
		options); !errors.Is(err, sink.ErrRefused) || !strings.Contains(err.Error(), "0=6") {
		t.Error(err)
	}
}
