package state

import (
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// use counts what an organisation keeps in the state. It follows from the entries of the state and
// is no entry itself.
type use struct {
	ledger.Quotas
	// coming counts the records that waiting transactions may write, whether they are new or not.
	coming uint64
	// cancelled counts the cancellations that are remembered.
	cancelled int
	name      ledger.OrganisationName
	// counted says that the current block may have changed the number of accounts or of assets.
	counted bool
}

// Use returns what an organisation keeps in this shard.
func (s *State) Use(name ledger.OrganisationName) ledger.Quotas {
	if found := s.uses[name]; found != nil {
		return found.Quotas
	}
	return ledger.Quotas{}
}

// use returns the counts of an organisation, to change them.
func (s *State) use(name ledger.OrganisationName) *use {
	found := s.uses[name]
	if found == nil {
		found = &use{name: ledger.OrganisationName(strings.Clone(string(name)))}
		s.uses[found.name] = found
	}
	return found
}

// count returns the counts of an organisation, to change the number of accounts or of assets. It
// notes that the block may have changed them.
func (s *State) count(name ledger.OrganisationName) *use {
	found := s.use(name)
	if !found.counted {
		found.counted = true
		s.counted = append(s.counted, found)
	}
	return found
}

// Counts are how many accounts an organisation has, and how many assets there are in them, added
// up.
type Counts struct {
	Organisation     ledger.OrganisationName
	Accounts, Assets uint64
}

// Counts returns the counts of all organisations that have accounts, in no particular order.
func (s *State) Counts() []Counts {
	all := make([]Counts, 0, len(s.uses))
	for _, each := range s.uses {
		if each.Accounts > 0 {
			all = append(all, each.counts())
		}
	}
	return all
}

func (u *use) counts() Counts { return Counts{u.name, u.Accounts, u.Assets} }

// finishCounts adds the counts to the changes of a block.
func (s *State) finishCounts(changes *Changes) {
	for _, each := range s.counted {
		each.counted = false
		changes.Counts = append(changes.Counts, each.counts())
	}
	s.counted = s.counted[:0]
}

// pairs counts the assets that the account has, or will have if the held amounts come in.
func (a *account) pairs() uint64 { return uint64(len(a.balances) + a.reserved("")) }

// within reports whether a quota allows more.
func within(quota, used, more uint64) bool { return quota == 0 || used+more <= quota }

// roomForStream reports whether the signer may use the transaction's nonce stream.
func (s *State) roomForStream(t *ledger.Transaction) bool {
	quota := s.charter.Quotas.Streams
	return quota == 0 || t.Signer == ledger.Operator ||
		s.window(t) != nil ||
		within(quota, s.Use(t.Signer).Streams, 1)
}

// roomForAsset reports whether an account may have one more asset, given that the transaction needs
// earlier new ones in accounts of its organisation.
func (s *State) roomForAsset(a *account, earlier uint64) bool {
	quota := s.charter.Quotas.Assets
	return quota == 0 || within(quota, s.Use(a.path.Organisation()).Assets, earlier+1)
}

// roomForRecords returns the first record of the transaction for which there is no room in this
// shard. A record that waiting transactions write may be new, so there is room for it, too.
func (s *State) roomForRecords(t *ledger.Transaction) (item uint32, full bool) {
	quota := s.charter.Quotas.Records
	if quota == 0 || len(t.Records) == 0 {
		return 0, false
	}
	more := make(map[ledger.OrganisationName]uint64)
	seen := make(map[ledger.RecordKey]bool)
	for i := range t.Records {
		key := t.Records[i].Key
		owner := key.Organisation()
		if seen[key] || s.records[key] != nil || s.HomeShard(owner) != s.shard {
			continue
		}
		seen[key] = true
		more[owner]++
		if used := s.uses[owner]; used == nil && !within(quota, 0, more[owner]) ||
			used != nil && !within(quota, used.Records+used.coming, more[owner]) {
			return uint32(i), true
		}
	}
	return 0, false
}

// roomForPending reports whether one more transaction of the signer may wait for other shards.
func (s *State) roomForPending(signer ledger.OrganisationName) bool {
	quota := s.charter.Quotas.Pending
	return quota == 0 || within(quota, s.Use(signer).Pending, 1)
}

// countPending adds a waiting transaction to what organisations use, or takes it away.
func (s *State) countPending(entry *pending, added bool) {
	change := uint64(1)
	if !added {
		change = ^uint64(0) // -1
	}
	if entry.signer != "" {
		s.use(entry.signer).Pending += change
	}
	for i := range entry.records {
		s.use(entry.records[i].key.Organisation()).coming += change
	}
}
