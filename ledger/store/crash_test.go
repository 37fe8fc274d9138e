package store

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// The environment of a child process that runs TestCrashChild.
const (
	crashFolder = "LEDGER_CRASH_FOLDER"
	crashStep   = "LEDGER_CRASH_STEP"
	crashSeed   = "LEDGER_CRASH_SEED"
	crashRuns   = "LEDGER_CRASH_RUNS"
	crashShards = "LEDGER_CRASH_SHARDS"
)

// crashBlock returns the number of transactions in a block. Some blocks fit into one transaction of
// the database, others do not.
func crashBlock(random *rand.Rand) int {
	if random.IntN(3) == 0 {
		return 300 + random.IntN(300)
	}
	return 1 + random.IntN(8)
}

// TestCrashChild is the process that is killed. It applies rounds, prints after every Sync which
// block is durable, and kills itself before the given step of writing.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashFolder)
	if dir == "" {
		t.Skip("runs as a child of TestKillBetweenWrites only")
	}
	var step int64
	var seed int
	if _, err := fmt.Sscan(os.Getenv(crashStep)+" "+os.Getenv(crashSeed),
		&step, &seed); err != nil {
		t.Fatal(err)
	}
	options := small()
	options.releaseBytes = 128 << 10
	var left atomic.Int64 // the writer, Sync and the journal count steps
	left.Store(step)
	options.onWrite = func(string) {
		if left.Add(-1) == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Minute)
		}
	}
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	if os.Getenv(crashShards) != "" {
		crashSharded(t, openBook(t, filepath.Join(dir, "store"), shardGenesis(), options), random,
			uint64(seed))
	}
	s := open(t, filepath.Join(dir, "store"), options)
	b := newBook(20)
	b.next(0)
	b.round = ledger.Round(s.AppendedHeight())
	// Each run has its own stream of nonces, so its blocks differ from the remains of the previous
	// run after a crash.
	b.client.Stream, b.client.Sequence = uint64(seed), 0
	b.operator.Stream, b.operator.Sequence = uint64(seed), 0
	records := random.IntN(2) == 0
	for {
		for burst := random.IntN(8); records && burst == 0 && random.IntN(80) > 0; {
			syncRecord(t, s, b.round+1)
		}
		if records && random.IntN(2) == 0 {
			if random.IntN(2) == 0 {
				syncRecord(t, s, b.round+1)
			} else {
				putRecordOf(t, s, b.round+1)
			}
		}
		b.apply(t, s, crashBlock(random))
		recorded := records && random.IntN(2) == 0 && putRecordOf(t, s, b.round+1)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("durable %d %s\n", s.DurableHeight(), s.Head().Hash)
		if recorded {
			fmt.Printf("recorded %d\n", b.round+1)
		}
	}
}

// putRecordOf puts a record that can be told by its content. It may be longer than a sector. It
// reports whether the record found room.
func putRecordOf(t *testing.T, s *Store, last ledger.Round) bool {
	t.Helper()
	err := s.PutRecord(bytes.Repeat([]byte{byte(last)}, int(1+last*37%1500)), last)
	if err != nil && !errors.Is(err, ErrNoRoom) {
		t.Fatal(err)
	}
	return err == nil
}

// syncRecord syncs such a record, and prints that it is on the disk.
func syncRecord(t *testing.T, s *Store, last ledger.Round) {
	t.Helper()
	found := putRecordOf(t, s, last)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if found {
		fmt.Printf("recorded %d\n", last)
	}
}

// checkRecord checks that the last record that a killed process wrote is on the disk, unless the
// chain has gone past it.
func checkRecord(s *Store, last ledger.Round) error {
	found := s.LastRecord()
	round := s.Head().Round
	if found == nil {
		if round < last {
			return fmt.Errorf("the record of round %d is gone, the chain ends with round %d", last,
				round)
		}
		return nil
	}
	if of := s.recorded.last; of < last || of <= round ||
		len(found) != int(1+of*37%1500) || found[0] != byte(of) {
		return fmt.Errorf("the record is of round %d, %d bytes of %d; one of round %d was on the "+
			"disk, and the chain ends with round %d", of, len(found), found[0], last, round)
	}
	return nil
}

