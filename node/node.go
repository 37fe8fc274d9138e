package node

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ledgerd/ledgerd/docs"
	"github.com/ledgerd/ledgerd/explorer"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/catchup"
	"github.com/ledgerd/ledgerd/node/certification"
	"github.com/ledgerd/ledgerd/node/crossing"
	"github.com/ledgerd/ledgerd/node/doors"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/pipeline"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/node/verification"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
	"github.com/ledgerd/ledgerd/shard"
)

// Options configure a node. Only Home is required.
type Options struct {
	Home *home.Home
	// Host is the node's end of the fabric. The node closes it. Its identity must be the one that
	// p2p.PeerID returns for the node's key. If Host is nil, the node opens the fabric that the
	// home's configuration names.
	Host rdmanet.Host
	// Logger defaults to slog.Default.
	Logger *slog.Logger
	// Version is shown to users.
	Version string
	// Store tunes the ledger store.
	Store store.Options
	// Clock returns the time of day. Tests use it for wrong clocks. Nil means time.Now.
	Clock func() time.Time

	// beside replaces the input from other shards. Tests make a node lie with it.
	beside func(mempool.Beside) mempool.Beside
}

// Errors of a node; match them with errors.Is.
var (
	// ErrAddress reports that the node cannot listen on an address.
	ErrAddress = errors.New("cannot listen")
	// ErrStopped reports that the node was stopped.
	ErrStopped = errors.New("node stopped")
	// ErrRemoved reports that the node is no longer a member of the chain.
	ErrRemoved = shard.ErrRemoved
)

// Node is one running node. All methods are safe for concurrent use.
type Node struct {
	options  Options
	home     *home.Home
	logger   *slog.Logger
	started  time.Time
	time     *timekeeper
	peers    peers
	crossing crossing.Crossing
	host     rdmanet.Host
	control  *wire.Datagrams
	exchange *catchup.Exchange
	pool     *mempool.Pool
	pipeline *pipeline.Pipeline
	// verification verifies the signatures of messages that arrive.
	verification *verification.Pool
	forgeries    *forgeries
	// refusedForeseen counts the bundles that are refused because they must fail.
	refusedForeseen *prometheus.CounterVec
	certifier       *certification.Certifier
	life            *life
	rounds          *rounds.Recorder
	backfill        *backfill
	doors           *doors.Doors
	server          *api.Server
	address         string // of the API, as bound
	served          chan struct{}
	admin           *adminListener

	stopping atomic.Bool
	stopOnce sync.Once
	stopErr  error
	done     chan struct{}
	err      error // why the node ended by itself; read after done
	failOnce sync.Once
	disk     *diskWatch
	identity *home.Disk
}

