package state_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// begin begins the chain of a shard.
func (n *network) begin(genesis *ledger.Genesis, seed []byte) {
	begun, err := state.Begin(genesis, seed)
	if err != nil {
		n.fail("shard %d does not begin: %v", genesis.Shard, err)
	}
	if n.limit > 0 {
		begun.LimitWaiting(n.limit)
	}
	begun.Plant(n.fault)
	n.shards = append(n.shards, &shardChain{genesis: genesis, seed: seed, state: begun,
		began:  begun.BookChanges(),
		parent: state.Parent{Header: genesis.Block().Header, Hash: genesis.Hash()},
		places: map[ledger.Hash]int{}, streams: map[ledger.ShardID][]ledger.Carried{},
		outcomes: map[ledger.Hash]bool{},
	})
}

// grow begins the chains of the shards that a block added, and checks that all chains find the same
// directory at the addition.
func (n *network) grow(c *shardChain, seeds []state.Seed) {
	for _, seed := range seeds {
		added := c.state.Additions()
		genesis, err := c.genesis.GrownTo(added, seed.Shard)
		if err != nil {
			n.fail("shard %d: %v", c.genesis.Shard, err)
		}
		if err := genesis.Validate(); err != nil {
			n.fail("the genesis of shard %d: %v", seed.Shard, err)
		}
		if int(seed.Shard) < len(n.shards) {
			if other := n.shards[seed.Shard]; other.genesis.Hash() != genesis.Hash() ||
				!bytes.Equal(other.seed, seed.Directory) {
				n.fail("shard %d adds shard %d with another directory", c.genesis.Shard, seed.Shard)
			}
			continue
		}
		n.inbox = append(n.inbox, nil)
		n.begin(genesis, bytes.Clone(seed.Directory))
	}
}

// checkBookWide checks that what concerns all shards is in all chains, with the same result: those
// that the book began with have all of it, and one of an added shard has what came after it.
func (n *network) checkBookWide() {
	var all []*ledger.Entry
	for _, entry := range n.shards[n.tree.Root()].entries {
		if entry.Transaction().BookWide() {
			all = append(all, entry)
		}
	}
	for shard, c := range n.shards {
		var here []*ledger.Entry
		for _, entry := range c.entries {
			if entry.Transaction().BookWide() {
				here = append(here, entry)
			}
		}
		began := 0
		if c.seed != nil {
			began = 1 + slices.IndexFunc(all, func(entry *ledger.Entry) bool {
				t := entry.Transaction()
				return t.Book != nil && entry.Result.OK() && t.Book.Number == c.began
			})
		}
		if !slices.EqualFunc(here, all[began:], func(a, b *ledger.Entry) bool {
			return a.ID == b.ID && a.Result == b.Result
		}) {
			n.fail("shard %d has %d transactions that concern all shards, or other results, and "+
				"the root has %d from there on", shard, len(here), len(all)-began)
		}
	}
}

// addition returns an operator's transaction that adds a shard, as change number of the book.
func addition(genesis *ledger.Genesis, number uint64, parent ledger.ShardID,
	members ...ledger.Member) *ledger.Bundle {
	operator := &ledgertest.Operator{Ledger: genesis.Book(), Sequence: number}
	return operator.Bundle("operator", operator.ChangeBook(ledger.BookChange{Number: number,
		Addition: &ledger.ShardAddition{Parent: parent, Members: members}}))
}

// add has the operator add a shard below any other, or change the tree. It may be too late for its
// number.
func (n *network) add(f *traffic) {
	root := n.shards[n.tree.Root()].state
	number := root.BookChanges() + 1
	if f.random.IntN(2) == 0 {
		for range 1 + f.random.IntN(2) { // a second one may come before any shard has executed it
			n.submit(n.tree.Root(), rehang(f.genesis, number,
				ledger.ShardID(f.random.IntN(len(n.shards))),
				ledger.ShardID(f.random.IntN(len(n.shards)))))
			number++
		}
		return
	}
	parent := ledger.ShardID(f.random.IntN(len(n.shards) + 1))
	n.submit(n.tree.Root(), addition(f.genesis, number, parent,
		ledgertest.Member(1000+int(number))))
	f.added = max(f.added, slices.Max([]int{len(root.Additions()) + 1}))
}

// newGrowing returns a book of three shards, the root 0 and 1 and 2 below it, that can grow.
func newGrowing(t *testing.T, fault state.Fault) *airlines {
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.GrowthVersion
	a := newAirlinesOf(t, genesis)
	a.fault = fault
	for _, c := range a.shards {
		c.state.Plant(fault)
	}
	return a
}

// deadlined gives a transaction a deadline.
func (a *airlines) deadlined(t ledger.Transaction) ledger.Transaction {
	t.Deadline = a.time + 1000
	return t
}

