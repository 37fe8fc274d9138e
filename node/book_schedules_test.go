package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestSchedulesWakeIdleChains: an occurrence is executed across shards while no client submits
// anything, and one that was cancelled is not.
func TestSchedulesWakeIdleChains(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0)
	b.open()
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()
	submit := func(k int, transaction ledger.Transaction) ledger.Hash {
		t.Helper()
		next := b.clients[1].Next()
		transaction.Ledger, transaction.Signer, transaction.Nonce = next.Ledger, next.Signer,
			next.Nonce
		bundle := b.clients[1].Bundle(transaction)
		statuses, err := b.via(k).Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE)
		if err != nil {
			t.Fatal(err)
		}
		b.executed(statuses)
		return bundle.ID(0)
	}
	schedule := func(amount int64, first time.Duration, every uint64) ledger.Schedule {
		s := ledger.Schedule{First: soon(first), Count: 1,
			Postings: b.clients[1].Transfer("org1:a", "org2:a", amount).Postings}
		if every > 0 {
			s.Period, s.Every, s.Count = ledger.Days, every, 3
		}
		return s
	}
	later := submit(1, client.PlaceSchedule(schedule(500, time.Hour, 1)))
	soonest := submit(2, client.PlaceSchedule(schedule(60, 4*time.Second, 1)))
	for _, k := range b.all() {
		open, err := b.via(k).Schedule(ctx, soonest)
		if err != nil || open.GetOccurrences() != 3 || open.GetSigner() != "org1" {
			t.Errorf("node %d: %v, %v", k, open, err)
		}
	}
	submit(0, client.EndSchedule(later, 0))
	b.holds(2, 1000+60)
	b.holds(1, 1000-60)
	b.eventually("the first of three was issued", func() bool {
		open, err := b.via(2).Schedule(ctx, soonest)
		return err == nil && open.GetIssued() == 1
	})
	count := 0
	for open, err := range b.via(1).Schedules(ctx, "org1") {
		count++
		if err != nil || open.GetScheduleHex() != soonest.String() {
			t.Errorf("%v, %v is open", open, err)
		}
	}
	if count != 1 {
		t.Errorf("%d are listed", count)
	}
}
