//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// promise is a write that was acknowledged to a client.
type promise struct {
	id     []byte
	height uint64
	record string
	value  string
}

// writer writes its own records, one after the other, until ctx ends. It returns the writes that
// were acknowledged as durable.
func (p *party) writer(ctx context.Context, name string) (kept []promise) {
	for k := 0; ctx.Err() == nil; k++ {
		record, value := fmt.Sprintf("%s-%d", name, k), fmt.Sprintf("value %d of %s", k, name)
		status, err := p.nodes.Post(ctx, []client.Key{p.Key}, p.put(record, value),
			ledgerdv1.Level_LEVEL_DURABLE)
		if err == nil && client.Reached(status, ledgerdv1.Level_LEVEL_DURABLE) &&
			status.GetReasonCode() == "" {
			kept = append(kept, promise{status.GetId(), status.GetHeight(), record, value})
		}
	}
	return kept
}

// TestKillAll kills all nodes at once, at a random moment, under durable writes by several clients
// at several nodes.
func TestKillAll(t *testing.T) {
	t.Parallel()
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	if *roundsFlag > 0 {
		rounds = *roundsFlag
	}
	t.Logf("-seed %d", *seedFlag)
	random := rand.New(rand.NewPCG(*seedFlag, 0))
	const nodes, writers = 4, 6
	s := newRunningShard(t, nodes)
	acme := s.newParty("acme", []string{"cash"}, 0)
	var promises []promise
	for round := range rounds {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		var mutex sync.Mutex
		for w := range writers {
			nodes, err := client.New(s.urls(w%nodes), client.Options{Tries: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer nodes.Close()
			running.Go(func() {
				kept := acme.at(nodes).writer(ctx, fmt.Sprintf("round-%d-writer-%d", round, w))
				mutex.Lock()
				defer mutex.Unlock()
				promises = append(promises, kept...)
			})
		}
		after := time.Duration(200+random.IntN(1500)) * time.Millisecond
		<-time.After(after) // the random moment
		before := len(promises)
		s.kill(s.all()...)
		cancel()
		running.Wait()
		t.Logf("round %d: killed after %v, with %d promises given", round,
			after, len(promises)-before)
		s.start(s.all()...)
		s.ordering(s.all()...)
		s.same(s.all()...)
		s.kept(acme, promises)
	}
	if len(promises) == 0 {
		t.Fatal("nothing was promised: the test shows nothing")
	}
	s.exports(s.all()...)
	s.stop(s.all()...)
	s.verified(s.all()...)
}

// kept checks every promise, each at one of the nodes, in turn.
func (s *shard) kept(owner *party, promises []promise) {
	s.t.Helper()
	s.keptBy(owner, promises, s.all()...)
}

// keptBy is kept for some of the nodes.
func (s *shard) keptBy(owner *party, promises []promise, which ...int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for k, p := range promises {
		node := s.nodes[which[k%len(which)]]
		answer, err := node.Record(ctx, owner.record(p.record))
		if failure := (*client.Failure)(nil); err != nil && !errors.As(err, &failure) {
			s.t.Fatal(err)
		}
		if err != nil || string(answer.GetRecord().GetValue()) != p.value {
			s.t.Errorf("%s was acknowledged as durable with %q; now: %q, %v (transaction %x)",
				p.record, p.value, answer.GetRecord().GetValue(), err, p.id)
		}
	}
}
