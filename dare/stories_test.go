package dare

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// calm makes a group in which no server suspects another by itself.
func calm(c *Config) { c.Timeout = time.Hour }

// work makes servers work in turn until something is so. It reports whether that came.
func (f *fleet) work(until func() bool, servers ...int) bool {
	for end := f.network.Now() + 20*time.Millisecond; f.network.Now() < end; {
		due := false
		f.network.After(2*time.Microsecond, func() { due = true })
		for !due {
			f.network.Step()
		}
		if until() {
			return true
		}
		for _, i := range servers {
			f.poll(i)
		}
	}
	return false
}

// must is work that has to come.
func (f *fleet) must(what string, until func() bool, servers ...int) {
	f.t.Helper()
	if !f.work(until, servers...) {
		for i, s := range f.servers {
			f.t.Logf("%d: %v", i, s)
		}
		f.t.Fatalf("not so: %s (%s)", what, f.broken)
	}
}

// cut cuts wires, or mends them.
func (f *fleet) cut(a int, mend bool, others ...int) {
	for _, b := range others {
		from, to := rdmanet.PeerID(fmt.Sprint(a)), rdmanet.PeerID(fmt.Sprint(b))
		if mend {
			f.network.Mend(from, to)
		} else {
			f.network.Cut(from, to)
		}
	}
}

// TestARestartedServerDoesNotVote plays the schedule that breaks a group which takes a server that
// restarted for the one that it was (G5). Servers 0 and 1 have x, and server 0 A-delivers it.
// Server 1 restarts with empty memory, server 0 ends, and server 2, which lacks x, asks server 1
// for its vote.
func TestARestartedServerDoesNotVote(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultRestartedVotes} {
		f := newFleet(t, 1, 3, 3, func(c *Config) {
			calm(c)
			c.Fault = fault
		})
		f.cut(2, false, 0, 1)
		f.servers[0].Campaign()
		f.send(0)
		f.must("x is A-delivered", func() bool { return f.servers[0].applied == 1 }, 0, 1)
		f.stop(1)
		f.stop(0)
		f.start(1)
		f.cut(2, true, 0, 1)
		f.send(2)
		f.servers[2].Campaign() // finds server 1 gone
		quiet := f.network.Now() + 2*time.Millisecond
		f.work(func() bool { return f.network.Now() > quiet }, 1, 2)
		f.servers[2].Campaign()
		led := f.work(func() bool { return f.servers[2].applied == 1 || f.broken != "" }, 1, 2)
		if bad := fault != FaultNone; led != bad || (f.broken != "") != bad {
			t.Errorf("%v: server 2 A-delivers: %v, %q", fault, led, f.broken)
		}
		t.Logf("%v: %s", fault, f.broken)
	}
}

// TestALateServerLearns cuts server 3 off while server 4 restarts and is added again, and server 2
// while something more is A-delivered. Then 0 and 1 end. Only the new server 4 has everything, so
// it has to lead. Server 3 knows another incarnation in its seat, and learns better from server 2.
func TestALateServerLearns(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultLateNeverLearns} {
		f := newFleet(t, 1, 5, 5, func(c *Config) { c.Fault = fault })
		leads := func() bool { return f.servers[0].Leading() }
		f.servers[0].Campaign()
		f.send(0)
		f.must("all have an entry", func() bool {
			return leads() && f.servers[3].applied == 1 && f.servers[4].applied == 1
		}, 0, 1, 2, 3, 4)
		f.cut(3, false, 0, 1, 2, 4)
		f.stop(4)
		f.start(4)
		f.must("server 4 recovers", f.wholeBut(3), 0, 1, 2, 4)
		f.cut(2, false, 0, 1, 4)
		before := f.servers[4].applied
		f.send(0)
		f.must("more is A-delivered", func() bool {
			return f.servers[0].applied > before && f.servers[4].applied > before
		}, 0, 1, 4)
		f.stop(0)
		f.stop(1)
		f.cut(2, true, 0, 1, 3, 4)
		f.cut(3, true, 0, 1, 2, 4)
		f.send(4)
		sent := f.servers[4].sent
		good := f.work(func() bool {
			return f.servers[2].numbers[4] == sent && f.servers[3].numbers[4] == sent
		}, 2, 3, 4)
		if bad := fault != FaultNone; good == bad || f.broken != "" {
			t.Errorf("%v: goes on: %v, %s: %v\n%v\n%v", fault, good, f.broken, f.servers[2],
				f.servers[3], f.servers[4])
		}
	}
}

// wholeBut reports whether all but one server have the members that the operator wants, and take
// part.
func (f *fleet) wholeBut(late int) func() bool {
	return func() bool {
		for i, s := range f.servers {
			if i != late && (s.Recovering() || s.Configuration().Seats[4].Peer != f.want[4] ||
				s.known() < s.group().index) {
				return false
			}
		}
		return true
	}
}

