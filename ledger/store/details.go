package store

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// FindKey returns an idempotency key that this shard remembers as of the head.
func (s *Store) FindKey(of ledger.OrganisationName, key string) (state.Keyed, bool) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Key(of, key)
}

// FindRefundable returns what is left of an entry that can be refunded, as of the head.
func (s *Store) FindRefundable(entry ledger.Hash) (state.Refundable, bool) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Refundable(entry)
}
