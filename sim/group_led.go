package sim

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// Logs of simulated leaders are short, so that they fill and their slots are used again. An entry
// has room for the largest messages of two servers, which take turns, and of all in full rounds.
const (
	ledSlots    = 16
	ledWindow   = 2
	ledMessages = 2
	ledBeats    = 8
)

// checkLed checks whether a group can be one of package dare. Its runs end with changes, and go on
// from reports of frozen logs, so they need the life of a shard around them.
func checkLed(g *Group, s seat) error {
	switch {
	case s.detector != allconcur.DetectorEventual || g.EngineAlone:
		return fmt.Errorf("%s needs an eventually perfect detector, and generations",
			dare.EngineName)
	case g.NonUniform || g.promptly() || g.records() || g.inFlight() > 1:
		return fmt.Errorf("%s has no non-uniform or prompt delivery, no records, and no rounds in "+
			"flight", dare.EngineName)
	case g.Fault != allconcur.FaultNone || g.InterleaveFault != interleave.FaultNone:
		return fmt.Errorf("%s has no bugs of AllConcur", dare.EngineName)
	case s.servers > dare.ServersMax,
		g.Faults.Has(FaultJoin) && g.Servers+joinersMax > dare.ServersMax:
		return fmt.Errorf("%s takes up to %d servers, of which %d join", dare.EngineName,
			dare.ServersMax, joinersMax)
	}
	return nil
}

// makeLed makes the engine of a server that works on one-sided memory.
func makeLed(g *Group, s seat, peers []rdmanet.Peer, host rdmanet.RegionHost) (*dare.Server,
	error) {
	messages := ledMessages
	if g.FullRounds {
		messages = len(peers)
	}
	return dare.New(dare.Config{
		Self: s.self, Peers: peers, Shard: s.shard, Run: s.run, FirstRound: s.first,
		PayloadMax: s.payloadMax, MessagesMax: messages * s.payloadMax, Change: s.changes,
		FullRounds: g.FullRounds,
		LogSlots:   ledSlots, Window: ledWindow, Timeout: s.silence, Beat: s.silence / ledBeats,
		Patience: s.silence, Fault: g.LedFault, Note: s.note,
	}, host)
}

var errNoFrames = errors.New("the engine takes no frames")

func makeNoFrames(*Group, seat) (order.Broadcaster, error) { return nil, errNoFrames }
