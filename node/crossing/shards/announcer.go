package shards

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/internal/beat"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// The defaults of AnnouncerConfig.
const (
	AnnounceEveryDefault = time.Second
	AnnounceGapDefault   = 100 * time.Millisecond
)

// repeatShare times AnnouncerConfig.Every is the interval at which an announcement is repeated that
// says nothing new. With the defaults one may be lost within ReportLifetime.
const repeatShare = 2

// relayShare times AnnouncerConfig.Every is the interval at which the node relays the members of
// the other shards to the members of its own shard. An event may cause an earlier relay.
const relayShare = 10

// AnnouncerConfig is the configuration of an Announcer.
type AnnouncerConfig struct {
	Directory *Directory
	Control   *wire.Datagrams
	// Own returns this node's announcement. The announcer's goroutine calls it. It must not block
	// for long.
	Own func() Announcement
	// Full returns the shards that this node's shard is full for; see Obstacles. It is called after
	// Own, and must not block either. It may be nil.
	Full func() []ledger.ShardID
	// FullChanged is called when what this node believes of the shards that another one is full for
	// changed. The announcer's goroutine calls it. It must not block for long. It may be nil.
	FullChanged func()
	// Waiting returns what entries of this node's chain wait for. The announcer's goroutine calls
	// it before each announcement. It must not block for long. It may be nil.
	Waiting func() report.Waiting
	// Newer is called when a member says that it has the trail of another shard up to an epoch that
	// this node does not know. It must not block. It may be nil.
	Newer func(peer rdmanet.PeerID, shard ledger.ShardID, epoch ledger.MembersEpoch)
	// Logger may be nil.
	Logger *slog.Logger
	// Every is the interval at which the node looks for something new to announce, Gap the minimum
	// time between two announcements. Zero means the default. What is not new is repeated
	// repeatShare times as rarely, and members of the own shard get relays relayShare times as
	// rarely.
	Every, Gap time.Duration
}

// Announcer sends this node's state to the members of all other shards, and records theirs in the
// directory. To the members of its own shard it relays the members of the other shards that changed
// since the genesis: a member that was away, or has just joined, may know none of them. With
// vouched crossings it announces and relays epochs only, and a TrailExchange gets the trails. All
// methods are safe for concurrent use.
type Announcer struct {
	config AnnouncerConfig
	met    atomic.Bool // a member of the own shard connected since the last relay
	fresh  atomic.Bool // a member of another shard may have missed the last announcement
	soon   chan struct{}
	filled chan struct{}
	others chan struct{} // what other shards are full for changed
	closed chan struct{}
	done   sync.WaitGroup
	once   sync.Once
	// full says that the last announcement had shards that this one's shard is full for. Only the
	// goroutine that announces uses it.
	full bool
	// said is the last announcement, at saidAt. Only the announcer's goroutine uses them.
	said   []byte
	saidAt time.Time
	// told is what was last said of what waits in the own chain, at toldAt. Only the announcer's
	// goroutine uses them.
	told   string
	toldAt time.Time
}

