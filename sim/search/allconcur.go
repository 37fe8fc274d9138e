package search

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
)

// allConcurGroup returns a group of one of AllConcur's engines, or of several side by side.
func allConcurGroup(o Options) (*model, error) {
	if o.Trains != 0 || o.EonEnds || o.WagonFrames || o.TrainsFault != trains.FaultNone {
		return nil, fmt.Errorf("%w: %s has no trains", ErrOptions, o.Engine)
	}
	reliable, err := digraph.Reliable(o.Servers, digraph.Target{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	config := allconcur.Config{
		Engine: o.Engine, Servers: o.Servers, Reliable: reliable, Detector: o.Detector,
		NonUniform: o.NonUniform, Prompt: o.Prompt, Fault: o.Fault,
		AssertPropositions: o.Detector == allconcur.DetectorPerfect && o.Suspicions == 0,
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	g := &model{
		watch: reliable, tolerated: digraph.Tolerated(reliable),
		votes: o.Prompt,
		sends: func(from, to int) bool { return allConcurSends(config, from, to) },
		// In trees of G_U with inner vertices, these forward waiting messages by ascending origin,
		// which depends on the names.
		nameless: config.Engine != allconcur.EngineAllConcurPlus || hasStars(o.Servers),
		describe: allconcur.Describe,
	}
	if !o.WithoutTracking {
		g.inspect = func(id order.ServerID, engine machine) *order.Violation {
			return inspect(reliable, id, engine)
		}
	}
	if o.InFlight <= 1 {
		g.copyOf = cloned[*allconcur.Engine]
		g.make = func(self order.ServerID) (machine, error) {
			own := config
			own.Self = self
			return allconcur.New(own)
		}
		return g, nil
	}
	g.copyOf = cloned[*interleave.Engine]
	g.make = func(self order.ServerID) (machine, error) {
		own := interleave.Config{Engine: config, InFlight: o.InFlight, Fault: o.InterleaveFault}
		own.Engine.Self = self
		return interleave.New(own)
	}
	return g, nil
}

// allConcurSends reports whether a server may ever send to another: over G_R, over its transpose,
// or over some tree of G_U.
func allConcurSends(config allconcur.Config, from, to int) bool {
	backward := config.Detector != allconcur.DetectorPerfect && config.Reliable.HasEdge(to, from)
	return config.Engine == allconcur.EngineAllConcurPlus || config.Reliable.HasEdge(from, to) ||
		backward
}

// hasStars reports whether the root has all other servers as its children in each tree of G_U.
func hasStars(servers int) bool {
	for root := range servers {
		if len(digraph.AppendBinomialChildren(nil, servers, root, root)) != servers-1 {
			return false
		}
	}
	return true
}

// parts lists the engines that an engine consists of.
func parts(m machine) []*allconcur.Engine {
	if several, are := m.(*interleave.Engine); are {
		return several.Engines()
	}
	return []*allconcur.Engine{m.(*allconcur.Engine)}
}
