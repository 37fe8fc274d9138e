package state_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// shardChain is the chain of one shard in memory, with the messages that its members would send to
// other shards.
type shardChain struct {
	genesis *ledger.Genesis
	// seed is the directory with which the chain begins, if its shard was added.
	seed []byte
	// began is the number of the change of the book that added the shard.
	began   uint64
	state   *state.State
	parent  state.Parent
	blocks  []*ledger.Block
	places  map[ledger.Hash]int
	entries []*ledger.Entry
	// streams are the streams to the children. verdicts are all verdicts of the shard, with their
	// receivers. outcomes tells which cross-shard transactions took effect here.
	streams  map[ledger.ShardID][]ledger.Carried
	verdicts []state.OwnVerdict
	outcomes map[ledger.Hash]bool
	stopped  bool
}

// network is the chains of a book, connected by the tests.
type network struct {
	fail   func(format string, arguments ...any)
	tree   *ledger.ShardTree
	shards []*shardChain
	// transactions are all submitted transactions. inbox holds bundles by the shard where they will
	// enter.
	transactions map[ledger.Hash]*ledger.Transaction
	inbox        [][]*ledger.Bundle
	again        map[ledger.Hash]int
	// plant is the name of a planted bug.
	plant string
	// limit replaces MaxWaiting unless it is 0.
	limit int
	time  ledger.Milliseconds
	// upgrades says that the version rises on the way, so shards that do not have it yet may get
	// transactions with deadlines.
	upgrades bool
	// cancelled counts the transactions that shards refused as cancelled.
	cancelled int
	// fault is planted in each chain.
	fault state.Fault
	foresights
}

func newNetwork(fail func(string, ...any), parents []ledger.ShardID) *network {
	return newNetworkOf(fail, ledgertest.ShardedGenesis(1, parents...))
}

func newNetworkOf(fail func(string, ...any), genesis *ledger.Genesis) *network {
	parents := genesis.Tree
	n := &network{fail: fail, tree: genesis.ShardTree(),
		transactions: map[ledger.Hash]*ledger.Transaction{},
		inbox:        make([][]*ledger.Bundle, len(parents)), again: map[ledger.Hash]int{},
		time: genesis.Time, foresights: foresights{}}
	for shard := range parents {
		one, err := genesis.ForShard(ledger.ShardID(shard))
		if err != nil {
			fail("%v", err)
		}
		n.begin(one, nil)
	}
	return n
}

func (n *network) submit(shard ledger.ShardID, bundle *ledger.Bundle) {
	for i := range bundle.Len() {
		n.transactions[bundle.ID(i)] = bundle.Transaction(i)
	}
	n.inbox[shard] = append(n.inbox[shard], bundle)
}

// waiting returns all verdicts that were made for a shard, and those that it gets when it asks
// other shards for the verdicts that it waits for.
func (n *network) waiting(shard ledger.ShardID) (all []ledger.Verdict) {
	for _, other := range n.shards {
		for _, verdict := range other.verdicts {
			if slices.Contains(verdict.To, shard) {
				all = append(all, verdict.Verdict)
			}
		}
	}
	for _, waits := range n.shards[shard].state.AllPending() {
		for _, other := range waits.Waits {
			c := n.shards[other]
			if place, known := c.places[waits.ID]; known && !c.stopped {
				if verdict, made := ledger.VerdictOf(c.entries[place], other); made {
					all = append(all, verdict)
				}
			}
		}
		all = append(all, n.testimonies(shard, &waits)...)
	}
	return slices.DeleteFunc(all, func(verdict ledger.Verdict) bool {
		return !n.shards[shard].state.TakesVerdict(&verdict)
	})
}

// stream returns the streams to a shard from all that were ever its parents, in the order of their
// numbers.
func (n *network) stream(shard ledger.ShardID) (all []ledger.Carried) {
	for _, c := range n.shards {
		all = append(all, c.streams[shard]...)
	}
	slices.SortStableFunc(all, func(a, b ledger.Carried) int {
		return cmp.Compare(a.Number, b.Number)
	})
	return all
}

