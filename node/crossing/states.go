package crossing

import (
	"errors"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/route"
	"github.com/ledgerd/ledgerd/node/crossing/shards"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/shard"
)

// announcement returns this node's announcement to the other shards, and enters it in the
// directory.
func (b *book) announcement() shards.Announcement {
	opened, self := b.config.Node.Store(), b.config.Node.Report()
	b.grow(opened, self.Heights.Durable)
	b.noteLosses(self.Heights.Durable)
	a := shards.Announcement{
		Shard: b.directory.Own(), Mode: self.Mode, APIAddress: self.APIAddress,
		Heights: self.Heights, Head: self.Head,
		Transactions: self.Transactions, Accounts: uint64(opened.AccountCount()),
		Pending: uint64(opened.PendingCount()), Carried: b.carriedDurably(opened),
	}
	for _, child := range b.directory.Tree().Children(b.directory.Own()) {
		a.Streamed = append(a.Streamed, shards.Streamed{Child: child,
			Number: opened.Streamed(child)})
	}
	if b.directory.Vouched() {
		a.Epoch = b.ownEpoch()
	} else if membership := opened.MembershipAt(self.Heights.Durable); membership.Number > 0 {
		a.Membership = &membership
	}
	now := time.Now()
	b.directory.Heard(b.config.Self, a, now)
	b.obstacles.Look(now)
	return a
}

// carriedDurably returns the number of the last entry of the parent's stream that is durable in
// the chain. What is only appended may be lost, so the parent may not be done with it. Until the
// streams know it, as a node starts, it is what the chain on the disk has.
func (b *book) carriedDurably(opened *store.Store) uint64 {
	if b.started.Load() {
		if number, known := b.streams.CarriedDurably(); known {
			return number
		}
	}
	return opened.Carried()
}

// Heard implements Crossing.
func (b *book) Heard(from rdmanet.PeerID, a *shard.Announcement) {
	b.heardAbsent(from, ledger.Height(a.Absent))
	b.directory.Heard(from, shards.Announcement{
		Shard: b.directory.Own(), Mode: report.NodeMode(a.Mode), APIAddress: a.APIAddress,
		Head: a.Tip,
		Heights: report.Heights{
			Ordered: ledger.Height(a.Heights.Ordered), Stored: ledger.Height(a.Heights.Stored),
			Durable: ledger.Height(a.Heights.Durable),
		},
	}, time.Now())
}

// Changed implements Crossing.
func (b *book) Changed() {
	if b.announcer != nil {
		b.announcer.Soon()
	}
}

// Owes implements Crossing. A shard that was not heard of since the node started lacks everything.
func (b *book) Owes() bool {
	opened := b.config.Node.Store()
	children := b.fed()
	states := b.directory.States() // of these children, or more
	for _, child := range children {
		carried := states[child].Carried
		if b.isLost(child) {
			continue
		}
		first, _, lacks := opened.FirstUntaken(child, carried)
		if !lacks {
			continue
		}
		_, err := opened.Stream(child, first, 1, opened.AppendedHeight())
		if errors.Is(err, store.ErrAbsent) {
			return true
		}
	}
	return false
}

var _ route.Shards = (*book)(nil)

// API implements Crossing.
func (b *book) API(backend api.Backend, options api.Options) (*api.Server, error) {
	return route.New(backend, b, options)
}

// Own implements route.Shards.
func (b *book) Own() ledger.ShardID { return b.directory.Own() }

// Tree implements route.Shards.
func (b *book) Tree() *ledger.ShardTree { return b.directory.Tree() }

// TreeChanged implements route.Shards.
func (b *book) TreeChanged() <-chan struct{} { return b.directory.Changed() }

// States implements route.Shards.
func (b *book) States() []report.ShardState {
	own := b.announcement() // of its own shard the node knows best itself
	states := b.directory.States()
	own.SetCounts(&states[own.Shard])
	states[own.Shard].Waiting = b.Waiting()
	for i := range states {
		above, _ := b.Tree().Parent(states[i].Shard)
		if above == own.Shard || slices.Contains(b.Tree().FormerParents(states[i].Shard),
			own.Shard) { // of its own stream the node knows best itself, too
			if lacks := states[own.Shard].Waiting.LostFor(own.Shard,
				states[i].Shard); above == own.Shard || lacks.Lost > 0 {
				states[i].Waiting.Lacks = lacks
			}
		}
	}
	return states
}

// Obstacles implements route.Shards.
func (b *book) Obstacles() []report.Obstacle { return b.obstacles.List() }
