//go:build linux

package torture

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/engine"
)

var chaosFlag = flag.Duration("chaos", 0,
	"how long TestChaos goes on; 0: 45 s, and 10 s with -short")

// Chaos.
//
// Clients at several nodes move money and set a record with each transaction, and wait until it is
// durable. Meanwhile a seed selects disturbances: kill -9, power failures, torn writes, dying
// disks, homes that are wiped or replaced by older copies, pauses, joins, leaves, and changes of
// the engine, which is one that the seed chose before. At the end of each disturbance all members
// run. Before the next one, they have to order together, and everything ordered has to become
// durable. Between these points, at most a minority of the disks forgets.
//
// At the end, every acknowledged record must exist, and the balances must agree with the records.
// Nodes that wait must always give a reason, and no node without a group may report that it is
// ready.

const (
	chaosNodes   = 5
	chaosMost    = 6 // members
	chaosLeast   = 4
	chaosWriters = 6
	// onlyWaiting is how long the test watches nodes that must not order.
	onlyWaiting = 2 * time.Second
)

// chaos is the state of one run.
type chaos struct {
	*shard
	random  *rand.Rand
	present []int // the members, ascending
	copies  map[int]string
	counts  map[string]int
	stops   []func()
}

// disturbance is one kind of disturbance.
type disturbance struct {
	name   string
	weight int
	do     func(c *chaos)
}

var disturbances = []disturbance{
	{"kill", 3, (*chaos).killSome},
	{"cut", 4, (*chaos).cutSome},
	{"cut all", 3, (*chaos).cutAll},
	{"dying disk", 2, (*chaos).dyingDiskSomewhere},
	{"forget", 5, (*chaos).forget},
	{"pause", 3, (*chaos).pause},
	{"pause and cut", 2, (*chaos).pauseAndCut},
	{"copy", 2, (*chaos).copySome},
	{"join", 2, (*chaos).joinOne},
	{"leave", 2, (*chaos).leaveOne},
	{"engine", 4, (*chaos).changeEngineSomehow},
}

// TestChaos mixes everything that can happen to nodes and their disks. See above.
func TestChaos(t *testing.T) {
	t.Parallel()
	length := *chaosFlag
	if length == 0 {
		if length = 45 * time.Second; testing.Short() {
			length = 10 * time.Second
		}
	}
	t.Logf("-seed %d", *seedFlag)
	c := &chaos{
		shard:  newShardOnVolumes(t, chaosNodes),
		random: rand.New(rand.NewPCG(*seedFlag, 2)),
		copies: map[int]string{}, counts: map[string]int{},
	}
	c.present = c.all()
	c.start(c.present...)
	c.ordering(c.present...)
	c.operate("upgrade", "--via", testnet.URL(c.homes[0]))
	first := cmp.Or(*engineFlag, anyEngine(c.random))
	c.changeEngine(first, c.present...)
	c.orderingBy(first, c.present...)
	t.Logf("the engine is %s", first)
	for _, i := range c.present {
		c.stops = append(c.stops, c.watchReady(2, i))
	}
	accounts := []string{"bank"}
	for w := range chaosWriters {
		accounts = append(accounts, chaosAccount(w))
	}
	acme := c.newParty("acme", accounts, 0)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	payers := make([]payer, chaosWriters)
	for w := range payers {
		payers[w] = payer{party: acme.at(c.clientOf(append([]int{w % chaosNodes},
			c.others(w%chaosNodes)...)...)), number: w}
		running.Go(func() { payers[w].live(ctx) })
	}
	for begun := time.Now(); time.Since(begun) < length; {
		at := time.Now()
		d := c.draw()
		t.Logf("%7.3f s: %s", time.Since(begun).Seconds(), d.name)
		d.do(c)
		c.ordering(c.present...)
		c.settled()
		c.counts[d.name]++
		t.Logf("          all of %v order, %v after", c.present,
			time.Since(at).Round(time.Millisecond))
	}
	cancel()
	running.Wait()
	c.same(c.present...)
	for _, stop := range c.stops {
		stop()
	}
	promises := 0
	for w := range payers {
		promises += len(payers[w].kept)
		c.judge(&payers[w])
	}
	t.Logf("%d promises kept; %v", promises, c.counts)
	if promises == 0 {
		t.Error("nothing was promised: the test shows nothing")
	}
	c.exports(c.present...)
	c.stop(c.present...)
	c.verified(c.present...)
}

