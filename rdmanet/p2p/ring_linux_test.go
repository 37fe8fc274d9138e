package p2p

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

// unixPair returns both ends of a UNIX socket.
func unixPair(t testing.TB) (near, far *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "unix")
		conn, err := net.FileConn(file)
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		ends[i] = conn.(*net.UnixConn)
		t.Cleanup(func() { conn.Close() })
	}
	return ends[0], ends[1]
}

// ringPair returns both ends of a ring, and the bell of the reader.
func ringPair(t testing.TB) (*ringReader, *ringWriter, *bell) {
	t.Helper()
	b, err := newBell()
	if err != nil {
		t.Fatal(err)
	}
	near, far := unixPair(t)
	r, err := (&directConn{host: &Host{poller: &poller{bell: b}}, socket: near}).offerRing(true)
	if err != nil {
		t.Fatal(err)
	}
	c := &directConn{host: &Host{}, socket: far}
	if err := c.takeRing(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.close(), c.out.close(), c.out.close(), b.close()); err != nil {
			t.Error(err)
		}
	})
	return r, c.out, b
}

// TestRing writes and reads pieces of all sizes in any order. The bytes come in order, each once,
// and no more of them are under way than the ring has room for.
func TestRing(t *testing.T) {
	t.Parallel()
	r, w, _ := ringPair(t)
	rapid.Check(t, func(t *rapid.T) {
		// The last case may have left something.
		if _, err := r.Read(make([]byte, ringBytes)); err != nil {
			t.Fatal(err)
		}
		next, want := byte(0), byte(0) // the last bytes that were written and read
		under := 0
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 100),
				rapid.IntRange(ringBytes/2, ringBytes+1)), 1, 3).Draw(t, "sizes")
			if rapid.Bool().Draw(t, "read") {
				b := make([]byte, sizes[0])
				n, err := r.Read(b)
				if err != nil || n != min(under, len(b)) {
					t.Fatalf("read %d bytes of %d, %v", n, under, err)
				}
				for _, got := range b[:n] {
					if want++; got != want {
						t.Fatalf("read %d, want %d", got, want)
					}
				}
				under -= n
				continue
			}
			var pieces net.Buffers
			total := 0
			for _, size := range sizes {
				piece := make([]byte, size)
				for i := range piece {
					total++
					piece[i] = next + byte(total)
				}
				pieces = append(pieces, piece)
			}
			n, err := w.write(pieces)
			if err != nil || n != min(total, ringBytes-under) {
				t.Fatalf("wrote %d of %d bytes into a ring with %d, %v", n, total, under, err)
			}
			next += byte(n)
			under += n
			if r.empty() != (under == 0) {
				t.Fatalf("a ring with %d bytes is empty: %v", under, r.empty())
			}
		}
	})
}

// TestRingWithAWrongPosition checks that neither end believes a position that cannot be.
func TestRingWithAWrongPosition(t *testing.T) {
	t.Parallel()
	for _, position := range []uint64{ringBytes + 1, 1 << 63} {
		r, w, _ := ringPair(t)
		w.written.Store(position)
		if n, err := r.Read(make([]byte, 8)); n != 0 || !errors.Is(err, errProtocol) {
			t.Errorf("written %d: read %d bytes, %v", position, n, err)
		}
		r, w, _ = ringPair(t)
		r.read.Store(position)
		if n, err := w.write(net.Buffers{{1}}); n != 0 || !errors.Is(err, errProtocol) {
			t.Errorf("read %d: wrote %d bytes, %v", position, n, err)
		}
	}
}

