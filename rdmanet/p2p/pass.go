package p2p

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	libp2pcrypto "github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"
)

// A connection for libp2p begins with a pass, by which the caller proves that it is a member:
//
//	caller: magic, its key          ->
//	                                <-  port: a challenge, new for each connection
//	caller: signature of challenge,
//	        port's identity and its own ->
//
// Only then does the connection reach libp2p, in the slots of that member. So a stranger holds a
// place among the newcomers and nothing else, and an overheard signature is of no use.
const (
	// passMagic begins a connection for libp2p, as directMagic begins a direct one.
	passMagic      = "ldgm"
	passKeyBytes   = 32
	challengeBytes = 32
	signatureBytes = 64
	passDomain     = "ledgerd fabric pass 1\x00"
	// slotsOfMember bounds the connections that a member may have open here at one time, also
	// unfinished ones; one more closes the oldest. libp2p keeps half of them, so that a member that
	// restarted does not wait for the end of its old connections.
	slotsOfMember = 2 * connsPerMember
)

var errNoPass = errors.New("no pass of a member")

// passText is what the caller signs.
func passText(challenge []byte, port, caller peer.ID) []byte {
	text := append([]byte(passDomain), challenge...)
	return append(append(append(text, port...), 0), caller...)
}

// showPass proves to the port at the other end that this host is a member.
func showPass(conn io.ReadWriter, key libp2pcrypto.PrivKey, port peer.ID) error {
	public, err := key.GetPublic().Raw()
	if err != nil {
		return fmt.Errorf("pass: %w", err)
	}
	own, err := peer.IDFromPublicKey(key.GetPublic())
	if err != nil {
		return fmt.Errorf("pass: %w", err)
	}
	if _, err := conn.Write(append([]byte(passMagic), public...)); err != nil {
		return fmt.Errorf("pass: %w", err)
	}
	var challenge [challengeBytes]byte
	if _, err := io.ReadFull(conn, challenge[:]); err != nil {
		return fmt.Errorf("pass: the other end does not know this host as a member, or has "+
			"another version: %w", err)
	}
	signature, err := key.Sign(passText(challenge[:], port, own))
	if err != nil {
		return fmt.Errorf("pass: %w", err)
	}
	if _, err := conn.Write(signature); err != nil {
		return fmt.Errorf("pass: %w", err)
	}
	return nil
}

// checkPass reads a pass after its magic, and returns the member that showed it. With an error, it
// returns the identity that the caller claimed if that is no member's. The caller of checkPass
// bounds the time.
func checkPass(conn io.ReadWriter, port peer.ID, isMember func(peer.ID) bool) (peer.ID, error) {
	var key [passKeyBytes]byte
	if _, err := io.ReadFull(conn, key[:]); err != nil {
		return "", fmt.Errorf("%w: %w", errNoPass, err)
	}
	public, err := libp2pcrypto.UnmarshalEd25519PublicKey(key[:])
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoPass, err)
	}
	caller, err := peer.IDFromPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoPass, err)
	}
	if !isMember(caller) {
		return caller, fmt.Errorf("%w: the key is no member's", errNoPass)
	}
	var challenge [challengeBytes]byte
	_, _ = rand.Read(challenge[:]) // it never fails
	if _, err := conn.Write(challenge[:]); err != nil {
		return "", fmt.Errorf("%w: %w", errNoPass, err)
	}
	var signature [signatureBytes]byte
	if _, err := io.ReadFull(conn, signature[:]); err != nil {
		return "", fmt.Errorf("%w: %w", errNoPass, err)
	}
	valid, err := public.Verify(passText(challenge[:], port, caller), signature[:])
	if err != nil || !valid {
		return "", fmt.Errorf("%w: the signature is wrong", errNoPass)
	}
	return caller, nil
}

// slots are the connections for libp2p, by the member that opened them.
type slots struct {
	mu   sync.Mutex
	open map[peer.ID][]*slot // oldest first
}

// slot is a connection for libp2p that a member opened.
type slot struct {
	net.Conn
	slots  *slots
	member peer.ID
	ended  chan struct{}
	once   sync.Once
}

// take gives a connection to a member. The member's oldest one ends if it has too many.
func (s *slots) take(member peer.ID, conn net.Conn) *slot {
	made := &slot{Conn: conn, slots: s, member: member, ended: make(chan struct{})}
	s.mu.Lock()
	if s.open == nil {
		s.open = map[peer.ID][]*slot{}
	}
	var oldest *slot
	if len(s.open[member]) >= slotsOfMember {
		oldest = s.open[member][0]
	}
	s.open[member] = append(s.open[member], made)
	s.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return made
}

// Close implements net.Conn. It frees the slot.
func (s *slot) Close() error {
	s.once.Do(func() {
		close(s.ended)
		s.slots.mu.Lock()
		defer s.slots.mu.Unlock()
		left := s.slots.open[s.member]
		if i := slices.Index(left, s); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
		if s.slots.open[s.member] = left; len(left) == 0 {
			delete(s.slots.open, s.member)
		}
	})
	return s.Conn.Close()
}

// passDialer opens connections that begin with a pass. The context names the port's identity.
type passDialer struct{ key libp2pcrypto.PrivKey }

type dialledKey struct{}

var _ tcp.ContextDialer = passDialer{}

// DialContext implements tcp.ContextDialer.
func (d passDialer) DialContext(ctx context.Context, kind, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, kind, address)
	if err != nil {
		return nil, err
	}
	port, _ := ctx.Value(dialledKey{}).(peer.ID)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = showPass(conn, d.key, port)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Dial implements transport.Transport.
func (t *sharedTransport) Dial(ctx context.Context, address multiaddr.Multiaddr,
	to peer.ID) (transport.CapableConn, error) {
	return t.DialWithUpdates(ctx, address, to, nil)
}

// DialWithUpdates implements transport.DialUpdater.
func (t *sharedTransport) DialWithUpdates(ctx context.Context, address multiaddr.Multiaddr,
	to peer.ID, updates chan<- transport.DialUpdate) (transport.CapableConn, error) {
	return t.TcpTransport.DialWithUpdates(context.WithValue(ctx, dialledKey{}, to), address, to,
		updates)
}
