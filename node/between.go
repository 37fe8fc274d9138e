package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/calls"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/shards"
	"github.com/ledgerd/ledgerd/node/streams"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/shard"
)

// errNoRegions reports that a fabric has no one-sided memory, which the streams between shards
// need.
var errNoRegions = errors.New("the fabric has no one-sided memory, which a book of several " +
	"shards needs")

// crossShard connects a node to the other shards of its book: their members, the streams of the
// tree, the verdicts on crossing transactions, and calls. It is nil in a book of one shard.
//
//	directory  the members of all shards; the announcer keeps it up to date
//	streams    from the parent shard into this node's batches, from the own chain to the children
//	verdicts   this shard's verdicts for the other shards, and theirs into this node's batches
//	calls      clients' calls to other shards, and calls of other shards to this node
type crossShard struct {
	node      *Node
	directory *shards.Directory
	announcer *shards.Announcer
	streams   *streams.Streams
	verdicts  *shards.Verdicts
	calls     *calls.Calls
	clients   []ledgerdv1connect.LedgerServiceClient // by shard
	// members is closed when the members that the fabric knows have changed.
	members <-chan struct{}
	// untold is the height of the last change of this shard's members until it is durable, or 0.
	untold atomic.Uint64
	// written identifies the memberships of other shards that the home's file has (remember).
	written [][2]uint64

	// strays are bundles that a round carried and no block took, because they enter at another
	// shard by now.
	strays  chan *ledger.Bundle
	context context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup

	// spared reports that verdicts had less than their share in the last batch, in favour of an
	// entry of the stream. Only the goroutine that makes batches uses it.
	spared bool
}

// straysMax bounds the bundles that wait to be handed over to their new shard. A bundle beyond that
// is lost, as when a node ends: its client sends it again.
const straysMax = 256

// strayPatience bounds an attempt to hand over a stray.
const strayPatience = 10 * time.Second

// servingPerPeer and servingMax bound the calls of other shards' nodes under way on this node. Most
// of these calls wait for a transaction.
const servingPerPeer, servingMax = 256, 2048

// announceGap bounds the age of what others know of this shard while its chain grows.
const announceGap = 250 * time.Millisecond

// newBetween makes the directory. It returns nil for a book of one shard. The rest begins with
// start.
func newBetween(n *Node, self rdmanet.PeerID) (*crossShard, error) {
	if !n.home.Genesis.Sharded() {
		return nil, nil
	}
	directory, err := shards.NewDirectory(n.home.Genesis)
	if err != nil {
		return nil, err
	}
	directory.SetSelf(self)
	b := &crossShard{node: n, directory: directory, members: directory.Changed(),
		strays: make(chan *ledger.Bundle, straysMax)}
	b.context, b.cancel = context.WithCancel(context.Background())
	b.recall()
	return b, nil
}

