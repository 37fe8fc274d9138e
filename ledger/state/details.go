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

// Details of entries (ledger.Details): idempotency keys, and what is left of entries that can be
// refunded. Both live at the home of the signer of the entry, and are forgotten when their time is
// over.
//
// What always holds:
//
//   - Of the entries of an organisation with one idempotency key, no second one takes effect before
//     the first one's key is forgotten. A transaction that waits for other shards has the key. If
//     it is released, the key is free, as it was before.
//   - What refunds gave back of a posting, and what one that waits may give back, is never more
//     than the posting. So each refund takes its amounts from what is left when it is set aside,
//     and gives them back if it is released. One refund of an entry waits at a time.
//   - An entry can be refunded once it took effect, and not before.
//   - What a waiting transaction brought or changes is not forgotten before that is decided.
//   - What an organisation that moves away has is frozen at its old home, and goes on at the new
//     one.

// Bounds of the keys, and apart from them of the refundable entries, that a shard remembers.
const (
	// MaxDetails bounds those of one organisation.
	MaxDetails = 1 << 16
	// SureDetails is how many each organisation may have, whatever others have.
	SureDetails = 1 << 4
	// MaxAllDetails bounds those of all organisations beyond these.
	MaxAllDetails = 1 << 18
)

// lapsedAtOnce bounds how many keys and refundable entries are forgotten at the beginning of one
// block. Those that it leaves have no effect: their time is over.
const lapsedAtOnce = 1 << 12

const (
	kindKey        = 'k'
	kindRefundable = 'f'
)

// Left is what is left of a posting of an entry that can be refunded. The amount has the posting's
// sign.
type Left struct {
	Account ledger.AccountPath
	Asset   ledger.AssetName
	Amount  ledger.Amount
}

// detail is an idempotency key or a refundable entry, as an entry of the state.
type detail struct {
	// id is that of the transaction, and of its signer.
	id ledger.Hash
	of ledger.OrganisationName
	// key is the idempotency key, or "" for a refundable entry. left is what is left of that.
	key     string
	left    []Left
	expires ledger.Milliseconds
	// waits is the id of the transaction that waits for other shards: the one that brought this, or
	// a refund, which has taken taken from what is left. It is zero if none waits.
	waits ledger.Hash
	taken []ledger.Amount
	// place is that in the heap, or -1. ended says that this has left the state.
	place int
	ended bool
	mark  mark
}

// keyName is an idempotency key of an organisation.
type keyName struct {
	of  ledger.OrganisationName
	key string
}

func (d *detail) name() keyName { return keyName{d.of, d.key} }

// detailCounts count the keys or the refundable entries that live here.
type detailCounts struct {
	of                 map[ledger.OrganisationName]int
	shared             int
	sure, ofOne, ofAll int
}

func newDetailCounts() detailCounts {
	return detailCounts{of: make(map[ledger.OrganisationName]int), sure: SureDetails,
		ofOne: MaxDetails, ofAll: MaxAllDetails}
}

func (c *detailCounts) hasRoom(of ledger.OrganisationName) bool {
	has := c.of[of]
	return has < c.sure || has < c.ofOne && c.shared < c.ofAll
}

func (c *detailCounts) count(of ledger.OrganisationName, more int) {
	before := c.of[of]
	c.shared += max(0, before+more-c.sure) - max(0, before-c.sure)
	if c.of[of] = before + more; before+more == 0 {
		delete(c.of, of)
	}
}

// detailSet are the details that a shard remembers.
type detailSet struct {
	keys       map[keyName]*detail
	refundable map[ledger.Hash]*detail
	// waiting are those that wait for a transaction, by its id.
	waiting map[ledger.Hash][]*detail
	// next has the one that is forgotten first at its beginning.
	next                        detailHeap
	keyCounts, refundableCounts detailCounts
	touched                     []*detail
	// freed are the keys that left the state in this block. One that comes again is the same entry.
	freed map[keyName]*detail
}

