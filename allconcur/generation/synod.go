package generation

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// ErrConfig says that a Config describes no synod.
var ErrConfig = errors.New("generation: wrong configuration")

// ErrTwoDecisions says that two decisions for one generation are about: disks that hold promises were exchanged or edited, or there is a bug.
var ErrTwoDecisions = errors.New("generation: two decisions for one generation")

// Config sets up a synod. Ticks are the driver's; a tenth of a second each is usual.
type Config struct {
	Self order.ServerID
	// State is what the disk holds; the zero value but for Disk on a new node.
	State State
	// Original reports that the disk was made together with the member, by the command that made its
	// home, and not in place of another disk that was lost or is not to be trusted.
	Original bool
	// Report is what the node holds at the start; see Synod.Report.
	Report Report
	// Grace is how many ticks a proposer with enough promises waits for the others, so that they are members too.
	Grace int
	// Patience is how many ticks a proposer waits for enough promises before it tries a higher ballot, and a stalled node before it leaves its group.
	Patience int
	// Fault plants a bug; production leaves it FaultNone.
	Fault Fault
}

type phase uint8

const (
	phaseWaiting   phase = iota // for somebody else's decision, or for the turn to propose
	phasePreparing              // own Prepare is out
	phaseAccepting              // own Accept is out
)

// acceptance is what one server said in phase 2b.
type acceptance struct {
	server   order.ServerID
	disk     DiskID
	original bool
}

type pending struct {
	from    order.ServerID
	message Message
	// over says that the node that promised began a new process since. The promise holds, but what it
	// tells of the disk and the memory may be so no more.
	over bool
}

// Synod is one node's part in deciding generations: acceptor always, proposer when its turn comes. It is a pure state machine; see the package comment.
type Synod struct {
	config Config
	state  State

	report     Report
	followed   Generation  // what the driver says that the head is of
	empty      order.Round // of the generation in which this node worked, and counted in report
	votes      []Vote      // of the engine that stopped last, as long as this process lives
	seen       []KnownVote // those of others that it saw
	remembers  bool        // this very process took part in state.Activated
	working    Run         // in which the node's engine works; 0: none
	stalled    bool        // the engine works, but gets nowhere
	givingUp   bool        // it did so for too long
	ended      Generation  // the generation that this node saw end in order; its successor may be prepared past working nodes
	waiting    *pending    // a Prepare that ends our engine; it is answered when that has stopped
	accepting  *pending    // an Accept whose contents are not all here yet
	holders    []order.ServerID
	held       map[[32]byte]bool
	askedFor   [][32]byte
	askedSince int
	linked     map[order.ServerID]bool
	refused    Generation // the highest generation in which somebody said that it works

	prompt   bool // the engine has just stopped: whoever was proposing before did so for a group that still worked
	phase    phase
	ballot   Ballot // of the own attempt
	waited   int    // ticks in this phase
	asked    []order.ServerID
	promises []pending // by server
	surveyed survey    // of the own attempt: a majority of each of its memberships has to accept, too
	accepted []acceptance
	value    Decision
	waitsFor Waiting // what the last own attempt was missing

	highest Ballot // highest ballot seen in this instance

	out     []Envelope
	dirty   bool
	decided *Decision
	broken  error
}

// NewSynod returns a node's synod, idle: it proposes as the ticks pass until the node works. It reports ErrConfig.
func NewSynod(config Config) (*Synod, error) {
	if config.Grace < 1 || config.Patience < 1 {
		return nil, fmt.Errorf("%w: grace %d and patience %d have to be at least one tick", ErrConfig,
			config.Grace, config.Patience)
	}
	if !config.Report.Membership.sound() {
		return nil, fmt.Errorf("%w: the members are not in order, or not each has a disk", ErrConfig)
	}
	s := &Synod{config: config, state: config.State, held: map[[32]byte]bool{}, linked: map[order.ServerID]bool{}}
	s.Report(config.Report)
	s.reset()
	return s, nil
}

// Next is the generation that would be decided next, as far as this node knows.
func (s *Synod) Next() Generation {
	if s.state.Decided == nil {
		return 1
	}
	return s.state.Decided.Generation + 1
}

// Elsewhere is the highest generation in which another node said that it works; 0 if none did since the last decision.
func (s *Synod) Elsewhere() Generation { return s.refused }