// round makes one block of a shard from round messages. It returns nil if they have nothing new.
func (n *network) round(shard ledger.ShardID, batches ...*ledger.Batch) *ledger.Block {
	c := n.shards[shard]
	n.time++
	if n.plant == "released at the deadline" {
		// The shard takes the other one's silence for a verdict.
		for _, each := range c.state.AllPending() {
			if deadline := n.transactions[each.ID].Deadline; deadline != 0 && n.time >= deadline {
				batches[0].Verdicts = append([]ledger.Verdict{{ID: each.ID, Shard: each.Waits[0],
					Result: ledger.Result{Code: ledger.DeadlinePassed, Item: ledger.NoItem}}},
					batches[0].Verdicts...)
			}
		}
	}
	payloads := make([][]byte, len(batches))
	for i, batch := range batches {
		batch.Header.Time = n.time
		if c.genesis.VouchedCrossings {
			ledgertest.Vouch(c.genesis, c.genesis.Members[0].Name, batch)
		}
		payloads[i] = batch.Encode()
	}
	draft := c.state.Seal(c.parent, 1, ledger.Round(len(c.blocks)+1),
		ledger.VerifyBatches(payloads), func(id ledger.Hash, _ *ledger.Transaction) bool {
			_, seen := c.places[id]
			return seen
		})
	if draft == nil {
		n.resubmit(shard, batches)
		return nil
	}
	if draft.Malformed > 0 && !n.upgrades {
		n.fail("shard %d: %d malformed", shard, draft.Malformed)
	}
	nets := map[ledger.Hash][]ledger.Posting{}
	for _, each := range c.state.AllPending() {
		nets[each.ID] = c.state.PendingNets(each.ID)
	}
	if n.plant == "counted twice" {
		for _, batch := range batches {
			for _, verdict := range batch.Verdicts {
				if pending, waits := c.state.Pending(verdict.ID); waits && verdict.Good() &&
					slices.Contains(pending.Waits, verdict.Shard) && len(pending.Waits) > 1 {
					c.state.PlantCountedTwice(verdict.ID, verdict.Shard)
				}
			}
		}
	}
	block, changes := c.state.Execute(draft)
	if changes.OutOfPlace > 0 {
		n.fail("shard %d seals what is out of place", shard)
	}
	if n.plant == "not counted" {
		c.state.PlantUncounted()
	}
	n.checkWaiting(shard, c.state)
	if err := judgeLegs(shard, c.state); err != nil {
		n.fail("shard %d: %v", shard, err)
	}
	for i := range block.Len() {
		c.places[block.Entry(i).ID] = len(c.entries)
		c.entries = append(c.entries, &block.Unpacked[i])
		n.noteOccurrence(&block.Unpacked[i])
	}
	for _, forward := range changes.Forwards {
		next := uint64(1)
		if before := c.streams[forward.Child]; len(before) > 0 {
			next = before[len(before)-1].Number + 1
		}
		if base := ledger.StreamBase(ledger.StreamOf(forward.Number)); next < base {
			next = base + 1
		}
		c.streams[forward.Child] = append(c.streams[forward.Child],
			ledger.Carried{Number: forward.Number,
				Bundle: block.CarriedBundle(int(forward.Bundle))})
		if forward.Number != next {
			n.fail("shard %d: entry %d of the stream to %d has number %d", shard, next,
				forward.Child, forward.Number)
		}
	}
	n.grow(c, changes.Seeds)
	c.verdicts = append(c.verdicts, changes.Verdicts...)
	for _, verdict := range changes.Verdicts {
		if !verdict.Good() {
			c.outcomes[verdict.ID] = false
		}
	}
	for _, settlement := range changes.Settlements {
		c.outcomes[settlement.ID] = settlement.Applied
		switch {
		case n.plant == "forgotten" && !settlement.Applied:
			c.state.PlantForgotten(nets[settlement.ID])
		case n.plant == "moved twice" && settlement.Applied:
			c.state.PlantMovedTwice(nets[settlement.ID])
		}
	}
	n.resubmit(shard, batches)
	c.blocks = append(c.blocks, block)
	c.parent = state.Parent{Header: block.Header, Hash: block.Hash}
	return n.foresee(block)
}

