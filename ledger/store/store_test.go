package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// small returns options for tests: little memory, almost no reserve, frequent checkpoints, and
// little that Open checks before it returns.
func small() Options {
	return Options{MemTableBytes: 1 << 20, BlockCacheBytes: 1 << 20, DecodedCacheBytes: 1,
		ReserveBytes: 1, SegmentBytes: 64 << 10, checkpointBlocks: 7, fanOut: 3,
		chunkBytes: 300, balanceSteps: 5, idsPerRun: 50, unsettledBytes: 3000,
		AccountsInMemory: 3, groupBytes: 3000}
}

func open(t testing.TB, dir string, options Options) *Store {
	t.Helper()
	return openBook(t, dir, testGenesis(), options)
}

func openBook(t testing.TB, dir string, genesis *ledger.Genesis, options Options) *Store {
	t.Helper()
	s, err := Open(dir, genesis, options)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, ErrClosed) &&
			!errors.Is(err, ErrFailed) {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// testGenesis returns the genesis of the chain of most tests in this package, which has the newest
// version, as new chains do.
func testGenesis() *ledger.Genesis {
	genesis := ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	return genesis
}

// book makes rounds of realistic traffic: an organisation with an issuer and a few accounts,
// transfers, records, members that join and leave, and occasional failing transactions.
type book struct {
	client   *ledgertest.Client
	operator *ledgertest.Operator
	accounts int
	round    ledger.Round
}

func newBook(accounts int) *book {
	return &book{client: ledgertest.NewClient(testGenesis(), "acme"),
		operator: ledgertest.NewOperator(testGenesis()), accounts: accounts}
}

func (b *book) account(i int) ledger.AccountPath {
	return b.client.Account(fmt.Sprintf("account-%d", i))
}

// next returns the payload of the next round, with count transactions.
func (b *book) next(count int) []byte {
	b.round++
	if b.round == 1 {
		names := []string{"issuer"}
		for i := range b.accounts {
			names = append(names, fmt.Sprintf("account-%d", i))
		}
		var transactions []ledger.Transaction
		for first := 0; first < len(names); first += 200 {
			transaction := b.client.Register(names[first:min(first+200, len(names))]...)
			transaction.Openings[0].Issuer = first == 0
			transactions = append(transactions, transaction)
		}
		return ledgertest.Batch(ledger.Milliseconds(b.round), b.client.Bundle(transactions...))
	}
	var bundles []*ledger.Bundle
	var transactions []ledger.Transaction
	for i := range count {
		step := int(b.round)*31 + i
		to := b.account(step % b.accounts)
		switch {
		case step%11 == 3:
			transactions = append(transactions, b.client.Transfer(to,
				b.account((step+1)%b.accounts), 1_000_000))
		case step%7 == 2:
			transaction := b.client.Next()
			transaction.Records = []ledger.Record{
				{Key: ledger.RecordKey(b.client.Account(fmt.Sprintf("record-%d", step%5))),
					Value: fmt.Appendf(nil, "value %d", step)}}
			transactions = append(transactions, transaction)
		default:
			transactions = append(transactions, b.client.Transfer(b.client.Account("issuer"),
				to, int64(step)))
		}
		if len(transactions) == 500 {
			bundles, transactions = append(bundles, b.bundles(transactions)...), nil
		}
	}
	bundles = append(bundles, b.bundles(transactions)...)
	switch b.round % 6 {
	case 2:
		bundles = append(bundles,
			b.operator.Join(ledgertest.Member(int(b.operator.Stream)*1000+int(b.round))))
	case 5:
		bundles = append(bundles, b.operator.Leave(ledger.MemberIndex(b.round/6)))
	}
	return ledgertest.Batch(ledger.Milliseconds(b.round), bundles...)
}

// bundles returns bundles of transactions: one of bodies, or in every third round packed ones of
// the transfers.
func (b *book) bundles(transactions []ledger.Transaction) (bundles []*ledger.Bundle) {
	plain := func(t *ledger.Transaction) bool {
		return len(t.Postings) == 2 && t.Postings[0].Account != t.Postings[1].Account
	}
	for len(transactions) > 0 {
		count := 1
		switch {
		case b.round%3 != 0:
			count = len(transactions)
		case plain(&transactions[0]):
			for count < len(transactions) && plain(&transactions[count]) {
				count++
			}
			bundles = append(bundles, b.client.Packed(transactions[:count]...))
			transactions = transactions[count:]
			continue
		}
		bundles = append(bundles, b.client.Bundle(transactions[:count]...))
		transactions = transactions[count:]
	}
	return bundles
}

func (b *book) apply(t testing.TB, s *Store, count int) *ledger.Block {
	t.Helper()
	payload := b.next(count)
	block, err := s.Apply(1, b.round, [][]byte{payload})
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return block
}

// readAll reads everything that a store serves, in every way. It returns a hash of it, or the first
// error.
func readAll(s *Store) (string, error) {
	text := sha256.New()
	fmt.Fprintf(text, "%+v\n", s.Head())
	for height := ledger.Height(0); height <= s.AppendedHeight(); height++ {
		block, err := s.Block(height)
		if err != nil {
			return "", err
		}
		header, hash, err := s.Header(height)
		if err != nil {
			return "", err
		}
		if hash != block.Hash || header != block.Header {
			return "", fmt.Errorf("header of block %d differs from the block's", height)
		}
		again, err := s.BlockByHash(hash)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(text, "%d %s %x\n", height, hash, again.Encode())
		for i := range block.Bundles {
			beyond := block.Bundles[i].ID(block.Bundles[i].Len() - 1)
			beyond[31]++
			if _, err := s.Transaction(beyond); !errors.Is(err, ErrNotFound) {
				return "", fmt.Errorf("transaction %s, which is nowhere: %w", beyond, err)
			}
		}
		fmt.Fprintf(text, "%+v\n", s.MembershipAt(height))
		for i := range block.Len() {
			found, err := s.Transaction(block.Entry(i).ID)
			if err != nil {
				return "", err
			}
			if found.Height != height || found.Index != i {
				return "", fmt.Errorf("transaction %s found in block %d, not %d", found.Entry.ID,
					found.Height, height)
			}
		}
	}
	fmt.Fprintf(text, "%+v %+v\n", s.Membership(), s.FormerMembers())
	for account, err := range s.AllAccounts() {
		if err != nil {
			return "", err
		}
		if alone, err := s.Account(account.Path); err != nil ||
			fmt.Sprint(alone) != fmt.Sprint(account) {
			return "", fmt.Errorf("account %+v, and alone %+v: %w", account, alone, err)
		}
		fmt.Fprintf(text, "%+v\n", account)
		for cursor, more := uint64(0), true; more; {
			page, err := s.History(account.Path, cursor, 100, false)
			if err != nil {
				return "", err
			}
			for _, item := range page.Items {
				fmt.Fprintf(text, "%d %d %d %s\n", item.Ordinal, item.Height, item.Index,
					item.Entry.ID)
			}
			cursor, more = page.Next, page.More
		}
	}
	if err := readShards(s, text); err != nil {
		return "", err
	}
	fmt.Fprintf(text, "%+v\n", s.Organisations())
	for i := range 5 {
		value, err := s.Record(ledger.RecordKey(fmt.Sprintf("acme:record-%d", i)))
		if err != nil && !errors.Is(err, ErrNotFound) {
			return "", err
		}
		fmt.Fprintf(text, "%q %d\n", value.Value, value.Height)
	}
	fmt.Fprint(text, s.NextSequence("acme", 0))
	return fmt.Sprintf("%x", text.Sum(nil)), nil
}

func mustReadAll(t testing.TB, s *Store) string {
	t.Helper()
	text, err := readAll(s)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return text
}

// A Sync that makes blocks durable flushes the journal, once. One that has nothing to do flushes
// nothing.
func TestFlushes(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), small())
	b := newBook(20)
	for range 3 {
		before := s.Flushes()
		b.apply(t, s, 7)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		some := s.Flushes()
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		if blocks, bytes := s.Unwritten(); blocks != int(b.round) || bytes == 0 {
			t.Errorf("%d blocks of %d bytes are unwritten after %d", blocks, bytes, b.round)
		}
		if some != before+1 || s.Flushes() != some {
			t.Errorf("flushes %d, then %d, then %d", before, some, s.Flushes())
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAppendReadReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, small())
	b := newBook(20)
	for range 200 {
		b.apply(t, s, 7)
		if b.round%50 == 0 {
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
			if s.DurableHeight() != s.AppendedHeight() {
				t.Fatalf("durable %d, appended %d", s.DurableHeight(), s.AppendedHeight())
			}
		}
	}
	before := mustReadAll(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, small())
	if after := mustReadAll(t, s); after != before {
		t.Fatal("the reopened store reads differently")
	}
	b.apply(t, s, 7)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	head, err := Verify(t.Context(), dir, testGenesis(), small(), nil)
	if err != nil || head.Height != 201 {
		t.Fatalf("verify: %+v %v", head, err)
	}
}

func TestAppendedIsReadAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), small())
	b := newBook(5)
	b.apply(t, s, 0)
	for range 100 {
		block := b.apply(t, s, 3)
		for i := range block.Len() {
			found, err := s.Transaction(block.Entry(i).ID)
			if err != nil || found.Height != block.Header.Height || found.Index != i {
				t.Fatalf("%+v %v", found, err)
			}
			proof, err := s.Proof(block.Entry(i).ID)
			if err != nil || ledger.VerifyProof(proof) != nil {
				t.Fatalf("proof: %v %v", err, ledger.VerifyProof(proof))
			}
		}
		if page, err := s.History("acme:issuer", 0, 1, true); err != nil || len(page.Items) != 1 {
			t.Fatalf("%+v %v", page, err)
		}
	}
}

func TestDuplicateIsExecutedOnce(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), small())
	b := newBook(5)
	b.apply(t, s, 0)
	payload := b.next(40)
	first, err := s.Apply(1, 2, [][]byte{payload, payload})
	if err != nil || first.Len() != 41 { // with a change of the membership
		t.Fatalf("%v", err)
	}
	again, err := s.Apply(1, 3, [][]byte{payload})
	if err != nil || again != nil {
		t.Fatalf("a round of duplicates made block %v, %v", again, err)
	}
	if s.AppendedHeight() != 2 {
		t.Fatalf("head is %d", s.AppendedHeight())
	}
}

func TestBlockLargerThanBadgersLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("20,000 signatures")
	}
	t.Parallel()
	dir, options := t.TempDir(), small()
	options.DecodedCacheBytes = 64 << 20
	s := open(t, dir, options)
	b := newBook(300)
	b.apply(t, s, 0)
	block := b.apply(t, s, 20_000)
	if rows := int64(block.Len()); rows < s.db.MaxBatchCount() ||
		int64(len(block.Encode())) < s.db.MaxBatchSize() {
		t.Fatalf("the block is not larger than the limits %d and %d", s.db.MaxBatchCount(),
			s.db.MaxBatchSize())
	}
	b.apply(t, s, 3)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	before := mustReadAll(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if mustReadAll(t, open(t, dir, options)) != before {
		t.Fatal("the reopened store reads differently")
	}
}

func TestForeignAndLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, small())
	if _, err := Open(dir, testGenesis(), small()); !errors.Is(err, ErrLocked) {
		t.Fatalf("second open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other := testGenesis()
	other.Chain = "other"
	if _, err := Open(dir, other, small()); !errors.Is(err, ErrForeign) {
		t.Fatalf("other chain: %v", err)
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "letter.txt"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(home, testGenesis(), small()); !errors.Is(err, ErrForeign) {
		t.Fatalf("somebody's folder: %v", err)
	}
}

func TestAppendOfAnotherNodesBlocks(t *testing.T) {
	t.Parallel()
	one, two := open(t, t.TempDir(), small()), open(t, t.TempDir(), small())
	b := newBook(5)
	for range 20 {
		b.apply(t, one, 5)
	}
	for height := ledger.Height(1); height <= one.AppendedHeight(); height++ {
		block, err := one.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := ledger.DecodeBlock(block.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if err := two.Append(decoded); err != nil {
			t.Fatal(err)
		}
		if err := two.Append(decoded); !errors.Is(err, ErrMismatch) {
			t.Fatalf("the same block again: %v", err)
		}
	}
	if mustReadAll(t, one) != mustReadAll(t, two) {
		t.Fatal("the two stores read differently")
	}
}
