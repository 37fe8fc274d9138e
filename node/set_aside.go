package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/shard"
)

// reopenEvery is the time between two attempts at opening a store on a full disk.
const reopenEvery = 200 * time.Millisecond

// setAside puts the chain up to a height in the place of the chain that goes past it. The old data
// folder is kept under another name, and what the new one needs is copied, so that this node's disk
// never holds less than what it counted for. The copying takes as long as the chain is, so that the
// disk may be synced meanwhile: a promise does not wait for it. An error that says that the disk
// takes no writes (cannotWrite) changes nothing.
func (n *Node) setAside(ctx context.Context, keep ledger.Height) error {
	old := n.pipeline.Store()
	if absent := old.Absent(); absent > 0 {
		return fmt.Errorf("block %d is not in the chain that the majority goes on from, and the "+
			"blocks up to %d, "+
			"before the snapshot that this node began with, are not here yet to be kept: move "+
			"%s away and start again, "+
			"the node fetches the chain from its peers", keep+1, absent, n.home.Data())
	}
	if err := n.copyChain(ctx, old, keep); err != nil {
		return errors.Join(err, os.RemoveAll(n.identity.Fresh()))
	}
	var refused error
	err := n.pipeline.Exchange(func(old *store.Store) (*store.Store, error) {
		if heights, _ := n.pipeline.Heights(); heights.Durable > keep {
			return nil, fmt.Errorf("%w: block %d became known as durable while the blocks after "+
				"%d were set aside; "+
				"nothing was. Stop all nodes, keep all homes, and compare their heights with "+
				"`ledgerd recover`",
				shard.ErrFork, heights.Durable, keep)
		}
		if err := n.identity.NameFresh(); err != nil {
			return nil, err
		}
		if n.disk.low() {
			return nil, fmt.Errorf("%w: the chain up to block %d is copied, and cannot be opened",
				store.ErrDiskFull, keep)
		}
		head := old.Head().Height
		if err := old.Close(); err != nil {
			n.logger.Error("closing the store that is set aside", "error", err)
		}
		aside := ""
		for k := 1; ; k++ {
			aside = fmt.Sprintf("%s.rolled-back-%d-%d", n.home.Data(), head, k)
			if _, err := os.Lstat(aside); errors.Is(err, os.ErrNotExist) {
				break
			}
		}
		refused = n.identity.SetAside(aside)
		if _, err := os.Lstat(n.home.Data()); err != nil {
			return nil, errors.Join(refused, err) // the next start puts the fresh folder there
		}
		if refused != nil {
			return n.reopen(ctx)
		}
		n.logger.Warn("blocks that were ordered here, but never durable, are not in the chain "+
			"that the majority "+
			"goes on from: the data folder is set aside", "folder", aside, "height", head, "common",
			keep)
		return n.reopen(ctx)
	})
	if err = errors.Join(err, refused); err == nil {
		return nil
	}
	if _, missing := os.Lstat(n.home.Data()); missing != nil {
		return errors.Join(err, missing)
	}
	return errors.Join(err, os.RemoveAll(n.identity.Fresh()))
}

// reopen opens the store that the node goes on with, as soon as there is space for that. There was
// a moment ago, but another program may have taken it since.
func (n *Node) reopen(ctx context.Context) (*store.Store, error) {
	for said := false; ; said = true {
		opened, err := n.openStore()
		if !errors.Is(err, store.ErrDiskFull) {
			return opened, err
		}
		if !said {
			n.logger.Error("the store cannot be opened until there is space", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(reopenEvery):
		}
	}
}

// copyChain makes a data folder beside the present one with the blocks up to a height.
func (n *Node) copyChain(ctx context.Context, old *store.Store, keep ledger.Height) (err error) {
	folder := n.identity.Fresh()
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	fresh, err := store.Open(folder, n.home.Genesis, n.options.Store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fresh.Close()) }() // which syncs
	for height := ledger.Height(1); height <= keep; height++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		block, err := old.Block(height)
		if err != nil {
			return err
		}
		if err := fresh.Append(block); err != nil {
			return err
		}
	}
	fresh.TakeOver(old)
	return nil
}
