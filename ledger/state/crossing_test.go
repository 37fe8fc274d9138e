package state_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// airlines is a book whose shard k has the organisation org<k> with the accounts issuer, a and b.
// Accounts a and b have 100 each.
type airlines struct {
	*network
	t       *testing.T
	clients []*ledgertest.Client
}

func newAirlines(t *testing.T, parents ...ledger.ShardID) *airlines {
	return newAirlinesOf(t, ledgertest.ShardedGenesis(1, parents...))
}

func newAirlinesOf(t *testing.T, genesis *ledger.Genesis) *airlines {
	parents := genesis.Tree
	a := &airlines{network: newNetworkOf(t.Fatalf, genesis), t: t}
	f := newTraffic(rand.New(rand.NewPCG(1, 1)), a.shards[0].genesis, len(parents), 100)
	a.clients = f.clients
	for shard, client := range a.clients {
		registration := client.Register()
		registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true,
			ledger.ShardID(shard)
		a.submit(a.tree.Root(), f.bundle(registration))
	}
	a.flush()
	for shard, client := range a.clients {
		a.submit(ledger.ShardID(shard), f.opening(client))
	}
	a.flush()
	a.check()
	return a
}

// signed returns a bundle signed by all organisations.
func (a *airlines) signed(transactions ...ledger.Transaction) *ledger.Bundle {
	return (&traffic{clients: a.clients}).bundle(transactions...)
}

// enter submits a transaction to the shard where it enters.
func (a *airlines) enter(transaction ledger.Transaction) ledger.Hash {
	bundle := a.signed(transaction)
	a.submit(a.shards[0].state.BundleEntry(bundle), bundle)
	return bundle.ID(0)
}

func (a *airlines) transfer(from, to, amount int) ledger.Transaction {
	return a.clients[from].Transfer(a.clients[from].Account("a"), a.clients[to].Account("a"),
		int64(amount))
}

// result returns the result code in a shard's block, or -1 if the shard does not have the
// transaction.
func (a *airlines) result(shard int, id ledger.Hash) int {
	place, here := a.shards[shard].places[id]
	if !here {
		return -1
	}
	return int(a.shards[shard].entries[place].Result.Code)
}

func (a *airlines) expect(id ledger.Hash, codes ...int) {
	a.t.Helper()
	for shard, want := range codes {
		if got := a.result(shard, id); got != want {
			a.t.Errorf("shard %d says %d, want %d", shard, got, want)
		}
	}
}

// has checks the spendable amount, the amount set aside and the incoming amount of an
// organisation's account a.
func (a *airlines) has(organisation int, want ...int64) {
	a.t.Helper()
	account, _ := a.shards[organisation].state.Account(a.clients[organisation].Account("a"))
	for _, balance := range account.Balances {
		if balance.Asset == "unit" {
			got := []ledger.Amount{balance.Amount, balance.SetAside, balance.Incoming}
			for i, amount := range got {
				if amount != ledger.NewAmount(want[i]) {
					a.t.Errorf("organisation %d: spendable, set aside, incoming %s, want %d",
						organisation, got, want)
					return
				}
			}
		}
	}
}

const none = -1

const (
	setAside = int(ledger.SetAside)
	relayed  = int(ledger.Relayed)
)

