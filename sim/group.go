package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// Group is a group of servers with one of the house's engines, as production runs it.
type Group struct {
	// Engine is allconcur.EngineAllConcur or allconcur.EngineAllConcurPlus.
	Engine string
	// Servers is the size of the group.
	Servers int
	// NonUniform asks for non-uniform broadcast.
	NonUniform bool
	// Fault plants a bug in every engine.
	Fault allconcur.Fault
}

// Options returns the options that run the group, without a seed: as many crashes as it tolerates, everything else left to the seed. The reliable
// digraph is the one that a shard of this size gets. The error wraps ErrOptions.
func (g Group) Options() (Options, error) {
	if g.Servers < 1 || g.Servers > ServersMax {
		return Options{}, fmt.Errorf("%w: %d servers, want 1 to %d", ErrOptions, g.Servers, ServersMax)
	}
	reliable, err := digraph.Reliable(g.Servers, digraph.Target{})
	if err != nil {
		return Options{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	config := allconcur.Config{
		Engine: g.Engine, Servers: g.Servers, Reliable: reliable, NonUniform: g.NonUniform, MaxPayload: payloadMaxDefault, Fault: g.Fault,
		Detector: allconcur.DetectorPerfect,
	}
	if err := config.Validate(); err != nil {
		return Options{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return Options{
		Servers: g.Servers, Reliable: reliable, NonUniform: g.NonUniform, Crashes: AsTolerated,
		New: func(self order.ServerID) (order.Broadcaster, error) {
			own := config
			own.Self = self
			return allconcur.New(own)
		},
	}, nil
}
