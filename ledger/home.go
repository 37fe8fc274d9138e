package ledger

import (
	"encoding/binary"
	"slices"
)

const homeDomain = "ledgerd/home/1\x00"

// Rendezvous returns the home of an organisation that is not pinned to a shard, in a book with this
// number of shards. The home is the shard with the highest score. A shard's score is the first 8
// bytes of the SHA-256 of "ledgerd/home/1", a zero byte, the shard (4 bytes, big-endian) and the
// name ("A Name-Based Mapping Scheme for Rendezvous", Thaler, Ravishankar, 1996).
func Rendezvous(name OrganisationName, shards int) ShardID {
	best, highest := ShardID(0), uint64(0)
	for shard := range ShardID(shards) {
		if score := homeScore(name, shard); score > highest || shard == 0 {
			best, highest = shard, score
		}
	}
	return best
}

// homeScore returns a shard's score for an organisation; see Rendezvous.
func homeScore(name OrganisationName, shard ShardID) uint64 {
	var buffer [len(homeDomain) + 4 + MaxOrganisationName]byte
	to := binary.BigEndian.AppendUint32(append(buffer[:0], homeDomain...), uint32(shard))
	sum := sum256(append(to, name...))
	return binary.BigEndian.Uint64(sum[:])
}

// Rendezvous returns the home of an organisation that is not pinned to a shard. It is one of the
// shards of the genesis, also after others were added: so an addition changes no home.
func (t *ShardTree) Rendezvous(name OrganisationName) ShardID { return Rendezvous(name, t.homes) }

// Home returns the shard that holds an organisation's accounts and records, given the directory. It
// is the shard that the organisation's registration pins it to, or else the shard of Rendezvous.
func (t *ShardTree) Home(name OrganisationName, directory Directory) ShardID {
	if organisation, known := directory.Organisation(name); known && organisation.Pinned {
		return organisation.Shard
	}
	return t.Rendezvous(name)
}

// Destinations returns the shards that a client's transaction concerns, in ascending order: the
// homes of its signer and of every organisation in its openings, postings and records. A
// transaction with a registration or a change of a policy concerns all shards (BookWide). A
// cancellation concerns the shard that it names.
func (t *ShardTree) Destinations(transaction *Transaction, directory Directory) []ShardID {
	return transaction.AppendDestinations(nil, t.Shards(), func(name OrganisationName) ShardID {
		return t.Home(name, directory)
	})
}

// BundleEntry returns the shard where a bundle enters: the lowest shard that reaches all shards
// that its transactions concern.
func (t *ShardTree) BundleEntry(bundle *Bundle, directory Directory) ShardID {
	var all []ShardID
	for i := range bundle.Len() {
		for _, shard := range t.Destinations(bundle.Transaction(i), directory) {
			all = addShard(all, shard)
		}
	}
	return t.Entry(all)
}

// AppendDestinations appends the shards of ShardTree.Destinations to to, which must be empty, given
// the number of shards and each organisation's home.
func (t *Transaction) AppendDestinations(to []ShardID, shards int,
	home func(OrganisationName) ShardID) []ShardID {
	if t.BookWide() {
		for shard := range ShardID(shards) {
			to = append(to, shard)
		}
		return to
	}
	if c := t.Cancellation; c != nil && int(c.Shard) < shards {
		return addShard(to, c.Shard)
	}
	if keeper, keeps := t.Keeper(); keeps && int(keeper) < shards {
		return addShard(to, keeper)
	}
	if t.Account != nil { // its guardian may sign, whose home is not concerned
		return addShard(to, home(t.Account.Account.Organisation()))
	}
	to = addShard(to, home(t.Signer))
	last := t.Signer
	add := func(name OrganisationName) {
		if name != last {
			last = name
			to = addShard(to, home(name))
		}
	}
	if t.HoldEnd != nil {
		add(t.HoldEnd.From.Organisation())
	}
	if t.Details != nil && t.Details.Refund != nil {
		add(t.Details.Refund.Organisation)
	}
	for i := range t.Openings {
		add(t.Openings[i].Account.Organisation())
	}
	for i := range t.Postings {
		add(t.Postings[i].Account.Organisation())
	}
	for i := range t.Records {
		add(t.Records[i].Key.Organisation())
	}
	return to
}

// addShard adds a shard to a set in ascending order.
func addShard(set []ShardID, shard ShardID) []ShardID {
	if at, found := slices.BinarySearch(set, shard); !found {
		return slices.Insert(set, at, shard)
	}
	return set
}
