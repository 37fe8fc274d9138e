package sim

import (
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// say returns the message of a server with an entry of a user.
func say(origin order.ServerID, text string) order.Message {
	return order.Message{Origin: origin, Payload: encodePayload(stamp{},
		append([]byte{entryUser}, text...), marks{})}
}

// decide returns the message of a server with a change.
func decide(origin order.ServerID, c change) order.Message {
	return order.Message{Origin: origin, Payload: encodePayload(stamp{}, c.encode(), marks{})}
}

func TestPayloadsKeepTheirMarks(t *testing.T) {
	t.Parallel()
	marked := marks{entrants: []shard.Entrant{{Server: 3, Ticket: 77},
		{Server: 1, Ticket: 1 << 60}}, regroup: true}
	entry, got := splitPayload(encodePayload(stamp{}, []byte("u entry"), marked))
	if string(entry) != "u entry" || !got.regroup || len(got.entrants) != 2 ||
		got.entrants[1] != marked.entrants[1] {
		t.Fatalf("%q %+v", entry, got)
	}
	if changes(order.Delivery{Messages: []order.Message{say(0, "x"), {Origin: 1}}}) {
		t.Error("a user's entry changes the group")
	}
	if !changes(order.Delivery{Messages: []order.Message{decide(0,
		change{kind: entryJoin, server: 4})}}) {
		t.Error("a join does not")
	}
}

func TestChainsAgree(t *testing.T) {
	t.Parallel()
	all, genesis := make(blocks), newGenesis(3, 3)
	a, b := newChain(all, []*block{genesis}), newChain(all, []*block{genesis})
	for _, c := range []*chain{a, b} {
		c.execute(0, 1, []order.Message{say(0, "one"), {Origin: 1}})
		if c.execute(0, 2, []order.Message{{Origin: 0}, {Origin: 1}}) != nil {
			t.Error("an empty round makes a block")
		}
		if c.execute(0, 3, []order.Message{say(0, "one")}) != nil {
			t.Error("an entry is in the chain twice")
		}
		c.execute(0, 4, []order.Message{decide(1, change{kind: entryJoin, server: 3})})
		// too soon
		c.execute(0, 5, []order.Message{decide(1, change{kind: entryLeave, server: 0, nonce: 1})})
		c.execute(1, 7, []order.Message{decide(1, change{kind: entryLeave, server: 0})})
	}
	if a.head() != b.head() || a.head().height != 4 {
		t.Fatalf("%+v and %+v", a.head(), b.head())
	}
	m, changed := a.Membership()
	if m.Number != 2 || changed != 4 || len(m.Members) != 3 || m.Members[0] != 1 {
		t.Errorf("members %+v changed at %d", m, changed)
	}
	if former := a.Former(); len(former) != 1 || former[0] != (shard.Former{Server: 0, Left: 4}) {
		t.Errorf("former members %+v", former)
	}
	a.cut(1)
	if m, changed = a.Membership(); m.Number != 0 || changed != 0 || a.Tip().Round != 1 {
		t.Errorf("after a cut: %+v, %d, %+v", m, changed, a.Tip())
	}
	if a.execute(2, 2, []order.Message{say(0, "two")}) == b.blocks[2] {
		t.Error("two blocks are one")
	}
}

func TestDisksCountAsTheChainSays(t *testing.T) {
	t.Parallel()
	m := newGenesis(3, 3).members
	old, renewed := newDiskID(stream(1, 0)), newDiskID(stream(2, 0))
	if !m.counts(1, old, true) || m.counts(1, renewed, false) || m.counts(5, old, true) {
		t.Error("in the genesis the original disks count, and no others")
	}
	if m.after(change{kind: entryAdmit, server: 1, disk: renewed, by: 1}) != nil {
		t.Error("a disk is admitted by its own server")
	}
	m = m.after(change{kind: entryAdmit, server: 1, disk: renewed, by: 0})
	if m == nil || m.counts(1, old, true) || !m.counts(1, renewed, false) ||
		!m.counts(0, old, true) {
		t.Errorf("after an admission: %+v", m)
	}
}
