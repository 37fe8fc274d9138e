package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/control"
	"github.com/ledgerd/ledgerd/node/detector"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/recovery"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// The supervisor's times.
const (
	tickEvery     = 100 * time.Millisecond
	announceEvery = 500 * time.Millisecond
	graceTicks    = 15 // a shard's first start waits twice that for the last to come up
	patienceTicks = 10
	enterEvery    = time.Second
	regroupEvery  = 2 * time.Second
	// entryDistance is how many blocks behind the head a node may be that asks to enter.
	entryDistance = 256
	// stepOutAfter is how long a node whose disk is full holds up the group before it steps out of it.
	stepOutAfter = 5 * time.Second
	settleFor    = 50 * time.Millisecond
	// baseTimeout is how long a node waits for the blocks up to a generation's base before it asks for another generation.
	baseTimeout = 15 * time.Second
	inboxMax    = 4096 // synod messages that wait for the supervisor
)

// errUnwritten says that the disk has no space for what this node would promise. It promises nothing then, and tries again.
var errUnwritten = errors.New("the disk has no space for what this node would promise")

// errLeft is why a member is suspected that said itself that it halted.
var errLeft = errors.New("it says that it halted")

// letter is a message of the synod and its sender.
type letter struct {
	from    order.ServerID
	message recovery.Message
}

// settling is an engine that was stopped: what it delivered is still being executed, and the synod has to be told.
type settling struct {
	active bool
	ended  recovery.Generation // the generation, if it ended in order
}

// supervisor starts and ends generations. Fields under mu are shared; the rest belong to its goroutine.
type supervisor struct {
	node     *Node
	driver   *driver.Driver
	detector *detector.Detector
	peerOf   map[rdmanet.PeerID]order.ServerID

	mu        sync.Mutex
	current   api.NodeMode
	why       string
	modeSince time.Time
	working   uint64 // the generation that this node orders in; 0 for none
	members   []order.ServerID
	decided   uint64
	inbox     []letter
	endedIn   uint64 // a generation of which the last round was executed
	haltedIn  uint64
	haltedWhy string
	broken    error
	heard     map[order.ServerID]heard
	linked    map[order.ServerID]bool
	digraph   *digraph.Digraph
	warned    map[order.ServerID]bool

	synod     *recovery.Synod
	pending   *recovery.Decision // decided with this node, not activated yet
	pendingAt time.Time
	settling  settling
	stalledAt time.Time
	catching  bool
	caught    chan caughtUp
	forked    bool // the group holds other blocks past the common height: ours have to be set aside
	common    ledger.Height
	enteredAt time.Time
	regroupAt time.Time
	unwritten bool                // what the synod wants on disk is not there, because that is full
	undecided *recovery.Decision  // heard while unwritten: adopted when all is written
	followed  recovery.Generation // the generation that the peer worked in from which the head came
	announced time.Time

	wake    chan struct{}
	context context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup
	started bool
}

// heard is what a member said last of itself.
type heard struct {
	announcement
	at time.Time
}

func newSupervisor(n *Node) *supervisor {
	s := &supervisor{
		node: n, current: api.ModeStarting, modeSince: time.Now(), why: "looking for the other nodes", wake: make(chan struct{}, 1), caught: make(chan caughtUp, 1),
		heard: map[order.ServerID]heard{}, linked: map[order.ServerID]bool{}, peerOf: map[rdmanet.PeerID]order.ServerID{}, warned: map[order.ServerID]bool{},
	}
	for i, peer := range n.peers {
		s.peerOf[peer] = order.ServerID(i)
	}
	s.context, s.cancel = context.WithCancel(context.Background())
	return s
}

