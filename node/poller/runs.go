package poller

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// DefaultFarewell is how long a run that has ended goes on serving those that do not know it yet.
const DefaultFarewell = 2 * time.Second

// farewellsMax bounds the ended runs that go on at a time.
const farewellsMax = 2

// RunsConfig configures Runs. Host, Peers, NewMachine, Source and Sink are required. Groups, peers
// and what is passed to the functions are as for driver.Config.
type RunsConfig struct {
	// Host is this server's end of the fabric.
	Host rdmanet.RegionHost
	// Self is this server's place in Peers.
	Self order.ServerID
	// Peers are all servers that can be members of a group, including this one. A place may be
	// empty.
	Peers []rdmanet.PeerID
	// NewMachine makes the engine of a group in which this server has the given place. peers are
	// the incarnations of the members, by place. host is Host, and counts what the engine posts.
	NewMachine func(group driver.Group, place order.ServerID, peers []rdmanet.Peer,
		host rdmanet.RegionHost) (engine.Machine, error)
	Source driver.Source
	// Sink must keep nothing waiting: a leader whose Sink waits sends no heartbeats.
	Sink driver.PromptSink
	// MaxBatch bounds a batch in bytes. Zero means driver.DefaultMaxBatch.
	MaxBatch int
	// Idle is that of Config.
	Idle time.Duration
	// Farewell bounds how long a run that ended goes on for members that do not know its end. Zero
	// means DefaultFarewell.
	Farewell time.Duration
	// Rounds, Lost, Removed, Halted, Ended, Moved and Logger are as for driver.Config.
	Rounds  *rounds.Recorder
	Lost    func(run uint64, server order.ServerID, cause error)
	Removed func(run uint64, servers []order.ServerID)
	Halted  func(group driver.Group, reason string)
	Ended   func(group driver.Group, members []order.ServerID)
	Moved   func()
	Logger  *slog.Logger
}

// Runs runs a node's engines over one-sided memory, one at a time, as driver.Driver runs those that
// take frames. Its methods may be called from several goroutines.
type Runs struct {
	config RunsConfig
	status atomic.Pointer[driver.Status]
	latest atomic.Pointer[run]

	met          sync.Mutex // held for moments only
	incarnations map[rdmanet.PeerID]rdmanet.Incarnation

	mu        sync.Mutex // held while a run starts or ends
	peers     []rdmanet.PeerID
	current   *run
	farewells []*run
	closed    bool
	// ends waits for the goroutines of all runs.
	ends sync.WaitGroup
}

// NewRuns makes Runs without a run.
func NewRuns(config RunsConfig) (*Runs, error) {
	switch {
	case config.Host == nil, config.NewMachine == nil, config.Source == nil, config.Sink == nil:
		return nil, fmt.Errorf("%w: Host, NewMachine, Source and Sink are needed",
			driver.ErrConfig)
	case int(config.Self) >= len(config.Peers) || config.Peers[config.Self] != config.Host.ID():
		return nil, fmt.Errorf("%w: the host %s is not peer %d", driver.ErrConfig,
			config.Host.ID(), config.Self)
	}
	config.MaxBatch = cmp.Or(config.MaxBatch, driver.DefaultMaxBatch)
	config.Farewell = cmp.Or(config.Farewell, DefaultFarewell)
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	r := &Runs{config: config, peers: slices.Clone(config.Peers),
		incarnations: map[rdmanet.PeerID]rdmanet.Incarnation{
			config.Host.ID(): config.Host.Incarnation()}}
	r.status.Store(&driver.Status{})
	config.Host.Watch(func(event rdmanet.PeerEvent) {
		if event.Kind == rdmanet.PeerConnected || event.Kind == rdmanet.PeerRestarted {
			r.Met(event.Peer)
		}
	})
	return r, nil
}

// Met says in which incarnation a peer was met last. Runs learns it from the fabric, too, but not
// of peers that were there before it. Access to memory is granted to incarnations, so a run begins
// once all of its members were met. It never blocks.
func (r *Runs) Met(peer rdmanet.Peer) {
	r.met.Lock()
	newer := peer.Incarnation > r.incarnations[peer.ID]
	if newer {
		r.incarnations[peer.ID] = peer.Incarnation
	}
	r.met.Unlock()
	if current := r.latest.Load(); newer && current != nil {
		current.meets(peer)
	}
}

