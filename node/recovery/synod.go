package recovery

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Generation numbers the lives of the ordering group, from 1; 0 means none yet.
type Generation uint64

// Ballot orders the attempts to decide one generation: by number, then by proposer.
type Ballot struct {
	Number   uint64
	Proposer order.ServerID
}

// Less tells whether b comes before c.
func (b Ballot) Less(c Ballot) bool {
	if b.Number != c.Number {
		return b.Number < c.Number
	}
	return b.Proposer < c.Proposer
}

// Head is what a node holds of the chain: the last generation in which it was activated, and its last block.
type Head struct {
	Generation Generation
	Height     uint64
	Hash       [32]byte
}

// Before tells whether h is less of the chain than other: an older generation, or the same one and a lower block.
func (h Head) Before(other Head) bool {
	if h.Generation != other.Generation {
		return h.Generation < other.Generation
	}
	return h.Height < other.Height
}

// Decision is the value that the synod decides for a generation.
type Decision struct {
	Generation Generation
	// Base is the block after which the generation's first round comes; all members hold it before they take part.
	Base Head
	// Members are the nodes that form the group, ascending; at least a majority of the chain's members.
	Members []order.ServerID
	// Disks are the members' disks, in the order of Members: a member that comes back with another one has lost what it stored.
	Disks []DiskID
}

// DiskID names a node's folder: drawn at random when the folder is made, and lost with it.
type DiskID uint64

// Equal tells whether two decisions are the same.
func (d Decision) Equal(other Decision) bool {
	return d.Generation == other.Generation && d.Base == other.Base && slices.Equal(d.Members, other.Members) && slices.Equal(d.Disks, other.Disks)
}

// Includes tells whether server is a member of the generation.
func (d Decision) Includes(server order.ServerID) bool {
	_, found := slices.BinarySearch(d.Members, server)
	return found
}

// lost tells whether server is a member that has another disk now.
func (d Decision) lost(server order.ServerID, disk DiskID) bool {
	i, found := slices.BinarySearch(d.Members, server)
	return found && d.Disks[i] != disk
}

// State is what a node must not forget: it is written to disk, and synced, before any message that rests on it is sent.
type State struct {
	// Disk names the folder that holds this state.
	Disk DiskID
	// Activated is the last generation in which this node took part.
	Activated Generation
	// Instance is the generation that Promised and Accepted belong to.
	Instance Generation
	Promised Ballot
	// Accepted is the ballot of AcceptedValue, where there is one.
	Accepted      Ballot
	AcceptedValue *Decision
	// Decided is the latest decision that this node knows.
	Decided *Decision
}

// Kind tells the messages of the synod apart.
type Kind uint8

// The messages of the synod.
const (
	KindPrepare  Kind = 1 // a proposer asks for promises
	KindPromise  Kind = 2 // an acceptor promises, and reports
	KindAccept   Kind = 3 // a proposer asks to accept its value
	KindAccepted Kind = 4 // an acceptor accepted
	KindDecided  Kind = 5 // the decision, to everyone and to whoever asks about a decided generation
	KindRefuse   Kind = 6 // a higher ballot is promised, or the acceptor works in a generation of its own
)

// Message is one message of the synod; which fields count depends on Kind.
type Message struct {
	Kind       Kind
	Generation Generation
	Ballot     Ballot
	// Regroup, of a Prepare: the proposer was a member of generation Generation-1 and delivered its last round.
	Regroup bool
	// Head, of a Promise: what the acceptor holds.
	Head Head
	// Accepted, of a Promise with a Value: the ballot in which it was accepted. Of a Refuse: the higher ballot that was promised.
	Accepted Ballot
	// Value, of Promise (may be nil), Accept and Decided.
	Value *Decision
	// Disk, of a Promise: the acceptor's.
	Disk DiskID
	// Known, of a Promise: the latest decision that the acceptor knows; nil if it knows none.
	Known *Decision
	// Working, of a Refuse: the generation in which the acceptor works; 0 if a higher ballot is the reason.
	Working Generation
}

// Envelope is a message and its receiver.
type Envelope struct {
	To      order.ServerID
	Message Message
}

