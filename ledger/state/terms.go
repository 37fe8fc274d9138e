package state

import (
	"fmt"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// Terms of accounts (ledger.AccountTerms). They are in the entry of the account, so they cost
// nothing where there are none, are proven with the account (ProveAccount), and move with it.
//
// What always holds:
//
//   - Terms are judged where the account is, when a transaction is executed or set aside. What was
//     set aside before takes effect, or comes back, whatever the terms are by then. So a crossing
//     stays all or none: a destination that refuses a part says so in its verdict.
//   - What is set aside counts as gone for a floor, and as there for a ceiling, and what is on its
//     way counts for a ceiling. So no outcome of what waits leaves an account beyond a limit that
//     held when it was set aside.
//   - A debit counts for a velocity once it is set aside, and goes on to count if it comes back:
//     otherwise what a block allows would depend on when other shards answer.
//   - A hold is a debit of its account when it is placed: it is judged then, and counts for a
//     velocity from then on, also if it is voided or expires. Its end is no debit of that account.
//     Otherwise an organisation could take a hold back by a change of terms. The accounts that the
//     hold gives to are judged when it is posted.
//   - A closed account has no amounts and no holds, waits for nothing, and never changes again.
//   - Of two accounts of an organisation that have terms, no two have the same alias.
//   - A guardian's change depends on nothing that the organisation changes, but on its being the
//     guardian: the organisation cannot outrun a freeze with changes of its own.

// spending is what the current transaction spends of a velocity. It counts when the transaction
// takes effect or is set aside.
type spending struct {
	account *account
	limit   int
	spent   ledger.Spent
}

// change is what a transaction does to an asset of an account, with all its postings on it.
type change struct {
	account *account
	asset   ledger.AssetName
	net     ledger.Amount
	// least is what remains without all that is set aside, and most what may be there.
	least, most ledger.Amount
}

// standing returns what counts of the account's terms, or nil.
func (a *account) standing() *ledger.AccountStanding {
	if a.rare == nil {
		return nil
	}
	return a.rare.standing
}

// stands returns what counts of the account's terms, read-only. Without terms nothing does.
func (a *account) stands() *ledger.AccountStanding {
	if standing := a.standing(); standing != nil {
		return standing
	}
	return &ledger.AccountStanding{}
}

// setStanding sets what counts of the account's terms.
func (a *account) setStanding(standing *ledger.AccountStanding) {
	switch {
	case a.rare != nil:
		a.rare.standing = standing
	case standing != nil:
		a.rare = &rare{standing: standing}
	}
}

// isEmpty reports whether the account has no amounts and waits for none.
func (a *account) isEmpty() bool {
	for i := range a.balances {
		if a.balances[i].amount.Sign() != 0 {
			return false
		}
	}
	return len(a.holds()) == 0
}

// attemptTerms decides on a change of the terms of an account. It verifies the signatures again. It
// changes nothing.
func (s *State) attemptTerms(t *ledger.Transaction, root ledger.Hash,
	signatures []ledger.Signature) ledger.Result {
	change := t.Account
	if !ledger.TakesAccountTerms(s.Version()) { // sealing leaves it out before
		return whole(ledger.OutOfPlace)
	}
	signer, owner := s.organisations[t.Signer], change.Account.Organisation()
	if signer == nil || s.organisations[owner] == nil ||
		change.Guardian != "" && s.organisations[change.Guardian] == nil {
		return whole(ledger.UnknownOrganisation)
	}
	good := ledger.GoodSignatures(root, t.Signer, signatures)
	if code := signer.Consents(t, good); code != ledger.Applied {
		return whole(code)
	}
	found := s.find(change.Account)
	if found == nil {
		return whole(ledger.UnknownAccount)
	}
	stands, guards := found.stands(), change.Guards(t.Signer)
	seen, may := stands.Revision, stands.MayBecome(&change.AccountTerms)
	if guards {
		seen, may = stands.Guarded, stands.MayGuard(change.Freeze)
	}
	switch {
	case guards && stands.Guardian != t.Signer:
		return whole(ledger.Unauthorised)
	case stands.Closed:
		return whole(ledger.AccountClosed)
	case change.Number != seen+1:
		return whole(ledger.AccountOutdated)
	case !may, !found.mayFloor(&change.AccountTerms):
		return whole(ledger.AccountFixed)
	case change.Closed && !found.isEmpty():
		return whole(ledger.AccountNotEmpty)
	case !guards && !s.aliases.free(owner, change.Alias, found.path):
		return whole(ledger.AliasTaken)
	}
	return applied
}

// mayFloor reports whether no floor is below zero, or the account is an issuer.
func (a *account) mayFloor(terms *ledger.AccountTerms) bool {
	for i := range terms.Limits {
		if floor := terms.Limits[i].Floor; floor != nil && floor.Sign() < 0 && !a.issuer {
			return false
		}
	}
	return true
}

// changeTerms makes a change that attemptTerms allowed, by the account's organisation or else its
// guardian.
func (s *State) changeTerms(change *ledger.AccountChange, guards bool) {
	found := s.find(change.Account)
	s.touchAccount(found)
	s.keepTerms(found)
	next := found.stands().Next(change, guards)
	if guards {
		found.setStanding(next)
		return
	}
	if found.standing() != nil && found.alias() != change.Alias {
		s.setAlias(found.path, found.alias(), "")
	}
	found.setRare(strings.Clone(change.Alias), found.holds())
	found.setStanding(next)
	s.setAlias(found.path, found.alias(), found.path)
}

// takesPostings decides whether an account takes any posting.
func (a *account) takesPostings() ledger.Code {
	switch standing := a.standing(); {
	case standing == nil:
		return ledger.Applied
	case standing.Closed:
		return ledger.AccountClosed
	case standing.Freeze != ledger.FreezeNone:
		return ledger.AccountFrozen
	}
	return ledger.Applied
}

// allows decides on a change of an account with terms.
func (s *State) allows(c *change) ledger.Code {
	standing, debit := c.account.standing(), c.net.Sign() < 0
	switch {
	case c.net.Sign() == 0:
		return ledger.Applied
	case debit && standing.NoDebits:
		return ledger.NoDebits
	case !debit && standing.NoCredits:
		return ledger.NoCredits
	}
	at, limited := standing.Limit(c.asset)
	if !limited {
		return ledger.Applied
	}
	limit := &standing.Limits[at]
	switch {
	case !debit && limit.Ceiling != nil && c.most.Compare(*limit.Ceiling) > 0:
		return ledger.AboveCeiling
	case debit && limit.Floor != nil && c.least.Compare(*limit.Floor) < 0:
		return ledger.BelowFloor
	case debit && limit.Velocity != nil:
		taken, err := c.net.Neg()
		if err != nil {
			return ledger.VelocityExceeded
		}
		spent, allowed := standing.Spent[at].After(limit.Velocity, s.time, taken)
		if !allowed {
			return ledger.VelocityExceeded
		}
		s.undo.spending = append(s.undo.spending, spending{c.account, at, spent})
	}
	return ledger.Applied
}

// attemptAllowed decides on a transaction within one shard, by the terms of its accounts. Its
// postings are made, and are the last steps of the undo log. An account and asset counts once, with
// all postings on it.
func (s *State) attemptAllowed(t *ledger.Transaction) ledger.Result {
	steps := s.undo.posted[len(s.undo.posted)-len(t.Postings):]
	for i := range steps {
		a, asset := steps[i].account, t.Postings[i].Asset
		if a.standing() == nil || isLater(steps, i) || t.TakesHeld(&t.Postings[i]) {
			continue
		}
		after := a.balance(asset)
		setAside, incoming := a.held(asset)
		c := change{account: a, asset: asset}
		var errs [3]error
		c.net, errs[0] = after.Sub(steps[i].before)
		c.least, errs[1] = after.Sub(setAside)
		c.most, errs[2] = after.Add(incoming)
		if errs != [3]error{} {
			return ofItem(ledger.Overflow, uint32(i))
		}
		if code := s.allows(&c); code != ledger.Applied {
			return ofItem(code, decidingPosting(t, i, c.net.Sign()))
		}
	}
	return applied
}

// isLater reports whether an earlier step is on the same account and asset.
func isLater(steps []posted, step int) bool {
	for i := range steps[:step] {
		if steps[i].account == steps[step].account && steps[i].asset == steps[step].asset {
			return true
		}
	}
	return false
}

// decidingPosting returns the first posting with this sign on the account and asset of a posting,
// or else that posting.
func decidingPosting(t *ledger.Transaction, first, sign int) uint32 {
	for i := first; i < len(t.Postings); i++ {
		p := &t.Postings[i]
		if p.Amount.Sign() == sign && p.Account == t.Postings[first].Account &&
			p.Asset == t.Postings[first].Asset {
			return uint32(i)
		}
	}
	return uint32(first)
}

// attemptAllowedParts decides on this shard's parts of a cross-shard transaction, by the terms of
// their accounts. A credit to an account that does not take it fails the transaction everywhere.
func (s *State) attemptAllowedParts(t *ledger.Transaction) ledger.Result {
	s.undo.spending = s.undo.spending[:0]
	for i := range s.parts {
		p := &s.parts[i]
		found := s.find(p.account)
		if found.standing() == nil || s.fault == FaultCreditUnjudged && p.net.Sign() > 0 ||
			p.item != ledger.NoItem && t.TakesHeld(&t.Postings[p.item]) {
			continue
		}
		balance := found.balance(p.asset)
		setAside, incoming := found.held(p.asset)
		if s.fault == FaultFloorOfAll {
			setAside = ledger.Amount{}
		}
		c := change{account: found, asset: p.asset, net: p.net}
		var errs [3]error
		if p.net.Sign() < 0 {
			setAside, errs[0] = setAside.Sub(p.net)
		} else {
			incoming, errs[0] = incoming.Add(p.net)
		}
		c.least, errs[1] = balance.Sub(setAside)
		c.most, errs[2] = balance.Add(incoming)
		if errs != [3]error{} {
			return ofItem(ledger.Overflow, p.item)
		}
		if code := s.allows(&c); code != ledger.Applied {
			return ofItem(code, p.item)
		}
	}
	return applied
}

// commitSpending counts what the transaction spends.
func (s *State) commitSpending() {
	for i := range s.undo.spending {
		if each := &s.undo.spending[i]; s.fault != FaultSpentForgotten {
			s.touchAccount(each.account)
			each.account.standing().Spent[each.limit] = each.spent
		}
	}
	s.undo.spending = s.undo.spending[:0]
}

// restoreStanding reads the end of the entry of an account.
func (r *reader) restoreStanding() *ledger.AccountStanding {
	standing, err := ledger.DecodeStanding(r.Take(len(r.Data)))
	if err != nil {
		r.Fail("terms: %w", err)
		return nil
	}
	return standing
}

// alias is an alias of an account with terms, as an entry of the state. The accounts need not be in
// memory.
type alias struct {
	aliasKey
	// account is "" if the alias is free since this block.
	account ledger.AccountPath
	mark    mark
}

type aliasKey struct {
	organisation ledger.OrganisationName
	text         string
}

// aliases are the aliases of accounts with terms.
type aliases struct {
	by      map[aliasKey]*alias
	touched []*alias
}

// free reports whether an account may have an alias.
func (a *aliases) free(owner ledger.OrganisationName, text string, path ledger.AccountPath) bool {
	found := a.by[aliasKey{owner, text}]
	return text == "" || found == nil || found.account == "" || found.account == path
}

// setAlias gives an alias to an account, or sets it free if the account to give it to is "". path
// has the organisation.
func (s *State) setAlias(path ledger.AccountPath, text string, to ledger.AccountPath) {
	if text == "" {
		return
	}
	if s.aliases.by == nil {
		s.aliases.by = make(map[aliasKey]*alias)
	}
	key := aliasKey{path.Organisation(), text}
	found := s.aliases.by[key]
	switch {
	case found == nil:
		found = &alias{aliasKey: aliasKey{
			ledger.OrganisationName(strings.Clone(string(key.organisation))), strings.Clone(text)}}
		found.mark = mark{touched: true}
		s.aliases.by[found.aliasKey] = found
		s.aliases.touched = append(s.aliases.touched, found)
	case found.account == to:
		return
	case !found.mark.touched:
		found.mark = s.keep(found.appendEntry)
		s.aliases.touched = append(s.aliases.touched, found)
	}
	found.account = ledger.AccountPath(strings.Clone(string(to)))
}

// finishAliases collects the changes of aliases.
func (s *State) finishAliases(changes *Changes) {
	for _, each := range s.aliases.touched {
		if each.account == "" {
			s.remove(changes, each.mark)
			delete(s.aliases.by, each.aliasKey)
		} else {
			s.settle(changes, each.mark, each.appendEntry)
		}
		each.mark = mark{}
	}
	s.aliases.touched = s.aliases.touched[:0]
}

// appendEntry appends the entry: the organisation, a zero byte, the alias; the account.
func (a *alias) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = append(append(append(to, kindAlias), a.organisation...), 0)
	to = append(append(to, a.text...), 0)
	keyLength = len(to) - start
	return append(to, a.account...), keyLength
}

// restoreAlias puts the entry of an alias into the state. It reports whether there was one already.
func (s *State) restoreAlias(key []byte, r *reader) (of entry, again bool, err error) {
	organisation, text, two := strings.Cut(string(key[1:len(key)-1]), "\x00")
	restored := &alias{aliasKey: aliasKey{ledger.OrganisationName(organisation), text},
		account: ledger.AccountPath(r.Take(len(r.Data)))}
	if !two || text == "" || restored.account.Organisation() != restored.organisation {
		return nil, false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	if s.aliases.by == nil {
		s.aliases.by = make(map[aliasKey]*alias)
	}
	again = s.aliases.by[restored.aliasKey] != nil
	s.aliases.by[restored.aliasKey] = restored
	return restored, again, nil
}

// Aliased returns the account of an organisation with an alias, and whether there is one that has
// terms.
func (s *State) Aliased(owner ledger.OrganisationName, text string) (ledger.AccountPath, bool) {
	if found := s.aliases.by[aliasKey{owner, text}]; found != nil {
		return found.account, true
	}
	return "", false
}
