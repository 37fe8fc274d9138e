package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Between two processes of one machine that have found each other (local_linux.go), the batches of
// a lane with a prompt receiver pass through a ring in shared memory: the sender copies them into
// it, and the receiver's poller copies them out. The receiver makes the ring and passes it over the
// UNIX socket. The socket then carries acknowledgements, and its end is the end of the connection.
//
// A poller that has found all its rings empty says so in a word of shared memory, its bell, before
// it waits. Only a sender that finds the word set makes a system call to wake it. So in a round a
// receiver waits once for all lanes, and one of its senders wakes it.
//
// Each end keeps its own position, and checks the other's. But shm trusts all processes of
// the same user in the network namespace: they can stop this host's lanes, or pass for a member.

const (
	// ringBytes is the size of a ring. It must be a power of two.
	ringBytes = 512 << 10
	// ringData is where the bytes begin. The positions are before them, each in a cache line of its
	// own.
	ringData    = 4 << 10
	ringWritten = 0
	ringRead    = 64
	bellBytes   = 4 << 10
	// A writer looks at a full ring again after ringPauseMin, and then less and less often.
	ringPauseMin = 50 * time.Microsecond
	ringPauseMax = 5 * time.Millisecond
)

// The first byte that the receiver of a lane sends over a UNIX socket.
const (
	offerNone = 'n' // batches go over the socket
	offerRing = 'r' // with it come the ring, the bell, and the event that wakes the poller
)

// shared is memory that two processes share.
type shared struct{ bytes []byte }

// newShared makes shared memory that neither end can shrink, and returns its descriptor.
func newShared(name string, size int) (memory shared, fd int, err error) {
	if fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return shared{}, 0, os.NewSyscallError("memfd_create", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err != nil {
		err = os.NewSyscallError("ftruncate", err)
	} else if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sharedSeals); err != nil {
		err = os.NewSyscallError("fcntl", err)
	} else {
		memory, err = mapShared(fd, size)
	}
	if err != nil {
		return shared{}, 0, errors.Join(err, unix.Close(fd))
	}
	return memory, fd, nil
}

// sharedSeals keep the memory from shrinking. A process that uses memory which is gone is killed.
const sharedSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// mapShared maps shared memory of a descriptor, which it does not close.
func mapShared(fd, size int) (shared, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	var status unix.Stat_t
	switch {
	case err != nil:
		return shared{}, os.NewSyscallError("fcntl", err)
	case seals&unix.F_SEAL_SHRINK == 0:
		return shared{}, fmt.Errorf("%w: shared memory can shrink", errProtocol)
	}
	if err := unix.Fstat(fd, &status); err != nil {
		return shared{}, os.NewSyscallError("fstat", err)
	}
	if status.Size != int64(size) {
		return shared{}, fmt.Errorf("%w: %d bytes of shared memory, want %d", errProtocol,
			status.Size, size)
	}
	bytes, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return shared{}, os.NewSyscallError("mmap", err)
	}
	return shared{bytes}, nil
}

// word returns the word at an offset, which is a multiple of 8.
func (s shared) word(at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&s.bytes[at]))
}

func (s shared) unmap() error { return os.NewSyscallError("munmap", unix.Munmap(s.bytes)) }

// bell wakes a poller that waits. Its word is 1 while the poller may be waiting.
type bell struct {
	memory  shared
	waiting *atomic.Uint64
	fd      int // of the memory, if this process made it
	event   int // an eventfd
}

func newBell() (*bell, error) {
	memory, fd, err := newShared("ledgerd bell", bellBytes)
	if err != nil {
		return nil, err
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("eventfd", err), memory.unmap(), unix.Close(fd))
	}
	b := &bell{memory, memory.word(0), fd, event}
	if err := checkEvent(event); err != nil { // as peers will
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// checkEvent returns an error if a descriptor is no eventfd, or if writing to it may wait.
func checkEvent(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	kind, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return fmt.Errorf("the fabric shm needs /proc: %w", err)
	}
	if kind != "anon_inode:[eventfd]" || flags&unix.O_NONBLOCK == 0 {
		return fmt.Errorf("%w: the event is %q with flags %#x", errProtocol, kind, flags)
	}
	return nil
}

// ring wakes the poller if it may be waiting.
func (b *bell) ring() {
	if b.waiting.Load() != 0 && b.waiting.CompareAndSwap(1, 0) {
		b.wake()
	}
}

// wake wakes the poller in any case.
func (b *bell) wake() {
	one := [8]byte{1}
	if _, err := rawWrite(uintptr(b.event), [][]byte{one[:]}); err == unix.EAGAIN {
		// The counter is full, so the write woke nobody.
		var count [8]byte
		_, _ = rawRead(uintptr(b.event), count[:])
		_, _ = rawWrite(uintptr(b.event), [][]byte{one[:]})
	}
}

func (b *bell) close() error {
	return errors.Join(b.memory.unmap(), unix.Close(b.fd), unix.Close(b.event))
}

// ringReader is the receiver's end of a ring. One goroutine at a time uses it.
type ringReader struct {
	memory  shared
	data    []byte
	written *atomic.Uint64
	read    *atomic.Uint64
	at      uint64 // the own position
}

// newRingReader makes a ring, and returns its descriptor, which the caller closes.
func newRingReader() (r *ringReader, fd int, err error) {
	memory, fd, err := newShared("ledgerd ring", ringData+ringBytes)
	if err != nil {
		return nil, 0, err
	}
	return &ringReader{memory: memory, data: memory.bytes[ringData:],
		written: memory.word(ringWritten), read: memory.word(ringRead)}, fd, nil
}

// empty reports whether there is nothing to read.
func (r *ringReader) empty() bool { return r.written.Load() == r.at }

