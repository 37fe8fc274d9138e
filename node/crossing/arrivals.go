package crossing

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
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
	// arrivalTimeout bounds a request.
	arrivalTimeout = 10 * time.Second
	// arrivalPause is the time between two looks for what comes next, and arrivalPauseMax the
	// longest one while the old home does not answer.
	arrivalPause    = 20 * time.Millisecond
	arrivalPauseMax = time.Second
	// movePatience is how long a client's bundle waits for an organisation that is on its way.
	movePatience = 5 * time.Second
	// moveGrace is for how long after a move other shards hold bundles that concern the
	// organisation: most organisations have arrived by then.
	moveGrace = time.Second
)

var errArrivals = errors.New("an answer with other arrivals than the next ones")

// moving tells the goroutine that fetches arrivals that the chain may wait for some.
func (b *book) moving(block *ledger.Block) {
	for _, entry := range block.All() {
		t := entry.Transaction()
		if t.Book == nil && t.Arrival == nil &&
			(t.Verdict == nil || t.Verdict.Result.Code != ledger.Departed) {
			continue
		}
		select {
		case b.comes <- struct{}{}:
		default:
		}
		return
	}
}

// fetchArrivals fetches what comes next of organisations that move here.
func (b *book) fetchArrivals() {
	again := time.NewTimer(0) // the chain may wait from before
	defer again.Stop()
	pause, complained := arrivalPause, time.Time{}
	for {
		select {
		case <-b.context.Done():
			return
		case <-b.comes:
		case <-again.C:
		}
		coming, next := b.config.Node.Store().Coming()
		pause = min(2*pause, arrivalPauseMax)
		for i := range coming {
			if next[i] == (ledger.Hash{}) {
				continue
			}
			err := b.fetchNext(coming[i].Number, coming[i].From, next[i])
			switch now := b.config.Now(); {
			case err == nil:
				pause = arrivalPause
			case b.context.Err() == nil && now.Sub(complained) >= complainEvery:
				complained = now
				b.config.Logger.Warn("what an organisation takes along could not be fetched yet",
					"organisation", coming[i].Organisation, "from", coming[i].From, "error", err)
			}
		}
		if len(coming) > 0 {
			again.Reset(pause)
		}
	}
}

// fetchNext fetches the next arrivals of a move from the old home, and admits them.
func (b *book) fetchNext(move uint64, home ledger.ShardID, next ledger.Hash) error {
	ctx, cancel := context.WithTimeout(b.context, arrivalTimeout)
	defer cancel()
	client := &http.Client{Transport: b.calls.Transport(home)}
	query := url.Values{"move": {strconv.FormatUint(move, 10)}, "from": {next.String()}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		calls.URL(home)+arrivalsPath+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, calls.BodyMax))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, bytes.TrimSpace(body))
	}
	for len(body) > 0 {
		size, length := binary.Uvarint(body)
		if length <= 0 || size > uint64(len(body)-length) {
			return errArrivals
		}
		bundle, err := ledger.DecodeBundle(body[length : length+int(size)])
		if err != nil {
			return fmt.Errorf("%w: %w", errArrivals, err)
		}
		arrival := bundle.Transaction(0).Arrival
		if arrival == nil || bundle.ID(0) != next {
			return errArrivals
		}
		b.config.Node.AdmitArrival(bundle)
		next, body = arrival.Next, body[length+int(size):]
	}
	return nil
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
		http.Error(w, "who asks is no member of a shard", http.StatusForbidden)
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
	_, _ = w.Write(body) // who asks sees that the answer is not whole
}

// answering adds the answers about arrivals to a handler of other shards' calls.
func (b *book) answering(forwarded http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == arrivalsPath {
			b.serveArrivals(w, r)
			return
		}
		forwarded.ServeHTTP(w, r)
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
	pause := time.NewTicker(arrivalPause)
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
			// Clocks may differ: a block from the future is no reason to wait.
			header, _, err := opened.Header(last.Height)
			since := now - header.Time
			if err == nil && since >= 0 && since < ledger.Milliseconds(moveGrace.Milliseconds()) {
				return name
			}
		}
	}
	return ""
}
