package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
)

// wagonFrameMin is the size, in bytes, from which a wagon of a simulated ring has a frame of its
// own: some wagons have one, and others go in their train.
const wagonFrameMin = 24

// ring returns the configuration of the engine of a ring at a seat.
func (g *Group) ring(s seat) trains.Config {
	config := trains.Config{
		Self: s.self, Servers: s.servers, Trains: g.Trains, Generation: s.run, FirstRound: s.first,
		MaxPayload: s.payloadMax, Change: s.changes, Fault: g.TrainsFault,
		WagonFrameMin: wagonFrameMin,
	}
	if s.detector == allconcur.DetectorPerfect {
		config.Detector = trains.DetectorPerfect
	}
	return config
}

// checkRing checks whether a group can be a ring of package trains. Under a perfect detector a ring
// goes on down to one server. Under an eventually perfect one it stands still with the first crash,
// and the next generation goes on.
func checkRing(g *Group, s seat) error {
	switch {
	case s.detector == allconcur.DetectorEventualPaper:
		return fmt.Errorf("%s needs a perfect detector or an eventually perfect one",
			trains.EngineName)
	case g.NonUniform || g.promptly() || g.records() || g.inFlight() > 1:
		return fmt.Errorf("%s has no non-uniform or prompt delivery, no records, and no rounds in "+
			"flight but its trains", trains.EngineName)
	case g.Fault != allconcur.FaultNone || g.InterleaveFault != interleave.FaultNone:
		return fmt.Errorf("%s has no bugs of AllConcur", trains.EngineName)
	case g.Faults.Has(FaultJoin) && g.Servers+joinersMax > trains.ServersMax:
		return fmt.Errorf("%d servers that join make a ring of more than %d", joinersMax,
			trains.ServersMax)
	}
	return g.ring(s).Validate()
}

func makeRing(g *Group, s seat) (order.Broadcaster, error) {
	engine, err := trains.New(g.ring(s))
	if err != nil {
		return nil, err
	}
	return engine, nil
}

// ringSpacing returns how many rounds of a ring may follow a change in the same run, with its own.
func ringSpacing(g *Group) order.Round { return trains.ChangeRounds(g.Trains) }
