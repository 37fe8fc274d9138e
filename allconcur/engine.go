package allconcur

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// ErrNotPredecessor says that a suspicion is about a server that is no predecessor in the reliable
// digraph; match it with errors.Is.
var ErrNotPredecessor = errors.New("allconcur: not a predecessor in the reliable digraph")

// Engine is one server's AllConcur or AllConcur+, an order.Broadcaster. The package comment shows
// how to drive it. It is not safe for concurrent use.
type Engine struct {
	config Config
	self   order.ServerID
	n      int
	// tolerated is f; majority is more than half of the shard.
	tolerated int
	majority  int
	// fast is the number of votes that A-deliver a set at once, stable the number for an unreliable
	// round.
	fast   int
	stable int
	// perfect is true under P, false under ◇P.
	perfect bool
	// plus is true for AllConcur+, false for AllConcur. uniform says that an unreliable round waits
	// until a majority runs the next but one.
	plus    bool
	uniform bool

	// members is V(G_R): the servers that are not removed.
	members      serverSet
	removedCount int
	overlay      *overlay

	// The state: [epoch, round], or [[epoch, round]] if reliable.
	epoch    order.Epoch
	round    order.Round
	reliable bool

	// current is M_i, newer M_i^prev, next M_i^next. older is the round before newer's; it is
	// complete too, and waits for its majority.
	current *roundSet
	next    *roundSet
	newer   *roundSet
	older   *roundSet
	// delivered is the last A-delivered round. With prompt delivery it is the last closed one, and
	// prompted, which is never before it, the last one whose messages are A-delivered.
	delivered order.Round
	prompted  order.Round

	failures *notifications
	tracking *tracking
	// solicit is how many reliable rounds have to end until the last notification is dealt with.
	solicit int
	// ignored are the servers that this server's own detector suspects.
	ignored serverSet
	suspicions
	// decided says that this server voted for the set of the current reliable round, confirmed that
	// it confirmed the set.
	decided   bool
	confirmed bool
	// skippers are the servers that skipped the current reliable round after this one had decided
	// in it.
	skippers serverSet
	// ballots hold the votes, by round; nil under P.
	ballots []*ballot
	// contents is scratch space for the messages of a round.
	contents []content
	// last is the transitional round, 0 while none is known. ended says that it is A-delivered.
	last  order.Round
	ended bool
	// own holds this server's messages of the current round and the next, by the round's parity,
	// for a rerun.
	own [2]ownMessage
	// memory returns the memory of an own message, if it is set.
	memory func(size int) []byte
	// halted is why this server stopped, "" while it runs.
	halted string

	out output
}

// ownMessage is a message that this server A-broadcast and may have to A-broadcast again, in a
// rerun of the same round.
type ownMessage struct {
	held    bool
	round   order.Round
	payload []byte
	// since is the epoch in which it was A-broadcast first. vouched are the messages of others that
	// go along in a rerun, by ascending origin (prompt.go).
	since   order.Epoch
	vouched []content
	// epoch and reliable are the last state in which it was A-broadcast.
	epoch    order.Epoch
	reliable bool
}

var _ order.Borrower = (*Engine)(nil)

// New returns the engine of one server, in its first round. An error wraps ErrConfig.
func New(config Config) (*Engine, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	n := config.Servers
	e := &Engine{
		config: config, self: config.Self, n: n,
		tolerated: digraph.Tolerated(config.Reliable), majority: config.Shard/2 + 1,
		perfect: config.Detector == DetectorPerfect,
		plus:    config.Engine == EngineAllConcurPlus, uniform: !config.NonUniform,
		members: newServerSet(n), ignored: newServerSet(n), skippers: newServerSet(n),
		epoch: 1, round: config.FirstRound, delivered: config.FirstRound - 1,
		prompted: config.FirstRound - 1,
		current:  newRoundSet(n), next: newRoundSet(n),
		newer: newRoundSet(n), older: newRoundSet(n),
	}
	for p := range n {
		e.members.add(order.ServerID(p))
	}
	if !e.perfect {
		e.links = make([]link, len(config.Reliable.Predecessors(int(e.self))))
		for range ballotsKept {
			e.ballots = append(e.ballots, newBallot(n))
		}
	}
	e.overlay = newOverlay(config.Reliable, e.self, e.members, e.plus, config.Detector)
	e.setThresholds()
	e.failures = newNotifications(config.Reliable)
	e.failures.ownersKept = config.Fault == FaultRemovedOwnerKept
	e.tracking = newTracking(config.Reliable, e.failures, e.members,
		config.Fault == FaultPrunedTooSoon)
	if e.plus {
		// The initial state [[1,0]] is complete from the start [Poke19, section 6.2.2].
		e.startUnreliable()
	} else {
		e.startReliable()
	}
	return e, nil
}

