package state

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// hold is the hold of all waiting transactions on one asset of an account: the amount set aside,
// which may go out, and the amount that may come in. If both are zero there is no hold. The
// account's balance does not reflect holds. The spendable amount is the balance less the amount set
// aside. Whatever transactions take effect, the balance cannot overflow, and the account cannot
// exceed MaxAssets.
type hold struct {
	asset              ledger.AssetName
	setAside, incoming ledger.Amount
}

// hold returns the index of an account's hold of an asset, and whether there is one.
func (a *account) hold(asset ledger.AssetName) (int, bool) {
	holds := a.holds()
	for i := range holds {
		if order := strings.Compare(string(holds[i].asset), string(asset)); order >= 0 {
			return i, order == 0
		}
	}
	return len(holds), false
}

// held returns the amount set aside and the amount that may come in.
func (a *account) held(asset ledger.AssetName) (setAside, incoming ledger.Amount) {
	if at, found := a.hold(asset); found {
		return a.rare.holds[at].setAside, a.rare.holds[at].incoming
	}
	return ledger.Amount{}, ledger.Amount{}
}

// reserved counts the assets that the account does not have but will have if the held amounts come
// in. It does not count asset.
func (a *account) reserved(asset ledger.AssetName) int {
	count := 0
	for _, each := range a.holds() {
		if _, has := a.find(each.asset); !has && each.asset != asset {
			count++
		}
	}
	return count
}

// fits reports whether the account's balance of an asset may become after, however the transactions
// that hold amounts end.
func (a *account) fits(asset ledger.AssetName, after ledger.Amount) bool {
	if len(a.holds()) == 0 {
		return true
	}
	setAside, incoming := a.held(asset)
	_, most := after.Add(incoming)
	_, least := after.Sub(setAside)
	return most == nil && least == nil
}

// spendable returns the balance less the amount set aside.
func (a *account) spendable(asset ledger.AssetName) ledger.Amount {
	balance := a.balance(asset)
	if len(a.holds()) == 0 {
		return balance
	}
	setAside, _ := a.held(asset)
	spendable, err := balance.Sub(setAside)
	if err != nil {
		panic("ledger: what is set aside overflows the balance of " + string(a.path))
	}
	return spendable
}

// part is the effect of a transaction on one asset of one account of this shard: the sum of its
// postings there.
type part struct {
	account ledger.AccountPath
	asset   ledger.AssetName
	net     ledger.Amount
	// item is the first posting with a negative amount, or else the first posting.
	item uint32
}

// attemptPart decides on this shard's part of a cross-shard transaction. If it succeeds, the part
// can be applied or released later, whatever the other shards decide. It changes nothing. Every
// destination makes the same decision where it depends only on the transaction and the directory.
// Only the home shard of the signer checks the nonce and the last valid block. Each destination
// compares the deadline with its own time.
func (s *State) attemptPart(t *ledger.Transaction, signatures []ledger.Signature) ledger.Result {
	if result := s.attemptWhole(t, signatures); result.Code != ledger.Applied {
		return result
	}
	if code := s.attemptDeadline(t); code != ledger.Applied {
		return whole(code)
	}
	if s.isCancelled(&s.id, t) {
		return whole(ledger.Cancelled)
	}
	if s.HomeShard(t.Signer) == s.shard {
		if t.LastValid != 0 && s.height > t.LastValid {
			return whole(ledger.Expired)
		}
		if t.TakesNonce() && !s.fresh(t) {
			return whole(ledger.StaleNonce)
		}
		if t.TakesNonce() && !s.roomForStream(t) {
			return whole(ledger.StreamQuota)
		}
	}
	if result := s.attemptDetails(t); result.Code != ledger.Applied {
		return result
	}
	if e := t.HoldEnd; e != nil && s.HomeShard(e.From.Organisation()) == s.shard {
		return s.attemptEndingParts(t)
	}
	return s.attemptParts(t)
}

// attemptParts is the end of attemptPart: whether this shard has the amounts and the room.
func (s *State) attemptParts(t *ledger.Transaction) ledger.Result {
	if result := s.collectParts(t); result.Code != ledger.Applied {
		return result
	}
	for i := range s.parts {
		if code := s.attemptHold(i); code != ledger.Applied {
			return ofItem(code, s.parts[i].item)
		}
	}
	if result := s.attemptAllowedParts(t); result.Code != ledger.Applied {
		return result
	}
	if result := s.attemptIssueParts(); result.Code != ledger.Applied {
		return result
	}
	if item, full := s.roomForRecords(t); full {
		return ofItem(ledger.RecordQuota, item)
	}
	if s.pending.full(s.shard, s.destinations) {
		return whole(ledger.TooManyWaiting)
	}
	if !s.roomForPending(t.Signer) {
		return whole(ledger.PendingQuota)
	}
	return whole(ledger.SetAside)
}