// Ready is what the synod wants done, in this order: save, send, adopt.
type Ready struct {
	// MustSave tells that State changed and has to be on disk before Messages are sent.
	MustSave bool
	State    State
	Messages []Envelope
	// Decided is a decision that was not known before.
	Decided *Decision
}

// Config sets up a synod. Ticks are the driver's; a tenth of a second each is usual.
type Config struct {
	Self    order.ServerID
	Servers int
	// State is what the disk holds; the zero value on a new node.
	State State
	// Grace is how many ticks a proposer with a majority of promises waits for the others, so that they are members too.
	Grace int
	// Patience is how many ticks a proposer waits for a majority before it tries a higher ballot, and a node before it becomes a proposer.
	Patience int
}

type phase uint8

const (
	phaseWaiting   phase = iota // for somebody else's decision, or for the turn to propose
	phasePreparing              // own Prepare is out
	phaseAccepting              // own Accept is out
)

type pending struct {
	from    order.ServerID
	message Message
}

// Synod is one node's part in deciding generations: acceptor always, proposer when its turn comes. It is a pure state machine; see the package comment.
type Synod struct {
	config Config
	state  State

	head    Head
	working Generation // the generation in which the node's engine works; 0: none
	ended   Generation // the generation that this node saw end in order (regroup); its successor may be prepared past working nodes
	waiting *pending   // a Prepare that ended our generation in order; it is answered when the engine has stopped
	linked  []bool     // whom the fabric reaches
	refused Generation // the highest generation in which somebody said that it works

	prompt   bool // the engine has just stopped: whoever was proposing before did so for a group that still worked
	phase    phase
	ballot   Ballot // of the own attempt
	waited   int    // ticks in this phase
	promises []*Message
	accepted []bool
	value    Decision

	highest Ballot // highest ballot seen in this instance

	out     []Envelope
	dirty   bool
	decided *Decision
}

// NewSynod returns a node's synod, idle: it proposes as the ticks pass until the node works.
func NewSynod(config Config) (*Synod, error) {
	if config.Servers < 1 || int(config.Self) >= config.Servers {
		return nil, fmt.Errorf("recovery: server %d of %d", config.Self, config.Servers)
	}
	if config.Grace < 1 || config.Patience < 1 {
		return nil, fmt.Errorf("recovery: grace %d and patience %d have to be at least one tick", config.Grace, config.Patience)
	}
	s := &Synod{config: config, state: config.State, linked: make([]bool, config.Servers)}
	s.linked[config.Self] = true
	s.reset()
	return s, nil
}

// Quorum is the number of nodes that make a majority of the chain's members.
func (s *Synod) Quorum() int { return s.config.Servers/2 + 1 }

// Next is the generation that would be decided next, as far as this node knows.
func (s *Synod) Next() Generation {
	next := Generation(1)
	if s.state.Decided != nil {
		next = s.state.Decided.Generation + 1
	}
	return max(next, s.state.Instance)
}

// Elsewhere is the highest generation in which another node said that it works; 0 if none did since the last decision.
func (s *Synod) Elsewhere() Generation { return s.refused }

// Report tells what the node holds now. Call it before the node promises anything, and whenever the node does not work and its head changed.
func (s *Synod) Report(head Head) { s.head = head }

// Working tells that the node's engine is about to order in a generation, and Ready wants that saved before it does: from now on the node refuses to promise.
func (s *Synod) Working(generation Generation) {
	if generation < s.state.Activated || s.Frozen(generation) {
		panic(fmt.Sprintf("recovery: invariant broken: generation %d starts after %d, with a promise for %d", generation, s.state.Activated, s.state.Instance))
	}
	s.state.Activated = generation
	s.dirty = true
	s.working = generation
	s.refused, s.waiting = 0, nil
	s.reset()
}

// Idle tells that the node's engine does not work: it halted, or never started, or its group ended in order. Head is what the node holds; nothing is
// delivered here until the next decision. Regroup tells that the group of generation ended in order, so that its successor may be prepared at nodes that still work.
func (s *Synod) Idle(head Head, ended Generation) {
	s.head = head
	s.working = 0
	s.ended = max(s.ended, ended)
	s.prompt = true
	s.reset()
	if waiting := s.waiting; waiting != nil {
		s.waiting = nil
		s.Receive(waiting.from, waiting.message)
	}
}