// addresses adds the other shards' members to those of the own shard. The fabric admits these peers
// and finds them at these addresses.
func (b *crossShard) addresses(own map[rdmanet.PeerID]string) map[rdmanet.PeerID]string {
	if b == nil {
		return own
	}
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

// membersChanged reports whether any shard's members changed since it last reported a change. Only
// one goroutine may call it.
func (b *crossShard) membersChanged() bool {
	if b == nil {
		return false
	}
	select {
	case <-b.members:
		b.members = b.directory.Changed()
		return true
	default:
		return false
	}
}

// start begins the exchange with the other shards that feeds into blocks. It must run before
// life.start, which makes blocks.
func (b *crossShard) start() (err error) {
	n := b.node
	regions, can := n.host.(rdmanet.RegionHost)
	if !can {
		return errNoRegions
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	b.directory.SetOwn(n.Store().Membership())
	if b.announcer, err = shards.NewAnnouncer(shards.AnnouncerConfig{Directory: b.directory,
		Control: n.control, Own: b.announcement, Gap: announceGap, Logger: n.logger}); err != nil {
		return err
	}
	durable := func() ledger.Height {
		heights, _ := n.pipeline.Heights()
		return heights.Durable
	}
	if b.verdicts, err = shards.NewVerdicts(shards.VerdictsConfig{
		Directory: b.directory, Control: n.control, Store: func() shards.Chain {
			return n.pipeline.Store()
		}, Durable: durable, Ready: n.pool.Wake, Logger: n.logger,
	}); err != nil {
		return err
	}
	if b.streams, err = streams.New(streams.Config{
		Directory: streamDirectory{b.directory}, Host: regions, Control: n.control,
		Chain: func() streams.Chain {
			return n.pipeline.Store()
		}, Durable: durable, Ready: n.pool.Wake, Logger: n.logger,
	}); err != nil {
		return err
	}
	n.host.Watch(b.announcer.Event)
	n.host.Watch(b.streams.Event)
	return nil
}

// serve begins to answer the other shards' calls, and to make calls. The life and the API's handler
// must already run.
func (b *crossShard) serve(served http.Handler) (err error) {
	n := b.node
	find := func(peer rdmanet.PeerID) (ledger.ShardID, bool) {
		shard, _, known := b.directory.Find(peer)
		return shard, known
	}
	if b.calls, err = calls.New(calls.Config{Host: n.host, Find: find,
		Candidates: b.directory.Candidates, Serve: served, Logger: n.logger,
		ServingPerPeer: servingPerPeer, ServingMax: servingMax}); err != nil {
		return err
	}
	for shard := range b.directory.Tree().Shards() {
		to := ledger.ShardID(shard)
		b.clients = append(b.clients, ledgerdv1connect.NewLedgerServiceClient(
			&http.Client{Transport: b.calls.Transport(to)}, calls.URL(to),
			connect.WithReadMaxBytes(calls.BodyMax)))
	}
	b.workers.Go(b.handOver)
	b.workers.Go(b.remember)
	return nil
}

// close ends the exchange with the other shards. Closing again does nothing.
func (b *crossShard) close() {
	if b == nil {
		return
	}
	b.cancel()
	if b.calls != nil {
		b.calls.Close()
	}
	b.workers.Wait()
	if b.streams != nil {
		if err := b.streams.Close(); err != nil {
			b.node.logger.Error("the streams between shards could not be closed", "error", err)
		}
	}
	if b.verdicts != nil {
		b.verdicts.Close()
	}
	if b.announcer != nil {
		b.announcer.Close()
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

// Propose implements mempool.Beside. Verdicts come first, since each has a client's money behind
// it. The parent's stream gets the remaining room.
func (b *crossShard) Propose(room int, use func(carried []ledger.Carried,
	verdicts []ledger.Verdict)) {
	verdicts := b.verdicts.Propose(b.verdictRoom(room))
	room -= len(verdicts) * ledger.VerdictSize
	used := false
	b.streams.Propose(min(room, max(streams.EntryMax, room-room/8)),
		func(carried []ledger.Carried) {
			used = true
			use(fitting(carried, room), verdicts)
		})
	if !used && len(verdicts) > 0 {
		use(nil, verdicts)
	}
}

// verdictRoom returns how much of a batch's room verdicts may take. The largest entry of the stream
// may need nearly all the room that clients' bundles leave. If the verdicts' share would keep that
// entry out, verdicts get only the rest, every other time.
func (b *crossShard) verdictRoom(room int) int {
	share, spare := room/4, room-ledger.CarriedSize(streams.EntryMax)
	if spare < 0 || spare >= share {
		return share
	}
	if b.spared = !b.spared; b.spared {
		return spare
	}
	return share
}

// fitting returns the first entries that fit into room bytes of a batch. The others count as
// proposed and come again later.
func fitting(carried []ledger.Carried, room int) []ledger.Carried {
	for i := range carried {
		if room -= ledger.CarriedSize(len(carried[i].Bundle)); room < 0 {
			return carried[:i]
		}
	}
	return carried
}

// applied is called for each executed block.
func (b *crossShard) applied(block *ledger.Block) {
	b.streams.Applied(block.Header.Height, b.node.pipeline.Store().Carried())
	b.verdicts.Applied(block)
	b.announcer.Soon()
}

func (b *crossShard) durableTo(height ledger.Height) {
	b.streams.DurableTo(height)
	b.verdicts.DurableTo(height)
	b.tellMembers(height)
}

func (b *crossShard) exchanged() {
	b.streams.Reset()
	b.verdicts.Reset()
}

// misplaced queues a bundle that enters at another shard by now.
func (b *crossShard) misplaced(bundle *ledger.Bundle) {
	select {
	case b.strays <- bundle:
	default:
		b.node.logger.Warn(
			"dropped a bundle that now enters at another shard: its client sends it "+
				"again", "transaction", bundle.ID(0))
	}
}

// handOver sends strays to the shards where they enter.
func (b *crossShard) handOver() {
	for {
		select {
		case <-b.context.Done():
			return
		case bundle := <-b.strays:
			entry := b.node.Store().BundleEntry(bundle)
			if err := b.handOverTo(entry, bundle); err != nil && b.context.Err() == nil {
				b.node.logger.Warn("a bundle that now enters at another shard was refused "+
					"there: its "+
					"client sends it again", "transaction", bundle.ID(0), "shard", entry,
					"error", err)
			}
		}
	}
}

func (b *crossShard) handOverTo(entry ledger.ShardID, bundle *ledger.Bundle) error {
	ctx, cancel := context.WithTimeout(b.context, strayPatience)
	defer cancel()
	if entry == b.directory.Own() {
		if refusal := b.node.Admit(ctx, []*ledger.Bundle{bundle}, false)[0]; refusal != nil {
			return refusal
		}
		return nil
	}
	answer, err := b.clients[entry].SubmitMany(ctx,
		connect.NewRequest(&ledgerdv1.SubmitManyRequest{
			Bundles: []*ledgerdv1.Bundle{api.BundleToProto(bundle)},
			Wait:    ledgerdv1.Level_LEVEL_ADMITTED}))
	if err != nil {
		return err
	}
	for _, outcome := range answer.Msg.GetOutcomes() {
		if refused := outcome.GetRefused(); refused != "" {
			return errors.New(refused)
		}
	}
	return nil
}

// announcement returns this node's announcement to the other shards, and enters it in the
// directory.
func (b *crossShard) announcement() shards.Announcement {
	n := b.node
	opened := n.Store()
	heights, _ := n.pipeline.Heights()
	tip := n.pipeline.Tip()
	heights.Ordered = tip.Height
	a := shards.Announcement{
		Shard: b.directory.Own(), Mode: n.life.nodeMode(), APIAddress: n.URL(),
		Heights: heights, Head: tip.Hash,
		Transactions: n.pipeline.Total(), Accounts: uint64(opened.AccountCount()),
		Pending: uint64(opened.PendingCount()), Carried: opened.Carried(),
	}
	if n.stopping.Load() {
		a.Mode = report.ModeStopping
	}
	for _, child := range b.directory.Tree().Children(a.Shard) {
		a.Streamed = append(a.Streamed, shards.Streamed{Child: child,
			Number: opened.Streamed(child)})
	}
	if membership := opened.MembershipAt(heights.Durable); membership.Number > 0 {
		a.Membership = &membership
	}
	b.directory.Heard(n.host.ID(), a, time.Now())
	return a
}

// heard notes the announcement of a member of the own shard.
func (b *crossShard) heard(from rdmanet.PeerID, a *shard.Announcement) {
	if b == nil {
		return
	}
	b.directory.Heard(from, shards.Announcement{
		Shard: b.directory.Own(), Mode: report.NodeMode(a.Mode), APIAddress: a.APIAddress,
		Head: a.Tip,
		Heights: report.Heights{
			Ordered: ledger.Height(a.Heights.Ordered), Stored: ledger.Height(a.Heights.Stored),
			Durable: ledger.Height(a.Heights.Durable),
		},
	}, time.Now())
}

// changed announces soon that this node's state changed.
func (b *crossShard) changed() {
	if b != nil && b.announcer != nil {
		b.announcer.Soon()
	}
}

// Own implements api.Shards.
func (b *crossShard) Own() ledger.ShardID { return b.directory.Own() }

// Tree implements api.Shards.
func (b *crossShard) Tree() *ledger.ShardTree { return b.directory.Tree() }

// Client implements api.Shards.
func (b *crossShard) Client(shard ledger.ShardID) ledgerdv1connect.LedgerServiceClient {
	return b.clients[shard]
}

// States implements api.Shards.
func (b *crossShard) States() []report.ShardState {
	own := b.announcement() // of its own shard the node knows best itself
	states := b.directory.States()
	own.SetCounts(&states[own.Shard])
	return states
}

// misroutes returns why a bundle that enters at another shard is not admitted here, or nil if it
// enters here. Most bundles were routed before; it catches those from other shards' nodes, and
// those routed before the directory changed.
func (n *Node) misroutes(bundle *ledger.Bundle) *report.Refusal {
	if n.between == nil || bundle.Transaction(0).Change != nil {
		return nil
	}
	if entry := n.Store().BundleEntry(bundle); entry != n.between.Own() {
		return &report.Refusal{Code: report.RefusedNotWriting,
			Reason: fmt.Sprintf("it enters at shard %d, and this node is of shard %d: submit it "+
				"again", entry, n.between.Own())}
	}
	return nil
}

// expiresHere reports whether a transaction's last valid block is a block of this chain. It is if
// this is the shard of its signer's home, or if the transaction changes this shard's members.
func (n *Node) expiresHere(transaction *ledger.Transaction) bool {
	return n.between == nil || transaction.Change != nil ||
		n.Store().HomeShard(transaction.Signer) == n.between.Own()
}
