package ledger

import (
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// cancellationVersion is the first byte of the body of a cancellation.
const cancellationVersion = 10

// Cancellation withdraws the consent of the transaction's signer to another transaction, at one
// shard. If that shard executes the other transaction later, the shard refuses it (Cancelled), and
// it takes effect nowhere. The shard remembers this until the transaction's Deadline, which is that
// of the other transaction: from then on the shard refuses the other one in any case.
//
// A shard need not have seen the other transaction, and need not learn who signs it. It remembers
// the id together with the signer of the cancellation. So a cancellation has an effect only on a
// transaction that needs its signer's consent; see Consenting.
//
// A cancellation goes to its shard by itself and not through the tree, where it could only follow
// what it cancels. To cancel a transaction before any of its shards has executed it, its signer
// sends one to each of them; one that comes in time is enough.
//
// A cancellation is alone in its transaction, except for a note. It takes no nonce, because a
// second one changes nothing.
type Cancellation struct {
	// Transaction is the id of the transaction that is cancelled.
	Transaction Hash `json:"transaction"`
	// Shard is the shard that is to refuse it. It is 0 in a book of one shard.
	Shard ShardID `json:"shard"`
}

// checkForm checks the parts of a transaction that cancels another one.
func (c *Cancellation) checkForm(t *Transaction) error {
	switch {
	case len(t.Registrations)+len(t.Openings)+len(t.Postings)+len(t.Records) > 0 ||
		t.LastValid != 0 || t.Change != nil || t.Verdict != nil || t.Policy != nil ||
		t.Charter != nil || t.Book != nil || t.Asset != nil || t.Account != nil:
		return fmt.Errorf("%w: a cancellation stands alone in its transaction, and is valid until "+
			"its deadline", ErrMalformed)
	case t.Deadline <= 0:
		return fmt.Errorf("%w: a cancellation has the deadline of the transaction that it cancels",
			ErrMalformed)
	case len(t.Note) > MaxNote:
		return fmt.Errorf("%w: too large: at most %d bytes of note", ErrMalformed, MaxNote)
	}
	return t.Signer.Validate()
}

// appendCancellation appends the encoding of a cancellation: version 10, ledger, signer, nonce,
// deadline, the id of the other transaction, shard, note.
func (t *Transaction) appendCancellation(to []byte) []byte {
	to = append(to, cancellationVersion)
	to = append(to, t.Ledger[:]...)
	to = codec.AppendString(to, t.Signer)
	to = binary.AppendUvarint(to, t.Nonce.Stream)
	to = binary.AppendUvarint(to, t.Nonce.Sequence)
	to = binary.AppendUvarint(to, uint64(t.Deadline))
	to = append(to, t.Cancellation.Transaction[:]...)
	to = binary.AppendUvarint(to, uint64(t.Cancellation.Shard))
	return codec.AppendString(to, t.Note)
}

func (t *Transaction) decodeCancellation(r *reader) {
	t.Ledger = r.Hash()
	t.Signer = OrganisationName(r.String("bytes of organisation", MaxOrganisationName))
	t.Nonce = Nonce{Stream: r.Uvarint(), Sequence: r.Uvarint()}
	t.Deadline = Milliseconds(r.Uvarint())
	t.Cancellation = &Cancellation{Transaction: r.Hash(), Shard: r.shard()}
	t.Note = r.Bytes("bytes of note", MaxNote)
}

// Consenting yields the organisations whose consent the transaction needs: its signer, and those
// whose accounts it opens or takes from and whose records it writes. The end of a hold needs none
// of the holder. It may yield one several times.
func (t *Transaction) Consenting() iter.Seq[OrganisationName] {
	return func(yield func(OrganisationName) bool) {
		if !yield(t.Signer) {
			return
		}
		for i := range t.Openings {
			if !yield(t.Openings[i].Account.Organisation()) {
				return
			}
		}
		for i := range t.Postings {
			if t.Takes(&t.Postings[i]) && !yield(t.Postings[i].Account.Organisation()) {
				return
			}
		}
		for i := range t.Records {
			if !yield(t.Records[i].Key.Organisation()) {
				return
			}
		}
	}
}
