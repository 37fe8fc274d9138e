package dare

import (
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// none stands for no server.
const none = -1

// role is what a server does in its term.
type role uint8

const (
	following role = iota
	voting         // it copies its vote before it answers
	campaigning
	leading
)

// String returns the role in a word.
func (r role) String() string {
	return [...]string{"follows", "votes", "campaigns", "leads"}[r]
}

// Server is one server of a group. It is a protected.Machine. No two methods may be called at the
// same time.
type Server struct {
	config Config
	self   int
	me     rdmanet.Peer
	layout layout
	halted string
	closed bool
	// removed says that it halted because an entry removed it.
	removed bool

	ways   *protected.Ways
	boards *protected.Boards // the control data
	offers *protected.Boards // the tickets of the rings of proposals
	all    []*protected.Way  // by place
	links  []rdmanet.Peer    // by seat: with whom this server shares memory

	// The configuration of the last entry that was applied, and those behind it in the log. sought
	// is how far the log was looked through. learned is a committed one, read from another server.
	configs []placed
	sought  sought
	learned placed
	view    rdmanet.Region // the snapshot
	sources []*source      // by seat
	// recovery is nil once the server takes part. joined is the first round of one that recovered
	// from another.
	recovery *recovery
	joined   order.Round
	from     int

	// The own log, and who may write it.
	held   protected.Held
	askers []protected.Asker
	commit uint64 // the greatest index known to be committed
	// applied is the last entry that was A-delivered, rounds the number of those with messages,
	// seated the seats in the last of them, and numbers the last message of each seat up to there.
	applied   uint64
	rounds    uint64
	seated    uint64
	numbers   []uint64
	delivered []order.Delivery
	handed    []order.Delivery
	// ended says that the last round of the run was A-delivered. It took out without, unless that
	// is none.
	ended   bool
	without int

	// Elections.
	role      role
	term      uint64
	leader    int // whom this server follows, or none
	candidate int // whom it votes for
	beats     []uint64
	looked    uint64 // the leader's heartbeat at the last look
	deadline  time.Duration
	timeout   time.Duration

	// A leader's.
	members  []*member
	own      uint64        // the first entry with its stamp
	noop     bool          // it has to append an entry without messages
	closing  bool          // its last entry ends the run
	extended time.Duration // when it appended a configuration
	check    check
	missing  []bool // the servers that a detector outside suspects
	missedAt []time.Duration
	appended []uint64
	staged   staged
	beat     uint64
	beatAt   time.Duration
	progress time.Duration

	// Proposals.
	buffers []*protected.Buffer // by origin
	takers  []protected.Asker   // the origins that ask for their buffers
	box     *protected.Outbox
	targets []*target
	counter uint64 // of the timestamp under which this server asks for buffers
	sent    uint64
	// With full rounds: the messages of others that messages of this server answered, and for which
	// round a leader asked.
	answered []uint64
	want     uint64

	scratch   []byte
	proposals []proposal
}

var _ protected.Machine = (*Server)(nil)

// New makes a server of a group on its host. The error wraps ErrConfig, or comes from the fabric.
func New(config Config, host rdmanet.RegionHost) (*Server, error) {
	if config.Seats == 0 {
		config.Seats = len(config.Peers)
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	n := config.Seats
	s := &Server{config: config, self: int(config.Self), layout: config.layout(), leader: none,
		candidate: none, without: none, timeout: config.Timeout, beats: make([]uint64, n),
		counter: 1, from: none,
		me:      rdmanet.Peer{ID: host.ID(), Incarnation: host.Incarnation()},
		missing: make([]bool, n), missedAt: make([]time.Duration, n),
		numbers: make([]uint64, n), appended: make([]uint64, n),
		answered: make([]uint64, n), links: make([]rdmanet.Peer, n),
		proposals: make([]proposal, n), box: protected.NewOutbox(config.offerRing())}
	s.configs = []placed{{Configuration: firstConfiguration(config.Peers, n,
		config.size())}}
	s.learned = s.configs[0]
	if config.Joins {
		s.recovery = &recovery{from: s.self}
	}
	copy(s.links, config.Peers)
	s.boards = protected.NewBoards(config.region("control"), s.self, n, controlWords)
	s.offers = protected.NewBoards(config.region("offers"), s.self, n, protected.WordsShared)
	s.staged = staged{make([]byte, s.layout.slots*s.layout.slot),
		make([][2]uint64, s.layout.slots), make([]int, s.layout.slots)}
	for p, peer := range s.links {
		s.members, s.targets = append(s.members, nil), append(s.targets, nil)
		s.sources = append(s.sources, nil)
		s.askers = append(s.askers, protected.Asker{Process: p, Peer: peer})
		s.takers = append(s.takers, protected.Asker{Process: p, Peer: peer})
		if p == s.self {
			continue
		}
		s.boards.Add(p, peer)
		s.offers.Add(p, peer)
		m := &member{}
		m.Peer, m.Region, m.Process, m.Owner = peer, config.region("log"), p, m
		t := &target{}
		t.Peer, t.Region, t.Process, t.Owner = peer, config.offerRegion(s.self), p, t
		src := &source{}
		src.Peer, src.Region, src.Owner = peer, config.region("snapshot"), src
		s.members[p], s.targets[p], s.sources[p] = m, t, src
	}
	s.all = s.ofAll()
	for place, way := range s.all {
		way.Place = place
	}
	var err error
	if s.ways, err = protected.NewWays(host, 64+n*(2*config.LogSlots+config.Window+64),
		config.Patience); err != nil {
		return nil, fmt.Errorf("dare: %w", err)
	}
	s.deadline = s.timeout + s.wait()
	if config.Fault == FaultLogKept {
		s.held.Fault = protected.FaultNoPermissionCheck
	}
	return s, s.expose(host)
}

// expose exposes the server's regions.
func (s *Server) expose(host rdmanet.RegionHost) (err error) {
	if err = s.boards.Expose(host); err != nil {
		return fmt.Errorf("dare: %w", err)
	}
	if err = s.offers.Expose(host); err != nil {
		return fmt.Errorf("dare: %w", err)
	}
	if s.held.Region, err = host.Expose(s.config.region("log"), s.layout.size()); err != nil {
		return fmt.Errorf("dare: expose the log: %w", err)
	}
	if s.view, err = host.Expose(s.config.region("snapshot"), s.config.viewSize()); err != nil {
		return fmt.Errorf("dare: expose the snapshot: %w", err)
	}
	for origin := range s.links {
		b := &protected.Buffer{Ring: s.config.offerRing()}
		if b.Region, err = host.Expose(s.config.offerRegion(origin), b.Ring.Size()); err != nil {
			return fmt.Errorf("dare: expose a ring of proposals: %w", err)
		}
		s.buffers = append(s.buffers, b)
	}
	for seat, peer := range s.links {
		if s.linked(seat) {
			if err = open(s.view, peer); err != nil {
				return fmt.Errorf("dare: %w", err)
			}
		}
	}
	return nil
}

// ofAll lists the server's ways, always in the same order.
func (s *Server) ofAll() []*protected.Way {
	var all []*protected.Way
	for p := range s.links {
		if p != s.self {
			all = append(all, &s.boards.Rows()[p].Way, &s.offers.Rows()[p].Way,
				&s.members[p].Way, &s.targets[p].Way, &s.sources[p].Way)
		}
	}
	return all
}

// Poll makes the server work once. now is the time since any fixed instant.
func (s *Server) Poll(now time.Duration) bool {
	if s.halted != "" || s.closed {
		return false
	}
	busy := s.Complete(now)
	if s.recovery != nil {
		busy = s.recover() || busy
	} else {
		s.seek()
		busy = s.listen() || busy
		busy = s.elect() || busy
		busy = s.offer() || busy
		if s.role == leading {
			busy = s.lead() || busy
		}
		busy = s.apply() || busy
	}
	busy = s.read() || busy
	busy = s.boards.Drive(s.ways) || busy
	busy = s.offers.Drive(s.ways) || busy
	if err := s.ways.Flush(); err != nil {
		s.halt(err.Error())
	}
	return busy && s.halted == ""
}

// Complete is the first part of Poll: it handles completions and nothing else.
func (s *Server) Complete(now time.Duration) bool {
	return s.halted == "" && !s.closed && s.ways.Complete(now, s.completed)
}

// completed handles the completion of a post of a way's present life.
func (s *Server) completed(p protected.Post, err error) {
	switch owner := p.Way.Owner.(type) {
	case *protected.Row:
		owner.Completed(s.ways, err)
	case *target:
		if err != nil {
			owner.Lose(s.ways)
		} else {
			owner.Tries = 0
		}
	case *source:
		s.sourceCompleted(owner, err)
	case *member:
		s.memberCompleted(owner, p, err)
	}
}

// Wanted returns the attachments that the driver should make, each once. The slice is valid until
// the next call.
func (s *Server) Wanted() []protected.Want { return s.ways.Wanted() }

// Attached answers a Want with the result of Attach. It may be called at any time between Polls.
func (s *Server) Attached(number uint64, attachment rdmanet.Attachment, err error) {
	way, err := s.ways.Attached(number, attachment, err)
	if way == nil {
		return
	}
	if s.config.Fault == FaultRestartedVotes && errors.Is(err, rdmanet.ErrReset) {
		s.renew(attachment.Peer())
		return
	}
	switch owner := way.Owner.(type) {
	case *protected.Row:
		owner.Answered(s.ways, err)
	case *target:
		owner.Answered(s.ways, err)
	case *source:
		if err != nil {
			s.sourceCompleted(owner, err)
		}
	case *member:
		owner.asked = false
		if s.recovery == nil {
			owner.Answered(s.ways, err)
		} else if err != nil {
			s.again()
		} else {
			s.recovery.step = recoveryMeasures
		}
	}
}

// Regions returns the regions to Await on. Other processes write to them, with Ring.
func (s *Server) Regions() []rdmanet.Region {
	regions := []rdmanet.Region{s.boards.Region(), s.offers.Region(), s.held.Region}
	for _, b := range s.buffers {
		regions = append(regions, b.Region)
	}
	return regions
}

// Outstanding returns the number of operations under way. Completions come while there are any.
func (s *Server) Outstanding() int { return s.ways.Outstanding() }

// Deliveries returns the rounds A-delivered since the last call, in order. The slice is valid until
// the next call; the messages may be kept. A server stops after LogSlots deliveries that were not
// taken.
func (s *Server) Deliveries() []order.Delivery {
	s.handed, s.delivered = s.delivered, s.handed[:0]
	return s.handed
}

// apply A-delivers committed entries. Every server finds the same ones, in the same order.
func (s *Server) apply() bool {
	first := s.applied
	limit := min(s.known(), s.tail())
	if s.tail() > s.applied+uint64(s.layout.slots) {
		s.halt(fmt.Sprintf("it was left behind: it applied %d entries of %d", s.applied, s.tail()))
		return true
	}
	for s.applied < limit && len(s.delivered) < s.layout.slots && !s.ended {
		e := s.at(s.applied + 1)
		d, found := order.Delivery{}, e.index != 0
		configures := e.kind == kindConfig && !s.config.fixed()
		if found && !configures {
			d, found = s.delivery(e, s.rounds)
		}
		if !found {
			s.halt(fmt.Sprintf("entry %d is committed, and this log does not have it",
				s.applied+1))
			return true
		}
		switch {
		case configures:
			s.applies(e)
		case e.length > 0:
			for origin, p := range s.proposals {
				switch {
				case p.number == 0:
				case p.number == s.numbers[origin]+1:
					s.numbers[origin] = p.number
				default:
					s.halt(fmt.Sprintf("entry %d has message %d of server %d after number %d",
						e.index, p.number, origin, s.numbers[origin]))
					return true
				}
			}
			s.rounds++
			s.seated = s.configs[0].seated()
			s.ended = s.ends(d)
			if s.ended && len(d.Removed) > 0 {
				s.without = int(d.Removed[0])
			}
			s.delivered = append(s.delivered, copied(d))
			s.config.note("A-delivers round %d", d.Round)
		}
		s.applied = e.index
		s.held.Region.Store(logApplied, s.applied)
		if s.halted != "" {
			return true
		}
	}
	return s.applied != first
}

// applies takes over a committed configuration: what it removes is gone for good, and hears of it.
func (s *Server) applies(e entry) {
	before := s.configs[0]
	s.enter(e)
	if s.halted != "" {
		return
	}
	s.publish()
	now := &s.configs[0]
	for seat := range before.Seats {
		peer := before.Seats[seat].Peer
		switch {
		case seat == s.self && now.Seats[seat].Peer != s.me:
			s.leave(e.index)
		case seat != s.self && peer != now.Seats[seat].Peer &&
			s.boards.Rows()[seat].Peer == peer && peer != (rdmanet.Peer{}):
			s.boards.Put(seat, wordRemoved, e.index)
		}
	}
}

// leave halts a server that an entry removed.
func (s *Server) leave(entry uint64) {
	s.removed = true
	s.halt(fmt.Sprintf("entry %d removed it from the group", entry))
}

// Removed reports whether the server halted because it was removed. Its host can join again as its
// next incarnation.
func (s *Server) Removed() bool { return s.removed }

// halt stops the server. Its memory stays.
func (s *Server) halt(why string) {
	if s.halted == "" {
		s.halted = why
		s.config.note("halts: %s", why)
	}
}

// Halted returns why the server stopped, or "".
func (s *Server) Halted() string { return s.halted }

// Leading reports whether the server leads its term.
func (s *Server) Leading() bool { return s.role == leading }

// Leader returns the server that this one follows, which may be itself.
func (s *Server) Leader() (leader order.ServerID, known bool) {
	return order.ServerID(max(s.leader, 0)), s.leader != none
}

// Status describes the server.
func (s *Server) Status() order.Status {
	status := order.Status{Epoch: order.Epoch(s.term), Round: s.config.FirstRound +
		order.Round(s.rounds), Undelivered: int(max(s.tail(), s.applied) - s.applied),
		Ended: s.ended, Halted: s.halted}
	for _, server := range s.group().Servers() {
		if int(server) != s.without {
			status.Members = append(status.Members, server)
		}
		if s.missing[server] {
			status.Suspected = append(status.Suspected, server)
		}
		if s.role == leading && s.behind(int(server)) || s.lacks(int(server)) {
			status.Awaited = append(status.Awaited, server)
		}
	}
	return status
}

// Ended reports whether the last round of the run was A-delivered.
func (s *Server) Ended() bool { return s.ended }

// Waiting reports whether something was A-broadcast, by any server, and not A-delivered here, as
// far as this server knows. It is false once the run has ended.
func (s *Server) Waiting() bool {
	if s.ended {
		return false
	}
	for origin, b := range s.buffers {
		if s.group().held(origin) && b.Found(s.numbers[origin]+1) {
			return true
		}
	}
	return s.tail() > s.applied
}

// String describes the server's state in one line.
func (s *Server) String() string {
	text := fmt.Sprintf("%v in term %d, leader %d, log to %d, committed %d, applied %d, sent %d, "+
		"of which %d A-delivered", s.role, s.term, s.leader, s.tail(), s.commit, s.applied, s.sent,
		s.numbers[s.self])
	text += fmt.Sprintf("; %d: %v", s.group().index, s.group().Configuration)
	if s.recovery != nil {
		text += fmt.Sprintf("; recovers from %d, step %d", s.recovery.from, s.recovery.step)
	}
	if s.role == leading {
		for p, m := range s.members {
			if s.linked(p) {
				text += fmt.Sprintf("; %d: %s, next %d, has %d, applied %d", p,
					m.Petition.String(), m.next, m.acked, m.applied)
			}
		}
	}
	if s.halted != "" {
		text += "; halted: " + s.halted
	}
	return text
}

// Close closes the server's regions. Operations under way continue until the host is closed.
func (s *Server) Close() error {
	s.closed = true
	var errs []error
	for _, region := range append(s.Regions(), s.view) {
		errs = append(errs, region.Close())
	}
	for _, way := range s.all {
		s.ways.Detach(way)
	}
	return errors.Join(append(errs, s.ways.Close())...)
}