// NewAnnouncer registers for messages of wire.KindShard and wire.KindWaiting, and starts to
// announce. It fails if a part of the configuration is missing, or with an error of Control.
func NewAnnouncer(config AnnouncerConfig) (*Announcer, error) {
	if config.Directory == nil || config.Control == nil || config.Own == nil {
		return nil, errors.New("shards: an announcer needs a directory, the control lane and " +
			"what to say")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Full == nil {
		config.Full = func() []ledger.ShardID { return nil }
	}
	if config.FullChanged == nil {
		config.FullChanged = func() {}
	}
	if config.Newer == nil {
		config.Newer = func(rdmanet.PeerID, ledger.ShardID, ledger.MembersEpoch) {}
	}
	if config.Waiting == nil {
		config.Waiting = func() report.Waiting { return report.Waiting{} }
	}
	if config.Every <= 0 {
		config.Every = AnnounceEveryDefault
	}
	if config.Gap <= 0 {
		config.Gap = AnnounceGapDefault
	}
	a := &Announcer{config: config, soon: make(chan struct{}, 1), filled: make(chan struct{}, 1),
		others: make(chan struct{}, 1), closed: make(chan struct{})}
	if err := errors.Join(config.Control.Register(wire.KindShard, a.receive),
		config.Control.Register(wire.KindWaiting, a.receiveWaiting)); err != nil {
		return nil, err
	}
	if err := config.Control.Register(wire.KindFull, a.receiveFull); err != nil {
		return nil, err
	}
	a.done.Go(a.run)
	return a, nil
}

// Soon asks for an announcement at once, or as soon as Gap allows. The node calls it after a
// significant change.
func (a *Announcer) Soon() { wake(a.soon) }

// Filled tells the others at once what this node's shard is full for, whatever the gap. The node
// calls it when the shard becomes full for another one; see ObstaclesConfig.
func (a *Announcer) Filled() { wake(a.filled) }

// wake leaves a value in a channel for one, unless it has one.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Event handles an event of the fabric's link to any peer. It returns at once.
func (a *Announcer) Event(event rdmanet.PeerEvent) {
	shard, _, known := a.config.Directory.Find(event.Peer.ID)
	switch {
	case !known:
		return
	case shard == a.config.Directory.Own():
		if event.Kind == rdmanet.PeerConnected || event.Kind == rdmanet.PeerRestarted {
			a.met.Store(true)
			a.Soon()
		}
		return
	}
	switch event.Kind {
	case rdmanet.PeerConnected, rdmanet.PeerRestarted:
		a.fresh.Store(true)
		a.Soon()
	case rdmanet.PeerDisconnected, rdmanet.PeerUnreachable:
		a.config.Directory.Lost(event.Peer.ID)
	}
}

// Close ends the announcements, and waits until nothing more is sent. Messages that still arrive
// are dropped. A second Close also waits.
func (a *Announcer) Close() {
	a.once.Do(func() { close(a.closed) })
	a.done.Wait()
}

func (a *Announcer) run() {
	every := time.NewTimer(a.untilNext())
	defer every.Stop()
	gap := time.NewTimer(0)
	defer gap.Stop()
	look := time.NewTimer(0)
	defer look.Stop()
	var relayed time.Time
	changed := a.config.Directory.Changed()
	// Announcements wait for the gap first, so requests in the meantime share one of them. What
	// other shards are full for is looked at at once, and then not for a gap either: a member that
	// lies may change its mind all the time.
	looking := true
	for pausing := true; ; {
		due, asked, others := every.C, a.soon, a.others
		if pausing {
			due, asked = nil, nil
		}
		if looking {
			others = nil
		}
		select {
		case <-a.closed:
			return
		case <-a.filled:
			a.announceFull()
		case <-others:
			a.config.FullChanged()
			look.Reset(a.config.Gap)
			looking = true
		case <-look.C:
			looking = false
		case <-due:
			every.Reset(a.untilNext())
			gap.Reset(a.config.Gap)
			pausing = true
		case <-asked:
			gap.Reset(a.config.Gap)
			pausing = true
		case <-gap.C:
			pausing = false
			news, fresh := a.met.Swap(false), a.fresh.Swap(false)
			select {
			case <-changed:
				changed, news, fresh = a.config.Directory.Changed(), true, true
			default:
			}
			a.announce(fresh)
			if news || time.Since(relayed) >= relayShare*a.config.Every {
				a.relay()
				relayed = time.Now()
			}
		}
	}
}

// untilNext returns how long to wait for the next announcement. All nodes announce at the same
// time, so that each wakes once for those of all others.
func (a *Announcer) untilNext() time.Duration {
	now := time.Now()
	return beat.Until(now, a.config.Every)
}

// announce announces what is new, or everything if there may be members that heard nothing yet.
func (a *Announcer) announce(fresh bool) {
	a.tellWaiting()
	own := a.config.Own()
	said, now := own.Encode(), time.Now()
	// All nodes look at the same times, so half an interval less is not a look earlier.
	if fresh || !bytes.Equal(said, a.said) ||
		now.Sub(a.saidAt) > repeatShare*a.config.Every-a.config.Every/2 {
		a.said, a.saidAt = said, now
		a.sendToOthers(wire.KindShard, said)
	}
	a.announceFull()
}

// announceFull tells the others what this node's shard is full for, as long as there is something
// to say, and once more. It is a separate message, which nodes of earlier versions ignore.
func (a *Announcer) announceFull() {
	full := a.config.Full()
	if len(full) > 0 || a.full {
		a.sendToOthers(wire.KindFull, encodeFull(full))
	}
	a.full = len(full) > 0
}

// sendToOthers sends a message to the members of all other shards.
func (a *Announcer) sendToOthers(kind wire.Kind, payload []byte) {
	d := a.config.Directory
	for shard := range ledger.ShardID(d.Tree().Shards()) {
		if shard == d.Own() {
			continue
		}
		_, members := d.Members(shard)
		for _, member := range members {
			if err := a.config.Control.Send(member.Peer, kind, payload); err != nil {
				a.config.Logger.Debug("not announced", "shard", shard, "member", member.Index,
					"error", err)
			}
		}
	}
}

// relay sends the changed memberships of other shards to the members of the own shard, or with
// vouched crossings their epochs. All members know the members of the genesis.
func (a *Announcer) relay() {
	d := a.config.Directory
	_, fellows := d.Members(d.Own())
	for _, said := range a.changes() {
		payload := said.Encode()
		for _, fellow := range fellows {
			if fellow.Peer == d.Self() {
				continue
			}
			if err := a.config.Control.Send(fellow.Peer, wire.KindShard, payload); err != nil {
				a.config.Logger.Debug("not relayed", "shard", said.Shard, "member", fellow.Index,
					"error", err)
			}
		}
	}
}

// changes returns what to relay.
func (a *Announcer) changes() (changes []Announcement) {
	d := a.config.Directory
	if !d.Vouched() {
		for _, change := range d.Changes() {
			changes = append(changes, Announcement{Shard: change.Shard, Mode: report.ModeFollowing,
				Membership: &change.Membership})
		}
		return changes
	}
	for shard := range ledger.ShardID(d.Tree().Shards()) {
		if epoch := d.Epoch(shard); epoch > 0 {
			changes = append(changes, Announcement{Shard: shard, Mode: report.ModeFollowing,
				Epoch: epoch})
		}
	}
	return changes
}

// receive handles an announcement. A member of another shard may report its own state and its
// shard's members, which its chain confirms; if it was silent before, it is told this node's state
// in turn. A member of the own shard may relay the members of another shard, which it learned from
// them, and nothing else. With vouched crossings, both only say that they have a trail.
func (a *Announcer) receive(from rdmanet.Peer, payload []byte) {
	select {
	case <-a.closed:
		return
	default:
	}
	d := a.config.Directory
	shard, _, known := d.Find(from.ID)
	if !known {
		a.config.Logger.Debug("announcement of no member dropped", "peer", from)
		return
	}
	said, err := DecodeAnnouncement(payload)
	relayed := shard == d.Own()
	if err != nil || (said.Shard == shard) == relayed {
		a.config.Logger.Error("announcement dropped", "peer", from, "shard", shard, "says",
			said.Shard, "error", err)
		return
	}
	if said.Membership != nil && d.Learn(said.Shard, *said.Membership) {
		a.config.Logger.Info("the members of another shard changed", "shard", said.Shard, "change",
			said.Membership.Number, "members", len(said.Membership.Members))
	}
	if d.Vouched() && int(said.Shard) < d.Tree().Shards() && said.Epoch > d.Epoch(said.Shard) {
		a.config.Newer(from.ID, said.Shard, said.Epoch)
	}
	if relayed {
		return
	}
	said.Membership = nil // the directory has it
	if d.Heard(from.ID, said, time.Now()) {
		// What was said while it began to listen is lost, and would come again only in a while.
		a.fresh.Store(true)
		a.Soon()
	}
}

// receiveFull handles what a member of another shard says of the shards that its shard is full for.
func (a *Announcer) receiveFull(from rdmanet.Peer, payload []byte) {
	select {
	case <-a.closed:
		return
	default:
	}
	d := a.config.Directory
	shard, _, known := d.Find(from.ID)
	if !known || shard == d.Own() {
		a.config.Logger.Debug("full shards of no member of another shard dropped", "peer", from)
		return
	}
	awaited, err := decodeFull(payload, shard)
	if err != nil {
		a.config.Logger.Error("full shards dropped", "peer", from, "shard", shard, "error", err)
		return
	}
	before := d.fullFor(shard)
	d.HeardFull(from.ID, awaited, time.Now())
	if !slices.Equal(d.fullFor(shard), before) {
		wake(a.others)
	}
}
