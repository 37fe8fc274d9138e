package state

import (
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// Holds on accounts (ledger.Hold). A hold lives where its account does. It is part of what is set
// aside of the account, beside what transactions that wait for other shards take.
//
// What always holds:
//
//   - What is set aside of an account is the sum of what waiting transactions may take of it and of
//     its holds, each less what a waiting transaction posts of it. So what is held is never spent.
//   - A hold ends once: when a posting or a voiding takes effect, or when it expires. One that a
//     waiting transaction is about to end does not expire, and nothing else ends it.
//   - If that transaction is released, the hold is as it was before. Nothing else could take the
//     amount in between.
//   - Holds of an organisation that moves away are frozen at its old home, and go on at the new
//     one. They never expire on the way.
//   - What ended leaves the state, so the state is bounded by the holds that are open.

// Bounds of the holds that a shard has open, as those of cancellations.
const (
	// MaxHolds bounds those of one organisation.
	MaxHolds = 1 << 14
	// SureHolds is how many each organisation may have, whatever others have.
	SureHolds = 1 << 4
	// MaxAllHolds bounds those of all organisations beyond these.
	MaxAllHolds = 1 << 18
)

// expiredAtOnce bounds how many holds expire at the beginning of one block. Those that it leaves
// can be posted no more, and expire in later blocks.
const expiredAtOnce = 1 << 10

// kindHold is the kind of the entry of a hold. Arrivals come in the order of their entries, so it
// is above those of accounts and issuances, which a hold changes.
const kindHold = 'w'

// held is a hold, as an entry of the state.
type held struct {
	ID ledger.Hash
	ledger.Hold
	// ending is the id of the transaction that waits for other shards and is about to end the hold,
	// or zero. posted is what it posts, which counts as that transaction's.
	ending ledger.Hash
	posted ledger.Amount
	// place is that in the heap, or -1. ended says that the hold has left the state.
	place int
	ended bool
	mark  mark
}

// holdSet are the holds that are open.
type holdSet struct {
	by map[ledger.Hash]*held
	// ending are those that waiting transactions are about to end, by the ids of these.
	ending map[ledger.Hash]*held
	// next has the hold that expires first at its beginning.
	next holdHeap
	// of counts those of each organisation that lives here, and shared those beyond the first sure
	// ones of each. Those of organisations that moved away stay, and take no room of others.
	of                 holdCounts
	shared             int
	sure, ofOne, ofAll int
	touched            []*held
}

// holdCounts count the holds of organisations.
type holdCounts map[ledger.OrganisationName]int

func newHoldSet() holdSet {
	return holdSet{by: make(map[ledger.Hash]*held), ending: make(map[ledger.Hash]*held),
		of: make(holdCounts), sure: SureHolds, ofOne: MaxHolds, ofAll: MaxAllHolds}
}

// holdHeap is a heap by expiry, and then by id, so that all members expire the same ones.
type holdHeap []*held

func (h holdHeap) Len() int { return len(h) }

func (h holdHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].Expires, h[j].Expires),
		bytes.Compare(h[i].ID[:], h[j].ID[:])) < 0
}

