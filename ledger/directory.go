package ledger

import "slices"

// In a book of several shards every shard keeps the whole directory. A registration enters at the
// root, reaches all shards, and has the same result in all of them, since that depends on nothing
// but the directory: two shards order two transactions alike, and so a transaction finds the same
// directory at its place in every chain that has it. Where a transaction belongs is therefore
// computed, by each shard for itself, and is not carried.

// known finds an organisation.
type known func(OrganisationName) (Organisation, bool)

// mayRegister decides on a transaction with registrations in a book of several shards.
func (s *State) mayRegister(t *Transaction, signatures []Signature, find known) Result {
	if t.Ledger != s.ledger {
		return Result{WrongLedger, NoItem}
	}
	if len(t.Openings)+len(t.Postings)+len(t.Records) > 0 || t.LastValid != 0 {
		return Result{RegistrationNotAlone, NoItem}
	}
	within := func(name OrganisationName) (Organisation, bool) {
		for i := range t.Registrations {
			if t.Registrations[i].Name == name {
				return t.Registrations[i].organisation(), true
			}
		}
		return Organisation{}, false
	}
	for i := range t.Registrations {
		r := &t.Registrations[i]
		found, exists := find(r.Name)
		if !exists {
			found, _ = within(r.Name)
		}
		switch {
		case r.Pinned && int(r.Shard) >= s.tree.Shards():
			return Result{UnknownShard, uint32(i)}
		case found.Pinned != r.Pinned || found.Shard != r.Shard ||
			!slices.Equal(found.Keys, r.Keys):
			return Result{OrganisationExists, uint32(i)}
		case exists:
		case !signedByKey(signatures, r.Name, r.Keys):
			return Result{Unauthorised, uint32(i)}
		case s.genesis.RegistrationByOperator && !signedByKey(signatures, Operator,
			s.genesis.Operators):
			return Result{Unauthorised, uint32(i)}
		}
	}
	signer, exists := find(t.Signer)
	if !exists {
		signer, exists = within(t.Signer)
	}
	switch {
	case !exists:
		return Result{UnknownOrganisation, NoItem}
	case !signedByKey(signatures, t.Signer, signer.Keys):
		return Result{Unauthorised, NoItem}
	}
	return applied
}

func (r *Registration) organisation() Organisation {
	return Organisation{Name: r.Name, Keys: r.Keys, Shard: r.Shard, Pinned: r.Pinned}
}

// HomeShard returns the shard that holds an organisation's accounts and records; in a book of one
// shard that is shard 0.
func (s *State) HomeShard(name OrganisationName) ShardID {
	if s.tree == nil {
		return 0
	}
	if found := s.organisations[name]; found != nil {
		return found.home
	}
	return Rendezvous(name, s.tree.Shards())
}

// settleHome computes an organisation's home shard once.
func (s *State) settleHome(o *organisation) {
	switch {
	case s.tree == nil:
	case o.Pinned:
		o.home = o.Shard
	default:
		o.home = Rendezvous(o.Name, s.tree.Shards())
	}
}

// ShardTree returns the tree of the book's shards, nil where it has one shard only.
func (s *State) ShardTree() *ShardTree { return s.tree }

// Destinations returns the shards that a client's transaction concerns, ascending; in a book of one
// shard that is shard 0.
func (s *State) Destinations(t *Transaction) []ShardID {
	if s.tree == nil {
		return []ShardID{0}
	}
	return t.destinations(nil, s.tree.Shards(), s.HomeShard)
}

// BundleEntry returns the shard where a bundle enters; in a book of one shard that is shard 0.
func (s *State) BundleEntry(bundle *Bundle) ShardID {
	if s.tree == nil {
		return 0
	}
	return s.tree.BundleEntry(bundle, s)
}
