package multicast

import (
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/order"
)

// The bugs that can be planted in a sequencer.
const (
	plantLostDelivery = "lost-delivery"
	plantSwappedOrder = "swapped-order"
	plantCyclicOrder  = "cyclic-order"
	plantWrongGroup   = "wrong-group"
	plantTwice        = "delivered-twice"
	plantLoneLeader   = "lone-leader"
	plantTornPayload  = "torn-payload"
	plantPanic        = "panic"
)

// heldMax is how long the first of a pair waits for the second: a longer time than messages are
// submitted.
const heldMax = 20 * time.Millisecond

var sequencerPlants = []string{plantLostDelivery, plantSwappedOrder, plantCyclicOrder,
	plantWrongGroup, plantTwice, plantLoneLeader, plantTornPayload, plantPanic}

// sequencer is atomic multicast by one log that all replicas of all groups share. Each replica
// A-delivers the messages for its group.
type sequencer struct {
	world    *World
	plant    string
	log      *Log
	all      []order.Replica
	replicas map[order.Replica]*sequencerReplica
}

// sequencerReplica is the state of a replica of a sequencer.
type sequencerReplica struct {
	leader    order.ServerID
	delivered uint64
	held      []order.Multicast // to be swapped with the next
	since     time.Duration     // when the first was held
	// letters that a lone leader has still to send, one to each replica
	waiting [][]byte
	told    int // replicas that have the first of them
}

func newSequencer(world *World, plant string) (Form, error) {
	s := &sequencer{world: world, plant: plant, replicas: map[order.Replica]*sequencerReplica{}}
	for group := range world.Deployment().Groups() {
		s.all = append(s.all, world.Deployment().Members(order.GroupID(group))...)
	}
	for _, replica := range s.all {
		s.replicas[replica] = &sequencerReplica{}
	}
	s.log = world.NewLog(s.all)
	return s, nil
}

// Submit puts a message into the log.
func (s *sequencer) Submit(client order.Replica, m order.Multicast) {
	letter := appendMessage(nil, m)
	if s.plant != plantLoneLeader {
		s.log.Propose(client, letter)
		return
	}
	for _, replica := range s.world.Deployment().Members(0) {
		s.world.Send(client, replica, letter)
	}
}

// Lead matters only to the plant with a lone leader.
func (s *sequencer) Lead(at order.Replica, leader order.ServerID) { s.replicas[at].leader = leader }

// Poll A-delivers the ordered messages.
func (s *sequencer) Poll(at order.Replica) {
	if at.Group == order.Clients {
		return
	}
	for _, entry := range s.log.Ordered(at) {
		s.take(at, entry)
	}
	if r := s.replicas[at]; s.plant == plantCyclicOrder && len(r.held) > 0 &&
		s.world.Now() > r.since+heldMax {
		s.release(at)
	}
	if s.plant == plantLoneLeader {
		s.relay(at)
	}
}

// relay is the lone leader's part: it sends each message to the replicas of all groups, one a poll,
// and remembers nothing.
func (s *sequencer) relay(at order.Replica) {
	r := s.replicas[at]
	for _, letter := range s.world.Receive(at) {
		switch {
		case letter.From.Group != order.Clients:
			s.take(at, letter.Bytes)
		case r.leader == at.Server:
			r.waiting = append(r.waiting, letter.Bytes)
		}
	}
	if len(r.waiting) == 0 {
		return
	}
	s.world.Note(at, "sends an entry to %v", s.all[r.told])
	s.world.Send(at, s.all[r.told], r.waiting[0])
	if r.told++; r.told == len(s.all) {
		r.waiting, r.told = r.waiting[1:], 0
	}
}

// take A-delivers an entry if it is for the replica's group, with the planted bug.
func (s *sequencer) take(at order.Replica, entry []byte) {
	m, err := decodeMessage(entry)
	if err != nil {
		panic(fmt.Sprintf("the log holds an entry that was not written: %v", err))
	}
	r := s.replicas[at]
	victim := at == s.all[len(s.all)-1]
	if !slices.Contains(m.To, at.Group) && (s.plant != plantWrongGroup || !victim) {
		return
	}
	r.delivered++
	third := victim && r.delivered == 3
	switch {
	case s.plant == plantCyclicOrder && at.Group == 0:
		s.takePair(at, m)
		return
	case s.plant == plantPanic && third:
		panic("the third message is one too many")
	case s.plant == plantLostDelivery && third:
		return
	case s.plant == plantSwappedOrder && third:
		r.held = append(r.held, m)
		return
	case s.plant == plantTornPayload && third:
		m.Payload = append(slices.Clone(m.Payload), 0)
	case s.plant == plantTwice && third:
		s.world.Deliver(at, m)
	}
	s.world.Deliver(at, m)
	s.release(at)
}

// takePair makes all replicas of group 0 exchange its entries 1 and 2, 3 and 4, and so on, if no
// other group receives both. The order between any two groups is then consistent, and yet there are
// cycles.
func (s *sequencer) takePair(at order.Replica, m order.Multicast) {
	r := s.replicas[at]
	r.held = append(r.held, m)
	if len(r.held) == 1 {
		r.since = s.world.Now()
		return
	}
	if !slices.ContainsFunc(m.To, func(g order.GroupID) bool {
		return g != 0 && slices.Contains(r.held[0].To, g)
	}) {
		slices.Reverse(r.held)
	}
	s.release(at)
}

// release A-delivers the held messages.
func (s *sequencer) release(at order.Replica) {
	for _, m := range s.replicas[at].held {
		s.world.Deliver(at, m)
	}
	s.replicas[at].held = nil
}

// AppendState appends a replica's state.
func (s *sequencer) AppendState(state []byte, at order.Replica) []byte {
	r := s.replicas[at]
	if r == nil {
		return state
	}
	return fmt.Appendf(state, "%d %d %v %q %d", r.leader, r.delivered, r.held, r.waiting, r.told)
}

// Copy returns a copy of a replica's state.
func (s *sequencer) Copy(at order.Replica) any {
	if r := s.replicas[at]; r != nil {
		return r.copy()
	}
	return nil
}

// PutBack restores a replica's state.
func (s *sequencer) PutBack(at order.Replica, copied any) {
	if r, is := copied.(*sequencerReplica); is {
		s.replicas[at] = r.copy()
	}
}

func (r *sequencerReplica) copy() *sequencerReplica {
	own := *r
	own.held, own.waiting = slices.Clip(r.held), slices.Clip(r.waiting)
	return &own
}

// Describe reports how many messages a replica took.
func (s *sequencer) Describe(at order.Replica) string {
	r := s.replicas[at]
	if r == nil {
		return "has submitted all that it had"
	}
	return fmt.Sprintf("%d messages came, leader is %d", r.delivered, r.leader)
}
