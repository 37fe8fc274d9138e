package p2p_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

func TestRegions(t *testing.T) {
	t.Parallel()
	fabrictest.RunRegions(t, newFabric)
}

// TestTrustedRegions repeats the cases that the lack of encryption could affect.
func TestTrustedRegions(t *testing.T) { repeatRegions(t, newTrustedFabric) }

// TestLocalRegions repeats the same cases within a machine.
func TestLocalRegions(t *testing.T) { repeatRegions(t, newLocalFabric) }

func repeatRegions(t *testing.T, factory fabrictest.Factory) {
	t.Parallel()
	left := map[string]bool{"write and read": true, "canary seen from afar": true,
		"batch to many": true, "revoke": true, "severed": true, "cut that stays": true,
		"close under load": true}
	for _, c := range fabrictest.RegionCases() {
		if !left[c.Name] {
			continue
		}
		delete(left, c.Name)
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := c.Check(ctx, factory(t, c.Config)); err != nil {
				t.Error(err)
			}
		})
	}
	if len(left) > 0 {
		t.Errorf("the suite has no cases %v", left)
	}
}

// The benchmarks of lanes have raw TCP for comparison: -bench 'Regions|Fabric/.*/tcp'.
func BenchmarkRegions(b *testing.B) { fabrictest.BenchmarkRegions(b, newFabric) }

func BenchmarkTrustedRegions(b *testing.B) { fabrictest.BenchmarkRegions(b, newTrustedFabric) }

// regionPair is an owner with a region and a host attached to it.
type regionPair struct {
	fabric     fabrictest.Fabric
	owner      rdmanet.RegionHost
	peer       rdmanet.RegionHost
	region     rdmanet.Region
	attachment rdmanet.Attachment
	queue      rdmanet.Queue
}

func newRegionPair(t *testing.T, config fabrictest.Config, size int) *regionPair {
	t.Helper()
	config.Members = max(config.Members, 2)
	p := &regionPair{fabric: newFabric(t, config)}
	for i, h := range []*rdmanet.RegionHost{&p.owner, &p.peer} {
		started, err := p.fabric.Start(i)
		if err != nil {
			t.Fatal(err)
		}
		*h = started.(*p2p.Host)
	}
	var err error
	if p.region, err = p.owner.Expose("test", size); err != nil {
		t.Fatal(err)
	}
	p.grant(t, rdmanet.PermissionReadWrite)
	p.attach(t)
	if p.queue, err = p.peer.Queue(256); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *regionPair) grant(t *testing.T, permission rdmanet.Permission) {
	t.Helper()
	err := p.region.Grant(rdmanet.Peer{ID: p.peer.ID(), Incarnation: p.peer.Incarnation()},
		permission)
	if err != nil {
		t.Fatal(err)
	}
}

func (p *regionPair) attach(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var err error
	if p.attachment, err = p.peer.Attach(ctx, p.owner.ID(), "test"); err != nil {
		t.Fatal(err)
	}
}

// do posts operations on the attachment, waits for all of them and returns their completions.
func (p *regionPair) do(t *testing.T, operations ...rdmanet.Operation) []rdmanet.Completion {
	t.Helper()
	for i := range operations {
		operations[i].To, operations[i].Tag = p.attachment, uint64(i)
	}
	if err := p.queue.Post(operations...); err != nil {
		t.Fatal(err)
	}
	return p.wait(t, len(operations))
}

func (p *regionPair) wait(t *testing.T, count int) []rdmanet.Completion {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	completions := make([]rdmanet.Completion, count)
	for done := 0; done < count; {
		n, err := p.queue.Wait(ctx, completions[done:])
		if err != nil {
			t.Fatalf("%d of %d completed: %v", done, count, err)
		}
		done += n
	}
	return completions
}

func write(offset int, b []byte) rdmanet.Operation {
	return rdmanet.Operation{Kind: rdmanet.OperationWrite, Offset: offset, Bytes: b}
}

func read(offset int, into []byte) rdmanet.Operation {
	return rdmanet.Operation{Kind: rdmanet.OperationRead, Offset: offset, Bytes: into}
}

func pattern(length int, seed byte) []byte {
	b := make([]byte, length)
	for i := range b {
		b[i] = byte(i*7+i>>8) + seed
	}
	return b
}

