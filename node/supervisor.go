package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/control"
	"github.com/ledgerd/ledgerd/node/detector"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// The supervisor's times.
const (
	tickEvery     = 100 * time.Millisecond
	announceEvery = 500 * time.Millisecond
	// hearsayLasts is how long what a member said of itself counts.
	hearsayLasts = 10 * announceEvery
	// stepOutAfter is how long a node whose disk is full holds up the group before it steps out of it.
	stepOutAfter = 5 * time.Second
	settleFor    = 50 * time.Millisecond
	inboxMax     = 4096 // synod messages that wait for the supervisor
)

// letter is a message of the synod and its sender.
type letter struct {
	from    order.ServerID
	message generation.Message
}

// supervisor starts and ends generations and eons. Fields under mu are shared; the rest belong to its goroutine.
//
//	supervisor.go  the loop
//	group.go       the run that this node works in: its beginning, its end, and whether it gets on
//	eons.go        who is in the next eon, and this node's entrance
//	forming.go     the next generation: the synod, what it wants done, and the decision's way to an engine
//	following.go   whose chain this node follows while it does not order; catching.go fetches it
//	hearing.go     what the members say of themselves
//	peers.go       who the members are
//	leaving.go     the end of a node that was removed
type supervisor struct {
	node     *Node
	driver   *driver.Driver
	detector *detector.Detector
	contents *contents

	mu        sync.Mutex
	current   api.NodeMode
	why       string
	modeSince time.Time
	group     *group // that this node's engine is in; nil for none
	between   bool   // it ordered until it began to look for its next group
	decided   generation.Generation
	inbox     []letter
	over      *eonEnd
	haltedIn  generation.Run
	haltedWhy string
	broken    error
	heard     map[order.ServerID]heard
	linked    map[order.ServerID]bool
	warned    map[order.ServerID]bool
	stalled   bool // the group gets nowhere
	// marked says when the next eon was last asked for, by the ticket of the entrant; 0 for the end of the generation.
	marked map[uint64]time.Time

	synod *generation.Synod
	forming
	following
	settling  settling
	next      *group // that is to begin
	fullAt    time.Time
	leaving   time.Time     // when this node found that it was removed
	leftAt    ledger.Height // the block that did, once that is durable
	peersOf   peersAsOf
	announced time.Time

	wake    chan struct{}
	context context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup
	started bool
}

func newSupervisor(n *Node) *supervisor {
	s := &supervisor{
		node: n, current: api.ModeStarting, modeSince: time.Now(), why: "looking for the other nodes", wake: make(chan struct{}, 1), contents: newContents(n.home.Rounds()),
		heard: map[order.ServerID]heard{}, linked: map[order.ServerID]bool{}, warned: map[order.ServerID]bool{}, marked: map[uint64]time.Time{},
		forming: forming{fetched: make(chan fetchedContent, 1)}, following: following{caught: make(chan caughtUp, 1), ticket: newTicket()},
	}
	s.context, s.cancel = context.WithCancel(context.Background())
	return s
}

// start reads what was promised, registers for messages, and begins.
func (s *supervisor) start() error {
	n := s.node
	if err := s.begetSynod(); err != nil {
		return err
	}
	config := n.home.Config.Ordering
	var err error
	s.driver, err = driver.New(driver.Config{
		Host: n.host, Self: n.home.Self, Peers: n.peers.table.Load().ids, NewEngine: s.newEngine, FrameGeneration: allconcur.FrameGeneration, Source: n.pool, Sink: n.pipeline,
		Linger: config.Linger, MaxBatch: config.BatchBytesMax, Logger: n.logger,
		Lost: func(run uint64, server order.ServerID, cause error) {
			s.detector.Lost(run, server, cause)
		},
		Removed: func(run uint64, servers []order.ServerID) { s.detector.Removed(run, servers) },
		Halted:  s.halted, Ended: s.ended,
	})
	if err != nil {
		return err
	}
	watching := detector.Config{
		Host: n.host, Control: n.control, Self: n.home.Self, Peers: n.peers.table.Load().ids, Suspect: s.driver.Suspect, Logger: n.logger,
		Timing: detector.Timing{Heartbeat: config.Heartbeat, Timeout: config.SuspectAfter},
	}
	if s.eventual() {
		watching.Trust = s.driver.Trust
	} else {
		n.logger.Warn("the failure detector is taken for perfect: a node that is suspected while it runs may lose what it acknowledged, and the members cannot change", "suspect_after", config.SuspectAfter)
	}
	s.detector, err = detector.New(watching)
	if err != nil {
		s.driver.Close()
		return err
	}
	n.host.Watch(s.event)
	for kind, handler := range map[control.Kind]control.Handler{control.KindStatus: s.onAnnouncement, control.KindGeneration: s.onSynod, control.KindEnter: s.onEnter} {
		if err := n.control.Register(kind, handler); err != nil {
			s.detector.Close()
			s.driver.Close()
			return err
		}
	}
	s.started = true
	s.workers.Add(1)
	go s.run()
	return nil
}

