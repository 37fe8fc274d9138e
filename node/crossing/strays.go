package crossing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// straysMax bounds the bundles that wait to be handed over to their new shard. A bundle beyond that
// is lost, as when a node ends: its client sends it again.
const straysMax = 256

// strayPatience bounds an attempt to hand over a stray.
const strayPatience = 10 * time.Second

// misplaced queues a bundle that enters at another shard by now.
func (b *book) misplaced(bundle *ledger.Bundle) {
	if bundle.Transaction(0).Arrival != nil {
		return // it is fetched again if the chain still waits for it
	}
	select {
	case b.strays <- bundle:
	default:
		b.config.Logger.Warn(
			"dropped a bundle that now enters at another shard: its client sends it "+
				"again", "transaction", bundle.ID(0))
	}
}

// handOver sends strays to the shards where they enter.
func (b *book) handOver() {
	for {
		select {
		case <-b.context.Done():
			return
		case bundle := <-b.strays:
			entry := b.config.Node.Store().BundleEntry(bundle)
			if err := b.handOverTo(entry, bundle); err != nil && b.context.Err() == nil {
				b.config.Logger.Warn("a bundle that now enters at another shard was refused "+
					"there: its "+
					"client sends it again", "transaction", bundle.ID(0), "shard", entry,
					"error", err)
			}
		}
	}
}

func (b *book) handOverTo(entry ledger.ShardID, bundle *ledger.Bundle) error {
	ctx, cancel := context.WithTimeout(b.context, strayPatience)
	defer cancel()
	if entry == b.directory.Own() {
		if refusal := b.config.Node.Admit(ctx, []*ledger.Bundle{bundle}, false)[0]; refusal != nil {
			return refusal
		}
		return nil
	}
	answer, err := b.Client(entry).SubmitMany(ctx,
		connect.NewRequest(&ledgerdv1.SubmitManyRequest{
			Bundles: []*ledgerdv1.Bundle{api.BundleToProto(bundle)},
			Wait:    ledgerdv1.Level_LEVEL_ADMITTED,
			Queue:   true})) // it was admitted before
	if err != nil {
		return err
	}
	for _, outcome := range answer.Msg.GetOutcomes() {
		if refused := outcome.GetRefused(); refused != "" {
			return errors.New(refused)
		}
	}
	return nil
}

// Misrouted implements Crossing. Most bundles were routed before; it catches those from other
// shards' nodes, and those routed before the directory changed.
func (b *book) Misrouted(bundle *ledger.Bundle) *report.Refusal {
	if t := bundle.Transaction(0); t.Change != nil || t.Arrival != nil {
		return nil
	}
	if entry := b.config.Node.Store().BundleEntry(bundle); entry != b.Own() {
		// A copy of it may have been taken before an organisation moved.
		return &report.Refusal{Code: report.RefusedNotWriting,
			Unsure: b.config.Node.Store().HasMoves(),
			Reason: fmt.Sprintf("it enters at shard %d, and this node is of shard %d: submit it "+
				"again", entry, b.Own())}
	}
	return nil
}

// Expires implements Crossing. This chain's blocks count if this is the shard of the signer's home,
// or if the transaction changes this shard's members.
func (b *book) Expires(transaction *ledger.Transaction) bool {
	return transaction.Change != nil ||
		b.config.Node.Store().HomeShard(transaction.Signer) == b.Own()
}
