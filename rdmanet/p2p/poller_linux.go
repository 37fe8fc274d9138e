package p2p

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

const (
	// pollEvents is how many connections the poller learns of at once.
	pollEvents = 64
	// pollBytes bounds what the poller reads of one connection before it goes on to the next.
	pollBytes = 512 << 10
	// restBytesMax bounds the acknowledgements that a connection does not take. They make no more
	// than that before the peer has read nothing for a long time.
	restBytesMax = 4 << 10
)

// poller reads the connections of prompt lanes, in one goroutine.
type poller struct {
	epoll *os.File
	raw   syscall.RawConn
	ended chan struct{}

	mu    sync.Mutex
	tasks map[int32]*pollTask

	events [pollEvents]unix.EpollEvent // those below belong to the poller's goroutine
	due    []*rdmanet.PromptReceiver
}

// pollTask is a connection that the poller reads.
type pollTask struct {
	from   *descriptor
	prompt *rdmanet.PromptReceiver
	poll   func() (tried bool, err error)
	ended  chan error
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("poller: %w", os.NewSyscallError("epoll_create1", err))
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("poller: %w", err), unix.Close(fd))
	}
	p := &poller{epoll: os.NewFile(uintptr(fd), "epoll"), ended: make(chan struct{}),
		tasks: make(map[int32]*pollTask)}
	if p.raw, err = p.epoll.SyscallConn(); err == nil {
		// It fails if the runtime could not add the descriptor to its own epoll, for example
		// because the system watches too many.
		err = p.epoll.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("poller: %w", err), p.epoll.Close())
	}
	go p.run()
	return p, nil
}

// close ends the poller. It serves nobody any more.
func (p *poller) close() {
	_ = p.epoll.Close()
	<-p.ended
}

// run serves until the poller is closed. It is one call, since a call would forget that the runtime
// learned of something before it began.
func (p *poller) run() {
	defer close(p.ended)
	_ = p.raw.Read(p.serveReady)
}

// serveReady serves the connections that can be read. It returns false, to wait until the runtime
// learns that something has arrived since. It must not leave anything that arrived earlier.
func (p *poller) serveReady(epoll uintptr) bool {
	for more := true; more; {
		ready := rawEpollWait(epoll, p.events[:])
		more = ready == len(p.events)
		for i := range p.events[:ready] {
			more = p.poll(&p.events[i]) || more
		}
		for i, receiver := range p.due {
			receiver.Turn()
			p.due[i] = nil
		}
		p.due = p.due[:0]
	}
	return false
}

// poll serves a connection that can be read. It reports whether it may leave something.
func (p *poller) poll(event *unix.EpollEvent) (more bool) {
	p.mu.Lock()
	task := p.tasks[event.Fd]
	p.mu.Unlock()
	if task == nil {
		return false
	}
	tried, err := false, error(net.ErrClosed)
	if !task.from.stopped.Load() {
		task.from.left, task.from.drained = pollBytes, false
		tried, err = task.poll()
		task.from.left = 0
	}
	if tried && !slices.Contains(p.due, task.prompt) {
		p.due = append(p.due, task.prompt)
	}
	if err == nil {
		// The end of a connection may be behind the bytes that were read.
		return !task.from.drained || event.Events&^unix.EPOLLIN != 0
	}
	p.mu.Lock()
	delete(p.tasks, event.Fd)
	p.mu.Unlock()
	// It fails only if the descriptor is not there, and the task's goroutine closes it later.
	_ = p.control(unix.EPOLL_CTL_DEL, event.Fd, nil)
	task.ended <- err
	return false
}

func (p *poller) control(operation int, fd int32, event *unix.EpollEvent) error {
	var err error
	if closed := p.raw.Control(func(epoll uintptr) {
		err = unix.EpollCtl(int(epoll), operation, int(fd), event)
	}); closed != nil {
		return closed
	}
	return os.NewSyscallError("epoll_ctl", err)
}

// serve has the poller's goroutine call poll whenever the connection can be read, until poll
// returns an error. It waits for that, and returns the error.
func (p *poller) serve(d *descriptor, prompt *rdmanet.PromptReceiver,
	poll func() (tried bool, err error)) error {
	task := &pollTask{from: d, prompt: prompt, poll: poll, ended: make(chan error, 1)}
	fd := int32(d.fd)
	p.mu.Lock()
	p.tasks[fd] = task
	p.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: fd}
	if err := p.control(unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		p.mu.Lock()
		delete(p.tasks, fd)
		p.mu.Unlock()
		return fmt.Errorf("poller: %w", err)
	}
	select {
	case err := <-task.ended:
		return err
	case <-p.ended:
		return net.ErrClosed
	}
}

// descriptor is a TCP connection that the runtime does not watch. It implements wire. Nothing that
// it does waits. Its reader uses it between serve's beginning and end, or the goroutine that calls
// serve.
type descriptor struct {
	fd      int
	stopped atomic.Bool
	left    int  // how many bytes may be read before Read returns ErrNotYet
	drained bool // the last read found the end of what had arrived

	mu     sync.Mutex
	closed bool
	rest   []byte // written, and not yet taken by the kernel
}

// detach takes the connection out of the runtime's poller.
func (c *directConn) detach() (*descriptor, error) {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("direct connection: %w", err)
	}
	d := &descriptor{}
	if closed := raw.Control(func(fd uintptr) {
		d.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	}); closed != nil {
		return nil, closed
	}
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	c.wire = d
	// The kernel's connection lives on with the descriptor.
	return d, c.tcp.Close()
}

// Read implements io.Reader. It returns lane.ErrNotYet if nothing is there.
func (d *descriptor) Read(b []byte) (int, error) {
	if d.left <= 0 {
		return 0, lane.ErrNotYet
	}
	b = b[:min(len(b), d.left)]
	n, err := rawRead(uintptr(d.fd), b)
	switch {
	case err == unix.EAGAIN:
		d.left, d.drained = 0, true
		return 0, lane.ErrNotYet
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	d.left -= n
	if n < len(b) {
		d.left, d.drained = 0, true // that was all; epoll reports what comes
	}
	return n, nil
}

// Write implements io.Writer. What the kernel does not take goes before the next write.
func (d *descriptor) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, net.ErrClosed
	}
	if len(d.rest)+len(b) > restBytesMax {
		return 0, fmt.Errorf("%d bytes of acknowledgements wait for the peer", len(d.rest))
	}
	d.rest = append(d.rest, b...)
	n, err := rawWrite(uintptr(d.fd), [][]byte{d.rest})
	if err != nil && err != unix.EAGAIN {
		return 0, os.NewSyscallError("write", err)
	}
	d.rest = append(d.rest[:0], d.rest[n:]...)
	return len(b), nil
}

// SetDeadline ends the connection if the time is over, which is all that anyone wants of it.
func (d *descriptor) SetDeadline(t time.Time) error {
	if t.IsZero() || time.Until(t) > 0 {
		return os.ErrNoDeadline
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return net.ErrClosed
	}
	d.stopped.Store(true)
	return os.NewSyscallError("shutdown", unix.Shutdown(d.fd, unix.SHUT_RDWR))
}

// SetReadDeadline is like SetDeadline.
func (d *descriptor) SetReadDeadline(t time.Time) error { return d.SetDeadline(t) }

// Close implements io.Closer. The connection must not be read any more.
func (d *descriptor) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return net.ErrClosed
	}
	d.closed = true
	return os.NewSyscallError("close", unix.Close(d.fd))
}
