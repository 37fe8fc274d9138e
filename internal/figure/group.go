package figure

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/comparator"
)

// The series, by their names in plots and JSON.
const (
	// seriesPlus is AllConcur+, uniform and over P. The other series of ledgerd's engines are too,
	// except the next two and seriesEarlyAgree.
	seriesPlus = "allconcur+"
	// seriesPlusEarly is AllConcur+ as in [Poke19, section 6.2.3]. seriesPlusEventual is AllConcur+
	// as production runs it: uniform, over ◇P.
	seriesPlusEarly    = "allconcur+ non-uniform"
	seriesPlusEventual = "allconcur+ eventual"
	seriesAllConcur    = "allconcur"
	seriesEarlyAgree   = "allconcur-w/ea"
	seriesAllGather    = "allgather"
	seriesLCR          = "lcr"
	seriesPaxos        = "libpaxos"
	seriesUnreliable   = "mpi"
)

// payloadRoom bounds the payloads of all engines of an experiment, in bytes.
const payloadRoom = 64 << 20

// group is the servers of an experiment.
type group struct {
	servers int
	// reliable is the digraph that a shard of this size gets: GS(n,d) for six nines over 24 hours.
	reliable *digraph.Digraph
}

func newGroup(servers int) (*group, error) {
	reliable, err := digraph.Reliable(servers, digraph.Target{})
	if err != nil {
		return nil, err
	}
	return &group{servers: servers, reliable: reliable}, nil
}

// degree estimates how often a message of a series travels, for each server that it reaches.
func (g *group) degree(series string) float64 {
	switch series {
	case seriesAllConcur:
		return float64(g.reliable.Degree())
	case seriesEarlyAgree:
		return 2 * float64(g.reliable.Degree())
	case seriesPaxos:
		return 3
	default:
		return 1
	}
}

// engines returns the constructor of a series' engines. blockSize is the size of the messages, if
// it is fixed.
func (g *group) engines(series string, blockSize int) func(order.ServerID) (order.Broadcaster,
	error) {
	config := allconcur.Config{
		Engine: allconcur.EngineAllConcur, Servers: g.servers, Reliable: g.reliable,
		MaxPayload: payloadRoom, Detector: allconcur.DetectorPerfect,
	}
	other := comparator.Config{Servers: g.servers, MaxPayload: payloadRoom, BlockSize: blockSize}
	switch series {
	case seriesPlus:
		config.Engine = allconcur.EngineAllConcurPlus
	case seriesPlusEarly:
		config.Engine, config.NonUniform = allconcur.EngineAllConcurPlus, true
	case seriesPlusEventual:
		config.Engine, config.Detector = allconcur.EngineAllConcurPlus, allconcur.DetectorEventual
	case seriesEarlyAgree:
		config.Detector = allconcur.DetectorEventualPaper
	}
	return func(self order.ServerID) (order.Broadcaster, error) {
		config, other := config, other
		config.Self, other.Self = self, self
		switch series {
		case seriesPlus, seriesPlusEarly, seriesPlusEventual, seriesAllConcur, seriesEarlyAgree:
			return allconcur.New(config)
		case seriesAllGather:
			return comparator.NewAllGather(other)
		case seriesLCR:
			return comparator.NewLCR(other)
		case seriesPaxos:
			return comparator.NewPaxos(other)
		case seriesUnreliable:
			return comparator.NewUnreliable(other)
		}
		return nil, fmt.Errorf("figure: no series %q", series)
	}
}

// interleaved returns the constructor of engines of AllConcur+ as production runs it, with a number
// of rounds in flight.
func (g *group) interleaved(inFlight int) func(order.ServerID) (order.Broadcaster, error) {
	config := allconcur.Config{Engine: allconcur.EngineAllConcurPlus, Servers: g.servers,
		Reliable: g.reliable, MaxPayload: payloadRoom}
	return func(self order.ServerID) (order.Broadcaster, error) {
		config := config
		config.Self = self
		if inFlight == 1 {
			return allconcur.New(config)
		}
		return interleave.New(interleave.Config{Engine: config, InFlight: inFlight})
	}
}
