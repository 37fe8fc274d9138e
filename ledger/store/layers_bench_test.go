package store

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// BenchmarkCheckpoints moves layers of transfers between random accounts to the database, and
// merges their runs. It measures the processor time and the bytes written for a transaction, apart
// from those of its execution and of the journal.
func BenchmarkCheckpoints(b *testing.B) {
	const accounts, perBundle, bundles = 10_000, 400, 2
	blocks, bodies := pendingTransfers(b, accounts, perBundle, bundles, b.N)
	dir := b.TempDir()
	s := open(b, dir, Options{})
	s.mutex.Lock()
	s.durable = ledger.Height(len(blocks)) + 1
	s.mutex.Unlock()
	sealed, from := newLayer(), 0
	spent, written := processorTime(b), bytesWritten(b)
	b.ResetTimer()
	for i, pending := range blocks {
		sealed.blocks, sealed.bytes = append(sealed.blocks, pending),
			sealed.bytes+len(pending.encoded)
		if i+1 < len(blocks) && sealed.bytes < int(s.options.CheckpointBytes) {
			continue
		}
		if err := s.checkpoint(sealed); err != nil {
			b.Fatal(err)
		}
		clear(blocks[from : i+1])
		sealed, from = newLayer(), i+1
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(processorTime(b)-spent)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(bytesWritten(b)-written)/float64(b.N), "written-B/op")
	b.ReportMetric(float64(folderBytes(b, dir))/float64(b.N), "disk-B/op")
	b.ReportMetric(float64(bodies)/float64(b.N), "body-B/op")
}

// pendingTransfers executes transfers between random accounts. It also returns the number of bytes
// of their blocks.
func pendingTransfers(b *testing.B, accounts, perBundle, bundles, count int) (
	blocks []*pendingBlock, bodies int) {
	traffic, random := newBook(accounts), rand.New(rand.NewPCG(1, 1))
	genesis := testGenesis()
	executed, parent := state.New(genesis), state.Parent{Header: genesis.Block().Header,
		Hash: genesis.Hash()}
	parent.Members = executed.Membership
	apply := func(round int, payload []byte) *pendingBlock {
		draft := state.Seal(parent, 1, ledger.Round(round),
			ledger.VerifyBatches([][]byte{payload}),
			func(ledger.Hash, *ledger.Transaction) bool { return false })
		block, changes := executed.Execute(draft)
		parent.Header, parent.Hash = block.Header, block.Hash
		return &pendingBlock{block: block, encoded: block.Encode(), changes: changes, group: 1}
	}
	blocks = append(blocks, apply(1, traffic.next(0)))
	for done := 0; done < count; {
		var signed []*ledger.Bundle
		for range bundles {
			transactions := make([]ledger.Transaction, perBundle)
			for i := range transactions {
				transactions[i] = traffic.client.Transfer("acme:issuer",
					traffic.account(random.IntN(accounts)), 1)
			}
			signed = append(signed, traffic.client.Bundle(transactions...))
			done += perBundle
		}
		blocks = append(blocks, apply(len(blocks)+1, ledgertest.Batch(1, signed...)))
		bodies += len(blocks[len(blocks)-1].encoded)
	}
	return blocks, bodies
}

// processorTime returns the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// bytesWritten returns the number of bytes that this process has caused to be written to disks.
func bytesWritten(b *testing.B) (count int64) {
	status, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skip(err)
	}
	_, line, _ := bytes.Cut(status, []byte("\nwrite_bytes:"))
	if _, err := fmt.Sscan(string(line), &count); err != nil {
		b.Fatal(err)
	}
	return count
}

// folderBytes returns the number of bytes that the files in a folder take on the disk.
func folderBytes(b *testing.B, dir string) (total int64) {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		var status unix.Stat_t
		if err := unix.Stat(path, &status); err != nil {
			return err
		}
		total += status.Blocks * 512
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return total
}
