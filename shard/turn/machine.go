package turn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Arrival is one frame of the running run.
type Arrival struct {
	// From is the sender's place in the group.
	From  order.ServerID
	Frame []byte
}

// Opinion is a judgement of a member.
type Opinion struct {
	// Server is the member's place in the group.
	Server order.ServerID
	Kind   OpinionKind
	// Cause is why the member is suspected or gone.
	Cause error
}

// OpinionKind is the kind of an opinion.
type OpinionKind uint8

// The kinds of opinion.
const (
	// Suspect is the detector's suspicion.
	Suspect OpinionKind = iota
	// Trust withdraws a suspicion.
	Trust
	// Gone says that frames of the member are missing for good: it sent bytes that are no frame, or
	// came back in another life.
	Gone
	// Probe is about no member: the engine is to show whether the run goes on.
	Probe
)

// Kind is the kind of an action.
type Kind uint8

// The kinds of action, in the order in which a turn returns them.
const (
	// Done ends the turn.
	Done Kind = iota
	// Linger asks for a timer that calls LingerOver.
	Linger
	// Suspected says that the engine was told to suspect Server, because of Cause. Refused is the
	// engine's error, if any.
	Suspected
	// Trusted says that the engine was told to trust Server again. Refused is the engine's error,
	// if any.
	Trusted
	// Lost says that nothing more is sent to Server in this run, because of Cause.
	Lost
	// Silenced says that nothing more is taken from Server in this run, because of Cause.
	Silenced
	// Send asks the driver to put Sends on the lanes.
	Send
	// Removed says that a round, the only one in Deliveries, removes servers. The Deliver with that
	// round follows. Nothing more is sent to those servers or taken from them. This server itself
	// may be among them.
	Removed
	// Deliver asks the driver to hand over Deliveries.
	Deliver
	// Record offers Deliveries, which are complete in a whole group but not A-delivered, for a
	// record on the disk (shard.Recorder). It comes after the Deliver of all rounds before them.
	Record
)

// Action is one thing for a driver to do.
type Action struct {
	Kind    Kind
	Server  order.ServerID
	Cause   error
	Refused error
	// Sends belong to the engine and are valid until the next call of any method of the machine.
	Sends []order.Send
	// Deliveries of a Deliver or a Record belong to the caller, which may keep and change them.
	// Those of a Removed are read-only. Payloads are never changed.
	Deliveries []order.Delivery
}

// Config sets up a machine. Engine and Servers are required.
type Config struct {
	// Engine is the engine of the run. The machine owns it: other code may only read its status.
	Engine order.Broadcaster
	// Self is this server's place in the group, which has Servers members.
	Self    order.ServerID
	Servers int
	// NoLinger makes empty messages due at once where they would follow a linger.
	NoLinger bool
	// Records makes the machine return Record actions. The engine must be a Completer.
	Records bool
	// Fault plants a bug. Production leaves it FaultNone.
	Fault Fault
}

// Completer is an engine that reports complete rounds. See allconcur.Engine.Complete.
type Completer interface {
	Complete(after order.Round) (rounds []order.Delivery, whole bool)
}

// Machine decides what one server does in one run. Its methods must not be called concurrently. The
// package comment has the loop.
type Machine struct {
	config Config
	engine order.Broadcaster
	peers  []peer

	// What is to be done in this turn: news first, then the rest by stages.
	news []Action
	// told is how many of the news were returned.
	told       int
	stage      stage
	sends      []order.Send
	deliveries []order.Delivery
	// leaving are the rounds with which servers leave the group. removals is how many of them were
	// announced.
	leaving  []order.Delivery
	removals int

	// action is the last one returned.
	action Action

	// moved says that something happened since the last call of Moved. again says that another turn
	// may find more to do.
	moved, again bool
	// lingering says that a timer was asked for, lingered that it has expired.
	lingering, lingered bool
	// ownUndelivered counts own batches that were A-broadcast and not yet A-delivered.
	ownUndelivered int
	// delivered is the epoch of the last delivery, epoch the last one that finish has handled.
	delivered, epoch order.Epoch
	halted           string
	// complete is the last complete round that was looked at for a record.
	complete order.Round
	// untaken says that the last deliveries were refused.
	untaken bool
	ended   bool
	// members are those left when the eon ended.
	members []order.ServerID
}

// stage says how many of a turn's actions were returned.
type stage uint8

const (
	// collect asks the engine what to do.
	collect stage = iota
	// first sends, second delivers (the reverse under FaultDeliverFirst).
	first
	second
	// records offers complete rounds for a record.
	records
	// finish checks what the delivered rounds have ended.
	finish
)

// New returns the machine of a run.
func New(config Config) *Machine {
	return &Machine{config: config, engine: config.Engine, peers: make([]peer, config.Servers)}
}

