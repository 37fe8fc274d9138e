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
	"time"

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
	// The copy is no moment's folder if the database gets blocks meanwhile.
	if err := s.awaitWritten(s.AppendedHeight()); err != nil {
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
		// A database that lags makes the journal grow, with records or without.
		if err := s.awaitWritten(s.AppendedHeight()); err != nil {
			t.Fatal(err)
		}
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

// A store that replaces another one has its last record.
func TestAdoptRecord(t *testing.T) {
	t.Parallel()
	s, b := open(t, t.TempDir(), small()), newBook(5)
	dir := t.TempDir()
	again := open(t, dir, small())
	again.AdoptRecord(s) // there is none
	b.apply(t, s, 3)
	putRecord(t, s, "record", b.round+1)
	again.AdoptRecord(s)
	closeStore(t, again)
	again = open(t, dir, small())
	mustHaveRecord(t, again, "record")
	closeStore(t, again)
	closeStore(t, s)
}

// journalBytes returns how many bytes the files of a store's journal have.
func journalBytes(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, journalFolder))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if status, err := entry.Info(); err == nil { // it may be used again under another name
			bytes += status.Size()
		}
	}
	return bytes
}

// Rounds whose bundles are all refused make records and no blocks. Others make few and small ones.
// The journal's files stay bounded, and what is needed of it is there after each kill.
func TestJournalOfRecordsIsBounded(t *testing.T) {
	t.Parallel()
	const segment, bound = 64 << 10, 256 << 10
	for name, every := range map[string]int{"no blocks": 0, "few blocks": 40, "many blocks": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			options := small()
			options.SegmentBytes, options.releaseBytes = segment, bound
			options.checkpointBlocks = 1000
			s, b := open(t, dir, options), newBook(5)
			b.apply(t, s, 3)
			text := strings.Repeat("refused", 1200)
			deadline := time.Now().Add(time.Minute)
			for k := range 600 {
				if every > 0 && k%every == 0 {
					b.apply(t, s, 1)
				}
				err := s.PutRecord([]byte(fmt.Sprint(k, text)), b.round+1)
				for errors.Is(err, ErrNoRoom) && time.Now().Before(deadline) {
					time.Sleep(time.Millisecond) // until the writer has released some
					err = s.PutRecord([]byte(fmt.Sprint(k, text)), b.round+1)
				}
				if err := errors.Join(err, s.Sync()); err != nil {
					t.Fatal(err)
				}
				// Three segments are being left, prepared and kept for later.
				if has := journalBytes(t, dir); has > 2*bound+4*segment {
					t.Fatalf("%d bytes with record %d", has, k)
				}
				if k%150 != 149 {
					continue
				}
				if err := s.awaitWritten(s.AppendedHeight()); err != nil {
					t.Fatal(err)
				}
				again := t.TempDir()
				readFolder(t, dir).write(t, again) // killed, while the writer rests
				killed := open(t, again, options)
				mustHaveRecord(t, killed, fmt.Sprint(k, text))
				if killed.AppendedHeight() != s.AppendedHeight() {
					t.Errorf("block %d of %d is there", killed.AppendedHeight(),
						s.AppendedHeight())
				}
				closeStore(t, killed)
			}
			closeStore(t, s)
		})
	}
}

// While the writer does not keep up, the journal takes blocks and no records.
func TestRecordsFindNoRoom(t *testing.T) {
	t.Parallel()
	const bound = 256 << 10
	options := small()
	options.releaseBytes = bound
	free := make(chan struct{})
	options.onWrite = func(step string) {
		if step == "flush" {
			<-free
		}
	}
	dir := t.TempDir()
	s, b := open(t, dir, options), newBook(5)
	record := []byte(strings.Repeat("refused", 1200))
	put := func() error {
		err := s.PutRecord(record, b.round+1)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		return err
	}
	b.apply(t, s, 3)
	refused := 0
	for range 200 {
		switch err := put(); {
		case errors.Is(err, ErrNoRoom):
			refused++
		case err != nil:
			t.Fatal(err)
		}
	}
	if held, _ := s.journal.Use(0); refused == 0 || held > 2*bound+options.SegmentBytes {
		t.Errorf("%d records found no room, %d bytes are held", refused, held)
	}
	b.apply(t, s, 3) // the round of the last record
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	mustHaveRecord(t, s, "")
	close(free)
	if err := s.awaitWritten(s.AppendedHeight()); err != nil {
		t.Fatal(err)
	}
	if err := put(); err != nil {
		t.Error(err)
	}
	closeStore(t, s)
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
	if magics() != "4444" {
		t.Errorf("markers of versions %s, and the record is not past", magics())
	}
	s = open(t, dir, small())
	mustHaveRecord(t, s, "record")
	b.apply(t, s, 3)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	again := t.TempDir()
	readFolder(t, dir).write(t, again) // killed
	closeStore(t, s)                   // the record's group is released
	if magics() != "3333" {
		t.Errorf("markers of versions %s", magics())
	}
	s = open(t, again, small())
	closeStore(t, s)
	if dir = again; magics() != "3333" {
		t.Errorf("markers of versions %s, after a kill", magics())
	}

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
