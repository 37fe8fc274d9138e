package store

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unsafe"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/store/journal"
)

// Of a book with many accounts, the store keeps the leaves of the account tree in a file of their
// own, so that Open need not read all accounts to hash them. The file has a base, with the leaves
// of all accounts, and after it a group for each layer that the database got since, with the
// leaves of the accounts that the layer changed. Both have the counts of organisations, too, which
// follow from the accounts.
//
// What always holds:
//
//   - No result depends on the file. Open takes leaves from it only if the digest over them and the
//     other entries of the state is that of the head, and counts only with their checksum, which
//     is over the chain and the block that they are of, too. Otherwise it reads the accounts, and
//     removes the file.
//   - The file is of the database's head. A group is on the disk before the head row of its layer
//     is written, so a crash leaves at most one group too many, which Open cuts off.
//   - Nothing waits for the file. If it cannot be written, it is removed, and made again later.
//   - It is bounded. When the groups have a quarter of the base's bytes, a new base is written
//     beside the file, with rests, and takes its place. If that does not succeed until they have
//     twice as many, the file is removed.
//
// A new base is written while blocks are executed, so its leaves and counts are of several heights.
// The groups of all layers from its beginning on make it right, as soon as they reach the height
// that the chain had at its end: the head of the file names that height.

// leavesFile is the name of the file of leaves, and with newSuffix that of one that is being made.
const (
	leavesFile = "leaves"
	newSuffix  = ".new"
)

// leavesShare is the share of the base's bytes that the groups may have.
const leavesShare = 4

// groupBytesDefault is how many bytes the groups may have at least.
const groupBytesDefault = 1 << 20

// leavesPart is the head of the file, or that of a group.
type leavesPart struct {
	// height and hash are those of the last block of the part's layer. A base has the last layer
	// before it began.
	height ledger.Height
	hash   ledger.Hash
	// other is the height of the part before a group. In a base, it is the height from which on the
	// file is right.
	other ledger.Height
	// accounts is the number of accounts after the block. leaves is how many leaves follow, and
	// counts how many bytes of counts come before them.
	accounts, leaves, counts uint64
}

var (
	leavesBase  = [8]byte{'l', 'e', 'd', 'g', 'l', 'v', 's', '1'}
	leavesGroup = [8]byte{'l', 'e', 'd', 'g', 'g', 'r', 'p', '1'}
)

const (
	leavesPartSize = 8 + 8 + ledger.HashSize + 4*8 + sha256.Size
	groupLeafSize  = 8 + ledger.HashSize
)

// encode returns the part with its checksum, which is also over the chain and the counts.
func (p *leavesPart) encode(magic [8]byte, chain ledger.Hash, counts []byte) []byte {
	to := append(make([]byte, 0, leavesPartSize), magic[:]...)
	to = binary.BigEndian.AppendUint64(to, uint64(p.height))
	to = append(to, p.hash[:]...)
	for _, number := range [...]uint64{uint64(p.other), p.accounts, p.leaves, p.counts} {
		to = binary.BigEndian.AppendUint64(to, number)
	}
	sum := sha256.New()
	for _, part := range [...][]byte{chain[:], to, counts} {
		_, _ = sum.Write(part) // it never fails
	}
	return sum.Sum(to)
}

var errLeaves = errors.New("the file of leaves is not right")

// readPart reads the part at an offset, and its counts.
func (f *leavesHandle) readPart(at int64, magic [8]byte) (p leavesPart, counts []byte, err error) {
	var data [leavesPartSize]byte
	if at+leavesPartSize > f.end {
		return p, nil, errLeaves
	}
	if _, err := f.file.ReadAt(data[:], at); err != nil {
		return p, nil, err
	}
	number := func(place int) uint64 { return binary.BigEndian.Uint64(data[place:]) }
	const numbers = 8 + 8 + ledger.HashSize
	p = leavesPart{height: ledger.Height(number(8)), hash: ledger.Hash(data[16:]),
		other: ledger.Height(number(numbers)), accounts: number(numbers + 8),
		leaves: number(numbers + 16), counts: number(numbers + 24)}
	rest := uint64(f.end - at - leavesPartSize)
	if p.counts > rest || p.leaves > (rest-p.counts)/ledger.HashSize {
		return p, nil, errLeaves
	}
	counts = make([]byte, p.counts)
	if _, err := f.file.ReadAt(counts, at+leavesPartSize); err != nil {
		return p, nil, err
	}
	if string(p.encode(magic, f.chain, counts)) != string(data[:]) {
		return p, nil, errLeaves
	}
	return p, counts, nil
}