// Step takes what came since the last turn: all frames first, then the opinions.
func (m *Machine) Step(frames []Arrival, opinions []Opinion) {
	if m.config.Fault == FaultOpinionsFirst {
		m.weigh(opinions)
		m.receive(frames)
		return
	}
	m.receive(frames)
	m.weigh(opinions)
}

func (m *Machine) receive(frames []Arrival) {
	if len(frames) == 0 {
		return
	}
	m.moved = true
	for i := range frames {
		from := frames[i].From
		if m.peers[from].silenced {
			continue
		}
		if err := m.engine.Receive(from, frames[i].Frame); err != nil {
			m.refused(from, err)
		}
	}
}

// refused handles an error of Receive. Only malformed frames and halted engines cause one.
func (m *Machine) refused(from order.ServerID, err error) {
	if errors.Is(err, order.ErrHalted) {
		m.Look()
		return
	}
	m.silence(from, err)
}

// Next returns the next action of this turn, valid until the next call. The caller must have
// carried out an action before it asks for the next one.
func (m *Machine) Next() *Action {
	if m.told < len(m.news) {
		return m.nextNews()
	}
	for {
		switch m.stage {
		case collect:
			ready := m.engine.Ready()
			m.sends, m.deliveries = ready.Sends, m.keep(ready.Deliveries)
			m.depart(ready.Closings)
			m.stage = first
		case first:
			if m.config.Fault == FaultDeliverFirst {
				if m.deliver(second) {
					return &m.action
				}
				continue
			}
			m.stage = second
			if m.send() {
				return &m.action
			}
		case second:
			if m.config.Fault == FaultDeliverFirst {
				m.stage = records
				if m.send() {
					return &m.action
				}
				continue
			}
			if m.deliver(records) {
				return &m.action
			}
		case records:
			m.stage = finish
			if m.config.Records && m.record() {
				return &m.action
			}
		case finish:
			m.stage = collect
			m.finish()
			m.action.Kind = Done
			return &m.action
		}
	}
}

// nextNews returns the oldest news.
func (m *Machine) nextNews() *Action {
	m.action = m.news[m.told]
	if m.told++; m.told == len(m.news) {
		clear(m.news)
		m.news, m.told = m.news[:0], 0
	}
	return &m.action
}

// send sets the action to Send, if there is anything to send.
func (m *Machine) send() bool {
	if len(m.sends) == 0 {
		return false
	}
	m.action = Action{Kind: Send, Sends: m.sends}
	m.sends = nil
	return true
}

// deliver sets the action: first one for each round that removes servers, then one for all the
// rounds. After that it moves on to the next stage.
func (m *Machine) deliver(after stage) bool {
	if m.removals < len(m.leaving) {
		at := m.removals
		m.removals++
		m.remove(m.leaving[at].Removed)
		m.action = Action{Kind: Removed, Deliveries: m.leaving[at : at+1]}
		return true
	}
	m.stage = after
	if len(m.deliveries) == 0 {
		return false
	}
	m.moved, m.again = true, true
	m.action = Action{Kind: Deliver, Deliveries: m.deliveries}
	m.deliveries = nil
	return true
}

// depart collects the rounds with which servers leave the group, those among the deliveries and
// those among the closings of an engine with prompt delivery. It also notes the last epoch.
func (m *Machine) depart(closings []order.Closing) {
	m.leaving, m.removals = m.leaving[:0], 0
	for _, d := range m.deliveries {
		m.delivered = max(m.delivered, d.Epoch)
		if len(d.Removed) > 0 {
			m.leaving = append(m.leaving, d)
		}
	}
	for _, c := range closings {
		m.delivered = max(m.delivered, c.Epoch)
		if len(c.Removed) > 0 {
			m.leaving = append(m.leaving, order.Delivery{Epoch: c.Epoch, Round: c.Round,
				Removed: slices.Clone(c.Removed)})
		}
	}
}

// record sets the action to Record, if a round that has something to execute became complete in a
// whole group.
func (m *Machine) record() bool {
	rounds, whole := m.engine.(Completer).Complete(m.complete)
	if len(rounds) == 0 {
		return false
	}
	last := &rounds[len(rounds)-1]
	m.complete = last.Round
	filled := slices.ContainsFunc(last.Messages, func(message order.Message) bool {
		return len(message.Payload) > 0
	})
	if !filled || m.untaken || !whole && m.config.Fault != FaultRecordsAnyGroup {
		return false
	}
	m.action = Action{Kind: Record, Deliveries: rounds}
	return true
}

