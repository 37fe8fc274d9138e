package ledger

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// The first byte of the body of a transaction that places a hold, and of one that ends it.
const (
	holdVersion    = 14
	holdEndVersion = 15
)

// Bounds of holds.
const (
	// MaxHoldAccounts bounds the accounts that a hold may be posted to.
	MaxHoldAccounts = 16
	// MaxHoldTime is how far ahead of a block a hold in it may expire.
	MaxHoldTime = Milliseconds(400 * 24 * 60 * 60 * 1000)
)

// Hold is a transaction's hold: it sets an amount of an account of its signer aside, until the hold
// ends. The balance stays, and what can be spent of it is less by the amount. The id of the
// transaction is that of the hold. A hold ends exactly once:
//
//   - The poster posts it (HoldEnd), all of it or a part. What is left is free again.
//   - The poster voids it.
//   - It expires with the first block whose time is Expires or later. Then it can be posted no
//     more, except by a posting that waits for other shards already.
//
// The holder cannot take a hold back. Otherwise it would be worth nothing to the one who relies on
// it. So Expires bounds how long an amount may be out of reach.
//
// A hold is alone in its transaction, except for a note. It concerns only the shard of its signer.
type Hold struct {
	From   AccountPath `json:"from"`
	Asset  AssetName   `json:"asset"`
	Amount Amount      `json:"amount"`
	// To are the accounts that the hold may be posted to, ascending. They may be in other shards.
	To []AccountPath `json:"to"`
	// Poster is the organisation that may post or void the hold: the one that receives it, or one
	// that both sides trust.
	Poster  OrganisationName `json:"poster"`
	Expires Milliseconds     `json:"expires"`
}

// HoldEnd makes a transaction end a hold. Its signer is the hold's poster, whose signature stands
// for that of the holder. The first posting takes from the account of the hold, and the others give
// to accounts that the hold names, all in its asset, and no more than its amount. Without postings
// the hold is voided.
//
// If the hold, the accounts or the signer are in several shards, it is a transaction across shards
// like any other. The hold is as it was if one of them refuses.
type HoldEnd struct {
	// Hold is the id of the hold, and From its account.
	Hold Hash        `json:"hold"`
	From AccountPath `json:"from"`
}

// Validate returns ErrMalformed or ErrName unless the hold is well-formed.
func (h *Hold) Validate() error {
	switch {
	case h.Amount.Sign() <= 0:
		return fmt.Errorf("%w: a hold of %s", ErrMalformed, h.Amount)
	case len(h.To) == 0 || len(h.To) > MaxHoldAccounts:
		return fmt.Errorf("%w: a hold for %d accounts, 1 to %d allowed", ErrMalformed, len(h.To),
			MaxHoldAccounts)
	case h.Expires <= 0:
		return fmt.Errorf("%w: a hold that does not expire", ErrMalformed)
	case slices.Contains(h.To, h.From):
		return fmt.Errorf("%w: a hold for its own account", ErrMalformed)
	}
	for i := range h.To {
		if err := h.To[i].Validate(); err != nil {
			return err
		}
		if i > 0 && h.To[i-1] >= h.To[i] {
			return fmt.Errorf("%w: the accounts of a hold out of order", ErrMalformed)
		}
	}
	for _, err := range []error{h.From.Validate(), h.Asset.Validate(), h.Poster.Validate()} {
		if err != nil {
			return err
		}
	}
	return nil
}

// holdAlone checks the parts of a transaction that places or ends a hold.
func (t *Transaction) holdAlone() error {
	switch {
	case len(t.Registrations)+len(t.Openings)+len(t.Records) > 0 || t.Change != nil ||
		t.Verdict != nil || t.Policy != nil || t.Charter != nil || t.Cancellation != nil ||
		t.Book != nil || t.Arrival != nil || t.Asset != nil || t.Account != nil ||
		t.Hold != nil && t.HoldEnd != nil:
		return fmt.Errorf("%w: a hold, or its end, stands alone in its transaction", ErrMalformed)
	case t.Deadline < 0:
		return fmt.Errorf("%w: a deadline before 1970", ErrMalformed)
	case len(t.Note) > MaxNote:
		return fmt.Errorf("%w: too large: at most %d bytes of note", ErrMalformed, MaxNote)
	}
	return t.Signer.Validate()
}

// checkForm checks a transaction that places a hold.
func (h *Hold) checkForm(t *Transaction) error {
	if err := t.holdAlone(); err != nil {
		return err
	}
	switch {
	case len(t.Postings) > 0:
		return fmt.Errorf("%w: a hold has no postings", ErrMalformed)
	case h.From.Organisation() != t.Signer:
		return fmt.Errorf("%w: a hold on an account of %s by %s", ErrMalformed,
			h.From.Organisation(), t.Signer)
	}
	return h.Validate()
}

