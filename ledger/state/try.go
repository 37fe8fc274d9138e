package state

import (
	"github.com/ledgerd/ledgerd/ledger"
)

// Trials say what a transaction would do, and change nothing. They run on the state between blocks,
// by the rules that execution has: a transaction is attempted, and rolled back as one that failed.
//
// What always holds: after a trial the state is as before it, in all that any later block or entry
// depends on. Only one member tries, so anything that a trial left would be a fork.

// Trying is a transaction to try, as a block would have it.
type Trying struct {
	ID          ledger.Hash
	Transaction *ledger.Transaction
	// Root and Signatures are those of the bundle.
	Root       ledger.Hash
	Signatures []ledger.Signature
	// Height, Round and Time are those of the block: a height and a round above those of the head,
	// and a time that is not before that of the head.
	Height ledger.Height
	Round  ledger.Round
	Time   ledger.Milliseconds
}

// TryWants returns the paths of accounts that trying a transaction may look up and that are not
// resident, each once. It is Wanted for Try: Admit must be called for each of them before, and no
// block may be executed between.
func (s *State) TryWants(t *ledger.Transaction) []ledger.AccountPath {
	if s.AllResident() {
		return nil
	}
	w := wanting{state: s}
	w.transaction(t)
	return w.all()
}

// Try returns the result that a transaction would have if the next block had nothing else. If
// several shards decide on it, the result is this shard's verdict: SetAside if it would agree. It
// is Relayed if the transaction does not concern this shard, and OutOfPlace if no client may send
// it here. Holds and deadlines count as of the time that the caller names. What that block would
// set free before its entries still counts as set aside. For concurrency Try counts as a write.
func (s *State) Try(trying *Trying) ledger.Result {
	height, round, time, index, id := s.height, s.round, s.time, s.index, s.id
	s.height, s.round, s.time, s.index, s.id = trying.Height, trying.Round, trying.Time, 0,
		trying.ID
	s.arena, s.kept, s.found, s.trying = nil, s.kept[:0], nil, true
	s.undo.clear()
	result := s.try(trying)
	s.forgetTrial()
	s.trying = false
	s.height, s.round, s.time, s.index, s.id = height, round, time, index, id
	return result
}

func (s *State) try(trying *Trying) ledger.Result {
	t := trying.Transaction
	if t.Verdict != nil || t.Arrival != nil {
		return whole(ledger.OutOfPlace)
	}
	if s.tree == nil || t.Change != nil {
		return s.apply(t, trying.Root, trying.Signatures)
	}
	s.destinations = t.AppendDestinations(s.destinations[:0], s.tree.Shards(), s.HomeShard)
	result := s.applyHere(t, trying.Root, trying.Signatures)
	s.rollback(len(s.touchedAccounts))
	return result
}

// forgetTrial forgets what a trial has touched. All of it is as before the trial.
func (s *State) forgetTrial() {
	for _, each := range s.touchedAccounts {
		each.mark = mark{}
	}
	for _, each := range s.touchedOrganisations {
		if each.mark = (mark{}); s.organisations[each.Name] == nil {
			delete(s.uses, each.Name)
		}
	}
	for _, each := range s.counted {
		each.counted = false
	}
	s.counted = s.counted[:0]
	clear(s.touchedAccounts)
	clear(s.touchedOrganisations)
	s.touchedAccounts, s.touchedOrganisations = s.touchedAccounts[:0], s.touchedOrganisations[:0]
	for _, each := range s.aliases.touched {
		if each.account == "" {
			delete(s.aliases.by, each.aliasKey)
		}
		each.mark = mark{}
	}
	clear(s.aliases.touched)
	s.aliases.touched = s.aliases.touched[:0]
	s.parts, s.arena = s.parts[:0], nil
	s.undo.clear()
	s.forgetPrepared()
	if len(s.touchedWindows)+len(s.touchedRecords)+len(s.touchedMembers)+len(s.held.touched) > 0 ||
		len(s.touchedStreams)+len(s.touchedSlots)+len(s.details.touched)+
			len(s.touchedSchedules) > 0 {
		panic("ledger: a trial has changed the state")
	}
}
