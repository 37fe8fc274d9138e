package fabrictest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// BenchmarkRegions measures a provider's regions: the latency of reads and writes of 64 bytes, the
// rate of such writes, the bandwidth by size compared with copy, one to eight owners awaited one by
// one and together (TRAM, figure 2), and the time to change a permission.
func BenchmarkRegions(b *testing.B, factory Factory) {
	b.Run("latency/write", func(b *testing.B) { benchmarkLatency(b, factory, access.writeTo) })
	b.Run("latency/read", func(b *testing.B) { benchmarkLatency(b, factory, access.readFrom) })
	b.Run("rate/write", func(b *testing.B) { benchmarkStream(b, factory, 64, access.writeTo) })
	b.Run("rate/read", func(b *testing.B) { benchmarkStream(b, factory, 64, access.readFrom) })
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		at := "bandwidth/" + strconv.Itoa(size)
		b.Run(at+"/write", func(b *testing.B) { benchmarkStream(b, factory, size, access.writeTo) })
		b.Run(at+"/read", func(b *testing.B) { benchmarkStream(b, factory, size, access.readFrom) })
		b.Run(at+"/copy", func(b *testing.B) { benchmarkCopy(b, size) })
	}
	for _, targets := range []int{1, 2, 4, 8} {
		at := "targets/" + strconv.Itoa(targets)
		b.Run(at+"/one-by-one", func(b *testing.B) { benchmarkTargets(b, factory, targets, false) })
		b.Run(at+"/together", func(b *testing.B) { benchmarkTargets(b, factory, targets, true) })
	}
	b.Run("permission/revoke-and-grant", func(b *testing.B) {
		benchmarkPermission(b, factory, false)
	})
	b.Run("permission/revoke-grant-attach-write", func(b *testing.B) {
		benchmarkPermission(b, factory, true)
	})
	b.Run("await/ring", func(b *testing.B) { benchmarkAwait(b, factory) })
}

// outstandingBytesMax bounds the outstanding bytes of a benchmark's stream.
const outstandingBytesMax = 4 << 20

// benchmarkAccess returns a host with attachments to regions of as many owners.
func benchmarkAccess(b *testing.B, factory Factory, owners, size int) (rdmanet.RegionHost,
	[]rdmanet.RegionHost, []access) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	f := factory(b, Config{Members: owners + 1})
	hosts, err := startRegions(f, owners+1)
	if err != nil {
		b.Fatal(err)
	}
	var attached []access
	for i := range owners {
		a, err := share(ctx, hosts[i], hosts[owners], "test", size, rdmanet.PermissionReadWrite)
		if err == nil {
			// Touch the memory, so that it is allocated.
			err = a.do(ctx, a.writeTo(0, make([]byte, size)), a.readFrom(0, make([]byte, size)))
		}
		if err != nil {
			b.Fatal(err)
		}
		attached = append(attached, a)
	}
	return hosts[owners], hosts, attached
}

// await takes count completions.
func await(b *testing.B, queue rdmanet.Queue, into []rdmanet.Completion, count int) {
	for count > 0 {
		n, err := queue.Wait(context.Background(), into[:min(len(into), count)])
		if err != nil {
			b.Fatal(err)
		}
		for _, completion := range into[:n] {
			if completion.Err != nil {
				b.Fatal(completion.Err)
			}
		}
		count -= n
	}
}

func benchmarkLatency(b *testing.B, factory Factory,
	operation func(access, int, []byte) rdmanet.Operation) {
	_, _, attached := benchmarkAccess(b, factory, 1, 4096)
	a := attached[0]
	one := []rdmanet.Operation{operation(a, 64, make([]byte, 64))}
	into := make([]rdmanet.Completion, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := a.queue.Post(one...); err != nil {
			b.Fatal(err)
		}
		await(b, a.queue, into, 1)
	}
}

