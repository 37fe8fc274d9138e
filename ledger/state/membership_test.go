package state_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// membershipState is a chain whose members change. Each call of block makes a block in the given
// round.
type membershipState struct {
	genesis *ledger.Genesis
	state   *state.State
	parent  state.Parent
}

func newMembershipState(members int) *membershipState {
	genesis := ledgertest.OperatedGenesis(members)
	return &membershipState{genesis: genesis, state: state.New(genesis),
		parent: state.Parent{Header: genesis.Block().Header, Hash: genesis.Hash()}}
}

func (g *membershipState) block(round ledger.Round, bundles ...*ledger.Bundle) *ledger.Block {
	never := func(ledger.Hash, *ledger.Transaction) bool { return false }
	block, _ := g.state.Execute(state.Seal(g.parent, 1, round,
		ledger.VerifyBatches([][]byte{ledgertest.Batch(5, bundles...)}), never))
	g.parent = state.Parent{Header: block.Header, Hash: block.Hash}
	return block
}

func (g *membershipState) indexes() []ledger.MemberIndex {
	var indexes []ledger.MemberIndex
	for _, member := range g.state.Membership().Members {
		indexes = append(indexes, member.Index)
	}
	return indexes
}

func TestMembershipChanges(t *testing.T) {
	t.Parallel()
	other := func(i int, change func(*ledger.Member)) ledger.Member {
		member := ledgertest.Member(i)
		change(&member)
		return member
	}
	chain := newMembershipState(3)
	operator := ledgertest.NewOperator(chain.genesis)
	foreign := ledgertest.NewOperator(ledgertest.Genesis())
	used := operator.Leave(2)
	steps := []struct {
		name   string
		round  ledger.Round
		bundle *ledger.Bundle
		code   ledger.Code
		then   []ledger.MemberIndex
	}{
		{"a name that is taken", 1, operator.Join(other(3, func(m *ledger.Member) {
			m.Name = "node-1"
		})), ledger.MemberNameTaken, []ledger.MemberIndex{0, 1, 2}},
		{"an address that is taken", 1, operator.Join(other(3, func(m *ledger.Member) {
			m.Address = ledgertest.Member(0).Address
		})), ledger.MemberAddressTaken, []ledger.MemberIndex{0, 1, 2}},
		{"a key that is taken", 1, operator.Join(other(3, func(m *ledger.Member) {
			m.Key = ledgertest.Member(0).Key
		})), ledger.MemberKeyTaken, []ledger.MemberIndex{0, 1, 2}},
		{"nobody of that index", 1, operator.Leave(3), ledger.UnknownMember,
			[]ledger.MemberIndex{0, 1, 2}},
		{"somebody else's signature", 1, operator.Bundle("mallory",
			operator.Next(ledger.MembershipChange{Kind: ledger.ChangeLeave, Index: 1})),
			ledger.Unauthorised, []ledger.MemberIndex{0, 1, 2}},
		{"another ledger", 1, foreign.Join(ledgertest.Member(3)), ledger.WrongLedger,
			[]ledger.MemberIndex{0, 1, 2}},
		{"as it is already", 1, operator.Join(ledgertest.Member(1)), ledger.Applied,
			[]ledger.MemberIndex{0, 1, 2}},
		{"a member leaves", 2, used, ledger.Applied, []ledger.MemberIndex{0, 1}},
		{"the same transaction again", 9, used, ledger.StaleNonce, []ledger.MemberIndex{0, 1}},
		{"too early, the same round", 2, operator.Join(ledgertest.Member(3)),
			ledger.MembershipChanging, []ledger.MemberIndex{0, 1}},
		{"too early, two rounds later", 4, operator.Join(ledgertest.Member(3)),
			ledger.MembershipChanging, []ledger.MemberIndex{0, 1}},
		{"in time, with the next index", 5, operator.Join(ledgertest.Member(3)), ledger.Applied,
			[]ledger.MemberIndex{0, 1, 3}},
		{"it left before", 20, operator.Leave(2), ledger.UnknownMember,
			[]ledger.MemberIndex{0, 1, 3}},
		{"a key of one that left", 20, operator.Join(ledgertest.Member(2)), ledger.MemberKeyTaken,
			[]ledger.MemberIndex{0, 1, 3}},
		{"a name and an address of one that left", 20,
			operator.Join(other(4, func(m *ledger.Member) {
				m.Name, m.Address = "node-2", ledgertest.Member(2).Address
			})), ledger.Applied, []ledger.MemberIndex{0, 1, 3, 4}},
		{"a member of the genesis leaves", 23, operator.Leave(0), ledger.Applied,
			[]ledger.MemberIndex{1, 3, 4}},
		{"one that joined leaves", 26, operator.Leave(3), ledger.Applied,
			[]ledger.MemberIndex{1, 4}},
		{"another leaves", 29, operator.Leave(1), ledger.Applied, []ledger.MemberIndex{4}},
		{"the last one", 32, operator.Leave(4), ledger.LastMember, []ledger.MemberIndex{4}},
		{"one of one becomes one of two", 32, operator.Join(ledgertest.Member(9)), ledger.Applied,
			[]ledger.MemberIndex{4, 5}},
	}
	for _, step := range steps {
		number := chain.state.Membership().Number
		block := chain.block(step.round, step.bundle)
		if got := block.Entry(0).Result; got.Code != step.code {
			t.Fatalf("%s: %s, want %s", step.name, got, step.code)
		}
		if got := chain.indexes(); !slices.Equal(got, step.then) {
			t.Fatalf("%s: members %v, want %v", step.name, got, step.then)
		}
		if applied := step.code == ledger.Applied; (block.MembershipChange() != nil) != applied ||
			!applied && chain.state.Membership().Number != number {
			t.Fatalf("%s: the block has change %v, the membership number %d after %d", step.name,
				block.MembershipChange(), chain.state.Membership().Number, number)
		}
	}
	if now := chain.state.Membership(); now.Number != 7 || now.Round != 32 ||
		now.Height != chain.parent.Header.Height {
		t.Errorf("after seven changes: %+v", now)
	}
	if early := chain.state.MembershipAt(8); early.Number != 1 || early.Round != 2 ||
		len(early.Members) != 2 {
		t.Errorf("at block 8: %+v", early)
	}
	if first := chain.state.MembershipAt(0); first.Number != 0 || len(first.Members) != 3 {
		t.Errorf("at block 0: %+v", first)
	}
	if former := chain.state.FormerMembers(); len(former) != 4 || former[1].Name != "node-1" ||
		former[0].Left == 0 {
		t.Errorf("former members: %+v", former)
	}
}

