package catchup

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

func encodedBlocks(c *chain, from, to ledger.Height) (encoded [][]byte) {
	for height := from; height <= to; height++ {
		encoded = append(encoded, c.blocks[height].Encode())
	}
	return encoded
}

// TestWrongAnswers has a peer that answers the request for blocks 3 to 6 as a row says. No wrong
// block may reach add.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	source, other := newChain(t, 10, 10, 0), newChain(t, 10, 2, 9)
	flipped := source.blocks[3].Encode()
	flipped[len(flipped)-1] ^= 1
	for _, c := range []struct {
		name   string
		answer answer
		last   ledger.Height
		want   error
	}{
		{"right", answer{status: statusBlocks, head: 10, blocks: encodedBlocks(source, 3, 6)},
			6, nil},
		{"a flipped bit", answer{status: statusBlocks, head: 10, blocks: [][]byte{flipped}},
			2, ErrUnavailable},
		{"no block", answer{status: statusBlocks, head: 10, blocks: [][]byte{{}}},
			2, ErrUnavailable},
		{"one left out", answer{status: statusBlocks, head: 10,
			blocks: encodedBlocks(source, 4, 6)}, 2, ErrUnavailable},
		{"one again", answer{status: statusBlocks, head: 10, blocks: encodedBlocks(source, 2, 6)},
			2, ErrUnavailable},
		{"more than wanted", answer{status: statusBlocks, head: 10,
			blocks: encodedBlocks(source, 3, 7)}, 6, ErrUnavailable},
		{"another chain", answer{status: statusBlocks, head: 10,
			blocks: append(encodedBlocks(source, 3, 4), encodedBlocks(other, 5, 6)...)},
			4, ErrUnavailable},
		{"a part from the middle", answer{status: statusPart, head: 10, part: []byte{1}, total: 20,
			offset: 5}, 2, ErrUnavailable},
		{"a block too large", answer{status: statusPart, head: 10, part: []byte{1}, total: 1 << 40},
			2, ErrUnavailable},
		{"a part that makes no block", answer{status: statusPart, head: 10, part: []byte{1, 2},
			total: 2}, 2, ErrUnavailable},
		{"a fork that is none", answer{status: statusFork, head: 10, theirs: source.point(2)},
			2, ErrUnavailable},
		{"a fork elsewhere", answer{status: statusFork, head: 10, theirs: other.point(5)}, 2,
			ErrUnavailable},
		{"a fork above its head", answer{status: statusFork, head: 1, theirs: Point{Height: 2}},
			2, ErrUnavailable},
		{"no more, but more", answer{status: statusBehind, head: 10}, 2, ErrUnavailable},
		{"an absence that is none", answer{status: statusAbsent, head: 10, absent: 2},
			2, ErrUnavailable},
		{"an absence above its head", answer{status: statusAbsent, head: 10, absent: 11}, 2,
			ErrUnavailable},
		{"an absence", answer{status: statusAbsent, head: 10, absent: 3}, 2, ErrAbsent},
		{"busy", answer{status: statusBusy}, 2, ErrUnavailable},
		{"a reason", answer{status: statusUnavailable, reason: "moved out"}, 2, ErrUnavailable},
		{"no status", answer{status: 99}, 2, ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t)
			a := f.exchange("a", nil, nil)
			f.raw("b", func(_ context.Context, asked *wire.Served) error {
				if _, err := decodeRequest(asked.Head); err != nil || asked.Kind != kindBlocks {
					t.Error(asked.Kind, err)
				}
				return asked.End(c.answer.parts()...)
			})
			var got collector
			err := a.Fetch(t.Context(), "b", source.point(2), 6, got.add)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			got.check(t, source, 2, c.last)
			if c.answer.reason != "" && !strings.Contains(err.Error(), c.answer.reason) {
				t.Errorf("the reason is lost: %v", err)
			}
		})
	}
}

