package allconcur

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// compareClosed checks that two servers close the same rounds alike.
func (c *chaos) compareClosed(p, q int) error {
	for i := range min(len(c.closed[p]), len(c.closed[q])) {
		if a, b := c.closed[p][i], c.closed[q][i]; a.Epoch != b.Epoch || a.Round != b.Round ||
			!slices.Equal(a.Removed, b.Removed) {
			return fmt.Errorf("servers %d and %d close %+v and %+v", p, q, a, b)
		}
	}
	return nil
}

// held returns the content of a round that may have been A-delivered promptly, by what the servers
// that were asked hold. It returns nil if there is none.
func (c *chaos) held(asked []bool, round order.Round) *order.Delivery {
	var last *order.Held
	run := uint64(0)
	for p, engine := range c.engines {
		if !asked[p] {
			continue
		}
		for _, h := range engine.Held() {
			generation := engine.config.Generation
			if h.Round != round {
				continue
			}
			later := last == nil || generation > run || generation == run &&
				(h.Epoch > last.Epoch || h.Epoch == last.Epoch && !h.Reliable)
			if c.heldFirst {
				later = last == nil || h.Epoch < last.Epoch
			}
			if later {
				last, run = &h, generation
			}
		}
	}
	if last == nil {
		return nil
	}
	return &last.Delivery
}

func prompt(n int, g *digraph.Digraph) Config {
	return Config{Engine: EngineAllConcurPlus, Servers: n, Reliable: g, Prompt: true}
}

// TestPromptStorms: with prompt delivery, whatever the detectors and the network do, no two servers
// A-deliver different messages or close a round differently. What the servers of any majority voted
// for and hold shows what was A-delivered.
func TestPromptStorms(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9} {
		for _, g := range overlays(t, n) {
			for name, s := range map[string]storms{
				"mistrust":         {mistrust: 40},
				"much mistrust":    {mistrust: 8},
				"stalls":           {stall: 10, mistrust: 10},
				"stalls, crashes":  {stall: 20, mistrust: 20, crashes: 1},
				"part of a shard":  {stall: 20, mistrust: 10, shard: n + (n-1)/2},
				"rarely, and long": {stall: 150, mistrust: 50},
			} {
				t.Run(fmt.Sprintf("%d/%s/%s", n, g.Kind(), name), func(t *testing.T) {
					t.Parallel()
					s.seed, s.config = *firstSeed, prompt(n, g)
					s.config.Shard = s.shard
					s.check(t, seedsFor(n)/3+1)
				})
			}
		}
	}
}

// TestPromptMistakesEndWell is TestFewMistakesEndWell with prompt delivery.
func TestPromptMistakesEndWell(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 4, 5, 6, 8, 9} {
		for _, g := range overlays(t, n) {
			f := digraph.Tolerated(g)
			for name, s := range map[string]storms{
				"accurate":             {},
				"accurate, crashes":    {crashes: f},
				"one mistake":          {mistrust: 10, mistakes: 2},
				"two mistakes, stalls": {mistrust: 10, mistakes: 2, stall: 20},
			} {
				t.Run(fmt.Sprintf("%d/%s/%s", n, g.Kind(), name), func(t *testing.T) {
					t.Parallel()
					s.seed, s.config, s.wantLive, s.oneStorm = *firstSeed, prompt(n, g), true, true
					s.config.AssertPropositions = s.mistrust == 0
					s.check(t, seedsFor(n)/3+1)
				})
			}
		}
	}
}

