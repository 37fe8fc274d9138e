package store

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/store/journal"
)

// Options configure a store. The zero value selects the defaults.
type Options struct {
	// MemTableBytes is the size of one of Badger's memtables. Up to four are in memory. Default 32
	// MiB, at least 1 MiB.
	MemTableBytes int64
	// BlockCacheBytes bounds Badger's cache of table blocks. Default 32 MiB.
	BlockCacheBytes int64
	// DecodedCacheBytes bounds the decoded blocks in memory, measured by their encoded size, as if
	// no bundle were packed. Default 32 MiB.
	DecodedCacheBytes int64
	// ReserveBytes is the free space that the store leaves unused, for the logs of memtables and
	// for compaction. Default 256 MiB.
	ReserveBytes int64
	// FreeSpace returns the free bytes of the file system of dir. Default: statfs.
	FreeSpace func(dir string) (uint64, error)

	// CheckpointBytes is the size of the blocks that wait before they go from the journal to the
	// database. Default 4 MiB, at most 16 MiB and an eighth of MemTableBytes.
	CheckpointBytes int64
	// SegmentBytes is the size of a new segment of the journal. Default 4 MiB.
	SegmentBytes int64

	// AccountsInMemory is how many accounts may be in memory with all that they have, besides those
	// that blocks changed which the database does not have yet. Behind Open, so many are read.
	// Execution reads others from the database first. Default: a quarter of the process's limit of
	// memory (GOMEMLIMIT), at some 256 bytes an account; 8 million without a limit.
	AccountsInMemory int

	// Seed is the directory with which the chain of a shard begins that was added while the book
	// ran (state.Seed). A new store of such a shard needs it. Others ignore it.
	Seed []byte

	// Verify verifies the batches of a round, as ledger.VerifyBatches does, which is the default. A
	// node sets one that has verified most of them while they arrived.
	Verify func(batches [][]byte) []*ledger.VerifiedBatch

	// CheckAll makes Open check everything, as Verify needs it. Otherwise Open leaves to a
	// goroutine what the database cannot have lost without an error (see Checked).
	CheckAll bool

	// releaseBytes is how much the journal may have that nothing need keep. Only tests set it.
	releaseBytes int64

	// Eager says that nobody waits for blocks, as where a book is made: what is done behind does
	// not rest for longer while blocks are executed, and Apply waits for merges of runs. So the
	// store is as settled as one that grew slowly.
	Eager bool

	// unsettledBytes is a number of bytes after which the database cannot have lost without an
	// error what was written before. Only tests set it.
	unsettledBytes uint64
	// checkpointBlocks is the number of blocks that wait before they go to the database. Only tests
	// set it.
	checkpointBlocks int
	// balanceSteps is after how many further steps of its history an account gets a row with its
	// balances. Only tests set it.
	balanceSteps uint64
	// fanOut is how many runs are merged into one, chunkBytes the size of a chunk, and idsPerRun
	// the records in a run of ids that is made from a snapshot. Only tests set them.
	fanOut, chunkBytes, idsPerRun int
	// residentAtStart is up to how many accounts a start makes resident, and groupBytes how many
	// bytes the groups of the file of leaves may have at least. Only tests set them.
	residentAtStart, groupBytes int
	// walk bounds the work of a look-up in blocks of an earlier version (walkDefault).
	walk int
	// keepCold makes no account resident behind a start. Only tests set it.
	keepCold bool
	// slice is how long work behind goes on without a rest. Only tests set it.
	slice time.Duration
	// compactorsLook is how often the store looks whether there is work for compactors. Only tests
	// set it.
	compactorsLook time.Duration
	// onWrite is called before each step of writing, onLook after each look into runs or
	// labels. Only tests set them.
	onWrite func(step string)
	onLook  func()
}

// checkpointBlocksDefault bounds what Open has to execute again, and the memory of blocks that have
// few bytes.
const checkpointBlocksDefault = 512

