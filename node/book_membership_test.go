package node_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// comings is a book of two shards whose members come and go. Nodes that join are listed after those
// of the genesis.
type comings struct {
	*book
	operators []*ledgertest.Operator // by shard
	paid      [2]atomic.Int64        // payments out of each shard that took effect
	mu        sync.Mutex
	open      [2][]string // addresses of each shard's nodes, for clients
	present   [2][]int
}

func newComings(t *testing.T) *comings {
	t.Helper()
	c := &comings{book: newBook(t, 2, 0, 0)}
	for shard := range c.tree {
		c.operators = append(c.operators, ledgertest.NewOperator(c.homes[shard*c.members].Genesis))
		c.present[shard] = c.of(shard)
	}
	c.book.open()
	c.tell()
	return c
}

// tell updates the clients' addresses of the nodes.
func (c *comings) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for shard, present := range c.present {
		c.open[shard] = nil
		for _, k := range present {
			if c.nodes[k] != nil {
				c.open[shard] = append(c.open[shard], c.nodes[k].URL())
			}
		}
	}
}

// flow pays one unit at a time from each shard to the other, through the nodes of the payer's
// shard, until stop is called.
func (c *comings) flow() (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var paying sync.WaitGroup
	for shard := range c.tree {
		paying.Go(func() {
			for ctx.Err() == nil {
				c.payOne(ctx, shard)
			}
		})
	}
	return sync.OnceFunc(func() {
		cancel()
		paying.Wait()
	})
}

