package state_test

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// growing returns the genesis of a book whose shards may change.
func growing(parents ...ledger.ShardID) *ledger.Genesis {
	genesis := ledgertest.ShardedGenesis(1, parents...)
	genesis.Version = ledger.GrowthVersion
	return genesis
}

// newSettling is newAirlines for a book whose shards may change.
func newSettling(t *testing.T, parents ...ledger.ShardID) *airlines {
	t.Helper()
	return newAirlinesOf(t, growing(parents...))
}

// change submits a change of the book's shards.
func (a *airlines) change(change ledger.BookChange) ledger.Hash {
	operator := ledgertest.NewOperator(a.shards[0].genesis)
	operator.Ledger, operator.Sequence = a.shards[0].genesis.Book(), uint64(a.time)
	bundle := operator.Bundle("operator", operator.ChangeBook(change))
	a.submit(a.tree.Root(), bundle)
	return bundle.ID(0)
}

// settle submits a settlement with a shard, as change number.
func (a *airlines) settle(number uint64, shard ledger.ShardID) ledger.Hash {
	return a.change(ledger.BookChange{Number: number, Loss: &ledger.ShardLoss{Shard: shard}})
}

// until returns a transfer with a deadline far ahead, as chains of the newest version need it.
func (a *airlines) until(from, to, amount int) ledger.Transaction {
	transfer := a.transfer(from, to, amount)
	transfer.Deadline = a.time + 1000
	return transfer
}

// among returns a transaction that takes 10 from an organisation and gives 5 to each of two others.
func (a *airlines) among(from, to, other int) ledger.Transaction {
	transaction := a.until(from, to, 5)
	transaction.Postings = append(transaction.Postings, a.transfer(from, other, 5).Postings...)
	return transaction
}

// losing is a book of four shards below which shard 3 gets lost, and what its chain says on a
// transaction of shards 1, 2 and 3 that is on its way then.
type losing struct {
	*airlines
	id   ledger.Hash
	lost ledger.Verdict
}

// newLosing brings the transaction to all of its shards, none of which has the verdict of another
// one, and stops shard 3.
func newLosing(t *testing.T, faults ...state.Fault) *losing {
	l := &losing{airlines: newSettling(t, 0, 0, 0, 0)}
	for _, c := range l.shards {
		for _, fault := range faults {
			c.state.Plant(fault)
		}
	}
	l.id = l.enter(l.among(1, 2, 3))
	l.round(0, &ledger.Batch{Bundles: [][]byte{l.inbox[0][0].Encode()}})
	l.inbox[0] = nil
	for shard := ledger.ShardID(1); shard < 4; shard++ {
		l.round(shard, &ledger.Batch{Carried: l.stream(shard)})
	}
	l.lost = ledger.Verdict{ID: l.id, Shard: 3,
		Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}}
	l.shards[3].stopped = true
	// What shard 3 told has to arrive by itself.
	l.shards[3].verdicts = nil
	return l
}

// settleWith settles with shard 3 and gives all others everything.
func (l *losing) settleWith() {
	id := l.settle(1, 3)
	l.flush()
	l.check()
	for shard := range 3 {
		if got := l.result(shard, id); got != int(ledger.Applied) {
			l.t.Fatalf("shard %d says %s", shard, ledger.Code(got))
		}
	}
}

// outcome checks how the transaction ended in shards 1 and 2.
func (l *losing) outcome(want bool) {
	l.t.Helper()
	for _, shard := range []int{1, 2} {
		if got, over := l.shards[shard].outcomes[l.id]; !over || got != want {
			l.t.Errorf("shard %d: over %v, took effect %v, want %v", shard, over, got, want)
		}
	}
}

// What waits for a lost shard is released in all others if none has its verdict.
func TestLostBeforeItsVerdict(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	l.settleWith()
	l.outcome(false)
	l.has(1, 100, 0, 0)
	l.has(2, 100, 0, 0)
	l.replayAll()
}

// If one of the others has the good verdict of the lost shard, the transaction takes effect in all.
func TestLostAfterItsVerdict(t *testing.T) {
	t.Parallel()
	for _, settled := range []bool{false, true} {
		l := newLosing(t)
		l.round(1, &ledger.Batch{Verdicts: []ledger.Verdict{l.lost}})
		if settled { // and has applied it
			l.round(1, &ledger.Batch{Verdicts: l.waiting(1)})
			if !l.shards[1].outcomes[l.id] {
				t.Fatal("it did not take effect")
			}
		}
		l.settleWith()
		l.outcome(true)
		l.has(1, 90, 0, 0)
		l.has(2, 105, 0, 0)
		l.replayAll()
	}
}

