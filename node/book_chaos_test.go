package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// TestBookChaos injects faults into a book of several shards. It kills, stops and starts nodes and
// whole shards, and cuts and mends links within and between shards. Meanwhile organisations
// register, open accounts and pay each other across shards through any node's API. Then everything
// is mended. Waiting transactions must settle by themselves, and the judge of book_judge_test.go
// checks everything. One seed is cheap; the environment asks for more, as with TestChaos.
func TestBookChaos(t *testing.T) {
	t.Parallel()
	shakeBooks(t, "TestBookChaos", 1, engine.Default)
}

// TestDAREBookChaos is TestBookChaos in shards with leaders, of three members each to begin with.
func TestDAREBookChaos(t *testing.T) {
	t.Parallel()
	shakeBooks(t, "TestDAREBookChaos", 3, dare.EngineName)
}

// shakeBooks runs seeds of a test from first on, unless the environment names others.
func shakeBooks(t *testing.T, test string, first uint64, engineName string) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	count, length := uint64(1), 1200*time.Millisecond
	if text := os.Getenv(chaosSeeds); text != "" {
		count, _ = strconv.ParseUint(text, 10, 64)
	}
	if text := os.Getenv(chaosSeed); text != "" {
		first, _ = strconv.ParseUint(text, 10, 64)
	}
	if text := os.Getenv(chaosFor); text != "" {
		length, _ = time.ParseDuration(text)
	}
	for seed := first; seed < first+count; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("replay with: %s=%d %s=%v go test ./node -run '%s$' -count=1",
						chaosSeed, seed, chaosFor, length, test)
				}
			})
			shakeBook(t, seed, length, engineName)
		})
	}
}

// bookShapes are the tested books: the members per shard, and the parents of the shards.
var bookShapes = []struct {
	members int
	tree    []ledger.ShardID
}{
	{2, []ledger.ShardID{0, 0, 0}},
	{1, []ledger.ShardID{0, 0, 1}},
	{3, []ledger.ShardID{0, 0}},
	{1, []ledger.ShardID{0, 0}},
	{2, []ledger.ShardID{0, 0, 1}},
	{3, []ledger.ShardID{1, 1, 1}},
	{1, []ledger.ShardID{0, 0, 0}},
	{2, []ledger.ShardID{0, 0}},
	{3, []ledger.ShardID{2, 0, 2}},
}

// bookChaos is a book under test.
type bookChaos struct {
	*chaos
	book   *book
	payers []*payer

	known sync.Mutex // guards the fields below
	open  []*payer   // those that have accounts
	told  []acknowledged
	sent  map[ledger.Hash]*ledger.Transaction
	early map[ledger.Hash]bool // paid to organisations that may not be registered yet
	done  []*ledger.Bundle     // decided
}

// Payers' time limits: for a try at one node, and for all tries together.
const (
	tryTime   = 3 * time.Second
	payerTime = 90 * time.Second
)

func shakeBook(t *testing.T, seed uint64, length time.Duration, engineName string) {
	random := rand.New(rand.NewPCG(seed, 11))
	shape := bookShapes[(seed-1)%uint64(len(bookShapes))]
	b := newBook(t, shape.members, shape.tree...)
	for _, home := range b.homes {
		home.Config.Ordering.Engine = engineName
		home.Config.Ordering.Heartbeat, home.Config.Ordering.SuspectAfter = 50*time.Millisecond,
			500*time.Millisecond
	}
	b.network = memory.NewNetwork(memory.Options{MendTimeout: 500 * time.Millisecond})
	c := &bookChaos{chaos: &chaos{shard: b.shard, random: random, cuts: map[[2]int]bool{},
		leaving: -1}, book: b, sent: map[ledger.Hash]*ledger.Transaction{},
		early: map[ledger.Hash]bool{}}
	t.Cleanup(func() {
		if t.Failed() {
			c.describe()
		}
	})
	b.start(b.all()...)
	c.allOrdering()

	finish := make(chan struct{})
	var working, ready sync.WaitGroup
	defer working.Wait()
	ending := sync.OnceFunc(func() { close(finish) })
	defer ending()
	for k := range 2*len(shape.tree) + 1 {
		c.payers = append(c.payers, c.newPayer(k, seed))
	}
	for _, p := range c.payers[:len(shape.tree)] { // one of each shard before any fault
		ready.Go(func() { p.enter() })
	}
	ready.Wait()
	for _, p := range c.payers {
		working.Go(func() { p.run(finish) })
	}
	working.Go(func() { c.watch(finish, seed) })
	pause := 300 * (1 + int(seed%4))
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		c.step()
		<-time.After(time.Duration(random.IntN(pause)) * time.Millisecond)
	}
	c.mend()
	c.allOrdering()
	ending()
	working.Wait()
	c.last()
	c.quiet()
	found := c.evidence()
	if err := found.judge(); err != nil {
		t.Fatal(err)
	}
	for name, plant := range plants {
		if spoiled := c.evidence(); !plant(spoiled) {
			t.Errorf("nothing to spoil: %s", name)
		} else if err := spoiled.judge(); err == nil {
			t.Errorf("the judge lets pass: %s", name)
		}
	}
	c.verify()
	aside := 0
	for _, home := range b.homes {
		folders, _ := filepath.Glob(home.Data() + ".rolled-back-*")
		aside += len(folders)
	}
	t.Logf("%d nodes a shard, tree %v: %s; %d chains set aside", shape.members, shape.tree,
		found, aside)
}

