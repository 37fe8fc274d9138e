package p2p_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// BenchmarkShare measures which share of raw TCP's rate over loopback a lane reaches, by frame
// size, on open and trusted networks, with kept and with lent frames. Raw TCP writes the same
// frames. It reads into one buffer of 1 MiB (of-tcp), which fits the processor's cache, and for
// kept frames also every frame into new memory (of-tcp-kept). All take turns in one process, 32 MiB
// each, so other load on the machine affects all of them.
func BenchmarkShare(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		for _, setting := range []struct {
			name    string
			factory fabrictest.Factory
		}{{p2p.Fabric, newFabric}, {p2p.FabricTrusted, newTrustedFabric}} {
			for _, lent := range []bool{false, true} {
				name := fmt.Sprintf("%s/%d/lent=%t", setting.name, size, lent)
				b.Run(name, func(b *testing.B) { benchmarkShare(b, setting.factory, size, lent) })
			}
		}
	}
}

func benchmarkShare(b *testing.B, factory fabrictest.Factory, size int, lent bool) {
	const turn = 32 << 20
	lane := bulkLane(b, factory, lent)
	from, received := rawStream(b, 0)
	keeping, receivedKept := rawStream(b, size)
	frame := make([]byte, size)
	overFabric := func() {
		for range turn / size {
			if err := lane.Send(b.Context(), frame); err != nil {
				b.Fatal(err)
			}
		}
		if err := lane.Flushed(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	overTCP := func(from net.Conn, received <-chan int) {
		for range turn / size {
			if _, err := from.Write(frame); err != nil {
				b.Fatal(err)
			}
		}
		for left := turn; left > 0; {
			left -= <-received
		}
	}
	overFabric()
	overTCP(from, received)
	var fabric, tcp, kept time.Duration
	clock := func(sum *time.Duration, work func()) {
		begun := time.Now()
		work()
		*sum += time.Since(begun)
	}
	b.ResetTimer()
	for range b.N {
		clock(&fabric, overFabric)
		clock(&tcp, func() { overTCP(from, received) })
		if !lent {
			clock(&kept, func() { overTCP(keeping, receivedKept) })
		}
	}
	if !lent {
		b.ReportMetric(float64(kept)/float64(fabric), "of-tcp-kept")
	}
	b.ReportMetric(float64(tcp)/float64(fabric), "of-tcp")
	b.ReportMetric(turn*float64(b.N)/fabric.Seconds()/1e6, "MB/s")
	b.ReportMetric(turn*float64(b.N)/tcp.Seconds()/1e6, "tcp-MB/s")
}

// bulkLane returns a lane whose receiver does nothing.
func bulkLane(b *testing.B, factory fabrictest.Factory, lent bool) rdmanet.Lane {
	f := factory(b, fabrictest.Config{Members: 2})
	from, errFrom := f.Start(0)
	to, errTo := f.Start(1)
	if err := errors.Join(errFrom, errTo); err != nil {
		b.Fatal(err)
	}
	register := to.Receive
	if lent {
		register = to.(*p2p.Host).ReceiveLent
	}
	if err := register("bulk", func(rdmanet.Peer, [][]byte) {}); err != nil {
		b.Fatal(err)
	}
	lane, err := from.Lane(to.ID(), "bulk")
	if err != nil {
		b.Fatal(err)
	}
	return lane
}

// rawStream returns a connection whose other end reads, and a channel with the number of bytes of
// each read. The other end reads into one buffer, or frames of frameBytes each into new memory.
func rawStream(b *testing.B, frameBytes int) (net.Conn, <-chan int) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	received := make(chan int, 1024)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		buffer := make([]byte, 1<<20)
		for {
			var n int
			var err error
			if frameBytes > 0 {
				n, err = io.ReadFull(conn, make([]byte, frameBytes))
			} else {
				n, err = conn.Read(buffer)
			}
			if err != nil {
				return
			}
			received <- n
		}
	}()
	from, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { from.Close() })
	return from, received
}
