package shards

import (
	"encoding/binary"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	waitingVersion = 1
	waitSize       = 4 + 3*8
)

// encodeWaiting encodes what entries of a shard's chain wait for, little-endian: version u8, shard
// u32, then u64 each: the overdue transactions and the time of the oldest; then twice, for the
// verdicts and the streams, a list after its number u16: shard u32, and u64 each its count, how
// many are overdue, and the time of the oldest. Times are milliseconds since 1970, and 0 for none.
func encodeWaiting(shard ledger.ShardID, w *report.Waiting) []byte {
	b := make([]byte, 0, 1+4+16+2+2+(len(w.Verdicts)+len(w.Streams))*waitSize)
	b = binary.LittleEndian.AppendUint32(append(b, waitingVersion), uint32(shard))
	b = binary.LittleEndian.AppendUint64(b, w.Overdue)
	b = binary.LittleEndian.AppendUint64(b, timeNumber(w.Since))
	for _, list := range [][]report.Wait{w.Verdicts, w.Streams} {
		list = list[:min(len(list), ledger.MaxShards)]
		b = binary.LittleEndian.AppendUint16(b, uint16(len(list)))
		for i := range list {
			b = binary.LittleEndian.AppendUint32(b, uint32(list[i].Shard))
			for _, value := range [3]uint64{list[i].Count, list[i].Overdue,
				timeNumber(list[i].Since)} {
				b = binary.LittleEndian.AppendUint64(b, value)
			}
		}
	}
	return b
}

// decodeWaiting reads the encoding of encodeWaiting, or returns ErrMalformed.
func decodeWaiting(b []byte) (shard ledger.ShardID, w report.Waiting, err error) {
	r := reader{rest: b}
	if version := r.uint8(); version != waitingVersion {
		r.fail("what waits, of version %d", version)
	}
	shard = ledger.ShardID(r.uint32())
	w.Overdue, w.Since = r.uint64(), r.time()
	w.Verdicts, w.Streams = r.waits(), r.waits()
	if err := r.end(); err != nil {
		return 0, report.Waiting{}, err
	}
	return shard, w, nil
}

// waits reads a list of shards that are waited for, ascending.
func (r *reader) waits() (list []report.Wait) {
	for range r.count(int(r.uint16()), ledger.MaxShards, waitSize) {
		wait := report.Wait{Shard: ledger.ShardID(r.uint32()), Count: r.uint64(),
			Overdue: r.uint64(), Since: r.time()}
		if len(list) > 0 && wait.Shard <= list[len(list)-1].Shard {
			r.fail("shard %d is named after shard %d", wait.Shard, list[len(list)-1].Shard)
		}
		list = append(list, wait)
	}
	return list
}

// timeMax bounds times in messages: the end of the year 9999.
const timeMax = 253_402_300_799_999

// time reads a time in milliseconds.
func (r *reader) time() time.Time {
	value := r.uint64()
	if value > timeMax {
		r.fail("a time of %d ms", value)
	}
	if value == 0 || r.err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(value))
}

// timeNumber returns a time in milliseconds, 0 for none.
func timeNumber(at time.Time) uint64 {
	if at.IsZero() {
		return 0
	}
	return uint64(min(max(at.UnixMilli(), 0), timeMax))
}

// heardWaiting is what a member last said of what waits in its chain.
type heardWaiting struct {
	shard   ledger.ShardID
	waiting report.Waiting
	at      time.Time
}

// HeardWaiting records what a member says of what waits in its shard's chain. It ignores a peer
// that is no member of the shard.
func (d *Directory) HeardWaiting(peer rdmanet.PeerID, shard ledger.ShardID, waiting report.Waiting,
	at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if where, known := d.places[peer]; known && where.shard == shard {
		d.waiting[peer] = heardWaiting{shard: shard, waiting: waiting, at: at}
	}
}

// waitingOf returns what the chain of a shard waits for, according to the member that says most is
// overdue. A member of an earlier version says nothing. So does one for which nothing waits any
// more: what it said counts only if it was not much earlier than its last announcement. Of a shard
// that is silent, it is what the shard last said. The caller holds the lock.
func (d *Directory) waitingOf(shard ledger.ShardID) (most report.Waiting) {
	overdue := func(w *report.Waiting) uint64 {
		sum := w.Overdue
		for i := range w.Streams {
			sum += w.Streams[i].Overdue
		}
		return sum
	}
	for _, member := range d.shards[shard].list {
		said, known := d.waiting[member.Peer]
		h, announced := d.heardOf(member.Peer, shard)
		if !known || said.shard != shard || !announced || h.at.Sub(said.at) > ReportLifetime {
			continue
		}
		if most.None() || overdue(&said.waiting) > overdue(&most) {
			most = said.waiting
		}
	}
	return most
}

// receiveWaiting handles what a member of another shard says of what waits in its chain. The
// members of the own shard do not tell each other: each knows it from its own chain.
func (a *Announcer) receiveWaiting(from rdmanet.Peer, payload []byte) {
	select {
	case <-a.closed:
		return
	default:
	}
	d := a.config.Directory
	own, _, known := d.Find(from.ID)
	if !known {
		a.config.Logger.Debug("what waits at no member dropped", "peer", from)
		return
	}
	shard, waiting, err := decodeWaiting(payload)
	if err != nil || shard != own || own == d.Own() {
		a.config.Logger.Error("what waits in another chain dropped", "peer", from, "shard", own,
			"says", shard, "error", err)
		return
	}
	d.HeardWaiting(from.ID, shard, waiting, time.Now())
}

// tellWaiting sends what waits in the own chain to the members of all other shards: at once if it
// changed, and else every AnnouncerConfig.Every while anything waits.
func (a *Announcer) tellWaiting() {
	waiting := a.config.Waiting()
	payload := encodeWaiting(a.config.Directory.Own(), &waiting)
	if string(payload) == a.told && (waiting.None() || time.Since(a.toldAt) < a.config.Every) {
		return
	}
	if a.told == "" && waiting.None() {
		return
	}
	a.told, a.toldAt = string(payload), time.Now()
	a.sendToOthers(wire.KindWaiting, payload)
}
