package certification

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// patience bounds the waits of these tests.
const patience = 30 * time.Second

// group is a group of members, each with a store and a certifier, whose chains a test extends.
type group struct {
	t       *testing.T
	genesis *ledger.Genesis
	client  *ledgertest.Client
	nodes   []*testNode
	round   ledger.Round
	late    bool // blocks are not yet known to be durable
}

type testNode struct {
	group     *group
	index     ledger.MemberIndex
	store     *store.Store
	certifier *Certifier

	mu      sync.Mutex
	cut     bool // statements to and from it are lost, and it cannot be asked
	found   []*ledger.Evidence
	forked  []*ledger.Evidence
	fetches int
}

func newGroup(t *testing.T, members int) *group {
	g := &group{t: t, genesis: ledgertest.OperatedGenesis(members)}
	g.client = ledgertest.NewClient(g.genesis, "acme")
	for i := range members {
		g.add(i)
	}
	for _, n := range g.nodes {
		n.certifier.Start()
		t.Cleanup(n.certifier.Close)
	}
	return g
}

func (g *group) add(i int) *testNode {
	opened, err := store.Open(filepath.Join(g.t.TempDir(), "data"), g.genesis,
		store.Options{MemTableBytes: 1 << 20})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = opened.Close() })
	n := &testNode{group: g, index: ledger.MemberIndex(i), store: opened}
	n.certifier = New(Config{Self: n.index, Key: ledgertest.Key(ledgertest.Member(i).Name),
		Chain: func() Chain { return opened }, Send: n.send, Fetch: n.fetch,
		Found: func(e *ledger.Evidence) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.found = append(n.found, e)
		},
		Forked: func(e *ledger.Evidence) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.forked = append(n.forked, e)
		},
		Logger: slog.New(slog.DiscardHandler)})
	g.nodes = append(g.nodes, n)
	return n
}

func (n *testNode) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

func (n *testNode) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

func (n *testNode) send(statement []byte) {
	for _, other := range n.group.nodes {
		if other != n && !n.isCut() && !other.isCut() {
			other.certifier.Heard(n.index, bytes.Clone(statement))
		}
	}
}

func (n *testNode) fetch(_ context.Context, above ledger.Height) ([]*ledger.Certificate, error) {
	n.mu.Lock()
	n.fetches++
	n.mu.Unlock()
	for _, other := range n.group.nodes {
		if other != n && !n.isCut() && !other.isCut() && other.store.CertifiedHeight() > above {
			return other.store.Certificates(above, 1<<20)
		}
	}
	return nil, errors.New("nobody has more")
}

// apply executes a round with bundles at these nodes, and makes it durable.
func (g *group) apply(bundles []*ledger.Bundle, at ...*testNode) *ledger.Block {
	g.t.Helper()
	g.round += ledger.ChangeRounds
	var block *ledger.Block
	for _, n := range at {
		var err error
		if block, err = n.store.Apply(1, g.round,
			[][]byte{ledgertest.Batch(1, bundles...)}); err != nil {
			g.t.Fatal(err)
		}
		if err := n.store.Sync(); err != nil {
			g.t.Fatal(err)
		}
		if !g.late {
			n.store.RecordDurable(block.Header.Height)
		}
		n.certifier.Progressed()
	}
	return block
}

// transfer extends the chains of these nodes by a block.
func (g *group) transfer(at ...*testNode) *ledger.Block {
	g.t.Helper()
	if g.client.Sequence == 0 {
		g.apply([]*ledger.Bundle{g.client.Bundle(g.client.Register("issuer", "a"))}, at...)
	}
	return g.apply([]*ledger.Bundle{g.client.Bundle(g.client.Transfer("acme:issuer", "acme:a", 1))},
		at...)
}

// await waits for a condition.
func (g *group) await(what string, is func() bool) {
	g.t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			g.t.Fatalf("%s: not in %v", what, patience)
		}
	}
}

