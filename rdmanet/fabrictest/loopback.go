package fabrictest

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Listener is a host that listens on loopback and knows its members by their addresses.
type Listener interface {
	rdmanet.Host
	// Address returns the address on which it listens, as host:port.
	Address() string
	// SetMembers replaces the member set, with the address of each.
	SetMembers(map[rdmanet.PeerID]string) error
}

// Member holds the parameters with which a host of a Loopback is started.
type Member struct {
	Key ed25519.PrivateKey
	// Listen is the address to listen on, as host:port. The port is 0 the first time, and the
	// assigned port from then on.
	Listen string
	// Members is set only for a stranger, which is started after the others. The others get theirs
	// with SetMembers.
	Members map[rdmanet.PeerID]string
}

// stranger is the key number of a host that is not a member.
const stranger = 9999

// Key returns the key of member i, always the same.
func Key(i int) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0], seed[1] = byte(i), byte(i>>8)
	return ed25519.NewKeyFromSeed(seed)
}

// Loopback implements Fabric except for Sever: a set of hosts on loopback, each with its own
// address, the same over restarts. If Config.Cuts is set, every host dials every other one through
// a proxy.
type Loopback[H Listener] struct {
	t     testing.TB
	begin func(Member) (H, error)
	ids   []rdmanet.PeerID

	mu        sync.Mutex
	hosts     map[int]H // the running ones
	addresses []string
	wires     map[[2]int]*wire // from, to
}

// NewLoopback returns a Loopback in which no member is started. identity returns the identity of
// the host with that key. begin starts a host.
func NewLoopback[H Listener](t testing.TB, config Config,
	identity func(ed25519.PublicKey) (rdmanet.PeerID, error),
	begin func(Member) (H, error)) *Loopback[H] {
	f := &Loopback[H]{t: t, begin: begin, hosts: make(map[int]H),
		addresses: make([]string, config.Members), wires: make(map[[2]int]*wire)}
	for i := range config.Members {
		id, err := identity(Key(i).Public().(ed25519.PublicKey))
		if err != nil {
			t.Fatal(err)
		}
		f.ids = append(f.ids, id)
		for j := range config.Members {
			if config.Cuts && i != j {
				f.wires[[2]int{i, j}] = newWire(t)
			}
		}
	}
	return f
}

// ID implements Fabric.
func (f *Loopback[H]) ID(i int) rdmanet.PeerID { return f.ids[i] }

// Host returns member i, which must be running.
func (f *Loopback[H]) Host(i int) H {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hosts[i]
}

// membersOf returns the member set as member i sees it.
func (f *Loopback[H]) membersOf(i int) map[rdmanet.PeerID]string {
	members := make(map[rdmanet.PeerID]string)
	for j, id := range f.ids {
		members[id] = f.addresses[j]
		if w := f.wires[[2]int{i, j}]; w != nil {
			members[id] = w.address
		}
	}
	return members
}

// Start implements Fabric.
func (f *Loopback[H]) Start(i int) (rdmanet.Host, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	member := Member{Key: Key(i), Listen: f.addresses[i]}
	if member.Listen == "" {
		member.Listen = "127.0.0.1:0"
	}
	h, err := f.start(member)
	if err != nil {
		return nil, err
	}
	f.hosts[i], f.addresses[i] = h, h.Address()
	for j := range f.ids {
		if w := f.wires[[2]int{j, i}]; w != nil {
			w.lead(h.Address())
		}
		if other, runs := f.hosts[j]; runs {
			if err := other.SetMembers(f.membersOf(j)); err != nil {
				return nil, err
			}
		}
	}
	return h, nil
}

func (f *Loopback[H]) start(member Member) (H, error) {
	h, err := f.begin(member)
	if err != nil {
		return h, err
	}
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		// Some cases leave frames that no peer takes.
		if err := h.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, context.Canceled) {
			f.t.Errorf("close: %v", err)
		}
	})
	return h, nil
}

// Kill implements Fabric.
func (f *Loopback[H]) Kill(i int) {
	f.mu.Lock()
	h := f.hosts[i]
	delete(f.hosts, i)
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.Close(ctx) // its error is that frames are left
}

// Cut implements Fabric.
func (f *Loopback[H]) Cut(i, j int) { f.setCut(i, j, true) }

// Mend implements Fabric.
func (f *Loopback[H]) Mend(i, j int) { f.setCut(i, j, false) }

func (f *Loopback[H]) setCut(i, j int, cut bool) {
	f.wires[[2]int{i, j}].setCut(cut)
	f.wires[[2]int{j, i}].setCut(cut)
}

// Tap calls see with all bytes that pass the wires from now on. Several goroutines may call see.
func (f *Loopback[H]) Tap(see func([]byte)) {
	for _, w := range f.wires {
		w.mu.Lock()
		w.tap = see
		w.mu.Unlock()
	}
}

// Stranger implements Fabric.
func (f *Loopback[H]) Stranger() (rdmanet.Host, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h, err := f.start(Member{Key: Key(stranger), Listen: "127.0.0.1:0", Members: f.membersOf(0)})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// wire is a TCP proxy that can drop everything without closing a connection.
type wire struct {
	address string

	mu      sync.Mutex
	target  string
	cut     bool
	changed chan struct{}
	ended   bool
	tap     func([]byte) // called with all bytes that pass; may be nil
	conns   map[net.Conn]struct{}
	work    sync.WaitGroup
}

func newWire(t testing.TB) *wire {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{address: listener.Addr().String(), changed: make(chan struct{}),
		conns: make(map[net.Conn]struct{})}
	w.work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			w.work.Go(func() { w.serve(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		w.mu.Lock()
		w.ended = true
		for conn := range w.conns {
			conn.Close()
		}
		w.change()
		w.mu.Unlock()
		w.work.Wait()
	})
	return w
}

func (w *wire) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *wire) lead(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.target = target
}

func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	w.change()
}

// whole waits until the wire is not cut. It returns false if the wire has ended.
func (w *wire) whole() bool {
	for {
		w.mu.Lock()
		cut, ended, changed := w.cut, w.ended, w.changed
		w.mu.Unlock()
		if ended || !cut {
			return !ended
		}
		<-changed
	}
}

func (w *wire) hold(conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		conn.Close()
		return false
	}
	w.conns[conn] = struct{}{}
	return true
}

func (w *wire) serve(in net.Conn) {
	defer in.Close()
	if !w.hold(in) || !w.whole() {
		return
	}
	w.mu.Lock()
	target := w.target
	w.mu.Unlock()
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer out.Close()
	if !w.hold(out) {
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { w.pump(in, out) })
	pumps.Go(func() { w.pump(out, in) })
	pumps.Wait()
}

func (w *wire) pump(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !w.whole() {
				return
			}
			w.mu.Lock()
			if w.tap != nil {
				w.tap(buffer[:n])
			}
			w.mu.Unlock()
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
