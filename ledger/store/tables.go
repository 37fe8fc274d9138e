package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/dgraph-io/ristretto/v2/z"
	"google.golang.org/protobuf/proto"
)

// Badger ends the process when the footer of a table is damaged. It panics in its own goroutines
// when a block is damaged. It skips a table without an error if the table's index has a wrong
// checksum. Therefore Open checks the end of every table before Badger opens the database. Their
// blocks are checked behind, or before as well if that may have ended the last process (check.go).

var errTable = errors.New("damaged table")

// tableFile is a table of the database.
type tableFile struct {
	path        string
	compression options.CompressionType
}

// tablesOf returns the tables of the database in the folder: those that the manifest names. A
// process that is killed while it writes a table leaves a file that the manifest does not name, of
// any content. Badger removes such files when it opens the database.
func tablesOf(dir string) (tables []tableFile, err error) {
	file, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	manifest, _, err := badger.ReplayManifestFile(file, 0, badger.DefaultOptions(dir))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, damaged(1, "the database's manifest: %v", err)
	}
	for _, id := range slices.Sorted(maps.Keys(manifest.Tables)) {
		tables = append(tables, tableFile{table.NewFilename(id, dir),
			manifest.Tables[id].Compression})
	}
	return tables, nil
}

// isNamed reports whether the database's manifest names a table. The database removes a table after
// the manifest has ceased to name it.
func (f *tableFile) isNamed() bool {
	named, err := tablesOf(filepath.Dir(f.path))
	return err != nil || slices.ContainsFunc(named, func(t tableFile) bool {
		return t.path == f.path
	})
}

// checkTables checks tables on all processors: their ends, or all their blocks too.
func checkTables(tables []tableFile, blocks bool) error {
	failures := make([]error, len(tables))
	onAllProcessors(len(tables), func(at int) { failures[at] = tables[at].check(blocks) })
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// check checks the end of a table, its index and its last block, which the database reads when it
// opens the table, or all blocks.
func (f *tableFile) check(blocks bool) error {
	mode := options.OnBlockRead
	if blocks {
		mode = options.OnTableAndBlockRead
	}
	if err := f.open(mode); err != nil {
		return damaged(1, "table %s: %v", filepath.Base(f.path), err)
	}
	return nil
}

func (f *tableFile) open(mode options.ChecksumVerificationMode) error {
	mapped, err := z.OpenMmapFile(f.path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return f.read(mapped, mode)
}

// read reads a table, and closes it. The database may cut the table to nothing meanwhile, to remove
// it, and then no memory is behind the map any more.
func (f *tableFile) read(mapped *z.MmapFile, mode options.ChecksumVerificationMode) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%w: %v", errTable, reason)
		}
	}()
	if err := checkFooter(mapped.Data); err != nil {
		return errors.Join(err, mapped.Close(-1))
	}
	opened, err := table.OpenTable(mapped, table.Options{
		ReadOnly: true, BlockSize: 4 << 10, Compression: f.compression, ChkMode: mode,
	})
	if err != nil {
		return err
	}
	return opened.Close(-1)
}

// checkFooter checks the end of a table: the index, its length, its checksum, and the length of the
// checksum.
func checkFooter(data []byte) error {
	cut := func(length uint32) []byte {
		if uint64(length) > uint64(len(data)) {
			return nil
		}
		part := data[len(data)-int(length):]
		data = data[:len(data)-int(length)]
		return part
	}
	number := func() uint32 {
		if part := cut(4); part != nil {
			return binary.BigEndian.Uint32(part)
		}
		return 1<<32 - 1
	}
	encoded := cut(number())
	if encoded == nil {
		return fmt.Errorf("%w: footer", errTable)
	}
	var expected pb.Checksum
	if err := proto.Unmarshal(encoded, &expected); err != nil {
		return fmt.Errorf("%w: footer: %w", errTable, err)
	}
	if _, known := pb.Checksum_Algorithm_name[int32(expected.Algo)]; !known {
		return fmt.Errorf("%w: footer: algorithm %d", errTable, expected.Algo)
	}
	index := cut(number())
	if index == nil {
		return fmt.Errorf("%w: index", errTable)
	}
	return y.VerifyChecksum(index, &expected)
}
