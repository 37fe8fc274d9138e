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
		w, err := newMixedNetwork(Config{Servers: n, Trains: 1 + choose(4), Generation: uint64(eon),
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

// votes stops a ring under ◇P at any moment. What a server A-delivered, each of the others has
// A-delivered or votes for, with equal contents, in order. Nobody has more votes than VotesMax.
// needed says that a server that votes for so many would not know what another one A-delivered if
// it had one less.
func votes(choose func(n int) int, fault Fault) (needed bool, err error) {
	w, err := newMixedNetwork(Config{Servers: 1 + choose(5), Trains: 1 + choose(4), Fault: fault},
		choose)
	if err != nil {
		return false, err
	}
	for p := range w.n() {
		w.submit(p, choose(8))
	}
	w.enough = 1 + choose(200)
	if err := w.play(0); err != nil {
		return false, err
	}
	for p, engine := range w.engines {
		known, voted := slices.Clone(w.rounds[p]), engine.Votes()
		if len(voted) > engine.VotesMax() || engine.VotesMax() != w.config.Trains {
			return false, fmt.Errorf("%d votes for %d rounds of %d, with %d trains", p, len(voted),
				engine.VotesMax(), w.config.Trains)
		}
		for _, vote := range voted {
			known = append(known, vote.Delivery)
		}
		for q := range w.n() {
			if len(w.rounds[q]) > len(known) ||
				!equalRounds(w.rounds[q], known[:len(w.rounds[q])]) {
				return false, fmt.Errorf("%d A-delivered %v, %d knows of %v", q, w.rounds[q], p,
					known)
			}
			needed = needed || engine.VotesMax() > 1 && len(voted) == engine.VotesMax() &&
				len(w.rounds[q]) == len(known)
		}
	}
	return needed, nil
}

func TestVotes(t *testing.T) {
	t.Parallel()
	needed := false
	for seed := uint64(1); seed <= 1500; seed++ {
		all, err := votes(seeded(seed), FaultNone)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		needed = needed || all
	}
	if !needed {
		t.Error("no server needed all the votes that it may have")
	}
}

// standstill crashes servers of a ring under ◇P. As soon as the detectors of the others know, each
// of them waits for a train that does not come, at work or at rest, so its driver sees that the
// ring stands still.
func standstill(choose func(n int) int, fault Fault) error {
	w, err := newMixedNetwork(Config{Servers: 2 + choose(4), Trains: 1 + choose(4), Fault: fault},
		choose)
	if err != nil {
		return err
	}
	w.errless = true
	for p := range w.n() {
		w.submit(p, choose(4))
	}
	w.enough = 1 + choose(200)
	if err := w.play(choose(2)); err != nil {
		return err
	}
	w.crash(choose(w.n()))
	w.enough = 0
	if err := w.play(0); err != nil {
		return err
	}
	for p, engine := range w.engines {
		status := engine.Status()
		if !w.crashed[p] && (engine.CanBroadcast() || len(status.Awaited) == 0) {
			return fmt.Errorf("%d does not wait for a train: %+v", p, status)
		}
		if !w.crashed[p] && (!engine.Stuck() || !slices.Equal(status.Awaited, status.Suspected)) {
			return fmt.Errorf("%d does not say that the ring stands still: %+v", p, status)
		}
	}
	return nil
}

func TestStandstill(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 600; seed++ {
		if err := standstill(seeded(seed), FaultNone); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	for seed := uint64(1); standstill(seeded(seed), FaultSuspicionIgnored) == nil; seed++ {
		if seed == 100 {
			t.Fatal("a suspicion that is ignored is not caught")
		}
	}
}

// TestVotesCatch plants bugs that make votes worthless to a new generation, and one with which a
// ring goes on without a working member.
func TestVotesCatch(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultVotesShort, FaultOneRotation, FaultJoinerDelivers,
		FaultSuspicionBelieved} {
		caught := uint64(0)
		for seed := uint64(1); seed <= 300 && caught == 0; seed++ {
			if _, err := votes(seeded(seed), fault); err != nil {
				caught = seed
				t.Logf("%v, seed %d: %v", fault, seed, err)
			}
		}
		if caught == 0 {
			t.Errorf("%v is not caught", fault)
		}
	}
}