// releaseBytesDefault is a number of segments that are not soon full of records. A larger one takes
// Open longer, since it reads the journal.
const releaseBytesDefault = 64 << 20

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
	set(&o.CheckpointBytes, 4<<20)
	o.CheckpointBytes = min(o.CheckpointBytes, o.MemTableBytes/8, maxPendingBytes/4)
	set(&o.SegmentBytes, journal.SegmentBytesDefault)
	set(&o.releaseBytes, releaseBytesDefault)
	if o.AccountsInMemory <= 0 {
		o.AccountsInMemory = accountsInMemoryDefault(memoryLimit())
	}
	if o.checkpointBlocks <= 0 {
		o.checkpointBlocks = checkpointBlocksDefault
	}
	if o.balanceSteps == 0 {
		o.balanceSteps = balanceStepsDefault
	}
	if o.fanOut <= 0 {
		o.fanOut = fanOutDefault
	}
	if o.chunkBytes <= 0 {
		o.chunkBytes = chunkBytes
	}
	if o.idsPerRun <= 0 {
		o.idsPerRun = idsPerRunDefault
	}
	if o.residentAtStart <= 0 {
		o.residentAtStart = residentAtStartDefault
	}
	if o.groupBytes <= 0 {
		o.groupBytes = groupBytesDefault
	}
	if o.walk <= 0 {
		o.walk = walkDefault
	}
	if o.slice <= 0 {
		o.slice = sliceDefault
	}
	if o.compactorsLook <= 0 {
		o.compactorsLook = compactorsLook
	}
	if o.FreeSpace == nil {
		o.FreeSpace = freeSpace
	}
	if o.Verify == nil {
		o.Verify = ledger.VerifyBatches
	}
	if o.onLook == nil {
		o.onLook = func() {}
	}
	if o.onWrite == nil {
		o.onWrite = func(string) {}
	}
	return o
}

// Bounds of the blocks that the database does not have yet, and of their bytes, measured as if no
// bundle were packed.
const (
	maxPendingBlocks = 4096
	maxPendingBytes  = 64 << 20
)

// Store is an open store. Its methods may be called from any goroutine. Apply and Append run one at
// a time.
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
	// busy is for how many nanoseconds blocks were made and executed, and cold how many accounts
	// were read for them from the database (pace.go).
	busy, cold atomic.Int64
	// latest is what Head returns: head as of the last block that is visible.
	latest atomic.Pointer[Head]

	// mutex guards the fields below, up to changed.
	mutex  sync.RWMutex
	state  *state.State
	chain  chain
	failed failedIDs
	// settledSpans are the spans as of the head of the database. Runs of ids are made by these, as
	// Open reads them by these: memory may have come to a later period.
	settledSpans spans
	head         state.Parent
	// resident is how many accounts the last block left in memory.
	resident int
	// merging is what the merger of runs has under way.
	merging merging
	// unwritten are the blocks after written, which is the database's head. wanted is the height
	// that a caller wants to be written.
	unwritten       unwritten
	written, wanted ledger.Height
	// durable is the height up to which the journal or the database has the chain on the disk.
	durable ledger.Height
	failure error
	closed  bool
	// changed is signalled when one of these fields changes, or a layer has become full.
	changed *sync.Cond

	// stuck are heights by which moves on from this shard were seen to be without end.
	stuck sync.Map
	// departures are the organisations that have left this shard.
	departures departures

	writer sync.WaitGroup
	// sorter is the writer's memory for sorting layers.
	sorter layerSorter
	// tasks are reads of the database, and what fills it beside the writer. Close waits for them.
	// tasksEnded says that no further one may begin; tasking guards it.
	tasks      sync.WaitGroup
	tasking    sync.Mutex
	tasksEnded bool
	// absent and unindexed tell what is missing because the store began with a snapshot
	// (backfill.go). filling serialises Fill and Index.
	absent, unindexed atomic.Uint64
	filling           sync.Mutex
	logs              logSyncer
	logsMu            sync.Mutex

	// syncing serialises Sync. durable, and told, the known durable height that is on the disk, are
	// changed only while it is held.
	syncing sync.Mutex
	told    ledger.Height
	journal *journal.Journal
	// marking serialises writes of the marker.
	marking sync.Mutex
	marker  *marker
	// closing is set when Close begins. A Sync that waits for space then ends.
	closing atomic.Bool
	// starved says that the last attempt to write found the process out of descriptors.
	starved atomic.Bool
	// flushes counts those of the database and the marker; see Flushes.
	flushes atomic.Uint64

	// known is the highest height that the caller reported as durable. It goes into the next
	// marker, like perhaps, the height that Perhaps returns, which the mutex guards.
	known   atomic.Uint64
	perhaps ledger.Height
	// next is the record that the next Sync writes, recorded the last one on the disk; nil for
	// none. noted is the last group of the journal whose content is known here, recordGroup the
	// last one with a record. crowded says that the writer should release groups. The mutex guards
	// them.
	next, recorded     *keptRecord
	noted, recordGroup uint64
	crowded            bool

	cache blockCache
	// runs are those in the database. legacyIndex and legacyState say that there may be rows of
	// single ids or entries of the state, which older versions wrote.
	runs                     runSet
	legacyIndex, legacyState bool

	// labelled says that all labels of accounts have rows (labels.go).
	labelled atomic.Bool
	// termsFrom is the height from which on the terms of the past are known (terms.go).
	termsFrom atomic.Uint64

	// leaves is the file of leaves.
	leaves leavesKeeper

	// lacking and left are what Open found lacking, and leaves to be checked. ending is closed when
	// Close begins, checked when the check has ended; found is what it found.
	lacking         lacking
	left            left
	ending, checked chan struct{}
	found           error

	// certified is the height of the highest certificate. certifying guards it and is held while a
	// certificate is put. certifiedMore is closed when it grows, and by Close.
	certified     atomic.Uint64
	certifying    sync.Mutex
	certifiedMore chan struct{}
	// evidence serialises PutEvidence. evidenceCount is how many pieces there are.
	evidence      sync.Mutex
	evidenceCount atomic.Int64
}

