package protected

import (
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/fabric"
)

// TestTickets: a later request has the higher ticket.
func TestTickets(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		low, later Ticket
	}{
		{"a later request", MakeTimestamp(4, 2).Ticket(1), MakeTimestamp(4, 2).Ticket(2)},
		{"another server", MakeTimestamp(4, 1).Ticket(RequestsMax), MakeTimestamp(4, 2).Ticket(0)},
		{"a higher counter", MakeTimestamp(4, 255).Ticket(RequestsMax),
			MakeTimestamp(5, 0).Ticket(0)},
	} {
		if test.low >= test.later {
			t.Errorf("%s: %d is not below %d", test.name, test.low, test.later)
		}
	}
	if got := MakeTimestamp(9, 7).Ticket(3).Timestamp(); got.Counter() != 9 || got.Server() != 7 {
		t.Errorf("counter %d of server %d", got.Counter(), got.Server())
	}
}

// asking is a process that asks another one for a region, in virtual time.
type asking struct {
	network  *fabric.Network
	hosts    [2]*fabric.Host
	ways     [2]*Ways
	boards   [2]*Boards
	petition Petition // of process 0
	asker    Asker    // process 0, as process 1 sees it
	held     Held     // the region of process 1
}

const askingWords = WordsShared + 1

func newAsking(t *testing.T, fault Fault) *asking {
	t.Helper()
	a := &asking{network: fabric.New(fabric.Options{Seed: 1})}
	t.Cleanup(a.network.Close)
	for i, name := range []rdmanet.PeerID{"asks", "owns"} {
		var err error
		if a.hosts[i], err = a.network.Start(name); err != nil {
			t.Fatal(err)
		}
		a.boards[i] = NewBoards("board", i, 2, askingWords)
		if a.ways[i], err = NewWays(a.hosts[i], 16, 100*time.Microsecond); err != nil {
			t.Fatal(err)
		}
	}
	for i := range a.boards {
		a.boards[i].Add(1-i, a.hosts[1-i].Peer())
		a.boards[i].Rows()[1-i].Place = 1
		if err := a.boards[i].Expose(a.hosts[i]); err != nil {
			t.Fatal(err)
		}
	}
	region, err := a.hosts[1].Expose("memory", regionSize)
	if err != nil {
		t.Fatal(err)
	}
	a.held = Held{Region: region, Fault: fault}
	a.asker = Asker{Process: 0, Peer: a.hosts[0].Peer()}
	a.petition.Peer, a.petition.Region, a.petition.Process = a.hosts[1].Peer(), "memory", 1
	a.petition.Owner = &a.petition
	return a
}