// final checks that a node proves its block at a height from the genesis.
func (n *testNode) final(height ledger.Height) {
	n.group.t.Helper()
	finality, err := n.store.Finality(height)
	if err != nil {
		n.group.t.Fatalf("node %d: %v", n.index, err)
	}
	_, hash, err := n.store.Header(height)
	if err != nil {
		n.group.t.Fatal(err)
	}
	if err := ledger.NewAuditor(n.group.genesis).Verify(finality, height, hash); err != nil {
		n.group.t.Errorf("node %d: block %d: %v", n.index, height, err)
	}
}

func TestRestIsCertified(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	last := g.transfer(g.nodes...).Header.Height
	for _, n := range g.nodes {
		g.await("a certificate", func() bool { return n.store.CertifiedHeight() == last })
		n.final(1)
		n.final(last)
	}
}

// TestCalm checks which progress of a moving chain wakes the certifier: a checkpoint that is
// durable, a change of the members, a block of which another member made a statement, and another
// chain.
func TestCalm(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before func(g *group, other *testNode) // the certifier looks after this
		wakes  func(g *group, both ...*testNode)
	}{
		"a checkpoint": {wakes: func(g *group, both ...*testNode) {
			for g.transfer(both...).Header.Height < CheckpointEvery {
				g.calm(true)
			}
		}},
		"a change": {wakes: func(g *group, both ...*testNode) {
			operator := ledgertest.NewOperator(g.genesis)
			g.apply([]*ledger.Bundle{operator.Join(ledgertest.Member(3))}, both...)
		}},
		"a change becomes durable": {
			before: func(g *group, _ *testNode) {
				operator := ledgertest.NewOperator(g.genesis)
				g.late = true
				g.apply([]*ledger.Bundle{operator.Join(ledgertest.Member(3))}, g.nodes...)
				g.late = false
			},
			wakes: func(g *group, both ...*testNode) {
				for _, n := range both {
					n.store.RecordDurable(n.store.AppendedHeight())
					n.certifier.Progressed()
				}
			},
		},
		"a statement": {
			before: func(g *group, other *testNode) {
				last := g.transfer(other).Header.Height // the other one is ahead by two blocks
				_, hash, err := other.store.Header(last)
				if err != nil {
					g.t.Fatal(err)
				}
				members := other.store.MembersAt(last)
				s := ledger.SignStatement(other.certifier.config.Key, members.Chain, other.index,
					members.Epoch, last, hash)
				g.nodes[0].certifier.hear(heard{other.index, s.Encode()})
			},
			wakes: func(g *group, both ...*testNode) {
				g.client.Sequence, g.round = 0, 0
				g.transfer(both[0])
			},
		},
		"another chain": {wakes: func(g *group, both ...*testNode) {
			both[0].certifier.config.Chain = func() Chain { return both[1].store }
			both[0].certifier.Progressed()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &group{t: t, genesis: ledgertest.OperatedGenesis(3)}
			g.client = ledgertest.NewClient(g.genesis, "acme")
			first, other := g.add(0), g.add(1) // none is started
			first.certifier.look()
			if test.before != nil {
				test.before(g, other)
			}
			c := first.certifier
			for g.woken() {
			}
			c.look()
			c.calmDown()
			c.Progressed()
			g.calm(true)
			test.wakes(g, first, other)
			g.calm(false)
			if c.look(); c.calm.Load() != nil {
				t.Error("progress after a look does not wake the certifier")
			}
		})
	}
}

// woken reports whether the first node's certifier was woken, and takes the token.
func (g *group) woken() bool {
	select {
	case <-g.nodes[0].certifier.wake:
		return true
	default:
		return false
	}
}

// calm checks whether progress woke the first node's certifier.
func (g *group) calm(want bool) {
	g.t.Helper()
	if g.woken() == want {
		g.t.Fatalf("at block %d the certifier was woken: %v", g.nodes[0].store.AppendedHeight(),
			want)
	}
}

// TestMembersCertifyTheirChanges follows a join and a leave.
func TestMembersCertifyTheirChanges(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	g.transfer(g.nodes...)
	operator := ledgertest.NewOperator(g.genesis)
	g.apply([]*ledger.Bundle{operator.Join(ledgertest.Member(3))}, g.nodes...)
	g.transfer(g.nodes...)
	g.apply([]*ledger.Bundle{operator.Leave(0)}, g.nodes...)
	last := g.transfer(g.nodes[1:]...).Header.Height
	for _, n := range g.nodes[1:] {
		g.await("a certificate by members 1 and 2", func() bool {
			return n.store.CertifiedHeight() == last
		})
		for height := range last {
			n.final(height + 1)
		}
	}
	certificate, err := g.nodes[1].store.Certificate(last)
	if err != nil || certificate.Epoch != 2 {
		t.Fatalf("%+v, %v", certificate, err)
	}
}

