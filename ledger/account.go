package ledger

import "slices"

// MaxAssets is the maximum number of different assets that an account can hold over its lifetime.
const MaxAssets = 64

// Balance is the amount of one asset in an account.
type Balance struct {
	Asset AssetName `json:"asset"`
	// Amount is the amount that can be spent.
	Amount Amount `json:"amount"`
	// SetAside is the amount that transactions that wait for other shards will take if they take
	// effect. If they do not, it returns to Amount.
	SetAside Amount `json:"set_aside,omitzero"`
	// Incoming is the amount that transactions that wait for other shards will bring if they take
	// effect.
	Incoming Amount `json:"incoming,omitzero"`
}

// Settled returns the whole amount in the account, set aside or not. It returns MaxAmount if the
// sum overflows, which does not happen in any chain.
func (b *Balance) Settled() Amount {
	settled, err := b.Amount.Add(b.SetAside)
	if err != nil {
		return MaxAmount
	}
	return settled
}

// Account is an open account.
type Account struct {
	Path AccountPath `json:"path"`
	// Number counts the accounts in the order in which they were opened, from 1.
	Number uint64 `json:"number"`
	Issuer bool   `json:"issuer,omitempty"`
	Alias  string `json:"alias,omitempty"`
	// Opened is the height of the block that opened the account.
	Opened Height `json:"opened"`
	// Balances are sorted by asset. An asset that the account once held stays, with amount 0.
	Balances []Balance `json:"balances"`
	// History is the number of transactions that were applied to the account.
	History uint64 `json:"history"`
	// Standing is what counts of the account's terms. It is nil if they were never set.
	Standing *AccountStanding `json:"terms,omitempty"`
}

// Has reports whether the terms of the account have a metadatum.
func (a *Account) Has(metadatum *Metadatum) bool {
	return a.Standing != nil && slices.Contains(a.Standing.Metadata, *metadatum)
}

// Balance returns the amount of an asset that can be spent, or 0.
func (a *Account) Balance(asset AssetName) Amount {
	for i := range a.Balances {
		if a.Balances[i].Asset == asset {
			return a.Balances[i].Amount
		}
	}
	return Amount{}
}
