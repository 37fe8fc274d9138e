package shards

import (
	"crypto/ed25519"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// book is three shards with three members each, 0 above 1 and 2. The members of a shard share its
// chain, which the test orders. The test reads the entries carried down the tree from the parent's
// store.
type book struct {
	t       *testing.T
	network *memory.Network
	shards  [3]*shard
	clients [3]*ledgertest.Client // of an organisation at home in each shard
}

type shard struct {
	genesis *ledger.Genesis
	store   *store.Store
	durable atomic.Uint64
	members []*Verdicts
	waiting [][]byte // bundles to be ordered
}

func newBook(t *testing.T, change func(*VerdictsConfig)) *book {
	b := &book{t: t, network: memory.NewNetwork()}
	genesis := ledgertest.ShardedGenesis(3, 0, 0, 0)
	for i := range b.shards {
		of, err := genesis.ForShard(ledger.ShardID(i))
		if err != nil {
			t.Fatal(err)
		}
		opened, err := store.Open(t.TempDir(), of, store.Options{MemTableBytes: 1 << 20,
			ReserveBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = opened.Close() })
		b.shards[i] = &shard{genesis: of, store: opened}
		for range 3 {
			b.start(i, len(b.shards[i].members), change)
		}
		b.clients[i] = ledgertest.NewClient(of, ledger.OrganisationName(fmt.Sprintf("org%d", i)))
	}
	var registrations, issues []ledger.Transaction
	for i, client := range b.clients {
		registration := client.Register()
		registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true,
			ledger.ShardID(i)
		registrations = append(registrations, registration)
	}
	b.submit(0, registrations...)
	b.settle()
	for i, client := range b.clients {
		opening := client.Next()
		opening.Openings = []ledger.Opening{{Account: client.Account("issuer"), Issuer: true},
			{Account: client.Account("a")}}
		issues = append(issues[:0], opening, client.Transfer(client.Account("issuer"),
			client.Account("a"), 1000))
		b.submit(i, issues...)
	}
	b.settle()
	return b
}

// start starts a member of a shard, or starts it again.
func (b *book) start(i, m int, change func(*VerdictsConfig)) {
	b.t.Helper()
	s := b.shards[i]
	directory, err := NewDirectory(s.genesis)
	if err != nil {
		b.t.Fatal(err)
	}
	directory.SetSelf(peerOf(b.t, 3*i+m))
	_, c := controlOf(b.t, b.network, directory.Self())
	config := VerdictsConfig{
		Directory: directory, Control: c, Store: func() Chain { return s.store }, Logger: quiet,
		Durable:    func() ledger.Height { return ledger.Height(s.durable.Load()) },
		AgainAfter: 20 * time.Millisecond, AskAfter: 20 * time.Millisecond,
		AskEvery: 20 * time.Millisecond,
	}
	if change != nil {
		change(&config)
	}
	v, err := NewVerdicts(config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(v.Close)
	s.members = append(s.members[:m], append([]*Verdicts{v},
		s.members[min(m+1, len(s.members)):]...)...)
}

// submit puts a bundle with the signatures of all organisations into a shard.
func (b *book) submit(shard int, transactions ...ledger.Transaction) (ids []ledger.Hash) {
	b.t.Helper()
	bundle, err := ledger.NewBundle(transactions...)
	for _, client := range b.clients {
		if err == nil {
			err = bundle.Sign(client.Organisation,
				ed25519.PrivateKey(ledgertest.Key(string(client.Organisation))))
		}
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.shards[shard].waiting = append(b.shards[shard].waiting, bundle.Encode())
	return bundle.IDs()
}

// order makes a shard's next block from the available input. The block is executed by all members,
// and becomes durable only later. order reports whether there was any input.
func (b *book) order(i int) bool {
	b.t.Helper()
	s := b.shards[i]
	batch := ledger.Batch{Header: ledger.BatchHeader{
		Time: ledger.Milliseconds(time.Now().UnixMilli())}, Bundles: s.waiting}
	for _, v := range s.members {
		_, proposed := v.Propose(1 << 20)
		batch.Verdicts = append(batch.Verdicts, proposed...)
	}
	if i != 0 {
		carried, err := b.shards[0].store.Stream(ledger.ShardID(i), s.store.Carried()+1, 100,
			ledger.Height(b.shards[0].durable.Load()))
		if err != nil {
			b.t.Fatal(err)
		}
		batch.Carried = carried
	}
	if len(batch.Bundles)+len(batch.Verdicts)+len(batch.Carried) == 0 {
		return false
	}
	s.waiting = nil
	block, err := s.store.Apply(1, ledger.Round(s.store.AppendedHeight()+1),
		[][]byte{batch.Encode()})
	if err != nil {
		b.t.Fatal(err)
	}
	if block == nil {
		return false
	}
	for _, v := range s.members {
		v.Applied(block)
	}
	return true
}

// makeDurable makes all blocks of a shard durable.
func (b *book) makeDurable(i int) {
	s := b.shards[i]
	height := s.store.AppendedHeight()
	s.durable.Store(uint64(height))
	for _, v := range s.members {
		v.DurableTo(height)
	}
}

// settle continues until no transaction waits.
func (b *book) settle() {
	b.t.Helper()
	eventually(b.t, "nothing waits", func() bool {
		quiet := true
		for i, s := range b.shards {
			if b.order(i) {
				b.makeDurable(i)
				quiet = false
			}
			quiet = quiet && s.store.PendingCount() == 0 &&
				(i == 0 || s.store.Carried() == b.shards[0].store.Streamed(ledger.ShardID(i)))
		}
		return quiet
	})
}

// transfer moves an amount between the accounts of two shards' organisations.
func (b *book) transfer(from, to int, amount int64) []ledger.Hash {
	b.t.Helper()
	client := b.clients[from]
	return b.submit(0, client.Transfer(client.Account("a"), b.clients[to].Account("a"), amount))
}

// check expects an outcome of a transaction in some shards.
func (b *book) check(id ledger.Hash, want store.Outcome, shards ...int) {
	b.t.Helper()
	for _, i := range shards {
		if crossing, err := b.shards[i].store.Crossing(id); err != nil || crossing.Outcome != want {
			b.t.Errorf("shard %d: outcome %d, want %d; %v", i, crossing.Outcome, want, err)
		}
	}
}

func TestVerdictsSettleWhatCrosses(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*VerdictsConfig){"one member suffices": nil,
		"vouched": beVouched} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			settlesWhatCrosses(t, change)
		})
	}
}

