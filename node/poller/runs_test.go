package poller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// member is a server of the tests: its Runs, and the other ends of them.
type member struct {
	t     *testing.T
	host  *memory.Host
	runs  *Runs
	ready chan struct{}

	mu      sync.Mutex
	waiting [][]byte
	rounds  []order.Delivery
	dry     func() // called by Next if nothing waits, unless it is nil
	full    bool   // the sink takes nothing
	broken  error  // the sink's
	ended   []uint64
	left    []order.ServerID
	halted  string
	lost    []order.ServerID
	removed []order.ServerID
	moved   int
}

func (m *member) Next(int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 {
		if m.dry != nil {
			m.dry()
		}
		return nil
	}
	next := m.waiting[0]
	m.waiting = m.waiting[1:]
	return next
}

func (m *member) Ready() <-chan struct{} { return m.ready }

func (m *member) Deliver(context.Context, []order.Delivery) error {
	m.t.Error("nothing may wait for the sink")
	return nil
}

func (m *member) TryDeliver(deliveries []order.Delivery) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full || m.broken != nil {
		return false, m.broken
	}
	m.rounds = append(m.rounds, deliveries...)
	return true, nil
}

func (m *member) submit(payloads ...string) {
	m.mu.Lock()
	for _, payload := range payloads {
		m.waiting = append(m.waiting, []byte(payload))
	}
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// has reports whether a message was A-delivered here.
func (m *member) has(payload string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.rounds, func(d order.Delivery) bool {
		return slices.ContainsFunc(d.Messages, func(m order.Message) bool {
			return string(m.Payload) == payload
		})
	})
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		<-time.After(time.Millisecond)
	}
}

// locked returns whether something holds of a member.
func (m *member) locked(holds func() bool) func() bool {
	return func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return holds()
	}
}

var testPeers = []rdmanet.PeerID{"0", "1", "2", "3"}

// meet makes a member on a host of its own. full says that all take part in each round.
func meet(t *testing.T, network *memory.Network, self int, full ...bool) *member {
	t.Helper()
	host, err := network.Host(testPeers[self])
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t: t, host: host, ready: make(chan struct{}, 1)}
	made, err := engine.Of(dare.EngineName)
	if err != nil {
		t.Fatal(err)
	}
	m.runs, err = NewRuns(RunsConfig{Host: host, Self: order.ServerID(self), Peers: testPeers,
		Source: m, Sink: m, Farewell: 100 * time.Millisecond, Rounds: rounds.New(),
		Logger: slog.New(slog.DiscardHandler),
		NewMachine: func(g driver.Group, place order.ServerID, peers []rdmanet.Peer,
			host rdmanet.RegionHost) (engine.Machine, error) {
			return made.NewMachine(engine.Config{Self: place, Servers: len(g.Members),
				Shard: g.Shard, Run: g.Run, FirstRound: g.FirstRound, MaxPayload: 1 << 10,
				FullRounds: len(full) > 0 && full[0],
				Change: func(d order.Delivery) bool {
					return slices.ContainsFunc(d.Messages, func(m order.Message) bool {
						return string(m.Payload) == "change"
					})
				}}, peers, host)
		},
		Ended: func(g driver.Group, members []order.ServerID) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.ended, m.left = append(m.ended, g.Run), members
		},
		Halted: func(_ driver.Group, reason string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.halted = reason
		},
		Lost: func(_ uint64, server order.ServerID, cause error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.lost = append(m.lost, server)
			if !errors.Is(cause, errRestarted) {
				t.Errorf("lost because of %v", cause)
			}
		},
		Removed: func(_ uint64, servers []order.ServerID) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.removed = append(m.removed, servers...)
		},
		Moved: func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.moved++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.runs.Close()
		_ = host.Close(context.Background()) // a test may have ended it
	})
	return m
}

// party makes members that have met each other, and activates a group of all.
func party(t *testing.T, size int, full ...bool) ([]*member, *memory.Network, driver.Group) {
	t.Helper()
	network := memory.NewNetwork()
	group := driver.Group{Run: 1 << 16, FirstRound: 5, Shard: size}
	var members []*member
	for self := range size {
		members = append(members, meet(t, network, self, full...))
		group.Members = append(group.Members, order.ServerID(self))
	}
	introduce(members...)
	for _, m := range members {
		if err := m.runs.Activate(group); err != nil {
			t.Fatal(err)
		}
	}
	return members, network, group
}

// introduce makes members meet each other.
func introduce(members ...*member) {
	for _, m := range members {
		for _, other := range members {
			m.runs.Met(rdmanet.Peer{ID: other.host.ID(), Incarnation: other.host.Incarnation()})
		}
	}
}

