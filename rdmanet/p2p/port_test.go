package p2p

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	libp2pcrypto "github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// testPort listens on loopback and passes libp2p's connections to the channel.
func testPort(t *testing.T, patience time.Duration) (p *port, address string,
	libp2p <-chan manet.Conn) {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := manet.WrapNetListener(plain)
	if err != nil {
		t.Fatal(err)
	}
	p = newPort(listener, plain, nil, portOwner(t), patience)
	accepted, ended := make(chan manet.Conn, 16), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := p.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Error(err)
		}
		<-ended
	})
	return p, plain.Addr().String(), accepted
}

// portMember returns the keys of the members of portOwner, the first of which is its own.
func portMember(t *testing.T, which byte) (key libp2pcrypto.PrivKey, id peer.ID) {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	seed[0], seed[31] = which, 0x77
	key, err := libp2pcrypto.UnmarshalEd25519PrivateKey(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		t.Fatal(err)
	}
	if id, err = peer.IDFromPublicKey(key.GetPublic()); err != nil {
		t.Fatal(err)
	}
	return key, id
}

// portOwner owns a port of three members.
func portOwner(t *testing.T) *sharedTransport {
	t.Helper()
	set := memberSet{}
	for which := range byte(3) {
		_, id := portMember(t, which)
		set[id] = nil
	}
	gate := &gater{log: slog.New(slog.DiscardHandler)}
	gate.members.Store(&set)
	_, own := portMember(t, 0)
	return &sharedTransport{tickets: newTicketOffice(), own: own, gate: gate, door: new(door)}
}

// dialPass connects as a member or a stranger, and returns the error of its pass.
func dialPass(t *testing.T, address string, which byte, say []byte) (net.Conn, error) {
	t.Helper()
	key, _ := portMember(t, which)
	_, own := portMember(t, 0)
	conn := dialPort(t, address, nil)
	err := showPass(conn, key, own)
	_, _ = conn.Write(say)
	return conn, err
}

func dialPort(t *testing.T, address string, say []byte) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write(say); err != nil {
		t.Fatal(err)
	}
	return conn
}

// closedSoon fails unless the other side closes the connection without sending anything.
func closedSoon(t *testing.T, what string, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	var timeout net.Error
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || errors.As(err, &timeout) &&
		timeout.Timeout() {
		t.Errorf("%s: %d bytes, error %v, want a connection that is closed", what, n, err)
	}
}

// TestPortAdmitsATokenOnce checks that a token admits one connection. A connection with no token, a
// wrong one or a used one is closed.
func TestPortAdmitsATokenOnce(t *testing.T) {
	t.Parallel()
	p, address, _ := testPort(t, time.Minute)
	admitted, shown, cancel := p.owner.tickets.issue(true)
	defer cancel()
	wrong := admitted
	wrong.token[31] ^= 1
	closedSoon(t, "a wrong token", dialPort(t, address,
		append([]byte(directMagic), wrong.token[:]...)))
	greeting := append([]byte(directMagic), admitted.token[:]...)
	first := dialPort(t, address, greeting)
	select {
	case conn := <-shown:
		if conn.RemoteAddr().String() != first.LocalAddr().String() {
			t.Errorf("%s was admitted instead of %s", conn.RemoteAddr(), first.LocalAddr())
		}
		conn.Close()
	case <-time.After(20 * time.Second):
		t.Fatal("the token is not taken")
	}
	closedSoon(t, "a token again", dialPort(t, address, greeting))

	late, _, cancelLate := p.owner.tickets.issue(true)
	cancelLate()
	closedSoon(t, "a token that nobody waits for any more",
		dialPort(t, address, append([]byte(directMagic), late.token[:]...)))
	if len(p.owner.tickets.open) > 0 {
		t.Errorf("%d tickets are kept", len(p.owner.tickets.open))
	}
}

