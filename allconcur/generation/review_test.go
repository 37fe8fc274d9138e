package generation

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// valueOf says what a round is, as a driver does.
func valueOf(d order.Delivery) TailRound {
	value := TailRound{Round: d.Round, Epoch: d.Epoch, Removed: slices.Clone(d.Removed)}
	var content []byte
	for _, m := range d.Messages {
		value.Origins = append(value.Origins, m.Origin)
		content = fmt.Appendf(content, "%d:%q ", m.Origin, m.Payload)
	}
	value.Content = sha256.Sum256(content)
	return value
}

// runFrozenEngines runs production engines under random suspicions and cut links, freezes a random majority one by one, and lets the others go on: whatever anybody A-delivers
// has to be in the base and tail that choose takes from the frozen ones' votes.
func runFrozenEngines(seed uint64, n, shard int, fault allconcur.Fault) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	g, err := digraph.Complete(n)
	if err != nil {
		return err
	}
	engines := make([]*allconcur.Engine, n)
	channels := make([][][]byte, n*n)
	slow := make([]bool, n*n)
	suspected := make([]bool, n*n)
	frozen := make([]bool, n)
	delivered := make([][]TailRound, n)
	for p := range n {
		engines[p], err = allconcur.New(allconcur.Config{Engine: allconcur.EngineAllConcurPlus, Self: order.ServerID(p), Servers: n, Shard: shard, Reliable: g, Generation: uint64(NewRun(1, 0)), Fault: fault})
		if err != nil {
			return err
		}
	}
	all := Membership{Number: 1}
	for p := range shard {
		all.Members = append(all.Members, order.ServerID(p))
	}
	quorum := rng.Perm(n)[:all.Quorum()]
	var promises []Promised
	steps := 50 + rng.IntN(400)
	for step := range steps + 1500 {
		p, q := rng.IntN(n), rng.IntN(n)
		if frozen[p] {
			continue
		}
		e, edge := engines[p], q*n+p
		switch kind := rng.IntN(100); {
		case kind < 3 && p != q && !suspected[edge]:
			suspected[edge] = true
			_ = e.Suspect(order.ServerID(q)) // it may have halted
		case kind < 6 && suspected[edge]:
			suspected[edge] = false
			_ = e.Trust(order.ServerID(q))
		case kind < 8:
			slow[edge] = !slow[edge]
		case kind < 25:
			if e.CanBroadcast() {
				if err := e.Broadcast(fmt.Appendf(nil, "%d.%d", p, step)); err != nil {
					return err
				}
			}
		default:
			if c := channels[edge]; len(c) > 0 && (!slow[edge] || rng.IntN(30) == 0) {
				channels[edge] = c[1:]
				_ = e.Receive(order.ServerID(q), c[0])
			}
		}
		ready := e.Ready()
		for _, send := range ready.Sends {
			for _, to := range send.To {
				channels[p*n+int(to)] = append(channels[p*n+int(to)], send.Frame)
			}
		}
		for _, d := range ready.Deliveries {
			delivered[p] = append(delivered[p], valueOf(d))
		}
		if len(quorum) > 0 && step > steps && rng.IntN(20) == 0 {
			last := quorum[0]
			quorum = quorum[1:]
			frozen[last] = true
			r := Report{Head: Head{Generation: 1, Round: order.Round(len(delivered[last]))}, Run: NewRun(1, 0), Shard: all, Membership: all}
			for _, v := range engines[last].Votes() {
				value := valueOf(v.Delivery)
				value.Reliable = v.Reliable
				r.Votes = append(r.Votes, Vote{TailRound: value, Confirmed: v.Confirmed, Voters: v.Members})
			}
			promises = append(promises, Promised{order.ServerID(last), r})
		}
	}
	if len(quorum) > 0 {
		return nil
	}
	base, tail := choose(promises, nil, FaultNone)
	for p := range n {
		for i, d := range delivered[p] {
			for q := range p {
				if i < len(delivered[q]) && !d.Equal(delivered[q][i]) {
					return fmt.Errorf("servers %d and %d A-deliver different rounds %d", q, p, d.Round)
				}
			}
			if d.Round <= base.Round {
				continue
			}
			at := int(d.Round - base.Round - 1)
			if at >= len(tail) {
				return fmt.Errorf("server %d A-delivers round %d, base %d, tail of %d", p, d.Round, base.Round, len(tail))
			}
			value := tail[at]
			value.Reliable = false // a delivery does not tell
			if !d.Equal(value) {
				return fmt.Errorf("server %d A-delivers another round %d than the tail has", p, d.Round)
			}
		}
	}
	return nil
}

// frozenSeeds is how many schedules TestFrozenEngines runs for each group.
var frozenSeeds = flag.Uint64("frozen.seeds", 150, "random schedules for each group in TestFrozenEngines")

var frozenGroups = [][2]int{{2, 2}, {2, 3}, {3, 3}, {3, 4}, {3, 5}, {4, 4}, {4, 5}, {5, 5}, {4, 6}, {5, 6}, {6, 6}}

// TestFrozenEngines holds engines' votes and choose together.
func TestFrozenEngines(t *testing.T) {
	t.Parallel()
	for _, group := range frozenGroups {
		for seed := range *frozenSeeds {
			if err := runFrozenEngines(seed, group[0], group[1], allconcur.FaultNone); err != nil {
				t.Fatalf("%d servers of a shard of %d, seed %d: %v", group[0], group[1], seed, err)
			}
		}
	}
}

// TestFrozenEnginesCatch proves that TestFrozenEngines can say no.
func TestFrozenEnginesCatch(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		if runFrozenEngines(seed, 5, 5, allconcur.FaultNoForwardBackward) != nil {
			return
		}
	}
	t.Fatal("a planted bug goes unnoticed")
}