func chaosAccount(writer int) string { return "account-" + strconv.Itoa(writer) }

// payer pays 1 into its account with every record that it sets.
type payer struct {
	*party
	number, tried int
	kept          []int // the records acknowledged as durable
}

func (p *payer) record(k int) string { return fmt.Sprintf("payer-%d-%d", p.number, k) }

func (p *payer) live(ctx context.Context) {
	for ; ctx.Err() == nil; p.tried++ {
		transaction := p.transfer("bank", chaosAccount(p.number), 1)
		transaction.Records = p.put(p.record(p.tried), p.record(p.tried)).Records
		status, err := p.nodes.Post(ctx, []client.Key{p.Key}, transaction,
			ledgerdv1.Level_LEVEL_DURABLE)
		if err == nil && client.Reached(status, ledgerdv1.Level_LEVEL_DURABLE) &&
			status.GetReasonCode() == "" {
			p.kept = append(p.kept, p.tried)
		}
	}
}

// judge checks that all acknowledged records of a payer exist, and that its account holds as much
// as it has records.
func (c *chaos) judge(p *payer) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	there := map[int]bool{}
	for k := range p.tried + 1 {
		node := c.nodes[c.present[k%len(c.present)]]
		_, err := node.Record(ctx, p.party.record(p.record(k)))
		if err != nil && client.CodeOf(err) != connect.CodeNotFound {
			c.t.Fatal(err)
		}
		there[k] = err == nil
		if slices.Contains(p.kept, k) && err != nil {
			c.t.Errorf("%s was acknowledged as durable: %v", p.record(k), err)
		}
	}
	want := int64(0)
	for _, is := range there {
		if is {
			want++
		}
	}
	for _, i := range c.present {
		account, err := c.nodes[i].Account(ctx, p.account(chaosAccount(p.number)))
		if err != nil {
			c.t.Fatal(err)
		}
		got := int64(0)
		for _, balance := range account.GetBalances() {
			if got, err = strconv.ParseInt(balance.GetAmount(), 10, 64); err != nil {
				c.t.Fatal(err)
			}
		}
		if got != want {
			c.t.Errorf("node %d: %s holds %d, and there are %d records", i, chaosAccount(p.number),
				got, want)
		}
	}
}

func (c *chaos) draw() disturbance {
	sum := 0
	for _, d := range disturbances {
		sum += d.weight
	}
	at := c.random.IntN(sum)
	for _, d := range disturbances {
		if at -= d.weight; at < 0 {
			return d
		}
	}
	panic("unreachable")
}

// some returns up to most of the members, at least one, in any order.
func (c *chaos) some(most int) []int {
	shuffled := c.shuffled(c.present)
	return shuffled[:1+c.random.IntN(most)]
}

func (c *chaos) shuffled(which []int) []int {
	which = slices.Clone(which)
	c.random.Shuffle(len(which), func(i, j int) { which[i], which[j] = which[j], which[i] })
	return which
}

func (c *chaos) minority() int { return (len(c.present) - 1) / 2 }

// moment waits for less than the given number of milliseconds.
func (c *chaos) moment(most int) {
	<-time.After(time.Duration(c.random.IntN(most)) * time.Millisecond)
}

// tearing returns the random source for torn writes, or nil, at random.
func (c *chaos) tearing() *rand.Rand {
	if c.random.IntN(2) == 0 {
		return nil
	}
	return c.random
}

