package crossing

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/calls"
	"github.com/ledgerd/ledgerd/node/crossing/shards"
	"github.com/ledgerd/ledgerd/node/crossing/streams"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// errNoRegions reports that a fabric has no one-sided memory, which the streams between shards
// need.
var errNoRegions = errors.New("the fabric has no one-sided memory, which a book of several " +
	"shards needs")

// book is the Crossing of a book of several shards: their members, the streams of the tree, the
// verdicts on crossing transactions, and calls.
//
//	directory  the members of all shards; announcer, trails and introductions keep it up to date
//	streams    from the parent shard into this node's batches, from the own chain to the children
//	verdicts   this shard's verdicts for the other shards, and theirs into this node's batches
//	obstacles  why transactions that cross to some shards are refused
//	calls      clients' calls to other shards, and calls of other shards to this node
type book struct {
	config    Config
	host      rdmanet.Host
	directory *shards.Directory
	obstacles *shards.Obstacles
	announcer *shards.Announcer
	trails    *shards.TrailExchange // nil without vouched crossings
	// strangers is nil if the fabric has no door for strangers.
	strangers *shards.Introductions
	streams   *streams.Streams
	verdicts  *shards.Verdicts
	calls     *calls.Calls
	clients   clients
	serving   chan struct{} // closed once Serve has set calls
	lies      lies
	alarm     *alarm
	started   atomic.Bool // verdicts and streams are there
	// absent has the heights up to which members of the own shard lack the blocks, as they said;
	// none for those that were not heard. complained is when the log last said that entries of the
	// stream from above are lost.
	absentMu   sync.Mutex
	absent     map[rdmanet.PeerID]ledger.Height
	complained time.Time
	// chain is the hash of this shard's genesis.
	chain ledger.Hash
	// members is closed when the members that the fabric knows have changed.
	members <-chan struct{}
	// proofs counts the proofs that were asked for (prove).
	proofs atomic.Uint64
	// untold is the height of the last change of this shard's members until it is durable, or 0.
	untold atomic.Uint64
	// epoch is the members' epoch up to which this node is known to have its own shard's trail.
	epoch atomic.Uint64
	// written identifies the memberships of other shards that the home's file has (remember).
	written [][2]uint64
	growth  growth
	former  *formerChildren

	// strays are bundles that a round carried and no block took, because they enter at another
	// shard by now.
	strays *strays
	// late are copies of transactions that other shards handed over.
	late *lateCopies
	// comes gets a value when the chain may wait for an organisation that moves here.
	comes   chan struct{}
	fetcher *fetcher
	// young are the organisations that moved lately.
	young   youngMoves
	context context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup

	// spared reports that verdicts had less than their share in the last batch, in favour of an
	// entry of the stream. Only the goroutine that makes batches uses it.
	spared bool
}

// servingPerPeer and servingMax bound the calls of other shards' nodes under way on this node. Most
// of these calls wait for a transaction.
const servingPerPeer, servingMax = 256, 2048

// announceGap bounds the age of what others know of this shard while its chain grows.
const announceGap = 250 * time.Millisecond