// CanBroadcast reports whether this server has yet to A-broadcast its message of the current round.
func (e *Engine) CanBroadcast() bool {
	return e.halted == "" && !e.ended && !e.current.present.has(e.self)
}

// Solicited reports whether CanBroadcast is true and this server's message is due now, even if no
// server has anything to say. There are four reasons: another server's message has arrived; a
// server failed and the round has to end for it to be removed (under ◇P until a round is complete
// that began after the notification); a suspicion is to be revoked; or the eon is to end.
func (e *Engine) Solicited() bool {
	if !e.CanBroadcast() {
		return false
	}
	return e.current.count > 0 && !e.expectsContent() ||
		e.perfect && e.failures.targetCount > 0 || e.solicit > 0 || e.revoking > 0 || e.last != 0
}

// Undelivered reports whether a complete round with a non-empty message waits for later rounds.
func (e *Engine) Undelivered() bool {
	return e.halted == "" && (e.waits(e.newer) || e.waits(e.older))
}

// waits reports whether a set has messages that are not A-delivered yet.
func (e *Engine) waits(set *roundSet) bool {
	return set.payloadCount > 0 && (!e.config.Prompt || set.round > e.prompted)
}

// Broadcast A-broadcasts payload as this server's message of the current round. The payload is
// copied into the frame and not kept. If the round has to be rerun, the engine A-broadcasts the
// same message again by itself.
func (e *Engine) Broadcast(payload []byte) error {
	e.begin()
	switch {
	case e.halted != "":
		return e.haltedError()
	case !e.CanBroadcast():
		return fmt.Errorf("%w: round %d is the last, or has this server's message", order.ErrNotNow,
			e.round)
	case len(payload) > e.config.MaxPayload:
		return fmt.Errorf("%w: %d bytes, at most %d", order.ErrTooLarge, len(payload),
			e.config.MaxPayload)
	}
	e.own[e.round%2] = ownMessage{held: true, round: e.round, payload: payload, since: e.epoch,
		vouched: e.vouch(payload)}
	e.broadcastOwn()
	e.tryToComplete()
	e.settle()
	return nil
}

// Receive takes one frame from a lane. It ignores duplicates and frames of another generation, of a
// past state or one too far ahead, and of removed servers.
func (e *Engine) Receive(from order.ServerID, frame []byte) error {
	e.begin()
	if e.halted != "" {
		return e.haltedError()
	}
	if e.ended {
		return nil
	}
	if uint64(from) >= uint64(e.n) || from == e.self {
		return fmt.Errorf("%w: from server %d, which is no peer of server %d in a group of %d",
			order.ErrFrame, from, e.self, e.n)
	}
	header, err := decodeFrame(frame, e.config.MaxPayload)
	if err != nil {
		return fmt.Errorf("server %d: %w", from, err)
	}
	if header.generation != e.config.Generation &&
		!(e.config.Fault == FaultStaleEon && header.generation < e.config.Generation) {
		return nil
	}
	err = e.dispatch(from, header, frame)
	e.settle()
	return err
}

// dispatch checks a frame of this run and handles it.
func (e *Engine) dispatch(from order.ServerID, header frameHeader, frame []byte) error {
	switch {
	case header.kind >= kindForward:
		return e.receiveVote(from, header, frame)
	case header.kind != kindUnreliable && !e.config.Reliable.HasEdge(int(from), int(e.self)):
		return fmt.Errorf("%w: over the reliable digraph from server %d, which is no "+
			"predecessor of server %d", order.ErrFrame, from, e.self)
	case header.kind == kindUnreliable && !e.plus:
		return fmt.Errorf("%w: an unreliable message from server %d, all rounds are reliable here",
			order.ErrFrame, from)
	case header.kind == kindFailure:
		return e.receiveFailure(from, header, frame)
	case uint64(header.origin) >= uint64(e.n):
		return fmt.Errorf("%w: a message of server %d in a group of %d", order.ErrFrame,
			header.origin, e.n)
	case header.prompt != e.config.Prompt || header.prompt && !e.areEntries(header, frame):
		return fmt.Errorf("%w: a message of server %d with prompt delivery %t and %d entries in a "+
			"group of %d with prompt delivery %t", order.ErrFrame, header.origin, header.prompt,
			header.entries, e.n, e.config.Prompt)
	case header.revocations > 0 && !e.areRevocations(header, frame):
		return fmt.Errorf("%w: a message of server %d revokes notifications that "+
			"the server cannot have made", order.ErrFrame, header.origin)
	}
	if header.origin == e.self || !e.members.has(from) || !e.members.has(header.origin) {
		return nil // its own, or not of a member
	}
	e.take(from, header, frame)
	return nil
}

