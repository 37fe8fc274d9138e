package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// block is the result of a round with entries. It does not contain runs or generations. It never
// changes, and all servers share it: two blocks are equal if and only if their pointers are.
type block struct {
	height  uint64
	hash    [32]byte
	parent  *block
	round   order.Round
	epoch   order.Epoch
	time    clock.Milliseconds
	entries []order.Message // in the order of their origins
	// members is the membership after the block. changed is the height of the newest change.
	members *membership
	changed uint64
	former  []shard.Former
	// engine is the name of the engine that the chain names after the block, "" for none.
	engine string
	// spacing is the number of rounds, from that of a change on, in which no further change takes
	// effect. It is the same in all blocks of a chain.
	spacing order.Round
}

// ancestor returns the block at a height up to the block's own.
func (b *block) ancestor(height uint64) *block {
	for b.height > height {
		b = b.parent
	}
	return b
}

// blocks holds every block once.
type blocks map[[32]byte]*block

// newGenesis returns block 0, with the first members.
func newGenesis(servers int, spacing order.Round) *block {
	g := &block{time: genesisTime, spacing: spacing,
		members: &membership{disks: make([]generation.DiskID, servers)}}
	for s := range servers {
		g.members.members = append(g.members.members, order.ServerID(s))
	}
	return g
}

// next returns the block that a round with entries makes after a parent.
func (all blocks) next(
	parent *block, epoch order.Epoch, round order.Round, time clock.Milliseconds,
	entries []order.Message,
) *block {
	bytes := binary.LittleEndian.AppendUint64(parent.hash[:], uint64(epoch))
	bytes = binary.LittleEndian.AppendUint64(bytes, uint64(round))
	bytes = binary.LittleEndian.AppendUint64(bytes, parent.height+1)
	bytes = binary.LittleEndian.AppendUint64(bytes, uint64(time))
	for _, m := range entries {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(m.Origin))
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(len(m.Payload)))
		bytes = append(bytes, m.Payload...)
	}
	hash := sha256.Sum256(bytes)
	if known := all[hash]; known != nil {
		return known
	}
	b := &block{
		height: parent.height + 1, hash: hash, parent: parent, round: round, epoch: epoch,
		time: time, entries: entries,
		members: parent.members, changed: parent.changed, former: parent.former,
		engine: parent.engine, spacing: parent.spacing,
	}
	for _, m := range entries {
		if c, is := decodeChange(m.Payload); is {
			b.change(c)
		}
	}
	all[hash] = b
	return b
}

// change applies an ordered change, unless it is invalid or comes too soon after the one before.
func (b *block) change(c change) {
	if b.changed == b.height || b.changed > 0 &&
		b.round < b.ancestor(b.changed).round+b.spacing {
		return
	}
	next := b.members.after(c)
	if next == nil || c.kind == entryJoin &&
		slices.ContainsFunc(b.former, func(f shard.Former) bool {
			return f.Server == c.server
		}) {
		return
	}
	if c.kind == entryEngine {
		name := engineRows[c.engine].name
		if name == b.engine {
			return
		}
		b.engine = name
	}
	b.members, b.changed = next, b.height
	if c.kind == entryLeave {
		at, _ := slices.BinarySearchFunc(b.former, c.server, func(f shard.Former,
			s order.ServerID) int {
			return int(f.Server) - int(s)
		})
		b.former = slices.Insert(slices.Clone(b.former),
			at, shard.Former{Server: c.server, Left: b.height})
	}
}

// chain is a server's own chain in its process: the executed blocks. The disk records how much of
// it the disk holds.
type chain struct {
	all    blocks
	blocks []*block // by height; the first is the genesis
	// round is the last executed round, as far as the process knows.
	round order.Round
	// placed holds the heights of the users' entries in the blocks.
	placed map[string]uint64
	// stored is the height that the disk holds, and durable the height that is known to be durable.
	stored, durable uint64
	// fault is a planted bug in the times of blocks.
	fault clock.Fault
}

