//go:build !linux

package p2p

import (
	"errors"
	"net"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// There is no poller on this system. Lanes of prompt receivers are read like all others.
type (
	poller     struct{ ended chan struct{} }
	descriptor struct{ wire }
)

func newPoller() (*poller, error) { return nil, nil }

func (*poller) useRings() error { return nil }

func (*poller) wake() {}

func (*poller) close() {}

func (*poller) serve(*descriptor, *rdmanet.PromptReceiver, func() (bool, error)) error {
	return errors.ErrUnsupported
}

func (*poller) begin(*descriptor, *rdmanet.PromptReceiver, func() (bool, error)) (<-chan error,
	error) {
	return nil, errors.ErrUnsupported
}

func (*descriptor) writeNow(net.Buffers) (int, error) { return 0, errors.ErrUnsupported }

func (*descriptor) awaitRoom() error { return errors.ErrUnsupported }

func (*directConn) detach(*ringReader) (*descriptor, error) { return nil, errors.ErrUnsupported }
