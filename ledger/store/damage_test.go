package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

var flips = flag.Int("flips", 120, "how many single flipped bits TestFlippedBit tries")

// folder is a store's folder in memory: for each file, the bytes without trailing zeros, and the
// size.
type folder map[string]file

type file struct {
	data []byte
	size int64
}

// readFolder reads a store's folder. The database may have it open, so it is read again until two
// readings are equal: the result is what the folder was between them. If the files were of
// different moments, a marker could tell of blocks that a log does not have yet.
func readFolder(t testing.TB, dir string) folder {
	t.Helper()
	for before := readFiles(t, dir); ; {
		now := readFiles(t, dir)
		if maps.EqualFunc(before, now, file.equal) {
			return now
		}
		before = now
	}
}

// readFiles reads each file of a folder once. It leaves out a file that is removed meanwhile.
func readFiles(t testing.TB, dir string) folder {
	t.Helper()
	files := folder{}
	for _, name := range listFolder(t, dir) {
		content, err := readTrimmed(filepath.Join(dir, name))
		switch {
		case err == nil:
			files[name] = content
		case !errors.Is(err, fs.ErrNotExist):
			t.Fatal(err)
		}
	}
	return files
}

func (f file) equal(other file) bool {
	return f.size == other.size && bytes.Equal(f.data, other.data)
}

// listFolder returns the names of all files below a folder, sorted.
func listFolder(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(names)
	return names
}

// readTrimmed reads a file. Most of a database's files are zeros, such as the 32 MiB that Badger
// reserves for its value log: it keeps none of them in memory.
func readTrimmed(path string) (file, error) {
	opened, err := os.Open(path)
	if err != nil {
		return file{}, err
	}
	defer func() { _ = opened.Close() }()
	var read file
	for buffer := make([]byte, 64<<10); ; {
		n, err := io.ReadFull(opened, buffer)
		if some := trimZeros(buffer[:n]); len(some) > 0 {
			zeros := make([]byte, read.size-int64(len(read.data)))
			read.data = append(append(read.data, zeros...), some...)
		}
		read.size += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return read, nil
		case err != nil:
			return file{}, err
		}
	}
}

// trimZeros returns data without the zeros at its end. It compares whole pages: the race detector
// makes a look at each byte slow.
func trimZeros(data []byte) []byte {
	for len(data) >= len(zeroPage) && bytes.Equal(data[len(data)-len(zeroPage):], zeroPage[:]) {
		data = data[:len(data)-len(zeroPage)]
	}
	return bytes.TrimRight(data, "\x00")
}

var zeroPage [4096]byte

