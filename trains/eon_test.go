package trains

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/order"
)

// changed reports whether a round has a payload that changes the group.
func changed(d order.Delivery) bool {
	return slices.ContainsFunc(d.Messages, func(m order.Message) bool {
		return strings.HasPrefix(string(m.Payload), "change")
	})
}

// eons runs a shard through some eons under ◇P with false suspicions. Between eons members join or
// leave. In each eon all servers A-deliver equal rounds, which follow those of the eon before, and
// everything that was A-broadcast. What was not goes into the next eon.
func eons(choose func(n int) int, fault Fault) error {
	first, left := order.Round(1), []string(nil)
	for eon := 1; eon <= 3; eon++ {
		n := 1 + choose(5)
		w, err := newNetwork(Config{Servers: n, Trains: 1 + choose(4), Generation: uint64(eon),
			FirstRound: first, Change: changed, Fault: fault}, choose)
		if err != nil {
			return err
		}
		for p := range n {
			w.submit(p, choose(8))
		}
		changing := choose(n)
		w.pools[changing] = slices.Insert(w.pools[changing], choose(len(w.pools[changing])+1),
			"change")
		w.pools[changing] = append(w.pools[changing], left...)
		if err := w.play(0); err != nil {
			return err
		}
		for _, v := range w.history.Judge(order.AtRest) {
			return v
		}
		left = nil
		for p, engine := range w.engines {
			status := engine.Status()
			if !status.Ended || engine.Undelivered() || engine.CanBroadcast() {
				return fmt.Errorf("eon %d of %d servers: %d has not ended: %+v", eon, n, p, status)
			}
			if !equalRounds(w.rounds[p], w.rounds[0]) || w.rounds[p][0].Round != first {
				return fmt.Errorf("eon %d, round %d: %d A-delivers others than 0", eon, first, p)
			}
			left = append(left, w.pools[p]...)
		}
		first = w.rounds[0][len(w.rounds[0])-1].Round + 1
	}
	return nil
}

func TestEons(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		if err := eons(seeded(rapid.Uint64().Draw(t, "seed")), FaultNone); err != nil {
			t.Fatal(err)
		}
	})
	for seed := uint64(1); seed <= 600; seed++ {
		if err := eons(seeded(seed), FaultNone); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// equalRounds reports whether two servers A-deliver equal rounds.
func equalRounds(a, b []order.Delivery) bool {
	return slices.EqualFunc(a, b, func(x, y order.Delivery) bool { return reflect.DeepEqual(x, y) })
}

// An eon that ends a round early loses a wagon, and a server that takes no wagons at first
// A-delivers other rounds than the others.
func TestEonsCatch(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultLastRoundShort, FaultJoinerDelivers} {
		caught := uint64(0)
		for seed := uint64(1); seed <= 500 && caught == 0; seed++ {
			if err := eons(seeded(seed), fault); err != nil {
				caught = seed
				t.Logf("%v, seed %d: %v", fault, seed, err)
			}
		}
		if caught == 0 {
			t.Errorf("%v is not caught", fault)
		}
	}
}

// TestVotes stops a ring at any moment. What a server A-delivered, each of the others has
// A-delivered or votes for, with equal contents, in order. Nobody has more votes than VotesMax, and
// with one less a server would not know what another one A-delivered.
func TestVotes(t *testing.T) {
	t.Parallel()
	voted, needed := 0, false
	for seed := uint64(1); seed <= 1500; seed++ {
		choose := seeded(seed)
		w, err := newNetwork(Config{Servers: 1 + choose(5), Trains: 1 + choose(4)}, choose)
		if err != nil {
			t.Fatal(err)
		}
		for p := range w.n() {
			w.submit(p, choose(8))
		}
		w.enough = 1 + choose(200)
		if err := w.play(0); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for p, engine := range w.engines {
			known, votes := slices.Clone(w.rounds[p]), engine.Votes()
			if len(votes) > engine.VotesMax() || engine.VotesMax() != int(engine.trains) {
				t.Fatalf("seed %d: %d votes, of %d", seed, len(votes), engine.VotesMax())
			}
			for _, vote := range votes {
				known = append(known, vote.Delivery)
				voted++
			}
			for q := range w.n() {
				if len(w.rounds[q]) > len(known) ||
					!equalRounds(w.rounds[q], known[:len(w.rounds[q])]) {
					t.Fatalf("seed %d: %d A-delivered %v, %d knows of %v", seed, q, w.rounds[q], p,
						known)
				}
				needed = needed || engine.VotesMax() > 1 && len(votes) == engine.VotesMax() &&
					len(w.rounds[q]) == len(known)
			}
		}
	}
	if voted == 0 || !needed {
		t.Errorf("%d votes, and all that a server may have were needed: %v", voted, needed)
	}
}
