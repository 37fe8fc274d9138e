package importer

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Deadlines of lines that cross shards are multiples of deadlineStep, the first that is at least
// leastAhead away. So most runs of an import give a line the same deadline, and the others can find
// out which one it may have. All are below ledger.MaxDeadline, also for clocks that differ.
const (
	deadlineStep = 5 * 24 * time.Hour
	leastAhead   = 24 * time.Hour

	_ = uint64(ledger.MaxDeadline - ledger.Milliseconds((deadlineStep+leastAhead+12*time.Hour)/
		time.Millisecond))
)

// earliestDeadlines bounds the deadlines that a line is looked for with: those of a year and more.
const earliestDeadlines = 80

// deadlines are the deadlines that lines which cross shards get, or may have got in earlier runs.
type deadlines struct {
	needed bool
	// began is when the import began, as the ledger has it in a record.
	began time.Time
	// without says that earlier runs may have submitted lines without deadlines.
	without bool
}

// deadlineAt returns the deadline of lines that are submitted at a time.
func deadlineAt(now time.Time) ledger.Milliseconds {
	const step = ledger.Milliseconds(deadlineStep / time.Millisecond)
	return (ledger.Milliseconds(now.Add(leastAhead).UnixMilli()) + step - 1) / step * step
}

// earlier returns the deadlines that a line may have from an earlier run, other than the one that
// it gets now. The latest come first.
func (d *deadlines) earlier(now time.Time) []ledger.Milliseconds {
	var all []ledger.Milliseconds
	for last, at := deadlineAt(d.began), now.Add(-deadlineStep); deadlineAt(at) >= last &&
		len(all) < earliestDeadlines; at = at.Add(-deadlineStep) {
		all = append(all, deadlineAt(at))
	}
	if d.without {
		all = append(all, 0)
	}
	return all
}

// beganKey returns the key of the record with the time at which the import began.
func (r *run) beganKey() ledger.RecordKey {
	return ledger.RecordKey(fmt.Sprintf("%s:import/%016x", r.builder.organisations[0].name,
		r.saved.Stream))
}

// beginDeadlines finds out whether lines need deadlines, and when the import began. The first run
// writes that into a record. The nonce of the record's transaction is always the same, so only the
// first one takes effect, and all runs find the same time.
func (r *run) beginDeadlines(ctx context.Context, genesis *ledger.Genesis, first []byte) error {
	if r.tree == nil || r.options.Organisations == 1 {
		return nil // no line crosses
	}
	needed, err := r.nodes.NeedsDeadlines(ctx)
	if err != nil || !needed {
		return err
	}
	r.deadlines = deadlines{needed: true, without: !ledger.TakesDeadlines(genesis.Version)}
	for wrote := false; ; wrote = true {
		var known *ledgerdv1.GetRecordResponse
		err := r.persist(ctx, r.nodes, func() (err error) {
			known, err = r.nodes.Record(ctx, r.beganKey())
			return err
		})
		if err == nil {
			began, err := strconv.ParseInt(string(known.GetRecord().GetValue()), 10, 64)
			if err != nil {
				return fmt.Errorf("importer: record %s is not the time at which an import began: "+
					"%w: set it to milliseconds since 1970", r.beganKey(), err)
			}
			r.deadlines.began = time.UnixMilli(began)
			return nil
		}
		if client.CodeOf(err) != connect.CodeNotFound || wrote {
			return fmt.Errorf("importer: asking when the import began: %w", err)
		}
		if err := r.writeBegan(ctx, first); err != nil {
			return fmt.Errorf("importer: noting when the import begins: %w", err)
		}
	}
}

// writeBegan writes the record with the time at which the import begins, unless it was written.
func (r *run) writeBegan(ctx context.Context, first []byte) error {
	name := r.builder.organisations[0].name
	bundle, err := client.Sign(ctx, []client.Key{{Organisation: name,
		Signer: r.options.Key.Signer}}, ledger.Transaction{Ledger: r.builder.book, Signer: name,
		Nonce: ledger.Nonce{Stream: streamFor("ledgerd/import/began/1\x00", name, first)},
		Records: []ledger.Record{{Key: r.beganKey(),
			Value: strconv.AppendInt(nil, r.options.now().UnixMilli(), 10)}}})
	if err != nil {
		return err
	}
	return r.persist(ctx, r.nodes, func() error {
		_, err := r.nodes.Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE)
		return err
	})
}

// persist makes a call to nodes again while it may succeed later.
func (r *run) persist(ctx context.Context, nodes Nodes, call func() error) error {
	for {
		err := call()
		switch {
		case err == nil || client.CodeOf(err) == connect.CodeNotFound:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !r.mayRetry(err) || !r.patient():
			return err
		}
		nodes.Rotate()
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// setDeadlines gives the lines of a bundle their deadlines: those with which the ledger knows them
// from an earlier run, or else the present one. It owns the bundle meanwhile.
func (r *run) setDeadlines(ctx context.Context, its *bundle, nodes Nodes) error {
	now := r.options.now()
	earlier := r.deadlines.earlier(now)
	for _, each := range its.jobs {
		transaction := &each.transaction
		found := false
		for _, deadline := range earlier {
			transaction.Deadline = deadline
			var err error
			if found, err = r.knows(ctx, nodes, transaction); err != nil {
				return fmt.Errorf("%s: %w", its.lines(), err)
			}
			if found {
				break
			}
		}
		if !found {
			transaction.Deadline = deadlineAt(now)
		}
	}
	return nil
}

// knows reports whether the ledger knows a transaction, other than as one that came too late or
// without a deadline. Such a one has changed nothing.
func (r *run) knows(ctx context.Context, nodes Nodes, transaction *ledger.Transaction) (bool,
	error) {
	body, err := transaction.EncodeBody()
	if err != nil {
		return false, err
	}
	var known *ledgerdv1.Transaction
	err = r.persist(ctx, nodes, func() (err error) {
		known, err = nodes.Transaction(ctx, ledger.TransactionID(body))
		return err
	})
	if client.CodeOf(err) == connect.CodeNotFound {
		return false, nil
	}
	reason := known.GetStatus().GetReasonCode()
	return reason != api.ReasonCode(ledger.DeadlinePassed) &&
		reason != api.ReasonCode(ledger.DeadlineMissing), err
}
