package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// wanderer makes rounds whose transactions go to accounts all over a book, open further ones, some
// twice, and fail.
type wanderer struct {
	client *ledgertest.Client
	round  ledger.Round
	begin  ledger.Milliseconds // of the rounds' times
}

func (w *wanderer) path(random *rand.Rand) ledger.AccountPath {
	return w.client.Account(fmt.Sprintf("%02d", random.IntN(60)))
}

func (w *wanderer) next(random *rand.Rand) []byte {
	w.round++
	transactions := []ledger.Transaction{w.client.Register("issuer")}
	if random.IntN(3) == 0 {
		opening := w.client.Next()
		for range 1 + random.IntN(20) {
			opening.Openings = append(opening.Openings, ledger.Opening{Account: w.path(random)})
		}
		transactions = append(transactions, opening)
	}
	var transfers []ledger.Transaction
	for range random.IntN(12) {
		transfer := w.client.Transfer(w.client.Account("issuer"), w.path(random),
			int64(1+random.IntN(5)))
		if random.IntN(3) == 0 {
			transfer.Postings[0].Account = w.path(random) + "-" // never open
		}
		transfers = append(transfers, transfer)
	}
	for range random.IntN(12) {
		some := w.client.Next()
		for range random.IntN(3) {
			some.Openings = append(some.Openings, ledger.Opening{Account: w.path(random),
				Issuer: random.IntN(8) == 0})
		}
		from, amount := w.client.Account("issuer"), int64(random.IntN(5))
		if random.IntN(2) == 0 {
			from = w.path(random)
		}
		some.Postings = w.client.Transfer(from, w.path(random), amount).Postings
		transactions = append(transactions, some)
	}
	bundles := []*ledger.Bundle{w.client.Bundle(transactions...)}
	if len(transfers) > 0 {
		bundles = append(bundles, w.client.Packed(transfers...))
	}
	return ledgertest.Batch(w.begin+ledger.Milliseconds(w.round), bundles...)
}

// TestFewAccountsInMemory: a store with few accounts in memory has the same blocks, results and
// accounts as one with all of them, whatever the database has, over restarts.
func TestFewAccountsInMemory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
		few := small()
		few.AccountsInMemory = rapid.IntRange(1, 20).Draw(r, "accounts")
		few.checkpointBlocks = rapid.IntRange(1, 9).Draw(r, "blocks")
		few.chunkBytes = rapid.IntRange(60, 300).Draw(r, "bytes of a chunk")
		dir := t.TempDir()
		little, whole := open(t, dir, few), open(t, t.TempDir(), Options{ReserveBytes: 1})
		traffic := &wanderer{client: ledgertest.NewClient(testGenesis(), "acme")}
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
			switch random.IntN(6) {
			case 0:
				if err := little.awaitWritten(little.AppendedHeight()); err != nil {
					r.Fatal(err)
				}
			case 1:
				closeStore(t, little)
				little = open(t, dir, few)
			case 2:
				sameAccounts(r, little, whole, random)
			}
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

// sameAccounts compares pages of accounts, and accounts that are or are not open.
func sameAccounts(t *rapid.T, little, whole *Store, random *rand.Rand) {
	after, limit := ledger.AccountPath(fmt.Sprintf("acme:%02d", random.IntN(60))), random.IntN(9)
	got, err := little.Accounts(after, limit)
	want, failed := whole.Accounts(after, limit)
	if err := errors.Join(err, failed); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("after %s: %+v, want %+v: %v", after, got, want, err)
	}
	if !slices.IsSortedFunc(want, func(a, b ledger.Account) int {
		return bytes.Compare([]byte(a.Path), []byte(b.Path))
	}) || len(want) > 0 && want[0].Path <= after {
		t.Fatalf("after %s: %+v", after, want)
	}
	if little.AccountCount() != whole.AccountCount() {
		t.Fatalf("%d accounts, want %d", little.AccountCount(), whole.AccountCount())
	}
	for range 5 {
		path := ledger.AccountPath(fmt.Sprintf("acme:%02d", random.IntN(60)))
		got, err := little.Account(path)
		want, failed := whole.Account(path)
		if fmt.Sprint(got) != fmt.Sprint(want) ||
			errors.Is(err, ErrNotFound) != errors.Is(failed, ErrNotFound) ||
			err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatalf("%s: %+v, want %+v: %v, %v", path, got, want, err, failed)
		}
	}
	if use := little.Use("acme"); use != whole.Use("acme") {
		t.Fatalf("acme uses %+v, want %+v", use, whole.Use("acme"))
	}
}

