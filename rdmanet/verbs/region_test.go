//go:build verbs

package verbs

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
)

// duo is an owner with a region and a writer with a grant.
type duo struct {
	t              testing.TB
	ctx            context.Context
	owner, writer  *host
	region         rdmanet.Region
	attachment     rdmanet.Attachment
	queue          rdmanet.Queue
	completionsBuf [64]rdmanet.Completion
}

func newDuo(t testing.TB, size int) *duo { return newDuoBy(t, "", size) }

// newDuoBy is newDuo with a method of withdrawing permissions.
func newDuoBy(t testing.TB, method Permissions, size int) *duo {
	f := newFabric(t, fabrictest.Config{Members: 2, MendTimeout: 4 * time.Second}).(*fabric)
	f.permissions = method
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	d := &duo{t: t, ctx: ctx}
	owner, err := f.Start(0)
	d.must(err)
	writer, err := f.Start(1)
	d.must(err)
	d.owner, d.writer = owner.(*host), writer.(*host)
	d.region, err = d.owner.Expose("log", size)
	d.must(err)
	d.queue, err = d.writer.Queue(1024)
	d.must(err)
	d.attach()
	return d
}

func (d *duo) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// peer returns the writer's incarnation.
func (d *duo) peer() rdmanet.Peer {
	return rdmanet.Peer{ID: d.writer.ID(), Incarnation: d.writer.Incarnation()}
}

func (d *duo) attach() {
	d.t.Helper()
	d.must(d.region.Grant(d.peer(), rdmanet.PermissionReadWrite))
	a, err := d.writer.Attach(d.ctx, d.owner.ID(), "log")
	d.must(err)
	d.attachment = a
}

// await takes count completions and returns the first error.
func (d *duo) await(count int) (first error) {
	d.t.Helper()
	for count > 0 {
		n, err := d.queue.Wait(d.ctx, d.completionsBuf[:min(count, len(d.completionsBuf))])
		d.must(err)
		for _, c := range d.completionsBuf[:n] {
			if first == nil {
				first = c.Err
			}
		}
		count -= n
	}
	return first
}

func (d *duo) do(operations ...rdmanet.Operation) error {
	d.t.Helper()
	for i := range operations {
		operations[i].To = d.attachment
	}
	d.must(d.queue.Post(operations...))
	return d.await(len(operations))
}

func TestWriteAndRead(t *testing.T) {
	d := newDuo(t, 8<<20)
	for _, size := range []int{0, 1, 8, 64, 128, 129, 4096, 100_000, 1 << 20, 5<<20 + 3} {
		out, in := bytes.Repeat([]byte{byte(size*3 + 1)}, size), make([]byte, size)
		d.must(d.do(rdmanet.Operation{Kind: rdmanet.OperationWrite, Offset: 16, Bytes: out,
			Ring: size%2 == 0}))
		if !bytes.Equal(d.region.Bytes()[16:16+size], out) {
			t.Fatalf("a write of %d bytes did not land as it was", size)
		}
		d.must(d.do(rdmanet.Operation{Kind: rdmanet.OperationRead, Offset: 16, Bytes: in}))
		if !bytes.Equal(in, out) {
			t.Fatalf("a read of %d bytes gave something else", size)
		}
	}
}

// TestRevoke checks for every method that operations posted after a revocation are refused.
func TestRevoke(t *testing.T) {
	for _, method := range append(methods, PermissionsQueuePair) {
		t.Run(string(method), func(t *testing.T) { testRevoke(t, method) })
	}
}

func testRevoke(t *testing.T, method Permissions) {
	d := newDuoBy(t, method, 4096)
	if d.owner.engine.method != method {
		t.Fatalf("permissions by %s, want %s", d.owner.engine.method, method)
	}
	write := func() error {
		return d.do(rdmanet.Operation{Kind: rdmanet.OperationWrite, Bytes: []byte("12345678")})
	}
	for range 5 {
		d.must(write())
		d.must(d.region.Revoke(d.peer()))
		d.region.Store(0, 0)
		if err := write(); !errors.Is(err, rdmanet.ErrAccess) || d.region.Load(0) != 0 {
			t.Fatalf("a write after the revocation: error %v, the region has %x", err,
				d.region.Load(0))
		}
		if err := write(); !errors.Is(err, rdmanet.ErrAccess) ||
			!errors.Is(d.attachment.Err(), rdmanet.ErrAccess) {
			t.Fatalf("the next: error %v", err)
		}
		d.attach()
	}
	d.must(d.region.Grant(d.peer(), rdmanet.PermissionRead))
	a, err := d.writer.Attach(d.ctx, d.owner.ID(), "log")
	d.must(err)
	d.attachment = a
	var word [8]byte
	d.must(d.do(rdmanet.Operation{Kind: rdmanet.OperationRead, Bytes: word[:]}))
	if err := write(); !errors.Is(err, rdmanet.ErrAccess) || d.region.Load(0) != 0 {
		t.Fatalf("a write with the permission to read: error %v", err)
	}
}

func TestAwait(t *testing.T) {
	d := newDuo(t, 4096)
	woken := make(chan error, 1)
	for i := range uint64(2000) {
		go func() {
			woken <- d.region.Await(d.ctx, func() bool { return d.region.Load(8) == i+1 })
		}()
		var word [8]byte
		word[0], word[1] = byte(i+1), byte((i+1)>>8)
		d.must(d.do(rdmanet.Operation{Kind: rdmanet.OperationWrite, Offset: 8, Bytes: word[:],
			Ring: true}))
		d.must(<-woken)
	}
}
