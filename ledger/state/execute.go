package state

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// applied is the result of a transaction that took effect.
var applied = whole(ledger.Applied)

// whole returns a result that concerns the transaction as a whole.
func whole(code ledger.Code) ledger.Result {
	return ledger.Result{Code: code, Item: ledger.NoItem}
}

// ofItem returns a result that refers to one item of the transaction.
func ofItem(code ledger.Code, item uint32) ledger.Result {
	return ledger.Result{Code: code, Item: item}
}

// execution is the part of a state that is used while a block is executed.
type execution struct {
	height ledger.Height
	round  ledger.Round
	time   ledger.Milliseconds
	index  uint32
	// id is that of the current transaction, unless it is a transfer of a packed bundle.
	id      ledger.Hash
	counter uint64
	history []HistoryChange

	// arena holds the encodings that the current block needs. arenaSize is the size that the
	// previous block needed, without those of accounts if they are in the tree, of which one needed
	// entrySize.
	arena     []byte
	arenaSize int
	entrySize int
	// kept are the places in the arena of the encodings from before the block.
	kept                 []kept
	touchedAccounts      []*account
	settledAccounts      []settledAccount // of the current block, in the order of touchedAccounts
	touchedOrganisations []*organisation
	touchedWindows       []*window
	touchedRecords       []*record
	touchedMembers       []*member
	touchedCancelled     []*cancelled
	touchedSchedules     []*scheduled
	seeds                []Seed
	// replaced are the terms and assets that the current block replaced, replacedAccounts the
	// numbers of the accounts among them.
	replaced         []Replaced
	replacedAccounts map[uint64]struct{}
	counted          []*use

	// found are the accounts of the postings of this transaction and the next ones, as far as they
	// were open when look looked. looked is the memory for them. It is cleared after use, because a
	// path of a block keeps the memory of its whole batch.
	found, looked []lookup
	// prepared are the accounts of the postings and tables of a draft, preparedFor, in their order
	// and as far as Wanted found them. They hold until an account is removed.
	prepared    []lookup
	preparedFor *Draft
	table       table

	undo undoLog
	// trying says that a transaction is only tried: it is rolled back also if it could take effect.
	trying bool
	last
	shardExecution
}

// last holds what was found last. Most transactions in a bundle have the same signer and stream,
// and comparing a name is cheaper than looking it up.
type last struct {
	organisation *organisation
	window       *window
}

// organisation returns an organisation, or nil if the name is not registered. Only execution may
// call it, because it writes.
func (s *State) organisation(name ledger.OrganisationName) *organisation {
	if found := s.last.organisation; found != nil && found.Name == name {
		return found
	}
	found := s.organisations[name]
	if found != nil {
		s.last.organisation = found
	}
	return found
}

// window returns the window of a transaction's stream, or nil if the stream is new. Only execution
// may call it, because it writes.
func (s *State) window(t *ledger.Transaction) *window {
	if found := s.last.window; found != nil && found.stream == t.Nonce.Stream &&
		found.organisation == t.Signer {
		return found
	}
	found := s.windows[windowKey{t.Signer, t.Nonce.Stream}]
	if found != nil {
		s.last.window = found
	}
	return found
}

// fresh is Fresh for the execution of a transaction.
func (s *State) fresh(t *ledger.Transaction) bool {
	found := s.window(t)
	return found == nil || found.fresh(t.Nonce.Sequence)
}

// undoLog holds the steps that undo a failed transaction: for each kind, in the order in which they
// were made.
type undoLog struct {
	registered []ledger.OrganisationName
	opened     []*account
	posted     []posted
	issuing    []issuing
	// lifted is the hold that the transaction ends.
	lifted   lifted
	spending []spending
	// aliased are accounts whose opening gave them an alias.
	aliased []*account
}

type posted struct {
	account  *account
	asset    ledger.AssetName
	place    int
	before   ledger.Amount
	inserted bool
}

// Execute executes a draft on the state, one transaction after another. Each is applied as a whole
// or fails as a whole. Execute returns the complete block and the changes that it made to the
// state. The accounts that Wanted returns must have been admitted.
func (s *State) Execute(draft *Draft) (*ledger.Block, *Changes) {
	block := &draft.block
	if s.preparedFor != draft {
		s.prepared = nil
	}
	s.begin(&block.Header)
	s.expireHolds()
	s.lapseDetails()
	s.lapseSchedules()
	due := s.missesDue(block)
	s.history = make([]HistoryChange, 0, 2*block.Len())
	var crossings Crossings
	if s.tree == nil {
		s.executeEntries(block)
	} else {
		crossings = s.executeShard(block)
	}
	s.forgetCancelled()
	changes := s.finish()
	changes.Crossings = crossings
	changes.OutOfPlace += due
	block.Header.ByBundle = s.Version() >= ledger.PackedVersion
	block.Complete(s.stateDigest)
	s.forgetPrepared()
	return block, changes
}