func TestCrossingTakesEffectEverywhere(t *testing.T) {
	t.Parallel()
	// Shard 0 is the root, shards 1 and 2 are below it, and 3 and 4 are below 2.
	a := newAirlines(t, 0, 0, 0, 2, 2)
	id := a.enter(a.transfer(3, 4, 30))
	a.round(2, &ledger.Batch{Bundles: [][]byte{a.inbox[2][0].Encode()}})
	a.inbox[2] = nil
	a.expect(id, none, none, relayed, none, none)
	a.round(3, &ledger.Batch{Carried: a.stream(3)})
	a.has(3, 70, 30, 0)
	a.round(4, &ledger.Batch{Carried: a.stream(4)})
	a.has(4, 100, 0, 30)
	a.expect(id, none, none, relayed, setAside, setAside)
	if pending, waits := a.shards[3].state.Pending(id); !waits ||
		!slices.Equal(pending.Waits, []ledger.ShardID{4}) || len(pending.Said) != 0 {
		t.Errorf("%+v %v", pending, waits)
	}
	a.round(3, &ledger.Batch{Verdicts: a.waiting(3)})
	a.has(3, 70, 0, 0)
	a.has(4, 100, 0, 30)
	a.check()
	a.round(4, &ledger.Batch{Verdicts: a.waiting(4)})
	a.has(4, 130, 0, 0)
	if last := a.shards[4].blocks[len(a.shards[4].blocks)-1]; last.Entry(0).Result.Code !=
		ledger.Settled {
		t.Errorf("the last verdict is %s", last.Entry(0).Result)
	}
	a.flush()
	a.checkEnd()
	if account, _ := a.shards[4].state.Account("org4:a"); account.History != 2 {
		t.Errorf("the account counts %d transactions, want 2", account.History)
	}
}

func TestCrossingIsReleasedEverywhere(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0, 0)
	transaction := a.transfer(0, 1, 60)
	transaction.Postings = append(transaction.Postings, a.transfer(2, 1, 101).Postings...)
	id := a.enter(transaction)
	a.flush()
	a.expect(id, setAside, setAside, int(ledger.InsufficientFunds))
	for organisation := range 3 {
		a.has(organisation, 100, 0, 0)
	}
	a.checkEnd()
	again := a.transfer(0, 1, 1)
	again.Nonce = transaction.Nonce
	id = a.enter(again)
	a.flush()
	a.expect(id, int(ledger.StaleNonce), setAside, none)
}

// A stopped shard holds up only the transactions that concern it.
func TestStoppedShard(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0, 0, 0)
	a.shards[2].stopped = true
	held, free, alone := a.enter(a.transfer(1, 2, 30)), a.enter(a.transfer(1, 3, 50)),
		a.enter(a.clients[1].Transfer("org1:a", "org1:b", 15))
	short := a.enter(a.transfer(1, 3, 30))
	a.flush()
	a.check()
	a.expect(free, relayed, setAside, none, setAside)
	a.expect(held, relayed, setAside, none, none)
	if a.result(1, alone) != int(ledger.Applied) || !a.shards[3].outcomes[free] ||
		a.shards[1].state.PendingCount() != 1 {
		t.Error("what does not concern the stopped shard waits")
	}
	a.has(1, 5, 30, 0)
	if outcome, over := a.shards[3].outcomes[short]; !over || outcome {
		t.Error("what is set aside was spent")
	}
	a.shards[2].stopped = false
	a.flush()
	a.has(1, 5, 0, 0)
	a.has(2, 130, 0, 0)
	a.checkEnd()
}

// The number of transactions that wait for a shard is bounded. Further ones are refused, and
// transactions for other shards continue.
func TestWaitingIsBounded(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0, 0)
	a.limit = 3
	for _, c := range a.shards {
		c.state.LimitWaiting(a.limit)
	}
	a.shards[2].stopped = true
	var held []ledger.Hash
	for range 4 {
		held = append(held, a.enter(a.transfer(0, 2, 1)))
	}
	free := a.enter(a.transfer(0, 1, 1))
	a.flush()
	a.expect(held[2], setAside, none, none)
	a.expect(held[3], int(ledger.TooManyWaiting), none, none)
	if !a.shards[0].outcomes[free] {
		t.Error("what does not concern the stopped shard is held up")
	}
	a.shards[2].stopped = false
	a.flush()
	later := a.enter(a.transfer(0, 2, 1))
	a.flush()
	if !a.shards[0].outcomes[held[2]] || !a.shards[2].outcomes[later] ||
		a.shards[2].outcomes[held[3]] {
		t.Error("what waited did not take effect, or what was refused did")
	}
	a.checkEnd()
}

