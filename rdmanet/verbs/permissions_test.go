//go:build verbs

package verbs

import (
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
)

// TestTrial checks that a host uses the method that its device holds, and a new queue pair if no
// faster method holds. On a device in software none is used, whatever its trials show.
func TestTrial(t *testing.T) {
	f := newFabric(t, fabrictest.Config{Members: 1}).(*fabric)
	started, err := f.Start(0)
	if err != nil {
		t.Fatal(err)
	}
	e := started.(*host).engine
	const trials = 12
	for _, method := range append(methods, PermissionsQueuePair) {
		late, err := e.tryFences(method, trials)
		if err != nil && !errors.Is(err, errNoWindow) {
			t.Fatalf("%s: %v", method, err)
		}
		t.Logf("permissions by %s: a write landed later in %d trials of %d", method, late, trials)
		if late > 0 && (method == PermissionsQueuePair || method == e.method) {
			t.Errorf("permissions by %s do not hold", method)
		}
		if method != PermissionsQueuePair && e.context.Emulated() &&
			!errors.Is(e.prove(method), errEmulated) {
			t.Errorf("permissions by %s are trusted on a device in software", method)
		}
	}
	if e.context.Emulated() && e.method != PermissionsQueuePair {
		t.Errorf("permissions by %s on a device in software", e.method)
	}
}

// BenchmarkRevoke measures a whole change of writers with each method: revoke, grant, attach,
// write. It also reports revoking and granting alone.
func BenchmarkRevoke(b *testing.B) {
	for _, method := range append(methods, PermissionsQueuePair) {
		b.Run(string(method), func(b *testing.B) {
			d := newDuoBy(b, method, 4096)
			write := rdmanet.Operation{Kind: rdmanet.OperationWrite, Bytes: []byte("12345678")}
			d.must(d.do(write))
			var revoking time.Duration
			for b.Loop() {
				begun := time.Now()
				d.must(d.region.Revoke(d.peer()))
				d.must(d.region.Grant(d.peer(), rdmanet.PermissionReadWrite))
				revoking += time.Since(begun)
				d.attach()
				d.must(d.do(write))
			}
			b.ReportMetric(float64(revoking.Nanoseconds())/float64(b.N), "revoke-ns/op")
		})
	}
}
