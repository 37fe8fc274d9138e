package ledger

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"math"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// arrivalVersion is the first byte of the body of an arrival.
const arrivalVersion = 12

const moveDomain = "ledgerd/move/1\x00"

// Bounds of an arrival.
const (
	// ArrivalBytes is the size that the entries of an arrival may have together, unless it has only
	// one of them.
	ArrivalBytes = 64 << 10
	// MaxMovedKey bounds the key of an entry, and MaxMovedValue its value.
	MaxMovedKey   = 1 << 10
	MaxMovedValue = 192 << 10
)

// Arrival has some of the entries of an organisation that moves to the shard in whose chain it is.
// Members of that shard put it into a block, unsigned and alone in its bundle. Clients cannot
// submit it. It is the next of the arrivals of its move, and no other, because its id says so: the
// first one's is what the old home tells (Departure), and each names the id of the one after it.
type Arrival struct {
	// Move is the number of the change of the book that moves the organisation.
	Move uint64 `json:"move"`
	// Next is the id of the next arrival, or zero if this is the last one.
	Next    Hash         `json:"next"`
	Entries []MovedEntry `json:"entries"`
}

// MovedEntry is an entry of the state of the old home. The value of a record is the record's own
// value, where the state has only its place and digest.
type MovedEntry struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// MoveID identifies a move between shards. Its new home asks the old one with it, as one asks for a
// verdict on a transaction.
func MoveID(book Hash, move uint64) Hash {
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], move)
	return sum256([]byte(moveDomain), book[:], number[:])
}

// Departure returns the word of an organisation's old home that it has left. It travels, and is
// believed, as a verdict is. First is the id of the first arrival, from which all of them follow.
// It is the id of the move itself if nothing ever arrives: the organisation was to move on from a
// shard where it never arrived, because the one before that was lost.
func Departure(move uint64, from ShardID, first Hash) Verdict {
	return Verdict{ID: first, Shard: from, Result: Result{Code: Departed, Item: uint32(move)}}
}

// MoveOf returns the move of which a verdict is the departure, if it is one.
func (v *Verdict) MoveOf() (move uint64, departure bool) {
	return uint64(v.Result.Item), v.Result.Code == Departed
}

// PackArrivals makes the arrivals of a move. The entries are all that the organisation has, in the
// order of their keys. The arrivals are made from the last one to the first, so they are returned
// in order together with the id of the first one. Size is ArrivalBytes, or less in tests.
func PackArrivals(book Hash, move uint64, entries []MovedEntry, size int) (arrivals []*Bundle,
	first Hash, err error) {
	ends, sum := []int(nil), 0
	for i := range entries {
		more := len(entries[i].Key) + len(entries[i].Value)
		if i > 0 && sum+more > size {
			ends, sum = append(ends, i), 0
		}
		sum += more
	}
	ends = append(ends, len(entries))
	arrivals = make([]*Bundle, len(ends))
	for i := len(ends) - 1; i >= 0; i-- {
		begin := 0
		if i > 0 {
			begin = ends[i-1]
		}
		bundle, err := NewBundle(Transaction{Ledger: book,
			Arrival: &Arrival{Move: move, Next: first, Entries: entries[begin:ends[i]]}})
		if err != nil {
			return nil, Hash{}, fmt.Errorf("arrival %d of move %d: %w", i, move, err)
		}
		arrivals[i], first = bundle, bundle.ID(0)
	}
	return arrivals, first, nil
}

// checkForm checks the parts of a transaction that is an arrival.
func (a *Arrival) checkForm(t *Transaction) error {
	if t.Signer != Operator || t.Nonce != (Nonce{}) || t.LastValid != 0 || t.Deadline != 0 ||
		t.Change != nil || t.Policy != nil || t.Charter != nil || t.Cancellation != nil ||
		t.Book != nil || t.Asset != nil || t.Account != nil ||
		len(t.Registrations)+len(t.Openings)+len(t.Postings)+len(t.Records)+len(t.Note) > 0 {
		return fmt.Errorf("%w: an arrival stands alone in its transaction", ErrMalformed)
	}
	if a.Move == 0 || a.Move > math.MaxUint32 {
		return fmt.Errorf("%w: an arrival of move %d", ErrMalformed, a.Move)
	}
	for i := range a.Entries {
		each := &a.Entries[i]
		if len(each.Key) == 0 || len(each.Key) > MaxMovedKey || len(each.Value) > MaxMovedValue {
			return fmt.Errorf("%w: an arrival with an entry of %d and %d bytes", ErrMalformed,
				len(each.Key), len(each.Value))
		}
		if i > 0 && bytes.Compare(a.Entries[i-1].Key, each.Key) >= 0 {
			return fmt.Errorf("%w: entries of an arrival out of order", ErrMalformed)
		}
	}
	return nil
}

// appendArrival appends the encoding of an arrival: version 12, ledger, move, the id of the next
// one, the number of entries, and each one's key and value.
func (t *Transaction) appendArrival(to []byte) []byte {
	a := t.Arrival
	to = append(append(to, arrivalVersion), t.Ledger[:]...)
	to = append(binary.AppendUvarint(to, a.Move), a.Next[:]...)
	to = binary.AppendUvarint(to, uint64(len(a.Entries)))
	for i := range a.Entries {
		to = codec.AppendString(to, a.Entries[i].Key)
		to = codec.AppendString(to, a.Entries[i].Value)
	}
	return to
}

func (t *Transaction) decodeArrival(r *reader) {
	t.Ledger = r.Hash()
	a := &Arrival{Move: r.Uvarint(), Next: r.Hash()}
	a.Entries = make([]MovedEntry, r.Count("moved entries", MaxTransactionBytes, 2))
	for i := range a.Entries {
		a.Entries[i] = MovedEntry{Key: r.Bytes("bytes of key", MaxMovedKey),
			Value: r.Bytes("bytes of value", MaxMovedValue)}
	}
	t.Arrival = a
}

// Organisations yields the organisations whose homes a client's transaction concerns. It may yield
// one several times. A transaction that concerns all shards yields none.
func (t *Transaction) Organisations() iter.Seq[OrganisationName] {
	return func(yield func(OrganisationName) bool) {
		if t.Account != nil {
			yield(t.Account.Account.Organisation())
			return
		}
		if t.BookWide() || t.Change != nil || t.Verdict != nil || t.Arrival != nil ||
			t.Cancellation != nil || t.Schedule != nil || t.ScheduleEnd != nil || !yield(t.Signer) {
			return
		}
		if t.HoldEnd != nil && !yield(t.HoldEnd.From.Organisation()) {
			return
		}
		if t.Details != nil && t.Details.Refund != nil && !yield(t.Details.Refund.Organisation) {
			return
		}
		for i := range t.Openings {
			if !yield(t.Openings[i].Account.Organisation()) {
				return
			}
		}
		for i := range t.Postings {
			if !yield(t.Postings[i].Account.Organisation()) {
				return
			}
		}
		for i := range t.Records {
			if !yield(t.Records[i].Key.Organisation()) {
				return
			}
		}
	}
}
