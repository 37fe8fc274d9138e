package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// openTaking opens a store, and reports whether its state began with the file of leaves. Open
// removes a file that it does not take.
func openTaking(dir string, genesis *ledger.Genesis, options Options) (s *Store, taken bool,
	err error) {
	before, missing := os.Open(filepath.Join(dir, leavesFile))
	if missing != nil {
		s, err = Open(dir, genesis, options)
		return s, false, err
	}
	defer before.Close() // no other file may have its number
	if s, err = Open(dir, genesis, options); err != nil {
		return nil, false, err
	}
	old, err := before.Stat()
	if err != nil {
		return s, false, err
	}
	now, err := os.Stat(filepath.Join(dir, leavesFile))
	return s, err == nil && os.SameFile(old, now), nil
}

func mustOpenTaking(t testing.TB, dir string, options Options) (s *Store, taken bool) {
	t.Helper()
	s, taken, err := openTaking(dir, testGenesis(), options)
	if err != nil {
		t.Fatal(err)
	}
	return s, taken
}

// leavesBook makes a store of 41 accounts with a file of leaves that has groups.
func leavesBook(t testing.TB, dir string, options Options) *book {
	t.Helper()
	b := newBook(40)
	s := open(t, dir, options)
	for more := range 2 {
		for range 15 {
			if _, err := s.Apply(1, b.round+1, [][]byte{b.next(7)}); err != nil {
				t.Fatal(err)
			}
		}
		if more == 0 {
			closeStore(t, s)
			s = open(t, dir, options)
		}
	}
	closeStore(t, s)
	return b
}

// TestLeavesChangeNoResult: a store with a file of leaves has the same blocks, accounts and counts
// as one that has all accounts in memory, over restarts and kills, whatever happens to the file.
// Unless something does, a start takes it.
func TestLeavesChangeNoResult(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
		few := small()
		few.AccountsInMemory = rapid.IntRange(1, 20).Draw(r, "accounts")
		few.checkpointBlocks = rapid.IntRange(1, 9).Draw(r, "blocks")
		few.groupBytes = rapid.IntRange(1, 5000).Draw(r, "bytes of groups")
		dir := t.TempDir()
		little, whole := open(t, dir, few), open(t, t.TempDir(), Options{ReserveBytes: 1})
		traffic := &wanderer{client: ledgertest.NewClient(testGenesis(), "acme")}
		var earlier []byte
		for range rapid.IntRange(1, 20).Draw(r, "rounds") {
			payload := traffic.next(random)
			want, err := whole.Apply(1, traffic.round, [][]byte{payload})
			if err != nil {
				r.Fatal(err)
			}
			got, err := little.Apply(1, traffic.round, [][]byte{payload})
			if err != nil || got.Hash != want.Hash {
				r.Fatalf("block %d is another one: %v", want.Header.Height, err)
			}
			restart := random.IntN(6)
			switch restart {
			case 0:
				if err := little.awaitWritten(little.AppendedHeight()); err != nil {
					r.Fatal(err)
				}
				continue
			case 1:
				closeStore(t, little)
			case 2:
				if err := little.awaitWritten(little.AppendedHeight()); err != nil {
					r.Fatal(err)
				}
				killed := readFolder(t, dir)
				closeStore(t, little)
				dir = inFolder(t, killed)
			default:
				continue
			}
			hurt := hurtLeaves(t, dir, random, earlier)
			earlier = content(filepath.Join(dir, leavesFile))
			if _, err := os.Stat(filepath.Join(dir, uncheckedFile)); err == nil {
				hurt = true // everything is read then
			}
			var taken bool
			little, taken = mustOpenTaking(t, dir, few)
			many := little.AccountCount() > few.AccountsInMemory
			if restart == 2 && earlier == nil { // killed while the first base was written
				many = false
			}
			if !hurt && taken != many {
				r.Fatalf("the file is taken: %v, %d accounts", taken, little.AccountCount())
			}
			if little.AppendedHeight() != whole.AppendedHeight() ||
				little.state.Digest() != whole.state.Digest() {
				r.Fatal("another state after a restart")
			}
			sameAccounts(r, little, whole, random)
		}
		sameAccounts(r, little, whole, random)
		if got, want := mustReadAll(t, little), mustReadAll(t, whole); got != want {
			r.Fatal("reads differ")
		}
		closeStore(t, little)
		closeStore(t, whole)
		if _, err := Verify(t.Context(), dir, testGenesis(), few, nil); err != nil {
			r.Fatal(err)
		}
	})
}