// TestMinorityCertifiesNothing cuts off two of three members.
func TestMinorityCertifiesNothing(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	g.nodes[1].setCut(true)
	g.nodes[2].setCut(true)
	last := g.transfer(g.nodes...).Header.Height
	g.await("a repeated question", func() bool {
		g.nodes[0].mu.Lock()
		defer g.nodes[0].mu.Unlock()
		return g.nodes[0].fetches > 0
	})
	if at := g.nodes[0].store.CertifiedHeight(); at != 0 {
		t.Fatalf("one of three members certified block %d", at)
	}
	g.nodes[1].setCut(false)
	g.await("a certificate by repeated statements", func() bool {
		return g.nodes[0].store.CertifiedHeight() == last
	})
	g.nodes[0].final(last)
	// Member 2 hears none of the statements. It asks for the certificate.
	g.nodes[2].setCut(false)
	g.await("a certificate that was passed on", func() bool {
		return g.nodes[2].store.CertifiedHeight() == last
	})
	g.nodes[2].final(last)
}

// TestOnlyDurableBlocksAreStated keeps a block from being durable.
func TestOnlyDurableBlocksAreStated(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	n := g.nodes[0]
	durable := g.transfer(n).Header.Height
	g.await("a certificate", func() bool { return n.store.CertifiedHeight() == durable })
	g.round++
	if _, err := n.store.Apply(1, g.round, [][]byte{ledgertest.Batch(1,
		g.client.Bundle(g.client.Transfer("acme:issuer", "acme:a", 1)))}); err != nil {
		t.Fatal(err)
	}
	if err := n.store.Sync(); err != nil {
		t.Fatal(err)
	}
	c := New(n.certifier.config)
	c.look()
	c.moved = c.moved.Add(-restAfter)
	c.look()
	if at := n.store.CertifiedHeight(); at != durable || c.signed != durable {
		t.Fatalf("block %d was stated, and %d is the last one that a majority has", c.signed,
			durable)
	}
	n.store.RecordDurable(durable + 1)
	c.look()
	if at := n.store.CertifiedHeight(); at != durable+1 {
		t.Fatalf("block %d is durable, and was not stated", durable+1)
	}
	// The disks of the others have the next block, and the own one does not.
	g.round++
	if _, err := n.store.Apply(1, g.round, [][]byte{ledgertest.Batch(1,
		g.client.Bundle(g.client.Transfer("acme:issuer", "acme:a", 1)))}); err != nil {
		t.Fatal(err)
	}
	n.store.RecordDurable(durable + 2)
	c.look()
	c.moved = c.moved.Add(-restAfter)
	if c.look(); c.signed != durable+1 {
		t.Fatalf("block %d was stated, and is not on the own disk", c.signed)
	}
}

// statement returns what a member would say of a block.
func (g *group) statement(member int, epoch ledger.MembersEpoch, height ledger.Height,
	hash ledger.Hash) []byte {
	s := ledger.SignStatement(ledgertest.Key(ledgertest.Member(member).Name), g.genesis.Hash(),
		ledger.MemberIndex(member), epoch, height, hash)
	return s.Encode()
}