// step injects a fault, or repairs some.
func (c *bookChaos) step() {
	i, j := c.random.IntN(len(c.nodes)), c.random.IntN(len(c.nodes))
	from, to := c.random.IntN(len(c.book.tree)), c.random.IntN(len(c.book.tree))
	switch c.random.IntN(15) {
	case 0, 1:
		if c.node(i) != nil {
			c.tell("kill %d", i)
			c.end(i, true)
		}
	case 2:
		if c.node(i) != nil {
			c.tell("stop %d", i)
			c.end(i, false)
		}
	case 3, 4, 5, 6:
		for i := range c.nodes {
			if c.node(i) == nil {
				c.tell("start %d", i)
				c.mu.Lock()
				c.start(i)
				c.mu.Unlock()
				if c.random.IntN(2) == 0 {
					break
				}
			}
		}
	case 7:
		killed := c.random.IntN(2) == 0
		c.tell("end shard %d, killed %v", from, killed)
		for _, i := range c.book.of(from) {
			if c.node(i) != nil {
				c.end(i, killed)
			}
		}
	case 8:
		if i != j {
			c.tell("cut %d-%d", i, j)
			c.cut(i, j)
		}
	case 9, 10:
		c.tell("mend %v", c.cuts)
		for pair := range c.cuts {
			c.network.Mend(c.peers[pair[0]], c.peers[pair[1]])
			delete(c.cuts, pair)
		}
	case 11:
		c.tell("cut off %d", i)
		for j := range c.nodes {
			if j != i {
				c.cut(i, j)
			}
		}
	case 12:
		if i == j { // seldom
			c.tell("end all nodes")
			c.endAll(true)
		}
	case 13, 14:
		if from != to {
			c.tell("cut shard %d-%d", from, to)
			for _, i := range c.book.of(from) {
				for _, j := range c.book.of(to) {
					c.cut(i, j)
				}
			}
		}
	}
}

// endAll ends all nodes.
func (c *bookChaos) endAll(killed bool) {
	for i := range c.nodes {
		if c.node(i) != nil {
			c.end(i, killed)
		}
	}
}

func (c *bookChaos) cut(i, j int) {
	c.network.Cut(c.peers[i], c.peers[j])
	c.cuts[[2]int{i, j}] = true
}

// allOrdering waits until all nodes of each shard order together.
func (c *bookChaos) allOrdering() {
	for shard := range c.book.tree {
		c.ordering(c.book.of(shard)...)
	}
}

// quiet waits until nothing is under way: all nodes of a shard hold one chain, which is durable and
// has all of its parent's stream, and no transaction waits.
func (c *bookChaos) quiet() {
	c.eventually("everything settles", func() bool {
		tree := c.nodes[0].Store().ShardTree()
		for shard := range c.book.tree {
			first := c.nodes[c.book.of(shard)[0]].Store()
			for _, i := range c.book.of(shard) {
				opened, heights := c.nodes[i].Store(), c.nodes[i].State().Heights
				if opened.Head().Hash != first.Head().Hash || opened.PendingCount() > 0 ||
					heights.Durable != opened.Head().Height {
					return false
				}
			}
			if parent, below := tree.Parent(ledger.ShardID(shard)); below {
				if c.nodes[c.book.of(int(parent))[0]].Store().Streamed(ledger.ShardID(shard)) !=
					first.Carried() {
					return false
				}
			}
		}
		return true
	})
}