// TestOperationSizes checks that written bytes are there and are read back, around every boundary
// of the wire format.
func TestOperationSizes(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	p := newRegionPair(t, fabrictest.Config{}, size)
	for i, length := range []int{0, 1, 8, 127, 128, 129, 4096, 65519, 65520, 65535, 65536, 65537,
		256<<10 - 1, 256 << 10, 256<<10 + 1, 1<<20 + 3, size} {
		offset := min(i*24, size-length)
		want, got := pattern(length, byte(i)), make([]byte, length)
		for _, c := range p.do(t, write(offset, want), read(offset, got)) {
			if c.Err != nil {
				t.Fatalf("%d bytes: %v", length, c.Err)
			}
		}
		if !bytes.Equal(got, want) || !bytes.Equal(p.region.Bytes()[offset:offset+length], want) {
			t.Fatalf("%d bytes did not come back", length)
		}
	}
}

// TestManyOperationsInOnePost checks that a deep batch of mixed writes and reads completes in
// order, each read after the writes before it.
func TestManyOperationsInOnePost(t *testing.T) {
	t.Parallel()
	p := newRegionPair(t, fabrictest.Config{}, 1<<20)
	for round := range uint64(20) {
		var operations []rdmanet.Operation
		var reads [][]byte
		for i := range uint64(128) {
			word := binary.LittleEndian.AppendUint64(nil, round<<32|i)
			into := make([]byte, 8)
			reads = append(reads, into)
			operations = append(operations, write(int(i%4)*8, word), read(int(i%4)*8, into))
		}
		for i, c := range p.do(t, operations...) {
			if c.Err != nil || c.Tag != uint64(i) || c.Peer != p.owner.ID() {
				t.Fatalf("completion %d is %+v", i, c)
			}
		}
		for i, into := range reads {
			if got := binary.LittleEndian.Uint64(into); got != round<<32|uint64(i) {
				t.Fatalf("read %d of round %d gave %x", i, round, got)
			}
		}
	}
}

// TestBulkBothWays checks that mixed long writes and reads, more than all buffers on the way hold,
// do not deadlock. This includes the connection to the own host, which buffers nothing.
func TestBulkBothWays(t *testing.T) {
	t.Parallel()
	const length, count = 100 << 10, 96
	p := newRegionPair(t, fabrictest.Config{MendTimeout: 10 * time.Second}, length)
	if err := p.region.Grant(rdmanet.Peer{ID: p.owner.ID(), Incarnation: p.owner.Incarnation()},
		rdmanet.PermissionReadWrite); err != nil {
		t.Fatal(err)
	}
	for _, host := range []rdmanet.RegionHost{p.peer, p.owner} {
		queue, err := host.Queue(count)
		if err != nil {
			t.Fatal(err)
		}
		p.peer, p.queue = host, queue
		p.attach(t)
		var operations []rdmanet.Operation
		for i := range count {
			bytes := make([]byte, length)
			if i%3 == 1 {
				operations = append(operations, read(0, bytes))
			} else {
				operations = append(operations, write(0, pattern(length, byte(i))))
			}
		}
		for i, c := range p.do(t, operations...) {
			if c.Err != nil || c.Tag != uint64(i) {
				t.Fatalf("completion %d is %+v", i, c)
			}
			if i%3 == 1 && !bytes.Equal(operations[i].Bytes, operations[i-1].Bytes) {
				t.Fatalf("read %d is not what was written before it", i)
			}
		}
	}
}

// TestRevokedInMidStream checks that writes of a pipelining peer, including long ones, stop when
// Revoke returns. A new attachment does not inherit operations under way.
func TestRevokedInMidStream(t *testing.T) {
	t.Parallel()
	const length = 600 << 10
	p := newRegionPair(t, fabrictest.Config{}, 1<<20)
	for round := range 5 {
		var operations []rdmanet.Operation
		for i := range 16 {
			operations = append(operations, write(0, pattern(length, byte(i+1))))
			operations[i].To, operations[i].Tag = p.attachment, uint64(i)
		}
		if err := p.queue.Post(operations...); err != nil {
			t.Fatal(err)
		}
		p.wait(t, 1+round)
		p.grant(t, rdmanet.PermissionNone)
		p.grant(t, rdmanet.PermissionReadWrite)
		clear(p.region.Bytes())
		failed := 0
		for _, c := range p.wait(t, 16-1-round) {
			switch {
			case errors.Is(c.Err, rdmanet.ErrAccess):
				failed++
			case c.Err != nil || failed > 0:
				t.Fatalf("round %d: completion %+v after %d failures", round, c, failed)
			}
		}
		for i, b := range p.region.Bytes() {
			if b != 0 {
				t.Fatalf("round %d: byte %d landed after Revoke", round, i)
			}
		}
		p.attach(t)
	}
}

