// Package store keeps a chain and its effects on disk, in Badger, and never serves a wrong byte.
//
//	store, err := store.Open(dir, genesis, store.Options{})
//	for each delivered round {
//		// Seal, execute and append: the block is readable at once, but not yet durable.
//		block, err := store.Apply(epoch, round, payloads)
//	}
//	// Concurrently, whenever a caller waits for the disk: then all appended blocks are on it.
//	err = store.Sync()
//	err = store.Close()
//
// # The journal and the database
//
// Apply keeps a block in memory. Sync appends all blocks that came meanwhile to the journal
// (package journal) as one group, with one flush; they are durable then. Behind that, a goroutine
// moves the blocks to the database in layers of some MB: each body, and three sorted runs with the
// layer's ids, steps of histories and entries of the state (checkpoint.go). Once the database has a
// layer on the disk, the tip marker says so, and the journal's segments are used again. Open
// executes the journal's blocks after the database's head once more. Look-ups search the blocks in
// memory first (unwritten.go).
//
// What waits for the database is bounded: 64 MiB and 4,096 blocks; Apply waits for room. The
// journal also takes records of rounds, which need not make blocks (record.go). Once it has 64 MiB
// that nothing need keep, the writer releases them; at 128 MiB it takes no further record.
//
// # What always holds
//
//   - A block and its effects become visible together or not at all. In memory, readers see either
//     all or nothing of an Apply. On disk, the journal has a block whole, and in the database the
//     head row is written last. Open undoes rows above the head, which a crash left.
//   - The database never has a block that is not in the journal first, and the journal keeps a
//     block until the database has it on the disk.
//   - Every value carries a checksum that also covers its key. Every read from disk checks a block
//     against its roots, its hash, and the chain of hashes up to the head. A failed check is a
//     *DamageError that names the block.
//   - Missing data is damage too, never an empty answer.
//   - When Sync has returned, neither kill -9 nor a power cut loses the blocks that were appended
//     before the call.
//
// # Knowledge of durability
//
// RecordDurable tells the store the height up to which a majority of the disks hold the chain. The
// next group of the journal has that height, without an additional flush, and KnownDurable returns
// it after the next Open. Perhaps reports whether this disk may have announced blocks and then lost
// them to damage.
//
// # Runs
//
// A small row in Badger costs as much as executing its transaction many times. So a layer's ids,
// steps of histories and entries of the state go into one sorted run each, cut into rows of some KB
// (layer_records.go, runs.go). Of an entry that several transactions changed, a run has the last
// value. Runs are merged behind, eight of a level into one of the next, or small ones among large
// ones into one of the same level (merge.go). If several runs have an entry, the newest one counts
// (merged.go). The row of runs is written together with the head row, so the runs always have what
// the blocks up to the head did, and nothing else.
//
// A look-up of an id reads a row of the run that has it, and few others: memory has eight bytes for
// each row of a run of ids, and a Bloom filter for each such run of up to four million (index.go).
// Both are on the disk, too, as the run's guide (guide.go), which is written with the run.
// A look-up in a history goes back from the newest run, and reads one row in most (history.go). A
// look-up of an account that is not in memory reads a row of the run that has its newest entry, and
// few others: memory has the first key of each row of a run of entries, and a Bloom filter for each
// such run. Both are on the disk, too, as the run's guide (entryguide.go).
//
// # Accounts in memory
//
// In a chain with an account tree, the state has the hashes of all accounts, and at most
// Options.AccountsInMemory accounts as a whole, besides those that blocks touched which the
// database does not have. Before a block is executed, the others that it needs are read from the
// runs, on all processors, and each is checked against its hash (accounts.go). A read of an account
// that is not in memory reads the runs, too, and checks the hash. Listing accounts merges the runs
// with what is newer in memory. After Open, no account is in memory, unless there are few; behind
// it, a goroutine reads as many as may be (warm.go).
//
// Of many accounts, the store keeps the hashes in a file, too, so that Open need not read all of
// them (leaves.go). A layer's hashes are in the file before its head row is written. Open takes
// the file only if the digest over it is that of the head, and reads the accounts otherwise.
//
// # Packed rows
//
// A body takes an eighth of its size when it is compressed, a chunk of a history or of the state
// half or less, and ids do not become smaller. So the store compresses bodies and chunks before
// Badger gets them, and Badger compresses nothing (packed.go): its log and each compaction would
// handle the whole bytes otherwise. The checksum covers the packed value. What is read is still
// checked as before: a block against its hash, the order and number of a run's records.
//
// # Why Badger is not simply trusted
//
// Badger opens without an error when the tail of its write-ahead log is damaged, and drops the
// records there. Therefore a tip marker, in its own file and in two copies, holds the height that
// the database must reach, and the segments of the journal that must exist (marker.go). Open checks
// everything that could be missing without an error: the headers and ids whose rows may still be in
// a log, the state against the state digest of the head, and the number of ids in the index. Gaps
// in a history are noticed because its entries are numbered and the account has their count. Bodies
// are checked when they are read.
//
// # Behind
//
// Checks, merges, new files of leaves, and the goroutine that reads accounts into memory work while
// blocks are executed. They rest for longer, the more of the time blocks take, and each comes to an
// end (pace.go). Badger's compactors work only while there is something to compact (compactors.go).
//
// # What Open leaves
//
// Open need not read what is in the database's tables: the manifest names them, and each has
// checksums, so nothing of it is lost without an error. A row is in a table, and not in a log, if
// as many bytes were written after it as all memtables hold (check.go). So of a long chain Open
// reads only the last headers. It takes the hashes of earlier blocks, of every 64th, from rows of
// hashes (chain.go), and every read of a header is checked against these. Of a run of ids it reads
// the guide, and the rows only as far as they may be in a log. So it does with a run of entries of
// the state, if it takes the file of leaves; it reads all entries that are no accounts.
//
// A goroutine checks the rest, slowly: the blocks of the tables, the older headers against the rows
// of hashes, and the older ids and the entries of the state against the guides. If it finds damage,
// it is as if Open had found it: the store takes no more blocks, Checked returns the damage, and
// the next Open checks everything before it returns. Options.CheckAll makes Open do so at once, as
// Verify needs it.
//
// Meanwhile nothing wrong is read: a missing or damaged row of what is left is an error of the read
// that needs it. A damaged block of a table may also end the process, because the database panics
// in goroutines of its own. So a file says that the tables are unchecked. If a process leaves it
// behind, the next Open checks everything, and the tables before it opens the database.
//
// A lost guide or row of hashes is no damage. Open reads what it was made from, all of it, and
// writes it again. So it does with a store that an older version wrote.
//
// Badger's WriteBatch may split into several transactions, so a crash may leave a part of a layer.
// Nothing reads the rows of a run that the row of runs does not name. Open removes those with
// numbers that the next runs get; those of runs that were replaced are removed behind. Stores from
// before there were runs have a row for each entry of the state, which also has the value from
// before its layer. Open restores that value if the head row does not cover the layer (open.go).
//
// Badger's Sync skips memtables that were full before the call and are not yet written to tables.
// Therefore a checkpoint also fsyncs every write-ahead log file and the directory (disk.go). It
// does so before the head row too, which may be in a newer log than the rest of the layer.
//
// Badger writes through memory maps, so a full disk kills the process (SIGBUS). Therefore Apply
// returns ErrDiskFull while the free space is below a reserve, and works again when there is enough
// space (disk.go).
//
// # Snapshots
//
// WriteSnapshot streams everything that a store needs to continue from its head: all headers, the
// ids and results of all transactions, which are needed to recognise duplicates, and the state.
// Restore makes a store from a snapshot. It trusts only the hash of the head, which the caller
// obtains from a trusted source. It checks every header, id, result and entry of the state against
// that hash.
//
// The blocks up to the head of the snapshot are then absent, and reading one returns ErrAbsent. The
// store keeps the data that the snapshot had about them (their outlines), so it can write a
// snapshot itself at any time, and tell other shards its verdicts on all transactions. It gets the
// blocks from other nodes, from the snapshot downward. Afterwards it executes all of them, once, to
// make the rows that a snapshot does not have. From then on it is like a store that began with the
// genesis:
//
//	for store.Absent() > 0 {
//		// The blocks from first to Absent, checked against the headers.
//		err = store.Fill(first, fetch)
//	}
//	// Histories and ends of waits. Afterwards Unindexed is 0.
//	err = store.Index(ctx, pace)
//
// Only the rows differ: Restore makes runs of the ids and of the state, but the steps of histories
// that come from executing the blocks are in rows of their own.
//
// # Certificates
//
// PutCertificate keeps the signatures of a majority of the members for a block, after it checked
// them. Certificates come after their blocks and are rows of their own: no block depends on one.
// Finality proves to a reader with the genesis alone that a block is final. The first
// certificates of each set of members are those of the blocks that changed the members.
//
// # Shards
//
// In the chain of a shard, the blocks and the state hold the data that other shards need from it
// and the data that it needs from them. Two kinds of rows index this data. Rows that a crash left
// above the head are never read: an entry of a stream is read only up to the number that the state
// gives, and the end of a wait only if the state shows that the wait is over. By then the block
// that made the entry or ended the wait has written its rows anew. Most ends of waits need no row:
// the id of a good verdict follows from the transaction, and the index finds it.
//
//	// To children: entries from any number that a child's members request.
//	carried, err := store.Stream(child, from, limit, durable)
//	// To others: on request of a shard that waits. It learns from Pending which shards to ask for
//	// which transactions.
//	verdict, made, err := store.Verdict(id, durable)
//	// To others: the shards that a block's transaction, and so its verdict, concerns.
//	destinations := store.Destinations(block, index)
//	// From others: propose the verdict, keep it, or drop it.
//	standing, err := store.Standing(&verdict)
//	// To clients: a transaction's way, the shards that it waits for, and its end.
//	crossing, err := store.Crossing(id)
//
// Other shards act irrevocably on the entries and verdicts that they receive. So they receive only
// those from blocks that a majority of this shard's members have on disk, because no loss of power
// takes these blocks back. The caller knows the height of the last such block.
//
// The ids of transactions that failed, were set aside or passed through are also kept in memory,
// some 20 to 40 bytes each, because their nonces may still be fresh. Those of transactions with a
// deadline take half as much, and only until some hours after the deadline (failed.go). A
// transaction whose deadline is over is always looked up on the disk, so a copy that comes late is
// dropped as any other. What began with a snapshot does not know the deadlines in the blocks up to
// it. Of these it forgets what was set aside once no such deadline can be open, if the genesis asks
// for deadlines, and keeps what failed or passed through.
//
// # Rows
//
// The first byte of a key is the kind of row:
//
//	m                          -> encoded genesis
//	H                          -> height and hash of the head
//	h height                   -> encoded header and length of the encoded block
//	p height chunk             -> a part of the encoded block, packed
//	R                          -> the runs: the next number, and of each run its kind, number,
//	                              level, number of records and number of bytes
//	r run chunk                -> records of a run of ids, in their order: id or block hash,
//	                              height, index, kind and, of a transaction that failed, the
//	                              quarters of a day from the block to the one with its deadline
//	Y run first-key            -> records of a run of histories: account number and ordinal of the
//	                              first step, after their length; the steps as in row y, after
//	                              their length; all packed after a 0 if that is shorter
//	g run part                 -> a part of the guide of a run. Of ids: the numbers of its records,
//	                              of its bytes, of the next run, of its blocks and of its failed
//	                              transactions; the first bytes of the first id of each chunk and
//	                              of each failed transaction, of those with deadlines only until
//	                              these are over; a Bloom filter of its ids. Of entries: the numbers
//	                              of its records, bytes and chunks, and of the next run; the first
//	                              key of each chunk; a Bloom filter of its keys
//	k height                   -> the hashes of the block at this height, which is a multiple of 64,
//	                              and of every 64th one after it
//	S run first-key            -> records of a run of the state: key and value, each after its
//	                              length; no value if the entry does not exist any more; all packed
//	                              after a 0 if that is shorter
//
// In a store from before rows were packed or there were runs, or that an older version made from a
// snapshot; row y in each that began with a snapshot:
//
//	b height chunk             -> a part of the encoded block
//	i id or block hash         -> height, index, kind
//	y account-number ordinal   -> height, indexes: steps of the account's history in one block,
//	                              starting with number ordinal; or height with the highest bit
//	                              set, and for each step the distance from that height and the
//	                              index, if they are in several blocks
//	B account-number steps     -> height and hash of a block, and the value of the account's entry
//	                              after it, when its history had so many steps (balances.go)
//	s state key                -> height of the layer's last block, value before that layer, value
//
// Further rows:
//
//	l key value account        -> nothing: the account has or had an indexed metadatum; key and
//	                              value after their lengths, in a byte each (labels.go)
//	L                          -> the height up to which no row l is missing
//	t account-number height    -> hash of the block at this height, and the alias and terms that
//	                              the account had before it, which it replaced (terms.go)
//	a asset-number height      -> the same of a registered asset: the value of its entry
//	T                          -> the height above which no rows t and a are missing
//	U                          -> the height up to which that holds
//	x child-shard number       -> height, bundle: an entry of the stream to a child shard
//	d shard part               -> a part of the directory with which the chain of an added shard
//	                              begins, after its length (grown.go)
//	v number                   -> height, bundle: an entry of the parent's stream. Earlier versions
//	                              did not write it
//	z id                       -> height, index: the verdict that ended a transaction's wait
//	A                          -> the height up to which p rows are missing, and the height up to
//	                              which y and z rows are missing, because the store began with a
//	                              snapshot; the positions of the streams to the child shards as of
//	                              the first of these heights, from which on there are x rows
//	o height chunk             -> a part of an absent block's outline: the ids and results of its
//	                              transactions
//	c height                   -> the certificate of a block, checked against the chain
//	e id                       -> evidence against members
package store