// newBook makes the directory. The rest begins with Start.
func newBook(config Config) (*book, error) {
	directory, err := shards.NewDirectory(config.Genesis)
	if err != nil {
		return nil, err
	}
	directory.SetSelf(config.Self)
	b := &book{config: config, directory: directory, members: directory.Changed(),
		chain: config.Genesis.Hash(), lies: lies{logged: map[ledger.MemberIndex]time.Time{}},
		absent:  map[rdmanet.PeerID]ledger.Height{},
		serving: make(chan struct{}), comes: make(chan struct{}, 1)}
	if b.obstacles, err = shards.NewObstacles(shards.ObstaclesConfig{Directory: directory,
		RefuseAfter: config.RefuseAfter, Logger: config.Logger,
		Waiting: func(shard ledger.ShardID) int {
			return config.Node.Store().WaitingFor(shard)
		},
		Filled: func() {
			if b.started.Load() { // else the first announcement says it
				b.announcer.Filled()
			}
		}}); err != nil {
		return nil, err
	}
	b.context, b.cancel = context.WithCancel(context.Background())
	b.alarm = newAlarm(config.AlarmAfter, b.takenBy, b.gone, b.fed)
	b.alarm.settledWith = b.isLost
	if b.former, err = readFormerChildren(config.Dir); err != nil {
		config.Logger.Warn("shards that hung below this one count as waiting for its entries "+
			"until they are heard", "error", err)
	}
	b.fetcher = b.newFetcher()
	b.late = newLateCopies()
	b.strays = newStrays(config.Logger, func(bundle *ledger.Bundle) ledger.ShardID {
		return config.Node.Store().BundleEntry(bundle)
	}, b.handOverTo)
	if opened := config.Opened; opened != nil {
		b.recallMoves(opened)
		b.grow(opened, opened.KnownDurable())
	}
	b.recall()
	return b, nil
}

// Addresses implements Crossing.
func (b *book) Addresses(own map[rdmanet.PeerID]string) map[rdmanet.PeerID]string {
	all := make(map[rdmanet.PeerID]string, len(own))
	for shard := range b.directory.Tree().Shards() {
		if ledger.ShardID(shard) == b.directory.Own() {
			continue
		}
		_, members := b.directory.Members(ledger.ShardID(shard))
		for _, member := range members {
			all[member.Peer] = member.Address
		}
	}
	for peer, address := range own {
		all[peer] = address
	}
	return all
}

// MembersChanged implements Crossing.
func (b *book) MembersChanged() bool {
	select {
	case <-b.members:
		b.members = b.directory.Changed()
		return true
	default:
		return false
	}
}

// Start implements Crossing.
func (b *book) Start(host rdmanet.Host, lane *wire.Datagrams) (err error) {
	regions, can := host.(rdmanet.RegionHost)
	if !can {
		return errNoRegions
	}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	b.host = host
	node, logger := b.config.Node, b.config.Logger
	b.directory.SetOwn(node.Store().Membership())
	announcing := shards.AnnouncerConfig{Directory: b.directory, Control: lane,
		Own: b.announcement, Full: b.obstacles.OwnFull, Waiting: b.Waiting, Gap: announceGap,
		FullChanged: func() { b.obstacles.Look(time.Now()) }, Logger: logger}
	if b.directory.Vouched() {
		if b.trails, err = shards.NewTrailExchange(shards.TrailExchangeConfig{
			Directory: b.directory, Host: host, Own: b.ownTrail, Logger: logger}); err != nil {
			return err
		}
		announcing.Newer = b.trails.Newer
	}
	if door, has := host.(rdmanet.IntroductionHost); has {
		if b.strangers, err = shards.NewIntroductions(shards.IntroductionsConfig{
			Directory: b.directory, Host: door, Own: b.ownTrail, Logger: logger}); err != nil {
			return err
		}
	}
	if b.announcer, err = shards.NewAnnouncer(announcing); err != nil {
		return err
	}
	if b.verdicts, err = shards.NewVerdicts(b.verdictsConfig(lane)); err != nil {
		return err
	}
	if b.streams, err = streams.New(b.streamsConfig(regions, lane)); err != nil {
		return err
	}
	host.Watch(b.announcer.Event)
	host.Watch(b.streams.Event)
	b.started.Store(true)
	return nil
}

// verdictsConfig is the configuration of the exchange of verdicts.
func (b *book) verdictsConfig(lane *wire.Datagrams) shards.VerdictsConfig {
	node := b.config.Node
	return shards.VerdictsConfig{Directory: b.directory, Control: lane,
		Store: func() shards.Chain { return node.Store() }, Durable: b.durable, Ready: node.Wake,
		Vouched: b.config.Genesis.VouchedCrossings, Groups: func() bool {
			return ledger.TakesAgreements(node.Store().Charter().Version)
		}, Prove: b.proveOrHandOver, Logger: b.config.Logger}
}