// resubmit sends bundles that did not belong into a shard to the root, which reaches all shards. It
// does so only a few times, because the signer may never be registered.
func (n *network) resubmit(shard ledger.ShardID, batches []*ledger.Batch) {
	for _, batch := range batches {
		for _, encoded := range batch.Bundles {
			bundle, _ := ledger.DecodeBundle(encoded)
			if _, here := n.shards[shard].places[bundle.ID(0)]; !here &&
				n.again[bundle.Root()] < 5 {
				n.again[bundle.Root()]++
				n.inbox[n.tree.Root()] = append(n.inbox[n.tree.Root()], bundle)
			}
		}
	}
}

// flush gives every shard that is not stopped everything that there is for it, until nothing
// changes any more.
func (n *network) flush() {
	for again := true; again; {
		again = false
		for i, c := range n.shards {
			shard := ledger.ShardID(i)
			if c.stopped {
				continue
			}
			batch := &ledger.Batch{Verdicts: n.waiting(shard), Carried: n.stream(shard)}
			for _, bundle := range n.inbox[i] {
				batch.Bundles = append(batch.Bundles, bundle.Encode())
			}
			n.inbox[i] = nil
			if n.round(shard, batch) != nil {
				again = true
			}
		}
	}
}

// check checks the invariants that hold at every moment.
func (n *network) check() {
	outcomes := map[ledger.Hash]bool{}
	for i, c := range n.shards {
		if err := c.state.CheckUses(); err != nil {
			n.fail("shard %d: %v", i, err)
		}
		for id, applied := range c.outcomes {
			if before, known := outcomes[id]; known && before != applied {
				n.fail("transaction %s: took effect in one shard and not in another, seen at "+
					"shard %d", id, i)
			}
			outcomes[id] = applied
		}
	}
	sums := map[ledger.AssetName]ledger.Amount{}
	add := func(asset ledger.AssetName, amount ledger.Amount) {
		sum, err := sums[asset].Add(amount)
		if err != nil {
			n.fail("%v", err)
		}
		sums[asset] = sum
	}
	for i, c := range n.shards {
		for _, account := range c.state.Accounts() {
			for _, balance := range account.Balances {
				setAside, incoming := c.state.HeldByPending(account.Path, balance.Asset)
				if balance.SetAside != setAside || balance.Incoming != incoming {
					n.fail("shard %d: %s holds %+v; the transactions that wait, %s and %s", i,
						account.Path, balance, setAside, incoming)
				}
				if balance.Amount.Sign() < 0 && !account.Issuer {
					n.fail("shard %d: %s is overdrawn: %+v", i, account.Path, balance)
				}
				add(balance.Asset, balance.Settled())
			}
		}
		for _, waits := range c.state.AllPending() {
			if outcomes[waits.ID] {
				for _, net := range c.state.PendingNets(waits.ID) {
					add(net.Asset, net.Amount)
				}
			}
		}
	}
	for asset, sum := range sums {
		if sum.Sign() != 0 {
			n.fail("asset %s adds up to %s over all shards", asset, sum)
		}
	}
}

