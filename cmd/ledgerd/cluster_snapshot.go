package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

// confirmPatience limits how long a member may take to reach the block of a snapshot.
const confirmPatience = 10 * time.Second

// fill fills the home with the current state of the ledger, from one node's snapshot of a block
// that is certified from the genesis on, or that a majority of the members confirms. It returns the
// block's height, or 0 if the home has data already.
func (c *membershipSession) fill(ctx context.Context, at *home.Home) (ledger.Height, error) {
	if _, err := os.Lstat(at.Data()); err == nil {
		return 0, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	snapshot, done, err := c.openSnapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	head, err := store.Restore(ctx, at.Data(), at.Genesis,
		store.Options{ReserveBytes: at.Config.Store.ReserveBytes},
		snapshot, func(height ledger.Height, hash ledger.Hash, certified bool) error {
			if certified {
				c.say("the snapshot of block %d is certified by a majority of the members", height)
				return nil
			}
			return c.confirm(ctx, ledger.MemberIndex(at.Self), height, hash)
		})
	return head.Height, err
}

// checkSource decides whether the new node begins with a snapshot. It has to if no member that
// answers and stays has all blocks. checkSource also makes sure that some member can make a
// snapshot.
func (o *joinOptions) checkSource(ctx context.Context, c *membershipSession,
	leaving ...ledger.MemberIndex) error {
	if _, err := os.Lstat(filepath.Join(o.home, home.DataFolder)); err == nil {
		return nil // The node began already.
	}
	if absent := c.absent(leaving...); absent > 0 && !o.snapshot {
		o.snapshot = true
		c.say("no member that answers has the blocks up to %d: the new node begins with a "+
			"snapshot, and fetches these blocks once a member has them", absent)
	}
	if !o.snapshot || c.cluster.GetNode().GetOrderedHeight() == 0 {
		return nil
	}
	_, done, err := c.openSnapshot(ctx, leaving...)
	if err != nil {
		return fmt.Errorf("no member can make a snapshot for the new node to begin with: %w", err)
	}
	done()
	return nil
}

// openSnapshot opens a snapshot from the first node that makes one. It tries the node asked so far,
// then the members that answer, except those in but.
func (c *membershipSession) openSnapshot(ctx context.Context,
	but ...ledger.MemberIndex) (from io.Reader,
	done func(), err error) {
	addresses := []string{c.nodes.Current()}
	for _, member := range c.cluster.GetMembers() {
		address := memberAddress(member)
		switch index := ledger.MemberIndex(member.GetIndex()); {
		case slices.Contains(but, index):
			addresses = slices.DeleteFunc(addresses, func(known string) bool {
				return known == address
			})
		case address != "" && !isAway(member) && !slices.Contains(addresses, address):
			addresses = append(addresses, address)
		}
	}
	var failures []error
	for _, address := range addresses {
		from, done, err := openSnapshotOf(ctx, c.nodes, address)
		if err == nil {
			return from, done, nil
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		failures = append(failures, err)
	}
	if len(failures) == 0 {
		failures = []error{errors.New("no member answers")}
	}
	return nil, nil, errors.Join(failures...)
}

// openSnapshotOf opens one node's snapshot, and waits for its first byte.
func openSnapshotOf(ctx context.Context, beside *client.Client, address string) (from io.Reader,
	done func(), err error) {
	node, err := beside.Beside([]string{address}, client.Options{})
	if err != nil {
		return nil, nil, err
	}
	snapshot, err := node.Snapshot(ctx)
	if err != nil {
		node.Close()
		return nil, nil, err
	}
	done = func() {
		_ = snapshot.Close() // reading reported any error
		node.Close()
	}
	buffered := bufio.NewReader(snapshot)
	if _, err := buffered.Peek(1); err != nil {
		done()
		return nil, nil, err
	}
	return buffered, done, nil
}

// confirm asks the members whether the chain has a block, until a majority of them confirms it. The
// new member, but, does not count.
func (c *membershipSession) confirm(ctx context.Context, but ledger.MemberIndex,
	height ledger.Height,
	hash ledger.Hash) error {
	addresses := slices.Clone(c.nodes.URLs())
	others := 0
	for _, member := range c.cluster.GetMembers() {
		if ledger.MemberIndex(member.GetIndex()) == but {
			continue
		}
		others++
		if address := memberAddress(member); address != "" && !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, confirmPatience)
	defer cancel()
	var mutex sync.Mutex
	var asking sync.WaitGroup
	confirmed, need := make(map[uint32]bool), others/2+1
	var contradiction error
	for _, address := range addresses {
		asking.Go(func() {
			index, err := hasBlock(bounded, c.nodes, address, height, hash)
			mutex.Lock()
			defer mutex.Unlock()
			switch _, isMember := c.membership.Find(ledger.MemberIndex(index)); {
			case errors.Is(err, errOtherBlock):
				contradiction = err
				cancel()
			case err == nil && isMember && ledger.MemberIndex(index) != but:
				confirmed[index] = true
				if len(confirmed) >= need {
					cancel()
				}
			}
		})
	}
	asking.Wait()
	switch {
	case contradiction != nil:
		return contradiction
	case ctx.Err() != nil:
		return ctx.Err()
	case len(confirmed) < need && !c.force:
		return fmt.Errorf("%d of the other %s confirm that the chain has block %d, but a "+
			"snapshot of it needs %d: name more nodes with --via, leave --snapshot out, or use "+
			"--force",
			len(confirmed), plural(others, "member"), height, need)
	}
	return nil
}

// errOtherBlock means that two nodes have different blocks at the same height.
var errOtherBlock = errors.New("do not trust either of these nodes before `ledgerd verify` has " +
	"checked their folders")

// hasBlock asks one node until it has reached a height, and returns the node's index.
func hasBlock(ctx context.Context, beside *client.Client, address string, height ledger.Height,
	hash ledger.Hash) (uint32, error) {
	node, err := beside.Beside([]string{address}, client.Options{CallTime: memberTime})
	if err != nil {
		return 0, err
	}
	defer node.Close()
	for {
		// A node that itself began with a snapshot of this block cannot serve the block. Its head
		// is enough.
		if state, err := node.Node(ctx); err == nil && state.GetOrderedHeight() == uint64(height) &&
			bytes.Equal(state.GetHeadHash(), hash[:]) {
			return state.GetIndex(), nil
		}
		answer, err := node.Block(ctx, &ledgerdv1.GetBlockRequest{
			Block: &ledgerdv1.GetBlockRequest_Height{Height: uint64(height)}, PageSize: 1})
		switch {
		case err == nil && !bytes.Equal(answer.GetBlock().GetHeader().GetHash(), hash[:]):
			return 0, fmt.Errorf("%s has another block at height %d than the snapshot: %w", address,
				height, errOtherBlock)
		case err == nil:
			state, err := node.Node(ctx)
			return state.GetIndex(), err
		case client.CodeOf(err) != connect.CodeNotFound:
			return 0, err
		}
		if err := sleep(ctx, membershipPause); err != nil {
			return 0, err
		}
	}
}