// again starts nodes in any order, with pauses between them.
func (c *chaos) again(which []int) {
	for _, i := range c.shuffled(which) {
		c.start(i)
		c.moment(500)
	}
}

// settled waits until everything ordered so far is durable, and every member knows it.
func (c *chaos) settled() {
	c.t.Helper()
	height := uint64(0)
	for _, i := range c.present {
		if state, err := c.state(i); err == nil {
			height = max(height, state.GetOrderedHeight())
		}
	}
	c.eventually("what was ordered is durable", func() error {
		c.alive(c.present...)
		for _, i := range c.present {
			state, err := c.state(i)
			if err != nil {
				return err
			}
			if state.GetDurableHeight() < height {
				return fmt.Errorf("node %d: durable up to %d of %d", i, state.GetDurableHeight(),
					height)
			}
		}
		return nil
	})
}

func (c *chaos) killSome() {
	victims := c.some(len(c.present))
	c.t.Logf("          %v", victims)
	c.kill(victims...)
	c.moment(1000)
	c.again(victims)
}

func (c *chaos) cutSome() {
	victims := c.some(len(c.present))
	c.t.Logf("          %v", victims)
	c.cut(c.tearing(), victims...)
	c.moment(1000)
	c.again(victims)
}

func (c *chaos) cutAll() {
	c.cut(c.tearing(), c.present...)
	c.again(c.present)
}

func (c *chaos) dyingDiskSomewhere() {
	victim := c.some(1)[0]
	c.t.Logf("          %d", victim)
	c.dyingDisk(victim, time.Duration(c.random.IntN(1500))*time.Millisecond)
	c.start(victim)
}

// forget makes a minority of the disks forget while none or all of the other nodes are down, too.
// Then it starts any of the nodes first. They must order nothing until a majority that remembers
// runs.
func (c *chaos) forget() {
	losers := c.some(c.minority())
	down := slices.Clone(losers)
	if c.random.IntN(3) > 0 {
		down = slices.Clone(c.present)
	}
	if c.random.IntN(2) == 0 {
		c.cut(c.tearing(), down...)
	} else {
		c.kill(down...)
	}
	for _, i := range losers {
		h, what := c.homes[i], c.random.IntN(4)
		switch from := c.copies[i]; {
		case from != "" && what < 2:
			c.t.Logf("          %d gets an older copy of its home", i)
			c.restore(i, from)
		case what == 0:
			c.t.Logf("          %d loses its data", i)
			c.remove(h.Data())
		case what == 1:
			c.t.Logf("          %d loses its promises", i)
			c.remove(h.Generation())
		default:
			c.t.Logf("          %d loses its data, its promises and what it knows of its rounds", i)
			c.remove(h.Data())
			c.remove(h.Generation())
			c.remove(h.Rounds())
		}
	}
	down = c.shuffled(down)
	first := down[:c.random.IntN(len(down)+1)]
	c.again(first)
	remember := len(c.present) - len(down)
	for _, i := range first {
		if !slices.Contains(losers, i) {
			remember++
		}
	}
	if len(first) > 0 && remember <= len(c.present)/2 {
		c.t.Logf("          %v have to wait for the others", first)
		c.waiting(onlyWaiting, first...)
	}
	c.again(down[len(first):])
}

func (c *chaos) pause() {
	victims := c.some(c.minority())
	c.t.Logf("          %v", victims)
	c.signal(syscall.SIGSTOP, victims...)
	c.moment(4000)
	c.signal(syscall.SIGCONT, victims...)
}

// pauseAndCut cuts the power of some nodes while others are paused.
func (c *chaos) pauseAndCut() {
	paused := c.some(c.minority())
	victims := slices.DeleteFunc(c.some(len(c.present)), func(i int) bool {
		return slices.Contains(paused, i)
	})
	c.t.Logf("          %v are paused, %v lose power", paused, victims)
	c.signal(syscall.SIGSTOP, paused...)
	c.moment(2000)
	c.cut(c.tearing(), victims...)
	c.moment(500)
	c.again(victims)
	c.moment(2000)
	c.signal(syscall.SIGCONT, paused...)
}