// TestAFullLogIsFreed removes a server that stands still from a group whose log it keeps full (G4).
// The leader changes in between, and knows only from its own log what the others need.
func TestAFullLogIsFreed(t *testing.T) {
	t.Parallel()
	for slots := 2; slots < 6; slots++ {
		f := newFleet(t, uint64(slots), 3, 3, func(c *Config) { c.LogSlots = slots })
		f.servers[0].Campaign()
		f.send(0)
		f.must("all have an entry", func() bool { return f.servers[2].applied == 1 }, 0, 1, 2)
		want := f.want[2]
		f.stop(2)
		fill := func(at int) {
			f.must("the log is full", func() bool {
				if s := f.servers[at]; s.CanBroadcast() {
					f.send(at)
				}
				s := f.servers[at]
				return s.Leading() && s.used() == uint64(slots) && s.commit == s.tail()
			}, 0, 1)
		}
		fill(0)
		f.servers[1].Suspect()
		f.servers[1].Campaign()
		fill(1)
		f.want[2] = rdmanet.Peer{}
		f.must("server 2 is removed", func() bool {
			c := f.servers[0].Configuration()
			return c.Seats[2].Peer != want && f.servers[0].applied == f.servers[0].tail() &&
				f.servers[0].numbers[1] == f.servers[1].sent
		}, 0, 1)
		if f.broken != "" {
			t.Errorf("%d slots: %s", slots, f.broken)
		}
	}
}

// TestChangesThatAreRefused asks for what a group cannot do.
func TestChangesThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, 3, 4, calm)
	s, other := f.servers[0], rdmanet.Peer{ID: "new", Incarnation: 1}
	want := func(what string, err, target error) {
		t.Helper()
		if !errors.Is(err, target) {
			t.Errorf("%s: %v, want %v", what, err, target)
		}
	}
	want("a follower removes", s.Remove(1), ErrNotLeading)
	want("a follower adds", s.Add(3, other), ErrNotLeading)
	_, err := s.Barrier()
	want("a follower reads", err, ErrNotLeading)
	s.Campaign()
	f.must("it leads", s.Leading, 0, 1, 2)
	want("a change before an own entry", s.Shrink(2), ErrUnsettled)
	f.must("an own entry is committed", func() bool { return s.commit == 1 }, 0, 1, 2)
	for what, err := range map[string]error{
		"it removes itself":        s.Remove(0),
		"it removes a free seat":   s.Remove(3),
		"it removes too many":      s.Remove(1, 2),
		"it adds in a held seat":   s.Add(1, other),
		"it adds beyond the seats": s.Add(4, other),
		"it adds nobody":           s.Add(3, rdmanet.Peer{}),
		"it adds a member again":   s.Add(3, rdmanet.Peer{ID: "1", Incarnation: 2}),
		"it shrinks to nothing":    s.Shrink(0),
		"it shrinks to its size":   s.Shrink(3),
	} {
		want(what, err, ErrSeat)
	}
	if len(f.agreed) != 0 || f.broken != "" {
		t.Errorf("%v, %s", f.agreed, f.broken)
	}
}

// TestANewcomerThatNeverComes extends a group by a server that does not exist. After a while the
// group is as before, and can change again.
func TestANewcomerThatNeverComes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, 2, 3, func(c *Config) { c.Timeout = 40 * time.Microsecond })
	f.servers[0].Campaign()
	ghost := rdmanet.Peer{ID: "ghost", Incarnation: 1}
	extended := func(i int) bool { return f.servers[i].Configuration().Phase == Extended }
	f.must("the group is extended", func() bool {
		for _, s := range f.servers[:2] {
			if s.Leading() {
				_ = s.Add(order.ServerID(2), ghost)
			}
		}
		return extended(0) && extended(1)
	}, 0, 1)
	f.must("the group is as before", func() bool {
		return !extended(0) && !extended(1) && f.servers[0].Configuration().Size == 2
	}, 0, 1)
	if f.broken != "" {
		t.Error(f.broken)
	}
}

// TestRunsWhoseGroupsStay asks for changes in runs whose groups stay the same, and freezes one
// whose group changed.
func TestRunsWhoseGroupsStay(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*Config){
		"with an end": changing, "of a part of a shard": func(c *Config) { c.Shard = 4 },
		"whose group changes": func(*Config) {},
	} {
		f := newFleet(t, 1, 3, 3, func(c *Config) {
			calm(c)
			change(c)
		})
		s := f.servers[0]
		s.Campaign()
		f.must("it leads", s.Leading, 0, 1, 2)
		f.group.send(t, 0, "x")
		f.must("an own entry is committed", func() bool { return s.commit == 1 }, 0, 1, 2)
		if !s.config.fixed() {
			if err := s.Remove(2); err != nil || s.tail() != 2 {
				t.Errorf("a run %s: %v", what, err)
			}
			f.must("it is removed", func() bool { return s.applied == 2 }, 0, 1)
			if log, err := f.servers[1].Freeze(); err == nil {
				t.Errorf("a run %s is frozen: %+v", what, log)
			}
			continue
		}
		for _, err := range []error{s.Remove(2), s.Shrink(2),
			s.Add(2, rdmanet.Peer{ID: "new", Incarnation: 1})} {
			if !errors.Is(err, ErrSeat) {
				t.Errorf("a run %s: %v", what, err)
			}
		}
		// Nobody writes such an entry. If it is there all the same, it is no configuration.
		next := s.group().with(2, Seat{})
		b := appendConfiguration(nil, &next)
		s.put(entry{2, s.term, s.term, kindConfig, len(b)}, b)
		s.seek()
		if log, err := s.Freeze(); err == nil || s.group().index != 0 {
			t.Errorf("a run %s takes a configuration for a round: %+v", what, log)
		}
	}
}