// checkPages checks that pages of accounts and single accounts are those of the list of all.
func checkPages(t *testing.T, s *Store) {
	t.Helper()
	all, err := s.Accounts("", 1000)
	if err != nil || len(all) != s.AccountCount() {
		t.Fatalf("%d of %d accounts: %v", len(all), s.AccountCount(), err)
	}
	for i := range all {
		page, err := s.Accounts(all[i].Path, 2)
		if want := all[i+1 : min(i+3, len(all))]; err != nil ||
			fmt.Sprint(page) != fmt.Sprint(want) {
			t.Fatalf("after %s: %+v, want %+v: %v", all[i].Path, page, want, err)
		}
		if found, err := s.Account(all[i].Path); err != nil ||
			fmt.Sprint(found) != fmt.Sprint(all[i]) {
			t.Fatalf("%+v, want %+v: %v", found, all[i], err)
		}
		if page, err := s.Accounts("\xff", 2); err != nil || len(page) > 0 {
			t.Fatalf("after all: %+v: %v", page, err)
		}
		if found, err := s.Account(all[i].Path + "x"); !errors.Is(err, ErrNotFound) {
			t.Fatalf("%+v: %v", found, err)
		}
	}
}

// coldBook returns a store of a book of which the database has everything, and no account is in
// memory, because it was opened again.
func coldBook(t *testing.T) (*Store, *book) {
	dir, b := t.TempDir(), newBook(40)
	options := small()
	options.keepCold = true
	options.fanOut = 100 // several runs stay
	s := open(t, dir, options)
	for range 30 {
		if _, err := s.Apply(1, b.round+1, [][]byte{b.next(7)}); err != nil {
			t.Fatal(err)
		}
		if b.round%10 == 0 {
			if err := s.awaitWritten(s.AppendedHeight()); err != nil {
				t.Fatal(err)
			}
		}
	}
	closeStore(t, s)
	s = open(t, dir, options)
	t.Cleanup(func() { closeStore(t, s) })
	mustCheck(t, s)
	if s.AccountsInMemory() != 0 || s.AccountCount() != 41 {
		t.Fatalf("%d of %d accounts are in memory", s.AccountsInMemory(), s.AccountCount())
	}
	return s, b
}

// TestFewAccountsAreInMemoryAtStart: accounts are in memory once a store is open, as far as all of
// them may be.
func TestFewAccountsAreInMemoryAtStart(t *testing.T) {
	t.Parallel()
	dir, b := t.TempDir(), newBook(40)
	options := small()
	options.AccountsInMemory, options.keepCold = 1000, true
	s := open(t, dir, options)
	for range 5 {
		if _, err := s.Apply(1, b.round+1, [][]byte{b.next(7)}); err != nil {
			t.Fatal(err)
		}
	}
	digest, accounts := s.state.Digest(), s.AccountCount()
	for most, want := range map[int]int{1000: accounts, accounts - 1: 0} {
		closeStore(t, s)
		options.AccountsInMemory = most
		s = open(t, dir, options)
		if s.AccountsInMemory() != want || s.AccountCount() != accounts {
			t.Errorf("%d of %d accounts are in memory, want %d", s.AccountsInMemory(),
				s.AccountCount(), want)
		}
		if s.state.Digest() != digest {
			t.Error("the digest is another one")
		}
	}
	closeStore(t, s)
}