// Two transactions on one record take effect in their order, whichever wait ends first.
func TestRecordsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0, 0)
	write := func(other int, value string) ledger.Hash {
		transaction := a.transfer(0, other, 1)
		transaction.Records = []ledger.Record{{Key: "org0:seat", Value: []byte(value)}}
		return a.enter(transaction)
	}
	value := func() string {
		place, written := a.shards[0].state.Record("org0:seat")
		if !written {
			return ""
		}
		return string(a.shards[0].blocks[place.Height-1].Unpacked[place.Index].Transaction().
			Records[place.Item].Value)
	}
	a.shards[1].stopped = true
	write(1, "first")
	a.flush()
	if got := value(); got != "" {
		t.Errorf("%q", got)
	}
	write(2, "second")
	a.flush()
	if got := value(); got != "second" {
		t.Errorf("%q", got)
	}
	a.shards[1].stopped = false
	a.flush()
	if got := value(); got != "second" {
		t.Errorf("%q: the first transaction overwrote the second", got)
	}
	a.checkEnd()
}

// Stream entries and verdicts that arrive early or repeatedly are left out.
func TestEarlyAndAgain(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0)
	first, second := a.enter(a.transfer(0, 1, 1)), a.enter(a.transfer(0, 1, 2))
	for len(a.inbox[0]) > 0 {
		bundle := a.inbox[0][0]
		a.inbox[0] = a.inbox[0][1:]
		a.round(0, &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	}
	stream := a.stream(1)
	gap := stream[len(stream)-1]
	if block := a.round(1, &ledger.Batch{Carried: []ledger.Carried{gap},
		Verdicts: a.waiting(1)}); block != nil {
		t.Fatal("an entry of a stream was taken before its predecessor, or a verdict before its " +
			"transaction")
	}
	block := a.round(1, &ledger.Batch{Carried: []ledger.Carried{gap}},
		&ledger.Batch{Carried: []ledger.Carried{gap, stream[len(stream)-2]}})
	if block.Len() != 2 || block.Entry(0).ID != first || block.Entry(1).ID != second ||
		block.Bundles[1].Number != gap.Number {
		t.Fatalf("%d entries", block.Len())
	}
	if block := a.round(1, &ledger.Batch{Carried: stream}); block != nil {
		t.Fatal("a stream was taken again")
	}
	verdicts := a.waiting(1)
	block = a.round(1, &ledger.Batch{Verdicts: verdicts}, &ledger.Batch{Verdicts: verdicts})
	if block.Len() != 2 {
		t.Fatalf("%d verdicts", block.Len())
	}
	if block := a.round(1, &ledger.Batch{Verdicts: verdicts}); block != nil {
		t.Fatal("a verdict was taken again")
	}
	a.flush()
	a.checkEnd()
}

// A transaction that arrives both at its entry and from above is executed once, and the stream
// advances past the copy.
func TestTwoWaysIn(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0, 1)
	bundle := a.signed(a.transfer(1, 2, 5))
	a.submit(1, bundle)
	a.flush()
	a.submit(0, bundle)
	a.flush()
	a.expect(bundle.ID(0), relayed, setAside, setAside)
	last := a.shards[1].blocks[len(a.shards[1].blocks)-1]
	if last.Len() != 0 || len(last.Bundles) != 1 ||
		last.Bundles[0].Number != a.shards[1].state.Carried() {
		t.Errorf("the copy from above made a block of %d transactions", last.Len())
	}
	a.has(1, 95, 0, 0)
	a.enter(a.transfer(0, 2, 1))
	a.flush()
	a.checkEnd()
}

// A transaction that failed because an organisation was not registered remains failed in all shards
// when it is submitted again after the registration.
func TestSubmittedAgainAfterRegistration(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0, 0)
	late := homed(1, 3)
	client := ledgertest.NewClient(a.shards[0].genesis, late)
	transaction := a.clients[1].Transfer("org1:a", client.Account("a"), 5)
	early := a.enter(transaction)
	a.flush()
	a.expect(early, none, int(ledger.UnknownAccount), none)
	registration := client.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, 2
	a.submit(0, client.Bundle(registration))
	opening := client.Next()
	opening.Openings = []ledger.Opening{{Account: client.Account("a")}}
	a.flush()
	a.submit(2, client.Bundle(opening))
	a.flush()
	a.enter(transaction)
	a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode()}})
	a.inbox[0] = nil
	a.round(2, &ledger.Batch{Carried: a.stream(2)})
	a.expect(early, relayed, int(ledger.UnknownAccount), setAside)
	a.flush()
	a.checkEnd()
	if outcome, over := a.shards[2].outcomes[early]; !over || outcome {
		t.Error("it took effect in a shard, and failed in another")
	}
}

