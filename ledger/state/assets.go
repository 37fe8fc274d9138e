package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// Registered assets. A registration and later changes of the terms concern all shards
// (ledger.Transaction.BookWide), and the decision on them depends only on the directory and the
// assets. So all shards decide alike: of two organisations that register one name at once, the one
// that comes first in the common order has it, everywhere.
//
// What always holds:
//
//   - An account's balance of a registered asset goes further below zero only if its organisation
//     is an issuer that is not withdrawn, and the issuance is not closed.
//   - An issuer never commits itself to more than its allowance (ledger.Issuance.Committed),
//     counting what transactions that wait for other shards may still take. All accounts of an
//     organisation are in one shard, so that shard alone judges it, and no message is needed.
//   - The allowances add up to no more than the cap, by the form of the terms, and an allowance
//     that was given up leaves the cap with it (ledger.AssetTerms.MayBecome). Hence, over all
//     shards, the largest allowances that the issuers ever had add up to no more than the cap of
//     the registration, and so does what is issued.
//   - Of an asset that was registered before it was used, the amounts below zero in all accounts of
//     an organisation add up to what it issued less what it redeemed.
//
// A name may be in use before it is registered. Then its amounts get decimals, and what was
// outstanding stays. It does not count as issued, and taking it back is no redemption of more than
// was issued since.

// asset is a registered asset, as an entry of the state.
type asset struct {
	ledger.Asset
	mark mark
}

func (a *asset) appendEntry(to []byte) (entry []byte, keyLength int) { return a.AppendEntry(to) }

// assets are the registered assets.
type assets struct {
	// all are by their numbers, from 1. named are the same.
	all   []*asset
	named map[ledger.AssetName]*asset
	// owned counts those of each organisation.
	owned   map[ledger.OrganisationName]int
	touched []*asset
}

// issuing is what the current transaction does to the issuance of one organisation. It takes effect
// when the transaction does.
type issuing struct {
	of *asset
	at int
	ledger.Issuance
	// item is a posting that goes further below zero.
	item uint32
}

// owing says how far an account is below zero in an asset: as it is, and if all that is set aside
// is taken.
type owing struct{ now, most ledger.Amount }

// Asset returns a registered asset, read-only.
func (s *State) Asset(name ledger.AssetName) (*ledger.Asset, bool) {
	if found := s.assets.named[name]; found != nil {
		return &found.Asset, true
	}
	return nil, false
}

// AssetCount returns the number of registered assets.
func (s *State) AssetCount() int { return len(s.assets.all) }

// AssetAt returns the registered asset with a number, from 1 to AssetCount, read-only.
func (s *State) AssetAt(number int) *ledger.Asset { return &s.assets.all[number-1].Asset }

// attemptAsset decides on a registration or a change of an asset. It verifies the signatures again.
// It changes nothing.
func (s *State) attemptAsset(t *ledger.Transaction, root ledger.Hash,
	signatures []ledger.Signature) ledger.Result {
	change := t.Asset
	owner := s.organisations[t.Signer]
	if s.assetTree == nil { // sealing leaves it out before the chain has the version
		return whole(ledger.OutOfPlace)
	}
	if owner == nil {
		return whole(ledger.UnknownOrganisation)
	}
	good := ledger.GoodSignatures(root, t.Signer, signatures)
	if code := owner.Consents(t, good); code != ledger.Applied {
		return whole(code)
	}
	for i := range change.Issuers {
		if s.organisations[change.Issuers[i].Organisation] == nil {
			return ofItem(ledger.UnknownOrganisation, uint32(i))
		}
	}
	found := s.assets.named[change.Asset]
	switch {
	case change.Number == 1 && found != nil, found != nil && found.Owner != t.Signer:
		return whole(ledger.AssetTaken)
	case change.Number == 1 && s.charter.RegistrationByOperators &&
		!s.operatorsSigned(root, signatures):
		return whole(ledger.Unauthorised)
	case change.Number == 1 && (len(s.assets.all) >= ledger.MaxRegisteredAssets ||
		s.assets.owned[t.Signer] >= ledger.MaxOwnAssets):
		return whole(ledger.TooManyRegistered)
	case change.Number == 1:
		return applied
	case found == nil:
		return whole(ledger.UnknownAsset)
	case change.Number != found.Revision+1:
		return whole(ledger.AssetOutdated)
	case !found.MayBecome(&change.AssetTerms):
		return whole(ledger.TermsFixed)
	}
	return applied
}

