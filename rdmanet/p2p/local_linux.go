package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sys/unix"
)

// With Options.Local, a direct connection to a process of the same machine and user is a UNIX
// socket. Its bytes pass neither TCP nor IP, which are a third of the processor time of a small
// frame.
//
// A host that listens on TCP also listens on a name of the abstract namespace, which has no file
// and goes away with the process. The name has the host's identity and its TCP port. So an end that
// dials a port finds the name only if the port's owner is here, in its own network namespace, and
// not behind a proxy or a translated address. Each end asks the kernel for the user of the other
// end, because any user may take a name.

// localBufferBytes is how much a UNIX socket may hold, or less if the system allows less. The
// kernel does not let that grow as TCP's does, and begins with so little that a large frame has to
// wait.
const localBufferBytes = 4 << 20

// localName returns the name of the host of an identity that listens on a TCP address.
func localName(id peer.ID, address string) (string, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	return "@ledgerd/" + id.String() + "/" + port, nil
}

// listenLocal listens for direct connections from this machine, beside a TCP listener. It returns
// errNameTaken if another process has the name. Then all connections are TCP's.
func listenLocal(own peer.ID, beside net.Addr) (net.Listener, error) {
	name, err := localName(own, beside.String())
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", name)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%w: %s", errNameTaken, name)
	}
	if err != nil {
		return nil, err
	}
	return &localListener{listener.(*net.UnixListener)}, nil
}

// localListener accepts connections of this process's user only.
type localListener struct{ *net.UnixListener }

// Accept implements net.Listener.
func (l *localListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if prepareLocal(conn, os.Geteuid()) == nil {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// dialLocal connects to the host of an identity that listens on a TCP address, if it is on this
// machine and of this user.
func dialLocal(ctx context.Context, id peer.ID, address string) (*net.UnixConn, error) {
	name, err := localName(id, address)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	local := conn.(*net.UnixConn)
	if err := prepareLocal(local, os.Geteuid()); err != nil {
		return nil, errors.Join(err, local.Close())
	}
	return local, nil
}

// prepareLocal returns an error if the other end does not belong to a user.
func prepareLocal(conn *net.UnixConn, user int) error {
	if err := conn.SetWriteBuffer(localBufferBytes); err != nil {
		return err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var credentials *unix.Ucred
	if closed := raw.Control(func(fd uintptr) {
		credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); closed != nil {
		return closed
	}
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if int(credentials.Uid) != user {
		return fmt.Errorf("the other end belongs to user %d and not to %d", credentials.Uid, user)
	}
	return nil
}
