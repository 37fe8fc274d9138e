package p2p_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// BenchmarkRegion measures operations of 64 bytes one by one, many of them posted together, and long ones, with raw TCP beside them in the same run: a ping-pong of
// 64 bytes, and a stream. Bandwidth is bytes per second of what is written or read.
func BenchmarkRegion(b *testing.B) {
	b.Run("tcp/latency", benchmarkTCPLatency)
	b.Run("tcp/bandwidth", benchmarkTCPBandwidth)
	for _, fabric := range []struct {
		name    string
		factory fabrictest.Factory
	}{{p2p.Fabric, newFabric}, {p2p.FabricTrusted, newTrustedFabric}} {
		for _, kind := range []rdmanet.OperationKind{rdmanet.OperationWrite, rdmanet.OperationRead} {
			for _, c := range []struct {
				name               string
				size, depth, batch int
			}{
				{"latency", 64, 1, 1},
				{"rate, posts of 1", 64, 256, 1},
				{"rate, posts of 64", 64, 256, 64},
				{"bandwidth, 64 KiB", 64 << 10, 16, 1},
				{"bandwidth, 1 MiB", 1 << 20, 16, 1},
			} {
				b.Run(fabric.name+"/"+kind.String()+"/"+c.name, func(b *testing.B) {
					benchmarkOperations(b, fabric.factory, kind, c.size, c.depth, c.batch)
				})
			}
		}
	}
	b.Run("revoke and grant", benchmarkRevoke)
}

// benchmarkOperations keeps up to depth operations of that size outstanding, posted so many at a time.
func benchmarkOperations(b *testing.B, factory fabrictest.Factory, kind rdmanet.OperationKind, size, depth, batch int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p := newRegionPairOn(b, factory, fabrictest.Config{}, max(4096, size))
	operations := make([]rdmanet.Operation, batch)
	for i := range operations {
		operations[i] = rdmanet.Operation{To: p.attachment, Kind: kind, Bytes: make([]byte, size)}
	}
	completions := make([]rdmanet.Completion, depth)
	posted, done := 0, 0
	flood := func(until int) {
		for done < until {
			for ; posted < until && posted-done <= depth-batch; posted += batch {
				if err := p.queue.Post(operations...); err != nil {
					b.Fatal(err)
				}
			}
			n, err := p.queue.Wait(ctx, completions)
			if err != nil {
				b.Fatal(err)
			}
			for _, c := range completions[:n] {
				if c.Err != nil {
					b.Fatal(c.Err)
				}
			}
			done += n
		}
	}
	flood(max(100, (64<<20)/size/10)) // windows have grown
	before := done
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	flood(before + b.N)
}

func benchmarkTCP(b *testing.B) (from, to net.Conn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	if from, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if to, err = listener.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		from.Close()
		to.Close()
	})
	return from, to
}

func benchmarkTCPLatency(b *testing.B) {
	from, to := benchmarkTCP(b)
	go func() {
		answer := make([]byte, 64)
		for {
			if _, err := io.ReadFull(to, answer); err != nil {
				return
			}
			if _, err := to.Write(answer); err != nil {
				return
			}
		}
	}()
	message := make([]byte, 64)
	b.ResetTimer()
	for range b.N {
		if _, err := from.Write(message); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(from, message); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkTCPBandwidth(b *testing.B) {
	from, to := benchmarkTCP(b)
	message, into := make([]byte, 1<<20), make([]byte, 256<<10)
	b.SetBytes(int64(len(message)))
	b.ResetTimer()
	go func() {
		for range b.N {
			if _, err := from.Write(message); err != nil {
				return
			}
		}
	}()
	for left := b.N * len(message); left > 0; {
		n, err := to.Read(into)
		if err != nil {
			b.Fatal(err)
		}
		left -= n
	}
}

// benchmarkRevoke is what the owner waits for, with the peer attached and idle.
func benchmarkRevoke(b *testing.B) {
	p := newRegionPair(b, fabrictest.Config{}, 4096)
	for b.Loop() {
		p.grant(b, rdmanet.PermissionNone)
		p.grant(b, rdmanet.PermissionReadWrite)
	}
}
