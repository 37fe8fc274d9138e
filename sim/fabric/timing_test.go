package fabric_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/fabric"
	"github.com/ledgerd/ledgerd/sim/network"
)

// timed is a network under a timing: hosts with one queue each, and their attachments to a region
// of each other host.
type timed struct {
	t           *testing.T
	network     *fabric.Network
	hosts       []*fabric.Host
	queues      []rdmanet.Queue
	regions     []rdmanet.Region
	attachments [][]rdmanet.Attachment
}

func newTimed(t *testing.T, hosts int, options fabric.Options) *timed {
	t.Helper()
	w := &timed{t: t, network: fabric.New(options)}
	t.Cleanup(w.network.Close)
	for i := range hosts {
		host, err := w.network.Start(rdmanet.PeerID(fmt.Sprint("host-", i)))
		if err != nil {
			t.Fatal(err)
		}
		region, err := host.Expose("memory", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		queue, err := host.Queue(1024)
		if err != nil {
			t.Fatal(err)
		}
		w.hosts, w.regions = append(w.hosts, host), append(w.regions, region)
		w.queues = append(w.queues, queue)
	}
	for i, host := range w.hosts {
		w.attachments = append(w.attachments, make([]rdmanet.Attachment, hosts))
		for j, peer := range w.hosts {
			if i == j {
				continue
			}
			if err := w.regions[j].Grant(host.Peer(), rdmanet.PermissionReadWrite); err != nil {
				t.Fatal(err)
			}
			a, err := host.Attach(context.Background(), peer.ID(), "memory")
			if err != nil {
				t.Fatal(err)
			}
			w.attachments[i][j] = a
		}
	}
	return w
}

// post makes a host post an operation of a size to a peer.
func (w *timed) post(from, to int, kind rdmanet.OperationKind, size int) {
	w.t.Helper()
	b := make([]byte, size)
	for i := range b {
		b[i] = 1
	}
	if err := w.queues[from].Post(rdmanet.Operation{To: w.attachments[from][to], Kind: kind,
		Bytes: b}); err != nil {
		w.t.Fatal(err)
	}
}

// take waits until a host has taken a number of completions, and returns the instant.
func (w *timed) take(host, count int) time.Duration {
	w.t.Helper()
	var done [1]rdmanet.Completion
	for range count {
		if _, err := w.queues[host].Wait(context.Background(), done[:]); err != nil ||
			done[0].Err != nil {
			w.t.Fatal(err, done[0].Err)
		}
	}
	return w.network.Now()
}

// near reports whether two times differ by at most 1 %.
func near(got, want time.Duration) bool {
	return math.Abs(float64(got-want)) <= 0.01*float64(want)
}

var table41 = fabric.LogGP{RDMA: network.InfiniBandRDMA}

// TestSingleOperationsTakeTheModelsTime checks that single operations take the time of equation
// 4.1, and that a write has landed as a whole, and not in part before.
func TestSingleOperationsTakeTheModelsTime(t *testing.T) {
	t.Parallel()
	for _, kind := range []rdmanet.OperationKind{rdmanet.OperationRead, rdmanet.OperationWrite} {
		for _, size := range []int{1, 8, 64, 128, 129, 1024, 2048, 4096, 4097, 65536, 1 << 20} {
			w := newTimed(t, 2, fabric.Options{Timing: table41})
			want := table41.WriteTime(size)
			if kind == rdmanet.OperationRead {
				want = table41.ReadTime(size)
			}
			for range 2 { // the second begins when the first is over
				began := w.network.Now()
				w.post(0, 1, kind, size)
				if got := w.take(0, 1) - began; !near(got, want) {
					t.Errorf("a %s of %d bytes takes %v, want %v", kind, size, got, want)
				}
				if busy := w.hosts[0].BusyUntil(); busy != w.network.Now() {
					t.Errorf("at %v the processor is busy until %v", w.network.Now(), busy)
				}
			}
		}
	}
}

// TestWritesLandHalfway checks when a write and a read see the owner's memory.
func TestWritesLandHalfway(t *testing.T) {
	t.Parallel()
	w := newTimed(t, 2, fabric.Options{Timing: table41})
	w.post(0, 1, rdmanet.OperationWrite, 4096)
	for w.regions[1].Load(0) == 0 {
		if w.regions[1].Load(4088) != 0 || !w.network.Step() {
			t.Fatal("it lands in part, or never")
		}
	}
	model := table41.Write
	want := model.Overhead + model.Latency/2 + model.Bytes(4096)
	if got := w.network.Now(); !near(got, want) || w.regions[1].Load(4088) == 0 {
		t.Errorf("it lands after %v, want %v", got, want)
	}
}

// TestDistances checks that the distance between two hosts counts on the way there and back.
func TestDistances(t *testing.T) {
	t.Parallel()
	const there, back = 3 * time.Millisecond, 5 * time.Millisecond
	w := newTimed(t, 2, fabric.Options{Timing: table41,
		Distance: func(from, _ rdmanet.PeerID) time.Duration {
			if from == "host-0" {
				return there
			}
			return back
		}})
	w.post(0, 1, rdmanet.OperationWrite, 8)
	for w.regions[1].Load(0) == 0 && w.network.Step() {
	}
	model := table41.WriteInline
	want := model.Overhead + model.Bytes(8) + model.Latency/2 + there
	if got := w.network.Now(); !near(got, want) {
		t.Errorf("a write lands after %v, want %v", got, want)
	}
	if got, want := w.take(0, 1), table41.WriteTime(8)+there+back; !near(got, want) {
		t.Errorf("a write takes %v, want %v", got, want)
	}
}

// TestOperationsOccupyTheirHost checks what operations of one host wait for.
func TestOperationsOccupyTheirHost(t *testing.T) {
	t.Parallel()
	read, write, short := table41.Read, table41.Write, table41.WriteInline
	const large, count = 65536, 50
	bytes := write.Bytes(large)
	for _, c := range []struct {
		name string
		play func(w *timed) time.Duration
		want time.Duration
	}{
		{"short writes wait for the processor", func(w *timed) time.Duration {
			for i := range count {
				w.post(0, 1+i%2, rdmanet.OperationWrite, 8)
			}
			return w.take(0, count)
		}, table41.WriteTime(8) + (count-1)*(short.Overhead+table41.Polling)},
		{"large writes wait for the link", func(w *timed) time.Duration {
			for i := range count {
				w.post(0, 1+i%2, rdmanet.OperationWrite, large)
			}
			return w.take(0, count)
		}, table41.WriteTime(large) + (count-1)*bytes},
		{"large reads wait for the link", func(w *timed) time.Duration {
			for i := range count {
				w.post(0, 1+i%2, rdmanet.OperationRead, large)
			}
			return w.take(0, count)
		}, table41.ReadTime(large) + (count-1)*read.Bytes(large)},
		{"reads and writes have a direction each", func(w *timed) time.Duration {
			for i := range count {
				w.post(0, 1, rdmanet.OperationKind(1+i%2), large)
			}
			return w.take(0, count)
		}, table41.ReadTime(large) + count/2*read.Bytes(large)},
		{"hosts do not wait for each other", func(w *timed) time.Duration {
			w.post(0, 1, rdmanet.OperationWrite, large)
			w.post(2, 1, rdmanet.OperationWrite, large)
			w.take(0, 1)
			return w.take(2, 1)
		}, table41.WriteTime(large)},
	} {
		if got := c.play(newTimed(t, 3, fabric.Options{Timing: table41})); math.Abs(
			float64(got-c.want)) > 0.05*float64(c.want) {
			t.Errorf("%s: it takes %v, want %v", c.name, got, c.want)
		}
	}
}

// slowOwner is a timing in which only the owner's part takes time.
type slowOwner struct{}

func (slowOwner) Operation(rdmanet.OperationKind, int, bool) fabric.Cost {
	return fabric.Cost{Target: time.Millisecond}
}
func (slowOwner) Poll() time.Duration { return 0 }

// TestOwnersServeOneAfterTheOther checks that operations of several hosts wait for each other at
// their owner.
func TestOwnersServeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	w := newTimed(t, 4, fabric.Options{Timing: slowOwner{}})
	for host := 1; host < 4; host++ {
		w.post(host, 0, rdmanet.OperationWrite, 8)
		w.post(host, 0, rdmanet.OperationRead, 8)
	}
	last := time.Duration(0)
	for host := 1; host < 4; host++ {
		last = max(last, w.take(host, 2))
	}
	if !near(last, 6*time.Millisecond) {
		t.Errorf("six operations of a millisecond take %v", last)
	}
}

