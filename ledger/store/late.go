package store

import (
	"github.com/ledgerd/ledgerd/ledger"
)

// HandedOver returns a copy of a transaction, as streams carry it, if another shard has to get it
// from this one: it waits here for that shard, which may never get it, and is too late at this time
// (docs/design/moves.md). Else it returns nil. Errors include ErrAbsent: other members have the
// block.
func (s *Store) HandedOver(id ledger.Hash, to ledger.ShardID, now ledger.Milliseconds) (
	encoded []byte, err error) {
	found, err := s.Transaction(id)
	if err != nil {
		return nil, err
	}
	s.mutex.RLock()
	hands := s.state.HandsOver(id, found.Entry.Transaction(), to, now)
	s.mutex.RUnlock()
	if !hands {
		return nil, nil
	}
	return found.Block.CarriedCopy(found.Index), nil
}

// TakesLate reports whether a block of a time may take a transaction that is handed over: it is too
// late, and not in the chain.
func (s *Store) TakesLate(id ledger.Hash, t *ledger.Transaction, at ledger.Milliseconds) (bool,
	error) {
	s.mutex.RLock()
	takes := s.state.TakesLate(t, at)
	s.mutex.RUnlock()
	if !takes {
		return false, nil
	}
	known, err := s.Known(id)
	return err == nil && !known, err
}
