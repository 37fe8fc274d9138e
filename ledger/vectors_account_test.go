package ledger_test

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// accountParts adds what a change of the terms of an account says.
func accountParts(p *parts, change *ledger.AccountChange) {
	p.string("account", []byte(change.Account))
	p.uvarint("number of the change", change.Number)
	p.string("alias", []byte(change.Alias))
	termsParts(p, &change.AccountTerms)
}

// termsParts adds the terms of an account, as a change of them and the state have them.
func termsParts(p *parts, terms *ledger.AccountTerms) {
	flags := byte(0)
	for i, set := range []bool{terms.NoDebits, terms.NoCredits, terms.Closed} {
		if set {
			flags |= 1 << i
		}
	}
	p.add("flags", flags)
	p.add("freeze: "+terms.Freeze.String(), byte(terms.Freeze))
	p.string("guardian", []byte(terms.Guardian))
	p.uvarint("limits, count", uint64(len(terms.Limits)))
	for i, each := range terms.Limits {
		of := fmt.Sprintf("limit %d, ", i)
		p.string(of+"asset", []byte(each.Asset))
		has := byte(0)
		for j, set := range []bool{each.Floor != nil, each.Ceiling != nil, each.Velocity != nil} {
			if set {
				has |= 1 << j
			}
		}
		p.add(of+"parts", has)
		if each.Floor != nil {
			p.add(of+"floor "+each.Floor.String(), amount(decimal(each.Floor.String()))...)
		}
		if each.Ceiling != nil {
			p.add(of+"ceiling "+each.Ceiling.String(), amount(decimal(each.Ceiling.String()))...)
		}
		if each.Velocity != nil {
			text := each.Velocity.Amount.String()
			p.add(of+"velocity "+text, amount(decimal(text))...)
			p.uvarint(of+"seconds", uint64(each.Velocity.Seconds))
		}
	}
	p.uvarint("metadata, count", uint64(len(terms.Metadata)))
	for i, each := range terms.Metadata {
		of := fmt.Sprintf("metadata %d, ", i)
		p.string(of+"key", []byte(each.Key))
		p.string(of+"value", []byte(each.Value))
		p.bool(of+"indexed", each.Indexed)
	}
}
