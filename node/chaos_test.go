package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/trains"
)

// Environment variables of TestChaos: one seed to replay, or how many seeds to run from which, and
// how long to inject faults into each shard.
const (
	chaosSeed  = "LEDGERD_CHAOS_SEED"
	chaosSeeds = "LEDGERD_CHAOS_SEEDS"
	chaosFor   = "LEDGERD_CHAOS_FOR"
)

// TestChaos kills, stops, starts, cuts and mends nodes at random while clients submit, lets members
// join and leave, and changes the engine. Then everything is mended. Every node must order again by
// itself and hold the same chain. That chain must have every transaction acknowledged as durable,
// once, in its submitter's order.
func TestChaos(t *testing.T) {
	t.Parallel()
	shakeAll(t, "TestChaos", 4, "allconcur+", "allconcur")
}

// TestTrainsChaos is TestChaos for shards that order in a ring.
func TestTrainsChaos(t *testing.T) {
	t.Parallel()
	shakeAll(t, "TestTrainsChaos", 2, trains.EngineName)
}

// TestDAREChaos is TestChaos for shards whose engine has a leader.
func TestDAREChaos(t *testing.T) {
	t.Parallel()
	shakeAll(t, "TestDAREChaos", 2, dare.EngineName)
}

// shakeAll shakes shards, each with one of the engines, drawn by its seed.
func shakeAll(t *testing.T, name string, count uint64, engines ...string) {
	first := uint64(1)
	if testing.Short() {
		count = 1
	}
	if text := os.Getenv(chaosSeeds); text != "" {
		count, _ = strconv.ParseUint(text, 10, 64)
	}
	if text := os.Getenv(chaosSeed); text != "" {
		first, _ = strconv.ParseUint(text, 10, 64)
		if os.Getenv(chaosSeeds) == "" {
			count = 1
		}
	}
	length := 2 * time.Second
	if text := os.Getenv(chaosFor); text != "" {
		length, _ = time.ParseDuration(text)
	}
	for seed := first; seed < first+count; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("replay with: %s=%d %s=%v go test ./node -run '%s$' -count=1",
						chaosSeed, seed, chaosFor, length, name)
				}
			})
			shake(t, seed, length, engines)
		})
	}
}

// chaos is one shard under test.
type chaos struct {
	*shard
	random  *rand.Rand
	mu      sync.Mutex // guards the shard's nodes
	cuts    map[[2]int]bool
	clients []*submitter
	story   []string

	operator *ledgertest.Operator
	joining  *joining // its join is not known to be durable
	leaving  int      // its leave is not known to be durable; -1 for none
	engine   string   // its change is not known to be durable; "" for none
}

// joining is a node that wants to join.
type joining struct {
	dir    string
	member ledger.Member
}

// submitter is one organisation's client. It submits groups of bundles in order, and repeats each
// group until it is durable.
type submitter struct {
	chaos   *chaos
	client  *ledgertest.Client
	random  *rand.Rand
	durable []ledger.Hash
	sent    int64 // moved by acknowledged transfers
}

func shake(t *testing.T, seed uint64, length time.Duration, engines []string) {
	random := rand.New(rand.NewPCG(seed, 7))
	nodes := 3 + int(seed%3)
	engine := engines[random.IntN(len(engines))]
	c := &chaos{random: random, cuts: map[[2]int]bool{}, leaving: -1}
	c.shard = newShard(t, nodes, func(i int, config *home.Config) {
		config.Ordering.Engine = engine
		// Some nodes of every other shard log rounds.
		config.Ordering.LogRounds = engine == "allconcur+" && seed%2 == 0 && (i+int(seed))%3 > 0
		// All nodes of the others deliver promptly.
		config.Ordering.Prompt = engine == "allconcur+" && seed%2 == 1
		config.Ordering.Heartbeat, config.Ordering.SuspectAfter = 50*time.Millisecond,
			500*time.Millisecond
	})
	c.network = memory.NewNetwork(memory.Options{MendTimeout: 500 * time.Millisecond})
	c.operator = ledgertest.NewOperator(c.homes[0].Genesis)
	c.start(c.all()...)
	c.ordering(c.all()...)
	c.newest(c.operator)

	finish := make(chan struct{})
	var working sync.WaitGroup
	for k := range 3 {
		s := &submitter{chaos: c, client: ledgertest.NewClient(c.homes[0].Genesis,
			ledger.OrganisationName(fmt.Sprintf("org-%d", k))),
			random: rand.New(rand.NewPCG(seed, uint64(100+k)))}
		c.clients = append(c.clients, s)
		working.Go(func() { s.run(finish) })
	}
	for end := time.Now().Add(length); time.Now().Before(end); {
		c.step()
		<-time.After(time.Duration(random.IntN(300)) * time.Millisecond)
	}
	c.mend()
	t.Cleanup(func() {
		if t.Failed() {
			for _, line := range c.story {
				t.Log(line)
			}
		}
	})
	c.settleMembers()
	c.ordering(c.all()...)
	close(finish)
	working.Wait()
	c.same()
	for _, i := range c.all() {
		c.judge(c.nodes[i])
	}
	last := c.nodes[c.all()[0]]
	t.Logf("%d blocks, %d changes of the membership, %d generations, engine %s",
		last.Store().Head().Height, last.Store().Membership().Number,
		last.State().Engine.Generation, last.State().Engine.Engine)
}

