package streams

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram/stream"
)

// The tree may change while nodes run. The numbers of a stream that a change begins are above those
// of all streams to the child before, so the child's position says by itself which stream it needs:
//
//   - A child takes rings from the members of its parent, as its durable blocks name it. To members
//     of former parents it tells only its position.
//   - A parent goes on with the stream to a child that hangs elsewhere now, until that has all of
//     it durably. If the child was hung back, the stream goes on after the gap in its numbers, as
//     soon as the child's position is there.
//   - A new parent may ask too early, before the child has executed the change. Then no member
//     answers, and it asks again.

// branch begins the streams to the present children, and to former ones that may need entries. It
// ends those to shards without members: the operators have settled with these.
func (s *Streams) branch(tree *ledger.ShardTree) {
	own := s.config.Directory.Own()
	deserted := func(child ledger.ShardID) bool {
		return len(s.config.Directory.Members(child)) == 0
	}
	var kept []*outgoing
	for _, o := range s.out {
		if !deserted(o.child) {
			kept = append(kept, o)
			continue
		}
		o.end()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = kept
	children := tree.Children(own)
	for _, child := range tree.FormerChildren(own) {
		if known, done := s.done[child]; !done || known != len(tree.Rehung()) {
			children = append(slices.Clip(children), child)
		}
	}
	for _, child := range children {
		if !deserted(child) && !slices.ContainsFunc(s.out, func(o *outgoing) bool {
			return o.child == child
		}) {
			s.out = append(s.out, &outgoing{s: s, child: child,
				outlets: map[order.ServerID]*outlet{}})
		}
	}
	slices.SortFunc(s.out, func(a, b *outgoing) int { return int(a.child) - int(b.child) })
}

// graft takes the stream from the present parent. What was received from another one is dropped:
// the chain has all of that which it needs.
func (s *Streams) graft(tree *ledger.ShardTree) {
	parent, below := tree.Parent(s.config.Directory.Own())
	if !below || s.in != nil && s.in.parent == parent {
		return
	}
	if s.in != nil {
		s.in.end()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in = newIncoming(s, parent)
}

// letGo ends the streams to shards that hang elsewhere and have all of them durably.
func (s *Streams) letGo() {
	tree, chain := s.config.Directory.Tree(), s.config.Chain()
	if chain == nil || len(tree.Rehung()) == 0 {
		return
	}
	children := tree.Children(s.config.Directory.Own())
	var kept []*outgoing
	for _, o := range s.out {
		if slices.Contains(children, o.child) || !o.complete(chain) &&
			s.config.fault != faultLetGo {
			kept = append(kept, o)
			continue
		}
		s.config.Logger.Info("streams: a shard that hangs elsewhere has all entries from here",
			"child", o.child, "position", o.position)
		o.end()
		s.done[o.child] = len(tree.Rehung())
	}
	if len(kept) == len(s.out) {
		return
	}
	s.mu.Lock()
	s.out = kept
	s.mu.Unlock()
	s.assign(tree)
}

// complete reports whether the child has all entries durably that the chain has for it.
func (o *outgoing) complete(chain Chain) bool {
	if o.writer == nil || !o.writer.Placed() {
		return false
	}
	_, _, lacks := chain.FirstUntaken(o.child, o.writer.Position())
	return !lacks
}

// seat updates the parent, the children and the members.
func (s *Streams) seat() {
	tree := s.config.Directory.Tree()
	s.branch(tree)
	s.graft(tree)
	own := members(s.config.Directory.Members(s.config.Directory.Own()))
	me, present := own.find(s.self)
	if s.in != nil {
		s.in.seat(members(s.config.Directory.Members(s.in.parent)), own, me, present)
	}
	for _, o := range s.out {
		o.seat(own, members(s.config.Directory.Members(o.child)), me, present)
	}
	s.assign(tree)
	s.ring()
}

// assign says what the members of other shards are to this node.
func (s *Streams) assign(tree *ledger.ShardTree) {
	roles := map[rdmanet.PeerID]role{}
	assign := func(shard ledger.ShardID, what func(*role)) {
		for _, member := range s.config.Directory.Members(shard) {
			r := roles[member.Peer]
			r.index = order.ServerID(member.Index)
			what(&r)
			roles[member.Peer] = r
		}
	}
	for _, former := range tree.FormerParents(s.config.Directory.Own()) {
		assign(former, func(r *role) { r.former = true })
	}
	if s.in != nil {
		assign(s.in.parent, func(r *role) { r.above = true })
	}
	for _, o := range s.out {
		assign(o.child, func(r *role) { r.out = o })
	}
	s.roles.Store(&roles)
}

// asked handles the ask of a member of a shard above. One of a former parent learns how far the
// chain is, so that it can let go of its stream.
func (s *Streams) asked(l received) {
	r := (*s.roles.Load())[l.from.ID]
	switch at := s.heights.position(); {
	case r.above && s.in != nil:
		s.in.asked(l)
	case r.former && at.Known:
		s.send(l.from.ID, &message{kind: messageFeedback, child: s.config.Directory.Own(),
			feedback: stream.Feedback{Position: at.Durable}})
	}
}
