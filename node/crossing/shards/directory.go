package shards

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// ReportLifetime is how long a member's announcement is current.
const ReportLifetime = 5 * time.Second

// ErrOneShard means that a book has one shard and does not need this package.
var ErrOneShard = errors.New("shards: the book has one shard")

// Member is a present member of a shard, as this node knows it.
type Member struct {
	// Index is the member's permanent index in its shard's chain.
	Index ledger.MemberIndex
	Name  string
	// Peer identifies the member on the fabric; Address is where the fabric finds it.
	Peer    rdmanet.PeerID
	Address string
}

// Directory holds the members of all shards that the book has, as far as this node's chain knows
// them for good. All methods are safe for concurrent use; none blocks.
type Directory struct {
	own ledger.ShardID
	// tree never has more shards than the slices below. Grow sets it after these.
	tree atomic.Pointer[ledger.ShardTree]
	now  func() time.Time
	// genesis is that of this node's chain.
	genesis *ledger.Genesis
	// vouched is Genesis.VouchedCrossings: other shards' members come from trails.
	vouched  bool
	learning sync.Mutex // held by LearnTrail and Grow; taken before mu

	mu      sync.RWMutex
	added   []ledger.AddedShard // to the book, since its genesis
	self    rdmanet.PeerID
	shards  []members     // by shard
	chains  []ledger.Hash // by shard, of its genesis
	trails  []trail       // by shard; without vouched crossings, only what strangers proved
	places  map[rdmanet.PeerID]place
	heard   map[rdmanet.PeerID]heard
	full    map[rdmanet.PeerID]saidFull
	waiting map[rdmanet.PeerID]heardWaiting
	changed chan struct{}
	// lost are the shards that the operators settled with, and since when this node knows.
	lost map[ledger.ShardID]time.Time
}

// members are the members of one shard. The value is immutable; a change replaces it.
type members struct {
	number uint64
	list   []Member
	said   ledger.Membership // the source of list
}

// Change is the membership of a shard after a change.
type Change struct {
	Shard      ledger.ShardID    `json:"shard"`
	Membership ledger.Membership `json:"membership"`
	// Trail has the encoded certificates that prove the membership, in a book with vouched
	// crossings.
	Trail [][]byte `json:"trail,omitempty"`
}

// place is a member with its shard.
type place struct {
	shard  ledger.ShardID
	member Member
}

// heard is the last announcement of a member.
type heard struct {
	announcement Announcement
	at           time.Time
	lost         bool
}

// NewDirectory returns a directory with the members that a genesis names. It returns ErrOneShard
// for a book of one shard, or ErrGenesis of package ledger.
func NewDirectory(genesis *ledger.Genesis) (*Directory, error) {
	if err := genesis.Validate(); err != nil {
		return nil, fmt.Errorf("shards: %w", err)
	}
	if !genesis.Sharded() {
		return nil, ErrOneShard
	}
	d := &Directory{
		own: genesis.Shard, now: time.Now,
		places: map[rdmanet.PeerID]place{}, heard: map[rdmanet.PeerID]heard{},
		full: map[rdmanet.PeerID]saidFull{}, waiting: map[rdmanet.PeerID]heardWaiting{},
		changed: make(chan struct{}), genesis: genesis, vouched: genesis.VouchedCrossings,
	}
	d.tree.Store(genesis.ShardTree())
	return d, d.fill(nil, genesis.Grown)
}

// Grow adds the shards that were added to the book and that the directory does not have yet, with
// their first members. added are all shards that were ever added, and the chain of this node has
// these changes for good. Growing to shards that are known changes nothing.
func (d *Directory) Grow(added []ledger.AddedShard) error {
	d.learning.Lock()
	defer d.learning.Unlock()
	tree, known := d.Tree(), len(d.added)
	for i := known; i < len(added); i++ {
		tree = tree.Grow(added[i].Parent)
	}
	if len(added) <= known {
		return nil
	}
	return d.fill(tree, added)
}

