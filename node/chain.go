package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// lifeChain is the node's chain as the machine reads it.
type lifeChain struct{ node *Node }

// Tip implements shard.Chain.
func (c lifeChain) Tip() shard.Tip {
	head := c.node.Store().Head()
	return shard.Tip{
		Height: uint64(head.Height), Hash: head.Hash,
		Round: max(c.node.pipeline.Round(), order.Round(head.Round)),
		Block: order.Round(head.Round),
	}
}

// Heights implements shard.Chain.
func (c lifeChain) Heights() shard.Heights {
	heights, _ := c.node.pipeline.Heights()
	return shard.Heights{
		Ordered: uint64(heights.Ordered), Stored: uint64(heights.Stored),
		Durable: uint64(heights.Durable),
	}
}

// Hash implements shard.Chain.
func (c lifeChain) Hash(height uint64) ([32]byte, error) {
	_, hash, err := c.node.Store().Header(ledger.Height(height))
	return hash, err
}

// RoundOf implements shard.Chain.
func (c lifeChain) RoundOf(height uint64) (order.Round, order.Epoch, error) {
	header, _, err := c.node.Store().Header(ledger.Height(height))
	return order.Round(header.Round), order.Epoch(header.Epoch), err
}

// Membership implements shard.Chain.
func (c lifeChain) Membership() (generation.Membership, uint64) {
	membership := c.node.Store().Membership()
	return synodMembership(membership), uint64(membership.Height)
}

// MembershipAt implements shard.Chain.
func (c lifeChain) MembershipAt(height uint64) (generation.Membership, uint64) {
	membership := c.node.Store().MembershipAt(ledger.Height(height))
	return synodMembership(membership), uint64(membership.Height)
}

// Engine implements shard.Chain.
func (c lifeChain) Engine(height uint64) string {
	return c.node.Store().EngineAt(ledger.Height(height)).Name
}

// Former implements shard.Chain.
func (c lifeChain) Former() []shard.Former {
	var former []shard.Former
	for _, f := range c.node.Store().FormerMembers() {
		former = append(former, shard.Former{Server: order.ServerID(f.Index), Left: uint64(f.Left)})
	}
	return former
}

// synodMembership converts the chain's membership for the synod.
func synodMembership(chain ledger.Membership) generation.Membership {
	membership := generation.Membership{
		Number: chain.Number, Members: make([]order.ServerID, len(chain.Members)),
		Disks: make([]generation.DiskID, len(chain.Members)),
	}
	for i := range chain.Members {
		membership.Members[i] = order.ServerID(chain.Members[i].Index)
		membership.Disks[i] = generation.DiskID(chain.Members[i].Disk)
	}
	return membership
}

// readDisk returns the state of the disk for the machine, as the process starts.
func (l *life) readDisk() (shard.Disk, error) {
	state, err := l.readState()
	if err != nil {
		return shard.Disk{}, err
	}
	held, err := l.contents.kept()
	if err != nil {
		return shard.Disk{}, err
	}
	record, err := l.lastRecord()
	if err != nil {
		return shard.Disk{}, err
	}
	disk := shard.Disk{State: state, Held: held, Record: record, Gone: l.removedForGood()}
	own := l.node.identity
	disk.ID, disk.Original, disk.New = generation.DiskID(own.ID), own.Original, own.Learner
	disk.Perhaps, _, disk.Doubt = l.node.Store().Perhaps()
	return disk, nil
}

// readState reads this node's promises.
func (l *life) readState() (generation.State, error) {
	path := l.node.home.Generation()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return generation.State{}, nil
	}
	if err != nil {
		return generation.State{}, err
	}
	state, err := generation.DecodeState(text)
	if err != nil {
		return generation.State{}, fmt.Errorf("%w: %s; a node without its promises would "+
			"endanger the chain: move that file away and start again; the node then comes back "+
			"with "+
			"a new disk identity", err, path)
	}
	return state, nil
}

// writeRemoved records which block removed this node for good.
func (l *life) writeRemoved(left ledger.Height) error {
	_, hash, err := l.node.Store().Header(left)
	if err != nil {
		return err
	}
	return home.WriteFile(l.node.home.Removed(), []byte(hash.String()+"\n"), 0o644)
}

// removedForGood reports whether an earlier process recorded that the block that removed this node
// is durable. That block must be in this chain. A record that cannot be read counts as none: the
// node then stays longer.
func (l *life) removedForGood() bool {
	former := l.node.Store().FormerMembers()
	at := slices.IndexFunc(former, func(f ledger.FormerMember) bool {
		return f.Index == ledger.MemberIndex(l.node.home.Self)
	})
	text, err := os.ReadFile(l.node.home.Removed())
	if at < 0 || err != nil {
		return false
	}
	_, hash, err := l.node.Store().Header(former[at].Left)
	return err == nil && strings.TrimSpace(string(text)) == hash.String()
}
