package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// sender sends frames of a hostile peer, and gives what comes back.
type sender struct {
	t    testing.TB
	host rdmanet.Host
	back chan []byte
	// turn has a token, which the receiver needs.
	turn chan struct{}
}

func newSender(t testing.TB, network *memory.Network, id rdmanet.PeerID) *sender {
	t.Helper()
	s := &sender{t: t, host: memoryHost(t, network, id), back: make(chan []byte, 1000),
		turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	if err := s.host.Receive(lane, func(_ rdmanet.Peer, frames [][]byte) {
		<-s.turn
		defer func() { s.turn <- struct{}{} }()
		for _, frame := range frames {
			s.back <- frame
		}
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// stall keeps the receiver from taking frames until the returned function is called.
func (s *sender) stall() (release func()) {
	<-s.turn
	release = sync.OnceFunc(func() { s.turn <- struct{}{} })
	s.t.Cleanup(release)
	return release
}

func (s *sender) send(to rdmanet.PeerID, frames ...[]byte) {
	s.t.Helper()
	over, err := s.host.Lane(to, lane)
	for i := 0; err == nil && i < len(frames); i++ {
		err = over.Send(s.t.Context(), frames[i])
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// asked waits for a request, and returns it.
func (s *sender) asked() requestFrame {
	s.t.Helper()
	for {
		if r, err := decodeRequest(receive(s.t, "a request", s.back), 1<<20); err == nil {
			return r
		}
	}
}

// Decoding the encoded frames gives the original, for all sizes of pieces.
func TestFramesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		head := rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "head")
		body := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "body")
		frames := encodeRequest(7, 9, 3, head, body, rapid.IntRange(1, 100).Draw(t, "piece"))
		r, err := decodeRequest(frames[0], 200)
		if err != nil || r.id != 7 || r.milliseconds != 9 || r.kind != 3 ||
			r.total != len(body) || !bytes.Equal(r.head, head) {
			t.Fatalf("%+v, %v", r, err)
		}
		collected := bytes.Clone(r.body)
		for _, frame := range frames[1:] {
			p, err := decodePiece(frame)
			if err != nil || p.id != 7 || int(p.at) != len(collected) {
				t.Fatalf("%+v, %v", p, err)
			}
			collected = append(collected, p.bytes...)
		}
		if !bytes.Equal(collected, body) {
			t.Fatalf("%x, want %x", collected, body)
		}
	})
}

// frameSeeds are frames of each kind.
func frameSeeds() [][]byte {
	seeds := encodeRequest(1, 1000, 2, []byte("head"), []byte("a body"), 4)
	return append(seeds, encodePiece(frameChunk, 2, 0, []byte("an "), []byte("answer")),
		encodePiece(frameLast, 2, 1), encodeCancel(1), encodeFailure(2, "planted"),
		encodeWorking([]uint64{1, 2}), nil, []byte{byte(frameWorking)},
		bytes.Repeat([]byte{0xff}, 64))
}

// Every frame is refused, or encoding its decoded form gives the same frame, within the bounds.
func FuzzFrames(f *testing.F) {
	for _, seed := range frameSeeds() {
		f.Add(seed)
	}
	const bodyMax = 4 << 10
	f.Fuzz(func(t *testing.T, frame []byte) {
		check := func(err error, again func() []byte) {
			switch {
			case err != nil && !errors.Is(err, errFrame):
				t.Error(err)
			case err == nil && !bytes.Equal(again()[1:], frame[1:]):
				t.Errorf("%x is taken as %x", frame, again())
			}
		}
		r, err := decodeRequest(frame, bodyMax)
		check(err, func() []byte {
			if r.total > bodyMax || len(r.body) > r.total || r.total > 0 && len(r.body) == 0 ||
				len(r.head) > HeadMax || r.milliseconds == 0 {
				t.Fatalf("%+v", r)
			}
			whole := make([]byte, r.total)
			copy(whole, r.body)
			return encodeRequest(r.id, r.milliseconds, r.kind, r.head, whole,
				max(1, len(r.body)))[0]
		})
		p, err := decodePiece(frame)
		check(err, func() []byte { return encodePiece(frameKind(frame[0]), p.id, p.at, p.bytes) })
		if len(frame) == 0 {
			return // take looks at the kind first
		}
		id, err := decodeCancel(frame)
		check(err, func() []byte { return encodeCancel(id) })
		ids, err := decodeWorking(frame)
		check(err, func() []byte { return encodeWorking(ids) })
		if _, reason, err := decodeFailure(frame); err == nil && len(reason) > reasonMax {
			t.Errorf("a reason of %d bytes", len(reason))
		}
	})
}

// pieces cuts data into three.
func pieces(data []byte, first, second int) [][]byte {
	first = max(0, min(first, len(data)))
	second = max(first, min(second, len(data)))
	return [][]byte{data[:first], data[first:second], data[second:]}
}

// cancelRequests ends the requests that frames have begun, before their deadlines.
func cancelRequests(x *Requests, from rdmanet.Peer, frames [][]byte) {
	for _, frame := range frames {
		if r, err := decodeRequest(frame, x.config.BodyMax); err == nil {
			x.receive(from, [][]byte{encodeCancel(r.id)})
		}
	}
}

func addSeeds(f *testing.F) {
	seeds := frameSeeds()
	f.Add(bytes.Join(seeds[:3], nil), len(seeds[0]), len(seeds[0])+len(seeds[1]))
	for _, seed := range seeds {
		f.Add(seed, 9, 30)
		f.Add(append(bytes.Clone(seed), seed...), len(seed), 2*len(seed))
	}
}

// Whatever a peer sends, in whatever order: nothing panics, nothing stays, and another peer is
// served.
func FuzzHostilePeer(f *testing.F) {
	addSeeds(f)
	network := memory.NewNetwork()
	b := start(f, memoryHost(f, network, "b"), echo, nil)
	a := start(f, memoryHost(f, network, "a"), unused, nil)
	memoryHost(f, network, "c")
	from := rdmanet.Peer{ID: "c", Incarnation: 1}
	f.Fuzz(func(t *testing.T, data []byte, first, second int) {
		frames := pieces(data, first, second)
		b.receive(from, frames)
		cancelRequests(b, from, frames)
		idle(t, b)
		if got, err := post(within(t, patience), a, "b", "x"); err != nil || got != "head x" {
			t.Fatal(got, err)
		}
	})
}

// Whatever a peer that was asked sends: nothing panics, the answer is within its bound, and nothing
// stays reserved.
func FuzzHostileAnswer(f *testing.F) {
	addSeeds(f)
	const answerMax = 20
	network := memory.NewNetwork()
	a := start(f, memoryHost(f, network, "a"), unused, nil)
	memoryHost(f, network, "c")
	from := rdmanet.Peer{ID: "c", Incarnation: 1}
	f.Fuzz(func(t *testing.T, data []byte, first, second int) {
		a.nextID.Store(1) // the id of the seeds' answers is the next one
		asked := a.Ask("c", Request{AnswerMax: answerMax, Wake: make(chan struct{}, 1),
			Deadline: time.Now().Add(time.Minute)})
		frames := pieces(data, first, second)
		a.receive(from, frames)
		cancelRequests(a, from, frames)
		size := 0
		for _, chunk := range chunks(asked) {
			if size += len(chunk); len(chunk) == 0 {
				t.Error("an empty chunk")
			}
		}
		if size > answerMax {
			t.Errorf("%d bytes are taken", size)
		}
		if err := asked.Progress().Err; err != nil && !errors.Is(err, ErrAnswer) &&
			!errors.Is(err, ErrRefused) {
			t.Error(err)
		}
		asked.Close()
		idle(t, a)
	})
}

// An answer that has a gap, comes again, is larger than its bound or malformed ends its request.
// One of another peer, or to no request, is dropped.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	chunk := func(id uint64, number uint32, size int) []byte {
		return encodePiece(frameChunk, id, number, make([]byte, size))
	}
	for _, c := range []struct {
		name   string
		frames func(id uint64) [][]byte
		want   error // nil if the request goes on
	}{
		{"a gap", func(id uint64) [][]byte {
			return [][]byte{chunk(id, 0, 1), chunk(id, 2, 1)}
		}, ErrAnswer},
		{"the end at a gap", func(id uint64) [][]byte {
			return [][]byte{chunk(id, 0, 1), encodePiece(frameLast, id, 5)}
		}, ErrAnswer},
		{"the same again", func(id uint64) [][]byte {
			return [][]byte{chunk(id, 0, 1), chunk(id, 0, 1)}
		}, ErrAnswer},
		{"too large", func(id uint64) [][]byte {
			return [][]byte{chunk(id, 0, 60), chunk(id, 1, 41)}
		}, ErrAnswer},
		{"too large at once", func(id uint64) [][]byte {
			return [][]byte{encodePiece(frameLast, id, 0, make([]byte, 101))}
		}, ErrAnswer},
		{"an empty chunk", func(id uint64) [][]byte { return [][]byte{chunk(id, 0, 0)} },
			ErrAnswer},
		{"cut short", func(id uint64) [][]byte { return [][]byte{chunk(id, 0, 1)[:idEnd+2]} },
			ErrAnswer},
		{"a failure", func(id uint64) [][]byte { return [][]byte{encodeFailure(id, "no")} },
			ErrRefused},
		{"a long failure", func(id uint64) [][]byte {
			return [][]byte{append(encodeFailure(id, ""), make([]byte, reasonMax+1)...)}
		}, ErrAnswer},
		{"to no request", func(id uint64) [][]byte {
			return [][]byte{chunk(id+1, 0, 1), nil, {77}, encodeWorking([]uint64{id + 1}),
				encodeFailure(id+1, "no")}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			network := memory.NewNetwork()
			a := start(t, memoryHost(t, network, "a"), unused, nil)
			b, other := newSender(t, network, "b"), newSender(t, network, "c")
			asked := a.Ask("b", Request{AnswerMax: 100, Wake: make(chan struct{}, 1),
				Deadline: time.Now().Add(time.Minute)})
			id := b.asked().id
			other.send("a", encodePiece(frameLast, id, 0, []byte("forged")),
				encodeFailure(id, "forged"), encodeWorking([]uint64{id}))
			b.send("a", c.frames(id)...)
			for _, s := range []*sender{b, other} {
				over, err := s.host.Lane("a", lane)
				if err == nil {
					err = over.Flushed(within(t, patience))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if now := asked.Progress(); !errors.Is(now.Err, c.want) || now.Whole {
				t.Errorf("%+v, want %v", now, c.want)
			}
			asked.Close()
			idle(t, a)
		})
	}
}

// A request whose body has a gap, or does not come, does not reach its handler, and holds its place
// no longer than until its deadline. A request that is wrong in form is dropped.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	right := encodeRequest(1, 300, 1, []byte("head"), []byte("a body"), 2)
	forged := func(at int, bytes ...byte) []byte {
		frame := append([]byte(nil), right[0]...)
		copy(frame[at:], bytes)
		return frame
	}
	for name, frames := range map[string][][]byte{
		"a body that does not come":    right[:1],
		"a gap":                        {right[0], right[2]},
		"a part again":                 {right[0], right[1], right[1]},
		"a part beyond the end":        {right[0], encodePiece(framePart, 1, 2, make([]byte, 5))},
		"a part of no request":         {right[1]},
		"no time":                      {forged(idEnd+1, 0, 0, 0, 0)},
		"a head beyond the frame":      {forged(idEnd+9, 0xff)},
		"a head beyond all bounds":     {forged(idEnd+9, 0xff, 0xff, 0xff, 0xff)},
		"a body beyond all bounds":     {forged(idEnd+5, 0xff, 0xff, 0xff, 0xff)},
		"more than it says":            {forged(idEnd+5, 1)},
		"a body without its beginning": {right[0][:len(right[0])-2]},
		"cut short":                    {right[0][:requestHeaderSize-1]},
		"a cancel with bytes":          {append(encodeCancel(1), 0)},
		"no kind":                      {forged(0, 99)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network := memory.NewNetwork()
			b := start(t, memoryHost(t, network, "b"), func(_ context.Context, r *Served) error {
				if r.From.ID == "c" {
					t.Error("it was served")
				}
				return r.End([]byte("served"))
			}, nil)
			a := start(t, memoryHost(t, network, "a"), unused, nil)
			began := time.Now()
			newSender(t, network, "c").send("b", frames...)
			if got, err := post(within(t, patience), a, "b", ""); err != nil || got != "served" {
				t.Error(got, err)
			}
			idle(t, b)
			if took := time.Since(began); took > patience/2 {
				t.Errorf("it was held for %v", took)
			}
		})
	}
}

