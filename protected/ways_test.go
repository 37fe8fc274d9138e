package protected

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/fabric"
)

// pair is a process with ways to regions of another one, in virtual time.
type pair struct {
	network *fabric.Network
	near    *fabric.Host
	far     *fabric.Host
	ways    *Ways
	regions []rdmanet.Region // at the far host
	to      []*Way
	ended   []Post // what completed, in order
	failed  []error
}

const regionSize = 1024

// newPair starts two hosts and exposes regions at the far one, which the near one may write.
func newPair(t rapid.TB, seed uint64, regions, depth int) *pair {
	t.Helper()
	p := &pair{network: fabric.New(fabric.Options{Seed: seed})}
	start := func(name rdmanet.PeerID) *fabric.Host {
		host, err := p.network.Start(name)
		if err != nil {
			t.Fatal(err)
		}
		return host
	}
	p.near, p.far = start("near"), start("far")
	var err error
	if p.ways, err = NewWays(p.near, depth, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for i := range regions {
		region, err := p.far.Expose(string(rune('a'+i)), regionSize)
		if err != nil {
			t.Fatal(err)
		}
		if err := region.Grant(p.near.Peer(), rdmanet.PermissionReadWrite); err != nil {
			t.Fatal(err)
		}
		p.regions = append(p.regions, region)
		p.to = append(p.to, &Way{Peer: p.far.Peer(), Region: region.Name(), Place: i})
	}
	return p
}

// attach answers what the ways want, and returns the ways that were answered, with the errors.
func (p *pair) attach(t rapid.TB) (ways []*Way, errs []error) {
	t.Helper()
	for _, want := range p.ways.Wanted() {
		attachment, err := p.near.Attach(context.Background(), want.Peer, want.Region)
		way, err := p.ways.Attached(want.Number, attachment, err)
		ways, errs = append(ways, way), append(errs, err)
	}
	return ways, errs
}

// settle flushes the batch and lets all that is under way complete.
func (p *pair) settle(t rapid.TB) {
	t.Helper()
	if err := p.ways.Flush(); err != nil {
		t.Fatal(err)
	}
	for p.complete(); p.ways.Outstanding() > 0; p.complete() { // some complete as they are posted
		if !p.network.Step() {
			t.Fatal("operations are under way, and nothing happens any more")
		}
	}
}

func (p *pair) complete() bool {
	return p.ways.Complete(p.network.Now(), func(post Post, err error) {
		p.ended, p.failed = append(p.ended, post), append(p.failed, err)
	})
}

// write posts a write of a word.
func (p *pair) write(way *Way, number, word uint64) {
	p.ways.Post(way, 1, number, nil, rdmanet.Operation{Kind: rdmanet.OperationWrite,
		Bytes: p.ways.InlineWord(word)})
}

// TestWayOfLife follows a way from the want for it to its end.
func TestWayOfLife(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, 1, 8)
	defer p.network.Close()
	way := p.to[0]
	p.ways.Attach(way)
	if !way.Awaited() || way.Attached() {
		t.Error("a way that is asked for is not awaited")
	}
	if ways, errs := p.attach(t); len(ways) != 1 || ways[0] != way || errs[0] != nil {
		t.Fatalf("%d ways are answered: %v", len(ways), errs)
	}
	if way.Awaited() || !way.Attached() || len(p.ways.Wanted()) != 0 {
		t.Error("an answer is asked for twice")
	}
	p.write(way, 7, 99)
	if way.Flying() != 1 {
		t.Errorf("%d operations fly", way.Flying())
	}
	p.settle(t)
	if got := p.regions[0].Load(0); got != 99 || way.Flying() != 0 {
		t.Errorf("the far word is %d, and %d operations fly", got, way.Flying())
	}
	if len(p.ended) != 1 || p.ended[0].Number != 7 || p.ended[0].Kind != 1 ||
		p.ended[0].Way != way || p.failed[0] != nil {
		t.Errorf("%+v, %v", p.ended, p.failed)
	}
	p.ways.ReadWord(way, 2, 0)
	if !way.Reading() {
		t.Error("a read is not under way")
	}
	p.settle(t)
	if way.Reading() || way.Word() != 99 {
		t.Errorf("read %d", way.Word())
	}
	p.ways.Detach(way)
	if way.Attached() || way.Awaited() {
		t.Error("a way that was given up is there")
	}
	if err := p.ways.Close(); err != nil {
		t.Error(err)
	}
}

// TestEarlierLife gives a way up while an operation is under way. Its completion is nobody's, and
// frees its tag.
func TestEarlierLife(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, 1, 2)
	defer p.network.Close()
	way := p.to[0]
	p.ways.Attach(way)
	p.attach(t)
	p.write(way, 1, 5)
	if err := p.ways.Flush(); err != nil {
		t.Fatal(err)
	}
	p.ways.Detach(way)
	p.ways.Attach(way)
	p.attach(t)
	p.write(way, 2, 6)
	if p.ways.Room(1) || way.Flying() != 1 {
		t.Errorf("%d operations fly in the second life", way.Flying())
	}
	p.settle(t)
	if len(p.ended) != 1 || p.ended[0].Number != 2 {
		t.Errorf("completed is %+v", p.ended)
	}
	if !p.ways.Room(2) || way.Flying() != 0 {
		t.Error("a tag is lost")
	}
}