// checkEnd checks the invariants that hold after everything has arrived: no transaction waits, each
// balance is the plain sum of the transactions that took effect, each record has its last value,
// each chain can be replayed by itself, and any two shards order transactions alike.
func (n *network) checkEnd() {
	n.check()
	balances := map[ledger.AccountPath]map[ledger.AssetName]ledger.Amount{}
	writers := map[ledger.RecordKey]ledger.Hash{}
	counted := map[ledger.Hash]bool{}
	for i, c := range n.shards {
		if c.state.PendingCount() > 0 {
			n.fail("shard %d: %d transactions wait for ever", i, c.state.PendingCount())
		}
		if want := n.lastFor(ledger.ShardID(i)); c.state.Carried() != want {
			n.fail("shard %d has entry %d of its parent's stream, of %d", i, c.state.Carried(),
				want)
		}
		for _, entry := range c.entries {
			if !n.tookEffect(c, entry) {
				continue
			}
			for _, record := range entry.Transaction().Records {
				if c.state.HomeShard(record.Key.Organisation()) == ledger.ShardID(i) {
					writers[record.Key] = entry.ID
				}
			}
			if counted[entry.ID] {
				continue
			}
			counted[entry.ID] = true
			for _, posting := range entry.Transaction().Postings {
				if balances[posting.Account] == nil {
					balances[posting.Account] = map[ledger.AssetName]ledger.Amount{}
				}
				balances[posting.Account][posting.Asset], _ =
					balances[posting.Account][posting.Asset].Add(posting.Amount)
			}
		}
	}
	for path, assets := range balances {
		for asset, want := range assets {
			home := n.shards[n.shards[0].state.HomeShard(path.Organisation())].state
			account, _ := home.Account(path)
			held, _ := home.HeldByPending(path, asset) // by holds that are open
			if got, _ := account.Balance(asset).Add(held); got != want {
				n.fail("%s has %s %s; what took effect adds up to %s", path, got, asset, want)
			}
		}
	}
	for key, want := range writers {
		c := n.shards[n.shards[0].state.HomeShard(key.Organisation())]
		place, _ := c.state.Record(key)
		if got := c.blocks[place.Height-1].Entry(int(place.Index)).ID; got != want {
			n.fail("record %s was written last by %s, and has the value of %s", key, want, got)
		}
	}
	n.checkOrder()
	n.checkBookWide()
	for i, c := range n.shards {
		n.replay(i, c)
		n.checkCancelled(i, c)
	}
}

func (n *network) replay(shard int, c *shardChain) {
	limited := func(s *state.State) *state.State {
		if n.limit > 0 {
			s.LimitWaiting(n.limit)
		}
		s.Plant(n.fault)
		return s
	}
	fresh := func() *state.State { return limited(state.New(c.genesis)) }
	begun := func() *state.State {
		s, err := state.Begin(c.genesis, c.seed)
		if err != nil {
			n.fail("shard %d: %v", shard, err)
		}
		return limited(s)
	}
	s, little := begun(), newTwin(c.genesis, shard%3)
	little.fresh, little.state = fresh, begun()
	if c.seed != nil {
		_ = state.EachInSeed(c.genesis, c.seed, func(key, value []byte) error {
			little.stored[string(key)] = value
			return nil
		})
	}
	for _, block := range c.blocks {
		decoded, err := ledger.DecodeBlock(block.Encode())
		if err != nil || decoded.Hash != block.Hash ||
			!bytes.Equal(decoded.Encode(), block.Encode()) {
			n.fail("shard %d: block %d does not survive its encoding: %v",
				shard, block.Header.Height, err)
		}
		if again, _ := s.Execute(state.Redraft(decoded)); again.Hash != block.Hash {
			n.fail("shard %d: block %d replays as another", shard, block.Header.Height)
		}
		if err := little.execute(block, int(block.Header.Height/2%3)); err != nil {
			n.fail("shard %d: with few resident accounts: %v", shard, err)
		}
		if err := little.check(s); err != nil {
			n.fail("shard %d: with few resident accounts: %v", shard, err)
		}
		if block.Header.Height%5 == 0 {
			if err := little.restart(2); err != nil {
				n.fail("shard %d: with few resident accounts: %v", shard, err)
			}
		}
		if block.Header.Height%3 == 0 {
			restored := fresh()
			err := errors.Join(s.Entries(restored.Restore), restored.Complete(nil))
			if err != nil || restored.Digest() != s.Digest() {
				n.fail("shard %d: the state does not survive its entries: %v", shard, err)
			}
			n.checkWaiting(c.genesis.Shard, restored)
			s = restored
		}
	}
}

