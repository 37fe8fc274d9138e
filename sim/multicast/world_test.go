package multicast

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// stopCounting is when the last number is sent. Three times that is enough for all of them to
// arrive.
const stopCounting = 2 * time.Millisecond

// counters is a form in which all processes send numbers to each other, by letters, by a log and
// into memory, and check what arrives. It A-delivers submitted messages directly, at the end.
type counters struct {
	t     *testing.T
	world *World
	all   []order.Replica
	log   *Log

	polled   map[order.Replica]time.Duration
	letters  map[[2]order.Replica]uint64 // sent
	received map[[2]order.Replica]uint64
	entries  uint64
	history  [][]byte // the log as the most advanced replica has it
	taken    map[order.Replica]int
	regions  map[order.Replica]rdmanet.Region
	queues   map[order.Replica]rdmanet.Queue
	outgoing map[order.Replica][]rdmanet.Attachment

	submitted []order.Multicast
	delivered map[order.Replica]int

	failed, zombieWrites int
}

func newCounters(t *testing.T) *counters {
	return &counters{
		t: t, polled: map[order.Replica]time.Duration{}, letters: map[[2]order.Replica]uint64{},
		received: map[[2]order.Replica]uint64{}, taken: map[order.Replica]int{},
		delivered: map[order.Replica]int{},
		regions:   map[order.Replica]rdmanet.Region{}, queues: map[order.Replica]rdmanet.Queue{},
		outgoing: map[order.Replica][]rdmanet.Attachment{},
	}
}