func (c *chaos) tell(format string, arguments ...any) {
	c.story = append(c.story, fmt.Sprintf("%s n=%d ", time.Now().Format("05.000"),
		len(c.nodes))+fmt.Sprintf(format, arguments...))
}

// step injects one fault, or repairs one.
func (c *chaos) step() {
	i, j := c.random.IntN(len(c.nodes)), c.random.IntN(len(c.nodes))
	switch c.random.IntN(12) {
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
	case 3, 4, 5:
		if c.node(i) == nil && !c.gone[i] {
			c.tell("start %d", i)
			c.mu.Lock()
			c.start(i)
			c.mu.Unlock()
		}
	case 6:
		if i != j {
			c.tell("cut %d-%d", i, j)
			c.network.Cut(c.peers[i], c.peers[j])
			c.cuts[[2]int{i, j}] = true
		}
	case 7:
		for pair := range c.cuts {
			c.tell("mend %v", pair)
			c.network.Mend(c.peers[pair[0]], c.peers[pair[1]])
			delete(c.cuts, pair)
		}
	case 8:
		c.tell("cut off %d", i)
		for j := range c.nodes {
			if j != i {
				c.network.Cut(c.peers[i], c.peers[j])
				c.cuts[[2]int{i, j}] = true
			}
		}
	case 9:
		if c.joining == nil && len(c.nodes) < 7 {
			dir, member := c.candidate(len(c.nodes), 0)
			c.tell("join %s", member.Name)
			c.joining = &joining{dir, member}
		}
		c.change(j)
	case 10:
		if c.leaving < 0 && len(c.all()) > 3 && !c.gone[i] {
			c.tell("leave %d", i)
			c.leaving = i
		}
		c.change(j)
	case 11:
		if c.engine == "" {
			c.engine = []string{"allconcur+", "allconcur", "trains", "dare"}[c.random.IntN(4)]
			c.tell("the engine becomes %s", c.engine)
		}
		c.change(j)
	}
}

// change submits the operator's change to a node, and records once it is durable.
func (c *chaos) change(via int) {
	n := c.node(via)
	if n == nil {
		return
	}
	wanted := func(bundle *ledger.Bundle) bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if n.Admit(ctx, []*ledger.Bundle{bundle}, false)[0] != nil {
			return false
		}
		statuses, err := n.Wait(ctx, bundle.IDs(), report.LevelDurable)
		return err == nil && statuses[0].Level == report.LevelDurable &&
			(statuses[0].Outcome == report.OutcomeExecuted ||
				statuses[0].Result.Code == ledger.UnknownMember)
	}
	if c.joining != nil && wanted(c.operator.Join(c.joining.member)) {
		c.mu.Lock()
		i := c.admit(c.joining.dir, n.Store().Membership())
		c.mu.Unlock()
		c.joining = nil
		c.tell("%d joined", i)
	}
	if c.engine != "" && wanted(c.operator.ChangeEngine(c.engine)) {
		c.tell("the engine is %s", c.engine)
		c.engine = ""
	}
	if c.leaving >= 0 && c.leaving != via &&
		wanted(c.operator.Leave(ledger.MemberIndex(c.leaving))) {
		c.tell("%d left", c.leaving)
		if c.node(c.leaving) != nil {
			c.end(c.leaving, true)
		}
		c.mu.Lock()
		c.gone[c.leaving] = true
		c.mu.Unlock()
		c.leaving = -1
	}
}

// settleMembers finishes the operator's changes, with all nodes up.
func (c *chaos) settleMembers() {
	c.eventually("the operator's changes are durable", func() bool {
		for _, i := range c.all() {
			if n := c.node(i); n == nil {
				c.mu.Lock()
				c.start(i)
				c.mu.Unlock()
			} else if n.Err() != nil { // it ended because it was removed
				c.end(i, true)
			}
		}
		if c.joining == nil && c.leaving < 0 && c.engine == "" {
			return true
		}
		c.change(c.random.IntN(len(c.nodes)))
		return false
	})
	for _, i := range c.all() {
		if c.node(i) == nil {
			c.mu.Lock()
			c.start(i)
			c.mu.Unlock()
		}
	}
}

