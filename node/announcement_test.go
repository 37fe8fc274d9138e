package node

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/order"
)

func announcements() []announcement {
	return []announcement{
		{mode: api.ModeStarting},
		{mode: api.ModeStopping, run: 1 << 16, stalled: true, first: 5, base: 4, baseHash: ledger.Hash{3}, members: []order.ServerID{0, 7, 1 << 20}, removed: []order.ServerID{0}, entrants: []mempool.Entrant{{Server: 7, Ticket: 1 << 63}}, changes: 3,
			decided: 1 << 60, heights: api.Heights{Ordered: 9, Stored: 8, Durable: 7}, tip: ledger.Hash{1, 31: 2}, clock: 1_700_000_000_000, apiAddress: "http://127.0.0.1:8080", settings: "allconcur+"},
		{mode: api.ModeOrdering, apiAddress: strings.Repeat("a", 255), settings: strings.Repeat("e", 255)},
	}
}

func TestAnnouncementRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range announcements() {
		got, err := decodeAnnouncement(want.encode())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
	}
	long := announcement{mode: api.ModeHalted, apiAddress: strings.Repeat("a", 1000)}
	if got, err := decodeAnnouncement(long.encode()); err != nil || len(got.apiAddress) != 255 {
		t.Errorf("a long address: %d bytes, %v", len(got.apiAddress), err)
	}
}

func TestAnnouncementDecodingIsStrict(t *testing.T) {
	t.Parallel()
	for _, a := range announcements() {
		whole := a.encode()
		for length := range whole {
			if _, err := decodeAnnouncement(whole[:length]); err == nil {
				t.Errorf("%d of %d bytes were taken", length, len(whole))
			}
		}
		if _, err := decodeAnnouncement(append(bytes.Clone(whole), 0)); err == nil {
			t.Error("a byte too many was taken")
		}
		for place, value := range map[int]byte{0: 2, 1: 77, 2: 2} {
			wrong := bytes.Clone(whole)
			wrong[place] = value
			if _, err := decodeAnnouncement(wrong); err == nil {
				t.Errorf("byte %d as %d was taken", place, value)
			}
		}
	}
}

func FuzzDecodeAnnouncement(f *testing.F) {
	for _, a := range announcements() {
		f.Add(a.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAnnouncement(b)
		if err == nil && !bytes.Equal(a.encode(), b) {
			t.Fatalf("%x was taken and means %x", b, a.encode())
		}
	})
}

// Near the reserve the answer does not change back and forth.
func TestDiskWatchHasHysteresis(t *testing.T) {
	t.Parallel()
	free := uint64(0)
	w := newDiskWatch("", store.Options{ReserveBytes: 1000, FreeSpace: func(string) (uint64, error) { return free, nil }})
	for _, step := range []struct {
		free uint64
		low  bool
	}{{2000, false}, {1300, false}, {1250, false}, {1249, true}, {1300, true}, {1499, true}, {1500, false}, {1260, false}, {0, true}, {9999, false}} {
		free = step.free
		w.mu.Lock()
		w.at = w.at.Add(-diskLook) // as if the last look were old
		w.mu.Unlock()
		if w.low() != step.low {
			t.Fatalf("with %d bytes: low is %v", step.free, !step.low)
		}
	}
}
