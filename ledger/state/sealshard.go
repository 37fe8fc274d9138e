package state

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Seal makes one block from a round's batches. In a book of one shard it does the same as the
// package's function Seal. In a book of several shards it needs the state from before the block:
//
//   - Verdicts come first, if an entry of the state waits for them: those of groups, then the
//     others. A verdict that arrives too early is left out and must be sent again.
//   - Then come entries of the parent's stream: exactly those that follow the last one in the
//     chain, each once, whichever members proposed them and in whatever order. Only the
//     transactions of an entry that concern a shard that this shard reaches are kept.
//   - Then come occurrences of schedules that are due, at the root of the tree.
//   - Then come clients' bundles: the transactions that concern only shards that this shard
//     reaches, and whose signer is registered or that are registrations. Those of organisations
//     that are on their way here wait for a later block.
//   - Then come copies of transactions that are too late, and that never reach this shard
//     (late.go).
//   - A change of the book's shards is the last of these: what comes after it is in a later block.
//
// With Genesis.VouchedCrossings, a verdict or an entry of the stream counts only if more than half
// of the members before the block vouch for it in batches of this round. For a verdict, some of
// them may do so by itself, and others in a group (tallygroup.go).
//
// A round with the next entry of the stream makes a block even if no transaction of the entry is
// new, so that the stream advances. Seal reads the state and does not change it.
func (s *State) Seal(parent Parent, epoch ledger.Epoch, round ledger.Round,
	batches []*ledger.VerifiedBatch,
	seen func(id ledger.Hash, transaction *ledger.Transaction) bool) *Draft {
	if s.tree == nil {
		parent.Due = s.Due
		return Seal(parent, epoch, round, batches, seen)
	}
	sealing := &sealing{
		Draft: &Draft{block: ledger.Block{Header: ledger.Header{Height: parent.Header.Height + 1,
			Previous: parent.Hash, Epoch: epoch, Round: round}}},
		state: s, seen: seen,
		taken: make(map[awaited]struct{}), over: make(map[ledger.Hash]struct{}),
		departed: make(map[uint64]struct{}), arrivals: make(map[uint64]ledger.Hash),
		organisations: make(map[ledger.OrganisationName]ledger.Organisation),
		charter:       s.charter.Charter,
		version:       s.Version(),
	}
	times := parent.times()
	decoded := make([]*ledger.VerifiedBatch, 0, len(batches))
	for _, batch := range batches {
		if batch == nil || !s.takesVerdicts(batch.Verdicts) || !s.takesGroups(batch.Groups) ||
			!s.takesCarried(batch.Carried) {
			sealing.Malformed++
			continue
		}
		times.Add(batch.Header.Time, batch.Clocks)
		decoded = append(decoded, batch)
	}
	time := times.Block()
	due := s.Due(time)
	sealing.room = ledger.MaxBlockTransactions - len(due)
	most := 0
	for _, batch := range decoded {
		most = max(most, len(batch.Verdicts))
	}
	sealing.verdicts = make([]ledger.Verdict, 0, most) // members propose the same ones
	if s.genesis.VouchedCrossings {
		sealing.tallies = s.tally(decoded)
		sealing.once = sealing.tallies.inOrder != nil && sealing.tallies.groups == nil
	}
	sealing.takeGroups(decoded)
	for place, batch := range decoded {
		for i := range batch.Verdicts {
			switch sealing.tallies.verdict(place, batch, i) {
			case enough:
				sealing.takeVerdict(&batch.Verdicts[i])
			case enoughBefore:
				sealing.Repeated++
			default:
				sealing.Unvouched++
			}
		}
		sealing.takeParts(batch)
	}
	sealing.ids = sealing.reserve(decoded, len(sealing.verdicts))
	sealing.addVerdicts()
	sealing.addDue(due)
	sealing.addStream(decoded)
	for _, batch := range decoded {
		for i := range batch.Proposals {
			switch proposal := &batch.Proposals[i]; {
			case sealing.closed, sealing.early(proposal): // it enters by a later round
			case !sealing.takes(proposal, sealing.version):
			case proposal.Packed(): // only for books of one shard
				sealing.Malformed++
			default:
				sealing.addBundle(proposal.Bundle, nil, 0, sealing.belongs)
			}
		}
	}
	sealing.addLate(decoded, time)
	draft := sealing.Draft
	if len(draft.block.Bundles) == 0 {
		return nil
	}
	draft.block.Header.Time = time
	draft.block.Header.Transactions = uint32(draft.Len())
	draft.block.Header.Total = parent.Header.Total + uint64(draft.Len())
	return draft
}

// awaited identifies a verdict.
type awaited struct {
	id      ledger.Hash
	shard   ledger.ShardID
	subject ledger.Subject
}