// TestColdAccountsAreChecked: a wrong or missing row of an account is damage, for a read and for a
// block. Nothing is executed with it.
func TestColdAccountsAreChecked(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]func(s *Store, entries []*run) error{
		"a lost chunk": func(s *Store, entries []*run) error {
			return s.db.Update(func(transaction *badger.Txn) error {
				for _, r := range entries {
					for at := range r.starts.len() {
						if err := transaction.Delete(r.chunkKey(0, r.starts.at(at))); err != nil {
							return err
						}
					}
				}
				return nil
			})
		},
		"a changed chunk": func(s *Store, entries []*run) error {
			return s.db.Update(func(transaction *badger.Txn) error {
				for _, r := range entries {
					for at := range r.starts.len() {
						key := r.chunkKey(0, r.starts.at(at))
						if err := transaction.Set(key, []byte("something else")); err != nil {
							return err
						}
					}
				}
				return nil
			})
		},
		"an older run instead of the newest ones": func(s *Store, entries []*run) error {
			older := of(rowRun, s.runs.list())
			older = append(older, entries[0])
			s.runs.runs.Store(&older)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b := coldBook(t)
			head := s.Head()
			before := s.runs.runs.Load()
			if err := hurt(s, of(rowEntries, s.runs.list())); err != nil {
				t.Fatal(err)
			}
			issuer := b.client.Account("issuer")
			if found, err := s.Account(issuer); !errors.Is(err, ErrDamaged) {
				t.Errorf("account %+v: %v", found, err)
			}
			_, err := s.Apply(1, b.round+1, [][]byte{b.next(7)})
			if !errors.Is(err, ErrDamaged) || s.Head() != head {
				t.Errorf("applied: %v", err)
			}
			s.runs.runs.Store(before)
		})
	}
}

// TestGuidesOfEntries: a guide is read as it was written, and not without its end. A run that lost
// its guide gets one that finds the same.
func TestGuidesOfEntries(t *testing.T) {
	t.Parallel()
	s, _ := coldBook(t)
	for _, r := range of(rowEntries, s.runs.list()) {
		guide := r.encodeEntriesGuide()
		again := &run{kind: rowEntries, records: r.records, bytes: r.bytes}
		if err := again.decodeEntriesGuide(guide); err != nil ||
			!bytes.Equal(again.encodeEntriesGuide(), guide) {
			t.Errorf("read again as another guide: %v", err)
		}
		for cut := entriesGuideHeadSize; cut < len(guide); cut += 13 {
			if err := again.decodeEntriesGuide(guide[:cut]); !errors.Is(err, errMissing) {
				t.Fatalf("%d of %d bytes: %v", cut, len(guide), err)
			}
		}
		made := &run{kind: rowEntries, number: r.number, records: r.records, bytes: r.bytes}
		if err := s.db.View(func(transaction *badger.Txn) error {
			return s.makeEntriesGuide(transaction, made)
		}); err != nil || !bytes.Equal(made.starts.data, r.starts.data) ||
			!slices.Equal(made.starts.ends, r.starts.ends) {
			t.Errorf("made another guide: %v", err)
		}
		if err := s.db.View(func(transaction *badger.Txn) error {
			all := newRangeCursor(transaction, made, 0, nil, nil)
			all.checks = true
			for {
				if more, err := all.advance(); err != nil || !more {
					return err
				}
			}
		}); err != nil {
			t.Error(err)
		}
	}
}

