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

// poller reads the connections of prompt lanes, and their rings, in one goroutine.
type poller struct {
	epoll *os.File
	raw   syscall.RawConn
	ended chan struct{}

	bell *bell // nil if there are no rings

	mu     sync.Mutex
	tasks  map[int32]*pollTask
	ringed []*pollTask // those with a ring

	events [pollEvents]unix.EpollEvent // those below belong to the poller's goroutine
	due    []*rdmanet.PromptReceiver
	scan   []*pollTask
}

// pollTask is a connection that the poller reads.
type pollTask struct {
	fd     int32
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

// useRings makes the poller serve rings, too. It comes before the first call of serve.
func (p *poller) useRings() error {
	b, err := newBell()
	if err != nil {
		return fmt.Errorf("poller: %w", err)
	}
	// epoll reports each ring of the bell once (EPOLLET), so the counter need not be read.
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(b.event)}
	if err := p.control(unix.EPOLL_CTL_ADD, int32(b.event), &event); err != nil {
		return errors.Join(fmt.Errorf("poller: %w", err), b.close())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bell = b
	return nil
}

// wake makes the poller look at its rings.
func (p *poller) wake() {
	if p.bell != nil {
		p.bell.wake()
	}
}

// close ends the poller. It serves nobody any more.
func (p *poller) close() {
	_ = p.epoll.Close()
	<-p.ended
	if p.bell != nil {
		_ = p.bell.close()
	}
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
	bell := p.usedBell()
	if bell != nil {
		bell.waiting.Store(0)
	}
	for more := true; more; {
		ready := rawEpollWait(epoll, p.events[:])
		// epoll reports the bell once. The first lane that uses it may have joined since then.
		bell = p.usedBell()
		more = ready == len(p.events)
		for i := range p.events[:ready] {
			more = p.poll(&p.events[i]) || more
		}
		if bell != nil {
			more = p.pollRings() || more
		}
		for i, receiver := range p.due {
			receiver.Turn()
			p.due[i] = nil
		}
		p.due = p.due[:0]
		if bell != nil && !more {
			// A sender that writes after the last look sees the word.
			bell.waiting.Store(1)
			if more = p.anyRing(); more {
				bell.waiting.Store(0)
			}
		}
	}
	return false
}

// usedBell returns the bell, or nil if there are no rings.
func (p *poller) usedBell() *bell {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ringed) == 0 {
		return nil
	}
	return p.bell
}

// anyRing reports whether a ring has something to read.
func (p *poller) anyRing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.ringed, func(task *pollTask) bool {
		return !task.from.ring.empty()
	})
}

// pollRings serves the connections whose rings can be read. It reports whether it may leave
// something.
func (p *poller) pollRings() (more bool) {
	p.mu.Lock()
	p.scan = append(p.scan[:0], p.ringed...)
	p.mu.Unlock()
	for i, task := range p.scan {
		if !task.from.ring.empty() {
			more = p.pollTask(task) || more
		}
		p.scan[i] = nil
	}
	return more
}

// poll serves a connection that can be read. It reports whether it may leave something.
func (p *poller) poll(event *unix.EpollEvent) (more bool) {
	p.mu.Lock()
	task := p.tasks[event.Fd]
	p.mu.Unlock()
	if task == nil {
		return false
	}
	task.from.ending = true // of use with a ring only
	// The end of a connection may be behind the bytes that were read.
	return p.pollTask(task) || event.Events&^unix.EPOLLIN != 0 && p.serves(task)
}

// serves reports whether a connection is still the poller's.
func (p *poller) serves(task *pollTask) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tasks[task.fd] == task
}

// pollTask reads a connection. It reports whether it may leave something.
func (p *poller) pollTask(task *pollTask) (more bool) {
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
		return !task.from.drained
	}
	p.forget(task)
	// It fails only if the descriptor is not there, and the task's goroutine closes it later.
	_ = p.control(unix.EPOLL_CTL_DEL, task.fd, nil)
	task.ended <- err
	return false
}

