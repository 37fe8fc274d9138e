package sim

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// run numbers a run of an engine.
type run generation.Run

func (r run) generation() generation.Generation { return generation.Run(r).Generation() }

// String shows a run as its generation and its eon.
func (r run) String() string { return fmt.Sprintf("%d.%d", r.generation(), generation.Run(r).Eon()) }

// group is who orders in a run: members by their chain-wide identities, ascending. A member's place in the engine is its place in the list.
type group struct {
	run     run
	first   order.Round
	members []order.ServerID
	// shard is the size of the chain's membership as the run begins, of which majorities are taken.
	shard int
	// entrants are the incarnations that came in with this run.
	entrants []change
}

// place is a member's place in its group.
func (g *group) place(server order.ServerID) (order.ServerID, bool) {
	if int(server) < len(g.members) && g.members[server] == server {
		return server, true // as in the first group
	}
	at, found := slices.BinarySearch(g.members, server)
	return order.ServerID(at), found
}

// block is one A-delivered round as the chain keeps it, with identities for places. Its height is its round. It is never changed and is shared by all servers.
type block struct {
	group    *group
	round    order.Round
	epoch    order.Epoch
	messages []order.Message
	removed  []order.ServerID
}

// newBlock makes the block of a round that an engine A-delivered.
func newBlock(g *group, d order.Delivery) *block {
	b := &block{group: g, round: d.Round, epoch: d.Epoch, messages: make([]order.Message, len(d.Messages))}
	for i, m := range d.Messages {
		b.messages[i] = order.Message{Origin: g.members[m.Origin], Payload: m.Payload}
	}
	for _, place := range d.Removed {
		b.removed = append(b.removed, g.members[place])
	}
	return b
}

// message is the payload of a server's message in the round.
func (b *block) message(of order.ServerID) []byte {
	for _, m := range b.messages {
		if m.Origin == of {
			return m.Payload
		}
	}
	return nil
}

// same tells whether two blocks are of one round, in one run and epoch, with the same contents.
func (b *block) same(other *block) bool {
	return b == other || b.group.run == other.group.run && b.round == other.round && b.epoch == other.epoch &&
		slices.Equal(b.removed, other.removed) && slices.EqualFunc(b.messages, other.messages, func(m, o order.Message) bool {
		return m.Origin == o.Origin && string(m.Payload) == string(o.Payload)
	})
}

// The first byte of a payload tells what it is.
const (
	payloadUser  byte = 'u' // what a user submitted
	payloadJoin  byte = 'j' // the operator takes a server into the membership
	payloadLeave byte = 'l' // the operator takes a server out of it
	payloadEnter byte = 'e' // an incarnation of a member that is outside of the group wants in
	// payloadRegroup is the wish of such a member that promised the next generation, so that it may not enter this one: the generation ends in order with the eon.
	payloadRegroup byte = 'r'
)

// change is a change of the group that is A-broadcast as a payload.
type change struct {
	kind   byte
	server order.ServerID
	// incarnation is that of the process which enters; of a payloadRegroup, the generation that is to end.
	incarnation uint64
}

// encode makes the payload of a change.
func (c change) encode() []byte {
	return binary.AppendUvarint(binary.AppendUvarint([]byte{c.kind}, uint64(c.server)), c.incarnation)
}

// changeMax bounds the size of an encoded change.
const changeMax = 1 + 2*binary.MaxVarintLen64

// decodeChange reads the change in a payload, if it is one.
func decodeChange(payload []byte) (change, bool) {
	if len(payload) == 0 || payload[0] == payloadUser {
		return change{}, false
	}
	server, read := binary.Uvarint(payload[1:])
	if read <= 0 {
		return change{}, false
	}
	incarnation, more := binary.Uvarint(payload[1+read:])
	return change{kind: payload[0], server: order.ServerID(server), incarnation: incarnation}, more > 0
}

// changes is allconcur.Config.Change: whether a round holds a change of the group.
func changes(d order.Delivery) bool {
	for _, m := range d.Messages {
		if _, is := decodeChange(m.Payload); is {
			return true
		}
	}
	return false
}

// chain is a server's copy of the blocks, from the first on, and what follows from them. Blocks that two servers hold are equal, so this follows alike everywhere.
type chain struct {
	blocks []*block
	// number counts the changes of the membership, and members are the chain's members, ascending: some may be outside of the group.
	number  uint64
	members []order.ServerID
	// group is of the run of the next block, and remaining who of it is not removed.
	group     *group
	remaining []order.ServerID
	// last is the transitional round of the eon, its last one; 0 where none is in sight. changed tells that the membership changes with it.
	last    order.Round
	changed bool
	// entrants are the incarnations that the next eon takes in.
	entrants []change
	// regroup tells that the generation ends with the eon.
	regroup bool
	// former are servers that left the membership.
	former []order.ServerID
}

