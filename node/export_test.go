package node

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/mempool"
)

// Replace replaces a node's input from other shards.
func (o *Options) Replace(beside func(mempool.Beside) mempool.Beside) { o.beside = beside }

// Lies returns how often members contradicted what this node believes of other shards.
func (n *Node) Lies() uint64 { return n.crossing.Lies() }

// Slip makes the node propose a bundle that it did not verify, as a compromised member would.
func (n *Node) Slip(bundle *ledger.Bundle) error {
	return n.pool.Add(bundle, bundle.Encode(), func(*ledger.Bundle) ([]bool, error) {
		return nil, nil
	})
}

// Survey returns what a home holds.
func Survey(h *home.Home, options store.Options) (*Holdings, error) {
	held, opened, err := survey(h, options)
	if err != nil || opened == nil {
		return held, err
	}
	return held, opened.Close()
}

// EncodeRecord encodes a record of complete rounds.
var EncodeRecord = encodeRecord

// KnowDurable makes the node know that its chain is durable up to a height.
func (n *Node) KnowDurable(height ledger.Height) { n.pipeline.PeerDurable(height) }

// Rests reports whether the node sleeps for longer than a tick.
func (n *Node) Rests() bool { return n.life.pace.rests.Load() }