// Start opens the store, joins the fabric and serves the API. It returns when the API listens. The
// context covers the start only. Errors: ErrAddress, those of package store (ErrDamaged,
// ErrForeign, ErrLocked), and the fabric's.
func Start(ctx context.Context, options Options) (_ *Node, err error) {
	n := &Node{options: options, home: options.Home, logger: options.Logger, started: time.Now(),
		done: make(chan struct{}), served: make(chan struct{}), rounds: rounds.New()}
	if n.home.Config.Ordering.RecordRounds {
		n.rounds.Watch()
	}
	if n.logger == nil {
		n.logger = slog.Default()
	}
	n.logger = slog.New(&memberNames{n.logger.Handler(), n.peers.name}).With("node", n.home.Name())
	var undo []func()
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()
	own, err := p2p.PeerID(n.home.Key.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	// Bind the API's address first: an occupied port is the most common mistake, and nothing has to
	// be undone yet.
	listener, err := api.Listen(ctx, n.home.Config.API.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w for clients on %s: %w; stop what uses it, or change [api] "+
			"listen in %s", ErrAddress, n.home.Config.API.Listen,
			err, filepath.Join(n.home.Dir, home.ConfigFile))
	}
	undo = append(undo, func() { _ = listener.Close() })
	n.address = listener.Addr().String()

	if n.home.Config.Store.ReserveBytes > 0 {
		n.options.Store.ReserveBytes = n.home.Config.Store.ReserveBytes
	}
	if n.home.Config.Store.AccountsInMemory > 0 {
		n.options.Store.AccountsInMemory = n.home.Config.Store.AccountsInMemory
	}
	n.disk = newDiskWatch(n.home.Dir, n.options.Store, n.logger)
	if err := n.openDisk(); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = n.identity.Close() })
	n.verification, n.forgeries = verification.New(), newForgeries(n)
	n.refusedForeseen = newForeseenMetric()
	undo = append(undo, n.verification.Close)
	n.options.Store.Verify = n.verification.Batches
	opened, err := n.openStore()
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = n.currentStore(opened).Close() })
	if err := n.identity.Confirm(); err != nil {
		return nil, err
	}

	membership := opened.Membership()
	if at := n.home.Membership(); at.Number > membership.Number {
		membership = at
	}
	n.time = newTimekeeper(n.home.Self, options.Clock, membership)
	table, err := newPeerTable(membership.Members, n.home.Self, own)
	if err != nil {
		return nil, err
	}
	n.peers.table.Store(table)
	if n.crossing, err = crossing.New(crossing.Config{Genesis: n.home.Genesis, Self: own,
		Key: n.home.Key, Dir: n.home.Dir, Opened: opened,
		RefuseAfter: n.home.Config.Shards.RefuseAfter,
		AlarmAfter:  n.home.Config.Shards.AlarmAfter, Now: n.time.ofDay, Node: beside{n},
		Logger: n.logger}); err != nil {
		return nil, err
	}
	n.host = options.Host
	if n.host == nil {
		if n.host, err = n.openFabric(table); err != nil {
			return nil, err
		}
	}
	undo = append(undo, func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.host.Close(ended)
	})
	if n.host.ID() != own {
		return nil, fmt.Errorf("the fabric's host is %s, but by the node's key it must be %s",
			n.host.ID(),
			own)
	}

	pooling := mempool.Config{BytesMax: n.home.Config.Ordering.PoolBytesMax,
		Tip: func() mempool.Tip {
			return n.pipeline.Tip()
		}, Clock: n.time}
	executing := pipeline.Config{Self: n.home.Self, Logger: n.logger, Failed: n.fail,
		Verification: n.verification, Forged: n.forgeries.found}
	executing.Stored = func(stored pipeline.Stored) {
		n.life.tellStored(stored)
		n.certifier.Progressed()
	}
	executing.EncodeRecord = encodeRecord
	executing.Recorded = func(run uint64, members []order.ServerID, rounds []shard.Recorded) {
		n.life.tellRecorded(run, members, rounds)
	}
	n.crossing.Hook(&pooling, &executing)
	if options.beside != nil {
		pooling.Beside = options.beside(pooling.Beside)
	}
	executing.Applied = n.seals(executing.Applied)
	n.certifier = n.newCertifier()
	durableTo := executing.DurableTo
	executing.DurableTo = func(height ledger.Height) {
		if durableTo != nil {
			durableTo(height)
		}
		n.certifier.Progressed()
	}
	n.pool = mempool.New(pooling)
	n.verification.FindWith(n.pool.Bundle)
	executing.Pool = n.pool
	n.life = newLife(n)
	n.backfill = newBackfill(n)
	n.pipeline = pipeline.New(executing, opened)
	undo = append(undo, n.pipeline.Close)
	if n.control, err = wire.NewDatagrams(n.host, n.logger); err != nil {
		return nil, err
	}
	n.exchange, err = catchup.New(catchup.Config{
		Host: n.host, Peers: table.ids, Chain: func() catchup.Chain {
			return n.pipeline.Store()
		}, Contents: n.life.contents.get, Logger: n.logger,
	})
	if err != nil {
		return nil, err
	}
	undo = append(undo, n.exchange.Close)
	n.certifier.Start()
	undo = append(undo, n.certifier.Close)
	registry := prometheus.NewRegistry()
	if err := n.register(registry); err != nil {
		return nil, err
	}
	config := n.home.Config.API
	n.doors, err = doors.New(n.doorsConfig(n.home))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", home.ErrConfig, err)
	}
	n.server, err = n.crossing.API(n, api.Options{
		Logger: n.logger, Registry: registry, Version: n.options.Version,
		Explorer:       explorer.Handler(),
		Docs:           docs.Handler(),
		Doors:          n.doors,
		AllowedOrigins: config.AllowedOrigins,
		CallsPerSecond: callsPerSecond(config.CallsPerSecond),
		AlarmAfter:     n.home.Config.Shards.AlarmAfter,
		Clock:          n.time.ofDay,
		RecordsRounds:  n.home.Config.Ordering.RecordRounds,
	})
	if err != nil {
		return nil, err
	}
	if n.admin, err = n.listenAdmin(ctx); err != nil {
		return nil, err
	}
	undo = append(undo, n.admin.close)
	if err := n.crossing.Start(n.host, n.control); err != nil {
		return nil, err
	}
	undo = append(undo, n.crossing.Close)
	n.warnOfEngine()
	if err := n.life.start(); err != nil {
		return nil, err
	}
	undo = append(undo, n.life.stop)
	go n.watchStore(opened)
	n.backfill.start()
	undo = append(undo, n.backfill.stop)
	if err := n.crossing.Serve(n.server.Forwarded()); err != nil {
		return nil, err
	}
	go func() {
		defer close(n.served)
		if err := n.server.Serve(listener); err != nil && !n.stopping.Load() {
			n.fail(fmt.Errorf("the API ended: %w", err))
		}
	}()
	n.logger.Info("started", "api", n.URL(), "admin", n.AdminURL(), "fabric",
		n.home.FabricAddress(), "over", n.fabricKind(), "height",
		opened.Head().Height, "chain", n.home.Genesis.Chain)
	return n, nil
}