// incarnationsOf returns the incarnations of peers, and the places of those that were not met.
func (r *Runs) incarnationsOf(ids []rdmanet.PeerID) (peers []rdmanet.Peer, unmet []order.ServerID) {
	r.met.Lock()
	defer r.met.Unlock()
	for place, id := range ids {
		peers = append(peers, rdmanet.Peer{ID: id, Incarnation: r.incarnations[id]})
		if r.incarnations[id] == 0 {
			unmet = append(unmet, order.ServerID(place))
		}
	}
	return peers, unmet
}

// Activate starts the engine of the group, which must be of a later run, at once or as soon as all
// of its members were met. A run that has not ended by itself ends as with Freeze. One that has
// goes on for a while, for members that do not know that it ended. Errors: driver.ErrGroup,
// driver.ErrClosed, and the engine's own.
func (r *Runs) Activate(group driver.Group) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return driver.ErrClosed
	}
	last := uint64(0)
	if r.current != nil {
		last = r.current.group.Run
	}
	place, err := group.PlaceOf(r.config.Self, r.peers, last)
	if err != nil {
		return err
	}
	group.Members = slices.Clone(group.Members)
	if r.current != nil {
		r.part(r.current)
	}
	next := newRun(r, group, place)
	r.current = next
	r.latest.Store(next)
	r.config.Rounds.Begin(group.Run, group.FirstRound, group.Members)
	switch began, err := next.begin(); {
	case err != nil:
		return fmt.Errorf("poller: engine of run %d: %w", group.Run, err)
	case !began:
		r.config.Logger.Info("a run waits for members that were not met", "run", group.Run,
			"members", r.status.Load().Engine.Awaited)
		r.ends.Go(next.beginLater)
	}
	return nil
}

// part ends a run that another one follows. The caller holds the lock.
func (r *Runs) part(last *run) {
	if !last.over.Load() {
		if err := last.freeze().Err; err != nil {
			r.config.Logger.Error("a run could not be frozen", "run", last.group.Run, "error", err)
		}
		return
	}
	last.leaveSource()
	r.farewells = append(r.farewells, last)
	if len(r.farewells) > farewellsMax {
		r.farewells[0].freeze()
		r.farewells = r.farewells[1:]
	}
	r.ends.Go(func() {
		timer := time.NewTimer(r.config.Farewell)
		defer timer.Stop()
		select {
		case <-last.ctx.Done():
		case <-timer.C:
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		last.freeze()
		r.farewells = slices.DeleteFunc(r.farewells, func(f *run) bool { return f == last })
	})
}

// Part ends the current run, if there is one, as Activate of a later run does.
func (r *Runs) Part() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		r.part(r.current)
		r.current = nil
	}
}

// Freeze ends the running engine, if any, for good. When it returns, the Sink gets nothing more of
// it, and nobody writes its memory. It returns what the run leaves behind. Another call returns the
// same.
func (r *Runs) Freeze() driver.Remains {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		return driver.Remains{}
	}
	return r.current.freeze()
}

// SetPeers replaces the peers, as driver.Driver.SetPeers does.
func (r *Runs) SetPeers(peers []rdmanet.PeerID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int(r.config.Self) >= len(peers) || peers[r.config.Self] != r.config.Host.ID() {
		return fmt.Errorf("%w: peer %d of %d is not the host, %s", driver.ErrConfig, r.config.Self,
			len(peers), r.config.Host.ID())
	}
	r.peers = slices.Clone(peers)
	return nil
}

// Suspect tells the engine of that run, if it still runs, that the failure detector suspects the
// server. It never blocks.
func (r *Runs) Suspect(number uint64, server order.ServerID, cause error) {
	if current := r.latest.Load(); current != nil && current.group.Run == number {
		current.suspect(server, cause)
	}
}

// Trust tells the engine of that run, if it still runs, that the failure detector no longer
// suspects the server. It never blocks. It has no effect for a server that restarted.
func (r *Runs) Trust(number uint64, server order.ServerID) {
	if current := r.latest.Load(); current != nil && current.group.Run == number {
		current.trust(server)
	}
}

// Status returns the state of the current run. It is a copy at most driver.StatusInterval old while
// rounds run, and it never changes.
func (r *Runs) Status() *driver.Status { return r.status.Load() }

// Close ends all runs and goroutines, and waits for them. The host stays open. A second call waits
// for the end of the first.
func (r *Runs) Close() {
	r.mu.Lock()
	r.closed = true
	for _, last := range r.farewells {
		last.freeze()
	}
	if r.current != nil {
		r.current.freeze()
	}
	r.mu.Unlock()
	r.ends.Wait()
}

// errRestarted is why a member is lost to a run.
var errRestarted = errors.New("it restarted, and has lost its part in the run")
