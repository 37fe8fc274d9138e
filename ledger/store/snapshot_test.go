package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

func believe(ledger.Height, ledger.Hash, bool) error { return nil }

// snapshotOf returns a snapshot of a store, and the block that it is of.
func snapshotOf(t testing.TB, s *Store) ([]byte, Head) {
	t.Helper()
	var to bytes.Buffer
	head, err := s.WriteSnapshot(t.Context(), &to)
	if err != nil {
		t.Fatalf("writing a snapshot: %v", err)
	}
	return to.Bytes(), head
}

// A store that begins with a snapshot continues like the original store, even with copies of
// earlier transactions, and is the same after it is reopened.
func TestSnapshotGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "one"), small())
	b := newBook(20)
	var payloads [][]byte
	for range 25 {
		payload := b.next(15)
		payloads = append(payloads, payload)
		if _, err := s.Apply(1, b.round, [][]byte{payload}); err != nil {
			t.Fatal(err)
		}
	}
	snapshot, head := snapshotOf(t, s)
	if head != s.Head() {
		t.Fatalf("a snapshot of %+v, the head is %+v", head, s.Head())
	}
	copied := filepath.Join(dir, "two")
	restored, err := Restore(t.Context(), copied, testGenesis(), small(),
		bytes.NewReader(snapshot), func(height ledger.Height, hash ledger.Hash, _ bool) error {
			if height != head.Height || hash != head.Hash {
				return fmt.Errorf("block %d %s", height, hash)
			}
			return nil
		})
	if err != nil || restored != head {
		t.Fatalf("restored %+v, %v; want %+v", restored, err, head)
	}
	two, taken := mustOpenTaking(t, copied, small())
	if !taken {
		t.Error("the state did not begin with the file of leaves")
	}
	if two.Absent() != head.Height || two.Head() != head || two.DurableHeight() != head.Height {
		t.Fatalf("opened at %+v, absent to %d, durable to %d", two.Head(), two.Absent(),
			two.DurableHeight())
	}
	for i := range 12 {
		// New transactions, with copies of transactions from before the snapshot, both applied and
		// failed ones.
		round := [][]byte{b.next(10), payloads[(i*7)%len(payloads)], payloads[len(payloads)-1-i]}
		first, err := s.Apply(1, b.round, round)
		if err != nil {
			t.Fatal(err)
		}
		second, err := two.Apply(1, b.round, round)
		if err != nil || second.Hash != first.Hash {
			t.Fatalf("round %d: block %v, want %s: %v", b.round, second, first.Hash, err)
		}
		if i == 6 {
			if err := two.Close(); err != nil {
				t.Fatal(err)
			}
			two = open(t, copied, small())
		}
	}
	if got, want := fmt.Sprintf("%+v %+v", two.Membership(), two.FormerMembers()),
		fmt.Sprintf("%+v %+v", s.Membership(), s.FormerMembers()); got != want {
		t.Errorf("members %s, want %s", got, want)
	}
	checkAbsent(t, s, two, head)
}

// checkAbsent checks that blocks up to the snapshot are reported as absent, and that later blocks
// are present.
func checkAbsent(t *testing.T, whole, s *Store, from Head) {
	t.Helper()
	for height := ledger.Height(1); height <= s.AppendedHeight(); height++ {
		header, hash, err := s.Header(height)
		wanted, wantedHash, _ := whole.Header(height)
		if err != nil || hash != wantedHash || header != wanted {
			t.Fatalf("header %d: %v", height, err)
		}
		block, err := s.Block(height)
		if (height <= from.Height) != errors.Is(err, ErrAbsent) || height > from.Height &&
			(err != nil || block.Hash != hash) {
			t.Fatalf("block %d: %v", height, err)
		}
		original, err := whole.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		for i := range original.Len() {
			id := original.Entry(i).ID
			if known, err := s.Known(id); err != nil || !known {
				t.Fatalf("transaction %s: known %v, %v", id, known, err)
			}
			if _, err := s.Transaction(id); (height <= from.Height) != errors.Is(err, ErrAbsent) ||
				height > from.Height && err != nil {
				t.Fatalf("transaction %s: %v", id, err)
			}
		}
	}
	for account, err := range whole.AllAccounts() {
		if err != nil {
			t.Fatal(err)
		}
		copied, err := s.Account(account.Path)
		if err != nil || fmt.Sprintf("%+v", copied) != fmt.Sprintf("%+v", account) {
			t.Fatalf("account %+v, want %+v: %v", copied, account, err)
		}
		if _, err := s.History(account.Path, 0, 1, false); account.History > 0 &&
			!errors.Is(err, ErrAbsent) {
			t.Errorf("the oldest step of %s: %v", account.Path, err)
		}
		if page, err := whole.History(account.Path, 0, 1, true); err != nil ||
			len(page.Items) == 0 || page.Items[0].Height <= from.Height {
			continue
		}
		if page, err := s.History(account.Path, 0, 1, true); err != nil || len(page.Items) != 1 {
			t.Errorf("the newest step of %s: %v", account.Path, err)
		}
	}
	if err := s.verify(t.Context(), nil); !errors.Is(err, ErrAbsent) {
		t.Errorf("verifying: %v", err)
	}
	of, _ := snapshotOf(t, whole)
	if again, _ := snapshotOf(t, s); !bytes.Equal(again, of) {
		t.Error("a snapshot of it differs from one of the store that has all blocks")
	}
}

