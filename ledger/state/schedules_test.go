package state_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

const dayLong = ledger.Milliseconds(24 * 60 * 60 * 1000)

// daily returns a transaction that gives an amount of acme:a to shop:a day by day.
func daily(acme *ledgertest.Client, first ledger.Milliseconds, count uint64,
	amount int64) ledger.Transaction {
	transaction := acme.Next()
	moved := acme.Transfer("acme:a", "shop:a", amount)
	transaction.Schedule = &ledger.Schedule{Postings: moved.Postings, First: first,
		Period: ledger.Days, Every: 1, Count: count}
	transaction.Note = []byte("rent")
	return transaction
}

// endOf returns a transaction that ends a schedule.
func endOf(by *ledgertest.Client, id ledger.Hash) ledger.Transaction {
	transaction := by.Next()
	transaction.ScheduleEnd = &ledger.ScheduleEnd{Schedule: id}
	return transaction
}

// TestRulesOfSchedules goes through what a schedule may be, its occurrences, and its end.
func TestRulesOfSchedules(t *testing.T) {
	t.Parallel()
	chain, acme, shop := holdsChain(t, ledger.SchedulesVersion)
	expect := func(code ledger.Code, by *ledgertest.Client,
		transaction ledger.Transaction) ledger.Hash {
		t.Helper()
		bundle := by.Bundle(transaction)
		if got := chain.result(bundle); got.Code != code {
			t.Errorf("%s, want %s", got, code)
		}
		restoredFrom(t, ledgertestGenesis(ledger.SchedulesVersion), chain.state)
		return bundle.ID(0)
	}
	now := chain.parent.Header.Time
	expect(ledger.ScheduleTime, acme, daily(acme, now, 3, 1))
	expect(ledger.ScheduleTime, acme, daily(acme, now+2*ledger.MaxScheduleTime, 3, 1))
	expect(ledger.UnknownSchedule, acme, endOf(acme, ledger.Hash{1}))
	elsewhere := daily(acme, now+dayLong, 3, 1)
	elsewhere.Schedule.Shard = 1
	expect(ledger.UnknownShard, acme, elsewhere)
	first := now + dayLong
	id := expect(ledger.Applied, acme, daily(acme, first, 4, 40))
	expect(ledger.UnknownSchedule, shop, endOf(shop, id))
	if chain.state.IsDue(first-1) || !chain.state.IsDue(first) {
		t.Errorf("due at a wrong time")
	}
	if due := chain.state.Due(first + 10*dayLong); len(due) != 4 ||
		due[3].Occurrence.Time != first+3*dayLong {
		t.Errorf("due: %+v", due)
	}
	found, open := chain.state.Schedule(id)
	if !open || found.Next != first || string(found.Note) != "rent" {
		t.Errorf("it is %+v", found)
	}
	expect(ledger.Applied, acme, endOf(acme, id))
	expect(ledger.UnknownSchedule, acme, endOf(acme, id))
	if _, open = chain.state.Schedule(id); open || chain.state.IsDue(first) {
		t.Errorf("it goes on after its end")
	}
}

// at makes a block of a time from bundles, or returns nil if there is nothing new.
func (o *one) at(time ledger.Milliseconds, bundles ...*ledger.Bundle) *ledger.Block {
	o.t.Helper()
	batch := &ledger.Batch{Header: ledger.BatchHeader{Time: time},
		Clocks: []ledger.MemberClock{{}}}
	for _, each := range bundles {
		batch.Bundles = append(batch.Bundles, each.Encode())
	}
	o.parent.Members, o.parent.Version = o.state.Membership, o.state.Version()
	o.parent.Packed = o.state.Version() >= ledger.PackedVersion
	draft := o.state.Seal(o.parent, 1, 1, ledger.VerifyBatches([][]byte{batch.Encode()}),
		func(id ledger.Hash, _ *ledger.Transaction) bool { return o.seen[id] })
	if draft == nil {
		return nil
	}
	before := restoredFrom(o.t, ledgertestGenesis(o.state.Version()), o.state)
	block, changes := o.state.Execute(draft)
	if block.Header.Time != time || changes.OutOfPlace > 0 {
		o.t.Fatalf("block %d has time %d and %d out of place", block.Header.Height,
			block.Header.Time, changes.OutOfPlace)
	}
	again, changes := before.Execute(state.Redraft(block))
	if again.Hash != block.Hash || changes.OutOfPlace > 0 {
		o.t.Fatalf("block %d is another one when it is executed again", block.Header.Height)
	}
	o.parent = state.Parent{Header: block.Header, Hash: block.Hash, Version: o.state.Version()}
	return block
}