// Head is the last appended block.
type Head struct {
	Height ledger.Height       `json:"height"`
	Hash   ledger.Hash         `json:"hash"`
	Time   ledger.Milliseconds `json:"time"`
	// Total is the number of transactions in all blocks.
	Total uint64 `json:"total"`
	// Epoch and Round are those that ordered the block.
	Epoch ledger.Epoch `json:"epoch"`
	Round ledger.Round `json:"round"`
}

// Genesis returns the chain's genesis. It is read-only.
func (s *Store) Genesis() *ledger.Genesis { return s.genesis }

// GenesisHash returns the chain's identity.
func (s *Store) GenesisHash() ledger.Hash { return s.chainID }

// Head returns the last appended block. The genesis has height 0. It does not wait for a block that
// is being executed: the goroutine that reads the network calls it.
func (s *Store) Head() Head {
	if head := s.latest.Load(); head != nil {
		return *head
	}
	return Head{} // Open is still reading the chain
}

// showHead makes Head return the head. The caller must hold the mutex.
func (s *Store) showHead() {
	head := headOf(s.head)
	s.latest.Store(&head)
}

func headOf(parent state.Parent) Head {
	return Head{Height: parent.Header.Height, Hash: parent.Hash, Time: parent.Header.Time,
		Total: parent.Header.Total, Epoch: parent.Header.Epoch, Round: parent.Header.Round}
}

// AppendedHeight returns the height of the last appended block, which is readable but not
// necessarily durable.
func (s *Store) AppendedHeight() ledger.Height { return s.Head().Height }

// DurableHeight returns the height up to which the chain survives kill -9 and a power cut.
func (s *Store) DurableHeight() ledger.Height {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.durable
}

// RecordDurable records that a majority of the shard's disks hold the chain up to height. The
// record is in memory until the next Sync or Close writes it. A height above the head counts as
// that of the head. A height below the known one changes nothing. Like Head, it does not wait for a
// block that is being executed.
func (s *Store) RecordDurable(height ledger.Height) {
	next := uint64(min(height, s.AppendedHeight()))
	for known := s.known.Load(); next > known && !s.known.CompareAndSwap(known, next); {
		known = s.known.Load()
	}
}

// KnownDurable returns the highest height known to be durable, at most that of the head. After Open
// it is a height that an earlier process recorded. It is true, but that process may have known a
// higher one.
func (s *Store) KnownDurable() ledger.Height { return ledger.Height(s.known.Load()) }

