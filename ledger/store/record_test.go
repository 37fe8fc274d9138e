package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// putRecord puts a record and syncs it.
func putRecord(t *testing.T, s *Store, text string, last ledger.Round) {
	t.Helper()
	if err := s.PutRecord([]byte(text), last); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
}

func mustHaveRecord(t *testing.T, s *Store, want string) {
	t.Helper()
	if found := string(s.LastRecord()); found != want {
		t.Fatalf("the record is %q, want %q", found, want)
	}
}

// The last record stays until the journal has a block of its last round, or a later record.
func TestLastRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, b := open(t, dir, small()), newBook(5)
	mustHaveRecord(t, s, "")
	b.apply(t, s, 3)
	if err := s.PutRecord([]byte("not synced"), b.round+2); err != nil {
		t.Fatal(err)
	}
	mustHaveRecord(t, s, "")
	putRecord(t, s, "first", b.round+2)
	mustHaveRecord(t, s, "first")
	if s.DurableHeight() != 1 {
		t.Fatal("the record came without the block before it")
	}
	for _, step := range []struct {
		record string // to put; "" for a block
		want   string
	}{{"", "first"}, {"second", "second"}, {"", "second"}, {"", ""}, {"third", "third"}} {
		if step.record != "" {
			putRecord(t, s, step.record, b.round+2)
		} else {
			b.apply(t, s, 3)
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		mustHaveRecord(t, s, step.want)
		closeStore(t, s)
		s = open(t, dir, small())
		mustHaveRecord(t, s, step.want)
	}
	closeStore(t, s)
}

// The journal keeps a record's group while the database gets the blocks behind it, and uses the
// segments again once the record is of no use.
func TestRecordIsNotReleased(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, b := open(t, dir, small()), newBook(5)
	far := ledger.Round(40)
	putRecord(t, s, "far", far)
	for b.round < far-1 {
		b.apply(t, s, 20)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.awaitWritten(7); err != nil {
		t.Fatal(err)
	}
	again := t.TempDir()
	readFolder(t, dir).write(t, again) // killed
	killed := open(t, again, small())
	mustHaveRecord(t, killed, "far")
	closeStore(t, killed)
	for range 40 {
		b.apply(t, s, 20)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		putRecord(t, s, "near", b.round+1)
	}
	closeStore(t, s)
	segments, err := os.ReadDir(filepath.Join(dir, journalFolder))
	if err != nil || len(segments) > 6 {
		t.Errorf("%d segments, %v", len(segments), err)
	}
	if s.marker.last.group < 40 {
		t.Errorf("only group %d is released", s.marker.last.group)
	}
}

// A record's group is the last one, and torn or harmed.
func TestLastGroupWithRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, b := open(t, dir, small()), newBook(5)
	for range 3 {
		b.apply(t, s, 3)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	putRecord(t, s, "before", b.round+1)
	putRecord(t, s, strings.Repeat("last", 300), b.round+1)
	whole := readFolder(t, dir)
	closeStore(t, s)
	name := ""
	for _, each := range whole.names() {
		if name == "" && strings.HasPrefix(each, journalFolder+"/") &&
			strings.HasSuffix(each, ".log") {
			name = each
		}
	}
	at := bytes.Index(whole[name].data, []byte("lastlast"))
	if at < 0 {
		t.Fatalf("no record in %s", name)
	}
	for what, test := range map[string]struct {
		harm    func(data []byte)
		want    string
		perhaps bool
	}{
		"whole":           {func([]byte) {}, strings.Repeat("last", 300), false},
		"never written":   {func(data []byte) { clear(data[at/4096*4096:]) }, "before", false},
		"torn":            {func(data []byte) { clear(data[at/512*512:][:512]) }, "before", false},
		"a harmed sector": {func(data []byte) { data[at] ^= 1 }, "before", true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			changed := maps.Clone(whole)
			content := changed[name]
			content.data = bytes.Clone(content.data)
			test.harm(content.data)
			changed[name] = content
			again := t.TempDir()
			changed.write(t, again)
			s := open(t, again, small())
			defer closeStore(t, s)
			mustHaveRecord(t, s, test.want)
			if perhaps, _, _ := s.Perhaps(); perhaps != test.perhaps || s.AppendedHeight() != 3 {
				t.Errorf("perhaps %v, height %d", perhaps, s.AppendedHeight())
			}
		})
	}
}

// A program that does not know records refuses the store by its markers, all of them, and this one
// refuses groups of later versions without calling them damaged.
func TestVersionsOfRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, b := open(t, dir, small()), newBook(5)
	magics := func() (text string) {
		data, err := os.ReadFile(filepath.Join(dir, markerFile))
		if err != nil {
			t.Fatal(err)
		}
		for slot := range markerSlots {
			text += string(data[slot*slotSize+7])
		}
		return text
	}
	b.apply(t, s, 3)
	if err := s.Sync(); err != nil || magics() != "3333" {
		t.Fatalf("markers of versions %s, %v", magics(), err)
	}
	putRecord(t, s, "record", b.round+1)
	if magics() != "4444" {
		t.Errorf("markers of versions %s", magics())
	}
	closeStore(t, s)
	s = open(t, dir, small())
	b.apply(t, s, 3)
	closeStore(t, s) // the record's group is released
	s = open(t, dir, small())
	if found := s.marker.last.records; found || magics() != "3333" {
		t.Errorf("the markers, of versions %s, still tell of records: %t", magics(), found)
	}
	closeStore(t, s)

	_, _, err := eachInGroup(append([]byte{groupVersionRecords + 1}, make([]byte, 40)...), nil)
	var damage *DamageError
	if !errors.Is(err, ErrNewer) || errors.As(err, &damage) {
		t.Error(err)
	}
}

func FuzzGroup(f *testing.F) {
	f.Add(bytes.Join(groupParts(4, nil, &keptRecord{bytes: []byte("record"), last: 9}, 3), nil))
	f.Add(append([]byte{groupVersion}, make([]byte, 40)...))
	f.Fuzz(func(t *testing.T, payload []byte) {
		total := 0
		_, found, err := eachInGroup(payload, func(_ ledger.Height, encoded []byte) error {
			total += len(encoded) + 4
			return nil
		})
		if err != nil {
			if !errors.Is(err, errRow) && !errors.Is(err, ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		if found != nil {
			total += recordHeadSize + len(found.bytes)
		}
		if total+groupHeadSize != len(payload) {
			t.Fatal(fmt.Errorf("%d bytes of %d", total, len(payload)))
		}
	})
}