// hurtLeaves may change or remove the file of leaves. It reports whether it did.
func hurtLeaves(t testing.TB, dir string, random *rand.Rand, earlier []byte) bool {
	t.Helper()
	path := filepath.Join(dir, leavesFile)
	data := content(path)
	hurt := bytes.Clone(data)
	switch random.IntN(6) {
	case 0:
		if len(data) > 0 {
			hurt[random.IntN(len(data))] ^= 1 << random.IntN(8)
		}
	case 1:
		if len(data) > 0 {
			hurt = hurt[:random.IntN(len(data))]
		}
	case 2:
		hurt = earlier
	case 3:
		if len(data) > 0 {
			clear(hurt[random.IntN(len(data)):])
		}
	default:
		return false
	}
	if bytes.Equal(hurt, data) {
		return false
	}
	if err := os.WriteFile(path, hurt, 0o600); err != nil {
		t.Fatal(err)
	}
	return true
}

// TestEachByteOfLeaves: whichever byte of the file is wrong, a start has the same state. It may
// take the file only if a later group replaces the leaf with the byte.
func TestEachByteOfLeaves(t *testing.T) {
	t.Parallel()
	made := t.TempDir()
	leavesBook(t, made, small())
	s, taken := mustOpenTaking(t, made, small())
	if !taken {
		t.Fatal("the file is not taken")
	}
	digest, use := s.state.Digest(), s.Use("acme")
	closeStore(t, s)
	files := readFolder(t, made)
	whole := files[leavesFile].data
	head := leavesPartSize + int(s.leaves.current.base.counts)
	refused := 0
	step := 31
	if testing.Short() {
		step = 97
	}
	for at := 0; at < len(whole); at += step {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x10
		files[leavesFile] = file{data: damaged, size: int64(len(damaged))}
		s, taken := mustOpenTaking(t, inFolder(t, files), small())
		if !taken {
			refused++
		}
		if taken && at < head || s.state.Digest() != digest || s.Use("acme") != use {
			t.Errorf("byte %d of %d: taken: %v, digest %s, use %+v", at, len(whole), taken,
				s.state.Digest(), s.Use("acme"))
		}
		closeStore(t, s)
	}
	if refused*step < head+41*ledger.HashSize {
		t.Errorf("only %d of %d damaged files are refused", refused, len(whole)/step)
	}
}

