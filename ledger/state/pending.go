package state

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// MaxWaiting bounds the transactions that wait for the verdict of one other shard at a time.
// Further ones are refused, so a stopped shard does not fill the memory of the others.
const MaxWaiting = 1 << 16

// maxPending is above the number of every slot, because each transaction in a slot waits for at
// least one shard.
const maxPending = MaxWaiting * ledger.MaxShards

// wait is another shard whose verdict a transaction needs, and whether a good verdict has arrived.
// A bad verdict is not noted, because it ends the wait at once.
type wait struct {
	shard ledger.ShardID
	said  bool
}

// pendingRecord is a record that a transaction writes when it takes effect.
type pendingRecord struct {
	key    ledger.RecordKey
	item   uint32
	digest ledger.Hash
}

// pending is a cross-shard transaction that waits for other shards after this shard has set its
// part aside. It holds everything that settling it needs.
type pending struct {
	id      ledger.Hash
	height  ledger.Height
	index   uint32
	waits   []wait
	parts   []part
	records []pendingRecord
	// signer is the organisation whose quota counts the transaction. It is empty if there was no
	// quota when the transaction was set aside.
	signer ledger.OrganisationName
	// heard are the testimonies about lost shards that do not say that the lost one agreed.
	heard []heard
	// before and after are its neighbours among the transactions that wait, by place.
	before, after *pending
}

// slot is a place for a transaction that waits. A new transaction takes the free slot with the
// lowest number. So the state never needs more slots than the largest number of transactions that
// ever waited at the same time.
type slot struct {
	number uint32
	entry  *pending
	mark   mark
}

// pendingSet holds the transactions that wait.
type pendingSet struct {
	slots []*slot
	free  freeSlots
	byID  map[ledger.Hash]*slot
	// waiting counts, for each other shard, the transactions that wait for it. limit is MaxWaiting.
	waiting map[ledger.ShardID]int
	limit   int
	// oldest and newest are the ends of the list of all transactions that wait, ordered by place.
	oldest, newest *pending
}

func newPendingSet() pendingSet {
	return pendingSet{byID: make(map[ledger.Hash]*slot), waiting: make(map[ledger.ShardID]int),
		limit: MaxWaiting}
}

// full reports whether the limit of any destination other than this shard is reached.
func (p *pendingSet) full(self ledger.ShardID, destinations []ledger.ShardID) bool {
	return slices.ContainsFunc(destinations, func(each ledger.ShardID) bool {
		return each != self && p.waiting[each] >= p.limit
	})
}

// link appends a transaction to the list. Its place is above all others.
func (p *pendingSet) link(entry *pending) {
	entry.before = p.newest
	if p.newest == nil {
		p.oldest = entry
	} else {
		p.newest.after = entry
	}
	p.newest = entry
}

// unlink removes a transaction from the list.
func (p *pendingSet) unlink(entry *pending) {
	if entry.before == nil {
		p.oldest = entry.after
	} else {
		entry.before.after = entry.after
	}
	if entry.after == nil {
		p.newest = entry.before
	} else {
		entry.after.before = entry.before
	}
	entry.before, entry.after = nil, nil
}

// linkRestored makes the list of the restored transactions, which came ordered by slot.
func (p *pendingSet) linkRestored() {
	restored := make([]*pending, 0, len(p.byID))
	for _, each := range p.slots {
		if each.entry != nil {
			each.entry.before, each.entry.after = nil, nil
			restored = append(restored, each.entry)
		}
	}
	slices.SortFunc(restored, func(a, b *pending) int {
		return comparePlaces(a.height, a.index, b.height, b.index)
	})
	p.oldest, p.newest = nil, nil
	for _, each := range restored {
		p.link(each)
	}
}

// freeSlots is a heap of the numbers of free slots.
type freeSlots []uint32

func (f freeSlots) Len() int           { return len(f) }
func (f freeSlots) Less(i, j int) bool { return f[i] < f[j] }
func (f freeSlots) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }

// Push adds a number. It is for container/heap.
func (f *freeSlots) Push(number any) { *f = append(*f, number.(uint32)) }

// Pop removes and returns the last number. It is for container/heap.
func (f *freeSlots) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}

// Pending is a cross-shard transaction that waits for other shards after this shard has set its
// part aside.
type Pending struct {
	ID ledger.Hash
	// Departure is set if an organisation's departure from its old home is awaited: the ID is that
	// of the move.
	Departure bool
	// Height and Index are the transaction's place in this chain.
	Height ledger.Height
	Index  uint32
	// Waits are the shards whose verdicts have not arrived. Said are the shards whose good verdicts
	// have, or which are lost and had agreed. Both are in ascending order.
	Waits, Said []ledger.ShardID
	// Inquiries are about lost shards. There is at least one if Waits is empty.
	Inquiries []Inquiry
}

// Pending returns the transaction with an id if it waits for other shards.
func (s *State) Pending(id ledger.Hash) (Pending, bool) {
	found := s.pending.byID[id]
	if found == nil {
		return Pending{}, false
	}
	return s.public(found.entry), true
}