// TestRegionsAreSevered checks that when a connection breaks, all operations under way and later
// ones complete with ErrUnreachable, and that the next attachment works.
func TestRegionsAreSevered(t *testing.T) {
	t.Parallel()
	p := newRegionPair(t, fabrictest.Config{}, 1<<20)
	word := pattern(8, 1)
	for round := range 10 {
		var operations []rdmanet.Operation
		for range 64 {
			operations = append(operations, rdmanet.Operation{To: p.attachment,
				Kind: rdmanet.OperationWrite, Bytes: word})
		}
		if err := p.queue.Post(operations...); err != nil {
			t.Fatal(err)
		}
		p.fabric.Sever(round%2, 1-round%2)
		failed := false
		for _, c := range p.wait(t, len(operations)) {
			if c.Err == nil && failed || c.Err != nil && !errors.Is(c.Err, rdmanet.ErrUnreachable) {
				t.Fatalf("round %d: completion %+v", round, c)
			}
			failed = c.Err != nil
		}
		deadline := time.Now().Add(10 * time.Second)
		for p.attachment.Err() == nil {
			if time.Now().After(deadline) {
				t.Fatal("the attachment outlives its connection")
			}
			time.Sleep(time.Millisecond)
		}
		if c := p.do(t, write(0, word))[0]; !errors.Is(c.Err, rdmanet.ErrUnreachable) {
			t.Fatalf("round %d: a write on the old attachment completed with %v", round, c.Err)
		}
		p.attach(t)
		if c := p.do(t, write(0, word))[0]; c.Err != nil {
			t.Fatal(c.Err)
		}
	}
}

// TestOwnerRestarts checks that an idle attachment detects another incarnation.
func TestOwnerRestarts(t *testing.T) {
	t.Parallel()
	p := newRegionPair(t, fabrictest.Config{MendTimeout: 10 * time.Second}, 4096)
	p.fabric.Kill(0)
	if _, err := p.fabric.Start(0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if c := p.do(t, write(0, pattern(8, 1)))[0]; !errors.Is(c.Err, rdmanet.ErrReset) {
			t.Fatalf("a write completed with %v", c.Err)
		}
	}
	if err := p.attachment.Err(); !errors.Is(err, rdmanet.ErrReset) {
		t.Fatalf("the attachment ended with %v", err)
	}
}

// TestExpelledAttachment checks that a removed member loses its access at once, and does not regain
// its grants.
func TestExpelledAttachment(t *testing.T) {
	t.Parallel()
	p := newRegionPair(t, fabrictest.Config{MendTimeout: 2 * time.Second}, 4096)
	owner := p.owner.(*p2p.Host)
	if err := owner.SetMembers(nil); err != nil {
		t.Fatal(err)
	}
	if c := p.do(t, write(0, pattern(8, 1)))[0]; !errors.Is(c.Err, rdmanet.ErrUnreachable) {
		t.Fatalf("a write completed with %v", c.Err)
	}
	if p.region.Load(0) != 0 {
		t.Fatal("it landed")
	}
	peer := rdmanet.Peer{ID: p.peer.ID(), Incarnation: p.peer.Incarnation()}
	if err := p.region.Grant(peer, rdmanet.PermissionRead); !errors.Is(err, rdmanet.ErrNotMember) {
		t.Fatalf("it is granted something, error %v", err)
	}
	if err := owner.SetMembers(map[rdmanet.PeerID]string{p.peer.ID(): ""}); err != nil {
		t.Fatal(err)
	}
	_, err := p.peer.Attach(t.Context(), p.owner.ID(), "test")
	if !errors.Is(err, rdmanet.ErrAccess) {
		t.Fatalf("a member again, it attaches with error %v", err)
	}
}