// checkOrder checks that two transactions that took effect are in the same order in all shards that
// execute both.
func (n *network) checkOrder() {
	for i, a := range n.shards {
		for j, b := range n.shards[:i] {
			last := -1
			for _, entry := range a.entries {
				if place, both := b.places[entry.ID]; both && n.tookEffect(a, entry) &&
					n.tookEffect(b, b.entries[place]) {
					if place < last {
						n.fail("shards %d and %d order %s differently", i, j, entry.ID)
					}
					last = place
				}
			}
		}
	}
}

func (n *network) tookEffect(c *shardChain, entry *ledger.Entry) bool {
	return entry.Transaction().Verdict == nil && (entry.Result.OK() || c.outcomes[entry.ID])
}

// checkCancelled checks that a shard refuses a transaction as cancelled exactly if, before it, an
// organisation that has to sign it cancelled it there, and that a cancellation is too late exactly
// while the transaction waits.
func (n *network) checkCancelled(shard int, c *shardChain) {
	by := map[ledger.Hash][]ledger.OrganisationName{}
	waits := map[ledger.Hash]bool{}
	for _, block := range c.blocks {
		for i := range block.Len() {
			entry := block.Entry(i)
			t, code := entry.Transaction(), entry.Result.Code
			if t.Verdict != nil {
				if code == ledger.Released || code == ledger.Settled {
					delete(waits, t.Verdict.ID)
				}
				continue
			}
			if cancellation := t.Cancellation; cancellation != nil {
				if id := cancellation.Transaction; code == ledger.Applied {
					if by[id] = append(by[id], t.Signer); waits[id] {
						n.fail("shard %d takes a cancellation of %s, which waits", shard, id)
					}
				} else if code == ledger.CancelledTooLate && !waits[id] {
					n.fail("shard %d: a cancellation of %s is too late, and nothing waits", shard,
						id)
				}
				continue
			}
			withdrawn := slices.ContainsFunc(by[entry.ID], func(o ledger.OrganisationName) bool {
				for each := range t.Consenting() {
					if each == o {
						return true
					}
				}
				return false
			})
			agrees := code == ledger.SetAside || code == ledger.Applied
			if agrees && withdrawn || code == ledger.Cancelled && !withdrawn {
				n.fail("shard %d says %s on %s, cancelled here by %v", shard, code, entry.ID,
					by[entry.ID])
			}
			if waits[entry.ID] = code == ledger.SetAside; code == ledger.Cancelled {
				n.cancelled++
			}
		}
	}
}

// enter submits a bundle at its entry or between there and the root, sometimes in two places or in
// a wrong one.
func (n *network) enter(f *traffic, bundle *ledger.Bundle) {
	entry := n.shards[f.random.IntN(len(n.shards))].state.BundleEntry(bundle)
	for copies := 1 + f.random.IntN(8)/7; copies > 0; copies-- {
		n.submit(entry, bundle)
		if parent, below := n.tree.Parent(entry); below && f.random.IntN(2) == 0 {
			entry = parent
		}
	}
	if f.random.IntN(10) == 0 {
		n.submit(ledger.ShardID(f.random.IntN(len(n.shards))), bundle)
	}
}

// disorder makes one block of a shard from two round messages. They hold some of the input for the
// shard, some of it twice and some too early.
func (n *network) disorder(f *traffic, shard ledger.ShardID) {
	batches := []*ledger.Batch{{}, {}}
	any := func() *ledger.Batch { return batches[f.random.IntN(2)] }
	for _, verdict := range n.waiting(shard) {
		for range f.random.IntN(3) {
			batch := any()
			batch.Verdicts = append(batch.Verdicts, verdict)
		}
	}
	for _, carried := range n.stream(shard) {
		if carried.Number+2 > n.shards[shard].state.Carried() && f.random.IntN(6) > 0 {
			batch := any()
			batch.Carried = append(batch.Carried, carried)
		}
	}
	for _, bundle := range n.inbox[shard] {
		batch := any()
		batch.Bundles = append(batch.Bundles, bundle.Encode())
	}
	n.inbox[shard] = nil
	f.random.Shuffle(len(batches[0].Carried), func(i, j int) {
		batches[0].Carried[i], batches[0].Carried[j] = batches[0].Carried[j], batches[0].Carried[i]
	})
	n.round(shard, batches...)
}