// checkForm checks a transaction that ends a hold.
func (e *HoldEnd) checkForm(t *Transaction) error {
	if err := t.holdAlone(); err != nil {
		return err
	}
	if err := e.From.Validate(); err != nil {
		return err
	}
	if len(t.Postings) == 0 {
		return nil
	}
	if len(t.Postings) < 2 || len(t.Postings) > MaxHoldAccounts+1 ||
		t.Postings[0].Account != e.From {
		return fmt.Errorf("%w: a hold is posted from its account to 1 to %d others", ErrMalformed,
			MaxHoldAccounts)
	}
	for i := range t.Postings {
		p := &t.Postings[i]
		for _, err := range []error{p.Account.Validate(), p.Asset.Validate()} {
			if err != nil {
				return err
			}
		}
		if p.Asset != t.Postings[0].Asset || (p.Amount.Sign() < 0) != (i == 0) ||
			p.Amount.Sign() == 0 || i > 0 && p.Account == e.From {
			return fmt.Errorf("%w: posting %d of a hold's end", ErrMalformed, i+1)
		}
	}
	return nil
}

// Takes reports whether a posting takes from its account with the consent of the account's
// organisation. The end of a hold has it from the hold, and an occurrence from its schedule.
func (t *Transaction) Takes(p *Posting) bool {
	return p.Amount.Sign() < 0 && t.HoldEnd == nil && t.Occurrence == nil
}

// TakesHeld reports whether a posting takes what a hold set aside. The terms of its account were
// judged when the hold was placed.
func (t *Transaction) TakesHeld(p *Posting) bool { return p.Amount.Sign() < 0 && t.HoldEnd != nil }

// appendHead appends a version and what all transactions of clients begin with: ledger, signer,
// nonce, last valid height. Then it appends the deadline, which may be 0.
func (t *Transaction) appendHead(to []byte, version byte) []byte {
	to = append(append(to, version), t.Ledger[:]...)
	to = codec.AppendString(to, t.Signer)
	to = binary.AppendUvarint(to, t.Nonce.Stream)
	to = binary.AppendUvarint(to, t.Nonce.Sequence)
	to = binary.AppendUvarint(to, uint64(t.LastValid))
	return binary.AppendUvarint(to, uint64(t.Deadline))
}

func (t *Transaction) decodeHead(r *reader) {
	t.Ledger = r.Hash()
	t.Signer = OrganisationName(r.String("bytes of organisation", MaxOrganisationName))
	t.Nonce = Nonce{Stream: r.Uvarint(), Sequence: r.Uvarint()}
	t.LastValid, t.Deadline = Height(r.Uvarint()), Milliseconds(r.Uvarint())
}

// appendHold appends the encoding of a transaction that places a hold: version 14, head, from,
// asset, amount, count of accounts with each of them, poster, expiry, note.
func (t *Transaction) appendHold(to []byte) []byte {
	to = t.Hold.append(t.appendHead(to, holdVersion))
	return codec.AppendString(to, t.Note)
}

func (h *Hold) append(to []byte) []byte {
	to = codec.AppendString(codec.AppendString(to, h.From), h.Asset)
	to = binary.AppendUvarint(appendAmount(to, h.Amount), uint64(len(h.To)))
	for i := range h.To {
		to = codec.AppendString(to, h.To[i])
	}
	return binary.AppendUvarint(codec.AppendString(to, h.Poster), uint64(h.Expires))
}

func (r *reader) accountPath() AccountPath {
	return AccountPath(r.String("bytes of account", MaxAccountPath))
}

func (t *Transaction) decodeHold(r *reader) {
	t.decodeHead(r)
	t.Hold = &Hold{From: r.accountPath(), Asset: AssetName(r.String("bytes of asset",
		MaxAssetName)), Amount: r.amount()}
	t.Hold.To = make([]AccountPath, r.Count("accounts", MaxHoldAccounts, 1))
	for i := range t.Hold.To {
		t.Hold.To[i] = r.accountPath()
	}
	t.Hold.Poster = OrganisationName(r.String("bytes of organisation", MaxOrganisationName))
	t.Hold.Expires = Milliseconds(r.Uvarint())
	t.Note = r.Bytes("bytes of note", MaxNote)
}

// appendHoldEnd appends the encoding of a transaction that ends a hold: version 15, head, hold,
// from, count of postings with each of them, note.
func (t *Transaction) appendHoldEnd(to []byte) []byte {
	to = append(t.appendHead(to, holdEndVersion), t.HoldEnd.Hold[:]...)
	to = codec.AppendString(to, t.HoldEnd.From)
	to = binary.AppendUvarint(to, uint64(len(t.Postings)))
	for i := range t.Postings {
		p := &t.Postings[i]
		to = appendAmount(codec.AppendString(codec.AppendString(to, p.Account), p.Asset), p.Amount)
	}
	return codec.AppendString(to, t.Note)
}

func (t *Transaction) decodeHoldEnd(r *reader) {
	t.decodeHead(r)
	t.HoldEnd = &HoldEnd{Hold: r.Hash(), From: r.accountPath()}
	if count := r.Count("postings", MaxHoldAccounts+1, 3); count > 0 {
		t.Postings = make([]Posting, count)
		for i := range t.Postings {
			t.Postings[i] = Posting{Account: r.accountPath(),
				Asset: AssetName(r.String("bytes of asset", MaxAssetName)), Amount: r.amount()}
		}
	}
	t.Note = r.Bytes("bytes of note", MaxNote)
}
