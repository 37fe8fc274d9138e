package state

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// balance is the full amount of an asset in an account, regardless of holds.
type balance struct {
	asset  ledger.AssetName
	amount ledger.Amount
}

// account is an open account. A book may have many millions, so its size counts: 128 bytes, two
// lines of a processor's cache.
type account struct {
	path ledger.AccountPath
	// balances are sorted by asset. They are in first as long as there is only one, as in most
	// accounts.
	balances []balance
	// rare is nil if the account has nothing of it, as most accounts.
	rare *rare
	mark mark
	// counted is the last transaction that the history counted. Several postings of a transaction
	// count once.
	counted uint64
	number  uint64
	opened  ledger.Height
	history uint64
	first   [1]balance
	issuer  bool
	// recent is set when a block touches the account, and when the account is admitted. Eviction
	// passes such accounts once.
	recent bool
	// changedHigh and changedLow are the height of the last block that touched the account while it
	// was resident: at most 40 bits.
	changedHigh uint8
	changedLow  uint32
}

// touchedAt notes the height of a block that touched the account.
func (a *account) touchedAt(height ledger.Height) {
	a.recent, a.changedHigh, a.changedLow = true, uint8(height>>32), uint32(height)
}

// changed returns the height that touchedAt noted last.
func (a *account) changed() ledger.Height {
	return ledger.Height(a.changedHigh)<<32 | ledger.Height(a.changedLow)
}

// rare is what few accounts have.
type rare struct {
	alias string
	// holds are sorted by asset.
	holds []hold
	// standing is nil if the account never had terms (terms.go).
	standing *ledger.AccountStanding
}

func (a *account) alias() string {
	if a.rare == nil {
		return ""
	}
	return a.rare.alias
}

func (a *account) holds() []hold {
	if a.rare == nil {
		return nil
	}
	return a.rare.holds
}

// setRare sets what few accounts have. The terms stay.
func (a *account) setRare(alias string, holds []hold) {
	switch {
	case alias == "" && len(holds) == 0 && a.standing() == nil:
		a.rare = nil
	case a.rare == nil:
		a.rare = &rare{alias: alias, holds: holds}
	default:
		a.rare.alias, a.rare.holds = alias, holds
	}
}

// find returns the index of an asset in the balances, and whether it is there. If it is not, the
// index is its place.
func (a *account) find(asset ledger.AssetName) (int, bool) {
	for i := range a.balances {
		if a.balances[i].asset == asset {
			return i, true
		}
		if a.balances[i].asset > asset {
			return i, false
		}
	}
	return len(a.balances), false
}

// balance returns the full amount of an asset.
func (a *account) balance(asset ledger.AssetName) ledger.Amount {
	if place, has := a.find(asset); has {
		return a.balances[place].amount
	}
	return ledger.Amount{}
}

// insert adds a balance at its place, with amount 0.
func (a *account) insert(place int, asset ledger.AssetName) {
	if a.balances == nil {
		a.balances = a.first[:0]
	}
	a.balances = slices.Insert(a.balances, place, balance{asset: asset})
}

// copy returns the account as clients see it.
func (a *account) copy() ledger.Account {
	copied := ledger.Account{Path: a.path, Number: a.number, Issuer: a.issuer, Alias: a.alias(),
		Opened: a.opened, History: a.history}
	if a.balances != nil {
		copied.Balances = make([]ledger.Balance, len(a.balances))
	}
	for i := range a.balances {
		copied.Balances[i] = ledger.Balance{Asset: a.balances[i].asset,
			Amount: a.balances[i].amount}
	}
	if standing := a.standing(); standing != nil {
		copied.Standing = standing.Clone()
	}
	holds := a.holds()
	for i := range holds {
		held := &holds[i]
		place, has := slices.BinarySearchFunc(copied.Balances, held.asset,
			func(b ledger.Balance, asset ledger.AssetName) int {
				return strings.Compare(string(b.Asset), string(asset))
			})
		if !has {
			copied.Balances = slices.Insert(copied.Balances, place,
				ledger.Balance{Asset: held.asset})
		}
		copied.Balances[place] = ledger.Balance{Asset: held.asset, Amount: a.spendable(held.asset),
			SetAside: held.setAside, Incoming: held.incoming}
	}
	return copied
}

// keyLength returns the length of the key of the account's entry.
func (a *account) keyLength() int { return 1 + len(a.path) + 1 }

func (a *account) appendEntry(to []byte) (entry []byte, keyLength int) {
	to = append(append(append(to, kindAccount), a.path...), 0)
	keyLength = a.keyLength()
	to = binary.AppendUvarint(to, a.number)
	to = codec.AppendBool(to, a.issuer)
	to = codec.AppendString(to, a.alias())
	to = binary.AppendUvarint(to, uint64(a.opened))
	to = binary.AppendUvarint(to, a.history)
	to = binary.AppendUvarint(to, uint64(len(a.balances)))
	for i := range a.balances {
		to = codec.AppendString(to, a.balances[i].asset)
		to = appendAmount(to, a.balances[i].amount)
	}
	holds, standing := a.holds(), a.standing()
	if len(holds) == 0 && standing == nil {
		return to, keyLength
	}
	to = binary.AppendUvarint(to, uint64(len(holds)))
	for i := range holds {
		to = codec.AppendString(to, holds[i].asset)
		to = appendAmount(to, holds[i].setAside)
		to = appendAmount(to, holds[i].incoming)
	}
	if standing != nil {
		to = standing.AppendStanding(to)
	}
	return to, keyLength
}

// restore reads the value of the account's entry.
func (a *account) restore(r *reader, names *assetNames) {
	a.number, a.issuer = r.Uvarint(), r.Bool()
	alias := strings.Clone(r.String("bytes of alias", ledger.MaxAlias))
	a.opened, a.history = ledger.Height(r.Uvarint()), r.Uvarint()
	a.balances = a.first[:0]
	for range r.Count("balances", ledger.MaxAssets, 2) {
		a.balances = append(a.balances, balance{asset: names.kept(r.assetName()),
			amount: r.amount()})
	}
	var holds []hold
	if r.Err == nil && len(r.Data) > 0 {
		holds = make([]hold, r.Count("holds", ledger.MaxAssets, 3))
		for i := range holds {
			holds[i] = hold{asset: names.kept(r.assetName()), setAside: r.amount(),
				incoming: r.amount()}
		}
	}
	a.setRare(alias, holds)
	if r.Err == nil && len(r.Data) > 0 {
		a.setStanding(r.restoreStanding())
	}
}

// assetNames are names of assets that were used of late, so that accounts share their memory. Each
// name has one place, which it may lose to another name.
type assetNames [64]ledger.AssetName

// kept returns the name in memory that the state may keep.
func (n *assetNames) kept(name ledger.AssetName) ledger.AssetName {
	hash := uint32(0)
	for i := range len(name) {
		hash = hash*31 + uint32(name[i])
	}
	place := &n[hash%uint32(len(n))]
	if *place != name {
		*place = ledger.AssetName(strings.Clone(string(name)))
	}
	return *place
}