// TestLateAnswer gives a way up before the driver answers. The answer is for no way, and does not
// count for a later want.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, 1, 2)
	defer p.network.Close()
	p.ways.Attach(p.to[0])
	first := slices.Clone(p.ways.Wanted())
	p.ways.Detach(p.to[0])
	p.ways.Attach(p.to[0])
	attachment, err := p.near.Attach(context.Background(), first[0].Peer, first[0].Region)
	if err != nil {
		t.Fatal(err)
	}
	if way, err := p.ways.Attached(first[0].Number, attachment, nil); way != nil || err != nil {
		t.Errorf("a late answer is for %v, %v", way, err)
	}
	if !p.to[0].Awaited() {
		t.Error("a late answer counts for a later want")
	}
	if ways, _ := p.attach(t); len(ways) != 1 || ways[0] != p.to[0] {
		t.Error("the answer to the second want is lost")
	}
}

// TestOtherIncarnation answers with an attachment to a peer that has restarted.
func TestOtherIncarnation(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, 1, 2)
	defer p.network.Close()
	p.to[0].Peer.Incarnation += 4
	p.ways.Attach(p.to[0])
	if _, errs := p.attach(t); len(errs) != 1 || !errors.Is(errs[0], rdmanet.ErrReset) {
		t.Errorf("another incarnation passes: %v", errs)
	}
	p.to[0].Region = "no such region"
	p.ways.Detach(p.to[0])
	p.ways.Attach(p.to[0])
	if _, errs := p.attach(t); len(errs) != 1 || !errors.Is(errs[0], rdmanet.ErrNoRegion) {
		t.Errorf("a region that is not there: %v", errs)
	}
}

// TestLent counts the writes whose bytes the queue does not copy, until they complete, also if
// their way was given up.
func TestLent(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, 1, 8)
	defer p.network.Close()
	way := p.to[0]
	p.ways.Attach(way)
	p.attach(t)
	lent := make([]int, 2)
	for place, size := range []int{rdmanet.InlineMax, rdmanet.InlineMax + Word} {
		p.ways.Post(way, 1, 0, &lent[place], rdmanet.Operation{Kind: rdmanet.OperationWrite,
			Bytes: make([]byte, size)})
	}
	if !slices.Equal(lent, []int{0, 1}) || p.ways.Lent() != 1 {
		t.Errorf("lent is %v, %d in all", lent, p.ways.Lent())
	}
	if err := p.ways.Flush(); err != nil {
		t.Fatal(err)
	}
	p.ways.Detach(way)
	if lent[1] != 1 {
		t.Error("the bytes may change while the fabric may read them")
	}
	p.settle(t)
	if !slices.Equal(lent, []int{0, 0}) || p.ways.Lent() != 0 {
		t.Errorf("lent is %v, %d in all", lent, p.ways.Lent())
	}
}

// TestInlineBytesStay takes more inline bytes than one piece of memory holds. The first ones do not
// change before they are posted.
func TestInlineBytesStay(t *testing.T) {
	t.Parallel()
	w := &Ways{}
	var all [][]byte
	for value := range uint64(1000) {
		all = append(all, w.InlineWord(value))
	}
	for value, b := range all {
		if !slices.Equal(b, (&Ways{}).InlineWord(uint64(value))) {
			t.Fatalf("the bytes of word %d are %v", value, b)
		}
	}
	if b := w.Inline(3 * Word); len(b) != cap(b) || slices.Max(b) != 0 {
		t.Errorf("inline bytes are %v of %d", b, cap(b))
	}
}

// TestPatience grows with the tries and stays bounded.
func TestPatience(t *testing.T) {
	t.Parallel()
	w := &Ways{patience: time.Millisecond}
	for try := range 100 {
		got, next := w.Patience(try), w.Patience(try+1)
		if got < time.Millisecond || next < got || next > 64*time.Millisecond {
			t.Errorf("try %d waits %v, the next one %v", try, got, next)
		}
	}
}