// No block takes a membership change with an operator's signature of another bundle, so a proposer
// need not be trusted with the membership.
func TestMembershipSignatureIsCheckedByExecution(t *testing.T) {
	t.Parallel()
	chain := newMembershipState(3)
	operator := ledgertest.NewOperator(chain.genesis)
	forged, err := ledger.NewBundle(operator.Next(ledger.MembershipChange{Kind: ledger.ChangeLeave,
		Index: 1}))
	if err != nil {
		t.Fatal(err)
	}
	signature := operator.Leave(1).Signatures()[0]
	if err := forged.AddSignature(signature); err != nil {
		t.Fatal(err)
	}
	if ledger.MembershipChangeIn(ledgertest.Batch(5, forged), chain.genesis, chain.genesis.Hash()) {
		t.Error("a signature of another bundle was taken for an operator's")
	}
	batches := ledger.VerifyBatches([][]byte{ledgertest.Batch(5, forged)})
	never := func(ledger.Hash, *ledger.Transaction) bool { return false }
	if draft := state.Seal(chain.parent, 1, 1, batches, never); draft != nil {
		t.Errorf("a block of %d transactions", draft.Len())
	}
	if err := ledger.VerifyBundle(forged, chain.genesis, chain.genesis.Hash(),
		chain.state); !errors.Is(err, ledger.ErrSignature) {
		t.Errorf("admission: %v", err)
	}
}

