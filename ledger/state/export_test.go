package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// HeldByPending returns the sums of an account's asset that waiting transactions and holds set
// aside.
func (s *State) HeldByPending(path ledger.AccountPath,
	asset ledger.AssetName) (setAside, incoming ledger.Amount) {
	for _, each := range s.pending.byID {
		for i := range each.entry.parts {
			p := &each.entry.parts[i]
			if p.account != path || p.asset != asset {
				continue
			}
			if p.net.Sign() < 0 {
				setAside, _ = setAside.Sub(p.net)
			} else {
				incoming, _ = incoming.Add(p.net)
			}
		}
	}
	for _, each := range s.held.by {
		if each.From == path && each.Asset == asset {
			setAside, _ = setAside.Add(each.Amount.Minus(each.posted))
		}
	}
	return setAside, incoming
}

// LimitHolds lowers SureHolds, MaxHolds and MaxAllHolds for one state.
func (s *State) LimitHolds(sure, ofOne, ofAll int) {
	s.held.sure, s.held.ofOne, s.held.ofAll = sure, ofOne, ofAll
}

// CountedHolds returns how many holds of an organisation count, and how many of all beyond the sure
// ones.
func (s *State) CountedHolds(of ledger.OrganisationName) (counted, shared int) {
	return s.held.of[of], s.held.shared
}

// PlantHoldForgotten plants a bug: what a hold sets aside is free while the hold is open.
func (s *State) PlantHoldForgotten(id ledger.Hash) { s.lift(s.held.by[id], s.held.by[id].Amount) }

// PendingNets returns the postings that a waiting transaction will make in this shard if it takes
// effect.
func (s *State) PendingNets(id ledger.Hash) []ledger.Posting {
	var nets []ledger.Posting
	if found := s.pending.byID[id]; found != nil {
		for i := range found.entry.parts {
			nets = append(nets, ledger.Posting{Account: found.entry.parts[i].account,
				Asset: found.entry.parts[i].asset, Amount: found.entry.parts[i].net})
		}
	}
	return nets
}

// PlantCountedTwice plants a bug: a verdict also counts as the verdict of the next awaited shard.
func (s *State) PlantCountedTwice(id ledger.Hash, from ledger.ShardID) {
	if found := s.pending.byID[id]; found != nil {
		for i := range found.entry.waits {
			if each := &found.entry.waits[i]; each.shard != from && !each.said {
				each.said = true
				return
			}
		}
	}
}

// PlantUncounted plants a bug: the newest transaction that waits is not in the list of those that
// wait.
func (s *State) PlantUncounted() {
	if newest := s.pending.newest; newest != nil {
		s.pending.unlink(newest)
	}
}

// PlantForgotten plants a bug: the first of the released amounts stays set aside.
func (s *State) PlantForgotten(nets []ledger.Posting) {
	for _, each := range nets {
		if each.Amount.Sign() < 0 {
			s.changeHold(s.accounts.find(each.Account),
				&part{account: each.Account, asset: each.Asset, net: each.Amount}, false)
			return
		}
	}
}

// LimitCancelled lowers SureCancelled, MaxCancelled and MaxAllCancelled for one state.
func (s *State) LimitCancelled(sure, ofOne, ofAll int) {
	s.cancelled.sure, s.cancelled.ofOne, s.cancelled.ofAll = sure, ofOne, ofAll
}

// PlantMovedTwice plants a bug: a transaction takes effect twice.
func (s *State) PlantMovedTwice(nets []ledger.Posting) {
	for _, each := range nets {
		s.accounts.find(each.Account).move(&part{account: each.Account, asset: each.Asset,
			net: each.Amount}, s.assetsMax)
	}
}

// PlantRevokedKeys plants a bug: the keys of an older policy still count.
func (s *State) PlantRevokedKeys(name ledger.OrganisationName, keys []ledger.PolicyKey) {
	policy := s.organisations[name].Policy
	policy.Keys = append(policy.Keys, keys...)
}

// PlantThreshold plants a bug: the threshold of an older policy counts.
func (s *State) PlantThreshold(name ledger.OrganisationName, threshold int) {
	s.organisations[name].Policy.Threshold = threshold
}

// PlantLimits plants a bug: the limits of an older policy count.
func (s *State) PlantLimits(name ledger.OrganisationName, limits []ledger.Limit) {
	s.organisations[name].Policy.Limits = limits
}

// PlantOperators plants a bug: another threshold counts, and further operators.
func (s *State) PlantOperators(threshold int, more ...ledger.PublicKey) {
	s.charter.Threshold = threshold
	s.charter.Operators = append(s.charter.Operators, more...)
}

// CheckUses counts what organisations keep again, and returns an error if the state's counts are
// others.
func (s *State) CheckUses() error {
	again := State{uses: make(map[ledger.OrganisationName]*use),
		cancelled: cancelledSet{sure: s.cancelled.sure}}
	for each := range s.accounts.all() {
		counts := again.use(each.path.Organisation())
		counts.Accounts++
		pairs := make(map[ledger.AssetName]bool)
		for i := range each.balances {
			pairs[each.balances[i].asset] = true
		}
		for _, held := range each.holds() {
			pairs[held.asset] = true
		}
		counts.Assets += uint64(len(pairs))
	}
	if !s.AllResident() { // only resident accounts can be counted again
		for name, counts := range s.uses {
			kept := again.use(name)
			kept.Accounts, kept.Assets = counts.Accounts, counts.Assets
		}
	}
	for key := range s.windows {
		again.use(key.organisation).Streams++
	}
	for key := range s.records {
		again.use(key.Organisation()).Records++
	}
	for _, each := range s.pending.byID {
		again.countPending(each.entry, true)
	}
	for key := range s.cancelled.by {
		again.countCancelled(key.by, 1)
	}
	if got, want := s.cancelled.shared, again.cancelled.shared; got != want {
		return fmt.Errorf("%d cancellations are shared, counted as %d", got, want)
	}
	for _, some := range []map[ledger.OrganisationName]*use{s.uses, again.uses} {
		for name := range some {
			if got, want := *s.use(name), *again.use(name); got != want {
				return fmt.Errorf("%s keeps %+v, counted as %+v", name, want, got)
			}
		}
	}
	return nil
}

// AccountEntry returns the key and value of an empty account.
func AccountEntry(path string, number uint64) (key, value []byte) {
	a := &account{path: ledger.AccountPath(path), number: number}
	entry, keyLength := a.appendEntry(nil)
	return entry[:keyLength], entry[keyLength:]
}

// Accounts returns copies of the resident accounts, ordered by path.
func (s *State) Accounts() []ledger.Account {
	var all []ledger.Account
	for each := range s.accounts.all() {
		all = append(all, each.copy())
	}
	slices.SortFunc(all, func(a, b ledger.Account) int {
		return strings.Compare(string(a.Path), string(b.Path))
	})
	return all
}

// LookedUp returns how many paths the memory for look-ups still has.
func (s *State) LookedUp() (paths int) {
	for _, memory := range [][]lookup{s.looked, s.table.looked} {
		for _, each := range memory[:cap(memory)] {
			if each.path != "" {
				paths++
			}
		}
	}
	return paths
}

// HoldsDue reports whether holds expire with a block of this time.
func (s *State) HoldsDue(at ledger.Milliseconds) bool {
	return len(s.held.next) > 0 && s.held.next[0].Expires <= at
}
