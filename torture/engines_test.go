//go:build linux

package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/engine"
)

// quickDetector makes nodes suspect others soon, so that a test sees many suspicions.
var quickDetector = []string{"LEDGERD_NODE_ORDERING_HEARTBEAT=200ms",
	"LEDGERD_NODE_ORDERING_SUSPECT_AFTER=1500ms"}

// otherEngines are the engines that nodes run, except for the default: all other tests are of that.
func otherEngines() []string {
	return slices.DeleteFunc(engine.All().With(engine.Engine.RunsInNode).Names(),
		func(name string) bool { return name == engine.Default })
}

// anyNode draws a node other than the given ones.
func (s *shard) anyNode(random *rand.Rand, but ...int) int {
	others := s.others(but...)
	return others[random.IntN(len(others))]
}

// TestEngines checks what clients see of each engine.
func TestEngines(t *testing.T) {
	t.Parallel()
	for k, name := range otherEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engineUnderFaults(t, name, rand.New(rand.NewPCG(*seedFlag, uint64(10+k))))
		})
	}
}

// engineUnderFaults kills nodes one at a time, and pauses them for shorter and for longer than the
// others wait for them: the history of what was ordered must be linearizable. Then it kills all at
// once, under durable writes, and a disk forgets everything: all promises must be kept.
func engineUnderFaults(t *testing.T, name string, random *rand.Rand) {
	const nodes, actors = 4, 6
	moment := func(most int) { <-time.After(time.Duration(random.IntN(most)) * time.Millisecond) }
	t.Logf("-seed %d", *seedFlag)
	s := newShardBy(t, name, nodes, quickDetector...)
	s.start(s.all()...)
	s.ordering(s.all()...)
	for range 2 { // there is nothing to order
		victim := s.anyNode(random)
		s.kill(victim)
		moment(2500)
		s.start(victim)
		s.orderingBy(name, s.all()...)
	}
	c := s.newCrowd(actors, ledgerdv1.Level_LEVEL_ORDERED)
	c.progress(30)
	for range 2 {
		victim := s.anyNode(random)
		s.kill(victim)
		c.progress(30)
		s.start(victim)
		s.orderingBy(name, s.all()...)
	}
	for _, long := range []bool{false, true} {
		paused := s.anyNode(random)
		s.signal(syscall.SIGSTOP, paused)
		if moment(500); long {
			s.ordering(s.others(paused)...)
			c.progress(20)
		}
		s.signal(syscall.SIGCONT, paused)
		s.orderingBy(name, s.all()...)
		c.progress(20)
	}
	c.judge(s.all()...)

	var promises []promise
	for round := range 2 {
		stop := s.writers(c.owner, fmt.Sprintf("round-%d", round), s.all()...)
		s.promised(c.owner, fmt.Sprintf("round-%d-%d-3", round, s.anyNode(random)))
		moment(300)
		s.kill(s.all()...)
		promises = append(promises, stop()...)
		loser := s.anyNode(random)
		last := s.anyNode(random, loser)
		s.remove(s.homes[loser].Data())
		s.remove(s.homes[loser].Generation())
		s.start(s.others(last)...)
		moment(1500)
		s.start(last)
		s.orderingBy(name, s.all()...)
		s.same(s.all()...)
		s.kept(c.owner, promises)
	}
	s.exports(s.all()...)
	s.stop(s.all()...)
	s.verified(s.all()...)
}

// promised waits until a node has a record.
func (s *shard) promised(owner *party, record string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.eventually("there is a record "+record, func() error {
		_, err := s.nodes[0].Record(ctx, owner.record(record))
		return err
	})
}

// orderingBy waits until these nodes, and no others, order together by an engine.
func (s *shard) orderingBy(name string, which ...int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("nodes %v order by %s", which, name), func() error {
		s.alive(which...)
		for _, i := range which {
			state, err := s.state(i)
			if err != nil {
				return err
			}
			if by := state.GetEngine(); state.GetMode() != ledgerdv1.NodeMode_NODE_MODE_ORDERING ||
				by.GetEngine() != name || len(by.GetMembers()) != len(which) {
				return fmt.Errorf("node %d: %v %q, by %s, members %v, awaited %v", i,
					state.GetMode(), state.GetReason(), by.GetEngine(), by.GetMembers(),
					by.GetAwaited())
			}
		}
		return nil
	})
}