// stop ends the engine and the supervisor's goroutines.
func (s *supervisor) stop() {
	s.cancel()
	s.workers.Wait()
	if s.started {
		s.driver.Close()
		s.detector.Close()
	}
}

// eventual tells whether the detector is taken for one that errs.
func (s *supervisor) eventual() bool {
	return s.node.home.Config.Ordering.Detector != allconcur.DetectorPerfect.String()
}

func (s *supervisor) newEngine(g driver.Group, place order.ServerID) (order.Broadcaster, error) {
	reliable, err := s.reliable(len(g.Members))
	if err != nil {
		return nil, err
	}
	config := s.node.home.Config.Ordering
	kind := allconcur.DetectorEventual
	if !s.eventual() {
		kind = allconcur.DetectorPerfect
	}
	genesis, chain := s.node.home.Genesis, s.node.Store().GenesisHash()
	return allconcur.New(allconcur.Config{
		Engine: config.Engine, Self: place, Servers: len(g.Members), Reliable: reliable, Generation: g.Generation, FirstRound: g.FirstRound, MaxPayload: config.BatchBytesMax,
		Detector: kind, Shard: g.Shard, Change: func(d order.Delivery) bool { return changes(d, genesis, chain) },
	})
}

// changes tells whether a round holds a change of the group: a mark of an entrant or of the generation's end, or a change of the membership.
func changes(d order.Delivery, genesis *ledger.Genesis, chain ledger.Hash) bool {
	for i := range d.Messages {
		batch, marks, err := mempool.SplitPayload(d.Messages[i].Payload)
		if err == nil && (marks.Any() || ledger.MembershipChangeIn(batch, genesis, chain)) {
			return true
		}
	}
	return false
}

func (s *supervisor) reliable(members int) (*digraph.Digraph, error) {
	config := s.node.home.Config.Ordering
	return digraph.Reliable(members, digraph.Target{Nines: config.TargetNines, MTTF: time.Duration(config.ServerMTTFHour) * time.Hour})
}

// mode is what the node does.
func (s *supervisor) mode() api.NodeMode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

func (s *supervisor) setMode(mode api.NodeMode, format string, arguments ...any) {
	why := fmt.Sprintf(format, arguments...)
	s.mu.Lock()
	changed := s.current != mode || s.why != why
	if s.current != mode {
		s.modeSince, s.between = time.Now(), s.current == api.ModeOrdering
	}
	s.current, s.why = mode, why
	s.mu.Unlock()
	if changed {
		s.node.logger.Info("mode", "mode", modeName(mode), "reason", why)
		s.announceSoon()
		s.node.between.changed()
	}
}

func modeName(mode api.NodeMode) string {
	return [...]string{"unknown", "starting", "ordering", "following", "halted", "stopping"}[mode]
}

func (s *supervisor) announceSoon() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// halt ends this node's part for good.
func (s *supervisor) halt(err error) {
	s.mu.Lock()
	s.broken = err
	s.mu.Unlock()
	s.announceSoon()
}

func (s *supervisor) run() {
	defer s.workers.Done()
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		tick := false
		select {
		case <-s.context.Done():
			return
		case <-ticker.C:
			tick = true
		case <-s.wake:
		case outcome := <-s.caught:
			s.catching = false
			s.onCaught(outcome)
		case content := <-s.fetched:
			s.fetching = false
			s.onFetched(content)
		}
		if err := s.turn(tick); err != nil {
			s.node.fail(err)
		}
	}
}

// turn looks at all news and does what is due.
func (s *supervisor) turn(tick bool) error {
	s.mu.Lock()
	letters := s.inbox
	s.inbox = nil
	broken := s.broken
	for server, linked := range s.linked {
		s.synod.Linked(server, linked)
	}
	s.mu.Unlock()
	if broken != nil {
		s.stopEngine(0)
		s.setMode(api.ModeHalted, "%v", broken)
		s.announce()
		return nil
	}
	if err := s.refreshPeers(); err != nil {
		return err
	}
	if err := s.watchGroup(); err != nil {
		return ignoreUnwritten(err)
	}
	for _, l := range letters {
		s.synod.Receive(l.from, l.message)
	}
	if s.synod.MustEnd() && s.at() != nil {
		s.stopEngine(0) // settled finds out whether the last round came here too
		s.setMode(api.ModeStarting, "the group starts anew")
	}
	if err := s.settled(); err != nil {
		return err
	}
	if err := s.leave(); err != nil {
		return err
	}
	if tick {
		s.tickSynod()
	}
	if tick || s.called() {
		if err := s.follow(); err != nil {
			return err
		}
	}
	err := s.carryOut()
	if err == nil {
		err = s.activate()
	}
	if err := ignoreUnwritten(err); err != nil {
		return err
	}
	if !tick || time.Since(s.announced) >= announceEvery {
		s.announce()
	}
	return nil
}

// ignoreUnwritten waits with what the full disk holds up.
func ignoreUnwritten(err error) error {
	if errors.Is(err, errUnwritten) {
		return nil
	}
	return err
}

// isPeer tells who sent something, for handlers of messages.
func (s *supervisor) isPeer(from rdmanet.Peer) (order.ServerID, bool) {
	return s.node.peers.server(from.ID)
}
