package allconcur

import (
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// overlay is the two digraphs from one server's point of view, for one membership: whom it sends what. It is immutable, so that the lists may be handed
// out, and made anew when servers are removed [Poke19, Algorithm 6.5, lines 70-73].
type overlay struct {
	members []order.ServerID
	// successors are the members among the successors in G_R.
	successors []order.ServerID
	// place is a successor's index in successors, plus 1; 0 for all others.
	place []int32
	// relayTo[place[p]] is successors without p.
	relayTo [][]order.ServerID
	// children[o] are the children in G_U, which is the binomial tree of source o over the members.
	children [][]order.ServerID
}

func newOverlay(reliable *digraph.Digraph, self order.ServerID, members serverSet, unreliable bool) *overlay {
	n := reliable.Order()
	o := &overlay{members: members.appendTo(nil), place: make([]int32, n)}
	for _, s := range reliable.Successors(int(self)) {
		if members.has(order.ServerID(s)) {
			o.successors = append(o.successors, order.ServerID(s))
			o.place[s] = int32(len(o.successors))
		}
	}
	o.relayTo = append(o.relayTo, o.successors)
	for i := range o.successors {
		others := append([]order.ServerID(nil), o.successors[:i]...)
		o.relayTo = append(o.relayTo, append(others, o.successors[i+1:]...))
	}
	if unreliable {
		o.growTrees(n, self)
	}
	return o
}

// growTrees finds this server's children in every member's tree.
func (o *overlay) growTrees(n int, self order.ServerID) {
	o.children = make([][]order.ServerID, n)
	at := 0
	for i, p := range o.members {
		if p == self {
			at = i
		}
	}
	var places []int
	for root, origin := range o.members {
		places = digraph.AppendBinomialChildren(places[:0], len(o.members), root, at)
		if len(places) == 0 {
			continue
		}
		list := make([]order.ServerID, len(places))
		for i, place := range places {
			list[i] = o.members[place]
		}
		o.children[origin] = list
	}
}

// relays lists whom to relay to over G_R: all successors but one that has it already, the origin or else the one it came from.
func (o *overlay) relays(origin, from order.ServerID) []order.ServerID {
	if place := o.place[origin]; place != 0 {
		return o.relayTo[place]
	}
	return o.relayTo[o.place[from]]
}
