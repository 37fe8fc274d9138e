package abci

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// What the application has not executed counts as being in the pool, although the ledger has it. So
// a slow application bounds what is posted, and nothing grows.
func TestPoolIsBoundedByTheApplication(t *testing.T) {
	t.Parallel()
	const room = 8
	chain, p := newGrowing(), newProgram(t)
	a := startAdapter(t, p, chain, t.TempDir(), func(c *Config) { c.Pool.Transactions = room })
	a.reaches(1)
	fault, goOn := holding(callFinal, fine)
	p.setFault(fault)
	chain.put("a") // it is held up with this one
	var err error
	posted := 0
	for ; err == nil; posted++ {
		err = a.call("broadcast_tx_sync", fmt.Sprintf(`tx="k%d"`, posted), nil)
		if posted > room {
			t.Fatalf("%d were taken, and %d fit", posted, room)
		}
	}
	if posted != room+1 || !strings.Contains(err.Error(), "mempool is full: number of txs 8") {
		t.Errorf("after %d: %v", posted, err)
	}
	close(goOn)
	eventually(t, a, 0)
	if err := a.call("broadcast_tx_commit", `tx="last"`, nil); err != nil {
		t.Error(err)
	}
	texts, _, wrong := p.executed()
	if count := strings.Count(texts, "k"); count != room || wrong != "" {
		t.Errorf("%q; %s", texts, wrong)
	}
	eventually(t, a, 0)
}

// eventually waits until so many transactions are in the pool.
func eventually(t *testing.T, a *adapter, want int) {
	t.Helper()
	a.await(fmt.Sprint(want, " in the pool"), func(Notice) bool {
		var left struct {
			Count string `json:"n_txs"`
		}
		if err := a.call("num_unconfirmed_txs", "", &left); err != nil {
			t.Fatal(err)
		}
		return left.Count == fmt.Sprint(want)
	})
}

// Transactions of which the application executed the block, and the answer never came, leave the
// pool. Their clients are told that.
func TestPoolForgetsWhatWasMissed(t *testing.T) {
	t.Parallel()
	chain, p := newGrowing(), newProgram(t)
	a := startAdapter(t, p, chain, t.TempDir(), nil)
	a.reaches(1)
	once := true
	p.setFault(func(kind protowire.Number, after bool) fault {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if kind != callFinal.request || !after || !once {
			return fine
		}
		// It executes by itself what the adapter asked it, and commits it.
		once = false
		p.states, p.open, p.opened = append(p.states, p.open), nil, 0
		return breakOff
	})
	err := a.call("broadcast_tx_commit", `tx="c"`, nil)
	if err == nil || !strings.Contains(err.Error(), "its result is not known") {
		t.Errorf("%v", err)
	}
	chain.put("d")
	eventually(t, a, 0)
	if texts, height, wrong := p.executed(); texts != "c d" && texts != "c" || wrong != "" {
		t.Errorf("%q at %d; %s", texts, height, wrong)
	}
}