// lookAhead is how many transactions' accounts are looked up at once.
const lookAhead = 64

// executeEntries executes the entries of a block, in a book of one shard.
func (s *State) executeEntries(block *ledger.Block) {
	for first, part := range block.Parts() {
		if part.Packed != nil {
			s.executeTransfers(first, part.Packed)
			continue
		}
		for some := range slices.Chunk(part.Unpacked, lookAhead) {
			s.executeUnpacked(block, first, some)
			first += len(some)
		}
	}
}

// executeUnpacked executes entries of a block, the first of which has this index there.
func (s *State) executeUnpacked(block *ledger.Block, first int, entries []ledger.Entry) {
	s.look(entries)
	for i := range entries {
		entry := &entries[i]
		s.index, s.id = uint32(first+i), entry.ID
		bundle := &block.Bundles[entry.Bundle]
		entry.Result = s.applyUnpacked(entry, bundle)
		s.found = s.found[len(entry.Decoded.Postings):]
	}
	if s.prepared == nil {
		clear(s.looked)
	}
}

// look finds the accounts of the next transactions, which takes less time together.
func (s *State) look(entries []ledger.Entry) {
	if s.prepared != nil {
		count := 0
		for i := range entries {
			count += len(entries[i].Decoded.Postings)
		}
		s.found = s.lookAgain(count)
		return
	}
	s.looked = s.looked[:0]
	for i := range entries {
		postings := entries[i].Decoded.Postings
		for j := range postings {
			s.looked = append(s.looked, lookup{path: postings[j].Account})
		}
	}
	s.accounts.findAll(s.looked)
	s.found = s.looked
}

// lookAgain returns the next accounts of those that Wanted has found for the draft; nil if it was
// not asked. It reads both lines of each account together, which may have left the processor's
// cache.
func (s *State) lookAgain(count int) []lookup {
	if s.prepared == nil {
		return nil
	}
	some := s.prepared[:count]
	s.prepared = s.prepared[count:]
	for i := range some {
		l := &some[i]
		l.maybe = l.found != nil && len(l.found.path) > 0 && l.found.number > 0
	}
	return some
}

// account returns the account of a posting of this transaction, or nil.
func (s *State) account(t *ledger.Transaction, posting int) *account {
	if posting < len(s.found) && s.found[posting].found != nil {
		return s.found[posting].found
	}
	return s.find(t.Postings[posting].Account)
}

func (s *State) begin(header *ledger.Header) {
	s.height, s.round, s.time = header.Height, header.Round, header.Time
	s.arena = make([]byte, 0, max(1024, s.arenaSize))
	s.kept = s.kept[:0]
	s.undo.clear()
}

func (u *undoLog) clear() {
	u.registered, u.opened, u.posted, u.issuing = u.registered[:0], u.opened[:0], u.posted[:0],
		u.issuing[:0]
	u.lifted = lifted{}
	u.spending, u.aliased = u.spending[:0], u.aliased[:0]
}

// apply executes one transaction, all or nothing.
func (s *State) apply(t *ledger.Transaction, root ledger.Hash,
	signatures []ledger.Signature) ledger.Result {
	s.counter++
	s.undo.clear()
	touched := len(s.touchedAccounts)
	result := s.attempt(t, root, signatures)
	if !result.OK() || s.trying && s.fault != FaultTrialStays {
		s.rollback(touched)
		return result
	}
	s.commit(t)
	return result
}