// addBelow adds a shard and returns the id of the change.
func (a *airlines) addBelow(parent ledger.ShardID) ledger.Hash {
	number := a.shards[0].state.BookChanges() + 1
	bundle := addition(a.shards[0].genesis, number, parent, ledgertest.Member(100+int(number)))
	a.submit(0, bundle)
	return bundle.ID(0)
}

// join registers a further organisation, pinned to a shard, and opens its accounts.
func (a *airlines) join(shard ledger.ShardID) int {
	f := newTraffic(rand.New(rand.NewPCG(1, 1)), a.shards[0].genesis, len(a.clients)+1, 100)
	client := f.clients[len(a.clients)]
	a.clients = append(a.clients, client)
	registration := client.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, shard
	a.submit(0, f.bundle(registration))
	a.flush()
	a.submit(shard, f.opening(client))
	a.flush()
	return len(a.clients) - 1
}

func TestAddition(t *testing.T) {
	t.Parallel()
	a := newGrowing(t, state.FaultNone)
	homes := map[ledger.OrganisationName]ledger.ShardID{}
	for i := range 50 {
		name := ledger.OrganisationName(fmt.Sprintf("free%d", i))
		homes[name] = a.shards[0].state.HomeShard(name)
	}
	before := a.enter(a.deadlined(a.transfer(1, 2, 5)))
	tree := a.shards[1].state.ShardTree()
	added := a.addBelow(1)
	first := a.enter(a.deadlined(a.transfer(2, 1, 1)))
	a.flush()
	a.expect(added, int(ledger.Applied), int(ledger.Applied), int(ledger.Applied), none)
	a.expect(before, relayed, setAside, setAside, none)
	a.expect(first, relayed, setAside, setAside, none)
	if tree.Shards() != 3 || len(tree.Children(1)) != 0 {
		t.Error("the tree from before the addition has changed")
	}
	for shard, c := range a.shards {
		grown := c.state.ShardTree()
		if parent, below := grown.Parent(3); grown.Shards() != 4 || !below || parent != 1 {
			t.Errorf("shard %d: the tree has %d shards", shard, grown.Shards())
		}
		if !reflect.DeepEqual(c.state.Additions(), a.shards[0].state.Additions()) {
			t.Errorf("shard %d has other additions: %+v", shard, c.state.Additions())
		}
		for name, home := range homes {
			if c.state.HomeShard(name) != home {
				t.Errorf("shard %d: the home of %s has changed", shard, name)
			}
		}
		if got, want := c.state.BookChanges(), uint64(1); got != want {
			t.Errorf("shard %d: %d changes of the book", shard, got)
		}
	}
	if height, known := a.shards[3].state.AddedAt(3); !known || height != 0 {
		t.Errorf("shard 3 was added at %d in its own chain", height)
	}
	height, _ := a.shards[2].state.AddedAt(3)
	if s := a.shards[2].state; height == 0 || s.ShardsAt(height) != 3 || s.ShardsAt(height+1) != 4 {
		t.Errorf("shard 2: added at block %d: %d shards, then %d", height,
			s.ShardsAt(height), s.ShardsAt(height+1))
	}
	if got := a.shards[3].genesis.Book(); got != a.shards[0].genesis.Book() {
		t.Error("the new shard is of another book")
	}
	// An organisation in the new shard deals with one elsewhere, also across a further addition.
	joined := a.join(3)
	a.addBelow(3)
	there := a.enter(a.deadlined(a.transfer(joined, 2, 7)))
	a.flush()
	a.expect(there, relayed, relayed, setAside, setAside, none)
	deep := a.join(4)
	back := a.enter(a.deadlined(a.transfer(2, deep, 9)))
	a.flush()
	a.expect(back, relayed, relayed, setAside, relayed, setAside)
	a.clients = a.clients[:3]
	a.has(2, 100+5-1+7-9, 0, 0)
	a.checkEnd()
}

// A chain whose version was raised before takes additions, and the new chain has that version.
func TestAdditionAfterUpgrade(t *testing.T) {
	t.Parallel()
	for _, version := range []int{ledger.FirstVersion, ledger.CancelVersion} {
		genesis := ledgertest.ShardedGenesis(1, 0, 0, 1)
		genesis.Version = version
		a := newAirlinesOf(t, genesis)
		charter := genesis.Charter()
		charter.Number, charter.Version = 1, ledger.GrowthVersion
		early := addition(genesis, 1, 1, ledgertest.Member(101))
		a.upgrades, a.again[early.Root()] = true, 5 // it is not submitted again
		a.submit(0, early)
		a.flush()
		if len(a.shards) != 3 {
			t.Error("a shard is added before the version takes it")
		}
		a.submit(0, ledgertest.Signed(ledger.Operator, []string{"operator"},
			ledger.Transaction{Ledger: genesis.Book(),
				Charter: &ledger.CharterChange{Charter: charter}}))
		a.flush()
		a.addBelow(2)
		a.flush()
		if len(a.shards) != 4 || a.shards[3].state.Version() != ledger.GrowthVersion {
			t.Fatalf("version %d: %d shards", version, len(a.shards))
		}
		joined := a.join(3)
		id := a.enter(a.deadlined(a.transfer(joined, 0, 7)))
		a.flush()
		a.expect(id, setAside, relayed, relayed, setAside)
		a.checkEnd()
	}
}

