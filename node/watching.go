package node

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
)

// Rounds implements api.Backend.
func (n *Node) Rounds() *rounds.Recorder { return n.rounds }

// RoundEdges implements api.Backend.
func (n *Node) RoundEdges(members int) [][2]int {
	overlay, err := n.life.reliable(n.engineChoice().Name, members)
	if err != nil {
		return nil // the group could not have begun
	}
	return overlay.Edges()
}

// seals returns a hook of the pipeline that notes which block a round became, after next.
func (n *Node) seals(next func(*ledger.Block)) func(*ledger.Block) {
	return func(block *ledger.Block) {
		if n.rounds.Watched() {
			header := &block.Header
			n.rounds.Note(&rounds.Event{Kind: rounds.Sealed, Epoch: order.Epoch(header.Epoch),
				Round: order.Round(header.Round), Height: uint64(header.Height),
				Time: uint64(header.Time)})
		}
		if next != nil {
			next(block)
		}
	}
}
