package shards

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	waitingVersion = 1
	// lossVersion is that of a message that says what is lost. Members of earlier versions drop it.
	lossVersion = 2
	waitSize    = 4 + 3*8
	lossSize    = 4 + 2*8
	// waitMax bounds how many entries may wait for a shard, so that no sum over all shards
	// overflows. No chain has as many.
	waitMax = 1 << 48
)

// encodeWaiting encodes what entries of a shard's chain wait for, little-endian: version u8, shard
// u32, then u64 each: the overdue transactions and the time of the oldest; then twice, for the
// verdicts and the streams, a list after its number u16: shard u32, and u64 each its count, how
// many are overdue, and the time of the oldest. Times are milliseconds since 1970, and 0 for none.
// If entries of streams are lost, the version is 2, and another list follows: shard u32, and u64
// each how many of the entries are lost, and the height.
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
	lost := slices.DeleteFunc(slices.Clone(w.Streams), func(wait report.Wait) bool {
		return wait.Lost == 0
	})
	if len(lost) == 0 {
		return b
	}
	b[0] = lossVersion
	lost = lost[:min(len(lost), ledger.MaxShards)]
	b = binary.LittleEndian.AppendUint16(b, uint16(len(lost)))
	for i := range lost {
		b = binary.LittleEndian.AppendUint32(b, uint32(lost[i].Shard))
		b = binary.LittleEndian.AppendUint64(b, lost[i].Lost)
		b = binary.LittleEndian.AppendUint64(b, uint64(lost[i].LostHeight))
	}
	return b
}

// decodeWaiting reads the encoding of encodeWaiting, or returns ErrMalformed.
func decodeWaiting(b []byte) (shard ledger.ShardID, w report.Waiting, err error) {
	r := reader{rest: b}
	version := r.uint8()
	if version != waitingVersion && version != lossVersion {
		r.fail("what waits, of version %d", version)
	}
	shard = ledger.ShardID(r.uint32())
	w.Overdue, w.Since = r.uint64(), r.time()
	w.Verdicts, w.Streams = r.waits(), r.waits()
	if version == lossVersion {
		r.losses(w.Streams)
	}
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
		if wait.Count > waitMax {
			r.fail("%d entries wait for shard %d", wait.Count, wait.Shard)
		}
		if len(list) > 0 && wait.Shard <= list[len(list)-1].Shard {
			r.fail("shard %d is named after shard %d", wait.Shard, list[len(list)-1].Shard)
		}
		list = append(list, wait)
	}
	return list
}

// losses reads what is lost of streams, and adds it to them.
func (r *reader) losses(streams []report.Wait) {
	count := r.count(int(r.uint16()), ledger.MaxShards, lossSize)
	if count == 0 {
		r.fail("nothing is lost")
	}
	last := -1
	for range count {
		shard, lost, height := ledger.ShardID(r.uint32()), r.uint64(), ledger.Height(r.uint64())
		at := slices.IndexFunc(streams, func(wait report.Wait) bool { return wait.Shard == shard })
		if at <= last || lost == 0 || lost > streams[at].Count {
			r.fail("%d entries of the stream to shard %d are lost", lost, shard)
			return
		}
		streams[at].Lost, streams[at].LostHeight, last = lost, height, at
	}
}

// Lacks returns what a shard can never take from the shard above, or from one that was above
// before, as the members of that one say.
func (d *Directory) Lacks(shard ledger.ShardID) report.Wait {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, above := range above(d.Tree(), shard) {
		waiting := d.waitingOf(above)
		if lacks := waiting.LostFor(above, shard); lacks.Lost > 0 {
			return lacks
		}
	}
	return report.Wait{}
}

// above returns the shards that were right above a shard, and the one that is.
func above(tree *ledger.ShardTree, shard ledger.ShardID) []ledger.ShardID {
	above := tree.FormerParents(shard)
	if parent, below := tree.Parent(shard); below {
		above = append(above, parent)
	}
	return above
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
		d.limit(shard, &waiting)
		d.waiting[peer] = heardWaiting{shard: shard, waiting: waiting, at: at}
	}
}

