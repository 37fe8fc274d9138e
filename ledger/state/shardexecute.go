package state

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Forward is a bundle of a block that goes to a child shard, as entry Number of the stream to that
// child. Block.CarriedBundle returns its bytes.
type Forward struct {
	Child  ledger.ShardID
	Number uint64
	// Bundle is the index of the bundle in the block.
	Bundle uint32
}

// OwnVerdict is this shard's verdict on a cross-shard transaction in the block, and the shards that
// wait for it.
type OwnVerdict struct {
	ledger.Verdict
	To []ledger.ShardID
}

// Settlement is the end of a transaction's wait for other shards. Index is the place in the block
// of the verdict that ended the wait.
type Settlement struct {
	ID    ledger.Hash
	Index uint32
	// Applied is set if the transaction took effect. Otherwise the amounts that it had set aside
	// are free again.
	Applied bool
}

// Crossings lists the effects of a block that concern other shards. It is empty in a book of one
// shard.
type Crossings struct {
	// Forwards are in the order of their bundles, and of the children within a bundle.
	Forwards []Forward
	// Verdicts are in the order of their transactions.
	Verdicts []OwnVerdict
	// Settlements are in the order of the verdicts that ended the waits.
	Settlements []Settlement
	// OutOfPlace counts the transactions with that result. No correct node makes a block with one.
	OutOfPlace int
}

// shardExecution is the part of a state that is used while a block of a book with several shards is
// executed.
type shardExecution struct {
	touchedStreams []*stream
	touchedSlots   []*slot
	destinations   []ledger.ShardID
	parts          []part
	forward        []bool
	verdicts       []OwnVerdict
	settlements    []Settlement
	decided        int // verdicts of this shard in the block before
	// rehanging is the change of the tree in the bundle, until its entry is on its way.
	rehanging *ledger.BookChange
}

// executeShard executes the entries of a block, bundle by bundle. It numbers the bundles that go to
// child shards in their streams.
func (s *State) executeShard(block *ledger.Block) Crossings {
	var crossings Crossings
	s.pending.fillSlots()
	if s.slotTree != nil {
		s.slotTree.fill(s.pending.slots, s.divide)
	}
	s.verdicts, s.settlements = nil, nil
	if verdicts := leadingVerdicts(block); verdicts > 0 {
		s.settlements = make([]Settlement, 0, verdicts)
	}
	if s.decided > 0 { // a block has about as many as the one before
		s.verdicts = make([]OwnVerdict, 0, min(s.decided+s.decided/4, block.Len()))
	}
	if s.fault == FaultReleasedAlone {
		s.releaseOld()
	}
	next := 0 // of Unpacked, which has all: a book of several shards has no packed bundles
	for b := range block.Bundles {
		seal := &block.Bundles[b]
		inOrder := seal.Number == 0 || s.parent != nil && s.advance(s.parent) == seal.Number
		s.forward = append(s.forward[:0], make([]bool, len(s.children))...)
		for ; next < len(block.Unpacked) && block.Unpacked[next].Bundle == b; next++ {
			entry := &block.Unpacked[next]
			s.index, s.id = uint32(next), entry.ID
			entry.Result = whole(ledger.OutOfPlace)
			if inOrder {
				entry.Result = s.applyEntry(entry, seal)
			}
			if entry.Result.Code == ledger.OutOfPlace {
				crossings.OutOfPlace++
			}
		}
		// A child that the bundle added gets what comes after it.
		for c, child := range s.children[:len(s.forward)] {
			if s.forward[c] && !s.skipsFirst(child) {
				crossings.Forwards = append(crossings.Forwards,
					Forward{Child: child.shard, Number: s.advance(child), Bundle: uint32(b)})
			}
		}
		if s.rehanging != nil {
			crossings.Forwards = s.rehang(crossings.Forwards, uint32(b))
		}
	}
	crossings.Verdicts, crossings.Settlements = s.verdicts, s.settlements
	s.decided = len(s.verdicts)
	return crossings
}

// leadingVerdicts returns how many verdicts of other shards a block begins with.
func leadingVerdicts(block *ledger.Block) (count int) {
	for count < len(block.Unpacked) && block.Unpacked[count].Decoded.Verdict != nil {
		count++
	}
	return count
}

// skipsFirst reports whether the entry is left out of the stream to a child. It is a bug:
// FaultChildLate or FaultSeamShort.
func (s *State) skipsFirst(child *stream) bool {
	switch {
	case s.fault == FaultSeamShort && child.number > 0 && child.number ==
		ledger.StreamBase(ledger.StreamOf(child.number)) && !child.late:
	case s.fault != FaultChildLate || child.number > 0 || child.late ||
		int(child.shard) < len(s.genesis.Shards):
		return false
	}
	child.late = true
	return true
}

// belongs reports whether a client's transaction with these destinations may be in a block of this
// shard. A transaction from the parent's stream (number above 0) must concern a shard that this
// shard reaches and that is not lost: its bundle may have come for the sake of another transaction.
// A transaction that entered here must concern only shards that this shard reaches, and its signer
// must be registered, unless it has registrations or is the operators'. See doc.go on transactions
// that are submitted again after a failure.
func (s *State) belongs(t *ledger.Transaction, destinations []ledger.ShardID, number uint64,
	signerKnown bool) bool {
	if number == 0 {
		return s.tree.Covers(s.shard, destinations) && (signerKnown || len(t.Registrations) > 0 ||
			t.Charter != nil || t.Book != nil)
	}
	if len(s.growth.lost) > 0 {
		destinations = s.present(slices.Clone(destinations))
	}
	return s.parent != nil && s.tree.Concerns(s.shard, destinations)
}