// A refused addition changes nothing, for the same reason in all shards.
func TestAdditionRefused(t *testing.T) {
	t.Parallel()
	member := ledgertest.Member
	with := func(change func(*ledger.Member)) ledger.Member {
		m := member(200)
		change(&m)
		return m
	}
	a := newGrowing(t, state.FaultNone)
	genesis := a.shards[0].genesis
	a.addBelow(0)
	a.flush()
	for name, each := range map[string]struct {
		bundle *ledger.Bundle
		want   ledger.Code
	}{
		"an unknown parent":   {addition(genesis, 2, 9, member(200)), ledger.UnknownShard},
		"its own parent":      {addition(genesis, 2, 4, member(200)), ledger.UnknownShard},
		"an old number":       {addition(genesis, 1, 0, member(200)), ledger.BookOutdated},
		"a number ahead":      {addition(genesis, 3, 0, member(200)), ledger.BookOutdated},
		"a member of shard 1": {addition(genesis, 2, 0, member(1)), ledger.MemberNameTaken},
		"a member of shard 3": {addition(genesis, 2, 0, member(101)), ledger.MemberNameTaken},
		"the key of another": {addition(genesis, 2, 0, with(func(m *ledger.Member) {
			m.Key = member(101).Key
		})), ledger.MemberKeyTaken},
		"the address of another": {addition(genesis, 2, 0, with(func(m *ledger.Member) {
			m.Address = member(1).Address
		})), ledger.MemberAddressTaken},
		"two with one key": {addition(genesis, 2, 0, member(200), with(func(m *ledger.Member) {
			m.Name, m.Address = "other", "elsewhere:1"
		})), ledger.MemberKeyTaken},
		"two with one address": {addition(genesis, 2, 0, member(200), with(func(m *ledger.Member) {
			m.Name, m.Key = "other", member(201).Key
		})), ledger.MemberAddressTaken},
	} {
		a.submit(0, each.bundle)
		a.flush()
		for shard := range a.shards {
			if got := a.result(shard, each.bundle.ID(0)); got != int(each.want) {
				t.Errorf("%s: shard %d says %s, want %s", name, shard, ledger.Code(got), each.want)
			}
		}
	}
	operator := &ledgertest.Operator{Ledger: genesis.Book()}
	forged := operator.Bundle("stranger", operator.ChangeBook(ledger.BookChange{Number: 2,
		Addition: &ledger.ShardAddition{Members: []ledger.Member{member(200)}}}))
	a.submit(0, forged)
	a.flush()
	a.expect(forged.ID(0), int(ledger.Unauthorised), int(ledger.Unauthorised),
		int(ledger.Unauthorised), int(ledger.Unauthorised))
	if len(a.shards) != 4 {
		t.Errorf("%d shards", len(a.shards))
	}
	a.checkEnd()
}

// The bound on shards counts those that were added.
func TestAdditionsAreBounded(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	added := make([]ledger.AddedShard, ledger.MaxShards-2)
	for i := range added {
		added[i].Members = []ledger.Member{ledgertest.Member(10 + i)}
	}
	next := ledger.ShardAddition{Members: []ledger.Member{ledgertest.Member(5000)}}
	if code := genesis.MayAdd(added, &next); code != ledger.TooManyShards {
		t.Errorf("one shard too many is %s", code)
	}
	if code := genesis.MayAdd(added[1:], &next); code != ledger.Applied {
		t.Errorf("the last shard is %s", code)
	}
	many := make([]ledger.Member, ledger.MaxMembers)
	for i := range many {
		many[i].Name = fmt.Sprint(i)
	}
	full := slices.Repeat([]ledger.AddedShard{{Members: many}},
		ledger.MaxShardedMembers/ledger.MaxMembers)
	if code := genesis.MayAdd(full, &next); code != ledger.TooManyShards {
		t.Errorf("a member too many is %s", code)
	}
}