func benchmarkStream(b *testing.B, factory Factory, size int,
	operation func(access, int, []byte) rdmanet.Operation) {
	_, _, attached := benchmarkAccess(b, factory, 1, size)
	a := attached[0]
	batch := make([]rdmanet.Operation, batchOf(size))
	for i := range batch {
		// Pages of zeros may not be backed by memory.
		batch[i] = operation(a, 0, wordsOf(make([]byte, size), 1))
	}
	into := make([]rdmanet.Completion, postDepth)
	outstanding := 0
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; {
		n := min(left, len(batch))
		if outstanding+n > 4*len(batch) {
			await(b, a.queue, into[:n], n) // and no more than these
			outstanding -= n
		}
		if err := a.queue.Post(batch[:n]...); err != nil {
			b.Fatal(err)
		}
		outstanding, left = outstanding+n, left-n
	}
	for ; outstanding > 0; outstanding-- {
		await(b, a.queue, into[:1], 1)
	}
}

// batchOf returns how many operations of that size a stream posts at once.
func batchOf(size int) int { return min(postDepth/4, max(1, outstandingBytesMax/4/size)) }

// benchmarkCopy copies from as many places as a stream writes from.
func benchmarkCopy(b *testing.B, size int) {
	from, to := make([][]byte, batchOf(size)), make([]byte, size)
	for i := range from {
		from[i] = wordsOf(make([]byte, size), 1)
	}
	b.SetBytes(int64(size))
	b.ResetTimer()
	for i := range b.N {
		copy(to, from[i%len(from)])
	}
}

func benchmarkTargets(b *testing.B, factory Factory, targets int, together bool) {
	host, _, attached := benchmarkAccess(b, factory, targets, 4096)
	queue, err := host.Queue(postDepth)
	if err != nil {
		b.Fatal(err)
	}
	var batch []rdmanet.Operation
	for i := range attached {
		batch = append(batch, attached[i].writeTo(64, make([]byte, 64)))
	}
	into := make([]rdmanet.Completion, targets)
	b.ReportAllocs()
	for b.Loop() {
		if together {
			if err := queue.Post(batch...); err != nil {
				b.Fatal(err)
			}
			await(b, queue, into, targets)
			continue
		}
		for i := range batch {
			if err := queue.Post(batch[i : i+1]...); err != nil {
				b.Fatal(err)
			}
			await(b, queue, into, 1)
		}
	}
}

func benchmarkPermission(b *testing.B, factory Factory, used bool) {
	peer, hosts, attached := benchmarkAccess(b, factory, 1, 4096)
	ctx := context.Background()
	a := attached[0]
	for b.Loop() {
		if err := a.region.Revoke(peerOf(peer)); err != nil {
			b.Fatal(err)
		}
		if err := a.region.Grant(peerOf(peer), rdmanet.PermissionReadWrite); err != nil {
			b.Fatal(err)
		}
		if !used {
			continue
		}
		attachment, err := peer.Attach(ctx, hosts[0].ID(), "test")
		if err != nil {
			b.Fatal(err)
		}
		a.attachment = attachment
		if err := a.do(ctx, a.writeTo(0, wordBytes(1))); err != nil {
			b.Fatal(err)
		}
	}
}

// benchmarkAwait measures a round trip between a writer and a waiting owner: a write with Ring,
// seen in Await, is answered by a word for which the writer waits in its own region.
func benchmarkAwait(b *testing.B, factory Factory) {
	peer, hosts, attached := benchmarkAccess(b, factory, 1, 4096)
	ctx, cancel := context.WithCancel(context.Background())
	there := attached[0]
	back, err := share(ctx, peer, hosts[0], "back", 4096, rdmanet.PermissionReadWrite)
	if err != nil {
		b.Fatal(err)
	}
	ring := func(a access, word []byte) bool {
		o := a.writeTo(0, word)
		o.Ring = true
		if err := a.queue.Post(o); err != nil {
			return false
		}
		var into [1]rdmanet.Completion
		n, err := a.queue.Wait(ctx, into[:])
		return n == 1 && err == nil && into[0].Err == nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := uint64(1); there.region.Await(ctx, func() bool {
			return there.region.Load(0) >= i
		}) == nil && ring(back, wordBytes(i)); i++ {
		}
	}()
	i := uint64(0)
	for b.Loop() {
		i++
		if !ring(there, wordBytes(i)) {
			b.Fatal("the write failed")
		}
		if err := back.region.Await(ctx, func() bool {
			return back.region.Load(0) >= i
		}); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	<-ended
}