// Linked tells whether the fabric reaches another node now. After a group ended in order, a proposer does not wait for those it does not reach.
func (s *Synod) Linked(server order.ServerID, linked bool) {
	if int(server) < len(s.linked) && server != s.config.Self {
		s.linked[server] = linked
	}
}

// Frozen tells whether this node has promised a generation later than the given one: its engine must not deliver there any more.
func (s *Synod) Frozen(generation Generation) bool {
	return s.state.Instance > generation && s.state.Promised != (Ballot{})
}

// Activated is the last generation in which this node took part, 0 for none.
func (s *Synod) Activated() Generation { return s.state.Activated }

// Decided is the latest decision that this node knows, nil for none.
func (s *Synod) Decided() *Decision { return s.state.Decided }

func (s *Synod) reset() {
	s.phase = phaseWaiting
	s.waited = 0
	s.promises = make([]*Message, s.config.Servers)
	s.accepted = make([]bool, s.config.Servers)
}

// Tick passes time: a node that does not work waits for its turn, the lowest first, and proposes.
func (s *Synod) Tick() {
	if s.working != 0 {
		return
	}
	s.waited++
	switch s.phase {
	case phaseWaiting:
		// The lowest goes first; each other waits a little longer, so that attempts do not meet.
		turn := 1 + int(s.config.Self)
		if s.highest != (Ballot{}) && s.highest.Proposer != s.config.Self && !s.prompt {
			turn += s.config.Patience + 2*s.config.Grace // that attempt may take so long
		}
		if s.refused != 0 && !s.prompt {
			turn += 4 * s.config.Patience // somebody works: following is the way, asking is to notice when that ends
		}
		if s.waited >= turn {
			s.prepare()
		}
	case phasePreparing:
		s.tryAccept()
		if s.phase == phasePreparing && s.waited > s.config.Patience+2*s.config.Grace {
			s.stepBack()
		}
	case phaseAccepting:
		if s.waited > s.config.Patience {
			s.stepBack()
		}
	}
}

// stepBack gives up the own attempt; after its turn's wait the node tries again with a higher ballot.
func (s *Synod) stepBack() {
	s.reset()
}

// prepare opens an attempt: phase 1a.
func (s *Synod) prepare() {
	generation := s.Next()
	s.enter(generation)
	s.reset()
	s.prompt = false
	s.phase = phasePreparing
	s.ballot = Ballot{Number: max(s.highest.Number, s.state.Promised.Number) + 1, Proposer: s.config.Self}
	s.broadcast(Message{Kind: KindPrepare, Generation: generation, Ballot: s.ballot, Regroup: s.ended != 0 && s.ended+1 == generation})
}

// enter moves the acceptor to a later instance; what it promised for earlier ones is settled.
func (s *Synod) enter(generation Generation) {
	if generation < s.state.Instance {
		panic(fmt.Sprintf("recovery: invariant broken: instance went back from generation %d to %d", s.state.Instance, generation))
	}
	if generation > s.state.Instance {
		s.state.Instance = generation
		s.state.Promised, s.state.Accepted, s.state.AcceptedValue = Ballot{}, Ballot{}, nil
		s.highest = Ballot{}
		s.dirty = true
	}
}

// broadcast sends to everyone; the own copy is handled at once.
func (s *Synod) broadcast(m Message) {
	for to := range s.config.Servers {
		if order.ServerID(to) != s.config.Self {
			s.send(order.ServerID(to), m)
		}
	}
	s.Receive(s.config.Self, m)
}

func (s *Synod) send(to order.ServerID, m Message) {
	if to == s.config.Self {
		s.Receive(to, m)
		return
	}
	s.out = append(s.out, Envelope{To: to, Message: m})
}

// Receive takes one message. Messages that make no sense are dropped: the sender is a member, but it may be old.
func (s *Synod) Receive(from order.ServerID, m Message) {
	if int(from) >= s.config.Servers {
		return
	}
	switch m.Kind {
	case KindPrepare:
		s.onPrepare(from, m)
	case KindPromise:
		s.onPromise(from, m)
	case KindAccept:
		s.onAccept(from, m)
	case KindAccepted:
		s.onAccepted(from, m)
	case KindDecided:
		if m.Value != nil && s.sound(*m.Value) {
			s.learn(*m.Value)
		}
	case KindRefuse:
		s.onRefuse(m)
	}
}

