package node

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/catchup"
	"github.com/ledgerd/ledgerd/node/detector"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/shard"
)

// tickEvery is the length of one tick of the machine in real time.
const tickEvery = 100 * time.Millisecond

// Bounds of the messages of one member that wait for the machine. Senders repeat messages, so
// excess messages may be dropped. A member has its own share: it can fill no other's.
const (
	messagesMax     = 128
	messageBytesMax = 4 << 20
)

// complaintEvery is the pause between two log records about malformed messages of one member.
const complaintEvery = 10 * time.Second

// life runs the machine of package shard: it hands inputs to it, one at a time, and carries out its
// effects. Only the loop's goroutine does so. Long work runs beside the loop, one piece at a time,
// and its result comes back as an input.
//
//	life.go         the loop and its surroundings
//	life_inputs.go  the sources of inputs
//	life_effects.go the execution of each effect
//	life_ticks.go   when ticks are given
//	ordering.go     what drives the engine
//	telling.go      how far the own disk has got, and those of others
//	chain.go        the chain as the machine reads it
//	engine_choice.go which engine the members order by
//	fetching.go     blocks from peers
//	set_aside.go    blocks that are not in the majority's chain
//	peers.go        the members and their addresses
type life struct {
	node     *Node
	driver   *ordering
	detector *detector.Detector
	contents *contents

	mu        sync.Mutex // guards the fields from here down to complained
	machine   *shard.Member
	modeSince time.Time
	mode      shard.Mode
	why       string
	digraph   *digraph.Digraph // of the group, shown by the API
	// acting is set from the start of an engine until it is frozen. Eons may change in between.
	acting bool
	warned map[order.ServerID]bool
	// per peer, the base that the peer lacks and that was logged
	strays   map[order.ServerID]catchup.Point
	inputs   []shard.Input
	messages map[order.ServerID]messages // of the inputs
	// complained is when a malformed message of a member was last logged.
	complained map[order.ServerID]time.Time

	later   laterTelling
	peersOf peersAsOf
	pace    tickPace
	wake    chan struct{}
	context context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup
	started bool
	stopped bool // guarded by mu; if set, no worker starts any more
}

// messages counts the messages of a member that wait, and their bytes.
type messages struct{ count, bytes int }

func newLife(n *Node) *life {
	l := &life{
		node: n, wake: make(chan struct{}, 1), contents: newContents(n.home.Rounds()),
		modeSince: time.Now(), mode: shard.Starting, why: "looking for the other nodes",
		warned: map[order.ServerID]bool{}, strays: map[order.ServerID]catchup.Point{},
		messages: map[order.ServerID]messages{}, complained: map[order.ServerID]time.Time{},
	}
	l.context, l.cancel = context.WithCancel(context.Background())
	return l
}

// start reads the promises of earlier processes, registers for messages, and starts the loop.
func (l *life) start() error {
	n := l.node
	config := n.home.Config.Ordering
	disk, err := l.readDisk()
	if err != nil {
		return err
	}
	machine, err := shard.New(shard.Config{
		Self: n.home.Self, Disk: disk, Chain: lifeChain{n}, Timing: l.timing(),
		Ticket: rand.Uint64(), Home: n.home.Dir, APIAddress: n.URL(),
		Settings: settings(config), Prompt: config.Prompt,
	})
	if err != nil {
		return err
	}
	l.mu.Lock() // other shards may already ask for the mode
	l.machine = machine
	l.mu.Unlock()
	var record func(rounds []order.Delivery)
	if config.LogRounds {
		record = n.pipeline.Record
	}
	if l.driver, err = l.newOrdering(record); err != nil {
		return err
	}
	watching := detector.Config{
		Host: n.host, Control: n.control, Self: n.home.Self, Peers: n.peers.table.Load().ids,
		Suspect: l.driver.Suspect, Logger: n.logger,
		Timing: detector.Timing{Heartbeat: config.Heartbeat, Timeout: config.SuspectAfter},
	}
	if l.eventual() {
		watching.Trust, watching.Quiet = l.driver.Trust, l.quiet
	} else {
		n.logger.Warn("the failure detector is treated as perfect: a running node that is "+
			"suspected may lose transactions that it acknowledged, and the members cannot change",
			"suspect_after",
			config.SuspectAfter)
	}
	if l.detector, err = detector.New(watching); err != nil {
		l.driver.Close()
		return err
	}
	n.host.Watch(l.onLink)
	for kind, handler := range map[wire.Kind]wire.Handler{
		wire.KindStatus: l.onAnnouncement, wire.KindGeneration: l.onSynod,
		wire.KindEnter: l.onWish, wire.KindStored: l.onStored, wire.KindRecorded: l.onRecorded,
		wire.KindStatement: l.onStatement,
	} {
		if err := n.control.Register(kind, handler); err != nil {
			l.detector.Close()
			l.driver.Close()
			return err
		}
	}
	l.started = true
	l.workers.Add(1)
	go l.run()
	return nil
}

