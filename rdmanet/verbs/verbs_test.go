//go:build verbs

package verbs

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFabric(t *testing.T) { fabrictest.Run(t, newFabric) }

func BenchmarkFabric(b *testing.B) { fabrictest.Benchmark(b, newFabric) }

func BenchmarkRegions(b *testing.B) { fabrictest.BenchmarkRegions(b, newFabric) }

func TestRegions(t *testing.T) { fabrictest.RunRegions(t, newFabric) }

// needDevice skips the test where nothing can be tried.
func needDevice(t testing.TB) {
	t.Helper()
	if _, _, _, err := choose(Options{}.withDefaults().Device, Options{}.withDefaults().GID); err != nil {
		t.Skipf("needs an RDMA device (Soft-RoCE will do; scripts/verbs-test boots a guest that has one): %v", err)
	}
}

// identity gives the key and the identity of member i, always the same.
func identity(t testing.TB, i int) (ed25519.PrivateKey, rdmanet.PeerID) {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	seed[0], seed[1] = byte(i), byte(i>>8)
	key := ed25519.NewKeyFromSeed(seed)
	id, err := p2p.PeerID(key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	return key, id
}

// fabric is a set of hosts on one device, as the suite wants it. Where wires can be cut, the control planes dial each other through proxies, and a cut destroys the queue pairs between two hosts without a word, as
// a wire that swallows everything would have them give up.
type fabric struct {
	t      testing.TB
	config fabrictest.Config
	keys   []ed25519.PrivateKey
	// permissions is how permissions are taken back; where it is empty, as the trial says.
	permissions Permissions
	ids         []rdmanet.PeerID

	mu        sync.Mutex
	hosts     []*host
	addresses []string
	wires     map[[2]int]*wire // from, to
	severed   int
}

var _ interface {
	fabrictest.Hanger
	fabrictest.Slow
} = (*fabric)(nil)

func newFabric(t testing.TB, config fabrictest.Config) fabrictest.Fabric {
	needDevice(t)
	if config.MendTimeout < 2*time.Second && slow() {
		config.MendTimeout *= 2 // hosts are to have met by then
	}
	f := &fabric{t: t, config: config, wires: make(map[[2]int]*wire)}
	f.hosts, f.addresses = make([]*host, config.Members), make([]string, config.Members)
	for i := range config.Members {
		key, id := identity(t, i)
		f.keys, f.ids = append(f.keys, key), append(f.ids, id)
	}
	for i := range config.Members {
		for j := range config.Members {
			if config.Cuts && i != j {
				f.wires[[2]int{i, j}] = newWire(t)
			}
		}
	}
	return f
}

// slow tells whether the device is Soft-RoCE, a device in software, which an emulated machine runs another ten times slower.
func slow() bool {
	device, _, _, err := choose(Options{}.withDefaults().Device, Options{}.withDefaults().GID)
	return err == nil && strings.HasPrefix(device, "rxe")
}

// Less implements fabrictest.Slow.
func (f *fabric) Less() int {
	if slow() {
		return 8
	}
	return 1
}

// Patience implements fabrictest.Slow.
func (f *fabric) Patience() int {
	if slow() {
		return 3
	}
	return 1
}

func (f *fabric) ID(i int) rdmanet.PeerID { return f.ids[i] }

// membersOf is the member set as member i sees it.
func (f *fabric) membersOf(i int) map[rdmanet.PeerID]string {
	members := make(map[rdmanet.PeerID]string)
	for j, id := range f.ids {
		members[id] = f.addresses[j]
		if w := f.wires[[2]int{i, j}]; w != nil {
			members[id] = w.address
		}
	}
	return members
}

func (f *fabric) options(key ed25519.PrivateKey) Options {
	return Options{RingBytes: 256 << 10, Control: p2p.Options{
		PrivateKey:   key,
		Listen:       "127.0.0.1:0",
		WindowBytes:  f.config.WindowBytes,
		WindowFrames: f.config.WindowFrames,
		FrameMax:     f.config.FrameMax,
		MendTimeout:  f.config.MendTimeout,
	}}
}

func (f *fabric) Start(i int) (rdmanet.Host, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	options := f.options(f.keys[i])
	if f.addresses[i] != "" {
		options.Control.Listen = f.addresses[i]
	}
	h, err := f.start(options)
	if err != nil {
		return nil, err
	}
	first := f.addresses[i] == ""
	f.hosts[i], f.addresses[i] = h, h.Address()
	for j := range f.ids {
		if w := f.wires[[2]int{j, i}]; w != nil {
			w.lead(h.Address())
		}
		if f.hosts[j] == nil {
			continue
		}
		if err := f.hosts[j].SetMembers(f.membersOf(j)); err != nil {
			return nil, err
		}
	}
	if first && f.config.MendTimeout > 0 && f.config.MendTimeout < 4*time.Second {
		f.introduce(h)
	}
	return h, nil
}

// introduce has a host meet those that are there, which on an emulated machine may take longer than the mend timeout. The caller holds the lock.
func (f *fabric) introduce(h *host) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for j, other := range f.hosts {
		for other != nil && other != h && ctx.Err() == nil {
			if _, _, err := h.control.ask(ctx, f.ids[j], message{kind: messageAsk, name: "none"}); err == nil {
				break
			}
		}
	}
}