// A snapshot is consistent even if blocks are appended while it is written.
func TestSnapshotWhileBlocksAreAppended(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "one"), small())
	b := newBook(50)
	for range 60 {
		b.apply(t, s, 80)
	}
	reading, writing := io.Pipe()
	written := make(chan error, 1)
	go func() {
		_, err := s.WriteSnapshot(t.Context(), writing)
		writing.CloseWithError(err)
		written <- err
	}()
	busy := &meanwhile{from: reading, do: func() { b.apply(t, s, 30) }}
	head, err := Restore(t.Context(), filepath.Join(dir, "two"), testGenesis(), small(), busy,
		believe)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if s.AppendedHeight() <= head.Height {
		t.Fatalf("nothing was appended: the snapshot is of block %d, the head is block %d",
			head.Height, s.AppendedHeight())
	}
	two := open(t, filepath.Join(dir, "two"), small())
	for height := head.Height + 1; height <= s.AppendedHeight(); height++ {
		block, err := s.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		if err := two.Append(block); err != nil {
			t.Fatalf("block %d: %v", height, err)
		}
	}
}

// meanwhile is a reader that calls do before each read.
type meanwhile struct {
	from io.Reader
	do   func()
}

func (m *meanwhile) Read(to []byte) (int, error) {
	m.do()
	return m.from.Read(to)
}

// A snapshot that does not match its block exactly is refused, and leaves nothing behind.
func TestBadSnapshots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "one"), small())
	b := newBook(5)
	for range 7 {
		b.apply(t, s, 4)
	}
	good, head := snapshotOf(t, s)
	trust := func(height ledger.Height, hash ledger.Hash, _ bool) error {
		if height != head.Height || hash != head.Hash {
			return ErrSnapshot
		}
		return nil
	}
	attempt := func(name string, data []byte, want error) {
		t.Helper()
		to := filepath.Join(dir, "attempt")
		if _, err := Restore(t.Context(), to, testGenesis(), small(), bytes.NewReader(data),
			trust); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		for _, left := range []string{to, to + partialSuffix} {
			if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("%s: left %s: %v", name, left, err)
			}
		}
	}
	random := rand.New(rand.NewPCG(3, 3))
	attempts := 30
	if testing.Short() {
		attempts = 8
	}
	for range attempts {
		damaged := bytes.Clone(good)
		at := random.IntN(len(damaged))
		if isLength(s, at) {
			continue
		}
		damaged[at] ^= 1 << random.IntN(8)
		attempt(fmt.Sprintf("byte %d of %d", at, len(good)), damaged, ErrSnapshot)
		attempt(fmt.Sprintf("cut at %d", at), good[:at], ErrSnapshot)
	}
	attempt("nothing", nil, ErrSnapshot)
	// A member that neither joined nor left is no entry of the state, so no digest covers it.
	before, entries := entriesIn(t, s, good)
	with := func(entries [][]byte) []byte {
		return slices.Concat(before, slices.Concat(entries...), []byte{0}, []byte(snapshotMagic))
	}
	if !bytes.Equal(with(entries), good) {
		t.Fatal("the entries are not found in the snapshot")
	}
	evil := []byte("\x06m\x00\x00\x00\x07\x00\x0e\x04evil\x01k\x00\x00\x00\x00\x00\x00\x00")
	at, _ := slices.BinarySearchFunc(entries, evil, func(a, b []byte) int {
		return bytes.Compare(a[1:], b[1:])
	})
	attempt("a planted member", with(slices.Insert(slices.Clone(entries), at, evil)), ErrSnapshot)
	for at := range len(entries) - 1 {
		swapped := slices.Clone(entries)
		swapped[at], swapped[at+1] = swapped[at+1], swapped[at]
		attempt("entries out of order", with(swapped), ErrSnapshot)
		if !testing.Short() || at == 0 {
			attempt("an entry twice", with(slices.Insert(slices.Clone(entries), at, entries[at])),
				ErrSnapshot)
		} else {
			break
		}
	}
	attempt("an empty entry", with(append(slices.Clone(entries), []byte("\x01\xff\x00"))),
		ErrSnapshot)
	other := testGenesis()
	other.Time++
	if _, err := Restore(t.Context(), filepath.Join(dir, "other"), other, small(),
		bytes.NewReader(good), believe); !errors.Is(err, ErrSnapshot) {
		t.Errorf("another chain's: %v", err)
	}
	refused := errors.New("not trusted")
	if _, err := Restore(t.Context(), filepath.Join(dir, "distrust"), testGenesis(), small(),
		bytes.NewReader(good), func(ledger.Height, ledger.Hash, bool) error {
			return refused
		}); !errors.Is(err, refused) {
		t.Errorf("without trust: %v", err)
	}
	if _, err := Restore(t.Context(), filepath.Join(dir, "one"), testGenesis(), small(),
		bytes.NewReader(good), believe); !errors.Is(err, ErrForeign) {
		t.Errorf("over a store: %v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Restore(stopped, filepath.Join(dir, "stopped"), testGenesis(), small(),
		bytes.NewReader(good), believe); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	if _, err := s.WriteSnapshot(stopped, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("writing, stopped: %v", err)
	}
	full := small()
	full.FreeSpace = func(string) (uint64, error) { return 0, nil }
	if _, err := Restore(t.Context(), filepath.Join(dir, "full"), testGenesis(), full,
		bytes.NewReader(good), believe); !errors.Is(err, ErrDiskFull) {
		t.Errorf("on a full disk: %v", err)
	}
	empty := open(t, filepath.Join(dir, "empty"), small())
	if _, err := empty.WriteSnapshot(t.Context(), io.Discard); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no block: %v", err)
	}
	// The remains of a killed attempt do no harm.
	to := filepath.Join(dir, "again")
	if err := os.MkdirAll(filepath.Join(to+partialSuffix, databaseFolder), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), to, testGenesis(), small(), bytes.NewReader(good),
		trust); err != nil {
		t.Errorf("after an attempt that was killed: %v", err)
	}
}