// Answers that are wrong in their form or their order, or have no end: the blocks before the fault
// are added, and nothing of what follows.
func TestMalformedAnswers(t *testing.T) {
	t.Parallel()
	source := newChain(t, 3, 3, 0)
	first := answer{status: statusBlocks, head: 3, blocks: encodedBlocks(source, 1, 1)}.encode()
	rest := answer{status: statusBlocks, head: 3, blocks: encodedBlocks(source, 2, 3)}.encode()
	hang := func(ctx context.Context, _ *wire.Served) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for _, c := range []struct {
		name   string
		chunks [][]byte
		end    func(context.Context, *wire.Served) error // nil for a right end
		last   ledger.Height
		want   error
	}{
		{name: "right", chunks: [][]byte{first, rest}, last: 3},
		{name: "nothing", want: errAnswer},
		{name: "no answer", chunks: [][]byte{first[:5]}, want: errAnswer},
		{name: "an end before the end", chunks: [][]byte{first[:len(first)-1]}, want: errAnswer},
		{name: "more than it says", chunks: [][]byte{append(slices.Clone(first), 0)},
			want: errAnswer},
		{name: "a second chunk cut short", chunks: [][]byte{first, rest[:len(rest)-1]}, last: 1,
			want: errAnswer},
		{name: "another status behind blocks",
			chunks: [][]byte{first, answer{status: statusBehind}.encode()}, last: 1,
			want: errAnswer},
		{name: "the same again", chunks: [][]byte{first, first}, last: 1, want: errAnswer},
		{name: "a gap", chunks: [][]byte{rest}, want: errAnswer},
		{name: "a failure between chunks", chunks: [][]byte{first}, last: 1, want: wire.ErrRefused,
			end: func(context.Context, *wire.Served) error { return errors.New("planted") }},
		{name: "no end", chunks: [][]byte{first}, last: 1, want: errTimeout, end: hang},
		{name: "no answer at all", want: errTimeout, end: hang},
		{name: "larger than its bound",
			chunks: [][]byte{first, make([]byte, limits{100, 10_000}.answerMax())},
			last:   1, want: wire.ErrAnswer},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t)
			a := f.exchange("a", nil, func(config *Config) {
				config.PieceBytes, config.PieceBlocks = 10_000, 100
				if c.end != nil {
					config.Timeout = 100 * time.Millisecond
				}
			})
			f.raw("b", func(ctx context.Context, asked *wire.Served) error {
				for _, chunk := range c.chunks {
					if err := asked.Send(chunk); err != nil {
						t.Error(err)
					}
				}
				if c.end != nil {
					return c.end(ctx, asked)
				}
				return asked.End()
			})
			var got collector
			err := a.Fetch(t.Context(), "b", source.point(0), 3, got.add)
			if !errors.Is(err, c.want) || err != nil && !errors.Is(err, ErrUnavailable) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			got.check(t, source, 0, c.last)
		})
	}
}

// Requests in another form than a member's fail, and the member's are served after them.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	source := newChain(t, 3, 3, 0)
	f := newFabric(t)
	f.exchange("b", source, nil)
	c := f.raw("c", nil)
	right := request{after: source.point(0), to: 3, limits: limits{10, 10000}}.encode()
	for _, asked := range [][]byte{nil, right[1:], append(slices.Clone(right), 0),
		make([]byte, wire.HeadMax)} {
		for _, kind := range []byte{kindBlocks, kindContents, 77} {
			if _, err := f.post(t.Context(), c, kind, asked); !errors.Is(err, wire.ErrRefused) {
				t.Errorf("kind %d, %d bytes: %v", kind, len(asked), err)
			}
		}
	}
	if got := decoded(t, f, c, right); got.status != statusBlocks || len(got.blocks) != 3 {
		t.Errorf("%+v", got)
	}
}

// decoded sends a request to b and returns its answer, which has one chunk.
func decoded(t *testing.T, f *fabric, x *wire.Requests, asked []byte) answer {
	chunks, err := f.post(t.Context(), x, kindBlocks, asked)
	if err != nil || len(chunks) != 1 {
		t.Error(len(chunks), err)
		return answer{}
	}
	a, err := decodeAnswer(chunks[0])
	if err != nil {
		t.Error(err)
	}
	return a
}

// A piece comes in several chunks of whole blocks.
func TestChunks(t *testing.T) {
	t.Parallel()
	source := newChain(t, 600, 600, 0)
	f := newFabric(t)
	f.exchange("b", source, nil)
	c := f.raw("c", nil)
	chunks, err := f.post(t.Context(), c, kindBlocks, request{after: source.point(0), to: 600,
		limits: limits{PieceBlocksMax, PieceBytesMax}}.encode())
	if err != nil || len(chunks) < 2 {
		t.Fatal(len(chunks), err)
	}
	height := 0
	for _, chunk := range chunks {
		a, err := decodeAnswer(chunk)
		if err != nil || a.status != statusBlocks || len(chunk) > 2*chunkBytes {
			t.Fatal(a.status, len(chunk), err)
		}
		for _, block := range a.blocks {
			if height++; !bytes.Equal(block, source.blocks[height].Encode()) {
				t.Fatalf("block %d is another one", height)
			}
		}
	}
	if height > PieceBlocksDefault {
		t.Errorf("%d blocks", height)
	}
}

// TestFlood lets a peer ask more than its share while the reads are held: the rest is answered
// with busy.
func TestFlood(t *testing.T) {
	t.Parallel()
	source := newChain(t, 3, 3, 0)
	held := make(chan struct{})
	f := newFabric(t)
	f.exchange("b", &chain{blocks: source.blocks, onHeader: func(ledger.Height) error {
		<-held
		return nil
	}}, nil)
	c := f.raw("c", nil)
	const asked = 3 * servingPerPeer
	answers := make(chan answer, asked)
	for range asked {
		go func() {
			answers <- decoded(t, f, c, request{after: source.point(0), to: 3,
				limits: limits{10, 10000}}.encode())
		}()
	}
	counts := map[status]int{}
	next := func() {
		select {
		case a := <-answers:
			counts[a.status]++
		case <-time.After(patience):
			t.Fatalf("no more answers: %v", counts)
		}
	}
	for range asked - servingPerPeer {
		next()
	}
	if counts[statusBusy] != asked-servingPerPeer {
		t.Errorf("answers while the reads are held: %v", counts)
	}
	close(held)
	for range servingPerPeer {
		next()
	}
	if counts[statusBlocks] != servingPerPeer {
		t.Errorf("answers once the reads are released: %v", counts)
	}
}

