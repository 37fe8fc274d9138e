package replica

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected/protectedtest"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// tick makes sure that there is always a next event.
func (g *group) tick() { g.network.After(5*time.Microsecond, g.tick) }

// TestEntriesBehindHoles makes a leader take over a group in which one log has an entry behind
// empty slots, and the group has another message there. A leader that takes the first empty slot
// for the log's end does not erase the entry's mark, and the log holds a mix of the two for a
// while.
func TestEntriesBehindHoles(t *testing.T) {
	t.Parallel()
	const window = 4
	stays, goes := slices.Repeat([]byte("stays"), 100),
		slices.Repeat([]byte("goes, and is longer"), 30)
	run := func(seed, last uint64, fault Fault) error {
		g := newGroup(t, seed, 3, Options{PayloadMax: 700, Window: window, Fault: fault})
		for index := uint64(1); index <= last; index++ {
			g.leaveAt(0, 2, index, stays)
			g.leaveAt(2, 2, index, stays)
		}
		g.leaveEntry(1, 1, last, 2*window, goes)
		g.replicas[0].Lead(0)
		done := func() bool {
			return g.replicas[0].Status().Ordered > last &&
				g.replicas[1].at(last).timestamp == g.replicas[2].at(last).timestamp
		}
		g.tick()
		for g.network.Now() < 50*time.Millisecond && !done() {
			g.network.Step()
			g.poll()
			r := g.replicas[1]
			if h := r.at(last); h.index != 0 {
				if message := r.message(h); !bytes.Equal(message, stays) &&
					!bytes.Equal(message, goes) {
					return fmt.Errorf("entry %+v is neither of the two: %.60q...", h, message)
				}
			}
		}
		if !done() {
			return fmt.Errorf("not done: %v", g.replicas[0])
		}
		return nil
	}
	for _, last := range []uint64{2, window} {
		for seed := range uint64(20) {
			if err := run(seed, last, FaultNone); err != nil {
				t.Fatalf("entry %d, seed %d: %v", last, seed, err)
			}
		}
		for _, fault := range []Fault{FaultRewrittenInPlace, FaultFirstHole} {
			var found error
			for seed := uint64(0); seed < 20 && found == nil; seed++ {
				found = run(seed, last, fault)
			}
			if found == nil {
				t.Errorf("entry %d: the planted bug is not noticed: %s", last, fault)
			}
			t.Logf("entry %d, %s: %v", last, fault, found)
		}
	}
}

// markedLog is a replica's own log that notes the mark of an entry whenever its other bytes are
// written, or may be.
type markedLog struct {
	rdmanet.Region
	mark  int // the offset of the mark
	marks []uint64
}

func (l *markedLog) Bytes() []byte {
	l.marks = append(l.marks, l.Load(l.mark))
	return l.Region.Bytes()
}

func (l *markedLog) Store(offset int, value uint64) {
	if offset != l.mark {
		l.marks = append(l.marks, l.Load(l.mark))
	}
	l.Region.Store(offset, value)
}

// TestOwnMarkIsErased makes a replica put an entry into its own log where another entry of the
// same index is. Another leader may read this log at any instant, so the index is not there until
// the new entry is whole.
func TestOwnMarkIsErased(t *testing.T) {
	t.Parallel()
	if err := putsUnderNoMark(t, FaultNone); err != nil {
		t.Error(err)
	}
	if putsUnderNoMark(t, FaultOwnMarkKept) == nil {
		t.Error("a mark that is kept is not noticed")
	}
}

// putsUnderNoMark puts entries of one index into a replica's log. The error says that one was
// written under the mark of another one.
func putsUnderNoMark(t *testing.T, fault Fault) error {
	g := newGroup(t, 1, 1, Options{PayloadMax: 700, Fault: fault})
	r := g.replicas[0]
	log := &markedLog{Region: r.log.Region, mark: r.ring.End(1) + logIndex}
	r.log.Region = log
	for counter, text := range []string{"the first", "another one, which is longer", "short"} {
		message := slices.Repeat([]byte(text), 20)
		log.marks = nil
		g.leaveAt(0, uint64(counter+1), 1, message)
		if len(log.marks) < 5 {
			t.Fatalf("only %d writes were seen", len(log.marks))
		}
		if slices.Contains(log.marks, 1) {
			return fmt.Errorf("entry %d is written under a mark that is there: %v", counter+1,
				log.marks)
		}
		if h := r.at(1); h.index != 1 || !bytes.Equal(r.message(h), message) {
			t.Errorf("entry %d is not there: %+v", counter+1, h)
		}
	}
	return nil
}