func appendCounts(to []byte, all []state.Counts) []byte {
	for _, each := range all {
		to = append(binary.AppendUvarint(to, uint64(len(each.Organisation))), each.Organisation...)
		to = binary.AppendUvarint(binary.AppendUvarint(to, each.Accounts), each.Assets)
	}
	return to
}

// readCounts reads counts, which take the places of those of before.
func readCounts(to map[ledger.OrganisationName]state.Counts, from []byte) error {
	number := func() uint64 {
		value, size := binary.Uvarint(from)
		if size <= 0 {
			from = nil
			return math.MaxUint64
		}
		from = from[size:]
		return value
	}
	for len(from) > 0 {
		length := number()
		if length > uint64(len(from)) {
			return errLeaves
		}
		each := state.Counts{Organisation: ledger.OrganisationName(from[:length])}
		from = from[length:]
		if each.Accounts, each.Assets = number(), number(); each.Assets == math.MaxUint64 {
			return errLeaves
		}
		to[each.Organisation] = each
	}
	return nil
}

// leavesHandle is an open file of leaves.
type leavesHandle struct {
	file  *os.File
	path  string
	chain ledger.Hash
	base  leavesPart
	// last is the last part, and end the place of the next one.
	last leavesPart
	end  int64
	// groups are those of a file that is being read.
	groups []groupPlace
	// ready says that the base is complete.
	ready bool
}

// groupPlace is where the leaves of a group are.
type groupPlace struct {
	at     int64
	leaves uint64
}

// baseEnd returns the place after the base.
func (f *leavesHandle) baseEnd() int64 {
	return leavesPartSize + int64(f.base.counts) + int64(f.base.leaves)*ledger.HashSize
}

// openLeaves opens the file of leaves of the block at a height, and returns the counts.
func (s *Store) openLeaves(height ledger.Height) (f *leavesHandle, counts []state.Counts,
	err error) {
	path := filepath.Join(s.dir, leavesFile)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	f = &leavesHandle{file: file, path: path, chain: s.chainID, ready: true}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	size, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	f.end = size.Size()
	var encoded []byte
	if f.base, encoded, err = f.readPart(0, leavesBase); err != nil {
		return nil, nil, err
	}
	all := make(map[ledger.OrganisationName]state.Counts)
	if err := readCounts(all, encoded); err != nil {
		return nil, nil, err
	}
	if f.base.leaves != f.base.accounts || f.base.other > height {
		return nil, nil, errLeaves
	}
	f.last = f.base
	at := f.baseEnd()
	for f.last.height < height {
		group, encoded, err := f.readPart(at, leavesGroup)
		if err != nil {
			return nil, nil, err
		}
		leaves := at + leavesPartSize + int64(group.counts)
		at = leaves + int64(group.leaves)*groupLeafSize
		if group.other != f.last.height || group.height <= f.last.height ||
			group.accounts < f.last.accounts || at > f.end ||
			group.accounts-f.last.accounts > group.leaves {
			return nil, nil, errLeaves
		}
		if err := readCounts(all, encoded); err != nil {
			return nil, nil, err
		}
		f.groups = append(f.groups, groupPlace{leaves, group.leaves})
		f.last = group
	}
	if f.last.height != height || f.last.hash != s.head.Hash {
		return nil, nil, errLeaves
	}
	f.end = at
	return f, slices.Collect(maps.Values(all)), nil
}

// restore gives a state the leaves of the file.
func (f *leavesHandle) restore(to *state.State, counts []state.Counts) error {
	changed, places, err := f.readGroups()
	if err != nil {
		return err
	}
	return to.RestoreTree(f.last.accounts, counts, onAllProcessors, func(first uint64,
		leaves []ledger.Hash) error {
		if first <= f.base.leaves {
			some := leaves[:min(uint64(len(leaves)), f.base.leaves-first+1)]
			at := leavesPartSize + int64(f.base.counts) + int64(first-1)*ledger.HashSize
			if _, err := f.file.ReadAt(bytesOf(some), at); err != nil {
				return err
			}
		}
		part := (first - 1) / state.LeavesPerPart
		for _, place := range places[part] {
			leaf := changed[place*groupLeafSize:][:groupLeafSize]
			copy(leaves[binary.BigEndian.Uint64(leaf)-first][:], leaf[8:])
		}
		return nil
	})
}