func (f folder) write(t testing.TB, dir string) {
	t.Helper()
	for name, content := range f {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, content.data, 0o600)
		}
		if err == nil {
			err = os.Truncate(path, content.size)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (f folder) names() []string {
	var names []string
	for name := range f {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// damagedFolders returns the folder of a store that was closed, the folder of a store that was
// killed after a Sync, and the hash of all reads from them.
func damagedFolders(t testing.TB) (closed, killed folder, text string) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir, small())
	b := newBook(20)
	for range 60 {
		b.apply(t, s, 1+int(b.round)%40)
		if b.round == 30 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir, small())
		}
		if b.round == 50 { // the database has something to lose
			if err := s.awaitWritten(s.AppendedHeight()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	awaitWriter(t, s)           // the folder must not change while it is read
	killed = readFolder(t, dir) // with blocks that only the journal has
	text = mustReadAll(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return readFolder(t, dir), killed, text
}

// awaitWriter waits until the database has all full layers.
func awaitWriter(t testing.TB, s *Store) {
	t.Helper()
	writes := func() bool {
		s.mutex.RLock()
		defer s.mutex.RUnlock()
		return len(s.unwritten.layers) > 1 || s.full()
	}
	for deadline := time.Now().Add(time.Minute); writes(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the writer does not come to an end")
		}
	}
}

// reopen opens a possibly damaged folder and reads everything.
func reopen(t testing.TB, dir string) (text string, err error) {
	t.Helper()
	return reopenBook(t, dir, testGenesis())
}

func reopenBook(t testing.TB, dir string, genesis *ledger.Genesis) (text string, err error) {
	t.Helper()
	options := small()
	options.DecodedCacheBytes = 1 << 20
	s, err := Open(dir, genesis, options)
	if err != nil {
		return "", err
	}
	text, err = readAll(s)
	if closing := s.Close(); err == nil && closing != nil && !errors.Is(closing, ErrDamaged) {
		t.Logf("close: %v", closing)
	}
	return text, err
}

// TestFlippedBit flips single bits anywhere in copies of a store. Each time, the store must read
// exactly as before or report damage.
func TestFlippedBit(t *testing.T) {
	t.Parallel()
	closed, killed, text := damagedFolders(t)
	random := rand.New(rand.NewPCG(11, 3))
	unharmed, told := 0, map[string]int{}
	count := *flips
	if testing.Short() {
		count = min(count, 30)
	}
	for i := range count {
		kind, files := "closed", closed
		if i%2 == 1 {
			kind, files = "killed", killed
		}
		names := files.names()
		name := names[i/2%len(names)]
		if len(files[name].data) == 0 {
			continue
		}
		position, bit := random.IntN(len(files[name].data)), random.IntN(8)
		where := fmt.Sprintf("%s: bit %d of byte %d of %s", kind, bit, position, name)
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		files.write(t, dir)
		flip(t, filepath.Join(dir, name), position, bit)
		got, err := reopen(t, dir)
		var damage *DamageError
		switch {
		case err == nil && got == text:
			unharmed++
		case err == nil && kind == "killed" && strings.HasPrefix(name, journalFolder):
			// Of the last group, nothing says whether it was announced.
			s := open(t, dir, small())
			if perhaps, from, _ := s.Perhaps(); !perhaps || from != s.AppendedHeight()+1 {
				t.Errorf("%s: the store ends at block %d, perhaps %v from %d", where,
					s.AppendedHeight(), perhaps, from)
			}
			closeStore(t, s)
			told["doubt"]++
		case err == nil:
			t.Errorf("%s: the store reads wrong", where)
		case errors.As(err, &damage):
			told[filepath.Ext(name)]++
		default:
			t.Errorf("%s: %v", where, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d flips: %d harmless, told by file: %v", count, unharmed, told)
	if len(told) == 0 {
		t.Error("no flip did any harm: the test tests nothing")
	}
}

func flip(t testing.TB, path string, position, bit int) {
	t.Helper()
	handle, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var one [1]byte
	if _, err = handle.ReadAt(one[:], int64(position)); err == nil {
		one[0] ^= 1 << bit
		_, err = handle.WriteAt(one[:], int64(position))
	}
	if err = errors.Join(err, handle.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestLostTail cuts off the write-ahead log's end, which Badger accepts without an error. The end
// may hold only what nothing needs, such as a run of the index that was being merged.
func TestLostTail(t *testing.T) {
	t.Parallel()
	_, killed, text := damagedFolders(t)
	reported := 0
	for _, name := range killed.names() {
		content := killed[name]
		if !strings.HasSuffix(name, ".mem") || len(content.data) < 1000 {
			continue
		}
		for part := range 8 {
			dir := t.TempDir()
			killed.write(t, dir)
			flip(t, filepath.Join(dir, name), len(content.data)*part/8+100, 3)
			got, err := reopen(t, dir)
			var damage *DamageError
			switch {
			case errors.As(err, &damage) && damage.Height >= 2 && damage.Height <= 60:
				reported++
			case err != nil || got != text:
				t.Errorf("%s, cut at part %d: it reads differently, or not: %v", name, part, err)
			}
		}
	}
	if reported == 0 {
		t.Fatal("no lost record of a write-ahead log was reported")
	}
}

// Open itself notices what the database has lost from its logs of headers, ids and the state: what
// it leaves to be checked behind was in tables.
func TestLostTailFoundByOpen(t *testing.T) {
	t.Parallel()
	options := small()
	options.unsettledBytes = 0 // as products have it
	reported := 0
	_, killed, text := damagedFolders(t)
	for _, name := range killed.names() {
		size := len(killed[name].data)
		if !strings.HasSuffix(name, ".mem") || size < 1000 {
			continue
		}
		for part := range 8 {
			dir := t.TempDir()
			killed.write(t, dir)
			flip(t, filepath.Join(dir, name), size*part/8+100, 3)
			s, err := Open(dir, testGenesis(), options)
			if err != nil {
				if reported++; !errors.Is(err, ErrDamaged) {
					t.Errorf("%s, cut at part %d: %v", name, part, err)
				}
				continue
			}
			if err := s.verify(t.Context(), nil); err != nil || mustReadAll(t, s) != text {
				t.Errorf("%s, cut at part %d: Open did not find it: %v", name, part, err)
			}
			mustCheck(t, s)
			closeStore(t, s)
		}
	}
	if reported == 0 {
		t.Fatal("no lost record of a write-ahead log was reported")
	}
}

// TestMissingRows removes rows, or replaces them with older or foreign ones, through the database
// itself. The store must report the damage.
func TestMissingRows(t *testing.T) {
	t.Parallel()
	closed, _, _ := damagedFolders(t)
	for _, kind := range []byte{rowHead, rowGenesis, rowHeader, rowPacked, rowRun, rowRuns,
		rowSteps, rowEntries} {
		for _, damage := range []string{"missing", "empty", "of another key"} {
			t.Run(fmt.Sprintf("%c %s", kind, damage), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				closed.write(t, dir)
				tamper(t, dir, kind, damage)
				if _, err := reopen(t, dir); !errors.Is(err, ErrDamaged) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// Open removes nothing from a store that it finds damaged. Without the row of runs, it cannot know
// which runs were replaced.
func TestDamagedStoreIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := small()
	options.chunkBytes = 1 // so many rows that the database's batch is not held back
	s := open(t, dir, options)
	newBook(3000).apply(t, s, 0)
	rows := func(db *badger.DB) (count int) {
		transaction := db.NewTransaction(false)
		defer transaction.Discard()
		rows := transaction.NewIterator(badger.IteratorOptions{Prefix: []byte{rowEntries}})
		defer rows.Close()
		for rows.Rewind(); rows.Valid(); rows.Next() {
			count++
		}
		return count
	}
	if err := errors.Join(s.awaitWritten(1), s.db.Update(func(transaction *badger.Txn) error {
		return transaction.Delete([]byte{rowRuns})
	})); err != nil {
		t.Fatal(err)
	}
	before := rows(s.db)
	closeStore(t, s)
	if _, err := Open(dir, testGenesis(), options); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	s = &Store{dir: dir, options: options.withDefaults(), marker: &marker{last: tip{height: 1}}}
	if err := s.openDatabase(); err != nil {
		t.Fatal(err)
	}
	if after := rows(s.db); before < 3000 || after != before {
		t.Errorf("%d rows before, %d after", before, after)
	}
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
}

func tamper(t *testing.T, dir string, kind byte, damage string) {
	t.Helper()
	s := &Store{dir: dir, options: small().withDefaults(), marker: &marker{last: tip{height: 1}}}
	if err := s.openDatabase(); err != nil {
		t.Fatal(err)
	}
	var named []*run
	err := s.db.View(func(transaction *badger.Txn) (err error) {
		_, named, err = readRuns(transaction)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var keys, values [][]byte
	if err := s.eachRow(kind, func(key, value []byte) error {
		if slices.Contains(runRows, runKind(kind)) && !slices.ContainsFunc(named,
			func(r *run) bool { return r.number == binary.BigEndian.Uint64(key[1:]) }) {
			return nil // it was replaced, and is about to be removed
		}
		keys, values = append(keys, bytes.Clone(key)),
			append(values, bytes.Clone(seal(bytes.Clone(key), bytes.Clone(value))))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	transaction := s.db.NewTransaction(true)
	victim := len(keys) / 2
	switch damage {
	case "missing":
		err = transaction.Delete(keys[victim])
	case "empty":
		err = transaction.Set(keys[victim], nil)
	default:
		err = transaction.Set(keys[victim], values[(victim+1)%len(values)])
		if len(keys) == 1 {
			err = transaction.Set(keys[victim], seal([]byte("other"), bytes.Clone(values[0])))
		}
	}
	if err = errors.Join(err, transaction.Commit(), s.db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestMarker damages the tip marker. One damaged copy does no harm, two damaged copies are
// reported.
func TestMarker(t *testing.T) {
	t.Parallel()
	closed, _, text := damagedFolders(t)
	for slots, harm := range map[string]bool{"0": false, "1": false, "2": false, "3": false,
		"0123": true} {
		dir := t.TempDir()
		closed.write(t, dir)
		for _, slot := range slots {
			flip(t, filepath.Join(dir, markerFile), int(slot-'0')*slotSize+20, 1)
		}
		got, err := reopen(t, dir)
		if harm && !errors.Is(err, ErrDamaged) || !harm && (err != nil || got != text) {
			t.Errorf("slots %s: %v", slots, err)
		}
	}
	dir := t.TempDir()
	closed.write(t, dir)
	if err := os.Remove(filepath.Join(dir, markerFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := reopen(t, dir); !errors.Is(err, ErrDamaged) {
		t.Errorf("no marker: %v", err)
	}
}

func FuzzTipMarker(f *testing.F) {
	f.Add((&tip{generation: 3, height: 7, known: 5, perhaps: 8}).encode())
	f.Add(encodeV1(&tip{generation: 3, height: 7}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := decodeTip(data)
		if err != nil {
			return
		}
		encoded := decoded.encode()
		if [8]byte(data) == markerMagicV1 {
			encoded = encodeV1(&decoded)
		}
		if !bytes.Equal(encoded, data[:len(encoded)]) {
			t.Fatal("a marker has two encodings")
		}
	})
}

func FuzzRows(f *testing.F) {
	f.Add((&stateRow{height: 3, before: []byte("b"), after: []byte("a")}).append(nil))
	f.Add(position{height: 1, index: 2}.append(nil))
	f.Add(headRow(3, ledger.Hash{1}))
	f.Add(headerRow((&ledger.Header{Height: 3}).Encode(), 12))
	f.Add(appendPlace(nil, 3, 2))
	f.Add(appendHistory(nil, []step{{height: 3}, {height: 4}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if row, err := decodeStateRow(data); err == nil && len(row.append(nil)) > len(data) {
			t.Fatal("a state row grows")
		}
		if where, err := decodePosition(data); err == nil && !bytes.Equal(where.append(nil), data) {
			t.Fatal("a position has two encodings")
		}
		if where, err := decodeHistory(data, 0); err == nil && len(data) == 12 &&
			!bytes.Equal(appendHistory(nil, []step{{index: where.index,
				height: where.height}}), data) {
			t.Fatal("a history row has two encodings")
		}
		if height, hash, err := decodeHeadRow(data); err == nil &&
			!bytes.Equal(headRow(height, hash), data) {
			t.Fatal("a head row has two encodings")
		}
		if header, length, err := decodeHeaderRow(data); err == nil &&
			!bytes.Equal(headerRow(header.Encode(), int(length)), data) {
			t.Fatal("a header row has two encodings")
		}
		if where, err := decodePlace(data); err == nil &&
			!bytes.Equal(appendPlace(nil, where.height, where.index), data) {
			t.Fatal("a place has two encodings")
		}
		_, _ = unseal(data, data)
	})
}

// A process that is killed while it writes a table leaves a file that the database's manifest does
// not name. Such a file is no damage, whatever it holds.
func TestTableThatWasBeingWritten(t *testing.T) {
	t.Parallel()
	closed, killed, text := damagedFolders(t)
	for name, files := range map[string]folder{"closed": closed, "killed": killed} {
		for size, content := range map[string][]byte{"empty": nil, "zeros": make([]byte, 4096)} {
			dir := t.TempDir()
			files.write(t, dir)
			left := filepath.Join(dir, databaseFolder, "099999.sst")
			if err := os.WriteFile(left, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if again, err := reopen(t, dir); err != nil || again != text {
				t.Errorf("%s, a table of %s: it reads differently, or not: %v", name, size, err)
			}
			if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s, a table of %s: it stays: %v", name, size, err)
			}
		}
	}
}

// TestLogThatWasBeingCreated: a process that is killed while it creates a log of the database
// leaves an empty file. That is no damage.
func TestLogThatWasBeingCreated(t *testing.T) {
	t.Parallel()
	closed, killed, text := damagedFolders(t)
	for name, files := range map[string]folder{"closed": closed, "killed": killed} {
		for _, left := range []string{"09999.mem", "009999.vlog"} {
			dir := t.TempDir()
			files.write(t, dir)
			if err := os.WriteFile(filepath.Join(dir, databaseFolder, left), nil,
				0o600); err != nil {
				t.Fatal(err)
			}
			if again, err := reopen(t, dir); err != nil || again != text {
				t.Errorf("%s, with %s: it reads differently, or not: %v", name, left, err)
			}
		}
	}
}
