package p2p

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// A stranger may say one thing to a host's program, and gets one answer:
//
//	caller: magic, length, introduction ->
//	                                    <-  port: length, answer
//
// Neither libp2p nor anything else of the host sees the connection. It ends with the answer. The
// bytes are plain and prove nobody's identity: an introduction has to prove itself.
const (
	// introductionMagic begins an introduction, as passMagic begins a connection for libp2p.
	introductionMagic = "ldgi"
	// strangersSpeakingMax bounds the introductions that are read, judged or answered at a time.
	strangersSpeakingMax = 16
)

// takeFunc is the function of the program that takes introductions.
type takeFunc = func(from string, read func() ([]byte, error)) (answer []byte, err error)

// door has the program's function that takes introductions, once there is one.
type door struct{ take atomic.Pointer[takeFunc] }

// errMute reports that a caller did not introduce itself in time, or with too many bytes.
var errMute = errors.New("no introduction")

// introduce lets the program take an introduction whose magic has been read, and answers it. The
// connection is then over.
func (p *port) introduce(n *newcomer) {
	defer n.Close()
	may := p.strangers.add(n)
	defer p.strangers.remove(n)
	p.newcomers.remove(n) // from here on it counts as a stranger
	take := p.owner.door.take.Load()
	if !may || take == nil {
		return
	}
	answer, err := (*take)(n.from, func() ([]byte, error) { return readIntroduction(n) })
	if err != nil || len(answer) > rdmanet.IntroductionAnswerMax {
		return
	}
	// The stranger asks again if it does not get the answer.
	if n.SetWriteDeadline(time.Now().Add(p.patience)) == nil {
		_, _ = n.Write(append([]byte{byte(len(answer))}, answer...))
	}
}

// readIntroduction reads an introduction after its magic. Its memory grows with what has arrived.
// The caller bounds the time.
func readIntroduction(from io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, fmt.Errorf("%w: %w", errMute, err)
	}
	size := int64(binary.BigEndian.Uint32(length[:]))
	if size > rdmanet.IntroductionMax {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", errMute, size,
			rdmanet.IntroductionMax)
	}
	introduction, err := io.ReadAll(io.LimitReader(from, size))
	if err == nil && int64(len(introduction)) < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMute, err)
	}
	return introduction, nil
}

// Introduced implements rdmanet.IntroductionHost.
func (h *Host) Introduced(take takeFunc) error {
	if h.alive.Err() != nil {
		return fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	}
	if !h.door.take.CompareAndSwap(nil, &take) {
		return fmt.Errorf("host %s takes introductions: %w", h.id, rdmanet.ErrDuplicate)
	}
	return nil
}

// Introduce implements rdmanet.IntroductionHost.
func (h *Host) Introduce(ctx context.Context, to rdmanet.PeerID, introduction []byte) ([]byte,
	error) {
	if len(introduction) > rdmanet.IntroductionMax {
		return nil, fmt.Errorf("introduction of %d bytes: %w", len(introduction),
			rdmanet.ErrTooLarge)
	}
	id, err := peer.Decode(string(to))
	address, member := (*h.gater.members.Load())[id]
	if err != nil || !member {
		return nil, fmt.Errorf("introduction to %q: %w", to, rdmanet.ErrNotMember)
	}
	if address == nil {
		return nil, fmt.Errorf("introduction to %s, which has no address: %w", to,
			rdmanet.ErrUnreachable)
	}
	kind, hostPort, err := manet.DialArgs(address)
	if err != nil {
		return nil, fmt.Errorf("introduction to %s: %w: %w", to, rdmanet.ErrUnreachable, err)
	}
	bounded, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	defer context.AfterFunc(h.alive, cancel)()
	answer, err := introduceAt(bounded, kind, hostPort, introduction)
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case h.alive.Err() != nil:
		return nil, fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	}
	return nil, fmt.Errorf("introduction to %s: %w: %w", to, rdmanet.ErrUnreachable, err)
}

// introduceAt hands an introduction to the process that listens at an address.
func introduceAt(ctx context.Context, kind, address string, introduction []byte) (answer []byte,
	err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, kind, address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	said := append(make([]byte, 0, len(introductionMagic)+4+len(introduction)),
		introductionMagic...)
	said = append(binary.BigEndian.AppendUint32(said, uint32(len(introduction))), introduction...)
	if _, err := conn.Write(said); err != nil {
		return nil, err
	}
	var size [1]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, fmt.Errorf("the other end takes no introduction now, or has another version: "+
			"%w", err)
	}
	if size[0] > rdmanet.IntroductionAnswerMax {
		return nil, fmt.Errorf("an answer of %d bytes, at most %d are allowed", size[0],
			rdmanet.IntroductionAnswerMax)
	}
	answer = make([]byte, size[0])
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	return answer, nil
}