// bytesOf returns the memory of hashes, as a file has them.
func bytesOf(hashes []ledger.Hash) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(hashes))),
		len(hashes)*ledger.HashSize)
}

// readGroups reads the leaves of all groups, and returns the places of those of each part of the
// tree, in their order.
func (f *leavesHandle) readGroups() (leaves []byte, places [][]uint32, err error) {
	size := uint64(0)
	for _, group := range f.groups {
		size += group.leaves * groupLeafSize
	}
	leaves = make([]byte, 0, size)
	for _, group := range f.groups {
		before := len(leaves)
		leaves = leaves[:before+int(group.leaves*groupLeafSize)]
		if _, err := f.file.ReadAt(leaves[before:], group.at); err != nil {
			return nil, nil, err
		}
	}
	parts := (f.last.accounts + state.LeavesPerPart - 1) / state.LeavesPerPart
	places = make([][]uint32, parts)
	for place := range size / groupLeafSize {
		number := binary.BigEndian.Uint64(leaves[place*groupLeafSize:])
		if number == 0 || number > f.last.accounts {
			return nil, nil, errLeaves
		}
		part := (number - 1) / state.LeavesPerPart
		places[part] = append(places[part], uint32(place))
	}
	return leaves, places, nil
}

// group returns a group with a layer, whose last changes of each entry are changed.
func (f *leavesHandle) group(sealed *layer, changed []state.Change) (encoded []byte,
	part leavesPart, err error) {
	last := sealed.blocks[len(sealed.blocks)-1].block
	part = leavesPart{height: last.Header.Height, hash: last.Hash, other: f.last.height,
		accounts: f.last.accounts}
	var leaves []byte
	for _, change := range changed {
		if !state.IsAccountKey(change.Key) {
			continue
		}
		leaf, err := state.LeafOf(change.Key, change.After)
		if err != nil {
			return nil, part, err
		}
		leaves = binary.BigEndian.AppendUint64(leaves, leaf.Number)
		leaves = append(leaves, leaf.Hash[:]...)
		part.accounts = max(part.accounts, leaf.Number)
		part.leaves++
	}
	newest := make(map[ledger.OrganisationName]state.Counts)
	for _, pending := range sealed.blocks {
		for _, each := range pending.changes.Counts {
			newest[each.Organisation] = each
		}
	}
	counts := appendCounts(nil, slices.Collect(maps.Values(newest)))
	part.counts = uint64(len(counts))
	encoded = part.encode(leavesGroup, f.chain, counts)
	return append(append(encoded, counts...), leaves...), part, nil
}

// leavesKeeper keeps the file of leaves.
type leavesKeeper struct {
	// files guards what follows, and is held while groups are written. noted is the last layer for
	// which that was done, settled the height of the last one that the database has since.
	files   sync.Mutex
	noted   leavesPart
	settled ledger.Height
	// current is the file of the database's head, or nil. next is one that is being made.
	current, next *leavesHandle
	// failed says that a base could not be written. Then only Close tries again.
	failed bool
	// wanted says that a base has to be written. The store's mutex guards it.
	wanted bool
}

// hasManyAccounts reports whether there are accounts for which the store keeps the file: a tree of
// more accounts than a start makes resident, for which it has to read them. The caller must hold
// the mutex.
func (s *Store) hasManyAccounts() bool {
	return s.state.Version() >= ledger.AccountTreeVersion && s.state.AccountCount() >
		min(s.options.AccountsInMemory, s.options.residentAtStart)
}

// loadLeaves begins the state with the file of leaves, if that is right.
func (s *Store) loadLeaves(height ledger.Height) bool {
	if s.options.CheckAll {
		return false
	}
	f, counts, err := s.openLeaves(height)
	if err != nil {
		return false
	}
	var checking sync.WaitGroup
	var unsettled error
	checking.Go(func() { unsettled = s.checkUnsettled() })
	restored := state.New(s.genesis)
	err = f.restore(restored, counts)
	if err == nil {
		err = s.loadOthers(restored)
	}
	if err == nil {
		err = restored.Complete(onAllProcessors)
	}
	if err == nil && restored.Digest() != s.head.Header.StateDigest {
		err = errLeaves
	}
	checking.Wait()
	if err = errors.Join(err, unsettled); err == nil {
		err = f.file.Truncate(f.end)
	}
	if err != nil {
		_ = f.file.Close()
		return false
	}
	f.groups = nil
	s.state, s.leaves.current = restored, f
	return true
}