// alike checks that the members' rounds are equal, as far as both have them.
func alike(t *testing.T, members ...*member) {
	t.Helper()
	for _, m := range members[1:] {
		for i := range min(len(m.rounds), len(members[0].rounds)) {
			one, other := fmt.Sprint(members[0].rounds[i]), fmt.Sprint(m.rounds[i])
			if one != other {
				t.Fatalf("round %d is %s and %s", i, one, other)
			}
		}
	}
}

// TestAllTakePart: in full rounds, members without a batch A-broadcast an empty message for each of
// the others' messages, and no more of them.
func TestAllTakePart(t *testing.T) {
	t.Parallel()
	members, _, _ := party(t, 3, true)
	for i := range 5 {
		payload := fmt.Sprint("a", i)
		members[i%3].submit(payload)
		for _, m := range members {
			eventually(t, "all have it", func() bool { return m.has(payload) })
		}
	}
	for i, empty := range []uint64{3, 3, 4} {
		want := driver.Traffic{Broadcasts: 5, EmptyBroadcasts: empty, Rounds: 5, Messages: 5}
		eventually(t, fmt.Sprintf("member %d: %+v", i, want), func() bool {
			got := members[i].runs.Status().Traffic
			return got.Broadcasts == want.Broadcasts && got.EmptyBroadcasts == empty &&
				got.Rounds == want.Rounds && got.Messages == want.Messages
		})
	}
}

// TestFullRoundsWaitForSinks: a member whose Sink takes nothing holds up full rounds once it has as
// many as its log holds. They go on when the Sink takes rounds again.
func TestFullRoundsWaitForSinks(t *testing.T) {
	t.Parallel()
	members, _, _ := party(t, 3, true)
	slow := members[2]
	slow.mu.Lock()
	slow.full = true
	slow.mu.Unlock()
	var payloads []string
	for i := range 300 {
		payloads = append(payloads, fmt.Sprint("a", i))
	}
	members[0].submit(payloads...)
	for begin := time.Now(); time.Since(begin) < 200*time.Millisecond; {
		<-time.After(time.Millisecond)
	}
	for _, m := range members[:2] {
		if last := payloads[len(payloads)-1]; m.has(last) {
			t.Errorf("%s is A-delivered without a member that is not missing", last)
		}
	}
	slow.mu.Lock()
	slow.full = false
	slow.mu.Unlock()
	for _, m := range members {
		eventually(t, "all are A-delivered", func() bool { return m.has(payloads[299]) })
	}
	alike(t, members...)
}

// TestNoBatchIsForgotten: a batch that becomes ready while the source says that it has none is
// A-broadcast, though nothing else happens.
func TestNoBatchIsForgotten(t *testing.T) {
	t.Parallel()
	members, _, _ := party(t, 1)
	m := members[0]
	m.mu.Lock()
	m.dry = func() {
		m.dry = nil
		m.waiting = append(m.waiting, []byte("b"))
		batch := &m.runs.latest.Load().batch
		batch.Store(false)
		m.ready <- struct{}{}
		for !batch.Load() { // until the goroutine that waits for the source has said so
			<-time.After(time.Millisecond)
		}
	}
	m.mu.Unlock()
	m.submit("a")
	eventually(t, "both are A-delivered", func() bool { return m.has("a") && m.has("b") })
}

// solicited is a machine that others begin to wait for right after it was asked whether they do. It
// notes what it A-broadcasts, once.
type solicited struct {
	engine.Machine
	asked int
	said  []string
}

func (s *solicited) CanBroadcast() bool     { return len(s.said) == 0 }
func (s *solicited) PayloadMax() int        { return 10 }
func (s *solicited) NextRound() order.Round { return 5 }
func (s *solicited) Ended() bool            { return false }

func (s *solicited) Solicited() bool {
	s.asked++
	return s.asked > 1
}

func (s *solicited) Broadcast(payload []byte) error {
	s.said = append(s.said, string(payload))
	return nil
}

// besides is a source that has something for rounds that take place anyway.
type besides struct{ *member }

func (besides) NextIn(_ func() uint64, due func() bool, _ int) []byte {
	if due() {
		return []byte("input")
	}
	return nil
}

// TestSourcesHearOfRounds: a round that others begin while the source is asked has what the source
// has for such rounds.
func TestSourcesHearOfRounds(t *testing.T) {
	t.Parallel()
	machine := &solicited{}
	r := &run{config: &RunsConfig{Source: besides{}, MaxBatch: 10}, machine: machine,
		turns: turn.NewPolled(machine, []order.ServerID{0}, 1)}
	r.batch.Store(true)
	if !r.feed() || !slices.Equal(machine.said, []string{"input"}) {
		t.Errorf("said %q", machine.said)
	}
}