// turn makes both processes work, once something has happened. owner answers requests if it is not
// nil.
func (a *asking) turn(t *testing.T, stamp Timestamp, owner func(asked Ticket)) (Outcome, Ticket) {
	t.Helper()
	a.network.Step()
	for i, w := range a.ways {
		w.Complete(a.network.Now(), func(p Post, err error) {
			switch o := p.Way.Owner.(type) {
			case *Row:
				o.Completed(w, err)
			case *Petition:
				if err != nil {
					o.Lose(w)
				}
			}
		})
		for _, want := range w.Wanted() {
			attachment, err := a.hosts[i].Attach(t.Context(), want.Peer, want.Region)
			way, err := w.Attached(want.Number, attachment, err)
			switch o := way.Owner.(type) {
			case *Row:
				o.Answered(w, err)
			case *Petition:
				o.Answered(w, err)
			}
		}
	}
	outcome, by := a.petition.Ask(a.ways[0], a.boards[0], stamp)
	if asked, has := a.boards[1].Asked(&a.asker); has && owner != nil {
		owner(asked)
	}
	for i, w := range a.ways {
		a.boards[i].Drive(w)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	return outcome, by
}

// grants makes the owner grant its region to the highest ticket.
func (a *asking) grants(t *testing.T) func(Ticket) {
	return func(asked Ticket) {
		if asked > a.held.Granted {
			if err := a.held.Pass(a.asker.Peer); err != nil {
				t.Fatal(err)
			}
			a.held.Granted = asked
		}
		a.boards[1].Answer(&a.asker, asked, a.held.Granted)
	}
}

// until takes turns until something is so.
func (a *asking) until(t *testing.T, what string, turn func() bool) {
	t.Helper()
	var tick func()
	tick = func() { a.network.After(5*time.Microsecond, tick) }
	tick()
	for end := a.network.Now() + 50*time.Millisecond; !turn(); {
		if a.network.Now() > end {
			t.Fatalf("not so: %s: %v", what, &a.petition)
		}
	}
}

// TestGrantedUnderTicket asks, is granted, and writes.
func TestGrantedUnderTicket(t *testing.T) {
	t.Parallel()
	a := newAsking(t, FaultNone)
	stamp := MakeTimestamp(3, 0)
	a.until(t, "granted", func() bool {
		a.turn(t, stamp, a.grants(t))
		return a.petition.State == PetitionReads
	})
	if a.held.Granted != stamp.Ticket(1) || a.held.Holder != a.hosts[0].Peer() {
		t.Errorf("granted %d to %v", a.held.Granted, a.held.Holder)
	}
	a.ways[0].Post(&a.petition.Way, 0, 0, nil, rdmanet.Operation{
		Kind: rdmanet.OperationWrite, Bytes: a.ways[0].InlineWord(77)})
	a.until(t, "written", func() bool {
		a.turn(t, stamp, a.grants(t))
		return a.held.Region.Load(0) == 77
	})
}

// TestGivenUpWithFirstError takes the region away. The process gives the way up with the first
// error, and takes it up only under a new ticket.
func TestGivenUpWithFirstError(t *testing.T) {
	t.Parallel()
	a := newAsking(t, FaultNone)
	stamp := MakeTimestamp(3, 0)
	granted := func() bool {
		a.turn(t, stamp, a.grants(t))
		return a.petition.State == PetitionReads
	}
	a.until(t, "granted", granted)
	if err := a.held.Pass(rdmanet.Peer{}); err != nil {
		t.Fatal(err)
	}
	a.ways[0].Post(&a.petition.Way, 0, 0, nil, rdmanet.Operation{
		Kind: rdmanet.OperationWrite, Bytes: a.ways[0].InlineWord(77)})
	a.until(t, "given up", func() bool {
		a.turn(t, stamp, nil)
		return a.petition.State == PetitionIdle
	})
	if a.petition.Attached() || a.held.Region.Load(0) == 77 {
		t.Error("it writes what it has no permission for")
	}
	a.until(t, "granted again", granted)
	if a.held.Granted != stamp.Ticket(2) {
		t.Errorf("granted under ticket %d, want %d", a.held.Granted, stamp.Ticket(2))
	}
}

// TestRefusedByLaterTicket asks an owner that has granted a later ticket.
func TestRefusedByLaterTicket(t *testing.T) {
	t.Parallel()
	a := newAsking(t, FaultNone)
	later := MakeTimestamp(4, 1).Ticket(2)
	a.held.Granted = later
	var by Ticket
	a.until(t, "refused", func() bool {
		outcome, ticket := a.turn(t, MakeTimestamp(3, 0), a.grants(t))
		by = ticket
		return outcome == Refused
	})
	if by != later || a.held.Holder != (rdmanet.Peer{}) {
		t.Errorf("refused by %d, and %v holds the region", by, a.held.Holder)
	}
}

// TestAskedAgain asks an owner that does not answer, again and again, until the timestamp is
// exhausted. A retired petition begins anew.
func TestAskedAgain(t *testing.T) {
	t.Parallel()
	a := newAsking(t, FaultNone)
	stamp := MakeTimestamp(3, 0)
	a.until(t, "asked three times", func() bool {
		a.turn(t, stamp, nil)
		return Ticket(a.boards[1].Load(0, WordTicket)) == stamp.Ticket(3)
	})
	a.petition.Lose(a.ways[0])
	a.petition.request, a.petition.Since = RequestsMax, 0
	if outcome, _ := a.petition.Ask(a.ways[0], a.boards[0], stamp); outcome != Exhausted {
		t.Errorf("the outcome is %d", outcome)
	}
	a.petition.Retire(a.ways[0])
	if outcome, _ := a.petition.Ask(a.ways[0], a.boards[0], stamp); outcome != Moving {
		t.Errorf("a retired petition: the outcome is %d", outcome)
	}
}

// TestPassEndsEarlierHolder passes a region on while its holder has a way to it. A holder that
// keeps its permission is the planted bug.
func TestPassEndsEarlierHolder(t *testing.T) {
	t.Parallel()
	for fault, lands := range map[Fault]bool{FaultNone: false, FaultNoPermissionCheck: true} {
		a := newAsking(t, fault)
		a.until(t, "granted", func() bool {
			a.turn(t, MakeTimestamp(3, 0), a.grants(t))
			return a.petition.State == PetitionReads
		})
		other, err := a.network.Start("another")
		if err != nil {
			t.Fatal(err)
		}
		if err := a.held.Pass(other.Peer()); err != nil {
			t.Fatal(err)
		}
		a.ways[0].Post(&a.petition.Way, 0, 0, nil, rdmanet.Operation{
			Kind: rdmanet.OperationWrite, Bytes: a.ways[0].InlineWord(77)})
		a.until(t, "completed", func() bool {
			a.turn(t, MakeTimestamp(3, 0), nil)
			return a.ways[0].Outstanding() == 0
		})
		if got := a.held.Region.Load(0) == 77; got != lands {
			t.Errorf("fault %d: a write of the earlier holder lands: %v", fault, got)
		}
	}
}

// TestRowsAreWrittenAgain cuts the network, so that a row's way is lost. Its words are written once
// it is there again. A copy of the boards shares nothing that changes.
func TestRowsAreWrittenAgain(t *testing.T) {
	t.Parallel()
	a := newAsking(t, FaultNone)
	a.petition.Since = time.Hour // it asks for nothing
	word := func() uint64 { return a.boards[1].Load(0, WordsShared) }
	for value := uint64(1); value <= 3; value++ {
		a.boards[0].Put(1, WordsShared, value)
		if value == 2 {
			a.network.Cut("asks", "owns")
			a.until(t, "lost", func() bool {
				a.turn(t, MakeTimestamp(3, 0), nil)
				return a.boards[0].Rows()[1].Tries > 0
			})
			a.network.Mend("asks", "owns")
		}
		a.until(t, "written", func() bool {
			a.turn(t, MakeTimestamp(3, 0), nil)
			return word() == value
		})
	}
	copied := a.boards[0].Copy()
	copied.Put(1, WordsShared, 9)
	var before, after Facts
	before.Boards(a.boards[0])
	after.Boards(copied)
	if string(before.B) == string(after.B) || a.boards[0].Rows()[1].words[WordsShared] != 3 {
		t.Error("a copy shares its words")
	}
	if copied.Rows()[1].Owner != copied.Rows()[1] {
		t.Error("a copied row is owned by another one")
	}
	a.boards[0].Rows()[1].Answered(a.ways[0], errors.New("not attached"))
	if a.boards[0].Rows()[1].Tries == 0 || a.boards[0].Rows()[1].Attached() {
		t.Error("a row whose way is not there does not wait")
	}
	a.boards[0].Detach(a.ways[0])
}