// removeLeaves removes the files of leaves that the store does not use.
func (s *Store) removeLeaves() error {
	for _, name := range []string{leavesFile, leavesFile + newSuffix} {
		if name == leavesFile && s.leaves.current != nil {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store: %w", err)
		}
	}
	return nil
}

// beginLeaves begins to keep the file of leaves, at the database's head.
func (s *Store) beginLeaves(height ledger.Height, hash ledger.Hash) {
	s.leaves.noted, s.leaves.settled = leavesPart{height: height, hash: hash}, height
	s.leaves.wanted = s.leaves.current == nil && s.hasManyAccounts()
}

// noteLeaves writes the group of a layer to the file of leaves, whose head row is not written yet.
func (s *Store) noteLeaves(sealed *layer) {
	k := &s.leaves
	k.files.Lock()
	defer k.files.Unlock()
	last := sealed.blocks[len(sealed.blocks)-1].block
	k.noted = leavesPart{height: last.Header.Height, hash: last.Hash}
	if k.current == nil && k.next == nil {
		return
	}
	changed := s.sorter.lastChanges(sealed.blocks)
	defer s.sorter.forget()
	for _, f := range []**leavesHandle{&k.current, &k.next} {
		if *f == nil {
			continue
		}
		s.options.onWrite("leaves")
		if err := s.appendGroup(*f, sealed, changed); err != nil {
			s.dropLeaves(f)
		}
	}
}

// appendGroup writes the group of a layer to a file, and makes it durable.
func (s *Store) appendGroup(f *leavesHandle, sealed *layer, changed []state.Change) error {
	encoded, part, err := f.group(sealed, changed)
	if err != nil {
		return err
	}
	if _, err := f.file.WriteAt(encoded, f.end); err != nil {
		return err
	}
	f.last, f.end = part, f.end+int64(len(encoded))
	if !f.ready { // its base is not on the disk either
		return nil
	}
	s.flushes.Add(1)
	return journal.SyncData(f.file)
}

// dropLeaves removes a file that could not be written. If that fails too, the file lacks a group,
// so that the next Open refuses it.
func (s *Store) dropLeaves(f **leavesHandle) {
	_, _ = os.Remove((*f).path), (*f).file.Close()
	*f = nil
}

