package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// killedAtTheEnd returns the folder of a store that was killed while a period ended: the rows of a
// layer are in the database, with a transaction whose deadline is in the period. While they were
// written, a block came that is later by some time than the end of the period. synced says that it
// was durable. The transaction's bundle is returned, too.
func killedAtTheEnd(t *testing.T, later ledger.Milliseconds, synced bool) (c *copies, folder string,
	bundle []byte) {
	t.Helper()
	c, dir := newCopies(0), t.TempDir()
	end := (ledger.Milliseconds(periodOf(c.time)) + 1) * periodLength
	c.time = end - 60_000
	options, during := small(), false
	var s *Store
	crossing := func(deadline ledger.Milliseconds) []byte {
		transfer := c.clients[2].Transfer(c.clients[2].Account("issuer"),
			c.clients[1].Account("a"), 5)
		transfer.Deadline = deadline
		return c.signed(transfer)
	}
	apply := func(bundles ...[]byte) {
		if block, err := c.applied(s, bundles...); err != nil || block == nil {
			t.Errorf("a block: %v, %v", block, err)
		}
	}
	options.onWrite = func(step string) {
		if during && step == "body" {
			during = false
			c.time = end + later
			apply(crossing(c.time + 3600_000))
		}
	}
	s = openBook(t, dir, timedGenesis(), options)
	apply()
	opening := c.clients[1].Next()
	opening.Openings = []ledger.Opening{{Account: "org1:issuer", Issuer: true}, {Account: "org1:a"}}
	apply(c.signed(opening))
	bundle = crossing(end - 1)
	apply(bundle)
	last := s.Head().Height
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	during = true
	if err := s.awaitWritten(last); err != nil {
		t.Fatal(err)
	}
	if synced {
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	folder = filepath.Join(t.TempDir(), "killed")
	if err := os.CopyFS(folder, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return c, folder, bundle
}

// applied makes a block at the time of the copies from some bundles.
func (c *copies) applied(s *Store, bundles ...[]byte) (*ledger.Block, error) {
	c.round++
	batch := &ledger.Batch{Header: ledger.BatchHeader{Time: c.time},
		Clocks:  []ledger.MemberClock{{Member: 0}},
		Carried: c.stream[s.Carried():], Bundles: bundles}
	return s.Apply(1, ledger.Round(c.round), [][]byte{batch.Encode()})
}

// TestKilledAtTheEndOfAPeriod: the rows of a layer follow from its own blocks, whatever time the
// chain has in memory. So a store that is killed between two layers opens again, and finds nothing
// damaged.
func TestKilledAtTheEndOfAPeriod(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]ledger.Milliseconds{"same period": -10_000,
		"next period": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, folder, _ := killedAtTheEnd(t, later, true)
			s := openBook(t, folder, timedGenesis(), small())
			defer closeStore(t, s)
			mustCheck(t, s)
		})
	}
}

// TestCopyAfterAPeriodThatWasLost: if the block that ended a period was not durable, the store is
// back in the period, and still drops a copy of what has a deadline in it.
func TestCopyAfterAPeriodThatWasLost(t *testing.T) {
	t.Parallel()
	c, folder, bundle := killedAtTheEnd(t, 0, false)
	options := small()
	options.unsettledBytes = 1 // Open does not read the run of ids again, as if it were large
	s := openBook(t, folder, timedGenesis(), options)
	defer closeStore(t, s)
	c.time -= 20_000
	if block, err := c.applied(s, bundle); block != nil || err != nil {
		t.Errorf("the copy gave %v, %v", block, err)
	}
}