// limit drops the shards for which a shard cannot wait, and limits what is overdue to what waits.
func (d *Directory) limit(shard ledger.ShardID, w *report.Waiting) {
	var most uint64
	for _, list := range []*[]report.Wait{&w.Verdicts, &w.Streams} {
		*list = slices.DeleteFunc(slices.Clone(*list), func(wait report.Wait) bool {
			return wait.Shard == shard || int64(wait.Shard) >= int64(d.Tree().Shards())
		})
		for i := range *list {
			wait := &(*list)[i]
			wait.Overdue = min(wait.Overdue, wait.Count)
			wait.Lost = min(wait.Lost, wait.Count)
		}
	}
	for i := range w.Verdicts {
		most += w.Verdicts[i].Overdue
	}
	w.Overdue = min(w.Overdue, most) // each of them waits for some shard
}

// waitingOf returns what the chain of a shard waits for, according to the member that says most is
// overdue, or with vouched crossings as far as more than half of its members agree. A member of an
// earlier version says nothing. So does one for which nothing waits any more: what it said counts
// only if it was not much earlier than its last announcement. Of a shard that is silent, it is what
// the shard last said. The caller holds the lock.
func (d *Directory) waitingOf(shard ledger.ShardID) (most report.Waiting) {
	// Of those that say that as much is overdue, one that knows what is lost says more.
	more := func(a, b *report.Waiting) bool {
		sums := func(w *report.Waiting) (overdue, lost uint64) {
			overdue = w.Overdue
			for i := range w.Streams {
				overdue, lost = overdue+w.Streams[i].Overdue, lost+w.Streams[i].Lost
			}
			return overdue, lost
		}
		overdueA, lostA := sums(a)
		overdueB, lostB := sums(b)
		return overdueA > overdueB || overdueA == overdueB && lostA > lostB
	}
	var all []report.Waiting
	for _, member := range d.shards[shard].list {
		said, known := d.waiting[member.Peer]
		h, announced := d.heardOf(member.Peer, shard)
		if !announced {
			continue
		}
		if !known || said.shard != shard || h.at.Sub(said.at) > ReportLifetime {
			all = append(all, report.Waiting{})
			continue
		}
		all = append(all, said.waiting)
		if most.None() || more(&said.waiting, &most) {
			most = said.waiting
		}
	}
	if d.vouched && shard != d.own {
		return d.agreed(shard, all)
	}
	return most
}

// agreed returns what more than half of those that said these agree on: that as much waits, at
// least, and since then, at the latest.
func (d *Directory) agreed(shard ledger.ShardID, all []report.Waiting) (agreed report.Waiting) {
	believed := func(of func(w *report.Waiting) uint64) uint64 {
		said := make([]uint64, len(all))
		for i := range all {
			said[i] = of(&all[i])
		}
		return d.believed(shard, said)
	}
	// A time is believed as its age, since the greater one says less.
	since := func(of func(w *report.Waiting) time.Time) time.Time {
		age := believed(func(w *report.Waiting) uint64 {
			if at := timeNumber(of(w)); at > 0 {
				return timeMax + 1 - at
			}
			return 0
		})
		if age == 0 {
			return time.Time{}
		}
		return time.UnixMilli(int64(timeMax + 1 - age))
	}
	list := func(of func(w *report.Waiting) []report.Wait) (waits []report.Wait) {
		var shards []ledger.ShardID
		for i := range all {
			for _, wait := range of(&all[i]) {
				shards = append(shards, wait.Shard)
			}
		}
		slices.Sort(shards)
		for _, awaited := range slices.Compact(shards) {
			at := func(w *report.Waiting) (found report.Wait) {
				for _, wait := range of(w) {
					if wait.Shard == awaited {
						found = wait
					}
				}
				return found
			}
			wait := report.Wait{Shard: awaited,
				Count:   believed(func(w *report.Waiting) uint64 { return at(w).Count }),
				Overdue: believed(func(w *report.Waiting) uint64 { return at(w).Overdue }),
				Lost:    believed(func(w *report.Waiting) uint64 { return at(w).Lost }),
				Since:   since(func(w *report.Waiting) time.Time { return at(w).Since })}
			if wait.Lost > 0 {
				wait.LostHeight = ledger.Height(believed(func(w *report.Waiting) uint64 {
					return uint64(at(w).LostHeight)
				}))
			}
			if wait.Count > 0 {
				waits = append(waits, wait)
			}
		}
		return waits
	}
	agreed.Overdue = believed(func(w *report.Waiting) uint64 { return w.Overdue })
	agreed.Since = since(func(w *report.Waiting) time.Time { return w.Since })
	agreed.Verdicts = list(func(w *report.Waiting) []report.Wait { return w.Verdicts })
	agreed.Streams = list(func(w *report.Waiting) []report.Wait { return w.Streams })
	return agreed
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
