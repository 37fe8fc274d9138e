package ledger_test

import (
	"fmt"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// holdParts adds what a hold, or the end of one, has before the note.
func holdParts(p *parts, t *ledger.Transaction, begin func(byte, bool), nonce func()) {
	version := byte(14)
	if t.HoldEnd != nil {
		version = 15
	}
	begin(version, true)
	nonce()
	p.uvarint("last valid height", uint64(t.LastValid))
	p.uvarint("deadline", uint64(t.Deadline))
	if end := t.HoldEnd; end != nil {
		p.add("hold", end.Hold[:]...)
		p.string("account of the hold", []byte(end.From))
		p.uvarint("postings, count", uint64(len(t.Postings)))
		for i, each := range t.Postings {
			of := fmt.Sprintf("posting %d, ", i)
			p.string(of+"account", []byte(each.Account))
			p.string(of+"asset", []byte(each.Asset))
			p.add(of+"amount "+each.Amount.String(), amount(decimal(each.Amount.String()))...)
		}
		return
	}
	p.string("account", []byte(t.Hold.From))
	p.string("asset", []byte(t.Hold.Asset))
	p.add("amount "+t.Hold.Amount.String(), amount(decimal(t.Hold.Amount.String()))...)
	p.uvarint("accounts, count", uint64(len(t.Hold.To)))
	for i, each := range t.Hold.To {
		p.string(fmt.Sprintf("account %d", i), []byte(each))
	}
	p.string("poster", []byte(t.Hold.Poster))
	p.uvarint("expiry", uint64(t.Hold.Expires))
}

// detailsParts adds what an entry with details has between the nonce and the note.
func detailsParts(p *parts, t *ledger.Transaction) {
	d := t.Details
	p.uvarint("last valid height", uint64(t.LastValid))
	p.uvarint("deadline", uint64(t.Deadline))
	p.uvarint("effective date", uint64(d.Effective))
	p.string("idempotency key", []byte(d.Key))
	p.uvarint("refundable until", uint64(d.Refundable))
	p.bool("a refund", d.Refund != nil)
	if of := d.Refund; of != nil {
		p.add("entry that it refunds", of.Entry[:]...)
		p.string("organisation of that entry", []byte(of.Organisation))
	}
	itemParts(p, t)
}

// detailVectors are the content of details.json, of schedules.json and of members.json.
type detailVectors struct {
	Transactions []vector `json:"transactions"`
}

// divided divides vectors into those of entries with details, those of schedules, those of changes
// of the members, and the others.
func divided(all []vector) (details, schedules, members detailVectors, others []vector) {
	for _, each := range all {
		if strings.HasPrefix(each.Encoded, "11") {
			details.Transactions = append(details.Transactions, each)
		} else if each.Encoded >= "12" && each.Encoded < "15" {
			schedules.Transactions = append(schedules.Transactions, each)
		} else if strings.HasPrefix(each.Encoded, "02") {
			members.Transactions = append(members.Transactions, each)
		} else {
			others = append(others, each)
		}
	}
	return details, schedules, members, others
}