func (s *State) attempt(t *ledger.Transaction, root ledger.Hash,
	signatures []ledger.Signature) ledger.Result {
	named := &s.ledger
	if t.Change != nil {
		named = &s.chain
	}
	switch {
	case t.Ledger != *named:
		return whole(ledger.WrongLedger)
	case t.Verdict != nil:
		return whole(ledger.OutOfPlace)
	case t.LastValid != 0 && s.height > t.LastValid:
		return whole(ledger.Expired)
	case s.deadlinePassed(t):
		return whole(ledger.DeadlinePassed)
	case t.Cancellation != nil:
		return whole(s.attemptCancellation(t, signatures))
	case s.isCancelled(&s.id, t):
		return whole(ledger.Cancelled)
	case t.Change != nil:
		return s.attemptChange(t, root, signatures)
	case t.Policy != nil:
		return whole(s.attemptPolicy(t, root, signatures))
	case t.Charter != nil:
		return whole(mayChangeCharter(&s.charter.Charter, t, root, signatures))
	case t.Book != nil:
		return s.attemptBookChange(t, root, signatures)
	case t.Asset != nil:
		return s.attemptAsset(t, root, signatures)
	case t.Account != nil:
		return s.attemptTerms(t, root, signatures)
	case t.Schedule != nil, t.ScheduleEnd != nil:
		return whole(s.attemptScheduling(t, signatures))
	}
	if (t.Hold != nil || t.HoldEnd != nil) && !ledger.TakesHolds(s.Version()) {
		return whole(ledger.OutOfPlace) // sealing leaves it out before the chain has the version
	}
	if t.Details != nil && !ledger.TakesDetails(s.Version()) {
		return whole(ledger.OutOfPlace)
	}
	for i := range t.Registrations {
		if code := s.register(&t.Registrations[i], signatures); code != ledger.Applied {
			return ofItem(code, uint32(i))
		}
	}
	if code := s.authorised(t.Signer, t, signatures); code != ledger.Applied {
		return whole(code)
	}
	if t.TakesNonce() && !s.fresh(t) {
		return whole(ledger.StaleNonce)
	}
	if t.TakesNonce() && !s.roomForStream(t) {
		return whole(ledger.StreamQuota)
	}
	if t.Hold != nil {
		return s.attemptPlacing(t)
	}
	if result := s.attemptDetails(t); result.Code != ledger.Applied {
		return result
	}
	if t.HoldEnd != nil {
		if code := s.liftAll(t); code != ledger.Applied {
			return whole(code)
		}
	}
	if len(t.Postings) == 1 || len(t.Postings)+len(t.Records)+len(t.Openings)+
		len(t.Registrations) == 0 && t.HoldEnd == nil {
		return whole(ledger.Unbalanced)
	}
	if _, err := t.Balanced(); err == ledger.ErrOverflow {
		return whole(ledger.Overflow)
	} else if err != nil {
		return whole(ledger.Unbalanced)
	}
	for i := range t.Openings {
		if code := s.open(&t.Openings[i], t, signatures); code != ledger.Applied {
			return ofItem(code, uint32(i))
		}
	}
	for i := range t.Postings {
		if code := s.post(i, t, signatures); code != ledger.Applied {
			return ofItem(code, uint32(i))
		}
	}
	if short, found := s.overdrawn(t); found {
		return ofItem(ledger.InsufficientFunds, short)
	}
	if result := s.attemptAllowed(t); result.Code != ledger.Applied {
		return result
	}
	if result := s.attemptIssue(t); result.Code != ledger.Applied {
		return result
	}
	for i := range t.Records {
		owner := t.Records[i].Key.Organisation()
		if code := s.authorised(owner, t, signatures); code != ledger.Applied {
			return ofItem(code, uint32(i))
		}
	}
	if item, full := s.roomForRecords(t); full {
		return ofItem(ledger.RecordQuota, item)
	}
	return applied
}

// authorised returns Applied if an organisation is registered and has signed the transaction with
// its present keys, as its policy asks.
func (s *State) authorised(name ledger.OrganisationName, t *ledger.Transaction,
	signatures []ledger.Signature) ledger.Code {
	found := s.organisation(name)
	if found == nil {
		return ledger.UnknownOrganisation
	}
	if t.Occurrence != nil && name == t.Signer {
		return ledger.Applied // it signed the schedule
	}
	if found.Policy == nil {
		return found.Consents(t, signatures)
	}
	// A transaction asks for each of its items, and the answer depends on all of them.
	if found.asked != s.counter {
		found.asked, found.consent = s.counter, found.Consents(t, signatures)
	}
	return found.consent
}

