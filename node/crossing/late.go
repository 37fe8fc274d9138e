package crossing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/calls"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// After moves a transaction may wait for a shard that it never reaches (docs/design/moves.md). Once
// its deadline is over, a node whose shard waits hands a copy over to a member of that shard, which
// proposes it. No member has to believe another one: the clients have signed the copy, and the
// chain refuses it only if it lacks it and the deadline is over by the chain's own time.

const (
	// latePath is where a node takes copies from members of other shards.
	latePath = "/ledgerd/late"
	// lateMax bounds the copies that wait for a block, and lateOfShard those from one shard. What
	// does not fit is handed over again. A copy has the ids of all transactions of its bundle, so
	// lateBytes and lateBytesOfShard bound their sizes. One always has room.
	lateMax, lateOfShard        = 64, 16
	lateBytes, lateBytesOfShard = 4 * ledger.MaxBundleBytes, ledger.MaxBundleBytes
	// lateLasts is how long a copy waits for a block. Clocks may differ a little.
	lateLasts = 30 * time.Second
)

var errNoLateRoom = errors.New("too many copies wait for a block")

// handLate hands a copy of a transaction over to a shard for which it waits, if it is one that may
// never get there. The members of the shard get it in turn, since one may be down, or drop it. The
// error is that of the last one.
func (b *book) handLate(ctx context.Context, shard ledger.ShardID, id ledger.Hash) error {
	now := ledger.Milliseconds(b.config.Now().UnixMilli())
	encoded, err := b.config.Node.Store().HandedOver(id, shard, now)
	if err != nil || encoded == nil {
		return err
	}
	select {
	case <-b.serving:
	case <-ctx.Done():
		return ctx.Err()
	}
	members, first := b.directory.Candidates(shard), b.proofs.Add(1)-1
	err = fmt.Errorf("shard %d: no member to hand a transaction over to", shard)
	for i := range members {
		member := members[(first+uint64(i))%uint64(len(members))]
		if err = b.postLate(ctx, shard, member, encoded); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// postLate hands a copy over to one member.
func (b *book) postLate(ctx context.Context, shard ledger.ShardID, member rdmanet.PeerID,
	encoded []byte) error {
	ctx, cancel := context.WithTimeout(ctx, proofPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, calls.URL(shard)+latePath,
		bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: b.calls.TransportTo(shard, member)}).Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		reason, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // the status says enough
		return fmt.Errorf("%s: %s", answer.Status, bytes.TrimSpace(reason))
	}
	return nil
}

// serveLate takes a copy from a member of another shard.
func (b *book) serveLate(w http.ResponseWriter, r *http.Request) {
	from, _, known := b.directory.Find(rdmanet.PeerID(r.RemoteAddr))
	if !known {
		http.Error(w, "the caller is no member of a shard of the book", http.StatusForbidden)
		return
	}
	encoded, err := io.ReadAll(http.MaxBytesReader(w, r.Body, ledger.MaxBundleBytes))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	bundle, id, t, err := decodeLate(encoded)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	now := b.config.Now()
	takes, err := b.takesLate(id, t, now)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case !takes:
		http.Error(w, "the chain has the transaction, or does not take it", http.StatusConflict)
	case verifyLate(bundle) != nil:
		http.Error(w, "the transaction is not signed", http.StatusBadRequest)
	case !b.late.add(lateCopy{from, id, t, encoded, now.Add(lateLasts)}, now):
		http.Error(w, errNoLateRoom.Error(), http.StatusServiceUnavailable)
	default:
		b.config.Node.Wake()
		w.WriteHeader(http.StatusNoContent)
	}
}

// decodeLate decodes a copy of one transaction.
func decodeLate(encoded []byte) (bundle *ledger.Bundle, id ledger.Hash, t *ledger.Transaction,
	err error) {
	bundle, kept, err := ledger.DecodeCarried(encoded)
	if err != nil {
		return nil, id, nil, err
	}
	at := slices.Index(kept, true)
	if slices.Contains(kept[at+1:], true) {
		return nil, id, nil, fmt.Errorf("%w: more than one transaction", ledger.ErrMalformed)
	}
	return bundle, bundle.ID(at), bundle.Transaction(at), nil
}

// verifyLate verifies a copy's signatures. Members refuse the batch of a member that proposes what
// is not signed.
func verifyLate(bundle *ledger.Bundle) error {
	return ledger.NewVerifier().Bundles([]*ledger.Bundle{bundle})[0]
}

// takesLate reports whether the chain takes a copy in a block of now.
func (b *book) takesLate(id ledger.Hash, t *ledger.Transaction, now time.Time) (bool, error) {
	return b.config.Node.Store().TakesLate(id, t, ledger.Milliseconds(now.UnixMilli()))
}

// lateCopies are copies that were handed over and that no block took yet.
type lateCopies struct {
	mutex sync.Mutex
	all   []lateCopy
}

type lateCopy struct {
	from        ledger.ShardID
	id          ledger.Hash
	transaction *ledger.Transaction
	encoded     []byte
	until       time.Time
}

// add adds a copy that was handed over now, and reports whether there was room.
func (l *lateCopies) add(added lateCopy, now time.Time) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.all = slices.DeleteFunc(l.all, func(each lateCopy) bool { return now.After(each.until) })
	ofShard, bytes, bytesOfShard := 0, len(added.encoded), len(added.encoded)
	for i := range l.all {
		each := &l.all[i]
		if each.id == added.id {
			each.until = added.until
			return true
		}
		bytes += len(each.encoded)
		if each.from == added.from {
			ofShard, bytesOfShard = ofShard+1, bytesOfShard+len(each.encoded)
		}
	}
	if len(l.all) >= lateMax || ofShard >= lateOfShard || bytes > lateBytes ||
		bytesOfShard > lateBytesOfShard {
		return false
	}
	l.all = append(l.all, added)
	return true
}

// forget forgets the copies that a block has.
func (l *lateCopies) forget(block *ledger.Block) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.all) == 0 {
		return
	}
	for _, entry := range block.All() {
		l.all = slices.DeleteFunc(l.all, func(each lateCopy) bool { return each.id == entry.ID })
	}
}

// propose returns the copies that the chain takes now. All of a batch would be left out if the
// chain did not take any (state.Seal). It calls takes without the mutex.
func (l *lateCopies) propose(now time.Time,
	takes func(id ledger.Hash, t *ledger.Transaction) bool) (some []ledger.Carried) {
	l.mutex.Lock()
	all := slices.Clone(l.all)
	l.mutex.Unlock()
	for i := range all {
		if each := &all[i]; !now.After(each.until) && takes(each.id, each.transaction) {
			some = append(some, ledger.Carried{Bundle: each.encoded})
		}
	}
	return some
}

// within returns those of the copies that fit into room bytes of a batch.
func within(copies []ledger.Carried, room int) (some []ledger.Carried) {
	for _, each := range copies {
		if size := ledger.CarriedSize(len(each.Bundle)); size <= room {
			room -= size
			some = append(some, each)
		}
	}
	return some
}