// story runs a whole random history. It returns how many cross-shard transactions took effect, how
// many did not, and how often a shard refused one as cancelled.
func story(fail func(string, ...any), random *rand.Rand, parents []ledger.ShardID, funds int64,
	plant string) (applied, refused, cancelled int) {
	n := storyOf(fail, random, parents, funds, plant, state.FaultNone)
	outcomes := map[ledger.Hash]bool{}
	for _, c := range n.shards {
		for id, took := range c.outcomes {
			outcomes[id] = took
		}
	}
	for _, took := range outcomes {
		if took {
			applied++
		} else {
			refused++
		}
	}
	return applied, refused, n.cancelled
}

// storyOf is story with a planted fault. It returns the chains.
func storyOf(fail func(string, ...any), random *rand.Rand, parents []ledger.ShardID, funds int64,
	plant string, fault state.Fault) *network {
	genesis := ledgertest.ShardedGenesis(1, parents...)
	version := random.IntN(8)
	genesis.VouchedCrossings = random.IntN(2) == 0
	genesis.Version = []int{1, 2, 2, ledger.DeadlineVersion, ledger.CancelVersion,
		ledger.CancelVersion, ledger.GrowthVersion, ledger.NewestVersion}[version]
	n := newNetworkOf(fail, genesis)
	n.fault = fault
	for _, c := range n.shards {
		c.state.Plant(fault)
	}
	n.upgrades = version == 2
	f := newTraffic(random, n.shards[0].genesis, 5, funds)
	now := func() ledger.Milliseconds { return n.time }
	if ledger.TakesDeadlines(genesis.Version) {
		f.now, f.cancels = now, ledger.TakesCancellations(genesis.Version)
	}
	for _, client := range f.clients[:4] {
		n.submit(n.tree.Root(), f.registration(client))
	}
	n.flush()
	for _, client := range f.clients[:4] {
		n.enter(f, f.opening(client))
	}
	n.flush()
	n.plant = plant
	var bundles []*ledger.Bundle
	for step := range 20 {
		if genesis.Version >= ledger.GrowthVersion && random.IntN(5) == 0 {
			n.add(f)
		}
		if step == 6 || step > 10 && random.IntN(8) == 0 {
			// One client registers late. Its registration races with transactions that involve it.
			if step > 10 {
				f.clients = append(f.clients, ledgertest.NewClient(genesis,
					ledger.OrganisationName(fmt.Sprintf("late%d", step))))
			}
			late := f.clients[len(f.clients)-1]
			n.submit(n.tree.Root(), f.registration(late))
			n.enter(f, f.opening(late))
		}
		if step == 8 && n.upgrades {
			charter := genesis.Charter()
			charter.Number = 1
			charter.Version = []int{ledger.DeadlineVersion, ledger.CancelVersion,
				ledger.GrowthVersion, ledger.NewestVersion}[random.IntN(4)]
			n.submit(n.tree.Root(), ledgertest.Signed(ledger.Operator, []string{"operator"},
				ledger.Transaction{Ledger: genesis.Book(),
					Charter: &ledger.CharterChange{Charter: charter}}))
			f.now, f.cancels = now, ledger.TakesCancellations(charter.Version)
		}
		var transactions []ledger.Transaction
		for range 1 + random.IntN(3) {
			transactions = append(transactions, f.transaction())
		}
		bundles = append(bundles, f.bundle(transactions...))
		if f.cancels && random.IntN(2) == 0 {
			f.cancelSome(n, bundles[max(0, len(bundles)-1-random.IntN(3))])
		}
		n.enter(f, bundles[len(bundles)-1])
		if random.IntN(4) == 0 {
			// A client that does not know the outcome submits the bundle again.
			n.enter(f, bundles[random.IntN(len(bundles))])
		}
		for range 2 {
			n.disorder(f, ledger.ShardID(random.IntN(len(n.shards))))
			n.check()
		}
	}
	n.flush()
	n.checkEnd()
	return n
}