// replayAll replays the chains of the shards that are not stopped.
func (l *losing) replayAll() {
	for i, c := range l.shards {
		if !c.stopped {
			l.replay(i, c)
			if count := c.state.PendingCount(); count > 0 {
				l.t.Errorf("%d transactions wait in shard %d", count, i)
			}
			for other := range ledger.ShardID(4) {
				if waiting := c.state.WaitingFor(other); waiting != 0 {
					l.t.Errorf("shard %d counts %d that wait for shard %d", i, waiting, other)
				}
			}
		}
	}
}

// A transaction with no shard but the lost one is released by a testimony of the own shard.
func TestLostWithoutOthers(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	id := l.enter(l.until(0, 3, 7))
	l.flush()
	l.settleWith()
	if outcome, over := l.shards[0].outcomes[id]; !over || outcome {
		t.Error("it is not released")
	}
	l.has(0, 100, 0, 0)
	last := l.shards[0].blocks[len(l.shards[0].blocks)-1]
	verdict := last.Unpacked[last.Len()-1].Transaction().Verdict
	if verdict == nil || verdict.Shard != 0 || verdict.Result.Code != ledger.HeardNothing {
		t.Errorf("it was ended by %+v", verdict)
	}
	l.replayAll()
}

// Nothing of a lost shard is taken after the settlement, and nothing that concerns it takes effect.
func TestAfterTheLoss(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	l.settle(1, 3)
	l.round(0, &ledger.Batch{Bundles: [][]byte{l.inbox[0][0].Encode()}})
	l.inbox[0] = nil
	l.round(1, &ledger.Batch{Carried: l.stream(1)})
	if block := l.round(1, &ledger.Batch{Verdicts: []ledger.Verdict{l.lost}}); block != nil {
		t.Error("a block takes a verdict of the lost shard")
	}
	pending, waits := l.shards[1].state.Pending(l.id)
	asked := ledger.Testimony{About: 3, AsOf: 3}
	if !waits || len(pending.Inquiries) != 1 || pending.Inquiries[0].Testimony != asked ||
		!slices.Equal(pending.Inquiries[0].Of, []ledger.ShardID{2}) ||
		!slices.Equal(pending.WaitsFor(1), []ledger.ShardID{2}) {
		t.Errorf("%+v", pending)
	}
	for name, verdict := range map[string]ledger.Verdict{
		"of the lost shard":          ledger.Testimony{About: 2, AsOf: 2}.Verdict(l.id, 3, true),
		"of a stranger":              asked.Verdict(l.id, 0, true),
		"of the own shard":           asked.Verdict(l.id, 1, true),
		"of the own shard, silent":   asked.Verdict(l.id, 1, false),
		"as of another shard's loss": ledger.Testimony{About: 3, AsOf: 0}.Verdict(l.id, 2, true),
	} {
		if l.shards[1].state.Awaits(&verdict) {
			t.Errorf("a testimony %s is awaited", name)
		}
	}
	l.flush()
	l.outcome(false)
	streamed := l.shards[0].state.Streamed(3)
	concerning := l.enter(l.among(1, 2, 3))
	pure := l.enter(l.clients[3].Transfer("org3:a", "org3:b", 1))
	l.submit(0, l.inbox[3][0]) // a client that does not know that the shard is lost
	l.inbox[3] = nil
	free := l.enter(l.until(1, 2, 1))
	l.flush()
	l.expect(concerning, relayed, int(ledger.ShardLost), int(ledger.ShardLost), none)
	l.expect(pure, int(ledger.ShardLost), none, none, none)
	if !l.shards[1].outcomes[free] {
		t.Error("what does not concern the lost shard did not take effect")
	}
	if again := l.shards[0].state.Streamed(3); again != streamed {
		t.Errorf("the stream to the lost shard goes on from %d to %d", streamed, again)
	}
	l.replayAll()
}

// The rules for settlements, and for organisations whose home is lost.
func TestLossIsRefused(t *testing.T) {
	t.Parallel()
	a := newSettling(t, 0, 0, 1)
	a.shards[2].stopped = true
	settle := func(number uint64, shard ledger.ShardID, want ledger.Code) {
		t.Helper()
		id := a.settle(number, shard)
		a.flush()
		a.expect(id, int(want), int(want))
	}
	settle(1, 0, ledger.ShardNeeded)
	settle(1, 1, ledger.ShardNeeded)
	settle(1, 3, ledger.UnknownShard)
	settle(2, 2, ledger.BookOutdated)
	settle(1, 2, ledger.Applied)
	settle(2, 2, ledger.ShardLost)
	register := func(name ledger.OrganisationName, pinned bool, want ledger.Code) {
		t.Helper()
		client := ledgertest.NewClient(a.shards[0].genesis, name)
		registration := client.Register()
		if pinned {
			registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, 2
		}
		bundle := client.Bundle(registration)
		a.submit(0, bundle)
		a.flush()
		a.expect(bundle.ID(0), int(want), int(want))
	}
	register("pinned", true, ledger.ShardLost)
	register(homed(2, 3), false, ledger.ShardLost)
	register(homed(1, 3), false, ledger.Applied)
	a.shards[1].stopped = true // once its child is lost it can be lost, too
	id := a.settle(2, 1)
	a.flush()
	a.expect(id, int(ledger.Applied))
	for _, c := range a.shards[:1] {
		if losses := c.state.Losses(); len(losses) != 2 || losses[0].Number != 2 ||
			losses[1].Number != 1 || losses[0].Height <= losses[1].Height {
			t.Errorf("%+v", losses)
		}
	}
}