// changeAsset makes a registration or a change that attemptAsset allowed.
func (s *State) changeAsset(t *ledger.Transaction) {
	change, terms := t.Asset, t.Asset.Clone()
	found := s.assets.named[change.Asset]
	if found == nil {
		found = &asset{Asset: ledger.Asset{Number: uint32(len(s.assets.all) + 1),
			Name:  ledger.AssetName(strings.Clone(string(change.Asset))),
			Owner: s.organisations[t.Signer].Name, Registered: s.height}}
		s.assets.add(found)
	}
	issuances := make([]ledger.Issuance, len(terms.Issuers))
	if len(terms.Issuers) > len(found.Issuers) {
		s.countWaiting(found.Name, &terms, issuances)
	}
	for i := range found.Issuers {
		at, _ := terms.Issuer(found.Issuers[i].Organisation) // MayBecome says that it stays
		issuances[at] = found.Issuances[i]
	}
	s.touchAsset(found)
	found.Revision, found.AssetTerms, found.Issuances = change.Number, terms, issuances
}

// countWaiting counts what transactions that wait, and holds, may still issue of an asset. It is
// for those who were no issuers until now: what they have waiting was set aside before the name was
// registered.
func (s *State) countWaiting(name ledger.AssetName, terms *ledger.AssetTerms,
	issuances []ledger.Issuance) {
	counted := make(map[*account]struct{})
	for path := range s.waitingIn(name, terms) {
		found := s.find(path)
		if _, again := counted[found]; again || !found.issuer {
			continue
		}
		counted[found] = struct{}{}
		at, _ := terms.Issuer(path.Organisation())
		owed := found.owes(name)
		sum, err := issuances[at].Waiting.Add(owed.most.Minus(owed.now))
		if err != nil {
			sum = ledger.MaxAmount
		}
		issuances[at].Waiting = sum
	}
}

// waitingIn yields the accounts of issuers of which transactions that wait, or holds, set aside
// some of an asset, some accounts more than once and in any order. It looks at all that waits and
// at all holds.
func (s *State) waitingIn(name ledger.AssetName,
	terms *ledger.AssetTerms) iter.Seq[ledger.AccountPath] {
	return func(yield func(ledger.AccountPath) bool) {
		for each := s.pending.oldest; each != nil; each = each.after {
			for i := range each.parts {
				p := &each.parts[i]
				if p.asset != name || p.net.Sign() >= 0 {
					continue
				}
				if _, is := terms.Issuer(p.account.Organisation()); is && !yield(p.account) {
					return
				}
			}
		}
		for _, each := range s.held.by {
			if _, is := terms.Issuer(each.From.Organisation()); is && each.Asset == name &&
				!yield(each.From) {
				return
			}
		}
	}
}

// add adds an asset with the next number.
func (a *assets) add(added *asset) {
	if a.named == nil {
		a.named = make(map[ledger.AssetName]*asset)
		a.owned = make(map[ledger.OrganisationName]int)
	}
	a.all = append(a.all, added)
	a.named[added.Name] = added
	a.owned[added.Owner]++
}

// touchAsset notes that the block changes the asset. The tree has the hash from before.
func (s *State) touchAsset(a *asset) {
	if !a.mark.touched {
		s.keepAsset(a)
		a.mark = mark{touched: true}
		s.assets.touched = append(s.assets.touched, a)
	}
}

// issuerOf returns the registered asset that an account may be below zero in, and the place of its
// organisation among the issuers; -1 if it is none. It returns nil if there is nothing to count.
func (s *State) issuerOf(a *account, name ledger.AssetName) (of *asset, at int) {
	if !a.issuer || len(s.assets.all) == 0 {
		return nil, -1
	}
	found := s.assets.named[name]
	if found == nil {
		return nil, -1
	}
	if at, is := found.Issuer(a.path.Organisation()); is {
		return found, at
	}
	return found, -1
}

// below returns how far an amount is below zero.
func below(amount ledger.Amount) ledger.Amount {
	if amount.Sign() >= 0 {
		return ledger.Amount{}
	}
	negated, err := amount.Neg()
	if err != nil {
		return ledger.MaxAmount
	}
	return negated
}

// owes returns how far a balance is below zero, and would be without what is set aside.
func owes(balance, setAside ledger.Amount) owing {
	least, err := balance.Sub(setAside)
	if err != nil {
		least = ledger.MinAmount
	}
	return owing{below(balance), below(least)}
}

// owes returns how far an account is below zero in an asset.
func (a *account) owes(name ledger.AssetName) owing {
	setAside, _ := a.held(name)
	return owes(a.balance(name), setAside)
}

