package crossing

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/crossing/shards"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// A shard hangs elsewhere, has all that this shard's stream has for it, and falls silent. Then the
// alarm stays off, also after a start. A present child that is silent raises it, and so does a
// former one that lacks something.
func TestSilentFormerChildRaisesNoAlarm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree := ledgertest.ShardedGenesis(1, 0, 0, 0).ShardTree()
	begin := func() *book {
		b, err := newBook(Config{Dir: dir, Genesis: ledgertest.ShardedGenesis(1, 0, 0, 0),
			Self: "self", AlarmAfter: time.Minute, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.cancel)
		if made := b.directory.Rehang(tree.Rehang(1, &ledger.ShardRehang{Shard: 1,
			Parent: 2})); len(made) != 1 {
			t.Fatal(made)
		}
		return b
	}
	hear := func(b *book, shard ledger.ShardID, carried uint64) {
		peer, err := p2p.PeerID(ledgertest.Member(int(shard)).Key)
		if err != nil {
			t.Fatal(err)
		}
		b.directory.Heard(peer, shards.Announcement{Shard: shard, Carried: carried}, time.Now())
	}
	chain := &waits{entries: map[ledger.ShardID][]int64{1: {100, 100, 100}, 2: {100, 100}}}
	alarmFor := func(b *book, seconds ...int64) (waits []ledger.ShardID) {
		for _, second := range seconds {
			found, _, err := b.alarm.look(chain, at(second))
			if err != nil {
				t.Fatal(err)
			}
			waits = nil
			for _, each := range found.Streams {
				waits = append(waits, each.Shard)
			}
		}
		return waits
	}
	if got := alarmFor(begin(), 1000, 1100); len(got) != 2 {
		t.Errorf("nothing is known of both: %v", got)
	}
	b := begin()
	hear(b, 1, 2)
	hear(b, 2, 2)
	if got := alarmFor(b, 1000, 1100); len(got) != 1 || got[0] != 1 {
		t.Errorf("the former child lacks an entry: %v", got)
	}
	hear(b, 1, 3)
	if got := alarmFor(b, 1200); len(got) != 0 {
		t.Errorf("they have all: %v", got)
	}
	b.workers.Go(b.remember)
	for deadline := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		if f, err := readFormerChildren(dir); err == nil && f.taken[1] == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing was written down")
		}
	}
	b.cancel()
	b.workers.Wait()
	if got := alarmFor(begin(), 2000, 2100); len(got) != 1 || got[0] != 2 {
		t.Errorf("after a start both are silent: %v", got)
	}
	chain.entries[1] = append(chain.entries[1], 100) // it was hung back, and elsewhere again
	if got := alarmFor(begin(), 2000, 2100); len(got) != 2 {
		t.Errorf("there is more for the former child: %v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, formerFile), []byte(`[{"shard"`), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := alarmFor(begin(), 2000, 2100); len(got) != 2 {
		t.Errorf("the file is damaged: %v", got)
	}
}