// TestRunsFollowEachOther: a change ends a run at all members, with the same last round. What was
// under way is not A-delivered, and the next run goes on with the round after it.
func TestRunsFollowEachOther(t *testing.T) {
	t.Parallel()
	members, _, group := party(t, 3)
	for i, m := range members {
		m.submit(fmt.Sprint("a", i), fmt.Sprint("b", i))
	}
	for _, m := range members {
		eventually(t, "all have all", func() bool {
			return m.has("b0") && m.has("b1") && m.has("b2")
		})
	}
	members[1].submit("change", "lost", "lost", "lost")
	for _, m := range members {
		eventually(t, "the run ends", m.locked(func() bool {
			return slices.Equal(m.ended, []uint64{group.Run}) && len(m.left) == 3
		}))
		eventually(t, "the status", func() bool {
			s := m.runs.Status()
			return !s.Running && s.Engine.Ended && s.Group.Run == group.Run
		})
	}
	for i, m := range members { // at least the proposals went to both others
		if traffic := m.runs.Status().Traffic; traffic.FramesSent < 4 || traffic.BytesSent < 4*2 {
			t.Errorf("member %d: %+v", i, traffic)
		}
	}
	alike(t, members...)
	last := members[0].rounds[len(members[0].rounds)-1]
	group.Run, group.FirstRound, group.Shard = group.Run+1, last.Round+1, 2
	group.Members = []order.ServerID{0, 2}
	for _, i := range group.Members {
		if err := members[i].runs.Activate(group); err != nil {
			t.Fatal(err)
		}
		if err := members[i].runs.Activate(group); !errors.Is(err, driver.ErrGroup) {
			t.Errorf("activated twice: %v", err)
		}
	}
	if err := members[1].runs.Activate(group); !errors.Is(err, driver.ErrGroup) {
		t.Errorf("activated without being a member: %v", err)
	}
	members[2].submit("c")
	for _, i := range group.Members {
		eventually(t, "the next run goes on", func() bool { return members[i].has("c") })
		next := members[i].rounds[len(members[0].rounds)-1]
		if next.Round != group.FirstRound || next.Messages[1].Origin != 2 {
			t.Errorf("the first round is %+v", next)
		}
		members[i].locked(func() bool {
			if members[i].moved == 0 {
				t.Error("nothing moved")
			}
			return true
		})()
	}
}

// TestWhatIsFrozenStays: with Freeze, the sink gets nothing more. What the engine A-delivered and
// the sink did not take is untaken, and the log's end is that of the leader.
func TestWhatIsFrozenStays(t *testing.T) {
	t.Parallel()
	members, _, _ := party(t, 3)
	members[0].submit("a")
	for _, m := range members {
		eventually(t, "all have it", func() bool { return m.has("a") })
	}
	members[1].mu.Lock()
	members[1].full = true
	members[1].mu.Unlock()
	members[0].submit("b")
	eventually(t, "another has it", func() bool { return members[0].has("b") })
	eventually(t, "the one with a full sink waits for it", func() bool {
		return !members[1].runs.Status().WaitingSince.IsZero()
	})
	remains := members[1].runs.Freeze()
	// The leader may have had the other member's log for a majority, and not yet this one's.
	if remains.Err != nil || remains.Log == nil || remains.Log.Stamp == 0 ||
		remains.VotesMax != 64 || remains.Log.Index < 1 ||
		len(remains.Untaken)+len(remains.Votes) != int(remains.Log.Index)-1 {
		t.Fatalf("%+v", remains)
	}
	for _, d := range remains.Untaken {
		if string(d.Messages[0].Payload) != "b" {
			t.Errorf("untaken: %+v", d)
		}
	}
	if again := members[1].runs.Freeze(); again.Log != remains.Log {
		t.Errorf("frozen twice: %+v", again)
	}
	if s := members[1].runs.Status(); s.Running {
		t.Error("it runs")
	}
	members[0].submit("c") // a majority is left
	eventually(t, "the others go on", func() bool { return members[2].has("c") })
	if members[1].has("c") || members[1].has("b") {
		t.Error("a frozen member delivers")
	}
}

// TestMissingMembersAreTakenOut: the run ends without a member that the detector suspects, and that
// takes nothing. One that is suspected and works stays.
func TestMissingMembersAreTakenOut(t *testing.T) {
	t.Parallel()
	members, network, group := party(t, 3)
	members[0].submit("a")
	for _, m := range members {
		eventually(t, "all have it", func() bool { return m.has("a") })
	}
	network.Kill(members[1].host.ID())
	for _, i := range []int{0, 2} {
		members[i].runs.Suspect(group.Run+7, 0, errors.New("of another run"))
		members[i].runs.Suspect(group.Run, 1, errors.New("it is silent"))
	}
	out := func() bool { return len(members[0].ended) > 0 }
	for k := 0; !members[0].locked(out)(); k++ {
		members[0].submit(fmt.Sprint("m", k))
		<-time.After(time.Millisecond)
	}
	for _, i := range []int{0, 2} {
		m := members[i]
		eventually(t, "the run ends", m.locked(func() bool {
			return len(m.ended) == 1 && slices.Equal(m.left, []order.ServerID{0, 2}) &&
				slices.Equal(m.removed, []order.ServerID{1})
		}))
	}
	alike(t, members[0], members[2])
}