// end stops or kills a node. Clients stop using it first.
func (c *chaos) end(i int, killed bool) {
	c.mu.Lock()
	n := c.nodes[i]
	c.nodes[i] = nil
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if killed {
		c.network.Kill(c.peers[i])
		cancel()
	}
	if err := n.Stop(ctx); err != nil && !killed {
		c.tell("stop of node %d: %v", i, err)
	}
	// The fabric of a killed node is gone.
	if err := n.Err(); err != nil && !killed && !errors.Is(err, node.ErrRemoved) {
		c.t.Errorf("node %d ended by itself: %v", i, err)
	}
}

// mend repairs everything.
func (c *chaos) mend() {
	c.tell("mend all")
	for pair := range c.cuts {
		c.network.Mend(c.peers[pair[0]], c.peers[pair[1]])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, n := range c.nodes {
		if n == nil && !c.gone[i] {
			c.start(i)
		}
	}
}

// any returns a random node, or nil if that node is down.
func (c *chaos) any(random *rand.Rand) *node.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[random.IntN(len(c.nodes))]
}

func (c *chaos) node(i int) *node.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i]
}

func (s *submitter) run(finish <-chan struct{}) {
	if !s.settle(finish, s.client.Bundle(s.client.Register("a", "b"))) {
		return
	}
	for {
		select {
		case <-finish:
			return
		default:
		}
		var group []*ledger.Bundle
		for range 1 + s.random.IntN(4) {
			amount := 1 + s.random.Int64N(9)
			group = append(group, s.client.Bundle(s.client.Transfer(s.client.Account("a"),
				s.client.Account("b"), amount)))
			s.sent += amount
		}
		if !s.settle(finish, group...) {
			return
		}
	}
}

// settle submits a group in order, again and again, until all of it is durable.
func (s *submitter) settle(finish <-chan struct{}, group ...*ledger.Bundle) bool {
	var ids []ledger.Hash
	for _, bundle := range group {
		ids = append(ids, bundle.IDs()...)
	}
	deadline := time.Now().Add(90 * time.Second)
	for time.Now().Before(deadline) {
		n := s.chaos.any(s.random)
		if n == nil {
			<-time.After(time.Millisecond)
			continue
		}
		refused := false
		for _, refusal := range n.Admit(context.Background(), group, true) {
			if refusal != nil {
				refused = true
				// A node that was just cut off, and has not noticed yet, may not know the
				// organisation.
				if !refusal.Retry() && refusal.Code != report.RefusedUnknownOrganisation {
					state := n.State()
					s.chaos.t.Errorf("refused for good at node %d, mode %d (%s), %+v, %+v: %v",
						state.Index, state.Mode, state.Reason, state.Engine, state.Heights, refusal)
					return false
				}
			}
		}
		if refused {
			<-time.After(5 * time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		statuses, err := n.Wait(ctx, ids, report.LevelDurable)
		cancel()
		if err != nil {
			continue
		}
		for _, status := range statuses {
			if status.Outcome != report.OutcomeExecuted || status.Level != report.LevelDurable {
				s.chaos.t.Errorf("waited for durable, without an error, and got %+v", status)
				return false
			}
		}
		s.durable = append(s.durable, ids...)
		return true
	}
	s.chaos.t.Errorf("a group was not durable within %v", 90*time.Second)
	return false
}

// judge walks through a node's chain.
func (c *chaos) judge(n *node.Node) {
	opened := n.Store()
	places := map[ledger.Hash]int{}
	place, changes := 0, 0
	for height := ledger.Height(1); height <= opened.Head().Height; height++ {
		block, err := opened.Block(height)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, entry := range block.All() {
			place++
			if t := entry.Transaction(); t.Change != nil || t.Charter != nil {
				changes++
			}
			if places[entry.ID] != 0 {
				c.t.Fatalf("transaction %s is in the chain twice", entry.ID)
			}
			places[entry.ID] = place
		}
	}
	total := 0
	for _, s := range c.clients {
		last := 0
		for _, id := range s.durable {
			at := places[id]
			if at == 0 {
				c.t.Fatalf("transaction %s was acknowledged as durable and is not in the chain", id)
			}
			if at < last {
				c.t.Fatalf("transaction %s of %s is before one that was submitted earlier", id,
					s.client.Organisation)
			}
			last = at
		}
		total += len(s.durable)
		account, err := opened.Account(s.client.Account("b"))
		if err != nil {
			c.t.Fatalf("%s has no account: %v", s.client.Organisation, err)
		}
		if got := account.Balance(ledger.DefaultAsset); got.Compare(ledger.NewAmount(s.sent)) != 0 {
			c.t.Fatalf("%s holds %v, %d was moved", s.client.Organisation, got, s.sent)
		}
	}
	if total != place-changes {
		c.t.Fatalf("%d transactions in the chain, %d of them the operator's, %d were submitted",
			place, changes, total)
	}
}