// AgreedWith reports whether a transaction waits here, and whether another shard is among those
// that it concerned at its place.
func (s *State) AgreedWith(id ledger.Hash, other ledger.ShardID) (with, waits bool) {
	found := s.pending.byID[id]
	return found != nil && found.entry.wait(other) != nil, found != nil
}

// PendingCount returns the number of transactions that wait for other shards.
func (s *State) PendingCount() int { return len(s.pending.byID) }

// WaitingFor returns the number of transactions that wait for the verdict of another shard. At
// MaxWaiting further ones are refused.
func (s *State) WaitingFor(shard ledger.ShardID) int { return s.pending.waiting[shard] }

// OldestPending returns the transaction with the lowest place in this chain among those that wait
// for other shards, if any waits. It takes the same time however many wait.
func (s *State) OldestPending() (Pending, bool) {
	if s.pending.oldest == nil {
		return Pending{}, false
	}
	return s.public(s.pending.oldest), true
}

// Waiting is how the transactions of a chain wait for one other shard.
type Waiting struct {
	Shard ledger.ShardID
	// Count counts the transactions, and Old those of them in blocks up to the height asked for.
	Count, Old int
	// Oldest is the height of the block with the oldest of them.
	Oldest ledger.Height
}

// Waiting returns how transactions wait for other shards, ascending by shard, and how many
// transactions in blocks up to a height wait at all. A transaction that waits for several shards
// counts for each of them. Waiting visits the transactions in those blocks, and then as many as it
// takes to see the oldest one of each shard.
func (s *State) Waiting(upTo ledger.Height) (by []Waiting, old int) {
	places := make(map[ledger.ShardID]int, len(s.pending.waiting))
	for shard, count := range s.pending.waiting {
		if count > 0 {
			by = append(by, Waiting{Shard: shard, Count: count})
		}
	}
	slices.SortFunc(by, func(a, b Waiting) int { return cmp.Compare(a.Shard, b.Shard) })
	for i := range by {
		places[by[i].Shard] = i
	}
	unseen := len(by)
	for entry := s.pending.oldest; entry != nil; entry = entry.after {
		isOld := entry.height <= upTo
		if !isOld && unseen == 0 {
			break
		}
		if isOld {
			old++
		}
		s.waited(entry, func(shard ledger.ShardID) {
			to := &by[places[shard]]
			if to.Oldest == 0 {
				to.Oldest = entry.height
				unseen--
			}
			if isOld {
				to.Old++
			}
		})
	}
	return by, old
}

// AllPending returns all transactions that wait for other shards, ordered by their place in this
// chain.
func (s *State) AllPending() []Pending {
	all := make([]Pending, 0, len(s.pending.byID))
	for _, each := range s.pending.slots {
		if each.entry != nil {
			all = append(all, s.public(each.entry))
		}
	}
	slices.SortFunc(all, func(a, b Pending) int {
		return comparePlaces(a.Height, a.Index, b.Height, b.Index)
	})
	return all
}

func (s *State) public(p *pending) Pending {
	shown := Pending{ID: p.id, Height: p.height, Index: p.index, Inquiries: s.inquiries(p)}
	for _, each := range p.waits {
		switch {
		case each.said:
			shown.Said = append(shown.Said, each.shard)
		case !s.Lost(each.shard):
			shown.Waits = append(shown.Waits, each.shard)
		}
	}
	return shown
}

func (p *pending) wait(shard ledger.ShardID) *wait {
	for i := range p.waits {
		if p.waits[i].shard == shard {
			return &p.waits[i]
		}
	}
	return nil
}

// Awaits reports whether a transaction waits for this verdict. None waits for a verdict with a code
// that the chain's version does not have yet: a block leaves it out, and all of its batch (Seal). A
// departure is awaited by the move.
func (s *State) Awaits(verdict *ledger.Verdict) bool {
	if !s.TakesVerdict(verdict) {
		return false
	}
	if verdict.Result.Code == ledger.Departed {
		return s.awaitsDeparture(verdict) != nil
	}
	_, awaited := s.awaits(verdict)
	return awaited != nil
}

// TakesVerdict reports whether the chain's version has the code of a verdict.
func (s *State) TakesVerdict(verdict *ledger.Verdict) bool {
	return ledger.TakesCode(s.Version(), verdict.Result.Code)
}

// awaits returns the transaction that waits for a verdict, and its wait for it, or nil.
func (s *State) awaits(verdict *ledger.Verdict) (*slot, *wait) {
	found := s.pending.byID[verdict.ID]
	if found == nil {
		return nil, nil
	}
	if testimony, is := verdict.Testimony(); is {
		return found, s.awaitsTestimony(found.entry, verdict, testimony)
	}
	if s.Lost(verdict.Shard) && s.fault != FaultLostVerdictTaken {
		return nil, nil
	}
	if wait := found.entry.wait(verdict.Shard); wait != nil && !wait.said {
		return found, wait
	}
	return nil, nil
}

