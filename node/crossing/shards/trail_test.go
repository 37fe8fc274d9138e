package shards

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// vouchedDirectory is directory for a book with vouched crossings.
func vouchedDirectory(t testing.TB, self int) *Directory {
	t.Helper()
	d, err := NewDirectory(vouchedGenesis(t, ledger.ShardID(self/3)))
	if err != nil {
		t.Fatal(err)
	}
	d.SetSelf(peerOf(t, self))
	return d
}

func vouchedGenesis(t testing.TB, shard ledger.ShardID) *ledger.Genesis {
	t.Helper()
	book := ledgertest.ShardedGenesis(3, 0, 0, 1)
	book.VouchedCrossings = true
	genesis, err := book.ForShard(shard)
	if err != nil {
		t.Fatal(err)
	}
	return genesis
}

// history makes the chain of a shard of the test's book, and the certificates of its changes. The
// key of a present member is that of ledgertest.Member(present[index]).
type history struct {
	t        testing.TB
	genesis  *ledger.Genesis
	operator *ledgertest.Operator
	head     *ledger.Block
	present  map[ledger.MemberIndex]int
	next     ledger.MemberIndex
	trail    []*ledger.Certificate
}

func newHistory(t testing.TB, shard int) *history {
	t.Helper()
	return historyFrom(t, vouchedGenesis(t, ledger.ShardID(shard)), 3*shard)
}

// historyFrom makes the history of a shard of three members, the first of which is
// ledgertest.Member of this number.
func historyFrom(t testing.TB, genesis *ledger.Genesis, first int) *history {
	t.Helper()
	return &history{t: t, genesis: genesis, operator: ledgertest.NewOperator(genesis),
		head: genesis.Block(), present: map[ledger.MemberIndex]int{0: first, 1: first + 1,
			2: first + 2}, next: 3}
}

// branch returns another history that is the same so far.
func (h *history) branch() *history {
	other, operator := *h, *h.operator
	operator.Stream++
	other.operator, other.present = &operator, maps.Clone(h.present)
	other.trail = slices.Clone(h.trail)
	return &other
}

// certificate returns a certificate of a block that changed the members.
func (h *history) certificate(block *ledger.Block, epoch ledger.MembersEpoch,
	signers map[ledger.MemberIndex]int) *ledger.Certificate {
	var statements []ledger.Statement
	for index, i := range signers {
		statements = append(statements, ledger.SignStatement(
			ledgertest.Key(ledgertest.Member(i).Name), h.genesis.Hash(), index, epoch,
			block.Header.Height, block.Hash))
	}
	c := ledger.Certify(statements)
	c.Change = block.Proof(0)
	return c
}

// add makes the block of a change, which all members before it certify.
func (h *history) add(change *ledger.Bundle) {
	h.head = ledgertest.After(h.head, change)
	h.trail = append(h.trail, h.certificate(h.head, ledger.MembersEpoch(len(h.trail)), h.present))
}

func (h *history) joinAs(i int, member ledger.Member) *history {
	h.add(h.operator.Join(member))
	h.present[h.next] = i
	h.next++
	return h
}

func (h *history) join(i int) *history { return h.joinAs(i, ledgertest.Member(i)) }

func (h *history) leave(index ledger.MemberIndex) *history {
	h.add(h.operator.Leave(index))
	delete(h.present, index)
	return h
}

// learn gives a directory a trail, and fails the test unless it believes it.
func learn(t testing.TB, d *Directory, shard ledger.ShardID, trail []*ledger.Certificate) {
	t.Helper()
	if learned, err := d.LearnTrail(shard, trail); err != nil || !learned {
		t.Fatalf("a trail of %d changes: %v, %v", len(trail), learned, err)
	}
}

// A trail proves all that a node has to know of a member, also when no member of the genesis is
// left.
func TestTrailReplacesAllMembers(t *testing.T) {
	t.Parallel()
	d := vouchedDirectory(t, 0)
	before := d.Changed()
	h := newHistory(t, 1).join(20)
	learn(t, d, 1, h.trail)
	select {
	case <-before:
	default:
		t.Error("no change was told")
	}
	h.leave(0).join(21).leave(1).leave(2).join(22)
	learn(t, d, 1, h.trail)
	want := ledger.Membership{Number: 6, Height: 6, Members: []ledger.GroupMember{
		{Index: 3, Member: ledgertest.Member(20), Joined: 1},
		{Index: 4, Member: ledgertest.Member(21), Joined: 3},
		{Index: 5, Member: ledgertest.Member(22), Joined: 6}}}
	changes := d.Changes()
	if len(changes) != 1 || changes[0].Shard != 1 ||
		!reflect.DeepEqual(changes[0].Membership, want) || len(changes[0].Trail) != 6 {
		t.Fatalf("changes %+v", changes)
	}
	if number, members := d.Members(1); number != 6 || len(members) != 3 ||
		members[0] != (Member{Index: 3, Name: "node-20", Peer: peerOf(t, 20),
			Address: ledgertest.Member(20).Address}) {
		t.Errorf("members %d %+v", number, members)
	}
	if _, _, known := d.Find(peerOf(t, 3)); known {
		t.Error("a member that left is known")
	}
	if d.Epoch(1) != 6 || d.Epoch(0) != 0 || d.Epoch(2) != 0 || d.Epoch(9) != 0 {
		t.Error("wrong epochs")
	}
}

