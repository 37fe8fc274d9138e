// Package store keeps a chain and its effects on disk, in Badger, and never serves a wrong byte.
//
//	store, err := store.Open(dir, genesis, store.Options{})
//	for each delivered round {
//		block, err := store.Apply(epoch, round, payloads)  // seal, execute, append: readable at once, not yet durable
//	}
//	beside it, as often as someone waits for the disk: err = store.Sync()  // all that was appended is on the disk
//	err = store.Close()
//
// # What always holds
//
//   - A block and its effects become visible together, or not at all. In memory they do because
//     readers see either all or nothing of Apply. On disk they do because the head row comes last:
//     after a crash, rows above the head are remains, which Open takes back.
//   - Every value carries a checksum that is bound to its key. Blocks are checked against their
//     roots, their hash, and the chain of hashes up to the head, on every read from disk. What
//     fails is a *DamageError that names the block.
//   - What must be there and is not is damage too, never an empty answer.
//   - After Sync has returned, neither kill -9 nor a power cut loses what was appended before the
//     call.
//
// # What the store knows of durability
//
// KnowDurable tells the store how far a majority of the disks hold the chain. The next tip marker
// keeps that height, at no further fsync, and KnownDurable returns it after the next Open. Perhaps
// says whether this disk may have announced blocks that damage took from it.
//
// # Why Badger is not simply trusted
//
// Badger opens without a word when the tail of its write-ahead log is damaged, and the records are
// gone. Therefore a tip marker, in a file of its own and in two copies, says how far the chain must
// reach (marker.go), and Open checks what could be missing silently: every header from the genesis
// to the head, the state against the state digest of the head, and the number of rows of the index.
// A history has no gaps because its entries are numbered and the account knows their number. Bodies
// are checked when they are read.
//
// Badger's WriteBatch splits into several transactions without a word. Therefore each row of the
// state carries the value from before its block, and Open restores that where the block has no head
// row (open.go).
//
// Badger's Sync leaves out memtables that were full before it was called and are not yet written to
// tables. Therefore Sync fsyncs every write-ahead log file that is there, and the directory, itself
// (sync.go).
//
// Badger writes through memory maps, so that a full disk kills the process (SIGBUS). Therefore
// Apply refuses early, with ErrDiskFull, while the free space is below a reserve, and accepts again
// when space is back (disk.go).
//
// # Snapshots
//
// WriteSnapshot streams what a store needs to go on from its head: all headers, the ids and results
// of all transactions, since a second copy of one has to be known for one, and the state. Restore
// makes a store of that. It believes the hash of the head, which the caller has from those whom it
// trusts; every header, id, result and entry of the state is checked against it.
//
// The blocks before are absent then: reads of them say ErrAbsent. The store keeps what the snapshot
// said of them (their outlines), so that it can write a snapshot itself at any time. Blocks that
// others have fill it in again, from the snapshot down; afterwards it executes all of them, once,
// for the rows that a snapshot does not have. From then on it is as if it had begun with the
// genesis:
//
//	for store.Absent() > 0 {
//		err = store.Fill(first, fetch)  // the blocks from first to Absent, checked against the headers
//	}
//	err = store.Index(ctx, pace)        // histories, streams and ends of waits; Unindexed is 0 then
//
// Only in the rows of the state does it differ: entries that no block has changed since name the
// snapshot's height, and no value before. That serves to take a block above the head back, and no
// block so old is ever taken back.
//
// # Shards
//
// The chain of a shard keeps what other shards need of it, and what it needs of them, in its blocks
// and in its state; two kinds of rows find it. Rows of blocks above the head, which a crash left,
// are never read: an entry of a stream is read only up to the number that the state says the stream
// has come to, and the end of a wait only where the state says that it is over, and what is so low
// was written anew with the block that made it so.
//
//	to children: carried, err := store.Stream(child, from, limit, durable)  // whatever number a child's members ask for
//	to others:   verdict, made, err := store.Verdict(id, durable)     // when a shard that waits asks; Pending tells whom to ask for what
//	from others: standing, err := store.Standing(&verdict)            // propose it, keep it, or forget it
//	to clients:  crossing, err := store.Crossing(id)                  // the way of a transaction, what it waits for, and its end
//
// Other shards act on what they are given for ever. So they are given what is in blocks that a
// majority of this shard's members have on disk, and that no loss of power takes back; who calls
// knows how high that is.
//
// The ids of transactions that failed, were set aside or passed through are also kept in memory,
// some 20 bytes each, since a fresh nonce does not tell of them.
//
// # Rows
//
// The first byte of a key is the kind of row:
//
//	m                          -> encoded genesis
//	H                          -> height and hash of the head
//	h height                   -> encoded header and length of the encoded block
//	b height chunk             -> a part of the encoded block
//	i id or block hash         -> height, index, kind
//	y account-number ordinal   -> height, indexes: the steps of a history in one block, the first of which is the ordinal-th
//	s state key                -> height, value before that block, value
//	x child-shard number       -> height, bundle: an entry of the stream to a child shard
//	z id                       -> height, index: the verdict that ended the wait of a transaction across shards
//	A                          -> the height up to which b rows are not there, since the store began with a snapshot, and that up to which y, x and z rows are not
//	o height chunk             -> a part of an absent block's outline: the ids and results of its transactions
package store