// addPending puts a transaction into the lowest free slot.
func (s *State) addPending(entry *pending) {
	var taken *slot
	if len(s.pending.free) > 0 {
		taken = s.pending.slots[heap.Pop(&s.pending.free).(uint32)]
	} else {
		taken = &slot{number: uint32(len(s.pending.slots))}
		s.pending.slots = append(s.pending.slots, taken)
	}
	s.touchSlot(taken)
	taken.entry = entry
	s.pending.link(entry)
	s.countWaits(entry, 1)
	s.countPending(entry, true)
	s.pending.byID[entry.id] = taken
}

// removePending frees a transaction's slot.
func (s *State) removePending(found *slot) {
	s.touchSlot(found)
	s.countWaits(found.entry, -1)
	s.countPending(found.entry, false)
	delete(s.pending.byID, found.entry.id)
	s.pending.unlink(found.entry)
	found.entry = nil
	heap.Push(&s.pending.free, found.number)
}

func (s *State) touchSlot(found *slot) {
	if found.mark.touched {
		return
	}
	if found.entry == nil || s.slotTree != nil {
		found.mark = mark{touched: true}
	} else {
		found.mark = s.keep(found.appendEntry)
	}
	s.touchedSlots = append(s.touchedSlots, found)
}

func (x *slot) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = appendSlotKey(to, x.number)
	keyLength = len(to) - start
	p := x.entry
	to = append(to, p.id[:]...)
	to = binary.AppendUvarint(to, uint64(p.height))
	to = binary.AppendUvarint(to, uint64(p.index))
	to = binary.AppendUvarint(to, uint64(len(p.waits)))
	for _, each := range p.waits {
		to = codec.AppendBool(binary.AppendUvarint(to, uint64(each.shard)), each.said)
	}
	to = binary.AppendUvarint(to, uint64(len(p.parts)))
	for i := range p.parts {
		to = codec.AppendString(to, p.parts[i].account)
		to = codec.AppendString(to, p.parts[i].asset)
		to = appendAmount(to, p.parts[i].net)
	}
	to = binary.AppendUvarint(to, uint64(len(p.records)))
	for i := range p.records {
		to = codec.AppendString(to, p.records[i].key)
		to = binary.AppendUvarint(to, uint64(p.records[i].item))
		to = append(to, p.records[i].digest[:]...)
	}
	if p.signer != "" || len(p.heard) > 0 {
		to = codec.AppendString(to, p.signer)
	}
	return appendHeard(to, p.heard), keyLength
}

// restorePending puts the entry of a waiting transaction into the state. It reports whether there
// was one already.
func (s *State) restorePending(key []byte, r *reader) (of entry, again bool, err error) {
	if len(key) != 1+4+1 || s.tree == nil {
		return nil, false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	number := binary.BigEndian.Uint32(key[1:])
	if number >= maxPending {
		return nil, false, fmt.Errorf("%w: slot %d", ErrEntry, number)
	}
	entry := r.pending()
	if s.pending.byID[entry.id] != nil {
		return nil, true, nil
	}
	at, found := slices.BinarySearchFunc(s.pending.slots, number, func(x *slot, number uint32) int {
		return int(int64(x.number) - int64(number))
	})
	if found {
		return nil, true, nil
	}
	restored := &slot{number: number, entry: entry}
	s.pending.slots = slices.Insert(s.pending.slots, at, restored)
	s.countPending(entry, true)
	s.pending.byID[entry.id] = restored
	return restored, false, nil
}

// fillSlots creates the free slots between restored slots. It runs before the first block after the
// restore.
func (p *pendingSet) fillSlots() {
	if len(p.slots) == 0 || int(p.slots[len(p.slots)-1].number) == len(p.slots)-1 {
		return
	}
	restored := p.slots
	p.slots = make([]*slot, 0, len(restored))
	for _, each := range restored {
		for uint32(len(p.slots)) < each.number {
			heap.Push(&p.free, uint32(len(p.slots)))
			p.slots = append(p.slots, &slot{number: uint32(len(p.slots))})
		}
		p.slots = append(p.slots, each)
	}
}

func (r *reader) pending() *pending {
	p := &pending{id: r.Hash(), height: ledger.Height(r.Uvarint()), index: uint32(r.Uvarint())}
	p.waits = make([]wait, r.Count("waits", ledger.MaxShards, 2))
	for i := range p.waits {
		p.waits[i] = wait{shard: r.shard(), said: r.Bool()}
	}
	p.parts = make([]part, r.Count("parts", ledger.MaxPostings, 3))
	for i := range p.parts {
		account := ledger.AccountPath(r.String("bytes of account", ledger.MaxAccountPath))
		p.parts[i] = part{account: account, asset: r.assetName(), net: r.amount()}
	}
	if count := r.Count("records", ledger.MaxRecords, 2+ledger.HashSize); count > 0 {
		p.records = make([]pendingRecord, count)
		for i := range p.records {
			key := ledger.RecordKey(r.String("bytes of key", ledger.MaxAccountPath))
			p.records[i] = pendingRecord{key: key, item: uint32(r.Uvarint()), digest: r.Hash()}
		}
	}
	if r.Err == nil && len(r.Data) > 0 {
		if p.signer = r.organisationName(); p.signer == "" && len(r.Data) == 0 {
			r.Fail("no signer")
		}
		p.heard = r.heard()
	}
	return p
}