// TestPromptEons is TestEons with prompt delivery.
func TestPromptEons(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 4, 5, 6, 8, 9} {
		groups := overlays(t, n)
		for name, s := range map[string]storms{
			"accurate":            {wantLive: true, oneStorm: true},
			"accurate, crashes":   {wantLive: true, oneStorm: true, crashes: (n - 1) / 3},
			"one mistake":         {wantLive: true, oneStorm: true, mistrust: 20, mistakes: 2},
			"mistrust, and stall": {mistrust: 30, stall: 30, crashes: 1},
		} {
			t.Run(fmt.Sprintf("%d/%s", n, name), func(t *testing.T) {
				t.Parallel()
				s.seed, s.groups, s.config, s.long = *firstSeed, groups, prompt(n, groups[0]), true
				s.config.Change, s.config.Generation = changes, 7<<16
				s.config.AssertPropositions = s.mistrust == 0
				out := s.check(t, seedsFor(n)/6+1)
				if name == "accurate" && n <= 6 && out.eons < 1 {
					t.Fatal("no eon in any run")
				}
			})
		}
	}
}

// TestPromptStormsCatch proves that the judges of TestPromptStorms can fail, for each bug that
// prompt delivery could have.
func TestPromptStormsCatch(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	for fault, groups := range map[Fault][]int{
		FaultPromptUnheld: {3, 5}, FaultPromptOneMissing: {3, 5}, FaultRerunForgets: {3, 5},
		FaultPromptRerunEpoch: {3, 5},
		// With five servers, others hold nearly always what one forgets.
		FaultInterruptedForgotten: {3}, FaultCompleteForgotten: {3},
	} {
		for _, n := range groups {
			t.Run(fmt.Sprintf("%s/%d", fault, n), func(t *testing.T) {
				t.Parallel()
				s := storms{seed: 1, config: prompt(n, overlays(t, n)[0]), mistrust: 10, stall: 10}
				s.catches(t, fault, 4000)
			})
		}
	}
}

var someContents = []content{{origin: 1, since: 1, payload: []byte("one")},
	{origin: 5, since: 2, payload: []byte("fifteen")}}