// homed returns an organisation whose home is this shard when it is not pinned, in a book with this
// number of shards.
func homed(shard ledger.ShardID, shards int) ledger.OrganisationName {
	for i := int64(0); ; i++ {
		if name := ledger.OrganisationName("late" + ledger.NewAmount(
			i).String()); ledger.Rendezvous(name, shards) == shard {
			return name
		}
	}
}

// register registers an organisation pinned to a shard, and opens its accounts.
func (a *airlines) register(client *ledgertest.Client, shard ledger.ShardID) {
	registration, opening := client.Register(), client.Next()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, shard
	opening.Openings = []ledger.Opening{{Account: client.Account("issuer"), Issuer: true},
		{Account: client.Account("a")}}
	a.submit(a.tree.Root(), client.Bundle(registration))
	a.flush()
	a.submit(shard, client.Bundle(opening))
	a.flush()
}

// A transaction with an organisation that is not registered fails in all of its shards. Otherwise
// shard 2 would set its part aside, and shard 3, where rendezvous hashing puts the organisation,
// would refuse. Shard 4, its home after the registration, would then accept shard 2's verdict.
func TestUnknownOrganisationCountsEverywhere(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0, 1, 1, 0)
	client := ledgertest.NewClient(a.shards[0].genesis, homed(3, 5))
	transaction := a.clients[2].Transfer("org2:a", client.Account("a"), 5)
	id := a.enter(transaction)
	a.flush()
	unknown := int(ledger.UnknownOrganisation)
	a.expect(id, none, relayed, unknown, unknown, none)
	a.register(client, 4)
	a.enter(transaction)
	a.flush()
	a.expect(id, relayed, relayed, unknown, unknown, setAside)
	if outcome, over := a.shards[4].outcomes[id]; !over || outcome {
		t.Error("it took effect in one shard only")
	}
	a.checkEnd()
}

// No chain has a transaction before the registration of its signer. Otherwise shard 1 would have
// forwarded it, and would later leave it out when it comes again for shard 1 itself. Shard 4 would
// then wait for ever.
func TestUnknownSignerIsLeftOut(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0, 1, 1, 0)
	payer, payee := ledgertest.NewClient(a.shards[0].genesis, homed(2, 5)),
		ledgertest.NewClient(a.shards[0].genesis, homed(3, 5))
	bundle := payer.Bundle(payer.Transfer(payer.Account("issuer"), payee.Account("a"), 5))
	a.again[bundle.Root()] = 5
	a.submit(1, bundle)
	a.flush()
	a.expect(bundle.ID(0), none, none, none, none, none)
	a.register(payer, 4)
	a.register(payee, 1)
	a.submit(0, bundle)
	a.flush()
	a.expect(bundle.ID(0), relayed, setAside, none, none, setAside)
	if !a.shards[1].outcomes[bundle.ID(0)] || !a.shards[4].outcomes[bundle.ID(0)] {
		t.Error("it did not take effect")
	}
	a.checkEnd()
}

