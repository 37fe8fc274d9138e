package memory

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// takeFunc is the function that takes introductions.
type takeFunc = func(from string, read func() ([]byte, error)) ([]byte, error)

var _ rdmanet.IntroductionHost = (*Host)(nil)

// Introduced implements rdmanet.IntroductionHost. The address that a stranger calls from is its
// name.
func (h *Host) Introduced(take takeFunc) error {
	if h.isClosing() {
		return fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	}
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	if h.introduced != nil {
		return fmt.Errorf("host %s takes introductions: %w", h.id, rdmanet.ErrDuplicate)
	}
	h.introduced = take
	return nil
}

// Introduce implements rdmanet.IntroductionHost.
func (h *Host) Introduce(ctx context.Context, to rdmanet.PeerID, introduction []byte) ([]byte,
	error) {
	switch {
	case h.isClosing():
		return nil, fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	case !h.isMember(to):
		return nil, fmt.Errorf("introduction to %q: %w", to, rdmanet.ErrNotMember)
	case len(introduction) > rdmanet.IntroductionMax:
		return nil, fmt.Errorf("introduction of %d bytes: %w", len(introduction),
			rdmanet.ErrTooLarge)
	}
	unreachable := fmt.Errorf("introduction to %q: %w", to, rdmanet.ErrUnreachable)
	n := h.network
	n.mu.Lock()
	p := n.place(to)
	host := p.host
	if host == nil || p.cut[h.id] || host.introduced == nil {
		n.mu.Unlock()
		return nil, unreachable
	}
	take := host.introduced
	n.mu.Unlock()
	answered, refused := make(chan []byte, 1), make(chan struct{})
	if !host.serve(func() {
		answer, err := take(string(h.id), func() ([]byte, error) {
			return bytes.Clone(introduction), nil
		})
		if err != nil || len(answer) > rdmanet.IntroductionAnswerMax {
			close(refused)
			return
		}
		answered <- answer
	}) {
		return nil, unreachable
	}
	select {
	case answer := <-answered:
		return answer, nil
	case <-refused:
		return nil, unreachable
	case <-host.closed:
		return nil, unreachable
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
