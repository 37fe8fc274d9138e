package home

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/allconcur/generation"
)

// ErrLocked reports that another process uses the home: its node runs.
var ErrLocked = errors.New("the home is in use by another process")

// DiskID identifies a disk: 128 random bits. The zero value means no disk.
type DiskID [16]byte

// IsZero reports whether the id is zero.
func (id DiskID) IsZero() bool { return id == DiskID{} }

// String returns 32 hex digits.
func (id DiskID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText returns 32 hex digits.
func (id DiskID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads 32 hex digits.
func (id *DiskID) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(id)) {
		return fmt.Errorf("disk id %q: it has 32 hex digits", text)
	}
	_, err := hex.Decode(id[:], text)
	return err
}

func newDiskID() (id DiskID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// Disk is what a home knows of its disk.
//
// A disk's identity is in two files named "disk": one in the home, one in the data folder. Each
// file names itself by its inode, and by its birth time if the file system keeps one. A copy of a
// file gets another inode and birth time, so it does not name itself. Both files count the starts
// of the node and are made anew by each start. This also detects a copy that is written over the
// files in place, and a file system that was rolled back beneath one of the two.
//
// A home cannot detect that everything beneath it was rolled back at once, as when a block device
// is restored from a snapshot. Nor can it detect a copy that was written over the files in place
// before the node was started again. Forget is for an operator who knows of such a case.
type Disk struct {
	ID DiskID
	// Original reports that the disk was made together with its home, and that it remembers
	// everything it ever held and promised, as far as the home can tell.
	Original bool
	// Learner is why a disk that is not original was taken as a new one, or "" for an original one.
	// It stays, whether the chain admits the disk or not.
	Learner string
	// Renewed reports that OpenDisk made this identity just now.
	Renewed bool
	// NoBirthTime reports that the file system keeps no birth times. Copies are then detected by
	// device and inode only.
	NoBirthTime bool

	home  *Home
	lock  *os.File
	start uint64 // of the file in the data folder
}

// OpenDisk finds out whether the home's disk remembers, and gives it a new identity if it does not.
// It takes the home's lock, which Close releases, and finishes an interrupted SetAside. The caller
// must call Confirm once the ledger store is open. Only OpenDisk and Forget change identities. It
// returns ErrLocked and the file system's errors.
//
// The disk keeps its identity if both identity files exist, name themselves, and agree, and if the
// blocks and the promises exist. A home that was never started needs neither blocks nor promises.
//
// A home made by an older version has no identity. If it holds both blocks and promises, or
// neither, it gets an original one. A copy cannot be detected at that moment.
func (h *Home) OpenDisk() (*Disk, error) {
	lock, err := h.lock()
	if err != nil {
		return nil, err
	}
	d, err := h.openDisk()
	if err != nil {
		return nil, errors.Join(err, unlock(lock))
	}
	d.lock = lock
	return d, nil
}

func (h *Home) openDisk() (*Disk, error) {
	if err := h.finishAside(); err != nil {
		return nil, err
	}
	found, err := h.lookForDisk()
	if err != nil {
		return nil, err
	}
	d := &Disk{home: h}
	before := found.home.record
	switch verdict, reason := found.judge(); verdict {
	case remembers:
		d.ID, d.Original, d.Learner = before.ID, before.Original, before.Learner
		d.start = max(before.Start, found.data.record.Start)
	case unnamed:
		d.Original, d.Renewed = true, true
		if d.ID, err = h.promisedAs(); err != nil {
			return nil, err
		}
		before = record{}
	case forgot:
		d.ID, d.Learner, d.Renewed = newDiskID(), reason, true
		before = record{}
	}
	return d, d.begin(before.Held)
}

// promisedAs returns the identity under which an older version made this home's promises, so
// decisions that name it still count. If there are no promises, it returns a new identity.
func (h *Home) promisedAs() (DiskID, error) {
	text, err := os.ReadFile(h.Generation())
	if errors.Is(err, fs.ErrNotExist) {
		return newDiskID(), nil
	}
	if err != nil {
		return DiskID{}, err
	}
	state, err := generation.DecodeState(text)
	if err != nil {
		return DiskID{}, fmt.Errorf("%w: %s", err, h.Generation())
	}
	if id := DiskID(state.Disk); !id.IsZero() {
		return id, nil
	}
	return newDiskID(), nil
}

// begin counts a start. The order of its steps matters. While there is no file in the data folder
// and the home's file counts no start, judge requires neither promises nor blocks. Both exist
// before that changes. A crash between two steps leaves a state from which the next start
// continues.
func (d *Disk) begin(held bool) error {
	h := d.home
	at := d.record(placeHome)
	at.Start, at.Next, at.Held = d.start, d.start+1, held
	if err := d.write(h.Dir, at); err != nil {
		return err
	}
	if there, err := exists(h.Generation()); err != nil {
		return err
	} else if !there {
		state := generation.State{Disk: generation.DiskID(d.ID)}
		if err := WriteFile(h.Generation(), state.Encode(), 0o644); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(h.Data(), 0o700); err != nil {
		return err
	}
	d.start++
	at = d.record(placeData)
	at.Start = d.start
	return d.write(h.Data(), at)
}

// Confirm records that the ledger store is open. From here on, missing blocks are a loss.
func (d *Disk) Confirm() error {
	at := d.record(placeHome)
	at.Start, at.Next, at.Held = d.start, d.start, true
	return d.write(d.home.Dir, at)
}

// Close releases the home's lock.
func (d *Disk) Close() error {
	if d.lock == nil {
		return nil
	}
	return unlock(d.lock)
}

// Forget makes a new identity, for an operator who knows that the disk was rolled back or copied in
// a way that OpenDisk cannot detect. It returns ErrLocked while the node runs, and the file
// system's errors.
func (h *Home) Forget(reason string) (*Disk, error) {
	lock, err := h.lock()
	if err != nil {
		return nil, err
	}
	d := &Disk{home: h, ID: newDiskID(), Learner: reason, Renewed: true}
	err = h.finishAside()
	if err == nil {
		err = d.begin(false)
	}
	return d, errors.Join(err, unlock(lock))
}

// Disk returns what OpenDisk would find, without changing anything. If OpenDisk would make a new
// identity, the id is the home's current one, or zero.
func (h *Home) Disk() (*Disk, error) {
	found, err := h.lookForDisk()
	if err != nil {
		return nil, err
	}
	d := &Disk{home: h, ID: found.home.record.ID}
	d.NoBirthTime = found.home.found && found.home.record.File.Born == 0
	switch verdict, reason := found.judge(); verdict {
	case remembers:
		d.Original, d.Learner = found.home.record.Original, found.home.record.Learner
	case unnamed:
		d.Original = true
	case forgot:
		d.Learner, d.Renewed = reason, true
	}
	return d, nil
}

// createDisk gives a new home its original identity.
func (h *Home) createDisk() error {
	d := &Disk{home: h, ID: newDiskID(), Original: true}
	return d.write(h.Dir, d.record(placeHome))
}

// asideSuffix ends the name of a data folder that is to replace the current one.
const asideSuffix = ".new"

// Fresh returns the folder for a new data folder that is to replace the current one.
func (d *Disk) Fresh() string { return d.home.Data() + asideSuffix }

// NameFresh puts this disk's identity into the fresh folder, which must be whole and synced. It is
// the last step before SetAside that needs space. An error changes nothing.
func (d *Disk) NameFresh() error {
	at := d.record(placeData)
	at.Start = d.start
	return d.write(d.Fresh(), at)
}

// SetAside renames the data folder to aside, and puts the fresh folder in its place. NameFresh must
// come first. The disk keeps its identity, since it forgets nothing that it counted for. After a
// crash between the steps, either nothing has changed or OpenDisk finishes them. If a rename fails,
// the data folder is where it was.
func (d *Disk) SetAside(aside string) error {
	if err := os.Rename(d.home.Data(), aside); err != nil {
		return err
	}
	if err := os.Rename(d.Fresh(), d.home.Data()); err != nil {
		return errors.Join(err, os.Rename(aside, d.home.Data()))
	}
	if err := syncFolder(d.home.Dir); err != nil {
		return err
	}
	// An operator may put the folder back. It must not pass for this disk's data then.
	err := os.Remove(filepath.Join(aside, DiskFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// finishAside puts a fresh data folder in place if the process ended in the middle of SetAside.
// NameFresh names the disk in the fresh folder right before the current folder is moved away. So a
// fresh folder without that file is not whole, and is removed, even if the current one is gone:
// that is a loss, and half a copy must not hide it. Homes of older versions name no disks.
func (h *Home) finishAside() error {
	fresh := h.Data() + asideSuffix
	if there, err := exists(fresh); err != nil || !there {
		return err
	}
	if there, err := exists(h.Data()); err != nil {
		return err
	} else if there {
		return os.RemoveAll(fresh)
	}
	named, err := exists(filepath.Join(fresh, DiskFile))
	if err != nil {
		return err
	}
	knowsNames, err := exists(filepath.Join(h.Dir, DiskFile))
	if err != nil {
		return err
	}
	if knowsNames && !named {
		return os.RemoveAll(fresh)
	}
	if err := os.Rename(fresh, h.Data()); err != nil {
		return err
	}
	return syncFolder(h.Dir)
}

// lock takes the home for this process. A node of an older version locks only its ledger store, so
// that lock must be free, too.
func (h *Home) lock() (*os.File, error) {
	taken, err := flock(filepath.Join(h.Dir, lockFile), os.O_CREATE)
	if err != nil {
		return nil, err
	}
	store, err := flock(filepath.Join(h.Data(), lockFile), 0)
	if err == nil {
		err = unlock(store)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, unlock(taken))
	}
	return taken, nil
}

// lockFile is the file that a running node locks. The ledger store has one of the same name in its
// folder.
const lockFile = "lock"

// unlock releases a lock. Closing the file is not enough: a child that was forked a moment ago
// holds a copy of it until its program begins, and the lock belongs to all copies.
func unlock(lock *os.File) error {
	return errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_UN), lock.Close())
}

func flock(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|flags, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return file, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("%w: %s", ErrLocked, path)
	default:
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	return nil, errors.Join(err, file.Close())
}

func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