// make is the form's Maker. Each process has a region with a word for each other process to write.
func (c *counters) make(w *World, _ string) (Form, error) {
	c.world, c.all = w, w.Deployment().Processes()
	c.log = w.NewLog(c.all)
	for _, owner := range c.all {
		host, err := w.Host(owner)
		if err != nil {
			return nil, err
		}
		region, err := host.Expose("words", 8*len(c.all))
		if err != nil {
			return nil, err
		}
		for _, peer := range c.all {
			if peer == owner {
				continue
			}
			other, err := w.Host(peer)
			if err != nil {
				return nil, err
			}
			if err := region.Grant(rdmanet.Peer{ID: PeerOf(peer), Incarnation: other.Incarnation()},
				rdmanet.PermissionReadWrite); err != nil {
				return nil, err
			}
			attachment, err := other.Attach(context.Background(), PeerOf(owner), "words")
			if err != nil {
				return nil, err
			}
			c.outgoing[peer] = append(c.outgoing[peer], attachment)
		}
		c.regions[owner] = region
		if c.queues[owner], err = host.Queue(1024); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *counters) Submit(_ order.Replica, m order.Multicast) {
	c.submitted = append(c.submitted, m)
}
func (c *counters) Lead(order.Replica, order.ServerID)               {}
func (c *counters) AppendState(state []byte, _ order.Replica) []byte { return state }
func (c *counters) Describe(at order.Replica) string {
	return fmt.Sprintf("took %d entries", c.taken[at])
}

func (c *counters) Poll(at order.Replica) {
	now := c.world.Now()
	if now < c.polled[at] {
		c.t.Errorf("%v is polled at %v after %v", at, now, c.polled[at])
	}
	p := c.world.processes[c.world.number(at)]
	if p.crashed || p.hangs {
		c.t.Errorf("%v is polled although it crashed (%v) or hangs (%v)", at, p.crashed, p.hangs)
	}
	c.polled[at] = now
	for _, letter := range c.world.Receive(at) {
		pair := [2]order.Replica{letter.From, at}
		if number := binary.LittleEndian.Uint64(letter.Bytes); number != c.received[pair]+1 {
			c.t.Errorf("%v has letter %d of %v after %d", at, number, letter.From, c.received[pair])
		}
		c.received[pair]++
	}
	for _, entry := range c.log.Ordered(at) {
		switch place := c.taken[at]; {
		case place == len(c.history):
			c.history = append(c.history, entry)
		case !slices.Equal(c.history[place], entry):
			c.t.Errorf("%v has %x at place %d of the log, another has %x", at, entry, place,
				c.history[place])
		}
		c.taken[at]++
	}
	var completions [64]rdmanet.Completion
	for _, completion := range completions[:c.queues[at].Poll(completions[:])] {
		if completion.Err != nil && !errors.Is(completion.Err, rdmanet.ErrUnreachable) {
			c.t.Errorf("%v: a write to %v ends with %v", at, completion.Peer, completion.Err)
		}
		if completion.Err != nil {
			c.failed++
		} else if owner := c.named(completion.Peer); c.world.processes[c.world.number(
			owner)].hangs {
			c.zombieWrites++
		}
	}
	if now > stopCounting {
		if next := c.delivered[at]; now > 3*stopCounting && next < len(c.submitted) {
			c.delivered[at]++
			if slices.Contains(c.submitted[next].To, at.Group) {
				c.world.Deliver(at, c.submitted[next]) // directly, so that the run comes to its end
			}
		}
		return
	}
	to := c.all[(c.world.number(at)+1+int(c.letters[[2]order.Replica{at, at}])%(len(c.all)-1))%len(
		c.all)]
	c.letters[[2]order.Replica{at, at}]++
	pair := [2]order.Replica{at, to}
	c.letters[pair]++
	c.world.Send(at, to, binary.LittleEndian.AppendUint64(nil, c.letters[pair]))
	c.entries++
	c.log.Propose(at, binary.LittleEndian.AppendUint64(nil, c.entries))
	for _, attachment := range c.outgoing[at] {
		word := binary.LittleEndian.AppendUint64(nil, c.entries)
		if err := c.queues[at].Post(rdmanet.Operation{To: attachment, Kind: rdmanet.OperationWrite,
			Offset: 8 * c.world.number(at), Bytes: word}); err != nil &&
			!errors.Is(err, rdmanet.ErrQueueFull) {
			c.t.Errorf("%v: %v", at, err)
		}
	}
}

func (c *counters) named(id rdmanet.PeerID) order.Replica {
	return c.all[slices.IndexFunc(c.all, func(r order.Replica) bool { return PeerOf(r) == id })]
}

// TestWorldKeepsItsPromises runs counters through all faults. Links lose nothing but tails of
// crashed senders, logs are one sequence, and a process that hangs is not polled and keeps its
// memory.
func TestWorldKeepsItsPromises(t *testing.T) {
	t.Parallel()
	letters, entries, lost, failed, zombieWrites := 0, 0, 0, 0, 0
	for seed := range uint64(share(30)) {
		c := newCounters(t)
		result, err := Run(Options{Seed: seed, Faults: FaultsAll, Groups: 2, Replicas: 3,
			Messages: 1, form: c.make})
		if err != nil {
			t.Fatal(err)
		}
		entries += len(c.history)
		for pair, sent := range c.letters {
			if pair[0] == pair[1] {
				continue
			}
			got := c.received[pair]
			letters += int(got)
			if got == sent {
				continue
			}
			lost++
			if !slices.Contains(result.Crashed, pair[0]) &&
				!slices.Contains(result.Crashed, pair[1]) {
				t.Errorf("seed %d: %v got %d of %d letters of %v, and both live", seed, pair[1],
					got, sent, pair[0])
			}
		}
		for _, process := range c.all {
			if !slices.Contains(result.Crashed, process) && c.taken[process] != len(c.history) &&
				!result.Overwhelmed {
				t.Errorf("seed %d: %v has %d of %d entries", seed, process, c.taken[process],
					len(c.history))
			}
		}
		failed += c.failed
		zombieWrites += c.zombieWrites
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, result.Plan)
		}
	}
	t.Logf("%d letters, %d entries, %d links with losses, %d operations that failed, %d writes "+
		"to who hangs", letters, entries, lost, failed, zombieWrites)
	if !raceEnabled && !testing.Short() && (letters == 0 || entries == 0 || lost == 0 ||
		failed == 0 || zombieWrites == 0) {
		t.Error("something of that never happened")
	}
}