func (s *State) register(r *ledger.Registration, signatures []ledger.Signature) ledger.Code {
	if found := s.organisations[r.Name]; found != nil {
		if !slices.Equal(found.Keys, r.Keys) ||
			!s.hasMoved(r.Name) && (found.Pinned != r.Pinned || found.Shard != r.Shard) {
			return ledger.OrganisationExists
		}
		return ledger.Applied
	}
	if !ledger.HasSigned(signatures, r.Name, r.Keys) {
		return ledger.Unauthorised
	}
	if s.charter.RegistrationByOperators && !s.charter.Consents(signatures) {
		return ledger.Unauthorised
	}
	name := ledger.OrganisationName(strings.Clone(string(r.Name)))
	created := &organisation{Organisation: ledger.Organisation{Name: name, Keys: r.Keys,
		Shard: r.Shard, Pinned: r.Pinned, Registered: s.height}}
	created.mark = mark{touched: true}
	s.settleHome(created)
	s.organisations[name] = created
	s.touchedOrganisations = append(s.touchedOrganisations, created)
	s.undo.registered = append(s.undo.registered, name)
	return ledger.Applied
}

func (s *State) open(o *ledger.Opening, t *ledger.Transaction,
	signatures []ledger.Signature) ledger.Code {
	if code := s.authorised(o.Account.Organisation(), t, signatures); code != ledger.Applied {
		return code
	}
	if found := s.find(o.Account); found != nil {
		if found.stands().Closed {
			return ledger.AccountClosed
		}
		if found.issuer != o.Issuer || found.alias() != o.Alias {
			return ledger.AccountExists
		}
		return ledger.Applied
	}
	if !s.aliases.free(o.Account.Organisation(), o.Alias, "") {
		return ledger.AliasTaken
	}
	counts := s.count(o.Account.Organisation())
	if !within(s.charter.Quotas.Accounts, counts.Accounts, 1) {
		return ledger.AccountQuota
	}
	counts.Accounts++
	s.opened++
	created := s.accounts.add(o.Account) // commit keeps the path
	created.number, created.issuer, created.opened = s.opened, o.Issuer, s.height
	created.setRare(strings.Clone(o.Alias), nil)
	if o.Alias != "" && ledger.TakesAccountTerms(s.Version()) {
		// The opening says that the account has the alias, so it is the first of its terms.
		created.setStanding(&ledger.AccountStanding{Revision: 1})
		s.setAlias(o.Account, o.Alias, o.Account)
		s.undo.aliased = append(s.undo.aliased, created)
	}
	created.mark = mark{touched: true}
	s.touchedAccounts = append(s.touchedAccounts, created)
	s.undo.opened = append(s.undo.opened, created)
	return ledger.Applied
}

func (s *State) post(item int, t *ledger.Transaction, signatures []ledger.Signature) ledger.Code {
	p, found := &t.Postings[item], s.account(t, item)
	if found == nil {
		return ledger.UnknownAccount
	}
	if code := found.takesPostings(); code != ledger.Applied && !t.TakesHeld(p) {
		return code
	}
	if t.Takes(p) {
		if code := s.authorised(p.Account.Organisation(), t, signatures); code != ledger.Applied {
			return code
		}
	}
	if s.refuses(p, t, signatures) {
		return ledger.AssetRefused
	}
	place, held := found.find(p.Asset)
	if !held && len(found.balances)+found.reserved(p.Asset) >= s.assetsMax {
		return ledger.TooManyAssets
	}
	more := false
	if !held {
		_, holds := found.hold(p.Asset)
		if more = !holds; more && !s.roomForAsset(found, 0) {
			return ledger.AssetQuota
		}
	}
	var before ledger.Amount
	if held {
		before = found.balances[place].amount
	}
	after, err := before.Add(p.Amount)
	if err != nil || !found.fits(p.Asset, after) {
		return ledger.Overflow
	}
	s.touchAccount(found)
	if !held {
		found.insert(place, s.assetNames.kept(p.Asset))
	}
	found.balances[place].amount = after
	if more {
		s.count(found.path.Organisation()).Assets++
	}
	s.undo.posted = append(s.undo.posted, posted{account: found, asset: p.Asset, place: place,
		before: before, inserted: !held})
	return ledger.Applied
}

// overdrawn returns the first posting that takes from an account that is no issuer and ends below
// zero. The postings are the last steps of the undo log.
func (s *State) overdrawn(t *ledger.Transaction) (uint32, bool) {
	steps := s.undo.posted[len(s.undo.posted)-len(t.Postings):]
	for i := range t.Postings {
		posting := &t.Postings[i]
		if posting.Amount.Sign() >= 0 {
			continue
		}
		if found := steps[i].account; !found.issuer &&
			found.spendable(posting.Asset).Sign() < 0 {
			return uint32(i), true
		}
	}
	return 0, false
}