// Rehang makes the tree that of the chain of this node, which has its changes for good, and returns
// those that are new. A tree with fewer shards or changes than the directory's changes nothing.
func (d *Directory) Rehang(tree *ledger.ShardTree) (made []ledger.TreeChange) {
	d.learning.Lock()
	defer d.learning.Unlock()
	known := d.Tree()
	if tree.Shards() < known.Shards() || len(tree.Rehung()) <= len(known.Rehung()) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tree.Store(tree.Before(known.Shards(), len(tree.Rehung())))
	close(d.changed)
	d.changed = make(chan struct{})
	return tree.Rehung()[len(known.Rehung()):]
}

// fill adds the members of the shards that the directory does not have yet, and then sets the tree,
// unless it is nil.
func (d *Directory) fill(tree *ledger.ShardTree, added []ledger.AddedShard) error {
	var grown []members
	var trails []trail
	var chains []ledger.Hash
	for shard := len(d.shards); shard < len(d.genesis.Shards)+len(added); shard++ {
		of, err := d.genesis.GrownTo(added, ledger.ShardID(shard))
		if err != nil {
			return fmt.Errorf("shards: %w", err)
		}
		trails = append(trails, trail{auditor: *ledger.NewAuditor(of)})
		chains = append(chains, of.Hash())
		membership := of.Membership()
		grown = append(grown, membersOf(&membership))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.added, d.trails = added, append(d.trails, trails...)
	d.chains = append(d.chains, chains...)
	for _, m := range grown {
		d.shards = append(d.shards, members{})
		d.put(ledger.ShardID(len(d.shards)-1), m)
	}
	if tree != nil {
		d.tree.Store(tree)
	}
	close(d.changed)
	d.changed = make(chan struct{})
	return nil
}

// chain returns the hash of the genesis of a shard's chain, and reports whether the directory knows
// the shard, and the operators have not settled with it.
func (d *Directory) chain(shard ledger.ShardID) (ledger.Hash, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if _, lost := d.lost[shard]; lost || int64(shard) >= int64(len(d.chains)) {
		return ledger.Hash{}, false
	}
	return d.chains[shard], true
}

// GenesisOf returns the genesis of a shard's chain, or ErrGenesis of package ledger if the
// directory knows no such shard.
func (d *Directory) GenesisOf(shard ledger.ShardID) (*ledger.Genesis, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.genesis.GrownTo(d.added, shard)
}

// membersOf returns the members that the fabric can know. Only ed25519 keys identify peers, so a
// member with another key takes part in nothing.
func membersOf(membership *ledger.Membership) members {
	m := members{number: membership.Number, list: make([]Member, 0, len(membership.Members)),
		said: *membership}
	for i := range membership.Members {
		member := &membership.Members[i]
		if peer, err := p2p.PeerID(member.Key); err == nil {
			m.list = append(m.list, Member{Index: member.Index, Name: member.Name, Peer: peer,
				Address: member.Address})
		}
	}
	return m
}

// put replaces a shard's members. The caller holds the lock, or no other goroutine knows the
// directory yet. A peer can be a member of two shards only by a mistake of their operators. It then
// counts for this node's own shard, or else for the shard that was known first.
func (d *Directory) put(shard ledger.ShardID, m members) {
	for _, before := range d.shards[shard].list {
		if d.places[before.Peer].shard == shard {
			delete(d.places, before.Peer)
		}
	}
	d.shards[shard] = m
	for _, member := range m.list {
		if other, taken := d.places[member.Peer]; !taken || other.shard != shard && shard == d.own {
			d.places[member.Peer] = place{shard, member}
		}
	}
	for peer, h := range d.heard {
		if at, known := d.places[peer]; !known || at.shard != h.announcement.Shard {
			delete(d.heard, peer)
		}
	}
	for peer := range d.full {
		if _, known := d.places[peer]; !known {
			delete(d.full, peer)
		}
	}
	for peer, said := range d.waiting {
		if at, known := d.places[peer]; !known || at.shard != said.shard {
			delete(d.waiting, peer)
		}
	}
}

// replace is put and also notifies the waiters for changes. The caller holds the lock.
func (d *Directory) replace(shard ledger.ShardID, m members) {
	d.put(shard, m)
	close(d.changed)
	d.changed = make(chan struct{})
}

// SetSelf sets which peer this node is. This node is never a candidate, and its position makes it
// prefer other candidates than its fellows do. Call it before the directory is used.
func (d *Directory) SetSelf(self rdmanet.PeerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.self = self
}

// Self returns the peer that SetSelf set.
func (d *Directory) Self() rdmanet.PeerID {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.self
}

// Own returns this node's shard.
func (d *Directory) Own() ledger.ShardID { return d.own }

// Tree returns the tree of the shards, as of the last Grow or Rehang. Changed tells when it is
// another one.
func (d *Directory) Tree() *ledger.ShardTree { return d.tree.Load() }

// Members returns the number of a shard's membership, which counts its changes, and its present
// members by index. The list is read-only. A shard that does not exist has no members.
func (d *Directory) Members(shard ledger.ShardID) (number uint64, list []Member) {
	if int(shard) >= d.Tree().Shards() {
		return 0, nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.shards[shard].number, d.shards[shard].list
}

// indexes returns the indexes of a shard's present members, ascending.
func (d *Directory) indexes(shard ledger.ShardID) []ledger.MemberIndex {
	_, present := d.Members(shard)
	indexes := make([]ledger.MemberIndex, len(present))
	for i := range present {
		indexes[i] = present[i].Index
	}
	return indexes
}

// Find returns the shard and member that a peer is.
func (d *Directory) Find(peer rdmanet.PeerID) (shard ledger.ShardID, member Member, known bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	at, known := d.places[peer]
	return at.shard, at.member, known
}

// SetOwn sets the members of this node's shard, from its chain. Setting the same members again
// changes nothing.
func (d *Directory) SetOwn(membership ledger.Membership) {
	m := membersOf(&membership)
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := &d.shards[d.own]; known.number != m.number || !slices.Equal(known.list, m.list) {
		d.replace(d.own, m)
	}
}

// Learn adopts a membership of another shard if its number is larger than the known one, and
// reports whether it did. The caller checks that the sender may report it: it must be a known
// member of that shard, or a member of the own shard. Learn rejects an invalid membership, and one
// that names a member of another shard. With vouched crossings it rejects each membership, since
// nothing proves it: see LearnTrail.
func (d *Directory) Learn(shard ledger.ShardID, membership ledger.Membership) bool {
	if number, _ := d.Members(shard); d.vouched || shard == d.own ||
		int(shard) >= d.Tree().Shards() || membership.Number <= number ||
		membership.Validate() != nil {
		return false
	}
	m := membersOf(&membership)
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, lost := d.lost[shard]; lost || m.number <= d.shards[shard].number || len(m.list) == 0 {
		return false
	}
	for _, member := range m.list {
		if at, known := d.places[member.Peer]; known && at.shard != shard {
			return false
		}
	}
	d.replace(shard, m)
	return true
}

// Changes returns the memberships of other shards that differ from the genesis, by shard. They are
// read-only. Learn or LearnTrail adopts them at another node, or at this node after a restart.
func (d *Directory) Changes() (changes []Change) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for shard := range d.shards {
		if m := &d.shards[shard]; ledger.ShardID(shard) != d.own && m.number > 0 {
			change := Change{Shard: ledger.ShardID(shard), Membership: m.said}
			if d.vouched {
				for _, c := range d.trails[shard].certificates {
					change.Trail = append(change.Trail, c.Encode())
				}
			}
			changes = append(changes, change)
		}
	}
	return changes
}

// Changed returns a channel that is closed at the next change of any shard's members or of the
// tree, or when there are more shards. Take it before reading, to miss no change.
func (d *Directory) Changed() <-chan struct{} {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.changed
}

// Heard records a member's announcement. It ignores a peer that is no member of the shard in the
// announcement. It returns whether the member was silent until then.
func (d *Directory) Heard(peer rdmanet.PeerID, a Announcement, at time.Time) (silent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	where, known := d.places[peer]
	if !known || where.shard != a.Shard {
		return false
	}
	silent = !d.heard[peer].lately(at)
	d.heard[peer] = heard{announcement: a, at: at}
	return silent
}

// Lost records that the fabric has no link to a peer any more. The peer is asked last until it is
// heard again.
func (d *Directory) Lost(peer rdmanet.PeerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h, known := d.heard[peer]; known {
		h.lost = true
		d.heard[peer] = h
	}
}

// lately reports whether the announcement is still current.
func (h heard) lately(now time.Time) bool {
	return !h.at.IsZero() && !h.lost && now.Sub(h.at) <= ReportLifetime
}

// Candidates returns the members of a shard to ask, in this order: members with a current
// announcement that order, then others with a current announcement, then members never heard, and
// last members that went silent. It never contains this node. Within each group, different nodes
// begin with different members to spread the load. The order is stable while nothing changes.
func (d *Directory) Candidates(shard ledger.ShardID) []rdmanet.PeerID {
	if int(shard) >= d.Tree().Shards() {
		return nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	list, now := d.shards[shard].list, d.now()
	candidates, ranks := make([]rdmanet.PeerID, 0, len(list)),
		make(map[rdmanet.PeerID]int, len(list))
	if len(list) == 0 {
		return nil
	}
	first := d.rotation(len(list))
	for i := range list {
		peer := list[(first+i)%len(list)].Peer
		if peer == d.self || d.places[peer].shard != shard {
			continue
		}
		ranks[peer] = d.rank(peer, now)
		candidates = append(candidates, peer)
	}
	slices.SortStableFunc(candidates, func(a, b rdmanet.PeerID) int {
		return cmp.Compare(ranks[a], ranks[b])
	})
	return candidates
}

// rank returns the group of a candidate. The caller holds the lock.
func (d *Directory) rank(peer rdmanet.PeerID, now time.Time) int {
	h, known := d.heard[peer]
	switch {
	case !known:
		return 2
	case !h.lately(now):
		return 3
	case h.announcement.Mode == report.ModeOrdering:
		return 0
	}
	return 1
}

// rotation returns where this node begins in a list of count members: a member of a shard at its
// own index among its fellows plus its shard, any other peer at a hash of its id. The caller holds
// the lock.
func (d *Directory) rotation(count int) int {
	if at, known := d.places[d.self]; known {
		fellows := d.shards[at.shard].list
		index := slices.IndexFunc(fellows, func(m Member) bool { return m.Peer == d.self })
		return (max(index, 0) + int(at.shard)) % count
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(d.self)) // a hash never fails
	return int(sum.Sum32() % uint32(count))
}

// peers returns the members of all shards but this node, those of the own shard first; if lately,
// only those with a current announcement. It begins with the member after this node.
func (d *Directory) peers(lately bool) (peers []rdmanet.PeerID) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	now := d.now()
	add := func(shard ledger.ShardID) {
		list := d.shards[shard].list
		for i := range list {
			peer := list[(d.rotation(len(list))+i)%len(list)].Peer
			if peer != d.self && d.places[peer].shard == shard &&
				(!lately || d.heard[peer].lately(now)) {
				peers = append(peers, peer)
			}
		}
	}
	add(d.own)
	for shard := range ledger.ShardID(d.Tree().Shards()) {
		if shard != d.own {
			add(shard)
		}
	}
	return peers
}

// unheard returns the members of other shards without a current announcement. It begins with other
// ones at different nodes.
func (d *Directory) unheard() (peers []rdmanet.PeerID) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	now := d.now()
	for shard := range d.shards {
		list := d.shards[shard].list
		for i := range list {
			peer := list[(d.rotation(len(list))+i)%len(list)].Peer
			if ledger.ShardID(shard) != d.own && d.places[peer].shard == ledger.ShardID(shard) &&
				!d.heard[peer].lately(now) {
				peers = append(peers, peer)
			}
		}
	}
	return peers
}
