package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// errDurableMeanwhile says that a block became known to be durable while it was being set aside.
// Nothing is set aside then. Whether that is a fork is for the machine of package shard to judge.
var errDurableMeanwhile = errors.New("a block that was to be set aside is durable")

// reopenEvery is the time between two attempts to open a store on a full disk.
const reopenEvery = 200 * time.Millisecond

// setAside replaces the chain by its prefix up to a height. It keeps the old data folder under
// another name and copies the prefix, so this node's disk never holds less than it counted for. The
// copy takes time in proportion to the chain. Promises do not wait for it: the disk may be synced
// meanwhile. If the disk takes no writes, it returns an error for which cannotWrite gives a reason,
// and changes nothing. Nor does it if it returns errDurableMeanwhile.
func (n *Node) setAside(ctx context.Context, keep ledger.Height) error {
	old := n.pipeline.Store()
	if absent := old.Absent(); absent > 0 {
		return fmt.Errorf("block %d is not in the majority's chain, and this node, which began "+
			"with "+
			"a snapshot, has not fetched the blocks up to %d yet: move %s away and start again; "+
			"the "+
			"node then fetches the chain from its peers", keep+1, absent, n.home.Data())
	}
	fresh, err := n.copyChain(ctx, old, keep)
	if err != nil {
		return errors.Join(err, os.RemoveAll(n.identity.Fresh()))
	}
	var refused error
	err = n.pipeline.Exchange(func(old *store.Store) (*store.Store, error) {
		// The old store may have been synced with newer knowledge while the chain was copied. No
		// sync comes from here on.
		fresh.AdoptKnowledge(old)
		if last := old.LastRecord(); last != nil {
			r, err := decodeRecord(last, func([]byte) [32]byte { return [32]byte{} })
			if err != nil {
				return nil, errors.Join(err, fresh.Close())
			}
			if ledger.Height(r.Height) <= keep {
				fresh.AdoptRecord(old)
			}
		}
		if err := fresh.Close(); err != nil { // closing syncs
			return nil, err
		}
		if heights, _ := n.pipeline.Heights(); heights.Durable > keep {
			return nil, fmt.Errorf("%w: block %d is on the disks of a majority, and block %d is "+
				"the last to keep", errDurableMeanwhile, heights.Durable, keep)
		}
		if err := n.identity.NameFresh(); err != nil {
			return nil, err
		}
		if n.disk.low() {
			return nil, fmt.Errorf("%w: the chain up to block %d is copied, but cannot be opened",
				store.ErrDiskFull, keep)
		}
		head := old.Head().Height
		if err := old.Close(); err != nil {
			n.logger.Error("the store that is set aside could not be closed", "error", err)
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
			return nil, errors.Join(refused, err) // the next start renames the fresh folder
		}
		if refused != nil {
			return n.reopen(ctx)
		}
		n.logger.Warn("blocks that were ordered here, but never durable, are not in the "+
			"majority's chain: the data folder is set aside", "folder", aside, "height", head,
			"common",
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

// reopen opens the store that the node continues with, as soon as there is space. There was space a
// moment ago, but another program may have taken it since.
func (n *Node) reopen(ctx context.Context) (*store.Store, error) {
	for said := false; ; said = true {
		opened, err := n.openStore()
		if err == nil {
			go n.watchStore(opened)
		}
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

// copyChain makes a data folder beside the current one, with the blocks up to a height. The caller
// closes the store.
func (n *Node) copyChain(ctx context.Context, old *store.Store, keep ledger.Height) (
	_ *store.Store, err error) {
	folder := n.identity.Fresh()
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	fresh, err := store.Open(folder, n.home.Genesis, n.options.Store)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, fresh.Close())
		}
	}()
	for height := ledger.Height(1); height <= keep; height++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		block, err := old.Block(height)
		if err != nil {
			return nil, err
		}
		if err := fresh.AppendVerified(block); err != nil {
			return nil, err
		}
	}
	if err := fresh.AdoptCertificates(old); err != nil {
		return nil, err
	}
	// Blocks synced now need no time while the store is exchanged.
	return fresh, fresh.Sync()
}
