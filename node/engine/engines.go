package engine

import (
	"cmp"
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/trains"
)

// Default is the name of the engine of new ledgers.
const Default = allconcur.EngineAllConcurPlus

// The bounds and the default of the number of trains in nodes. With fewer, what a run leaves behind
// would not show which kind of engine it had (generation.Bound): AllConcur's servers vote for two
// rounds.
const (
	TrainsMin     = 3
	TrainsDefault = trains.TrainsDefault
	TrainsMax     = trains.TrainsMax
)

// engines is the table.
var engines = List{
	{
		Name: allconcur.EngineAllConcurPlus, Story: "no leader, many nodes, any network",
		Kind: Frames, InNode: true, Prompt: true, LogRounds: true, Perfect: true,
		VotesMax: allConcurVotes, InFlightMax: interleave.InFlightMax,
		New:      newAllConcur(allconcur.EngineAllConcurPlus),
		FrameRun: allconcur.FrameGeneration, FrameHead: allconcur.HeadOf,
		FrameMessages: allConcurMessages,
	},
	{
		Name:  allconcur.EngineAllConcur,
		Story: "reliable rounds only: slower, and steady while servers fail",
		Kind:  Frames, InNode: true, Perfect: true,
		VotesMax: allConcurVotes, InFlightMax: interleave.InFlightMax,
		New:      newAllConcur(allconcur.EngineAllConcur),
		FrameRun: allconcur.FrameGeneration, FrameHead: allconcur.HeadOf,
		FrameMessages: allConcurMessages,
	},
	{
		Name: trains.EngineName, Story: "a ring: few nodes, one network, most transactions",
		Kind: Frames, InNode: true, Trains: true, WatchAll: true, ServersMax: trains.ServersMax,
		VotesMax: trainsVotes, InFlightMax: 1, New: newTrains,
		FrameRun: trainsRun, FrameHead: trains.HeadOf, FrameMessages: trainsMessages,
	},
	{
		Name:  dare.EngineName,
		Story: "a leader that writes its log into memory: few nodes, short waits",
		Kind:  Polled, InNode: true, WatchAll: true, ServersMax: dare.ServersMax,
		InFlightMax: 64, NodeInFlight: 2, NewMachine: newDARE,
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

// allConcurVotes returns the votes of one of AllConcur's engines.
func allConcurVotes(Config) int { return 2 }

// allConcurMessages reads the message in one of AllConcur's frames.
func allConcurMessages(frame []byte, yield func(Message)) {
	if id, payload, is := allconcur.FrameMessage(frame); is {
		yield(Message{Run: id.Generation, Epoch: id.Epoch, Round: id.Round, Origin: id.Origin,
			Payload: payload})
	}
}

// The frames of a ring carry the number of its trains beside that of the run, so that servers with
// different numbers ignore each other's frames: they would disagree on what has been everywhere.
const (
	trainsShift = 56
	runMask     = 1<<trainsShift - 1
)

// trainsGeneration returns the number that the frames of a run carry. The paper's layout has none.
func trainsGeneration(c Config) (uint64, error) {
	if c.Layout == trains.LayoutPaper {
		return c.Run, nil
	}
	if c.Run > runMask {
		return 0, fmt.Errorf("%w: run %d, want up to %d", trains.ErrConfig, c.Run, uint64(runMask))
	}
	return uint64(trainsVotes(c))<<trainsShift | c.Run, nil
}

// trainsRun reads the number of the run from a frame.
func trainsRun(frame []byte) (uint64, error) {
	generation, err := trains.FrameGeneration(frame)
	return generation & runMask, err
}

// trainsVotes returns the votes of a server of a ring: one for each train.
func trainsVotes(c Config) int { return cmp.Or(c.Trains, trains.TrainsDefault) }

// trainsMessages reads the wagons in a frame of a ring.
func trainsMessages(frame []byte, yield func(Message)) {
	trains.FrameWagons(frame, func(id trains.WagonID, payload []byte) {
		m := Message{Run: id.Generation & runMask, Epoch: order.Epoch(id.Train),
			Round: order.Round(id.Rotation), Origin: id.Origin, Payload: payload}
		if id.Round != 0 {
			m.Epoch, m.Round = trains.TrainsMax, id.Round // a wagon's own frame, and of no train
		}
		yield(m)
	})
}

// newTrains makes TRAINS' engine.
func newTrains(c Config) (order.Broadcaster, error) {
	detector := trains.DetectorEventual
	if c.Perfect {
		detector = trains.DetectorPerfect
	}
	generation, err := trainsGeneration(c)
	if err != nil {
		return nil, err
	}
	e, err := trains.New(trains.Config{
		Self: c.Self, Servers: c.Servers, Trains: c.Trains, Generation: generation,
		FirstRound: c.FirstRound, MaxPayload: c.MaxPayload, Detector: detector, Change: c.Change,
		Layout: c.Layout,
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// The sizes of DARE's logs. An entry has room for the largest message, or several smaller ones. In
// full rounds it has room for the largest one of each server.
const (
	dareMessages = 1 << 20
	dareFull     = 8 << 20 // in full rounds, unless each message may need more
	dareLog      = 64 << 20
	dareSlotsMin = 16
	dareSlotsMax = 64
)

// dareSizes returns the most bytes of a message and of all messages of an entry, and how many
// entries a log holds. Such a log holds several entries for each message in flight, so that a
// follower that is a little behind stops nobody. It has one slot more.
func dareSizes(c *Config, servers int) (payload, messages, slots int) {
	const slotsAMessage = 4
	payload, least := c.MaxPayload, dareSlotsMin
	messages = max(payload, min(servers*payload, dareMessages))
	if c.FullRounds {
		payload = min(payload, max(dareFull/servers, cmp.Or(c.MinPayload, payload)))
		messages, least = servers*payload, 0
	}
	slots = min(dareSlotsMax, max(least, dareLog/max(messages, 1)))
	return payload, messages, max(slots, slotsAMessage*max(c.InFlight, 1)) - 1
}

// newDARE makes a server of DARE.
func newDARE(c Config, peers []rdmanet.Peer, host rdmanet.RegionHost) (Machine, error) {
	const beats = 8
	timeout := cmp.Or(c.Timeout, TimeoutDefault)
	payload, messages, slots := dareSizes(&c, len(peers))
	s, err := dare.New(dare.Config{
		Self: c.Self, Peers: peers, Shard: c.Shard, Run: c.Run, FirstRound: c.FirstRound,
		PayloadMax: payload, MessagesMax: messages, Change: c.Change, FullRounds: c.FullRounds,
		LogSlots: slots, Window: max(c.InFlight, 1), Timeout: timeout, Beat: timeout / beats,
		Patience: timeout,
	}, host)
	if err != nil {
		return nil, err
	}
	return s, nil
}