// payOne repeats a payment until it has taken effect, whichever nodes come and go.
func (c *comings) payOne(ctx context.Context, shard int) {
	bundle := c.signed(c.pay(shard, 1-shard, 1))
	for try := 0; ; try++ {
		c.mu.Lock()
		urls := slices.Clone(c.open[shard])
		c.mu.Unlock()
		if ctx.Err() != nil && try > 100 || len(urls) == 0 {
			c.t.Errorf("a payment out of shard %d is not done", shard)
			return
		}
		// Finish the payment that is under way at the end, too, so that the sum is known.
		bounded, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		nodes, err := client.New([]string{urls[try%len(urls)]}, client.Options{})
		if err == nil {
			var statuses []*ledgerdv1.TransactionStatus
			statuses, err = nodes.Submit(bounded, bundle, ledgerdv1.Level_LEVEL_DURABLE)
			nodes.Close()
			if err == nil && statuses[0].GetState() ==
				ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
				cancel()
				c.paid[shard].Add(1)
				return
			}
		}
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// paysOn waits until money has moved both ways since the call.
func (c *comings) paysOn() {
	c.t.Helper()
	for shard := range c.tree {
		before := c.paid[shard].Load()
		// The first payment may have been under way already.
		c.eventually(fmt.Sprintf("shard %d pays", shard), func() bool {
			return c.paid[shard].Load() > before+1
		})
	}
}

// join adds a node to a shard through one of its members, and starts it.
func (c *comings) join(shard int) int {
	c.t.Helper()
	via := c.present[shard][0]
	dir, member := c.candidate(len(c.nodes), via)
	c.order(via, func() *ledger.Bundle { return c.operators[shard].Join(member) })
	k := c.admit(dir, c.nodes[via].Store().Membership())
	c.present[shard] = append(c.present[shard], k)
	c.start(k)
	c.ordering(c.present[shard]...)
	c.tell()
	return k
}

// leave removes a node from its shard.
func (c *comings) leave(shard, k int) {
	c.t.Helper()
	c.present[shard] = slices.DeleteFunc(slices.Clone(c.present[shard]), func(other int) bool {
		return other == k
	})
	c.tell()
	c.order(c.present[shard][0], func() *ledger.Bundle {
		return c.operators[shard].Leave(ledger.MemberIndex(c.homes[k].Self))
	})
	c.ended(k)
	c.gone[k] = true
}

// restart ends nodes of a shard together, one of them as in a crash, and starts them again. All but
// the first have lost their file of other shards' members.
func (c *comings) restart(shard int, which ...int) {
	c.t.Helper()
	for i, k := range which {
		if i == 0 {
			c.kill(k)
		} else {
			c.stop(k)
			if err := os.Remove(filepath.Join(c.homes[k].Dir, "shards.json")); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	c.start(which...)
	c.ordering(c.present[shard]...)
	c.tell()
}

// known waits until all nodes see all members of both shards order.
func (c *comings) known() {
	c.t.Helper()
	c.eventually("everybody knows who is there", func() bool {
		for _, asked := range c.all() {
			ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
			tree, err := c.via(asked).Tree(ctx)
			cancel()
			if err != nil {
				c.t.Fatal(err)
			}
			for shard, present := range c.present {
				var names []string
				for _, member := range tree.GetShards()[shard].GetMembers() {
					if member.GetMode() == "ordering" {
						names = append(names, member.GetName())
					}
				}
				for _, k := range present {
					if !slices.Contains(names, c.homes[k].Name()) {
						return false
					}
				}
				if len(names) != len(present) {
					return false
				}
			}
		}
		return true
	})
}

// All members of a shard are replaced, one after the other, while payments go to it and come from
// it. Nodes of the other shard are restarted meanwhile and afterwards.
func TestMembersOfAShardComeAndGo(t *testing.T) {
	t.Parallel()
	for changing, name := range []string{"the one above", "the one below"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newComings(t)
			other := 1 - changing
			stop := c.flow()
			defer stop()
			c.paysOn()
			// Every member of the genesis is replaced. A restarted node relies on its file of
			// members, and its fellow members learn from it.
			for i, old := range c.of(changing) {
				c.join(changing)
				c.leave(changing, old)
				c.known()
				c.paysOn()
				c.restart(other, c.of(other)[:i+1]...)
				c.known()
				c.paysOn()
			}
			stop()
			c.addsUp()
		})
	}
}

// addsUp waits until every member has the sums of all payments, and nothing waits any more.
func (c *comings) addsUp() {
	c.t.Helper()
	for shard := range c.tree {
		amount := ledger.NewAmount(1000 + c.paid[1-shard].Load() - c.paid[shard].Load())
		c.eventually(fmt.Sprintf("shard %d has %s", shard, amount), func() bool {
			return !slices.ContainsFunc(c.present[shard], func(k int) bool {
				opened := c.nodes[k].Store()
				account, _ := opened.Account(c.clients[shard].Account("a"))
				return account.Balance(ledger.DefaultAsset) != amount || opened.PendingCount() > 0
			})
		})
	}
}

// Both shards change their engines, to different ones, while payments go both ways, and a member of
// each crashes and comes back meanwhile. A member that joins takes its shard's engine.
func TestShardsChangeTheirEngines(t *testing.T) {
	t.Parallel()
	c := newComings(t)
	stop := c.flow()
	defer stop()
	c.paysOn()
	for _, names := range [][]string{
		{"allconcur", "allconcur+"}, {"allconcur+", "dare"}, {"dare", "allconcur"},
	} {
		for shard, name := range names {
			c.order(c.present[shard][0], func() *ledger.Bundle {
				return c.operators[shard].ChangeEngine(name)
			})
			c.restart(shard, c.present[shard][1])
			c.orderBy(name, c.present[shard]...)
		}
		c.paysOn()
	}
	for shard, name := range []string{"dare", "allconcur"} {
		c.join(shard)
		c.orderBy(name, c.present[shard]...)
	}
	c.paysOn()
	stop()
	c.addsUp()
}

// All members of a shard are replaced while another shard is away. In a book with vouched crossings
// that shard believes certificates only. It gets them from a member of the third shard, since it
// knows no present member of the changed one, and finds it again.
func TestReplacedShardIsFoundByItsTrail(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0)
	b.start(b.all()...)
	for k := range b.nodes {
		b.ordering(k)
	}
	members := func(at int) (names []string) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		tree, err := b.via(at).Tree(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, member := range tree.GetShards()[1].GetMembers() {
			names = append(names, member.GetName()+" "+member.GetMode())
		}
		return names
	}
	b.stop(2)
	operator := ledgertest.NewOperator(b.homes[1].Genesis)
	joined := b.join(operator, 1)
	b.start(joined)
	b.ordering(1, joined)
	b.order(joined, func() *ledger.Bundle { return operator.Leave(0) })
	b.ended(1)
	b.gone[1] = true
	want := []string{b.homes[joined].Name() + " ordering"}
	found := func(at int) {
		t.Helper()
		b.eventually(fmt.Sprintf("node %d finds the new member", at), func() bool {
			return slices.Equal(members(at), want)
		})
	}
	found(0)
	b.start(2)
	found(2)
	b.stop(2)
	b.start(2) // from its file
	if names := members(2); len(names) != 1 || !strings.HasPrefix(names[0],
		b.homes[joined].Name()) {
		t.Errorf("after a restart: %v", names)
	}
	found(2)
}

// A member that began with a snapshot has what a shard below lacks at once, however slowly it
// fetches older blocks. So the member with all blocks may go, and the shard below gets all when it
// is back.
func TestWhatIsOwedComesFirst(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0) // shard 2 tells shard 1 who is in shard 0
	b.open()
	b.stop(1)
	number := b.nodes[0].Store().Streamed(1)
	if err := b.offer(0, b.signed(b.pay(0, 1, 5)), true); err != nil {
		t.Fatal(err)
	}
	b.eventually("the payment is on its way", func() bool {
		return b.nodes[0].Store().Streamed(1) > number
	})
	for range 10 {
		b.executed(b.submitAt(0, b.clients[0].Transfer(b.clients[0].Account("a"),
			b.clients[0].Account("b"), 1)))
	}
	operator := ledgertest.NewOperator(b.homes[0].Genesis)
	joiner := b.joinWithSnapshot(operator, 0)
	b.homes[joiner].Config.Store.BackfillBytes = 1
	b.start(joiner)
	b.ordering(0, joiner)
	b.eventually("the joiner has what is owed", func() bool {
		opened := b.nodes[joiner].Store()
		_, err := opened.Stream(1, number+1, 1, opened.AppendedHeight())
		return err == nil
	})
	b.order(joiner, func() *ledger.Bundle { return operator.Leave(0) })
	b.ended(0)
	b.gone[0] = true
	b.start(1)
	b.holds(1, 1005)
}