// engineChange returns the arguments of a command that changes the engine through some nodes.
func (s *shard) engineChange(name string, via ...int) []string {
	return []string{"cluster", "engine", name, "--force", "--timeout", "10s", "--via",
		strings.Join(s.urls(via...), ","), "--operator",
		filepath.Join(s.dir, testnet.OperatorKeyFile)}
}

// changeEngine changes the engine through some nodes, and waits until one of them orders by it.
func (s *shard) changeEngine(name string, via ...int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("the engine changes to %s, via nodes %v", name, via), func() error {
		s.alive(via...)
		if o := ledgerd(s.t, s.engineChange(name, via...)...); o.status != 0 {
			return errors.New(o.errs)
		}
		return nil
	})
}

// changingEngine begins to change the engine through all nodes. The command may fail, since
// something happens to the nodes meanwhile. ended waits for its end.
func (s *shard) changingEngine(name string) (ended func()) {
	s.t.Helper()
	command := exec.Command(program, s.engineChange(name, s.all()...)...)
	var said bytes.Buffer
	command.Stderr = &said
	if err := command.Start(); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.t.Helper()
		if err := command.Wait(); err != nil {
			s.t.Logf("the change to %s was disturbed: %v: %s", name, err, &said)
		}
	}
}

// engineSequence draws an order of changes in which each engine follows each other one: a closed
// walk over all pairs.
func engineSequence(random *rand.Rand) []string {
	names := engine.All().With(engine.Engine.RunsInNode).Names()
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	next := make([][]string, len(names))
	for i := range names {
		next[i] = slices.Delete(slices.Clone(names), i, i+1)
		random.Shuffle(len(next[i]), func(a, b int) {
			next[i][a], next[i][b] = next[i][b], next[i][a]
		})
	}
	var walk []string // Hierholzer's
	var visit func(at int)
	visit = func(at int) {
		for len(next[at]) > 0 {
			to := next[at][0]
			next[at] = next[at][1:]
			visit(slices.Index(names, to))
		}
		walk = append(walk, names[at])
	}
	visit(slices.Index(names, engine.Default))
	slices.Reverse(walk)
	return walk[1:]
}