// TestPromptFrames: a message names what it vouches for or has copies, and nothing else decodes.
func TestPromptFrames(t *testing.T) {
	t.Parallel()
	first := encodePrompt(kindUnreliable, 7, 2, 9, 4, []byte("payload"), 2, someContents)
	again := encodePrompt(kindReliable, 7, 3, 9, 4, []byte("payload"), 2, someContents,
		revocation{5, 6}, revocation{7, 8})
	for _, frame := range [][]byte{first, again} {
		header, err := decodeFrame(frame, 17)
		if err != nil || !header.prompt || header.since != 2 || header.entries != 2 ||
			string(payloadOf(frame)) != "payload" {
			t.Fatalf("%+v, %v, payload %q", header, err, payloadOf(frame))
		}
		id, payload, is := FrameMessage(frame)
		if !is || id.Origin != 4 || id.Round != 9 || string(payload) != "payload" {
			t.Errorf("%+v, %q, %t", id, payload, is)
		}
		for size := range frame {
			if _, payload, is := FrameMessage(frame[:size]); is && len(payload) >= 7 {
				t.Errorf("%d bytes have the payload %q", size, payload)
			}
		}
	}
	if copies := copiesOf(again); len(copies) != 2 || string(copies[0].payload) != "one" ||
		string(copies[1].payload) != "fifteen" || copies[1].since != 2 || copies[1].origin != 5 {
		t.Errorf("copies %+v", copies)
	}
	if a, b := revocationOf(again, 0), revocationOf(again, 1); a != (revocation{5, 6}) ||
		b != (revocation{7, 8}) {
		t.Errorf("revocations %+v and %+v", a, b)
	}
	many := make([]content, promptMessagesMax+1)
	for i := range many {
		many[i].origin = order.ServerID(i + 10)
	}
	one := func(origin order.ServerID, since order.Epoch, payload string) []content {
		return []content{{origin: origin, since: since, payload: []byte(payload)}}
	}
	for name, good := range map[string][]byte{
		"empty":              encodePrompt(kindUnreliable, 7, 2, 9, 4, nil, 2, nil),
		"as many as fit":     encodePrompt(kindUnreliable, 7, 2, 9, 4, nil, 2, many[1:]),
		"of the first":       encodePrompt(kindUnreliable, 7, 2, 9, 4, nil, 2, one(0, 0, "")),
		"of the first, copy": encodePrompt(kindReliable, 7, 3, 9, 4, nil, 2, one(0, 3, "a")),
	} {
		if _, err := decodeFrame(good, 16); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mine := slices.Clone(someContents)
	mine[0].origin = 4
	for name, bad := range map[string][]byte{
		"too large":        again,
		"cut off":          first[:promptHeaderSize],
		"reserved":         altered(first, 47, 1),
		"since 0":          encodePrompt(kindReliable, 7, 2, 9, 4, nil, 0, nil),
		"since the future": altered(first, 32, 3),
		"too many":         encodePrompt(kindUnreliable, 7, 2, 9, 4, nil, 2, many),
		"of itself":        encodePrompt(kindUnreliable, 7, 2, 9, 4, nil, 2, mine),
		"a huge copy":      altered(again, promptHeaderSize+2*revocationSize+7, 255),
		"descending":       altered(first, promptHeaderSize, 6),
		"twice the same":   altered(first, promptHeaderSize+vouchedSize, 1),
		"an empty copy":    encodePrompt(kindReliable, 7, 3, 9, 4, nil, 2, one(5, 1, "")),
		"a copy since no epoch": encodePrompt(kindReliable, 7, 3, 9, 4, nil, 2,
			one(5, 0, "a")),
		"a copy since the future": encodePrompt(kindReliable, 7, 3, 9, 4, nil, 2,
			one(5, 4, "a")),
		"copies without bytes": again[:promptHeaderSize+2*revocationSize+2*copySize],
		"copies cut off":       again[:len(again)-8],
		"a vote": altered(encodeVote(kindForward, phaseDecided, 1, 2, 3, 4, nil),
			0, 2),
		"a failure": altered(encodeFailure(1, 2, 3, 4), 0, 2),
		"revoking, at once": encodePrompt(kindUnreliable, 7, 2, 9, 4, nil, 2, nil,
			revocation{5, 6}),
	} {
		if _, err := decodeFrame(bad, 16); !errors.Is(err, order.ErrFrame) {
			t.Errorf("%s: %v, want ErrFrame", name, err)
		}
	}
	e, err := New(prompt(3, overlays(t, 3)[0]))
	if err != nil {
		t.Fatal(err)
	}
	for name, frame := range map[string][]byte{
		"without prompt delivery": encodeMessage(kindUnreliable, 0, 1, 1, 1, nil),
		"vouching for who is not there": encodePrompt(kindUnreliable, 0, 1, 1, 1, nil, 1,
			one(3, 0, "")),
	} {
		if err := e.Receive(1, frame); !errors.Is(err, order.ErrFrame) {
			t.Errorf("%s: %v, want ErrFrame", name, err)
		}
	}
	last := encodePrompt(kindUnreliable, 0, 1, 1, 1, nil, 1, one(2, 0, ""))
	if err := e.Receive(1, last); err != nil {
		t.Errorf("vouching for the last server: %v", err)
	}
}

// TestHeldFirst shows why what a server held counts that A-broadcast in the last state: one that
// was removed before holds a message that the round does not have.
func TestHeldFirst(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := storms{seed: 1, config: prompt(3, overlays(t, 3)[0]), mistrust: 10, stall: 10,
		heldFirst: true}
	for range 40000 {
		if err := s.run(nil, &outcome{}); err != nil {
			t.Logf("seed %d: %v", s.seed, err)
			return
		}
		s.seed++
	}
	t.Fatal("the planted bug goes unnoticed in 40000 schedules")
}

// TestPromptNeedsEventual: prompt delivery relies on votes.
func TestPromptNeedsEventual(t *testing.T) {
	t.Parallel()
	g := overlays(t, 3)[0]
	for _, change := range []func(*Config){
		func(c *Config) { c.Engine = EngineAllConcur },
		func(c *Config) { c.Detector = DetectorPerfect },
		func(c *Config) { c.Detector = DetectorEventualPaper },
	} {
		config := prompt(3, g)
		change(&config)
		if _, err := New(config); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", config, err)
		}
	}
}
