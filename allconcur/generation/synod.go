package generation

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// ErrConfig says that a Config is not valid.
var ErrConfig = errors.New("generation: wrong configuration")

// ErrTwoDecisions says that there are two decisions for one generation, according to more members
// than may fail. Disks that hold promises were exchanged or edited, these members lie, or there is
// a bug.
var ErrTwoDecisions = errors.New("generation: two decisions for one generation")

// Config sets up a synod. Ticks are the driver's, usually a tenth of a second each.
type Config struct {
	Self order.ServerID
	// State is what the disk holds. On a new node it is the zero value except for Disk.
	State State
	// Original says that the disk was made together with the member, by the command that made its
	// home, and not to replace a disk that was lost or is not to be trusted.
	Original bool
	// Report is what the node holds at the start; see Synod.Report.
	Report Report
	// Grace is how many ticks a proposer with enough promises waits for the others, so that they
	// become members too.
	Grace int
	// Patience is how many ticks a proposer waits for enough promises before it tries a higher
	// ballot, and how many a stalled node waits before it leaves its group.
	Patience int
	// Fault plants a bug; production leaves it FaultNone.
	Fault Fault
}

type phase uint8

const (
	phaseWaiting   phase = iota // for another proposer's decision, or for the turn to propose
	phasePreparing              // own Prepare is out
	phaseAccepting              // own Accept is out
)

// acceptance is one server's answer in phase 2b.
type acceptance struct {
	server   order.ServerID
	disk     DiskID
	original bool
}

type pending struct {
	from    order.ServerID
	message Message
	// over says that the node that promised has begun a new process since. The promise holds, but
	// what it says of the disk and the memory may no longer be true.
	over bool
}

// Synod is one node's part in deciding generations. It is always an acceptor, and a proposer when
// its turn comes. It is a pure state machine; see the package comment.
type Synod struct {
	config Config
	state  State

	report Report
	// followed is the generation of the head, according to the driver.
	followed Generation
	// empty are the empty rounds of the generation in which this node worked, counted in report.
	empty order.Round
	// votes are those of the engine that stopped last, as long as this process lives.
	votes []Vote
	// votesBound is that of this engine, and logEnd the end of its log.
	votesBound Bound
	logEnd     LogEnd
	// seen are votes of other servers that this engine saw, vouched the rounds that it held.
	seen    []KnownVote
	vouched []TailRound
	// remembers says that this very process took part in state.Activated.
	remembers bool
	// working is the run in which the node's engine works; 0 for none.
	working Run
	// stalled says that the engine works but makes no progress, givingUp that it has done so for
	// too long.
	stalled  bool
	givingUp bool
	// stuck is the generation in which the engine was stuck when it worked last, 0 for none.
	stuck Generation
	// ended is the generation that this node saw end in order. Its successor may be prepared at
	// nodes that still work.
	ended Generation
	// waiting is a Prepare that ends the own engine. It is answered when the engine has stopped.
	waiting *pending
	// accepting is an Accept whose contents are not all here yet.
	accepting  *pending
	holders    []order.ServerID
	held       map[[32]byte]bool
	askedFor   [][32]byte
	askedSince int
	linked     map[order.ServerID]bool
	// refused is the highest generation in which another node said that it works.
	refused Generation

	// prompt says that the engine has just stopped. An earlier proposer had proposed for a group
	// that still worked, so this node need not wait for it.
	prompt bool
	phase  phase
	// ballot is that of the own attempt.
	ballot Ballot
	// waited is the number of ticks in this phase.
	waited int
	asked  []order.ServerID
	// promises are ascending by server.
	promises []pending
	// surveyed is the survey of the own attempt. A majority of each of its memberships has to
	// accept, too.
	surveyed survey
	accepted []acceptance
	value    Decision
	// waitsFor is what the last own attempt lacked.
	waitsFor Waiting

	// stated is what other servers last stated of the generation of state.Decided, and counted says
	// that this process counted the acceptances of that decision itself.
	stated  []statement
	counted bool

	// highest is the highest ballot seen in this instance.
	highest Ballot

	out     []Envelope
	dirty   bool
	decided *Decision
	broken  error
}

