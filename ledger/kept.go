package ledger

import (
	"errors"
	"fmt"
)

// ErrTerms reports an account whose balances its terms do not allow.
var ErrTerms = errors.New("ledger: against the terms of the account")

// KeepsTerms returns ErrTerms if an account with the same terms before and after could not have
// become so. It knows nothing of the transactions between: it is for an auditor or a simulation
// that watches a book. The first account is nil if there was none.
func KeepsTerms(before, after *Account) error {
	standing := after.Standing
	if standing == nil {
		return nil
	}
	if standing.Closed {
		for i := range after.Balances {
			if b := &after.Balances[i]; b.most() != (Amount{}) || b.Amount != (Amount{}) {
				return fmt.Errorf("%w: %s is closed and has %s %s", ErrTerms, after.Path, b.most(),
					b.Asset)
			}
		}
	}
	if before == nil || before.Standing == nil || before.Standing.Revision != standing.Revision {
		return nil
	}
	none := standing.Closed || standing.Freeze != FreezeNone
	for i := range after.Balances {
		was, is := Balance{}, &after.Balances[i]
		for j := range before.Balances {
			if before.Balances[j].Asset == is.Asset {
				was = before.Balances[j]
			}
		}
		less := is.Amount.Compare(was.Amount) < 0
		more := is.most().Compare(was.most()) > 0
		limit := AccountLimit{}
		if at, limited := standing.Limit(is.Asset); limited {
			limit = standing.Limits[at]
		}
		switch {
		case less && (none || standing.NoDebits):
			return fmt.Errorf("%w: %s gave %s, and has %s after %s", ErrTerms, after.Path,
				is.Asset, is.Amount, was.Amount)
		case more && (none || standing.NoCredits):
			return fmt.Errorf("%w: %s got %s, and may have %s after %s", ErrTerms, after.Path,
				is.Asset, is.most(), was.most())
		case less && limit.Floor != nil && is.Amount.Compare(*limit.Floor) < 0:
			return fmt.Errorf("%w: %s has %s %s after %s, and its floor is %s", ErrTerms,
				after.Path, is.Amount, is.Asset, was.Amount, *limit.Floor)
		case more && limit.Ceiling != nil && is.most().Compare(*limit.Ceiling) > 0:
			return fmt.Errorf("%w: %s may have %s %s after %s, and its ceiling is %s", ErrTerms,
				after.Path, is.most(), is.Asset, was.most(), *limit.Ceiling)
		}
	}
	return nil
}

// most returns the amount that may be there: all that is set aside, and all that is on its way.
func (b *Balance) most() Amount {
	most, err := b.Settled().Add(b.Incoming)
	if err != nil {
		return MaxAmount
	}
	return most
}