func (h holdHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push adds a hold. It is for container/heap.
func (h *holdHeap) Push(each any) {
	added := each.(*held)
	added.place = len(*h)
	*h = append(*h, added)
}

// Pop removes and returns the last hold. It is for container/heap.
func (h *holdHeap) Pop() any {
	last := (*h)[len(*h)-1]
	last.place = -1
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}

// Held is a hold that is open.
type Held struct {
	ID ledger.Hash
	ledger.Hold
	// Ending is the id of the transaction that waits for other shards and is about to end the hold,
	// or zero. Posted is what it posts.
	Ending ledger.Hash
	Posted ledger.Amount
}

func (h *held) public() Held {
	return Held{ID: h.ID, Hold: h.Hold, Ending: h.ending, Posted: h.posted}
}

// Hold returns a hold that is open in this shard, read-only. At an old home of an organisation that
// moved, its holds are as they were.
func (s *State) Hold(id ledger.Hash) (Held, bool) {
	if found := s.held.by[id]; found != nil {
		return found.public(), true
	}
	return Held{}, false
}

// HoldsOf returns the holds that are open on an account, or of an organisation if the account has
// no more than its name, by expiry and then by id. It visits all holds.
func (s *State) HoldsOf(owner ledger.OrganisationName, path ledger.AccountPath) (of []Held) {
	for _, each := range s.held.by {
		if each.From.Organisation() == owner && (path == "" || each.From == path) {
			of = append(of, each.public())
		}
	}
	slices.SortFunc(of, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.Expires, b.Expires), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return of
}

// HoldCount returns the number of holds that are open.
func (s *State) HoldCount() int { return len(s.held.by) }

// outgoing returns the part that takes an amount of the hold's account.
func (h *held) outgoing(amount ledger.Amount) part {
	return part{account: h.From, asset: h.Asset, net: ledger.Amount{}.Minus(amount),
		item: ledger.NoItem}
}

// attemptPlacing decides on a hold, given that its signer consents and its nonce is fresh. It
// changes nothing.
func (s *State) attemptPlacing(t *ledger.Transaction) ledger.Result {
	h := t.Hold
	if s.organisations[h.Poster] == nil {
		return whole(ledger.UnknownOrganisation)
	}
	if h.Expires <= s.time || h.Expires-s.time > ledger.MaxHoldTime {
		return whole(ledger.HoldTime)
	}
	found := s.find(h.From)
	if found == nil {
		return whole(ledger.UnknownAccount)
	}
	if code := found.takesPostings(); code != ledger.Applied {
		return whole(code)
	}
	if has := s.held.of[t.Signer]; has >= s.held.sure &&
		(has >= s.held.ofOne || s.held.shared >= s.held.ofAll) {
		return whole(ledger.TooManyHolds)
	}
	one := held{Hold: *h}
	s.parts = append(s.parts[:0], one.outgoing(h.Amount))
	if code := s.attemptHold(0); code != ledger.Applied {
		return whole(code)
	}
	if result := s.attemptAllowedParts(t); result.Code != ledger.Applied {
		return result
	}
	result := s.attemptIssueParts()
	s.undo.issuing = s.undo.issuing[:0] // setting it aside counts it
	return result
}

// place places a hold that attemptPlacing allowed.
func (s *State) place(t *ledger.Transaction) {
	found := s.find(t.Hold.From)
	placed := &held{ID: s.id, Hold: *t.Hold, mark: mark{touched: true}}
	placed.From, placed.Asset = found.path, s.assetNames.kept(t.Hold.Asset)
	placed.Poster = s.organisations[t.Hold.Poster].Name
	placed.To = slices.Clone(t.Hold.To)
	for i := range placed.To {
		placed.To[i] = ledger.AccountPath(strings.Clone(string(placed.To[i])))
	}
	s.addHold(placed)
	s.held.touched = append(s.held.touched, placed)
	if p := placed.outgoing(placed.Amount); s.fault != FaultHoldFree {
		s.changeHold(found, &p, false)
	}
}

// addHold adds a hold to those that are open. Those of an organisation that moved away are frozen.
func (s *State) addHold(added *held) {
	s.held.by[added.ID] = added
	s.countHold(added, 1)
	added.place = -1
	if added.ending != (ledger.Hash{}) {
		s.held.ending[added.ending] = added
	} else {
		s.expireLater(added)
	}
}

// expireLater lets a hold expire in its time, if it lives here.
func (s *State) expireLater(one *held) {
	if s.livesOn(one) {
		heap.Push(&s.held.next, one)
	}
}

// livesOn reports whether the home of a hold's organisation is this shard.
func (s *State) livesOn(one *held) bool {
	return s.tree == nil || s.HomeShard(one.From.Organisation()) == s.shard
}

// countHold counts a hold that lives here, or one less. The holds of an organisation that moves
// away do not count any more.
func (s *State) countHold(one *held, more int) {
	if s.livesOn(one) {
		s.countHolds(one.From.Organisation(), more)
	}
}

// countHolds counts so many more holds of an organisation.
func (s *State) countHolds(of ledger.OrganisationName, more int) {
	before := s.held.of[of]
	s.held.shared += max(0, before+more-s.held.sure) - max(0, before-s.held.sure)
	if s.held.of[of] = before + more; before+more == 0 {
		delete(s.held.of, of)
	}
}

// freezeHolds lets no hold of an organisation expire any more, or count: it moves away.
func (s *State) freezeHolds(of ledger.OrganisationName) {
	count := s.held.of[of]
	if count == 0 || s.fault == FaultHoldThaws {
		return
	}
	s.countHolds(of, -count)
	for _, each := range s.held.by {
		if each.place >= 0 && each.From.Organisation() == of {
			heap.Remove(&s.held.next, each.place)
		}
	}
}

// endsHolds reports whether a waiting transaction is about to end a hold of an organisation.
func (s *State) endsHolds(of ledger.OrganisationName) bool {
	for _, each := range s.held.ending {
		if each.From.Organisation() == of {
			return true
		}
	}
	return false
}

// attemptEnd returns the hold that a transaction is to end in this shard at a time, and how much it
// posts. It changes nothing.
func (s *State) attemptEnd(t *ledger.Transaction, at ledger.Milliseconds) (*held, ledger.Amount,
	ledger.Code) {
	e, posted := t.HoldEnd, ledger.Amount{}
	found := s.held.by[e.Hold]
	switch {
	case found == nil || found.From != e.From:
		return nil, posted, ledger.UnknownHold
	case found.Poster != t.Signer && s.fault != FaultHoldByAnyone:
		return nil, posted, ledger.HoldDiffers
	case found.ending != (ledger.Hash{}) && s.fault != FaultHoldEndsTwice:
		return nil, posted, ledger.HoldEnding
	case at >= found.Expires:
		return nil, posted, ledger.HoldOver
	case len(t.Postings) == 0:
		return found, posted, ledger.Applied
	}
	posted, err := t.Postings[0].Amount.Neg() // nobody holds as much as 128 bits do not hold
	if s.fault == FaultHoldExceeded && found.Amount.Compare(posted) < 0 {
		posted = found.Amount
	}
	if err != nil || posted.Compare(found.Amount) > 0 || t.Postings[0].Asset != found.Asset {
		return nil, ledger.Amount{}, ledger.HoldDiffers
	}
	for i := range t.Postings[1:] {
		if !slices.Contains(found.To, t.Postings[1+i].Account) {
			return nil, posted, ledger.HoldDiffers
		}
	}
	return found, posted, ledger.Applied
}

// lifted is an amount of a hold that is not set aside while a transaction that takes it is decided.
type lifted struct {
	of     *held
	amount ledger.Amount
	// issuer, at and issuance are what the registered asset says of the account's organisation.
	issuer   *asset
	at       int
	issuance ledger.Issuance
}

// lift takes an amount of a hold out of what is set aside.
func (s *State) lift(of *held, amount ledger.Amount) lifted {
	l, found := lifted{of: of, amount: amount}, s.find(of.From)
	if l.issuer, l.at = s.issuerOf(found, of.Asset); l.issuer != nil && l.at >= 0 {
		l.issuance = l.issuer.Issuances[l.at]
	}
	if p := of.outgoing(amount); s.fault != FaultHoldFree {
		s.changeHold(found, &p, true)
	}
	return l
}

// lower sets the amount aside again. Everything is as before.
func (s *State) lower(l *lifted) {
	p := l.of.outgoing(l.amount)
	s.changeHold(s.find(l.of.From), &p, false)
	if l.issuer != nil && l.at >= 0 {
		l.issuer.Issuances[l.at] = l.issuance
	}
}

// liftAll lifts the hold that a transaction within this shard ends.
func (s *State) liftAll(t *ledger.Transaction) ledger.Code {
	found, _, code := s.attemptEnd(t, s.time)
	if code == ledger.Applied {
		s.undo.lifted = s.lift(found, found.Amount)
	}
	return code
}

// attemptEndingParts is attemptParts for a transaction that ends a hold of this shard.
func (s *State) attemptEndingParts(t *ledger.Transaction) ledger.Result {
	found, posted, code := s.attemptEnd(t, s.time)
	if code != ledger.Applied {
		return whole(code)
	}
	l := s.lift(found, posted)
	result := s.attemptParts(t)
	s.lower(&l)
	return result
}

// beginEnding lets a transaction that was just allowed to wait take what it posts of a hold from
// it.
func (s *State) beginEnding(id ledger.Hash, t *ledger.Transaction) {
	found, posted, _ := s.attemptEnd(t, s.time)
	s.lift(found, posted)
	s.touchHold(found)
	found.ending, found.posted = id, posted
	s.held.ending[id] = found
	if found.place >= 0 && s.fault != FaultHoldEndingExpires {
		heap.Remove(&s.held.next, found.place)
	}
}

// goOn lets the hold go on that a released transaction was to end. What the transaction had set
// aside of it was just given back.
func (s *State) goOn(id ledger.Hash) {
	found := s.held.ending[id]
	if found == nil {
		return
	}
	s.touchHold(found)
	if found.posted.Sign() > 0 {
		p := found.outgoing(found.posted)
		s.changeHold(s.find(found.From), &p, false)
	}
	delete(s.held.ending, id)
	found.ending, found.posted = ledger.Hash{}, ledger.Amount{}
	s.expireLater(found)
}

// endAfter ends the hold that a transaction ends which takes effect. What it posts, it has already.
func (s *State) endAfter(id ledger.Hash) {
	if s.fault == FaultHoldGoesOn {
		s.goOn(id)
	}
	if found := s.held.ending[id]; found != nil {
		delete(s.held.ending, id)
		s.lift(found, found.Amount.Minus(found.posted))
		s.end(found)
	}
}

// end removes a hold of which nothing is set aside any more.
func (s *State) end(found *held) {
	s.touchHold(found)
	found.ended = true
	if found.place >= 0 {
		heap.Remove(&s.held.next, found.place)
	}
	delete(s.held.by, found.ID)
	s.countHold(found, -1)
}

// dueHolds takes the holds that expire with a block of this time, in their order, out of those that
// expire later.
func (s *State) dueHolds(at ledger.Milliseconds) (due []*held) {
	if s.fault == FaultHoldEarly {
		at += impatience * 20
	}
	for len(s.held.next) > 0 && s.held.next[0].Expires <= at && len(due) < expiredAtOnce {
		due = append(due, heap.Pop(&s.held.next).(*held))
	}
	return due
}

// expireHolds ends the holds whose time is over. It runs before the entries of a block.
func (s *State) expireHolds() {
	for _, each := range s.dueHolds(s.time) {
		if s.fault != FaultHoldKept {
			s.lift(each, each.Amount)
		}
		s.end(each)
	}
}

// holds adds the accounts of the holds that expire with the draft.
func (w *wanting) holds(at ledger.Milliseconds) {
	due := w.state.dueHolds(at)
	for _, each := range due {
		w.others = append(w.others, lookup{path: each.From})
		heap.Push(&w.state.held.next, each)
	}
	w.lookSome()
}

// hold adds the account of the hold that the transaction places, ends, brings along, or decides on.
// Where a verdict decides or an arrival comes, the organisation may have moved on already.
func (w *wanting) hold(t *ledger.Transaction) {
	add := func(path ledger.AccountPath) { w.others = append(w.others, lookup{path: path}) }
	switch {
	case t.Hold != nil && !w.elsewhere(t.Hold.From):
		add(t.Hold.From)
	case t.HoldEnd != nil && !w.elsewhere(t.HoldEnd.From):
		add(t.HoldEnd.From)
	case t.Verdict != nil && w.state.fault != FaultHoldNotWanted:
		if found := w.state.held.ending[t.Verdict.ID]; found != nil {
			add(found.From)
		}
	case t.Arrival != nil:
		for i := range t.Arrival.Entries {
			if e := &t.Arrival.Entries[i]; e.Key[0] == kindHold {
				if arrives, err := read(e.Value).hold(e.Key); err == nil {
					add(arrives.From)
				}
			}
		}
	}
}

func (s *State) touchHold(found *held) {
	if !found.mark.touched {
		found.mark = s.keep(found.appendEntry)
		s.held.touched = append(s.held.touched, found)
	}
}

// finishHolds collects the changes of holds.
func (s *State) finishHolds(changes *Changes) {
	for _, each := range s.held.touched {
		if each.ended {
			s.remove(changes, each.mark)
		} else {
			s.settle(changes, each.mark, each.appendEntry)
		}
		each.mark = mark{}
	}
	clear(s.held.touched)
	s.held.touched = s.held.touched[:0]
}

// appendEntry appends the entry: the id; from, asset, amount, accounts, poster, expiry and, if a
// transaction is about to end the hold, its id and what it posts.
func (h *held) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = append(append(append(to, kindHold), h.ID[:]...), 0)
	keyLength = len(to) - start
	to = codec.AppendString(codec.AppendString(to, h.From), h.Asset)
	to = binary.AppendUvarint(appendAmount(to, h.Amount), uint64(len(h.To)))
	for i := range h.To {
		to = codec.AppendString(to, h.To[i])
	}
	to = binary.AppendUvarint(codec.AppendString(to, h.Poster), uint64(h.Expires))
	if h.ending == (ledger.Hash{}) {
		return to, keyLength
	}
	return appendAmount(append(to, h.ending[:]...), h.posted), keyLength
}