// NewSynod returns a node's synod. It is idle: as ticks pass, it proposes until the node works.
// NewSynod returns ErrConfig if the configuration is wrong.
func NewSynod(config Config) (*Synod, error) {
	if config.Grace < 1 || config.Patience < 1 {
		return nil, fmt.Errorf("%w: grace %d and patience %d have to be at least one tick",
			ErrConfig, config.Grace, config.Patience)
	}
	if !config.Report.Membership.sound() {
		return nil, fmt.Errorf("%w: the members are not in order, or not every one has a disk",
			ErrConfig)
	}
	s := &Synod{config: config, state: config.State, held: map[[32]byte]bool{},
		linked: map[order.ServerID]bool{}}
	s.Report(config.Report)
	s.reset()
	return s, nil
}

// Next returns the generation that would be decided next, as far as this node knows.
func (s *Synod) Next() Generation {
	if s.state.Decided == nil {
		return 1
	}
	return s.state.Decided.Generation + 1
}

// Elsewhere returns the highest generation in which another node said that it works; 0 if none did
// since the last decision.
func (s *Synod) Elsewhere() Generation { return s.refused }

// Err returns an error that matches ErrTwoDecisions once the node received what cannot be. The
// synod then does nothing more.
func (s *Synod) Err() error { return s.broken }

// Report sets what the node holds now: Head, Empty, Membership, Former, Durable, Perhaps, PerhapsTo
// and Recorded. The synod ignores the other fields: it knows Disk, Original, Run, Restarted and
// Shard, and has the votes from Idle. What a node reports has to be executed and synced to its
// disk: others build on it even after this node crashed. Call Report before the node promises
// anything, and whenever these fields change while the node does not work.
func (s *Synod) Report(report Report) {
	report.Disk, report.Original = s.state.Disk, s.config.Original
	report.Bound, report.Votes, report.Last = s.votesBound, s.votes, s.logEnd
	report.Known, report.Vouched = s.seen, s.vouched
	report.Run, report.Restarted = s.state.Activated, s.state.Activated != 0 && !s.remembers
	report.Shard = s.state.Shard
	if s.state.Activated == 0 {
		report.Shard = report.Membership
	}
	s.followed, s.empty = report.Head.Generation, report.Empty
	report.Empty = 0
	s.report = report
	s.label()
}

// Learner reports whether this node's disk counts in no majority, according to the node's own chain
// and the latest decision. A learner follows and promises, but others do not count on it, and it
// does not propose.
func (s *Synod) Learner() bool {
	return !countsUnder(s.report.Membership, s.config.Self, s.state.Disk, s.config.Original,
		s.state.Decided)
}

// label sets the generation of the head: a generation that this node took part in, or one that it
// followed and knows the decision of. Without this limit it could be asked to promise for a
// generation that its own head belongs to. The blocks are as good under an older label, since that
// generation is decided and its start is fixed.
//
// If a crash damaged the disk, the head may be below the start of the node's last run. It is then
// of the chain that this run went on from. In a generation that this node only followed, the head's
// round is that of its last block, or of the base that it holds. If it were labelled later, the
// next generation would leave out blocks of others.
func (s *Synod) label() {
	label := s.state.Activated.Generation()
	if s.report.Head.Height < s.state.Start.Height {
		label = min(label, s.state.Start.Generation)
	}
	if s.state.Decided != nil {
		label = max(label, min(s.followed, s.state.Decided.Generation))
	}
	head := &s.report.Head
	if head.Generation = label; label <= s.state.Activated.Generation() {
		return
	}
	s.report.Recorded = nil // what it recorded is of an older generation than its head
	head.Round -= s.empty
	s.empty = 0
	if d := s.state.Decided; d.Generation == label && head.Height >= d.Base.Height {
		head.Round = max(head.Round, d.Base.Round)
	}
}

