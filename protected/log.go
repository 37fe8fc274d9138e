package protected

import (
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// User is the machine that a log belongs to. The log calls it as it works.
type User interface {
	// Apply handles the next ordered entry. What it does follows from the entries alone, whichever
	// servers led: a leader with several entries under way can leave copies of entries behind, and
	// entries that lost their predecessor.
	Apply(entry Entry)
	// Room reports whether Apply can take one more entry now.
	Room() bool
	// Leads is called when the server begins to lead. The group's log up to End is in its own log.
	Leads()
	// StepsDown is called when the server no longer leads or stands. The user recalls what it has
	// under way as the leader.
	StepsDown()
}

// LogConfig describes a log. All servers of its group are given the same configuration, except Self
// and Note.
type LogConfig struct {
	// Name is the name of the log's region.
	Name string
	// Self is this server, Peers are the incarnations of all servers of the group, and Processes
	// are their numbers on boards.
	Self      order.ServerID
	Peers     []rdmanet.Peer
	Processes []int
	// WordExcluded is the word of a board's row by which a leader tells the board's owner that it
	// excluded it.
	WordExcluded int
	// Slots is how many entries the log holds, at least twice Window, and EntryMax how many bytes
	// an entry has at most. Window is the maximum number of entries that a leader has under way
	// before the first of them is ordered.
	Slots, EntryMax, Window int
	// Quiet is how long the last entry of a leader is unannounced.
	Quiet time.Duration
	// Note is called with the steps of the protocol, for traces. It may be nil.
	Note func(format string, arguments ...any)
	// Fault plants a bug.
	Fault Fault
}

// role is a server's role in its group.
type role uint8

const (
	following role = iota
	gathering      // asks for permissions, and reads logs: Algorithm 3 and step 4.1
	fetching       // reads the entries that its own log lacks: step 4.3
	leading
)

// The purposes of a log's posts.
const (
	postTaken   Kind = iota // reads HeadTaken
	postTrailer             // reads an entry's trailer
	postMessage             // reads an entry's bytes
	postErase               // erases an entry's mark
	postEntry               // writes an entry
)

// Log is one server's part in Protected Memory Paxos for a sequence. It is no machine of its own:
// its user polls it.
type Log struct {
	config LogConfig
	user   User
	ways   *Ways
	boards *Boards
	halted string

	held    Held // the own log
	ring    Ring
	members []*member // by server, including itself
	askers  []Asker   // the other servers, ascending

	// The fields down to scanned follow from the log. They are indexes in it.
	applied uint64 // handled in order
	horizon uint64 // all up to here is ordered, as far as this server knows
	floor   uint64 // all up to here was taken by all members that are not excluded
	scanned uint64 // read while following
	staged  staged

	role     role
	leader   order.ServerID // the server that the oracle names
	oracle   bool           // the oracle has named a server
	stamp    Timestamp      // of this server's present or last candidacy
	counter  uint64         // the highest counter seen in a ticket
	notLead  time.Duration  // it does not try to lead until then
	failures int            // failed candidacies in a row
	end      uint64         // the last entry of the log, while it leads
	told     uint64         // the entries that the last entry declares ordered
	real     uint64         // the last entry that is not a no-op
	ordered  time.Duration  // when it last put an entry into the log
	fetches  []*fetch
	missing  int // fetches that are not complete
	// all up to here is ordered, according to the logs that it read; its own log may lack entries
	// until it leads
	heard uint64
}

// NewLog returns a server's log, and gives the server rows on the boards of the other members.
// Use and Expose must follow.
func NewLog(config LogConfig, boards *Boards, user User) *Log {
	l := &Log{config: config, user: user, boards: boards,
		ring: logRing(config.Slots, config.EntryMax), held: Held{Fault: config.Fault}}
	l.staged = newStaged(l.ring)
	for server, peer := range config.Peers {
		m := &member{server: order.ServerID(server)}
		m.Peer, m.Region, m.Owner = peer, config.Name, m
		m.Process = config.Processes[server]
		l.members = append(l.members, m)
		if m.server != config.Self {
			boards.Add(m.Process, peer)
			l.askers = append(l.askers, Asker{Process: m.Process, Peer: peer})
		}
	}
	return l
}

// Use gives a new log, or a copied one, its ways.
func (l *Log) Use(ways *Ways) { l.ways = ways }

// Expose exposes the log's region.
func (l *Log) Expose(host rdmanet.RegionHost) (err error) {
	if l.held.Region, err = host.Expose(l.config.Name, l.ring.Size()); err != nil {
		return fmt.Errorf("expose the log: %w", err)
	}
	return nil
}

// Region returns the log's region, or nil before Expose.
func (l *Log) Region() rdmanet.Region { return l.held.Region }

// Ways calls each for the ways to the members' logs, always in the same order.
func (l *Log) Ways(each func(*Way)) {
	for _, m := range l.members {
		each(&m.Way)
	}
}

// Lead sets the leader of the group, as the leader oracle names it now. Only a server that is named
// tries to lead, and it keeps trying as long as it is named.
func (l *Log) Lead(server order.ServerID) { l.leader, l.oracle = server, true }

// Exclude gives up a member of the group for good: the group no longer waits for it before it
// reuses slots of the log. A member that is excluded by mistake is left behind, and halts when it
// finds out; it counts as failed. Without Exclude, a crashed member stops the group once the log
// has wrapped around.
func (l *Log) Exclude(server order.ServerID) {
	if int(server) >= len(l.members) || server == l.config.Self || l.members[server].excluded {
		return
	}
	l.exclude(l.members[server])
}

func (l *Log) exclude(m *member) {
	l.note("excludes server %d", m.server)
	m.excluded = true
	m.Retire(l.ways)
	m.known = false
	l.boards.Put(m.Process, l.config.WordExcluded, 1)
	if l.role == fetching {
		l.stepDown("a log that it may read from is excluded")
	}
}

// Halt ends the server's part for good.
func (l *Log) Halt(why string) {
	l.note("halts: %s", why)
	l.halted = why
}

// Halted returns the reason why the server takes part no more, or "".
func (l *Log) Halted() string { return l.halted }

// Leading reports whether the server has the permission of a majority and has caught up.
func (l *Log) Leading() bool { return l.role == leading }

// Applied returns the last entry that the user has handled.
func (l *Log) Applied() uint64 { return l.applied }

// Ordered returns the last entry that is known to be ordered.
func (l *Log) Ordered() uint64 { return l.horizon }

// End returns the last entry of the log. It is 0, or out of date, at a server that does not lead.
func (l *Log) End() uint64 { return l.end }

// note reports a step to Note.
func (l *Log) note(format string, arguments ...any) {
	if l.config.Note != nil {
		l.config.Note(format, arguments...)
	}
}

// Answer answers the members' requests on the board [TRAM, Algorithm 2, step 2.7]. It reports
// whether there were any, and whether the log halts because of one.
func (l *Log) Answer() (busy, halts bool) {
	for i := range l.askers {
		a := &l.askers[i]
		if asked, has := l.boards.Asked(a); has {
			busy = true
			l.answerOne(a, asked)
			if l.halted != "" {
				return true, true
			}
		}
		if l.boards.Load(a.Process, l.config.WordExcluded) != 0 {
			l.Halt(fmt.Sprintf("server %d, which leads, excluded this replica", l.serverOf(a)))
			return true, true
		}
	}
	return busy, false
}

// serverOf returns the server that asks.
func (l *Log) serverOf(a *Asker) order.ServerID {
	return order.ServerID(slices.Index(l.config.Processes, a.Process))
}

func (l *Log) answerOne(a *Asker, asked Ticket) {
	l.counter = max(l.counter, asked.Timestamp().Counter())
	if asked > l.held.Granted || l.config.Fault == FaultNoPermissionCheck {
		l.stepDown("another asks for the log")
		if !l.Pass(&l.held, a.Peer) {
			return
		}
		l.note("grants its log to server %d", l.serverOf(a))
		l.held.Granted, l.scanned = asked, l.applied
	}
	l.boards.Answer(a, asked, l.held.Granted)
}

// Pass gives a region of this server to a peer, or to none. It reports whether it succeeded. The
// log halts if it did not.
func (l *Log) Pass(held *Held, peer rdmanet.Peer) bool {
	err := held.Pass(peer)
	if err != nil {
		l.Halt(err.Error())
	}
	return err == nil
}

// Ask moves a petition of a leader, or of a server that stands, on until it is granted. The user
// asks so for what only the leader of this group may write. Ask reports whether there was anything
// to do. The server may not lead any more after it.
func (l *Log) Ask(p *Petition) bool {
	outcome, by := p.Ask(l.ways, l.boards, l.stamp)
	switch outcome {
	case Refused: // that process has seen a later leader
		l.note("is refused by process %d", p.Process)
		l.counter = max(l.counter, by.Timestamp().Counter())
		l.stepDown("a later leader was granted permissions")
	case Exhausted:
		l.stepDown("asked too often under one timestamp")
	}
	return outcome != Waiting
}

// Work reads what the leader wrote, or moves this server towards leading, or finds out which
// entries are ordered. It reports whether there was anything to do.
func (l *Log) Work() bool {
	busy := false
	if l.role == following {
		busy = l.scan()
	}
	busy = l.campaign() || busy
	if l.role == leading {
		l.decide()
	}
	return busy
}

// Answered handles the driver's answer to the want for a way of the log. It reports whether it was
// one.
func (l *Log) Answered(way *Way, err error) bool {
	m, is := way.Owner.(*member)
	switch {
	case !is:
	case err != nil:
		l.loseMember(m)
	default:
		l.readMember(m)
	}
	return is
}

// Completed handles the completion of a post of the log. It reports whether it was one.
func (l *Log) Completed(p Post, err error) bool {
	m, is := p.Way.Owner.(*member)
	if is {
		l.memberCompleted(m, p, err)
	}
	return is
}

// stepDown makes the server follow, if it does not already. It recalls its operations under way as
// far as possible.
func (l *Log) stepDown(why string) {
	if l.role == following {
		return
	}
	l.note("steps down: %s", why)
	l.role = following
	l.scanned = l.applied
	l.fetches, l.missing = nil, 0
	for _, m := range l.members {
		m.Retire(l.ways)
	}
	l.user.StepsDown()
	l.notLead = l.ways.Now() + l.ways.Patience(l.failures)
	l.failures++
}

// Detach gives up the ways to the members' logs.
func (l *Log) Detach() {
	for _, m := range l.members {
		l.ways.Detach(&m.Way)
	}
}

// LogStatus is a server's view of the log, for people and for metrics.
type LogStatus struct {
	// Leading reports that the server has the permission of a majority and has caught up.
	Leading bool
	// Leader is the server to whose timestamp this server last granted its log.
	Leader order.ServerID
	// Applied is the last entry of the log that it handled, Ordered the last one that it knows to
	// be ordered, End the last one of the log, if it leads.
	Applied, Ordered, End uint64
	// Taken is the last entry that all members except the excluded ones have taken, as far as it
	// knows.
	Taken uint64
	// Excluded are the members that were given up, ascending.
	Excluded []order.ServerID
	// Halted is the reason why it takes part no more, "" while it does.
	Halted string
}

// Status describes the log. It allocates, so do not call it in the hot path.
func (l *Log) Status() LogStatus {
	s := LogStatus{Leading: l.role == leading, Leader: l.held.Granted.Timestamp().Server(),
		Applied: l.applied, Ordered: l.horizon, Taken: l.floor, Halted: l.halted}
	if s.Leading {
		s.End = l.end
	}
	for _, m := range l.members {
		if m.excluded {
			s.Excluded = append(s.Excluded, m.server)
		}
	}
	return s
}

// String describes the log's state in one line.
func (l *Log) String() string {
	names := [...]string{"follows", "gathers permissions", "fetches entries", "leads"}
	s := l.Status()
	text := fmt.Sprintf("%s, granted its log to %d, oracle says %d; applied %d, ordered %d, end "+
		"%d, taken by all %d; %d operations", names[l.role], s.Leader, l.leader, s.Applied,
		s.Ordered, s.End, s.Taken, l.ways.Outstanding())
	for _, m := range l.members {
		if l.role != following && m.server != l.config.Self {
			text += fmt.Sprintf("; member %d %s, acked %d, took %d", m.server, m.Petition.String(),
				m.acked, m.taken)
		}
	}
	return text
}