// Each planted bug makes the shards that are left differ, or forget what they owe each other.
func TestPlantedInLosses(t *testing.T) {
	t.Parallel()
	for fault, run := range map[state.Fault]func(f state.Fault) (one, other bool){
		// Shard 1 has the verdict, and shard 2 does not ask it.
		state.FaultReleasedUnasked: func(f state.Fault) (one, other bool) {
			l := newLosing(t, f)
			l.round(1, &ledger.Batch{Verdicts: []ledger.Verdict{l.lost}})
			l.settle(1, 3)
			l.flush()
			return l.shards[1].outcomes[l.id], l.shards[2].outcomes[l.id]
		},
		// The verdict comes to shard 1 after the settlement, and shard 2 asks in between.
		state.FaultLostVerdictTaken: func(f state.Fault) (one, other bool) {
			l := newLosing(t, f)
			l.settle(1, 3)
			l.round(0, &ledger.Batch{Bundles: [][]byte{l.inbox[0][0].Encode()}})
			l.inbox[0] = nil
			l.round(1, &ledger.Batch{Carried: l.stream(1)})
			l.round(2, &ledger.Batch{Carried: l.stream(2)})
			l.round(2, &ledger.Batch{Verdicts: l.waiting(2)})
			l.round(1, &ledger.Batch{Verdicts: []ledger.Verdict{l.lost}})
			l.flush()
			return l.shards[1].outcomes[l.id], l.shards[2].outcomes[l.id]
		},
		// Shard 1 hears of the first loss's agreement only after it testified as of that loss.
		state.FaultTestimonyOutdated: func(f state.Fault) (one, other bool) {
			a := newTwoLost(t, f)
			early := a.waiting(2)
			a.round(1, &ledger.Batch{Verdicts: []ledger.Verdict{a.told}})
			a.round(1, &ledger.Batch{Verdicts: []ledger.Verdict{a.agreed}})
			a.settle(2, 4)
			a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode()}})
			a.inbox[0] = nil
			a.round(2, &ledger.Batch{Carried: a.stream(2)})
			a.round(2, &ledger.Batch{Verdicts: early})
			a.flush()
			return a.shards[1].outcomes[a.id], a.shards[2].outcomes[a.id]
		},
	} {
		for _, planted := range []state.Fault{state.FaultNone, fault} {
			if one, other := run(planted); (one == other) != (planted == state.FaultNone) {
				t.Errorf("%s, planted %s: took effect in shard 1: %v, in shard 2: %v", fault,
					planted, one, other)
			}
		}
	}
}

// Shards 3 and 4 are lost one after the other. Only shard 4 had the verdict of shard 3, and shard 1
// is the only one that it told. All that is left agree.
func TestLostOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ heard, agreed, want bool }{
		"heard of both":        {true, true, true},
		"heard of the first":   {true, false, false},
		"heard of the second":  {false, true, false},
		"heard of none at all": {false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newTwoLost(t)
			if test.heard {
				a.round(1, &ledger.Batch{Verdicts: []ledger.Verdict{a.told}})
			}
			if test.agreed {
				a.round(2, &ledger.Batch{Verdicts: []ledger.Verdict{a.agreed}})
			}
			a.end(test.want)
		})
	}
}

// twoLost is a book whose shard 3 is lost, and shard 4 after it.
type twoLost struct {
	*airlines
	id           ledger.Hash
	told, agreed ledger.Verdict
}

func newTwoLost(t *testing.T, faults ...state.Fault) *twoLost {
	a := &twoLost{airlines: newSettling(t, 0, 0, 0, 0, 0)}
	for _, c := range a.shards {
		for _, fault := range faults {
			c.state.Plant(fault)
		}
	}
	transaction := a.among(1, 2, 3)
	transaction.Postings = append(transaction.Postings, a.transfer(1, 4, 1).Postings...)
	a.id = a.enter(transaction)
	a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode()}})
	a.inbox[0] = nil
	for _, shard := range []ledger.ShardID{1, 2, 3, 4} {
		a.round(shard, &ledger.Batch{Carried: a.stream(shard)})
	}
	a.shards[3].stopped, a.shards[3].verdicts = true, nil
	a.settle(1, 3)
	a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode()}})
	a.inbox[0] = nil
	for _, shard := range []ledger.ShardID{1, 2} {
		a.round(shard, &ledger.Batch{Carried: a.stream(shard)})
	}
	a.shards[4].stopped, a.shards[4].verdicts = true, nil
	a.told = ledger.Testimony{About: 3, AsOf: 3}.Verdict(a.id, 4, true)
	a.agreed = ledger.Verdict{ID: a.id, Shard: 4,
		Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}}
	return a
}