// TestCancelledTicketClosesItsConnection checks that a connection admitted just as the wait for it
// ended is closed.
func TestCancelledTicketClosesItsConnection(t *testing.T) {
	t.Parallel()
	p, address, _ := testPort(t, time.Minute)
	admitted, _, cancel := p.owner.tickets.issue(true)
	conn := dialPort(t, address, append([]byte(directMagic), admitted.token[:]...))
	end := time.Now().Add(20 * time.Second)
	for redeemed := false; !redeemed; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the ticket is not redeemed")
		}
		p.owner.tickets.mu.Lock()
		redeemed = len(p.owner.tickets.open) == 0
		p.owner.tickets.mu.Unlock()
	}
	cancel()
	closedSoon(t, "an admitted connection that nobody takes", conn)
}

// TestPortForwardsToLibp2p checks that a connection that starts like libp2p's is passed to libp2p,
// from its first byte.
func TestPortForwardsToLibp2p(t *testing.T) {
	t.Parallel()
	_, address, libp2p := testPort(t, time.Minute)
	text := []byte("\x13/multistream/1.0.0\n and more")
	conn, err := dialPass(t, address, 1, text)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case forwarded := <-libp2p:
		got := make([]byte, len(text))
		if _, err := io.ReadFull(forwarded, got); err != nil || !bytes.Equal(got, text) {
			t.Errorf("libp2p reads %q, error %v", got, err)
		}
		forwarded.Close()
	case <-time.After(20 * time.Second):
		t.Fatal("the connection does not get through")
	}
	closedSoon(t, "a connection that libp2p closes", conn)
}

// TestPortWaitsForNobody checks that a connection that sends nothing, or not everything, is closed
// in time.
func TestPortWaitsForNobody(t *testing.T) {
	t.Parallel()
	_, address, _ := testPort(t, 50*time.Millisecond)
	for _, said := range []string{"", "l", directMagic, directMagic + "half of a token"} {
		closedSoon(t, "a connection that says "+said, dialPort(t, address, []byte(said)))
	}
}

// TestPortInACrowd checks that many silent connections do not block others: the oldest are closed.
func TestPortInACrowd(t *testing.T) {
	t.Parallel()
	p, address, libp2p := testPort(t, time.Minute)
	oldest := dialPort(t, address, nil)
	for range newcomersMax() {
		dialPort(t, address, nil)
	}
	closedSoon(t, "the oldest of a crowd", oldest)
	p.newcomers.mu.Lock()
	if len(p.newcomers.list) > newcomersMax() {
		t.Errorf("%d connections are kept", len(p.newcomers.list))
	}
	p.newcomers.mu.Unlock()
	if _, err := dialPass(t, address, 1, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case forwarded := <-libp2p:
		forwarded.Close()
	case <-time.After(20 * time.Second):
		t.Fatal("nobody gets through")
	}
}

// TestPortOfMembersOnly checks that nothing reaches libp2p without the pass of a member, and that a
// pass is good for one port and one challenge.
func TestPortOfMembersOnly(t *testing.T) {
	t.Parallel()
	_, address, libp2p := testPort(t, time.Minute)
	closedSoon(t, "libp2p without a pass", dialPort(t, address, []byte("\x13/multistream/1.0.0\n")))
	stranger, err := dialPass(t, address, 9, nil)
	if err == nil {
		t.Error("a stranger gets a challenge")
	}
	closedSoon(t, "a stranger's pass", stranger)

	key, own := portMember(t, 1)
	_, other := portMember(t, 2)
	conn := dialPort(t, address, nil)
	_ = showPass(conn, key, other)
	closedSoon(t, "a pass for another port", conn)

	// A listener that replays what it overheard: the challenge is another one.
	public, err := key.GetPublic().Raw()
	if err != nil {
		t.Fatal(err)
	}
	old, err := key.Sign(passText(make([]byte, challengeBytes), own, own))
	if err != nil {
		t.Fatal(err)
	}
	conn = dialPort(t, address, append([]byte(passMagic), public...))
	if _, err := io.ReadFull(conn, make([]byte, challengeBytes)); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write(old)
	closedSoon(t, "an old pass", conn)
	select {
	case <-libp2p:
		t.Error("a connection without a good pass reached libp2p")
	default:
	}
}

