package multicast

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/sweep"
	"github.com/ledgerd/ledgerd/tram"
)

// firstFailure returns the first of limit seeds that breaks a property first. "" stands for any
// property.
func firstFailure(t *testing.T, options Options, property order.Property, limit int) (Options,
	Result) {
	t.Helper()
	var found Result
	err := sweep.Seeds(context.Background(), 1, limit, options.RunSeed, func(r Result) bool {
		if len(r.Violations) > 0 && (property == "" || r.Violations[0].Property == property) {
			found = r
		}
		return found.Violations == nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found.Violations == nil {
		t.Fatalf("%d seeds of %s with %q do not break %q", limit, options.Engine, options.Plant,
			property)
	}
	options.Seed = found.Seed
	return options, found
}

// TestPlantedBugsAreCaughtAndShrink checks that each bug of the sequencer breaks the expected
// property, and shrinks to a run that a reader can follow.
func TestPlantedBugsAreCaughtAndShrink(t *testing.T) {
	t.Parallel()
	cases := []struct {
		plant    string
		property order.Property
		messages int // the maximum that may be left
		evidence []string
	}{
		{plantLostDelivery, order.Validity, 4, []string{"is correct and never A-delivers it"}},
		{plantSwappedOrder, order.TotalOrder, 5, []string{"A-delivers", ", then "}},
		{plantCyclicOrder, order.AcyclicOrder, 3, []string{"replica 0/0 A-delivers",
			"replica 1/0 A-delivers", "replica 2/0 A-delivers"}},
		{plantWrongGroup, order.Integrity, 1, []string{"which is not for its group"}},
		{plantTwice, order.Integrity, 4, []string{"again"}},
		{plantTornPayload, order.Integrity, 4, []string{"they differ"}},
		{plantLoneLeader, order.Validity, 5, []string{"never A-delivers it"}},
		{plantLoneLeader, order.PrefixOrder, 6, []string{"and not"}},
		{plantPanic, Contract, 4, []string{"the third message is one too many"}},
	}
	for _, c := range cases {
		if raceEnabled && c.messages != 4 {
			continue // the fast ones suffice
		}
		t.Run(fmt.Sprintf("%s breaks %s", c.plant, c.property), func(t *testing.T) {
			t.Parallel()
			options, result := firstFailure(t, Options{Engine: EngineSequencer, Plant: c.plant,
				Faults: FaultsAll}, c.property, 300)
			smaller, shrunk := Shrink(options, result)
			if shrunk.Messages > c.messages || shrunk.Groups > 3 {
				t.Errorf(
					"seed %d with %d messages in %d groups became %d in %d, want up to %d in 3",
					result.Seed, result.Messages, result.Groups, shrunk.Messages, shrunk.Groups,
					c.messages)
			}
			if shrunk.Violations[0].Property != c.property {
				t.Errorf("it broke %s, and smaller it breaks %s", c.property,
					shrunk.Violations[0].Property)
			}
			var text bytes.Buffer
			smaller.Trace = &text
			again, err := Run(smaller)
			if err != nil || again.Hash != shrunk.Hash {
				t.Fatalf("it replays with hash %x, want %x (%v)", again.Hash, shrunk.Hash, err)
			}
			for _, want := range append(c.evidence, string(c.property)+" is broken", "submits c",
				shrunk.Violations[0].Error()) {
				if !strings.Contains(text.String(), want) {
					t.Errorf("nothing of %q in\n%s", want, text.String())
				}
			}
			if lines := strings.Count(text.String(), "\n"); lines > 120 {
				t.Errorf("the trace has %d lines", lines)
			}
		})
	}
}

// TestFaultsMatter shows that the bug of a lone leader only shows with faults, of several kinds.
func TestFaultsMatter(t *testing.T) {
	t.Parallel()
	options := Options{Engine: EngineSequencer, Plant: plantLoneLeader}
	passSeeds(t, options, share(200))
	kinds := []Faults{FaultCrash, FaultSuspect, FaultHang, FaultOverwhelm}
	if raceEnabled {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		options.Faults = kind
		_, result := firstFailure(t, options, "", 600)
		t.Logf("%v: seed %d breaks %s", kind, result.Seed, result.Violations[0].Property)
	}
}

// TestSameSeedSameTrace runs seeds twice, once concurrently with others, and compares every line.
func TestSameSeedSameTrace(t *testing.T) {
	t.Parallel()
	for _, engine := range Engines() {
		t.Run(engine.Name, func(t *testing.T) {
			t.Parallel()
			options := Options{Engine: engine.Name, Faults: FaultsAll}
			err := sweep.Seeds(t.Context(), 1, share(60), options.RunSeed, func(r Result) bool {
				var texts [2]bytes.Buffer
				for i := range texts {
					own := options
					own.Seed, own.Trace = r.Seed, &texts[i]
					again, err := Run(own)
					if err != nil || again.Hash != r.Hash || again.Events != r.Events {
						t.Errorf("seed %d: hash %x after %d events, want %x after %d (%v)", r.Seed,
							again.Hash, again.Events, r.Hash, r.Events, err)
					}
				}
				if !bytes.Equal(texts[0].Bytes(), texts[1].Bytes()) {
					t.Errorf("seed %d has two traces", r.Seed)
				}
				return !t.Failed()
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestSeedsDrawEverything checks that seeds draw all numbers of groups and replicas, all shapes of
// the tree, all kinds of fault, and messages to one group and to all groups.
func TestSeedsDrawEverything(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for number := range uint64(6000) {
		seed, engine := number/2, []string{EngineTRAM, EngineDARE}[number%2]
		p := draw(Options{Engine: engine, Seed: seed, Faults: FaultsAll})
		seen[fmt.Sprintf("%d groups", p.deployment.Groups())]++
		shape, _, _ := strings.Cut(p.shape, " ")
		seen[shape]++
		for _, size := range p.deployment.Sizes {
			seen[fmt.Sprintf("%d replicas", size)]++
		}
		seen[fmt.Sprintf("%d clients", p.deployment.Clients)]++
		for _, s := range p.submissions {
			if !slices.IsSorted(s.to) || len(slices.Compact(slices.Clone(s.to))) != len(s.to) ||
				len(s.to) == 0 || int(s.to[len(s.to)-1]) >= p.deployment.Groups() {
				t.Fatalf("seed %d: destinations %v", seed, s.to)
			}
			switch len(s.to) {
			case 1:
				seen["to one group"]++
			case p.deployment.Groups():
				seen["to all groups"]++
			}
		}
		gone := make([]int, p.deployment.Groups())
		for _, f := range p.faults {
			seen[f.kind.String()]++
			if f.kind == FaultCrash || f.kind == FaultHang && f.span == 0 ||
				f.kind&faultsOfChange != 0 {
				gone[f.victim.Group]++
			}
		}
		for group, count := range gone {
			if count > p.deployment.Tolerated(order.GroupID(group)) {
				t.Fatalf("seed %d: %d of %d replicas of group %d are to go", seed, count,
					p.deployment.Sizes[group], group)
			}
		}
	}
	var want []string
	for n := 1; n <= GroupsMax; n++ {
		want = append(want, fmt.Sprintf("%d groups", n))
	}
	for n := 1; n <= ReplicasMax; n++ {
		want = append(want, fmt.Sprintf("%d replicas", n))
	}
	for n := 1; n <= ClientsMax; n++ {
		want = append(want, fmt.Sprintf("%d clients", n))
	}
	want = append(want, FaultNames()...)
	for _, what := range append(want, "breadth", "binary", "chain", "parents", "to one group",
		"to all groups") {
		if seen[what] < 20 {
			t.Errorf("%s: %d times in 3000 seeds", what, seen[what])
		}
	}
}

// TestNobodyFailsBeyondTolerance counts the failed replicas at the end of runs, however leaders
// were hit.
func TestNobodyFailsBeyondTolerance(t *testing.T) {
	t.Parallel()
	options := Options{Engine: EngineSequencer, Faults: FaultCrash | FaultSuspect | FaultHang,
		Groups: 2, Replicas: 5, Messages: 6}
	most := 0
	err := sweep.Seeds(context.Background(), 1, share(300), options.RunSeed, func(r Result) bool {
		gone := map[order.GroupID]int{}
		for _, process := range r.Crashed {
			if gone[process.Group]++; gone[process.Group] > 2 && process.Group != order.Clients {
				t.Errorf("seed %d: %v are gone", r.Seed, r.Crashed)
			}
			most = max(most, gone[process.Group])
		}
		return !t.Failed()
	})
	if err != nil {
		t.Fatal(err)
	}
	if most < 2 && !raceEnabled {
		t.Error("never were as many gone as a group tolerates")
	}
}

// TestOnlySomeOfThePlan leaves out messages and faults one by one. The others must stay the same.
func TestOnlySomeOfThePlan(t *testing.T) {
	t.Parallel()
	options := Options{Engine: EngineSequencer, Faults: FaultsAll, Seed: 8}
	whole := draw(options)
	if len(whole.submissions) < 4 || len(whole.faults) < 2 {
		t.Fatalf("seed %d is too small: %v", options.Seed, &whole)
	}
	options.OnlyMessages, options.OnlyFaults = []int{2, 4}, []int{}
	part := draw(options)
	part.keep(options)
	if len(part.submissions) != 2 || !bytes.Equal(part.submissions[1].payload,
		whole.submissions[3].payload) || part.submissions[1].at != whole.submissions[3].at ||
		len(part.faults) != 0 {
		t.Errorf("%v\nbecame\n%v", &whole, &part)
	}
	result, err := Run(options)
	if err != nil || len(result.Violations) > 0 || result.Messages != 2 || result.Faults != 0 {
		t.Errorf("%+v, %v", result, err)
	}
	options.OnlyMessages = []int{}
	if result, err = Run(options); err != nil || len(result.Violations) > 0 ||
		result.Deliveries != 0 {
		t.Errorf("without messages: %+v, %v", result, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	cases := []struct {
		options Options
		want    error
		says    string
	}{
		{Options{Engine: EngineSequencer, Groups: 9}, ErrOptions, "9 groups, want 1 to 8"},
		{Options{Engine: EngineSequencer, Replicas: -1}, ErrOptions, "-1 replicas"},
		{Options{Engine: EngineSequencer, Groups: 3, Tree: tram.Chain(4)}, ErrOptions,
			"a tree of 4 groups for 3"},
		{Options{Engine: EngineSequencer, Messages: -1}, ErrOptions, "-1 messages"},
		{Options{Engine: "paxos"}, ErrEngine, "use one of "},
		{Options{Engine: EngineSequencer, Plant: "nothing"}, ErrEngine, "use one of lost-delivery"},
	}
	for _, c := range cases {
		if _, err := Run(c.options); !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %v saying %q", c.options, err, c.want, c.says)
		}
	}
	if err := sweep.Seeds(context.Background(), 1, 3, Options{Engine: "paxos"}.RunSeed,
		func(Result) bool { return true }); !errors.Is(err, ErrEngine) {
		t.Errorf("a sweep gives %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := sweep.Seeds(ctx, 1, 100, Options{Engine: EngineSequencer}.RunSeed, func(Result) bool {
		return true
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled sweep gives %v", err)
	}
}

func TestFaultsHaveNames(t *testing.T) {
	t.Parallel()
	for faults := range FaultsAll + 1 {
		if again, err := ParseFaults(faults.String()); err != nil || again != faults {
			t.Errorf("%v becomes %v, %v", faults, again, err)
		}
	}
	if _, err := ParseFaults("crash,flood"); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), `"flood"`) {
		t.Errorf("flood: %v", err)
	}
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add(appendMessage(nil, order.Multicast{ID: order.MessageID{
		Sender: order.Replica{Group: order.Clients, Server: 3}, Sequence: 7},
		To: []order.GroupID{0, 5}, Payload: []byte("pay")}))
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3, 200})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		again, err := decodeMessage(appendMessage(nil, m))
		if err != nil || again.ID != m.ID || !slices.Equal(again.To, m.To) ||
			!bytes.Equal(again.Payload, m.Payload) {
			t.Errorf("%+v becomes %+v, %v", m, again, err)
		}
	})
}
