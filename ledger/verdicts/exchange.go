package verdicts

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// Key identifies a verdict: a shard gives one verdict on a transaction, and one testimony about
// each lost shard as of a loss.
type Key struct {
	ID      ledger.Hash
	Shard   ledger.ShardID
	Subject ledger.Subject
}

// KeyOf returns the key of a verdict.
func KeyOf(verdict *ledger.Verdict) Key {
	return Key{verdict.ID, verdict.Shard, verdict.Subject()}
}

// Member identifies a member of any shard.
type Member struct {
	Shard ledger.ShardID
	Index ledger.MemberIndex
}

// never is a time before all others.
const never time.Duration = -1 << 62

// Standing is the way in which a chain treats a verdict of another shard.
type Standing uint8

// The standings.
const (
	// Early: the transaction is not in the chain yet. Keep the verdict, or ask for it later.
	Early Standing = iota
	// Awaited: the transaction waits for the verdict. Propose it.
	Awaited
	// Over: no transaction waits for the verdict any more. Drop it.
	Over
)

// StandingOf returns the standing of a verdict for which the chain waits or not, on a transaction
// that is in the chain or not.
func StandingOf(awaited, known bool) Standing {
	switch {
	case awaited:
		return Awaited
	case known:
		return Over
	}
	return Early
}

// Tells reports whether a member of the shard that gave a verdict tells it, unasked. In a vouched
// book each member does. In other books f+1 of the count members do, of which f = ⌊(count-1)/2⌋ may
// fail. Which ones rotates with the transaction. At is the member's place among its fellows.
func Tells(id ledger.Hash, at, count int, vouched bool) bool {
	return vouched || acts(at, count, binary.LittleEndian.Uint32(id[0:]))
}

// Told reports whether a member of a shard that waits for a verdict is told it, by the same rule as
// in Tells.
func Told(id ledger.Hash, at, count int, vouched bool) bool {
	return vouched || acts(at, count, binary.LittleEndian.Uint32(id[4:]))
}

// acts reports whether the member at this place among count is one of the f+1 whose turn it is.
func acts(at, count int, turn uint32) bool {
	first := int(turn % uint32(count))
	return (at-first+count)%count <= (count-1)/2
}

// Fault is a bug that tests plant.
type Fault uint8

// The faults.
const (
	// FaultNone is the only fault outside of tests.
	FaultNone Fault = iota
	// FaultForgetEarly drops verdicts that arrive before their transactions.
	FaultForgetEarly
	// FaultEarlyDeparture does not judge departures again that arrive before their moves.
	FaultEarlyDeparture
	// FaultQuorumOfOne believes one member.
	FaultQuorumOfOne
	// FaultCountTwice counts each word of a member, also on the same verdict.
	FaultCountTwice
	// FaultCountDeparted counts the words of members that left.
	FaultCountDeparted
	// FaultOverwriteWord lets a member change its word.
	FaultOverwriteWord
	// FaultAskedOnce asks for the verdicts on a transaction once only.
	FaultAskedOnce
	// FaultLateUnchecked keeps copies that are not signed, or of several transactions.
	FaultLateUnchecked
	// FaultLateUnbounded lets a shard have all the room for copies.
	FaultLateUnbounded
	// FaultGroupOfOne believes a group that one member tells.
	FaultGroupOfOne
	// FaultGroupUnchecked takes groups with the same first verdict for one group.
	FaultGroupUnchecked
	// FaultWatchedOnce does not judge a group again when its watched verdict is in a block.
	FaultWatchedOnce
	// FaultForgetArrived forgets a group when the transaction of its watched verdict arrives.
	FaultForgetArrived
)

// Bounds are the bounds of an exchange's memory. What does not fit is dropped, and asked for later.
type Bounds struct {
	// Awaited bounds the verdicts to propose, Early those that arrived before their transactions,
	// Settled those remembered as over, Received those not judged yet, and Believed the believed
	// verdicts that are remembered.
	Awaited, Early, Settled, Received, Believed int
	// Words bounds the words that wait for others. Each member of another shard has an equal share
	// of it, so that no member can push out the words of another one.
	Words int
	// Grouped bounds the verdicts of groups in words that wait for others, shared in the same way.
	// The other bounds hold for single verdicts and, once more, for the verdicts of groups.
	Grouped int
}

// DefaultBounds returns the bounds of a node.
func DefaultBounds() Bounds {
	return Bounds{Awaited: state.MaxWaiting, Early: 1 << 16, Settled: 1 << 15, Received: 1 << 16,
		Believed: state.MaxWaiting, Words: 1 << 18, Grouped: 1 << 20}
}

