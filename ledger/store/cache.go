package store

import (
	"container/list"
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
)

// heldTransfer is what a transfer of a packed bundle counts for, in bounds of memory, above its
// bytes: its steps in histories, and a part of the entries of the state that its block changed. The
// names of the bundle's accounts count besides: encoded, a long one may have a few bytes.
const heldTransfer = 128

// heldBytes returns what a block of an encoded size counts for in bounds of memory.
func heldBytes(block *ledger.Block, encoded int) int {
	for i := range block.Bundles {
		if seal := &block.Bundles[i]; seal.Packed() {
			encoded += heldTransfer*seal.Len() + seal.Transfers().AccountBytes()
		}
	}
	return encoded
}

// blockCache keeps the most recently used verified blocks. The sum of what they count for is
// bounded, but it keeps at least one block.
type blockCache struct {
	mutex sync.Mutex
	bound int64
	size  int64
	order *list.List
	byKey map[ledger.Height]*list.Element
}

type cached struct {
	block *ledger.Block
	size  int64
}

func newBlockCache(bound int64) blockCache {
	return blockCache{bound: bound, order: list.New(), byKey: make(map[ledger.Height]*list.Element)}
}

func (c *blockCache) get(height ledger.Height) *ledger.Block {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	element := c.byKey[height]
	if element == nil {
		return nil
	}
	c.order.MoveToFront(element)
	return element.Value.(cached).block
}

// put adds a block of an encoded size.
func (c *blockCache) put(block *ledger.Block, encoded int) {
	size := int64(heldBytes(block, encoded))
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.byKey[block.Header.Height] != nil {
		return
	}
	c.byKey[block.Header.Height] = c.order.PushFront(cached{block: block, size: size})
	c.size += size
	for c.size > c.bound && c.order.Len() > 1 {
		oldest := c.order.Remove(c.order.Back()).(cached)
		delete(c.byKey, oldest.block.Header.Height)
		c.size -= oldest.size
	}
}