// hold reads the entry of a hold.
func (r *reader) hold(key []byte) (*held, error) {
	if len(key) != 1+ledger.HashSize+1 {
		return nil, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	path := func() ledger.AccountPath {
		return ledger.AccountPath(r.String("bytes of account", ledger.MaxAccountPath))
	}
	h := &held{Hold: ledger.Hold{From: path(), Asset: r.assetName(), Amount: r.amount()}, place: -1}
	copy(h.ID[:], key[1:])
	h.To = make([]ledger.AccountPath, r.Count("accounts", ledger.MaxHoldAccounts, 1))
	for i := range h.To {
		h.To[i] = path()
	}
	h.Poster, h.Expires = r.organisationName(), ledger.Milliseconds(r.Uvarint())
	if r.Err == nil && len(r.Data) > 0 {
		h.ending, h.posted = r.Hash(), r.amount()
		if h.ending == (ledger.Hash{}) {
			r.Fail("a hold that nothing ends")
		}
	}
	if r.Err == nil {
		if err := h.Validate(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrEntry, err)
		}
	}
	return h, nil
}

// restoreHold puts the entry of a hold into the state. It reports whether there was one already.
// Which organisations moved may not be known yet, so completeHolds counts it and lets it expire.
func (s *State) restoreHold(key []byte, r *reader) (of entry, again bool, err error) {
	restored, err := r.hold(key)
	if err != nil || s.held.by[restored.ID] != nil {
		return restored, err == nil, err
	}
	s.held.by[restored.ID] = restored
	return restored, false, nil
}

