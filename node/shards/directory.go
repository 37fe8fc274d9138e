package shards

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// Lately is how long what a member said of itself counts.
const Lately = 5 * time.Second

// ErrOneShard says that a book has one shard, and so nothing of this package.
var ErrOneShard = errors.New("shards: the book has one shard")

// Member is a present member of a shard, as this node knows it.
type Member struct {
	// Index is the member's in its shard's chain, for ever.
	Index ledger.MemberIndex
	Name  string
	// Peer is the member on the fabric, and Address where the fabric finds it.
	Peer    rdmanet.PeerID
	Address string
}

// Directory is the members of all shards. All methods may be called from several goroutines; none
// blocks.
type Directory struct {
	own  ledger.ShardID
	tree *ledger.ShardTree
	now  func() time.Time

	mu      sync.RWMutex
	self    rdmanet.PeerID
	shards  []members // by shard
	places  map[rdmanet.PeerID]place
	heard   map[rdmanet.PeerID]heard
	changed chan struct{}
}

// members are those of one shard. Nothing in it is ever changed; another takes its place.
type members struct {
	number uint64
	list   []Member
	said   ledger.Membership // what the list was made of
}

// Change is the membership of a shard after a change.
type Change struct {
	Shard      ledger.ShardID    `json:"shard"`
	Membership ledger.Membership `json:"membership"`
}

// place is where a member is.
type place struct {
	shard  ledger.ShardID
	member Member
}

// heard is what a member said last of itself.
type heard struct {
	announcement Announcement
	at           time.Time
	lost         bool
}

// NewDirectory returns the members that a genesis names. ErrOneShard, or ErrGenesis of package
// ledger.
func NewDirectory(genesis *ledger.Genesis) (*Directory, error) {
	if err := genesis.Validate(); err != nil {
		return nil, fmt.Errorf("shards: %w", err)
	}
	if !genesis.Sharded() {
		return nil, ErrOneShard
	}
	d := &Directory{
		own: genesis.Shard, tree: genesis.ShardTree(), now: time.Now,
		shards: make([]members, len(genesis.Shards)),
		places: map[rdmanet.PeerID]place{}, heard: map[rdmanet.PeerID]heard{},
		changed: make(chan struct{}),
	}
	for shard := range genesis.Shards {
		of, err := genesis.ForShard(ledger.ShardID(shard))
		if err != nil {
			return nil, fmt.Errorf("shards: %w", err)
		}
		membership := of.Membership()
		d.put(ledger.ShardID(shard), membersOf(&membership))
	}
	return d, nil
}

// membersOf gives the members that the fabric can know. Nobody can have another key than an ed25519
// one, so that whoever is named with one takes part in nothing.
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

// put has a shard's members take the place of those before. The lock is held, or nobody else knows
// the directory yet. Who is a member of two shards, which takes a mistake of their operators, is
// this node's own shard's, or the one's that was known first.
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
}

// replace is put that tells those who wait for changes. The lock is held.
func (d *Directory) replace(shard ledger.ShardID, m members) {
	d.put(shard, m)
	close(d.changed)
	d.changed = make(chan struct{})
}

// SetSelf says which peer this node is: it is never a candidate, and what it asks first of others
// differs from what its fellows do. Call it before the directory is used.
func (d *Directory) SetSelf(self rdmanet.PeerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.self = self
}

// Self is what SetSelf said.
func (d *Directory) Self() rdmanet.PeerID {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.self
}

// Own is this node's shard.
func (d *Directory) Own() ledger.ShardID { return d.own }

// Tree is the tree of the shards.
func (d *Directory) Tree() *ledger.ShardTree { return d.tree }

// Members returns the number of a shard's membership, which counts its changes, and its present
// members by index; read-only. A shard that does not exist has none.
func (d *Directory) Members(shard ledger.ShardID) (number uint64, list []Member) {
	if int(shard) >= d.tree.Shards() {
		return 0, nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.shards[shard].number, d.shards[shard].list
}

// Find tells who is behind a peer.
func (d *Directory) Find(peer rdmanet.PeerID) (shard ledger.ShardID, member Member, known bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	at, known := d.places[peer]
	return at.shard, at.member, known
}

// SetOwn says who the members of this node's shard are, as its chain has it. Saying the same again
// changes nothing.
func (d *Directory) SetOwn(membership ledger.Membership) {
	m := membersOf(&membership)
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := &d.shards[d.own]; known.number != m.number || !slices.Equal(known.list, m.list) {
		d.replace(d.own, m)
	}
}

// Learn takes a membership of another shard if its number is larger than that of the one known, and
// returns whether it did. Who may say so is the caller's check: a member of that shard as known
// until now, or of the own. What is no membership, or names a member of another shard, is not
// taken.
func (d *Directory) Learn(shard ledger.ShardID, membership ledger.Membership) bool {
	if number, _ := d.Members(shard); shard == d.own || int(shard) >= d.tree.Shards() ||
		membership.Number <= number || membership.Validate() != nil {
		return false
	}
	m := membersOf(&membership)
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.number <= d.shards[shard].number || len(m.list) == 0 {
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

// Changes returns the memberships of other shards that are not those of the genesis any more, by
// shard; read-only. Learn takes them at another node, or at this one when it begins again.
func (d *Directory) Changes() (changes []Change) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for shard := range d.shards {
		if m := &d.shards[shard]; ledger.ShardID(shard) != d.own && m.number > 0 {
			changes = append(changes, Change{Shard: ledger.ShardID(shard), Membership: m.said})
		}
	}
	return changes
}

// Changed gives a channel that is closed at the next change of any shard's members. Take it before
// looking, so that nothing is missed.
func (d *Directory) Changed() <-chan struct{} {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.changed
}

// Heard notes what a member said of itself. Who is no member of the shard that it speaks of is not
// heard.
func (d *Directory) Heard(peer rdmanet.PeerID, a Announcement, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if where, known := d.places[peer]; known && where.shard == a.Shard {
		d.heard[peer] = heard{announcement: a, at: at}
	}
}

// Lost says that the fabric has no link to a peer any more: until it is heard again it is asked
// last.
func (d *Directory) Lost(peer rdmanet.PeerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h, known := d.heard[peer]; known {
		h.lost = true
		d.heard[peer] = h
	}
}

// lately tells whether what was heard counts still.
func (h heard) lately(now time.Time) bool {
	return !h.at.IsZero() && !h.lost && now.Sub(h.at) <= Lately
}

// Candidates returns whom to ask of a shard: members heard of lately that order first, then others
// heard of lately, then those never heard of, and at last those that went silent; this node never.
// Within each of these, different nodes begin with different members, so that load spreads, and a
// node with the same one as long as nothing changes.
func (d *Directory) Candidates(shard ledger.ShardID) []rdmanet.PeerID {
	if int(shard) >= d.tree.Shards() {
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

// rank orders candidates. The lock is held.
func (d *Directory) rank(peer rdmanet.PeerID, now time.Time) int {
	h, known := d.heard[peer]
	switch {
	case !known:
		return 2
	case !h.lately(now):
		return 3
	case h.announcement.Mode == NodeOrdering:
		return 0
	}
	return 1
}

// rotation is where this node begins among so many members: a member of a shard at its own place
// among its fellows, anybody else somewhere. The lock is held.
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
