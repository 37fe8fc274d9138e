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
		Mode: Ordering, Stalled: true, Learner: true, Original: true, Full: true,
		Removed: []order.ServerID{4},
		Decided: 7, Changes: 3, Follows: 9,
		Group: Group{
			Run: generation.NewRun(7, 2), First: 90, Base: 80, BaseHash: [32]byte{1},
			Members:  []order.ServerID{0, 2, 4},
			Entrants: []Entrant{{Server: 2, Ticket: 1 << 60, Disk: generation.DiskID{9}}},
		},
		Heights: Heights{Ordered: 100, Stored: 99, Durable: 98}, Tip: [32]byte{2},
		Disk: generation.DiskID{3}, Absent: 5, Clock: 1 << 40,
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

// An announcement with a group that no run can have is refused.
func TestUnsoundGroupIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Announcement){
		"a member twice": func(a *Announcement) {
			a.Group.Members = []order.ServerID{0, 2, 2}
		},
		"members in no order": func(a *Announcement) {
			a.Group.Members = []order.ServerID{2, 0, 4}
		},
		"no members":    func(a *Announcement) { a.Group.Members = nil },
		"removed twice": func(a *Announcement) { a.Removed = []order.ServerID{4, 4} },
		"a run of no generation": func(a *Announcement) {
			a.Group.Run = generation.NewRun(0, 1)
		},
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
	for _, w := range []Wish{{Kind: WishEnter, Number: 1 << 63},
		{Kind: WishAdmit, Disk: generation.DiskID{5}}} {
		if decoded, err := DecodeWish(w.Encode(nil)); err != nil || decoded != w {
			t.Fatalf("%+v came back as %+v, %v", w, decoded, err)
		}
	}
	for _, wrong := range [][]byte{nil, make([]byte, wishSize),
		Wish{Kind: WishAdmit + 1}.Encode(nil), Wish{Kind: WishEnter}.Encode([]byte{1})} {
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

// TestMessagesThatAreNone: version, mode, flags, order and lengths have to be right.
func TestMessagesThatAreNone(t *testing.T) {
	t.Parallel()
	good := Announcement{Mode: Leaving, Group: Group{Members: []order.ServerID{1, 2}}}
	for name, change := range map[string]func(b []byte) []byte{
		"version":     func(b []byte) []byte { b[0]++; return b },
		"mode 0":      func(b []byte) []byte { b[1] = 0; return b },
		"a mode more": func(b []byte) []byte { b[1] = byte(Leaving) + 1; return b },
		"a flag more": func(b []byte) []byte { b[2] = flagsAll + 1; return b },
		"out of order": func([]byte) []byte {
			a := good
			a.Group.Members = []order.ServerID{2, 1}
			return a.Encode(nil)
		},
		"nothing": func([]byte) []byte { return nil },
	} {
		if _, err := DecodeAnnouncement(change(good.Encode(nil))); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := DecodeAnnouncement(good.Encode(nil)); err != nil {
		t.Error(err)
	}
	for flag, set := range map[byte]func(*Announcement) *bool{
		flagStalled: func(a *Announcement) *bool {
			return &a.Stalled
		}, flagLearner: func(a *Announcement) *bool { return &a.Learner },
		flagFull:     func(a *Announcement) *bool { return &a.Full },
		flagOriginal: func(a *Announcement) *bool { return &a.Original },
	} {
		a := good
		*set(&a) = true
		if b := a.Encode(nil); b[2] != flag {
			t.Errorf("flags %#x, want %#x", b[2], flag)
		} else if got, err := DecodeAnnouncement(b); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v comes back as %+v, %v", a, got, err)
		}
	}
}

// TestWhatIsTooLongIsCut: Encode cuts what does not fit into an announcement, and decoding reads no
// more.
func TestWhatIsTooLongIsCut(t *testing.T) {
	t.Parallel()
	for _, entrants := range []int{entrantsMax, entrantsMax + 1} {
		a := Announcement{Mode: Starting, Group: Group{Entrants: make([]Entrant, entrants)},
			Settings: string(make([]byte, textMax+1)), APIAddress: string(make([]byte, textMax))}
		got, err := DecodeAnnouncement(a.Encode(nil))
		if err != nil || len(got.Group.Entrants) != entrantsMax || len(got.Settings) != textMax ||
			len(got.APIAddress) != textMax {
			t.Errorf("%d entrants: %d of them, texts of %d and %d bytes, %v", entrants,
				len(got.Group.Entrants), len(got.Settings), len(got.APIAddress), err)
		}
	}
	a := Announcement{Mode: Starting}
	for server := range order.ServerID(serversMax) {
		a.Removed = append(a.Removed, server)
	}
	if got, err := DecodeAnnouncement(a.Encode(nil)); err != nil ||
		len(got.Removed) != serversMax-1 {
		t.Errorf("%d servers, %v", len(got.Removed), err)
	}
	for _, c := range []struct {
		most, size, bytes int
		broken            bool
	}{{3, 4, 12, false}, {3, 4, 11, true}, {3, 4, 99, false}, {2, 4, 12, true}, {2, 0, 0, true}} {
		r := reader{bytes: append([]byte{3, 0}, make([]byte, c.bytes)...)}
		if count := r.count(c.most, c.size); r.broken != c.broken || (count == 3) == c.broken {
			t.Errorf("%+v: %d", c, count)
		}
	}
}
