package allconcur

import (
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// threeServers returns the engines of a group of three.
func threeServers(t *testing.T, config Config) []*Engine {
	t.Helper()
	config.Servers, config.Reliable = 3, overlays(t, 3)[0]
	engines := make([]*Engine, 3)
	for i := range engines {
		config.Self = order.ServerID(i)
		e, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		engines[i] = e
	}
	return engines
}

// TestFramesOfOtherGenerationsAreIgnored: frames of earlier and later generations are ignored,
// except that the planted bug takes earlier ones.
func TestFramesOfOtherGenerationsAreIgnored(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultStaleEon} {
		for generation, takes := range map[uint64]bool{6: fault == FaultStaleEon, 7: true,
			8: false} {
			e := threeServers(t, Config{Engine: EngineAllConcurPlus, Generation: 7,
				Fault: fault})[0]
			if err := e.Receive(1, encodeMessage(kindUnreliable, generation, 1, 1, 1,
				[]byte("a"))); err != nil {
				t.Fatal(err)
			}
			if e.Received(1) != takes || e.Solicited() != takes {
				t.Errorf("fault %v, generation %d: taken %v", fault, generation, e.Received(1))
			}
		}
	}
}

// TestFramesOfStrangers: frames that come from no peer, name no server, or arrive where no edge is.
func TestFramesOfStrangers(t *testing.T) {
	t.Parallel()
	e := threeServers(t, Config{Engine: EngineAllConcur, Generation: 7})[0]
	good := encodeMessage(kindReliable, 7, 1, 1, 2, nil)
	for name, c := range map[string]struct {
		from  order.ServerID
		frame []byte
	}{
		"itself": {0, good}, "the first that is none": {3, good},
		"another that is none":            {1 << 31, good},
		"an origin that is none":          {1, encodeMessage(kindReliable, 7, 1, 1, 3, nil)},
		"an unreliable one, in AllConcur": {1, encodeMessage(kindUnreliable, 7, 1, 1, 1, nil)},
		"no frame":                        {1, good[:9]},
		"a vote of one that is none": {3, encodeVote(kindForward, phaseDecided, 7, 1, 1,
			1, serverSet{2})},
	} {
		if err := e.Receive(c.from, c.frame); !errors.Is(err, order.ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGenerationOfAFrame: the generation can be read if the header is long enough and of this
// version.
func TestGenerationOfAFrame(t *testing.T) {
	t.Parallel()
	frame := encodeFailure(7, 1, 2, 0)
	for _, good := range [][]byte{frame, encodePrompt(kindUnreliable, 7, 1, 1, 1, nil, 1, nil)} {
		if generation, err := FrameGeneration(good); err != nil || generation != 7 {
			t.Errorf("generation %d, %v", generation, err)
		}
	}
	for name, bad := range map[string][]byte{"nothing": nil, "a byte less": frame[:len(frame)-1],
		"another version": altered(frame, 0, promptVersion+1)} {
		if _, err := FrameGeneration(bad); !errors.Is(err, order.ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStableBeforeOwnMessage: a round is A-delivered once enough servers, including this one, go on
// after it, although this server's own message is not sent yet.
func TestStableBeforeOwnMessage(t *testing.T) {
	t.Parallel()
	engines := threeServers(t, Config{Engine: EngineAllConcurPlus})
	// exchange delivers all sends until there are none.
	delivered := 0
	exchange := func() {
		for more := true; more; {
			more = false
			for from, e := range engines {
				ready := e.Ready()
				if from == 0 {
					delivered += len(ready.Deliveries)
				}
				for _, send := range ready.Sends {
					for _, to := range send.To {
						more = true
						if err := engines[to].Receive(order.ServerID(from),
							send.Frame); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
	}
	for round := 1; round <= 2; round++ {
		for _, e := range engines {
			must(t, e.Broadcast(nil))
		}
		exchange()
	}
	if delivered != 0 {
		t.Fatalf("%d rounds A-delivered after two", delivered)
	}
	must(t, engines[1].Broadcast(nil))
	exchange()
	if delivered != 0 {
		t.Fatalf("%d rounds A-delivered, and one server may not have gone on", delivered)
	}
	must(t, engines[2].Broadcast(nil))
	exchange()
	if delivered != 1 || !engines[0].CanBroadcast() {
		t.Fatalf("%d rounds A-delivered, although all have gone on", delivered)
	}
}

// TestAloneNothingIsSent: a group of one has no other server to send to.
func TestAloneNothingIsSent(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		e, err := New(Config{Engine: engine, Servers: 1, Reliable: overlays(t, 1)[0]})
		if err != nil {
			t.Fatal(err)
		}
		rounds := 0
		for range 4 {
			must(t, e.Broadcast(nil))
			ready := e.Ready()
			rounds += len(ready.Deliveries)
			if len(ready.Sends) > 0 {
				t.Errorf("%s sends %+v", engine, ready.Sends)
			}
		}
		if rounds < 2 {
			t.Errorf("%s A-delivers %d of 4 rounds", engine, rounds)
		}
	}
}

// TestBallotsOfLargeGroups: sets of servers take several words.
func TestBallotsOfLargeGroups(t *testing.T) {
	t.Parallel()
	const n = 150
	b := newBallot(n)
	b.begin(2, 3)
	set := func(servers ...order.ServerID) serverSet {
		s := newServerSet(n)
		for _, server := range servers {
			s.add(server)
		}
		return s
	}
	first, second := b.grow(), b.grow()
	copy(first.origins, set(0, 1, 64, 70, 128, 149))
	copy(second.origins, set(0, 1, 64))
	b.count(first, 0, phaseDecided)
	b.count(first, 149, phaseConfirmed)
	b.count(first, 149, phaseConfirmed)
	b.count(second, 64, phaseConfirmed)
	if got := b.reachable(first, set(70)); got != 4 { // 0 and 149 voted, 1 and 128 still may
		t.Errorf("%d servers may vote for it", got)
	}
	if votes, confirms := b.totals(); votes != 3 || confirms != 2 || first.votes != 2 ||
		first.confirms != 1 {
		t.Errorf("%d votes, %d confirmations", votes, confirms)
	}
	if b.ofOrigin(149) != first || b.ofOrigin(64) != second || b.ofOrigin(1) != nil ||
		b.ofSet(set(0, 1, 64)) != second || b.ofSet(set(0)) != nil {
		t.Error("votes are of other sets")
	}
}

// TestWhatIsWrongIsSaid: the error names the first thing that is wrong.
func TestWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	good := Config{Engine: EngineAllConcur, Servers: 3, Self: 2, Reliable: overlays(t, 3)[0],
		MaxPayload: MaxPayloadLimit}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Config){
		"a group of 0 servers":               func(c *Config) { c.Servers = 0 },
		"a group of 1000000 servers, want 1": func(c *Config) { c.Servers, c.Self = 1_000_000, 0 },
		"a reliable digraph over 3 vertices": func(c *Config) { c.Servers = digraph.MaxOrder },
		"servers, want 1 to":                 func(c *Config) { c.Servers = digraph.MaxOrder + 1 },
		"server 3 is none of 0 to 2":         func(c *Config) { c.Self = 3 },
		"no reliable digraph":                func(c *Config) { c.Reliable = nil },
		"a payload bound of 1073741825 bytes": func(c *Config) {
			c.MaxPayload = MaxPayloadLimit + 1
		},
	} {
		config := good
		spoil(&config)
		if err := config.Validate(); !errors.Is(err, ErrConfig) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if got := good.withDefaults(); got.FirstRound != 1 || got.Shard != 3 ||
		got.MaxPayload != MaxPayloadLimit {
		t.Errorf("%+v", got)
	}
}

// TestRemovedServersCountAsFailed: under P a server halts once more servers have failed, including
// removed ones, than the group tolerates.
func TestRemovedServersCountAsFailed(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		w, err := newNetwork(1, Config{Engine: engine, Servers: 5, Reliable: overlays(t, 5)[0],
			Detector: DetectorPerfect})
		if err != nil {
			t.Fatal(err)
		}
		e := w.engines[0]
		for removed := 1; removed <= e.tolerated; removed++ {
			w.crash(5 - removed)
			must(t, w.submit(0, false))
			must(t, w.run(0, 0))
			if s := e.Status(); len(s.Members) != 5-removed || s.Halted != "" {
				t.Fatalf("%s: after %d crashes: %+v", engine, removed, s)
			}
		}
		if e.tolerated != 2 {
			t.Fatalf("%s: %d failures are tolerated", engine, e.tolerated)
		}
		must(t, e.Suspect(2))
		if s := e.Status(); s.Halted == "" {
			t.Errorf("%s: goes on behind a third failure: %+v", engine, s)
		}
	}
}

// TestOpinionsOfStrangers: an opinion on a server that is no predecessor is refused.
func TestOpinionsOfStrangers(t *testing.T) {
	t.Parallel()
	for _, detector := range []Detector{DetectorEventual, DetectorPerfect} {
		e := threeServers(t, Config{Engine: EngineAllConcur, Detector: detector})[0]
		for _, server := range []order.ServerID{0, 3, 1 << 31} {
			if err := e.Suspect(server); !errors.Is(err, ErrNotPredecessor) {
				t.Errorf("%v: suspecting server %d: %v", detector, server, err)
			}
			if err := e.Trust(server); detector == DetectorEventual &&
				!errors.Is(err, ErrNotPredecessor) {
				t.Errorf("trusting server %d: %v", server, err)
			}
		}
	}
}

// TestMessagesOfTheNextRoundCountOnce: a message counts once, however often it arrives.
func TestMessagesOfTheNextRoundCountOnce(t *testing.T) {
	t.Parallel()
	e := threeServers(t, Config{Engine: EngineAllConcurPlus})[0]
	for range 3 {
		must(t, e.Receive(1, encodeMessage(kindUnreliable, 0, 1, 2, 1, nil)))
	}
	if e.next.count != 1 || !e.next.is(1, 2, false) {
		t.Errorf("%d messages of the next round", e.next.count)
	}
	// A message of a reliable round that would come next does not belong to it.
	e.next.begin(2, 2, true)
	must(t, e.Receive(2, encodeMessage(kindUnreliable, 0, 1, 2, 2, nil)))
	if e.next.count != 0 {
		t.Errorf("%d messages of the next round", e.next.count)
	}
}

// TestStatesDifferByTheirSequences: searches distinguish which notifications were revoked.
func TestStatesDifferByTheirSequences(t *testing.T) {
	t.Parallel()
	e := threeServers(t, Config{Engine: EngineAllConcur})[0]
	before := e.AppendState(nil)
	e.failures.sequence(1, 0).revoked = 1
	if string(before) == string(e.AppendState(nil)) {
		t.Error("a revoked number makes no difference")
	}
	for i := range e.failures.sequences {
		e.failures.sequences[i] = sequence{last: 2, revoked: 1}
	}
	before = e.AppendState(nil)
	if e.failures.sequence(1, 0).revoked = 2; string(before) == string(e.AppendState(nil)) {
		t.Error("where all have numbers, they make no difference")
	}
}

// TestReliableAheadOfUnreliable: a reliable message of the next round of the next epoch reaches no
// server in an unreliable round, since the notification before it ends that round. If one arrives
// all the same, it is dropped.
func TestReliableAheadOfUnreliable(t *testing.T) {
	t.Parallel()
	e := threeServers(t, Config{Engine: EngineAllConcurPlus})[0]
	before := e.AppendState(nil)
	must(t, e.Receive(1, encodeMessage(kindReliable, 0, e.epoch+1, e.round+1, 1, nil)))
	if e.reliable || string(before) != string(e.AppendState(nil)) {
		t.Errorf("it is taken: %+v", e.Status())
	}
}

// TestRemovedOwners: a notification is removed with its owner. The planted bug keeps it.
func TestRemovedOwners(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultRemovedOwnerKept} {
		e := threeServers(t, Config{Engine: EngineAllConcur, Fault: fault})[0]
		must(t, e.Receive(2, encodeFailure(0, 1, 2, 1)))
		e.members.remove(2)
		e.failures.retain(e.members)
		if kept := len(e.failures.arrived) > 0; kept != (fault != FaultNone) {
			t.Errorf("fault %v: kept %v", fault, kept)
		}
	}
}
