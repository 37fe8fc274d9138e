package ledger

import "slices"

// In a book of several shards, every shard keeps the whole directory. A registration enters at the
// root and reaches all shards. Its result depends only on the directory, so it is the same in all
// of them. Any two shards order two transactions alike, so a transaction finds the same directory
// at its place in every chain that has it. Therefore each shard computes for itself where a
// transaction belongs, and messages do not carry it.

// known looks up an organisation.
type known func(OrganisationName) (Organisation, bool)

// mayRegister decides on a transaction with registrations in a book of several shards. It changes
// nothing.
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

// HomeShard returns the shard that holds an organisation's accounts and records. In a book of one
// shard it is shard 0.
func (s *State) HomeShard(name OrganisationName) ShardID {
	if s.tree == nil {
		return 0
	}
	if found := s.organisations[name]; found != nil {
		return found.home
	}
	return Rendezvous(name, s.tree.Shards())
}

// settleHome computes and stores an organisation's home shard.
func (s *State) settleHome(o *organisation) {
	switch {
	case s.tree == nil:
	case o.Pinned:
		o.home = o.Shard
	default:
		o.home = Rendezvous(o.Name, s.tree.Shards())
	}
}

// ShardTree returns the tree of the book's shards, or nil if the book has only one shard.
func (s *State) ShardTree() *ShardTree { return s.tree }

// Destinations returns the shards that a client's transaction concerns, in ascending order. In a
// book of one shard it is shard 0.
func (s *State) Destinations(t *Transaction) []ShardID {
	if s.tree == nil {
		return []ShardID{0}
	}
	return t.destinations(nil, s.tree.Shards(), s.HomeShard)
}

// BundleEntry returns the shard where a bundle enters. In a book of one shard it is shard 0.
func (s *State) BundleEntry(bundle *Bundle) ShardID {
	if s.tree == nil {
		return 0
	}
	return s.tree.BundleEntry(bundle, s)
}