// TestWaysByModel draws what a process does with its ways, and checks it against a model: each
// operation of a way's present life completes once, in the order of posting, and every tag comes
// back. A copy is in the same state and shares nothing that changes.
func TestWaysByModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const depth, ways = 6, 3
		p := newPair(t, rapid.Uint64().Draw(t, "seed"), ways, depth)
		defer p.network.Close()
		var expected [ways][]uint64 // the numbers of the posts of each way's present life
		number, seen := uint64(0), 0
		check := func() {
			for _, post := range p.ended[seen:] {
				at := post.Way.Place
				if len(expected[at]) == 0 || expected[at][0] != post.Number {
					t.Fatalf("post %d of way %d completes, want %v", post.Number, at, expected[at])
				}
				expected[at] = expected[at][1:]
			}
			seen = len(p.ended)
			for at, way := range p.to {
				if way.Flying() != len(expected[at]) {
					t.Fatalf("%d operations of way %d fly, want %d", way.Flying(), at,
						len(expected[at]))
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"attach": func(t *rapid.T) {
				way := p.to[rapid.IntRange(0, ways-1).Draw(t, "way")]
				if !way.Attached() && !way.Awaited() {
					p.ways.Attach(way)
				}
			},
			"answer": func(t *rapid.T) { p.attach(t) },
			"post": func(t *rapid.T) {
				way := p.to[rapid.IntRange(0, ways-1).Draw(t, "way")]
				if way.Attached() && p.ways.Room(1) {
					number++
					p.write(way, number, number)
					expected[way.Place] = append(expected[way.Place], number)
				}
			},
			"flush": func(t *rapid.T) {
				if err := p.ways.Flush(); err != nil {
					t.Fatal(err)
				}
			},
			"give up": func(t *rapid.T) {
				way := p.to[rapid.IntRange(0, ways-1).Draw(t, "way")]
				if err := p.ways.Flush(); err != nil { // a batch leads to attachments
					t.Fatal(err)
				}
				p.ways.Detach(way)
				expected[way.Place] = nil
			},
			"step": func(*rapid.T) {
				p.network.Step()
				p.complete()
			},
			"copy": func(t *rapid.T) {
				own := make([]*Way, ways)
				for at, way := range p.to {
					other := way.Copy()
					own[at] = &other
				}
				copied := p.ways.Copy(func(place int) *Way { return own[place] }, nil)
				before, after := stateOf(p.ways, p.to), stateOf(copied, own)
				if !slices.Equal(before, after) {
					t.Fatalf("a copy of\n%x is\n%x", before, after)
				}
				for _, way := range own {
					copied.Detach(way)
				}
				if !slices.Equal(before, stateOf(p.ways, p.to)) {
					t.Fatal("a copy shares its state")
				}
				for _, way := range p.to { // the copy closed the attachments
					p.ways.Detach(way)
					expected[way.Place] = nil
				}
				_ = p.ways.Flush() // its attachments are closed
			},
			"": func(*rapid.T) { check() },
		})
		p.settle(t)
		check()
		for at := range p.to {
			if len(expected[at]) != 0 {
				t.Fatalf("posts %v of way %d never complete", expected[at], at)
			}
		}
		if !p.ways.Room(depth) {
			t.Fatal("a tag is lost")
		}
	})
}

// stateOf encodes the state of ways.
func stateOf(w *Ways, ways []*Way) []byte {
	f := Facts{Now: w.Now()}
	for _, way := range ways {
		f.Way(way)
	}
	f.Batch(w)
	for tag := range w.posts {
		f.B = w.AppendOperation(f.B, uint64(tag))
	}
	return f.B
}

// TestRedirect copies a process while reads are under way and in the batch. What they read goes to
// the copy, once the caller has redirected the reads that are under way.
func TestRedirect(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, 2, 8)
	defer p.network.Close()
	for at, way := range p.to {
		p.ways.Attach(way)
		p.regions[at].Store(0, uint64(40+at))
	}
	p.attach(t)
	own := make([]byte, Word)
	copied := make([]byte, Word)
	p.ways.ReadWord(p.to[0], 1, 0)
	if err := p.ways.Flush(); err != nil {
		t.Fatal(err)
	}
	p.ways.Post(p.to[1], 2, 3, nil, rdmanet.Operation{Kind: rdmanet.OperationRead, Bytes: own})
	ways := make([]*Way, 2)
	for at, way := range p.to {
		other := way.Copy()
		ways[at] = &other
	}
	other := p.ways.Copy(func(place int) *Way { return ways[place] }, nil)
	other.Redirect(func(post Post) []byte {
		if post.Kind != 2 || post.Number != 3 {
			t.Errorf("asked about %+v", post)
		}
		return copied
	})
	if &other.batch[0].Bytes[0] != &copied[0] {
		t.Error("a read of the batch still leads into the original's memory")
	}
	into := map[uint64][]byte{}
	other.Reads(func(Post) []byte { return copied }, func(tag uint64, b []byte) { into[tag] = b })
	if len(into) != 2 || &into[0][0] != &ways[0].word[0] || &into[1][0] != &copied[0] {
		t.Errorf("reads lead to %v", into)
	}
	if !other.Awaits(0, func(Post) bool { return true }) ||
		other.Awaits(0, func(Post) bool { return false }) {
		t.Error("the owner does not say which completions are awaited")
	}
	other.Detach(ways[0])
	if other.Awaits(0, func(Post) bool { return true }) ||
		!other.Awaits(7, func(Post) bool { return false }) {
		t.Error("a completion of an earlier life is awaited, or an unknown one is not")
	}
}