// loans checks that the bytes of writes that are under way do not change.
type loans map[int][]byte

// poll makes a replica work, like group.poll.
func (l loans) poll(g *group, server int) error {
	r := g.replicas[server]
	r.Complete(g.network.Now())
	slot := func(place int) []byte { return r.staged.bytes[place*r.ring.Slot:][:r.ring.Slot] }
	for place := range l {
		if r.staged.lent[place] == 0 {
			delete(l, place)
		}
	}
	r.Poll(g.network.Now())
	protectedtest.Attach(g.hosts[server], r)
	for place, lent := range r.staged.lent {
		before, has := l[place]
		switch {
		case lent > 0 && !has:
			l[place] = bytes.Clone(slot(place))
		case has && !bytes.Equal(before, slot(place)):
			return fmt.Errorf("at %v, %w in slot %d: %v", g.network.Now(), errChanged, place, r)
		}
	}
	return nil
}

// lending is a group of three whose replica 0 leads. The completions of its writes to replica 2 may
// come late. Meanwhile their bytes must not change.
type lending struct {
	*group
	leader *Replica
	host   *protectedtest.LateHost // of the leader
	client *protectedtest.LateHost
	loans  loans
	silent int // a server that does nothing, if above 0
}

func newLending(t *testing.T, options Options) *lending {
	t.Helper()
	l := &lending{loans: loans{}}
	l.group = newGroupOn(t, 1, 3, options, func(number int,
		host rdmanet.RegionHost) rdmanet.RegionHost {
		late := &protectedtest.LateHost{RegionHost: host, Late: "2"}
		switch number {
		case 0:
			l.host = late
		case 3:
			l.client = late
		default:
			return host
		}
		return late
	})
	l.leader = l.replicas[0]
	l.tick()
	l.leader.Lead(0)
	return l
}

// lent runs a story of bytes that are lent, as it is and with the planted bug that they are used
// again.
func lent(t *testing.T, story func(t *testing.T, fault Fault) error) {
	t.Parallel()
	if err := story(t, FaultNone); err != nil {
		t.Fatal(err)
	}
	err := story(t, FaultLentReused)
	if !errors.Is(err, errChanged) {
		t.Errorf("the planted bug is not noticed: %v", err)
	}
	t.Logf("planted: %v", err)
}

var errChanged = errors.New("the bytes of a write under way change")

// run polls all replicas until something is so.
func (l *lending) run(what string, until func() bool) error {
	for end := l.network.Now() + 50*time.Millisecond; !until(); {
		l.network.Step()
		if err := l.loans.poll(l.group, 0); err != nil {
			return err
		}
		for server := 1; server <= 2; server++ {
			if server == l.silent {
				continue
			}
			l.replicas[server].Poll(l.network.Now())
			protectedtest.Attach(l.hosts[server], l.replicas[server])
			l.replicas[server].Delivered()
		}
		if l.network.Now() > end {
			return fmt.Errorf("not so: %s: %v", what, l.leader)
		}
	}
	return nil
}

// lends reports whether a write to replica 2 is under way, and holds its completion if so.
func (l *lending) lends() bool {
	l.host.Held = l.host.Lends()
	return l.host.Held
}

// TestLentBytesOfEarlierLead makes a leader lose the lead while a write is under way that never
// arrives. The next leader puts another entry into the slot, and then the first one may lead again.
// It does not change the bytes of its write before that has completed.
func TestLentBytesOfEarlierLead(t *testing.T) { lent(t, lentOfEarlierLead) }

func lentOfEarlierLead(t *testing.T, fault Fault) error {
	first, second := slices.Repeat([]byte("first"), 100), slices.Repeat([]byte("other"), 100)
	l := newLending(t, Options{PayloadMax: 700, Fault: fault})
	l.silent = 1
	l.leaveEntry(0, 1, 1, 1, first)
	if err := l.run("a write is under way", l.lends); err != nil {
		return err
	}
	l.network.Cut("0", "2")
	l.leader.stepDown("the test says so")
	for server := range 2 {
		l.leaveEntry(server, 5, 1, 2, second)
	}
	l.leader.counter, l.silent = 5, 0
	again := l.leader.notLead + 5*time.Millisecond
	if err := l.run("it could lead again", func() bool {
		return l.network.Now() > again
	}); err != nil {
		return err
	}
	if l.leader.ways.Lent() == 0 {
		return errors.New("no write is under way when it could lead again")
	}
	l.network.Mend("0", "2")
	l.host.Held = false
	return l.run("all have the other entry under its new lead", func() bool {
		return !slices.ContainsFunc(l.replicas, func(r *Replica) bool {
			h := r.at(1)
			return h.index != 1 || h.timestamp.Server() != 0 || !bytes.Equal(r.message(h), second)
		})
	})
}

