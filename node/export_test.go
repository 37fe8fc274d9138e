package node

import "github.com/ledgerd/ledgerd/ledger"

// Slip makes the node propose a bundle that it did not verify, as a compromised member would.
func (n *Node) Slip(bundle *ledger.Bundle) error {
	return n.pool.Add(bundle, bundle.Encode(), func(ledger.Hash) bool { return false })
}
