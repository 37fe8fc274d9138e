package state

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// The operators may settle with a shard that is lost for good (ledger.ShardLoss). All other shards
// do so at the same place of their common order:
//
//   - From there on no chain takes a verdict of the lost shard, and no transaction that concerns it
//     takes effect. Streams to it end.
//   - What waited for it there is decided by the others. A shard may have had the lost one's good
//     verdict, and even have applied the transaction, and another one may not. So each shard that
//     lacks it asks the others that the transaction concerns (ledger.Testimony): if one of them had
//     it, the lost shard counts as having agreed. If none had it, the transaction is released. What
//     a chain had of it before the place is a function of the chain, so all ask and answer alike.
//   - If the transaction concerns no other shard, the chain itself says that it heard nothing: a
//     testimony of the own shard, which members propose as any other verdict.
//
// A transaction may concern several shards that are lost one after the other. The second may have
// been the only one that had the verdict of the first, and may have said so to some. So the others
// ask anew, about each shard whose verdict they lack, as of the last loss that concerns the
// transaction. A chain then testifies to a good verdict, and to a testimony that there was one.

// loss is a shard that was settled with. All chains have the same number, and each its own height:
// those of the change of the book.
type loss struct {
	shard  ledger.ShardID
	number uint64
	height ledger.Height
	mark   mark
}

// losses are the shards that were settled with, in ascending order.
type losses []*loss

func (l losses) find(shard ledger.ShardID) (at int, found bool) {
	return slices.BinarySearchFunc(l, shard, func(each *loss, shard ledger.ShardID) int {
		return int(int64(each.shard) - int64(shard))
	})
}

// Loss is a settlement with a shard.
type Loss struct {
	Shard ledger.ShardID
	// Number is that of the change of the book, and Height that of its block in this chain.
	Number uint64
	Height ledger.Height
}

// Losses returns the settlements with shards that are lost, ordered by shard.
func (s *State) Losses() []Loss {
	all := make([]Loss, len(s.losses))
	for i, each := range s.losses {
		all[i] = Loss{Shard: each.shard, Number: each.number, Height: each.height}
	}
	return all
}

// LostBefore returns the shards with which the operators had settled when this chain began, as a
// shard that was added to the book. They are lost, and there is no Loss of them.
func (s *State) LostBefore() (before []ledger.ShardID) {
	for _, shard := range s.growth.lost {
		if _, here := s.losses.find(shard); !here {
			before = append(before, shard)
		}
	}
	return before
}

// isPresent reports whether a shard is not lost.
func (s *State) isPresent(shard ledger.ShardID) bool { return !s.Lost(shard) }

// concernsLost reports whether any of these shards is lost.
func (s *State) concernsLost(shards []ledger.ShardID) bool {
	return len(s.growth.lost) > 0 && slices.ContainsFunc(shards, s.Lost)
}

// present returns the shards that are not lost. It may change the slice.
func (s *State) present(shards []ledger.ShardID) []ledger.ShardID {
	if len(s.growth.lost) == 0 {
		return shards
	}
	return slices.DeleteFunc(shards, s.Lost)
}

// homelessOf reports whether the home of an organisation that is to be registered is lost.
func (s *State) homelessOf(r *ledger.Registration) bool {
	one := organisation{Organisation: organisationOf(r)}
	s.settleHome(&one)
	return s.Lost(one.home)
}

// attemptLoss decides on a settlement with a shard.
func (s *State) attemptLoss(loss *ledger.ShardLoss) ledger.Result {
	switch {
	case int(loss.Shard) >= s.tree.Shards():
		return whole(ledger.UnknownShard)
	case s.Lost(loss.Shard):
		return whole(ledger.ShardLost)
	case !CanLose(s.tree, s.Lost, loss.Shard):
		return whole(ledger.ShardNeeded)
	}
	return applied
}

// CanLose reports whether a book can do without a shard: it is not the root, and all shards right
// below it are lost. What lies below a lost shard cannot be reached, because streams pass through
// all shards on the way.
func CanLose(tree *ledger.ShardTree, lost func(ledger.ShardID) bool, shard ledger.ShardID) bool {
	_, below := tree.Parent(shard)
	return below && !slices.ContainsFunc(tree.Children(shard), func(child ledger.ShardID) bool {
		return !lost(child)
	})
}

// lose makes a settlement that attemptLoss allowed. It looks at all transactions that wait.
func (s *State) lose(shard ledger.ShardID) {
	for entry := s.pending.oldest; entry != nil; entry = entry.after {
		s.countWaits(entry, -1)
	}
	at, _ := slices.BinarySearch(s.growth.lost, shard)
	s.growth.lost = slices.Insert(s.growth.lost, at, shard)
	at, _ = s.losses.find(shard)
	s.losses = slices.Insert(s.losses, at, &loss{shard: shard, number: s.growth.number,
		height: s.height, mark: mark{touched: true}})
	s.strand()
	for entry := s.pending.oldest; entry != nil; entry = entry.after {
		s.countWaits(entry, 1)
	}
}