// Err is not nil once what this node heard cannot be: it matches ErrTwoDecisions. The synod does nothing more.
func (s *Synod) Err() error { return s.broken }

// Report tells what the node holds now: Head, Empty, Membership, Former, Durable, Perhaps and PerhapsTo.
// The synod does not look at the rest: it knows Disk, Original, Run, Restarted and Shard, and has the
// votes from Idle. What a node reports has to be on its disk, executed and synced: others will build
// upon it after this node crashed. Call it before the node promises anything, and whenever these
// changed while the node does not work.
func (s *Synod) Report(report Report) {
	report.Disk, report.Original = s.state.Disk, s.config.Original
	report.Votes, report.Known = s.votes, s.seen
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

// Learner reports whether this node's disk counts in no majority, as far as the node's chain tells.
// A learner follows and promises, but others do not count on it, and it does not propose.
func (s *Synod) Learner() bool {
	return !countsUnder(s.report.Membership, s.config.Self, s.state.Disk, s.config.Original, s.state.Decided)
}

// label says of which generation the head is: of one that this node took part in, or that it followed
// and knows the decision of. Without that it could be asked to promise for a generation that its own
// head is of; the blocks are as good under an older name, since that generation is decided, and
// begins where it begins. A head below the start of the node's last run, after a crash that damaged
// the disk, is of the chain that this run went on from. In a generation that this node only followed,
// the head's round is that of its last block, or of the base that it holds. The next generation would
// leave out blocks of others if it was said to be later.
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
	head.Round -= s.empty
	s.empty = 0
	if d := s.state.Decided; d.Generation == label && head.Height >= d.Base.Height {
		head.Round = max(head.Round, d.Base.Round)
	}
}

