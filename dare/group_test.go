package dare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/fabric"
)

// group is a group of servers in virtual time, with all invariants checked at each step.
type group struct {
	network *fabric.Network
	servers []*Server
	hosts   []rdmanet.RegionHost
	down    []bool
	rounds  [][]order.Delivery
	watch   *Watch
	broken  string
	// partial says that rounds may lack messages though FullRounds is set: a detector errs.
	partial bool
}

func newGroup(t testing.TB, seed uint64, size int, change func(*Config)) *group {
	t.Helper()
	return newMixedGroup(t, seed, size, change, func(*Config) {})
}

// newMixedGroup makes a group whose servers differ by what each changes of its configuration.
func newMixedGroup(t testing.TB, seed uint64, size int, change, each func(*Config)) *group {
	t.Helper()
	g := &group{network: fabric.New(fabric.Options{Seed: seed, Delay: 10 * time.Microsecond}),
		down: make([]bool, size), rounds: make([][]order.Delivery, size),
		watch: NewWatch(size)}
	t.Cleanup(g.network.Close)
	config := Config{FirstRound: 7, PayloadMax: 100, LogSlots: 8, Window: 4,
		Timeout: 400 * time.Microsecond, Beat: 50 * time.Microsecond,
		Patience: 200 * time.Microsecond}
	for i := range size {
		host, err := g.network.Start(rdmanet.PeerID(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		g.hosts = append(g.hosts, host)
		config.Peers = append(config.Peers, host.Peer())
	}
	if change != nil {
		change(&config)
	}
	for i, host := range g.hosts {
		own := config
		own.Self = order.ServerID(i)
		each(&own)
		server, err := New(own, host)
		if err != nil {
			t.Fatal(err)
		}
		g.servers = append(g.servers, server)
	}
	return g
}

// poll makes a server work, and checks the invariants.
func (g *group) poll(i int) {
	s := g.servers[i]
	s.Poll(g.network.Now())
	g.attach(i)
	for s.Solicited() {
		if err := s.Broadcast([]byte(solicited)); err != nil {
			g.breaks("%d refuses a message that others wait for: %v", i, err)
		}
	}
	for _, d := range s.Deliveries() {
		g.rounds[i] = append(g.rounds[i], d)
		g.full(i, d)
	}
	if s.halted != "" {
		g.breaks("%d halts: %s", i, s.halted)
	}
	live := slices.Clone(g.servers)
	for i, down := range g.down {
		if down {
			live[i] = nil
		}
	}
	if broken := g.watch.Look(live, i); broken != "" {
		g.breaks("%s", broken)
	}
}

// attach makes the attachments that a server wants.
func (g *group) attach(i int) {
	s := g.servers[i]
	for _, want := range s.Wanted() {
		attachment, err := g.hosts[i].Attach(context.Background(), want.Peer, want.Region)
		s.Attached(want.Number, attachment, err)
	}
}

func (g *group) breaks(format string, arguments ...any) {
	if g.broken == "" {
		g.broken = fmt.Sprintf(format, arguments...)
	}
}

// agree checks that one server's rounds are a prefix of another's.
func (g *group) agree() {
	for i := range g.rounds {
		for j := range i {
			for k := range min(len(g.rounds[i]), len(g.rounds[j])) {
				if fmt.Sprint(g.rounds[i][k]) != fmt.Sprint(g.rounds[j][k]) {
					g.breaks("round %d is %v at %d and %v at %d", k, g.rounds[i][k], i,
						g.rounds[j][k], j)
				}
			}
		}
	}
}

// run lets servers work for a span, each at random times.
func (g *group) run(random *rand.Rand, span time.Duration) {
	end := g.network.Now() + span
	for g.network.Now() < end && g.broken == "" {
		due := false
		g.network.After(time.Duration(1+random.IntN(6000)), func() { due = true })
		for !due {
			g.network.Step()
		}
		if i := random.IntN(len(g.servers)); !g.down[i] {
			g.poll(i)
		}
	}
}

// storm makes servers A-broadcast, campaign, hang and get cut off, and then lets them come to rest.
// It returns what is wrong, or "".
func storm(t *testing.T, seed uint64, size int, change func(*Config), crashes int) string {
	g := newGroup(t, seed, size, change)
	random := rand.New(rand.NewPCG(seed, 1))
	sent := make([]int, size)
	var cut [2]int
	for range 60 {
		i := random.IntN(size)
		switch random.IntN(12) {
		case 0:
			if !g.down[i] {
				g.servers[i].Campaign()
			}
		case 1:
			g.servers[i].Suspect()
		case 2:
			g.network.Mend(rdmanet.PeerID(fmt.Sprint(cut[0])), rdmanet.PeerID(fmt.Sprint(cut[1])))
			cut = [2]int{i, (i + 1) % size}
			if cut[0] != cut[1] {
				g.network.Cut(rdmanet.PeerID(fmt.Sprint(cut[0])),
					rdmanet.PeerID(fmt.Sprint(cut[1])))
			}
		case 3:
			if crashes > 0 && !g.down[i] {
				crashes--
				g.down[i] = true
				g.network.Crash(rdmanet.PeerID(fmt.Sprint(i)))
				for j, s := range g.servers {
					if j != i {
						s.Exclude(order.ServerID(i))
					}
				}
			}
		default:
			if !g.down[i] && g.servers[i].CanBroadcast() {
				sent[i]++
				payload := fmt.Sprintf("%d.%d.%d %*d", i, sent[i], g.servers[i].NextRound(),
					random.IntN(80), 0)
				if err := g.servers[i].Broadcast([]byte(payload)); err != nil {
					t.Fatal(err)
				}
			}
		}
		g.run(random, time.Duration(random.IntN(120_000)))
	}
	g.network.Mend(rdmanet.PeerID(fmt.Sprint(cut[0])), rdmanet.PeerID(fmt.Sprint(cut[1])))
	for range 60 {
		g.run(random, time.Millisecond)
		g.agree()
		if g.broken != "" || g.settled(sent) {
			break
		}
	}
	if g.broken == "" && !g.settled(sent) {
		g.breaks("progress: it does not come to rest")
		for i, s := range g.servers {
			g.broken += fmt.Sprintf("\n%d: down %v, sent %d: %v", i, g.down[i], sent[i], s)
		}
	}
	return g.broken
}

// settled reports whether all that live servers sent is A-delivered at all of them.
func (g *group) settled(sent []int) bool {
	for i, s := range g.servers {
		for origin := range sent {
			want := sent[origin]
			if s.config.FullRounds { // some of its messages are empty
				want = int(g.servers[origin].sent)
			}
			if !g.down[i] && !g.down[origin] && int(s.numbers[origin]) < want {
				return false
			}
		}
	}
	return true
}

// TestServersAgree runs groups through crashes, cuts, campaigns and wrong suspicions.
func TestServersAgree(t *testing.T) {
	t.Parallel()
	storms(t, nil)
}

// storms runs seeds of groups of one to five servers, of which a minority may crash.
func storms(t *testing.T, change func(*Config)) {
	t.Helper()
	seeds := uint64(200)
	if testing.Short() {
		seeds = 40
	}
	for seed := range seeds {
		size := 1 + int(seed%5)
		if broken := storm(t, seed, size, change, (size-1)/2); broken != "" {
			t.Fatalf("seed %d, %d servers: %s", seed, size, broken)
		}
	}
}

// TestPlantedBugsAreCaught checks that each planted bug breaks an invariant, agreement or progress
// within some seeds.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	for _, fault := range Faults() {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			if fault == FaultNeverAsks {
				t.Skip("a story shows it: TestLeadersAsk")
			}
			if fault >= FaultConfigWithoutCommit && fault != FaultPartialRounds {
				t.Skip("groups that change show it: TestPlantedChanges")
			}
			size := 3
			full := fault == FaultPartialRounds
			switch fault {
			case FaultCommitsOldTerms, FaultAdjustToCommit, FaultRefusalWaits:
				t.Skip("a story shows it: TestOldTermsByCounting, TestEntriesThatAreTheSameStay, " +
					"TestCandidatesThatCannotWin")
			}
			if fault == FaultFreezeKeepsLog || fault == FaultAppendsPastEnd {
				t.Skip("no run ends here: TestNothingLandsInAFrozenLog, TestRunsEnd")
			}
			first := uint64(0)
			if fault == FaultLateNeverGranted {
				first = 600 // earlier seeds do not show it
			}
			for seed := first; seed < first+2000; seed++ {
				broken := storm(t, seed, size, func(c *Config) {
					c.Fault = fault
					if full {
						fullRounds(c)
					}
					if fault == FaultNoReserve {
						c.LogSlots = 2
					}
				}, 1)
				if broken != "" {
					t.Logf("seed %d: %s", seed, broken)
					return
				}
			}
			t.Error("no seed shows it")
		})
	}
}