// settleLeaves makes the next file the current one once its groups have made it right, and asks for
// a new base if there is no file, or one with too many groups. The database has the blocks up to a
// height.
func (s *Store) settleLeaves(height ledger.Height) {
	k := &s.leaves
	k.files.Lock()
	defer k.files.Unlock()
	k.settled = height
	if err := s.replaceLeaves(); err != nil {
		k.failed = true
	}
	if k.current != nil {
		groups := k.current.end - k.current.baseEnd()
		most := max(int64(s.options.groupBytes), k.current.baseEnd()/leavesShare)
		if groups < most {
			return
		}
		if groups > 2*most {
			s.dropLeaves(&k.current)
		}
	}
	if k.next != nil || k.failed {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.hasManyAccounts() && !s.leaves.wanted {
		s.leaves.wanted = true
		s.changed.Broadcast()
	}
}

// replaceLeaves puts the next file in the place of the current one, if the database has come to the
// height from which on it is right. The caller must hold files.
func (s *Store) replaceLeaves() error {
	k := &s.leaves
	if k.next == nil || !k.next.ready || k.settled < k.next.base.other {
		return nil
	}
	s.options.onWrite("leaves replace")
	path := filepath.Join(s.dir, leavesFile)
	err := k.next.complete()
	if err == nil {
		err = os.Rename(k.next.path, path)
	}
	if err != nil {
		s.dropLeaves(&k.next)
		return err
	}
	if k.current != nil {
		_ = k.current.file.Close()
	}
	k.current, k.next = k.next, nil
	k.current.path = path
	s.flushes.Add(2)
	if err = syncDirectory(s.dir); err != nil {
		s.dropLeaves(&k.current)
	}
	return err
}

// complete writes the head of the base, without which the file is worth nothing.
func (f *leavesHandle) complete() error {
	counts := make([]byte, f.base.counts)
	if _, err := f.file.ReadAt(counts, leavesPartSize); err != nil {
		return err
	}
	if _, err := f.file.WriteAt(f.base.encode(leavesBase, f.chain, counts), 0); err != nil {
		return err
	}
	return journal.SyncData(f.file)
}

// keepLeaves runs the keeper of the file of leaves. It writes a base when one is wanted, and a last
// one when the store is closed without a file.
func (s *Store) keepLeaves() {
	defer s.writer.Done()
	for {
		s.mutex.Lock()
		ended := func() bool { return s.closed && s.written >= s.head.Header.Height }
		for s.failure == nil && !ended() && (s.closed || !s.leaves.wanted) {
			s.changed.Wait()
		}
		failed, end := s.failure != nil, ended()
		s.leaves.wanted = false
		s.mutex.Unlock()
		switch {
		case failed:
			return
		case end:
			s.endLeaves()
			return
		}
		pace := s.newPace()
		pace.steady = true // groups gather until the base is written
		s.tryBase(pace)
	}
}

// tryBase writes a new file of leaves. It leaves nothing of it behind if that fails.
func (s *Store) tryBase(pace *pace) {
	err := s.writeBase(pace)
	k := &s.leaves
	k.files.Lock()
	defer k.files.Unlock()
	if err != nil && k.next != nil {
		s.dropLeaves(&k.next)
	}
	// Without enough space, nothing was written yet, and the next layer asks again.
	k.failed = k.failed || err != nil && !errors.Is(err, ErrDiskFull)
}

// endLeaves leaves a file of the database's head, if the disk has space for it.
func (s *Store) endLeaves() {
	k := &s.leaves
	k.files.Lock()
	if k.next != nil {
		s.dropLeaves(&k.next)
	}
	has := k.current != nil && k.current.last.height == k.noted.height
	k.files.Unlock()
	s.mutex.RLock()
	keeps := s.hasManyAccounts()
	s.mutex.RUnlock()
	if keeps && !has {
		s.tryBase(nil)
	}
}

// baseBytesPerSync is how many bytes of a base are written before they are made durable, so that
// other files of the disk do not wait for all of them.
const baseBytesPerSync = 8 << 20

// writeBase writes a new file of leaves. It rests as the pace says, if there is one.
func (s *Store) writeBase(pace *pace) (err error) {
	s.mutex.RLock()
	accounts := s.state.AccountCount()
	s.mutex.RUnlock()
	// Unlike rows, leaves are written once.
	if err := s.requireSpace(accounts * ledger.HashSize / 4); err != nil {
		return err
	}
	f, err := s.beginBase()
	if err != nil {
		return err
	}
	var leaves []byte
	at := leavesPartSize + int64(f.base.counts)
	for unsynced, first := 0, uint64(1); first <= f.base.leaves; {
		s.mutex.RLock()
		leaves = s.state.AppendLeaves(leaves[:0], first,
			int(min(state.LeavesPerPart, f.base.leaves-first+1)))
		s.mutex.RUnlock()
		if _, err := f.file.WriteAt(leaves, at); err != nil {
			return err
		}
		first, at = first+uint64(len(leaves)/ledger.HashSize), at+int64(len(leaves))
		if unsynced += len(leaves); unsynced >= baseBytesPerSync || first > f.base.leaves {
			s.options.onWrite("leaves base")
			if err := journal.SyncData(f.file); err != nil {
				return err
			}
			s.flushes.Add(1)
			unsynced = 0
		}
		if pace != nil {
			if err := pace.step(); err != nil {
				return err
			}
		}
	}
	return s.endBase(f)
}

// beginBase creates the next file. It gets the groups of the layers that follow.
func (s *Store) beginBase() (*leavesHandle, error) {
	path := filepath.Join(s.dir, leavesFile+newSuffix)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	f := &leavesHandle{file: file, path: path, chain: s.chainID}
	k := &s.leaves
	k.files.Lock()
	defer k.files.Unlock()
	k.next = f
	s.mutex.RLock()
	accounts, all := uint64(s.state.AccountCount()), s.state.Counts()
	s.mutex.RUnlock()
	counts := appendCounts(nil, all)
	f.base = leavesPart{height: k.noted.height, hash: k.noted.hash, accounts: accounts,
		leaves: accounts, counts: uint64(len(counts))}
	f.last, f.end = f.base, f.baseEnd()
	_, err = f.file.WriteAt(counts, leavesPartSize)
	return f, err
}

// endBase notes that the base of the next file is complete. If the database has all blocks already,
// the file takes its place at once.
func (s *Store) endBase(f *leavesHandle) error {
	k := &s.leaves
	k.files.Lock()
	defer k.files.Unlock()
	if k.next != f {
		return errLeaves // a group could not be written
	}
	f.base.other, f.ready = s.AppendedHeight(), true
	if err := journal.SyncData(f.file); err != nil { // the groups that came meanwhile
		return err
	}
	return s.replaceLeaves()
}
