package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// databaseFolder is the name of Badger's folder in the store's folder.
const databaseFolder = "badger"

// Open opens the store in dir, or creates one if dir is empty or does not exist. It checks the
// whole state, and of the rest what the database may have lost without an error; Checked tells of
// what is left. It undoes the blocks that a crash left above the head. The time it takes grows with
// the state (about a second for a million entries), and hardly with the chain. Open returns
// ErrForeign, ErrLocked, ErrDamaged (a *DamageError) or ErrDiskFull.
func Open(dir string, genesis *ledger.Genesis, options Options) (*Store, error) {
	if err := genesis.Validate(); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, options: options.withDefaults(), genesis: genesis,
		chainID: genesis.Hash(), book: genesis.Book()}
	s.departures = departures{make: s.pack, begin: s.beginTask, end: s.tasks.Done, now: time.Now,
		most: keptBytes}
	s.changed, s.certifiedMore = sync.NewCond(&s.mutex), make(chan struct{})
	s.cache = newBlockCache(s.options.DecodedCacheBytes)
	s.logs.dir = filepath.Join(dir, databaseFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := ownFolder(dir); err != nil {
		return nil, err
	}
	var err error
	if s.lock, err = lockFolder(dir); err != nil {
		return nil, err
	}
	s.ending, s.checked = make(chan struct{}), make(chan struct{})
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.noteFound(err), s.release())
	}
	s.writer.Add(6)
	go s.write()
	go s.keepLeaves()
	go s.warm()
	go s.label()
	go s.merge()
	go s.check()
	db := s.db
	s.writer.Go(func() { restCompactors(db, s.options.compactorsLook, s.ending) })
	return s, nil
}

// IdentityFile is the name of a file in the store's folder that identifies the disk. It does not
// belong to the store.
const IdentityFile = "disk"

// besideStore are the files that a folder without a store may contain.
var besideStore = []string{"lock", markerFile + ".new", IdentityFile}

// ownFolder returns ErrForeign if the folder is not empty and has no store.
func ownFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, entry := range entries {
		switch entry.Name() {
		case markerFile, databaseFolder:
			return nil
		}
	}
	for _, entry := range entries {
		if name := entry.Name(); !slices.Contains(besideStore, name) &&
			!strings.HasPrefix(name, "."+IdentityFile+".") {
			return fmt.Errorf("%w: %s holds %s, but no store; choose another folder", ErrForeign,
				dir, name)
		}
	}
	return nil
}

func (s *Store) open() error {
	if err := s.openMarker(); err != nil {
		return err
	}
	must := s.marker.last
	if must.genesis != s.chainID {
		return fmt.Errorf("%w: %s holds the chain with genesis %s, not %s", ErrForeign, s.dir,
			must.genesis, s.chainID)
	}
	if err := os.RemoveAll(filepath.Join(s.dir, replayFolder)); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := s.requireSpace(0); err != nil {
		return err
	}
	if err := s.beginTables(); err != nil {
		return err
	}
	if err := s.openDatabase(); err != nil {
		return err
	}
	return s.load(must)
}

// openMarker opens the tip marker. It is created before the database. So a database without a
// marker is damaged, and so is a marker of a chain without a database.
func (s *Store) openMarker() error {
	_, err := os.Stat(filepath.Join(s.dir, databaseFolder))
	hasDatabase := err == nil
	marker, found, err := openMarker(s.dir)
	switch {
	case errors.Is(err, errMarker):
		return damaged(1, "the tip marker, which says how far the chain must reach, cannot be read")
	case err != nil:
		return err
	case !found && hasDatabase:
		return damaged(1, "the tip marker, which says how far the chain must reach, is gone")
	case !found:
		marker, err = createMarker(s.dir, s.chainID)
		if err != nil {
			return err
		}
	}
	s.marker = marker
	if marker.last.height > 0 && !hasDatabase {
		return damaged(1, "the database is gone; the chain must reach block %d", marker.last.height)
	}
	return nil
}

func (s *Store) openDatabase() (err error) {
	defer guard(1, &err)
	configuration := badger.DefaultOptions(filepath.Join(s.dir, databaseFolder)).
		WithLogger(nil).
		WithMetricsEnabled(false).
		WithDetectConflicts(false).
		WithSyncWrites(false).
		WithNumVersionsToKeep(1).
		WithMemTableSize(s.options.MemTableBytes).
		WithNumMemtables(memTables).
		WithNumCompactors(2).
		WithBlockCacheSize(s.options.BlockCacheBytes).
		WithValueLogFileSize(16 << 20).
		// All values are smaller than the threshold, so none goes into the value log, which Badger
		// checks less thoroughly.
		WithValueThreshold(min(1<<20, s.options.MemTableBytes/8)).
		WithVerifyValueChecksum(true).
		// The store packs the rows that are worth it (packed.go). Tables of older versions are
		// compressed.
		WithCompression(options.None).
		WithChecksumVerificationMode(options.OnBlockRead)
	if err := removeEmptyLogs(configuration.Dir); err != nil {
		return err
	}
	s.db, err = openUnlocked(configuration)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLocked):
		return err
	case s.marker.last.height == 0:
		return fmt.Errorf("store: the database cannot be opened: %w", err)
	}
	return damaged(1, "the database cannot be opened: %v; the chain must reach block %d", err,
		s.marker.last.height)
}

