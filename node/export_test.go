package node

import (
	"errors"
	"sync"

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

// HoldDisk keeps this node's disk from being synced until release is called. The node takes part in
// rounds and executes blocks meanwhile.
func (n *Node) HoldDisk() (release func()) {
	held, ended, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		// Nothing is synced while another store is put in. None is: the error keeps this one.
		_ = n.pipeline.Exchange(func(*store.Store) (*store.Store, error) {
			close(held)
			<-ended
			return nil, errors.New("the disk was held")
		})
	}()
	<-held
	return sync.OnceFunc(func() {
		close(ended)
		<-done
	})
}
