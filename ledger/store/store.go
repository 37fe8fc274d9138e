package store

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// Options shape a store. The zero value means the defaults.
type Options struct {
	// MemTableBytes is the size of Badger's memtables, of which up to four are in memory. Default
	// 32 MiB, at least 1 MiB.
	MemTableBytes int64
	// BlockCacheBytes bounds Badger's cache of table blocks. Default 32 MiB.
	BlockCacheBytes int64
	// DecodedCacheBytes bounds the decoded blocks that are kept in memory, by their encoded size.
	// Default 32 MiB.
	DecodedCacheBytes int64
	// ReserveBytes is the free space that is left alone, for the memtables' logs and for
	// compaction. Default 256 MiB.
	ReserveBytes int64
	// FreeSpace returns the free bytes of the file system that holds dir. Default: statfs.
	FreeSpace func(dir string) (uint64, error)

	// onWrite, in tests, is called before each step of writing.
	onWrite func(step string)
}

// ReserveBytesDefault is the default of Options.ReserveBytes.
const ReserveBytesDefault = 256 << 20

func (o Options) withDefaults() Options {
	set := func(value *int64, standard int64) {
		if *value <= 0 {
			*value = standard
		}
	}
	set(&o.MemTableBytes, 32<<20)
	set(&o.BlockCacheBytes, 32<<20)
	set(&o.DecodedCacheBytes, 32<<20)
	set(&o.ReserveBytes, ReserveBytesDefault)
	o.MemTableBytes = max(o.MemTableBytes, 1<<20)
	if o.FreeSpace == nil {
		o.FreeSpace = freeSpace
	}
	if o.onWrite == nil {
		o.onWrite = func(string) {}
	}
	return o
}

// The writer's queue: how many blocks, and bytes of them, may be appended and not yet written.
const (
	maxPendingBlocks = 64
	maxPendingBytes  = 64 << 20
)

// pendingBlock is a block that was executed and is on its way to the database. It is read-only.
type pendingBlock struct {
	block   *ledger.Block
	encoded []byte
	changes *ledger.Changes
	ids     map[ledger.Hash]uint32
}

// Store is an open store. Its methods may be called from any goroutine; Apply and Append take
// turns.
type Store struct {
	dir     string
	options Options
	genesis *ledger.Genesis
	chainID ledger.Hash
	book    ledger.Hash
	lock    *os.File
	db      *badger.DB

	// applying serialises Apply and Append.
	applying sync.Mutex

	// mutex guards what follows.
	mutex  sync.RWMutex
	state  *ledger.State
	chain  chain
	failed map[uint64]struct{}
	head   ledger.Parent
	// pending are the blocks after the written one, by height.
	pending      []*pendingBlock
	pendingBytes int
	written      ledger.Height
	failure      error
	closed       bool
	// changed is told whenever pending, failure or closed change.
	changed *sync.Cond

	writer sync.WaitGroup
	// tasks read or fill the database beside the writer: Close waits for their end.
	tasks sync.WaitGroup
	// absent and unindexed are what is missing of the blocks before the snapshot that the store
	// began with (backfill.go). filling serialises those who fill it in.
	absent, unindexed atomic.Uint64
	filling           sync.Mutex
	logs              logSyncer
	logsMu            sync.Mutex

	// syncing serialises Sync; durable and marker are changed under it.
	syncing sync.Mutex
	marker  *marker
	durable ledger.Height

	// known is the highest height that the caller knows to be durable, and perhaps what Perhaps
	// answers, as the next marker will say them. The mutex guards them.
	known   ledger.Height
	perhaps ledger.Height

	cache blockCache
}

// Head is the last block that was appended.
type Head struct {
	Height ledger.Height       `json:"height"`
	Hash   ledger.Hash         `json:"hash"`
	Time   ledger.Milliseconds `json:"time"`
	// Total counts the transactions of all blocks.
	Total uint64 `json:"total"`
	// Epoch and Round are those that the block was ordered in.
	Epoch ledger.Epoch `json:"epoch"`
	Round ledger.Round `json:"round"`
}

// Genesis returns the chain's genesis, read-only.
func (s *Store) Genesis() *ledger.Genesis { return s.genesis }

// GenesisHash returns the chain's identity.
func (s *Store) GenesisHash() ledger.Hash { return s.chainID }

// Head returns the last block that was appended; the genesis has height 0.
func (s *Store) Head() Head {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return headOf(s.head)
}