// TestRemainsOfGuides: a guide of which only some rows are left, as an older version leaves them,
// is made again, and what is left does not spoil it.
func TestRemainsOfGuides(t *testing.T) {
	t.Parallel()
	dir, b := t.TempDir(), newBook(40)
	s := open(t, dir, small())
	for range 30 {
		if _, err := s.Apply(1, b.round+1, [][]byte{b.next(7)}); err != nil {
			t.Fatal(err)
		}
	}
	want := mustReadAll(t, s)
	closeStore(t, s)
	edit(t, dir, func(batch *badger.WriteBatch, key, value []byte) error {
		if key[0] != rowGuide {
			return nil
		}
		left := bytes.Clone(key)
		left[len(left)-1]++
		return errors.Join(batch.Delete(key), batch.Set(left, seal(left, bytes.Clone(value))))
	})
	for again := range 3 {
		s = open(t, dir, small())
		if lacks := len(s.lacking.guides); lacks > 0 {
			t.Errorf("open %d: %d guides are still missing", again, lacks)
		}
		if got := mustReadAll(t, s); got != want {
			t.Error("reads differ")
		}
		mustCheck(t, s)
		closeStore(t, s)
	}
}

// TestWrongGuideIsFound: a guide of entries with which a look-up would not find some is found, by
// Open or behind, and at once by a check of everything, in chains of every version.
func TestWrongGuideIsFound(t *testing.T) {
	t.Parallel()
	without := func(starts keyList, chunk int) (others keyList) {
		for at := range starts.len() {
			if at != chunk {
				others.add(starts.at(at))
			}
		}
		return others
	}
	for name, spoil := range map[string]func(guide *run){
		"the filter has no entry": func(guide *run) {
			guide.filter = make(idFilter, len(guide.filter))
		},
		"no first chunk": func(guide *run) { guide.starts = without(guide.starts, 0) },
		"no chunk in the middle": func(guide *run) {
			guide.starts = without(guide.starts, guide.starts.len()/2)
		},
		"no last chunk": func(guide *run) {
			guide.starts = without(guide.starts, guide.starts.len()-1)
		},
		"a chunk too many": func(guide *run) {
			starts := keyList{data: bytes.Clone(guide.starts.data),
				ends: slices.Clone(guide.starts.ends)}
			starts.add([]byte("~"))
			guide.starts = starts
		},
	} {
		for _, version := range []int{0, ledger.AccountTreeVersion, ledger.NewestVersion} {
			t.Run(fmt.Sprintf("%s, version %d", name, version), func(t *testing.T) {
				t.Parallel()
				b, genesis := oldBook(40)
				genesis.Version = version
				b.client = ledgertest.NewClient(genesis, "acme")
				b.operator = ledgertest.NewOperator(genesis)
				options := small()
				options.fanOut = 100 // the first run stays
				dir := t.TempDir()
				s := openBook(t, dir, genesis, options)
				for range 20 {
					b.apply(t, s, 7)
				}
				if err := s.awaitWritten(s.AppendedHeight()); err != nil {
					t.Fatal(err)
				}
				wrong := *of(rowEntries, s.runs.list())[0]
				closeStore(t, s)
				if chunks := wrong.starts.len(); chunks < 3 {
					t.Fatalf("a run of %d chunks", chunks)
				}
				spoil(&wrong)
				edit(t, dir, func(batch *badger.WriteBatch, key, _ []byte) error {
					if bytes.Equal(key, wrong.guideKey(0)) {
						return batch.Set(key, seal(key, wrong.encodeEntriesGuide()))
					}
					return nil
				})
				all := options
				all.CheckAll = true
				for range 2 { // the second time because of what the first one found
					s, err := Open(dir, genesis, options)
					if err == nil {
						err = s.Checked(t.Context())
						_ = s.Close() // it failed
					}
					if !errors.Is(err, ErrDamaged) {
						t.Errorf("opened and checked: %v", err)
					}
				}
				if s, err := Open(dir, genesis, all); !errors.Is(err, ErrDamaged) {
					t.Errorf("checking all at once: %v", err)
					closeStore(t, s)
				}
			})
		}
	}
}

