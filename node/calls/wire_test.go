package calls

import (
	"bytes"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// headerOf makes headers that are carried.
func headerOf(t *rapid.T) http.Header {
	header := make(http.Header)
	for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"Accept", "Content-Type",
		"Connect-Timeout-Ms", "Ledgerd-Retry"}), 0, 5).Draw(t, "names") {
		header.Add(name, rapid.StringMatching(`[ -~]{0,20}`).Draw(t, "value"))
	}
	return header
}

// Decoding the encoded frames gives the original, for all sizes of pieces.
func TestFramesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		header, body := headerOf(t), rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "body")
		piece := rapid.IntRange(1, 100).Draw(t, "piece")
		var collected bodyBuffer
		collect := func(frames [][]byte, total int, first []byte) {
			collected = newBodyBuffer(total, first)
			for _, frame := range frames[1:] {
				p, err := decodePart(frame)
				if err == nil {
					err = collected.add(p)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if !collected.complete() || !bytes.Equal(collected.bytes, body) {
				t.Fatalf("%x, want %x", collected.bytes, body)
			}
		}
		head, err := encodeHead(http.MethodPost, "/a?b", header)
		if err != nil {
			t.Fatal(err)
		}
		sent := request{id: 7, milliseconds: 9}
		frames := sent.encode(head, body, piece)
		r, err := decodeRequest(frames[0])
		if err != nil || r.id != 7 || r.milliseconds != 9 || r.method != http.MethodPost ||
			r.target != "/a?b" || !reflect.DeepEqual(r.header, header) {
			t.Fatalf("%+v, %v", r, err)
		}
		collect(frames, r.total, r.body)

		if head, err = appendHeaders(nil, header, all); err != nil {
			t.Fatal(err)
		}
		answered := answer{id: 8, status: 503}
		frames = answered.encode(head, body, piece)
		a, err := decodeAnswer(frames[0])
		if err != nil || a.id != 8 || a.status != 503 || !reflect.DeepEqual(a.header, header) {
			t.Fatalf("%+v, %v", a, err)
		}
		collect(frames, a.total, a.body)
	})
}

func TestPartsMustFollow(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]part{
		"a gap": {offset: 3, bytes: []byte{1}}, "again": {offset: 1, bytes: []byte{1}},
		"too much": {offset: 2, bytes: []byte{1, 2, 3, 4}},
	} {
		g := newBodyBuffer(5, []byte{1, 2})
		if err := g.add(p); !errors.Is(err, errFrame) || len(g.bytes) != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// frameSeeds are frames of each kind.
func frameSeeds() [][]byte {
	head, _ := encodeHead(http.MethodPost, "/a", http.Header{"Accept": {"x"}})
	headers, _ := appendHeaders(nil, http.Header{"Ledgerd-Retry": {"true"}}, all)
	r, a := request{id: 1, milliseconds: 1000}, answer{id: 2, status: 200}
	seeds := append(r.encode(head, []byte("a body"), 4),
		a.encode(headers, []byte("an answer"), 4)...)
	return append(seeds, encodeCancel(1), encodeWorking([]uint64{1, 2}), nil, []byte{kindWorking},
		bytes.Repeat([]byte{0xff}, 64))
}

// Every frame is refused, or encoding its decoded form gives the same frame, within the bounds.
func FuzzFrames(f *testing.F) {
	for _, seed := range frameSeeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if r, err := decodeRequest(frame); err == nil {
			if r.total > BodyMax || len(r.body) > r.total || r.total > 0 && len(r.body) == 0 ||
				!strings.HasPrefix(r.target, "/") || r.milliseconds == 0 {
				t.Fatalf("%+v", r)
			}
			if _, err := appendHeaders(nil, r.header, all); err != nil {
				t.Fatal(err)
			}
		}
		if a, err := decodeAnswer(frame); err == nil {
			if a.total > BodyMax || len(a.body) > a.total || a.status < statusMin ||
				a.status > statusMax {
				t.Fatalf("%+v", a)
			}
		}
		if p, err := decodePart(frame); err == nil && (len(p.bytes) == 0 || p.offset > BodyMax) {
			t.Fatalf("%+v", p)
		}
		if len(frame) >= idEnd {
			if ids, err := decodeWorking(frame); err == nil &&
				!bytes.Equal(encodeWorking(ids)[1:], frame[1:]) {
				t.Fatalf("%v", ids)
			}
			if id, err := decodeCancel(frame); err == nil &&
				!bytes.Equal(encodeCancel(id)[1:], frame[1:]) {
				t.Fatal(id)
			}
		}
	})
}

// No frames from a member, in any order, cause a panic or are kept for longer than their deadline.
// Other calls continue.
func FuzzHostileMember(f *testing.F) {
	seeds := frameSeeds()
	f.Add(bytes.Join(seeds[:2], nil), 20, 40)
	for _, seed := range seeds {
		f.Add(seed, 9, 30)
	}
	network := memory.NewNetwork()
	_, member := start(f, memoryHost(f, network, asker), named("asker"), nil),
		start(f, memoryHost(f, network, "member-1"), named("one"), nil)
	from := rdmanet.Peer{ID: asker, Incarnation: 1}
	f.Fuzz(func(t *testing.T, data []byte, first, second int) {
		first = max(0, min(first, len(data)))
		second = max(first, min(second, len(data)))
		member.receive(from, [][]byte{data[:first], data[first:second], data[second:]})
		for _, frame := range [][]byte{data[:first], data[first:second], data[second:]} {
			if r, err := decodeRequest(frame); err == nil {
				member.receive(from, [][]byte{encodeCancel(r.id)})
			}
		}
		await(t, "the end of what was begun", func() bool {
			return member.Status().Serving == 0 && member.inService.used.Load() == 0
		})
	})
}

// A member cannot answer for another one, nor twice, nor with parts that do not follow.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	asking := start(t, memoryHost(t, network, asker), named("asker"), nil)
	headers, _ := appendHeaders(nil, nil, all)
	raw := memoryHost(t, network, "member-1")
	err := raw.Receive(LaneName, func(from rdmanet.Peer, frames [][]byte) {
		for _, frame := range frames {
			r, err := decodeRequest(frame)
			if err != nil {
				continue
			}
			lies := answer{id: r.id, status: http.StatusOK}
			// As if another member had sent it: dropped.
			asking.receive(rdmanet.Peer{ID: "member-2", Incarnation: 1},
				lies.encode(headers, []byte("forged"), 100))
			pieces := lies.encode(headers, bytes.Repeat([]byte{'x'}, 30), 10)
			lane, err := raw.Lane(from.ID, LaneName)
			if err != nil {
				t.Error(err)
				return
			}
			// Twice, and with a gap.
			for _, piece := range [][]byte{pieces[0], pieces[0], pieces[2]} {
				if _, err := lane.TrySend(piece); err != nil {
					t.Error(err)
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, memoryHost(t, network, "member-2"), named("two"), nil)
	if _, got, err := post(within(t, patience), asking, ""); err != nil ||
		!strings.HasPrefix(got, "two") {
		t.Fatalf("%q, %v", got, err)
	}
	if used := asking.gathered.used.Load(); used != 0 {
		t.Fatalf("%d bytes are still reserved", used)
	}
}
