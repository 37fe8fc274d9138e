package node

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// peerTable is who this node talks to: the members of the chain by their indexes, which stay for ever. Tables are never changed; a new one takes the place of the old.
type peerTable struct {
	ids     []rdmanet.PeerID // by index; empty for those who are members no more
	servers map[rdmanet.PeerID]order.ServerID
	// addresses are where the others are, for fabrics that have to know.
	addresses map[rdmanet.PeerID]string
}

// newPeerTable makes a table of members; this node is in it in any case.
func newPeerTable(members []ledger.GroupMember, self order.ServerID, own rdmanet.PeerID) (*peerTable, error) {
	t := &peerTable{servers: map[rdmanet.PeerID]order.ServerID{}, addresses: map[rdmanet.PeerID]string{}}
	t.put(self, own)
	for _, member := range members {
		peer, err := p2p.PeerID(member.Key)
		if err != nil {
			continue // nobody can have such a key: the member takes part in nothing
		}
		index := order.ServerID(member.Index)
		if (index == self) != (peer == own) {
			return nil, fmt.Errorf("member %d of the chain is %s, and this node is %s as member %d", index, peer, own, self)
		}
		t.put(index, peer)
		if index != self {
			t.addresses[peer] = member.Address
		}
	}
	return t, nil
}

func (t *peerTable) put(server order.ServerID, peer rdmanet.PeerID) {
	for len(t.ids) <= int(server) {
		t.ids = append(t.ids, "")
	}
	t.ids[server] = peer
	t.servers[peer] = server
}

// equal tells whether two tables lead to the same peers at the same places.
func (t *peerTable) equal(other *peerTable) bool {
	if !slices.Equal(t.ids, other.ids) || len(t.addresses) != len(other.addresses) {
		return false
	}
	for peer, address := range t.addresses {
		if other.addresses[peer] != address {
			return false
		}
	}
	return true
}

// peers is the table that counts now.
type peers struct{ table atomic.Pointer[peerTable] }

// id is a server's identity on the fabric, empty for one that is no peer.
func (p *peers) id(server order.ServerID) rdmanet.PeerID {
	t := p.table.Load()
	if int(server) >= len(t.ids) {
		return ""
	}
	return t.ids[server]
}

// server tells who is behind an identity.
func (p *peers) server(id rdmanet.PeerID) (order.ServerID, bool) {
	server, known := p.table.Load().servers[id]
	return server, known
}

// membershipHost is a fabric's host that has to know who the members are.
type membershipHost interface {
	SetMembers(members map[rdmanet.PeerID]string) error
}

// leaverStays is how long a node still talks to a member that left, so that it hears that this is durable.
const leaverStays = 3 * time.Second

// peersAsOf says what the table of peers was made of.
type peersAsOf struct {
	number uint64
	group  *group
	left   map[ledger.MemberIndex]time.Time // when members left that are in the table still
}

// outdated tells whether there has to be another table.
func (p *peersAsOf) outdated(number uint64, g *group) bool {
	if p.number != number || p.group != g {
		return true
	}
	for _, at := range p.left {
		if time.Since(at) > leaverStays {
			return true
		}
	}
	return false
}

// conversants are the members that this node has to talk to: those of its chain, or of the block that let it in while its own chain does not reach as far, and those who left, for as long as they take
// part in the run at hand, and a moment longer.
func (s *supervisor) conversants() []ledger.GroupMember {
	membership := s.node.Store().Membership()
	if at := s.node.home.Membership(); at.Number > membership.Number {
		membership = at
	}
	members := slices.Clip(membership.Members)
	g := s.at()
	left := map[ledger.MemberIndex]time.Time{}
	for _, former := range s.node.Store().FormerMembers() {
		if _, present := membership.Find(former.Index); present || s.node.peers.id(order.ServerID(former.Index)) == "" {
			continue
		}
		at, known := s.peersOf.left[former.Index]
		if !known || g != nil && slices.Contains(g.members, order.ServerID(former.Index)) {
			at = time.Now()
		}
		if time.Since(at) <= leaverStays {
			left[former.Index] = at
			members = append(members, former.GroupMember)
		}
	}
	s.peersOf.left = left
	return members
}

// refreshPeers has everything that talks to the members know who they are now.
func (s *supervisor) refreshPeers() error {
	n := s.node
	number, g, elsewhere := n.Store().Membership().Number, s.at(), n.between.membersChanged()
	if !s.peersOf.outdated(number, g) && !elsewhere {
		return nil
	}
	table, err := newPeerTable(s.conversants(), n.home.Self, n.host.ID())
	if err != nil {
		return err
	}
	s.peersOf.number, s.peersOf.group = number, g
	n.between.setOwn(n.Store().Membership())
	n.time.setMembers(n.Store().Membership())
	if table.equal(n.peers.table.Load()) {
		if elsewhere {
			return n.admitPeers(table)
		}
		return nil
	}
	n.logger.Info("the members changed", "change", number, "peers", len(table.servers))
	n.peers.table.Store(table)
	n.exchange.SetPeers(table.ids)
	errs := []error{s.driver.SetPeers(table.ids), s.detector.SetPeers(table.ids), n.admitPeers(table)}
	s.mu.Lock()
	for server := range s.heard {
		if n.peers.id(server) == "" {
			delete(s.heard, server)
			delete(s.linked, server)
		}
	}
	s.mu.Unlock()
	return errors.Join(errs...)
}

// admitPeers has the fabric let in the members of the own shard, as a table has them, and of the others.
func (n *Node) admitPeers(own *peerTable) error {
	if host, can := n.host.(membershipHost); can {
		return host.SetMembers(n.between.addresses(own.addresses))
	}
	return nil
}
