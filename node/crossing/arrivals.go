package crossing

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/calls"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// An organisation that moves here takes along what it has (docs/design/moves.md). Once the chain
// knows the first arrival, each member fetches the next ones from a member of the old home, checks
// that they follow by their ids, and proposes them as it does clients' bundles.

const (
	// arrivalsPath is where a node answers members of other shards.
	arrivalsPath = "/ledgerd/arrivals"
	// arrivalsBytes bounds an answer, unless it has only one arrival.
	arrivalsBytes = 1 << 20
	// awaitPause is the time between two looks for whether an organisation has arrived.
	awaitPause = 20 * time.Millisecond
	// movePatience is how long a client's bundle waits for an organisation that is on its way.
	movePatience = 5 * time.Second
	// moveGrace is for how long after a move other shards hold bundles that concern the
	// organisation: most organisations have arrived by then.
	moveGrace = time.Second
)

// moving notes moves, and tells the goroutine that fetches arrivals that the chain may wait for
// some.
func (b *book) moving(block *ledger.Block) {
	for _, entry := range block.All() {
		t := entry.Transaction()
		if t.Book == nil && t.Arrival == nil &&
			(t.Verdict == nil || t.Verdict.Result.Code != ledger.Departed) {
			continue
		}
		if t.Book != nil && t.Book.Move != nil && entry.Result.Code == ledger.Applied {
			b.young.note(t.Book.Move.Organisation, block.Header.Time)
		}
		b.comesMore()
	}
}

// comesMore wakes the goroutine that fetches arrivals.
func (b *book) comesMore() {
	select {
	case b.comes <- struct{}{}:
	default:
	}
}

// fetchArrivals fetches what comes next of organisations that move here.
func (b *book) fetchArrivals() { b.fetcher.run(b.context, b.comes) }

// newFetcher makes the fetcher of arrivals.
func (b *book) newFetcher() *fetcher {
	return &fetcher{members: b.directory.Candidates, ask: b.askArrivals, now: b.config.Now,
		logger: b.config.Logger,
		coming: b.coming,
		admit: func(arrival *ledger.Bundle) error {
			if refusal := b.config.Node.AdmitArrival(arrival); refusal != nil {
				return refusal
			}
			return nil
		}}
}

// coming returns the moves that the chain waits for.
func (b *book) coming() []comingMove {
	moves, next := b.config.Node.Store().Coming()
	coming := make([]comingMove, len(moves))
	for i := range moves {
		coming[i] = comingMove{number: moves[i].Number, organisation: moves[i].Organisation,
			from: moves[i].From, next: next[i]}
	}
	return coming
}

// askArrivals asks a member of an old home for the arrivals of a move from one on.
func (b *book) askArrivals(ctx context.Context, home ledger.ShardID, member rdmanet.PeerID,
	move uint64, from ledger.Hash) ([]byte, error) {
	client := &http.Client{Transport: b.calls.TransportTo(home, member)}
	query := url.Values{"move": {strconv.FormatUint(move, 10)}, "from": {from.String()}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		calls.URL(home)+arrivalsPath+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, calls.BodyMax))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", answer.Status, bytes.TrimSpace(body))
	}
	return body, nil
}

// serveArrivals answers a member of the new home of an organisation that left.
func (b *book) serveArrivals(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.ParseUint(r.URL.Query().Get("move"), 10, 32)
	from, errFrom := ledger.ParseHash(r.URL.Query().Get("from"))
	if err = errors.Join(err, errFrom); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	asks, _, known := b.directory.Find(rdmanet.PeerID(r.RemoteAddr))
	if !known {
		http.Error(w, "the caller is no member of a shard of the book", http.StatusForbidden)
		return
	}
	arrivals, err := b.config.Node.Store().Arrivals(r.Context(), number, asks, b.durable())
	if err != nil {
		status := http.StatusInternalServerError
		switch {
		case errors.Is(err, store.ErrNotForShard):
			status = http.StatusForbidden
		case errors.Is(err, store.ErrArrivalsBusy):
			status = http.StatusServiceUnavailable
		}
		http.Error(w, err.Error(), status)
		return
	}
	for len(arrivals) > 0 && arrivals[0].ID(0) != from {
		arrivals = arrivals[1:]
	}
	if len(arrivals) == 0 {
		http.Error(w, "no such arrival", http.StatusNotFound)
		return
	}
	var body []byte
	for _, each := range arrivals {
		encoded := each.Encode()
		if len(body) > 0 && len(body)+len(encoded) > arrivalsBytes {
			break
		}
		body = append(binary.AppendUvarint(body, uint64(len(encoded))), encoded...)
	}
	_, _ = w.Write(body) // the caller sees that the answer is not whole
}