// TestOpinionsShow: suspicions show in the status, and that no majority is left. Trust withdraws
// them.
func TestOpinionsShow(t *testing.T) {
	t.Parallel()
	members, _, group := party(t, 3)
	members[0].submit("a")
	for _, m := range members {
		eventually(t, "all have it", func() bool { return m.has("a") })
	}
	m := members[0].runs
	m.Suspect(group.Run, 1, errors.New("it is silent"))
	m.Suspect(group.Run, 2, errors.New("it is silent"))
	eventually(t, "it is outside", func() bool {
		s := m.Status()
		return s.OutsideMajority && !s.WaitingSince.IsZero() && len(s.Engine.Suspected) == 2
	})
	m.Trust(group.Run, 2)
	eventually(t, "it is not", func() bool {
		s := m.Status()
		return !s.OutsideMajority && s.WaitingSince.IsZero() &&
			slices.Equal(s.Engine.Suspected, []order.ServerID{1})
	})
}

// TestRunsWaitForUnmetMembers: access to memory is granted to incarnations, so a run begins once
// all of its members were met. A member that comes back as another incarnation is lost to the run.
func TestRunsWaitForUnmetMembers(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	one, other := meet(t, network, 0), meet(t, network, 1)
	group := driver.Group{Run: 9, FirstRound: 1, Members: []order.ServerID{0, 1}, Shard: 3}
	one.submit("a")
	for _, m := range []*member{one, other} {
		if err := m.runs.Activate(group); err != nil {
			t.Fatal(err)
		}
		s := m.runs.Status()
		if !s.Running || s.WaitingSince.IsZero() || len(s.Engine.Awaited) != 1 {
			t.Errorf("it does not wait: %+v", s)
		}
	}
	introduce(one, other)
	for _, m := range []*member{one, other} {
		eventually(t, "it begins", func() bool { return m.has("a") })
	}
	again := rdmanet.Peer{ID: other.host.ID(), Incarnation: other.host.Incarnation() + 1}
	one.runs.Met(again)
	one.runs.Met(again)
	eventually(t, "it is lost", one.locked(func() bool {
		return slices.Equal(one.lost, []order.ServerID{1})
	}))
	eventually(t, "the status says so", func() bool {
		return slices.Equal(one.runs.Status().Lost, []order.ServerID{1})
	})
	// A run that waits can be frozen, and leaves nothing.
	group.Run, group.Members = 10, []order.ServerID{0, 3}
	if err := one.runs.Activate(group); err != nil {
		t.Fatal(err)
	}
	if remains := one.runs.Freeze(); remains.Log != nil || remains.Err != nil {
		t.Errorf("%+v", remains)
	}
}

// TestSinksMayRefuse: an error of the sink halts the engine, and the round is untaken.
func TestSinksMayRefuse(t *testing.T) {
	t.Parallel()
	members, _, _ := party(t, 1)
	m := members[0]
	m.broken = errors.New("no")
	m.submit("a")
	eventually(t, "it halts", m.locked(func() bool { return m.halted == "no" }))
	if remains := m.runs.Freeze(); len(remains.Untaken) != 1 {
		t.Errorf("%+v", remains)
	}
	m.runs.Close()
	if err := m.runs.Activate(driver.Group{Run: 1 << 20, Members: []order.ServerID{0}}); !errors.Is(
		err, driver.ErrClosed) {
		t.Errorf("activated after its end: %v", err)
	}
}

// TestRunsConfig: what is missing or does not fit is refused.
func TestRunsConfig(t *testing.T) {
	t.Parallel()
	members, _, _ := party(t, 1)
	good := members[0].runs.config
	for name, change := range map[string]func(*RunsConfig){
		"no source":    func(c *RunsConfig) { c.Source = nil },
		"no machines":  func(c *RunsConfig) { c.NewMachine = nil },
		"another self": func(c *RunsConfig) { c.Self = 2 },
		"no peer":      func(c *RunsConfig) { c.Self = 9 },
	} {
		config := good
		change(&config)
		if _, err := NewRuns(config); !errors.Is(err, driver.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, peers := range [][]rdmanet.PeerID{{}, {"9"}} {
		if err := members[0].runs.SetPeers(peers); !errors.Is(err, driver.ErrConfig) {
			t.Errorf("peers %v: %v", peers, err)
		}
	}
	if err := members[0].runs.SetPeers([]rdmanet.PeerID{"0", "7"}); err != nil {
		t.Error(err)
	}
}