func TestCrossingsAgainstModel(t *testing.T) {
	t.Parallel()
	var applied, refused, cancelled int
	rapid.Check(t, func(r *rapid.T) {
		parents := drawParents(r, 6)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
		funds := rapid.SampledFrom([]int64{10, 40, 1 << 40}).Draw(r, "funds")
		took, not, withdrawn := story(r.Fatalf, random, parents, funds, "")
		applied, refused, cancelled = applied+took, refused+not, cancelled+withdrawn
	})
	t.Logf("%d transactions across shards took effect, %d did not; %d refusals of cancelled ones",
		applied, refused, cancelled)
	if applied < 150 || refused < 150 || cancelled < 5 {
		t.Error("the histories hold too little of either outcome")
	}
}

// Each planted bug is found within some seeds.
func TestCrossingModelFindsBugs(t *testing.T) {
	t.Parallel()
	for _, plant := range []string{"counted twice", "forgotten", "moved twice",
		"released at the deadline", "not counted"} {
		t.Run(plant, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(30) {
				found := ""
				func() {
					defer func() {
						if reason := recover(); reason != nil {
							found = fmt.Sprint(reason)
						}
					}()
					story(func(format string, arguments ...any) {
						panic(fmt.Sprintf(format, arguments...))
					}, rand.New(rand.NewPCG(seed, 2)), []ledger.ShardID{0, 0, 0, 1}, 10, plant)
				}()
				if found != "" {
					t.Logf("seed %d: %s", seed, found)
					return
				}
			}
			t.Error("not found")
		})
	}
}

// drawParents draws a tree of shards. Any shard may be the root, and every other shard has a parent
// that is nearer to the root.
func drawParents(r *rapid.T, most int) []ledger.ShardID {
	parents := make([]ledger.ShardID, rapid.IntRange(2, most).Draw(r, "shards"))
	for i := range parents {
		parents[i] = ledger.ShardID(i)
	}
	order := rapid.Permutation(parents).Draw(r, "order")
	for i := 1; i < len(order); i++ {
		parents[order[i]] = order[rapid.IntRange(0, i-1).Draw(r, "parent")]
	}
	return parents
}

// checkWaiting checks the oldest transaction that waits, and what each other shard is waited for,
// against all that wait.
func (n *network) checkWaiting(shard ledger.ShardID, s *state.State) {
	oldest, waits := s.OldestPending()
	all := s.AllPending()
	if waits != (len(all) > 0) || waits && !reflect.DeepEqual(oldest, all[0]) {
		n.fail("shard %d: %+v is the oldest of %+v", shard, oldest, all)
	}
	upTo := ledger.Height(0)
	if len(all) > 0 { // some are older
		upTo = all[len(all)/2].Height
	}
	want, old := map[ledger.ShardID]state.Waiting{}, 0
	for _, each := range slices.Backward(all) {
		for _, waited := range each.WaitsFor(shard) {
			by := want[waited]
			by.Shard, by.Count, by.Oldest = waited, by.Count+1, each.Height
			if each.Height <= upTo {
				by.Old++
			}
			want[waited] = by
		}
		if each.Height <= upTo {
			old++
		}
	}
	by, count := s.Waiting(upTo)
	if count != old || !slices.IsSortedFunc(by, func(a, b state.Waiting) int {
		return cmp.Compare(a.Shard, b.Shard)
	}) {
		n.fail("shard %d: %d transactions are said to wait up to block %d, and %d do: %+v", shard,
			count, upTo, old, by)
	}
	for _, each := range by {
		if each != want[each.Shard] {
			n.fail("shard %d: %+v is said to wait up to block %d, and %+v does", shard, each, upTo,
				want[each.Shard])
		}
		delete(want, each.Shard)
	}
	if len(want) > 0 {
		n.fail("shard %d: %+v waits, and nobody says so", shard, want)
	}
}
