package sim

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/sweep"
)

// livingSeeds returns the number of seeds of TestShardsLiveOn: by default as many as two processors
// run in half a minute, else SIM_SEEDS. CONTRIBUTING.md names a sweep for a night.
func livingSeeds() int {
	if seeds, err := strconv.Atoi(os.Getenv("SIM_SEEDS")); err == nil {
		return seeds
	}
	return share(2500)
}

// TestShardsLiveOn is the conformance suite of the whole protocol: shards of 1 to 16 servers with
// production's timing and all kinds of fault. Small shards get more lives. Each life has a safety
// phase and then a liveness phase.
func TestShardsLiveOn(t *testing.T) {
	t.Parallel()
	const smallest, largest = 1, 16
	weights := 0.0
	for servers := smallest; servers <= largest; servers++ {
		weights += weight(servers)
	}
	for _, engine := range engines {
		for servers := smallest; servers <= largest; servers++ {
			if raceEnabled && servers > 10 {
				continue
			}
			t.Run(fmt.Sprintf("%s of %d", engine, servers), func(t *testing.T) {
				t.Parallel()
				seeds := max(2, int(float64(livingSeeds())/2/weights*weight(servers)))
				rounds, crashes := passSeeds(t, Group{Engine: engine, Servers: servers,
					Faults: FaultsAll}.options(t), 1, seeds)
				t.Logf("%d seeds: %d rounds, %d crashes", seeds, rounds, crashes)
			})
		}
	}
}

// liveOnWith is a smaller TestShardsLiveOn, of AllConcur+ with an option that the group has set.
func liveOnWith(t *testing.T, g Group) {
	t.Helper()
	for servers := 1; servers <= 9; servers++ {
		own := g // the subtests run later, beside each other
		own.Engine, own.Servers, own.Faults = engines[1], servers, FaultsAll
		t.Run(fmt.Sprintf("%s of %d", own.Engine, servers), func(t *testing.T) {
			t.Parallel()
			seeds := max(2, int(float64(livingSeeds())/5*weight(servers)))
			rounds, crashes := passSeeds(t, own.options(t), 1, seeds)
			t.Logf("%d seeds: %d rounds, %d crashes", seeds, rounds, crashes)
		})
	}
}

// weight returns which share of the lives are of shards of a size.
func weight(servers int) float64 {
	if servers < 3 {
		return 1.0 / 9
	}
	return 1 / float64(servers*servers)
}

// TestEachKindOfFault runs each kind alone. Most seeds are for lives that have all of them.
func TestEachKindOfFault(t *testing.T) {
	t.Parallel()
	for bit, name := range faultNames {
		for _, engine := range engines {
			t.Run(name+" in "+engine, func(t *testing.T) {
				t.Parallel()
				passSeeds(t, Group{Engine: engine, Servers: 5, Faults: 1 << bit}.options(t),
					1, share(100))
			})
		}
	}
}

// TestLivingReplay runs seeds twice, once with a trace, and expects the same hash.
func TestLivingReplay(t *testing.T) {
	t.Parallel()
	options := Group{Engine: allconcur.EngineAllConcurPlus, Servers: 5,
		Faults: FaultsAll}.options(t)
	for options.Seed = range uint64(share(60)) {
		mustReplay(t, options)
	}
}