// Working says that the node's engine is about to order in a run, the first of a generation or a
// further eon, and that shard's majorities count. Ready asks to save this before the engine starts.
// From now on the node refuses to promise.
//
// Working panics for a run that is Frozen, or of a generation whose decision this node does not
// know. Both would be bugs of the driver. A node that enters a generation in a later eon learns its
// decision as all nodes do, by ticks: any node that knows it answers. It has to wait for that,
// because all nodes that know the decision might fail once it works.
func (s *Synod) Working(run Run, shard Membership) {
	if run < s.state.Activated || s.Frozen(run) {
		panic(fmt.Sprintf("generation: invariant broken: run %d of generation %d starts after "+
			"run %d, with a promise for generation %d", run, run.Generation(), s.state.Activated,
			s.state.Instance))
	}
	if s.state.Decided == nil || s.state.Decided.Generation < run.Generation() {
		panic(fmt.Sprintf("generation: invariant broken: run %d of generation %d starts, and "+
			"its decision is not known", run, run.Generation()))
	}
	s.state.Activated, s.state.Shard, s.state.Start = run, shard, s.report.Head
	s.state.Start.Generation = run.Generation()
	if run.Eon() == 0 {
		s.state.Start.Generation = s.state.Decided.Base.Generation
	}
	s.remembers = true
	s.dirty = true
	s.working = run
	s.refused, s.waiting, s.stalled, s.givingUp, s.waitsFor = 0, nil, false, false, Waiting{}
	s.stuck = 0
	s.votesBound, s.logEnd, s.votes, s.seen, s.vouched = 0, LogEnd{}, nil, nil, nil
	report := s.report
	report.Recorded = nil // it is of an earlier run
	report.Head.Generation, report.Empty = max(s.followed, run.Generation()), s.empty
	s.Report(report)
	s.reset()
}

// Idle says that the node's engine does not work: it halted, was frozen, never started, or its
// group ended in order. The report's Bound, Votes, Last, Known and Vouched are those of the engine
// that was stopped. The synod keeps them for as long as they matter. The node delivers nothing
// until the next decision. Ended is the generation if it ended in order, so that its successor may
// be prepared at nodes that still work; otherwise 0.
func (s *Synod) Idle(report Report, ended Generation) {
	s.working, s.stalled, s.givingUp = 0, false, false
	s.ended = max(s.ended, ended)
	if s.remembers && (len(report.Votes) > 0 || report.Bound.Log()) {
		s.votesBound, s.logEnd = report.Bound, report.Last
		s.votes = slices.Clone(report.Votes)
	}
	if s.remembers && len(report.Known) > 0 {
		s.seen = slices.Clone(report.Known)
	}
	if s.remembers && len(report.Vouched) > 0 {
		s.vouched = slices.Clone(report.Vouched)
	}
	s.Report(report)
	s.prompt = true
	s.reset()
	if waiting := s.waiting; waiting != nil {
		s.waiting = nil
		s.Receive(waiting.from, waiting.message)
	}
}

// Stalled says whether the working engine has made no progress for longer than the driver allows,
// with its own message sent. If so, the node may be asked to leave its group, and leaves it by
// itself after a while (MustEnd). False withdraws that.
func (s *Synod) Stalled(stalled bool) {
	if s.working == 0 || s.stalled == stalled {
		return
	}
	s.stalled, s.waited = stalled, 0
	if !stalled {
		s.givingUp = false
		if s.waiting != nil && !s.waiting.message.Regroup {
			s.waiting = nil
		}
	}
}

// Stuck says whether the working engine does not go on without servers that the failure detector
// suspects, as a ring does not. It goes with Stalled. The node then waits for nothing before it
// leaves its group, and for no server that cannot be reached before the next one is formed.
func (s *Synod) Stuck(stuck bool) {
	switch {
	case s.working == 0:
	case stuck:
		s.stuck = s.working.Generation()
	default:
		s.stuck = 0
	}
}

// MustEnd reports whether the node has to stop its engine and call Idle, which then gives the
// promise that was asked for. That is so if a peer saw the generation end in order, if the engine
// stalls and a peer wants to start anew, or if the engine has stalled for too long.
func (s *Synod) MustEnd() bool { return s.working != 0 && (s.waiting != nil || s.givingUp) }

// Linked sets whether another node can be reached now and can take part. A proposer that needs
// servers that restarted waits as long as it can reach servers that did not. After a group ended in
// order, or was stuck, it does not wait for servers that cannot be reached.
func (s *Synod) Linked(server order.ServerID, linked bool) {
	if s.linked[server] = linked; !linked {
		s.unsay(server)
	}
}

// Frozen reports whether this node has promised a generation later than the run's, or knows that
// one was decided. Its engine must not go on.
func (s *Synod) Frozen(run Run) bool {
	generation := run.Generation()
	if s.config.Fault == FaultPromiseDoesNotFreeze {
		return false
	}
	return s.state.Decided != nil && s.state.Decided.Generation > generation ||
		s.state.Instance > generation && s.state.Promised != (Ballot{})
}

// Activated returns the last run in which this node took part, 0 for none.
func (s *Synod) Activated() Run { return s.state.Activated }

// Decided returns the latest decision that this node knows, nil for none.
func (s *Synod) Decided() *Decision { return s.state.Decided }

