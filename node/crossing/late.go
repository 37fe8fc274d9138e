package crossing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
	"github.com/ledgerd/ledgerd/node/calls"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// A node hands copies of transactions that are too late over to other shards, and takes such copies
// (verdicts.LateCopies).

// latePath is where a node takes copies from members of other shards.
const latePath = "/ledgerd/late"

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
	now := b.config.Now()
	late, err := b.late.read(from, encoded, now, b.takesLate(now))
	switch {
	case errors.Is(err, verdicts.ErrNotTaken):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, errTakes):
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case !b.late.add(late, now):
		http.Error(w, errNoLateRoom.Error(), http.StatusServiceUnavailable)
	default:
		b.config.Node.Wake()
		w.WriteHeader(http.StatusNoContent)
	}
}

// errTakes is wrapped where the store cannot say whether its chain takes a copy.
var errTakes = errors.New("the chain cannot be asked")

// takesLate returns what reports whether the chain takes a copy in a block of now.
func (b *book) takesLate(now time.Time) verdicts.Takes {
	return func(id ledger.Hash, t *ledger.Transaction) (bool, error) {
		takes, err := b.config.Node.Store().TakesLate(id, t, ledger.Milliseconds(now.UnixMilli()))
		if err != nil {
			err = fmt.Errorf("%w: %w", errTakes, err)
		}
		return takes, err
	}
}

// lateCopies are copies that were handed over and that no block took yet.
type lateCopies struct {
	mutex  sync.Mutex
	copies *verdicts.LateCopies
}

func newLateCopies() *lateCopies {
	return &lateCopies{copies: verdicts.NewLateCopies(verdicts.DefaultLateBounds(),
		verdicts.FaultNone)}
}

// read reads a copy that is handed over now. It calls takes without the mutex.
func (l *lateCopies) read(from ledger.ShardID, encoded []byte, now time.Time,
	takes verdicts.Takes) (verdicts.LateCopy, error) {
	return l.copies.Read(from, encoded, ledger.Milliseconds(now.UnixMilli()), takes)
}

func (l *lateCopies) add(added verdicts.LateCopy, now time.Time) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.copies.Add(added, ledger.Milliseconds(now.UnixMilli()))
}

func (l *lateCopies) forget(block *ledger.Block) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.copies.Forget(block)
}

// propose returns the copies that the chain takes now. It calls takes without the mutex.
func (l *lateCopies) propose(now time.Time, takes verdicts.Takes) []ledger.Carried {
	l.mutex.Lock()
	waiting := l.copies.Waiting(ledger.Milliseconds(now.UnixMilli()))
	l.mutex.Unlock()
	return verdicts.Taken(waiting, takes)
}
