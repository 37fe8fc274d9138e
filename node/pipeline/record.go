package pipeline

import (
	"errors"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// Record takes complete rounds of the run's engine. With the next flush they go to the disk, beside
// the rounds that follow, and count as stored before they are A-delivered. Package shard decides
// which do, docs/design/rounds.md says why.
func (p *Pipeline) Record(rounds []order.Delivery) {
	p.mu.Lock()
	p.recorder.Offer(rounds)
	waits := p.recorder.Waits(p.round)
	p.mu.Unlock()
	if waits {
		p.syncSoon()
	}
}

// Records returns how many records of complete rounds this disk got.
func (p *Pipeline) Records() uint64 { return p.records.Load() }

// LeftOut returns how many records this disk did not get, because they were too large or found no
// space. Their blocks count once they are stored.
func (p *Pipeline) LeftOut() uint64 { return p.leftOut.Load() }

// EndRecords ends what Record began in this run, whose engine is frozen: it waits for the flush
// that is under way, and no further one takes a record. The store then has the last one.
func (p *Pipeline) EndRecords() error {
	p.mu.Lock()
	p.recorder.Drop()
	p.mu.Unlock()
	return p.Sync()
}

// recordBytesMax bounds the payloads of a record, which is in memory until its blocks take its
// place. Rounds that carry more are not recorded.
const recordBytesMax = 32 << 20

// payloadBytes returns how many bytes rounds carry.
func payloadBytes(rounds []order.Delivery) (bytes int) {
	for i := range rounds {
		for _, message := range rounds[i].Messages {
			bytes += len(message.Payload)
		}
	}
	return bytes
}

// lazySync is how long a block may wait for the next record, to share its flush.
const lazySync = 50 * time.Millisecond

// syncBlock has a block synced: at once, unless records of its round make it durable, and this disk
// has one of them.
func (p *Pipeline) syncBlock(block *ledger.Block) {
	heights := p.progress.now()
	if block.Header.Height > min(heights.Recorded, heights.Durable) {
		p.syncSoon()
		return
	}
	select {
	case p.lazily <- struct{}{}:
	default:
	}
}

// putRecord gives the rounds that wait to the store, for the sync that follows, and returns what
// the record is about; nil for none. The caller holds syncing.
func (p *Pipeline) putRecord(opened *store.Store) (*shard.Record, error) {
	p.mu.Lock()
	rounds := p.recorder.Take(p.round)
	if len(rounds) == 0 || !p.disks.Counts() {
		p.mu.Unlock()
		return nil, nil
	}
	if payloadBytes(rounds) > recordBytesMax {
		p.mu.Unlock()
		p.leftOut.Add(1)
		return nil, nil
	}
	r := &shard.Record{Run: generation.Run(p.run.Number), Height: uint64(p.tip.Height),
		Hash: p.tip.Hash, After: rounds[0].Round - 1}
	for i := range rounds {
		rounds[i].Epoch += order.Epoch(p.baseEpoch)
	}
	p.mu.Unlock()
	encoded := p.config.EncodeRecord(r, rounds)
	err := opened.PutRecord(encoded, ledger.Round(r.Last()))
	if errors.Is(err, store.ErrDiskFull) || errors.Is(err, store.ErrNoDescriptors) ||
		errors.Is(err, store.ErrNoRoom) {
		p.leftOut.Add(1)
		return nil, nil // the blocks count without it, once they find space
	}
	return r, err
}

// PeerRecorded records that a member's disk has complete rounds of a run.
func (p *Pipeline) PeerRecorded(run uint64, member order.ServerID, rounds []shard.Recorded) {
	p.mu.Lock()
	current := p.disks.Recorded(generation.Run(run), member, rounds)
	p.mu.Unlock()
	if current {
		p.settleDurable()
		p.tellDurable()
	}
}

// settleRecorded finds up to which block the own disk has records. The caller holds mu.
func (p *Pipeline) settleRecorded() {
	held := min(ledger.Height(p.disks.Holds(p.config.Self)), p.counted)
	if held <= p.progress.now().Stored {
		return // wake nobody for what the blocks themselves say
	}
	p.progress.update(func(h *report.Heights) { h.Recorded = max(h.Recorded, held) })
}
