package ledgertest

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// ChangePolicy returns the transaction that gives the client's organisation this policy.
func (c *Client) ChangePolicy(policy ledger.Policy) ledger.Transaction {
	transaction := c.Next()
	transaction.Policy = &ledger.PolicyChange{Policy: policy}
	return transaction
}

// Policy returns policy number 1 with this threshold, and with the keys PublicKey(name), which have
// the role all.
func Policy(threshold int, names ...string) ledger.Policy {
	policy := ledger.Policy{Number: 1, Threshold: threshold}
	for _, name := range names {
		policy.Keys = append(policy.Keys, ledger.PolicyKey{Key: PublicKey(name)})
	}
	return policy
}

// Signed returns the transactions in a bundle that an organisation signs with Key(name) for each
// name. It panics if they cannot be encoded.
func Signed(organisation ledger.OrganisationName, names []string,
	transactions ...ledger.Transaction) *ledger.Bundle {
	bundle, err := ledger.NewBundle(transactions...)
	for _, name := range names {
		if err == nil {
			err = bundle.Sign(organisation, Key(name))
		}
	}
	if err != nil {
		panic(fmt.Sprintf("ledgertest: %v", err))
	}
	return bundle
}
