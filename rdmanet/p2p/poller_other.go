//go:build !linux

package p2p

import (
	"errors"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// There is no poller on this system. Lanes of prompt receivers are read like all others.
type (
	poller     struct{}
	descriptor struct{ wire }
)

func newPoller() (*poller, error) { return nil, nil }

func (*poller) useRings() error { return nil }

func (*poller) wake() {}

func (*poller) close() {}

func (*poller) serve(*descriptor, *rdmanet.PromptReceiver, func() (bool, error)) error {
	return errors.ErrUnsupported
}

func (*directConn) detach(*ringReader) (*descriptor, error) { return nil, errors.ErrUnsupported }