// removeEmptyLogs removes the logs of a database that have no byte. A process that is killed while
// the database creates a log leaves it so, and the database then refuses to open.
func removeEmptyLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, entry := range entries {
		if kind := filepath.Ext(entry.Name()); kind != ".mem" && kind != ".vlog" {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		found, err := os.Stat(path)
		if err == nil && found.Size() == 0 {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store: %w", err)
		}
	}
	return nil
}

// openUnlocked opens the database. If the database is locked, it waits a moment and then returns
// ErrLocked. The lock of a database that this process has closed may last a moment longer: Badger
// releases it by closing the folder, and a child process that was just forked holds a copy of the
// folder until it executes its program.
func openUnlocked(configuration badger.Options) (*badger.DB, error) {
	const patience, pause = 2 * time.Second, 10 * time.Millisecond
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		db, err := badger.Open(configuration)
		switch {
		case err == nil:
			return db, nil
		case !isLocked(err):
			return nil, err
		case time.Now().After(deadline):
			return nil, fmt.Errorf("%w: the database %s is locked; stop the process that uses it "+
				"(fuser -v %[2]s)", ErrLocked, configuration.Dir)
		}
	}
}

// isLocked reports whether an error of badger.Open says that another process has the lock. The
// error does not wrap that of the system, so its text decides.
func isLocked(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "Cannot acquire directory lock on ") &&
		strings.HasSuffix(text, unix.EWOULDBLOCK.Error())
}

// load reads the head, checks everything below it that could be missing without an error, and
// undoes everything above it.
func (s *Store) load(must tip) (err error) {
	defer guard(1, &err)
	height, hash, err := s.loadHead(must)
	if err != nil {
		return err
	}
	if err := s.loadChain(must, height, hash); err != nil {
		return err
	}
	if err := s.loadTerms(height); err != nil {
		return err
	}
	// What a process that was killed left in the database's logs may not be on the disk yet. It is
	// made durable before rows are removed because of it: the loss of power could undo the one and
	// not the other.
	s.options.onWrite("fence")
	if err := s.logs.sync(); err != nil {
		return err
	}
	if err := s.loadMissing(height); err != nil {
		return err
	}
	remains := s.db.NewWriteBatch()
	defer remains.Cancel()
	if err := s.loadLabels(height); err != nil {
		return err
	}
	if err := s.loadRuns(height); err != nil {
		return err
	}
	if err := s.loadEntriesGuides(height); err != nil {
		return err
	}
	if err := s.loadRows(height, remains); err != nil {
		return err
	}
	if err := s.removeLeaves(); err != nil {
		return err
	}
	s.beginLeaves(height, hash)
	s.options.onWrite("remains")
	if err := s.removeRemains(height, remains); err != nil {
		return err
	}
	if err := remains.Flush(); err != nil {
		return fmt.Errorf("store: database: %w", err)
	}
	if err := s.complement(); err != nil {
		return err
	}
	if err := s.keepSeed(); err != nil {
		return err
	}
	s.unwritten, s.written, s.wanted = newUnwritten(), height, height
	s.perhaps = must.perhaps
	s.known.Store(uint64(min(must.known, height)))
	written := s.head
	if err := s.openJournal(); err != nil {
		return err
	}
	if height > must.height { // the process was killed before it wrote the marker
		if err := s.settle(&written.Header, written.Hash, 0); err != nil {
			return err
		}
	}
	if err := s.startJournal(); err != nil {
		return err
	}
	return s.loadCertified(s.head.Header.Height)
}

