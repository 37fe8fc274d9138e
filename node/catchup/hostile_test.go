package catchup

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
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
			f.raw("b", func(frame []byte) [][]byte {
				r, err := decodeRequest(frame)
				if err != nil {
					t.Error(err)
				}
				c.answer.id = r.id
				// First send an answer to no request, and frames that are no answers. They are
				// dropped, and the call continues to wait.
				stale := c.answer
				stale.id++
				return [][]byte{nil, {77}, {kindAnswer, 1}, {kindRequest, 1}, stale.encode(),
					c.answer.encode(), c.answer.encode()}
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

// TestAnswerOfAnother lets c, and a peer that is no member, answer a request to b.
func TestAnswerOfAnother(t *testing.T) {
	t.Parallel()
	source := newChain(t, 3, 3, 0)
	f := newFabric(t)
	a := f.exchange("a", nil, func(config *Config) { config.Timeout = 100 * time.Millisecond })
	c, stranger := f.host("c"), f.host("x")
	f.raw("b", func(frame []byte) [][]byte {
		r, err := decodeRequest(frame)
		if err != nil {
			t.Error(err)
		}
		for _, host := range []*memory.Host{c, stranger} {
			lane, err := host.Lane("a", LaneName)
			if err == nil {
				_, err = lane.TrySend(answer{id: r.id, status: statusBlocks, head: 3,
					blocks: encodedBlocks(source, 1, 3)}.encode())
			}
			if err != nil {
				t.Error(err)
			}
			if err := lane.Flushed(t.Context()); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	var got collector
	if err := a.Fetch(t.Context(), "b", source.point(0), 3, got.add); !errors.Is(err, errTimeout) {
		t.Fatalf("got %v", err)
	}
	got.check(t, source, 0, 0)
}

// TestFlood lets a peer ask more than its share while the workers are held: the rest is answered
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
	answers := make(chan answer, 100)
	c := f.raw("c", func(frame []byte) [][]byte {
		a, err := decodeAnswer(frame)
		if err != nil {
			t.Error(err)
		}
		answers <- a
		return nil
	})
	lane, err := c.Lane("b", LaneName)
	if err != nil {
		t.Fatal(err)
	}
	const asked = 3 * SlotsPerPeer
	for id := range uint64(asked) {
		if err := lane.Send(t.Context(), request{id: id, after: source.point(0), to: 3,
			limits: limits{10, 10000}}.encode()); err != nil {
			t.Fatal(err)
		}
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
	for range asked - SlotsPerPeer {
		next()
	}
	if counts[statusBusy] != asked-SlotsPerPeer {
		t.Errorf("answers while the workers are held: %v", counts)
	}
	close(held)
	for range SlotsPerPeer {
		next()
	}
	if counts[statusBlocks] != SlotsPerPeer {
		t.Errorf("answers once the workers are released: %v", counts)
	}
}

// TestSlowReader has a peer that asks and never takes an answer: another peer is still served.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	source := newChain(t, 30, 30, 0)
	// The window has room for one or two answers.
	f := newFabric(t, memory.Options{WindowBytes: 16 << 10})
	small := func(config *Config) { config.PieceBytes = 8 << 10 }
	a := f.exchange("a", nil, small)
	f.exchange("b", source, small)
	stuck, done := make(chan struct{}, 100), make(chan struct{})
	c := f.raw("c", func([]byte) [][]byte { stuck <- struct{}{}; <-done; return nil })
	t.Cleanup(func() { close(done) })
	lane, err := c.Lane("b", LaneName)
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint64(50) {
		if err := lane.Send(t.Context(), request{id: id, after: source.point(0), to: 30,
			limits: limits{100, 8 << 10}}.encode()); err != nil {
			t.Fatal(err)
		}
	}
	<-stuck
	var got collector
	if err := a.Fetch(t.Context(), "b", source.point(0), 30, got.add); err != nil {
		t.Fatal(err)
	}
	got.check(t, source, 0, 30)
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
	lane, err := f.host("x").Lane("b", LaneName)
	if err != nil {
		t.Fatal(err)
	}
	if err := lane.Send(t.Context(), request{id: 1, after: source.point(0), to: 3,
		limits: limits{10, 10000}}.encode()); err != nil {
		t.Fatal(err)
	}
	if err := lane.Flushed(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Requests are served in order. A member's later request would be served after the unknown
	// peer's was started, and Close waits for its end.
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
	r := request{id: 7, after: Point{Height: 9, Hash: ledger.Hash{1, 2}}, to: 12, offset: 5,
		limits: limits{256, 4 << 20}}
	f.Add(r.encode())
	f.Add(r.encode()[:requestSize-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, frame []byte) {
		r, err := decodeRequest(frame)
		if err != nil {
			if !errors.Is(err, errFrame) {
				t.Errorf("error %v", err)
			}
			return
		}
		if again := r.encode(); !bytes.Equal(again, frame) {
			t.Errorf("%x is taken as %+v, which is %x", frame, r, again)
		}
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	for _, a := range []answer{
		{id: 1, status: statusBlocks, head: 9, blocks: [][]byte{{1, 2, 3}, {}, {4}}},
		{id: 2, status: statusPart, head: 9, part: []byte{5, 6}, total: 10, offset: 8},
		{id: 3, status: statusFork, head: 9, theirs: Point{Height: 4, Hash: ledger.Hash{9}}},
		{id: 4, status: statusBehind, head: 9},
		{id: 5, status: statusUnavailable, reason: "block 7: damaged"},
		{id: 6, status: statusBusy},
		{id: 7, status: statusAbsent, head: 9, absent: 8},
	} {
		f.Add(a.encode())
		f.Add(a.encode()[:len(a.encode())-1])
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		a, err := decodeAnswer(frame)
		if err != nil {
			if !errors.Is(err, errFrame) {
				t.Errorf("error %v", err)
			}
			return
		}
		if again := a.encode(); !bytes.Equal(again, frame) {
			t.Errorf("%x is taken as %+v, which is %x", frame, a, again)
		}
	})
}