// heard is a testimony of a shard, on a transaction, that it heard of no agreement.
type heard struct {
	ledger.Testimony
	of ledger.ShardID
}

// Inquiry is what a transaction waits for because a shard is lost: the testimonies of other shards.
// If there are no others, it is the testimony of the own shard, which the chain implies.
type Inquiry struct {
	ledger.Testimony
	// Of are the shards that have not testified, at least one, in ascending order.
	Of []ledger.ShardID
}

// asOf returns the shard of the last loss that concerns a transaction, if there is one.
func (s *State) asOf(entry *pending) (shard ledger.ShardID, any bool) {
	last := uint64(0)
	for i := range entry.waits {
		if at, lost := s.losses.find(entry.waits[i].shard); lost && s.losses[at].number > last {
			shard, last, any = entry.waits[i].shard, s.losses[at].number, true
		}
	}
	return shard, any
}

// inquiries returns what a transaction waits for because of lost shards, one inquiry for each of
// them whose agreement it lacks.
func (s *State) inquiries(entry *pending) []Inquiry {
	if len(s.losses) == 0 {
		return nil
	}
	asOf, any := s.asOf(entry)
	if !any {
		return nil
	}
	var all []Inquiry
	for i := range entry.waits {
		if about := entry.waits[i].shard; !entry.waits[i].said && s.Lost(about) {
			asked := ledger.Testimony{About: about, AsOf: asOf}
			all = append(all, Inquiry{Testimony: asked, Of: s.silent(entry, asked)})
		}
	}
	return all
}

// silent returns the shards that have not testified.
func (s *State) silent(entry *pending, asked ledger.Testimony) (of []ledger.ShardID) {
	others := false
	for i := range entry.waits {
		other := entry.waits[i].shard
		if s.Lost(other) {
			continue
		}
		others = true
		if !slices.Contains(entry.heard, heard{asked, other}) {
			of = append(of, other)
		}
	}
	if !others || s.fault == FaultReleasedUnasked {
		return []ledger.ShardID{s.shard}
	}
	return of
}

// awaitsTestimony returns the wait of a transaction for the verdict of a lost shard if this
// testimony about that is awaited, or nil. The chain itself never says that it heard an agreement:
// the transaction would not wait.
func (s *State) awaitsTestimony(entry *pending, verdict *ledger.Verdict,
	testimony ledger.Testimony) *wait {
	for _, each := range s.inquiries(entry) {
		asked := each.Testimony == testimony ||
			s.fault == FaultTestimonyOutdated && each.About == testimony.About
		if asked && has(each.Of, verdict.Shard) &&
			(verdict.Shard != s.shard || verdict.Result.Code == ledger.HeardNothing) {
			return entry.wait(testimony.About)
		}
	}
	return nil
}

// applyTestimony records a shard's testimony on a waiting transaction. The first one that says that
// the lost shard agreed is enough. If nobody says so, the transaction is released.
func (s *State) applyTestimony(found *slot, awaited *wait, of ledger.ShardID,
	testimony ledger.Testimony, agreed bool) ledger.Result {
	entry := found.entry
	if agreed {
		s.touchSlot(found)
		s.countWaits(entry, -1)
		entry.heard = slices.DeleteFunc(entry.heard, func(each heard) bool {
			return each.About == testimony.About
		})
		s.countWaits(entry, 1)
		return s.agrees(found, awaited)
	}
	if asOf, _ := s.asOf(entry); s.fault == FaultTestimonyOutdated {
		testimony.AsOf = asOf
	}
	if silent := s.silent(entry, testimony); of == s.shard || len(silent) == 1 {
		s.release(entry)
		s.settled(found, false)
		return whole(ledger.Released)
	}
	s.touchSlot(found)
	s.countWaits(entry, -1)
	entry.heard = slices.DeleteFunc(entry.heard, func(each heard) bool {
		return each.AsOf != testimony.AsOf // nobody answers these questions any more
	})
	entry.heard = append(entry.heard, heard{testimony, of})
	s.countWaits(entry, 1)
	return applied
}

// waited calls visit once for each other shard that a transaction waits for: for its verdict or a
// testimony.
func (s *State) waited(entry *pending, visit func(ledger.ShardID)) {
	inquiries := s.inquiries(entry)
	for i := range entry.waits {
		each := &entry.waits[i]
		if s.isPresent(each.shard) && (!each.said || slices.ContainsFunc(inquiries,
			func(q Inquiry) bool { return has(q.Of, each.shard) })) {
			visit(each.shard)
		}
	}
}

// countWaits adds change to the counts of the shards that a transaction waits for.
func (s *State) countWaits(entry *pending, change int) {
	if len(s.losses) > 0 {
		s.waited(entry, func(shard ledger.ShardID) { s.pending.waiting[shard] += change })
		return
	}
	for i := range entry.waits {
		if each := &entry.waits[i]; !each.said {
			s.pending.waiting[each.shard] += change
		}
	}
}