// commit takes the nonce and performs the steps that cannot fail.
func (s *State) commit(t *ledger.Transaction) {
	if t.TakesNonce() {
		s.takeNonce(t)
	}
	if t.Change != nil {
		s.changeMembership(t.Change)
	}
	if t.Policy != nil {
		s.changePolicy(t)
	}
	if t.Charter != nil {
		s.changeCharter(t.Charter)
	}
	if t.Book != nil {
		s.changeBook(t.Book)
	}
	if t.Cancellation != nil {
		s.cancel(t)
	}
	if t.Asset != nil {
		s.changeAsset(t)
	}
	if t.Hold != nil {
		s.place(t)
	}
	if t.HoldEnd != nil {
		s.end(s.undo.lifted.of)
	}
	if t.Account != nil {
		s.changeTerms(t.Account, t.Account.Guards(t.Signer))
	}
	s.commitSchedule(t)
	if t.Details != nil {
		s.keepDetails(s.id, t, false)
	}
	s.commitIssuing()
	s.commitSpending()
	for _, opened := range s.undo.opened {
		opened.path = s.keptPath(opened.path)
	}
	for i := range s.undo.posted {
		s.countHistory(s.undo.posted[i].account)
	}
	for i := range t.Records {
		s.writeRecord(t.Records[i].Key, RecordPlace{Height: s.height, Index: s.index,
			Item: uint32(i), Digest: sha256.Sum256(t.Records[i].Value)})
	}
}

// takeNonce marks a transaction's nonce as applied.
func (s *State) takeNonce(t *ledger.Transaction) {
	found := s.window(t)
	if found == nil {
		key := windowKey{ledger.Operator, t.Nonce.Stream}
		if signer := s.organisation(t.Signer); signer != nil {
			key.organisation = signer.Name
		}
		found = &window{organisation: key.organisation, stream: key.stream, empty: true}
		s.windows[key] = found
		s.use(key.organisation).Streams++
	}
	s.touchWindow(found)
	found.set(t.Nonce.Sequence)
}

// countHistory adds the current transaction to an account's history, once.
func (s *State) countHistory(touched *account) {
	if touched.counted == s.counter {
		return
	}
	touched.counted = s.counter
	s.history = append(s.history, NewHistoryChange(touched.number, touched.history, s.index))
	touched.history++
}

// writeRecord records place as the place of a record's value, unless the record already has a
// greater place.
func (s *State) writeRecord(key ledger.RecordKey, place RecordPlace) {
	found := s.records[key]
	isNew := found == nil
	switch {
	case isNew:
		found = &record{key: ledger.RecordKey(strings.Clone(string(key)))}
		s.records[found.key] = found
		s.use(found.key.Organisation()).Records++
	case comparePlaces(place.Height, place.Index, found.Height, found.Index) < 0:
		return
	}
	s.touchRecord(found, isNew)
	found.RecordPlace = place
}

// rollback undoes the steps of a failed transaction. Before it, so many accounts were touched.
func (s *State) rollback(touched int) {
	for _, step := range slices.Backward(s.undo.posted) {
		if step.inserted {
			before := step.account.pairs()
			step.account.balances = slices.Delete(step.account.balances, step.place, step.place+1)
			s.count(step.account.path.Organisation()).Assets -= before - step.account.pairs()
		} else {
			step.account.balances[step.place].amount = step.before
		}
	}
	if s.undo.lifted.of != nil {
		s.lower(&s.undo.lifted)
	}
	for _, each := range s.undo.aliased {
		s.setAlias(each.path, each.alias(), "")
	}
	s.close(s.undo.opened, touched)
	for _, name := range s.undo.registered {
		delete(s.organisations, name)
		s.last.organisation = nil
	}
	s.undo.clear()
}

// close undoes the opening of the last accounts, which are among those touched from a position on.
func (s *State) close(opened []*account, touched int) {
	if len(opened) == 0 {
		return
	}
	s.opened -= uint64(len(opened))
	rest := slices.DeleteFunc(s.touchedAccounts[touched:], func(each *account) bool {
		return each.number > s.opened
	})
	s.touchedAccounts = s.touchedAccounts[:touched+len(rest)]
	for _, each := range slices.Backward(opened) {
		s.count(each.path.Organisation()).Accounts--
		s.accounts.remove(each)
	}
}