// TestGuideWithoutAReplacedChunk: a guide must have each chunk of its run, even one of which newer
// runs have all entries, so that the state is whole without it.
func TestGuideWithoutAReplacedChunk(t *testing.T) {
	t.Parallel()
	dir, b := t.TempDir(), newBook(40)
	options := small()
	options.fanOut, options.checkpointBlocks = 100, 1
	s := open(t, dir, options)
	b.apply(t, s, 0)
	for range 2 {
		var transfers []ledger.Transaction
		for i := range b.accounts {
			transfers = append(transfers, b.client.Transfer(b.client.Account("issuer"),
				b.account(i), 1))
		}
		b.round++
		if _, err := s.Apply(1, b.round, [][]byte{ledgertest.Batch(ledger.Milliseconds(b.round),
			b.client.Bundle(transfers...))}); err != nil {
			t.Fatal(err)
		}
		if err := s.awaitWritten(s.AppendedHeight()); err != nil {
			t.Fatal(err)
		}
	}
	wrong := *of(rowEntries, s.runs.list())[1]
	closeStore(t, s)
	chunks := wrong.starts.len()
	var starts keyList
	for at := range chunks {
		if at != chunks/2 {
			starts.add(wrong.starts.at(at))
		}
	}
	wrong.starts = starts
	edit(t, dir, func(batch *badger.WriteBatch, key, _ []byte) error {
		if bytes.Equal(key, wrong.guideKey(0)) {
			return batch.Set(key, seal(key, wrong.encodeEntriesGuide()))
		}
		return nil
	})
	for _, all := range []bool{false, true} {
		options.CheckAll = all
		if s, err := Open(dir, testGenesis(), options); !errors.Is(err, ErrDamaged) {
			t.Errorf("without one of %d chunks, checking all is %v: %v", chunks, all, err)
			closeStore(t, s)
		}
	}
}

// TestRangesOfEntries: cursors over ranges of a run pass each of its entries once, in order.
func TestRangesOfEntries(t *testing.T) {
	t.Parallel()
	s, _ := coldBook(t)
	entries := of(rowEntries, s.runs.list())
	var all [][]byte
	if err := s.db.View(func(transaction *badger.Txn) error {
		whole := newMerged(transaction, entries)
		defer whole.close()
		for {
			key, _, more, err := whole.next()
			if err != nil || !more {
				return err
			}
			all = append(all, bytes.Clone(key))
		}
	}); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(r *rapid.T) {
		key := func(name string) []byte {
			key := all[rapid.IntRange(0, len(all)-1).Draw(r, name)]
			if rapid.Bool().Draw(r, "between") {
				key = append(bytes.Clone(key), 1)
			}
			return key
		}
		from, to := key("from"), key("to")
		if rapid.IntRange(0, 3).Draw(r, "open end") == 0 {
			to = nil
		}
		var want, got [][]byte
		for _, key := range all {
			if bytes.Compare(key, from) >= 0 && (to == nil || bytes.Compare(key, to) < 0) {
				want = append(want, key)
			}
		}
		if err := s.db.View(func(transaction *badger.Txn) error {
			part := newMergedRange(transaction, entries, false, nil, from, to)
			defer part.close()
			for {
				key, _, more, err := part.next()
				if err != nil || !more {
					return err
				}
				got = append(got, bytes.Clone(key))
			}
		}); err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
			r.Fatalf("from %q to %q: %q, want %q: %v", from, to, got, want, err)
		}
	})
}

