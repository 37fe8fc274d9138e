package state_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

const (
	noon        = ledger.Milliseconds(1_700_000_000_000) // the genesis time
	second      = ledger.Milliseconds(1000)
	week        = 7 * 24 * 3600 * second
	thirtyYears = 30 * 365 * 24 * 3600 * second
)

// clocks returns clocks of these members, each with this offset from the batch's time.
func clocks(offset ledger.Milliseconds, members ...ledger.MemberIndex) []ledger.MemberClock {
	list := make([]ledger.MemberClock, len(members))
	for i, member := range members {
		list[i] = ledger.MemberClock{Member: member, Offset: offset}
	}
	return list
}

// proposal is the time of a batch and the clocks that prove it.
type proposal struct {
	time   ledger.Milliseconds
	clocks []ledger.MemberClock
}

// sealed returns the time of a block in a book with this genesis, given the time of its parent.
func sealed(t *testing.T, genesis *ledger.Genesis, parent ledger.Milliseconds,
	proposals ...proposal) ledger.Milliseconds {
	t.Helper()
	s := state.New(genesis)
	client := ledgertest.NewClient(genesis, "acme")
	var batches [][]byte
	for i, each := range proposals {
		batch := ledger.Batch{Header: ledger.BatchHeader{Time: each.time}, Clocks: each.clocks}
		if i == 0 {
			batch.Bundles = [][]byte{client.Bundle(client.Register("a")).Encode()}
		}
		batches = append(batches, batch.Encode())
	}
	before := state.Parent{Header: ledger.Header{Time: parent}, Hash: genesis.Hash(),
		Members: s.Membership}
	draft := s.Seal(before, 1, 1, ledger.VerifyBatches(batches), func(ledger.Hash,
		*ledger.Transaction) bool {
		return false
	})
	if draft == nil {
		t.Fatal("no block")
	}
	block, _ := s.Execute(draft)
	return block.Header.Time
}

func TestBlockTime(t *testing.T) {
	t.Parallel()
	alone := func(time ledger.Milliseconds) []proposal { return []proposal{{time: time}} }
	for _, c := range []struct {
		name      string
		parent    ledger.Milliseconds
		proposals []proposal
		want      ledger.Milliseconds
	}{
		{"a second later", noon, alone(noon + second), noon + second},
		{"a clock behind the chain", noon, alone(noon - second), noon},
		{"the proposer does not know the time", noon, alone(ledger.NoTime), noon},
		{"a time before 1970", noon, alone(-second), noon},
		{"the largest step without clocks", noon, alone(noon + ledger.MaxStep),
			noon + ledger.MaxStep},
		{"one alone, 30 years ahead", noon, alone(noon + thirtyYears), noon},
		{"a millisecond too far", noon, alone(noon + ledger.MaxStep + 1), noon},
		{"as far as there are numbers", noon, alone(1<<63 - 1), noon},
		{"a week that a majority proves", noon, []proposal{{noon + week, clocks(0, 0, 1, 4)}},
			noon + week},
		{"clocks at the bound", noon, []proposal{{noon + week, clocks(ledger.ClockBound, 0, 1, 4)}},
			noon + week},
		{"clocks at the other bound", noon,
			[]proposal{{noon + week, clocks(-ledger.ClockBound, 0, 1, 4)}}, noon + week},
		{"a week with fewer clocks than a majority", noon,
			[]proposal{{noon + week, clocks(0, 1, 4)}}, noon},
		{"clocks of strangers", noon, []proposal{{noon + week, clocks(0, 0, 1, 5, 6, 7)}}, noon},
		{"a lone one 30 years ahead beside others", noon,
			[]proposal{{time: noon + thirtyYears}, {time: noon + second}}, noon + second},
		{"the lower median", noon, []proposal{{time: noon + 4}, {time: noon + 2}, {time: noon + 3},
			{time: noon + 1}}, noon + 2},
		{"those without a time are not in the median", noon, []proposal{{}, {}, {time: noon + 3}},
			noon + 3},
		{"a chain that is in 2056", noon + thirtyYears,
			[]proposal{{noon + week, clocks(0, 0, 1, 2)}}, noon + thirtyYears},
	} {
		for name, genesis := range map[string]*ledger.Genesis{
			"one shard": ledgertest.OperatedGenesis(5),
			"sharded":   ledgertest.ShardedGenesis(5, 0, 0)} {
			if got := sealed(t, genesis, c.parent, c.proposals...); got != c.want {
				t.Errorf("%s, %s: %d after the parent, want %d", c.name, name, got-c.parent,
					c.want-c.parent)
			}
		}
	}
}

// Whatever clocks are proposed, a block's time never goes back. It exceeds the largest step only to
// a time within the bound of the clocks of a majority.
func TestBlockTimeIsBounded(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		n := 1 + random.IntN(5)
		genesis := ledgertest.OperatedGenesis(n)
		var proposals []proposal
		var proven []ledger.Milliseconds
		for range 1 + random.IntN(n) {
			each := proposal{time: noon + ledger.Milliseconds(
				random.Int64N(int64(4*ledger.MaxStep))) - ledger.MaxStep}
			if random.IntN(2) == 0 {
				each.time = noon + ledger.Milliseconds(random.Int64N(int64(thirtyYears)))
			}
			for member := range n {
				if random.IntN(3) > 0 {
					offset := ledger.Milliseconds(random.Int64N(
						int64(2*ledger.ClockBound))) - ledger.ClockBound
					each.clocks = append(each.clocks,
						ledger.MemberClock{Member: ledger.MemberIndex(member), Offset: offset})
				}
			}
			if len(each.clocks) > n/2 {
				proven = append(proven, each.time)
			}
			proposals = append(proposals, each)
		}
		got := sealed(t, genesis, noon, proposals...)
		if got < noon || got > noon+ledger.MaxStep && !slices.Contains(proven, got) {
			t.Fatalf("seed %d: %d after the parent, of %v", seed, got-noon, proposals)
		}
	}
}