// FuzzPass feeds the port's side of a pass with any bytes: none of them is a member's pass.
func FuzzPass(f *testing.F) {
	f.Add(bytes.Repeat([]byte{7}, passKeyBytes+signatureBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		conn := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), io.Discard}
		all := func(peer.ID) bool { return true }
		if _, err := checkPass(conn, "port", all); !errors.Is(err, errNoPass) {
			t.Fatalf("%x is a pass: %v", b, err)
		}
	})
}

func FuzzTicket(f *testing.F) {
	f.Add(ticket{suite: suiteAESGCM}.append(nil))
	f.Add([]byte("ldgt"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readTicket(bytes.NewReader(b))
		if err == nil && !bytes.Equal(got.append(nil), b[:ticketSize]) || err != nil &&
			!decodeError(err) {
			t.Fatalf("%x gave %+v, error %v", b, got, err)
		}
	})
}

// TestPortWhereLibp2pTakesNobody checks that connections that libp2p does not accept are bounded
// too.
func TestPortWhereLibp2pTakesNobody(t *testing.T) {
	t.Parallel()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := manet.WrapNetListener(plain)
	if err != nil {
		t.Fatal(err)
	}
	p := newPort(listener, plain, nil, portOwner(t), time.Minute)
	oldest, err := dialPass(t, plain.Addr().String(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	// While the pass of one is still checked, the port would take later connections first.
	for deadline := time.Now().Add(20 * time.Second); taken(p) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the first connection gets no slot")
		}
		time.Sleep(time.Millisecond)
	}
	other, err := dialPass(t, plain.Addr().String(), 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range slotsOfMember {
		if _, err := dialPass(t, plain.Addr().String(), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	closedSoon(t, "the oldest of a member's that wait for libp2p", oldest)
	_ = other.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("another member's connection: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// taken returns how many members have connections that libp2p may take.
func taken(p *port) int {
	p.members.mu.Lock()
	defer p.members.mu.Unlock()
	return len(p.members.open)
}

// takes makes a port's owner take introductions.
func takes(p *port, take takeFunc) { p.owner.door.take.Store(&take) }

// introductionOf returns the bytes of an introduction that claims to have a length.
func introductionOf(length uint32, said string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte(introductionMagic), length), said...)
}

// TestPortOfStrangers checks that strangers who introduce themselves get an answer and nothing
// else: not with too many bytes or too slowly, not before the program asks for what they say, and
// without reaching libp2p.
func TestPortOfStrangers(t *testing.T) {
	t.Parallel()
	p, address, libp2p := testPort(t, 500*time.Millisecond)
	closedSoon(t, "an introduction before anybody takes it", dialPort(t, address,
		introductionOf(2, "me")))
	read := make(chan error, 1)
	takes(p, func(_ string, hear func() ([]byte, error)) ([]byte, error) {
		said, err := hear()
		read <- err
		return said, err
	})
	for what, said := range map[string][]byte{
		"too slow":       introductionOf(3, "me"),
		"without length": []byte(introductionMagic + "\x00"),
	} {
		closedSoon(t, what, dialPort(t, address, said))
		if err := <-read; !errors.Is(err, errMute) {
			t.Errorf("%s: %v", what, err)
		}
	}
	conn := dialPort(t, address, introductionOf(2, "me"+passMagic+"\x13/multistream/1.0.0\n"))
	answer, err := io.ReadAll(conn)
	if string(answer) != "\x02me" || <-read != nil {
		t.Errorf("answer %q, %v", answer, err)
	}
	patient, patientAddress, _ := testPort(t, time.Minute) // it would wait for the nine bytes
	takes(patient, func(string, func() ([]byte, error)) ([]byte, error) {
		return nil, errors.New("not heard")
	})
	closedSoon(t, "one that is not heard", dialPort(t, patientAddress, introductionOf(9, "")))
	takes(patient, func(_ string, hear func() ([]byte, error)) ([]byte, error) { return hear() })
	closedSoon(t, "one that is too large", dialPort(t, patientAddress,
		introductionOf(rdmanet.IntroductionMax+1, "me")))
	select {
	case <-libp2p:
		t.Error("a stranger reached libp2p")
	default:
	}
}

// TestCrowdOfStrangers checks that strangers who say nothing keep neither other strangers away nor
// members, and that no more of them are heard than may be.
func TestCrowdOfStrangers(t *testing.T) {
	t.Parallel()
	p, address, libp2p := testPort(t, time.Minute)
	takes(p, func(_ string, hear func() ([]byte, error)) ([]byte, error) { return hear() })
	crowded := func() int {
		p.strangers.mu.Lock()
		defer p.strangers.mu.Unlock()
		return len(p.strangers.list)
	}
	oldest := dialPort(t, address, introductionOf(9, "half"))
	end := time.Now().Add(20 * time.Second)
	for ; crowded() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the first stranger does not speak")
		}
	}
	for range strangersSpeakingMax {
		dialPort(t, address, introductionOf(9, "half"))
	}
	closedSoon(t, "the oldest of a crowd", oldest)
	if count := crowded(); count != strangersSpeakingMax {
		t.Errorf("%d strangers are heard", count)
	}
	p.newcomers.mu.Lock()
	if count := len(p.newcomers.list); count > 0 {
		t.Errorf("%d of them are newcomers, too", count)
	}
	p.newcomers.mu.Unlock()
	conn := dialPort(t, address, introductionOf(2, "me"))
	if answer, err := io.ReadAll(conn); string(answer) != "\x02me" {
		t.Errorf("answer %q, %v", answer, err)
	}
	if _, err := dialPass(t, address, 1, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case forwarded := <-libp2p:
		forwarded.Close()
	case <-time.After(20 * time.Second):
		t.Fatal("a member does not get through")
	}
}

// TestCrowdOfOneAddress checks that an address that has many connections loses its own.
func TestCrowdOfOneAddress(t *testing.T) {
	t.Parallel()
	c := crowd{most: 3}
	conns := map[string]*newcomer{}
	for _, name := range []string{"oldest", "a1", "a2", "another", "a3"} {
		here, there := net.Pipe()
		t.Cleanup(func() { _, _ = here.Close(), there.Close() })
		from := name
		if name[0] == 'a' && len(name) == 2 {
			from = "a"
		}
		conns[name] = &newcomer{Conn: here, from: from}
		if !c.add(conns[name]) {
			t.Fatal("it is closed")
		}
	}
	// a1 made room for another. Then each address had one, and the oldest of all made room for a3.
	if want := []*newcomer{conns["a2"], conns["another"], conns["a3"]}; !slices.Equal(c.list,
		want) {
		t.Errorf("%d are left", len(c.list))
	}
	c.close()
	if c.add(conns["oldest"]) || len(c.list) > 0 {
		t.Error("a closed crowd takes more")
	}
}

// FuzzIntroduction reads any bytes as an introduction.
func FuzzIntroduction(f *testing.F) {
	f.Add(introductionOf(2, "me")[len(introductionMagic):])
	f.Add(introductionOf(3, "me")[len(introductionMagic):])
	f.Add(introductionOf(1<<31, "")[len(introductionMagic):])
	f.Fuzz(func(t *testing.T, b []byte) {
		said, err := readIntroduction(bytes.NewReader(b))
		if err == nil && !bytes.HasPrefix(b, append(binary.BigEndian.AppendUint32(nil,
			uint32(len(said))), said...)) || err != nil && !errors.Is(err, errMute) {
			t.Fatalf("%x gave %x, error %v", b, said, err)
		}
	})
}
