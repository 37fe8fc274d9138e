package generation

import (
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// workedSynod is settledSynod after it worked in generation 1.
func workedSynod(t *testing.T) (*Synod, *Decision) {
	t.Helper()
	s, first := settledSynod(t)
	s.state.Activated = NewRun(1, 0)
	return s, first
}

// otherThan returns a decision that contradicts another one.
func otherThan(d *Decision, height uint64) *Decision {
	other := *d
	other.Base.Height = height
	return &other
}

// decided is the statement of a decision.
func decided(d *Decision) Message {
	return Message{Kind: KindDecided, Generation: d.Generation, Value: d}
}

// TestTwoDecisions: two decisions end a synod that worked in one of them, once more members state
// the other one than may fail. What one of three says counts for nothing.
func TestTwoDecisions(t *testing.T) {
	t.Parallel()
	s, first := workedSynod(t)
	other := otherThan(first, 1)
	prepare := func(from order.ServerID, known *Decision) Message {
		return Message{Kind: KindPrepare, Generation: 2, Known: known,
			Ballot: Ballot{Number: 1, Proposer: from}}
	}
	s.Receive(0, prepare(0, other))
	if a, save := answer(t, s); a.Kind != KindDecided || !a.Value.Equal(*first) || save ||
		s.Err() != nil {
		t.Fatalf("answer %+v, error %v", a, s.Err())
	}
	if got := s.Contradicting(); !slices.Equal(got, []order.ServerID{0}) {
		t.Fatalf("members %v contradict", got)
	}
	s.Receive(9, decided(other)) // no member
	s.Receive(0, decided(other))
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	s.Receive(2, decided(other))
	if s.Ready(); !errors.Is(s.Err(), ErrTwoDecisions) {
		t.Fatalf("error %v", s.Err())
	}
	s.Receive(0, prepare(0, first))
	for range 100 {
		s.Tick()
	}
	if a, _ := answer(t, s); a.Kind != 0 {
		t.Fatalf("it goes on: %+v", a)
	}
}

// TestContradictionIsTakenBack: a member that contradicted is listened to once it agrees.
func TestContradictionIsTakenBack(t *testing.T) {
	t.Parallel()
	s, first := workedSynod(t)
	s.Receive(0, decided(otherThan(first, 1)))
	s.Receive(0, Message{Kind: KindPrepare, Generation: 2, Known: first, Ballot: Ballot{Number: 1}})
	if a, _ := answer(t, s); a.Kind != KindPromise || s.Contradicting() != nil {
		t.Fatalf("answer %+v, and members %v contradict", a, s.Contradicting())
	}
	s.Receive(2, decided(otherThan(first, 1)))
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
}

// TestConvincingQuestion: a question that brings the true decision, and makes it stand, counts as
// one of a member that agrees.
func TestConvincingQuestion(t *testing.T) {
	t.Parallel()
	s, err := NewSynod(Config{Self: 3, Original: true, Grace: 2, Patience: 5,
		State: State{Disk: DiskID{4}}, Report: Report{Membership: Membership{
			Members: members(4)}}})
	if err != nil {
		t.Fatal(err)
	}
	truth := &Decision{Generation: 1, Members: members(4), Disks: []DiskID{{1}, {2}, {3}, {4}}}
	s.Receive(2, decided(otherThan(truth, 7)))
	s.Receive(1, decided(truth))
	s.Receive(0, Message{Kind: KindPrepare, Generation: 2, Known: truth,
		Ballot: Ballot{Number: 1}})
	if a, _ := answer(t, s); a.Kind == KindDecided || !s.Decided().Equal(*truth) {
		t.Fatalf("answer %+v, decided %+v", a, s.Decided())
	}
}

// TestFalseDecisionYields: a liar states a decision before the true one is heard. The true one
// stands once more members state it, or once the liar is gone.
func TestFalseDecisionYields(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]func(s *Synod, truth *Decision){
		"another member": func(s *Synod, truth *Decision) { s.Receive(2, decided(truth)) },
		"the liar is gone": func(s *Synod, truth *Decision) {
			s.Linked(0, false)
			s.Receive(1, decided(truth))
		},
	} {
		s, err := NewSynod(Config{Self: 3, Original: true, Grace: 2, Patience: 5,
			State: State{Disk: DiskID{4}}, Report: Report{Membership: Membership{
				Members: members(4)}}})
		if err != nil {
			t.Fatal(err)
		}
		truth := &Decision{Generation: 1, Members: members(3), Disks: []DiskID{{1}, {2}, {3}}}
		s.Receive(0, decided(otherThan(truth, 7)))
		s.Receive(1, decided(truth))
		if ready := s.Ready(); s.Decided().Base.Height != 7 || ready.Decided.Base.Height != 7 {
			t.Fatalf("%s: decided %+v", name, s.Decided())
		}
		last(s, truth)
		if ready := s.Ready(); !s.Decided().Equal(*truth) || ready.Decided == nil ||
			!ready.MustSave || s.Err() != nil {
			t.Fatalf("%s: decided %+v, %+v, error %v", name, s.Decided(), ready, s.Err())
		}
	}
}