// applyEntry executes one transaction at its place, and marks the child shards that it is forwarded
// to.
func (s *State) applyEntry(entry *ledger.Entry, seal *ledger.BundleSeal) ledger.Result {
	t := entry.Transaction()
	switch {
	case t.Verdict != nil:
		if t.Ledger != s.ledger || seal.Number != 0 || len(seal.Signatures) != 0 ||
			len(seal.IDs) != 1 && !s.sharesVerdicts() {
			return whole(ledger.OutOfPlace)
		}
		return s.applyVerdict(t.Verdict)
	case t.Change != nil:
		if seal.Number != 0 {
			return whole(ledger.OutOfPlace)
		}
		return s.apply(t, seal.Root, seal.Signatures)
	}
	if t.Arrival != nil {
		if seal.Number != 0 || len(seal.IDs) != 1 || len(seal.Signatures) != 0 {
			return whole(ledger.OutOfPlace)
		}
		return s.applyArrival(t, entry.ID)
	}
	if t.Occurrence != nil && seal.Number == 0 && !s.issue(entry, seal) {
		return whole(ledger.OutOfPlace)
	}
	s.destinations = t.AppendDestinations(s.destinations[:0], s.tree.Shards(), s.HomeShard)
	if !s.belongs(t, s.destinations, seal.Number, s.organisations[t.Signer] != nil) {
		if seal.Number == 0 && s.TakesLate(t, s.time) {
			return s.refuseLate(entry.ID)
		}
		return whole(ledger.OutOfPlace)
	}
	onward := s.destinations
	if len(s.growth.lost) > 0 {
		onward = s.present(slices.Clone(onward))
	}
	for c, child := range s.children[:len(s.forward)] {
		if s.tree.Concerns(child.shard, onward) {
			s.forward[c] = true
		}
	}
	result := s.applyHere(t, seal.Root, seal.Signatures)
	if t.BookWide() || len(s.destinations) == 1 || result.Code == ledger.Relayed {
		return result
	}
	others := s.present(without(s.destinations, s.shard))
	if result.Code == ledger.SetAside {
		s.setAside(entry.ID, t, others)
	}
	return s.decides(entry.ID, result, others)
}

// sharesVerdicts reports whether good verdicts of one shard share a bundle in blocks.
func (s *State) sharesVerdicts() bool { return s.Version() >= ledger.CrossingVersion }

// decides notes this shard's verdict on a transaction, for others.
func (s *State) decides(id ledger.Hash, result ledger.Result,
	others []ledger.ShardID) ledger.Result {
	s.verdicts = append(s.verdicts, OwnVerdict{Verdict: ledger.Verdict{ID: id, Shard: s.shard,
		Result: result}, To: others})
	return result
}

// has reports whether shards, in ascending order, have this one.
func has(shards []ledger.ShardID, shard ledger.ShardID) bool {
	_, found := slices.BinarySearch(shards, shard)
	return found
}

// without returns a copy of shards without one of them.
func without(shards []ledger.ShardID, shard ledger.ShardID) []ledger.ShardID {
	others := make([]ledger.ShardID, 0, len(shards))
	for _, each := range shards {
		if each != shard {
			others = append(others, each)
		}
	}
	return others
}

// applyHere executes this shard's share of a client's transaction, given s.destinations. For a
// cross-shard transaction it only decides on this shard's part.
func (s *State) applyHere(t *ledger.Transaction, root ledger.Hash,
	signatures []ledger.Signature) ledger.Result {
	switch {
	case !has(s.destinations, s.shard) && len(s.growth.lost) > 0 &&
		!slices.ContainsFunc(s.destinations, s.isPresent):
		return whole(ledger.ShardLost) // and it goes nowhere else
	case !has(s.destinations, s.shard):
		return whole(ledger.Relayed)
	case s.concernsStranded(t):
		return whole(ledger.ShardLost)
	case s.concernsComing(t):
		return whole(ledger.OrganisationMoving)
	case len(t.Registrations) > 0:
		result := s.mayRegister(t, signatures, s.Organisation, &s.charter.Charter)
		if result.OK() {
			for i := range t.Registrations {
				s.register(&t.Registrations[i], signatures)
			}
		}
		return result
	case t.BookWide(), len(s.destinations) == 1:
		return s.apply(t, root, signatures)
	}
	s.counter++
	if s.concernsLost(s.destinations) {
		return whole(ledger.ShardLost)
	}
	return s.attemptPart(t, signatures)
}

// finishShard collects the changes of streams and of waiting transactions.
func (s *State) finishShard(changes *Changes) {
	for _, each := range s.touchedStreams {
		if each.ended {
			s.remove(changes, each.mark)
		} else {
			s.settle(changes, each.mark, each.appendEntry)
		}
		each.mark = mark{}
	}
	if s.slotTree != nil {
		s.settleSlots(changes)
	} else {
		for _, each := range s.touchedSlots {
			if each.entry == nil {
				s.remove(changes, each.mark)
			} else {
				s.settle(changes, each.mark, each.appendEntry)
			}
			each.mark = mark{}
		}
	}
	s.touchedStreams, s.touchedSlots = s.touchedStreams[:0], s.touchedSlots[:0]
}