// TestManyColdAccounts: a block may need more cold accounts than are looked up together, and a list
// of all accounts may have more than a page.
func TestManyColdAccounts(t *testing.T) {
	t.Parallel()
	const accounts = accountsPage + 3
	dir, b := t.TempDir(), newBook(accounts)
	s, whole := open(t, dir, small()), open(t, t.TempDir(), Options{ReserveBytes: 1})
	apply := func(payload []byte) {
		t.Helper()
		want, err := whole.Apply(1, b.round, [][]byte{payload})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Apply(1, b.round, [][]byte{payload}); err != nil || got.Hash != want.Hash {
			t.Fatalf("block %d is another one: %v", want.Header.Height, err)
		}
	}
	apply(b.next(0))
	for _, packed := range []bool{true, false} {
		closeStore(t, s)
		options := small()
		options.keepCold = true
		s = open(t, dir, options)
		if count := s.AccountsInMemory(); count != 0 {
			t.Fatalf("%d accounts are in memory", count)
		}
		var transfers []ledger.Transaction
		for i := range accounts {
			transfers = append(transfers, b.client.Transfer(b.client.Account("issuer"),
				b.account(i), int64(1+i)))
		}
		bundle := b.client.Bundle(transfers...)
		if packed {
			bundle = b.client.Packed(transfers...)
		}
		b.round++
		apply(ledgertest.Batch(ledger.Milliseconds(b.round), bundle))
		var got, want []ledger.Account
		for account, err := range s.AllAccounts() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, account)
		}
		for account, err := range whole.AllAccounts() {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, account)
		}
		if len(got) != accounts+1 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%d and %d accounts, or others", len(got), len(want))
		}
	}
}

// TestGuideOfARestoredRun: the run of entries of a restored store has a filter for as many entries
// as it has, so few look-ups of accounts that are not open read a chunk.
func TestGuideOfARestoredRun(t *testing.T) {
	t.Parallel()
	s, b := coldBook(t)
	snapshot, _ := snapshotOf(t, s)
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := Restore(t.Context(), dir, testGenesis(), small(), bytes.NewReader(snapshot),
		believe); err != nil {
		t.Fatal(err)
	}
	restored := open(t, dir, small())
	entries := of(rowEntries, restored.runs.list())
	if len(entries) != 1 || len(entries[0].filter) != int(filterWords(entries[0].records)) {
		t.Fatalf("%d runs, the first with a filter of %d words", len(entries),
			len(entries[0].filter))
	}
	maybe := 0
	for i := range 1000 {
		path := b.client.Account(fmt.Sprintf("not-open-%d", i))
		id := filterKey(state.AppendAccountKey(nil, path))
		if entries[0].filter.mayHave(id[:]) {
			maybe++
		}
	}
	if maybe > 100 {
		t.Errorf("the filter lets %d of 1000 accounts pass that are not open", maybe)
	}
	if _, err := restored.Account(b.account(1)); err != nil {
		t.Error(err)
	}
}

// TestAccountsInMemoryDefault: the default follows the limit of memory.
func TestAccountsInMemoryDefault(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]int{math.MaxInt64: 8 << 20, 4 << 30: 4 << 20, 1: 1 << 16} {
		if got := accountsInMemoryDefault(limit); got != want {
			t.Errorf("%d accounts within %d bytes, want %d", got, limit, want)
		}
	}
}

// FuzzEntriesGuide checks that each guide of entries has one encoding.
func FuzzEntriesGuide(f *testing.F) {
	r := &run{kind: rowEntries}
	r.expect(3)
	for _, name := range []string{"a", "b", "c"} {
		key := state.AppendAccountKey(nil, ledger.AccountPath(name))
		r.starts.add(key)
		r.note(key, nil)
	}
	f.Add(uint16(3), r.encodeEntriesGuide())
	f.Fuzz(func(t *testing.T, records uint16, data []byte) {
		r := &run{kind: rowEntries, records: uint64(records)}
		if len(data) > entriesGuideHeadSize {
			r.bytes = binary.BigEndian.Uint64(data[9:])
		}
		if r.decodeEntriesGuide(data) == nil && data[0] == entriesGuideVersion &&
			!bytes.Equal(r.encodeEntriesGuide(), data) {
			t.Fatal("a guide has two encodings")
		}
	})
}