// newChain returns the chain of a process that starts with the blocks of its disk.
func newChain(all blocks, held []*block) *chain {
	c := &chain{all: all, blocks: slices.Clone(held), placed: make(map[string]uint64)}
	for _, b := range c.blocks {
		c.place(b)
	}
	c.round = c.head().round
	return c
}

func (c *chain) head() *block { return c.blocks[len(c.blocks)-1] }

func (c *chain) place(b *block) {
	for _, m := range b.entries {
		c.placed[string(m.Payload)] = b.height
	}
}

// execute executes the next round. Entries that the chain already has are left out. A round without
// other entries makes no block, and execute returns nil.
func (c *chain) execute(epoch order.Epoch, round order.Round, messages []order.Message) *block {
	var entries []order.Message
	times := clock.Round{Parent: c.head().time, Members: c.head().members.indexes, Fault: c.fault}
	for _, m := range messages {
		entry, _ := splitPayload(m.Payload)
		if len(entry) == 0 {
			continue
		}
		said := stampOf(m.Payload)
		times.Add(said.time, said.clocks)
		if _, twice := c.placed[string(entry)]; !twice {
			entries = append(entries, order.Message{Origin: m.Origin, Payload: entry})
		}
	}
	c.round = round
	if len(entries) == 0 {
		return nil
	}
	b := c.all.next(c.head(), epoch, round, times.Block(), entries)
	c.append(b)
	return b
}

// append appends the next block.
func (c *chain) append(b *block) {
	c.blocks = append(c.blocks, b)
	c.place(b)
	c.round = b.round
}

// cut removes the blocks above a height from the chain.
func (c *chain) cut(keep uint64) {
	for _, b := range c.blocks[keep+1:] {
		for _, m := range b.entries {
			delete(c.placed, string(m.Payload))
		}
	}
	c.blocks = slices.Clone(c.blocks[:keep+1])
	c.round = c.head().round
	c.stored, c.durable = min(c.stored, keep), min(c.durable, keep)
}

// errHeight is returned if a machine asks for a block that does not exist.
var errHeight = errors.New("sim: no block at this height")

// The methods of shard.Chain.

func (c *chain) Tip() shard.Tip {
	head := c.head()
	return shard.Tip{Height: head.height, Hash: head.hash, Round: c.round, Block: head.round}
}

func (c *chain) Heights() shard.Heights {
	return shard.Heights{Ordered: c.head().height, Stored: c.stored, Durable: c.durable}
}

func (c *chain) Hash(height uint64) ([32]byte, error) {
	if height >= uint64(len(c.blocks)) {
		return [32]byte{}, errHeight
	}
	return c.blocks[height].hash, nil
}

func (c *chain) RoundOf(height uint64) (order.Round, order.Epoch, error) {
	if height >= uint64(len(c.blocks)) {
		return 0, 0, errHeight
	}
	return c.blocks[height].round, c.blocks[height].epoch, nil
}

func (c *chain) Membership() (generation.Membership, uint64) {
	return c.head().members.generation(), c.head().changed
}

func (c *chain) MembershipAt(height uint64) (generation.Membership, uint64) {
	b := c.blocks[height]
	return b.members.generation(), b.changed
}

func (c *chain) Engine(height uint64) string { return c.blocks[height].engine }

func (c *chain) Former() []shard.Former { return c.head().former }

// content is a round that a generation may begin with: one that an engine voted for, with the
// chain's servers in place of the engine's places, and the chain's epoch.
type content struct {
	round    order.Round
	epoch    order.Epoch
	messages []order.Message
	removed  []order.ServerID
}

// hash returns the hash that names the content.
func (c *content) hash() [32]byte {
	bytes := binary.LittleEndian.AppendUint64(nil, uint64(c.epoch))
	bytes = binary.LittleEndian.AppendUint64(bytes, uint64(c.round))
	for _, m := range c.messages {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(m.Origin))
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(len(m.Payload)))
		bytes = append(bytes, m.Payload...)
	}
	for _, server := range c.removed {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(server))
	}
	return sha256.Sum256(bytes)
}