// policied has organisation 2 ask for two signatures before shard 3 is added. It returns what shard
// 3 says on a transaction with one of them.
func policied(t *testing.T, fault state.Fault) int {
	a := newGrowing(t, fault)
	client := a.clients[2]
	policy := client.ChangePolicy(ledgertest.Policy(2, string(client.Organisation), "second"))
	a.submit(0, client.Bundle(policy))
	a.flush()
	a.addBelow(1)
	a.flush()
	joined := a.join(3)
	id := a.enter(a.deadlined(a.transfer(2, joined, 7)))
	a.flush()
	return a.result(3, id)
}

// The new shard knows the policies from before its addition.
func TestAdditionTakesPolicies(t *testing.T) {
	t.Parallel()
	if got := policied(t, state.FaultNone); got != int(ledger.TooFewSignatures) {
		t.Errorf("shard 3 says %s", ledger.Code(got))
	}
	if got := policied(t, state.FaultDirectoryShort); got == int(ledger.TooFewSignatures) {
		t.Error("the planted bug is not found")
	}
}

// mustFind tells the model's stories of a tree that grows, with a bug planted, until one of them
// shows the bug. stream makes their seeds differ from those of other tests.
func mustFind(t *testing.T, fault state.Fault, stream uint64, parents []ledger.ShardID) {
	t.Helper()
	for seed := range uint64(100) {
		found := ""
		func() {
			defer func() {
				if reason := recover(); reason != nil {
					found = fmt.Sprint(reason)
				}
			}()
			storyOf(func(format string, arguments ...any) {
				panic(fmt.Sprintf(format, arguments...))
			}, rand.New(rand.NewPCG(seed, stream)), parents, 1<<40, "", fault)
		}()
		if found != "" {
			t.Logf("seed %d: %s", seed, found)
			return
		}
	}
	t.Error("not found")
}

// The model finds each bug that is planted in additions within some seeds.
func TestAdditionModelFindsBugs(t *testing.T) {
	t.Parallel()
	for _, fault := range []state.Fault{state.FaultHomesGrow, state.FaultChildEarly,
		state.FaultChildLate} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			mustFind(t, fault, 3, []ledger.ShardID{0, 0, 1})
		})
	}
}

// A chain begins with the directory that its genesis names, and with no other.
func TestSeed(t *testing.T) {
	t.Parallel()
	a := newGrowing(t, state.FaultNone)
	a.addBelow(2)
	a.flush()
	c := a.shards[3]
	for name, seed := range map[string][]byte{"none": nil, "cut short": c.seed[:len(c.seed)-1],
		"longer": append(bytes.Clone(c.seed), 0)} {
		if _, err := state.Begin(c.genesis, seed); !errors.Is(err, state.ErrSeed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := state.New(c.genesis).Complete(nil); !errors.Is(err, state.ErrEntry) {
		t.Errorf("without a directory: %v", err)
	}
	if err := state.EachInSeed(a.shards[0].genesis, c.seed, nil); !errors.Is(err, state.ErrSeed) {
		t.Errorf("a shard of the genesis begins with a directory: %v", err)
	}
	decoded, err := ledger.DecodeGenesis(c.genesis.Encode())
	if err != nil || decoded.Hash() != c.genesis.Hash() || !reflect.DeepEqual(decoded, c.genesis) {
		t.Errorf("the genesis does not survive its encoding: %v", err)
	}
	file, err := json.Marshal(c.genesis)
	var again ledger.Genesis
	if err = errors.Join(err, json.Unmarshal(file, &again)); err != nil ||
		again.Hash() != c.genesis.Hash() {
		t.Errorf("the genesis does not survive its file: %v", err)
	}
}

// Whatever a genesis names as its directory, a chain begins with it or refuses it.
func TestAnySeed(t *testing.T) {
	t.Parallel()
	a := newGrowing(t, state.FaultNone)
	a.addBelow(2)
	a.flush()
	c := a.shards[3]
	random := rand.New(rand.NewPCG(5, 5))
	began := 0
	for range 3000 {
		seed := bytes.Clone(c.seed)
		for range random.IntN(3) {
			seed[random.IntN(len(seed))] ^= 1 << random.IntN(8)
		}
		if random.IntN(4) == 0 {
			seed = seed[:random.IntN(len(seed))]
		}
		genesis := *c.genesis
		genesis.Grown = slices.Clone(genesis.Grown)
		genesis.Grown[len(genesis.Grown)-1].Directory = ledger.SeedHash(seed)
		s, err := state.Begin(&genesis, seed)
		switch {
		case err == nil && s.ShardTree().Shards() != 4:
			t.Errorf("a chain of %d shards", s.ShardTree().Shards())
		case err == nil:
			began++
		case !errors.Is(err, state.ErrSeed) && !errors.Is(err, state.ErrEntry):
			t.Errorf("%v", err)
		}
	}
	t.Logf("%d began", began)
}