// A flood of requests has a bound, by number and by the memory of bodies. So have answers.
func TestFlood(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	began, ended := make(chan struct{}, 100), make(chan struct{}, 100)
	b := start(t, memoryHost(t, network, "b"), waiting(began, ended), func(c *Config) {
		c.ServingPerPeer, c.ServingMax, c.Serving = 4, 6, NewBudget(1000)
	})
	first, second := newSender(t, network, "c"), newSender(t, network, "d")
	flood := func(s *sender, served int) {
		t.Helper()
		for id := range uint64(50) {
			s.send("b", encodeRequest(id, 60_000, 1, nil, []byte("x"), 1)...)
		}
		for range served {
			receive(t, "a request", began)
		}
		for range 50 - served {
			if frame := receive(t, "an answer", s.back); frameKind(frame[0]) == frameLast {
				if p, err := decodePiece(frame); err != nil || string(p.bytes) != "busy" {
					t.Error(p, err)
				}
			}
		}
	}
	flood(first, 4)
	flood(second, 2)
	for id := range uint64(50) {
		first.send("b", encodeCancel(id))
		second.send("b", encodeCancel(id))
	}
	for range 6 {
		receive(t, "the end of a handler", ended)
	}
	await(t, "the end", func() bool { return b.Status().Serving == 0 })
	if len(began) > 0 || b.config.Serving.Used() != 0 {
		t.Errorf("%d more were served, %d bytes are reserved", len(began), b.config.Serving.Used())
	}
	// Each of these claims a body of 600 bytes and sends one.
	for id := range uint64(3) {
		first.send("b", encodeRequest(100+id, 60_000, 1, nil, make([]byte, 600), 1)[0])
	}
	await(t, "the refusals", func() bool { return b.Status().Refused == 46+48+2 })
	if s := b.Status(); s.Serving != 1 || b.config.Serving.Used() != 600 {
		t.Errorf("%+v, %d bytes", s, b.config.Serving.Used())
	}
	first.send("b", encodeCancel(100))
	idle(t, b)
}