// Config is the configuration of an exchange.
type Config struct {
	// Vouched is set in a book whose shards do not trust a single member of another shard: a
	// verdict is believed once more than half of the other shard's present members told it.
	Vouched bool
	// Own is the shard of the exchange's member, and Shards returns how many the book has now.
	Own    ledger.ShardID
	Shards func() int
	// Members returns the indexes of a shard's present members, ascending. Only a vouched exchange
	// calls it.
	Members func(ledger.ShardID) []ledger.MemberIndex
	// Groups reports whether the chain takes groups of verdicts; nil means never. Until it does,
	// what is told in groups is taken as single verdicts.
	Groups func() bool
	Bounds Bounds
	Fault  Fault
}

// Exchange has the verdicts of other shards that one member heard, from the first word on them
// until its chain has them. It is not safe for concurrent use.
type Exchange struct {
	config Config
	// facts has what is known of each verdict. The sets are over it.
	facts   table
	awaited awaitedVerdicts
	early   earlySet
	settled ring
	// received are the verdicts to judge: at most Bounds.Received believed ones, and those from the
	// sets.
	received []ledger.Verdict
	// In a vouched book believed has the verdicts that are believed, and words those that are not
	// yet.
	words    *wordSet
	believed ring
	groups   groupSet
	// proposedGroups is when groups were last proposed, or 0.
	proposedGroups time.Duration
	// blocks counts calls of Applied and Reset. A change makes earlier reads of the chain stale.
	blocks uint64
	// fresh is set if transactions may wait that did not before.
	fresh   bool
	dropped uint64
}

// New returns an empty exchange.
func New(config Config) *Exchange {
	bounds := &config.Bounds
	x := &Exchange{config: config, facts: newTable(), awaited: newAwaitedSet(),
		groups:   newGroupSet(),
		early:    earlySet{bound: bounds.Early},
		settled:  ring{bound: bounds.Settled, of: func(f *fact) *index { return &f.settled }},
		believed: ring{bound: bounds.Believed, of: func(f *fact) *index { return &f.believed }}}
	x.words = newWordSet(&x.facts, config.Fault)
	if config.Vouched {
		x.awaited = &orderedSet{}
		x.words.follow(&x.config)
		x.followGroups()
	}
	return x
}

// Contradiction is a member's word on a verdict that differs from what is believed, or from the
// member's own word before.
type Contradiction struct {
	Member  Member
	Verdict ledger.Verdict
	Against ledger.Result
}

// Counts are those of the verdicts in an exchange, in groups or not. Words counts the words of
// members that wait for words of others, and Dropped all verdicts and words that were dropped for
// lack of room.
type Counts struct {
	Awaited, Early, Received, Words int
	Dropped                         uint64
}

// Counts returns the counts.
func (x *Exchange) Counts() Counts {
	return Counts{Awaited: x.awaited.len() + x.groups.held[proposed],
		Early:    x.early.count + x.groups.held[early],
		Received: len(x.received) + x.groups.held[queued],
		Words:    x.words.count + x.groups.words.count, Dropped: x.dropped}
}

// Awaits reports whether a verdict is one to propose.
func (x *Exchange) Awaits(key Key) bool { return x.facts.get(key).awaited }

// Settled reports whether a verdict is remembered as over.
func (x *Exchange) Settled(key Key) bool { return x.facts.get(key).settled != 0 }

// Believed returns the result of a verdict that is believed, in a vouched book.
func (x *Exchange) Believed(key Key) (result ledger.Result, believed bool) {
	f := x.facts.get(key)
	return f.believedAs, f.believed != 0
}

// Against counts the verdicts that differ from what is believed, in a vouched book. Those on which
// nothing is believed, or not any more, do not count. Members list what their chain waits for in
// canonical order, so most of it is found side by side with what this chain waits for.
func (x *Exchange) Against(told []ledger.Verdict) (count uint64) {
	var from cursor
	set, ordered := x.awaited.(*orderedSet)
	for i := range told {
		key := KeyOf(&told[i])
		if ordered {
			if found := from.seek(set, key); found != nil && found.Result == told[i].Result {
				continue
			}
		}
		if result, believed := x.Believed(key); believed && result != told[i].Result {
			count++
		}
	}
	return count
}

// Blocks counts the blocks that were applied, and the calls of Reset. What was read from the chain
// at another count may have changed.
func (x *Exchange) Blocks() uint64 { return x.blocks }

// TakeFresh reports whether transactions may wait that did not when it was called before.
func (x *Exchange) TakeFresh() bool {
	fresh := x.fresh
	x.fresh = false
	return fresh
}