func beVouched(config *VerdictsConfig) { config.Vouched = true }

func settlesWhatCrosses(t *testing.T, change func(*VerdictsConfig)) {
	b := newBook(t, change)
	var good, bad []ledger.Hash
	for round := range 4 {
		if round == 2 {
			// One member of each shard stops.
			for i, s := range b.shards {
				b.network.Kill(peerOf(t, 3*i+round))
				s.members[round].Close()
			}
		}
		for range 5 {
			good = append(good, b.transfer(1, 2, 10)...)
			good = append(good, b.transfer(2, 1, 5)...)
			bad = append(bad, b.transfer(1, 2, 100000)...)
		}
		b.settle()
	}
	for _, id := range good {
		b.check(id, store.TookEffect, 1, 2)
		b.check(id, store.PassedThrough, 0)
	}
	for _, id := range bad {
		b.check(id, store.Refused, 1, 2)
	}
	for i, want := range []string{"1000", "900", "1100"} {
		account, _ := b.shards[i].store.Account(b.clients[i].Account("a"))
		if len(account.Balances) != 1 || account.Balances[0].Amount.String() != want {
			t.Errorf("shard %d: %+v, want %s", i, account.Balances, want)
		}
	}
	root, leaf := b.shards[0].store, b.shards[1].store
	if root.Streamed(1) != leaf.Carried() || leaf.Carried() == 0 || leaf.PendingCount() != 0 ||
		leaf.AccountCount() != 2 || len(root.ShardTree().Children(0)) != 2 {
		t.Errorf("the root sent %d entries; the leaf has %d, %d of them pending, and %d accounts",
			root.Streamed(1), leaf.Carried(), leaf.PendingCount(), leaf.AccountCount())
	}
	eventually(t, "no member keeps verdicts that nobody needs", func() bool {
		for _, s := range b.shards {
			for _, v := range s.members[:2] {
				if status := v.Status(); status.Awaited+status.Early > 0 {
					return false
				}
			}
		}
		return true
	})
}

