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

// peerTable lists the peers of this node: the members of the chain by index. An index never
// changes. A table never changes either: a new one replaces it.
type peerTable struct {
	ids     []rdmanet.PeerID // by index; empty for servers that left
	servers map[rdmanet.PeerID]order.ServerID
	names   map[order.ServerID]string // for the log
	// addresses are the addresses of the other members, for fabrics that need them.
	addresses map[rdmanet.PeerID]string
}

// newPeerTable makes a table of members. The table always includes this node.
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
			continue // no node can have such a key: the member takes part in nothing
		}
		index := order.ServerID(member.Index)
		if (index == self) != (peer == own) {
			return nil, fmt.Errorf("member %d of the chain is %s, but this node is %s, member %d",
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

// equal reports whether two tables have the same peers at the same indexes and addresses.
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

// peers holds the current table.
type peers struct{ table atomic.Pointer[peerTable] }

// id returns a server's identity on the fabric, or "" if the server is not a peer.
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

// membershipHost is a fabric's host that needs to know the members.
type membershipHost interface {
	SetMembers(members map[rdmanet.PeerID]string) error
}

// peersAsOf identifies what the table of peers was made from.
type peersAsOf struct {
	number  uint64
	leavers []order.ServerID
}

// activePeers returns the members this node must stay connected to. These are the members of its
// chain, or of the block that let it in while its own chain does not reach that block. Members that
// left are included as long as the machine talks to them.
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

// refreshPeers passes the current members to every part that connects to them.
func (l *life) refreshPeers() error {
	n := l.node
	number, elsewhere := n.Store().Membership().Number, n.crossing.MembersChanged()
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
	n.crossing.SetOwn(n.Store().Membership())
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

// admitPeers makes the fabric admit the members of the own shard, taken from the table, and those
// of the other shards.
func (n *Node) admitPeers(own *peerTable) error {
	if host, can := n.host.(membershipHost); can {
		return host.SetMembers(n.crossing.Addresses(own.addresses))
	}
	return nil
}