func newDetailSet() detailSet {
	return detailSet{keys: make(map[keyName]*detail), refundable: make(map[ledger.Hash]*detail),
		waiting: make(map[ledger.Hash][]*detail), keyCounts: newDetailCounts(),
		refundableCounts: newDetailCounts(), freed: make(map[keyName]*detail)}
}

func (d *detailSet) counts(of *detail) *detailCounts {
	if of.key != "" {
		return &d.keyCounts
	}
	return &d.refundableCounts
}

// detailHeap is a heap by expiry, and then by what identifies an entry, so that all members forget
// the same ones.
type detailHeap []*detail

func (h detailHeap) Len() int { return len(h) }

func (h detailHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(cmp.Compare(a.expires, b.expires), bytes.Compare(a.id[:], b.id[:]),
		strings.Compare(a.key, b.key)) < 0
}

func (h detailHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push adds a detail. It is for container/heap.
func (h *detailHeap) Push(each any) {
	added := each.(*detail)
	added.place = len(*h)
	*h = append(*h, added)
}

// Pop removes and returns the last detail. It is for container/heap.
func (h *detailHeap) Pop() any {
	last := (*h)[len(*h)-1]
	last.place = -1
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}

// Keyed is an idempotency key that a shard remembers.
type Keyed struct {
	Organisation ledger.OrganisationName
	Key          string
	// Entry is the id of the entry with the key, and Expires when the key is forgotten. Waits says
	// that the entry waits for other shards.
	Entry   ledger.Hash
	Expires ledger.Milliseconds
	Waits   bool
}

// Refundable is an entry that can be refunded.
type Refundable struct {
	Entry        ledger.Hash
	Organisation ledger.OrganisationName
	Until        ledger.Milliseconds
	// Left is what is left of the entry's postings, in their order.
	Left []Left
	// Waits is the id of the transaction that waits for other shards: the entry itself, or a refund
	// of it. What that takes is not in Left. It is zero if none waits.
	Waits ledger.Hash
}

func (d *detail) keyed() Keyed {
	return Keyed{Organisation: d.of, Key: d.key, Entry: d.id, Expires: d.expires,
		Waits: d.waits != (ledger.Hash{})}
}

func (d *detail) refundable() Refundable {
	return Refundable{Entry: d.id, Organisation: d.of, Until: d.expires,
		Left: slices.Clone(d.left), Waits: d.waits}
}

// Key returns an idempotency key that this shard remembers.
func (s *State) Key(of ledger.OrganisationName, key string) (Keyed, bool) {
	if found := s.details.keys[keyName{of, key}]; found != nil {
		return found.keyed(), true
	}
	return Keyed{}, false
}

// Refundable returns an entry that can be refunded, as far as this shard knows.
func (s *State) Refundable(entry ledger.Hash) (Refundable, bool) {
	if found := s.details.refundable[entry]; found != nil {
		return found.refundable(), true
	}
	return Refundable{}, false
}

// DetailCounts returns how many idempotency keys and refundable entries this shard remembers.
func (s *State) DetailCounts() (keys, refundable int) {
	return len(s.details.keys), len(s.details.refundable)
}

// isHome reports whether an organisation's home is this shard.
func (s *State) isHome(name ledger.OrganisationName) bool {
	return s.tree == nil || s.HomeShard(name) == s.shard
}

// attemptDetails decides on the details of an entry, as far as they concern this shard. It changes
// nothing.
func (s *State) attemptDetails(t *ledger.Transaction) ledger.Result {
	d := t.Details
	if d == nil {
		return applied
	}
	if s.isHome(t.Signer) {
		if code := s.attemptKey(t.Signer, d.Key); code != ledger.Applied {
			return whole(code)
		}
		if d.Refundable != 0 {
			if d.Refundable <= s.time || d.Refundable-s.time > ledger.MaxRefundTime {
				return whole(ledger.RefundTime)
			}
			if !s.details.refundableCounts.hasRoom(t.Signer) {
				return whole(ledger.TooManyRefundable)
			}
		}
	}
	if d.Refund != nil && s.isHome(d.Refund.Organisation) {
		return s.attemptRefund(t)
	}
	return applied
}

// attemptKey decides on an idempotency key, which may be "".
func (s *State) attemptKey(of ledger.OrganisationName, key string) ledger.Code {
	if key == "" {
		return ledger.Applied
	}
	found := s.details.keys[keyName{of, key}]
	switch {
	case found != nil && (found.waits != (ledger.Hash{}) || s.time < found.expires) &&
		s.fault != FaultKeyTwice:
		return ledger.KeyTaken
	case found == nil && !s.details.keyCounts.hasRoom(of):
		return ledger.TooManyKeys
	}
	return ledger.Applied
}

// attemptRefund decides on a refund of an entry whose signer's home is this shard.
func (s *State) attemptRefund(t *ledger.Transaction) ledger.Result {
	found := s.details.refundable[t.Details.Refund.Entry]
	switch {
	case found == nil || found.of != t.Details.Refund.Organisation:
		return whole(ledger.UnknownRefundable)
	case found.waits != (ledger.Hash{}) && s.fault != FaultRefundsAtOnce:
		return whole(ledger.RefundWaits)
	case s.time >= found.expires:
		return whole(ledger.RefundOver)
	}
	for i := range t.Postings {
		p := &t.Postings[i]
		at := found.posting(p)
		if at < 0 || p.Amount.Sign() != -found.left[at].Amount.Sign() {
			return ofItem(ledger.RefundExceeded, uint32(i))
		}
		// The signs differ, so the sum fits.
		rest, _ := found.left[at].Amount.Add(p.Amount)
		if rest.Sign() == p.Amount.Sign() && s.fault != FaultRefundExceeded {
			return ofItem(ledger.RefundExceeded, uint32(i))
		}
	}
	return applied
}

// posting returns which posting of a refundable entry a posting gives back, or -1.
func (d *detail) posting(p *ledger.Posting) int {
	return slices.IndexFunc(d.left, func(l Left) bool {
		return l.Account == p.Account && l.Asset == p.Asset
	})
}

// keepDetails keeps what attemptDetails allowed, of a transaction that takes effect or waits.
func (s *State) keepDetails(id ledger.Hash, t *ledger.Transaction, waits bool) {
	d := t.Details
	waiting := ledger.Hash{}
	if waits {
		waiting = id
	}
	if s.isHome(t.Signer) {
		of := s.organisations[t.Signer].Name
		if d.Key != "" {
			s.takeKey(&detail{id: id, of: of, key: strings.Clone(d.Key),
				expires: s.time + ledger.KeyTime, waits: waiting})
		}
		if d.Refundable != 0 {
			added := &detail{id: id, of: of, expires: d.Refundable, waits: waiting,
				left: make([]Left, len(t.Postings))}
			for i := range t.Postings {
				p := &t.Postings[i]
				added.left[i] = Left{ledger.AccountPath(strings.Clone(string(p.Account))),
					s.assetNames.kept(p.Asset), p.Amount}
			}
			if waits {
				added.taken = make([]ledger.Amount, len(added.left))
			}
			s.addDetail(added)
		}
	}
	if d.Refund != nil && s.isHome(d.Refund.Organisation) {
		s.refund(t, waiting)
	}
}

// takeKey takes an idempotency key. One whose time is over, or that was freed in this block, is the
// same entry of the state.
func (s *State) takeKey(taken *detail) {
	found := s.details.keys[taken.name()]
	if found == nil {
		found = s.details.freed[taken.name()]
		delete(s.details.freed, taken.name())
		if found == nil {
			s.addDetail(taken)
			return
		}
		found.ended = false
	} else {
		s.touchDetail(found)
		s.countDetail(found, -1)
		s.forgetLater(found, false)
		delete(s.details.waiting, found.waits)
	}
	found.id, found.expires, found.waits = taken.id, taken.expires, taken.waits
	s.rememberDetail(found)
}

// addDetail adds what is new in the state.
func (s *State) addDetail(added *detail) {
	added.mark = mark{touched: true}
	added.place = -1
	s.details.touched = append(s.details.touched, added)
	s.rememberDetail(added)
}

// rememberDetail puts what is in no index into all.
func (s *State) rememberDetail(added *detail) {
	if added.key != "" {
		s.details.keys[added.name()] = added
	} else {
		s.details.refundable[added.id] = added
	}
	s.countDetail(added, 1)
	s.waitOrLapse(added)
}

// waitOrLapse lets what waits for a transaction be found by that one, and others lapse in time.
func (s *State) waitOrLapse(one *detail) {
	if one.waits != (ledger.Hash{}) {
		s.details.waiting[one.waits] = append(s.details.waiting[one.waits], one)
	} else if s.isHome(one.of) || s.fault == FaultDetailsThaw {
		heap.Push(&s.details.next, one)
	}
}

// forgetLater takes what may lapse out of those that do. Frozen says that it is because its
// organisation moves away.
func (s *State) forgetLater(one *detail, frozen bool) {
	if one.place >= 0 && !(frozen && s.fault == FaultDetailsThaw) {
		heap.Remove(&s.details.next, one.place)
	}
}

// countDetail counts what lives here, or one less.
func (s *State) countDetail(one *detail, more int) {
	if s.isHome(one.of) {
		s.details.counts(one).count(one.of, more)
	}
}

// refund takes the amounts of a refund from what is left of its entry.
func (s *State) refund(t *ledger.Transaction, waiting ledger.Hash) {
	found := s.details.refundable[t.Details.Refund.Entry]
	s.touchDetail(found)
	taken := make([]ledger.Amount, len(found.left))
	for i := range t.Postings {
		p := &t.Postings[i]
		at := found.posting(p)
		taken[at] = p.Amount
		found.left[at].Amount, _ = found.left[at].Amount.Add(p.Amount)
	}
	if waiting != (ledger.Hash{}) {
		s.forgetLater(found, false)
		found.waits, found.taken = waiting, taken
		s.waitOrLapse(found)
		return
	}
	s.endIfNothingLeft(found)
}

func (s *State) endIfNothingLeft(found *detail) {
	if !slices.ContainsFunc(found.left, func(l Left) bool { return l.Amount.Sign() != 0 }) {
		s.endDetail(found)
	}
}

// settleDetails settles what waits for a transaction that takes effect.
func (s *State) settleDetails(id ledger.Hash) {
	all := s.details.waiting[id]
	if len(all) == 0 {
		return
	}
	delete(s.details.waiting, id)
	for _, each := range all {
		s.touchDetail(each)
		if each.key == "" && id != each.id && s.fault == FaultRefundUncounted {
			each.giveBack()
		}
		each.waits, each.taken = ledger.Hash{}, nil
		s.waitOrLapse(each)
		if each.key == "" {
			s.endIfNothingLeft(each)
		}
	}
}

// dropDetails undoes what a transaction brought or changed that is released.
func (s *State) dropDetails(id ledger.Hash) {
	all := s.details.waiting[id]
	if len(all) == 0 {
		return
	}
	delete(s.details.waiting, id)
	for _, each := range all {
		s.touchDetail(each)
		if each.id == id && !(each.key != "" && s.fault == FaultKeyKept) {
			s.endDetail(each)
			continue
		}
		if s.fault != FaultRefundKept {
			each.giveBack()
		}
		each.waits, each.taken = ledger.Hash{}, nil
		s.waitOrLapse(each)
	}
}

// giveBack adds what a refund that waits has taken to what is left.
func (d *detail) giveBack() {
	for i := range d.taken {
		d.left[i].Amount, _ = d.left[i].Amount.Sub(d.taken[i])
	}
}

// endDetail removes what is forgotten.
func (s *State) endDetail(found *detail) {
	s.touchDetail(found)
	s.forgetLater(found, false)
	s.countDetail(found, -1)
	found.ended = true
	if found.key == "" {
		delete(s.details.refundable, found.id)
		return
	}
	delete(s.details.keys, found.name())
	s.details.freed[found.name()] = found
}

// lapseDetails forgets what is over. It runs before the entries of a block.
func (s *State) lapseDetails() {
	for range lapsedAtOnce {
		if len(s.details.next) == 0 || s.details.next[0].expires > s.time {
			return
		}
		s.endDetail(s.details.next[0])
	}
}

// freezeDetails lets nothing of an organisation lapse any more, or count: it moves away.
func (s *State) freezeDetails(of ledger.OrganisationName) {
	for _, counts := range []*detailCounts{&s.details.keyCounts, &s.details.refundableCounts} {
		counts.count(of, -counts.of[of])
	}
	s.ofDetails(of, func(each *detail) { s.forgetLater(each, true) })
}

// ofDetails calls visit for all of an organisation, in no particular order.
func (s *State) ofDetails(of ledger.OrganisationName, visit func(*detail)) {
	for name, each := range s.details.keys {
		if name.of == of {
			visit(each)
		}
	}
	for _, each := range s.details.refundable {
		if each.of == of {
			visit(each)
		}
	}
}

// detailsOf is ofDetails for what an organisation takes along.
func (s *State) detailsOf(of ledger.OrganisationName, visit func(*detail)) {
	s.ofDetails(of, func(each *detail) {
		if each.key != "" && s.fault == FaultKeysLeft ||
			each.key == "" && s.fault == FaultRefundableLeft {
			return
		}
		visit(each)
	})
}

// detailsWait reports whether a key or refundable entry of an organisation waits for a transaction.
func (s *State) detailsWait(of ledger.OrganisationName) bool {
	for _, all := range s.details.waiting {
		for _, each := range all {
			if each.of == of {
				return true
			}
		}
	}
	return false
}

// takesDetails reports whether nothing of what arrives is here.
func (s *State) takesDetails(all []*detail) bool {
	return !slices.ContainsFunc(all, func(each *detail) bool {
		if each.key != "" {
			return s.details.keys[each.name()] != nil
		}
		return s.details.refundable[each.id] != nil
	})
}

func (s *State) touchDetail(found *detail) {
	if !found.mark.touched {
		found.mark = s.keep(found.appendEntry)
		s.details.touched = append(s.details.touched, found)
	}
}

// finishDetails collects the changes of details.
func (s *State) finishDetails(changes *Changes) {
	for _, each := range s.details.touched {
		if each.ended {
			s.remove(changes, each.mark)
		} else {
			s.settle(changes, each.mark, each.appendEntry)
		}
		each.mark = mark{}
	}
	clear(s.details.touched)
	clear(s.details.freed)
	s.details.touched = s.details.touched[:0]
}

// appendEntry appends the entry. That of a key has the organisation and the key in its own key, and
// as its value the id of the entry, the expiry, and whether the entry waits. That of a refundable
// entry has the id in its key, and as its value the organisation, until when, the postings with
// what is left and, if a transaction waits, its id and what it has taken of each posting.
func (d *detail) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	if d.key != "" {
		to = append(append(append(append(append(to, kindKey), d.of...), 0), d.key...), 0)
		keyLength = len(to) - start
		to = binary.AppendUvarint(append(to, d.id[:]...), uint64(d.expires))
		return codec.AppendBool(to, d.waits != (ledger.Hash{})), keyLength
	}
	to = append(append(append(to, kindRefundable), d.id[:]...), 0)
	keyLength = len(to) - start
	to = binary.AppendUvarint(codec.AppendString(to, d.of), uint64(d.expires))
	to = binary.AppendUvarint(to, uint64(len(d.left)))
	for i := range d.left {
		l := &d.left[i]
		to = appendAmount(codec.AppendString(codec.AppendString(to, l.Account), l.Asset), l.Amount)
	}
	if d.waits == (ledger.Hash{}) {
		return to, keyLength
	}
	to = append(to, d.waits[:]...)
	for i := range d.taken {
		to = appendAmount(to, d.taken[i])
	}
	return to, keyLength
}