// Answers in several chunks share the memory that is left. The others' are not touched.
func TestMemoryOfAnswers(t *testing.T) {
	t.Parallel()
	hostA, hostB := overMemory(t)
	a := start(t, hostA, unused, func(c *Config) { c.Arriving = NewBudget(1000) })
	start(t, hostB, func(ctx context.Context, r *Served) error {
		if err := r.Send(make([]byte, 600)); err != nil {
			return err
		}
		return r.End()
	}, nil)
	first, wake := ask(a, "b", "")
	await(t, "the first answer", func() bool { <-wake; return first.Progress().Whole })
	if _, err := post(within(t, patience), a, "b", ""); !errors.Is(err, ErrMemory) {
		t.Error(err)
	}
	first.Close()
	if got, err := post(within(t, patience), a, "b", ""); err != nil || len(got) != 600 {
		t.Error(len(got), err)
	}
	idle(t, a)
}

// A peer that is not admitted is not served, and cannot answer.
func TestAdmission(t *testing.T) {
	t.Parallel()
	hostA, hostB := overMemory(t)
	members := make(chan bool, 1)
	members <- true
	served := make(chan struct{}, 10)
	a := start(t, hostA, unused, nil)
	start(t, hostB, func(_ context.Context, r *Served) error {
		served <- struct{}{}
		return r.End()
	}, func(c *Config) {
		c.Admit = func(rdmanet.PeerID) bool {
			member := <-members
			members <- member
			return member
		}
	})
	if _, err := post(within(t, patience), a, "b", ""); err != nil {
		t.Fatal(err)
	}
	<-served
	<-members
	members <- false
	if _, err := post(within(t, 100*time.Millisecond), a, "b", ""); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Error(err)
	}
	if len(served) > 0 {
		t.Errorf("%d requests were served", len(served))
	}
}

// A head that is too long is not sent.
func TestHeadMax(t *testing.T) {
	t.Parallel()
	hostA, hostB := overMemory(t)
	a := start(t, hostA, unused, nil)
	start(t, hostB, func(_ context.Context, r *Served) error {
		return r.End(fmt.Append(nil, len(r.Head)))
	}, nil)
	for size, want := range map[int]bool{HeadMax: true, HeadMax + 1: false} {
		asked := a.Ask("b", Request{Head: make([]byte, size), AnswerMax: 100,
			Wake: make(chan struct{}, 1), Deadline: time.Now().Add(time.Minute)})
		await(t, "the end", func() bool { return asked.Progress().over() })
		if got := asked.Progress(); got.Whole != want {
			t.Errorf("%d bytes: %+v", size, got)
		}
		asked.Close()
	}
}
