package streams

import (
	"cmp"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
)

// liarsEvery is the minimum time between two lines of the log about one member that lies.
const liarsEvery = 10 * time.Second

// vouching is what a node says about the entries that it believes, and about members of the parent
// that wrote others. It is guarded by the lock of the node's Streams.
type vouching struct {
	// hashes are the hashes of the entries beyond pruned, by number, as they were last vouched for.
	hashes map[uint64]hashed
	pruned uint64
	liars  map[order.ServerID]*liar
	// lies counts the entries of all liars, also of those that left.
	lies uint64
}

// hashed is an entry with its ledger.CarriedHash. The carrier never changes the payload, and
// replaces it if another one counts.
type hashed struct {
	payload []byte
	hash    ledger.Hash
}

// liar is a member of the parent that lied.
type liar struct {
	member  Member
	entries uint64
	logged  time.Time
}

// vouch sets the entries to vouch for in a batch, and returns the room for the entries that it
// carries. The caller holds the lock.
func (in *incoming) vouch(room int) int {
	in.vouchUpTo(min(ledger.MaxBatchVouched, room/4/ledger.VouchedSize))
	left := room - len(in.s.vouched)*ledger.VouchedSize
	next, pending := in.carrier.Next()
	if !pending || len(next.Payload) <= left {
		return left
	}
	// The next entry gets the room that it needs, if it is among those that are still vouched for.
	few := (room - len(next.Payload)) / ledger.VouchedSize
	if next.Number <= in.carrier.Ordered()+uint64(max(0, few)) {
		in.vouchUpTo(few)
	}
	return room - len(in.s.vouched)*ledger.VouchedSize
}

// Contradictions returns how many of the entries are others than this node vouched for and the
// chain lacks, with Config.Vouched.
func (s *Streams) Contradictions(entries []ledger.Vouched) (count uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in == nil {
		return 0
	}
	for i := range entries {
		if own, known := s.in.hashes[entries[i].Number]; known && own.hash != entries[i].Hash {
			count++
		}
	}
	return count
}

// vouchUpTo sets the entries to vouch for, at most limit. The caller holds the lock.
func (in *incoming) vouchUpTo(limit int) {
	if ordered := in.carrier.Ordered(); ordered != in.pruned {
		in.pruned = ordered
		for number := range in.hashes {
			if number <= ordered {
				delete(in.hashes, number)
			}
		}
	}
	in.s.vouched = in.s.vouched[:0]
	for _, entry := range in.carrier.Vouch(limit) {
		h, known := in.hashes[entry.Number]
		if !known || !same(h.payload, entry.Payload) {
			h = hashed{entry.Payload, ledger.CarriedHash(entry.Payload)}
			in.hashes[entry.Number] = h
		}
		in.s.vouched = append(in.s.vouched, ledger.Vouched{Number: entry.Number, Hash: h.hash})
	}
}

// same reports whether two slices are the same bytes in memory.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// found counts the lies that the carrier found, and returns the members to name in the log. The
// caller holds the lock.
func (in *incoming) found(now time.Time) (name []liar) {
	for _, lie := range in.carrier.Lies() {
		l := in.liars[lie.Writer]
		if l == nil {
			at := slices.IndexFunc(in.writers, func(m Member) bool {
				return order.ServerID(m.Index) == lie.Writer
			})
			if at < 0 {
				continue
			}
			l = &liar{member: in.writers[at]}
			in.liars[lie.Writer] = l
		}
		l.entries += lie.Entries
		in.lies += lie.Entries
		if l.logged.IsZero() || now.Sub(l.logged) >= liarsEvery {
			l.logged = now
			name = append(name, *l)
		}
	}
	return name
}

// name names members that lie in the log.
func (in *incoming) name(liars []liar) {
	for _, l := range liars {
		in.s.config.Logger.Warn("streams: a member of the parent writes other entries than most "+
			"members", "member", l.member.Index, "peer", l.member.Peer, "entries", l.entries)
	}
}

// pardon forgets the liars that have left. The caller holds the lock.
func (in *incoming) pardon() {
	for writer, l := range in.liars {
		if now, there := in.writers.find(l.member.Peer); !there || now != writer {
			delete(in.liars, writer)
		}
	}
}

// listed returns the liars, ascending. The caller holds the lock.
func (in *incoming) listed() (liars []LiarStatus) {
	for _, l := range in.liars {
		liars = append(liars, LiarStatus{Member: l.member, Entries: l.entries})
	}
	slices.SortFunc(liars, func(a, b LiarStatus) int {
		return cmp.Compare(a.Member.Index, b.Member.Index)
	})
	return liars
}
