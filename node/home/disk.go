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

// ErrLocked says that another process uses the home: its node runs.
var ErrLocked = errors.New("the home is in use by another process")

// DiskID names a disk: 128 random bits. The zero value is none.
type DiskID [16]byte

// IsZero reports whether the id is none.
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
	_, _ = rand.Read(id[:]) // which never fails
	return id
}

// Disk is what a home knows of the disk beneath it.
//
// A disk's identity is in two files named "disk": one in the home, one in the data folder. Each
// names itself: by its inode, and by its birth time where the file system keeps one. Copies of a
// file get another inode and birth time, so a copy does not name itself. Both files count the
// starts of the node and are made anew by each start. So a copy that is written over the files in
// place, and a file system that was rolled back beneath one of the two, are noticed as well.
//
// A home cannot recognise that everything beneath it was rolled back at once, as when a block
// device is restored from a snapshot, nor a copy that was written over the files in place before
// the node was started again. Forget is for the operator who knows that.
type Disk struct {
	ID DiskID
	// Original tells that the disk was made together with its home, and that as far as the home
	// can tell it remembers all that it ever held and promised.
	Original bool
	// Learner is why a disk that is not original was taken for a new one; "" for an original one.
	// It stays, whether the chain admits the disk or not.
	Learner string
	// Renewed tells that OpenDisk made this identity just now.
	Renewed bool
	// NoBirthTime tells that the file system keeps no birth times: copies are recognised by device
	// and inode only.
	NoBirthTime bool

	home  *Home
	lock  *os.File
	start uint64 // of the file in the data folder
}

// OpenDisk finds out whether the home's disk remembers, and gives it a new identity if it does not.
// It takes the home's lock, which Close gives back, and finishes what SetAside began. Confirm has
// to follow once the ledger store is open. Only OpenDisk and Forget change identities. It returns
// ErrLocked and the file system's errors.
//
// The disk keeps its identity if both files are there, are the ones that they name, and agree, and
// if the blocks and the promises are there. A home that was never started needs neither.
//
// A home that an older version made has no identity. If it holds both blocks and promises, or
// neither, it gets an original one. At that one moment a copy cannot be recognised.
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

// promisedAs returns the identity under which an older version made this home's promises, so that
// the decisions that name it go on to count; a new one where it made none.
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

// begin counts a start. The order of its steps matters: as long as there is no file in the data
// folder and the home's file counts no start, judge misses neither promises nor blocks; both exist
// before that changes. A crash between two steps leaves a state that the next start goes on from.
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

// Confirm notes that the ledger store is open: from here on, missing blocks are a loss.
func (d *Disk) Confirm() error {
	at := d.record(placeHome)
	at.Start, at.Next, at.Held = d.start, d.start, true
	return d.write(d.home.Dir, at)
}

// Close gives the home's lock back.
func (d *Disk) Close() error {
	if d.lock == nil {
		return nil
	}
	return unlock(d.lock)
}

// Forget makes a new identity, for an operator who knows that the disk beneath was rolled back or
// copied in a way that OpenDisk cannot see. It returns ErrLocked while the node runs, and the file
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
// identity, the id is the one that the home has until then, or zero.
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

// createDisk gives a home that is being made its original identity.
func (h *Home) createDisk() error {
	d := &Disk{home: h, ID: newDiskID(), Original: true}
	return d.write(h.Dir, d.record(placeHome))
}

// asideSuffix ends the name of a data folder that is to take the place of the present one.
const asideSuffix = ".new"

// Fresh is the folder in which a data folder is to be made that takes the place of the present one.
func (d *Disk) Fresh() string { return d.home.Data() + asideSuffix }

// NameFresh puts this disk's identity into the fresh folder, which has to be whole and synced. It
// is the step before SetAside that needs space. An error changes nothing.
func (d *Disk) NameFresh() error {
	at := d.record(placeData)
	at.Start = d.start
	return d.write(d.Fresh(), at)
}

// SetAside renames the data folder to aside, and puts the fresh folder, which NameFresh named, in
// its place. The disk stays the same, since it forgets nothing that it counted for. After a crash
// between the steps, either nothing has changed or OpenDisk finishes them. If a rename fails, the
// data folder is where it was.
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
	// The folder that was set aside is not this disk's data any more, should somebody put it back.
	err := os.Remove(filepath.Join(aside, DiskFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// finishAside puts a fresh data folder in place if the process ended in the middle of SetAside.
// NameFresh names the disk in it right before the present folder is taken away. So a fresh folder
// without that file is not whole, and is removed, even if the present one is gone: that is a loss,
// which half a copy must not hide. Older versions named no disks.
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

// lock takes the home for this process. A node of an older version holds the lock of its ledger
// store only, so that one has to be free as well.
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

// lockFile is what a running node has locked; the ledger store has one of the same name in its
// folder.
const lockFile = "lock"

// unlock gives a lock back. To close the file is not enough: a child that was forked a moment ago
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