// A chain whose membership never changed has the same state as in versions without changes.
func TestMembershipIsNoEntryBeforeItChanges(t *testing.T) {
	t.Parallel()
	s := state.New(ledgertest.OperatedGenesis(5))
	if err := s.Entries(func(key, _ []byte) error {
		return errors.New(string(key))
	}); err != nil {
		t.Errorf("an entry: %v", err)
	}
	var empty state.Digest
	if s.Digest() != empty.Sum() {
		t.Error("the digest of nothing is not that of no entries")
	}
}

// Operators may ask for any changes, in any rounds. Any majority of a group shares a member with
// any majority of the next group, an index and a key belong to one member for ever, every change of
// the group is found in the round message, and a snapshot holds the whole history.
func TestMembershipProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		chain := newMembershipState(rapid.IntRange(1, 6).Draw(t, "members"))
		operator := ledgertest.NewOperator(chain.genesis)
		owner := map[ledger.MemberIndex]string{}
		history := []ledger.Membership{chain.state.Membership()}
		round, lastChange, changedBefore := ledger.Round(0), ledger.Round(0), false
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			round += ledger.Round(rapid.IntRange(1, 4).Draw(t, "rounds"))
			var bundle *ledger.Bundle
			before := chain.state.Membership()
			switch rapid.SampledFrom([]string{"join", "leave", "admit", "admit"}).Draw(t, "kind") {
			case "join":
				bundle = operator.Join(ledgertest.Member(rapid.IntRange(0, 9).Draw(t, "member")))
			case "leave":
				bundle = operator.Leave(ledger.MemberIndex(rapid.IntRange(0, 9).Draw(t, "index")))
			case "admit":
				bundle = drawAdmit(t, chain)
			}
			chain.block(round, bundle)
			after := chain.state.Membership()
			if at := chain.state.MembershipHeight(); at != after.Height {
				t.Fatalf("the last change is at %d, not %d", at, after.Height)
			}
			history = append(history, after)
			checkDigest(t.Fatalf, chain.state)
			if err := after.Validate(); err != nil {
				t.Fatal(err)
			}
			checkDisks(t, &before, &after, bundle)
			for _, member := range after.Members {
				if key, known := owner[member.Index]; known && key != string(member.Key) {
					t.Fatalf("index %d was another member's", member.Index)
				}
				owner[member.Index] = string(member.Key)
			}
			if after.Number == before.Number {
				if !slices.EqualFunc(before.Members, after.Members, func(a,
					b ledger.GroupMember) bool {
					return a.Index == b.Index
				}) {
					t.Fatal("the members changed under the same number")
				}
				continue
			}
			if !ledger.MembershipChangeIn(ledgertest.Batch(5, bundle), chain.genesis,
				chain.genesis.Hash()) {
				t.Fatal("a change was applied that was not found in the round message")
			}
			if changedBefore && round < lastChange+ledger.ChangeRounds {
				t.Fatalf("changes in rounds %d and %d", lastChange, round)
			}
			lastChange, changedBefore = round, true
			if !overlap(&before, &after) {
				t.Fatalf("of %d and then %d members two majorities need not share one",
					len(before.Members), len(after.Members))
			}
		}
		for height, then := range history {
			now, _ := json.Marshal(chain.state.MembershipAt(ledger.Height(height)))
			if then, _ := json.Marshal(then); !bytes.Equal(now, then) {
				t.Fatalf("at block %d it was %s and is said to have been %s", height, then, now)
			}
		}
		checkSnapshot(t, chain)
	})
}

// drawAdmit draws a bundle that names some disk for some member. Any member or the operator signs
// it, and sometimes it is for an earlier membership.
func drawAdmit(t *rapid.T, chain *membershipState) *ledger.Bundle {
	signer := "operator"
	if i := rapid.IntRange(0, 10).Draw(t, "signer"); i < 10 {
		signer = ledgertest.Member(i).Name
	}
	head := chain.parent.Header.Height
	seen := chain.state.Membership()
	if rapid.IntRange(0, 4).Draw(t, "late") == 0 {
		seen = chain.state.MembershipAt(head / 2)
	}
	index := ledger.MemberIndex(rapid.IntRange(0, 7).Draw(t, "index"))
	disk := ledgertest.Disk(rapid.IntRange(1, 9).Draw(t, "disk"))
	return ledgertest.Admit(signer, chain.genesis, seen, index, disk, head)
}