// What does not prove the members of a shard changes nothing, whichever peer tells it.
func TestFalseTrails(t *testing.T) {
	t.Parallel()
	h := newHistory(t, 1).join(20).leave(0).join(21)
	known, shorter := h.trail[:1], h.trail[:2]
	// altered is the trail up to a certificate that is replaced.
	altered := func(i int, c *ledger.Certificate) []*ledger.Certificate {
		return append(slices.Clone(h.trail[:i]), c)
	}
	blockOf := func(c *ledger.Certificate) *ledger.Block {
		header, err := ledger.DecodeHeader(c.Change.Header)
		if err != nil {
			t.Fatal(err)
		}
		return &ledger.Block{Header: header, Hash: c.Hash}
	}
	signed := func(i int, epoch ledger.MembersEpoch,
		signers map[ledger.MemberIndex]int) *ledger.Certificate {
		other := *h.trail[i]
		statements := []ledger.Statement{}
		for index, member := range signers {
			block := blockOf(h.trail[i])
			statements = append(statements, ledger.SignStatement(
				ledgertest.Key(ledgertest.Member(member).Name), h.genesis.Hash(), index, epoch,
				block.Header.Height, block.Hash))
		}
		other.Seals, other.Epoch = ledger.Certify(statements).Seals, epoch
		return &other
	}
	changedWith := func(i int, change *ledger.Proof) *ledger.Certificate {
		other := *h.trail[i]
		other.Change = change
		return &other
	}
	falseAddress := *h.trail[2].Change
	falseAddress.Body = slices.Clone(falseAddress.Body)
	address := []byte(ledgertest.Member(21).Address)
	at := len(falseAddress.Body) - 1
	for ; !slices.Equal(falseAddress.Body[at:at+min(len(address), len(falseAddress.Body)-at)],
		address); at-- {
	}
	falseAddress.Body[at+len(address)-1] ^= 1
	otherShard := newHistory(t, 2).join(20).leave(0).join(21)
	ownKeys := newHistory(t, 1)
	ownKeys.present = map[ledger.MemberIndex]int{0: 30, 1: 31, 2: 32}
	// It is genuine that member 20 joined. Then one member goes on alone with members of its own.
	alone := h.branch()
	alone.trail, alone.present = slices.Clone(known), map[ledger.MemberIndex]int{0: 3}
	for _, test := range []struct {
		name  string
		trail []*ledger.Certificate
	}{
		{"a change is left out", []*ledger.Certificate{h.trail[0], h.trail[2]}},
		{"the first change is left out", h.trail[1:]},
		{"a change is repeated", []*ledger.Certificate{h.trail[0], h.trail[0], h.trail[1]}},
		{"two changes are exchanged", []*ledger.Certificate{h.trail[0], h.trail[2], h.trail[1]}},
		{"too few sign", altered(1, signed(1, 1, map[ledger.MemberIndex]int{0: 3, 3: 20}))},
		{"a stranger signs", altered(1, signed(1, 1,
			map[ledger.MemberIndex]int{0: 3, 3: 20, 4: 40}))},
		{"members sign with keys of others", altered(1, signed(1, 1,
			map[ledger.MemberIndex]int{0: 30, 1: 31, 2: 32}))},
		{"members of the epoch before", altered(1, signed(1, 0,
			map[ledger.MemberIndex]int{0: 3, 1: 4, 2: 5}))},
		{"a member that left signs", altered(2, signed(2, 2,
			map[ledger.MemberIndex]int{0: 3, 1: 4}))},
		{"another shard's chain", otherShard.trail},
		{"another shard's members certify", altered(1, signed(1, 1,
			map[ledger.MemberIndex]int{0: 6, 1: 7, 2: 8}))},
		{"keys that the liar has all by itself", ownKeys.join(33).join(34).trail},
		{"one member's own branch", alone.join(33).join(34).trail},
		{"no proof of the change", altered(1, changedWith(1, nil))},
		{"the proof of another change", altered(1, changedWith(1, h.trail[2].Change))},
		{"a false address", altered(2, changedWith(2, &falseAddress))},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for name, begin := range map[string][]*ledger.Certificate{"nothing": nil,
				"one change": known, "two changes": shorter} {
				d := vouchedDirectory(t, 0)
				if begin != nil {
					learn(t, d, 1, begin)
				}
				_, before := d.Members(1)
				learned, err := d.LearnTrail(1, test.trail)
				if learned || err != nil && !errors.Is(err, ledger.ErrCertificate) ||
					err == nil && len(test.trail) > len(begin) {
					t.Errorf("with %s known: learned %v, %v", name, learned, err)
				}
				if _, after := d.Members(1); !slices.Equal(before, after) ||
					int(d.Epoch(1)) != len(begin) {
					t.Errorf("with %s known: %+v", name, after)
				}
				learn(t, d, 1, h.trail) // the truth still counts
			}
		})
	}
}