// Holds says that something that Ready asked to fetch is now on this node's disk. The argument is
// Fetch.ID.
func (s *Synod) Holds(id [32]byte) {
	s.held[id] = true
	if s.accepting != nil && s.holdsAll(*s.accepting.message.Value) {
		accept := s.accepting
		s.accepting = nil
		s.onAccept(accept.from, accept.message)
	}
}

// Lacks says that what Holds said of a base is no longer so: its blocks are being set aside.
func (s *Synod) Lacks(id [32]byte) { delete(s.held, id) }

// holdsBase reports whether the blocks up to a base are here: the base is the head, or the head is
// further in the chain of the same generation, or the blocks were fetched. Another block at the
// same height is of another branch.
func (s *Synod) holdsBase(base Head) bool {
	head := s.report.Head
	same := head.Generation == base.Generation || s.config.Fault == FaultBaseWithoutGeneration
	return head.Hash == base.Hash && head.Height == base.Height || same &&
		head.Height > base.Height ||
		s.held[base.Hash]
}

func (s *Synod) holdsAll(d Decision) bool {
	return s.holdsBase(d.Base) && !slices.ContainsFunc(d.Tail, func(r TailRound) bool {
		return !s.held[r.Content]
	})
}

// Wanted lists what this node needs on its disk to accept a value, or to take part in the decided
// generation. Ready returns the same from time to time.
func (s *Synod) Wanted() []Fetch {
	var d *Decision
	from := s.holders
	switch {
	case s.accepting != nil:
		d, from = s.accepting.message.Value, s.accepting.message.Holders
	case s.state.Decided != nil && s.working == 0 &&
		s.state.Decided.Generation > s.state.Activated.Generation() &&
		s.state.Decided.Seats(s.config.Self, s.state.Disk):
		d = s.state.Decided
	default:
		return nil
	}
	var servers []order.ServerID // without duplicates
	for _, server := range append(slices.Clone(from), d.Members...) {
		if !slices.Contains(servers, server) {
			servers = append(servers, server)
		}
	}
	var wanted []Fetch
	if !s.holdsBase(d.Base) {
		base := d.Base
		wanted = append(wanted, Fetch{Base: &base, From: servers})
	}
	for i := range d.Tail {
		if !s.held[d.Tail[i].Content] {
			round := d.Tail[i]
			wanted = append(wanted, Fetch{Tail: &round, From: servers})
		}
	}
	return wanted
}

// Ready returns what is to be done since the last call, and forgets it.
func (s *Synod) Ready() Ready {
	ready := Ready{MustSave: s.dirty, State: s.state, Messages: s.out, Decided: s.decided}
	if s.config.Fault == FaultPromiseNotPersisted {
		ready.State.Promised = Ballot{}
	}
	s.dirty, s.out, s.decided = false, nil, nil
	wanted := s.Wanted()
	var ids [][32]byte
	for _, w := range wanted {
		ids = append(ids, w.ID())
	}
	news := slices.ContainsFunc(ids, func(id [32]byte) bool {
		return !slices.Contains(s.askedFor, id)
	})
	if len(wanted) > 0 && (news || s.askedSince >= s.config.Patience) {
		ready.Fetch, s.askedSince = wanted, 0
	}
	s.askedFor = ids
	return ready
}

// learn takes a decision of a generation whose decision this node does not know: from the own
// attempt, or from any server that knows it.
func (s *Synod) learn(d Decision, holders []order.ServerID) {
	s.stated, s.counted = slices.DeleteFunc(slices.Clone(s.stated), func(said statement) bool {
		return said.decision.Generation != d.Generation
	}), false
	s.state.Decided = &d
	s.label()
	s.holders = slices.Clone(holders)
	if s.state.Instance <= d.Generation {
		s.state.Instance = d.Generation
		s.state.Promised, s.state.Accepted, s.state.AcceptedValue = Ballot{}, Ballot{}, nil
		s.highest = Ballot{}
		s.accepting = nil
	}
	// Of the contents held, only this decision's are of use.
	for id := range s.held {
		if !slices.ContainsFunc(d.Tail, func(r TailRound) bool {
			return r.Content == id
		}) && id != d.Base.Hash {
			delete(s.held, id)
		}
	}
	s.dirty = true
	s.refused, s.waitsFor = 0, Waiting{}
	s.decided = &d
	s.reset()
}