// verify stops all nodes and executes each chain again from the genesis.
func (c *bookChaos) verify() {
	whole := map[ledger.ShardID]bool{}
	for i, home := range c.homes {
		c.stop(i)
		_, err := store.Verify(c.t.Context(), home.Data(), home.Genesis, c.store, nil)
		switch {
		case err == nil:
			whole[home.Genesis.Shard] = true
		case !errors.Is(err, store.ErrAbsent):
			c.t.Errorf("node %d: %v", i, err)
		}
	}
	if len(whole) < len(c.book.tree) {
		c.t.Errorf("the whole chain is with somebody in the shards %v only", whole)
	}
}

// describe logs the faults that led to the failure.
func (c *bookChaos) describe() {
	for _, line := range c.story {
		c.t.Log(line)
	}
	for i := range c.nodes {
		if n := c.node(i); n != nil {
			state, opened := n.State(), n.Store()
			c.t.Logf("node %d of shard %d: mode %d (%s), %+v, carried %d, waiting %+v",
				i, opened.Shard(), state.Mode, state.Reason, state.Heights, opened.Carried(),
				opened.Pending())
			for _, child := range opened.ShardTree().Children(opened.Shard()) {
				c.t.Logf("node %d streamed %d to shard %d", i, opened.Streamed(child), child)
			}
		}
	}
}

// acknowledged is the final answer that a client got for a transaction.
type acknowledged struct {
	id     ledger.Hash
	state  ledgerdv1.TransactionState // durable, failed or expired
	reason string
	// foreseen says that a node refused it because it was certain to fail, so no block needs to
	// have it.
	foreseen bool
}

// payer is an organisation. It registers, opens accounts, and pays others that have accounts.
type payer struct {
	chaos  *bookChaos
	client *ledgertest.Client
	// registrations compete, and exactly one of them must win.
	registrations []ledger.Registration
	random        *rand.Rand
	entered       bool
}

// gold is an asset besides the default one.
const gold = ledger.AssetName("gold")

func (c *bookChaos) newPayer(k int, seed uint64) *payer {
	shards := len(c.book.tree)
	p := &payer{
		chaos: c, client: ledgertest.NewClient(c.homes[0].Genesis,
			ledger.OrganisationName(fmt.Sprintf("payer-%d", k))),
		random: rand.New(rand.NewPCG(seed, uint64(100+k))),
	}
	registration := p.client.Register().Registrations[0]
	if k < shards || k%2 == 0 {
		registration.Pinned, registration.Shard = true, ledger.ShardID(k%shards)
	}
	p.registrations = []ledger.Registration{registration}
	if k >= shards && k%3 > 0 { // registrations with different homes compete
		registration.Pinned, registration.Shard = true, ledger.ShardID((k+1)%shards)
		p.registrations = append(p.registrations, registration)
	}
	return p
}

// enter registers the organisation, opens its accounts issuer, a and b, and pays 100 of each asset
// from the issuer to a.
func (p *payer) enter() bool {
	var registering sync.WaitGroup
	for _, registration := range p.registrations {
		t := p.client.Next()
		t.Registrations = []ledger.Registration{registration}
		registering.Go(func() { p.settle(t) })
	}
	registering.Wait()
	opening := p.client.Next()
	for _, name := range []string{"issuer", "a", "b"} {
		opening.Openings = append(opening.Openings, ledger.Opening{Account: p.client.Account(name),
			Issuer: name == "issuer"})
	}
	funding := p.client.Next()
	for _, asset := range []ledger.AssetName{ledger.DefaultAsset, gold} {
		funding.Postings = append(funding.Postings,
			move(p.client.Account("issuer"), p.client.Account("a"), asset, 100)...)
	}
	if !p.settle(opening, funding) {
		return false
	}
	p.entered = true
	p.chaos.known.Lock()
	defer p.chaos.known.Unlock()
	p.chaos.open = append(p.chaos.open, p)
	return true
}

func move(from, to ledger.AccountPath, asset ledger.AssetName, amount int64) []ledger.Posting {
	return []ledger.Posting{{Account: from, Asset: asset, Amount: ledger.NewAmount(-amount)},
		{Account: to, Asset: asset, Amount: ledger.NewAmount(amount)}}
}