// sealing is a draft in progress, in a book of several shards.
type sealing struct {
	*Draft
	state *State
	seen  func(ledger.Hash, *ledger.Transaction) bool
	ids   idSet
	// tallies is nil unless members have to vouch for what comes from other shards.
	tallies *tallies
	// verdicts are those that the draft takes, in order, and taken is the set of them, unless once
	// is set: then each is offered only once. over are the transactions that a bad one ends, or
	// that a testimony may end.
	verdicts []ledger.Verdict
	taken    map[awaited]struct{}
	once     bool
	// room is how many verdicts the draft may take: occurrences that are due come in any case.
	room int
	over map[ledger.Hash]struct{}
	// closed says that the draft has a change of the book's shards, and takes no bundle after it.
	closed bool
	// departed are the moves whose departure the draft takes, and arrivals the ids of the next
	// arrivals at the present place, by move.
	departed map[uint64]struct{}
	arrivals map[uint64]ledger.Hash
	// organisations are those that the draft registers before the present place, or whose policies
	// it changes.
	organisations map[ledger.OrganisationName]ledger.Organisation
	// charter is the charter at the present place.
	charter ledger.Charter
	// version is the version of the chain before the draft.
	version      int
	destinations []ledger.ShardID
}

func (s *sealing) full() bool { return len(s.block.Unpacked) >= ledger.MaxBlockTransactions }

// takeVerdict takes a verdict that the state waits for, and that the draft does not have yet.
func (s *sealing) takeVerdict(verdict *ledger.Verdict) {
	key, again, over := awaited{verdict.ID, verdict.Shard, verdict.Subject()}, false, false
	if !s.once {
		_, again = s.taken[key]
	}
	if len(s.over) > 0 {
		_, over = s.over[verdict.ID]
	}
	move, departure := verdict.MoveOf()
	if departure {
		_, over = s.departed[move]
	}
	if again || over || len(s.verdicts) >= s.room || !s.state.Awaits(verdict) {
		s.Repeated++
		return
	}
	if !s.once {
		s.taken[key] = struct{}{}
	}
	switch {
	case departure:
		s.departed[move] = struct{}{}
	case !verdict.Good():
		s.over[verdict.ID] = struct{}{}
	}
	s.verdicts = append(s.verdicts, *verdict)
}

// addVerdicts adds the verdicts that were taken. Nothing else is in the draft yet. From version
// ledger.CrossingVersion of the chain on, the good ones of a shard come one after the other and
// share a bundle, and the others follow. A good verdict that came after a bad one on the same
// transaction was not taken, so it does not matter that it would come before.
func (s *sealing) addVerdicts() {
	shared := s.state.sharesVerdicts()
	if shared {
		s.verdicts = byShard(s.verdicts)
	}
	entries, seals := ledger.VerdictEntries(s.state.ledger, s.verdicts, 0, shared)
	s.block.Unpacked = append(s.block.Unpacked, entries...)
	s.block.Bundles = append(s.block.Bundles, seals...)
}

// byShard returns the good verdicts, shard by shard, and then the others, each in their order.
func byShard(verdicts []ledger.Verdict) []ledger.Verdict {
	const others = ledger.MaxShards
	group := func(verdict *ledger.Verdict) int {
		if verdict.Good() {
			return int(verdict.Shard)
		}
		return others
	}
	var first [others + 2]int // the place of the first verdict of each group
	for i := range verdicts {
		first[group(&verdicts[i])+1]++
	}
	for i := range others {
		first[i+1] += first[i]
	}
	ordered := make([]ledger.Verdict, len(verdicts))
	for i := range verdicts {
		place := &first[group(&verdicts[i])]
		ordered[*place] = verdicts[i]
		*place++
	}
	return ordered
}

// addStream adds the entries of the parent's stream that follow the last one in the chain.
func (s *sealing) addStream(batches []*ledger.VerifiedBatch) {
	last, ahead := s.state.Carried(), make(map[uint64]*ledger.Proposal)
	for _, batch := range batches {
		for i := range batch.Carried {
			carried := &batch.Carried[i]
			if carried.Number == 0 {
				continue // a copy of a transaction that is too late
			}
			_, again := ahead[carried.Number]
			if again || carried.Number <= last || s.state.parent == nil {
				s.Repeated++
				continue
			}
			if !s.tallies.carried(batch, i) {
				s.Unvouched++
				continue
			}
			// Another member may propose the same entry as it is.
			if proposal := &batch.Stream[i]; s.takes(proposal, s.version) {
				ahead[carried.Number] = proposal
			}
		}
	}
	// The stream must not skip an entry, so stop at the first one that is missing.
	for next := last + 1; len(ahead) > 0; next++ {
		entry, here := ahead[next]
		if !here || s.closed || len(s.block.Unpacked)+entry.Len() > ledger.MaxBlockTransactions {
			break
		}
		delete(ahead, next)
		s.addBundle(entry.Bundle, entry.Kept, next, s.belongs)
	}
	s.Gaps += len(ahead)
}

