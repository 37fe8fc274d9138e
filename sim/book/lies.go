package book

import "github.com/ledgerd/ledgerd/ledger"

// lies reports whether a member lies now: sometimes, while the fault lasts.
func (m *member) lies() bool {
	w := m.group.world
	return w.turn < m.liesUntil && !m.heir && w.random.IntN(3) > 0
}

// said returns what a member says of its shard's verdict: a lie is the opposite.
func (m *member) said(verdict ledger.Verdict) ledger.Verdict {
	if m.lies() {
		return opposite(verdict)
	}
	return verdict
}

// opposite returns a verdict that says the opposite. That of a departure says that something else
// arrives.
func opposite(verdict ledger.Verdict) ledger.Verdict {
	if testimony, is := verdict.Testimony(); is {
		return testimony.Verdict(verdict.ID, verdict.Shard,
			verdict.Result.Code != ledger.HeardAgreement)
	}
	if _, departure := verdict.MoveOf(); departure {
		verdict.ID[0]++
		return verdict
	}
	code := ledger.SetAside
	if verdict.Good() {
		code = ledger.TooManyWaiting
	}
	verdict.Result = ledger.Result{Code: code, Item: ledger.NoItem}
	return verdict
}

// sent returns what a member sends as an entry of the stream to a child: a lie is another entry of
// the stream under its number.
func (m *member) sent(child ledger.ShardID, entry *carried) *carried {
	if !m.lies() {
		return entry
	}
	stream := m.streams[child]
	other := stream[m.group.world.random.IntN(len(stream))]
	return &carried{Carried: ledger.Carried{Number: entry.Number, Bundle: other.Bundle},
		hash: other.hash, height: entry.height}
}

// lieToFellows adds verdicts that no shard gave to a batch, on transactions that wait, and puts
// entries of the stream under other numbers. In a book in which organisations move it adds copies
// that are too late.
func (m *member) lieToFellows(batch *ledger.Batch) {
	for _, one := range m.state.AllPending() {
		for _, shard := range one.Waits {
			if m.lies() {
				batch.Verdicts = append(batch.Verdicts, opposite(ledger.Verdict{ID: one.ID,
					Shard: shard, Result: ledger.Result{Code: ledger.SetAside}}))
			}
		}
		for _, inquiry := range one.Inquiries {
			if m.lies() {
				batch.Verdicts = append(batch.Verdicts, inquiry.Verdict(one.ID, inquiry.Of[0],
					m.group.world.random.IntN(2) == 0))
			}
		}
	}
	for i := range batch.Carried {
		batch.Carried[i].Bundle = batch.Carried[0].Bundle
	}
	if m.group.world.plan.movers != nil {
		m.proposeFalseCopies(batch)
	}
}