// TestBlocksSetAside runs lives in which servers set blocks aside that they may.
func TestBlocksSetAside(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		group Group
		seed  uint64
	}{
		// A generation replays the tail of the one before, which four of six servers had executed
		// already. The last of them sets the block aside and makes it again after the others made
		// it durable.
		"the tail makes it anew": {Group{Engine: allconcur.EngineAllConcurPlus, Servers: 5,
			Faults: FaultsAll}, 226},
		// A learner hears only one member, which lags in an earlier eon and lacks a durable block
		// that the learner holds.
		"one that lags is no majority": {Group{Engine: allconcur.EngineAllConcur, Servers: 6,
			Faults: FaultsAll &^ FaultBreak}, 9_003_443},
		// A member whose damaged disk lacks the block that admitted the member hears only one
		// server, which holds blocks that were given up.
		"a damaged disk, and a stray": {Group{Engine: allconcur.EngineAllConcurPlus, Servers: 5,
			Faults: FaultsAll &^ FaultBreak}, 233},
		// A majority recorded the round of a block and restarted. The member that stored the block
		// does not know that it is durable, and sets it aside for a decision whose tail has it.
		"a majority recorded it": {Group{Engine: allconcur.EngineAllConcurPlus, Servers: 3,
			Faults: FaultsAll, Records: true}, 12903},
		// A member promises while it sets the block aside that it would report.
		"a promise while the block goes": {Group{Engine: allconcur.EngineAllConcurPlus, Servers: 3,
			Faults: FaultsAll, Records: true}, 15794},
		// A server A-delivers its own removal before all others. It keeps the
		// block, since the others work in the same generation.
		"it was removed by what it A-delivered": {Group{Engine: dare.EngineName, Servers: 3,
			Faults: FaultLeave | FaultPause}, 326},
		// A new member stored a block that it fetched from a disk that forgot. The generation goes
		// on without the block, and the member loses power before it stores another.
		"the shard goes on without it": {Group{Engine: allconcur.EngineAllConcur, Servers: 2,
			Faults: FaultsAll &^ FaultBreak}, 2_014_438},
	} {
		options := c.group.options(t)
		options.Seed = c.seed
		result, err := Check(options)
		if err != nil || len(result.Violations) > 0 {
			t.Errorf("%s: %v, %v", name, result.Violations, err)
		}
	}
}

// TestReasonsOfLives runs lives in which members once gave a false reason.
func TestReasonsOfLives(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		servers int
		seed    uint64
	}{
		// A member restarted, and found its disk in order.
		"had perhaps more, and has not": {6, 2_006_650},
		// A member continues to fetch from members that are away by now.
		"those that it fetches from are away": {8, 3_001_472},
		// A member whose disk is full cannot promise, and may hold a durable block that the others
		// lack. It is not claimed that too few disks remember.
		"a full disk may hold what is durable": {2, 2_017_315},
		// A member holds the base of a decided generation, and waits for its rounds.
		"rounds are fetched, not blocks": {5, 2_009_543},
		// A member with a new disk does not have the server that joined in its list. A majority of
		// the later list remembers.
		"a later membership remembers":   {2, 14_004_026},
		"two that joined know that list": {2, 13_004_520},
		// The chain named an old disk again, by a block that neither of two members has.
		"an old disk counts again": {6, 14_003_904},
		// A member of a group of two whose disk is full begins no round, and never reports that it
		// is stalled.
		"a full disk alone in a group": {2, 13_003_628},
		// A member promised, decided without the proposer, and went on.
		"it decided meanwhile": {7, 40_004_212},
		// Two servers hear each other for a moment, between two looks of the judge.
		"heard for a moment": {8, 50_000_760},
		// A disk that lost blocks remembers that it counted with three members, not two.
		"a damaged disk remembers the third":      {2, 40_020_290},
		"a damaged disk remembers the third, too": {2, 20_009_948},
		// A server has its original disk back, by a membership that a member with a new disk does
		// not know.
		"a later membership counts the disk": {8, 51_003_252},
	} {
		for _, engine := range []string{allconcur.EngineAllConcur, allconcur.EngineAllConcurPlus} {
			options := Group{Engine: engine, Servers: c.servers,
				Faults: FaultsAll &^ FaultBreak}.options(t)
			options.Seed = c.seed
			result, err := Check(options)
			if err != nil || len(result.Violations) > 0 {
				t.Errorf("%s: %v, %v", name, result.Violations, err)
			}
		}
	}
}

