package journal

import (
	"errors"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// FromStore returns the chain of a store.
func FromStore(from *store.Store) Source { return storeSource{from} }

type storeSource struct{ *store.Store }

// Certificate returns the certificate of a block, or nil.
func (s storeSource) Certificate(height ledger.Height) (*ledger.Certificate, error) {
	c, err := s.Store.Certificate(height)
	if errors.Is(err, store.ErrUncertified) {
		return nil, nil
	}
	return c, err
}

// Crossing returns a transaction of several shards, which this shard has set aside.
func (s storeSource) Crossing(id ledger.Hash) (Crossing, error) {
	found, err := s.Transaction(id)
	if err != nil {
		return Crossing{}, err
	}
	return Crossing{Transaction: found.Entry.Transaction(),
		Here: func(organisation ledger.OrganisationName) bool {
			return s.HomeAt(organisation, found.Height) == s.Shard()
		}}, nil
}