// TestForeignLeaves: a start takes no file of another chain, whatever its heights are.
func TestForeignLeaves(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	leavesBook(t, dir, small())
	foreign := testGenesis()
	foreign.Chain += "-other"
	b := newBook(40)
	b.client = ledgertest.NewClient(foreign, "acme")
	s := openBook(t, other, foreign, small())
	for range 30 {
		if _, err := s.Apply(1, b.round+1, [][]byte{b.next(7)}); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	data := content(filepath.Join(other, leavesFile))
	if len(data) == 0 {
		t.Fatal("the other chain has no file")
	}
	if err := os.WriteFile(filepath.Join(dir, leavesFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, taken := mustOpenTaking(t, dir, small())
	if taken {
		t.Error("it is taken")
	}
	closeStore(t, s)
}

// TestWrongCounts: counts that are not of the state's accounts are not taken, even with the right
// leaves and a right checksum over other counts.
func TestWrongCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	leavesBook(t, dir, small())
	path := filepath.Join(dir, leavesFile)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	closeStore(t, open(t, dir, small())) // it makes a file without groups
	f := &leavesHandle{chain: testGenesis().Hash()}
	var err error
	if f.file, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	defer f.file.Close()
	f.end = int64(len(content(path)))
	base, counts, err := f.readPart(0, leavesBase)
	if err != nil {
		t.Fatal(err)
	}
	counts[len(counts)-2] ^= 1 // the number of accounts
	head := append(base.encode(leavesBase, f.chain, counts), counts...)
	if _, err := f.file.WriteAt(head, 0); err != nil {
		t.Fatal(err)
	}
	s, taken := mustOpenTaking(t, dir, small())
	if taken {
		t.Error("they are taken")
	}
	closeStore(t, s)
}

// TestLeavesAreBounded: the file stays small, however many layers there are, and a start takes it
// after a new base was written.
func TestLeavesAreBounded(t *testing.T) {
	t.Parallel()
	options, dir, b := small(), t.TempDir(), newBook(40)
	options.checkpointBlocks = 2
	var bases, most atomic.Int64
	options.onWrite = func(step string) {
		if step == "leaves base" {
			bases.Add(1)
		}
		if now, err := os.Stat(filepath.Join(dir, leavesFile)); err == nil {
			most.Store(max(most.Load(), now.Size()))
		}
	}
	s := open(t, dir, options)
	for range 150 {
		if _, err := s.Apply(1, b.round+1, [][]byte{b.next(7)}); err != nil {
			t.Fatal(err)
		}
		if err := s.awaitWritten(s.AppendedHeight()); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	const layer = 41*groupLeafSize + 2*leavesPartSize + 100
	if bound := int64(leavesPartSize + 100 + 41*ledger.HashSize + 2*options.groupBytes + layer +
		options.groupBytes); most.Load() > bound || bases.Load() < 3 {
		t.Errorf("%d bytes, at most %d; %d bases", most.Load(), bound, bases.Load())
	}
	if _, err := os.Stat(filepath.Join(dir, leavesFile+newSuffix)); err == nil {
		t.Error("a file that was being made is left")
	}
	s, taken := mustOpenTaking(t, dir, options)
	if !taken {
		t.Error("the file is not taken")
	}
	closeStore(t, s)
}

// TestFewAccountsHaveNoLeaves: there is no file of accounts that a start makes resident, nor of a
// chain without a tree. One that is left from before is removed.
func TestFewAccountsHaveNoLeaves(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ledger.Genesis, *Options){
		"few": func(_ *ledger.Genesis, options *Options) { options.AccountsInMemory = 100 },
		"version 1": func(genesis *ledger.Genesis, _ *Options) {
			genesis.Version = ledger.FirstVersion
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			genesis, options, dir := testGenesis(), small(), t.TempDir()
			change(genesis, &options)
			b := newBook(40)
			b.client = ledgertest.NewClient(genesis, "acme")
			s := openBook(t, dir, genesis, options)
			for again := range 2 {
				for range 15 {
					bundle := b.client.Bundle(b.client.Transfer(b.client.Account("issuer"),
						b.client.Account("0"), 1))
					if b.round == 0 {
						names := []string{"issuer"}
						for i := range 40 {
							names = append(names, fmt.Sprint(i))
						}
						bundle = b.client.Bundle(b.client.Register(names...))
					}
					b.round++
					if _, err := s.Apply(1, b.round, [][]byte{ledgertest.Batch(
						ledger.Milliseconds(b.round), bundle)}); err != nil {
						t.Fatal(err)
					}
				}
				closeStore(t, s)
				if _, err := os.Stat(filepath.Join(dir, leavesFile)); err == nil {
					t.Error("there is a file")
				}
				if again == 0 {
					for _, name := range []string{leavesFile, leavesFile + newSuffix} {
						if err := os.WriteFile(filepath.Join(dir, name), []byte("left"),
							0o600); err != nil {
							t.Fatal(err)
						}
					}
					s = openBook(t, dir, genesis, options)
				}
			}
		})
	}
}

// TestLeavesThatCannotBeWritten: the store goes on without the file, and has it again later.
func TestLeavesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]func(t *testing.T, s *Store){
		"a group": func(t *testing.T, s *Store) {
			s.leaves.files.Lock()
			defer s.leaves.files.Unlock()
			if err := s.leaves.current.file.Close(); err != nil {
				t.Fatal(err)
			}
		},
		"a base": func(t *testing.T, s *Store) {
			if err := os.MkdirAll(filepath.Join(s.dir, leavesFile+newSuffix), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(s.dir, leavesFile)); err != nil {
				t.Fatal(err)
			}
			s.leaves.files.Lock()
			defer s.leaves.files.Unlock()
			s.dropLeaves(&s.leaves.current)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, options := t.TempDir(), small()
			options.groupBytes = 1 << 20
			b := leavesBook(t, dir, options)
			s, taken := mustOpenTaking(t, dir, options)
			if !taken {
				t.Fatal("the file is not taken")
			}
			digest := func() ledger.Hash { return s.state.Digest() }
			hurt(t, s)
			for range 30 {
				if _, err := s.Apply(1, b.round+1, [][]byte{b.next(7)}); err != nil {
					t.Fatal(err)
				}
			}
			want := digest()
			closeStore(t, s)
			_ = os.Remove(filepath.Join(dir, leavesFile+newSuffix))
			for again := range 3 {
				if s, taken = mustOpenTaking(t, dir, options); again > 0 && !taken {
					t.Errorf("open %d: the file is not taken", again)
				}
				if digest() != want {
					t.Error("another state")
				}
				closeStore(t, s)
			}
		})
	}
}

