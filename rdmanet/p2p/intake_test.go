package p2p

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
)

// TestPartsOfAWriteAreCutBetweenWords checks that a part has the bytes that have arrived, ends at
// the end of the write or of a word of the region, and is not empty while bytes are left.
func TestPartsOfAWriteAreCutBetweenWords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(intakeBytes-20, 2*intakeBytes+20))
		offset, left := rapid.IntRange(0, 100).Draw(t, "offset"), size.Draw(t, "left")
		want := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, left/7+1)[:left]
		wire := &wireOf{bytes: want, sizes: rapid.SliceOfN(size, 1, 4).Draw(t, "wire")}
		in, err := newIntake(wire, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for left > 0 {
			part, err := in.part(offset, left)
			if err != nil {
				t.Fatal(err)
			}
			if len(part) == 0 || len(part) < left && (offset+len(part))%rdmanet.WordSize != 0 {
				t.Fatalf("a part of %d bytes at %d, of %d left", len(part), offset, left)
			}
			got = append(got, part...)
			in.take(len(part))
			offset, left = offset+len(part), left-len(part)
		}
		if !bytes.Equal(got, want) {
			t.Fatal("other bytes came out than came in")
		}
	})
}

// TestAgentAppliesWhatComesInPieces checks that however requests arrive, the region finally holds
// the result of all writes within its bounds, in their order. Each read returns the region's state
// at its turn.
func TestAgentAppliesWhatComesInPieces(t *testing.T) {
	t.Parallel()
	const size = 384 << 10
	rapid.Check(t, func(t *rapid.T) {
		region, err := segment.NewRegion("mine", size, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer region.Close()
		h := &Host{id: "owner", alive: t.Context()}
		h.regions = newRegions(h)
		h.regions.exposed["mine"] = region
		peer := rdmanet.Peer{ID: "peer", Incarnation: 1}
		if err := region.Grant(peer, rdmanet.PermissionReadWrite); err != nil {
			t.Fatal(err)
		}
		length := rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(gatherMin-8, gatherMin+8),
			rapid.IntRange(0, pieceMax))
		model, wire := make([]byte, size), attachBytes(1, "mine")
		want := attached{size: size, permission: rdmanet.PermissionReadWrite}.append(
			response{outcome: outcomeDone, count: 1, length: attachedSize}.append(nil))
		same := 0
		told := func() {
			if same > 0 {
				want = response{outcome: outcomeDone, count: uint16(same)}.append(want)
				same = 0
			}
		}
		for i := range rapid.IntRange(1, 8).Draw(t, "requests") {
			n := length.Draw(t, "length")
			offset := rapid.IntRange(0, size-n).Draw(t, "offset")
			r := request{kind: requestWrite, attachment: 1, offset: uint32(offset),
				length: uint32(n)}
			if rapid.Bool().Draw(t, "reads") {
				r.kind = requestRead
				wire = r.append(wire)
				if n == 0 {
					same++
					continue
				}
				told()
				want = append(response{outcome: outcomeDone, count: 1,
					length: uint32(n)}.append(want), model[offset:offset+n]...)
				continue
			}
			bytes := bytes.Repeat([]byte{byte(i + 1), byte(i + 2), byte(i + 3)}, n/3+1)[:n]
			wire = append(r.append(wire), bytes...)
			copy(model[offset:], bytes)
			same++
		}
		told()
		a := newAgent(h, peer, nil)
		defer a.cancel()
		s := &script{Reader: &wireOf{bytes: wire,
			sizes: rapid.SliceOfN(rapid.IntRange(1, 2*intakeBytes), 1, 4).Draw(t, "wire")}}
		if err := a.serve(s); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if !bytes.Equal(region.Bytes(), model) {
			t.Fatal("the region is not what was written")
		}
		if got := plain(t, s.Buffer.Bytes()); !bytes.Equal(got, plain(t, want)) {
			t.Fatal("the answers are not what was read and written")
		}
	})
}

// plain splits combined answers into single ones, since the network determines which answers are
// combined.
func plain(t *rapid.T, answers []byte) (single []byte) {
	for len(answers) > 0 {
		r, err := parseResponse(answers)
		if err != nil {
			t.Fatal(err)
		}
		end := responseSize + int(r.length)
		for range r.count {
			single = response{outcome: r.outcome, count: 1, length: r.length}.append(single)
		}
		single = append(single, answers[responseSize:end]...)
		answers = answers[end:]
	}
	return single
}

// TestAWriteOutOfBoundsLandsNowhere checks that a write that reaches past the region leaves no byte
// there, however slowly it arrives.
func TestAWriteOutOfBoundsLandsNowhere(t *testing.T) {
	t.Parallel()
	region, err := segment.NewRegion("mine", 4096, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	h := &Host{id: "owner", alive: t.Context()}
	h.regions = newRegions(h)
	h.regions.exposed["mine"] = region
	peer := rdmanet.Peer{ID: "peer", Incarnation: 1}
	if err := region.Grant(peer, rdmanet.PermissionReadWrite); err != nil {
		t.Fatal(err)
	}
	wire := append(request{kind: requestWrite, attachment: 1,
		length: 5000}.append(attachBytes(1, "mine")), bytes.Repeat([]byte{9}, 5000)...)
	wire = append(request{kind: requestWrite, attachment: 1, length: 8}.append(wire),
		bytes.Repeat([]byte{9}, 8)...)
	a := newAgent(h, peer, nil)
	defer a.cancel()
	s := &script{Reader: &wireOf{bytes: wire, sizes: []int{700}}}
	if err := a.serve(s); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(region.Bytes(), func(b byte) bool { return b != 0 }); i >= 0 {
		t.Errorf("byte %d landed", i)
	}
	said := s.Buffer.Bytes()[responseSize+attachedSize:]
	for _, want := range []outcome{outcomeBounds, outcomeBounds} {
		r, err := parseResponse(said)
		if err != nil || r.outcome != want {
			t.Fatalf("%+v, %v", r, err)
		}
		if said = said[responseSize:]; r.count == 2 {
			break
		}
	}
}

// tcpPair returns the two ends of a connection.
func tcpPair(t *testing.T) (near *net.TCPConn, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	far, err = net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn), far
}

// TestReaderCallsBeforeItWaits checks that a reader calls its function before it waits, and only
// then. An error of the function ends the reading, and so do the other end and a deadline.
func TestReaderCallsBeforeItWaits(t *testing.T) {
	t.Parallel()
	near, far := tcpPair(t)
	calls := 0
	var refusal error
	asked := make(chan struct{}, 8)
	c := &directConn{socket: near}
	reader, err := c.reader(func() error {
		calls++
		asked <- struct{}{}
		return refusal
	})
	if err != nil {
		t.Fatal(err)
	}
	// The other end writes only once the reader waits.
	go func() {
		<-asked
		_, _ = far.Write([]byte("ab"))
	}()
	var b [1]byte
	for i, want := range []byte("ab") {
		if _, err := io.ReadFull(reader, b[:]); err != nil || b[0] != want || calls != 1 {
			t.Fatalf("byte %d: %q after %d calls, error %v", i, b, calls, err)
		}
	}
	refusal = errors.New("no")
	if _, err := reader.Read(b[:]); !errors.Is(err, refusal) || calls != 2 {
		t.Errorf("after %d calls: %v", calls, err)
	}
	refusal = nil
	if err := near.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past the deadline: %v", err)
	}
	if err := near.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	far.Close()
	if n, err := reader.Read(b[:]); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes after the end, error %v", n, err)
	}
}
