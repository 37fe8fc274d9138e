package search

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Promises is what a new generation relies on with prompt delivery (docs/design/prompt.md). Let any
// majority of the servers stop and say what they A-delivered, voted for and held. Then all rounds
// after the furthest one of them that any server A-delivered show in what they say, with the
// messages that were A-delivered.
const Promises order.Property = "promises"

// promise is what a server would report of the rounds that it has not closed.
type promise struct {
	votes []order.Vote
	held  []order.Held
}

// promise numbers what a server would report if it stopped now.
func (j *judge) promise(engine order.Voter) uint32 {
	p := promise{votes: engine.Votes()}
	if holder, holds := engine.(order.Holder); holds {
		p.held = holder.Held()
	}
	k := j.key[:0]
	for _, v := range p.votes {
		k = binary.LittleEndian.AppendUint64(append(k, 'v', flag(v.Reliable), flag(v.Confirmed)),
			uint64(v.Epoch))
		for _, id := range v.Origins {
			k = append(k, 'o', byte(id))
		}
		for _, id := range v.Members {
			k = append(k, 'm', byte(id))
		}
		k = appendContent(k, v.Delivery)
	}
	for _, h := range p.held {
		k = binary.LittleEndian.AppendUint64(append(k, 'h', flag(h.Reliable)), uint64(h.Epoch))
		k = appendContent(k, h.Delivery)
	}
	j.key = k
	id, known := j.promiseIDs[string(k)]
	if !known {
		id = uint32(len(j.promises))
		j.promises = append(j.promises, p)
		j.promiseIDs[string(k)] = id
	}
	return id
}

func appendContent(k []byte, d order.Delivery) []byte {
	k = binary.LittleEndian.AppendUint64(k, uint64(d.Round))
	k = binary.LittleEndian.AppendUint64(k, uint64(d.Epoch))
	for _, m := range d.Messages {
		k = append(append(k, 'c', byte(m.Origin), byte(len(m.Payload))), m.Payload...)
	}
	return k
}

// judgePromises judges the promises of each majority of servers that did not crash: a crashed one
// has forgotten.
func (j *judge) judgePromises(outcomes []uint32) *order.Violation {
	var furthest outcome
	for _, id := range outcomes {
		if o := j.outcomes[id]; j.roundOf(o) > j.roundOf(furthest) {
			furthest = o
		}
	}
	rounds := j.deliveries(furthest.delivered)
	for quorum := range 1 << len(outcomes) {
		if bits.OnesCount(uint(quorum)) != len(outcomes)/2+1 {
			continue
		}
		var asked []outcome
		head := order.Round(0)
		for at, id := range outcomes {
			if o := j.outcomes[id]; quorum>>at&1 != 0 && !o.crashed {
				asked, head = append(asked, o), max(head, j.roundOf(o))
			}
		}
		if len(asked) <= len(outcomes)/2 {
			continue
		}
		for _, d := range rounds[head:] {
			shown := j.shown(asked, d.Round)
			if shown == nil || string(appendContent(nil, *shown)) != string(appendContent(nil, d)) {
				return brokenPromises(furthest, d, asked, shown)
			}
		}
	}
	return nil
}

// roundOf returns the last round that a server A-delivered, 0 for none.
func (j *judge) roundOf(o outcome) order.Round { return j.rounds[o.delivered].delivery.Round }

// shown returns the content of a round that a new generation would take: of a value that may have
// been A-delivered by votes, or else what the server held that A-broadcast in the round in the last
// state. It is nil if there is none.
func (j *judge) shown(asked []outcome, round order.Round) *order.Delivery {
	for _, o := range asked {
		for _, v := range j.promises[o.promise].votes {
			if v.Round == round && j.passes(asked, &v) {
				return &v.Delivery
			}
		}
	}
	var last *order.Held
	for _, o := range asked {
		for _, h := range j.promises[o.promise].held {
			if h.Round == round && (last == nil || h.Epoch > last.Epoch ||
				h.Epoch == last.Epoch && last.Reliable) {
				last = &h
			}
		}
	}
	if last == nil {
		return nil
	}
	return &last.Delivery
}

// passes reports whether a value may have been A-delivered by votes, as package generation does.
func (j *judge) passes(asked []outcome, v *order.Vote) bool {
	votes, unknown, confirmed := 0, len(v.Members), false
	for _, o := range asked {
		if slices.Contains(v.Members, o.id) {
			unknown--
		}
		own := j.promises[o.promise].votes
		for i, w := range own {
			if w.Round != v.Round || w.Epoch != v.Epoch || w.Reliable != v.Reliable ||
				!slices.Equal(w.Origins, v.Origins) {
				continue
			}
			votes++
			confirmed = confirmed || w.Confirmed || !w.Reliable && i+1 < len(own) &&
				own[i+1].Confirmed
		}
	}
	majority := j.servers/2 + 1
	fast := max(majority, min(j.servers-(majority-1)/2, len(v.Members)))
	return confirmed || votes+unknown >= fast
}

func brokenPromises(by outcome, d order.Delivery, asked []outcome,
	shown *order.Delivery) *order.Violation {
	text := "nothing"
	if shown != nil {
		text = describeDelivery(*shown)
	}
	servers := make([]order.ServerID, len(asked))
	for i, o := range asked {
		servers[i] = o.id
	}
	return &order.Violation{Property: Promises, Evidence: []string{
		fmt.Sprintf("server %d A-delivers %s", by.id, describeDelivery(d)),
		fmt.Sprintf("the servers %v did not, and show %s", servers, text),
	}}
}
