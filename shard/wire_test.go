package shard

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

func someAnnouncement() Announcement {
	return Announcement{
		Mode: Ordering, Stalled: true, Learner: true, Full: true, Removed: []order.ServerID{4}, Decided: 7, Changes: 3, Follows: 9,
		Group: Group{
			Run: generation.NewRun(7, 2), First: 90, Base: 80, BaseHash: [32]byte{1},
			Members:  []order.ServerID{0, 2, 4},
			Entrants: []Entrant{{Server: 2, Ticket: 1 << 60, Disk: generation.DiskID{9}}},
		},
		Heights: Heights{Ordered: 100, Stored: 99, Durable: 98}, Tip: [32]byte{2}, Disk: generation.DiskID{3}, Absent: 5, Clock: 1 << 40,
		APIAddress: "http://127.0.0.1:8080", Settings: "allconcur+, eventual",
	}
}

func TestAnnouncementSurvivesItsEncoding(t *testing.T) {
	t.Parallel()
	for _, a := range []Announcement{{Mode: Starting}, someAnnouncement()} {
		encoded := a.Encode(nil)
		decoded, err := DecodeAnnouncement(encoded)
		if err != nil || !reflect.DeepEqual(decoded, a) {
			t.Fatalf("%+v came back as %+v, %v", a, decoded, err)
		}
		for end := range encoded {
			if _, err := DecodeAnnouncement(encoded[:end]); !errors.Is(err, ErrMessage) {
				t.Fatalf("the first %d of %d bytes: %v", end, len(encoded), err)
			}
		}
		if _, err := DecodeAnnouncement(append(encoded, 0)); !errors.Is(err, ErrMessage) {
			t.Fatalf("a byte too many: %v", err)
		}
	}
}

// A group that no run can have is refused with the announcement.
func TestUnsoundGroupIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Announcement){
		"a member twice":            func(a *Announcement) { a.Group.Members = []order.ServerID{0, 2, 2} },
		"members in no order":       func(a *Announcement) { a.Group.Members = []order.ServerID{2, 0, 4} },
		"no members":                func(a *Announcement) { a.Group.Members = nil },
		"removed twice":             func(a *Announcement) { a.Removed = []order.ServerID{4, 4} },
		"a run of no generation":    func(a *Announcement) { a.Group.Run = generation.NewRun(0, 1) },
		"a run from before round 1": func(a *Announcement) { a.Group.First = 0 },
	} {
		a := someAnnouncement()
		spoil(&a)
		if _, err := DecodeAnnouncement(a.Encode(nil)); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeAnnouncement(f *testing.F) {
	a := someAnnouncement()
	f.Add(a.Encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := DecodeAnnouncement(b); err == nil && !bytes.Equal(a.Encode(nil), b) {
			t.Fatalf("%x is another encoding of %+v", b, a)
		}
	})
}

func TestWishSurvivesItsEncoding(t *testing.T) {
	t.Parallel()
	for _, w := range []Wish{{Kind: WishEnter, Number: 1 << 63}, {Kind: WishAdmit, Disk: generation.DiskID{5}}} {
		if decoded, err := DecodeWish(w.Encode(nil)); err != nil || decoded != w {
			t.Fatalf("%+v came back as %+v, %v", w, decoded, err)
		}
	}
	for _, wrong := range [][]byte{nil, make([]byte, wishSize), Wish{Kind: WishAdmit + 1}.Encode(nil), Wish{Kind: WishEnter}.Encode([]byte{1})} {
		if _, err := DecodeWish(wrong); !errors.Is(err, ErrMessage) {
			t.Fatalf("%x: %v", wrong, err)
		}
	}
}

func FuzzDecodeWish(f *testing.F) {
	f.Add(Wish{Kind: WishRegroup, Number: 3}.Encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if w, err := DecodeWish(b); err == nil && !bytes.Equal(w.Encode(nil), b) {
			t.Fatalf("%x is another encoding of %+v", b, w)
		}
	})
}