// TestLeavesOnFullDisk: without space for it, there is no file, and everything else works. With
// space again, there is one.
func TestLeavesOnFullDisk(t *testing.T) {
	t.Parallel()
	dir, options, b := t.TempDir(), small(), newBook(40)
	options.checkpointBlocks = 1000 // the database gets all blocks at the end
	const reserve, needed = 1 << 20, 41 * ledger.HashSize / 4 * 8
	options.ReserveBytes = reserve
	var free atomic.Uint64
	free.Store(1 << 40)
	options.FreeSpace = func(string) (uint64, error) { return free.Load(), nil }
	s := open(t, dir, options)
	for range 30 {
		if _, err := s.Apply(1, b.round+1, [][]byte{b.next(7)}); err != nil {
			t.Fatal(err)
		}
	}
	want := s.state.Digest()
	for _, scarce := range []bool{true, false} {
		if free.Store(1 << 40); scarce {
			free.Store(reserve + needed - 1)
		}
		closeStore(t, s)
		if has := slices.Contains(listFolder(t, dir), leavesFile); has != !scarce {
			t.Errorf("little space: %v, there is a file: %v", scarce, has)
		}
		free.Store(1 << 40)
		var taken bool
		if s, taken = mustOpenTaking(t, dir, options); taken == scarce ||
			s.state.Digest() != want {
			t.Errorf("little space: %v, the file is taken: %v", scarce, taken)
		}
	}
	closeStore(t, s)
}