// Working tells that the node's engine is about to order in a run, the first of a generation or a further eon, and that majorities are those of shard. Ready wants that saved
// before the engine starts: from now on the node refuses to promise. It panics for a run that is Frozen, or of a
// generation of which this node does not know the decision: these would be bugs of the driver. Who enters a generation in a later eon gets to know its decision as everyone does, by the ticks: whoever knows
// it answers. It has to wait for that, since all who know it might fail then.
func (s *Synod) Working(run Run, shard Membership) {
	if run < s.state.Activated || s.Frozen(run) {
		panic(fmt.Sprintf("generation: invariant broken: run %d of generation %d starts after run %d, with a promise for generation %d", run, run.Generation(), s.state.Activated, s.state.Instance))
	}
	if s.state.Decided == nil || s.state.Decided.Generation < run.Generation() {
		panic(fmt.Sprintf("generation: invariant broken: run %d of generation %d starts, and its decision is not known", run, run.Generation()))
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
	s.votes, s.seen = nil, nil
	report := s.report
	report.Head.Generation, report.Empty = max(s.followed, run.Generation()), s.empty
	s.Report(report)
	s.reset()
}

// Idle tells that the node's engine does not work: it halted, was frozen, never started, or its group
// ended in order. The report's Votes and Known are those of the engine that was stopped; the synod
// keeps them for as long as they matter. Nothing is delivered here until the next decision. Ended is
// the generation, if it ended in order, so that its successor may be prepared at nodes that still
// work; else 0.
func (s *Synod) Idle(report Report, ended Generation) {
	s.working, s.stalled, s.givingUp = 0, false, false
	s.ended = max(s.ended, ended)
	if s.remembers && len(report.Votes) > 0 {
		s.votes = slices.Clone(report.Votes)
	}
	if s.remembers && len(report.Known) > 0 {
		s.seen = slices.Clone(report.Known)
	}
	s.Report(report)
	s.prompt = true
	s.reset()
	if waiting := s.waiting; waiting != nil {
		s.waiting = nil
		s.Receive(waiting.from, waiting.message)
	}
}

// Stalled tells whether the engine that works has made no progress for longer than the driver thinks right, its own message being out: then the node may be asked to leave its
// group, or leaves it after a while (MustEnd). False takes that back.
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

// MustEnd tells that the node has to stop its engine and to call Idle, which gives the promise that is asked for: a peer saw the generation end in order, or the
// engine stalls and a peer wants to start anew, or it stalls for too long.
func (s *Synod) MustEnd() bool { return s.working != 0 && (s.waiting != nil || s.givingUp) }

// Linked reports whether another node can be reached now, and can take part. A proposer that needs
// servers which restarted waits for reachable ones that did not, for as long as there are any; and
// after a group ended in order, it does not wait for those that cannot be reached.
func (s *Synod) Linked(server order.ServerID, linked bool) { s.linked[server] = linked }

// Frozen tells whether this node has promised a generation later than the run's, or knows that one was decided: its engine must not go on.
func (s *Synod) Frozen(run Run) bool {
	generation := run.Generation()
	if s.config.Fault == FaultPromiseDoesNotFreeze {
		return false
	}
	return s.state.Decided != nil && s.state.Decided.Generation > generation || s.state.Instance > generation && s.state.Promised != (Ballot{})
}

// Activated is the last run in which this node took part, 0 for none.
func (s *Synod) Activated() Run { return s.state.Activated }

// Decided is the latest decision that this node knows, nil for none.
func (s *Synod) Decided() *Decision { return s.state.Decided }

// Holds tells that something that Ready asked to fetch is on this node's disk now: Fetch.ID.
func (s *Synod) Holds(id [32]byte) {
	s.held[id] = true
	if s.accepting != nil && s.holdsAll(*s.accepting.message.Value) {
		accept := s.accepting
		s.accepting = nil
		s.onAccept(accept.from, accept.message)
	}
}

// holdsBase reports whether the blocks up to a base are here: it is the head, or the head is further
// in the chain of the same generation, or they were fetched. Another block that is as high is of
// another branch.
func (s *Synod) holdsBase(base Head) bool {
	head := s.report.Head
	same := head.Generation == base.Generation || s.config.Fault == FaultBaseWithoutGeneration
	return head.Hash == base.Hash && head.Height == base.Height || same && head.Height > base.Height ||
		s.held[base.Hash]
}

func (s *Synod) holdsAll(d Decision) bool {
	return s.holdsBase(d.Base) && !slices.ContainsFunc(d.Tail, func(r TailRound) bool { return !s.held[r.Content] })
}

// Wanted lists what this node needs on its disk, to accept a value or to take part in the generation that was decided. Ready gives the same now and then.
func (s *Synod) Wanted() []Fetch {
	var d *Decision
	from := s.holders
	switch {
	case s.accepting != nil:
		d, from = s.accepting.message.Value, s.accepting.message.Holders
	case s.state.Decided != nil && s.working == 0 && s.state.Decided.Generation > s.state.Activated.Generation() &&
		s.state.Decided.Seats(s.config.Self, s.state.Disk):
		d = s.state.Decided
	default:
		return nil
	}
	var servers []order.ServerID // each once
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
	news := slices.ContainsFunc(ids, func(id [32]byte) bool { return !slices.Contains(s.askedFor, id) })
	if len(wanted) > 0 && (news || s.askedSince >= s.config.Patience) {
		ready.Fetch, s.askedSince = wanted, 0
	}
	s.askedFor = ids
	return ready
}

// learn takes a decision: from the own attempt, or from whoever knows it.
func (s *Synod) learn(d Decision, holders []order.ServerID) {
	if s.state.Decided != nil && d.Generation <= s.state.Decided.Generation {
		if d.Generation == s.state.Decided.Generation && !d.Equal(*s.state.Decided) {
			s.broken = fmt.Errorf("%w: generation %d, from block %d and from block %d", ErrTwoDecisions, d.Generation, s.state.Decided.Base.Height, d.Base.Height)
		}
		return
	}
	s.state.Decided = &d
	s.label()
	s.holders = slices.Clone(holders)
	if s.state.Instance <= d.Generation {
		s.state.Instance = d.Generation
		s.state.Promised, s.state.Accepted, s.state.AcceptedValue = Ballot{}, Ballot{}, nil
		s.highest = Ballot{}
		s.accepting = nil
	}
	for id := range s.held { // of the contents held, only this decision's are of use
		if !slices.ContainsFunc(d.Tail, func(r TailRound) bool { return r.Content == id }) && id != d.Base.Hash {
			delete(s.held, id)
		}
	}
	s.dirty = true
	s.refused, s.waitsFor = 0, Waiting{}
	s.decided = &d
	s.reset()
}