// TestPlantedBugsOfTheWholeProtocolAreCaught plants bugs that remove a remedy, or a part of the
// protocol.
func TestPlantedBugsOfTheWholeProtocolAreCaught(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		group  Group
		limit  int
		breaks []order.Property
	}{
		{"no-forward-backward", Group{Fault: allconcur.FaultNoForwardBackward}, 30,
			[]order.Property{order.SetAgreement, Tolerance}},
		{"tolerated-not-majority", Group{Fault: allconcur.FaultToleratedNotMajority},
			60, []order.Property{order.SetAgreement, Tolerance}},
		{"sets-ignored", Group{Fault: allconcur.FaultSetsIgnored},
			60, []order.Property{order.SetAgreement}},
		{"stale-eon", Group{Fault: allconcur.FaultStaleEon}, 300, nil},
	}
	for _, c := range cases {
		for _, engine := range engines {
			for _, servers := range []int{5, 7} {
				if raceEnabled && servers > 5 {
					continue
				}
				t.Run(fmt.Sprintf("%s in %s of %d", c.name, engine, servers), func(t *testing.T) {
					t.Parallel()
					c.group.Engine, c.group.Servers, c.group.Faults = engine, servers, FaultsAll
					mustBreak(t, c.group, c.limit, c.breaks)
				})
			}
		}
	}
}

// TestEnginesAlone suspects links again and again, without generations. The engines come to rest by
// themselves, unless a revocation revokes more than it names.
func TestEnginesAlone(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{3, 4, 5, 8} {
		group := Group{Engine: allconcur.EngineAllConcurPlus, Servers: servers,
			Faults: FaultSuspect, EngineAlone: true}
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			passSeeds(t, group.options(t), 1, share(500))
		})
	}
	for _, servers := range []int{4, 5} {
		if raceEnabled && servers > 4 {
			continue
		}
		planted := Group{Engine: allconcur.EngineAllConcurPlus, Servers: servers,
			Faults: FaultSuspect, EngineAlone: true, Fault: allconcur.FaultRevokeWrongSequence}
		t.Run(fmt.Sprintf("%d with revoke-wrong-sequence", servers), func(t *testing.T) {
			t.Parallel()
			mustBreak(t, planted, 500, []order.Property{Progress})
		})
	}
}

// TestThePublishedProtocolForks runs ◇P as in the dissertation. There are schedules in which two
// servers A-deliver different rounds.
func TestThePublishedProtocolForks(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		mustBreak(t, Group{Engine: engine, Servers: 5, Faults: FaultSuspect | FaultPartition,
			Detector: allconcur.DetectorEventualPaper}, 100,
			[]order.Property{order.SetAgreement})
	}
}

// mustBreak runs seeds until one breaks one of the properties, or any property if none is given.
func mustBreak(t *testing.T, group Group, limit int, properties []order.Property) {
	t.Helper()
	mustBreakWith(t, group.options(t), limit, properties)
}

// mustBreakBy is mustBreak, for a bug that few seeds show. It tries likely first, a seed that
// showed it, and the others only if the runs have changed since.
func mustBreakBy(t *testing.T, likely uint64, group Group, limit int,
	properties []order.Property) {
	t.Helper()
	options := group.options(t)
	result, err := options.RunSeed(likely)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(result.Violations, func(v *order.Violation) bool {
		return slices.Contains(properties, v.Property)
	}) {
		t.Logf("caught by seed %d: %v", likely, result.Violations[0])
		return
	}
	mustBreakWith(t, options, limit, properties)
}

