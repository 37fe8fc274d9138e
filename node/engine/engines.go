package engine

import (
	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/trains"
)

// Default is the name of the engine of new ledgers.
const Default = allconcur.EngineAllConcurPlus

// engines is the table.
var engines = List{
	{
		Name: allconcur.EngineAllConcurPlus, Story: "no leader, many nodes, any network",
		Kind: Frames, InNode: true, Prompt: true, LogRounds: true,
		InFlightMax: interleave.InFlightMax, New: newAllConcur(allconcur.EngineAllConcurPlus),
		FrameRun: allconcur.FrameGeneration, FrameHead: allconcur.HeadOf,
		FrameMessage: allConcurMessage,
	},
	{
		Name:  allconcur.EngineAllConcur,
		Story: "reliable rounds only: slower, and steady while servers fail",
		Kind:  Frames, InNode: true,
		InFlightMax: interleave.InFlightMax, New: newAllConcur(allconcur.EngineAllConcur),
		FrameRun: allconcur.FrameGeneration, FrameHead: allconcur.HeadOf,
		FrameMessage: allConcurMessage,
	},
	{
		Name: trains.EngineName, Story: "a ring: few nodes, one network, most transactions",
		Kind: Frames, InFlightMax: 1, New: newTrains, FrameRun: trains.FrameGeneration,
	},
	{
		Name:  dare.EngineName,
		Story: "a leader that writes its log into memory: few nodes, short waits",
		Kind:  Polled, InFlightMax: 64, NewMachine: newDARE,
	},
}

// newAllConcur returns the maker of one of AllConcur's engines. Several rounds in flight are
// several of them side by side.
func newAllConcur(name string) func(Config) (order.Broadcaster, error) {
	return func(c Config) (order.Broadcaster, error) {
		detector := allconcur.DetectorEventual
		if c.Perfect {
			detector = allconcur.DetectorPerfect
		}
		config := allconcur.Config{
			Engine: name, Self: c.Self, Servers: c.Servers, Shard: c.Shard, Reliable: c.Reliable,
			Generation: c.Run, FirstRound: c.FirstRound, MaxPayload: c.MaxPayload,
			Detector: detector, Prompt: c.Prompt, Change: c.Change,
		}
		if c.InFlight > 1 {
			several, err := interleave.New(interleave.Config{Engine: config, InFlight: c.InFlight})
			if err != nil {
				return nil, err
			}
			return several, nil
		}
		alone, err := allconcur.New(config)
		if err != nil {
			return nil, err
		}
		return alone, nil
	}
}

// allConcurMessage reads the message in one of AllConcur's frames.
func allConcurMessage(frame []byte) (Message, bool) {
	id, payload, is := allconcur.FrameMessage(frame)
	return Message{Run: id.Generation, Epoch: id.Epoch, Round: id.Round, Origin: id.Origin,
		Payload: payload}, is
}

// newTrains makes TRAINS' engine.
func newTrains(c Config) (order.Broadcaster, error) {
	detector := trains.DetectorEventual
	if c.Perfect {
		detector = trains.DetectorPerfect
	}
	e, err := trains.New(trains.Config{
		Self: c.Self, Servers: c.Servers, Trains: c.Trains, Generation: c.Run,
		FirstRound: c.FirstRound, MaxPayload: c.MaxPayload, Detector: detector, Change: c.Change,
		Layout: c.Layout,
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// newDARE makes a server of DARE. A log holds several entries for each message in flight, so that a
// follower that is a little behind stops nobody.
func newDARE(c Config, peers []rdmanet.Peer, host rdmanet.RegionHost) (Machine, error) {
	const slotsMin, slotsAMessage, beats = 64, 4, 8
	window := max(c.InFlight, 1)
	timeout := c.Timeout
	if timeout == 0 {
		timeout = TimeoutDefault
	}
	s, err := dare.New(dare.Config{
		Self: c.Self, Peers: peers, Run: c.Run, FirstRound: c.FirstRound, PayloadMax: c.MaxPayload,
		LogSlots: max(slotsMin, slotsAMessage*window), Window: window, Timeout: timeout,
		Beat: timeout / beats, Patience: timeout,
	}, host)
	if err != nil {
		return nil, err
	}
	return s, nil
}
