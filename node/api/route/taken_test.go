package route_test

import (
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// answers returns the statuses or the refusal of a bundle that is to be admitted, by Submit and by
// SubmitMany, which have to agree. A node may be unsure because another one did not answer it in
// time, on a machine that is busy. So answers asks until both are sure, or for unsure reports both
// unsure twice.
func (b *book) answers(door int, bundle *ledger.Bundle) (statuses []*ledgerdv1.TransactionStatus,
	reason string, unsure bool) {
	b.Helper()
	const tries = 10
	for try := 1; ; try++ {
		var outcome *ledgerdv1.BundleOutcome
		statuses, reason, unsure, outcome = b.answersOnce(door, bundle)
		switch differ := unsure != outcome.GetUnsure(); {
		case differ && try < tries, unsure && try == 1:
			continue
		}
		if outcome.GetReasonCode() != reason || outcome.GetUnsure() != unsure ||
			len(outcome.GetTransactions()) != len(statuses) {
			b.Errorf("at shard %d: %q, unsure %v, but many: %v", door, reason, unsure, outcome)
		}
		return statuses, reason, unsure
	}
}

// answersOnce returns the answer of Submit and the outcome of SubmitMany.
func (b *book) answersOnce(door int, bundle *ledger.Bundle) (
	statuses []*ledgerdv1.TransactionStatus, reason string, unsure bool,
	outcome *ledgerdv1.BundleOutcome) {
	b.Helper()
	answer, err := b.clients[door].Submit(b.context(), connect.NewRequest(
		&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(bundle), Wait: admitted}))
	if coded := (*connect.Error)(nil); errors.As(err, &coded) {
		reason = coded.Meta().Get(api.HeaderReason)
		unsure = coded.Meta().Get(api.HeaderUnsure) == "true"
	} else {
		statuses = answer.Msg.GetTransactions()
	}
	many, err := b.clients[door].SubmitMany(b.context(), connect.NewRequest(
		&ledgerdv1.SubmitManyRequest{Wait: admitted,
			Bundles: []*ledgerdv1.Bundle{api.BundleToProto(bundle)}}))
	if err != nil {
		b.Fatal(err)
	}
	return statuses, reason, unsure, many.Msg.GetOutcomes()[0]
}

// While the shard is down where bundles enter, a bundle counts as taken only if all of it was. If a
// part was, or may have been, no refusal hides that.
func TestTakenByAShardThatIsDown(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	old, other := b.orgs[1].Transfer("org1:mint", "org2:a", 5),
		b.orgs[1].Transfer("org1:mint", "org2:a", 6)
	whole := b.signed(old, other)
	for _, status := range b.submitted(1, whole) {
		b.settled(status, 1)
	}
	fresh := func() ledger.Transaction { return b.orgs[1].Transfer("org1:mint", "org2:a", 7) }

	// Nobody answers, and no node knows yet that the shard is down.
	b.Silence(0, true)
	payment := fresh()
	lost := b.signed(payment)
	if _, reason, unsure := b.answers(1, lost); reason != "" || !unsure {
		t.Errorf("without an answer: %q, unsure %v", reason, unsure)
	}

	b.Obstruct(down(0))
	for _, door := range []int{1, 2} {
		statuses, reason, _ := b.answers(door, whole)
		if reason != "" || len(statuses) != 2 {
			t.Fatalf("at shard %d, taken before: %v, %q", door, statuses, reason)
		}
		for _, status := range statuses {
			b.settled(status, 1)
		}
		for name, c := range map[string]struct {
			bundle *ledger.Bundle
			unsure bool
		}{
			"new":                   {b.signed(fresh()), false},
			"two new":               {b.signed(fresh(), fresh()), false},
			"new beside taken":      {b.signed(old, fresh()), true},
			"new before taken":      {b.signed(fresh(), old), true},
			"sent without answer":   {lost, door == 1}, // as that node knows
			"that before a new one": {b.signed(payment, fresh()), door == 1},
		} {
			statuses, reason, unsure := b.answers(door, c.bundle)
			if reason != report.ReasonShardDown || unsure != c.unsure {
				t.Errorf("at shard %d, %s: %v, %q, unsure %v", door, name, statuses, reason, unsure)
			}
		}
	}
	_, err := b.clients[2].Submit(b.context(), connect.NewRequest(&ledgerdv1.SubmitRequest{
		Bundle: api.BundleToProto(b.signed(fresh()))}))
	if err == nil || !strings.Contains(err.Error(), "it may still take effect") {
		t.Error(err)
	}
	b.Silence(1, true) // the signer's home
	if _, reason, unsure := b.answers(2, b.signed(fresh())); reason != report.ReasonShardDown ||
		!unsure {
		t.Errorf("without an answer of the home: %q, unsure %v", reason, unsure)
	}
}

// The shard where a bundle enters has a part of it, and the rest has an obstacle in its way.
func TestPartTakenBesideAnObstacle(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	old := b.orgs[1].Transfer("org1:mint", "org2:a", 5)
	b.settled(b.submit(0, durable, b.signed(old)), 1)
	b.Obstruct(down(2))
	for door := range b.clients {
		fresh := b.orgs[1].Transfer("org1:mint", "org2:a", 7)
		if _, reason, unsure := b.answers(door, b.signed(old, fresh)); reason !=
			report.ReasonShardDown || !unsure {
			t.Errorf("at shard %d: %q, unsure %v", door, reason, unsure)
		}
		if _, reason, unsure := b.answers(door, b.signed(fresh)); reason !=
			report.ReasonShardDown || unsure {
			t.Errorf("at shard %d, all new: %q, unsure %v", door, reason, unsure)
		}
	}
}

// submitted submits a bundle and waits until it is durable in all shards.
func (b *book) submitted(door int, bundle *ledger.Bundle) []*ledgerdv1.TransactionStatus {
	b.Helper()
	answer, err := b.clients[door].Submit(b.context(), connect.NewRequest(
		&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(bundle),
			Wait: ledgerdv1.Level_LEVEL_DURABLE_EVERYWHERE}))
	if err != nil {
		b.Fatal(err)
	}
	return answer.Msg.GetTransactions()
}