// detail reads the entry of a key or of a refundable entry.
func (r *reader) detail(key []byte) (*detail, error) {
	malformed := fmt.Errorf("%w: key %x", ErrEntry, key)
	d := &detail{place: -1}
	if len(key) < 2 || key[len(key)-1] != 0 {
		return nil, malformed
	}
	if key[0] == kindKey {
		of, text, found := strings.Cut(string(key[1:len(key)-1]), "\x00")
		d.of, d.key = ledger.OrganisationName(of), text
		if !found || d.of.Validate() != nil || !ledger.ValidIdempotencyKey(text) {
			return nil, malformed
		}
		d.id, d.expires = r.Hash(), ledger.Milliseconds(r.Uvarint())
		if r.Bool() {
			d.waits = d.id
		}
		return d, nil
	}
	if len(key) != 1+ledger.HashSize+1 {
		return nil, malformed
	}
	copy(d.id[:], key[1:])
	d.of, d.expires = r.organisationName(), ledger.Milliseconds(r.Uvarint())
	d.left = make([]Left, r.Count("postings", ledger.MaxRefundPostings, 3))
	for i := range d.left {
		d.left[i] = Left{ledger.AccountPath(r.String("bytes of account", ledger.MaxAccountPath)),
			r.assetName(), r.amount()}
	}
	if r.Err == nil && len(r.Data) > 0 {
		if d.waits = r.Hash(); d.waits == (ledger.Hash{}) {
			r.Fail("a refund that is none")
		}
		d.taken = make([]ledger.Amount, len(d.left))
		for i := range d.taken {
			d.taken[i] = r.amount()
		}
	}
	if r.Err == nil && d.of.Validate() != nil {
		return nil, malformed
	}
	return d, nil
}

