package store

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/klauspost/compress/s2"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// Chunks are unpacked as they were packed. A store keeps its memory for the next ones.
func TestPackedChunks(t *testing.T) {
	t.Parallel()
	var p packer
	var buffer []byte
	rapid.Check(t, func(t *rapid.T) {
		chunk := rapid.Custom(func(t *rapid.T) []byte {
			part := rapid.SliceOfN(rapid.Byte(), 1, 60).Draw(t, "part")
			return bytes.Repeat(part, rapid.IntRange(1, 200).Draw(t, "times"))
		}).Draw(t, "chunk")
		chunk[0] = max(1, chunk[0])
		row := p.packChunk(rowEntries, chunk)
		if len(row) > len(chunk) || cap(row)-len(row) < checksumSize {
			t.Fatalf("%d bytes take %d of %d", len(chunk), len(row), cap(row))
		}
		got, err := runKind(rowEntries).unpack(&buffer, row)
		if err != nil || !bytes.Equal(got, chunk) {
			t.Fatalf("%x is read as %x: %v", chunk, got, err)
		}
		part, err := unpackPart(&buffer, p.pack([]byte{plainMark}, chunk))
		if err != nil || !bytes.Equal(part, chunk) {
			t.Fatalf("%x is read as %x: %v", chunk, part, err)
		}
	})
}

// Chunks of steps are unpacked as they were packed, whatever steps they have.
func TestDenseSteps(t *testing.T) {
	t.Parallel()
	var p packer
	var buffer []byte
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.OneOf(rapid.Uint64Max(1000), rapid.Uint64())
		var chunk []byte
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			steps := make([]step, rapid.IntRange(1, 30).Draw(t, "steps"))
			height := numbers.Draw(t, "height") % severalBlocks
			several := rapid.Bool().Draw(t, "several")
			for i := range steps {
				steps[i].index = uint32(numbers.Draw(t, "index"))
				if steps[i].height = ledger.Height(height); several {
					height = min(height+uint64(rapid.Uint32().Draw(t, "distance")/64),
						severalBlocks-1)
				}
			}
			chunk = runKind(rowSteps).appendRecord(chunk, appendStepKey(nil,
				numbers.Draw(t, "account"), numbers.Draw(t, "ordinal")), appendHistory(nil, steps))
		}
		row := p.packChunk(rowSteps, chunk)
		if len(row) > len(chunk) || cap(row)-len(row) < checksumSize {
			t.Fatalf("%d bytes take %d of %d", len(chunk), len(row), cap(row))
		}
		got, err := runKind(rowSteps).unpack(&buffer, row)
		if err != nil || !bytes.Equal(got, chunk) {
			t.Fatalf("%x is read as %x: %v", chunk, got, err)
		}
		// What is not a chunk of steps stays as it is.
		other := append(bytes.Clone(chunk), stepKeySize, 0)
		if row := p.packChunk(rowSteps, other); !bytes.Equal(row, other) {
			t.Fatalf("%x became %x", other, row)
		}
	})
}

