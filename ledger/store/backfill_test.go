package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// restoredFrom returns a store in a folder that begins with a snapshot of another store.
func restoredFrom(t testing.TB, s *Store, dir string) *Store {
	t.Helper()
	snapshot, _ := snapshotOf(t, s)
	if _, err := Restore(t.Context(), dir, s.genesis, small(), bytes.NewReader(snapshot),
		believe); err != nil {
		t.Fatal(err)
	}
	return openBook(t, dir, s.genesis, small())
}

// fillFrom fills in up to count blocks below the present ones from a store that has them.
func fillFrom(s, whole *Store, count int) error {
	absent := s.Absent()
	first := ledger.Height(1)
	if absent > ledger.Height(count) {
		first = absent - ledger.Height(count) + 1
	}
	return s.Fill(first, func(add func(*ledger.Block) (int, error)) error {
		for height := first; height <= absent; height++ {
			block, err := whole.Block(height)
			if err == nil {
				_, err = add(block)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// rowsOf returns all rows of a store after everything is written. For an entry of the state it has
// only the value, because a snapshot does not keep the height of the block that set it. Of a
// history row it has the steps, of a run of the index the ids, and of a row of hashes each hash,
// which may lie in fewer or more rows.
func rowsOf(t testing.TB, s *Store) map[string]string {
	t.Helper()
	if err := s.awaitWritten(s.AppendedHeight()); err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	err := s.db.View(func(transaction *badger.Txn) error {
		iterator := transaction.NewIterator(badger.DefaultIteratorOptions)
		defer iterator.Close()
		for iterator.Rewind(); iterator.Valid(); iterator.Next() {
			key := iterator.Item().KeyCopy(nil)
			sealed, err := iterator.Item().ValueCopy(nil)
			if err != nil {
				return err
			}
			value, err := unseal(key, sealed)
			if err != nil {
				return err
			}
			if key[0] == rowState || key[0] == rowBalances { // the layers' ends choose
				continue
			}
			if key[0] == rowRuns || key[0] == rowGuide ||
				slices.Contains(runKinds, runKind(key[0])) {
				continue
			}
			if key[0] == rowHashes {
				first := ledger.Height(binary.BigEndian.Uint64(key[1:]))
				for k := range len(value) / ledger.HashSize {
					height := first + ledger.Height(k)*segmentLength
					rows[string(heightKey(rowHashes, height))] =
						string(value[k*ledger.HashSize:][:ledger.HashSize])
				}
				continue
			}
			if key[0] == rowHistory {
				if err := eachStep(binary.BigEndian.Uint64(key[1:]),
					binary.BigEndian.Uint64(key[1+8:]), value, rows); err != nil {
					return err
				}
				continue
			}
			rows[string(key)] = string(value)
		}
		return runsOf(transaction, s, rows)
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// runsOf adds a row for each id, step of a history and entry of the state that the runs have, and
// the rows of single entries.
func runsOf(transaction *badger.Txn, s *Store, rows map[string]string) error {
	each := func(sources *merged, visit func(key, value []byte) error) error {
		defer sources.close()
		for {
			key, value, more, err := sources.next()
			if err != nil || !more {
				return err
			}
			if err := visit(key, value); err != nil {
				return err
			}
		}
	}
	runs := s.runs.list()
	return errors.Join(
		each(newMerged(transaction, of(rowRun, runs)), func(key, value []byte) error {
			return eachPlaced(s, decodeRecord(append(bytes.Clone(key), value...)), rows)
		}),
		each(newMerged(transaction, of(rowSteps, runs)), func(key, value []byte) error {
			return eachStep(binary.BigEndian.Uint64(key), binary.BigEndian.Uint64(key[8:]), value,
				rows)
		}),
		each(newMergedState(transaction, runs, nil), func(key, value []byte) error {
			if len(value) > 0 {
				rows[string(stateKey(key))] = string(value)
			}
			return nil
		}))
}

// eachPlaced adds a row for each transaction that a record of a run of ids stands for.
func eachPlaced(s *Store, r record, rows map[string]string) error {
	if !r.where.packed {
		rows[string(indexKey(r.id))] = string(r.where.append(nil))
		return nil
	}
	block, err := s.Block(r.where.height)
	if err != nil {
		return err
	}
	for i := range transactionsOf(r.id[:], r.where) {
		entry := block.Entry(int(r.where.index) + int(i))
		rows[string(indexKey(entry.ID))] = string(position{height: r.where.height,
			index: r.where.index + uint32(i), kind: indexKind(entry.Result)}.append(nil))
	}
	return nil
}

// eachStep adds a row for each step of a record of a history.
func eachStep(number, first uint64, value []byte, rows map[string]string) error {
	for k := uint64(0); ; k++ {
		where, err := decodeHistory(value, k)
		if errors.Is(err, errMissing) {
			return nil
		}
		if err != nil {
			return err
		}
		rows[string(historyKey(number, first+k))] = string(where.append(nil))
	}
}

func sameRows(t testing.TB, got, want *Store) {
	t.Helper()
	// A store that began with a snapshot writes its labels behind all else.
	awaitLabels(t, got)
	awaitLabels(t, want)
	ours, theirs := rowsOf(t, got), rowsOf(t, want)
	var keys []string
	for key := range ours {
		keys = append(keys, key)
	}
	for key := range theirs {
		if _, both := ours[key]; !both {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	wrong := 0
	for _, key := range keys {
		if ours[key] != theirs[key] && wrong < 10 {
			wrong++
			t.Errorf("row %c %x is %x, and where everything was executed %x", key[0], key[1:],
				ours[key], theirs[key])
		}
	}
}

// A store that began with a snapshot and was filled in is row by row identical to one that executed
// all blocks. While it is filled in, it accepts blocks, serves the blocks that it has, and can be
// reopened.
func TestFilledInIsWhole(t *testing.T) {
	t.Parallel()
	t.Run("one shard", func(t *testing.T) {
		t.Parallel()
		b := newBook(20)
		filledInIsWhole(t, testGenesis(), func(*Store) []byte { return b.next(15) })
	})
	t.Run("several", func(t *testing.T) {
		t.Parallel()
		b, random := newShardBook(1), rand.New(rand.NewPCG(3, 3))
		filledInIsWhole(t, shardGenesis(), func(s *Store) []byte {
			return b.batch(s, random.IntN(12), random).Encode()
		})
	})
}

// sameStream checks that a store has the same entries of the stream to shard 2 as one that has all
// blocks, as far as it has their blocks, and says of all others that they are absent.
func sameStream(t *testing.T, s, whole *Store) {
	t.Helper()
	upTo := min(s.AppendedHeight(), whole.AppendedHeight())
	if err := whole.awaitWritten(upTo); err != nil {
		t.Fatal(err)
	}
	for taken := uint64(0); ; {
		number, _, any := whole.FirstUntaken(2, taken)
		if !any {
			return
		}
		taken = number
		want, err := whole.Stream(2, number, 1, upTo)
		if err != nil {
			t.Fatal(err)
		}
		if len(want) == 0 {
			return
		}
		where, err := whole.readForward(2, number)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Stream(2, number, 1, upTo)
		if where.height <= s.Absent() {
			if !errors.Is(err, ErrAbsent) {
				t.Fatalf("entry %d, in block %d, absent to %d: %v", number, where.height,
					s.Absent(), err)
			}
			continue
		}
		if err != nil || len(got) != 1 || got[0].Number != number ||
			!bytes.Equal(got[0].Bundle, want[0].Bundle) {
			t.Fatalf("entry %d, in block %d, absent to %d: %d entries, %v", number, where.height,
				s.Absent(), len(got), err)
		}
	}
}

func filledInIsWhole(t *testing.T, genesis *ledger.Genesis, next func(*Store) []byte) {
	dir := t.TempDir()
	whole := openBook(t, filepath.Join(dir, "whole"), genesis, small())
	apply := func(to ...*Store) {
		payload, round := next(whole), ledger.Round(whole.Head().Height+1)
		for _, s := range to {
			if _, err := s.Apply(1, round, [][]byte{payload}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 60 {
		apply(whole)
	}
	began := whole.Head().Height
	s := restoredFrom(t, whole, filepath.Join(dir, "filled"))
	for s.Absent() > 0 {
		before := s.Absent()
		done := make(chan error, 1)
		go func() { done <- fillFrom(s, whole, 1+int(before)%13) }()
		apply(whole, s)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if s.Absent() >= before || s.Unindexed() != began {
			t.Fatalf("absent to %d, unindexed to %d", s.Absent(), s.Unindexed())
		}
		if s.Absent() > 20 && s.Absent() < 40 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			absent := s.Absent()
			s = openBook(t, filepath.Join(dir, "filled"), genesis, small())
			if s.Absent() != absent || s.Unindexed() != began {
				t.Fatalf("opened: absent to %d, unindexed to %d", s.Absent(), s.Unindexed())
			}
		}
		for height := ledger.Height(1); height <= s.AppendedHeight(); height++ {
			if block, err := s.Block(height); (height <= s.Absent()) != errors.Is(err, ErrAbsent) ||
				err == nil && block.Header.Height != height {
				t.Fatalf("block %d, absent to %d: %v", height, s.Absent(), err)
			}
		}
		sameStream(t, s, whole)
		if of, _ := snapshotOf(t, whole); s.Head() == whole.Head() {
			if again, _ := snapshotOf(t, s); !bytes.Equal(again, of) {
				t.Fatalf("absent to %d: the snapshot differs", s.Absent())
			}
		}
	}
	if err := s.verify(t.Context(), nil); !errors.Is(err, ErrAbsent) {
		t.Errorf("verifying without indexes: %v", err)
	}
	indexed := 0
	err := s.Index(t.Context(), func(height ledger.Height, size int) error {
		if indexed++; int(height) != indexed || size == 0 {
			t.Errorf("block %d has %d bytes", height, size)
		}
		if height%20 == 0 {
			apply(whole, s)
		}
		return nil
	})
	if err != nil || indexed != int(began) || s.Unindexed() != 0 {
		t.Fatalf("%d of %d blocks were indexed, unindexed to %d: %v", indexed, began, s.Unindexed(),
			err)
	}
	for range 2 {
		if mustReadAll(t, s) != mustReadAll(t, whole) {
			t.Error("it reads differently")
		}
		if err := s.verify(t.Context(), nil); err != nil {
			t.Error(err)
		}
		sameRows(t, s, whole)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openBook(t, filepath.Join(dir, "filled"), genesis, small())
	}
	if err := s.Fill(1, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("filling in where nothing is missing: %v", err)
	}
}

// Blocks that are not in the chain change nothing, whatever their source.
func TestWrongBlocksAreNotFilledIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole, other := open(t, filepath.Join(dir, "whole"), small()),
		open(t, filepath.Join(dir, "other"), small())
	b, c := newBook(5), newBook(7)
	for range 20 {
		b.apply(t, whole, 6)
		c.apply(t, other, 6)
	}
	s := restoredFrom(t, whole, filepath.Join(dir, "filled"))
	block := func(of *Store, height ledger.Height) *ledger.Block {
		found, err := of.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	// The right header and hash with another result, and with another body.
	tampered, swapped := *block(whole, 20), *block(whole, 20)
	tampered.Unpacked = slices.Clone(tampered.Unpacked)
	tampered.Unpacked[0].Result.Code = ledger.Overflow
	swapped.Bundles, swapped.Unpacked = block(whole, 19).Bundles, block(whole, 19).Unpacked
	stopped := errors.New("stopped")
	for _, attempt := range []struct {
		name   string
		first  ledger.Height
		blocks []*ledger.Block
		ends   error
		want   error
	}{
		{"another chain's", 20, []*ledger.Block{block(other, 20)}, nil, ErrMismatch},
		{"another's last", 19, []*ledger.Block{block(whole, 19), block(other, 20)},
			nil, ErrMismatch},
		{"another result", 20, []*ledger.Block{&tampered}, nil, ErrMismatch},
		{"another body", 20, []*ledger.Block{&swapped}, nil, ErrMismatch},
		{"another height", 20, []*ledger.Block{block(whole, 19)}, nil, ErrMismatch},
		{"one left out", 18, []*ledger.Block{block(whole, 18), block(whole, 20)}, nil, ErrMismatch},
		{"one again", 18, []*ledger.Block{block(whole, 18), block(whole, 18)}, nil, ErrMismatch},
		{"too few", 18, []*ledger.Block{block(whole, 18), block(whole, 19)}, nil, ErrMismatch},
		{"none", 20, nil, nil, ErrMismatch},
		{"an end", 19, []*ledger.Block{block(whole, 19)}, stopped, stopped},
		{"nothing to fill", 21, nil, nil, ErrNotFound},
		{"the genesis", 0, nil, nil, ErrNotFound},
	} {
		err := s.Fill(attempt.first, func(add func(*ledger.Block) (int, error)) error {
			for _, block := range attempt.blocks {
				if _, err := add(block); err != nil {
					return err
				}
			}
			return attempt.ends
		})
		if !errors.Is(err, attempt.want) || s.Absent() != 20 {
			t.Errorf("%s: absent to %d, %v", attempt.name, s.Absent(), err)
		}
	}
	if err := s.Index(t.Context(), nil); !errors.Is(err, ErrAbsent) {
		t.Errorf("indexing without blocks: %v", err)
	}
	// The right blocks are still accepted.
	for s.Absent() > 0 {
		if err := fillFrom(s, whole, 7); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Index(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	sameRows(t, s, whole)
}

// A store that began with a snapshot under a version without outlines reports that it cannot make a
// snapshot, until it is filled in.
func TestFillingInAnOldStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := open(t, filepath.Join(dir, "whole"), small())
	b := newBook(5)
	for range 20 {
		b.apply(t, whole, 6)
	}
	s := restoredFrom(t, whole, filepath.Join(dir, "old"))
	if err := s.removeOutlines(0, 20); err != nil {
		t.Fatal(err)
	}
	err := s.db.Update(func(transaction *badger.Txn) error {
		key := []byte{rowAbsent}
		return transaction.Set(key, seal(key, missing{absent: 20}.row()[:8]))
	})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, filepath.Join(dir, "old"), small())
	var to bytes.Buffer
	if _, err := s.WriteSnapshot(t.Context(), &to); !errors.Is(err, ErrAbsent) || to.Len() > 0 {
		t.Errorf("a snapshot of %d bytes: %v", to.Len(), err)
	}
	block, err := whole.Block(20)
	if err != nil {
		t.Fatal(err)
	}
	lacks := (*AbsentError)(nil)
	if _, err := s.Block(19); !errors.As(err, &lacks) || lacks.Height != 19 || lacks.Absent != 20 {
		t.Errorf("an absent block: %v", err)
	}
	forged := *block
	forged.Header.Height = 19
	if err := s.Borrow(&forged); !errors.Is(err, ErrMismatch) {
		t.Errorf("another block: %v", err)
	}
	lent, err := whole.Block(19)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Borrow(lent); err != nil {
		t.Fatal(err)
	}
	if borrowed, err := s.Block(19); err != nil || borrowed.Hash != lent.Hash || s.Absent() != 20 {
		t.Errorf("a borrowed block: %v", err)
	}
	if _, made, err := s.Verdict(block.Entry(0).ID, 0, 20); !errors.Is(err, ErrAbsent) || made {
		t.Errorf("a verdict without an outline: %v %v", made, err)
	}
	for s.Absent() > 0 {
		if err := fillFrom(s, whole, 7); err != nil {
			t.Fatal(err)
		}
	}
	want, _ := snapshotOf(t, whole)
	if got, _ := snapshotOf(t, s); !bytes.Equal(got, want) {
		t.Error("the snapshot differs")
	}
	if err := s.Index(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	sameRows(t, s, whole)
}

// A filled-in block that is damaged or missing is never served.
func TestDamageOfAFilledBlock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := open(t, filepath.Join(dir, "whole"), small())
	b := newBook(5)
	for range 20 {
		b.apply(t, whole, 6)
	}
	for name, damage := range map[string]func(*badger.Txn) error{
		"flipped": func(transaction *badger.Txn) error {
			sealed := bytes.Repeat([]byte{7}, 300)
			return transaction.Set(packedKey(12, 0), sealed)
		},
		"another's": func(transaction *badger.Txn) error {
			value, err := get(transaction, packedKey(11, 0))
			if err != nil {
				return err
			}
			return transaction.Set(packedKey(12, 0), seal(packedKey(12, 0), value))
		},
		"gone": func(transaction *badger.Txn) error { return transaction.Delete(packedKey(12, 0)) },
	} {
		s := restoredFrom(t, whole, filepath.Join(dir, name))
		for s.Absent() > 0 {
			if err := fillFrom(s, whole, 6); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.db.Update(damage); err != nil {
			t.Fatal(err)
		}
		_, reading := s.Block(12)
		_, writing := s.WriteSnapshot(t.Context(), io.Discard)
		for what, err := range map[string]error{"read": reading,
			"indexed": s.Index(t.Context(), nil), "in a snapshot": writing} {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		if s.Unindexed() == 0 {
			t.Errorf("%s: it is said to be indexed", name)
		}
	}
}

const crashFill = "LEDGER_CRASH_FILL"

// TestFillChild is the process that is killed while it fills in blocks.
func TestFillChild(t *testing.T) {
	dir := os.Getenv(crashFill)
	if dir == "" {
		t.Skip("runs as a child of TestKillWhileFillingIn only")
	}
	var step int64
	if _, err := fmt.Sscan(os.Getenv(crashStep), &step); err != nil {
		t.Fatal(err)
	}
	var left atomic.Int64 // what is done behind counts steps, too
	left.Store(step)
	whole := open(t, filepath.Join(dir, "whole"), small())
	options := small()
	options.onWrite = func(string) {
		if left.Add(-1) == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Minute)
		}
	}
	s := open(t, filepath.Join(dir, "filled"), options)
	for s.Absent() > 0 {
		if err := fillFrom(s, whole, 8); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("absent to %d\n", s.Absent())
	}
	if err := s.Index(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("whole\n")
}

// A process that is killed while it fills in blocks finds everything that it had announced, and
// continues.
func TestKillWhileFillingIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := open(t, filepath.Join(dir, "whole"), small())
	b := newBook(20)
	for i := range 60 {
		b.apply(t, whole, 1+i%5*20)
	}
	want, _ := snapshotOf(t, whole)
	if err := restoredFrom(t, whole, filepath.Join(dir, "filled")).Close(); err != nil {
		t.Fatal(err)
	}
	if err := whole.Close(); err != nil {
		t.Fatal(err)
	}
	random, announced := rand.New(rand.NewPCG(5, 5)), ledger.Height(60)
	for run := 0; ; run++ {
		if run == 200 {
			t.Fatal("it does not come to an end")
		}
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFillChild$",
			"-test.v")
		child.Env = append(os.Environ(), crashFill+"="+dir,
			fmt.Sprintf("%s=%d", crashStep, 1+random.IntN(60+run*150)))
		output, err := child.CombinedOutput()
		for line := range strings.Lines(string(output)) {
			var height ledger.Height
			if n, _ := fmt.Sscanf(line, "absent to %d", &height); n == 1 {
				announced = height
			}
		}
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) ||
			exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
			t.Fatalf("the child ended with %v:\n%s", err, output)
		}
		s := open(t, filepath.Join(dir, "filled"), small())
		if s.Absent() > announced {
			t.Fatalf("run %d: absent to %d, announced was %d", run, s.Absent(), announced)
		}
		for height := s.Absent() + 1; height <= s.AppendedHeight(); height++ {
			if _, err := s.Block(height); err != nil {
				t.Fatalf("run %d: %v", run, err)
			}
		}
		if got, _ := snapshotOf(t, s); !bytes.Equal(got, want) {
			t.Fatalf("run %d: the snapshot differs", run)
		}
		if s.Unindexed() == 0 {
			if err := s.verify(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			sameRows(t, s, open(t, filepath.Join(dir, "whole"), small()))
			return
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A power cut that tears off the end of the log in the middle of a piece costs only that piece.
func TestTornWhileFillingIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := open(t, filepath.Join(dir, "whole"), small())
	b := newBook(20)
	for range 30 {
		b.apply(t, whole, 10)
	}
	filled := filepath.Join(dir, "filled")
	s := restoredFrom(t, whole, filled)
	if err := fillFrom(s, whole, 5); err != nil {
		t.Fatal(err)
	}
	before := readFolder(t, filled)
	if err := fillFrom(s, whole, 10); err != nil {
		t.Fatal(err)
	}
	after := readFolder(t, filled)
	log := ""
	for _, name := range after.names() {
		if strings.HasSuffix(name, ".mem") && len(after[name].data) > len(before[name].data) {
			log = name
		}
	}
	if log == "" {
		t.Fatal("no log grew")
	}
	from, to := len(before[log].data), len(after[log].data)
	random := rand.New(rand.NewPCG(9, 9))
	for i := range 12 {
		torn, cut := folder{}, from+random.IntN(to-from)
		for name, content := range after {
			torn[name] = content
		}
		torn[log] = file{data: after[log].data[:cut], size: after[log].size}
		copied := filepath.Join(dir, fmt.Sprintf("torn-%d", i))
		torn.write(t, copied)
		opened := open(t, copied, small())
		// After the A row, the log has only the removal of rows that are no longer needed.
		if absent := opened.Absent(); absent != 25 && absent != 15 {
			t.Fatalf("cut at %d of %d to %d: absent to %d", cut, from, to, absent)
		}
		for opened.Absent() > 0 {
			if err := fillFrom(opened, whole, 12); err != nil {
				t.Fatal(err)
			}
		}
		if err := opened.Index(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := opened.verify(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		sameRows(t, opened, whole)
	}
}