// TestOccurrences goes through a schedule whose occurrences come late, fail, and end.
func TestOccurrences(t *testing.T) {
	t.Parallel()
	chain, acme, shop := holdsChain(t, ledger.SchedulesVersion)
	first := chain.parent.Header.Time + dayLong
	placed := acme.Bundle(daily(acme, first, 5, 40))
	chain.block(placed)
	if chain.at(first-1) != nil {
		t.Error("an occurrence before its time")
	}
	type occurrence struct {
		number uint64
		time   ledger.Milliseconds
		code   ledger.Code
	}
	expect := func(block *ledger.Block, want ...occurrence) {
		t.Helper()
		if block == nil {
			t.Fatal("no block")
		}
		var got []occurrence
		for i := range block.Unpacked {
			e := &block.Unpacked[i]
			if o := e.Decoded.Occurrence; o != nil {
				got = append(got, occurrence{o.Number, o.Time, e.Result.Code})
				made := ledger.OccurrenceOf(placed.Transaction(0), placed.ID(0), o.Number)
				if entry, _ := ledger.OccurrenceEntry(&made, 0); entry.ID != e.ID {
					t.Errorf("the id of occurrence %d does not follow from the schedule", o.Number)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	expect(chain.at(first), occurrence{1, first, ledger.Applied})
	// The chain is idle for two days. The third occurrence finds too little.
	expect(chain.at(first+2*dayLong+5), occurrence{2, first + dayLong, ledger.Applied},
		occurrence{3, first + 2*dayLong, ledger.InsufficientFunds})
	// The end comes in the same block as the fourth one, which is due before.
	now := first + 3*dayLong
	block := chain.at(now, acme.Bundle(acme.Transfer("acme:issuer", "acme:a", 100)),
		acme.Bundle(endOf(acme, placed.ID(0))))
	expect(block, occurrence{4, now, ledger.InsufficientFunds})
	if code := block.Unpacked[2].Result.Code; code != ledger.Applied {
		t.Errorf("the end: %s", code)
	}
	if chain.at(first+9*dayLong) != nil || len(chain.state.SchedulesOf("")) != 0 {
		t.Error("an occurrence after the end")
	}
	account, _ := chain.state.Account("shop:a")
	if account.Balances[0].Amount != ledger.NewAmount(80) {
		t.Errorf("shop:a has %v", account.Balances)
	}
	// Nobody else makes an occurrence.
	forged := ledger.OccurrenceOf(placed.Transaction(0), placed.ID(0), 5)
	if _, err := ledger.NewBundle(forged); err == nil {
		t.Error("a client makes an occurrence")
	}
	_ = shop
}

// TestOutOfPlaceOccurrences: a block that has other occurrences than those that are due is out of
// place.
func TestOutOfPlaceOccurrences(t *testing.T) {
	t.Parallel()
	chain, acme, _ := holdsChain(t, ledger.SchedulesVersion)
	first := chain.parent.Header.Time + dayLong
	chain.block(acme.Bundle(daily(acme, first, 5, 40)))
	copied := restoredFrom(t, ledgertestGenesis(ledger.SchedulesVersion), chain.state)
	block := chain.at(first, acme.Bundle(acme.Transfer("acme:issuer", "acme:a", 1)))
	early := *block
	early.Header.Time--
	if _, changes := copied.Execute(state.Redraft(&early)); changes.OutOfPlace == 0 {
		t.Error("an occurrence before its time has a place")
	}
	chain, acme, _ = holdsChain(t, ledger.SchedulesVersion)
	chain.block(acme.Bundle(daily(acme, first, 5, 40)))
	block.Unpacked[0].Decoded.Occurrence.Number++
	if _, changes := chain.state.Execute(state.Redraft(block)); changes.OutOfPlace != 0 {
		t.Error("the id of an entry decides") // it is checked when the block is decoded
	}
}

// TestOccurrencesAcrossShards: occurrences of schedules at the root take effect in all shards that
// they concern or in none, whatever else happens there.
func TestOccurrencesAcrossShards(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		genesis := ledgertest.ShardedGenesis(1, 0, 0, 1)
		genesis.Version = ledger.SchedulesVersion
		a := newAirlinesOf(t, genesis)
		var placed []ledger.Hash
		count := 0
		for range 60 {
			from, to := random.IntN(3), random.IntN(3)
			switch random.IntN(4) {
			case 0, 1:
				schedule := a.clients[from].Next()
				moved := a.transfer(from, to, 1+random.IntN(60))
				if from == to {
					moved.Postings[1].Account = a.clients[from].Account("b")
				}
				schedule.Schedule = &ledger.Schedule{Postings: moved.Postings, Count: 1,
					First: a.time + ledger.Milliseconds(10+random.IntN(40))}
				placed = append(placed, a.enter(schedule))
			case 2:
				if len(placed) > 0 {
					id := placed[random.IntN(len(placed))]
					end := a.clients[from].Next()
					end.ScheduleEnd = &ledger.ScheduleEnd{Schedule: id}
					a.enter(end)
				}
			default:
				transfer := a.transfer(from, to, 1+random.IntN(60))
				if from != to {
					transfer.Deadline = a.time + 60
				}
				a.enter(transfer)
			}
			if random.IntN(3) == 0 {
				a.flush()
			}
		}
		for range 60 {
			a.flush()
		}
		a.checkEnd()
		for _, each := range a.shards[0].entries {
			if each.Decoded.Occurrence != nil {
				count++
			}
		}
		if open := a.shards[0].state.SchedulesOf(""); len(open) > 0 || count < 5 {
			t.Errorf("%d are open, %d occurrences", len(open), count)
		}
	}
}

// noteOccurrence adds an occurrence to the transactions that the model knows: nobody submits it.
func (n *network) noteOccurrence(entry *ledger.Entry) {
	if entry.Decoded.Occurrence != nil {
		n.transactions[entry.ID] = entry.Decoded
	}
}