// start reads what was promised, registers for messages, and begins.
func (s *supervisor) start() error {
	n := s.node
	state, err := s.readState()
	if err != nil {
		return err
	}
	s.synod, err = recovery.NewSynod(recovery.Config{Self: n.home.Self, Servers: len(n.peers), State: state, Grace: graceTicks, Patience: patienceTicks})
	if err != nil {
		return err
	}
	s.report()
	config := n.home.Config.Ordering
	s.driver, err = driver.New(driver.Config{
		Host: n.host, Self: n.home.Self, Peers: n.peers, NewEngine: s.newEngine, FrameGeneration: allconcur.FrameGeneration, Source: n.pool, Sink: n.pipeline,
		Linger: config.Linger, MaxBatch: config.BatchBytesMax, Logger: n.logger,
		Lost: func(generation uint64, server order.ServerID, cause error) {
			s.detector.Lost(generation, server, cause)
		},
		Removed: func(generation uint64, servers []order.ServerID) { s.detector.Removed(generation, servers) },
		Halted:  s.halted,
	})
	if err != nil {
		return err
	}
	s.detector, err = detector.New(detector.Config{
		Host: n.host, Control: n.control, Self: n.home.Self, Peers: n.peers, Suspect: s.driver.Suspect, Logger: n.logger,
		Timing: detector.Timing{Heartbeat: config.Heartbeat, Timeout: config.SuspectAfter},
	})
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

func (s *supervisor) readState() (recovery.State, error) {
	path := s.node.home.Generation()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		var disk [8]byte
		if _, err := rand.Read(disk[:]); err != nil {
			return recovery.State{}, err
		}
		state := recovery.State{Disk: recovery.DiskID(binary.LittleEndian.Uint64(disk[:]))}
		return state, home.WriteFile(path, state.Encode(), 0o644)
	}
	if err != nil {
		return recovery.State{}, err
	}
	state, err := recovery.DecodeState(text)
	if err != nil {
		return recovery.State{}, fmt.Errorf("%w: %s; a node without its promises would endanger the chain: move %s away and start again, the node comes back as a new one", err, path, s.node.home.Dir)
	}
	return state, nil
}