// timing returns the machine's timing, adapted to the detector's configured timeout.
func (l *life) timing() shard.Timing {
	timing := shard.DefaultTiming()
	timing.Stall = max(timing.Stall, int(2*l.node.home.Config.Ordering.SuspectAfter/tickEvery))
	return timing
}

// stop ends the engine and the goroutines. It closes the driver after the workers have ended. The
// driver may report the end of a run until then.
func (l *life) stop() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.cancel()
	l.later.stop()
	l.workers.Wait()
	l.tellRest()
	if l.started {
		l.driver.Close()
		l.detector.Close()
	}
}

// work runs a long function beside the loop. It does nothing once the node stops.
func (l *life) work(run func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.workers.Go(run)
	}
}

// eventual reports whether the detector is treated as one that makes mistakes.
func (l *life) eventual() bool {
	return l.node.home.Config.Ordering.Detector != allconcur.DetectorPerfect.String()
}

func (l *life) newEngine(g driver.Group, place order.ServerID) (order.Broadcaster, error) {
	reliable, err := l.reliable(g.Engine, len(g.Members))
	if err != nil {
		return nil, err
	}
	config := l.node.home.Config.Ordering
	genesis, chain := l.node.home.Genesis, l.node.Store().GenesisHash()
	made, err := engineNamed(g.Engine)
	if err != nil {
		return nil, err
	}
	return made.New(engine.Config{
		Self: place, Servers: len(g.Members), Shard: g.Shard, Reliable: reliable, Run: g.Run,
		FirstRound: g.FirstRound, MaxPayload: config.BatchBytesMax, Perfect: !l.eventual(),
		Prompt: config.Prompt && made.Prompt, Trains: config.Trains,
		Change: func(d order.Delivery) bool { return changes(d, genesis, chain) },
	})
}

// changes reports whether a round contains a change of the group: a mark of an entrant or of the
// generation's end, or a change of the membership.
func changes(d order.Delivery, genesis *ledger.Genesis, chain ledger.Hash) bool {
	for i := range d.Messages {
		batch, marks, err := mempool.SplitPayload(d.Messages[i].Payload)
		if err == nil && (marks.Any() || ledger.MembershipChangeIn(batch, genesis, chain)) {
			return true
		}
	}
	return false
}

// reliable returns the digraph of who watches whom in a group with an engine.
func (l *life) reliable(name string, members int) (*digraph.Digraph, error) {
	config := l.node.home.Config.Ordering
	mttf := time.Duration(config.ServerMTTFHour) * time.Hour
	reliable, err := digraph.Reliable(members, digraph.Target{Nines: config.TargetNines,
		MTTF: mttf})
	if err != nil {
		return nil, err
	}
	made, err := engineNamed(name)
	if err != nil {
		return nil, err
	}
	return made.Watches(reliable)
}

func (l *life) run() {
	defer l.workers.Done()
	timer := time.NewTimer(tickEvery)
	defer timer.Stop()
	l.pace.plan(time.Now(), 1)
	for {
		due := false
		select {
		case <-l.context.Done():
			return
		case <-timer.C:
			due = true
		case <-l.wake:
		}
		late := l.pace.passed(time.Now(), due)
		err := l.turn(late, due)
		if due || l.pace.resting() {
			timer.Reset(l.nextTick())
		}
		if err != nil {
			l.node.fail(err)
			// Later turns may fail as early as this one. So stop the engine now.
			if err := l.step(shard.Failed{Err: err}); err != nil {
				l.node.logger.Error("the engine could not be stopped in order", "error", err)
			}
		}
	}
}