// copySome keeps copies of homes for later.
func (c *chaos) copySome() {
	victims := c.some(c.minority())
	c.t.Logf("          %v", victims)
	c.kill(victims...)
	for _, i := range victims {
		c.copies[i] = c.copyPath(i)
		c.copyHome(i, c.copies[i])
	}
	c.start(victims...)
}

// joinOne lets a node join. Meanwhile the node is killed, loses its power, or is left alone.
func (c *chaos) joinOne() {
	if len(c.present) >= chaosMost {
		c.leaveOne()
		return
	}
	dir := filepath.Join(c.dir, testnet.Name(len(c.homes)))
	c.volumes = append(c.volumes, newVolume(c.t, dir))
	c.operate("join", "--home", dir, "--base-port", freePort(c.t), "--via",
		testnet.URL(c.homes[c.some(1)[0]]))
	joiner := c.add(dir)
	c.t.Logf("          %d", joiner)
	c.stops = append(c.stops, c.watchReady(2, joiner))
	for range c.random.IntN(3) {
		c.start(joiner)
		c.moment(1500)
		if c.random.IntN(2) == 0 {
			c.kill(joiner)
		} else {
			c.cut(c.tearing(), joiner)
		}
	}
	c.start(joiner)
	c.present = append(c.present, joiner)
}

// leaveOne lets a member leave. Its node ends.
func (c *chaos) leaveOne() {
	if len(c.present) <= chaosLeast {
		c.joinOne()
		return
	}
	leaver := c.some(1)[0]
	c.t.Logf("          %d leaves", leaver)
	c.present = slices.DeleteFunc(c.present, func(i int) bool { return i == leaver })
	c.operate("leave", c.homes[leaver].Name(), "--via", testnet.URL(c.homes[c.some(1)[0]]))
	select {
	case <-c.processes[leaver].ended:
	case <-time.After(patience):
		c.t.Fatalf("node %d left and still runs", leaver)
	}
	if status := c.processes[leaver].command.ProcessState.ExitCode(); status != 3 {
		c.t.Errorf("node %d left and ended with exit status %d", leaver, status)
	}
	c.processes[leaver] = nil
}

// anyEngine draws an engine.
func anyEngine(random *rand.Rand) string {
	names := engine.All().With(engine.Engine.RunsInNode).Names()
	return names[random.IntN(len(names))]
}

// changeEngineSomehow changes the engine. Meanwhile nodes are killed or lose their power, or
// nothing happens.
func (c *chaos) changeEngineSomehow() {
	name := anyEngine(c.random)
	ended := c.changingEngine(name)
	c.moment(400)
	victims := c.some(len(c.present))
	switch c.random.IntN(3) {
	case 0:
		c.kill(victims...)
		c.moment(500)
		c.again(victims)
	case 1:
		c.cut(c.tearing(), victims...)
		c.moment(500)
		c.again(victims)
	default:
		victims = nil
	}
	c.t.Logf("          to %s, without %v for a moment", name, victims)
	ended()
	c.changeEngine(name, c.present...)
	c.orderingBy(name, c.present...)
}

// operate has an operator change the chain, as soon as the members accept the change.
func (c *chaos) operate(arguments ...string) {
	c.t.Helper()
	arguments = append([]string{"cluster"}, arguments...)
	arguments = append(arguments, "--operator", filepath.Join(c.dir, testnet.OperatorKeyFile))
	c.eventually("the chain changes", func() error {
		o := ledgerd(c.t, arguments...)
		switch {
		case o.status == 0, strings.Contains(o.errs, "is no member"):
			return nil
		default:
			return errors.New(o.errs)
		}
	})
}