// TestLostRowsBehindLeaves: rows of accounts that the database may have lost without an error are
// read by Open, although the file of leaves is right. The others are read behind.
func TestLostRowsBehindLeaves(t *testing.T) {
	t.Parallel()
	options := small()
	options.groupBytes = 1 << 20
	options.fanOut = 1 << 20 // no merge: rows of a run that it replaced may be there for a while
	for _, unsettled := range []uint64{1, 1 << 30} {
		t.Run(fmt.Sprint(unsettled), func(t *testing.T) {
			t.Parallel()
			options, dir := options, t.TempDir()
			options.unsettledBytes = unsettled
			leavesBook(t, dir, options)
			var last []byte
			edit(t, dir, func(batch *badger.WriteBatch, key, _ []byte) error {
				if key[0] == rowEntries && state.IsAccountKey(key[runPrefixSize:]) && last == nil {
					last = key
					return batch.Delete(key)
				}
				return nil
			})
			s, err := Open(dir, testGenesis(), options)
			if unsettled > 1 {
				if !errors.Is(err, ErrDamaged) {
					t.Errorf("opened without row %x: %v", last, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Checked(t.Context()); !errors.Is(err, ErrDamaged) {
				t.Errorf("checked without row %x: %v", last, err)
			}
			_ = s.Close() // it failed
		})
	}
}

// TestOlderGuidesOfEntries: the guide of version 2 finds the same, and says nothing about which
// runs are newer.
func TestOlderGuidesOfEntries(t *testing.T) {
	t.Parallel()
	s, _ := coldBook(t)
	for _, r := range of(rowEntries, s.runs.list()) {
		guide := r.encodeEntriesGuide()
		older := append([]byte{entriesGuideVersion2}, guide[1:entriesGuideHeadSize-8]...)
		older = append(older, guide[entriesGuideHeadSize:]...)
		again := &run{kind: rowEntries, records: r.records, bytes: r.bytes}
		if err := again.decodeEntriesGuide(older); err != nil {
			t.Fatal(err)
		}
		if again.next < 1<<62 || r.next <= r.number || r.next > s.runs.next.Load() {
			t.Errorf("next %d, read as %d", r.next, again.next)
		}
		again.next = r.next
		if !bytes.Equal(again.encodeEntriesGuide(), guide) {
			t.Error("read as another guide")
		}
	}
}

// FuzzLeaves: whatever the file has, with whatever right checksums, it is refused, or begins a
// state of as many accounts as it says.
func FuzzLeaves(f *testing.F) {
	genesis := testGenesis()
	counts := appendCounts(nil, []state.Counts{{Organisation: "acme", Accounts: 2, Assets: 1}})
	f.Add(uint64(7), uint64(7), uint64(2), uint64(2), counts, make([]byte, 64), uint64(8),
		uint64(3), uint64(1), counts, make([]byte, groupLeafSize))
	f.Add(uint64(8), uint64(0), uint64(1), uint64(1), counts, make([]byte, 32), uint64(8),
		uint64(1<<40), uint64(1<<60), []byte{1}, []byte{1})
	f.Fuzz(func(t *testing.T, height, other, accounts, leaves uint64, counts, data []byte,
		groupHeight, groupAccounts, groupLeaves uint64, groupCounts, groupData []byte) {
		s := &Store{dir: t.TempDir(), chainID: genesis.Hash(), genesis: genesis}
		base := leavesPart{height: ledger.Height(height), other: ledger.Height(other),
			accounts: accounts, leaves: leaves, counts: uint64(len(counts))}
		group := leavesPart{height: ledger.Height(groupHeight), other: base.height,
			accounts: groupAccounts, leaves: groupLeaves, counts: uint64(len(groupCounts))}
		file := slices.Concat(base.encode(leavesBase, s.chainID, counts), counts, data,
			group.encode(leavesGroup, s.chainID, groupCounts), groupCounts, groupData)
		if err := os.WriteFile(filepath.Join(s.dir, leavesFile), file, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, at := range []ledger.Height{base.height, group.height} {
			opened, all, err := s.openLeaves(at)
			if err != nil {
				continue
			}
			restored := state.New(genesis)
			if err := opened.restore(restored, all); err == nil &&
				uint64(restored.AccountCount()) != opened.last.accounts {
				t.Errorf("%d accounts, want %d", restored.AccountCount(), opened.last.accounts)
			}
			if err := opened.file.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestCounts: counts are read as they were written, and nothing that is cut is read.
func TestCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		want := make(map[ledger.OrganisationName]state.Counts)
		for range rapid.IntRange(0, 5).Draw(r, "organisations") {
			name := ledger.OrganisationName(rapid.StringN(1, 9, 64).Draw(r, "name"))
			want[name] = state.Counts{Organisation: name,
				Accounts: rapid.Uint64Range(0, 1<<62).Draw(r, "accounts"),
				Assets:   rapid.Uint64Range(0, 1<<62).Draw(r, "assets")}
		}
		data := appendCounts(nil, slices.Collect(maps.Values(want)))
		got := make(map[ledger.OrganisationName]state.Counts)
		if err := readCounts(got, data); err != nil || !maps.Equal(got, want) {
			r.Fatalf("%v, want %v: %v", got, want, err)
		}
		if len(data) > 0 && readCounts(got, data[:len(data)-1]) == nil {
			r.Fatal("cut counts are read")
		}
	})
}

// TestLeavesBeginWithAnUpgrade: a chain without a tree has no file. It has one after the upgrade,
// and a start takes it.
func TestLeavesBeginWithAnUpgrade(t *testing.T) {
	t.Parallel()
	b, genesis := oldBook(40)
	dir := t.TempDir()
	s := openBook(t, dir, genesis, small())
	for range 8 {
		b.apply(t, s, 30)
	}
	closeStore(t, s)
	if _, err := os.Stat(filepath.Join(dir, leavesFile)); err == nil {
		t.Error("there is a file before the upgrade")
	}
	s = openBook(t, dir, genesis, small())
	if _, err := b.upgrade(s, ledger.AccountTreeVersion); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		b.apply(t, s, 30)
	}
	want := s.state.Digest()
	closeStore(t, s)
	s, taken, err := openTaking(dir, genesis, small())
	if err != nil || !taken || s.state.Digest() != want {
		t.Errorf("opened, the file is taken: %v, the state is another one: %v", taken, err)
	}
	closeStore(t, s)
}