// TestMemberTurns: a member that states the true decision and then another one does not make this
// node believe the other one.
func TestMemberTurns(t *testing.T) {
	t.Parallel()
	s, first := settledSynod(t)
	s.Linked(0, true)
	s.Linked(2, true)
	s.Receive(0, decided(otherThan(first, 1)))
	if !s.Decided().Equal(*first) {
		t.Error("a member is believed before another one that can be reached has said its word")
	}
	s.Receive(0, decided(first))
	s.Receive(0, decided(otherThan(first, 1)))
	if !s.Decided().Equal(*first) || !slices.Equal(s.Contradicting(), []order.ServerID{0}) {
		t.Errorf("decided %+v, and members %v contradict", s.Decided(), s.Contradicting())
	}
	s.Receive(0, decided(first))
	s.Receive(0, decided(otherThan(first, 1)))
	if !s.Decided().Equal(*first) {
		t.Errorf("decided %+v", s.Decided())
	}
}

// TestBallotsOfOthers: nobody may propose in another proposer's ballot, and no message brings
// ballots or generations near their end.
func TestBallotsOfOthers(t *testing.T) {
	t.Parallel()
	_, first := settledSynod(t)
	value := next(Head{Generation: 1, Height: 8, Round: 8, Hash: [32]byte{8}})
	far := *first
	far.Generation = 1 << 40
	for name, m := range map[string]Message{
		"prepare": {Kind: KindPrepare, Generation: 2, Known: first,
			Ballot: Ballot{Number: 1, Proposer: 2}},
		"accept": {Kind: KindAccept, Generation: 2, Value: value,
			Ballot: Ballot{Number: 1, Proposer: 2}},
		"prepare far up": {Kind: KindPrepare, Generation: 2, Known: first,
			Ballot: Ballot{Number: 1 << 60}},
		"accept far up": {Kind: KindAccept, Generation: 2, Value: value,
			Ballot: Ballot{Number: 1 << 60}},
		"a generation far up": decided(&far),
		"a prepare far up": {Kind: KindPrepare, Generation: far.Generation + 1, Known: &far,
			Ballot: Ballot{Number: 1}},
		"a refusal far up": {Kind: KindRefuse, Generation: 2, Accepted: Ballot{Number: 1 << 60}},
	} {
		s, _ := settledSynod(t)
		s.enter(2)
		s.Ready()
		s.Receive(0, m)
		if a, save := answer(t, s); a.Kind != 0 || save || s.highest != (Ballot{}) {
			t.Errorf("%s: answer %+v, save %v, highest %+v", name, a, save, s.highest)
		}
	}
}