// end settles with shard 4, and checks how the transaction ended.
func (a *twoLost) end(want bool) {
	a.t.Helper()
	a.settle(2, 4)
	a.flush()
	a.check()
	for _, shard := range []int{1, 2} {
		if got, over := a.shards[shard].outcomes[a.id]; !over || got != want {
			a.t.Errorf("shard %d: over %v, took effect %v, want %v", shard, over, got, want)
		}
		a.replay(shard, a.shards[shard])
	}
}

// testimonies returns the testimonies on a transaction that a shard gets when it asks.
func (n *network) testimonies(shard ledger.ShardID, waits *state.Pending) (all []ledger.Verdict) {
	for _, asked := range waits.Inquiries {
		for _, of := range asked.Of {
			c := n.shards[of]
			evidence, _, made := c.state.Evidence(waits.ID, asked.Testimony)
			heard := of != shard && slices.ContainsFunc(evidence, func(id ledger.Hash) bool {
				_, known := c.places[id]
				return known
			})
			if made && !c.stopped {
				all = append(all, asked.Verdict(waits.ID, of, heard))
			}
		}
	}
	return all
}

// What a transaction waits for after a loss is counted by the shards that have not testified, also
// by a state that is restored between two testimonies. The last of them decides.
func TestWaitsForTestimonies(t *testing.T) {
	t.Parallel()
	for _, agreed := range []bool{false, true} {
		a := newSettling(t, 0, 0, 0, 0, 0)
		transaction := a.among(1, 2, 3)
		transaction.Postings = append(transaction.Postings, a.transfer(1, 4, 1).Postings...)
		id := a.enter(transaction)
		a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode()}})
		a.inbox[0] = nil
		for shard := ledger.ShardID(1); shard < 5; shard++ {
			a.round(shard, &ledger.Batch{Carried: a.stream(shard)})
		}
		a.shards[4].stopped, a.shards[4].verdicts = true, nil
		waits := func(when string, want ...int) {
			t.Helper()
			restored := state.New(a.shards[1].genesis)
			if err := a.shards[1].state.Entries(restored.Restore); err != nil {
				t.Fatal(err)
			}
			if err := restored.Complete(nil); err != nil ||
				restored.Digest() != a.shards[1].state.Digest() {
				t.Fatalf("%s: the restored state has another digest: %v", when, err)
			}
			for shard, want := range want {
				of := ledger.ShardID(shard)
				if got, again := a.shards[1].state.WaitingFor(of), restored.WaitingFor(of); got !=
					want || again != want {
					t.Errorf("%s: %d wait for shard %d, restored %d, want %d", when, got, shard,
						again, want)
				}
			}
			a.shards[1].state = restored // it goes on with that
		}
		var good []ledger.Verdict
		for _, shard := range []ledger.ShardID{2, 3} {
			good = append(good, ledger.Verdict{ID: id, Shard: shard,
				Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}})
		}
		waits("before", 0, 0, 1, 1, 1)
		a.round(1, &ledger.Batch{Verdicts: good[:1]})
		waits("with one verdict", 0, 0, 0, 1, 1)
		a.settle(1, 4)
		a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode()}})
		a.inbox[0] = nil
		a.round(1, &ledger.Batch{Carried: a.stream(1)})
		waits("after the loss", 0, 0, 1, 1, 0)
		asked := ledger.Testimony{About: 4, AsOf: 4}
		a.round(1, &ledger.Batch{Verdicts: []ledger.Verdict{asked.Verdict(id, 2, false)}})
		waits("with one testimony", 0, 0, 0, 1, 0)
		a.round(1, &ledger.Batch{Verdicts: []ledger.Verdict{asked.Verdict(id, 3, agreed)}})
		if agreed {
			waits("of an agreement", 0, 0, 0, 1, 0)
			a.round(1, &ledger.Batch{Verdicts: good[1:]})
		}
		waits("at last", 0, 0, 0, 0, 0)
		if count := a.shards[1].state.PendingCount(); count != 0 {
			t.Errorf("agreed %v: %d wait", agreed, count)
		}
		want := int64(100)
		if agreed {
			want -= 11
		}
		a.has(1, want, 0, 0)
	}
}