// crashSharded is TestCrashChild for a shard of a book with several shards.
func crashSharded(t *testing.T, s *Store, random *rand.Rand, seed uint64) {
	b := newShardBook(seed)
	for {
		if block := b.apply(t, s, crashBlock(random), random); block == nil {
			t.Fatal("a round without a block")
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("durable %d %s\n", s.DurableHeight(), s.Head().Hash)
	}
}

// TestKillBetweenWrites kills a process before various steps of writing, in several runs on one
// store. After each run it checks that everything durable is present and that the rest is whole.
func TestKillBetweenWrites(t *testing.T) {
	t.Parallel()
	killBetweenWrites(t, 12, testGenesis())
}

// TestKillBetweenWritesOfShard does the same with a shard of a book with several shards.
func TestKillBetweenWritesOfShard(t *testing.T) {
	t.Parallel()
	killBetweenWrites(t, 5, shardGenesis(), crashShards+"=1")
}

func killBetweenWrites(t *testing.T, runs int, genesis *ledger.Genesis, environment ...string) {
	t.Helper()
	if testing.Short() {
		runs = 1
	}
	if text := os.Getenv(crashRuns); text != "" {
		if _, err := fmt.Sscan(text, &runs); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(7, 7))
	partial, withLeaves := 0, 0
	missed := func() bool {
		return !testing.Short() && (partial == 0 || withLeaves == 0 && environment == nil)
	}
	// Where a kill strikes depends on the machine too, so a few runs may all miss.
	for run := 0; run < runs || missed() && run < 10*runs; run++ {
		// A layer takes some hundred steps.
		height, hash, recorded := runCrashChild(t, dir, 1+random.IntN(400), run+1,
			genesis, environment...)
		options := small()
		options.DecodedCacheBytes = 64 << 20
		folder := filepath.Join(dir, "store")
		// A file of leaves is right whenever a process is killed. After most kills, Open checks
		// everything and does not use it.
		has := len(content(filepath.Join(folder, leavesFile))) > 0
		if err := os.Remove(filepath.Join(folder, uncheckedFile)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		s, taken, err := openTaking(folder, genesis, options)
		if err != nil {
			t.Fatalf("run %d: open: %v", run, err)
		}
		if has {
			withLeaves++
		}
		if taken != has {
			t.Errorf("run %d: the file of leaves is not taken", run)
		}
		if s.AppendedHeight() < height {
			t.Fatalf("run %d: block %d was durable, the head is block %d", run, height,
				s.AppendedHeight())
		}
		if _, found, err := s.Header(height); err != nil || found != hash {
			t.Fatalf("run %d: block %d is %s, was %s: %v", run, height, found, hash, err)
		}
		if s.AppendedHeight() == height {
			partial++
		}
		if err := checkRecord(s, recorded); err != nil {
			t.Fatalf("run %d: %v", run, err)
		}
		mustReadAll(t, s)
		mustCheck(t, s)
		if err := s.verify(t.Context(), nil); err != nil {
			t.Fatalf("run %d: %v", run, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if missed() {
		t.Errorf("%d runs were killed in the middle of a block, %d had a file of leaves", partial,
			withLeaves)
	}
}

func runCrashChild(t *testing.T, dir string, step, seed int, genesis *ledger.Genesis,
	environment ...string) (ledger.Height, ledger.Hash, ledger.Round) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashChild$", "-test.v")
	child.Env = append(append(os.Environ(), environment...), crashFolder+"="+dir,
		fmt.Sprintf("%s=%d", crashStep, step), fmt.Sprintf("%s=%d", crashSeed, seed))
	output, err := child.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended with %v:\n%s", err, output)
	}
	height, hash, recorded := ledger.Height(0), genesis.Hash(), ledger.Round(0)
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		if _, rest, found := strings.Cut(lines.Text(), "durable "); found {
			var text string
			if _, err := fmt.Sscan(rest, &height, &text); err != nil {
				t.Fatal(err)
			}
			if hash, err = ledger.ParseHash(text); err != nil {
				t.Fatal(err)
			}
		}
		if _, rest, found := strings.Cut(lines.Text(), "recorded "); found {
			if _, err := fmt.Sscan(rest, &recorded); err != nil {
				t.Fatal(err)
			}
		}
	}
	return height, hash, recorded
}
