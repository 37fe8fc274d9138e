package allconcur

import (
	"slices"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// overlay has the two digraphs from one server's point of view, for one membership: where it sends
// its frames. It is immutable, so its lists may be handed out. It is built anew when servers are
// removed [Poke19, Algorithm 6.5, lines 70-73].
type overlay struct {
	members []order.ServerID
	// forward leads to the successors in G_R.
	forward *fan
	// votes has the fans for ⟨FWD, p⟩ and ⟨BWD, p⟩, nil for none.
	votes [2]*fan
	// children[o] are this server's children in G_U, which is the binomial tree of source o over
	// the members.
	children [][]order.ServerID
}

// fan lists the servers to which one server sends what it floods over a digraph.
type fan struct {
	// successors are the successors that are members.
	successors []order.ServerID
	// place is a successor's index in successors, plus 1; 0 for all others.
	place []int32
	// relayTo[place[p]] is successors without p.
	relayTo [][]order.ServerID
}

func newOverlay(reliable *digraph.Digraph, self order.ServerID, members serverSet, unreliable bool,
	detector Detector) *overlay {
	o := &overlay{members: members.appendTo(nil)}
	o.forward = newFan(reliable.Order(), reliable.Successors(int(self)), members)
	switch detector {
	case DetectorEventual:
		around := slices.Concat(reliable.Successors(int(self)), reliable.Predecessors(int(self)))
		slices.Sort(around)
		o.votes[0] = newFan(reliable.Order(), slices.Compact(around), members)
	case DetectorEventualPaper:
		o.votes = [2]*fan{o.forward, newFan(reliable.Order(), reliable.Predecessors(int(self)),
			members)}
	}
	if unreliable {
		o.growTrees(reliable.Order(), self)
	}
	return o
}

func newFan(n int, neighbours []int, members serverSet) *fan {
	f := &fan{place: make([]int32, n)}
	for _, s := range neighbours {
		if members.has(order.ServerID(s)) {
			f.successors = append(f.successors, order.ServerID(s))
			f.place[s] = int32(len(f.successors))
		}
	}
	f.relayTo = append(f.relayTo, f.successors)
	for i := range f.successors {
		others := append([]order.ServerID(nil), f.successors[:i]...)
		f.relayTo = append(f.relayTo, append(others, f.successors[i+1:]...))
	}
	return f
}

// fanOf returns the fan for votes of a kind.
func (o *overlay) fanOf(kind frameKind) *fan { return o.votes[kind-kindForward] }

// growTrees computes this server's children in every member's tree.
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

// relays lists the servers to relay to: all successors except one that has the frame already, the
// origin or else the server that it came from.
func (f *fan) relays(origin, from order.ServerID) []order.ServerID {
	if place := f.place[origin]; place != 0 {
		return f.relayTo[place]
	}
	return f.relayTo[f.place[from]]
}