// moved counts a change of how far an account of the issuer is below zero. It reports whether 128
// bits hold the result; if not, it is as near as possible.
func (i *issuing) moved(before, after owing) bool {
	fits := true
	plus := func(to *ledger.Amount, more ledger.Amount) {
		sum, err := to.Add(more)
		if err != nil {
			fits, sum = false, ledger.MaxAmount
		}
		*to = sum
	}
	if more := after.now.Minus(before.now); more.Sign() > 0 {
		plus(&i.Issued, more)
	} else if less := (ledger.Amount{}).Minus(more); less.Compare(i.Outstanding()) < 0 {
		plus(&i.Redeemed, less)
	} else {
		i.Redeemed = i.Issued
	}
	waited, waits := before.most.Minus(before.now), after.most.Minus(after.now)
	if plus(&i.Waiting, waits.Minus(waited)); i.Waiting.Sign() < 0 {
		i.Waiting = ledger.Amount{} // 128 bits did not hold it at the registration
	}
	_, err := i.Issued.Add(i.Waiting)
	return fits && err == nil
}

// issuing returns the issuance of an issuer as the transaction leaves it so far.
func (s *State) issuing(of *asset, at int, item uint32) *issuing {
	for i := range s.undo.issuing {
		if each := &s.undo.issuing[i]; each.of == of && each.at == at {
			return each
		}
	}
	s.undo.issuing = append(s.undo.issuing, issuing{of: of, at: at, item: item,
		Issuance: of.Issuances[at]})
	return &s.undo.issuing[len(s.undo.issuing)-1]
}

// issues decides on what one change of an account issues, of a transaction that may have others.
func (s *State) issues(a *account, name ledger.AssetName, item uint32, before,
	after owing) ledger.Code {
	of, at := s.issuerOf(a, name)
	rises := after.most.Compare(before.most) > 0
	switch {
	case of == nil, before == after:
		return ledger.Applied
	case at < 0 && rises:
		return ledger.NotIssuer
	case at < 0:
		return ledger.Applied
	}
	made := s.issuing(of, at, item)
	if rises {
		made.item = item
	}
	if !made.moved(before, after) && rises {
		return ledger.Overflow
	}
	return ledger.Applied
}

// mayIssue decides on what the whole transaction issues, of all issuers and assets.
func (s *State) mayIssue() ledger.Result {
	for i := range s.undo.issuing {
		made := &s.undo.issuing[i]
		if code := s.judgeIssuing(made); code != ledger.Applied {
			return ofItem(code, made.item)
		}
	}
	return applied
}

func (s *State) judgeIssuing(made *issuing) ledger.Code {
	terms, before := &made.of.AssetTerms, &made.of.Issuances[made.at]
	issuer := &terms.Issuers[made.at]
	after := made.Committed(terms.Supply)
	allowance := issuer.Allowance
	switch s.fault {
	case FaultWholeCap:
		allowance = terms.Cap
	case FaultWaitingUncounted:
		after = after.Minus(before.Waiting)
	}
	switch {
	case made.Issued.Compare(before.Issued) <= 0 &&
		made.Committed(ledger.SupplyFixed).Compare(before.Committed(ledger.SupplyFixed)) <= 0:
		return ledger.Applied // nothing is issued
	case terms.Closed:
		return ledger.IssuanceClosed
	case issuer.Withdrawn:
		return ledger.NotIssuer
	case terms.Limited() && after.Compare(allowance) > 0 &&
		after.Compare(before.Committed(terms.Supply)) > 0:
		return ledger.SupplyExceeded
	}
	return ledger.Applied
}

// attemptIssue decides on what a transaction within one shard issues. Its postings are made, and
// are the last steps of the undo log. An account counts once, with all postings on it.
func (s *State) attemptIssue(t *ledger.Transaction) ledger.Result {
	if len(s.assets.all) == 0 {
		return applied
	}
	steps := s.undo.posted[len(s.undo.posted)-len(t.Postings):]
	for i := range steps {
		a, name := steps[i].account, t.Postings[i].Asset
		if !a.issuer || s.assets.named[name] == nil || slices.ContainsFunc(steps[:i],
			func(earlier posted) bool {
				return earlier.account == a && earlier.asset == t.Postings[i].Asset
			}) {
			continue
		}
		setAside, _ := a.held(name)
		code := s.issues(a, name, issuingPosting(t, i), owes(steps[i].before, setAside),
			a.owes(name))
		if code != ledger.Applied {
			return ofItem(code, issuingPosting(t, i))
		}
	}
	return s.mayIssue()
}

