package fabrictest

import (
	"context"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// bulkSizes are the frame sizes of the throughput benchmarks, in bytes.
var bulkSizes = []int{64, 1 << 10, 64 << 10, 1 << 20}

// Benchmark measures a provider, next to raw TCP over loopback in the same run: the round trip of a
// 64-byte frame, and the one-way throughput by frame size.
func Benchmark(b *testing.B, factory Factory) {
	b.Run("ping-pong/fabric", func(b *testing.B) { benchmarkPingPong(b, factory) })
	b.Run("ping-pong/tcp", benchmarkTCPPingPong)
	for _, size := range bulkSizes {
		b.Run("bulk/"+strconv.Itoa(size)+"/fabric", func(b *testing.B) {
			benchmarkBulk(b, factory, size)
		})
		b.Run("bulk/"+strconv.Itoa(size)+"/tcp", func(b *testing.B) { benchmarkTCPBulk(b, size) })
	}
}

func benchmarkPingPong(b *testing.B, factory Factory) {
	ctx := context.Background()
	f := factory(b, Config{Members: 2})
	var hosts [2]rdmanet.Host
	for i := range hosts {
		h, err := f.Start(i)
		if err != nil {
			b.Fatal(err)
		}
		hosts[i] = h
	}
	var lanes [2]rdmanet.Lane
	for i := range hosts {
		lane, err := hosts[i].Lane(f.ID(1-i), "test")
		if err != nil {
			b.Fatal(err)
		}
		lanes[i] = lane
	}
	home := make(chan struct{}, 1)
	err := hosts[1].Receive("test", func(_ rdmanet.Peer, frames [][]byte) {
		if err := lanes[1].Send(ctx, frames...); err != nil {
			b.Error(err)
		}
	})
	if err == nil {
		err = hosts[0].Receive("test", func(rdmanet.Peer, [][]byte) { home <- struct{}{} })
	}
	if err != nil {
		b.Fatal(err)
	}
	frame := make([]byte, 64)
	trip := func() {
		if err := lanes[0].Send(ctx, frame); err != nil {
			b.Fatal(err)
		}
		<-home
	}
	trip()
	b.ReportAllocs()
	for b.Loop() {
		trip()
	}
}

func benchmarkBulk(b *testing.B, factory Factory, size int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f := factory(b, Config{Members: 2})
	from, err := f.Start(0)
	if err != nil {
		b.Fatal(err)
	}
	to, err := f.Start(1)
	if err != nil {
		b.Fatal(err)
	}
	if err := to.Receive("test", func(rdmanet.Peer, [][]byte) {}); err != nil {
		b.Fatal(err)
	}
	lane, err := from.Lane(to.ID(), "test")
	if err != nil {
		b.Fatal(err)
	}
	frame := make([]byte, size)
	flood := func(count int) {
		for range count {
			if err := lane.Send(ctx, frame); err != nil {
				b.Fatal(err)
			}
		}
		if err := lane.Flushed(ctx); err != nil {
			b.Fatal(err)
		}
	}
	flood(max(1, (32<<20)/size)) // now the connection is up, and its windows have grown
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	flood(b.N)
}

// tcpPair returns both ends of a loopback connection.
func tcpPair(b *testing.B) (from, to net.Conn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, _ := listener.Accept()
		accepted <- conn
	}()
	from, err = net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	to = <-accepted
	if to == nil {
		b.Fatal("no connection was accepted")
	}
	b.Cleanup(func() {
		from.Close()
		to.Close()
	})
	return from, to
}

func benchmarkTCPPingPong(b *testing.B) {
	from, to := tcpPair(b)
	go func() { _, _ = io.Copy(onlyWriter{to}, onlyReader{to}) }()
	frame := make([]byte, 64)
	for b.Loop() {
		if _, err := from.Write(frame); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(from, frame); err != nil {
			b.Fatal(err)
		}
	}
}

// onlyReader and onlyWriter hide the methods through which io.Copy would leave the work to the
// kernel.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

func benchmarkTCPBulk(b *testing.B, size int) {
	from, to := tcpPair(b)
	frame := make([]byte, size)
	done := make(chan error, 1)
	total := int64(b.N) * int64(size)
	go func() {
		_, err := io.CopyBuffer(onlyWriter{io.Discard}, onlyReader{io.LimitReader(to, total)},
			make([]byte, max(size, 64<<10)))
		done <- err
	}()
	b.SetBytes(int64(size))
	b.ResetTimer()
	for range b.N {
		if _, err := from.Write(frame); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
