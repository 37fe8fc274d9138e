package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// carriedVersion is the first byte of a bundle in a parent's stream.
const carriedVersion = 2

// Carried is an entry of the numbered stream from a parent shard's chain to a child's. All members
// of the parent derive the same entries from their chain.
type Carried struct {
	// Number counts the stream's entries from 1. It is 0 for a copy of a transaction that has no
	// place in the stream, and that this shard refuses because it is too late.
	Number uint64
	// Bundle is a bundle as a block of the parent holds it: the transactions that the block keeps,
	// the ids of the others, and the signatures.
	Bundle []byte
}

var errNotClients = errors.New("only members of the shards make verdicts, and changes of the " +
	"membership stay in their chain")

// CarriedBundle returns the block's bundle at index in the form in which streams carry it to child
// shards.
func (b *Block) CarriedBundle(index int) []byte {
	return b.carried(index, func(int) bool { return true })
}

// CarriedCopy returns the transaction at an index of the block in the form in which streams carry
// it, alone: of the others of its bundle there are only the ids.
func (b *Block) CarriedCopy(index int) []byte {
	return b.carried(b.Unpacked[index].Bundle, func(i int) bool { return i == index })
}

// carried returns a bundle with those of the block's transactions that are kept.
func (b *Block) carried(index int, keep func(int) bool) []byte {
	seal := &b.Bundles[index]
	// A book of several shards has no packed bundles, so Unpacked has all transactions.
	entry := sort.Search(len(b.Unpacked), func(i int) bool { return b.Unpacked[i].Bundle >= index })
	to := binary.AppendUvarint([]byte{carriedVersion}, uint64(len(seal.IDs)))
	for place := range seal.IDs {
		kept := seal.Kept[place] && keep(entry)
		if to = codec.AppendBool(to, kept); kept {
			to = codec.AppendString(to, b.Unpacked[entry].Body)
		} else {
			to = append(to, seal.IDs[place][:]...)
		}
		if seal.Kept[place] {
			entry++
		}
	}
	return appendSignatures(to, seal.Signatures)
}

// DecodeCarried decodes a bundle as CarriedBundle encodes it, or returns ErrMalformed, ErrName or
// ErrBundleSize. For a transaction that is not kept, the bundle has only the id. The bundle shares
// the memory of data.
func DecodeCarried(data []byte) (bundle *Bundle, kept []bool, err error) {
	if len(data) > MaxBundleBytes {
		return nil, nil, fmt.Errorf("%w: %d bytes, at most %d allowed", ErrBundleSize, len(data),
			MaxBundleBytes)
	}
	r := read(data)
	if version := r.Byte(); version != carriedVersion {
		r.Fail("carried bundle version %d", version)
	}
	count, any := r.Count("transactions", MaxBundleTransactions, 2), false
	bundle, kept = &Bundle{transactions: make([]Transaction, count), bodies: make([]span, count),
		memory: data, ids: make([]Hash, count)}, make([]bool, count)
	for place := range count {
		if kept[place] = r.Bool(); kept[place] {
			bundle.bodies[place], any = r.body(data), true
		} else {
			bundle.ids[place] = r.Hash()
		}
	}
	bundle.signatures = r.signatures()
	if !any {
		r.Fail("a carried bundle of no transactions")
	}
	if err := r.End(); err != nil {
		return nil, nil, err
	}
	postings := newPostingSlab(count)
	for place := range count {
		if !kept[place] {
			continue
		}
		body := bundle.Body(place)
		if err := decodeClientBody(body, &bundle.transactions[place], postings); err != nil {
			return nil, nil, fmt.Errorf("transaction %d: %w", place, err)
		}
		if t := &bundle.transactions[place]; t.Change != nil || t.Arrival != nil {
			return nil, nil, fmt.Errorf("transaction %d: %w: %w", place, ErrMalformed,
				errNotClients)
		}
	}
	if !slices.Contains(kept, false) {
		hashBodies(bundle.ids, bundle.Body)
	} else {
		for place := range count {
			if kept[place] {
				bundle.ids[place] = TransactionID(bundle.Body(place))
			}
		}
	}
	bundle.hashIDs()
	return bundle, kept, nil
}

// decodeClientBody decodes the body of a transaction in a bundle: a client's or an operator's. It
// refuses verdicts.
func decodeClientBody(body []byte, transaction *Transaction, postings *postingSlab) error {
	if err := decodeBody(body, transaction, postings); err != nil {
		return err
	}
	if transaction.Verdict != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, errNotClients)
	}
	return nil
}