// Verdicts that were told while no receiver ran are asked for by the members after their restart.
func TestLostVerdictsAreAskedFor(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*VerdictsConfig){"one member suffices": nil,
		"vouched": beVouched} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			asksForLostVerdicts(t, change)
		})
	}
}

func asksForLostVerdicts(t *testing.T, change func(*VerdictsConfig)) {
	b := newBook(t, change)
	ids := b.transfer(1, 2, 10)
	for i := 1; i < 3; i++ {
		for m, v := range b.shards[i].members {
			v.Close()
			b.network.Kill(peerOf(t, 3*i+m))
		}
	}
	for i := range b.shards {
		b.order(i)
		b.makeDurable(i)
	}
	if b.shards[1].store.PendingCount() != 1 || b.shards[2].store.PendingCount() != 1 {
		t.Fatal("nothing waits")
	}
	for i := 1; i < 3; i++ {
		for m := range 3 {
			b.start(i, m, change)
		}
	}
	b.settle()
	b.check(ids[0], store.TookEffect, 1, 2)
	for i := 1; i < 3; i++ {
		asked := uint64(0)
		for _, v := range b.shards[i].members {
			asked += v.Status().Asked
		}
		if asked == 0 {
			t.Errorf("shard %d asked for nothing", i)
		}
	}
}

// In a vouched book, one liar of the three members of each shard changes nothing.
func TestVouchedVerdictsSettleDespiteLiars(t *testing.T) {
	t.Parallel()
	b := newBook(t, beVouched)
	const liar = 1
	lies := [3]*wire.Datagrams{}
	for i, s := range b.shards {
		s.members[liar].Close()
		b.network.Kill(peerOf(t, 3*i+liar))
		_, lies[i] = controlOf(t, b.network, peerOf(t, 3*i+liar))
	}
	var good, bad []ledger.Hash
	for range 5 {
		good = append(good, b.transfer(1, 2, 10)...)
		bad = append(bad, b.transfer(1, 2, 100000)...)
	}
	lie := func(i int, result ledger.Result, ids []ledger.Hash) {
		var verdicts []ledger.Verdict
		for _, id := range ids {
			verdicts = append(verdicts, ledger.Verdict{ID: id, Shard: ledger.ShardID(i),
				Result: result})
		}
		for to := range 9 {
			if to/3 != i && to%3 != liar {
				if err := lies[i].Send(peerOf(t, to), wire.KindVerdicts,
					encodeVerdicts(verdicts)); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for i := range b.shards {
		lie(i, ledger.Result{Code: ledger.InsufficientFunds, Item: ledger.NoItem}, good)
		lie(i, ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}, bad)
	}
	for _, s := range b.shards {
		eventually(t, "the lies of both other shards arrive", func() bool {
			return s.members[0].Status().Words == 20 && s.members[2].Status().Words == 20
		})
	}
	b.settle()
	for _, id := range good {
		b.check(id, store.TookEffect, 1, 2)
	}
	for _, id := range bad {
		b.check(id, store.Refused, 1, 2)
	}
	for i := 1; i < 3; i++ {
		for _, m := range []int{0, 2} {
			if status := b.shards[i].members[m].Status(); status.Contradicted == 0 {
				t.Errorf("shard %d, member %d: %+v", i, m, status)
			}
		}
	}
}