// TestSlowReader has a peer that asks for all that it may and never takes an answer: another peer
// is still served.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	source := newChain(t, 30, 30, 0)
	// The window has room for one or two answers.
	f := newFabric(t, memory.Options{WindowBytes: 16 << 10})
	small := func(config *Config) { config.PieceBytes = 8 << 10 }
	a := f.exchange("a", nil, small)
	b := f.exchange("b", source, small)
	// c's requests come from a host whose receiver stands still.
	host, stuck, done := f.host("c"), make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(done) })
	c, err := wire.New(wire.Config{Host: stalled{host, stuck, done}, Lane: LaneName,
		Admit: func(rdmanet.PeerID) bool { return true },
		Serve: func(context.Context, *wire.Served) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	right := request{after: source.point(0), to: 30, limits: limits{100, 8 << 10}}.encode()
	for range 50 {
		asked := c.Ask("b", wire.Request{Kind: kindBlocks, Head: right,
			Wake: make(chan struct{}, 1), AnswerMax: 1 << 30, Deadline: time.Now().Add(patience)})
		t.Cleanup(asked.Close)
	}
	<-stuck
	var got collector
	if err := a.Fetch(t.Context(), "b", source.point(0), 30, got.add); err != nil {
		t.Fatal(err)
	}
	got.check(t, source, 0, 30)
	// The last request of a may still be about to end, since a has its answer before b knows.
	looks, tooLate := time.NewTicker(time.Millisecond), time.After(patience)
	defer looks.Stop()
	for b.requests.Status().Serving > servingPerPeer {
		select {
		case <-looks.C:
		case <-tooLate:
			t.Fatalf("%d requests of the slow reader are served", b.requests.Status().Serving)
		}
	}
}

// stalled is a host whose receivers stand still.
type stalled struct {
	rdmanet.Host
	stuck chan<- struct{}
	done  <-chan struct{}
}

func (s stalled) Receive(lane string, _ rdmanet.ReceiveFunc) error {
	return s.Host.Receive(lane, func(rdmanet.Peer, [][]byte) {
		s.stuck <- struct{}{}
		<-s.done
	})
}

func TestStrangerIsNotServed(t *testing.T) {
	t.Parallel()
	source := newChain(t, 3, 3, 0)
	var served atomic.Int32
	f := newFabric(t)
	a := f.exchange("a", nil, nil)
	b := f.exchange("b", &chain{blocks: source.blocks, onHeader: func(ledger.Height) error {
		served.Add(1)
		return nil
	}}, nil)
	x := f.raw("x", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := f.post(ctx, x, kindBlocks, request{after: source.point(0), to: 3,
		limits: limits{10, 10000}}.encode()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stranger got %v", err)
	}
	var got collector
	if err := a.Fetch(t.Context(), "b", source.point(0), 3, got.add); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if served.Load() != 1 {
		t.Errorf("%d requests were served, want the member's", served.Load())
	}
}

func FuzzDecodeRequest(f *testing.F) {
	r := request{after: Point{Height: 9, Hash: ledger.Hash{1, 2}}, to: 12, offset: 5,
		limits: limits{256, 4 << 20}}
	f.Add(r.encode())
	f.Add(r.encode()[:requestSize-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRequest(data)
		if err != nil {
			if !errors.Is(err, errMessage) {
				t.Errorf("error %v", err)
			}
			return
		}
		if again := r.encode(); !bytes.Equal(again, data) {
			t.Errorf("%x is taken as %+v, which is %x", data, r, again)
		}
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	for _, a := range []answer{
		{status: statusBlocks, head: 9, blocks: [][]byte{{1, 2, 3}, {}, {4}}},
		{status: statusPart, head: 9, part: []byte{5, 6}, total: 10, offset: 8},
		{status: statusFork, head: 9, theirs: Point{Height: 4, Hash: ledger.Hash{9}}},
		{status: statusBehind, head: 9},
		{status: statusUnavailable, reason: "block 7: damaged"},
		{status: statusBusy},
		{status: statusAbsent, head: 9, absent: 8},
	} {
		f.Add(a.encode())
		f.Add(a.encode()[:len(a.encode())-1])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := decodeAnswer(data)
		if err != nil {
			if !errors.Is(err, errMessage) {
				t.Errorf("error %v", err)
			}
			return
		}
		if again := a.encode(); !bytes.Equal(again, data) {
			t.Errorf("%x is taken as %+v, which is %x", data, a, again)
		}
	})
}
