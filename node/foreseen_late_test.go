package node_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
)

// patientShard is a shard of three nodes that do not suspect each other on a busy machine.
func patientShard(t *testing.T) *shard {
	t.Helper()
	return newShard(t, 3, func(_ int, config *home.Config) {
		config.Ordering.SuspectAfter = 30 * time.Second
	})
}

// opened starts all nodes, and registers the client at each.
func (s *shard) opened() {
	s.t.Helper()
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.final(s.same())
}

// taking returns a transfer that takes the place of another one in its stream.
func (s *shard) taking(place *ledger.Transaction, amount int64) *ledger.Bundle {
	transfer := s.client.Transfer(s.client.Account("a"), s.client.Account("b"), amount)
	transfer.Nonce = place.Nonce
	return s.client.Bundle(transfer)
}

// until returns a transfer that is valid up to a block.
func (s *shard) until(last ledger.Height) *ledger.Bundle {
	transfer := s.transfer()
	transfer.LastValid = last
	return s.client.Bundle(transfer)
}

// isStale and isExpired report how a node refused a bundle.
func isStale(refusal *report.Refusal) bool {
	return refusal != nil && refusal.Code == report.RefusedForeseen &&
		refusal.Word() == api.ReasonCode(ledger.StaleNonce)
}

func isExpired(refusal *report.Refusal) bool {
	return refusal != nil && refusal.Code == report.RefusedExpired
}

// A block that is ordered and not durable may be lost with the power of all nodes, and with it what
// makes a transaction fail. No node refuses anything for good because of such a block, also not one
// whose own disk has it. All nodes do once it is durable.
func TestNothingIsRefusedByABlockThatIsNotDurable(t *testing.T) {
	t.Parallel()
	s := patientShard(t)
	s.opened()
	var releases []func()
	for _, i := range []int{1, 2} { // without a majority of the disks
		releases = append(releases, s.nodes[i].HoldDisk())
	}
	release := func() {
		for _, each := range releases {
			each()
		}
	}
	t.Cleanup(release) // before the nodes stop
	spent := s.submit(0, report.LevelStored, s.transfer())[0]
	head := s.same()
	found, err := s.nodes[0].Store().Transaction(spent.ID)
	if err != nil {
		t.Fatal(err)
	}
	place := found.Entry.Transaction()
	var taken []*ledger.Bundle
	for i, n := range s.nodes {
		bundles := []*ledger.Bundle{s.taking(place, int64(2+i)), s.until(head)}
		refusals := n.Admit(t.Context(), bundles, false)
		if heights, _ := n.Heights(); heights.Durable >= head {
			t.Fatalf("node %d: block %d is durable: %+v", i, head, heights)
		}
		for j, refusal := range refusals {
			if refusal != nil {
				t.Errorf("node %d, bundle %d: %+v", i, j, refusal)
			} else {
				taken = append(taken, bundles[j])
			}
		}
	}
	release()
	for i, n := range s.nodes {
		for j, bundle := range taken {
			if status := s.submitted(bundle, i); status.Outcome == report.OutcomeExecuted {
				t.Errorf("node %d, bundle %d: %+v", i, j, status)
			}
		}
		s.final(s.same())
		refusals := n.Admit(t.Context(), []*ledger.Bundle{s.taking(place, int64(5+i)),
			s.until(head)}, false)
		if !isStale(refusals[0]) || !isExpired(refusals[1]) {
			t.Errorf("node %d, durable: %+v", i, refusals)
		}
	}
}

// A node that lags behind the others refuses what its own blocks decide, and leaves to a block what
// only theirs do. It refuses nothing that they have applied.
func TestLaggingNodeRefusesWhatItsBlocksDecide(t *testing.T) {
	t.Parallel()
	s := patientShard(t)
	const lags = 2
	var executes sync.RWMutex
	s.store.FreeSpace = func(dir string) (uint64, error) {
		if filepath.Base(filepath.Dir(dir)) == s.homes[lags].Name() {
			executes.RLock() // the store asks before each block
			defer executes.RUnlock()
		}
		return 1 << 40, nil
	}
	s.opened()
	old := s.client.Bundle(s.transfer())
	s.nodes[0].Admit(t.Context(), []*ledger.Bundle{old}, false)
	s.submitted(old, 0)
	before := s.same()
	s.final(before)

	executes.Lock()
	resume := sync.OnceFunc(executes.Unlock)
	t.Cleanup(resume) // before the nodes stop
	applied := s.until(before + 2)
	s.nodes[0].Admit(t.Context(), []*ledger.Bundle{applied}, false)
	if status := s.submitted(applied, 0); status.Outcome != report.OutcomeExecuted {
		t.Fatalf("%+v", status)
	}
	s.submit(0, report.LevelDurable, s.transfer())
	after := s.submit(0, report.LevelDurable, s.transfer())[0].Height
	if height := s.nodes[lags].Store().Head().Height; height != before {
		t.Fatalf("the node has block %d, and %d before", height, before)
	}
	taken, late := applied.Transaction(0), old.Transaction(0)
	bundles := func(amount int64) []*ledger.Bundle {
		again, err := ledger.DecodeBundle(applied.Encode()) // a node owns what it admits
		if err != nil {
			t.Fatal(err)
		}
		return []*ledger.Bundle{s.taking(taken, amount), s.until(after), again,
			s.taking(late, amount), s.until(before)}
	}
	refusals := s.nodes[0].Admit(t.Context(), bundles(2), false)
	if !isStale(refusals[0]) || !isExpired(refusals[1]) || refusals[2] != nil ||
		!isStale(refusals[3]) || !isExpired(refusals[4]) {
		t.Errorf("a node that has all blocks: %+v", refusals)
	}
	asked := bundles(3)
	refusals = s.nodes[lags].Admit(t.Context(), asked, false)
	for i := range 3 {
		if refusals[i] != nil {
			t.Errorf("the node that lags, bundle %d: %+v", i, refusals[i])
		}
	}
	if !isStale(refusals[3]) || !isExpired(refusals[4]) {
		t.Errorf("the node that lags, what its blocks decide: %+v", refusals[3:])
	}
	resume()
	if status := s.submitted(applied, lags); status.Outcome != report.OutcomeExecuted {
		t.Errorf("%+v", status)
	}
	if status := s.submitted(asked[0], lags); status.Result.Code != ledger.StaleNonce {
		t.Errorf("%+v", status)
	}
	if status := s.submitted(asked[1], lags); status.Outcome == report.OutcomeExecuted {
		t.Errorf("%+v", status)
	}
	s.final(s.same())
	refusals = s.nodes[lags].Admit(t.Context(), bundles(4), false)
	if !isStale(refusals[0]) || !isExpired(refusals[1]) || refusals[2] != nil {
		t.Errorf("the node that has caught up: %+v", refusals)
	}
}