// Applied records that a block was executed here and is in the chain. Blocks come in order; after
// Reset they may begin at any height.
func (x *Exchange) Applied(block *ledger.Block) (found []Contradiction) {
	x.blocks++
	for _, entry := range block.All() {
		if entry.Transaction().Verdict != nil {
			eachVerdict(entry, func(verdict *ledger.Verdict, code ledger.Code) {
				found = append(found, x.took(verdict, code)...)
			})
			continue
		}
		if entry.Result.Code == ledger.SetAside || entry.Transaction().Book != nil {
			x.fresh = true
		}
		if x.early.count > 0 {
			x.received = x.early.take(&x.facts, entry.ID, x.received)
		}
		if len(x.groups.early) > 0 {
			x.wakeAll(entry.ID, false)
		}
	}
	x.endGroups(block)
	return found
}

// eachVerdict calls visit for each verdict of an entry that has verdicts, with its result.
func eachVerdict(entry *ledger.Entry, visit func(verdict *ledger.Verdict, code ledger.Code)) {
	visit(entry.Transaction().Verdict, entry.Result.Code)
}

// taken reports whether a verdict with this result is over, and whether those of other shards on
// the same transaction are.
func taken(code ledger.Code) (this, others bool) {
	others = code == ledger.Settled || code == ledger.Released
	return others || code == ledger.Applied, others
}

// took records that a block has a verdict. In a vouched book most of them are of groups, and
// nothing is known of them by themselves.
func (x *Exchange) took(verdict *ledger.Verdict, code ledger.Code) (found []Contradiction) {
	this, over := taken(code)
	if !this {
		return nil
	}
	if x.config.Vouched && x.facts.first[verdict.ID] == 0 {
		return nil
	}
	at := x.facts.find(KeyOf(verdict))
	if at == 0 && !x.config.Vouched {
		at = x.facts.need(KeyOf(verdict))
	}
	if at != 0 {
		// One that is only watched in a group need not be remembered.
		if f := &x.facts.facts[at]; f.settled == 0 && (!x.config.Vouched || f.held()) {
			x.settled.add(&x.facts, at)
		}
		if x.config.Vouched {
			found = x.words.take(at, verdict.Result)
		}
		x.leave(at)
		x.wake(at, true)
	}
	// The verdicts of other shards on the transaction are over, too.
	for other := x.facts.first[verdict.ID]; over && other != 0; {
		next := x.facts.facts[other].next
		if other != at {
			x.words.drop(other)
			x.leave(other)
			x.wake(other, true)
		}
		other = next
	}
	return found
}

// leave takes a verdict out of those to propose, and drops the fact if it is in no set.
func (x *Exchange) leave(at index) {
	if f := &x.facts.facts[at]; f.awaited {
		f.awaited = false
		x.awaited.remove(f.key)
	}
	x.facts.release(at)
}

// Reset records that another chain took the place of the one before. All known verdicts are judged
// anew.
func (x *Exchange) Reset() {
	x.blocks++
	x.resetGroups()
	x.settled.clear(&x.facts)
	drained := x.awaited.drain()
	for i := range drained {
		at := x.facts.find(KeyOf(&drained[i]))
		x.facts.facts[at].awaited = false
		x.facts.release(at)
	}
	x.received = x.early.drain(&x.facts, append(x.received, drained...))
}

// Hear takes verdicts that a member of another shard told. Those that are believed now are to be
// judged.
func (x *Exchange) Hear(member Member, verdicts []ledger.Verdict) (found []Contradiction) {
	if !x.config.Vouched {
		for i := range verdicts {
			// Most verdicts arrive several times.
			if !x.Knows(KeyOf(&verdicts[i])) {
				x.enqueue(verdicts[i])
			}
		}
		return nil
	}
	present, by := x.config.Members(member.Shard), x.words.teller(member)
	for i := range verdicts {
		verdict := &verdicts[i]
		at := x.facts.need(KeyOf(verdict))
		switch f := &x.facts.facts[at]; {
		case f.believed != 0:
			if f.believedAs != verdict.Result {
				found = append(found, Contradiction{Member: member, Verdict: *verdict,
					Against: f.believedAs})
			} else if _, left := verdict.MoveOf(); left && !f.again && !x.Knows(f.key) {
				// It is asked for by the id of the move, so only this tells that it was dropped.
				f.again = x.enqueue(*verdict)
			}
			continue
		case f.settled != 0:
			continue
		}
		dropped, before, contradicts := x.words.add(by, at, verdict.Result)
		x.dropped += uint64(dropped)
		if contradicts {
			found = append(found, Contradiction{Member: member, Verdict: *verdict,
				Against: before})
		}
		if result, enough := x.words.majority(at, present); enough {
			found = append(found, x.believe(at, result)...)
		}
	}
	return found
}

// Believe takes a verdict that needs no more words. In a vouched book it returns the words against
// it.
func (x *Exchange) Believe(verdict *ledger.Verdict) []Contradiction {
	return x.believe(x.facts.need(KeyOf(verdict)), verdict.Result)
}