// countRestored counts the waits of restored transactions, once all entries are there.
func (s *State) countRestored() {
	for entry := s.pending.oldest; entry != nil && s.fault != FaultRestoredNotCounted; {
		s.countWaits(entry, 1)
		entry = entry.after
	}
}

// WaitsFor returns the other shards that a transaction waits for, in ascending order: for their
// verdicts or testimonies. It is empty if the next blocks release it.
func (p *Pending) WaitsFor(own ledger.ShardID) []ledger.ShardID {
	if len(p.Inquiries) == 0 {
		return p.Waits
	}
	all := slices.Clone(p.Waits)
	for i := range p.Inquiries {
		all = append(all, p.Inquiries[i].Of...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(each ledger.ShardID) bool {
		return each == own
	})
}

// Wants reports whether the transaction waits for a verdict of a shard with this subject.
func (p *Pending) Wants(shard ledger.ShardID, subject ledger.Subject) bool {
	testimony, is := subject.Testimony()
	if !is {
		return has(p.Waits, shard)
	}
	return slices.ContainsFunc(p.Inquiries, func(each Inquiry) bool {
		return each.Testimony == testimony && has(each.Of, shard)
	})
}

// appendHeard appends the testimonies, if there are any: their number, and of each the shard, the
// lost shard that it is about, and that as of whose loss.
func appendHeard(to []byte, all []heard) []byte {
	if len(all) == 0 {
		return to
	}
	to = binary.AppendUvarint(to, uint64(len(all)))
	for _, each := range all {
		to = binary.AppendUvarint(to, uint64(each.of))
		to = binary.AppendUvarint(to, uint64(each.About))
		to = binary.AppendUvarint(to, uint64(each.AsOf))
	}
	return to
}

// heard reads the testimonies at the end of an entry.
func (r *reader) heard() []heard {
	if r.Err != nil || len(r.Data) == 0 {
		return nil
	}
	const most = ledger.MaxShards * ledger.MaxShards
	all := make([]heard, r.Count("testimonies", most, 3))
	if len(all) == 0 {
		r.Fail("no testimonies")
	}
	for i := range all {
		all[i].of = r.shard()
		all[i].About, all[i].AsOf = r.shard(), r.shard()
	}
	return all
}

// The keys of losses begin like GrowthKey, and go on with another byte.
const lossKey = 2

func isLossKey(key []byte) bool { return len(key) == 1+1+4+1 && key[1] == lossKey }

// appendEntry appends the entry: the number of the change of the book, and the height of its block.
func (l *loss) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = append(binary.BigEndian.AppendUint32(append(to, kindGrowth, lossKey), uint32(l.shard)), 0)
	keyLength = len(to) - start
	to = binary.AppendUvarint(to, l.number)
	return binary.AppendUvarint(to, uint64(l.height)), keyLength
}

// restore puts the entry of a loss into the state. It reports whether there was one already.
func (l *losses) restore(key []byte, r *reader) (of entry, again bool, err error) {
	shard := ledger.ShardID(binary.BigEndian.Uint32(key[2:]))
	if shard >= ledger.MaxShards {
		return nil, false, fmt.Errorf("%w: the loss of shard %d", ErrEntry, shard)
	}
	at, again := l.find(shard)
	restored := &loss{shard: shard, number: r.Uvarint(), height: ledger.Height(r.Uvarint())}
	if !again {
		*l = slices.Insert(*l, at, restored)
	}
	return restored, again, nil
}

// finishLosses collects the losses of the block.
func (s *State) finishLosses(changes *Changes) {
	for _, each := range s.losses {
		if each.mark.touched {
			s.settle(changes, each.mark, each.appendEntry)
			each.mark = mark{}
		}
	}
}

// Evidence returns the ids of the entries of this chain by which it testifies on a transaction: it
// heard of the lost shard's agreement exactly if it has one of them. height is that of the block
// with the settlement in question. known is false if the chain has not settled with the shards yet.
// Others act on a testimony for ever, so the caller tells only those whose settlement is durable.
func (s *State) Evidence(id ledger.Hash, asked ledger.Testimony) (entries []ledger.Hash,
	height ledger.Height, known bool) {
	last, later := s.losses.find(asked.AsOf)
	first, earlier := s.losses.find(asked.About)
	if !later || !earlier || s.losses[first].number > s.losses[last].number {
		return nil, 0, false
	}
	add := func(verdict ledger.Verdict) {
		entries = append(entries, verdict.Entry(s.ledger).ID)
	}
	add(ledger.Verdict{ID: id, Shard: asked.About, Result: whole(ledger.SetAside)})
	for _, before := range s.losses {
		if before.number < s.losses[first].number || before.number >= s.losses[last].number {
			continue
		}
		told := ledger.Testimony{About: asked.About, AsOf: before.shard}
		for from := range ledger.ShardID(s.tree.Shards()) {
			if from != told.About && from != told.AsOf && from != s.shard {
				add(told.Verdict(id, from, true))
			}
		}
	}
	return entries, s.losses[last].height, true
}