// checkDisks states independently how a bundle may change the disk map. A join or a leave changes
// no disk of a remaining member. An admission changes one disk, if its signer may.
func checkDisks(t *rapid.T, before, after *ledger.Membership, bundle *ledger.Bundle) {
	change := bundle.Transaction(0).Change
	for _, member := range after.Members {
		earlier, _ := before.Find(member.Index)
		if member.Disk == earlier.Disk {
			continue
		}
		key := bundle.Signatures()[0].Key
		signer, present := before.ByKey(key[:])
		allowed := key == ledgertest.PublicKey("operator") ||
			present && (signer.Index != member.Index || len(before.Members) == 1)
		if change.Kind != ledger.ChangeAdmit || change.Index != member.Index ||
			change.Disk != member.Disk || !allowed || after.Number != before.Number+1 ||
			bundle.Transaction(0).Nonce.Sequence != after.Number {
			t.Fatalf("member %d has disk %s after %s, by %+v",
				member.Index, member.Disk, earlier.Disk, change)
		}
	}
}

// overlap reports whether any majority of one group and any majority of the other share a member.
func overlap(before, after *ledger.Membership) bool {
	union := len(before.Members)
	for _, member := range after.Members {
		if _, stayed := before.Find(member.Index); !stayed {
			union++
		}
	}
	return before.Majority()+after.Majority() > union
}

// Members are not exchanged in one step, because groups of odd size do not overlap with the result
// of an exchange. This test also shows that overlap can return false.
func TestExchangeInOneStepIsNotSafe(t *testing.T) {
	t.Parallel()
	for size := 1; size <= 9; size++ {
		before := ledgertest.OperatedGenesis(size).Membership()
		exchanged, left, joined := before, before, before
		exchanged.Members = slices.Clone(before.Members)
		exchanged.Members[size-1].Index = 50
		left.Members = before.Members[:size-1]
		joined.Members = append(slices.Clone(before.Members), ledger.GroupMember{Index: 51})
		if got, want := overlap(&before, &exchanged), size%2 == 0; got != want {
			t.Errorf("an exchange among %d: %v, want %v", size, got, want)
		}
		if !overlap(&before, &joined) || size > 1 && !overlap(&before, &left) {
			t.Errorf("one more or one less than %d do not overlap", size)
		}
	}
}

func checkSnapshot(t *rapid.T, chain *membershipState) {
	restored := state.New(chain.genesis)
	type entry struct{ key, value []byte }
	var entries []entry
	_ = chain.state.Entries(func(key, value []byte) error {
		entries = append(entries, entry{bytes.Clone(key), bytes.Clone(value)})
		return nil
	})
	for _, i := range rapid.Permutation(entries).Draw(t, "order") {
		if err := restored.Restore(i.key, i.value); err != nil {
			t.Fatal(err)
		}
	}
	if err := restored.Complete(nil); err != nil || restored.Digest() != chain.state.Digest() {
		t.Fatalf("the snapshot has another digest: %v", err)
	}
	want, _ := json.Marshal(chain.state.Membership())
	got, _ := json.Marshal(restored.Membership())
	if at := restored.MembershipHeight(); at != chain.state.MembershipHeight() {
		t.Errorf("the last change is at %d after it was restored", at)
	}
	if !bytes.Equal(want, got) {
		t.Fatalf("the snapshot has members %s, want %s", got, want)
	}
	// The chain and its restored copy continue in the same way.
	next := ledgertest.NewOperator(chain.genesis)
	next.Stream = 1
	copied := &membershipState{genesis: chain.genesis, state: restored, parent: chain.parent}
	bundle := next.Join(ledgertest.Member(50))
	round := chain.parent.Header.Round + 10
	if chain.block(round, bundle).Hash != copied.block(round, bundle).Hash {
		t.Fatal("the snapshot goes on to another block")
	}
}