// streamsConfig is the configuration of the streams between shards.
func (b *book) streamsConfig(host rdmanet.RegionHost, lane *wire.Datagrams) streams.Config {
	node := b.config.Node
	return streams.Config{Directory: streamDirectory{b.directory}, Host: host, Control: lane,
		Chain: func() streams.Chain { return node.Store() }, Durable: b.durable, Ready: node.Wake,
		Vouched: b.config.Genesis.VouchedCrossings, Logger: b.config.Logger}
}

// durable returns the height up to which this node's blocks are durable.
func (b *book) durable() ledger.Height {
	heights, _ := b.config.Node.Heights()
	return heights.Durable
}

// Serve implements Crossing.
func (b *book) Serve(forwarded http.Handler) (err error) {
	find := func(peer rdmanet.PeerID) (ledger.ShardID, bool) {
		shard, _, known := b.directory.Find(peer)
		return shard, known
	}
	// A call may need a client as soon as calls are served.
	b.clients.mutex.Lock()
	b.calls, err = calls.New(calls.Config{Host: b.host, Find: find,
		Candidates: b.directory.Candidates, Serve: b.answering(forwarded), Logger: b.config.Logger,
		ServingPerPeer: servingPerPeer, ServingMax: servingMax})
	b.clients.mutex.Unlock()
	if err != nil {
		return err
	}
	close(b.serving)
	b.workers.Go(b.handOver)
	if b.started.Load() {
		b.workers.Go(b.fetchArrivals)
	}
	b.workers.Go(b.remember)
	return nil
}

// clients are those of the shards that were called so far. So there is one for a shard as soon as
// the chain has a transaction for it, also if this node does not know its members yet: then nobody
// answers.
type clients struct {
	mutex sync.Mutex
	by    map[ledger.ShardID]ledgerdv1connect.LedgerServiceClient
}

// Client implements route.Shards.
func (b *book) Client(shard ledger.ShardID) ledgerdv1connect.LedgerServiceClient {
	b.clients.mutex.Lock()
	defer b.clients.mutex.Unlock()
	found := b.clients.by[shard]
	if found != nil {
		return found
	}
	found = clientOf(b.calls.Transport(shard), shard)
	if b.clients.by == nil {
		b.clients.by = make(map[ledger.ShardID]ledgerdv1connect.LedgerServiceClient)
	}
	if shard < ledger.MaxShards { // else a node of another shard says what cannot be
		b.clients.by[shard] = found
	}
	return found
}

// clientOf returns the client of a shard's members behind a transport.
func clientOf(transport http.RoundTripper,
	shard ledger.ShardID) ledgerdv1connect.LedgerServiceClient {
	return ledgerdv1connect.NewLedgerServiceClient(&http.Client{Transport: transport},
		calls.URL(shard), connect.WithReadMaxBytes(calls.BodyMax),
		connect.WithAcceptCompression("gzip", nil, nil))
}

// Close implements Crossing.
func (b *book) Close() {
	b.cancel()
	if b.calls != nil {
		b.calls.Close()
	}
	b.workers.Wait()
	if b.streams != nil {
		if err := b.streams.Close(); err != nil {
			b.config.Logger.Error("the streams between shards could not be closed", "error", err)
		}
	}
	if b.verdicts != nil {
		b.verdicts.Close()
	}
	if b.announcer != nil {
		b.announcer.Close()
	}
	if b.trails != nil {
		b.trails.Close()
	}
	if b.strangers != nil {
		b.strangers.Close()
	}
}

// streamDirectory adapts the directory to streams.Directory.
type streamDirectory struct{ *shards.Directory }

// Members implements streams.Directory.
func (d streamDirectory) Members(shard ledger.ShardID) []streams.Member {
	_, members := d.Directory.Members(shard)
	list := make([]streams.Member, len(members))
	for i := range members {
		list[i] = streams.Member{Index: members[i].Index, Peer: members[i].Peer}
	}
	return list
}