func (p *payer) run(finish <-chan struct{}) {
	if !p.entered && !p.enter() {
		return
	}
	for !p.chaos.t.Failed() {
		select {
		case <-finish:
			return
		default:
		}
		var group sync.WaitGroup
		var all []ledger.Transaction
		for range 1 + p.random.IntN(4) {
			var bundle []ledger.Transaction
			for range 1 + p.random.IntN(2) {
				bundle = append(bundle, p.payment())
			}
			all = append(all, bundle...)
			group.Go(func() { p.settle(bundle...) })
		}
		// also together with others, with which it may enter at another shard
		if p.random.IntN(3) == 0 {
			p.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			company := all[:1+p.random.IntN(len(all))]
			group.Go(func() { p.settle(company...) })
		}
		if p.random.IntN(4) == 0 {
			group.Go(p.again)
		}
		group.Wait()
	}
}

// payment returns a random payment.
func (p *payer) payment() ledger.Transaction {
	other, third := p.somebody(), p.somebody()
	asset := []ledger.AssetName{ledger.DefaultAsset, ledger.DefaultAsset, gold}[p.random.IntN(3)]
	amount := 1 + p.random.Int64N(40)
	from, to := p.client.Account("a"), other.client.Account([]string{"a", "b"}[p.random.IntN(2)])
	t := p.client.Next()
	switch p.random.IntN(15) {
	case 0: // more than the account has
		amount = 1_000_000
	case 1:
		from = p.client.Account("issuer")
	case 2: // back from account b, which pays nothing else
		from = p.client.Account("b")
	case 3:
		to = other.client.Account("nobody")
	case 4: // others pay as well, so it concerns three shards
		t.Postings = append(t.Postings, move(third.client.Account("a"), other.client.Account("b"),
			gold, amount)...)
	case 5, 6: // with a record of each side
		for _, writer := range slices.Compact([]*payer{p, other}) {
			t.Records = append(t.Records, ledger.Record{
				Key:   ledger.RecordKey(writer.client.Account("last")),
				Value: fmt.Appendf(nil, "%s %d", p.client.Organisation, t.Nonce.Sequence)})
		}
	case 7:
		// any node's height is not far from that of its home
		if n := p.chaos.any(p.random); n != nil {
			t.LastValid = n.Store().Head().Height + ledger.Height(p.random.IntN(20))
		}
	case 8: // to an organisation that may not be registered yet
		to = p.chaos.payers[p.random.IntN(len(p.chaos.payers))].client.Account("a")
	case 9: // registered again, or with another home
		registration := p.registrations[0]
		registration.Shard = (registration.Shard + ledger.ShardID(
			p.random.IntN(2))) % ledger.ShardID(len(p.chaos.book.tree))
		registration.Pinned = registration.Pinned || registration.Shard > 0
		t.Registrations = []ledger.Registration{registration}
		return t
	}
	t.Postings = append(t.Postings, move(from, to, asset, amount)...)
	t.Deadline = soon(time.Hour)
	if p.random.IntN(8) == 0 { // over before the last of its shards executes it, or even the first
		t.Deadline = soon(time.Duration(p.random.IntN(100)) * time.Millisecond)
	}
	return t
}

// soon returns a time of blocks to come.
func soon(ahead time.Duration) ledger.Milliseconds {
	return ledger.Milliseconds(time.Now().Add(ahead).UnixMilli())
}

func (p *payer) somebody() *payer {
	p.chaos.known.Lock()
	defer p.chaos.known.Unlock()
	return p.chaos.open[p.random.IntN(len(p.chaos.open))]
}

// settle submits a bundle to various nodes until the book has its final outcome. It gives up a
// bundle that may expire when a node reports it as expired.
func (p *payer) settle(transactions ...ledger.Transaction) bool {
	c := p.chaos
	return c.decide(c.signed(transactions),
		slices.ContainsFunc(transactions, func(t ledger.Transaction) bool {
			return t.LastValid > 0 || t.Deadline > 0
		}))
}

// again submits a decided bundle once more. Its outcome must not change.
func (p *payer) again() {
	p.chaos.known.Lock()
	bundle := p.chaos.done[p.random.IntN(len(p.chaos.done))]
	p.chaos.known.Unlock()
	p.chaos.decide(bundle, true)
}

