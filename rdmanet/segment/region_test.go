package segment

import (
	"bytes"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledgerd/rdmanet"
)

var (
	anna   = rdmanet.Peer{ID: "anna", Incarnation: 1}
	anna2  = rdmanet.Peer{ID: "anna", Incarnation: 2}
	berta  = rdmanet.Peer{ID: "berta", Incarnation: 1}
	nobody = rdmanet.Peer{ID: "nobody", Incarnation: 1}
)

func newRegion(t testing.TB, size int) *Region {
	t.Helper()
	region, err := NewRegion("log", size, func(peer rdmanet.Peer) error {
		if peer == nobody {
			return rdmanet.ErrNotMember
		}
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = region.Close() })
	return region
}

func expect(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func admit(t *testing.T, region *Region, peer rdmanet.Peer) *Admission {
	t.Helper()
	a, err := region.Admit(peer)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	region := newRegion(t, 64)
	one, into := []byte{1}, make([]byte, 1)
	_, err := region.Admit(anna)
	expect(t, "no grant", err, rdmanet.ErrAccess)
	expect(t, "a stranger", region.Grant(nobody, rdmanet.PermissionRead), rdmanet.ErrNotMember)
	expect(t, "grant", region.Grant(anna, rdmanet.PermissionRead), nil)
	_, err = region.Admit(anna2)
	expect(t, "another life", err, rdmanet.ErrAccess)

	reader := admit(t, region, anna)
	expect(t, "read", region.Read(reader, 0, into), nil)
	expect(t, "the same again", region.Grant(anna, rdmanet.PermissionRead), nil)
	expect(t, "read", region.Read(reader, 0, into), nil)
	expect(t, "write of a reader", region.Write(reader, 0, one, false), rdmanet.ErrAccess)
	expect(t, "read after that", region.Read(reader, 0, into), rdmanet.ErrAccess)
	if region.Load(0) != 0 {
		t.Error("it was written")
	}

	reader = admit(t, region, anna)
	expect(t, "grant", region.Grant(anna, rdmanet.PermissionReadWrite), nil)
	expect(t, "read under the old grant", region.Read(reader, 0, into), rdmanet.ErrAccess)
	writer, second := admit(t, region, anna), admit(t, region, anna)
	if writer.Number() == second.Number() || writer.Number() == reader.Number() {
		t.Error("two admissions have one number")
	}
	expect(t, "write", region.Write(writer, 63, one, false), nil)
	expect(t, "write past the end", region.Write(writer, 63, []byte{2, 2}, false),
		rdmanet.ErrBounds)
	expect(t, "write behind that", region.Write(writer, 0, one, false), rdmanet.ErrBounds)
	expect(t, "write beside that", region.Write(second, 0, one, false), nil)
	second.End(rdmanet.ErrClosed)
	expect(t, "write of who left", region.Write(second, 1, one, false), rdmanet.ErrClosed)
	if len(region.grants.peers[anna].admissions) != 0 {
		t.Error("an admission that is over is kept")
	}
	writer = admit(t, region, anna)
	expect(t, "grant to the next life", region.Grant(anna2, rdmanet.PermissionReadWrite), nil)
	expect(t, "write of the former", region.Write(writer, 1, one, false), rdmanet.ErrAccess)
	if region.grants.Permission(anna) != rdmanet.PermissionNone || len(region.grants.peers) != 1 {
		t.Error("the former life is still granted something")
	}
	expect(t, "grant", region.Grant(berta, rdmanet.PermissionReadWrite), nil)
	stays, goes := admit(t, region, berta), admit(t, region, anna2)
	region.Retain(func(id rdmanet.PeerID) bool { return id == "berta" })
	expect(t, "write of who is no member any more", region.Write(goes, 1, one, false),
		rdmanet.ErrAccess)
	expect(t, "write of a member", region.Write(stays, 2, one, false), nil)
	if want := []byte{1, 0, 1, 0, 0, 0, 0, 0}; !bytes.Equal(region.Bytes()[:8], want) ||
		region.Bytes()[63] != 1 {
		t.Errorf("%x", region.Bytes())
	}
	region.End(rdmanet.ErrUnreachable)
	expect(t, "write to who is gone", region.Write(stays, 2, one, false), rdmanet.ErrUnreachable)
	_, err = region.Admit(berta)
	expect(t, "admit", err, rdmanet.ErrUnreachable)
	expect(t, "grant", region.Grant(berta, rdmanet.PermissionRead), rdmanet.ErrClosed)
	expect(t, "close again", region.Close(), nil)
}

// TestFence checks that under a stream of writes nothing lands once Revoke has returned, and that
// the next grant admits no earlier write.
func TestFence(t *testing.T) {
	t.Parallel()
	const size = 4 << 10
	region := newRegion(t, size)
	var over atomic.Bool
	admissions := make(chan *Admission)
	ended := make(chan error, 1)
	go func() {
		from := make([]byte, size)
		var err error
		for a := range admissions {
			for k := byte(1); err == nil; k++ {
				for i := range from {
					from[i] = k
				}
				err = region.Write(a, 0, from, k%3 == 0)
			}
			if !errors.Is(err, rdmanet.ErrAccess) {
				break
			}
			err = nil
		}
		over.Store(true)
		ended <- err
	}()
	before := make([]byte, size)
	for round := range 50 {
		expect(t, "grant", region.Grant(anna, rdmanet.PermissionReadWrite), nil)
		clear(region.Bytes())
		a := admit(t, region, anna)
		admissions <- a
		for region.Load(size-8) == 0 && !over.Load() {
			runtime.Gosched()
		}
		expect(t, "revoke", region.Revoke(anna), nil)
		copy(before, region.Bytes())
		for range 20 {
			runtime.Gosched()
		}
		if !bytes.Equal(before, region.Bytes()) {
			t.Fatalf("round %d: a write landed after Revoke", round)
		}
	}
	close(admissions)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func BenchmarkWrite(b *testing.B) {
	region := newRegion(b, 4096)
	if err := region.Grant(anna, rdmanet.PermissionReadWrite); err != nil {
		b.Fatal(err)
	}
	a, err := region.Admit(anna)
	if err != nil {
		b.Fatal(err)
	}
	from := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if err := region.Write(a, 64, from, true); err != nil {
			b.Fatal(err)
		}
	}
}
