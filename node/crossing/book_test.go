package crossing

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/pipeline"
)

// The genesis says whether crossings are vouched for, and each part of the node is told. A node
// signs with its key what its batches say of other shards.
func TestGenesisTellsAllPartsToVouch(t *testing.T) {
	t.Parallel()
	for _, vouched := range []bool{true, false} {
		genesis := *vouchedGenesis(t, 1)
		genesis.VouchedCrossings = vouched
		b, err := newBook(Config{Dir: t.TempDir(), Genesis: &genesis, Node: struct{ Node }{},
			Key: ledgertest.Key("node-3"), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var pool mempool.Config
		b.Hook(&pool, new(pipeline.Config))
		verdicts := b.verdictsConfig(nil)
		if b.directory.Vouched() != vouched || verdicts.Vouched != vouched ||
			verdicts.Prove == nil || b.streamsConfig(nil, nil).Vouched != vouched ||
			(pool.Vouch != nil) != vouched {
			t.Errorf("vouched crossings %v: a part does not know", vouched)
		}
		if pool.Vouch == nil {
			continue
		}
		batch := ledger.Batch{Verdicts: []ledger.Verdict{{ID: ledger.Hash{1},
			Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}}}}
		stream := []ledger.Vouched{{Number: 2, Hash: ledger.Hash{3}}}
		pool.Vouch(&batch, stream)
		verified, err := ledger.VerifyBatch(batch.Encode())
		if err != nil || verified.VoucherErr != nil {
			t.Fatal(err, verified.VoucherErr)
		}
		if v := verified.Voucher; v.Chain != genesis.Hash() || !slices.Equal(v.Stream, stream) ||
			v.Key != ledgertest.PublicKey("node-3") {
			t.Errorf("the voucher is %+v", v)
		}
	}
}

// Verdicts have a quarter of a batch's room, but do not keep the stream's largest entry out for
// ever.
func TestVerdictsLeaveRoomForTheLargestEntry(t *testing.T) {
	t.Parallel()
	largest := mempool.LargestBeside()
	for _, room := range []int{0, largest - 1, largest, largest + 1, largest + largest/4,
		2 * largest, 8 * largest} {
		b := new(book)
		fits, shares := false, false
		for range 2 {
			share := b.verdictRoom(room)
			if share < 0 || share > room/4 {
				t.Errorf("verdicts may have %d of %d bytes", share, room)
			}
			fits, shares = fits || share+largest <= room, shares || share == room/4
		}
		if fits != (room >= largest) || !shares {
			t.Errorf("of %d bytes the largest entry, of %d, has its turn: %v; the verdicts have "+
				"theirs: %v", room, largest, fits, shares)
		}
	}
}