// openFabric opens the fabric's host that the configuration names.
func (n *Node) openFabric(table *peerTable) (rdmanet.Host, error) {
	config := n.home.Config.Fabric
	host, err := fabric.Open(config.Kind, fabric.Options{
		Key: n.home.Key, Listen: n.home.FabricAddress(),
		Members: n.crossing.Addresses(table.addresses), Device: config.Device, GID: config.GID,
		Logger: n.logger,
	})
	switch {
	case errors.Is(err, fabric.ErrUnusable), errors.Is(err, fabric.ErrOneProcess):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w for the other nodes on %s: %w", ErrAddress,
			n.home.FabricAddress(), err)
	}
	return host, nil
}

// openDisk opens the disk's identity, which says whether the disk still holds all it held and
// promised.
func (n *Node) openDisk() (err error) {
	n.identity, err = n.home.OpenDisk()
	switch {
	case errors.Is(err, home.ErrLocked):
		return fmt.Errorf("%w, with its data folder %s; is this node running already?", err,
			n.home.Data())
	case err != nil:
		return fmt.Errorf("the identity of the disk: %w", err)
	}
	d := n.identity
	switch {
	case d.Learner != "" && d.Renewed:
		n.logger.Warn("this node's disk may have forgotten what it held or promised, so it has "+
			"a new identity",
			"disk", d.ID, "reason", d.Learner)
	case d.Learner != "":
		n.logger.Info("this node's disk is not its original one", "disk", d.ID, "reason", d.Learner)
	case d.Renewed:
		n.logger.Info("this home was made by an older version: its disk now has an identity",
			"disk",
			d.ID)
	}
	if d.NoBirthTime {
		n.logger.Warn("the file system keeps no birth times of files: a copy of this home may "+
			"not be detected",
			"folder", n.home.Dir)
	}
	return nil
}

// openStore opens the store in the home's data folder.
func (n *Node) openStore() (*store.Store, error) {
	seed, err := n.home.Seed()
	if err != nil {
		return nil, err
	}
	n.options.Store.Seed = seed
	opened, err := store.Open(n.home.Data(), n.home.Genesis, n.options.Store)
	switch {
	case errors.Is(err, store.ErrLocked):
		return nil, fmt.Errorf("%w: %s; is this node running already?", err, n.home.Data())
	case errors.Is(err, store.ErrForeign):
		return nil, fmt.Errorf("%w: %s is not of the chain in %s", err, n.home.Data(),
			filepath.Join(n.home.Dir, home.GenesisFile))
	case errors.Is(err, store.ErrDamaged):
		return nil, n.adviseOnDamage(err)
	}
	return opened, err
}