// sound tells whether a decision could be one of this chain's.
func (s *Synod) sound(d Decision) bool {
	if d.Generation == 0 || len(d.Members) < s.Quorum() || len(d.Members) > s.config.Servers || len(d.Disks) != len(d.Members) || d.Base.Generation >= d.Generation {
		return false
	}
	for i, member := range d.Members {
		if int(member) >= s.config.Servers || i > 0 && d.Members[i-1] >= member {
			return false
		}
	}
	return true
}

// onPrepare promises (phase 1b), unless the generation is settled, the node works, or a higher ballot was promised.
func (s *Synod) onPrepare(from order.ServerID, m Message) {
	if s.settled(from, m.Generation) {
		return
	}
	if s.working != 0 {
		inOrder := m.Regroup && m.Generation == s.working+1
		if !inOrder {
			s.send(from, Message{Kind: KindRefuse, Generation: m.Generation, Ballot: m.Ballot, Working: s.working})
			return
		}
		// The proposer saw our generation end in order: what it delivered last is the last of it. The engine has to stop before the promise is given,
		// which MustEnd tells; the promise waits until Idle.
		// Only who delivered that round itself may say so in turn: it is Idle that raises ended.
		s.waiting = &pending{from, m}
		return
	}
	s.enter(m.Generation)
	s.note(m.Ballot)
	if m.Ballot.Less(s.state.Promised) {
		s.send(from, Message{Kind: KindRefuse, Generation: m.Generation, Ballot: m.Ballot, Accepted: s.state.Promised})
		return
	}
	if m.Ballot != s.state.Promised {
		s.state.Promised = m.Ballot
		s.dirty = true
	}
	if from != s.config.Self && s.phase != phaseWaiting && s.ballot.Less(m.Ballot) {
		s.stepBack()
	} else if from != s.config.Self {
		s.waited = 0 // somebody is at it: give it time
	}
	s.send(from, Message{Kind: KindPromise, Generation: m.Generation, Ballot: m.Ballot, Head: s.head, Disk: s.state.Disk, Accepted: s.state.Accepted, Value: s.state.AcceptedValue, Known: s.state.Decided})
}

// MustEnd tells that a peer saw the generation in which this node works end in order: the node stops its engine and calls Idle, which
// gives the promise.
func (s *Synod) MustEnd() bool { return s.working != 0 && s.waiting != nil }

// settled answers about a generation that is decided already.
func (s *Synod) settled(from order.ServerID, generation Generation) bool {
	if s.state.Decided == nil || generation > s.state.Decided.Generation {
		return generation < s.state.Instance
	}
	s.send(from, Message{Kind: KindDecided, Generation: s.state.Decided.Generation, Value: s.state.Decided})
	return true
}

func (s *Synod) note(b Ballot) {
	if s.highest.Less(b) {
		s.highest = b
	}
}

func (s *Synod) onPromise(from order.ServerID, m Message) {
	if s.phase != phasePreparing || m.Generation != s.state.Instance || m.Ballot != s.ballot {
		return
	}
	s.promises[from] = &m
	s.tryAccept()
}

// tryAccept proposes (phase 2a) once everyone promised, or a quorum did and the grace for the others has passed.
func (s *Synod) tryAccept() {
	if !s.mayPropose() {
		return
	}
	s.value = s.choose()
	s.phase = phaseAccepting
	s.waited = 0
	value := s.value
	s.broadcast(Message{Kind: KindAccept, Generation: s.state.Instance, Ballot: s.ballot, Value: &value})
}

// mayPropose tells whether the promises suffice. A node that lost its disk has forgotten what it stored, so it does not count towards the quorum
// of what the last group stored.
func (s *Synod) mayPropose() bool {
	var known *Decision
	promised, missing := 0, false
	for server, promise := range s.promises {
		if promise == nil {
			missing = missing || s.linked[server]
			continue
		}
		promised++
		if promise.Known != nil && (known == nil || known.Generation < promise.Known.Generation) {
			known = promise.Known
		}
	}
	counted := promised
	for server, promise := range s.promises {
		if known != nil && promise != nil && known.lost(order.ServerID(server), promise.Disk) {
			counted--
		}
	}
	if counted < s.Quorum() {
		return false
	}
	inOrder := s.ended != 0 && s.ended+1 == s.state.Instance
	if promised == s.config.Servers || inOrder && !missing {
		return true
	}
	grace := s.config.Grace
	if known == nil {
		grace *= 2 // a chain's first start: give everyone the time to come up
	}
	return s.waited >= grace
}