func (c *bookChaos) decide(bundle *ledger.Bundle, expires bool) bool {
	for deadline := time.Now().Add(payerTime); time.Now().Before(deadline) && !c.t.Failed(); {
		statuses, err := c.try(bundle)
		switch code := client.CodeOf(err); {
		case err == nil:
			c.known.Lock()
			for i, status := range statuses {
				c.told = append(c.told, acknowledged{bundle.ID(i), status.GetState(),
					status.GetReasonCode(), status.GetHeight() == 0})
			}
			c.done = append(c.done, bundle)
			c.known.Unlock()
			return true
		case code == connect.CodeInvalidArgument || code == connect.CodePermissionDenied:
			c.t.Errorf("refused for good: %v", err)
			return false
		case code == connect.CodeFailedPrecondition && expires:
			return true
		}
		<-time.After(5 * time.Millisecond)
	}
	if c.t.Failed() {
		return false
	}
	c.t.Errorf("transaction %s of %s was not decided within %v", bundle.ID(0),
		bundle.Transaction(0).Signer, payerTime)
	return false
}

// signed signs for all organisations whose consent is needed, and records the transactions.
func (c *bookChaos) signed(transactions []ledger.Transaction) *ledger.Bundle {
	bundle, err := ledger.NewBundle(transactions...)
	if err != nil {
		panic(err)
	}
	var signers []ledger.OrganisationName
	for i := range transactions {
		signers = append(signers, transactions[i].Signer)
		for _, posting := range transactions[i].Postings {
			if posting.Amount.Sign() < 0 {
				signers = append(signers, posting.Account.Organisation())
			}
		}
		for _, record := range transactions[i].Records {
			signers = append(signers, record.Key.Organisation())
		}
	}
	slices.Sort(signers)
	for _, signer := range slices.Compact(signers) {
		if err := bundle.Sign(signer, ledgertest.Key(string(signer))); err != nil {
			panic(err)
		}
	}
	c.known.Lock()
	defer c.known.Unlock()
	for i := range transactions {
		c.sent[bundle.ID(i)] = &transactions[i]
		c.early[bundle.ID(i)] = slices.ContainsFunc(transactions[i].Postings,
			func(posting ledger.Posting) bool {
				return !slices.ContainsFunc(c.open, func(p *payer) bool {
					return p.client.Organisation == posting.Account.Organisation()
				})
			})
	}
	return bundle
}

// errNobody reports that the randomly chosen node is down.
var errNobody = errors.New("nobody is there")

// someNode returns a client of a random node's API.
func (c *bookChaos) someNode() (*client.Client, error) {
	c.mu.Lock()
	n := c.nodes[rand.IntN(len(c.nodes))]
	c.mu.Unlock()
	if n == nil {
		return nil, errNobody
	}
	return client.New([]string{n.URL()}, client.Options{Tries: 1, WaitTime: tryTime,
		CallTime: tryTime})
}

// try submits a bundle to a random node.
func (c *bookChaos) try(bundle *ledger.Bundle) ([]*ledgerdv1.TransactionStatus, error) {
	at, err := c.someNode()
	if err != nil {
		return nil, err
	}
	defer at.Close()
	ctx, cancel := context.WithTimeout(context.Background(), tryTime)
	defer cancel()
	return at.Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE)
}

// watch asks nodes for outcomes that other nodes reported, and compares.
func (c *bookChaos) watch(finish <-chan struct{}, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 99))
	for {
		select {
		case <-finish:
			return
		case <-time.After(time.Duration(10+random.IntN(40)) * time.Millisecond):
		}
		c.known.Lock()
		if len(c.told) == 0 {
			c.known.Unlock()
			continue
		}
		asked := c.told[random.IntN(len(c.told))]
		c.known.Unlock()
		at, err := c.someNode()
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), tryTime)
		shown, err := at.Transaction(ctx, asked.id)
		cancel()
		at.Close()
		if err != nil {
			continue
		}
		executed := asked.state == ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE
		for _, place := range shown.GetPlaces() {
			if executed && place.GetState() == "refused" || !executed &&
				place.GetState() == "settled" {
				c.t.Errorf("what a client was told: %v; what another node shows: %v", asked, shown)
			}
		}
	}
}

// last makes a valid payment across shards, an invalid one, and a few more, so that the judge has
// something to judge.
func (c *bookChaos) last() {
	for k, from := range c.payers[:len(c.book.tree)] {
		to := c.payers[(k+1)%len(c.book.tree)]
		for _, amount := range []int64{3, 1_000_000} {
			payment := from.client.Next()
			payment.Deadline = soon(time.Hour)
			source := from.client.Account("issuer")
			if amount > 100 {
				source = from.client.Account("b")
			}
			payment.Postings = move(source, to.client.Account("b"), ledger.DefaultAsset, amount)
			payment.Records = []ledger.Record{{Key: ledger.RecordKey(from.client.Account("last")),
				Value: []byte("last")}}
			from.settle(payment)
		}
	}
}
