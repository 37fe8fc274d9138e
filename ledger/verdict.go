package ledger

import (
	"encoding/binary"
	"fmt"
)

// verdictVersion is the first byte of the body of a verdict.
const verdictVersion = 3

// Verdict is the decision of one destination shard on its part of a cross-shard transaction:
// SetAside, or the reason why the part cannot be applied. It follows from that shard's chain, so
// any member of the shard can make it, any number of times. The shards that wait for it put it into
// their own chains. If a shard is lost for good, a verdict may also be a Testimony about it.
type Verdict struct {
	// ID is the id of the transaction.
	ID Hash `json:"transaction"`
	// Shard is the shard that decided.
	Shard  ShardID `json:"shard"`
	Result Result  `json:"result"`
}

// Good reports whether the shard has set its part aside.
func (v *Verdict) Good() bool { return v.Result.Code == SetAside }

// Validate returns ErrMalformed unless a shard can give this verdict.
func (v *Verdict) Validate() error { return v.checkForm() }

// checkForm checks that a destination's part can have this result, or that it is a testimony.
func (v *Verdict) checkForm() error {
	switch v.Result.Code {
	case HeardAgreement, HeardNothing:
		return v.checkTestimony()
	case Applied, Relayed, Settled, Released, OutOfPlace:
		return fmt.Errorf("%w: a verdict that says %s", ErrMalformed, v.Result.Code)
	}
	return nil
}

func (v *Verdict) append(to []byte) []byte {
	to = append(to, v.ID[:]...)
	to = binary.AppendUvarint(to, uint64(v.Shard))
	return appendResult(to, v.Result)
}

func (r *reader) verdict() Verdict {
	verdict := Verdict{ID: r.Hash(), Shard: r.shard(), Result: r.result()}
	if r.Err == nil && verdict.checkForm() != nil {
		r.Fail("a verdict that says %s", verdict.Result.Code)
	}
	return verdict
}

// Entry returns the verdict as an entry of a block: without signature or nonce, and in a bundle of
// verdicts. Book is Genesis.Book.
func (v Verdict) Entry(book Hash) Entry {
	entries, _ := VerdictEntries(book, []Verdict{v}, 0, false)
	return entries[0]
}

// verdictBodySize is the largest size of the body of a verdict.
const verdictBodySize = 1 + 2*HashSize + binary.MaxVarintLen32 + ResultSize

// VerdictEntries returns verdicts as entries of a block, and the seals of their bundles, of which
// the first has this index in the block. Each verdict has a bundle of its own, or if shared is set,
// good ones of one shard that follow each other share bundles. Book is Genesis.Book. The entries
// share the memory of verdicts, which must not change any more. All are made at once, because a
// block has many.
func VerdictEntries(book Hash, verdicts []Verdict, bundle int, shared bool) ([]Entry,
	[]BundleSeal) {
	count := len(verdicts)
	entries, seals := make([]Entry, count), make([]BundleSeal, 0, bundlesOf(verdicts, shared))
	transactions := make([]Transaction, count)
	bodies := make([]byte, 0, count*verdictBodySize)
	ids, kept := make([]Hash, count), make([]bool, count)
	for first := 0; first < count; {
		next := first + 1
		if shared {
			next = first + sharedBundle(verdicts[first:])
		}
		for i := first; i < next; i++ {
			transactions[i].Ledger, transactions[i].Verdict = book, &verdicts[i]
			start := len(bodies)
			bodies = transactions[i].appendBody(bodies)
			entries[i] = Entry{Decoded: &transactions[i],
				Body:   bodies[start:len(bodies):len(bodies)],
				Bundle: bundle + len(seals), Place: i - first}
			kept[i] = true
		}
		seals = append(seals, BundleSeal{IDs: ids[first:next:next], Kept: kept[first:next:next]})
		first = next
	}
	hashBodies(ids, func(i int) []byte { return entries[i].Body })
	for i := range entries {
		entries[i].ID = ids[i]
	}
	for i := range seals {
		seals[i].Root = IDRoot(seals[i].IDs)
	}
	return entries, seals
}

// sharedBundle returns how many of these verdicts, from the first one on, share a bundle.
func sharedBundle(verdicts []Verdict) int {
	most, next := min(len(verdicts), MaxBundleTransactions), 1
	for next < most && mayShare(&verdicts[0], &verdicts[next]) {
		next++
	}
	return next
}

// mayShare reports whether two verdicts may be in one bundle.
func mayShare(one, other *Verdict) bool {
	return one.Good() && other.Good() && one.Shard == other.Shard
}

// bundlesOf returns how many bundles these verdicts have.
func bundlesOf(verdicts []Verdict, shared bool) (bundles int) {
	if !shared {
		return len(verdicts)
	}
	for first := 0; first < len(verdicts); first += sharedBundle(verdicts[first:]) {
		bundles++
	}
	return bundles
}

// checkVerdict checks that the transaction holds only the verdict.
func (t *Transaction) checkVerdict() error {
	if t.Signer != Operator || t.Change != nil || t.Arrival != nil || t.Asset != nil ||
		t.Account != nil || t.Nonce != (Nonce{}) ||
		t.LastValid != 0 || t.Deadline != 0 || t.Cancellation != nil ||
		len(t.Registrations)+len(t.Openings)+len(t.Postings)+len(t.Records)+len(t.Note) > 0 {
		return fmt.Errorf("%w: a verdict stands alone in its transaction", ErrMalformed)
	}
	return t.Verdict.checkForm()
}

// appendVerdict appends the encoding of a verdict: version 3, ledger, transaction id, shard
// (uvarint), result.
func (t *Transaction) appendVerdict(to []byte) []byte {
	to = append(to, verdictVersion)
	return t.Verdict.append(append(to, t.Ledger[:]...))
}

// VerdictOf returns a shard's verdict on a transaction in its chain. It returns false if there is
// none: the transaction took effect at once, passed through, is out of place, or is itself a
// verdict, a change of the membership or an arrival.
func VerdictOf(entry *Entry, shard ShardID) (Verdict, bool) {
	verdict := Verdict{ID: entry.ID, Shard: shard, Result: entry.Result}
	return verdict, entry.Transaction().Verdict == nil && entry.Transaction().Change == nil &&
		entry.Transaction().Arrival == nil && !entry.Result.Code.testifies() &&
		verdict.checkForm() == nil
}