// Read reads what there is, which may be nothing.
func (r *ringReader) Read(b []byte) (int, error) {
	there := r.written.Load() - r.at
	if there > ringBytes {
		return 0, fmt.Errorf("%w: a ring of %d bytes has %d", errProtocol, ringBytes, there)
	}
	b = b[:min(uint64(len(b)), there)]
	from := r.at % ringBytes
	n := copy(b, r.data[from:])
	copy(b[n:], r.data)
	r.at += uint64(len(b))
	r.read.Store(r.at)
	return len(b), nil
}

func (r *ringReader) close() error {
	if r == nil {
		return nil
	}
	return r.memory.unmap()
}

// ringWriter is the sender's end of a ring, with the bell of the receiver's poller.
type ringWriter struct {
	stopped atomic.Bool

	mu      sync.Mutex
	closed  bool
	memory  shared
	data    []byte
	written *atomic.Uint64
	read    *atomic.Uint64
	at      uint64 // the own position
	bell    bell
}

// newRingWriter uses a ring and a bell of which another process sent the descriptors. It owns the
// event from then on, and the caller closes the others.
func newRingWriter(ring, bellMemory, event int) (*ringWriter, error) {
	if err := checkEvent(event); err != nil {
		return nil, err
	}
	memory, err := mapShared(ring, ringData+ringBytes)
	if err != nil {
		return nil, err
	}
	woken, err := mapShared(bellMemory, bellBytes)
	if err != nil {
		return nil, errors.Join(err, memory.unmap())
	}
	return &ringWriter{memory: memory, data: memory.bytes[ringData:],
		written: memory.word(ringWritten), read: memory.word(ringRead),
		bell: bell{memory: woken, waiting: woken.word(0), event: event}}, nil
}

// write writes as much as there is room for, and returns how many bytes that is.
func (w *ringWriter) write(pieces net.Buffers) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.stopped.Load() {
		return 0, net.ErrClosed
	}
	used := w.at - w.read.Load()
	if used > ringBytes {
		return 0, fmt.Errorf("%w: a ring of %d bytes has %d", errProtocol, ringBytes, used)
	}
	room := int(ringBytes - used)
	for _, piece := range pieces {
		piece = piece[:min(len(piece), room-n)]
		from := (w.at + uint64(n)) % ringBytes
		first := copy(w.data[from:], piece)
		copy(w.data, piece[first:])
		n += len(piece)
	}
	if n > 0 {
		w.at += uint64(n)
		w.written.Store(w.at)
		w.bell.ring()
	}
	return n, nil
}

// writeAll writes all pieces, and waits for room as long as it takes. It changes the list.
func (w *ringWriter) writeAll(pieces net.Buffers) error {
	for pause := ringPauseMin; ; pause = min(2*pause, ringPauseMax) {
		n, err := w.write(pieces)
		if err != nil {
			return err
		}
		if pieces = without(pieces, n); len(pieces) == 0 {
			return nil
		}
		if n > 0 {
			pause = ringPauseMin
		}
		time.Sleep(pause)
	}
}

// stop makes all current and later writes return an error.
func (w *ringWriter) stop() {
	if w != nil {
		w.stopped.Store(true)
	}
}

func (w *ringWriter) close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	return errors.Join(w.memory.unmap(), w.bell.memory.unmap(), unix.Close(w.bell.event))
}

// offerRing tells the sender of a lane over a UNIX socket how its batches come: for a prompt
// receiver through a ring, which it returns.
func (c *directConn) offerRing(prompt bool) (*ringReader, error) {
	conn, local := c.socket.(*net.UnixConn)
	if !local {
		return nil, nil
	}
	if !prompt {
		_, err := conn.Write([]byte{offerNone})
		return nil, err
	}
	ring, fd, err := newRingReader()
	if err != nil {
		return nil, err
	}
	bell := c.host.poller.bell
	_, _, err = conn.WriteMsgUnix([]byte{offerRing}, unix.UnixRights(fd, bell.fd, bell.event), nil)
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return nil, errors.Join(err, ring.close())
	}
	return ring, nil
}

// takeRing reads the offer of a lane's receiver over a UNIX socket. It gives up when ctx ends.
func (c *directConn) takeRing(ctx context.Context) error {
	conn, local := c.socket.(*net.UnixConn)
	if !local {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { unblock(conn) })
	ring, err := readOffer(conn)
	if !stop() {
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("ring: %w", err), ring.close())
	}
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	c.out = ring
	return nil
}

// readOffer reads an offer. It returns nil if batches go over the socket.
func readOffer(conn *net.UnixConn) (*ringWriter, error) {
	var word [1]byte
	rights := make([]byte, unix.CmsgSpace(3*4))
	n, size, _, _, err := conn.ReadMsgUnix(word[:], rights)
	if err != nil {
		return nil, err
	}
	fds, err := takeRights(rights[:size])
	switch {
	case err != nil:
	case n == 1 && word[0] == offerNone && len(fds) == 0:
		return nil, nil
	case n == 1 && word[0] == offerRing && len(fds) == 3:
		var w *ringWriter
		if w, err = newRingWriter(fds[0], fds[1], fds[2]); err == nil {
			return w, errors.Join(unix.Close(fds[0]), unix.Close(fds[1]))
		}
	default:
		err = fmt.Errorf("%w: an offer of %q with %d descriptors", errProtocol, word[:n], len(fds))
	}
	for _, fd := range fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return nil, err
}

// takeRights returns the descriptors that came with a message.
func takeRights(rights []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, os.NewSyscallError("recvmsg", err)
	}
	for i := range messages {
		more, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fds, os.NewSyscallError("recvmsg", err)
		}
		fds = append(fds, more...)
	}
	return fds, nil
}
