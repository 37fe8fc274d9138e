package protected

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/protected/protectedtest"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// loans checks that the bytes of writes that are under way do not change.
type loans map[int][]byte

// poll makes a server work, and checks its loans.
func (l loans) poll(g *group, server int) error {
	r := g.servers[server]
	r.Complete(g.network.Now())
	size := r.log.ring.Slot
	slot := func(place int) []byte { return r.log.staged.bytes[place*size:][:size] }
	for place := range l {
		if r.log.staged.lent[place] == 0 {
			delete(l, place)
		}
	}
	r.Poll(g.network.Now())
	r.attach()
	for place, lent := range r.log.staged.lent {
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

// lending is a group of three whose server 0 leads. The completions of its writes to server 2 may
// come late. Meanwhile their bytes must not change.
type lending struct {
	*group
	leader *server
	host   *protectedtest.LateHost // of the leader
	loans  loans
	silent int // a server that does nothing, if above 0
}

func newLending(t *testing.T, config LogConfig) *lending {
	t.Helper()
	l := &lending{loans: loans{}}
	l.group = newGroup(t, 1, 3, config, func(number int,
		host rdmanet.RegionHost) rdmanet.RegionHost {
		if number != 0 {
			return host
		}
		l.host = &protectedtest.LateHost{RegionHost: host, Late: "2"}
		return l.host
	})
	l.leader = l.servers[0]
	l.tick()
	l.leader.log.Lead(0)
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

// run polls all servers until something is so.
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
			l.servers[server].Poll(l.network.Now())
			l.servers[server].attach()
		}
		if l.network.Now() > end {
			return fmt.Errorf("not so: %s: %v", what, l.leader)
		}
	}
	return nil
}

// lends reports whether a write to server 2 is under way, and holds its completion if so.
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
	l := newLending(t, LogConfig{EntryMax: 700, Fault: fault})
	l.silent = 1
	l.leaveEntry(0, 1, 1, 1, first)
	if err := l.run("a write is under way", l.lends); err != nil {
		return err
	}
	l.network.Cut("0", "2")
	l.leader.log.stepDown("the test says so")
	for server := range 2 {
		l.leaveEntry(server, 5, 1, 2, second)
	}
	l.leader.log.counter, l.silent = 5, 0
	again := l.leader.log.notLead + 5*time.Millisecond
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
		return !slices.ContainsFunc(l.servers, func(r *server) bool {
			h := r.log.at(1)
			return h.Index != 1 || h.Timestamp.Server() != 0 || !bytes.Equal(r.log.Bytes(h), second)
		})
	})
}

// TestLentBytesOfFullLog excludes a member while a write to it is under way. The log wraps around
// meanwhile. The slot that the write takes its bytes from is not used again before it has
// completed.
func TestLentBytesOfFullLog(t *testing.T) { lent(t, lentOfFullLog) }

func lentOfFullLog(t *testing.T, fault Fault) error {
	const slots, entries = 8, 40
	l := newLending(t, LogConfig{EntryMax: 700, Slots: slots, Window: 2, Fault: fault})
	sent := uint64(0)
	feed := func() {
		if log := l.leader.log; sent < entries && log.Leading() && log.Room() {
			sent++
			log.Append(2, sent, bytes.Repeat([]byte{byte(sent)}, 600))
		}
	}
	if err := l.run("a write is under way", func() bool {
		feed()
		return len(l.leader.applied) > 2 && l.lends()
	}); err != nil {
		return err
	}
	l.leader.log.Exclude(2)
	end := l.network.Now() + 5*time.Millisecond
	if err := l.run("the log wraps around", func() bool {
		feed()
		return l.network.Now() > end
	}); err != nil {
		return err
	}
	if s := l.leader.log.Status(); l.leader.ways.Lent() == 0 || sent == entries ||
		s.Taken+slots <= s.End {
		return fmt.Errorf("no slot is lent and otherwise free, with %d entries: %+v", sent, s)
	}
	l.host.Held = false
	return l.run("all is applied", func() bool {
		feed()
		return len(l.leader.applied) == entries
	})
}
