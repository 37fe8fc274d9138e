package crossing

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/crossing/shards"
)

// A restarted node knows the members of other shards that it wrote down. If its file cannot be read
// or is useless, it starts with those of the genesis.
func TestAcquaintances(t *testing.T) {
	t.Parallel()
	begin := func(dir string) *book {
		b, err := newBook(Config{Dir: dir, Genesis: ledgertest.ShardedGenesis(1, 0, 0, 0),
			Self: "self", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.cancel)
		return b
	}
	dir := t.TempDir()
	first := begin(dir)
	replaced := ledger.Membership{Number: 3, Height: 9,
		Members: []ledger.GroupMember{{Member: ledgertest.Member(7), Index: 2, Joined: 8}}}
	if !first.directory.Learn(2, replaced) {
		t.Fatal("a change was not learnt")
	}
	first.workers.Go(first.remember)
	second := begin(dir)
	for deadline := time.Now().Add(time.Minute); len(second.directory.Changes()) ==
		0; second = begin(dir) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was written down")
		}
		<-time.After(5 * time.Millisecond)
	}
	first.cancel()
	first.workers.Wait()
	if _, members := second.directory.Members(2); len(members) != 1 ||
		members[0].Name != ledgertest.Member(7).Name || members[0].Index != 2 {
		t.Errorf("%+v", members)
	}
	for name, text := range map[string]string{
		"damaged":                      `[{"shard"`,
		"of a shard that there is not": `[{"shard":9,"membership":{"number":1,"members":[]}}]`,
		"of nobody":                    `[{"shard":2,"membership":{"number":1,"members":[]}}]`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, acquaintancesFile), []byte(text),
			0o644); err != nil {
			t.Fatal(err)
		}
		b := begin(dir)
		if changes := b.directory.Changes(); len(changes) != 0 {
			t.Errorf("%s: %+v", name, changes)
		}
	}
	if changes, err := readAcquaintances(filepath.Join(t.TempDir(),
		acquaintancesFile)); err != nil || len(changes) != 0 {
		t.Errorf("without a file: %+v, %v", changes, err)
	}
	if _, err := readAcquaintances(t.TempDir()); err == nil {
		t.Error("a folder was read as a file")
	}
}

// In a book with vouched crossings, the file has the trails, and proves nothing without them.
func TestAcquaintancesNeedTrails(t *testing.T) {
	t.Parallel()
	begin := func(dir string) *book {
		b, err := newBook(Config{Dir: dir, Genesis: vouchedGenesis(t, 0), Self: "self",
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.cancel)
		return b
	}
	s, dir := newProofScene(t), t.TempDir()
	first := begin(dir)
	trail := []*ledger.Certificate{certify(s.genesis, 0, s.join, 3, 4)}
	if learned, err := first.directory.LearnTrail(1, trail); err != nil || !learned {
		t.Fatal(learned, err)
	}
	changes := first.directory.Changes()
	if err := first.write(changes); err != nil {
		t.Fatal(err)
	}
	second := begin(dir)
	if got := second.directory.Changes(); !reflect.DeepEqual(got, changes) {
		t.Errorf("recalled %+v", got)
	}
	if _, members := second.directory.Members(1); len(members) != 4 ||
		members[3].Name != ledgertest.Member(6).Name || members[3].Index != 3 {
		t.Errorf("members %+v", members)
	}
	tooFew := certify(s.genesis, 0, s.join, 3)
	for name, change := range map[string]func(*shards.Change){
		"without a trail":    func(c *shards.Change) { c.Trail = nil },
		"a trail of one":     func(c *shards.Change) { c.Trail = [][]byte{tooFew.Encode()} },
		"a damaged trail":    func(c *shards.Change) { c.Trail = [][]byte{c.Trail[0][:40]} },
		"of another shard":   func(c *shards.Change) { c.Shard = 0 },
		"of no shard at all": func(c *shards.Change) { c.Shard = 9 },
	} {
		dir, other := t.TempDir(), changes[0]
		change(&other)
		if err := begin(dir).write([]shards.Change{other}); err != nil {
			t.Fatal(err)
		}
		if got := begin(dir).directory.Changes(); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// The membership in the file does not matter.
	other := changes[0]
	other.Membership = ledger.Membership{Number: 9, Members: []ledger.GroupMember{{
		Member: ledgertest.Member(30)}}}
	dir = t.TempDir()
	if err := begin(dir).write([]shards.Change{other}); err != nil {
		t.Fatal(err)
	}
	if got := begin(dir).directory.Changes(); !reflect.DeepEqual(got, changes) {
		t.Errorf("with a false membership: %+v", got)
	}
}
