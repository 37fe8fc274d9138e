package ledger

// Velocity bounds how much of an asset leaves an account within a time, by the time of the blocks.
//
// The time is divided into four slots, and an amount counts in its own slot and the four after it.
// An interval as long as the time touches five slots at most, so no such interval, wherever it
// begins, ever has more than Amount. In return an amount counts for up to a quarter longer than the
// time. A single window or a bucket of tokens would let twice the amount through around its edge,
// and an exact account would need a row of all debits, which has no bound.
type Velocity struct {
	Amount  Amount `json:"amount"`
	Seconds uint32 `json:"seconds"`
}

// velocitySlots is into how many slots the time of a velocity is divided.
const velocitySlots = 4

// Spent is what counts against a velocity.
type Spent struct {
	// Slot is the number of the newest slot with a debit, counted from 1970.
	Slot uint64 `json:"slot"`
	// Amounts are those of this slot and the four before it.
	Amounts [velocitySlots + 1]Amount `json:"amounts"`
}

// slot returns the number of the slot of a time.
func (v *Velocity) slot(time Milliseconds) uint64 {
	return uint64(max(time, 0)) / (uint64(v.Seconds) * 1000 / velocitySlots)
}

// At returns what counts at a time. It never goes back: a chain that takes over an account may have
// an earlier time.
func (s Spent) At(v *Velocity, time Milliseconds) Spent {
	now := v.slot(time)
	if now <= s.Slot {
		return s
	}
	aged := Spent{Slot: now}
	if passed := now - s.Slot; passed < uint64(len(s.Amounts)) {
		copy(aged.Amounts[passed:], s.Amounts[:])
	}
	return aged
}

// Sum returns all that counts, or ErrOverflow.
func (s *Spent) Sum() (sum Amount, err error) {
	for _, each := range s.Amounts {
		if sum, err = sum.Add(each); err != nil {
			return Amount{}, err
		}
	}
	return sum, nil
}

// After returns what counts after a debit at a time, and whether the velocity allows the debit.
func (s Spent) After(v *Velocity, time Milliseconds, debit Amount) (Spent, bool) {
	after := s.At(v, time)
	var err error
	if after.Amounts[0], err = after.Amounts[0].Add(debit); err != nil {
		return s, false
	}
	sum, err := after.Sum()
	if err != nil || sum.Compare(v.Amount) > 0 {
		return s, false
	}
	return after, true
}