func (f *fabric) start(options Options) (*host, error) {
	prove := (*engine).prove
	if f.permissions != "" {
		options.Permissions = f.permissions
		prove = func(*engine, Permissions) error { return nil } // they work, and hold or not
	}
	started, err := start(options, prove)
	if err != nil {
		return nil, err
	}
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		// Some cases leave frames that nobody takes.
		if err := started.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			f.t.Errorf("close: %v", err)
		}
	})
	return started.(*host), nil
}

func (f *fabric) Kill(i int) {
	f.mu.Lock()
	h := f.hosts[i]
	f.hosts[i] = nil
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.Close(ctx) // it says that frames are left
}

func (f *fabric) Sever(i, j int) {
	f.mu.Lock()
	h := f.hosts[i]
	f.severed++
	both := f.severed%4 == 1
	f.mu.Unlock()
	if !both {
		h.severLinks(f.ids[j])
		return
	}
	_ = h.Sever(f.ids[j]) // there may be no connection at the moment
}

func (f *fabric) Cut(i, j int) {
	f.wires[[2]int{i, j}].setCut(true)
	f.wires[[2]int{j, i}].setCut(true)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts[i].silence(f.ids[j])
	f.hosts[j].silence(f.ids[i])
}

// silence destroys the queue pairs that serve a peer without a word.
func (h *host) silence(peer rdmanet.PeerID) {
	h.mu.Lock()
	for key, in := range h.inbound {
		if key.peer == peer {
			in.mu.Lock()
			if in.stream != nil {
				in.stream.end.link.destroy()
			}
			in.mu.Unlock()
		}
	}
	h.mu.Unlock()
	for _, r := range h.openRegions() {
		r.mu.Lock()
		for other, g := range r.grants {
			if other.ID != peer {
				continue
			}
			for _, s := range g.served {
				s.link.destroy()
			}
		}
		r.mu.Unlock()
	}
}

func (f *fabric) Mend(i, j int) {
	f.wires[[2]int{i, j}].setCut(false)
	f.wires[[2]int{j, i}].setCut(false)
}

// Hang implements fabrictest.Hanger: whoever wants to know what the device has done waits, as all of a stopped process would, and what the device does by itself goes on.
func (f *fabric) Hang(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts[i].engine.polling.Lock()
}

// Resume implements fabrictest.Hanger.
func (f *fabric) Resume(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts[i].engine.polling.Unlock()
}

func (f *fabric) Stranger() (rdmanet.Host, error) {
	key, _ := identity(f.t, 9999)
	f.mu.Lock()
	defer f.mu.Unlock()
	options := f.options(key)
	options.Control.Members = f.membersOf(0)
	return f.start(options)
}

// wire is a TCP proxy that can swallow everything without closing a connection.
type wire struct {
	address string

	mu      sync.Mutex
	target  string
	cut     bool
	changed chan struct{}
	ended   bool
	conns   map[net.Conn]struct{}
	work    sync.WaitGroup
}

func newWire(t testing.TB) *wire {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{address: listener.Addr().String(), changed: make(chan struct{}), conns: make(map[net.Conn]struct{})}
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

// whole waits until the wire is not cut; false when it is gone.
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
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// A lane's sender hears of it when the receiver's end of the queue pair is over, and does not wait for its device to find out.
func TestReceiversEndIsOver(t *testing.T) {
	const mend = 60 * time.Second // of which the device may take three quarters
	f := newFabric(t, fabrictest.Config{Members: 2, MendTimeout: mend})
	ctx, cancel := context.WithTimeout(context.Background(), mend/2)
	defer cancel()
	from, err := f.Start(0)
	if err != nil {
		t.Fatal(err)
	}
	to, err := f.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Receive("test", func(rdmanet.Peer, [][]byte) {}); err != nil {
		t.Fatal(err)
	}
	lane, err := from.Lane(f.ID(1), "test")
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		if err := lane.Send(ctx, []byte("frame")); err != nil {
			t.Fatal(err)
		}
		if err := lane.Flushed(ctx); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		to.(*host).severLinks(f.ID(0))
	}
}