// issuingPosting returns the first posting that takes from the account and asset of a posting, or
// else that posting.
func issuingPosting(t *ledger.Transaction, first int) uint32 {
	for i := first; i < len(t.Postings); i++ {
		p := &t.Postings[i]
		if p.Amount.Sign() < 0 && p.Account == t.Postings[first].Account &&
			p.Asset == t.Postings[first].Asset {
			return uint32(i)
		}
	}
	return uint32(first)
}

// attemptIssueParts decides on what this shard's parts of a cross-shard transaction may issue, once
// they are set aside.
func (s *State) attemptIssueParts() ledger.Result {
	s.undo.issuing = s.undo.issuing[:0]
	if len(s.assets.all) == 0 {
		return applied
	}
	for i := range s.parts {
		p := &s.parts[i]
		found := s.find(p.account)
		if p.net.Sign() >= 0 || !found.issuer {
			continue
		}
		before, balance := found.owes(p.asset), found.balance(p.asset)
		setAside, _ := found.held(p.asset)
		more, err := setAside.Sub(p.net)
		if err != nil {
			return ofItem(ledger.Overflow, p.item)
		}
		if code := s.issues(found, p.asset, p.item, before, owes(balance, more)); code !=
			ledger.Applied {
			return ofItem(code, p.item)
		}
	}
	return s.mayIssue()
}

// commitIssuing makes what the transaction does to issuances.
func (s *State) commitIssuing() {
	for i := range s.undo.issuing {
		made := &s.undo.issuing[i]
		s.touchAsset(made.of)
		made.of.Issuances[made.at] = made.Issuance
	}
	s.undo.issuing = s.undo.issuing[:0]
}

// countIssuance counts a change of an account that was decided on before: setting aside, giving
// back and taking effect.
func (s *State) countIssuance(a *account, name ledger.AssetName, before owing) {
	of, at := s.issuerOf(a, name)
	if after := a.owes(name); of != nil && at >= 0 && before != after {
		made := issuing{Issuance: of.Issuances[at]}
		made.moved(before, after)
		s.touchAsset(of)
		of.Issuances[at] = made.Issuance
	}
}

// kindIssuance is the kind of the entry of an arrival that brings what an organisation issued. The
// state has it in the entry of the asset.
const kindIssuance = 'i'

// movedIssuance is what an organisation that moves issued of an asset.
type movedIssuance struct {
	asset uint32
	by    ledger.OrganisationName
	ledger.Issuance
}

// appendEntry appends the entry of an arrival: the number of the asset and the organisation;
// issued, redeemed.
func (m *movedIssuance) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = binary.BigEndian.AppendUint32(append(to, kindIssuance), m.asset)
	to = append(append(to, m.by...), 0)
	keyLength = len(to) - start
	return appendAmount(appendAmount(to, m.Issued), m.Redeemed), keyLength
}

// movedIssuance reads the entry. It must be the only one with its content.
func (r *reader) movedIssuance(key, value []byte) (m movedIssuance) {
	if len(key) < 1+4+2 {
		r.Fail("key %x of an issuance", key)
		return m
	}
	m.asset = binary.BigEndian.Uint32(key[1:])
	m.by = ledger.OrganisationName(key[1+4 : len(key)-1])
	m.Issued, m.Redeemed = r.amount(), r.amount()
	if again, _ := m.appendEntry(nil); !bytes.Equal(again, slices.Concat(key, value)) ||
		m.Redeemed.Sign() < 0 || m.Issued.Compare(m.Redeemed) < 0 {
		r.Fail("an issuance of %s", m.by)
	}
	return m
}

// issuancesOf calls visit for what an organisation issued of each asset. Between the calls the
// state may change.
func (s *State) issuancesOf(name ledger.OrganisationName, visit func(movedIssuance)) {
	for _, each := range s.assets.all {
		if at, is := each.Issuer(name); is && each.Issuances[at].Issued.Sign() > 0 {
			visit(movedIssuance{asset: each.Number, by: name, Issuance: each.Issuances[at]})
		}
	}
}

// hasIssuers reports whether this shard has the registrations of all that an arrival brings. The
// old home may have executed some, of after the move, that are still on their way here.
func (s *State) hasIssuers(a *ledger.Arrival) bool {
	return !slices.ContainsFunc(a.Entries, func(each ledger.MovedEntry) bool {
		if each.Key[0] != kindIssuance {
			return false
		}
		r := read(each.Value)
		brought := r.movedIssuance(each.Key, each.Value)
		return r.Err == nil && !s.takesIssuances([]movedIssuance{brought})
	})
}