// take handles a message, unless it comes from a suspected predecessor. Such messages are held, so
// that Proposition 5.2.1 holds.
func (e *Engine) take(from order.ServerID, header frameHeader, frame []byte) {
	if e.ignored.has(from) && !e.takesHeld(from) {
		e.hold(from, header, frame)
		return
	}
	e.handle(from, header, frame)
}

func (e *Engine) handle(from order.ServerID, header frameHeader, frame []byte) {
	if header.kind == kindUnreliable {
		e.handleUnreliable(header, frame)
		return
	}
	e.handleReliable(from, header, frame)
}

// proposition panics if an input contradicts a proposition of [Poke19, section 6.2.4.2] and the
// configuration asks for it.
func (e *Engine) proposition(holds bool, number string) {
	if !holds && e.config.AssertPropositions {
		panic("allconcur: an input contradicts Proposition " + number)
	}
}

// broadcastOwn A-broadcasts this server's message of the current round, which own holds [Poke19,
// Algorithm 6.1, lines 10-19].
func (e *Engine) broadcastOwn() {
	assert(!e.current.present.has(e.self), "a server A-broadcasts once in a state")
	kind, to := kindUnreliable, e.ownChildren()
	if e.reliable {
		kind, to = kindReliable, e.overlay.forward.successors
	}
	var revocations []revocation
	if e.reliable && e.revoking > 0 {
		revocations = e.pendingRevocations()
	}
	own := &e.own[e.round%2]
	frame := e.encodeOwn(kind, own, revocations)
	own.payload, own.epoch, own.reliable = payloadOf(frame), e.epoch, e.reliable
	e.current.add(e.self, frame)
	if e.reliable {
		e.tracking.received(e.self)
	}
	e.send(to, frame)
}

// encodeOwn returns the frame of this server's message of the current round.
func (e *Engine) encodeOwn(kind frameKind, own *ownMessage, revocations []revocation) []byte {
	if e.config.Prompt {
		return e.encodePrompt(kind, own, revocations)
	}
	if e.memory == nil {
		return encodeMessage(kind, e.config.Generation, e.epoch, e.round, e.self, own.payload,
			revocations...)
	}
	memory := e.memory(messageHeaderSize + len(revocations)*revocationSize + len(own.payload))
	return appendMessage(memory[:0], kind, e.config.Generation, e.epoch, e.round, e.self,
		own.payload, revocations...)
}

// UseMemory makes the engine take the memory of its own messages from a function, except with
// prompt delivery, whose messages are small.
func (e *Engine) UseMemory(take func(size int) []byte) { e.memory = take }

// ownChildren lists the servers that this server sends its own unreliable messages to.
func (e *Engine) ownChildren() []order.ServerID {
	if !e.plus {
		return nil
	}
	return e.overlay.children[e.self]
}

// rerunOwn A-broadcasts this server's message of a round again, if it did so before in a state that
// it rolled back. Validity requires the same message [Poke19, section 6.2.1].
func (e *Engine) rerunOwn() {
	if own := &e.own[e.round%2]; own.held && own.round == e.round {
		e.broadcastOwn()
	}
}

// halt stops this server for good. The output that it produced before is still to be carried out.
func (e *Engine) halt(format string, arguments ...any) {
	e.halted = fmt.Sprintf(format, arguments...)
}

// haltedError matches order.ErrHalted and order.ErrNotNow.
func (e *Engine) haltedError() error {
	return fmt.Errorf("%w: %s (%w)", order.ErrHalted, e.halted, order.ErrNotNow)
}

// assert panics if an invariant is broken. That is a bug of this package, and no frame or suspicion
// can cause it.
func assert(holds bool, invariant string) {
	if !holds {
		panic("allconcur: broken invariant: " + invariant)
	}
}