// TestLentBytesOfFullLog excludes a member while a write to it is under way. The log wraps around
// meanwhile. The slot that the write takes its bytes from is not used again before it has
// completed.
func TestLentBytesOfFullLog(t *testing.T) { lent(t, lentOfFullLog) }

func lentOfFullLog(t *testing.T, fault Fault) error {
	const slots, messages = 8, 40
	l := newLending(t, Options{PayloadMax: 700, LogSlots: slots, Window: 2, BufferSlots: 64,
		Fault: fault})
	client, err := NewClient(l.leader.options, 0, l.hosts[3])
	if err != nil {
		t.Fatal(err)
	}
	sent, delivered := uint64(0), 0
	feed := func() {
		t.Helper()
		if sent < messages {
			err := client.Multicast(order.Multicast{
				ID: order.MessageID{Sender: order.Replica{Group: order.Clients},
					Sequence: sent + 1},
				To: []order.GroupID{0}, Payload: bytes.Repeat([]byte{byte(sent)}, 600)})
			if err == nil {
				sent++
			} else if !errors.Is(err, order.ErrNotNow) {
				t.Fatal(err)
			}
		}
		client.Poll(l.network.Now())
		protectedtest.Attach(l.hosts[3], client)
		delivered += len(l.leader.Delivered())
	}
	if err := l.run("a write is under way", func() bool {
		feed()
		return delivered > 2 && l.lends()
	}); err != nil {
		return err
	}
	l.leader.Exclude(2)
	end := l.network.Now() + 5*time.Millisecond
	if err := l.run("the log wraps around", func() bool {
		feed()
		return l.network.Now() > end
	}); err != nil {
		return err
	}
	if s := l.leader.Status(); l.leader.ways.Lent() == 0 || delivered == messages ||
		s.Taken+slots <= s.End {
		return fmt.Errorf("no slot is lent and otherwise free, with %d messages delivered: %+v",
			delivered, s)
	}
	l.host.Held = false
	return l.run("all is delivered", func() bool {
		feed()
		return delivered == messages
	})
}

// TestLentBytesOfClient makes a client's buffer wrap around while a write to one replica is under
// way, whose fellows have taken the message. The client has no room for another one in that slot
// before the write has completed.
func TestLentBytesOfClient(t *testing.T) { lent(t, lentOfClient) }

func lentOfClient(t *testing.T, fault Fault) error {
	const slots = 4
	l := newLending(t, Options{PayloadMax: 700, BufferSlots: slots, Fault: fault})
	client, err := NewClient(l.leader.options, 0, l.hosts[3])
	if err != nil {
		t.Fatal(err)
	}
	sent := uint64(0)
	send := func() error {
		err := client.Multicast(order.Multicast{
			ID: order.MessageID{Sender: order.Replica{Group: order.Clients}, Sequence: sent + 1},
			To: []order.GroupID{0}, Payload: bytes.Repeat([]byte{byte(sent)}, 600)})
		if err == nil {
			sent++
		}
		return err
	}
	poll := func() {
		client.Poll(l.network.Now())
		protectedtest.Attach(l.hosts[3], client)
		l.leader.Delivered()
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	stream := client.streams[0]
	if err := l.run("a write is under way", func() bool {
		poll()
		l.client.Held = l.client.Lends()
		return l.client.Held
	}); err != nil {
		return err
	}
	before := bytes.Clone(stream.box.Slot(1))
	if err := l.run("the other messages are taken", func() bool {
		poll()
		for sent < slots && send() == nil {
			continue
		}
		return sent == slots && stream.taken >= 1
	}); err != nil {
		return err
	}
	if err := send(); !errors.Is(err, order.ErrNotNow) {
		if !bytes.Equal(before, stream.box.Slot(1)) {
			return errChanged
		}
		t.Errorf("a message for a slot that is lent: %v", err)
	}
	if !bytes.Equal(before, stream.box.Slot(1)) {
		return errChanged
	}
	l.client.Held = false
	return l.run("there is room again", func() bool {
		poll()
		return send() == nil
	})
}