// keep copies deliveries, which belong to the engine, for the caller.
func (m *Machine) keep(deliveries []order.Delivery) []order.Delivery {
	if len(deliveries) == 0 {
		return nil
	}
	total := 0
	for i := range deliveries {
		total += len(deliveries[i].Messages)
	}
	copies := make([]order.Delivery, len(deliveries))
	messages := make([]order.Message, 0, total)
	for i, delivery := range deliveries {
		begin := len(messages)
		messages = append(messages, delivery.Messages...)
		for _, message := range delivery.Messages {
			if message.Origin == m.config.Self && len(message.Payload) > 0 {
				m.ownUndelivered--
			}
		}
		delivery.Messages = messages[begin:len(messages):len(messages)]
		delivery.Removed = slices.Clone(delivery.Removed)
		copies[i] = delivery
	}
	return copies
}

// finish ends a turn. An eon ends only with a reliable round, which begins an epoch, so finish
// looks at the engine only then.
func (m *Machine) finish() {
	if m.delivered != m.epoch && !m.untaken {
		m.epoch = m.delivered
		m.Look()
	}
}

// Look checks whether the engine has halted or its eon is over. A driver calls it now and then,
// since an engine may halt without an error.
func (m *Machine) Look() {
	switch status := m.engine.Status(); {
	case status.Halted != "":
		m.Halt(status.Halted)
	case status.Ended:
		m.ended, m.members = true, slices.Clone(status.Members)
	}
}

// Halt ends the machine after this turn. The first reason is kept.
func (m *Machine) Halt(reason string) {
	if m.halted == "" {
		m.halted = reason
	}
}

// Untaken says that the last deliveries were refused. The machine is over after this turn, but its
// eon is not.
func (m *Machine) Untaken(cause error) {
	m.ended, m.members, m.untaken = false, nil, true
	m.Halt(fmt.Sprintf("deliveries not taken: %v", cause))
}

// Halted returns why the machine ended. It returns "" while the machine runs and if its eon is
// over.
func (m *Machine) Halted() string {
	if m.ended {
		return ""
	}
	return m.halted
}

// Ended reports whether the eon is over, and returns the remaining members of the group, ascending.
func (m *Machine) Ended() ([]order.ServerID, bool) { return m.members, m.ended }

// Over reports whether there are no more turns.
func (m *Machine) Over() bool { return m.ended || m.halted != "" }

// Moved reports whether anything happened since the last call.
func (m *Machine) Moved() bool {
	moved := m.moved
	m.moved = false
	return moved
}

// Again reports whether another turn may find more to do without any input, because this server
// A-broadcast, delivered or lost a member.
func (m *Machine) Again() bool {
	again := m.again
	m.again = false
	return again
}

// CanBroadcast reports whether this server has yet to A-broadcast in the current round.
func (m *Machine) CanBroadcast() bool { return m.engine.CanBroadcast() }

// Undelivered reports whether messages wait for a later round.
func (m *Machine) Undelivered() bool { return m.engine.Undelivered() }

// MayBroadcast reports whether a batch may be A-broadcast now: the server has yet to A-broadcast in
// this round, and does not hold its batches back for a crowded member.
func (m *Machine) MayBroadcast() bool {
	if !m.engine.CanBroadcast() {
		return false
	}
	_, waits := m.WaitsFor()
	return !waits
}

// Broadcast A-broadcasts a batch or, if the batch is empty, an empty message if one is due. It
// reports whether it did. Call it only if MayBroadcast is true. The engine copies the batch.
func (m *Machine) Broadcast(batch []byte) bool {
	if len(batch) == 0 && !m.emptyDue() {
		return false
	}
	if err := m.engine.Broadcast(batch); err != nil {
		m.Halt(fmt.Sprintf("batch of %d bytes refused: %v", len(batch), err))
		return false
	}
	m.moved, m.again = true, true
	m.lingering, m.lingered = false, false
	if len(batch) > 0 {
		m.ownUndelivered++
	}
	return true
}

// EmptyDue reports whether Broadcast would A-broadcast an empty message now. A batch that is no
// reason for a round may go in its place. Call it only if MayBroadcast is true.
func (m *Machine) EmptyDue() bool { return m.emptyDue() }

// emptyDue reports whether an empty message is due now. If one is due later, it asks for a linger.
func (m *Machine) emptyDue() bool {
	switch {
	case m.engine.Solicited():
		return true
	case !m.engine.Undelivered():
		return false
	case m.ownUndelivered > 0 || m.lingered || m.config.NoLinger:
		return true
	case !m.lingering:
		m.lingering = true
		m.news = append(m.news, Action{Kind: Linger})
	}
	return false
}

// LingerOver says that the timer expired. It has no effect if a message has ended the linger.
func (m *Machine) LingerOver() {
	if m.lingering {
		m.lingering, m.lingered = false, true
	}
}
