package node

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// peerTable lists the peers of this node: the members of the chain by their indexes, which stay for
// ever. A table is never changed; a new one takes its place.
type peerTable struct {
	ids     []rdmanet.PeerID // by index; empty for servers that left
	servers map[rdmanet.PeerID]order.ServerID
	names   map[order.ServerID]string // for the log
	// addresses are where the others are, for fabrics that have to know.
	addresses map[rdmanet.PeerID]string
}

// newPeerTable makes a table of members; this node is in it in any case.
func newPeerTable(members []ledger.GroupMember, self order.ServerID,
	own rdmanet.PeerID) (*peerTable, error) {
	t := &peerTable{
		servers: map[rdmanet.PeerID]order.ServerID{}, names: map[order.ServerID]string{},
		addresses: map[rdmanet.PeerID]string{},
	}
	t.put(self, own)
	for _, member := range members {
		t.names[order.ServerID(member.Index)] = member.Name
		peer, err := p2p.PeerID(member.Key)
		if err != nil {
			continue // nobody can have such a key: the member takes part in nothing
		}
		index := order.ServerID(member.Index)
		if (index == self) != (peer == own) {
			return nil, fmt.Errorf("member %d of the chain is %s, and this node is %s as member %d",
				index, peer, own, self)
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

// equal reports whether two tables lead to the same peers at the same places.
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

// name returns a member's name, or "" if no table names it.
func (p *peers) name(server order.ServerID) string {
	if t := p.table.Load(); t != nil {
		return t.names[server]
	}
	return ""
}

// server returns the member with an identity on the fabric.
func (p *peers) server(id rdmanet.PeerID) (order.ServerID, bool) {
	server, known := p.table.Load().servers[id]
	return server, known
}

// membershipHost is a fabric's host that has to know who the members are.
type membershipHost interface {
	SetMembers(members map[rdmanet.PeerID]string) error
}

// peersAsOf is what the table of peers was made of.
type peersAsOf struct {
	number  uint64
	leavers []order.ServerID
}

// activePeers returns the members this node must stay connected to: those of its chain, or of the
// block that let it in while its own chain does not reach as far; and those that left, for as long
// as the machine talks to them.
func (l *life) activePeers(leavers []order.ServerID) []ledger.GroupMember {
	membership := l.node.Store().Membership()
	if at := l.node.home.Membership(); at.Number > membership.Number {
		membership = at
	}
	members := slices.Clip(membership.Members)
	for _, former := range l.node.Store().FormerMembers() {
		_, present := membership.Find(former.Index)
		if !present && slices.Contains(leavers, order.ServerID(former.Index)) {
			members = append(members, former.GroupMember)
		}
	}
	return members
}

// refreshPeers gives the present members to everything that talks to them.
func (l *life) refreshPeers() error {
	n := l.node
	number, elsewhere := n.Store().Membership().Number, n.between.membersChanged()
	l.mu.Lock()
	leavers := l.machine.Leavers()
	l.mu.Unlock()
	if l.peersOf.number == number && slices.Equal(l.peersOf.leavers, leavers) && !elsewhere {
		return nil
	}
	table, err := newPeerTable(l.activePeers(leavers), n.home.Self, n.host.ID())
	if err != nil {
		return err
	}
	l.peersOf.number, l.peersOf.leavers = number, leavers
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
	return errors.Join(l.driver.SetPeers(table.ids), l.detector.SetPeers(table.ids),
		n.admitPeers(table))
}

// admitPeers has the fabric let in the members of the own shard, as a table has them, and those of
// the other shards.
func (n *Node) admitPeers(own *peerTable) error {
	if host, can := n.host.(membershipHost); can {
		return host.SetMembers(n.between.addresses(own.addresses))
	}
	return nil
}