// believe makes a verdict one that is believed, and drops the words on it. It returns those against
// it.
func (x *Exchange) believe(at index, result ledger.Result) []Contradiction {
	against := x.words.take(at, result)
	if f := &x.facts.facts[at]; f.believed == 0 {
		f.believedAs = result
		x.believed.add(&x.facts, at)
		x.enqueue(ledger.Verdict{ID: f.key.ID, Shard: f.key.Shard, Result: result})
	}
	return against
}

// Recount counts all words anew after a change of any shard's members, or of the shards: those of
// members that left count no more, and fewer may be enough now.
func (x *Exchange) Recount() (found []Contradiction) {
	x.dropped += uint64(x.words.follow(&x.config))
	for _, key := range x.words.keys() {
		at := x.facts.find(key)
		if result, enough := x.words.majority(at, x.config.Members(key.Shard)); enough {
			found = append(found, x.believe(at, result)...)
		}
	}
	x.followGroups()
	return found
}

// enqueue makes a verdict one to judge. If there is no room it is asked for later, and enqueue
// returns false.
func (x *Exchange) enqueue(verdict ledger.Verdict) bool {
	if len(x.received) >= x.config.Bounds.Received {
		x.dropped++
		return false
	}
	x.received = append(x.received, verdict)
	return true
}

// TakeReceived removes and returns at most the given number of verdicts to judge, the first ones.
// For each the caller asks its chain for the standing, and calls Place.
func (x *Exchange) TakeReceived(most int) []ledger.Verdict {
	count := min(len(x.received), most)
	verdicts := slices.Clone(x.received[:count])
	for i := range verdicts {
		if _, left := verdicts[i].MoveOf(); left {
			x.facts.get(KeyOf(&verdicts[i])).again = false
		}
	}
	if x.received = x.received[count:]; len(x.received) == 0 {
		x.received = nil
	}
	return verdicts
}

// Knows reports whether a verdict has its place already, so that it need not be judged.
func (x *Exchange) Knows(key Key) bool {
	f := x.facts.get(key)
	return f.settled != 0 || f.awaited || f.early
}

// Place gives a verdict that it does not know its place by its standing, which was read when Blocks
// returned blocks. It reports whether there is something to propose now. If blocks came since, the
// place may be wrong, and a later look at the waiting transactions corrects it.
func (x *Exchange) Place(verdict *ledger.Verdict, standing Standing, blocks uint64) (ready bool) {
	stale := x.blocks != blocks
	x.fresh = x.fresh || stale
	if standing == Early && x.config.Fault == FaultForgetEarly {
		return false
	}
	at := x.facts.need(KeyOf(verdict))
	switch f := &x.facts.facts[at]; {
	case standing == Over && stale:
		// The chain may have been replaced, and a verdict that is over is never judged again.
	case standing == Over:
		if f.settled == 0 {
			x.settled.add(&x.facts, at)
		}
	case standing == Early:
		if !f.early {
			x.early.add(&x.facts, at, verdict.Result)
		}
	case !f.awaited:
		ready = x.await(at, verdict)
	}
	x.facts.release(at)
	return ready
}

// await makes a verdict one to propose, if there is room.
func (x *Exchange) await(at index, verdict *ledger.Verdict) bool {
	if x.awaited.len() >= x.config.Bounds.Awaited {
		later, displaced := x.awaited.displace(verdict)
		if !displaced {
			x.dropped++
			return false
		}
		displacedAt := x.facts.find(later)
		x.facts.facts[displacedAt].awaited = false
		x.facts.release(displacedAt)
	}
	x.awaited.add(*verdict)
	x.facts.facts[at].awaited = true
	return true
}

// Propose returns at most the given number of verdicts that the chain waits for, each again only
// after the patience. In a vouched book it returns in each call all that is believed, in canonical
// order; if not all fit, the first ones. The caller owns the slice.
func (x *Exchange) Propose(most int, now time.Duration, patience time.Duration) []ledger.Verdict {
	return x.awaited.propose(most, now, patience)
}

// Pending reports whether Propose would return a verdict.
func (x *Exchange) Pending(now time.Duration, patience time.Duration) bool {
	return x.awaited.pending(now, patience) || len(x.groups.awaited) > 0
}

// Again returns when a proposed verdict that still waits is to be proposed again, if one does. In a
// vouched book it does not matter whether the verdicts that wait were proposed.
func (x *Exchange) Again(patience time.Duration) (at time.Duration, waits bool) {
	at, waits = x.awaited.again(patience)
	if len(x.groups.awaited) > 0 {
		return max(at, x.proposedGroups+patience), true
	}
	return at, waits
}
