package p2p

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	libp2pcrypto "github.com/libp2p/go-libp2p/core/crypto"
	libp2phost "github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
)

// hostileFabric is a host with one member, a bare libp2p host that runs only the protocols that a
// test gives it.
type hostileFabric struct {
	host    *Host
	rogue   libp2phost.Host
	rogueID rdmanet.PeerID
}

func newHostileFabric(t *testing.T, mendTimeout time.Duration) *hostileFabric {
	t.Helper()
	var keys [2]ed25519.PrivateKey
	for i := range keys {
		seed := make([]byte, ed25519.SeedSize)
		seed[0], seed[31] = byte(i), 0x99
		keys[i] = ed25519.NewKeyFromSeed(seed)
	}
	key, err := libp2pcrypto.UnmarshalEd25519PrivateKey(keys[1])
	if err != nil {
		t.Fatal(err)
	}
	f := &hostileFabric{}
	rogue, err := libp2p.New(libp2p.Identity(key), libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"),
		libp2p.DisableMetrics(), libp2p.DisableRelay(),
		RogueTransport(key, func() peer.ID { return f.host.libp2p.ID() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rogue.Close() })
	f.rogue, f.rogueID = rogue, rdmanet.PeerID(rogue.ID().String())
	f.host, err = New(Options{
		PrivateKey: keys[0], Listen: "127.0.0.1:0", MendTimeout: mendTimeout,
		Members: map[rdmanet.PeerID]string{f.rogueID: rogue.Addrs()[0].String()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.host.Close(context.Background()) })
	return f
}

// connect makes libp2p's connection. Direct connections then go the same way.
func (f *hostileFabric) connect(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := f.rogue.Connect(ctx, peer.AddrInfo{ID: f.host.libp2p.ID(),
		Addrs: f.host.swarm.ListenAddresses()}); err != nil {
		t.Fatal(err)
	}
}

// stream opens a region stream to the host.
func (f *hostileFabric) stream(t *testing.T) network.Stream {
	t.Helper()
	f.connect(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stream, err := f.rogue.NewStream(ctx, f.host.libp2p.ID(), regionProtocolID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Reset() })
	_ = stream.SetDeadline(time.Now().Add(10 * time.Second))
	return stream
}

// welcomed opens a region stream, sends a hello with that opening of incarnation 1, and takes the
// welcome and the direct connection.
func (f *hostileFabric) welcomed(t *testing.T, opening uint64) *directConn {
	t.Helper()
	stream := f.stream(t)
	send(t, stream, regionHello{sender: 1, opening: opening}.append(nil))
	reply, err := readRegionAnswer(stream)
	if err != nil || reply.status != statusWelcome {
		t.Fatalf("answer %+v, error %v", reply, err)
	}
	conn, err := (&Host{}).dialDirect(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Reset() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn
}

func send(t *testing.T, stream io.Writer, b []byte) {
	t.Helper()
	if _, err := stream.Write(b); err != nil {
		t.Fatal(err)
	}
}

func wantResponse(t *testing.T, stream io.Reader, want response) {
	t.Helper()
	var b [responseSize]byte
	if _, err := io.ReadFull(stream, b[:]); err != nil {
		t.Fatal(err)
	}
	if got, err := parseResponse(b[:]); err != nil || got != want {
		t.Fatalf("response %+v, want %+v, error %v", got, want, err)
	}
	_, err := io.CopyN(io.Discard, stream, int64(want.length))
	if err != nil {
		t.Fatal(err)
	}
}

// wantDropped waits until the host ends the stream.
func wantDropped(t *testing.T, what string, stream io.Reader) {
	t.Helper()
	_, err := io.Copy(io.Discard, stream)
	if isTimeout(err) {
		t.Fatalf("%s: the stream is not dropped", what)
	}
}

func attachBytes(number uint32, name string) []byte {
	return append(request{kind: requestAttach, attachment: number,
		length: uint32(len(name))}.append(nil), name...)
}

// TestHostileAttacher checks that forbidden requests are refused and malformed ones end the stream,
// that neither changes the region, and that the host goes on.
func TestHostileAttacher(t *testing.T) {
	t.Parallel()
	f := newHostileFabric(t, 2*time.Second)
	region, err := f.host.Expose("mine", 64)
	if err != nil {
		t.Fatal(err)
	}
	write := func(number, offset, length uint32) []byte {
		header := request{kind: requestWrite, attachment: number, offset: offset, length: length}
		return append(header.append(nil), bytes.Repeat([]byte{0xff}, int(length))...)
	}
	stream := f.welcomed(t, 1)
	send(t, stream, append(attachBytes(1, "mine"), attachBytes(2, "theirs")...))
	wantResponse(t, stream, response{outcome: outcomeAccess, count: 1})
	wantResponse(t, stream, response{outcome: outcomeNoRegion, count: 1})
	send(t, stream, write(1, 0, 8))
	wantResponse(t, stream, response{outcome: outcomeAccess, count: 1})
	send(t, stream, write(3, 0, 8))
	wantDropped(t, "a write on an attachment that was never asked for", stream)

	me := rdmanet.Peer{ID: f.rogueID, Incarnation: 1}
	if err := region.Grant(me, rdmanet.PermissionRead); err != nil {
		t.Fatal(err)
	}
	stream = f.welcomed(t, 2)
	send(t, stream, append(attachBytes(1, "mine"), write(1, 0, 8)...))
	wantResponse(t, stream, response{outcome: outcomeDone, count: 1, length: attachedSize})
	wantResponse(t, stream, response{outcome: outcomeAccess, count: 1})
	send(t, stream, append(attachBytes(2, "mine"),
		request{kind: requestRead, attachment: 2, offset: 60, length: 8}.append(nil)...))
	wantResponse(t, stream, response{outcome: outcomeDone, count: 1, length: attachedSize})
	wantResponse(t, stream, response{outcome: outcomeBounds, count: 1})
	send(t, stream, attachBytes(2, "mine"))
	wantDropped(t, "an attachment's number again", stream)

	if err := region.Grant(me, rdmanet.PermissionReadWrite); err != nil {
		t.Fatal(err)
	}
	stream = f.welcomed(t, 3)
	send(t, stream, append(append(attachBytes(1, "mine"), write(1, 0xfffffff8, 16)...),
		write(1, 0, 8)...))
	wantResponse(t, stream, response{outcome: outcomeDone, count: 1, length: attachedSize})
	// Requests behind the failed one fail too.
	wantResponse(t, stream, response{outcome: outcomeBounds, count: 2})

	stale := f.stream(t)
	send(t, stale, regionHello{sender: 1, opening: 3}.append(nil))
	if reply, err := readRegionAnswer(stale); err != nil || reply.status != statusStale {
		t.Fatalf("an opening again: answer %+v, error %v", reply, err)
	}
	elsewhere := f.stream(t)
	send(t, elsewhere, regionHello{sender: 1, receiver: 7, opening: 9}.append(nil))
	if reply, err := readRegionAnswer(elsewhere); err != nil || reply.status != statusRestarted {
		t.Fatalf("a hello to another incarnation: answer %+v, error %v", reply, err)
	}

	newer := f.welcomed(t, 4)
	wantDropped(t, "an opening that a newer one follows", stream)
	var many []byte
	for i := range uint32(attachmentsMax + 1) {
		many = append(many, attachBytes(i+1, "mine")...)
	}
	send(t, newer, many)
	for range attachmentsMax {
		wantResponse(t, newer, response{outcome: outcomeDone, count: 1, length: attachedSize})
	}
	wantResponse(t, newer, response{outcome: outcomeTooMany, count: 1})
	// Attachments that are over are removed to make room, and stay over.
	if err := errors.Join(region.Grant(me, rdmanet.PermissionRead),
		region.Grant(me, rdmanet.PermissionReadWrite)); err != nil {
		t.Fatal(err)
	}
	send(t, newer, append(attachBytes(attachmentsMax+2, "mine"), write(1, 0, 8)...))
	wantResponse(t, newer, response{outcome: outcomeDone, count: 1, length: attachedSize})
	wantResponse(t, newer, response{outcome: outcomeAccess, count: 1})
	send(t, newer, write(attachmentsMax+3, 0, 8))
	wantDropped(t, "a write without an attachment", newer)

	for i := range uint64(10) {
		garbage := bytes.Repeat([]byte{byte(i*37 + 1)}, 4096)
		stream := f.welcomed(t, 5+i)
		_, _ = stream.Write(garbage)
		wantDropped(t, "garbage", stream)
		unwelcome := f.stream(t)
		_, _ = unwelcome.Write(garbage)
		wantDropped(t, "a hello of garbage", unwelcome)
	}
	for offset := 0; offset < region.Size(); offset += 8 {
		if region.Load(offset) != 0 {
			t.Fatalf("something landed at %d", offset)
		}
	}
}

// TestHostileOwner checks that operations complete and attaching ends, whatever an owner answers.
func TestHostileOwner(t *testing.T) {
	t.Parallel()
	welcome := attached{size: 64, permission: rdmanet.PermissionReadWrite}
	for name, answers := range map[string][]byte{
		"garbage":              bytes.Repeat([]byte{7}, 64),
		"an answer to nothing": response{outcome: outcomeDone, count: 9}.append(nil),
		"bytes for a write": append(response{outcome: outcomeDone, count: 1,
			length: 8}.append(nil), make([]byte, 8)...),
		"no region for an operation": response{outcome: outcomeNoRegion, count: 1}.append(nil),
		"nothing":                    nil,
		"half a response":            response{outcome: outcomeDone, count: 1}.append(nil)[:3],
		"a response that never comes": response{outcome: outcomeDone, count: 1,
			length: pieceMax}.append(nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newHostileFabric(t, 2*time.Second)
			done := make(chan struct{})
			defer close(done)
			f.rogue.SetStreamHandler(regionProtocolID, func(stream network.Stream) {
				defer stream.Reset()
				if _, err := readRegionHello(stream); err != nil {
					return
				}
				if _, err := stream.Write(regionAnswer{status: statusWelcome,
					incarnation: 5}.append(nil)); err != nil {
					return
				}
				_ = stream.SetDeadline(time.Now().Add(5 * time.Second))
				conn, err := (&Host{}).dialDirect(context.Background(), stream)
				if err != nil {
					return
				}
				defer conn.Reset()
				reply := response{outcome: outcomeDone, count: 1, length: attachedSize}.append(nil)
				if _, err := conn.Write(welcome.append(reply)); err != nil {
					return
				}
				var b [requestSize + 4 + requestSize]byte // the attach, and an operation's header
				if _, err := io.ReadFull(conn, b[:]); err != nil {
					return
				}
				_, _ = conn.Write(answers)
				<-done
			})
			f.connect(t)
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			a, err := f.host.Attach(ctx, f.rogueID, "mine")
			if err != nil {
				t.Fatal(err)
			}
			q, err := f.host.Queue(8)
			if err != nil {
				t.Fatal(err)
			}
			operation := rdmanet.Operation{To: a, Kind: rdmanet.OperationWrite,
				Bytes: make([]byte, 8)}
			if err := q.Post(operation, operation); err != nil {
				t.Fatal(err)
			}
			var completions [1]rdmanet.Completion
			for range 2 {
				if _, err := q.Wait(ctx, completions[:]); err != nil {
					t.Fatal(err)
				}
				// The fabric cannot detect an owner that reports operations falsely as done.
				if lied := completions[0].Err == nil && name == "an answer to nothing"; !lied &&
					!errors.Is(completions[0].Err, rdmanet.ErrUnreachable) {
					t.Fatalf("completion %+v", completions[0])
				}
			}
			for deadline := time.Now().Add(10 * time.Second); a.Err() == nil; time.Sleep(
				time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the attachment goes on")
				}
			}
			if err := a.Err(); !errors.Is(err, rdmanet.ErrUnreachable) {
				t.Fatalf("the attachment ended with %v", err)
			}
		})
	}
}

// script is a stream that returns some bytes, ends, and keeps the written bytes.
type script struct {
	io.Reader
	bytes.Buffer
}

func (s *script) Read(b []byte) (int, error) { return s.Reader.Read(b) }

// FuzzAgent checks that whatever a granted peer sends, the agent ends with an error of the protocol
// or with the stream, answers with well-formed messages, and touches nothing beyond the region.
func FuzzAgent(f *testing.F) {
	attach := attachBytes(1, "mine")
	for _, requests := range [][]request{
		{{kind: requestWrite, attachment: 1, length: 8, ring: true},
			{kind: requestRead, attachment: 1, length: 64}},
		{{kind: requestRead, attachment: 1, length: 64}, {kind: requestDetach, attachment: 1}},
		{{kind: requestWrite, attachment: 1, offset: 60, length: 8},
			{kind: requestWrite, attachment: 1, length: 8}},
	} {
		b := bytes.Clone(attach)
		for _, r := range requests {
			b = r.append(b)
			if r.kind == requestWrite {
				b = append(b, make([]byte, r.length)...)
			}
		}
		f.Add(b)
	}
	f.Add(attachBytes(3, "theirs"))
	peer := rdmanet.Peer{ID: "peer", Incarnation: 1}
	f.Fuzz(func(t *testing.T, b []byte) {
		h := &Host{id: "owner", alive: context.Background()}
		h.regions = newRegions(h)
		region, err := segment.NewRegion("mine", 64, nil, h.regions.forget)
		if err != nil {
			t.Fatal(err)
		}
		defer region.Close()
		h.regions.exposed["mine"] = region
		if err := region.Grant(peer, rdmanet.PermissionReadWrite); err != nil {
			t.Fatal(err)
		}
		a := newAgent(h, peer, nil)
		defer a.cancel()
		s := &script{Reader: bytes.NewReader(b)}
		if err := a.serve(s); !regionDecodeError(err) {
			t.Fatalf("it ended with %v", err)
		}
		for answers := s.Buffer.Bytes(); len(answers) > 0; {
			r, err := parseResponse(answers)
			if err != nil {
				t.Fatal(err)
			}
			answers = answers[responseSize+int(r.length):]
		}
	})
}

// FuzzResponses checks that whatever an owner answers to a write, a read and an attach, the reader
// ends with an error of the protocol or with the stream, and each of them completes once.
func FuzzResponses(f *testing.F) {
	done := response{outcome: outcomeDone, count: 1}.append(nil)
	bytes8 := append(response{outcome: outcomeDone, count: 1, length: 8}.append(nil),
		make([]byte, 8)...)
	welcome := attached{size: 64, permission: rdmanet.PermissionRead}.append(
		response{outcome: outcomeDone, count: 1, length: attachedSize}.append(nil))
	f.Add(bytes.Join([][]byte{done, bytes8, welcome}, nil))
	f.Add(response{outcome: outcomeAccess, count: 3}.append(nil))
	f.Add(append(bytes.Clone(done), response{outcome: outcomeNoRegion, count: 2}.append(nil)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := &Host{id: "peer", alive: context.Background()}
		h.regions = newRegions(h)
		l := newLink(h, "", "owner")
		defer l.cancel()
		l.up, l.bound = true, 1
		q := mustQueue(t, h)
		to := &attachment{link: l, name: "mine", number: 1, size: 64}
		l.attachments[1], l.numbers = to, 1
		err := q.Post(rdmanet.Operation{To: to, Kind: rdmanet.OperationWrite,
			Bytes: make([]byte, 8)},
			rdmanet.Operation{To: to, Kind: rdmanet.OperationRead, Bytes: make([]byte, 8), Tag: 1})
		if err != nil {
			t.Fatal(err)
		}
		asked := &attachRequest{name: "other", reply: make(chan attachReply, 1)}
		l.mu.Lock()
		l.ask(asked)
		l.mu.Unlock()
		if err := l.readResponses(bufio.NewReader(bytes.NewReader(b))); !regionDecodeError(err) {
			t.Fatalf("it ended with %v", err)
		}
		l.up = false
		l.fail(rdmanet.ErrUnreachable)
		var completions [3]rdmanet.Completion
		n := q.Poll(completions[:])
		if n != 2 || completions[0].Tag != 0 || completions[1].Tag != 1 ||
			completions[0].Err != nil && completions[1].Err == nil || len(asked.reply) != 1 {
			t.Fatalf("%d completions %+v, %d replies", n, completions, len(asked.reply))
		}
		if to.Err() == nil || len(l.attachments) != 0 {
			t.Fatalf("something is left: error %v, %d attachments", to.Err(), len(l.attachments))
		}
	})
}

func mustQueue(t *testing.T, h *Host) rdmanet.Queue {
	t.Helper()
	q, err := h.Queue(8)
	if err != nil {
		t.Fatal(err)
	}
	return q
}