// TestRingWaitsForRoom writes more than a ring holds while another goroutine reads. A writer that
// waits returns once it is stopped or closed.
func TestRingWaitsForRoom(t *testing.T) {
	t.Parallel()
	r, w, _ := ringPair(t)
	want := make([]byte, 3*ringBytes+5)
	for i := range want {
		want[i] = byte(i * i >> 3)
	}
	done := make(chan error, 1)
	go func() { done <- w.writeAll(net.Buffers{want[:7], nil, want[7:]}) }()
	var got []byte
	b := make([]byte, 100_000)
	for len(got) < len(want) {
		n, err := r.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b[:n]...)
	}
	if err := <-done; err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes arrive, %v", err)
	}
	for name, end := range map[string]func(){"stop": w.stop, "close": func() { _ = w.close() }} {
		go func() { done <- w.writeAll(net.Buffers{make([]byte, ringBytes), {1}}) }()
		end()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBellWakesAPollerThatWaits checks that the event is raised once for a poller that waits, and
// not for one that does not.
func TestBellWakesAPollerThatWaits(t *testing.T) {
	t.Parallel()
	_, w, b := ringPair(t)
	raised := func() uint64 {
		var count [8]byte
		if n, err := unix.Read(b.event, count[:]); errors.Is(err, unix.EAGAIN) {
			return 0
		} else if err != nil || n != len(count) {
			t.Fatal(n, err)
		}
		return binary.NativeEndian.Uint64(count[:])
	}
	for _, waiting := range []uint64{0, 1, 0, 1} {
		b.waiting.Store(waiting)
		for range 3 {
			if _, err := w.write(net.Buffers{{1}}); err != nil {
				t.Fatal(err)
			}
		}
		if count := raised(); count != waiting {
			t.Errorf("waiting %d: the event was raised %d times", waiting, count)
		}
	}
	if _, err := w.write(nil); err != nil || raised() != 0 {
		t.Errorf("nothing wakes the poller, %v", err)
	}
}

// TestOffers checks what a sender makes of all that a peer may offer.
func TestOffers(t *testing.T) {
	t.Parallel()
	memory := func(size int, seals int) int {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err == nil {
			err = unix.Ftruncate(fd, int64(size))
		}
		if err == nil && seals != 0 {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	ring, small := memory(ringData+ringBytes, sharedSeals), memory(100, sharedSeals)
	woken, loose := memory(bellBytes, sharedSeals), memory(ringData+ringBytes, 0)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	file := int(null.Fd())
	events := [2]int{}
	for i, flags := range []int{unix.EFD_NONBLOCK, 0} {
		if events[i], err = unix.Eventfd(0, unix.EFD_CLOEXEC|flags); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(events[i])
	}
	event, waits := events[0], events[1]
	for _, test := range []struct {
		name string
		word string
		fds  []int
		ring bool
		fine bool
	}{
		{"none", "n", nil, false, true},
		{"a ring", "r", []int{ring, woken, event}, true, true},
		{"an event that is none", "r", []int{ring, woken, file}, false, false},
		{"an event that waits", "r", []int{ring, woken, waits}, false, false},
		{"none with descriptors", "n", []int{ring, woken, file}, false, false},
		{"a ring without descriptors", "r", nil, false, false},
		{"too few descriptors", "r", []int{ring, woken}, false, false},
		{"too many descriptors", "r", []int{ring, woken, file, file, file, file}, false, false},
		{"another word", "x", []int{ring, woken, file}, false, false},
		{"a small ring", "r", []int{small, woken, event}, false, false},
		{"a small bell", "r", []int{ring, small, event}, false, false},
		{"a ring that can shrink", "r", []int{loose, woken, event}, false, false},
		{"no memory", "r", []int{file, woken, event}, false, false},
		{"an end", "", nil, false, false},
	} {
		near, far := unixPair(t)
		var rights []byte
		if len(test.fds) > 0 {
			rights = unix.UnixRights(test.fds...)
		}
		if test.word != "" {
			if _, _, err := near.WriteMsgUnix([]byte(test.word), rights, nil); err != nil {
				t.Fatal(err)
			}
		}
		near.Close()
		c := &directConn{host: &Host{}, socket: far}
		err := c.takeRing(t.Context())
		if (err == nil) != test.fine || (c.out != nil) != test.ring {
			t.Errorf("%s: ring %v, error %v", test.name, c.out != nil, err)
		}
		if err := c.out.close(); err != nil {
			t.Error(err)
		}
	}
}

// polledRing is a lane's connection with a ring that a poller serves.
type polledRing struct {
	stream *descriptor
	to     *directConn
	read   atomic.Int64
}

func newPolledRing(t *testing.T, p *poller) *polledRing {
	t.Helper()
	near, far := unixPair(t)
	from := &directConn{host: &Host{poller: p}, socket: near}
	ring, err := from.offerRing(true)
	if err != nil {
		t.Fatal(err)
	}
	c := &polledRing{to: &directConn{host: &Host{}, socket: far, wire: far}}
	if err := c.to.takeRing(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.stream, err = from.detach(ring); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *polledRing) poll() (bool, error) {
	var scrap [2000]byte
	for {
		n, err := c.stream.Read(scrap[:])
		c.read.Add(int64(n))
		if errors.Is(err, lane.ErrNotYet) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
}

// serve serves the connection until its end, at which want bytes must have come.
func (c *polledRing) serve(t *testing.T, p *poller, want int) {
	defer c.stream.Close()
	if err := p.serve(c.stream, nil, c.poll); !errors.Is(err, io.EOF) ||
		c.read.Load() != int64(want) {
		t.Errorf("read %d bytes of %d, %v", c.read.Load(), want, err)
	}
}

func ringPoller(t *testing.T) *poller {
	t.Helper()
	p, err := newPoller()
	if err == nil {
		err = p.useRings()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// TestPollerHearsOfEveryWrite writes a byte as soon as the poller has read the one before, and
// nothing else would wake it. So many writes come between its last look at the ring and its wait.
// The first one comes before it knows the ring.
func TestPollerHearsOfEveryWrite(t *testing.T) {
	t.Parallel()
	const writes = 20_000
	p := ringPoller(t)
	c := newPolledRing(t, p)
	var work sync.WaitGroup
	defer work.Wait()
	defer c.to.Reset()
	for i := range int64(writes) {
		deadline := time.Now().Add(time.Minute)
		if err := c.to.out.writeAll(net.Buffers{{byte(i)}}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			work.Go(func() { c.serve(t, p, writes) })
		}
		for c.read.Load() <= i {
			if runtime.Gosched(); time.Now().After(deadline) {
				t.Fatalf("nobody reads write %d", i)
			}
		}
	}
}

// TestPollerReadsRingsToTheirEnd has many goroutines write to rings and then end their connections.
func TestPollerReadsRingsToTheirEnd(t *testing.T) {
	t.Parallel()
	const rings, writes = 2 * pollEvents, 200
	p := ringPoller(t)
	var work sync.WaitGroup
	for i := range rings {
		c := newPolledRing(t, p)
		work.Go(func() { c.serve(t, p, writes*(i+1)) })
		work.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range writes {
				_ = c.to.out.writeAll(net.Buffers{make([]byte, i+1)})
				if random.IntN(8) == 0 {
					time.Sleep(time.Duration(random.IntN(200)) * time.Microsecond)
				}
			}
			_ = c.to.Reset()
		})
	}
	work.Wait()
}

// TestRingAndBytesBeside checks that a peer that sends bytes beside a ring is hung up on.
func TestRingAndBytesBeside(t *testing.T) {
	t.Parallel()
	r, _, _ := ringPair(t)
	near, far := unixPair(t)
	d, err := (&directConn{host: &Host{}, socket: near}).detach(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.ring, d.left = r, 100
	defer func() { d.ring = nil }() // it is closed elsewhere
	if _, err := d.Read(make([]byte, 10)); !errors.Is(err, lane.ErrNotYet) {
		t.Error(err)
	}
	if _, err := far.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	d.left, d.ending = 100, true
	if _, err := d.Read(make([]byte, 10)); !errors.Is(err, errProtocol) {
		t.Error(err)
	}
}