// turn hands all pending inputs to the machine, after the ticks that are late and before the one
// that is due now, if any.
func (l *life) turn(late int, due bool) error {
	l.mu.Lock()
	inputs := l.inputs
	l.inputs = nil
	clear(l.messages)
	l.mu.Unlock()
	if err := l.refreshPeers(); err != nil {
		return err
	}
	var ticks []shard.Input
	for ; late > 0; late-- {
		ago := late
		if !due {
			ago--
		}
		ticks = append(ticks, l.progressThen(ago), shard.Tick{})
	}
	inputs = append(ticks, inputs...)
	if due {
		inputs = append(inputs, l.diskNow(), l.progressThen(0), shard.Tick{})
	}
	for _, input := range inputs {
		if input == nil {
			continue
		}
		if err := l.step(input); err != nil {
			return err
		}
	}
	if due {
		l.proposeDue()
	}
	return nil
}

// proposeDue proposes a block if the chain has an occurrence of a schedule that is due by this
// node's clock. An idle chain makes no block otherwise. If other clocks are behind, the round makes
// none, and the next tick proposes another one.
func (l *life) proposeDue() {
	view := l.node.time.View()
	if view.Known && l.node.Store().IsDue(view.Time) {
		l.node.pool.Due()
	}
}

// step hands one input to the machine and carries out the effects, until no effect is left.
func (l *life) step(input shard.Input) error {
	for answers := []shard.Input{input}; len(answers) > 0; answers = answers[1:] {
		l.mu.Lock()
		l.machine.Step(answers[0])
		effects := l.machine.Ready()
		l.mu.Unlock()
		for len(effects) > 0 {
			for _, effect := range effects {
				answer, err := l.carryOut(effect)
				if err != nil {
					return err
				}
				if answer != nil {
					answers = append(answers, answer)
				}
			}
			l.mu.Lock()
			effects = l.machine.Ready()
			l.mu.Unlock()
		}
	}
	return nil
}

// enqueue queues an input for the machine.
func (l *life) enqueue(input shard.Input) {
	l.mu.Lock()
	l.inputs = append(l.inputs, input)
	l.mu.Unlock()
	l.wakeUp()
}

// enqueueMessage queues a member's message for the machine, or drops it if too many of that member
// wait.
func (l *life) enqueueMessage(from order.ServerID, size int, input shard.Input) {
	l.mu.Lock()
	waiting := l.messages[from]
	full := waiting.count >= messagesMax || waiting.bytes >= messageBytesMax
	if !full {
		l.messages[from] = messages{waiting.count + 1, waiting.bytes + size}
		l.inputs = append(l.inputs, input)
	}
	l.mu.Unlock()
	if !full {
		l.wakeUp()
	}
}

// complain logs what is wrong with a member's message, unless it did so a moment ago.
func (l *life) complain(about order.ServerID, message string, arguments ...any) {
	now := time.Now()
	l.mu.Lock()
	quiet := now.Sub(l.complained[about]) < complaintEvery
	if !quiet {
		l.complained[about] = now
	}
	l.mu.Unlock()
	if !quiet {
		l.node.logger.Error(message, append(arguments, "member", about)...)
	}
}

func (l *life) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// halt ends this node's part in the group for good.
func (l *life) halt(err error) { l.enqueue(shard.Failed{Err: err}) }

// view returns the machine's view. Before the machine exists, only the mode and its reason are set.
func (l *life) view() shard.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.machine == nil {
		return shard.View{Mode: l.mode, Why: l.why}
	}
	return l.machine.View()
}

// modeStatus returns the mode, its reason, and how long the mode has lasted.
func (l *life) modeStatus() (mode report.NodeMode, why string, since time.Duration) {
	view := l.view()
	l.mu.Lock()
	defer l.mu.Unlock()
	return report.NodeMode(view.Mode), view.Why, time.Since(l.modeSince)
}

// overlay returns the reliable digraph of the last run, or nil before the first run.
func (l *life) overlay() *digraph.Digraph {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.digraph
}

// nodeMode returns the node's mode.
func (l *life) nodeMode() report.NodeMode { return report.NodeMode(l.view().Mode) }

// senderOf returns the sender of a message as a server.
func (l *life) senderOf(from rdmanet.Peer) (order.ServerID, bool) {
	return l.node.peers.server(from.ID)
}
