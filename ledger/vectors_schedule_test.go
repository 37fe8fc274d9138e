package ledger_test

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// scheduleParts adds what a schedule, its end or an occurrence has before the note.
func scheduleParts(p *parts, t *ledger.Transaction, begin func(byte, bool), nonce func()) {
	postings := func(all []ledger.Posting) {
		p.uvarint("postings, count", uint64(len(all)))
		for i, each := range all {
			of := fmt.Sprintf("posting %d, ", i)
			p.string(of+"account", []byte(each.Account))
			p.string(of+"asset", []byte(each.Asset))
			p.add(of+"amount "+each.Amount.String(), amount(decimal(each.Amount.String()))...)
		}
	}
	head := func(version byte) {
		begin(version, true)
		nonce()
		p.uvarint("last valid height", uint64(t.LastValid))
		p.uvarint("deadline", uint64(t.Deadline))
	}
	switch {
	case t.Schedule != nil:
		s := t.Schedule
		head(18)
		p.uvarint("shard", uint64(s.Shard))
		p.uvarint("first", uint64(s.First))
		p.add("period: "+s.Period.String(), byte(s.Period))
		p.uvarint("every", s.Every)
		p.uvarint("count", s.Count)
		p.uvarint("until", uint64(s.Until))
		postings(s.Postings)
	case t.ScheduleEnd != nil:
		head(19)
		p.uvarint("shard", uint64(t.ScheduleEnd.Shard))
		p.add("schedule", t.ScheduleEnd.Schedule[:]...)
	default:
		begin(20, true)
		p.add("schedule", t.Occurrence.Schedule[:]...)
		p.uvarint("number", t.Occurrence.Number)
		p.uvarint("time", uint64(t.Occurrence.Time))
		postings(t.Postings)
	}
}