func TestEveryReasonAcrossShards(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0)
	expect := func(codes [2]ledger.Code, change func(*ledger.Transaction)) {
		t.Helper()
		transaction := a.transfer(0, 1, 1)
		change(&transaction)
		bundle := a.signed(transaction)
		a.submit(0, bundle)
		a.flush()
		a.check()
		a.expect(bundle.ID(0), int(codes[0]), int(codes[1]))
		for shard, c := range a.shards {
			if c.state.PendingCount() > 0 {
				t.Errorf("shard %d waits for ever", shard)
			}
		}
	}
	both := func(code ledger.Code) [2]ledger.Code { return [2]ledger.Code{code, code} }
	expect(both(ledger.SetAside), func(*ledger.Transaction) {})
	expect(both(ledger.WrongLedger), func(t *ledger.Transaction) { t.Ledger[0]++ })
	expect(both(ledger.Unbalanced), func(t *ledger.Transaction) {
		t.Postings[0].Amount = ledger.NewAmount(-2)
	})
	expect(both(ledger.Unbalanced), func(t *ledger.Transaction) {
		t.Postings = t.Postings[:1]
		t.Records = []ledger.Record{{Key: "org1:r"}}
	})
	expect(both(ledger.OpeningAcrossShards), func(t *ledger.Transaction) {
		t.Openings = []ledger.Opening{{Account: "org0:c"}}
	})
	expect([2]ledger.Code{ledger.Expired, ledger.SetAside}, func(t *ledger.Transaction) {
		t.LastValid = 1
	})
	expect([2]ledger.Code{ledger.StaleNonce, ledger.SetAside}, func(t *ledger.Transaction) {
		t.Nonce.Sequence = 2
	})
	expect([2]ledger.Code{ledger.SetAside, ledger.UnknownAccount}, func(t *ledger.Transaction) {
		t.Postings[1].Account = "org1:nobody"
	})
	expect([2]ledger.Code{ledger.InsufficientFunds, ledger.SetAside}, func(t *ledger.Transaction) {
		t.Postings[0].Amount, t.Postings[1].Amount = ledger.NewAmount(-100), ledger.NewAmount(100)
	})
	expect([2]ledger.Code{ledger.SetAside, ledger.Overflow}, func(t *ledger.Transaction) {
		t.Postings[0].Account, t.Postings[0].Amount = "org0:issuer", ledger.NewAmount(0)
		most, _ := ledger.MaxAmount.Sub(ledger.NewAmount(50))
		t.Postings[1].Amount = most
		t.Postings = append(t.Postings, ledger.Posting{Account: "org1:issuer", Asset: "unit"})
		t.Postings[2].Amount, _ = most.Neg()
	})
	registration := a.clients[0].Register("more")
	bundle := a.signed(registration)
	a.submit(0, bundle)
	a.flush()
	a.expect(bundle.ID(0), int(ledger.RegistrationNotAlone), int(ledger.RegistrationNotAlone))
	foreign := ledgertest.NewClient(a.shards[0].genesis, "foreign")
	registration = foreign.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, 2
	bundle = foreign.Bundle(registration)
	a.submit(0, bundle)
	a.flush()
	a.expect(bundle.ID(0), int(ledger.UnknownShard), int(ledger.UnknownShard))
	a.checkEnd()
}

