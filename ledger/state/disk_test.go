package state_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// admit proposes a disk for the present membership.
func (g *membershipState) admit(signer string, index ledger.MemberIndex, disk int) *ledger.Bundle {
	return ledgertest.Admit(signer, g.genesis, g.state.Membership(), index, ledgertest.Disk(disk),
		g.parent.Header.Height)
}

// disks returns the number of each present member's disk, or 0 if none is named.
func disks(membership ledger.Membership) (all []int) {
	for _, member := range membership.Members {
		number := -1
		for i := range 100 {
			if i == 0 && member.Disk.IsZero() || i > 0 && member.Disk == ledgertest.Disk(i) {
				number = i
			}
		}
		all = append(all, number)
	}
	return all
}

func TestDiskMap(t *testing.T) {
	t.Parallel()
	chain := newMembershipState(3)
	operator := ledgertest.NewOperator(chain.genesis)
	var first *ledger.Bundle
	steps := []struct {
		name   string
		round  ledger.Round
		bundle func() *ledger.Bundle
		code   ledger.Code
		then   []int
		number uint64
	}{
		{"the member itself signs", 1, func() *ledger.Bundle {
			return chain.admit("node-1", 1, 1)
		}, ledger.Unauthorised, []int{0, 0, 0}, 0},
		{"a stranger signs", 1, func() *ledger.Bundle {
			return chain.admit("mallory", 1, 1)
		}, ledger.Unauthorised, []int{0, 0, 0}, 0},
		{"a node that is no member yet signs", 1, func() *ledger.Bundle {
			return chain.admit("node-3", 1, 1)
		}, ledger.Unauthorised, []int{0, 0, 0}, 0},
		{"no such member", 1, func() *ledger.Bundle {
			return chain.admit("node-0", 7, 1)
		}, ledger.UnknownMember, []int{0, 0, 0}, 0},
		{"a number to come", 1, func() *ledger.Bundle {
			later := chain.state.Membership()
			later.Number++
			return ledgertest.Admit("node-0", chain.genesis, later, 1, ledgertest.Disk(1), 0)
		}, ledger.StaleNonce, []int{0, 0, 0}, 0},
		{"another member signs", 1, func() *ledger.Bundle {
			first = chain.admit("node-0", 1, 1)
			return first
		}, ledger.Applied, []int{0, 1, 0}, 1},
		{"the same disk again, at once", 2, func() *ledger.Bundle {
			return chain.admit("node-2", 1, 1)
		}, ledger.Applied, []int{0, 1, 0}, 1},
		{"the same proposal again", 2, func() *ledger.Bundle {
			return first
		}, ledger.Applied, []int{0, 1, 0}, 1},
		{"too early, two rounds later", 3, func() *ledger.Bundle {
			return chain.admit("node-2", 1, 2)
		}, ledger.MembershipChanging, []int{0, 1, 0}, 1},
		{"a join comes too early after an admission", 3, func() *ledger.Bundle {
			return operator.Join(ledgertest.Member(3))
		}, ledger.MembershipChanging, []int{0, 1, 0}, 1},
		{"in time, a second disk of the member", 4, func() *ledger.Bundle {
			return chain.admit("node-2", 1, 2)
		}, ledger.Applied, []int{0, 2, 0}, 2},
		{"the first proposal comes late", 9, func() *ledger.Bundle {
			return first
		}, ledger.StaleNonce, []int{0, 2, 0}, 2},
		{"another member's disk", 9, func() *ledger.Bundle {
			return chain.admit("node-0", 2, 2)
		}, ledger.MemberDiskTaken, []int{0, 2, 0}, 2},
		{"a disk that another member had", 9, func() *ledger.Bundle {
			return chain.admit("node-0", 2, 1)
		}, ledger.MemberDiskTaken, []int{0, 2, 0}, 2},
		{"a disk that the member had before", 9, func() *ledger.Bundle {
			return chain.admit("node-0", 1, 1)
		}, ledger.Applied, []int{0, 1, 0}, 3},
		{"an operator signs", 12, func() *ledger.Bundle {
			return chain.admit("operator", 0, 3)
		}, ledger.Applied, []int{3, 1, 0}, 4},
		{"a node joins", 15, func() *ledger.Bundle {
			return operator.Join(ledgertest.Member(3))
		}, ledger.Applied, []int{3, 1, 0, 0}, 5},
		{"an admission comes too early after a join", 17, func() *ledger.Bundle {
			return chain.admit("node-0", 3, 4)
		}, ledger.MembershipChanging, []int{3, 1, 0, 0}, 5},
		{"a disk of a member that joined, by one that has a disk", 18, func() *ledger.Bundle {
			return chain.admit("node-0", 3, 4)
		}, ledger.Applied, []int{3, 1, 0, 4}, 6},
		{"a member with a disk leaves", 21, func() *ledger.Bundle {
			return operator.Leave(1)
		}, ledger.Applied, []int{3, 0, 4}, 7},
		{"a disk of one that left", 24, func() *ledger.Bundle {
			return chain.admit("node-0", 1, 5)
		}, ledger.UnknownMember, []int{3, 0, 4}, 7},
		{"its own disk again", 24, func() *ledger.Bundle {
			return chain.admit("node-0", 1, 1)
		}, ledger.UnknownMember, []int{3, 0, 4}, 7},
		{"its disk for another", 24, func() *ledger.Bundle {
			return chain.admit("node-0", 2, 1)
		}, ledger.MemberDiskTaken, []int{3, 0, 4}, 7},
		{"one that left signs", 24, func() *ledger.Bundle {
			return chain.admit("node-1", 2, 5)
		}, ledger.Unauthorised, []int{3, 0, 4}, 7},
		{"a member that joined signs", 24, func() *ledger.Bundle {
			return chain.admit("node-3", 2, 5)
		}, ledger.Applied, []int{3, 5, 4}, 8},
		{"another leaves", 27, func() *ledger.Bundle {
			return operator.Leave(2)
		}, ledger.Applied, []int{3, 4}, 9},
		{"one of two signs for itself", 30, func() *ledger.Bundle {
			return chain.admit("node-0", 0, 6)
		}, ledger.Unauthorised, []int{3, 4}, 9},
		{"only one stays", 30, func() *ledger.Bundle {
			return operator.Leave(3)
		}, ledger.Applied, []int{3}, 10},
		{"the only member signs for itself", 33, func() *ledger.Bundle {
			return chain.admit("node-0", 0, 6)
		}, ledger.Applied, []int{6}, 11},
	}
	var history []ledger.Membership
	for _, step := range steps {
		bundle := step.bundle()
		next := ledgertest.Batch(5, bundle)
		block := chain.block(step.round, bundle)
		if got := block.Entry(0).Result; got.Code != step.code {
			t.Fatalf("%s: %s, want %s", step.name, got, step.code)
		}
		now := chain.state.Membership()
		if got := disks(now); !slices.Equal(got, step.then) || now.Number != step.number {
			t.Fatalf("%s: membership %d with disks %v, want %d with %v",
				step.name, now.Number, got, step.number, step.then)
		}
		if !ledger.MembershipChangeIn(next, chain.genesis, chain.genesis.Hash()) {
			t.Errorf("%s: not found in the round message", step.name)
		}
		if err := now.Validate(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		checkDigest(t.Fatalf, chain.state)
		history = append(history, now)
	}
	for i, want := range history {
		got, _ := json.Marshal(chain.state.MembershipAt(ledger.Height(i + 1)))
		if text, _ := json.Marshal(want); !bytes.Equal(got, text) {
			t.Errorf("at block %d: %s, want %s", i+1, got, text)
		}
	}
	former := chain.state.FormerMembers()
	if len(former) != 3 || former[0].Disk != ledgertest.Disk(1) {
		t.Errorf("former members: %+v", former)
	}
	if chain.state.NextSequence(ledger.Operator, ledger.AdmitStream) != 1 {
		t.Error("an admission has taken a nonce")
	}
}

// checkDigest computes the digest again from the entries of a state.
func checkDigest(fail func(string, ...any), s *state.State) {
	var sum state.Digest
	_ = s.Entries(func(key, value []byte) error {
		sum.Add(slices.Concat(key, value))
		return nil
	})
	if sum.Sum() != s.Digest() {
		fail("the digest %s is not that of the entries, %s", s.Digest(), sum.Sum())
	}
}

// A member without a named disk has the same entry as before there were disks. A member of the
// genesis without a named disk has no entry.
func TestDiskEntries(t *testing.T) {
	t.Parallel()
	named, plain := newMembershipState(3), newMembershipState(3)
	for _, chain := range []*membershipState{named, plain} {
		chain.block(1, ledgertest.NewOperator(chain.genesis).Join(ledgertest.Member(3)))
	}
	named.block(4, named.admit("node-0", 1, 1))
	named.block(7, named.admit("node-0", 3, 2))
	named.block(10, named.admit("node-2", 1, 3))
	entries := func(s *state.State) map[string]string {
		all := map[string]string{}
		_ = s.Entries(func(key, value []byte) error {
			all[string(key)] = string(value)
			return nil
		})
		return all
	}
	const first, joined = "m\x00\x00\x00\x01\x00", "m\x00\x00\x00\x03\x00"
	before, after := entries(plain.state), entries(named.state)
	if len(before) != 2 || len(after) != 3 {
		t.Fatalf("%d entries, then %d", len(before), len(after))
	}
	disk := ledgertest.Disk(2)
	if want := before[joined] + "\x01" + string(disk[:]) + "\x03\x03\x07"; after[joined] != want {
		t.Errorf("the member that joined is %x, want %x", after[joined], want)
	}
	one, three := ledgertest.Disk(1), ledgertest.Disk(3)
	tail := "\x00\x00\x00\x00\x00\x00\x02" + string(one[:]) + "\x02\x02\x04" +
		string(three[:]) + "\x04\x04\x0a"
	if got := after[first]; len(got) < len(tail) || got[len(got)-len(tail):] != tail {
		t.Errorf("the member of the genesis is %x, want it to end with %x", got, tail)
	}
	for name, broken := range map[string]string{
		"a count of none": before[joined] + "\x00",
		"cut short":       after[joined][:len(after[joined])-1],
		"a byte too many": after[joined] + "\x00",
		"too many":        before[joined] + "\x81\x20",
	} {
		err := state.New(plain.genesis).Restore([]byte(joined), []byte(broken))
		if !errors.Is(err, state.ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
	again := state.New(plain.genesis)
	if err := again.Restore([]byte(first), []byte(after[first])); err != nil {
		t.Fatal(err)
	}
	if now := again.Membership(); now.Number != 4 || now.Round != 10 ||
		now.Members[1].Disk != three {
		t.Errorf("restored: %+v", now)
	}
	if err := again.Restore([]byte(first), []byte(after[first])); !errors.Is(err, state.ErrEntry) {
		t.Errorf("twice: %v", err)
	}
}

// If two members propose the same at the same head, they make one transaction. Of different
// proposals for one membership, only one changes it.
func TestProposalsOfSeveralMembers(t *testing.T) {
	t.Parallel()
	chain := newMembershipState(4)
	a, b := chain.admit("node-0", 2, 1), chain.admit("node-1", 2, 1)
	if a.ID(0) != b.ID(0) || bytes.Equal(a.Encode(), b.Encode()) {
		t.Error("two members at one head make two transactions")
	}
	other := chain.admit("node-0", 3, 2)
	later := ledgertest.Admit("node-3", chain.genesis, chain.state.Membership(), 2,
		ledgertest.Disk(1), 5)
	block := chain.block(1, a, b, later, other)
	var codes []ledger.Code
	for _, entry := range block.All() {
		codes = append(codes, entry.Result.Code)
	}
	want := []ledger.Code{ledger.Applied, ledger.Applied, ledger.StaleNonce}
	if !slices.Equal(codes, want) {
		t.Errorf("results %v, want %v", codes, want)
	}
	now := chain.state.Membership()
	if now.Number != 1 || !slices.Equal(disks(now), []int{0, 0, 1, 0}) {
		t.Errorf("membership %+v", now)
	}
	// A proposal that failed only for the moment is made again as another transaction.
	early := chain.admit("node-0", 3, 2)
	if code := chain.block(2, early).Entry(0).Result.Code; code != ledger.MembershipChanging {
		t.Errorf("too early: %s", code)
	}
	again := chain.admit("node-0", 3, 2)
	if again.ID(0) == early.ID(0) {
		t.Error("the second attempt is the same transaction as the first")
	}
	if code := chain.block(4, again).Entry(0).Result.Code; code != ledger.Applied {
		t.Errorf("in time: %s", code)
	}
}

// Execution checks the signature of an admission again after the admission to the pool has checked
// it.
func TestWhoAdmits(t *testing.T) {
	t.Parallel()
	chain := newMembershipState(3)
	good := chain.admit("node-0", 1, 1)
	signed := func(signatures ...ledger.Signature) *ledger.Bundle {
		bundle, err := ledger.NewBundle(*good.Transaction(0))
		if err != nil {
			t.Fatal(err)
		}
		for _, signature := range signatures {
			if err := bundle.AddSignature(signature); err != nil {
				t.Fatal(err)
			}
		}
		return bundle
	}
	by := func(name string) ledger.Signature { return chain.admit(name, 1, 1).Signatures()[0] }
	foreign := chain.admit("node-0", 1, 2).Signatures()[0]
	named := by("node-0")
	named.Organisation = "node-0"
	unknown := by("mallory")
	unknown.Key = ledgertest.PublicKey("node-0")
	operators := ledgertest.NewOperator(chain.genesis)
	leave := ledger.MembershipChange{Kind: ledger.ChangeLeave, Index: 1}
	node := operators.Bundle("node-0", operators.Next(leave))
	for _, test := range []struct {
		name   string
		bundle *ledger.Bundle
		want   error
		found  bool
		code   ledger.Code
	}{
		{"nobody", signed(), ledger.ErrUnauthorised, false, ledger.Unauthorised},
		{"the member itself", signed(by("node-1")), ledger.ErrUnauthorised,
			true, ledger.Unauthorised},
		{"a stranger", signed(by("mallory")), ledger.ErrUnauthorised, true, ledger.Unauthorised},
		{"a signature of another bundle", signed(foreign), ledger.ErrSignature, false, 0},
		{"a stranger's signature beside a member's key", signed(unknown), ledger.ErrSignature,
			false, 0},
		{"a member as an organisation", signed(named), ledger.ErrUnknownOrganisation, false,
			ledger.Unauthorised},
		{"a member, to let another go", node, ledger.ErrUnauthorised, true, ledger.Unauthorised},
		{"a stranger and a member", signed(by("mallory"), by("node-0")), ledger.ErrUnauthorised,
			true, ledger.Applied},
		{"another member", good, nil, true, ledger.Applied},
		{"two members", signed(by("node-0"), by("node-2")), nil, true, ledger.Applied},
		{"an operator", signed(by("operator")), nil, true, ledger.Applied},
		{"an operator and a member", signed(by("operator"), by("node-2")), nil, true,
			ledger.Applied},
	} {
		fresh := newMembershipState(3)
		hash := fresh.genesis.Hash()
		err := ledger.VerifyBundle(test.bundle, fresh.genesis, hash, fresh.state)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: admission says %v", test.name, err)
		}
		found := ledger.MembershipChangeIn(ledgertest.Batch(1, test.bundle), fresh.genesis, hash)
		if found != test.found {
			t.Errorf("%s: found in the round message: %v", test.name, found)
		}
		if test.want == ledger.ErrSignature {
			batches := ledger.VerifyBatches([][]byte{ledgertest.Batch(1, test.bundle)})
			if forged, _ := batches[0].Forged(); forged == 0 {
				t.Errorf("%s: nothing is forged", test.name)
			}
			continue // no block takes it
		}
		if got := fresh.block(1, test.bundle).Entry(0).Result.Code; got != test.code {
			t.Errorf("%s: execution says %s", test.name, got)
		}
	}
	elsewhere := ledgertest.Admit("node-0", ledgertest.Genesis(), chain.state.Membership(), 1,
		ledgertest.Disk(1), 0)
	if ledger.MembershipChangeIn(ledgertest.Batch(1, elsewhere), chain.genesis,
		chain.genesis.Hash()) {
		t.Error("an admission of another chain is found")
	}
	if code := chain.block(1, elsewhere).Entry(0).Result.Code; code != ledger.WrongLedger {
		t.Errorf("another chain's: %s", code)
	}
}

func TestAdmitExpires(t *testing.T) {
	t.Parallel()
	chain := newMembershipState(2)
	if last := chain.admit("node-0", 1, 1).Transaction(0).LastValid; last != ledger.AdmitLife {
		t.Errorf("valid to %d", last)
	}
	transaction := *chain.admit("node-0", 1, 1).Transaction(0)
	transaction.LastValid = 1
	operator := ledgertest.NewOperator(chain.genesis)
	chain.block(1, operator.Leave(9))
	late := operator.Bundle("node-0", transaction)
	if code := chain.block(2, late).Entry(0).Result.Code; code != ledger.Expired {
		t.Errorf("at block 2: %s", code)
	}
}

// A member's entry of the state is bounded. MembershipAt finds each disk of a full entry.
func TestTooManyDisks(t *testing.T) {
	t.Parallel()
	small, full := newMembershipState(2), newMembershipState(2)
	small.block(1, small.admit("node-0", 1, 1))
	_ = small.state.Entries(func(key, value []byte) error {
		// The entry ends with one disk: a count of 1 byte, the disk, and three numbers of 1 byte
		// each.
		many := binary.AppendUvarint(bytes.Clone(value[:len(value)-20]), ledger.MaxMemberDisks)
		for i := range uint64(ledger.MaxMemberDisks) {
			disk := ledgertest.Disk(int(i + 1))
			many = append(many, disk[:]...)
			for range 3 { // number, height and round of the change
				many = binary.AppendUvarint(many, i+1)
			}
		}
		return full.state.Restore(key, many)
	})
	at := full.state.MembershipAt(1000)
	if at.Number != 1000 || at.Members[1].Disk != ledgertest.Disk(1000) {
		t.Errorf("at block 1000: %+v", at)
	}
	if err := full.state.Complete(nil); err != nil {
		t.Fatal(err)
	}
	before := full.state.Digest()
	const round = ledger.MaxMemberDisks + ledger.ChangeRounds
	block := full.block(round, full.admit("node-0", 1, 1))
	if code := block.Entry(0).Result.Code; code != ledger.TooManyDisks {
		t.Errorf("one more: %s", code)
	}
	if full.state.Digest() != before {
		t.Error("a refusal has changed the state")
	}
	block = full.block(round, full.admit("node-1", 0, ledger.MaxMemberDisks+1))
	if code := block.Entry(0).Result.Code; code != ledger.Applied {
		t.Errorf("another member's: %s", code)
	}
	checkDigest(t.Fatalf, full.state)
}
