package multicast

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file changes DARE's group: it starts servers again, and does what the group's operator
// wants. It also asks leaders for read requests.

// operator says which servers should be members. Whatever server leads is told so, again and again,
// until the group is as it should be.
type operator struct {
	// want are the members, by seat. Only those of the first size seats matter.
	want []rdmanet.Peer
	size int
	// removes says that servers which are gone are removed. In other runs they are excluded. dead
	// are those that are removed, by seat.
	removes bool
	dead    []bool
}

// lost makes the operator give up a server that is gone. It reports whether the operator does that.
func (o *operator) lost(server int) bool {
	if o.removes {
		o.want[server], o.dead[server] = rdmanet.Peer{}, true
	}
	return o.removes
}

// operate makes a leader take the next step to the group that the operator wants.
func (o *operator) operate(s *dare.Server) {
	if !s.Leading() {
		return
	}
	c := s.Configuration()
	var gone []order.ServerID
	for seat, want := range o.want {
		switch has := c.Seats[seat].Peer; {
		case has == want:
		case has != (rdmanet.Peer{}) &&
			(seat < o.size || c.Phase == dare.Extended || o.dead[seat]):
			gone = append(gone, order.ServerID(seat))
		case has == (rdmanet.Peer{}) && seat < o.size && c.Phase == dare.Stable:
			o.refused(s.Add(order.ServerID(seat), want))
		}
	}
	if len(gone) > 0 {
		o.refused(s.Remove(gone...))
	}
	if c.Phase == dare.Stable && c.Size > o.size {
		o.refused(s.Shrink(o.size))
	}
}

// refused panics if an error is not one that passes.
func (o *operator) refused(err error) {
	if err != nil && !errors.Is(err, dare.ErrUnsettled) && !errors.Is(err, dare.ErrSeat) {
		panic(fmt.Sprintf("a leader refuses a change: %v", err))
	}
}

// Restart makes a server on a host that started again. It waits until it is added.
func (f *dareServers) Restart(at order.Replica) error {
	host, err := f.world.Host(at)
	if err != nil {
		return err
	}
	peer := rdmanet.Peer{ID: host.ID(), Incarnation: host.Incarnation()}
	f.config.Peers = slices.Clone(f.config.Peers)
	f.config.Peers[at.Server] = peer
	f.config.Joins = f.config.Fault != dare.FaultRestartedVotes
	server, err := f.make(at)
	f.config.Joins = false
	if err != nil {
		return err
	}
	s := &dareServer{Server: server, worked: f.world.Now()}
	if f.config.Fault == dare.FaultRestartedVotes {
		s.round = f.config.FirstRound
	}
	f.servers[at.Server] = s
	f.want[at.Server], f.dead[at.Server] = peer, false
	return nil
}

// Resize makes the group smaller or larger.
func (f *dareServers) Resize(_ order.GroupID, size int) { f.size = size }

// join makes a replica whose server has recovered take over what another one A-delivered, once its
// user has all rounds before the server's first one.
func (f *dareServers) join(at order.Replica) {
	s := f.servers[at.Server]
	first, _, has := s.Recovered()
	if !has || s.round != 0 {
		return
	}
	for i, other := range f.servers {
		if other.round >= first && !f.world.processes[i].crashed {
			f.world.Note(at, "takes over what %d A-delivered before round %d", i, other.round)
			s.round, s.delivered = other.round, slices.Clone(other.delivered)
			s.waiting = slices.DeleteFunc(s.waiting, func(m dareMessage) bool {
				return slices.Contains(s.delivered, m.ID)
			})
			for place := range s.delivered {
				f.tell(at, place)
			}
			return
		}
	}
}

// tell tells the frame of the message with a place among those that a replica A-delivers, unless it
// did so in an earlier life.
func (f *dareServers) tell(at order.Replica, place int) {
	told, id := &f.told[at.Server], f.servers[at.Server].delivered[place]
	switch {
	case place == len(*told):
		*told = append(*told, id)
		f.world.Deliver(at, f.known[id])
	case (*told)[place] != id:
		f.world.Breaks(order.TotalOrder,
			fmt.Sprintf("%v A-delivers %v as its number %d", at, (*told)[place], place+1),
			fmt.Sprintf("after it started again, that is %v", id))
	}
}

// dareRead is a read request at a server. When it may be answered, the server must have A-delivered
// all rounds that some server had A-delivered when the request came.
type dareRead struct {
	asked  bool
	number uint64
	rounds order.Round
}

// asks asks a leader for a read request, one after the other.
func (f *dareServers) asks(at order.Replica) {
	s := f.servers[at.Server]
	if s.read.asked {
		passed, err := s.Passed(s.read.number)
		if passed && s.round < s.read.rounds {
			f.world.Breaks(Invariant, fmt.Sprintf("%v answers a read request before round %d, and "+
				"round %d was A-delivered", at, s.round, s.read.rounds-1))
		}
		s.read.asked = !passed && err == nil
	}
	if !s.read.asked {
		if number, err := s.Barrier(); err == nil {
			s.read = dareRead{true, number, f.rounds}
		}
	}
}
