package ledger_test

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// holdParts adds what a hold, or the end of one, has between the deadline and the note.
func holdParts(p *parts, t *ledger.Transaction) {
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
