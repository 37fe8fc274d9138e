//go:build !linux

package p2p

import (
	"context"
	"errors"
	"net"

	"github.com/libp2p/go-libp2p/core/peer"
)

// Other systems have no names for UNIX sockets but files. All direct connections are TCP's.

func listenLocal(peer.ID, net.Addr) (net.Listener, error) { return nil, nil }

func dialLocal(context.Context, peer.ID, string) (*net.UnixConn, error) {
	return nil, errors.ErrUnsupported
}
