package store

import (
	"container/list"
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
)

// blockCache keeps the most recently used verified blocks. The sum of their encoded sizes is
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

func (c *blockCache) put(block *ledger.Block, size int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.byKey[block.Header.Height] != nil {
		return
	}
	c.byKey[block.Header.Height] = c.order.PushFront(cached{block: block, size: int64(size)})
	c.size += int64(size)
	for c.size > c.bound && c.order.Len() > 1 {
		oldest := c.order.Remove(c.order.Back()).(cached)
		delete(c.byKey, oldest.block.Header.Height)
		c.size -= oldest.size
	}
}
