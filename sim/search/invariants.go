package search

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// Properties of the tracking digraphs of one server [Poke19, section 5.5].
const (
	// TrackingInvariants: a tracking digraph that is not empty keeps I1 to I4.
	TrackingInvariants order.Property = "invariants I1 to I4 of tracking digraphs"
	// TrackingSpecifications: a tracking digraph equals the one that equation 5.1 builds from
	// scratch, from the failure notifications.
	TrackingSpecifications order.Property = "agreement of both specifications of tracking digraphs"
	// ReconstructedTracking: the RTD invariant. For each server that left a tracking digraph, its
	// message is here, it failed, or it cannot be reached.
	ReconstructedTracking order.Property = "RTD invariant of tracking digraphs"
)

// trackingView is the knowledge of one server in a reliable round, in the terms of the properties.
type trackingView struct {
	id order.ServerID
	// members are the servers not removed. successors[q] are q+(G): q's successors that are
	// members.
	members    serverSet
	successors [ServersMax]serverSet
	// failed[q] is F[p][q]: the owners of the notifications that q failed.
	failed [ServersMax]serverSet
	// received is M[p].
	received serverSet
}

// inspect checks the tracking digraphs of a server.
func inspect(reliable *digraph.Digraph, id order.ServerID, engine machine) *order.Violation {
	for _, part := range parts(engine) {
		if broken := inspectEngine(reliable, id, part); broken != nil {
			return broken
		}
	}
	return nil
}

// inspectEngine checks the tracking digraphs of an engine in a reliable round.
func inspectEngine(reliable *digraph.Digraph, id order.ServerID,
	engine *allconcur.Engine) *order.Violation {
	status := engine.Status()
	if !status.Reliable {
		return nil
	}
	v := newTrackingView(reliable, id, engine, status.Members)
	for _, root := range status.Members {
		vertices, edges := engine.Tracking(root)
		if broken := v.check(int(root), vertices, edges); broken != nil {
			return broken
		}
	}
	return nil
}

func newTrackingView(reliable *digraph.Digraph, id order.ServerID, engine *allconcur.Engine,
	members []order.ServerID) *trackingView {
	v := &trackingView{id: id}
	for _, p := range members {
		v.members |= 1 << p
	}
	for _, p := range members {
		for _, q := range reliable.Successors(int(p)) {
			v.successors[p] |= 1 << q & v.members
		}
		if engine.Received(p) {
			v.received |= 1 << p
		}
	}
	for _, fn := range engine.Notifications() {
		v.failed[fn.Target] |= 1 << fn.Owner
	}
	return v
}

// grows lists the servers to which a failed vertex may have sent a message: its successors, except
// the owners of notifications. It is empty for a vertex that is not known to have failed.
func (v *trackingView) grows(p int) serverSet {
	if v.failed[p] == 0 {
		return 0
	}
	return v.successors[p] &^ v.failed[p]
}

// check checks one tracking digraph.
func (v *trackingView) check(root int, vertices []order.ServerID,
	edges [][2]order.ServerID) *order.Violation {
	var in serverSet
	var out [ServersMax]serverSet
	for _, p := range vertices {
		in |= 1 << p
	}
	for _, e := range edges {
		out[e[0]] |= 1 << e[1]
	}
	broken := func(property order.Property, format string, arguments ...any) *order.Violation {
		return &order.Violation{Property: property, Evidence: []string{
			fmt.Sprintf("server %d tracks the message of server %d by the vertices %v and edges %v",
				v.id, root, vertices, edges),
			"it knows of " + v.describe(), fmt.Sprintf(format, arguments...),
		}}
	}
	if in != 0 {
		if wrong := v.invariants(root, in, &out); wrong != "" {
			return broken(TrackingInvariants, "%s", wrong)
		}
	}
	wantIn, wantOut := v.specified(root)
	if in != wantIn || out != wantOut {
		return broken(TrackingSpecifications, "from scratch, the vertices are %v", wantIn.list())
	}
	if q := v.reconstruct(root, in); q >= 0 {
		return broken(ReconstructedTracking, "server %d left it, has not failed and can be "+
			"reached, and the message is not here", q)
	}
	return nil
}

// invariants checks I1 to I4 on a digraph that is not empty, and returns what is wrong [Poke19,
// section 5.5.1.2].
func (v *trackingView) invariants(root int, in serverSet, out *[ServersMax]serverSet) string {
	if !in.has(root) {
		return "I1: it lacks its root"
	}
	reached := serverSet(1) << root
	for p := range ServersMax {
		grows := v.grows(p)
		if in.has(p) {
			if missing := grows &^ in; missing != 0 {
				return fmt.Sprintf("I2: server %d failed and its successors %v are missing",
					p, missing.list())
			}
			reached |= grows
		}
		if wrong := out[p] &^ grows; wrong != 0 {
			return fmt.Sprintf("I3: edges lead from server %d to %v", p, wrong.list())
		}
	}
	if wrong := in &^ reached; wrong != 0 {
		return fmt.Sprintf("I4: %v are neither its root nor successors of a vertex that failed",
			wrong.list())
	}
	return ""
}

// specified builds a tracking digraph from scratch [Poke19, section 5.5.1.2, equation 5.1]. Take
// the digraph with all edges that I3 allows. The result has the root and all servers at the end of
// a path on which all servers but the last failed. It is empty if the message is here or all of
// these servers failed.
func (v *trackingView) specified(root int) (in serverSet, out [ServersMax]serverSet) {
	if v.received.has(root) {
		return 0, out
	}
	in = v.reach(root, v.grows)
	works := false
	for p := range ServersMax {
		works = works || in.has(p) && v.failed[p] == 0
	}
	if !works {
		return 0, out
	}
	for p := range ServersMax {
		if in.has(p) {
			out[p] = v.grows(p)
		}
	}
	return in, out
}

// reach returns the servers that are reachable from the root, itself included.
func (v *trackingView) reach(root int, edges func(p int) serverSet) serverSet {
	reached := serverSet(1) << root
	for before := serverSet(0); reached != before; {
		before = reached
		for p := range ServersMax {
			if before.has(p) {
				reached |= edges(p)
			}
		}
	}
	return reached
}

// reconstruct checks the RTD invariant [Poke19, section 5.5.2.1] and returns a server that breaks
// it, or -1.
func (v *trackingView) reconstruct(root int, in serverSet) int {
	if v.received.has(root) {
		return -1
	}
	vertices := v.reach(root, func(p int) serverSet {
		if v.failed[p] == 0 {
			return 0
		}
		return v.successors[p]
	})
	// The message is not here, so equation 5.3 removes every edge to an owner of a notification.
	reached := v.reach(root, func(p int) serverSet { return v.grows(p) & vertices })
	for q := range ServersMax {
		if vertices.has(q) && !in.has(q) && v.failed[q] == 0 && reached.has(q) {
			return q
		}
	}
	return -1
}

func (v *trackingView) describe() string {
	text := fmt.Sprintf("members %v, messages of %v", v.members.list(), v.received.list())
	for q, owners := range v.failed {
		if owners != 0 {
			text += fmt.Sprintf(", the failure of %d by %v", q, owners.list())
		}
	}
	return text
}
