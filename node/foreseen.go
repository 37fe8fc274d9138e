package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/report"
)

// A bundle whose transactions must all fail costs no block: the node refuses it. What always holds:
//
//   - The bundle's signatures are verified, so nobody learns from a forged bundle, and a forged one
//     is refused as such.
//   - No transaction of it is in a block, or in this node's pool. A client that submits again has
//     its outcome.
//   - The last block that decides is durable. What is only ordered may be lost with the power of
//     all nodes, and then the transaction might be applied after all.
//   - A bundle in order is not refused, since those after it would be refused, too. Nor is one that
//     may wait (queue), as those are that another node admitted before.

// foreseenPatience bounds how long a refusal waits for its blocks to be durable. Then the bundle is
// ordered instead, and fails in a block.
const foreseenPatience = time.Second

// newForeseenMetric returns the metric of the bundles that are refused so, by the reason.
func newForeseenMetric() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "ledgerd",
		Name: "foreseen_refused_bundles_total",
		Help: "Bundles that this node refused because all of their transactions were certain to " +
			"fail, by the reason. They cost no block."}, []string{"reason"})
}

// foresee returns the refusals of those bundles of which all transactions are certain to fail, or
// nil if there are none. Bundles with failures are refused in any case.
func (n *Node) foresee(ctx context.Context, opened *store.Store, bundles []*ledger.Bundle,
	failures []error) []*report.Refusal {
	var refusals []*report.Refusal
	var last store.Foreseen
	for i, bundle := range bundles {
		if failures[i] != nil {
			continue
		}
		foreseen, err := opened.Foreseen(bundle)
		if err != nil || foreseen.Code == ledger.Applied || n.has(opened, bundle) {
			continue
		}
		if refusals == nil {
			refusals = make([]*report.Refusal, len(bundles))
		}
		refusals[i], last = foreseenRefusal(foreseen.Code, bundle.Len()), foreseen
	}
	if refusals == nil || !n.isFinal(ctx, opened, &last) {
		return nil
	}
	for _, refusal := range refusals {
		if refusal != nil {
			n.refusedForeseen.WithLabelValues(refusal.Foreseen).Inc()
		}
	}
	return refusals
}

// has reports whether a transaction of a bundle is in the pool or in a block, or may be. One leaves
// the pool when it is readable in a block.
func (n *Node) has(opened *store.Store, bundle *ledger.Bundle) bool {
	if slices.ContainsFunc(bundle.IDs(), n.pool.Pending) {
		return true
	}
	known, err := opened.KnownIn(bundle)
	return known != nil || err != nil
}

// isFinal waits until the block that decides is durable, and reports whether it is.
func (n *Node) isFinal(ctx context.Context, opened *store.Store, decides *store.Foreseen) bool {
	patience := time.NewTimer(foreseenPatience)
	defer patience.Stop()
	for {
		heights, changed := n.Heights()
		if heights.Durable >= decides.Height {
			break
		}
		select {
		case <-changed:
		case <-patience.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	// Another chain may have replaced the one that was asked.
	_, hash, err := opened.Header(decides.Height)
	return err == nil && hash == decides.Hash && n.Store() == opened
}

// foreseenRefusal returns the refusal of a bundle of so many transactions.
func foreseenRefusal(code ledger.Code, transactions int) *report.Refusal {
	subject := "it"
	if transactions > 1 {
		subject = fmt.Sprintf("each of its %d transactions", transactions)
	}
	todo := ""
	switch code {
	case ledger.StaleNonce:
		todo = ": sign it again with the next number of its stream"
	case ledger.UnknownHold, ledger.HoldOver, ledger.HoldDiffers:
		todo = ": look at the hold"
	}
	return &report.Refusal{Code: report.RefusedForeseen, Foreseen: api.ReasonCode(code),
		Reason: fmt.Sprintf("%s would fail, and was not ordered: %s%s", subject, code, todo)}
}