// entriesIn cuts a snapshot of a store into what comes before the state, and the state's entries.
func entriesIn(t testing.TB, s *Store, snapshot []byte) (before []byte, entries [][]byte) {
	t.Helper()
	start := len(snapshotMagic) + 2*ledger.HashSize + 8
	for height := ledger.Height(1); height <= s.AppendedHeight(); height++ {
		block, err := s.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		start += ledger.HeaderSize + 8 + len(block.Outline())
	}
	for rest := snapshot[start:]; rest[0] != 0; {
		end := 0
		for range 2 {
			length, size := binary.Uvarint(rest[end:])
			end += size + int(length)
		}
		entries, rest = append(entries, rest[:end]), rest[end:]
	}
	return snapshot[:start], entries
}

// isLength reports whether a byte of a snapshot belongs to the length of a block's encoding, on
// which nothing depends.
func isLength(s *Store, at int) bool {
	start := len(snapshotMagic) + 2*ledger.HashSize + 8
	for height := ledger.Height(1); height <= s.AppendedHeight(); height++ {
		if at >= start+ledger.HeaderSize && at < start+ledger.HeaderSize+8 {
			return true
		}
		if block, err := s.Block(height); err == nil {
			start += ledger.HeaderSize + 8 + len(block.Outline())
		}
	}
	return false
}

// Any bytes either make a store that can be opened, or leave nothing behind.
func FuzzRestore(f *testing.F) {
	s := open(f, f.TempDir(), small())
	b := newBook(2)
	for range 3 {
		b.apply(f, s, 2)
	}
	good, head := snapshotOf(f, s)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := filepath.Join(t.TempDir(), "store")
		restored, err := Restore(t.Context(), dir, testGenesis(), small(),
			bytes.NewReader(data), func(_ ledger.Height, hash ledger.Hash, _ bool) error {
				if hash != head.Hash {
					return ErrSnapshot
				}
				return nil
			})
		if err == nil && restored == head {
			opened := open(t, dir, small())
			if opened.Head() != head {
				t.Fatalf("opened at %+v", opened.Head())
			}
			return
		}
		if !errors.Is(err, ErrSnapshot) {
			t.Fatalf("restored %+v, %v", restored, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Fatal("a refused snapshot left a store")
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	s := open(b, b.TempDir(), Options{ReserveBytes: 1})
	book := newBook(1000)
	for range 100 {
		book.apply(b, s, 1000)
	}
	b.ReportAllocs()
	for b.Loop() {
		snapshot, _ := snapshotOf(b, s)
		b.SetBytes(int64(len(snapshot)))
		if _, err := Restore(b.Context(), filepath.Join(b.TempDir(), "copy"), testGenesis(),
			Options{ReserveBytes: 1}, bytes.NewReader(snapshot), believe); err != nil {
			b.Fatal(err)
		}
	}
}
