package verdicts

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// awaitedVerdicts are the verdicts that the chain waits for and that this node proposes. It is not
// safe for concurrent use.
type awaitedVerdicts interface {
	len() int
	// add adds a verdict that is not in the set. displace makes room for it in a full set, and
	// returns the verdict that it removed, if it did.
	add(verdict ledger.Verdict)
	displace(verdict *ledger.Verdict) (removed Key, did bool)
	remove(key Key)
	// each calls visit for each verdict in the set. visit changes nothing.
	each(visit func(verdict *ledger.Verdict))
	// propose returns at most the given number of verdicts for a batch. pending reports whether
	// propose would return one. again returns when the pool is to be woken because a proposed
	// verdict still waits, if one does.
	propose(most int, now time.Duration, patience time.Duration) []ledger.Verdict
	pending(now time.Duration, patience time.Duration) bool
	again(patience time.Duration) (at time.Duration, waits bool)
	// drain empties the set and returns its verdicts.
	drain() []ledger.Verdict
}

var _, _ awaitedVerdicts = (*awaitedSet)(nil), (*orderedSet)(nil)

// chunkMax bounds the verdicts of a chunk of an orderedSet. A change moves at most one chunk and
// the list of the chunks, so the bound is near the square root of awaitedMax.
const chunkMax = 256

// orderedSet is awaitedVerdicts in canonical order: by the transaction's id, the shard, then the
// subject. It
// proposes the first ones each time, so that the members of a shard propose the same.
type orderedSet struct {
	// chunks hold the verdicts in order. No chunk is empty, and two neighbours hold more than half
	// of chunkMax together.
	chunks   [][]ledger.Verdict
	count    int
	proposed time.Duration // last, or 0
}

// order compares the places of two verdicts in canonical order.
func (k Key) order(other Key) int {
	if order := bytes.Compare(k.ID[:], other.ID[:]); order != 0 {
		return order
	}
	return cmp.Or(cmp.Compare(k.Shard, other.Shard), cmp.Compare(k.Subject, other.Subject))
}

// find returns the place of a key: the chunk, the index in it, and whether the key is there. If it
// is not, it belongs there. The chunk exists unless the set is empty.
func (s *orderedSet) find(key Key) (chunk, at int, found bool) {
	chunk, found = slices.BinarySearchFunc(s.chunks, key,
		func(chunk []ledger.Verdict, key Key) int { return KeyOf(&chunk[0]).order(key) })
	if found {
		return chunk, 0, true
	}
	if chunk == 0 {
		return 0, 0, false
	}
	chunk--
	at, found = slices.BinarySearchFunc(s.chunks[chunk], key,
		func(verdict ledger.Verdict, key Key) int { return KeyOf(&verdict).order(key) })
	return chunk, at, found
}

// cursor goes forward through a set that does not change meanwhile.
type cursor struct{ chunk, at int }

// seek goes forward to a key, and returns its verdict, or nil if it is not there, or behind.
func (c *cursor) seek(s *orderedSet, key Key) *ledger.Verdict {
	for c.chunk < len(s.chunks) {
		chunk := s.chunks[c.chunk]
		if c.at == len(chunk) || KeyOf(&chunk[len(chunk)-1]).order(key) < 0 {
			c.chunk, c.at = c.chunk+1, 0
			continue
		}
		switch order := KeyOf(&chunk[c.at]).order(key); {
		case order == 0:
			return &chunk[c.at]
		case order > 0:
			return nil
		}
		c.at++
	}
	return nil
}

func (s *orderedSet) len() int { return s.count }

func (s *orderedSet) add(verdict ledger.Verdict) {
	s.count++
	if len(s.chunks) == 0 {
		s.chunks = append(s.chunks, append(make([]ledger.Verdict, 0, chunkMax), verdict))
		return
	}
	chunk, at, _ := s.find(KeyOf(&verdict))
	s.chunks[chunk] = slices.Insert(s.chunks[chunk], at, verdict)
	if full := s.chunks[chunk]; len(full) == chunkMax {
		upper := append(make([]ledger.Verdict, 0, chunkMax), full[chunkMax/2:]...)
		s.chunks[chunk] = full[:chunkMax/2]
		s.chunks = slices.Insert(s.chunks, chunk+1, upper)
	}
}

// displace drops the last verdict if the given one is before it. So full sets of several members
// agree on their first verdicts.
func (s *orderedSet) displace(verdict *ledger.Verdict) (removed Key, did bool) {
	last := s.chunks[len(s.chunks)-1]
	key := KeyOf(&last[len(last)-1])
	if key.order(KeyOf(verdict)) < 0 {
		return Key{}, false
	}
	s.remove(key)
	return key, true
}

func (s *orderedSet) remove(key Key) {
	chunk, at, found := s.find(key)
	if !found {
		return
	}
	s.count--
	s.chunks[chunk] = slices.Delete(s.chunks[chunk], at, at+1)
	if len(s.chunks[chunk]) == 0 {
		s.chunks = slices.Delete(s.chunks, chunk, chunk+1)
		return
	}
	for _, lower := range []int{chunk - 1, chunk} {
		if lower >= 0 && lower+1 < len(s.chunks) &&
			len(s.chunks[lower])+len(s.chunks[lower+1]) <= chunkMax/2 {
			s.chunks[lower] = append(s.chunks[lower], s.chunks[lower+1]...)
			s.chunks = slices.Delete(s.chunks, lower+1, lower+2)
			return
		}
	}
}

func (s *orderedSet) each(visit func(*ledger.Verdict)) {
	for _, chunk := range s.chunks {
		for i := range chunk {
			visit(&chunk[i])
		}
	}
}

func (s *orderedSet) propose(most int, now time.Duration, _ time.Duration) []ledger.Verdict {
	if s.count == 0 || most <= 0 {
		return nil
	}
	s.proposed = now
	verdicts := make([]ledger.Verdict, 0, min(most, s.count))
	for _, chunk := range s.chunks {
		room := cap(verdicts) - len(verdicts)
		if verdicts = append(verdicts, chunk[:min(room, len(chunk))]...); room <= len(chunk) {
			break
		}
	}
	return verdicts
}

func (s *orderedSet) pending(time.Duration, time.Duration) bool { return s.count > 0 }

func (s *orderedSet) again(patience time.Duration) (at time.Duration, waits bool) {
	return s.proposed + patience, s.count > 0
}

func (s *orderedSet) drain() []ledger.Verdict {
	verdicts := slices.Concat(s.chunks...)
	s.chunks, s.count = nil, 0
	return verdicts
}
