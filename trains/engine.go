package trains

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// ErrNotMember says that a suspicion is about a server that is no other member of the group; match
// it with errors.Is.
var ErrNotMember = errors.New("trains: no other server of the group")

// Engine is one server's part in TRAINS, an order.Broadcaster. The package comment shows how to
// drive it. It is not safe for concurrent use.
type Engine struct {
	config Config
	self   order.ServerID
	n      int
	// trains is NB_TR.
	trains order.Round
	// perfect is true under P, false under ◇P.
	perfect bool
	// peers are all servers, so that a receiver is a slice of it.
	peers []order.ServerID

	// ring are the servers that the trains still visit. members are those that no A-delivered round
	// removed.
	ring    serverSet
	members serverSet
	// successor and predecessor are this server's neighbours in the ring. A server that is alone is
	// its own neighbour.
	successor   order.ServerID
	predecessor order.ServerID
	// suspected are the members that the detector suspects, under ◇P.
	suspected serverSet

	// arrived is the round of the last train that came here, attached that of the last train that
	// left with this server's wagon. Trains come and leave in the order of their rounds, without a
	// gap, so the trains between the two wait here.
	arrived  order.Round
	attached order.Round
	// delivered is the last A-delivered round.
	delivered order.Round
	epoch     order.Epoch

	// stops has a place for each train, by its id.
	stops []stop
	// loading has, for each sender, the wagons with frames of their own that came since its last
	// train.
	loading [][]relay
	// held has the wagons of the last two rotations, by round.
	held []heldRound
	// payloads counts the held wagons with a payload.
	payloads int

	// pending is a wagon that waits for a train, if hasPending (rest.go).
	pending    []byte
	hasPending bool
	// restsFrom is the first round whose train rests where it is.
	restsFrom order.Round

	// last is the last round of the eon, 0 while none is known. ended says that it is A-delivered.
	last  order.Round
	ended bool

	flow
	// memory returns the memory of a frame, if it is set.
	memory func(size int) []byte
	// halted is why this server stopped, "" while it runs.
	halted string

	out output
}

// stop is what a server knows of one train.
type stop struct {
	// clock is the hops that the train will have made when it leaves here next or, if it is not
	// here, had made when it left.
	clock uint64
	// relayed are the wagons that came with the train that waits here and were new.
	relayed []relay
	// sent are the frames of the train as it left here last, those of wagons first. There are none
	// if it never did.
	sent [][]byte
	// view is the ring when it was sent, for FaultFilterByView.
	view serverSet
}

// relay is a wagon to pass on. Its payload is in the memory of the frame that it came in. That is
// its own frame, unless frame is nil.
type relay struct {
	origin  order.ServerID
	round   order.Round
	payload []byte
	frame   []byte
}

// heldRound has the wagons of one round.
type heldRound struct {
	present  serverSet
	payloads int
	// wagons are the payloads by origin, in the memory of the frames that they came in.
	wagons [][]byte
}

var (
	_ order.Borrower = (*Engine)(nil)
	_ order.Prober   = (*Engine)(nil)
	_ order.Relay    = (*Engine)(nil)
)

// New returns the engine of one server, before its first round. An error wraps ErrConfig.
func New(config Config) (*Engine, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	e := &Engine{
		config: config, self: config.Self, n: config.Servers,
		trains:  order.Round(config.Trains),
		perfect: config.Detector == DetectorPerfect || config.Fault == FaultSuspicionBelieved,
		ring:    firstServers(config.Servers), members: firstServers(config.Servers),
		arrived: config.FirstRound - 1, attached: config.FirstRound - 1,
		delivered: config.FirstRound - 1, restsFrom: config.FirstRound, epoch: 1,
		stops: make([]stop, config.Trains), held: make([]heldRound, rotationsHeld*config.Trains),
		loading: make([][]relay, config.Servers), flow: newFlow(&config),
	}
	for p := range e.n {
		e.peers = append(e.peers, order.ServerID(p))
	}
	for i := range e.held {
		e.held[i].wagons = make([][]byte, e.n)
	}
	e.findNeighbours()
	e.placeTrains()
	return e, nil
}