func (n *Node) adviseOnDamage(err error) error {
	return fmt.Errorf("%w; move %s away and start again: the node fetches the chain from its peers",
		err, n.home.Data())
}

// watchStore ends the node's part in the group if the store finds damage behind, in what it did not
// check when it was opened. It returns at the latest when the store is closed.
func (n *Node) watchStore(opened *store.Store) {
	if err := opened.Checked(context.Background()); errors.Is(err, store.ErrDamaged) {
		n.fail(n.adviseOnDamage(err))
	}
}

func (n *Node) currentStore(opened *store.Store) *store.Store {
	if n.pipeline != nil {
		return n.pipeline.Store()
	}
	return opened
}

// fabricKind returns the kind of the fabric, for the log.
func (n *Node) fabricKind() fabric.Kind {
	if n.options.Host != nil {
		return fabric.Memory
	}
	return n.home.Config.Fabric.Kind
}

// URL returns the address of the API and of the explorer.
func (n *Node) URL() string {
	return n.doors.Scheme() + "://" + n.address
}

// Done is closed when the node has ended. If it ended by itself, Err says why.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns why the node ended by itself. It is nil while the node runs and after Stop.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// fail ends the node's part in the group. The node keeps serving reads until it is stopped.
func (n *Node) fail(err error) {
	if errors.Is(err, syscall.EROFS) {
		err = fmt.Errorf("%w: %s, and start this node again", err, readOnly(n.home.Dir))
	}
	n.failOnce.Do(func() {
		level := slog.LevelError
		if errors.Is(err, ErrRemoved) {
			level = slog.LevelInfo // an expected end
		}
		n.logger.Log(context.Background(), level, "this node ends", "reason", err)
		n.err = err
		n.life.halt(err)
		close(n.done)
	})
}

const (
	// drainPatience bounds how long a stopping node waits for the pending transactions of its
	// clients.
	drainPatience = 3 * time.Second
	// closePatience bounds how long it then waits for open calls to end and for the blocks under
	// way to be executed. A machine that is busy needs longer for a few blocks than a client waits
	// for a transaction.
	closePatience = 10 * time.Second
)

// Stop ends the node in order. It takes no new writes, finishes the work under way as far as the
// context allows, syncs everything that was executed, and closes all parts. A second call waits for
// the end of the first.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() { n.stopErr = n.shutdown(ctx) })
	return n.stopErr
}

func (n *Node) shutdown(ctx context.Context) error {
	n.stopping.Store(true)
	n.logger.Info("stopping")
	n.life.enqueue(shard.Stopping{})
	n.crossing.Changed()
	patience, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	for n.life.nodeMode() == report.ModeOrdering {
		if transactions, _ := n.pool.Size(); transactions == 0 {
			break
		}
		_, changed := n.pipeline.Heights()
		select {
		case <-changed:
			continue
		case <-time.After(100 * time.Millisecond):
			continue
		case <-patience.Done():
		}
		break
	}
	// Waiting for the clients' transactions may have used up the patience. Closing has its own
	// time.
	finishing, cancel := context.WithTimeout(ctx, closePatience)
	defer cancel()
	var errs []error
	if err := n.server.Shutdown(finishing); err != nil {
		errs = append(errs, fmt.Errorf("node: calls that were open at the end were cut off: %w",
			err))
	}
	<-n.served
	n.admin.close()
	n.backfill.stop()
	n.life.stop()
	n.crossing.Close()
	if n.pipeline.Stalled() == "" {
		if err := n.pipeline.Barrier(finishing); err != nil &&
			!errors.Is(err, pipeline.ErrStopping) && n.pipeline.Stalled() == "" {
			errs = append(errs, fmt.Errorf("node: stopped before it had executed the last blocks, "+
				"which it does after its next start: %w", err))
		}
	}
	n.certifier.Close()
	n.pipeline.Close()
	n.verification.Close()
	n.exchange.Close()
	closing, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := n.host.Close(closing); err != nil && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, context.Canceled) {
		errs = append(errs, err)
	}
	height := n.pipeline.Tip().Height
	errs = append(errs, n.pipeline.Store().Close(), n.identity.Close())
	n.failOnce.Do(func() { close(n.done) })
	n.logger.Info("stopped", "height", height)
	return errors.Join(errs...)
}
