package generation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/fabric"
)

// logPlant is a bug to plant in a run of DARE: in choose, in the servers, or in their majorities.
type logPlant struct {
	choose Fault
	dare   dare.Fault
	// groupMajority makes the servers take a majority of the group for one of the shard.
	groupMajority bool
}

// logServer is a server of DARE and its chain.
type logServer struct {
	*dare.Server
	host      *fabric.Host
	delivered []TailRound
	removed   bool // it, or another server, was taken out
	down      bool
	frozen    bool
}

// logWorld is a group of n servers of a shard, in virtual time. Its schedule is drawn by the seed.
type logWorld struct {
	network  *fabric.Network
	random   *rand.Rand
	servers  []*logServer
	group    []order.ServerID
	shard    Membership
	plant    logPlant
	sent     int
	promises []Promised
	forgot   int
}

// logOutcome is what came up in a schedule.
type logOutcome struct {
	frozen, beyond, ended, removed, forgot bool
	// shorter says that the most recent log of those that promised was not the longest one.
	shorter bool
}

const logSlots = 8

func newLogWorld(t *testing.T, seed uint64, n, shard int, plant logPlant) *logWorld {
	t.Helper()
	w := &logWorld{random: rand.New(rand.NewPCG(seed, 11)), plant: plant,
		shard: Membership{Number: 1, Members: members(shard)}, group: members(shard)[:n],
		network: fabric.New(fabric.Options{Seed: seed, Delay: 10 * time.Microsecond})}
	t.Cleanup(w.network.Close)
	config := dare.Config{Shard: shard, FirstRound: 1, PayloadMax: 40, LogSlots: logSlots,
		Window: 3, Timeout: 400 * time.Microsecond, Beat: 50 * time.Microsecond,
		Patience: 200 * time.Microsecond, Fault: plant.dare,
		Change: func(d order.Delivery) bool {
			return slices.ContainsFunc(d.Messages, func(m order.Message) bool {
				return len(m.Payload) > 0 && m.Payload[0] == '+'
			})
		}}
	if plant.groupMajority {
		config.Shard = 0
	}
	for i := range n {
		host, err := w.network.Start(rdmanet.PeerID(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		w.servers = append(w.servers, &logServer{host: host})
		config.Peers = append(config.Peers, host.Peer())
	}
	for i, s := range w.servers {
		config.Self = order.ServerID(i)
		server, err := dare.New(config, s.host)
		if err != nil {
			t.Fatal(err)
		}
		s.Server = server
	}
	return w
}

// run lets the servers work for a span, each at random times.
func (w *logWorld) run(span time.Duration) {
	for end := w.network.Now() + span; w.network.Now() < end; {
		due := false
		w.network.After(time.Duration(1+w.random.IntN(6000)), func() { due = true })
		for !due {
			w.network.Step()
		}
		s := w.servers[w.random.IntN(len(w.servers))]
		if s.down || s.frozen {
			continue
		}
		s.Poll(w.network.Now())
		for _, want := range s.Wanted() {
			attachment, err := s.host.Attach(context.Background(), want.Peer, want.Region)
			s.Attached(want.Number, attachment, err)
		}
		for _, d := range s.Deliveries() {
			s.delivered = append(s.delivered, contentOf(d, w.group))
			s.removed = s.removed || len(d.Removed) > 0
		}
	}
}

// event makes something happen. It returns an error if a server halts.
func (w *logWorld) event(crashes *int) error {
	i := w.random.IntN(len(w.servers))
	s, other := w.servers[i], w.servers[w.random.IntN(len(w.servers))]
	switch w.random.IntN(16) {
	case 0:
		if !s.down && !s.frozen {
			s.Campaign()
		}
	case 1:
		s.Suspect()
	case 2, 3:
		if s != other {
			w.network.Cut(s.host.ID(), other.host.ID())
		}
	case 4, 5:
		for _, a := range w.servers {
			for _, b := range w.servers {
				if a != b {
					w.network.Mend(a.host.ID(), b.host.ID())
				}
			}
		}
	case 6:
		if *crashes > 0 && !s.down && w.random.IntN(4) == 0 {
			*crashes--
			s.down = true
			w.network.Crash(s.host.ID())
		}
	case 7:
		for _, server := range w.servers {
			server.Missing(order.ServerID(i), s.down || w.random.IntN(8) == 0)
		}
	default:
		if !s.down && !s.frozen && s.CanBroadcast() {
			w.sent++
			payload := fmt.Appendf(nil, "m%d.%d %*d", i, w.sent, w.random.IntN(20), 0)
			if w.random.IntN(60) == 0 {
				payload[0] = '+'
			}
			if err := s.Broadcast(payload); err != nil {
				return err
			}
		}
	}
	w.run(time.Duration(w.random.IntN(60_000)))
	for i, s := range w.servers {
		if s.Halted() != "" {
			return fmt.Errorf("server %d halts: %s", i, s.Halted())
		}
	}
	return nil
}

// strike cuts a leader off that goes on appending, and has the others elect another one. It returns
// as soon as that one A-delivers something, with the servers in an order in which the others
// promise first. It returns nil if no such thing came about.
func (w *logWorld) strike() []int {
	until := func(span time.Duration, so func() bool) bool {
		for end := w.network.Now() + span; w.network.Now() < end; {
			if so() {
				return true
			}
			w.run(4 * time.Microsecond)
		}
		return false
	}
	leads := func(not int) int {
		return slices.IndexFunc(w.servers, func(s *logServer) bool {
			return !s.down && s.Leading() && s != w.servers[max(not, 0)] || !s.down && not < 0 &&
				s.Leading()
		})
	}
	send := func(i, count int) {
		for ; count > 0 && w.servers[i].CanBroadcast(); count-- {
			w.sent++
			if w.servers[i].Broadcast(fmt.Appendf(nil, "s%d", w.sent)) != nil {
				return
			}
		}
	}
	if !until(4*time.Millisecond, func() bool { return leads(-1) >= 0 }) {
		return nil
	}
	first := leads(-1)
	for i, s := range w.servers {
		if i != first {
			w.network.Cut(w.servers[first].host.ID(), s.host.ID())
		}
	}
	send(first, 1+w.random.IntN(3))
	w.run(30 * time.Microsecond)
	for i, s := range w.servers {
		if i != first {
			s.Suspect()
		}
	}
	if !until(8*time.Millisecond, func() bool { return leads(first) >= 0 }) {
		return nil
	}
	second := leads(first)
	before := len(w.servers[second].delivered)
	send(second, 1+w.random.IntN(2))
	more := func() bool { return len(w.servers[second].delivered) > before }
	if !until(2*time.Millisecond, more) {
		return nil
	}
	order := []int{first}
	for _, i := range w.random.Perm(len(w.servers)) {
		if i != first && i != second {
			order = append(order, i)
		}
	}
	return append(order, second)
}

// promise freezes a server and collects its report. One that is down has lost its memory.
func (w *logWorld) promise(i int) error {
	s := w.servers[i]
	r := Report{Original: true, Run: NewRun(1, 0), Shard: w.shard, Membership: w.shard,
		Restarted: s.down, Head: Head{Generation: 1, Height: uint64(len(s.delivered)),
			Round: order.Round(len(s.delivered))}}
	if s.down {
		w.forgot++
	} else {
		s.frozen = true
		log, err := s.Freeze()
		if err != nil {
			return err
		}
		r.Bound, r.Last = LogBound(log.RoundsMax), LogEnd{log.Stamp, log.Index}
		for _, d := range log.Rounds {
			r.Votes = append(r.Votes, Vote{TailRound: contentOf(d, w.group)})
		}
	}
	w.promises = append(w.promises, Promised{w.group[i], r})
	return nil
}

// runLog plays a schedule: some events, and then promises with events between them, until enough
// servers promised. The others go on.
func runLog(t *testing.T, seed uint64, n, shard int, plant logPlant) (out logOutcome, err error) {
	t.Helper()
	w := newLogWorld(t, seed, n, shard, plant)
	crashes := w.random.IntN(2) * (n - w.shard.Quorum())
	for range 20 + w.random.IntN(60) {
		if err := w.event(&crashes); err != nil {
			return out, err
		}
	}
	enough := func() bool {
		v := furthestSurvey(w.promises, nil, plant.choose)
		return v.enough(true)
	}
	pause, order := w.random.IntN(8), w.random.Perm(shard)
	if seed%2 == 0 && n > 1 {
		if struck := w.strike(); struck != nil {
			pause, order = 0, struck
		}
	}
	for _, i := range order {
		for range pause {
			if err := w.event(&crashes); err != nil {
				return out, err
			}
		}
		if enough() {
			break
		}
		if i >= n { // a member of the shard that is not in the group
			w.promises = append(w.promises, Promised{w.shard.Members[i], Report{Original: true,
				Shard: w.shard, Membership: w.shard, Head: Head{}}})
			continue
		}
		if w.servers[i].down && w.random.IntN(2) == 0 {
			continue // it stays away
		}
		if err := w.promise(i); err != nil {
			return out, err
		}
	}
	for range w.random.IntN(20) {
		if err := w.event(&crashes); err != nil {
			return out, err
		}
	}
	out.frozen = enough()
	out.forgot = w.forgot > 0
	return out, w.judge(&out)
}

// judge compares what any server A-delivered with the others, and with what choose takes.
func (w *logWorld) judge(out *logOutcome) error {
	for p, s := range w.servers {
		out.ended = out.ended || s.Status().Ended
		out.removed = out.removed || s.removed
		for i, d := range s.delivered {
			for q, other := range w.servers[:p] {
				if i < len(other.delivered) && !d.Equal(other.delivered[i]) {
					return fmt.Errorf("%w: %d and %d, round %d", errDisagree, q, p, d.Round)
				}
			}
		}
	}
	if !out.frozen {
		return nil
	}
	most, longest := LogEnd{}, uint64(0)
	for _, p := range w.promises {
		if most.Less(p.Report.Last) {
			most = p.Report.Last
		}
		longest = max(longest, p.Report.Last.Index)
	}
	out.shorter = most.Index < longest
	base, tail := choose(w.promises, nil, w.plant.choose)
	for p, s := range w.servers {
		for _, d := range s.delivered[min(len(s.delivered), int(base.Round)):] {
			at := int(d.Round - base.Round - 1)
			if at >= len(tail) {
				return fmt.Errorf("%w: server %d, round %d, base %d, tail of %d", errLost, p,
					d.Round, base.Round, len(tail))
			}
			out.beyond = true
			if !d.Equal(tail[at]) {
				return fmt.Errorf("%w: server %d, round %d", errReplaced, p, d.Round)
			}
		}
	}
	return nil
}

// logSizes are the groups, each with the size of its shard.
var logSizes = [][2]int{{1, 1}, {2, 2}, {2, 3}, {3, 3}, {3, 4}, {3, 5}, {4, 4}, {4, 5}, {5, 5}}

// TestFrozenLogs is TestFrozenEngines for DARE: what any server A-delivered is in the base and the
// tail, whichever majority promises, and whenever its servers do.
func TestFrozenLogs(t *testing.T) {
	t.Parallel()
	seeds := *frozenSeeds
	if testing.Short() {
		seeds = 3
	}
	var all, frozen, beyond, ended, removed, forgot, shorter int
	for _, size := range logSizes {
		for seed := *frozenFirst; seed < *frozenFirst+seeds; seed++ {
			out, err := runLog(t, seed, size[0], size[1], logPlant{})
			if err != nil {
				t.Fatalf("%d servers of a shard of %d, seed %d: %v", size[0], size[1], seed, err)
			}
			all++
			frozen, beyond, ended = frozen+truth(out.frozen), beyond+truth(out.beyond),
				ended+truth(out.ended)
			removed, forgot = removed+truth(out.removed), forgot+truth(out.forgot)
			shorter += truth(out.shorter)
		}
	}
	t.Logf("of %d schedules, %d have enough promises, %d of them a round that is needed beyond "+
		"the base, and %d a longer log that is less recent; %d runs ended, %d of them without a "+
		"server; in %d a server forgot", all, frozen, beyond, shorter, ended, removed, forgot)
	if seeds >= 30 && (beyond == 0 || shorter == 0 || ended == 0 || removed == 0 || forgot == 0) {
		t.Fatal("too little of what is to be tested came up")
	}
}

// TestFrozenLogsCatch: each planted bug loses or replaces what was A-delivered.
func TestFrozenLogsCatch(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it judges the test, not what is tested")
	}
	for name, plant := range map[string]logPlant{
		"tail-by-length":          {choose: FaultTailByLength},
		"tail-of-minority":        {choose: FaultTailOfMinority},
		"tail forgotten":          {choose: FaultTailForgotten},
		"freeze-keeps-log":        {dare: dare.FaultFreezeKeepsLog},
		"a majority of the group": {groupMajority: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(600) {
				for _, size := range logSizes {
					_, err := runLog(t, seed, size[0], size[1], plant)
					if errors.Is(err, errLost) || errors.Is(err, errReplaced) ||
						errors.Is(err, errDisagree) {
						t.Logf("%d servers of a shard of %d, seed %d: %v", size[0], size[1], seed,
							err)
						return
					}
				}
			}
			t.Fatal("the planted bug goes unnoticed")
		})
	}
}
