package multicast

import (
	"fmt"
	"slices"

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
	plantPanic        = "panic"
)

var sequencerPlants = []string{plantLostDelivery, plantSwappedOrder, plantCyclicOrder, plantWrongGroup, plantTwice, plantLoneLeader, plantPanic}

// sequencer is atomic multicast by one log that all replicas of all groups share: each A-delivers what is for its group.
type sequencer struct {
	world    *World
	plant    string
	logs     map[string]*Log // by destination set, where orders are to go in circles; else the only one, by ""
	names    []string        // of the logs, in the order in which they came to be
	all      []order.Replica
	replicas map[order.Replica]*sequencerReplica
}

// sequencerReplica is what a replica of a sequencer knows.
type sequencerReplica struct {
	leader    order.ServerID
	delivered uint64
	held      []order.Multicast // to be swapped with the next
	waiting   [][]byte          // letters that a lone leader is still to send on, one to each replica
	told      int               // replicas that have the first of them
}

func newSequencer(world *World, plant string) (Form, error) {
	s := &sequencer{world: world, plant: plant, logs: map[string]*Log{}, replicas: map[order.Replica]*sequencerReplica{}}
	for group := range world.Deployment().Groups() {
		s.all = append(s.all, world.Deployment().Members(order.GroupID(group))...)
	}
	for _, replica := range s.all {
		s.replicas[replica] = &sequencerReplica{}
	}
	return s, nil
}

// log is where a message is ordered.
func (s *sequencer) log(to []order.GroupID) *Log {
	name := ""
	if s.plant == plantCyclicOrder {
		name = fmt.Sprint(to)
	}
	if s.logs[name] == nil {
		s.logs[name] = s.world.NewLog(s.all)
		s.names = append(s.names, name)
	}
	return s.logs[name]
}

// Submit puts a message into the log.
func (s *sequencer) Submit(client order.Replica, m order.Multicast) {
	letter := appendMessage(nil, m)
	if s.plant != plantLoneLeader {
		s.log(m.To).Propose(client, letter)
		return
	}
	for _, replica := range s.world.Deployment().Members(0) {
		s.world.Send(client, replica, letter)
	}
}

// Lead matters where the leader is alone with the order.
func (s *sequencer) Lead(at order.Replica, leader order.ServerID) { s.replicas[at].leader = leader }

// Poll A-delivers what was ordered.
func (s *sequencer) Poll(at order.Replica) {
	if at.Group == order.Clients {
		return
	}
	for _, name := range s.names {
		for _, entry := range s.logs[name].Ordered(at) {
			s.take(at, entry)
		}
	}
	if s.plant == plantLoneLeader {
		s.relay(at)
	}
}

// relay is the lone leader's part: it sends each message to the replicas of all groups, one a poll, and remembers nothing.
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

// take A-delivers an entry where it is for the replica's group, with the planted bug at one replica.
func (s *sequencer) take(at order.Replica, entry []byte) {
	m, err := decodeMessage(entry)
	if err != nil {
		panic(fmt.Sprintf("the log holds what nobody wrote: %v", err))
	}
	victim := at == s.all[len(s.all)-1]
	if !slices.Contains(m.To, at.Group) && (s.plant != plantWrongGroup || !victim) {
		return
	}
	r := s.replicas[at]
	r.delivered++
	third := victim && r.delivered == 3
	switch {
	case s.plant == plantPanic && third:
		panic("the third message is one too many")
	case s.plant == plantLostDelivery && third:
		return
	case s.plant == plantSwappedOrder && third:
		r.held = append(r.held, m)
		return
	case s.plant == plantTwice && third:
		s.world.Deliver(at, m)
	}
	s.world.Deliver(at, m)
	for _, held := range r.held {
		s.world.Deliver(at, held)
	}
	r.held = nil
}

// AppendState appends what a replica knows.
func (s *sequencer) AppendState(state []byte, at order.Replica) []byte {
	r := s.replicas[at]
	if r == nil {
		return state
	}
	return fmt.Appendf(state, "%d %d %v %q %d", r.leader, r.delivered, r.held, r.waiting, r.told)
}

// Describe tells how many messages came.
func (s *sequencer) Describe(at order.Replica) string {
	r := s.replicas[at]
	if r == nil {
		return "has submitted all that it had"
	}
	return fmt.Sprintf("%d messages came, leader is %d", r.delivered, r.leader)
}