// Perhaps reports whether this disk may have held, and announced as synced, blocks that it does not
// hold now. It also returns the lowest height of such a block and the reason. False means that the
// disk has certainly lost no announced block to damage.
//
// The argument: a height is announced only after the flush of the journal's group that has its
// block. A group is written only after the flush of the one before it. So every group but the last
// was flushed, and Open fails with ErrDamaged if it is not whole. Of what follows the last whole
// group:
//   - Sectors that are whole or were never written are what a loss of power leaves of a group whose
//     flush did not return. It was never announced, however much of it was written. So a loss of
//     power everywhere, which tears the journal on all disks, leaves no disk in doubt.
//   - A sector that is neither may belong to a group that was flushed and damaged later. This is
//     the doubt.
//
// There is also a doubt if both copies of the newest tip marker may be damaged (mayHide), because
// that marker may have named segments of the journal that are missing.
//
// This assumes that fdatasync is reliable. A disk that loses writes after fdatasync may return an
// old journal and an old marker, and then looks like a disk that was rolled back. The store cannot
// detect that.
//
// The doubt must outlive what it rests on, which the next writes replace. So markers keep it until
// SettleDoubt. It is not settled when the lowest height becomes known as durable: a lost
// group may have had more blocks, and this disk may have been one of the few that held the last of
// them.
func (s *Store) Perhaps() (perhaps bool, from ledger.Height, reason string) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	if s.perhaps == 0 {
		return false, 0, ""
	}
	return true, s.perhaps, fmt.Sprintf("the end of the journal, or both copies of the newest tip "+
		"marker, were damaged: this disk may have announced block %d or later blocks and lost them",
		s.perhaps)
}

// SettleDoubt clears the doubt that Perhaps reports. The shard has since agreed on a chain, with
// knowledge of the doubt. The next Sync or Close writes this.
func (s *Store) SettleDoubt() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.perhaps = 0
}

// AdoptKnowledge copies another store's knowledge of the disk to this store, which will replace it:
// the known durable height and the doubt of Perhaps. Call it once this store has the blocks. The
// next marker stores the knowledge.
func (s *Store) AdoptKnowledge(from *Store) {
	from.mutex.RLock()
	perhaps := from.perhaps
	from.mutex.RUnlock()
	s.RecordDurable(from.KnownDurable())
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if perhaps != 0 && (s.perhaps == 0 || perhaps < s.perhaps) {
		s.perhaps = perhaps
	}
}

// Close makes everything durable, unless a write has failed, and closes the store. Later calls
// return ErrClosed.
func (s *Store) Close() (err error) {
	s.closing.Store(true)
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mutex.RLock()
	closed, failure := s.closed, s.failure
	s.mutex.RUnlock()
	if closed {
		return ErrClosed
	}
	close(s.ending)
	if failure == nil {
		err = s.Sync()
	}
	s.mutex.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mutex.Unlock()
	s.tasking.Lock()
	s.tasksEnded = true
	s.tasking.Unlock()
	s.certifying.Lock()
	close(s.certifiedMore)
	s.certifiedMore = make(chan struct{})
	s.certifying.Unlock()
	s.writer.Wait() // the database has all blocks now
	s.tasks.Wait()
	s.mutex.RLock()
	if failure == nil && err == nil {
		err = s.failure
	}
	s.mutex.RUnlock()
	if failure == nil && err == nil {
		err = s.unmarkRecords()
	}
	return errors.Join(err, s.noteFound(s.found), s.release())
}

func (s *Store) release() (err error) {
	defer guard(s.written, &err)
	if s.journal != nil {
		err = s.journal.Close()
	}
	if s.db != nil {
		if closing := s.db.Close(); closing != nil {
			err = errors.Join(err, fmt.Errorf("store: database: %w", closing))
		}
	}
	for _, f := range []*leavesHandle{s.leaves.current, s.leaves.next} {
		if f != nil {
			err = errors.Join(err, f.file.Close())
		}
	}
	if s.marker != nil {
		err = errors.Join(err, s.marker.file.Close())
	}
	return errors.Join(err, unlockFolder(s.lock))
}
