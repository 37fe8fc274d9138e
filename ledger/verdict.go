package ledger

import (
	"encoding/binary"
	"fmt"
)

// verdictVersion begins the body of a verdict.
const verdictVersion = 3

// Verdict is what one destination shard of a cross-shard transaction says of its part: SetAside
// where it can be applied, or why not. It follows from that shard's chain, so that any member of
// the shard can make it, as often as it likes; the shards that wait for it put it into their own
// chains.
type Verdict struct {
	// ID is the transaction's.
	ID Hash `json:"transaction"`
	// Shard is the one that says so.
	Shard  ShardID `json:"shard"`
	Result Result  `json:"result"`
}

// Good reports whether the shard has set its part aside.
func (v *Verdict) Good() bool { return v.Result.Code == SetAside }

// checkForm checks that the result is one that a destination's part can have.
func (v *Verdict) checkForm() error {
	switch v.Result.Code {
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
	verdict := Verdict{ID: r.hash(), Shard: r.shard(), Result: r.result()}
	if r.err == nil && verdict.checkForm() != nil {
		r.fail("a verdict that says %s", verdict.Result.Code)
	}
	return verdict
}

// transaction returns the verdict as a block of the book's chains has it: unsigned, alone in its
// bundle, without nonce.
func (v Verdict) transaction(book Hash) *Transaction {
	return &Transaction{Ledger: book, Verdict: &v}
}

// checkVerdict checks that there is nothing in the transaction but the verdict.
func (t *Transaction) checkVerdict() error {
	if t.Signer != Operator || t.Change != nil || t.Nonce != (Nonce{}) || t.LastValid != 0 ||
		len(t.Registrations)+len(t.Openings)+len(t.Postings)+len(t.Records)+len(t.Note) > 0 {
		return fmt.Errorf("%w: a verdict stands alone in its transaction", ErrMalformed)
	}
	return t.Verdict.checkForm()
}

// appendVerdict appends the encoding of a verdict: version 3, ledger, transaction, shard (uvarint),
// result.
func (t *Transaction) appendVerdict(to []byte) []byte {
	to = append(to, verdictVersion)
	return t.Verdict.append(append(to, t.Ledger[:]...))
}

// VerdictOf returns what a shard says of a transaction in its chain, and false where it has nothing
// to say: the transaction was applied as one of this shard alone, passed through, or is a verdict
// itself.
func VerdictOf(entry *Entry, shard ShardID) (Verdict, bool) {
	verdict := Verdict{ID: entry.ID, Shard: shard, Result: entry.Result}
	return verdict, entry.Transaction.Verdict == nil && entry.Transaction.Change == nil &&
		verdict.checkForm() == nil
}
