package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// lane carries one bundle after the other. It has a nonce stream of its own: the bundles of two
// lanes may be executed in any order, and the nonces of one stream only within a window.
type lane struct {
	sender   *Sender
	queue    *queue
	stream   uint64 // 0: not drawn yet
	next     uint64 // sequence number
	stale    int    // how often in a row nonces were stale
	flight   []*Submission
	slow     bool                 // the flight takes longer than a call
	contents []ledger.Transaction // of a bundle
}

// run carries bundles until the Sender is closed and empty.
func (l *lane) run() {
	for {
		l.flight = l.queue.next(l.flight[:0])
		if len(l.flight) == 0 {
			return
		}
		l.slow = false
		l.carry(l.flight)
		l.queue.landed(l.flight, l.slow)
		clear(l.flight)
	}
}

// carry brings submissions to their outcomes.
func (l *lane) carry(flight []*Submission) {
	for again := flight; len(again) > 0; again = l.stalled(again) {
		if err := l.number(again); err != nil {
			refuse(again, err)
			return
		}
		l.deliver(again)
	}
}

// number gives submissions the next nonces, and deadlines if they need any.
func (l *lane) number(flight []*Submission) error {
	if l.stream == 0 || l.stale > 0 {
		if err := l.draw(); err != nil {
			return err
		}
	}
	known, err := l.sender.nodes.knownRules(l.sender.ctx)
	if err != nil {
		return err
	}
	if known.sharded {
		l.sender.homes.ask(l.sender.ctx, l.sender.nodes, l.sender.options.Keys[0].Organisation)
	}
	for _, t := range flight {
		if known.deadlines {
			setDeadline(&t.transaction)
		}
		t.transaction.Nonce = ledger.Nonce{Stream: l.stream, Sequence: l.next}
		l.next++
	}
	return nil
}

// draw chooses a stream, and a number in it that is not in use, as far as is known.
func (l *lane) draw() error {
	ctx, cancel := context.WithTimeout(l.sender.ctx, l.sender.options.Patience)
	defer cancel()
	stream, nodes := l.stream, l.sender.nodes
	if stream == 0 || l.stale > 1 { // another client uses it, too
		stream = 1 + rand.Uint64N(nonceStreams)
	}
	for failed := 1; ; failed++ {
		answer, verdict, err := once(ctx, nodes, nodes.options.CallTime,
			&ledgerdv1.GetNonceRequest{Organisation: string(l.sender.options.Keys[0].Organisation),
				Stream: stream}, service.GetNonce)
		if err == nil {
			next := answer.GetNextSequence()
			if stream == l.stream {
				next = max(next, l.next)
			}
			l.stream, l.next = stream, next+rand.Uint64N(nonceJump)
			return nil
		}
		if l.sender.ctx.Err() != nil {
			return ErrSenderClosed
		}
		if verdict == final || ctx.Err() != nil {
			return err
		}
		if nodes.rest(ctx, failed) != nil {
			return err
		}
	}
}

// rest pauses if all nodes have failed since the last pause.
func (c *Client) rest(ctx context.Context, failed int) error {
	if failed%len(c.urls) != 0 {
		return nil
	}
	return c.pause(ctx, failed/len(c.urls)-1)
}

// stalled returns the submissions that changed nothing because of their nonces, or because they had
// no deadline, and that may be signed anew with others. One may not if a later one of the same
// caller has its outcome already: then the failure is the outcome.
func (l *lane) stalled(flight []*Submission) (again []*Submission) {
	var passed map[*Caller]bool
	for i := len(flight) - 1; i >= 0; i-- {
		t := flight[i]
		if t.err != nil || !staleNonce(t.answer.Status) && (!lacksDeadline(t.answer.Status) ||
			!l.sender.nodes.nowNeedsDeadline(l.sender.ctx, &t.transaction)) {
			if t.caller != nil && t.err == nil {
				if passed == nil {
					passed = make(map[*Caller]bool)
				}
				passed[t.caller] = true
			}
			continue
		}
		if t.stale++; t.stale < maxStale && !passed[t.caller] {
			t.answer, t.decided = Answer{}, false
			again = append(again, t)
		}
	}
	if l.stale++; len(again) == 0 {
		l.stale = 0
	}
	for i, j := 0, len(again)-1; i < j; i, j = i+1, j-1 {
		again[i], again[j] = again[j], again[i]
	}
	return again
}

// refuse ends submissions with an error.
func refuse(flight []*Submission, err error) {
	for _, t := range flight {
		if !t.decided {
			t.err, t.decided = err, true
		}
	}
}