// TestKillsWhileEngineChanges changes from engine to engine under the durable transactions of
// clients. At a random moment of each change nodes are killed or paused: one, a minority, or all.
// The chain always names the engine, and the shard goes on with it.
func TestKillsWhileEngineChanges(t *testing.T) {
	t.Parallel()
	const nodes, actors = 5, 4
	changes := 8 // of all pairs; a seed draws which
	if testing.Short() {
		changes = 4
	}
	t.Logf("-seed %d", *seedFlag)
	random := rand.New(rand.NewPCG(*seedFlag, 20))
	s := newShardBy(t, "", nodes, quickDetector...)
	s.start(s.all()...)
	s.ordering(s.all()...)
	c := s.newCrowd(actors, ledgerdv1.Level_LEVEL_DURABLE)
	c.progress(20)
	for k, name := range engineSequence(random)[:changes] {
		ended := s.changingEngine(name)
		after := time.Duration(random.IntN(400)) * time.Millisecond
		<-time.After(after)
		victims := s.all()
		random.Shuffle(nodes, func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		begun, what := time.Now(), ""
		switch k % 4 {
		case 0, 2:
			victims = victims[:1+random.IntN(2)]
			what = "kill"
			s.kill(victims...)
			s.changeEngine(name, s.others(victims...)...)
			c.progress(10)
			s.start(victims...)
		case 1:
			victims = victims[:1+random.IntN(2)]
			what = "pause"
			s.signal(syscall.SIGSTOP, victims...)
			<-time.After(time.Duration(random.IntN(3000)) * time.Millisecond)
			s.signal(syscall.SIGCONT, victims...)
		default:
			what = "kill all"
			s.kill(victims...)
			for _, i := range victims {
				s.start(i)
				<-time.After(time.Duration(random.IntN(300)) * time.Millisecond)
			}
		}
		ended()
		s.changeEngine(name, s.all()...)
		s.orderingBy(name, s.all()...)
		c.progress(10)
		t.Logf("change to %s: %s %v after %v: all order by it after %v", name, what, victims,
			after, time.Since(begun).Round(time.Millisecond))
	}
	c.judge(s.all()...)
	s.stop(s.all()...)
	s.verified(s.all()...)
}

// TestDiskFillsWhileEngineChanges fills a node's disk at several moments around changes of the
// engine. The others order by the new engine, and the full node says what is wrong, or orders, too.
// Once there is space again, it does.
func TestDiskFillsWhileEngineChanges(t *testing.T) {
	t.Parallel()
	const full = 0
	t.Logf("-seed %d", *seedFlag)
	random := rand.New(rand.NewPCG(*seedFlag, 21))
	s := newShardBy(t, "", 4, smallReserve)
	s.moveToSmallDisk(full)
	s.start(s.all()...)
	s.ordering(s.all()...)
	acme := s.newParty("acme", []string{"cash"}, 1, 2, 3)
	stop := s.writers(acme, "writer", 1, 2)
	big := filepath.Join(s.homes[full].Dir, "big")
	for k, name := range []string{"trains", "dare", "allconcur", "dare", "trains", "allconcur+"} {
		after := time.Duration(random.IntN(300)) * time.Millisecond
		switch k % 3 {
		case 0: // before
			fill(t, big, 0)
			s.changeEngine(name, s.others(full)...)
		case 1: // meanwhile
			ended := s.changingEngine(name)
			<-time.After(after)
			fill(t, big, 0)
			ended()
			s.changeEngine(name, s.others(full)...)
		default: // right after
			s.changeEngine(name, s.others(full)...)
			fill(t, big, 0)
		}
		s.eventually("the others order by "+name+", and the full node says what is wrong or orders",
			func() error {
				s.alive(s.all()...)
				for _, i := range s.all() {
					state, err := s.state(i)
					orders := state.GetMode() == ledgerdv1.NodeMode_NODE_MODE_ORDERING &&
						state.GetEngine().GetEngine() == name
					if err != nil || !orders && (i != full ||
						!strings.Contains(state.GetReason(), "disk")) {
						return fmt.Errorf("node %d: %v, %w", i, state, err)
					}
				}
				return nil
			})
		begun := time.Now()
		s.remove(big)
		s.orderingBy(name, s.all()...)
		t.Logf("change to %s: all order %v after there was space", name,
			time.Since(begun).Round(time.Millisecond))
	}
	promises := stop()
	s.same(s.all()...)
	s.kept(acme, promises)
	s.exports(s.all()...)
	s.stop(s.all()...)
	s.verified(s.all()...)
}

// TestClockMovesWhileEngineChanges moves a node's clock by years around changes of the engine,
// while another node is down or comes back. Time never goes back, no block is dated ahead, and
// nothing waits for the clock.
func TestClockMovesWhileEngineChanges(t *testing.T) {
	t.Parallel()
	const nodes, wrong, down = 3, 2, 0
	s := newShardBy(t, "", nodes, quickDetector...)
	s.program = programWithMovedClock(t)
	s.start(s.all()...)
	s.ordering(s.all()...)
	acme := s.newParty("acme", []string{"cash"}, 0, 1, 2)
	s.confirmed(s.all()...)
	stop := s.writers(acme, "writer", s.all()...)
	offsets := []time.Duration{thirtyYears, -thirtyYears, 9 * time.Second, 60 * aYear, -time.Minute,
		thirtyYears}
	for k, name := range []string{"trains", "dare", "allconcur", "dare", "trains", "allconcur+"} {
		ended := s.changingEngine(name)
		s.moveClock(wrong, offsets[k])
		if k%2 == 1 {
			s.kill(down)
		}
		for n := range 5 {
			s.dated(acme, wrong, fmt.Sprintf("change %d to %s, %d", k, name, n))
		}
		ended()
		if k%2 == 1 {
			s.start(down)
		}
		s.changeEngine(name, s.all()...)
		s.orderingBy(name, s.all()...)
		s.dated(acme, wrong, "after the change to "+name)
	}
	s.moveClock(wrong, 0)
	s.confirmed(s.all()...)
	promises := stop()
	s.same(s.all()...)
	s.neverBack(0)
	s.kept(acme, promises)
	s.exports(s.all()...)
	s.stop(s.all()...)
	s.verified(s.all()...)
}