// loadHead reads the head row. In a new store it writes the first rows.
func (s *Store) loadHead(must tip) (height ledger.Height, hash ledger.Hash, err error) {
	genesisKey, headKey := []byte{rowGenesis}, []byte{rowHead}
	var genesis []byte
	err = s.db.View(func(transaction *badger.Txn) error {
		var err error
		if genesis, err = get(transaction, genesisKey); err != nil {
			return err
		}
		value, err := get(transaction, headKey)
		if err != nil {
			return err
		}
		height, hash, err = decodeHeadRow(value)
		return err
	})
	switch {
	case errors.Is(err, errMissing) && must.height == 0 && genesis == nil:
		genesis = s.genesis.Encode()
		var runs []*run
		if len(s.genesis.Grown) > 0 {
			if runs, err = s.beginSeeded(); err != nil {
				return 0, ledger.Hash{}, err
			}
		}
		err = s.db.Update(func(transaction *badger.Txn) error {
			if len(runs) > 0 {
				runsKey := []byte{rowRuns}
				row := seal(runsKey, runsRow(s.runs.next.Load(), runs))
				if err := transaction.Set(runsKey, row); err != nil {
					return err
				}
			}
			if err := transaction.Set(genesisKey, seal(genesisKey,
				bytes.Clone(genesis))); err != nil {
				return err
			}
			if err := labelsRow(0, s.putTo(transaction.Set)); err != nil {
				return err
			}
			return transaction.Set(headKey, seal(headKey, headRow(0, s.chainID)))
		})
		if err != nil {
			return 0, ledger.Hash{}, fmt.Errorf("store: database: %w", err)
		}
		return 0, s.chainID, nil
	case err != nil:
		return 0, ledger.Hash{}, damaged(1, "head row: %v; the chain must reach block %d", err,
			must.height)
	case !bytes.Equal(genesis, s.genesis.Encode()):
		return 0, ledger.Hash{}, fmt.Errorf("%w: %s holds another chain than its tip marker says",
			ErrForeign, s.dir)
	case height < must.height:
		return 0, ledger.Hash{}, damaged(height+1,
			"missing; the chain must reach block %d and ends at block %d", must.height, height)
	}
	return height, hash, nil
}

// loadChain checks that the last headers up to the head exist and form a chain with the hashes of
// the earlier ones, and that it includes the marker's block.
func (s *Store) loadChain(must tip, height ledger.Height, hash ledger.Hash) error {
	s.chain.segments = make(map[ledger.Height]*segment)
	return s.db.View(func(transaction *badger.Txn) error {
		hashes, err := s.readHashes(transaction, height)
		if err != nil {
			return err
		}
		if err := s.beginChain(transaction, hashes, must.height, height); err != nil {
			return err
		}
		check := func() error {
			next := s.head.Header.Height
			if next == must.height && (s.head.Hash != must.hash ||
				s.head.Header.Total != must.total) {
				return damaged(next, "it has hash %s; the tip marker says %s", s.head.Hash,
					must.hash)
			}
			if at := next / segmentLength; next%segmentLength == 0 && at < ledger.Height(
				len(hashes)) && s.head.Hash != hashes[at] {
				return damaged(next, "it has hash %s; the row of hashes says %s", s.head.Hash,
					hashes[at])
			}
			return nil
		}
		if s.head.Header.Height > 0 {
			if err := check(); err != nil {
				return err
			}
		}
		err = eachHeader(transaction, &s.head, height, func() error {
			s.chain.append(s.head.Hash)
			return check()
		})
		if err != nil {
			return err
		}
		if s.head.Hash != hash {
			return damaged(height, "it has hash %s; the head row says %s", s.head.Hash, hash)
		}
		s.lacking.first = ledger.Height(len(hashes)) * segmentLength
		s.lacking.hashes = s.chain.checkpoints[len(hashes):]
		s.showHead()
		return nil
	})
}

// beginChain sets the head to the block after which the headers are read at once. The others, of
// whose hashes some are known, are read later.
func (s *Store) beginChain(transaction *badger.Txn, hashes []ledger.Hash, must,
	height ledger.Height) error {
	begin := ledger.Height(0)
	if !s.options.CheckAll {
		most := min(ledger.Height(len(hashes)-1)*segmentLength, must)
		var err error
		if begin, err = s.mayHaveLost(transaction, most, height); err != nil {
			return err
		}
	}
	s.head = state.Parent{Header: s.genesis.Block().Header, Hash: s.chainID}
	if begin > 0 {
		header, _, err := readHeader(transaction, begin)
		if err != nil {
			return err
		}
		s.head = state.Parent{Header: header, Hash: header.Hash()}
	}
	at := begin / segmentLength
	s.chain.checkpoints = slices.Clone(hashes[:at+1])
	s.chain.recent = append(s.chain.recent[:0], hashes[at])
	s.left.header = begin
	return nil
}

func nextHeader(rows *badger.Iterator, height ledger.Height) (ledger.Header, error) {
	key := heightKey(rowHeader, height)
	if !rows.Valid() || !bytes.Equal(rows.Item().Key(), key) {
		return ledger.Header{}, damaged(height, "its header is missing")
	}
	sealed, err := rows.Item().ValueCopy(nil)
	if err == nil {
		sealed, err = unseal(key, sealed)
	}
	if err != nil {
		return ledger.Header{}, damaged(height, "header: %v", err)
	}
	header, _, err := decodeHeaderRow(sealed)
	if err != nil || header.Height != height {
		return ledger.Header{}, damaged(height, "header: malformed")
	}
	rows.Next()
	return header, nil
}