// newChain is a chain without blocks, whose members are 0 to servers-1 and that no group orders yet.
func newChain(servers int) *chain {
	c := &chain{group: &group{first: 1}}
	for s := range servers {
		c.members = append(c.members, order.ServerID(s))
	}
	return c
}

// height is the round of the last block.
func (c *chain) height() order.Round { return order.Round(len(c.blocks)) }

// majority is more than half of the chain's members.
func (c *chain) majority() int { return len(c.members)/2 + 1 }

// has tells whether a server is a member of the chain.
func (c *chain) has(server order.ServerID) bool {
	_, found := slices.BinarySearch(c.members, server)
	return found
}

// was tells whether a server left the membership.
func (c *chain) was(server order.ServerID) bool { return slices.Contains(c.former, server) }

// begin makes a group that a generation decided the one that goes on.
func (c *chain) begin(g *group) {
	c.group, c.remaining = g, slices.Clone(g.members)
	c.last, c.changed, c.entrants, c.regroup = 0, false, nil, false
}

// ended is the generation that ended in order with the last block, 0 for none.
func (c *chain) ended() generation.Generation {
	if c.group.run == 0 || len(c.group.members) > 0 {
		return 0
	}
	return c.group.run.generation()
}

// apply appends the next block. A round with a change is followed by two more; with the second the eon ends, and the next group follows from the chain: who is not
// removed and who entered, as far as they are members.
func (c *chain) apply(b *block) {
	if b.round != c.height()+1 {
		panic(fmt.Sprintf("sim: broken invariant: round %d is applied after round %d", b.round, c.height()))
	}
	if b.group.run.generation() > c.group.run.generation() {
		c.begin(b.group) // the decision is elsewhere; the block tells of it
	}
	c.blocks = append(c.blocks, b)
	c.remaining = slices.DeleteFunc(c.remaining, func(s order.ServerID) bool { return slices.Contains(b.removed, s) })
	for _, m := range b.messages {
		if change, is := decodeChange(m.Payload); is {
			if c.last == 0 {
				c.last = b.round + 2
			}
			c.accept(change)
		}
	}
	if b.round == c.last {
		c.endEon()
	}
}

// accept takes an ordered change, unless it makes no sense, or the group would be left without a majority of the membership. The membership changes once in an eon, so
// that majorities before and after meet.
func (c *chain) accept(ordered change) {
	at, member := slices.BinarySearch(c.members, ordered.server)
	var members []order.ServerID
	switch ordered.kind {
	case payloadEnter:
		if member && !slices.Contains(c.entrants, ordered) {
			c.entrants = slices.DeleteFunc(c.entrants, func(e change) bool { return e.server == ordered.server })
			c.entrants = append(c.entrants, ordered)
		}
		return
	case payloadRegroup:
		c.regroup = c.regroup || ordered.incarnation == uint64(c.group.run.generation())
		return
	case payloadJoin:
		if member || c.changed {
			return
		}
		members = slices.Insert(slices.Clone(c.members), at, ordered.server)
	case payloadLeave:
		if !member || c.changed || len(c.members) == 1 {
			return
		}
		members = slices.Delete(slices.Clone(c.members), at, at+1)
	default:
		return
	}
	working := 0
	for _, s := range c.remaining {
		if slices.Contains(members, s) {
			working++
		}
	}
	if working < len(members)/2+1 {
		return
	}
	if ordered.kind == payloadLeave {
		c.former = append(c.former, ordered.server)
	}
	c.members, c.changed = members, true
	c.number++
}

// endEon makes the group of the next eon: of nobody, if the generation ends in order or the group would be less than a majority.
func (c *chain) endEon() {
	next := &group{run: c.group.run + 1, first: c.height() + 1, shard: len(c.members)}
	next.members, next.entrants = slices.Clone(c.remaining), c.entrants
	for _, e := range c.entrants {
		next.members = append(next.members, e.server)
	}
	slices.Sort(next.members)
	next.members = slices.DeleteFunc(slices.Compact(next.members), func(s order.ServerID) bool { return !c.has(s) })
	if c.regroup || len(next.members) < c.majority() {
		next.members = nil
	}
	c.begin(next)
}