// completeHolds makes what follows from the holds after all entries were restored.
func (s *State) completeHolds() {
	s.held.of, s.held.shared = make(holdCounts), 0
	if s.held.next = s.held.next[:0]; s.fault == FaultHoldNotResumed {
		return
	}
	for _, each := range s.held.by {
		each.place = -1
		s.countHold(each, 1)
		if each.ending != (ledger.Hash{}) {
			s.held.ending[each.ending] = each
		} else {
			s.expireLater(each)
		}
	}
}

// takesHolds reports whether the accounts of the holds that arrive are here, or arrive with them.
func (s *State) takesHolds(all *arriving) bool {
	return !slices.ContainsFunc(all.held, func(each *held) bool {
		return s.held.by[each.ID] != nil || s.accounts.find(each.From) == nil &&
			!slices.ContainsFunc(all.accounts,
				func(a *account) bool { return a.path == each.From })
	})
}

// heldBy calls visit for the holds of an organisation, in no particular order.
func (s *State) heldBy(name ledger.OrganisationName, visit func(*held)) {
	for _, each := range s.held.by {
		if each.From.Organisation() == name && s.fault != FaultHoldLeft {
			visit(each)
		}
	}
}

// AppendHoldKey appends the key of the entry of a hold.
func AppendHoldKey(to []byte, id ledger.Hash) []byte {
	return append(append(append(to, kindHold), id[:]...), 0)
}

// IsHoldKey reports whether an entry with this key is one of a hold.
func IsHoldKey(key []byte) bool {
	return len(key) == 1+ledger.HashSize+1 && key[0] == kindHold
}

// HoldOfKey returns the id of the hold whose entry has a key.
func HoldOfKey(key []byte) ledger.Hash { return ledger.Hash(key[1 : 1+ledger.HashSize]) }

// DecodeHeld decodes the entry of a hold, or returns ErrEntry.
func DecodeHeld(key, value []byte) (Held, error) {
	if !IsHoldKey(key) {
		return Held{}, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	r := read(value)
	found, err := r.hold(key)
	if err != nil {
		return Held{}, err
	}
	if err := r.End(); err != nil {
		return Held{}, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	return found.public(), nil
}