// deliver signs a bundle of numbered submissions and brings it to its outcome. If a node refuses
// the bundle, its halves are delivered one after the other.
func (l *lane) deliver(flight []*Submission) { l.deliverSigned(flight, l.sender.nodes.Sign) }

// deliverSigned is deliver with a way to make and sign the bundle.
func (l *lane) deliverSigned(flight []*Submission, sign func(context.Context, []Key,
	...ledger.Transaction) (*ledger.Bundle, error)) {
	l.contents = l.contents[:0]
	for _, t := range flight {
		l.contents = append(l.contents, t.transaction)
	}
	defer func() { clear(l.contents) }()
	if l.sender.ctx.Err() != nil {
		refuse(flight, ErrSenderClosed)
		return
	}
	bundle, err := sign(l.sender.ctx, l.sender.options.Keys, l.contents...)
	if err != nil && !errors.Is(err, ledger.ErrBundleSize) {
		refuse(flight, err)
		return
	}
	refused := err != nil
	if !refused {
		var statuses []*ledgerdv1.TransactionStatus
		statuses, refused, err = l.settle(bundle)
		if err == nil {
			for i, t := range flight {
				t.answer = Answer{ID: bundle.ID(i), Height: ledger.Height(statuses[i].GetHeight()),
					Status: statuses[i]}
				t.decided = true
				l.sender.homes.learn(&t.transaction, t.answer.Status)
			}
			return
		}
	}
	way := refused && bundle != nil && !obstructed(err) // another bundle may find its way
	if way && bundle.Packed() && (!l.sender.nodes.stillPacks(l.sender.ctx) || len(flight) == 1) {
		// The chain may not take packed bundles yet, or this node may be behind the change from
		// which on it does. The rules are asked for also if there is nothing to halve, so that the
		// next bundle is not refused for the same reason.
		l.deliverSigned(flight, Sign)
		return
	}
	if way && len(flight) == 1 &&
		l.sender.nodes.nowNeedsDeadline(l.sender.ctx, &flight[0].transaction) {
		l.deliver(flight)
		return
	}
	if refused && len(flight) > 1 {
		half := len(flight) / 2
		l.deliver(flight[:half])
		l.deliver(l.following(flight[:half], flight[half:]))
		return
	}
	if errors.Is(err, ErrOutcomeUnknown) {
		for i, t := range flight {
			t.answer.ID = bundle.ID(i)
		}
	}
	refuse(flight, err)
}

// following returns the submissions that may still be sent after those before. Not those of callers
// with an unknown outcome among those.
func (l *lane) following(before, after []*Submission) []*Submission {
	var unsure map[*Caller]bool
	for _, t := range before {
		if t.caller != nil && errors.Is(t.err, ErrOutcomeUnknown) {
			if unsure == nil {
				unsure = make(map[*Caller]bool)
			}
			unsure[t.caller] = true
		}
	}
	if unsure == nil {
		return after
	}
	var may []*Submission
	for _, t := range after {
		if unsure[t.caller] {
			t.err, t.decided = errBehindUnsure, true
		} else {
			may = append(may, t)
		}
	}
	return may
}

// step is what to do next for a bundle.
type step int

const (
	stepSend step = iota // no node has it, as far as is known
	stepFind             // a node may have it: does another know it?
	stepWait             // a node has it
)

// settle sends a bundle until all its transactions have reached the level, failed or expired. The
// bytes are always the same. Once a node may have them, settle asks whether one has before it sends
// them again. refused means that no node has taken the bundle, and that a part of it may do better.
func (l *lane) settle(bundle *ledger.Bundle) (statuses []*ledgerdv1.TransactionStatus, refused bool,
	err error) {
	nodes, level := l.sender.nodes, l.sender.options.Level
	ctx, cancel := context.WithTimeout(l.sender.ctx, l.sender.options.Patience)
	defer cancel()
	taken := false                          // a node may have it
	var refusals refusals                   // while no node has it
	var told []*ledgerdv1.TransactionStatus // last, by a node that has it
	for failed, next := 0, stepSend; ; {
		statuses, err = nil, nil
		switch next {
		case stepSend:
			var verdict verdict
			var asked uint32
			statuses, verdict, err = onceAt(ctx, nodes, nodes.options.WaitTime,
				func(ctx context.Context, at uint32) ([]*ledgerdv1.TransactionStatus, error) {
					asked = at
					return l.sender.at[at].submit(ctx, bundle, level)
				})
			if !taken && verdict == final && untouched(err, verdict) {
				return nil, refuses(err), err
			}
			if taken = taken || !untouched(err, verdict); taken {
				next = stepWait
			} else if refusals.note(asked, err); refusals.all(len(nodes.urls)) {
				return nil, true, refusals.obstacle // it may be because of one transaction
			}
		case stepFind:
			if err = l.find(ctx, bundle.ID(0)); err == nil {
				next = stepWait
				continue
			}
		case stepWait:
			statuses, err = l.wait(ctx, bundle)
		}
		if err == nil {
			if err = matches(statuses, bundle); err != nil {
				nodes.Rotate()
			}
		}
		if err == nil && reached(statuses, level) {
			return statuses, false, nil
		}
		l.delayed()
		switch {
		case err == nil && known(statuses):
			failed, told = 0, statuses
			continue
		case err == nil || CodeOf(err) == connect.CodeNotFound && next == stepFind:
			next = stepSend // nothing of it is here any more
		case taken:
			next = stepFind
		}
		failed++
		ended := nodes.rest(ctx, failed)
		if ended = cmp.Or(ended, ctx.Err()); ended == nil {
			continue
		}
		if err == nil {
			err = ended
		}
		switch {
		case taken:
			return nil, false, fmt.Errorf("%w: %w: ask for its id before you submit it anew",
				ErrOutcomeUnknown, waitingFor(told, err))
		case l.sender.ctx.Err() != nil:
			return nil, false, ErrSenderClosed
		case refusals.obstacle != nil:
			return nil, false, refusals.obstacle // of all reasons the one that lasts
		}
		return nil, false, err
	}
}