// deadlinePassed reports whether a transaction has a deadline that is over in this block.
func (s *State) deadlinePassed(t *ledger.Transaction) bool {
	return t.Deadline != 0 && s.time >= t.Deadline && s.fault != FaultDeadlineIgnored
}

// attemptDeadline decides on the deadline of a cross-shard transaction. Destinations may decide
// differently, as they may on funds.
func (s *State) attemptDeadline(t *ledger.Transaction) ledger.Code {
	switch {
	case t.Occurrence != nil: // it was issued once, and comes once
	case t.Deadline == 0 && ledger.TakesDeadlines(s.Version()):
		return ledger.DeadlineMissing
	case s.deadlinePassed(t):
		return ledger.DeadlinePassed
	case t.Deadline > s.time && t.Deadline-s.time > ledger.MaxDeadline:
		return ledger.DeadlineTooFar
	}
	return ledger.Applied
}

// attemptWhole makes the part of the decision that is the same in every destination. It requires
// that every organisation in the transaction is registered, because the transaction's destinations
// are certain only then.
func (s *State) attemptWhole(t *ledger.Transaction, signatures []ledger.Signature) ledger.Result {
	if t.Ledger != s.ledger {
		return whole(ledger.WrongLedger)
	}
	if code := s.authorised(t.Signer, t, signatures); code != ledger.Applied {
		return whole(code)
	}
	if len(t.Openings) > 0 {
		return ofItem(ledger.OpeningAcrossShards, 0)
	}
	if len(t.Postings) == 1 {
		return whole(ledger.Unbalanced)
	}
	if _, err := t.Balanced(); err == ledger.ErrOverflow {
		return whole(ledger.Overflow)
	} else if err != nil {
		return whole(ledger.Unbalanced)
	}
	if e := t.HoldEnd; e != nil && s.organisations[e.From.Organisation()] == nil {
		return whole(ledger.UnknownOrganisation)
	}
	if d := t.Details; d != nil && d.Refund != nil &&
		s.organisations[d.Refund.Organisation] == nil {
		return whole(ledger.UnknownOrganisation)
	}
	for i := range t.Postings {
		posting := &t.Postings[i]
		name := posting.Account.Organisation()
		if s.organisations[name] == nil {
			return ofItem(ledger.UnknownOrganisation, uint32(i))
		}
		if t.Takes(posting) {
			if code := s.authorised(name, t, signatures); code != ledger.Applied {
				return ofItem(code, uint32(i))
			}
		}
		if s.refuses(posting, t, signatures) {
			return ofItem(ledger.AssetRefused, uint32(i))
		}
	}
	for i := range t.Records {
		owner := t.Records[i].Key.Organisation()
		if code := s.authorised(owner, t, signatures); code != ledger.Applied {
			return ofItem(code, uint32(i))
		}
	}
	return applied
}

// collectParts sums up this shard's postings by account and asset.
func (s *State) collectParts(t *ledger.Transaction) ledger.Result {
	s.parts = s.parts[:0]
	for i := range t.Postings {
		posting := &t.Postings[i]
		if s.HomeShard(posting.Account.Organisation()) != s.shard {
			continue
		}
		found := s.find(posting.Account)
		if found == nil {
			return ofItem(ledger.UnknownAccount, uint32(i))
		}
		if code := found.takesPostings(); code != ledger.Applied && !t.TakesHeld(posting) &&
			(s.fault != FaultCreditUnjudged || posting.Amount.Sign() < 0) {
			return ofItem(code, uint32(i))
		}
		at := slices.IndexFunc(s.parts, func(p part) bool {
			return p.account == posting.Account && p.asset == posting.Asset
		})
		if at < 0 {
			s.parts = append(s.parts, part{account: posting.Account, asset: posting.Asset,
				net: posting.Amount, item: uint32(i)})
			continue
		}
		sum, err := s.parts[at].net.Add(posting.Amount)
		if err != nil {
			return ofItem(ledger.Overflow, uint32(i))
		}
		s.parts[at].net = sum
		if first := &t.Postings[s.parts[at].item]; first.Amount.Sign() >= 0 &&
			posting.Amount.Sign() < 0 {
			s.parts[at].item = uint32(i)
		}
	}
	return applied
}

