package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
)

// ringOptions returns the options that run a ring of package trains. A ring has no generations
// here, so it needs a perfect detector, and every server learns of every failure. It tolerates the
// crash of all servers but one.
func ringOptions(g *Group, row engineRow) (Options, error) {
	switch {
	case g.Detector != allconcur.DetectorPerfect || g.Faults&^FaultCrash != 0:
		return Options{}, fmt.Errorf("%w: the simulator runs %s with a perfect detector and "+
			"crashes only: generations do not take its votes yet", ErrOptions, trains.EngineName)
	case g.NonUniform || g.Prompt || g.Records || g.EngineAlone || g.InFlight > 1:
		return Options{}, fmt.Errorf("%w: %s has no non-uniform or prompt delivery, no records, "+
			"and no rounds in flight but its trains", ErrOptions, trains.EngineName)
	}
	config := trains.Config{Servers: g.Servers, Trains: g.Trains, MaxPayload: payloadMaxDefault,
		Detector: trains.DetectorPerfect, Fault: g.TrainsFault}
	if err := config.Validate(); err != nil {
		return Options{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	complete, err := digraph.Complete(g.Servers)
	if err != nil {
		return Options{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return Options{
		Servers: g.Servers, Reliable: complete, Crashes: AsTolerated, Faults: g.Faults,
		Detector: g.Detector, group: *g, engine: row, Describe: trains.Describe,
		New: func(self order.ServerID) (order.Broadcaster, error) {
			own := config
			own.Self = self
			return trains.New(own)
		},
	}, nil
}