// Room that is reserved for incoming amounts is not given to others. This holds for the last slots
// for assets and for the last units below the maximum amount.
func TestRoomIsReserved(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0)
	issue := func(to int, asset ledger.AssetName, amount ledger.Amount, want ledger.Code) {
		t.Helper()
		transaction := a.clients[0].Next()
		taken, _ := amount.Neg()
		transaction.Postings = []ledger.Posting{{Account: "org0:issuer", Asset: asset,
			Amount: taken}, {Account: a.clients[to].Account("b"), Asset: asset, Amount: amount}}
		id := a.enter(transaction)
		a.flush()
		if to == 0 {
			a.expect(id, int(want))
		} else {
			a.expect(id, setAside, int(want))
		}
	}
	local := func(asset ledger.AssetName, amount ledger.Amount, want ledger.Code) {
		t.Helper()
		transaction := a.clients[1].Next()
		taken, _ := amount.Neg()
		transaction.Postings = []ledger.Posting{{Account: "org1:issuer", Asset: asset,
			Amount: taken}, {Account: "org1:b", Asset: asset, Amount: amount}}
		bundle := a.signed(transaction)
		a.submit(1, bundle)
		n := a.network
		n.round(1, &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
		n.inbox[1] = nil
		a.expect(bundle.ID(0), none, int(want))
	}
	// org1:b has 2 assets. Shard 0 does not order verdicts, so incoming amounts remain pending.
	half, _ := ledger.MaxAmount.Sub(ledger.NewAmount(1000))
	transaction := a.clients[0].Next()
	taken, _ := half.Neg()
	transaction.Postings = []ledger.Posting{{Account: "org0:issuer", Asset: "big", Amount: taken},
		{Account: "org1:b", Asset: "big", Amount: half}}
	bundle := a.signed(transaction)
	a.submit(0, bundle)
	a.round(0, &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	a.inbox[0] = nil
	a.round(1, &ledger.Batch{Carried: a.stream(1)})
	local("big", ledger.NewAmount(1001), ledger.Overflow)
	local("big", ledger.NewAmount(1000), ledger.Applied)
	for i := range ledger.MaxAssets - 3 {
		local(ledger.AssetName([]byte{'x', 'a' + byte(i/26), 'a' + byte(i%26)}),
			ledger.NewAmount(1), ledger.Applied)
	}
	local("toomany", ledger.NewAmount(1), ledger.TooManyAssets)
	a.check()
	a.flush()
	issue(1, "toomany", ledger.NewAmount(1), ledger.TooManyAssets)
	issue(0, "toomany", ledger.NewAmount(1), ledger.Applied)
	a.checkEnd()
}

func TestAdmissionToShardedBook(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0)
	genesis := a.shards[1].genesis
	verify := func(bundle *ledger.Bundle) error {
		return ledger.VerifyBundle(bundle, genesis, genesis.Book(), a.shards[1].state)
	}
	registration := a.clients[0].Register()
	expiring, opening, nowhere := registration, a.clients[0].Register("more"),
		a.clients[0].Register()
	expiring.LastValid = 5
	nowhere.Registrations[0].Pinned, nowhere.Registrations[0].Shard = true, 2
	for name, transaction := range map[string]ledger.Transaction{"expiring": expiring,
		"opening": opening, "nowhere": nowhere} {
		if err := verify(a.signed(transaction)); !errors.Is(err, ledger.ErrInvalidTransaction) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := verify(a.signed(registration)); err != nil {
		t.Error(err)
	}
	if _, err := ledger.NewBundle(ledger.Transaction{Ledger: genesis.Book(),
		Verdict: &ledger.Verdict{Result: ledger.Result{Code: ledger.SetAside}}}); !errors.Is(err,
		ledger.ErrMalformed) {
		t.Errorf("a client's verdict: %v", err)
	}
	// A change of the membership names the chain, not the book, and is not forwarded.
	for shard, want := range []error{ledger.ErrWrongLedger, nil} {
		join := ledgertest.NewOperator(a.shards[shard].genesis).Join(ledgertest.Member(7))
		if err := verify(join); !errors.Is(err, want) {
			t.Errorf("shard %d: %v", shard, err)
		}
		a.submit(1, join)
		a.flush()
		if joined := len(a.shards[1].state.Membership().Members) == 2; joined != (shard == 1) {
			t.Errorf("a change for shard %d: joined %v", shard, joined)
		}
	}
	// The same holds for an admission of a disk, which a member of the shard signs.
	operator := ledgertest.NewOperator(genesis)
	operator.Stream = 1
	for range ledger.ChangeRounds {
		a.submit(1, operator.Leave(9))
		a.flush()
	}
	for shard, want := range []error{ledger.ErrWrongLedger, nil} {
		members := a.shards[1].state.Membership()
		signer, disk := members.Members[1].Name, ledgertest.Disk(1)
		admit := ledgertest.Admit(signer, a.shards[shard].genesis, members, 0, disk, 0)
		if err := verify(admit); !errors.Is(err, want) {
			t.Errorf("an admission for shard %d: %v", shard, err)
		}
		a.submit(1, admit)
		a.flush()
		now := a.shards[1].state.Membership()
		if named := now.Members[0].Disk == disk; named != (shard == 1) {
			t.Errorf("an admission for shard %d: named %v", shard, named)
		}
	}
	a.checkEnd()
}
