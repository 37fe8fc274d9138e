package store

import "github.com/ledgerd/ledgerd/ledger"

// Foreseen says why all transactions of a bundle are certain to fail.
type Foreseen struct {
	// Code is the reason, the same for all of them; Applied if there is none.
	Code ledger.Code
	// Height and Hash are those of the block up to which the chain decides that. It is final once
	// that block is durable.
	Height ledger.Height
	Hash   ledger.Hash
}

// Foreseen returns the reason why all transactions of a bundle must fail, whatever is ordered
// before it, if none of them is in a block, and if all of them fail for the same one
// (state.State.Foreseen). In the usual case it looks at the first transaction only, in memory.
func (s *Store) Foreseen(bundle *ledger.Bundle) (foreseen Foreseen, err error) {
	var transfer *ledger.Transaction // of a packed bundle
	if bundle.Packed() {
		transfer = bundle.Transaction(0)
	}
	for i := range bundle.Len() {
		t := transfer
		if t == nil {
			t = bundle.Transaction(i)
		} else if i > 0 {
			bundle.Transfers().Set(t, i)
		}
		before := foreseen.Code
		if err := s.foresee(t, &foreseen); err != nil {
			return Foreseen{}, err
		}
		if foreseen.Code == ledger.Applied || i > 0 && foreseen.Code != before {
			return Foreseen{}, nil
		}
	}
	// One that was applied has taken its own nonce, and a block that has it is readable by now.
	for i := range bundle.Len() {
		if known, err := s.Known(bundle.ID(i)); known || err != nil {
			return Foreseen{}, err
		}
	}
	return foreseen, nil
}

// foresee is Foreseen for a transaction that is in no block.
func (s *Store) foresee(t *ledger.Transaction, foreseen *Foreseen) error {
	known := false
	for {
		s.mutex.RLock()
		head := &s.head
		*foreseen = Foreseen{Code: s.state.Foreseen(t, head.Header.Time, known),
			Height: head.Header.Height, Hash: head.Hash}
		closed := s.closed
		asks := false // whether a block has what it ends or refunds, which is not open
		antecedent, has := t.Antecedent()
		if has && foreseen.Code == ledger.Applied && !known {
			_, open := s.state.Hold(antecedent)
			_, refundable := s.state.Refundable(antecedent)
			asks = !open && !refundable
		}
		s.mutex.RUnlock()
		if closed {
			return ErrClosed
		}
		if !asks {
			return nil
		}
		// Whether it is open is asked again afterwards: it may have been placed in between.
		where, found, err := s.locate(antecedent)
		if known = found && where.kind == indexApplied; !known || err != nil {
			return err
		}
	}
}