// choose is the heart of Paxos: a value that may have been decided is proposed again; where there is none, the greatest head and all who promised.
func (s *Synod) choose() Decision {
	var bound *Message
	fresh := Decision{Generation: s.state.Instance}
	first := true
	for server, promise := range s.promises {
		if promise == nil {
			continue
		}
		if promise.Value != nil && (bound == nil || bound.Accepted.Less(promise.Accepted)) {
			bound = promise
		}
		if first || fresh.Base.Before(promise.Head) {
			fresh.Base = promise.Head
		}
		first = false
		fresh.Members = append(fresh.Members, order.ServerID(server))
		fresh.Disks = append(fresh.Disks, promise.Disk)
	}
	if bound != nil {
		return *bound.Value
	}
	return fresh
}

// onAccept accepts (phase 2b), unless a higher ballot was promised.
func (s *Synod) onAccept(from order.ServerID, m Message) {
	if m.Value == nil || !s.sound(*m.Value) || m.Value.Generation != m.Generation || s.settled(from, m.Generation) {
		return
	}
	if s.working != 0 {
		s.send(from, Message{Kind: KindRefuse, Generation: m.Generation, Ballot: m.Ballot, Working: s.working})
		return
	}
	s.enter(m.Generation)
	s.note(m.Ballot)
	if m.Ballot.Less(s.state.Promised) {
		s.send(from, Message{Kind: KindRefuse, Generation: m.Generation, Ballot: m.Ballot, Accepted: s.state.Promised})
		return
	}
	value := *m.Value
	s.state.Promised, s.state.Accepted, s.state.AcceptedValue = m.Ballot, m.Ballot, &value
	s.dirty = true
	if from != s.config.Self {
		s.waited = 0
	}
	s.send(from, Message{Kind: KindAccepted, Generation: m.Generation, Ballot: m.Ballot})
}

func (s *Synod) onAccepted(from order.ServerID, m Message) {
	if s.phase != phaseAccepting || m.Generation != s.state.Instance || m.Ballot != s.ballot {
		return
	}
	s.accepted[from] = true
	count := 0
	for _, accepted := range s.accepted {
		if accepted {
			count++
		}
	}
	if count < s.Quorum() {
		return
	}
	value := s.value
	s.broadcast(Message{Kind: KindDecided, Generation: value.Generation, Value: &value})
}

func (s *Synod) onRefuse(m Message) {
	if m.Working != 0 {
		s.refused = max(s.refused, m.Working)
	}
	if m.Generation == s.state.Instance {
		s.note(m.Accepted)
		if s.phase != phaseWaiting && m.Ballot == s.ballot && s.ballot.Less(m.Accepted) {
			s.stepBack()
		}
	}
}

// learn takes a decision: from the own attempt, or from whoever knows it.
func (s *Synod) learn(d Decision) {
	if s.state.Decided != nil && d.Generation <= s.state.Decided.Generation {
		if d.Generation == s.state.Decided.Generation && !d.Equal(*s.state.Decided) {
			panic(fmt.Sprintf("recovery: invariant broken: two decisions for generation %d: %v and %v", d.Generation, *s.state.Decided, d))
		}
		return
	}
	s.state.Decided = &d
	if s.state.Instance <= d.Generation {
		s.state.Instance = d.Generation
		s.state.Promised, s.state.Accepted, s.state.AcceptedValue = Ballot{}, Ballot{}, nil
		s.highest = Ballot{}
	}
	s.dirty = true
	s.refused = 0
	s.decided = &d
	s.reset()
}

// Ready returns what is to be done since the last call, and forgets it.
func (s *Synod) Ready() Ready {
	ready := Ready{MustSave: s.dirty, State: s.state, Messages: s.out, Decided: s.decided}
	s.dirty, s.out, s.decided = false, nil, nil
	return ready
}