// refusals are what the nodes said that did not take a bundle.
type refusals struct {
	nodes    map[uint32]bool // that were asked
	obstacle error           // the last refusal because of another shard, or nil
}

func (r *refusals) note(node uint32, err error) {
	if r.nodes == nil {
		r.nodes = make(map[uint32]bool)
	}
	if r.nodes[node] = true; obstructed(err) {
		r.obstacle = err
	}
}

// all reports whether none of so many nodes takes the bundle, at least one of them because of
// another shard. A node that cannot be reached, or takes nothing now, does not make that better.
func (r *refusals) all(nodes int) bool { return r.obstacle != nil && len(r.nodes) >= nodes }

// find returns nil if a node knows the transaction.
func (l *lane) find(ctx context.Context, id ledger.Hash) error {
	nodes := l.sender.nodes
	_, _, err := once(ctx, nodes, nodes.options.CallTime,
		&ledgerdv1.GetTransactionRequest{Id: id[:]}, service.GetTransaction)
	return err
}

// wait waits for the level of a bundle that a node has.
func (l *lane) wait(ctx context.Context, bundle *ledger.Bundle) ([]*ledgerdv1.TransactionStatus,
	error) {
	return l.sender.nodes.WaitAll(ctx, bundle.IDs(), l.sender.options.Level)
}

// matches returns an error if statuses are not those of a bundle.
func matches(statuses []*ledgerdv1.TransactionStatus, bundle *ledger.Bundle) error {
	if len(statuses) != bundle.Len() {
		return fmt.Errorf("client: the node answered %d statuses for %d transactions",
			len(statuses), bundle.Len())
	}
	for i, id := range bundle.IDs() {
		if !bytes.Equal(statuses[i].GetId(), id[:]) {
			return fmt.Errorf("client: the node answered for transaction %x in place of %s",
				statuses[i].GetId(), id)
		}
	}
	return nil
}

// reached reports whether all transactions have reached a level, failed or expired.
func reached(statuses []*ledgerdv1.TransactionStatus, level ledgerdv1.Level) bool {
	for _, status := range statuses {
		if !Reached(status, level) {
			return false
		}
	}
	return true
}

// known reports whether the node that answered has all transactions.
func known(statuses []*ledgerdv1.TransactionStatus) bool {
	for _, status := range statuses {
		if status.GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_UNSPECIFIED {
			return false
		}
	}
	return true
}

// refuses reports whether the node refused a bundle that it has not taken because of one of its
// transactions.
func refuses(err error) bool {
	switch CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodePermissionDenied,
		connect.CodeFailedPrecondition:
		return true
	}
	return false
}

// untouched reports whether a call failed such that the node has certainly not taken the bundle.
func untouched(err error, verdict verdict) bool {
	if err == nil || verdict == unknown {
		return false
	}
	code := connect.CodeOf(err)
	if !connect.IsWireError(err) { // it could not be reached, or what is before it let no call in
		return verdict == elsewhere || code == connect.CodeUnauthenticated ||
			code == connect.CodePermissionDenied || code == connect.CodeUnimplemented
	}
	switch code {
	case connect.CodeInvalidArgument, connect.CodePermissionDenied,
		connect.CodeFailedPrecondition, connect.CodeUnauthenticated, connect.CodeUnimplemented,
		connect.CodeResourceExhausted, connect.CodeUnavailable:
		return true
	}
	return false
}
