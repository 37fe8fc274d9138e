package ledger

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// detailsVersion is the first byte of the body of an entry with details.
const detailsVersion = 17

// Bounds of the details of entries.
const (
	// MaxIdempotencyKey is the most bytes of an idempotency key.
	MaxIdempotencyKey = 64
	// KeyTime is how long a chain remembers an idempotency key, from the block with its entry on:
	// seven days. No copy of a transaction across shards can be taken later than that.
	KeyTime = MaxDeadline
	// MaxRefundPostings bounds the postings of an entry that can be refunded.
	MaxRefundPostings = 16
	// MaxRefundTime is how far ahead of its block an entry may say that it can be refunded.
	MaxRefundTime = MaxHoldTime
	// MaxEffective is the last effective date: the end of the year 9999.
	MaxEffective Milliseconds = 253_402_300_799_999
)

// Details are what an entry says of itself beyond its postings. An entry with details has at least
// one of them, registers nobody, and is otherwise like any other.
type Details struct {
	// Effective is the date that the entry counts for, or 0. The chain takes any. It says when
	// something happened, for those who read the book. No rule of the chain depends on it.
	Effective Milliseconds `json:"effective,omitempty"`
	// Key is the idempotency key, or "": 1 to MaxIdempotencyKey characters of printable ASCII. Of
	// all entries of a signer with the same key at most one takes effect within KeyTime. An entry
	// that was refused leaves its key free.
	Key string `json:"key,omitempty"`
	// Refundable is until when the entry can be refunded, or 0 if it cannot. Then its postings are
	// 2 to MaxRefundPostings, each of another account or asset, and none is zero. The home of the
	// signer keeps what is left of them.
	Refundable Milliseconds `json:"refundable,omitempty"`
	// Refund makes the entry give back a part of an earlier one, or all of it.
	Refund *Refund `json:"refund,omitempty"`
}

// Refund says which entry an entry refunds. Each posting of a refund takes back a part of one
// posting of that entry: it is of the same account and asset, and has the other sign. All refunds
// of an entry together never exceed any of its postings. A refund cannot be refunded itself.
//
// Those sign who would sign the same postings without a refund. So nobody gives back anything
// against their will.
type Refund struct {
	// Entry is the id of the entry, and Organisation its signer. Its home has what is left.
	Entry        Hash             `json:"entry"`
	Organisation OrganisationName `json:"organisation"`
}

// ValidIdempotencyKey reports whether a text can be an idempotency key.
func ValidIdempotencyKey(key string) bool {
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return false
		}
	}
	return len(key) > 0 && len(key) <= MaxIdempotencyKey
}

// checkForm checks an entry with details.
func (d *Details) checkForm(t *Transaction) error {
	switch {
	case len(t.Registrations) > 0 || t.Change != nil || t.Verdict != nil || t.Policy != nil ||
		t.Charter != nil || t.Cancellation != nil || t.Book != nil || t.Arrival != nil ||
		t.Asset != nil || t.Account != nil || t.Hold != nil || t.HoldEnd != nil:
		return fmt.Errorf("%w: only entries have details", ErrMalformed)
	case *d == Details{}:
		return fmt.Errorf("%w: details that are none", ErrMalformed)
	case d.Effective < 0 || d.Effective > MaxEffective:
		return fmt.Errorf("%w: an effective date outside of the years 1970 to 9999", ErrMalformed)
	case d.Key != "" && !ValidIdempotencyKey(d.Key):
		return fmt.Errorf("%w: an idempotency key is 1 to %d characters of printable ASCII",
			ErrMalformed, MaxIdempotencyKey)
	case d.Refundable < 0:
		return fmt.Errorf("%w: refundable until before 1970", ErrMalformed)
	case d.Refundable != 0 && d.Refund != nil:
		return fmt.Errorf("%w: a refund cannot be refunded", ErrMalformed)
	}
	if d.Refund != nil {
		if err := d.Refund.Organisation.Validate(); err != nil {
			return err
		}
	}
	if d.Refundable != 0 || d.Refund != nil {
		if err := t.checkRefundPostings(); err != nil {
			return err
		}
	}
	return t.checkEntryForm()
}

// checkRefundPostings checks the postings of an entry that can be refunded, or that refunds one.
func (t *Transaction) checkRefundPostings() error {
	if len(t.Postings) < 2 || len(t.Postings) > MaxRefundPostings {
		return fmt.Errorf("%w: %d postings in a refund, or in an entry that can be refunded, 2 to "+
			"%d allowed", ErrMalformed, len(t.Postings), MaxRefundPostings)
	}
	for i := range t.Postings {
		p := &t.Postings[i]
		if p.Amount.Sign() == 0 {
			return fmt.Errorf("%w: posting %d of a refund is zero", ErrMalformed, i+1)
		}
		for j := range t.Postings[:i] {
			if t.Postings[j].Account == p.Account && t.Postings[j].Asset == p.Asset {
				return fmt.Errorf("%w: posting %d of a refund has the account and asset of "+
					"posting %d", ErrMalformed, i+1, j+1)
			}
		}
	}
	return nil
}

// appendDetails appends the encoding of an entry with details: version 17, head, effective date,
// key, refundable until, refund (0, or 1 with the entry and the organisation), openings, postings,
// records, note.
func (t *Transaction) appendDetails(to []byte) []byte {
	d := t.Details
	to = binary.AppendUvarint(t.appendHead(to, detailsVersion), uint64(d.Effective))
	to = binary.AppendUvarint(codec.AppendString(to, d.Key), uint64(d.Refundable))
	to = codec.AppendBool(to, d.Refund != nil)
	if d.Refund != nil {
		to = codec.AppendString(append(to, d.Refund.Entry[:]...), d.Refund.Organisation)
	}
	return codec.AppendString(t.appendItems(to), t.Note)
}

func (t *Transaction) decodeDetails(r *reader, postings *postingSlab) {
	t.decodeHead(r)
	d := &Details{Effective: Milliseconds(r.Uvarint()),
		Key:        r.String("bytes of key", MaxIdempotencyKey),
		Refundable: Milliseconds(r.Uvarint())}
	if r.Bool() {
		d.Refund = &Refund{Entry: r.Hash(),
			Organisation: OrganisationName(r.String("bytes of organisation", MaxOrganisationName))}
	}
	t.Details = d
	t.decodeItems(r, postings)
	t.Note = r.Bytes("bytes of note", MaxNote)
}
