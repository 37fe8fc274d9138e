package state

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// table is the memory for what execution knows of the accounts of a packed bundle. It is used again
// for the next one.
type table struct {
	looked []lookup
	// mayTake are set for the accounts of organisations that have signed.
	mayTake []bool
	results []ledger.Result
}

// transfers executes the transfers of a packed bundle.
type transfers struct {
	*State
	bundle ledger.Transfers
	seal   *ledger.BundleSeal
	// looked are the accounts of the bundle's table.
	looked []lookup
	// window is that of the stream, once it exists.
	window *window
	// sequence is the number in the stream of the first transfer.
	sequence uint64
	// plain says that no rule is in the way that depends on the whole transaction: see isPlain.
	plain bool
	// made is the memory in which one transaction after another is made, for apply.
	made struct {
		ledger.Transaction
		postings [2]ledger.Posting
		found    [2]lookup
	}
}

// executeTransfers executes the transfers of a packed bundle, the first of which has this index in
// the block. It gives each the result, and has the effect, that apply gives and has. Most transfers
// need little of what apply does for any transaction: see transfer. For the others it makes the
// transaction.
func (s *State) executeTransfers(first int, seal *ledger.BundleSeal) {
	t := transfers{State: s, bundle: seal.Transfers(), seal: seal}
	t.made.Postings = t.made.postings[:]
	t.bundle.Set(&t.made.Transaction, 0)
	t.sequence = t.made.Nonce.Sequence
	t.lookUp()
	t.plain = t.isPlain()
	results := slices.Grow(s.table.results[:0], t.bundle.Len())[:t.bundle.Len()]
	for i := range results {
		s.index = uint32(first + i)
		if t.plain && t.transfer(i, &results[i]) {
			continue
		}
		from, to := t.bundle.Set(&t.made.Transaction, i)
		t.made.found = [2]lookup{t.looked[from], t.looked[to]}
		s.found = t.made.found[:]
		results[i] = s.apply(&t.made.Transaction, seal.Root, seal.Signatures)
	}
	seal.SetResults(results)
	s.table.results = results
	s.found = nil
	clear(s.table.looked) // a path of a block keeps the memory of its whole batch
}

// lookUp finds the accounts of the bundle's table. Transfers open none.
func (t *transfers) lookUp() {
	if t.looked = t.lookAgain(t.bundle.Accounts()); t.looked != nil {
		return
	}
	looked := t.table.looked[:0]
	for number := range t.bundle.Accounts() {
		looked = append(looked, lookup{path: t.bundle.Account(number)})
	}
	for some := range slices.Chunk(looked, 2*lookAhead) {
		t.accounts.findAll(some)
	}
	t.table.looked, t.looked = looked, looked
}

// isPlain reports whether the ledger, the last valid height and the consent are the same for all
// transfers, and good as far as the signer is concerned. It also finds which accounts may be taken
// from. It is false if a policy is concerned, which looks at each transaction.
func (t *transfers) isPlain() bool {
	one := &t.made.Transaction
	signer := t.organisation(one.Signer)
	if one.Ledger != t.State.ledger || one.LastValid != 0 && t.height > one.LastValid ||
		signer == nil || signer.Policy != nil ||
		signer.Consents(one, t.seal.Signatures) != ledger.Applied {
		return false
	}
	mayTake := t.table.mayTake[:0]
	for i := range t.looked {
		name, may := t.looked[i].path.Organisation(), true
		if name != one.Signer {
			owner := t.organisation(name)
			if owner == nil || owner.Policy != nil {
				return false
			}
			may = owner.Consents(one, t.seal.Signatures) == ledger.Applied
		}
		mayTake = append(mayTake, may)
	}
	t.table.mayTake = mayTake
	return true
}

// transfer executes the transfer at a place, unless that is left to apply. Then it changes nothing
// and returns false. It is left to apply unless the stream's window and both accounts exist, the
// owner of the first account has signed, both accounts have the asset or certain room for it, and
// nothing set aside, and nothing is issued of a registered asset or redeemed. What may fail is
// asked in the order of apply as far as one transfer may fail for two reasons. Accounts with terms
// are left to apply, too.
func (t *transfers) transfer(place int, result *ledger.Result) bool {
	if t.window == nil {
		if t.window = t.State.window(&t.made.Transaction); t.window == nil {
			return false
		}
	}
	number, other, asset, amount := t.bundle.At(place)
	from, to := t.looked[number].found, t.looked[other].found
	if from == nil || to == nil || !t.table.mayTake[number] || len(from.holds()) > 0 ||
		len(to.holds()) > 0 || from.standing() != nil || to.standing() != nil {
		return false
	}
	taken, has := from.find(asset)
	given, had := to.find(asset)
	if !has && !t.hasRoom(from) || !had && !t.hasRoom(to) {
		return false
	}
	var less, more ledger.Amount
	if has {
		less = from.balances[taken].amount
	}
	if had {
		more = to.balances[given].amount
	}
	if (from.issuer || to.issuer) && t.assets.named[asset] != nil {
		return false
	}
	less, tooLittle := less.Sub(amount)
	more, tooMuch := more.Add(amount)
	if tooLittle != nil || tooMuch != nil {
		return false
	}
	sequence := t.sequence + uint64(place)
	switch {
	case !t.window.fresh(sequence):
		*result = whole(ledger.StaleNonce)
		return true
	case less.Sign() < 0 && !from.issuer:
		*result = ofItem(ledger.InsufficientFunds, 0)
		return true
	}
	t.touchAccount(from)
	t.touchAccount(to)
	t.touchWindow(t.window)
	if !has {
		t.addAsset(from, taken, asset)
	}
	if !had {
		t.addAsset(to, given, asset)
	}
	from.balances[taken].amount, to.balances[given].amount = less, more
	t.window.set(sequence)
	t.counter++
	t.countHistory(from)
	t.countHistory(to)
	*result = applied
	return true
}

// hasRoom reports whether it is certain that an account without holds may have one more asset.
func (t *transfers) hasRoom(a *account) bool {
	return t.charter.Quotas.Assets == 0 && len(a.balances) < t.assetsMax
}

// addAsset gives an account an asset that it does not have, at its place.
func (t *transfers) addAsset(a *account, place int, asset ledger.AssetName) {
	a.insert(place, t.assetNames.kept(asset))
	t.count(a.path.Organisation()).Assets++
}
