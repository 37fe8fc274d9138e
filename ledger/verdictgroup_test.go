package ledger_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// groupOf returns a group of this many verdicts of a shard.
func groupOf(shard ledger.ShardID, count int) ledger.VerdictGroup {
	group := ledger.VerdictGroup{Shard: shard, IDs: make([]ledger.Hash, count)}
	for i := range group.IDs {
		binary.BigEndian.PutUint32(group.IDs[i][:], uint32(i+1))
	}
	return group
}

func groupedSeed() *ledger.Batch {
	batch := vouchedSeed()
	batch.Groups = []ledger.VerdictGroup{groupOf(2, 3), groupOf(3, 2)}
	batch.Vouch(ledgertest.Key("node-0"), ledger.Hash{1}, batch.Voucher.Stream)
	return batch
}

// Other programs can compute a group's id. Everything in a group is part of it.
func TestVerdictGroupID(t *testing.T) {
	t.Parallel()
	group := groupOf(7, 2)
	content := append([]byte("ledgerd/group/1\x00\x07\x00\x00\x00"), group.IDs[0][:]...)
	if group.ID() != sha256.Sum256(append(content, group.IDs[1][:]...)) {
		t.Error("the id is something else")
	}
	for _, other := range []ledger.VerdictGroup{groupOf(8, 2), groupOf(7, 3), {Shard: 7,
		IDs: []ledger.Hash{group.IDs[1], group.IDs[0]}}} {
		if other.ID() == group.ID() {
			t.Errorf("%v has the same id", other)
		}
	}
	if verdict := group.Verdict(1); verdict.ID != group.IDs[1] || verdict.Shard != 7 ||
		!verdict.Good() || verdict.Result.Item != ledger.NoItem {
		t.Errorf("verdict %+v", verdict)
	}
}

// A batch with groups survives its encoding, its voucher covers all of each group, and a group that
// breaks a rule spoils the batch.
func TestBatchWithGroups(t *testing.T) {
	t.Parallel()
	batch := groupedSeed()
	verified, err := ledger.VerifyBatch(batch.Encode())
	if err != nil || verified.VoucherErr != nil ||
		!reflect.DeepEqual(verified.Groups, batch.Groups) ||
		len(verified.GroupIDs) != 2 || verified.GroupIDs[1] != batch.Groups[1].ID() {
		t.Fatalf("%+v, %v", verified, err)
	}
	for name, spoil := range map[string]func(*ledger.Batch){
		"shard":         func(b *ledger.Batch) { b.Groups[0].Shard++ },
		"id":            func(b *ledger.Batch) { b.Groups[0].IDs[2][31]++ },
		"half":          func(b *ledger.Batch) { b.Groups[0].IDs = b.Groups[0].IDs[:2] },
		"other order":   func(b *ledger.Batch) { slices.Reverse(b.Groups) },
		"one is absent": func(b *ledger.Batch) { b.Groups = b.Groups[:1] },
		"none":          func(b *ledger.Batch) { b.Groups = nil },
	} {
		wrong := groupedSeed()
		spoil(wrong)
		if verified, err := ledger.VerifyBatch(wrong.Encode()); err != nil ||
			!errors.Is(verified.VoucherErr, ledger.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, groups := range map[string][]ledger.VerdictGroup{
		"alone":        {groupOf(2, 1)},
		"none":         {groupOf(2, 0)},
		"too many":     {groupOf(2, ledger.MaxVerdictGroup+1)},
		"out of order": {{Shard: 2, IDs: []ledger.Hash{{2}, {1}}}},
		"twice":        {{Shard: 2, IDs: []ledger.Hash{{1}, {1}}}},
	} {
		wrong := groupedSeed()
		wrong.Groups = groups
		if _, err := ledger.DecodeBatch(wrong.Encode()); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The verdicts of a batch are bounded, in groups or not.
	full := &ledger.Batch{Verdicts: make([]ledger.Verdict, ledger.MaxVerdictGroup)}
	for i := range full.Verdicts {
		full.Verdicts[i].Result.Code = ledger.SetAside
	}
	for range ledger.MaxBatchVerdicts/ledger.MaxVerdictGroup - 1 {
		full.Groups = append(full.Groups, groupOf(2, ledger.MaxVerdictGroup))
	}
	full.Vouch(ledgertest.Key("node-0"), ledger.Hash{1}, nil)
	if _, err := ledger.DecodeBatch(full.Encode()); err != nil {
		t.Error(err)
	}
	full.Groups = append(full.Groups, groupOf(2, 2))
	if _, err := ledger.DecodeBatch(full.Encode()); !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("too many verdicts in all: %v", err)
	}
}

// The room that a group is said to need is enough.
func TestVerdictGroupSize(t *testing.T) {
	t.Parallel()
	without := len(vouchedSeed().Encode())
	batch := vouchedSeed()
	batch.Groups = []ledger.VerdictGroup{groupOf(ledger.MaxShards-1, ledger.MaxVerdictGroup)}
	if size := len(batch.Encode()) - without; size > ledger.VerdictGroupSize(
		ledger.MaxVerdictGroup)+1 {
		t.Errorf("a group adds %d bytes", size)
	}
}