func mustBreakWith(t *testing.T, options Options, limit int, properties []order.Property) {
	t.Helper()
	caught := Result{}
	err := sweep.Seeds(context.Background(), 1, limit, options.RunSeed, func(r Result) bool {
		for _, v := range r.Violations {
			for _, property := range properties {
				if v.Property == property {
					caught = r
				}
			}
			if properties == nil {
				caught = r
			}
		}
		return caught.Violations == nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if caught.Violations == nil {
		t.Fatalf("not caught by %d seeds", limit)
	}
	t.Logf("caught by seed %d: %v", caught.Seed, caught.Violations[0])
}

func TestFaultsByName(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"none", "crash", "crash,suspect,partition,join,leave,pause",
		"suspect,pause"} {
		faults, err := ParseFaults(list)
		if err != nil || faults.String() != list {
			t.Errorf("%q is %v (%v)", list, faults, err)
		}
	}
	if all, err := ParseFaults("all"); err != nil || all != FaultsAll {
		t.Errorf("all is %v (%v)", all, err)
	}
	if _, err := ParseFaults("crash,quake"); err == nil {
		t.Error("a quake is a fault")
	}
}

// TestLivesThatStoodStill runs lives that once never came to rest. In the first ones, after a
// member left, the others also had to wait for its memory, since its leave was not known to be
// durable, but no server asked it.
func TestLivesThatStoodStill(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers int
		faults  Faults
		rounds  int
		seed    uint64
		engine  string
	}{
		{3, FaultPartition | FaultLeave | FaultPause | FaultPower | FaultDisk, 1, 101440, ""},
		{3, FaultCrash | FaultPartition | FaultJoin | FaultLeave | FaultDisk, 1, 100467, ""},
		{4, FaultCrash | FaultJoin | FaultLeave | FaultPower | FaultDisk, 1, 100701, ""},
		// A server had accepted a base that no disk held after a loss of power. The disks were the
		// copy of an old disk, and one that was damaged after the membership had changed.
		{2, FaultCrash | FaultJoin | FaultPause | FaultPower | FaultDisk, 4, 3_000_293, ""},
		{5,
			FaultCrash | FaultSuspect | FaultPartition | FaultJoin | FaultLeave |
				FaultPower | FaultDisk, 3,
			3_003_786, ""},
		// A server followed a generation with a block that it had before. It took empty rounds that
		// it had executed after that block for the generation's rounds.
		{3, FaultSuspect | FaultJoin | FaultPause | FaultPower, 8, 3_005_325, ""},
		// A member of a decided group did not start, since it held a block of a given-up branch and
		// others already ordered. They waited for it.
		{7, FaultCrash | FaultPartition | FaultJoin | FaultPause | FaultPower | FaultDisk, 3,
			40_003_396, ""},
		// The operator inserted an empty disk though one with all blocks was at hand.
		{2, FaultJoin | FaultPower | FaultDisk, 1, 40_015_445, allconcur.EngineAllConcur},
		// A disk was lost that the shard needed once the only disk was gone that knew the newest
		// run.
		{6, FaultCrash | FaultPartition | FaultJoin | FaultPower | FaultDisk, 2, 40_008_251,
			allconcur.EngineAllConcur},
		// An original disk was admitted again. What it held did not count for the time before, so
		// nothing became durable.
		{6, FaultSuspect | FaultPartition | FaultJoin | FaultLeave | FaultPause | FaultPower |
			FaultDisk, 3, 16_002_322, ""},
		// A member took the answer of an old disk, in a new process of a working peer, for a fork.
		{5, FaultCrash | FaultSuspect | FaultPartition | FaultJoin | FaultPause | FaultPower |
			FaultDisk, 1, 50_003_463, ""},
	} {
		options := Group{
			Engine:  cmp.Or(c.engine, allconcur.EngineAllConcurPlus),
			Servers: c.servers, Faults: c.faults,
		}.options(t)
		options.Rounds, options.Seed, options.Crashes = c.rounds, c.seed, 0
		result, err := Check(options)
		if err != nil || len(result.Violations) > 0 {
			t.Errorf("seed %d: %v, %v", c.seed, result.Violations, err)
		}
	}
}

// TestPlannedCrashesStrike requires that servers crash at the moments that the adversary plans,
// also where more than a minority crashes. There, nothing else makes servers crash.
func TestPlannedCrashesStrike(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{3, 5, 8} {
		options := Group{Faults: FaultCrash, Engine: allconcur.EngineAllConcurPlus,
			Servers: servers}.options(t)
		options.Crashes = servers
		crashes, most := 0, 0
		err := sweep.Seeds(t.Context(), 1, 40, options.RunSeed, func(r Result) bool {
			crashes += len(r.Crashed)
			most = max(most, len(r.Crashed))
			if len(r.Violations) > 0 {
				t.Errorf("%d servers, seed %d, %s:\n%v", servers, r.Seed, r.Schedule,
					r.Violations[0])
			}
			return len(r.Violations) == 0
		})
		if err != nil {
			t.Fatal(err)
		}
		if crashes < 40 || most <= (servers-1)/2 {
			t.Errorf("%d servers: %d crashes in 40 runs, %d of them in one", servers, crashes, most)
		}
	}
}