// TestLiars sends what correct members do not say.
func TestLiars(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 5)
	n := g.nodes[0]
	for _, other := range g.nodes[1:] {
		other.setCut(true)
	}
	last := g.transfer(n).Header.Height
	_, hash, err := n.store.Header(last)
	if err != nil {
		t.Fatal(err)
	}
	forged := g.statement(2, 0, last, hash)
	forged[len(forged)-1] ^= 1
	for range 3 {
		n.certifier.Heard(1, g.statement(1, 0, last, hash)) // one member counts once
		n.certifier.Heard(1, g.statement(2, 0, last, hash)) // for another member
		n.certifier.Heard(2, forged)
		n.certifier.Heard(3, g.statement(3, 1, last, hash)) // of an epoch that is not
		n.certifier.Heard(3, []byte("nonsense"))
		n.certifier.Heard(4, g.statement(4, 0, last+aheadMax+1, hash))
	}
	n.certifier.Heard(3, g.statement(3, 0, last, ledger.Hash{9})) // two stories
	g.await("evidence", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.found) > 0
	})
	if at := n.store.CertifiedHeight(); at != 0 {
		t.Fatalf("lies certified block %d", at)
	}
	n.certifier.Heard(2, g.statement(2, 0, last, hash))
	g.await("a certificate of three of five", func() bool {
		return n.store.CertifiedHeight() == last
	})
	certificate, err := n.store.Certificate(last)
	if err != nil {
		t.Fatal(err)
	}
	var members []ledger.MemberIndex
	for _, seal := range certificate.Seals {
		members = append(members, seal.Member)
	}
	if !slices.Equal(members, []ledger.MemberIndex{0, 1, 2}) {
		t.Errorf("signed by %v", members)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.forked) > 0 {
		t.Error("one liar raised the alarm")
	}
}

// TestFork has a majority certify another block than a durable one.
func TestFork(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	n := g.nodes[0]
	for _, other := range g.nodes[1:] {
		other.setCut(true)
	}
	last := g.transfer(n).Header.Height
	early := ledger.Hash{8}
	n.certifier.Heard(1, g.statement(1, 0, last, early))
	n.certifier.Heard(2, g.statement(2, 0, last, early))
	g.await("the alarm", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.forked) > 0
	})
	kept, err := n.store.Evidence()
	if err != nil || len(kept) == 0 || kept[0].Height() != last {
		t.Fatalf("%v, %v", kept, err)
	}
}

// TestForkSeenLate has the statements arrive before the block.
func TestForkSeenLate(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	n := g.nodes[0]
	for _, other := range g.nodes[1:] {
		other.setCut(true)
	}
	n.certifier.Heard(1, g.statement(1, 0, 2, ledger.Hash{8}))
	n.certifier.Heard(2, g.statement(2, 0, 2, ledger.Hash{8}))
	g.transfer(n) // blocks 1 and 2
	g.await("the alarm", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.forked) > 0
	})
}