func (s *supervisor) newEngine(group driver.Group, place order.ServerID) (order.Broadcaster, error) {
	g, err := s.reliable(len(group.Members))
	if err != nil {
		return nil, err
	}
	config := s.node.home.Config.Ordering
	return allconcur.New(allconcur.Config{
		Engine: config.Engine, Detector: allconcur.DetectorPerfect, Self: place, Servers: len(group.Members), Reliable: g, Generation: group.Generation, FirstRound: group.FirstRound, MaxPayload: config.BatchBytesMax,
	})
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
		s.modeSince = time.Now()
	}
	s.current, s.why = mode, why
	s.mu.Unlock()
	if changed {
		s.node.logger.Info("mode", "mode", modeName(mode), "reason", why)
		s.announceSoon()
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

// ended hears from the pipeline that the round with the regroup mark was executed.
func (s *supervisor) ended(generation uint64) {
	s.mu.Lock()
	s.endedIn = max(s.endedIn, generation)
	s.mu.Unlock()
	s.announceSoon()
}

// halted hears from the driver that an engine delivers no more.
func (s *supervisor) halted(group driver.Group, reason string) {
	s.mu.Lock()
	s.haltedIn, s.haltedWhy = group.Generation, reason
	s.mu.Unlock()
	s.announceSoon()
}

// halt ends this node's part for good.
func (s *supervisor) halt(err error) {
	s.mu.Lock()
	s.broken = err
	s.mu.Unlock()
	s.announceSoon()
}

// event hears of the fabric's links.
func (s *supervisor) event(event rdmanet.PeerEvent) {
	server, known := s.peerOf[event.Peer.ID]
	if !known {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch event.Kind {
	case rdmanet.PeerConnected:
		s.linked[server] = true
	case rdmanet.PeerRestarted:
		s.linked[server] = true
		delete(s.heard, server)
	case rdmanet.PeerDisconnected, rdmanet.PeerUnreachable:
		s.linked[server] = false
		if h, ok := s.heard[server]; ok {
			h.generation = 0 // whatever it does now, it does not help us
			s.heard[server] = h
		}
	}
}

// onAnnouncement hears what a member does.
func (s *supervisor) onAnnouncement(from rdmanet.Peer, payload []byte) {
	server, known := s.peerOf[from.ID]
	if !known {
		return
	}
	a, err := decodeAnnouncement(payload)
	if err != nil {
		s.node.logger.Error("announcement dropped", "peer", from, "error", err)
		return
	}
	s.mu.Lock()
	// A member that says that it halted in this group's generation sends nothing more in it: there is no need to wait until its silence shows.
	left := s.working
	if a.mode != api.ModeHalted || a.generation != 0 || s.heard[server].generation != left {
		left = 0
	}
	s.heard[server] = heard{a, time.Now()}
	s.linked[server] = true // it may have connected before this node watched
	if engine := s.node.home.Config.Ordering.Engine; a.engine != engine && !s.warned[server] {
		s.warned[server] = true
		s.node.logger.Error("a member is set to another engine: set [ordering] engine to the same on all nodes and start them again", "member", server, "its", a.engine, "ours", engine)
	}
	s.mu.Unlock()
	if left != 0 {
		s.detector.Lost(left, server, errLeft)
	}
	if a.generation != 0 {
		s.node.pipeline.PeerStored(a.generation, server, a.heights.Stored)
	}
	s.believeDurable(a)
}

// believeDurable takes a peer's word for what is durable, as far as the peer's chain is ours.
func (s *supervisor) believeDurable(a announcement) {
	height := min(a.heights.Durable, s.node.pipeline.Tip().Height)
	heights, _ := s.node.pipeline.Heights()
	if height <= heights.Durable || height > a.heights.Ordered {
		return
	}
	if a.heights.Ordered <= heights.Ordered {
		if _, hash, err := s.node.pipeline.Store().Header(a.heights.Ordered); err != nil || hash != a.tip {
			return
		}
	} else if !s.orders(a.generation) {
		return // it is ahead, in another group perhaps: what it says counts when we have got there
	}
	s.node.pipeline.PeerDurable(height)
}

// orders tells whether this node orders in the generation: whoever else does holds the same blocks.
func (s *supervisor) orders(generation uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return generation != 0 && s.working == generation
}

func (s *supervisor) onSynod(from rdmanet.Peer, payload []byte) {
	server, known := s.peerOf[from.ID]
	if !known {
		return
	}
	message, err := recovery.DecodeMessage(payload)
	if err != nil {
		s.node.logger.Error("message dropped", "peer", from, "error", err)
		return
	}
	s.mu.Lock()
	if len(s.inbox) < inboxMax { // what is lost is said again
		s.inbox = append(s.inbox, letter{server, message})
	}
	s.mu.Unlock()
	s.announceSoon()
}

// onEnter has the group end in order, so that its successor takes the asking node in. The lowest member that nobody suspects does it.
func (s *supervisor) onEnter(from rdmanet.Peer, _ []byte) {
	server, known := s.peerOf[from.ID]
	if !known {
		return
	}
	status := s.driver.Status()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.working == 0 || !status.Running || slices.Contains(status.Engine.Members, server) || time.Since(s.regroupAt) < regroupEvery {
		return
	}
	for _, member := range status.Engine.Members {
		if member == s.node.home.Self {
			break
		}
		if !slices.Contains(status.Engine.Suspected, member) {
			return
		}
	}
	s.regroupAt = time.Now()
	s.node.logger.Info("a node wants to enter: the group starts anew with it", "member", server)
	s.node.pool.Regroup()
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
	endedIn, haltedIn, haltedWhy, broken, working := s.endedIn, s.haltedIn, s.haltedWhy, s.broken, s.working
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
	switch {
	case working != 0 && endedIn == working:
		s.stopEngine(recovery.Generation(working))
		s.setMode(api.ModeStarting, "the group starts anew to take a node in")
	case working != 0 && haltedIn == working:
		s.stopEngine(0)
		s.setMode(api.ModeHalted, "%s; it goes on as soon as a majority of the %d nodes is there", haltedWhy, len(s.node.peers))
	case working != 0:
		s.stepOut()
	}
	for _, l := range letters {
		s.synod.Receive(l.from, l.message)
	}
	if s.synod.MustEnd() && !s.settling.active {
		s.stopEngine(0) // settled finds out whether the last round came here too
		s.setMode(api.ModeStarting, "the group starts anew to take a node in")
	}
	s.settled()
	if tick {
		if (s.pending == nil || time.Since(s.pendingAt) > baseTimeout) && !s.settling.active {
			s.synod.Tick()
		}
		if err := s.follow(); err != nil {
			return err
		}
	}
	err := s.carryOut()
	if err == nil {
		err = s.activate()
	}
	if err != nil && !errors.Is(err, errUnwritten) {
		return err
	}
	if !tick || time.Since(s.announced) >= announceEvery {
		s.announce()
	}
	return nil
}

// stopEngine ends the running generation, if any; ended tells which one, if it ended in order.
func (s *supervisor) stopEngine(ended recovery.Generation) {
	s.mu.Lock()
	working := s.working
	s.working = 0
	s.mu.Unlock()
	if working == 0 {
		return
	}
	s.driver.Freeze()
	s.detector.Deactivate()
	s.settling = settling{active: true, ended: ended}
	s.stalledAt = time.Time{}
}

// settled tells the synod that the node is idle, once everything that was delivered is executed.
func (s *supervisor) settled() {
	if !s.settling.active {
		return
	}
	patience, cancel := context.WithTimeout(s.context, settleFor)
	defer cancel()
	if s.node.pipeline.Barrier(patience) != nil {
		return // the disk is full, or much was delivered: the next turn looks again
	}
	s.settling.active = false
	s.mu.Lock()
	ended := max(s.settling.ended, recovery.Generation(s.endedIn))
	s.mu.Unlock()
	s.synod.Idle(s.head(), ended)
}

// stepOut leaves the group when this node's disk holds it up: the others go on without it.
func (s *supervisor) stepOut() {
	reason := s.node.pipeline.Stalled()
	if reason == "" {
		s.stalledAt = time.Time{}
		return
	}
	if s.stalledAt.IsZero() {
		s.stalledAt = time.Now()
	}
	if time.Since(s.stalledAt) > stepOutAfter && len(s.node.peers) > 2 {
		s.stopEngine(0)
		s.setMode(api.ModeHalted, "%s; free some space, the node comes back by itself", reason)
	}
}

// head is what the node holds, as the synod wants it.
func (s *supervisor) head() recovery.Head {
	tip := s.node.pipeline.Tip()
	return recovery.Head{Generation: max(s.synod.Activated(), s.followed), Height: uint64(tip.Height), Hash: tip.Hash}
}

func (s *supervisor) report() { s.synod.Report(s.head()) }

// carryOut does what the synod wants: save, send, adopt.
func (s *supervisor) carryOut() error {
	for {
		s.report()
		ready := s.synod.Ready()
		ready.MustSave = ready.MustSave || s.unwritten
		if ready.Decided == nil {
			ready.Decided = s.undecided
		}
		if !ready.MustSave && len(ready.Messages) == 0 && ready.Decided == nil {
			return nil
		}
		if ready.MustSave {
			err := home.WriteFile(s.node.home.Generation(), ready.State.Encode(), 0o644)
			if errors.Is(err, syscall.ENOSPC) {
				if !s.unwritten {
					s.node.logger.Error("this node takes no part in forming a group: free some space, it comes back by itself", "error", err)
				}
				// The messages count as lost: the synod says again what is needed.
				s.unwritten, s.undecided = true, ready.Decided
				return errUnwritten
			}
			if err != nil {
				return fmt.Errorf("writing what this node promised: %w", err)
			}
			s.unwritten = false
		}
		s.undecided = nil
		for _, envelope := range ready.Messages {
			if err := s.node.control.Send(s.node.peers[envelope.To], control.KindGeneration, envelope.Message.Encode(nil)); err != nil {
				s.node.logger.Debug("not sent", "to", envelope.To, "error", err)
			}
		}
		if ready.Decided != nil {
			s.adopt(*ready.Decided)
		}
	}
}

func (s *supervisor) adopt(d recovery.Decision) {
	s.node.logger.Info("generation decided", "generation", d.Generation, "base", d.Base.Height, "members", d.Members)
	s.mu.Lock()
	working := s.working
	s.decided = uint64(d.Generation)
	s.mu.Unlock()
	if working != 0 {
		// The shard went on without this node, which did not notice: its engine was cut off.
		s.stopEngine(0)
	}
	s.pending = nil
	if d.Includes(s.node.home.Self) {
		s.pending, s.pendingAt = &d, time.Now()
	}
}

// activate starts the engine of a decided generation as soon as this node holds its base.
func (s *supervisor) activate() error {
	d := s.pending
	if d == nil || s.settling.active || s.catching {
		return nil
	}
	if s.synod.Frozen(d.Generation) {
		s.pending = nil // a later generation is being decided
		return nil
	}
	pipeline := s.node.pipeline
	tip := pipeline.Tip()
	base := ledger.Height(d.Base.Height)
	if tip.Height < base {
		return nil // follow fetches it
	}
	if _, hash, err := pipeline.Store().Header(base); err != nil {
		return err
	} else if hash != d.Base.Hash {
		return s.fallBack(base - 1) // where the chains part is found by whom it fetches from
	}
	if tip.Height > base {
		return s.fallBack(base)
	}
	if err := pipeline.Sync(); err != nil {
		return err
	}
	header, _, err := pipeline.Store().Header(tip.Height)
	if err != nil {
		return err
	}
	g, err := s.reliable(len(d.Members))
	if err != nil {
		return err
	}
	if err := pipeline.Begin(uint64(d.Generation), d.Members); err != nil {
		return err
	}
	s.synod.Working(d.Generation)
	if err := s.carryOut(); err != nil { // that this node takes part is on disk before it does
		return err
	}
	s.pending = nil
	s.mu.Lock()
	s.working, s.members, s.digraph = uint64(d.Generation), d.Members, g
	s.mu.Unlock()
	s.node.pool.Again()
	if err := s.detector.Activate(detector.Group{Generation: uint64(d.Generation), Members: d.Members, Reliable: g}); err != nil {
		return err
	}
	if err := s.driver.Activate(driver.Group{Generation: uint64(d.Generation), FirstRound: order.Round(header.Round) + 1, Members: d.Members}); err != nil {
		return err
	}
	s.setMode(api.ModeOrdering, "")
	return nil
}

// announce tells the others what this node does. To peers that are not there it is said less often: it makes the fabric look for them.
func (s *supervisor) announce() {
	periodic := time.Since(s.announced) >= announceEvery
	if periodic {
		s.announced = time.Now()
	}
	heights, _ := s.node.pipeline.Heights()
	tip := s.node.pipeline.Tip()
	heights.Ordered = tip.Height
	s.mu.Lock()
	a := announcement{mode: s.current, generation: s.working, decided: s.decided, heights: heights, tip: tip.Hash, apiAddress: s.node.URL(), engine: s.node.home.Config.Ordering.Engine}
	if s.node.stopping.Load() {
		a.mode = api.ModeStopping
	}
	var to []rdmanet.PeerID
	for server, peer := range s.node.peers {
		if id := order.ServerID(server); id != s.node.home.Self && (periodic || s.linked[id]) {
			to = append(to, peer)
		}
	}
	s.mu.Unlock()
	payload := a.encode()
	for _, peer := range to {
		if err := s.node.control.Send(peer, control.KindStatus, payload); err != nil {
			s.node.logger.Debug("not announced", "peer", peer, "error", err)
		}
	}
}

// fallBack sets the blocks past a height aside, which are not in what the majority goes on from.
func (s *supervisor) fallBack(keep ledger.Height) error {
	heights, _ := s.node.pipeline.Heights()
	if heights.Durable > keep {
		return fmt.Errorf("the shard goes on from block %d, but block %d is durable: a majority of the nodes has lost its disks; stop all nodes and compare them with `ledgerd verify`", keep, heights.Durable)
	}
	s.followed = 0
	err := s.node.setAside(s.context, keep)
	switch {
	case errors.Is(err, store.ErrDiskFull):
		s.node.logger.Error("no space to set blocks aside; trying again", "error", err)
		return nil
	case s.context.Err() != nil:
		return nil
	}
	return err
}

// follow fetches blocks from the peers while this node does not order, and asks to enter when it is close to the head.
func (s *supervisor) follow() error {
	s.mu.Lock()
	working := s.working
	s.mu.Unlock()
	if working != 0 || s.settling.active || s.catching {
		return nil
	}
	if s.forked {
		s.forked = false
		return s.fallBack(s.common)
	}
	ahead := s.ahead()
	tip := s.node.pipeline.Tip()
	group := uint64(0)
	for _, p := range ahead {
		group = max(group, p.generation)
	}
	switch {
	case s.pending != nil:
		s.setMode(api.ModeStarting, "fetching blocks up to %d, from where the group goes on", s.pending.Base.Height)
	case group != 0:
		s.setMode(api.ModeFollowing, "generation %d orders without this node; it enters as soon as it holds the chain", group)
	case s.mode() != api.ModeHalted:
		s.setMode(api.ModeStarting, "waiting for a majority of the %d nodes", len(s.node.peers))
	}
	if len(ahead) == 0 || s.pending != nil && uint64(tip.Height) >= s.pending.Base.Height {
		return nil
	}
	same, err := s.holds(&ahead[0])
	if err != nil {
		return err
	}
	if same && ahead[0].heights.Ordered == tip.Height {
		s.followed = max(s.followed, recovery.Generation(ahead[0].generation))
	}
	if !same {
		s.catching = true
		s.workers.Add(1)
		to := ledger.Height(0)
		if s.pending != nil {
			to = ledger.Height(s.pending.Base.Height)
		}
		go s.catchUp(ahead, to)
	}
	mayEnter := group != 0 && s.pending == nil && (same || ahead[0].heights.Ordered > tip.Height) && !s.node.stopping.Load() && s.node.pipeline.Stalled() == "" && !s.node.disk.low()
	if mayEnter && ahead[0].heights.Ordered <= tip.Height+entryDistance && time.Since(s.enteredAt) > enterEvery {
		s.enteredAt = time.Now()
		for _, p := range ahead {
			if p.generation == group {
				_ = s.node.control.Send(s.node.peers[p.server], control.KindEnter, nil) // said again after a while
			}
		}
	}
	return nil
}

// candidate is a peer that blocks can come from.
type candidate struct {
	heard
	server order.ServerID
}

// ahead lists the peers to follow, best first: those who order in the latest generation, by height. One that orders in a generation older than what this node knows was cut off, and
// its chain proves nothing. While a decision waits for its base, those who stand there serve as well.
func (s *supervisor) ahead() []candidate {
	latest := max(s.synod.Activated(), s.followed)
	if d := s.synod.Decided(); d != nil {
		latest = max(latest, d.Generation)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var candidates []candidate
	for server, h := range s.heard {
		recent := s.linked[server] && time.Since(h.at) < 10*announceEvery
		orders := h.generation != 0 && h.generation >= uint64(latest)
		atBase := s.pending != nil && uint64(h.heights.Ordered) == s.pending.Base.Height && h.tip == s.pending.Base.Hash
		useful := orders || atBase
		if recent && useful {
			candidates = append(candidates, candidate{h, server})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		switch {
		case a.generation != b.generation:
			return -compare(a.generation, b.generation)
		case a.heights.Ordered != b.heights.Ordered:
			return -compare(a.heights.Ordered, b.heights.Ordered)
		}
		return compare(a.server, b.server)
	})
	return candidates
}

func compare[T ~uint32 | ~uint64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