// restoreDetail puts an entry into the state. It reports whether there was one already. Which
// organisations moved may not be known yet, so completeDetails counts it and lets it lapse.
func (s *State) restoreDetail(key []byte, r *reader) (of entry, again bool, err error) {
	restored, err := r.detail(key)
	if err != nil {
		return nil, false, err
	}
	if !s.takesDetails([]*detail{restored}) {
		return restored, true, nil
	}
	if restored.key != "" {
		s.details.keys[restored.name()] = restored
	} else {
		s.details.refundable[restored.id] = restored
	}
	return restored, false, nil
}

// completeDetails makes what follows from the details after all entries were restored.
func (s *State) completeDetails() {
	for _, counts := range []*detailCounts{&s.details.keyCounts, &s.details.refundableCounts} {
		counts.of, counts.shared = make(map[ledger.OrganisationName]int), 0
	}
	s.details.next = s.details.next[:0]
	clear(s.details.waiting)
	if s.fault == FaultDetailsNotResumed {
		return
	}
	complete := func(each *detail) {
		each.place = -1
		s.countDetail(each, 1)
		s.waitOrLapse(each)
	}
	for _, each := range s.details.keys {
		complete(each)
	}
	for _, each := range s.details.refundable {
		complete(each)
	}
}

// MovedDetail returns the idempotency key or the refundable entry that an entry that moves is of.
func MovedDetail(e *ledger.MovedEntry) (key *Keyed, refundable *Refundable, err error) {
	if e.Key[0] != kindKey && e.Key[0] != kindRefundable {
		return nil, nil, nil
	}
	decoded, err := read(e.Value).detail(e.Key)
	switch {
	case err != nil:
		return nil, nil, err
	case decoded.key != "":
		keyed := decoded.keyed()
		return &keyed, nil, nil
	}
	public := decoded.refundable()
	return nil, &public, nil
}