// loadRows reads the state and the index beside each other.
func (s *Store) loadRows(height ledger.Height, remains *badger.WriteBatch) error {
	var inState, inIndex error
	var reading sync.WaitGroup
	reading.Go(func() {
		defer guard(height, &inIndex)
		inIndex = s.loadIndex(height, remains)
		s.settledSpans = s.failed.spans
	})
	func() {
		defer guard(height, &inState)
		inState = s.loadState(height, remains)
	}()
	reading.Wait()
	return errors.Join(inState, inIndex)
}

// loadState reads the state, and checks it against the state digest of the head. The runs of
// entries must have their guides.
func (s *Store) loadState(height ledger.Height, remains *badger.WriteBatch) error {
	version, err := s.versionOf(height)
	if err != nil {
		return err
	}
	tree := version >= ledger.AccountTreeVersion && !s.legacyState
	if tree && s.hasManyEntries() && s.loadLeaves(height) {
		return nil
	}
	s.state = state.New(s.genesis)
	if tree {
		err = s.loadAccounts(height)
	} else {
		err = s.loadEntries(height, remains)
	}
	if err != nil {
		return err
	}
	switch err := s.state.Complete(onAllProcessors); {
	case errors.Is(err, ledger.ErrVersion):
		return fmt.Errorf("store: %w", err)
	case err != nil:
		return damaged(height, "the state: %v", err)
	}
	s.resident = s.state.Resident()
	if digest := s.state.Digest(); height > 0 && digest != s.head.Header.StateDigest {
		return damaged(height, "the state has digest %s; the block says %s", digest,
			s.head.Header.StateDigest)
	}
	return nil
}

// versionOf returns the version of the chain, and finds out whether there are rows of single
// entries. It is that of the genesis if there are.
func (s *Store) versionOf(height ledger.Height) (version int, err error) {
	read := state.New(s.genesis)
	err = s.db.View(func(transaction *badger.Txn) error {
		err := eachRowFrom(transaction, []byte{rowState}, func([]byte) error {
			s.legacyState = true
			return errFound
		})
		if err != nil && !errors.Is(err, errFound) || s.legacyState {
			return err
		}
		value, err := newEntryFinder(transaction, s.runs.list(), false).find(state.CharterKey())
		if err == nil && value != nil {
			err = read.Restore(state.CharterKey(), value)
		}
		return err
	})
	if err != nil && !errors.Is(err, errFound) {
		return 0, damaged(height, "the charter: %v", err)
	}
	return read.Version(), nil
}

// errFound ends a search for rows.
var errFound = errors.New("found")

// loadEntries reads the state with all accounts, and undoes what rows of single entries above the
// head changed.
func (s *Store) loadEntries(height ledger.Height, remains *badger.WriteBatch) error {
	return s.db.View(func(transaction *badger.Txn) error {
		undo := func(key []byte, row *stateRow) error {
			if row.height <= height {
				return nil
			}
			// A block above the head wrote this row: restore the value from before that block.
			*row = stateRow{height: height, after: bytes.Clone(row.before)}
			return remains.Set(key, seal(key, row.append(nil)))
		}
		sources := newMergedState(transaction, s.runs.list(), undo)
		defer sources.close()
		for _, c := range sources.all {
			c.checks = c.run != nil && s.options.CheckAll
		}
		for {
			key, value, more, err := sources.next()
			switch {
			case err != nil:
				return damaged(height, "the state: %v", err)
			case !more:
				return nil
			case len(value) == 0:
				continue
			}
			if err := s.state.Restore(key, value); err != nil {
				return damaged(height, "entry %x of the state: %v", key, err)
			}
		}
	})
}

// eachRow visits all rows of a kind and checks their checksums. Key and value are valid only during
// the call.
func (s *Store) eachRow(kind byte, visit func(key, value []byte) error) error {
	return s.db.View(func(transaction *badger.Txn) error {
		settings := badger.DefaultIteratorOptions
		settings.Prefix = []byte{kind}
		rows := transaction.NewIterator(settings)
		defer rows.Close()
		for rows.Rewind(); rows.Valid(); rows.Next() {
			key := rows.Item().Key()
			err := rows.Item().Value(func(sealed []byte) error {
				value, err := unseal(key, sealed)
				if err != nil {
					return damaged(s.head.Header.Height, "row %x: %v", key, err)
				}
				return visit(key, value)
			})
			if err != nil {
				var damage *DamageError
				if errors.As(err, &damage) {
					return err
				}
				return damaged(s.head.Header.Height, "row %x: %v", key, err)
			}
		}
		return nil
	})
}