// placeTrains gives every server trains that it can send again. The server at place j has sent all
// of them, with the clock j and no wagons, and the server at the last place does send them. So any
// loss at any moment leaves a server whose train is newer than what its new successor has. If one
// server alone made the trains, its crash before the first hop would stop the ring for good.
func (e *Engine) placeTrains() {
	if e.isAlone() {
		return
	}
	maker := int(e.self) == e.n-1
	for id := range e.stops {
		s := &e.stops[id]
		s.clock, s.view = uint64(e.self), e.ring
		if maker || e.config.Fault != FaultOneMaker {
			frame := appendTrain(nil, e.config.Layout, e.config.Generation, uint8(id), s.clock, 0)
			finishTrain(frame, e.config.Layout)
			s.sent = append(s.sent, frame)
		}
		if maker {
			e.sendTrain(s)
		}
	}
}

// idOf returns the train of a round.
func (e *Engine) idOf(r order.Round) int {
	return int((r - e.config.FirstRound) % e.trains)
}

// rotationOf returns the rotation of a round's train, from 1 on.
func (e *Engine) rotationOf(r order.Round) uint64 {
	return uint64((r-e.config.FirstRound)/e.trains) + 1
}

// roundOf returns the round of a train in a rotation, from 1 on.
func (e *Engine) roundOf(id uint8, rotation uint64) order.Round {
	return e.config.FirstRound + order.Round(rotation-1)*e.trains + order.Round(id)
}

// heldOf returns the wagons of a round.
func (e *Engine) heldOf(r order.Round) *heldRound {
	return &e.held[(r-e.config.FirstRound)%(rotationsHeld*e.trains)]
}

// waiting returns how many trains wait here for this server's wagon.
func (e *Engine) waiting() order.Round { return e.arrived - e.attached }

// isAlone reports whether this server is the last one of the ring.
func (e *Engine) isAlone() bool { return e.successor == e.self }

// CanBroadcast reports whether this server can A-broadcast: a train waits here, or all trains rest
// and one is to come, or the server is alone.
func (e *Engine) CanBroadcast() bool {
	switch {
	case e.halted != "" || e.ended || !e.inEon(e.attached+1):
		return false
	case e.waiting() > 0 || e.isAlone():
		return true
	}
	return !e.hasPending && e.rests(e.attached+1)
}

// Solicited reports whether CanBroadcast is true and a train waits here that has to go on, even if
// this server has nothing to say.
func (e *Engine) Solicited() bool {
	switch {
	case !e.CanBroadcast():
		return false
	case e.waiting() > 0:
		return !e.rests(e.attached + 1)
	}
	return e.isAlone() && (e.last != 0 || e.ring != e.members)
}

// Undelivered reports whether a wagon with a payload waits for later rounds.
func (e *Engine) Undelivered() bool {
	return e.halted == "" && (e.payloads > 0 || e.hasPending && len(e.pending) > 0)
}

// Broadcast A-broadcasts a payload in this server's next round: it attaches a wagon to the train
// that waits here. If all trains rest elsewhere, the wagon waits for one, which Broadcast calls.
// The payload is copied. To load a wagon just in time, a driver asks what there is to say only when
// CanBroadcast holds.
func (e *Engine) Broadcast(payload []byte) error {
	e.begin()
	switch {
	case e.halted != "":
		return fmt.Errorf("%w: %s (%w)", order.ErrHalted, e.halted, order.ErrNotNow)
	case !e.CanBroadcast():
		return fmt.Errorf("%w: no train of round %d is here", order.ErrNotNow, e.attached+1)
	case len(payload) > e.config.MaxPayload:
		return fmt.Errorf("%w: %d bytes, at most %d", order.ErrTooLarge, len(payload),
			e.config.MaxPayload)
	case e.waiting() == 0 && !e.isAlone():
		e.callTrain(payload)
		return nil
	}
	e.attach(payload)
	e.passUnattached()
	return nil
}

