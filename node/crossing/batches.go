package crossing

import (
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
	"github.com/ledgerd/ledgerd/node/crossing/streams"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/pipeline"
)

// Hook implements Crossing.
func (b *book) Hook(pool *mempool.Config, executing *pipeline.Config) {
	pool.Beside, pool.Misplaced, pool.Expires = b, b.misplaced, b.Expires
	executing.Applied, executing.DurableTo, executing.Exchanged = b.applied, b.durableTo,
		b.exchanged
	if b.config.Genesis.VouchedCrossings {
		pool.Vouch, executing.Vouched = b.vouch, b.judge
	}
}

// vouch signs what a batch has of other shards.
func (b *book) vouch(batch *ledger.Batch, stream []ledger.Vouched) {
	batch.Vouch(b.config.Key, b.chain, stream)
}

// largestEntry is the room for the largest entry of the stream, vouched for.
const largestEntry = streams.EntryMax + ledger.VouchedSize

// Propose implements mempool.Beside. Verdicts come first, since each has a client's money behind
// it. The parent's stream gets the remaining room, and copies that are too late what that leaves.
func (b *book) Propose(room int, use func(mempool.Input)) {
	groups, words := b.verdicts.Propose(b.verdictRoom(room))
	room -= len(words) * ledger.VerdictSize
	for i := range groups {
		room -= ledger.VerdictGroupSize(len(groups[i].IDs))
	}
	if b.config.Genesis.VouchedCrossings {
		room -= ledger.VoucherSize(0)
	}
	used, now := false, b.config.Now()
	late := b.late.propose(now, b.takesLate(now))
	b.streams.Propose(min(room, max(largestEntry, room-room/8)),
		func(carried []ledger.Carried, vouched []ledger.Vouched) {
			used = true
			left := room - len(vouched)*ledger.VouchedSize
			carried = slices.Clip(fitting(carried, left))
			for i := range carried {
				left -= ledger.CarriedSize(len(carried[i].Bundle))
			}
			use(mempool.Input{Carried: append(carried, verdicts.Within(late, left)...),
				Groups: groups, Verdicts: words, Vouched: vouched})
		})
	if used {
		return
	}
	if late := verdicts.Within(late, room); len(groups)+len(words)+len(late) > 0 {
		use(mempool.Input{Carried: late, Groups: groups, Verdicts: words})
	}
}

// verdictRoom returns how much of a batch's room verdicts may take. The largest entry of the stream
// may need nearly all the room that clients' bundles leave. If the verdicts' share would keep that
// entry out, verdicts get only the rest, every other time.
func (b *book) verdictRoom(room int) int {
	share, spare := room/4, room-mempool.LargestBeside()
	if spare < 0 || spare >= share {
		return share
	}
	if b.spared = !b.spared; b.spared {
		return spare
	}
	return share
}

// fitting returns the first entries that fit into room bytes of a batch. The others count as
// proposed and come again later.
func fitting(carried []ledger.Carried, room int) []ledger.Carried {
	for i := range carried {
		if room -= ledger.CarriedSize(len(carried[i].Bundle)); room < 0 {
			return carried[:i]
		}
	}
	return carried
}

// applied is called for each executed block.
func (b *book) applied(block *ledger.Block) {
	b.streams.Applied(block.Header.Height, b.config.Node.Store().Carried())
	b.verdicts.Applied(block)
	b.late.forget(block)
	b.moving(block)
	b.obstacles.Applied(time.Now(), b.config.Node.Store().PendingCount())
	b.announcer.Soon()
}

func (b *book) durableTo(height ledger.Height) {
	b.grow(b.config.Node.Store(), height)
	b.streams.DurableTo(height)
	b.verdicts.DurableTo(height)
	b.noteLosses(height)
	b.tellMembers(height)
}

func (b *book) exchanged() {
	b.epoch.Store(0) // the other store may have fewer certificates
	b.streams.Reset()
	b.verdicts.Reset()
	b.fetcher.admitted.forgetAll()
	b.recallMoves(b.config.Node.Store())
	b.comesMore()
}
