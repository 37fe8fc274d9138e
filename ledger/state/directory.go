package state

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// In a book of several shards, every shard keeps the whole directory. A registration enters at the
// root and reaches all shards. Its result depends only on the directory, so it is the same in all
// of them. Any two shards order two transactions alike, so a transaction finds the same directory
// at its place in every chain that has it. Therefore each shard computes for itself where a
// transaction belongs, and messages do not carry it.

// known looks up an organisation.
type known func(ledger.OrganisationName) (ledger.Organisation, bool)

// mayRegister decides on a transaction with registrations in a book of several shards. It changes
// nothing.
func (s *State) mayRegister(t *ledger.Transaction, signatures []ledger.Signature,
	find known, charter *ledger.Charter) ledger.Result {
	if t.Ledger != s.ledger {
		return whole(ledger.WrongLedger)
	}
	if len(t.Openings)+len(t.Postings)+len(t.Records) > 0 || t.LastValid != 0 ||
		t.Deadline != 0 {
		return whole(ledger.RegistrationNotAlone)
	}
	within := func(name ledger.OrganisationName) (ledger.Organisation, bool) {
		for i := range t.Registrations {
			if t.Registrations[i].Name == name {
				return organisationOf(&t.Registrations[i]), true
			}
		}
		return ledger.Organisation{}, false
	}
	for i := range t.Registrations {
		r := &t.Registrations[i]
		found, exists := find(r.Name)
		if !exists {
			found, _ = within(r.Name)
		}
		switch {
		case r.Pinned && int(r.Shard) >= s.tree.Shards():
			return ofItem(ledger.UnknownShard, uint32(i))
		case !slices.Equal(found.Keys, r.Keys), !s.hasMoved(r.Name) &&
			(found.Pinned != r.Pinned || found.Shard != r.Shard):
			return ofItem(ledger.OrganisationExists, uint32(i))
		case exists:
		case s.homelessOf(r):
			return ofItem(ledger.ShardLost, uint32(i))
		case !ledger.HasSigned(signatures, r.Name, r.Keys):
			return ofItem(ledger.Unauthorised, uint32(i))
		case charter.RegistrationByOperators && !charter.Consents(signatures):
			return ofItem(ledger.Unauthorised, uint32(i))
		}
	}
	signer, exists := find(t.Signer)
	if !exists {
		signer, exists = within(t.Signer)
	}
	switch {
	case !exists:
		return whole(ledger.UnknownOrganisation)
	}
	return whole(signer.Consents(t, signatures))
}

func organisationOf(r *ledger.Registration) ledger.Organisation {
	return ledger.Organisation{Name: r.Name, Keys: r.Keys, Shard: r.Shard, Pinned: r.Pinned}
}

// HomeShard returns the shard that holds an organisation's accounts and records. In a book of one
// shard it is shard 0.
func (s *State) HomeShard(name ledger.OrganisationName) ledger.ShardID {
	if s.tree == nil {
		return 0
	}
	if found := s.organisations[name]; found != nil {
		return found.home
	}
	return s.rendezvous(name)
}

// rendezvous returns the home of an organisation that is not pinned to a shard.
func (s *State) rendezvous(name ledger.OrganisationName) ledger.ShardID {
	if s.fault == FaultHomesGrow {
		return ledger.Rendezvous(name, s.tree.Shards())
	}
	return s.tree.Rendezvous(name)
}

// settleHome computes and stores an organisation's home shard.
func (s *State) settleHome(o *organisation) {
	switch {
	case s.tree == nil:
	case o.Pinned:
		o.home = o.Shard
	default:
		o.home = s.rendezvous(o.Name)
	}
}

// ShardTree returns the tree of the book's shards, or nil if the book has only one shard.
func (s *State) ShardTree() *ledger.ShardTree { return s.tree }

// Destinations returns the shards that a client's transaction concerns, in ascending order. In a
// book of one shard it is shard 0.
func (s *State) Destinations(t *ledger.Transaction) []ledger.ShardID {
	if s.tree == nil {
		return []ledger.ShardID{0}
	}
	return t.AppendDestinations(nil, s.tree.Shards(), s.HomeShard)
}

// BundleEntry returns the shard where a bundle enters. In a book of one shard it is shard 0.
func (s *State) BundleEntry(bundle *ledger.Bundle) ledger.ShardID {
	if s.tree == nil {
		return 0
	}
	return s.tree.BundleEntry(bundle, s)
}