// forget removes a connection.
func (p *poller) forget(task *pollTask) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tasks, task.fd)
	p.ringed = slices.DeleteFunc(p.ringed, func(other *pollTask) bool { return other == task })
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
	task := &pollTask{fd: int32(d.fd), from: d, prompt: prompt, poll: poll,
		ended: make(chan error, 1)}
	p.mu.Lock()
	p.tasks[task.fd] = task
	p.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: task.fd}
	if err := p.control(unix.EPOLL_CTL_ADD, task.fd, &event); err != nil {
		p.forget(task)
		return fmt.Errorf("poller: %w", err)
	}
	if d.ring != nil {
		p.mu.Lock()
		if p.tasks[task.fd] == task { // it may have ended already
			p.ringed = append(p.ringed, task)
		}
		p.mu.Unlock()
		p.bell.wake() // what came before wakes no poller
	}
	select {
	case err := <-task.ended:
		return err
	case <-p.ended:
		return net.ErrClosed
	}
}

// descriptor is a connection that the runtime does not watch. It implements wire. Nothing that it
// does waits. Its reader uses it between serve's beginning and end, or the goroutine that calls
// serve.
type descriptor struct {
	fd      int
	stopped atomic.Bool
	left    int  // how many bytes may be read before Read returns ErrNotYet
	drained bool // the last read found the end of what had arrived

	// If ring is not nil, the bytes come through it, and the socket only ends.
	ring   *ringReader
	ending bool // the socket may have ended

	mu     sync.Mutex
	closed bool
	rest   []byte // written, and not yet taken by the kernel
}

// detach takes the connection out of the runtime's poller. The descriptor owns the ring, if there
// is one, unless detach fails.
func (c *directConn) detach(ring *ringReader) (*descriptor, error) {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("direct connection: %w", err)
	}
	d := &descriptor{ring: ring}
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
	// The kernel's connection lives on with the descriptor. Sever may have closed the socket.
	if err := c.socket.Close(); err != nil {
		return nil, errors.Join(fmt.Errorf("direct connection: %w", err), unix.Close(d.fd))
	}
	c.wire = d
	return d, nil
}

// Read implements io.Reader. It returns lane.ErrNotYet if nothing is there.
func (d *descriptor) Read(b []byte) (int, error) {
	if d.left <= 0 {
		return 0, lane.ErrNotYet
	}
	b = b[:min(len(b), d.left)]
	n, err := d.receive(b)
	switch {
	case err == unix.EAGAIN:
		d.left, d.drained = 0, true
		return 0, lane.ErrNotYet
	case err != nil:
		return 0, fmt.Errorf("read: %w", err)
	case n == 0:
		return 0, io.EOF
	}
	d.left -= n
	if n < len(b) {
		d.left, d.drained = 0, true // that was all; epoll reports what comes
	}
	return n, nil
}

// receive reads from the ring if there is one, and otherwise from the socket. It returns EAGAIN if
// nothing is there, and nothing at the end.
func (d *descriptor) receive(b []byte) (int, error) {
	if d.ring == nil {
		return rawRead(uintptr(d.fd), b)
	}
	if n, err := d.ring.Read(b); n > 0 || err != nil {
		return n, err
	}
	if !d.ending {
		return 0, unix.EAGAIN
	}
	var stray [1]byte
	n, err := rawRead(uintptr(d.fd), stray[:])
	switch {
	case n > 0:
		return 0, fmt.Errorf("%w: bytes beside a ring", errProtocol)
	case err == unix.EAGAIN:
		d.ending = false
		return 0, err
	}
	// The peer may have written to the ring before it ended the connection.
	if n, err := d.ring.Read(b); n > 0 || err != nil {
		return n, err
	}
	return 0, err
}

// flush implements lingering.
func (d *descriptor) flush() (left bool, err error) {
	if _, err := d.Write(nil); err != nil {
		return false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.rest) > 0, nil
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
	err := os.NewSyscallError("close", unix.Close(d.fd))
	if d.ring != nil {
		err = errors.Join(err, d.ring.close())
	}
	return err
}