// What is no packed chunk, or has too much, is an error, and is found before its memory is taken.
func TestDamagedPackedChunks(t *testing.T) {
	t.Parallel()
	large := func(size int) []byte { return s2.Encode(nil, make([]byte, size)) }
	overlong := bytes.Repeat([]byte{0xff}, 10)
	for name, test := range map[string]struct {
		kind  runKind
		chunk []byte
		good  bool
	}{
		"the largest":          {rowEntries, large(maxUnpacked), true},
		"too large":            {rowEntries, large(maxUnpacked + 1), false},
		"a step":               {rowSteps, []byte{1, 1, 2, 2, 0}, true},
		"no step":              {rowSteps, []byte{1, 1, 0, 2}, true},
		"number 128":           {rowSteps, []byte{0x80, 1, 1, 2, 2, 0}, true},
		"too many steps":       {rowSteps, []byte{1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2}, false},
		"one step too many":    {rowSteps, []byte{1, 1, 4, 2, 0}, false},
		"no distance":          {rowSteps, []byte{1, 1, 0}, false},
		"cut off in a step":    {rowSteps, []byte{1, 1, 2, 2, 0x80}, false},
		"a height below 0":     {rowSteps, []byte{1, 1, 2, 1, 0}, false},
		"an overlong number":   {rowSteps, slices.Concat(overlong, []byte{1, 1, 2, 2, 0}), false},
		"too many records":     {rowSteps, make([]byte, 400_000), false},
		"many records, in all": {rowSteps, make([]byte, 4_000), true},
	} {
		mark := byte(packedMark)
		if test.kind == rowSteps {
			mark = denseMark
		}
		var buffer []byte
		got, err := test.kind.unpack(&buffer, append([]byte{mark}, test.chunk...))
		if good := err == nil; good != test.good || !good && !errors.Is(err, errPacked) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	for _, part := range [][]byte{nil, {2}, {denseMark + 1, 0}} {
		if got, err := unpackPart(new([]byte), part); !errors.Is(err, errPacked) {
			t.Errorf("the part %x is read as %x: %v", part, got, err)
		}
	}
	// Only steps are packed as steps.
	for _, record := range [][2]string{{"a short key", "12345678"}, {"0123456789abcdef", "1234567"},
		{"0123456789abcdef", "12345678123"}} {
		chunk := runKind(rowSteps).appendRecord(nil, []byte(record[0]), []byte(record[1]))
		if dense, ok := appendDense(nil, chunk); ok {
			t.Errorf("%q became %x", record, dense)
		}
	}
}

// FuzzUnpack checks that what cannot be unpacked, or is too large, is an error.
func FuzzUnpack(f *testing.F) {
	var p packer
	f.Add(false, p.pack(nil, bytes.Repeat([]byte("value"), 100)))
	f.Add(false, []byte{packedMark, 0xff, 0xff, 0xff, 0xff, 0x0f, 0})
	f.Add(false, []byte{packedMark, 0xff, 0xff, 0xff, 0x00, 0})
	f.Add(false, []byte{packedMark, 0x80})
	f.Add(false, []byte{packedMark})
	dense, _ := appendDense(nil, runKind(rowSteps).appendRecord(nil, appendStepKey(nil, 3, 4),
		appendHistory(nil, []step{{height: 5}, {height: 6}})))
	f.Add(true, dense)
	f.Add(true, []byte{denseMark, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2})
	f.Fuzz(func(t *testing.T, steps bool, chunk []byte) {
		var buffer []byte
		kind := runKind(rowEntries)
		if steps {
			kind = rowSteps
		}
		got, err := kind.unpack(&buffer, chunk)
		switch {
		case err != nil && !errors.Is(err, errPacked):
			t.Fatal(err)
		case err == nil && len(got) > max(maxUnpacked, 100*len(chunk)):
			t.Fatalf("%d bytes", len(got))
		}
	})
}

// A store of a version that packed no rows, and had Badger compress its tables, is read as it was,
// and goes on with packed rows.
func TestStoreBeforePackedRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, small())
	b := newBook(30)
	for range 20 {
		b.apply(t, s, 40)
	}
	want, err := readAll(s)
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	unpackRows(t, filepath.Join(dir, databaseFolder))

	s = open(t, dir, small())
	if got, err := readAll(s); err != nil || got != want {
		t.Fatalf("it reads differently, or not: %v", err)
	}
	for range 20 {
		b.apply(t, s, 40)
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want, err = readAll(s)
	if err != nil {
		t.Fatal(err)
	}
	restored := restoredFrom(t, s, filepath.Join(t.TempDir(), "new"))
	if got, want := restored.Head(), s.Head(); got != want {
		t.Fatalf("a snapshot has the head %+v instead of %+v", got, want)
	}
	closeStore(t, s)
	s = open(t, dir, small())
	if got, err := readAll(s); err != nil || got != want {
		t.Fatalf("it reads differently, or not, after it went on: %v", err)
	}
}

// unpackRows makes the rows and tables of a database like those of a version that packed no rows.
func unpackRows(t *testing.T, dir string) {
	t.Helper()
	configuration := badger.DefaultOptions(dir).WithLogger(nil).WithCompression(options.Snappy)
	db, err := badger.Open(configuration)
	if err != nil {
		t.Fatal(err)
	}
	batch, bodies, chunks := db.NewWriteBatch(), 0, map[byte]int{}
	err = db.View(func(transaction *badger.Txn) error {
		rows := transaction.NewIterator(badger.DefaultIteratorOptions)
		defer rows.Close()
		for rows.Rewind(); rows.Valid(); rows.Next() {
			key := rows.Item().KeyCopy(nil)
			var buffer []byte
			sealed, err := rows.Item().ValueCopy(nil)
			if err != nil {
				return err
			}
			value, err := unseal(key, sealed)
			if err != nil {
				return err
			}
			switch {
			case key[0] == rowPacked:
				bodies++
				if err := batch.Delete(bytes.Clone(key)); err != nil {
					return err
				}
				key[0] = rowBody
				value, err = unpackPart(&buffer, value)
			case key[0] == rowSteps && value[0] == denseMark,
				key[0] == rowEntries && value[0] == packedMark:
				chunks[key[0]]++
				value, err = runKind(key[0]).unpack(&buffer, value)
			}
			if err := errors.Join(err, batch.Set(key, seal(key, value))); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, batch.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if err != nil {
		t.Fatal(err)
	}
	manifest, _, err := badger.ReplayManifestFile(file, 0, configuration)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	if bodies == 0 || len(chunks) != 2 || !slices.ContainsFunc(
		slices.Collect(maps.Values(manifest.Tables)), func(table badger.TableManifest) bool {
			return table.Compression == options.Snappy
		}) {
		t.Fatalf("%d bodies and %v chunks were packed; tables %+v", bodies, chunks,
			manifest.Tables)
	}
}