// attemptHold decides on one part, assuming that the parts before it are held.
func (s *State) attemptHold(index int) ledger.Code {
	p := &s.parts[index]
	found := s.find(p.account)
	if p.net.Sign() == 0 {
		return ledger.Applied
	}
	if _, has := found.find(p.asset); !has {
		// Earlier parts of this transaction may also need new assets in this account.
		assets, more := len(found.balances)+found.reserved(p.asset), uint64(0)
		if s.fault == FaultReservedIgnored {
			assets = len(found.balances)
		}
		for i := range s.parts[:index] {
			earlier := &s.parts[i]
			if earlier.account.Organisation() != p.account.Organisation() || !s.isNew(earlier) ||
				s.fault == FaultNewAssetsAlone {
				continue
			}
			if more++; earlier.account == p.account {
				assets++
			}
		}
		if assets >= s.assetsMax {
			return ledger.TooManyAssets
		}
		if s.isNew(p) && !s.roomForAsset(found, more) {
			return ledger.AssetQuota
		}
	}
	balance := found.balance(p.asset)
	setAside, incoming := found.held(p.asset)
	// The balance must not overflow even if all incoming amounts arrive.
	if p.net.Sign() > 0 {
		incoming, err := incoming.Add(p.net)
		if err == nil {
			_, err = balance.Add(incoming)
		}
		if err != nil {
			return ledger.Overflow
		}
		return ledger.Applied
	}
	// The outgoing amount is negative, so subtracting it increases the amount set aside.
	setAside, err := setAside.Sub(p.net)
	if err != nil {
		return ledger.Overflow
	}
	spendable, err := balance.Sub(setAside)
	switch {
	case err != nil:
		return ledger.Overflow
	case !found.issuer && spendable.Sign() < 0:
		return ledger.InsufficientFunds
	}
	return ledger.Applied
}

// isNew reports whether a part needs an asset that its account neither has nor waits for.
func (s *State) isNew(p *part) bool {
	found := s.find(p.account)
	_, has := found.find(p.asset)
	_, holds := found.hold(p.asset)
	return p.net.Sign() != 0 && !has && !holds
}

// setAside holds the parts that attemptPart collected and allowed, and adds the transaction, at its
// place, to those that wait for the other shards.
func (s *State) setAside(id ledger.Hash, t *ledger.Transaction, others []ledger.ShardID) {
	entry := &pending{id: id, height: s.height, index: s.index, waits: make([]wait, len(others)),
		parts: slices.Clone(s.parts)}
	if s.charter.Quotas.Pending > 0 {
		entry.signer = ledger.OrganisationName(strings.Clone(string(t.Signer)))
	}
	for i, other := range others {
		entry.waits[i].shard = other
	}
	if e := t.HoldEnd; e != nil && s.HomeShard(e.From.Organisation()) == s.shard {
		s.beginEnding(id, t)
	}
	for i := range entry.parts {
		p := &entry.parts[i]
		found := s.find(p.account)
		p.account, p.asset = found.path, s.assetNames.kept(p.asset)
		s.changeHold(found, p, false)
	}
	s.commitSpending()
	for i := range t.Records {
		record := &t.Records[i]
		if s.HomeShard(record.Key.Organisation()) == s.shard {
			entry.records = append(entry.records,
				pendingRecord{key: ledger.RecordKey(strings.Clone(string(record.Key))),
					item: uint32(i), digest: sha256.Sum256(record.Value)})
		}
	}
	if t.TakesNonce() && s.HomeShard(t.Signer) == s.shard {
		s.takeNonce(t)
	}
	if t.Details != nil {
		s.keepDetails(id, t, true)
	}
	s.addPending(entry)
}

// changeHold adds a part to the account's hold, or takes it back.
func (s *State) changeHold(found *account, p *part, back bool) {
	if p.net.Sign() == 0 {
		return
	}
	s.touchAccount(found)
	before, owed := found.pairs(), found.owes(p.asset)
	defer func() {
		s.countIssuance(found, p.asset, owed)
		s.count(found.path.Organisation()).Assets += found.pairs() - before
	}()
	at, exists := found.hold(p.asset)
	if !exists {
		if back {
			panic("ledger: a hold of " + string(found.path) + " is given back that is not there")
		}
		found.setRare(found.alias(), slices.Insert(found.holds(), at, hold{asset: p.asset}))
	}
	h := &found.rare.holds[at]
	var err error
	switch outgoing := p.net.Sign() < 0; {
	case outgoing && back:
		h.setAside, err = h.setAside.Add(p.net)
	case outgoing:
		h.setAside, err = h.setAside.Sub(p.net)
	case back:
		h.incoming, err = h.incoming.Sub(p.net)
	default:
		h.incoming, err = h.incoming.Add(p.net)
	}
	if err != nil || h.setAside.Sign() < 0 || h.incoming.Sign() < 0 {
		panic("ledger: a hold of " + string(found.path) + " leaves its bounds")
	}
	if h.setAside.Sign() == 0 && h.incoming.Sign() == 0 {
		found.setRare(found.alias(), slices.Delete(found.rare.holds, at, at+1))
	}
}