// TestTimeoutsCountFromTheLink checks that an operation which waits for its own host's link does
// not time out, and that one to a host that is gone does.
func TestTimeoutsCountFromTheLink(t *testing.T) {
	t.Parallel()
	w := newTimed(t, 2, fabric.Options{Timing: table41, OperationTimeout: time.Millisecond})
	for range 100 {
		w.post(0, 1, rdmanet.OperationWrite, 1<<20)
	}
	if took := w.take(0, 100); took < 20*time.Millisecond {
		t.Errorf("100 MiB take %v", took)
	}
	w.network.Crash("host-1")
	began := w.network.Now()
	w.post(0, 1, rdmanet.OperationWrite, 8)
	var done [1]rdmanet.Completion
	if _, err := w.queues[0].Wait(context.Background(), done[:]); err != nil || done[0].Err == nil {
		t.Errorf("a write to a host that is gone: %v, %v", done[0], err)
	}
	if took := w.network.Now() - began; !near(took, time.Millisecond) {
		t.Errorf("it ends after %v", took)
	}
}

// TestTimedRunsDrawNothing checks that the seed does not matter.
func TestTimedRunsDrawNothing(t *testing.T) {
	t.Parallel()
	var ends [2]time.Duration
	for seed := range ends {
		w := newTimed(t, 3, fabric.Options{Timing: table41, Seed: uint64(seed)})
		for i := range 30 {
			w.post(0, 1+i%2, rdmanet.OperationKind(1+i%2), 100*i)
		}
		ends[seed] = w.take(0, 30)
	}
	if ends[0] != ends[1] {
		t.Errorf("two seeds end at %v", ends)
	}
}