func headOf(parent ledger.Parent) Head {
	return Head{Height: parent.Header.Height, Hash: parent.Hash, Time: parent.Header.Time,
		Total: parent.Header.Total, Epoch: parent.Header.Epoch, Round: parent.Header.Round}
}

// AppendedHeight returns the height of the last block that was appended: readable, not necessarily
// durable.
func (s *Store) AppendedHeight() ledger.Height { return s.Head().Height }

// DurableHeight returns the height up to which the chain survives kill -9 and a power cut.
func (s *Store) DurableHeight() ledger.Height {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.durable
}

// KnowDurable notes that a majority of the shard's disks hold the chain up to height. The note is
// in memory only until the next Sync that has something to sync, or Close, writes it with the tip
// marker. A height above the head counts as the head's. A height below the known one changes
// nothing.
func (s *Store) KnowDurable(height ledger.Height) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.known = max(s.known, min(height, s.head.Header.Height))
}

// KnownDurable returns the highest height known to be durable, at most the head's. After Open this
// is what an earlier process wrote: a true height, though not always the last one that it knew.
func (s *Store) KnownDurable() ledger.Height {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.known
}

// Perhaps reports whether this disk perhaps held, and announced as synced, blocks that it does not
// hold now, with the lowest height of such a block and the reason. False means that it certainly
// did not, as far as its own damage goes.
//
// The argument: a height is announced only after the tip marker that names it is on the disk in two
// copies, and Open fails with ErrDamaged unless the chain reaches the newest marker that can be
// read. So whatever was announced is whole, unless a newer marker was complete and both of its
// copies are damaged (mayHide). What follows the newest marker in the database's log says nothing
// about that:
//   - Whole blocks above the marker are served as the head. They are not missing.
//   - A torn or damaged record above the head belongs to a block that no marker named. It was never
//     announced, however much of it was written. So a loss of power everywhere, which tears the
//     log on all disks, leaves no disk in doubt.
//   - A damaged record at or below the marker makes Open fail.
//
// This supposes that fdatasync keeps its word. A disk that loses writes after fdatasync can return
// both old copies of a marker, and looks as one that was rolled back; nothing here can see that.
//
// The doubt outlives the damaged slots, which the next marker writes over: the marker keeps it
// until SettleDoubt. That its lowest height is known durable settles nothing, since a lost group
// may have had more blocks, and this disk may have been one of the few that held the last of them.
func (s *Store) Perhaps() (perhaps bool, from ledger.Height, reason string) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	if s.perhaps == 0 {
		return false, 0, ""
	}
	return true, s.perhaps, fmt.Sprintf("both copies of the newest tip marker were damaged: "+
		"this disk "+
		"perhaps announced block %d or later ones and lost them", s.perhaps)
}

// SettleDoubt notes that what Perhaps answers does not matter any more: the shard has agreed on a
// chain since, in knowledge of the doubt. The next Sync or Close writes it with the tip marker.
func (s *Store) SettleDoubt() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.perhaps = 0
}

// TakeOver gives a store that is to take the place of another what that one knows of the disk: the
// known-durable height and whether it perhaps had more. It is to be called once the blocks are
// there; the next marker holds it.
func (s *Store) TakeOver(from *Store) {
	from.mutex.RLock()
	known, perhaps := from.known, from.perhaps
	from.mutex.RUnlock()
	s.KnowDurable(known)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if perhaps != 0 && (s.perhaps == 0 || perhaps < s.perhaps) {
		s.perhaps = perhaps
	}
}

// Close makes everything durable, where nothing failed, and closes the store. Calls after the first
// return ErrClosed.
func (s *Store) Close() (err error) {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mutex.RLock()
	closed, failure := s.closed, s.failure
	s.mutex.RUnlock()
	if closed {
		return ErrClosed
	}
	if failure == nil {
		err = s.Sync()
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if failure == nil && err == nil {
		err = s.writeKnowledge()
	}
	s.mutex.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mutex.Unlock()
	s.writer.Wait()
	s.tasks.Wait()
	return errors.Join(err, s.release())
}

func (s *Store) release() (err error) {
	defer guard(s.written, &err)
	if s.db != nil {
		if err = s.db.Close(); err != nil {
			err = fmt.Errorf("store: database: %w", err)
		}
	}
	if s.marker != nil {
		err = errors.Join(err, s.marker.file.Close())
	}
	return errors.Join(err, unlockFolder(s.lock))
}
