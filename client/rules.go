package client

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// rules is what a client knows of the rules of its nodes' chain.
type rules struct {
	sharded   bool      // the book has several shards
	packs     bool      // it takes packed bundles
	deadlines bool      // transactions that concern several shards must have deadlines
	asked     time.Time // zero: not yet
}

// rulesAsked is how long a client relies on rules before it asks again: the operators may raise the
// chain's version at any time. It never goes down.
const rulesAsked = time.Minute

// rulesOf returns the rules of a node's chain, as package ledger has them.
func rulesOf(cluster *ledgerdv1.ClusterState) rules {
	version, sharded := int(cluster.GetCharter().GetVersion()), len(cluster.GetBook()) > 0
	return rules{sharded: sharded, packs: !sharded && version >= ledger.PackedVersion,
		deadlines: sharded && ledger.TakesDeadlines(version), asked: time.Now()}
}

// knownRules returns the rules of the nodes' chain. It asks if it has not for some time. A book has
// one shard or several, so it knows all once it knows one.
func (c *Client) knownRules(ctx context.Context) (rules, error) {
	c.mutex.Lock()
	known := c.rules
	c.mutex.Unlock()
	if known.packs || known.deadlines ||
		!known.asked.IsZero() && time.Since(known.asked) < rulesAsked {
		return known, nil
	}
	asked, err := c.askRules(ctx)
	switch {
	case err == nil:
		return asked, nil
	case known.asked.IsZero():
		return rules{}, err
	}
	known.asked = time.Now() // for the next minute they are as they were
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.rules.asked.Before(known.asked) {
		c.rules.asked = known.asked
	}
	return c.rules, nil
}

// askRules asks for the rules now. If that fails, those that are known stay.
func (c *Client) askRules(ctx context.Context) (rules, error) {
	cluster, err := c.Cluster(ctx)
	if err != nil {
		return rules{}, err
	}
	asked := rulesOf(cluster)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.rules = asked
	return asked, nil
}

// Packs reports whether the nodes' chain takes packed bundles.
func (c *Client) Packs(ctx context.Context) (bool, error) {
	known, err := c.knownRules(ctx)
	return known.packs, err
}

// stillPacks is Packs after a node refused a packed bundle: it asks again.
func (c *Client) stillPacks(ctx context.Context) bool {
	asked, err := c.askRules(ctx)
	return asked.packs && err == nil
}

// DefaultDeadline is how far ahead the deadline is that a Client and a Sender give to a transaction
// that needs one and names none. It is far below ledger.MaxDeadline, so a clock that is wrong by
// days does no harm.
const DefaultDeadline = 24 * time.Hour

// NeedsDeadlines reports whether transactions that concern several shards must have a deadline in
// the nodes' chain (see ledger.Transaction).
func (c *Client) NeedsDeadlines(ctx context.Context) (bool, error) {
	known, err := c.knownRules(ctx)
	return known.deadlines, err
}

// SetDeadline gives a transaction a deadline, DefaultDeadline from now, if it names none and may
// concern several shards of a chain that asks for one. Post and a Sender do so themselves. A client
// that signs transactions itself calls it before.
func (c *Client) SetDeadline(ctx context.Context, transaction *ledger.Transaction) error {
	needed, err := c.NeedsDeadlines(ctx)
	if err == nil && needed {
		setDeadline(transaction)
	}
	return err
}

// setDeadline is SetDeadline for a chain that asks for deadlines. Where organisations live does not
// matter: a deadline does no harm to a transaction of one shard.
func setDeadline(transaction *ledger.Transaction) {
	if transaction.Deadline == 0 && concernsSeveral(transaction) {
		transaction.Deadline = ledger.Milliseconds(time.Now().Add(DefaultDeadline).UnixMilli())
	}
}

// concernsSeveral reports whether a transaction concerns several organisations, and is none that
// all shards execute.
func concernsSeveral(t *ledger.Transaction) bool {
	if t.BookWide() || t.Change != nil {
		return false
	}
	if t.HoldEnd != nil && t.HoldEnd.From.Organisation() != t.Signer {
		return true
	}
	for i := range t.Postings {
		if t.Postings[i].Account.Organisation() != t.Signer {
			return true
		}
	}
	for i := range t.Records {
		if t.Records[i].Key.Organisation() != t.Signer {
			return true
		}
	}
	return false
}

// nowNeedsDeadline gives a deadline to a transaction that has none and was refused, or failed, for
// whatever reason, if the chain asks for deadlines by now. It reports whether it did: then the
// transaction may do better. The client may have learned the rules before the operators raised the
// chain's version.
func (c *Client) nowNeedsDeadline(ctx context.Context, transaction *ledger.Transaction) bool {
	if transaction.Deadline != 0 || !concernsSeveral(transaction) {
		return false
	}
	if asked, err := c.askRules(ctx); err != nil || !asked.deadlines {
		return false
	}
	setDeadline(transaction)
	return true
}

// lacksDeadline reports whether a transaction failed because it has no deadline. It has changed
// nothing then.
func lacksDeadline(status *ledgerdv1.TransactionStatus) bool {
	return status.GetReasonCode() == api.ReasonCode(ledger.DeadlineMissing)
}

// staleNonce reports whether a transaction failed because its nonce was stale. It has changed
// nothing then.
func staleNonce(status *ledgerdv1.TransactionStatus) bool {
	return status.GetReasonCode() == api.ReasonCode(ledger.StaleNonce)
}