// addBundle adds a client's bundle (number 0, with all of its transactions), an entry of the
// parent's stream, which has only the transactions marked in present, or a copy that is too late
// (number 0). It leaves out what does not belong into a block of this shard.
func (s *sealing) addBundle(bundle *ledger.Bundle, present []bool, number uint64,
	belongs func(*ledger.Transaction, *ledger.Hash, uint64) bool) {
	kept, first := make([]bool, bundle.Len()), len(s.block.Unpacked)
	for place, id := range bundle.IDs() {
		if present != nil && !present[place] {
			continue
		}
		transaction := bundle.Transaction(place)
		if !belongs(transaction, &id, number) {
			if number == 0 {
				s.Misplaced++
			}
			continue
		}
		key, again := s.ids.find(&id, &s.block)
		if again || s.seen(id, transaction) || s.full() {
			s.Duplicates++
			continue
		}
		s.ids[key] = uint32(len(s.block.Unpacked))
		kept[place] = true
		s.block.Unpacked = append(s.block.Unpacked, bundle.Entry(place, len(s.block.Bundles)))
		s.note(transaction, bundle)
	}
	if len(s.block.Unpacked) > first || number != 0 {
		seal := bundle.Seal(kept)
		seal.Number = number
		s.block.Bundles = append(s.block.Bundles, seal)
	}
}

// belongs reports whether a transaction may be in a block of this shard. Execution makes the same
// decision.
func (s *sealing) belongs(transaction *ledger.Transaction, id *ledger.Hash,
	number uint64) bool {
	switch {
	case transaction.Change != nil:
		return number == 0
	case transaction.Occurrence != nil && number == 0:
		return false // only the state makes them
	case transaction.Arrival != nil:
		return number == 0 && s.isNext(transaction.Arrival, id)
	}
	s.destinations = transaction.AppendDestinations(s.destinations[:0],
		s.state.tree.Shards(), func(name ledger.OrganisationName) ledger.ShardID {
			if found, here := s.organisations[name]; here && found.Pinned {
				return found.Shard
			}
			return s.state.HomeShard(name)
		})
	_, known := s.organisations[transaction.Signer]
	return s.state.belongs(transaction, s.destinations, number, known ||
		s.state.organisations[transaction.Signer] != nil)
}

// note records what a transaction changes in the directory and the charter, as execution will.
func (s *sealing) note(transaction *ledger.Transaction, bundle *ledger.Bundle) {
	signatures := bundle.Signatures()
	switch {
	case transaction.Book != nil:
		s.closed = true
	case transaction.Arrival != nil:
		s.arrivals[transaction.Arrival.Move] = transaction.Arrival.Next
	case transaction.Ledger != s.state.ledger:
	case transaction.Policy != nil:
		found, exists := s.find(transaction.Signer)
		if exists && mayChangePolicy(&found, transaction, bundle.Root(),
			signatures) == ledger.Applied {
			found.Policy, found.Keys = &transaction.Policy.Policy, transaction.Policy.PublicKeys()
			s.organisations[found.Name] = found
		}
	case transaction.Charter != nil:
		if mayChangeCharter(&s.charter, transaction, bundle.Root(), signatures) == ledger.Applied {
			s.charter = transaction.Charter.Charter
		}
	case len(transaction.Registrations) > 0:
		if !s.state.mayRegister(transaction, signatures, s.find, &s.charter).OK() {
			return
		}
		for i := range transaction.Registrations {
			registration := &transaction.Registrations[i]
			if _, exists := s.find(registration.Name); !exists {
				s.organisations[registration.Name] = organisationOf(registration)
			}
		}
	}
}

// find returns an organisation at the present place.
func (s *sealing) find(name ledger.OrganisationName) (ledger.Organisation, bool) {
	if found, here := s.organisations[name]; here {
		return found, true
	}
	return s.state.Organisation(name)
}

// takesVerdicts reports whether the chain's version has the codes of all these verdicts. A program
// that does not know them cannot decode the batch, and leaves all of it out. So do newer ones until
// the chain has the version. Members do not propose such verdicts (Awaits).
func (s *State) takesVerdicts(verdicts []ledger.Verdict) bool {
	for i := range verdicts {
		if !s.TakesVerdict(&verdicts[i]) {
			return false
		}
	}
	return true
}

// takesCarried is takesVerdicts for copies of transactions that are too late (addLate).
func (s *State) takesCarried(carried []ledger.Carried) bool {
	return ledger.TakesBookChanges(s.Version()) ||
		!slices.ContainsFunc(carried, func(c ledger.Carried) bool { return c.Number == 0 })
}
