package abci

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

// The bounds of what is remembered of transactions that wait for other shards. Of others a node is
// asked when they take effect.
const (
	crossingsMax     = 1 << 16
	crossingBytesMax = 16 << 20
)

// crossings remembers what transactions of several shards carry for the application, from where
// they are set aside in this shard's chain to where they take effect or are released.
type crossings struct {
	waiting map[ledger.Hash][]carried
	bytes   int
}

func crossingBytes(found []carried) (size int) {
	for _, each := range found {
		size += len(each.value)
	}
	return size
}

// add remembers a transaction. If there is no room, all others are forgotten: some of them may have
// ended in another way.
func (c *crossings) add(id ledger.Hash, found []carried) {
	if _, known := c.waiting[id]; known {
		return
	}
	size := crossingBytes(found)
	if c.waiting == nil || len(c.waiting) >= crossingsMax || c.bytes+size > crossingBytesMax {
		c.waiting, c.bytes = make(map[ledger.Hash][]carried), 0
	}
	c.waiting[id] = found
	c.bytes += size
}

func (c *crossings) take(id ledger.Hash) (found []carried, known bool) {
	found, known = c.waiting[id]
	c.bytes -= crossingBytes(found)
	delete(c.waiting, id)
	return found, known
}

// transactionsIn returns the application's transactions in a block, in the order of the chain. That
// of several shards is where it takes effect in this one: at the last verdict that it waited for.
func (f *follower) transactionsIn(ctx context.Context, block *ledger.Block) ([]carried, error) {
	chain := f.options.Config.Genesis.Chain
	var all []carried
	for _, entry := range block.All() {
		t := entry.Decoded
		if t == nil {
			continue // a packed transfer
		}
		switch code := entry.Result.Code; {
		case code == ledger.Applied:
			all = append(all, carriedBy(t, chain)...)
		case code == ledger.SetAside:
			f.crossings.add(entry.ID, carriedBy(t, chain))
		case t.Verdict == nil:
		case code == ledger.Settled:
			found, err := f.settled(ctx, t.Verdict.ID)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		case code == ledger.Released:
			f.crossings.take(t.Verdict.ID)
		}
	}
	return all, nil
}

// settled returns what a transaction of several shards carries. The chain has it, in this block or
// before it, and its id is the hash of its content: so a node cannot answer with another one.
func (f *follower) settled(ctx context.Context, id ledger.Hash) ([]carried, error) {
	if found, known := f.crossings.take(id); known {
		return found, nil
	}
	bounded, cancel := f.bounded(ctx)
	defer cancel()
	t, err := f.options.Nodes.TransactionIn(bounded, f.options.Config.Shard, id)
	if err != nil {
		return nil, fmt.Errorf("the transaction %s of several shards took effect, and the node "+
			"does not say what it carries: %w", id, err)
	}
	return carriedBy(t, f.options.Config.Genesis.Chain), nil
}

// checkHome refuses an organisation that posts in another shard than the application follows: its
// transactions would never get to the application. One that does not exist yet may come, and one
// that moves later is told to those that post.
func (f *follower) checkHome(ctx context.Context) error {
	config := f.options.Config
	if config.Post == "" || f.homeKnown {
		return nil
	}
	home, err := f.options.Nodes.Home(ctx, config.Post)
	switch client.CodeOf(err) {
	case connect.CodeNotFound, connect.CodePermissionDenied:
		return nil
	}
	if err != nil {
		return err
	}
	if home != config.Shard {
		return refuse("%s lives in shard %d, and the application gets the blocks of shard %d: "+
			"what %[1]s posts would never be in them. Name an organisation of shard %[3]d in "+
			"post, or set shard to %[2]d", config.Post, home, config.Shard)
	}
	f.homeKnown = true
	return nil
}

// checkShard refuses a shard that the book does not have, given the error of asking for it.
func checkShard(err error) error {
	if client.CodeOf(err) == connect.CodeInvalidArgument {
		return refuse("shard: %w", err)
	}
	return err
}