// Receive takes one frame from a lane. It ignores stale trains and frames of another generation or
// of a server that left the ring.
func (e *Engine) Receive(from order.ServerID, frame []byte) error {
	e.begin()
	if e.halted != "" {
		return fmt.Errorf("%w: %s", order.ErrHalted, e.halted)
	}
	if uint64(from) >= uint64(e.n) || from == e.self {
		return fmt.Errorf("%w: from server %d, which is no peer of server %d in a group of %d",
			order.ErrFrame, from, e.self, e.n)
	}
	header, err := decodeHeader(e.config.Layout, frame)
	if err != nil {
		return fmt.Errorf("server %d: %w", from, err)
	}
	switch {
	case header.generation != e.config.Generation || e.ended:
		return nil
	case !e.ring.has(from) && !e.hearsDead():
		return nil
	case header.kind == kindWake:
		e.wake(header.round)
		return nil
	case header.kind == kindWagon:
		err = e.load(from, header, frame)
	default:
		err = e.receiveTrain(from, header, frame)
		clear(e.loading[from])
		e.loading[from] = e.loading[from][:0]
	}
	if err != nil {
		return fmt.Errorf("server %d: %w", from, err)
	}
	return nil
}

// Suspect reports that the failure detector suspects a server. Under P the ring goes on without it.
// Under ◇P the status changes, and trains that rest go round, to show whether the ring still goes
// on.
func (e *Engine) Suspect(server order.ServerID) error {
	e.begin()
	switch {
	case e.halted != "":
		return fmt.Errorf("%w: %s", order.ErrHalted, e.halted)
	case uint64(server) >= uint64(e.n) || server == e.self:
		return fmt.Errorf("%w: %d", ErrNotMember, server)
	case e.perfect:
		e.leaveRing(e.ring & one(server))
	default:
		e.suspected |= one(server)
		e.probe()
	}
	return nil
}

// Probe makes the trains go round under ◇P, as a suspicion does. A driver calls it when a server
// that it suspects already shows that it left the run: the suspicion may have been false before, so
// that the trains came back and rest.
func (e *Engine) Probe() {
	if e.begin(); e.halted == "" && !e.perfect {
		e.probe()
	}
}

// Trust reports that the detector no longer suspects a server. Under P it is ignored.
func (e *Engine) Trust(server order.ServerID) error {
	e.begin()
	if e.halted != "" {
		return fmt.Errorf("%w: %s", order.ErrHalted, e.halted)
	}
	if uint64(server) < uint64(e.n) {
		e.suspected &^= one(server)
	}
	return nil
}

// UseMemory makes the engine take the memory of its trains from a function.
func (e *Engine) UseMemory(take func(size int) []byte) { e.memory = take }

// Delivered returns the last A-delivered round.
func (e *Engine) Delivered() order.Round { return e.delivered }

// Horizon returns the last round of which a train or wagons came here. When that is A-delivered,
// all wagons received so far are, and each train was sent again. If wagons came from a server that
// is not the predecessor, their train may come in any later round, and Horizon returns 0.
func (e *Engine) Horizon() order.Round {
	horizon := e.arrived
	for from := range e.loading {
		switch {
		case len(e.loading[from]) == 0:
		case order.ServerID(from) != e.predecessor:
			return 0
		default:
			horizon = e.arrived + 1
		}
	}
	return horizon
}

// halt stops this server for good. The output that it produced before is still to be carried out.
func (e *Engine) halt(format string, arguments ...any) {
	e.halted = fmt.Sprintf(format, arguments...)
}

// assert panics if an invariant is broken. That is a bug of this package, and no frame or suspicion
// can cause it.
func assert(holds bool, invariant string) {
	if !holds {
		panic("trains: broken invariant: " + invariant)
	}
}