// takesIssuances reports whether the assets are registered and the organisation is an issuer, of
// each issuance that arrives.
func (s *State) takesIssuances(all []movedIssuance) bool {
	return !slices.ContainsFunc(all, func(each movedIssuance) bool {
		if each.asset == 0 || int(each.asset) > len(s.assets.all) {
			return true
		}
		_, is := s.assets.all[each.asset-1].Issuer(each.by)
		return !is
	})
}

// takeIssuance takes over what an organisation issued before its move.
func (s *State) takeIssuance(each *movedIssuance, move uint64) {
	of := s.assets.all[each.asset-1]
	at, _ := of.Issuer(each.by)
	s.touchAsset(of)
	of.Issuances[at] = ledger.Issuance{Issued: each.Issued, Redeemed: each.Redeemed, Arrived: move}
}

// newAssetTree returns the Merkle tree over the entries of assets, by their numbers.
func newAssetTree(all []*asset) *accountTree {
	t := &accountTree{}
	t.grow(len(all))
	var entry []byte
	for i, each := range all {
		entry, _ = each.appendEntry(entry[:0])
		*t.leaf(uint64(i + 1)) = ledger.AssetLeaf(entry)
	}
	t.hashAll(inTurn)
	return t
}

// takesAssetTree reports whether the chain's version has the tree.
func (s *State) takesAssetTree() bool { return ledger.TakesAssets(s.Version()) }

// finishAssets brings the tree up to date and collects the changes.
func (s *State) finishAssets(changes *Changes) {
	for _, each := range s.assets.touched {
		each.mark = mark{}
		start := len(s.arena)
		var keyLength int
		s.arena, keyLength = each.appendEntry(s.arena)
		entry := s.arena[start:]
		hash, leaf := ledger.AssetLeaf(entry), s.assetTree.leaf(uint64(each.Number))
		if hash == *leaf {
			continue
		}
		*leaf = hash
		s.assetTree.outdate(uint64(each.Number))
		changes.Entries.note(start, keyLength, len(entry)-keyLength, 0)
	}
	s.assets.touched = s.assets.touched[:0]
}

// assetRoot returns what the state digest has of the assets.
func (s *State) assetRoot() ledger.AssetRoot {
	return ledger.AssetRoot{Count: uint32(s.assetTree.accounts()), Root: s.assetTree.root(inTurn)}
}

// ProveAsset returns the proof of an asset as of the last executed block, without its header, and
// whether the asset is registered.
func (s *State) ProveAsset(name ledger.AssetName) (*ledger.AssetProof, bool) {
	found := s.assets.named[name]
	if found == nil || s.assetTree == nil || s.accountTree == nil {
		return nil, false
	}
	entry, _ := found.appendEntry(nil)
	p := &ledger.AssetProof{Entry: entry, Assets: s.assetRoot(), Others: s.plainDigest(),
		Accounts: uint64(s.accountTree.accounts()), AccountRoot: s.accountTree.root(s.divide)}
	place := int(found.Number - 1)
	for level := 0; level+1 < len(s.assetTree.levels); level++ {
		place /= treeArity
		p.Path = append(p.Path, slices.Clone(s.assetTree.levels[level].children(place)))
	}
	return p, true
}

// placeless returns the asset as the directory has it: its terms, and nothing of this chain.
func (a *asset) placeless() *asset {
	shown := &asset{Asset: a.Asset}
	shown.Registered, shown.Issuances = 0, make([]ledger.Issuance, len(a.Issuers))
	return shown
}

// restoreAsset puts the entry of an asset into the state. It reports whether there was one already.
func (s *State) restoreAsset(key []byte, r *reader) (of entry, again bool, err error) {
	decoded, err := ledger.DecodeAsset(key, r.Data)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	r.Take(len(r.Data))
	restored := &asset{Asset: *decoded}
	again = s.assets.named[restored.Name] != nil
	s.assets.add(restored)
	return restored, again, nil
}

// completeAssets orders the assets after all entries were restored.
func (s *State) completeAssets() error {
	slices.SortFunc(s.assets.all, func(a, b *asset) int { return cmp.Compare(a.Number, b.Number) })
	if len(s.assets.all) > 0 && !s.takesAssetTree() {
		return fmt.Errorf("%w: assets in a chain of version %d", ErrEntry, s.Version())
	}
	for i, each := range s.assets.all {
		if int(each.Number) != i+1 {
			return fmt.Errorf("%w: asset %s is number %d of %d", ErrEntry, each.Name, each.Number,
				len(s.assets.all))
		}
	}
	return nil
}