// answering adds the answers about arrivals, and to what is handed over, to a handler of other
// shards' calls.
func (b *book) answering(forwarded http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case arrivalsPath:
			b.serveArrivals(w, r)
		case latePath:
			b.serveLate(w, r)
		default:
			forwarded.ServeHTTP(w, r)
		}
	})
}

// AwaitArrival implements Crossing.
func (b *book) AwaitArrival(ctx context.Context, bundles []*ledger.Bundle,
	failures []error) func(bundle int) *report.Refusal {
	if !b.config.Node.Store().HasMoves() {
		return nobodyMoves
	}
	refusals := make([]*report.Refusal, len(bundles))
	ctx, cancel := context.WithTimeout(ctx, movePatience)
	defer cancel()
	pause := time.NewTicker(awaitPause)
	defer pause.Stop()
	for i, bundle := range bundles {
		if failures[i] != nil {
			continue
		}
		for refusals[i] == nil {
			name := b.onItsWay(bundle)
			if name == "" {
				break
			}
			select {
			case <-pause.C:
			case <-ctx.Done(): // a copy may have been taken before the move
				refusals[i] = &report.Refusal{Code: report.RefusedNotWriting, Unsure: true,
					Reason: fmt.Sprintf("organisation %s is moving to another shard: submit it "+
						"again", name)}
			}
		}
	}
	return func(bundle int) *report.Refusal { return refusals[bundle] }
}

// onItsWay returns an organisation of a bundle that is on its way to its home, or may be, or "".
func (b *book) onItsWay(bundle *ledger.Bundle) ledger.OrganisationName {
	opened := b.config.Node.Store()
	own, now := b.Own(), ledger.Milliseconds(b.config.Now().UnixMilli())
	for i := range bundle.Len() {
		for name := range bundle.Transaction(i).Organisations() {
			moves := opened.Moves(name)
			if len(moves) == 0 {
				continue
			}
			last := moves[len(moves)-1]
			if last.To == own {
				if opened.IsComing(name) {
					return name
				}
				continue
			}
			if b.young.has(name, now) {
				return name
			}
		}
	}
	return ""
}

// youngMoves are the organisations that moved lately, with the times of their moves' blocks.
type youngMoves struct {
	mutex sync.Mutex
	at    map[ledger.OrganisationName]ledger.Milliseconds
}

// note notes a move. Those that are not young any more by then are forgotten.
func (y *youngMoves) note(name ledger.OrganisationName, at ledger.Milliseconds) {
	y.mutex.Lock()
	defer y.mutex.Unlock()
	if y.at == nil {
		y.at = make(map[ledger.OrganisationName]ledger.Milliseconds)
	}
	maps.DeleteFunc(y.at, func(_ ledger.OrganisationName, before ledger.Milliseconds) bool {
		return before+ledger.Milliseconds(moveGrace.Milliseconds()) <= at
	})
	y.at[name] = at
}

// has reports whether an organisation moved lately. Clocks may differ: a block from the future is
// none from lately.
func (y *youngMoves) has(name ledger.OrganisationName, now ledger.Milliseconds) bool {
	y.mutex.Lock()
	defer y.mutex.Unlock()
	at, known := y.at[name]
	since := now - at
	return known && since >= 0 && since < ledger.Milliseconds(moveGrace.Milliseconds())
}

// recallMoves notes the young moves of a store that was not followed so far.
func (b *book) recallMoves(opened *store.Store) {
	now := ledger.Milliseconds(b.config.Now().UnixMilli())
	for _, each := range slices.Backward(opened.AllMoves()) {
		header, _, err := opened.Header(each.Height)
		if err != nil || header.Time+ledger.Milliseconds(moveGrace.Milliseconds()) <= now {
			return
		}
		b.young.note(each.Organisation, header.Time)
	}
}
