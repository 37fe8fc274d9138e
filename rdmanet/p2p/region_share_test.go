package p2p_test

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// BenchmarkRegionShare measures which share of raw TCP's rate over loopback writes to a peer's
// region and reads from it reach, by size, on open and trusted networks. Raw TCP writes the same
// bytes, as many at a time, and reads them into one buffer of 1 MiB. The two take turns in one
// process, 32 MiB each, so other load on the machine affects both.
func BenchmarkRegionShare(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		for _, setting := range []struct {
			name    string
			factory fabrictest.Factory
		}{{p2p.Fabric, newFabric}, {p2p.FabricTrusted, newTrustedFabric}} {
			for _, kind := range []rdmanet.OperationKind{rdmanet.OperationWrite,
				rdmanet.OperationRead} {
				b.Run(fmt.Sprintf("%s/%d/%s", setting.name, size, kind), func(b *testing.B) {
					benchmarkRegionShare(b, setting.factory, size, kind)
				})
			}
		}
	}
}

func benchmarkRegionShare(b *testing.B, factory fabrictest.Factory, size int,
	kind rdmanet.OperationKind) {
	const turn = 32 << 20
	outstanding := max(2, (1<<20)/size) // the same as ledgerd bench fabric
	to, queue := bulkRegion(b, factory, outstanding*size, outstanding)
	from, received := rawStream(b, 0)
	local := make([]byte, outstanding*size)
	for i := range local {
		local[i] = 1 // pages of zeros may not be backed by memory
	}
	completions := make([]rdmanet.Completion, outstanding)
	overFabric := func() {
		posted, done := 0, 0
		post := func(place uint64) {
			at := int(place) * size
			if err := queue.Post(rdmanet.Operation{To: to, Kind: kind, Offset: at,
				Bytes: local[at : at+size], Tag: place}); err != nil {
				b.Fatal(err)
			}
			posted++
		}
		for place := range outstanding {
			post(uint64(place))
		}
		for done < posted {
			n, err := queue.Wait(b.Context(), completions)
			if err != nil {
				b.Fatal(err)
			}
			for _, completion := range completions[:n] {
				if completion.Err != nil {
					b.Fatal(completion.Err)
				}
				if done++; posted < turn/size {
					post(completion.Tag)
				}
			}
		}
	}
	overTCP := func(from net.Conn, received <-chan int) {
		for i := range turn / size {
			at := i % outstanding * size
			if _, err := from.Write(local[at : at+size]); err != nil {
				b.Fatal(err)
			}
		}
		for left := turn; left > 0; {
			left -= <-received
		}
	}
	overFabric()
	overTCP(from, received)
	var fabric, tcp, fabricBest, tcpBest time.Duration
	clock := func(sum, best *time.Duration, work func()) {
		begun := time.Now()
		work()
		took := time.Since(begun)
		*sum += took
		if *best == 0 || took < *best {
			*best = took
		}
	}
	b.ResetTimer()
	for range b.N {
		clock(&fabric, &fabricBest, overFabric)
		clock(&tcp, &tcpBest, func() { overTCP(from, received) })
	}
	b.ReportMetric(float64(tcp)/float64(fabric), "of-tcp")
	b.ReportMetric(float64(tcpBest)/float64(fabricBest), "of-tcp-best")
	b.ReportMetric(turn*float64(b.N)/fabric.Seconds()/1e6, "MB/s")
	b.ReportMetric(turn*float64(b.N)/tcp.Seconds()/1e6, "tcp-MB/s")
}

// bulkRegion returns access to a region of another host.
func bulkRegion(b *testing.B, factory fabrictest.Factory, size, depth int) (rdmanet.Attachment,
	rdmanet.Queue) {
	f := factory(b, fabrictest.Config{Members: 2})
	from, errFrom := f.Start(0)
	to, errTo := f.Start(1)
	if err := errors.Join(errFrom, errTo); err != nil {
		b.Fatal(err)
	}
	here, there := from.(rdmanet.RegionHost), to.(rdmanet.RegionHost)
	region, err := there.Expose("bulk", size)
	if err != nil {
		b.Fatal(err)
	}
	if err := region.Grant(rdmanet.Peer{ID: here.ID(), Incarnation: here.Incarnation()},
		rdmanet.PermissionReadWrite); err != nil {
		b.Fatal(err)
	}
	attachment, err := here.Attach(b.Context(), there.ID(), "bulk")
	if err != nil {
		b.Fatal(err)
	}
	queue, err := here.Queue(depth)
	if err != nil {
		b.Fatal(err)
	}
	return attachment, queue
}