// TestPassedOnCertificatesAreVerified has a peer pass on a certificate that too few signed, and one
// of other members.
func TestPassedOnCertificatesAreVerified(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	n := g.nodes[0]
	for _, other := range g.nodes[1:] {
		other.setCut(true)
	}
	last := g.transfer(n)
	c := New(n.certifier.config)
	c.chain = n.store
	for _, certificate := range []*ledger.Certificate{
		ledgertest.Certificate(g.genesis, 0, last, 1),
		ledgertest.Certificate(g.genesis, 0, last, 1, 4),
		ledgertest.Certificate(g.genesis, 1, last, 1, 2),
	} {
		c.check(certificate)
	}
	if at := n.store.CertifiedHeight(); at != 0 {
		t.Fatalf("a wrong certificate of block %d is kept", at)
	}
	other := *last
	other.Hash = ledger.Hash{9}
	if c.durable() < last.Header.Height {
		t.Fatalf("block %d is not durable", last.Header.Height)
	}
	for _, signers := range [][]ledger.MemberIndex{{1}, {1, 4}} {
		c.check(ledgertest.Certificate(g.genesis, 0, &other, signers...))
		if said := c.collector.about(last.Header.Height); len(said) > 0 {
			t.Fatalf("statements of a certificate that does not hold are kept: %+v", said)
		}
	}
	n.mu.Lock()
	forked := len(n.forked)
	n.mu.Unlock()
	if forked > 0 {
		t.Fatal("a certificate that does not hold raises the alarm")
	}
	c.check(ledgertest.Certificate(g.genesis, 0, last, 1, 2))
	if at := n.store.CertifiedHeight(); at != last.Header.Height {
		t.Fatalf("a good certificate is not kept")
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		signed, durable ledger.Height
		rests           bool
		changes, want   []ledger.Height
	}{
		{"nothing is durable", 0, 0, true, nil, nil},
		{"the chain moves", 0, 63, false, nil, nil},
		{"the chain rests", 0, 63, true, nil, []ledger.Height{63}},
		{"a checkpoint", 63, 70, false, nil, []ledger.Height{64}},
		{"a checkpoint at rest", 63, 70, true, nil, []ledger.Height{64, 70}},
		{"signed before", 70, 70, true, nil, nil},
		{"two checkpoints", 10, 130, false, nil, []ledger.Height{64, 128}},
		{"changes", 70, 71, false, []ledger.Height{5, 70, 90}, []ledger.Height{5, 70}},
		{"a change at a checkpoint", 63, 64, true, []ledger.Height{64}, []ledger.Height{64}},
	} {
		if got := due(c.signed, c.durable, c.rests, c.changes); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := due(0, 1_000_000, false, nil); len(got) != checkpointsMax ||
		got[len(got)-1] != 1_000_000 {
		t.Errorf("catching up: %v", got)
	}
}

func TestCollectorIsBounded(t *testing.T) {
	t.Parallel()
	c := newCollector()
	for height := range ledger.Height(10 * heldPerMember) {
		c.add(ledger.Statement{Height: height + 1, Seal: ledger.Seal{Member: 1}})
	}
	if held := len(c.said[1]); held != heldPerMember {
		t.Errorf("%d statements are held", held)
	}
	if heights := c.heights(0); heights[len(heights)-1] != 10*heldPerMember {
		t.Errorf("the newest statement is gone: %v", heights)
	}
}

// idle adds a node whose certifier does not run by itself.
func idle(t *testing.T, members int) (*group, *testNode, *Certifier) {
	g := &group{t: t, genesis: ledgertest.OperatedGenesis(members)}
	g.client = ledgertest.NewClient(g.genesis, "acme")
	n := g.add(0)
	return g, n, New(n.certifier.config)
}

// TestChangesThatStayUncertified has many changes that members made who are gone.
func TestChangesThatStayUncertified(t *testing.T) {
	t.Parallel()
	g, n, c := idle(t, 3)
	operator := ledgertest.NewOperator(g.genesis)
	for i := range 75 {
		g.apply([]*ledger.Bundle{operator.Join(ledgertest.Member(3 + i))}, n)
		g.apply([]*ledger.Bundle{operator.Leave(ledger.MemberIndex(3 + i))}, n)
	}
	sent := 0
	c.config.Send = func([]byte) { sent++ }
	asked := make(chan ledger.Height, 1)
	c.config.Fetch = func(_ context.Context, above ledger.Height) ([]*ledger.Certificate, error) {
		asked <- above
		return nil, errors.New("nobody has more")
	}
	c.look()
	if sent > changesMax+checkpointsMax || sent < changesMax {
		t.Fatalf("%d statements", sent)
	}
	before := sent
	for range 10 {
		c.look()
	}
	if sent != before {
		t.Errorf("%d more statements, and nothing is new", sent-before)
	}
	c.repeat()
	if sent > before+changesMax+1 {
		t.Errorf("%d statements are repeated", sent-before)
	}
	// What is missing for ever does not hold up what is missing at the end.
	head := n.store.Head()
	block, err := n.store.Block(head.Height - 1)
	if err != nil {
		t.Fatal(err)
	}
	members := n.store.MembersAt(block.Header.Height)
	if err := n.store.PutCertificate(ledgertest.Certificate(g.genesis, members.Epoch, block, 0, 1,
		2)); err != nil {
		t.Fatal(err)
	}
	questions := map[ledger.Height]bool{<-asked: true}
	c.take(<-c.answers)
	for range 2 * changesMax {
		c.repeat()
		questions[<-asked] = true
		c.take(<-c.answers)
	}
	if !questions[head.Height-1] || !questions[0] || len(questions) < changesMax {
		t.Errorf("asked above %v", questions)
	}
}

// TestGapBetweenCertificates has certificates so far apart that blocks between them cannot be
// proven.
func TestGapBetweenCertificates(t *testing.T) {
	t.Parallel()
	g, n, c := idle(t, 1)
	const end = 2*ledger.MaxFinalityHeaders + 100
	g.transfer(n)
	for n.store.AppendedHeight() < end {
		g.round++
		if _, err := n.store.Apply(1, g.round, [][]byte{ledgertest.Batch(1,
			g.client.Bundle(g.client.Transfer("acme:issuer", "acme:a", 1)))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.store.Sync(); err != nil {
		t.Fatal(err)
	}
	n.store.RecordDurable(end)
	certificate := func(height ledger.Height) *ledger.Certificate {
		block, err := n.store.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		return ledgertest.Certificate(g.genesis, 0, block, 0)
	}
	if err := n.store.PutCertificate(certificate(end)); err != nil {
		t.Fatal(err)
	}
	if _, err := n.store.Finality(1); !errors.Is(err, store.ErrUncertified) {
		t.Fatalf("without certificates in between: %v", err)
	}
	// Another node has the certificate of one block, and no node those of the others.
	c.config.Fetch = func(_ context.Context, above ledger.Height) ([]*ledger.Certificate, error) {
		if above < 700 {
			return []*ledger.Certificate{certificate(700)}, nil
		}
		return nil, nil
	}
	c.look()
	for range 2 + 2*gapTries {
		if c.repeat(); c.asking {
			c.take(<-c.answers)
		}
	}
	for _, height := range []ledger.Height{1, 700, 701, ledger.MaxFinalityHeaders, end - 1} {
		n.final(height)
	}
}

// TestSilentPeer is asked for certificates and does not answer. Blocks are certified meanwhile.
func TestSilentPeer(t *testing.T) {
	t.Parallel()
	g, n, c := idle(t, 3)
	asked := make(chan struct{}, 10)
	c.config.Fetch = func(ctx context.Context, _ ledger.Height) ([]*ledger.Certificate, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	first := g.transfer(n)
	c.Start()
	<-asked
	began := time.Now()
	c.Heard(1, g.statement(1, 0, first.Header.Height, first.Hash))
	g.await("a certificate", func() bool {
		return n.store.CertifiedHeight() == first.Header.Height
	})
	if took := time.Since(began); took > askTime/2 {
		t.Errorf("a silent peer holds up certificates for %v", took)
	}
	c.Close() // does not wait for the answer
}

// TestAnswerThatBeginsWrong is not read to its end.
func TestAnswerThatBeginsWrong(t *testing.T) {
	t.Parallel()
	g, n, c := idle(t, 3)
	last := g.transfer(n)
	first, err := n.store.Block(1)
	if err != nil {
		t.Fatal(err)
	}
	c.look()
	c.take([]*ledger.Certificate{ledgertest.Certificate(g.genesis, 0, first, 1),
		ledgertest.Certificate(g.genesis, 0, last, 1, 2)})
	if at := n.store.CertifiedHeight(); at != 0 {
		t.Errorf("block %d is certified", at)
	}
}

// TestOtherBlockThanOneThatMayGo has the others certify another block than one that is not durable
// here. This node will set its own aside: nobody lied.
func TestOtherBlockThanOneThatMayGo(t *testing.T) {
	t.Parallel()
	g, n, c := idle(t, 3)
	durable := g.transfer(n)
	g.round++
	own, err := n.store.Apply(1, g.round, [][]byte{ledgertest.Batch(1,
		g.client.Bundle(g.client.Transfer("acme:issuer", "acme:a", 1)))})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.store.Sync(); err != nil {
		t.Fatal(err)
	}
	theirs := ledgertest.After(durable)
	c.look()
	for member := ledger.MemberIndex(1); member <= 2; member++ {
		c.hear(heard{member, g.statement(int(member), 0, own.Header.Height, theirs.Hash)})
	}
	c.take([]*ledger.Certificate{ledgertest.Certificate(g.genesis, 0, theirs, 1, 2)})
	c.look()
	if pieces := n.store.EvidenceCount(); pieces != 0 || len(n.forked) > 0 {
		t.Fatalf("%d pieces of evidence, %d alarms", pieces, len(n.forked))
	}
	n.store.RecordDurable(own.Header.Height)
	if c.look(); n.store.EvidenceCount() == 0 || len(n.forked) == 0 {
		t.Fatal("the block became durable, and there is no alarm")
	}
}