// Only a longer trail counts. What is cut off, or the same with other signers, changes nothing.
func TestTrailNeverGoesBack(t *testing.T) {
	t.Parallel()
	d := vouchedDirectory(t, 0)
	h := newHistory(t, 1).join(20).leave(0)
	learn(t, d, 1, h.trail)
	again := *h.trail[1]
	again.Seals = again.Seals[:3]
	for name, trail := range map[string][]*ledger.Certificate{"none": nil, "cut": h.trail[:1],
		"the same": h.trail, "other signers": {h.trail[0], &again}} {
		if learned, err := d.LearnTrail(1, trail); learned || err != nil {
			t.Errorf("%s: %v, %v", name, learned, err)
		}
	}
	for name, shard := range map[string]ledger.ShardID{"own": 0, "none": 3} {
		if learned, err := d.LearnTrail(shard, h.trail); learned || err != nil {
			t.Errorf("of shard %s: %v, %v", name, learned, err)
		}
	}
	if learned, err := directory(t, 0).LearnTrail(1, h.trail); learned || err != nil {
		t.Errorf("in a book without vouched crossings: %v, %v", learned, err)
	}
	if d.Epoch(1) != 2 {
		t.Errorf("epoch %d", d.Epoch(1))
	}
}

// Of two histories that are both certified, a node keeps the first one, and reports the other.
func TestTwoBranches(t *testing.T) {
	t.Parallel()
	h := newHistory(t, 1).join(20)
	other := h.branch()
	h.leave(0)
	other.leave(1)
	for name, second := range map[string][]*ledger.Certificate{"as long": other.trail,
		"longer": other.branch().join(30).trail} {
		d := vouchedDirectory(t, 0)
		learn(t, d, 1, h.trail)
		if learned, err := d.LearnTrail(1, second); learned || !errors.Is(err, ErrContradiction) {
			t.Errorf("%s: %v, %v", name, learned, err)
		}
		if _, members := d.Members(1); len(members) != 3 || members[0].Index != 1 {
			t.Errorf("%s: %+v", name, members)
		}
		learn(t, d, 1, h.branch().join(31).trail)
	}
}

// No shard takes over the name or the key of a member of another shard.
func TestTrailOfAForeignMember(t *testing.T) {
	t.Parallel()
	named := ledgertest.Member(20)
	named.Name = ledgertest.Member(7).Name
	for name, h := range map[string]*history{
		"key of another shard":  newHistory(t, 1).join(6),
		"key of the own shard":  newHistory(t, 1).join(0),
		"name of another shard": newHistory(t, 1).joinAs(20, named),
	} {
		d := vouchedDirectory(t, 0)
		if learned, err := d.LearnTrail(1, h.trail); learned || !errors.Is(err, ErrForeignMember) {
			t.Errorf("%s: %v, %v", name, learned, err)
		}
		if d.Epoch(1) != 0 {
			t.Errorf("%s: epoch %d", name, d.Epoch(1))
		}
		// It counts again once the member has left.
		learn(t, d, 1, h.leave(3).trail)
	}
}

// A bare membership proves nothing.
func TestVouchedDirectoryBelievesNoMember(t *testing.T) {
	t.Parallel()
	d := vouchedDirectory(t, 0)
	if d.Learn(1, changed(5, map[ledger.MemberIndex]int{0: 3, 1: 4, 2: 5, 3: 30, 4: 31})) {
		t.Error("members were believed without a trail")
	}
	if _, members := d.Members(1); len(members) != 3 || len(d.Changes()) != 0 {
		t.Errorf("members %+v", members)
	}
	if !d.Vouched() || directory(t, 0).Vouched() {
		t.Error("the genesis says otherwise")
	}
}

// The part of a trail that is known already is not verified again, so it is not taken over either:
// what a node passes on and keeps on disk is what it verified.
func TestKnownPartOfATrailIsKept(t *testing.T) {
	t.Parallel()
	d, h := vouchedDirectory(t, 0), newHistory(t, 1).join(20)
	learn(t, d, 1, h.trail)
	h.leave(0)
	spoilt := *h.trail[0]
	spoilt.Seals, spoilt.Change = nil, nil
	learn(t, d, 1, []*ledger.Certificate{&spoilt, h.trail[1]})
	learn(t, vouchedDirectory(t, 6), 1, d.Trail(1))
}

// A shard does not have two members of one name, even if its members certify it.
func TestTrailOfAnInvalidMembership(t *testing.T) {
	t.Parallel()
	named := ledgertest.Member(20)
	named.Name = ledgertest.Member(4).Name
	d := vouchedDirectory(t, 0)
	if learned, err := d.LearnTrail(1, newHistory(t, 1).joinAs(20, named).trail); learned ||
		err == nil {
		t.Errorf("%v, %v", learned, err)
	}
	if d.Epoch(1) != 0 {
		t.Errorf("epoch %d", d.Epoch(1))
	}
}
