//go:build !linux

package p2p

import (
	"context"
	"errors"
	"net"
)

// Other systems have no rings in shared memory.
type (
	ringWriter struct{}
	ringReader struct{}
)

func (*ringWriter) write(net.Buffers) (int, error) { return 0, errors.ErrUnsupported }

func (*ringWriter) writeAll(net.Buffers) error { return errors.ErrUnsupported }

func (*ringWriter) stop() {}

func (*ringWriter) close() error { return nil }

func (*ringReader) close() error { return nil }

func (*directConn) offerRing(bool) (*ringReader, error) { return nil, nil }

func (*directConn) takeRing(context.Context) error { return nil }
