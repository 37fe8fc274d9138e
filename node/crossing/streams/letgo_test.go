package streams

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// watchedHost is a host that watches the rings that are made on it.
type watchedHost struct {
	rdmanet.RegionHost
	watch *ringWatch
}

// ringWatch notes what is done with rings that is not in order: a ring is taken from its writer
// first, then it is looked at a last time, and only then it is freed.
type ringWatch struct {
	mu     sync.Mutex
	letGo  int
	wrongs []string
}

func (h watchedHost) Expose(name string, size int) (rdmanet.Region, error) {
	region, err := h.RegionHost.Expose(name, size)
	if err != nil || !strings.HasPrefix(name, "stream/") {
		return region, err
	}
	return &watchedRing{Region: region, watch: h.watch}, nil
}

// watchedRing is a ring with what was done with it last.
type watchedRing struct {
	rdmanet.Region
	watch *ringWatch

	mu                      sync.Mutex
	holder                  rdmanet.Peer
	revoked, looked, closed bool
}

func (r *watchedRing) Grant(peer rdmanet.Peer, permission rdmanet.Permission) error {
	r.mu.Lock()
	r.holder = peer
	r.mu.Unlock()
	return r.Region.Grant(peer, permission)
}

func (r *watchedRing) Revoke(peer rdmanet.Peer) error {
	err := r.Region.Revoke(peer)
	r.mu.Lock()
	r.revoked, r.looked = err == nil && peer == r.holder, false
	r.mu.Unlock()
	return err
}

func (r *watchedRing) Load(offset int) uint64 {
	word := r.Region.Load(offset)
	r.mu.Lock()
	r.looked = true
	r.mu.Unlock()
	return word
}

func (r *watchedRing) Close() error {
	r.mu.Lock()
	r.watch.mu.Lock()
	if !r.closed {
		r.watch.letGo++
		if !r.revoked || !r.looked {
			r.watch.wrongs = append(r.watch.wrongs, fmt.Sprintf("%s is freed: revoked %v, looked "+
				"at since %v", r.Name(), r.revoked, r.looked))
		}
	}
	r.closed = true
	r.watch.mu.Unlock()
	r.mu.Unlock()
	return r.Region.Close()
}

// A ring is revoked before it is let go, and read a last time in between. So a write either counts
// here or fails at its writer: none is complete there and lost here.
func TestRingIsRevokedBeforeItIsLetGo(t *testing.T) {
	bothWays(t, func(t *testing.T, vouched bool) {
		for _, wrong := range wrongsOfRings(t, vouched, 0) {
			t.Error(wrong)
		}
	})
}

// A ring that is let go and not revoked is noticed.
func TestRingThatIsNotRevokedIsNoticed(t *testing.T) {
	t.Parallel()
	if len(wrongsOfRings(t, false, faultNotRevoked)) == 0 {
		t.Error("the planted bug is not found")
	}
}

// wrongsOfRings lets a writer come back and another one leave, and says what was not in order with
// the rings that were let go.
func wrongsOfRings(t *testing.T, vouched bool, fault fault) []string {
	w := newWorld(t, 2, 1)
	w.vouched, w.fault = vouched, fault
	watch, listen := &ringWatch{}, w.listen
	w.listen = func(id rdmanet.PeerID) (rdmanet.RegionHost, error) {
		host, err := listen(id)
		if err != nil || id != "1/0" {
			return host, err
		}
		return watchedHost{RegionHost: host, watch: watch}, nil
	}
	w.startAll()
	w.extend(10, 10)
	w.mustArrive()
	w.attached(1)
	// A writer comes back, and another one leaves.
	w.stop("0/0")
	w.start("0/0", 1)
	w.extend(10, 10)
	w.mustArrive()
	w.attached(1)
	w.setMembers(parentShard, w.present[parentShard][:1]) // only this test changes them
	w.stop("0/1")
	w.extend(10, 10)
	w.mustArrive()
	err := eventually(20*time.Second, func() (bool, error) {
		watch.mu.Lock()
		defer watch.mu.Unlock()
		return watch.letGo >= 2, nil
	}, func() string { return "the rings are not let go" })
	if err != nil {
		t.Fatal(err)
	}
	watch.mu.Lock()
	defer watch.mu.Unlock()
	return watch.wrongs
}
