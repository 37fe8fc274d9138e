package home

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// place is the folder that an identity file is for. A file for one folder is not valid in another.
type place string

const (
	placeHome place = "home"
	placeData place = "data"
)

const (
	identityVersion = 1
	// identityMax bounds the size of an identity file.
	identityMax = 64 << 10
)

// record is the content of an identity file: one line of JSON, and a line with its CRC-32C.
type record struct {
	Version  int    `json:"version"`
	Place    place  `json:"place"`
	ID       DiskID `json:"id"`
	Original bool   `json:"original"`
	Learner  string `json:"learner,omitempty"`
	// Start counts the starts of the node. The home's file has the last finished start in Start and
	// the start under way in Next. They differ while a start is under way; the data's file then has
	// either.
	Start uint64 `json:"start"`
	Next  uint64 `json:"next,omitempty"`
	// Held, in the home's file, reports that the data folder held a ledger store.
	Held bool     `json:"held,omitempty"`
	File fileName `json:"file"`
}

// fileName identifies a file, but no copy of it.
type fileName struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	// Born is the file's birth time, in nanoseconds since 1970. It is 0 if the file system keeps
	// none.
	Born int64 `json:"born,omitempty"`
	// Boot is the boot of the machine in which the file was made, or "" if unknown.
	Boot string `json:"boot,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (r *record) encode() ([]byte, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(line, "\n%08x\n", crc32.Checksum(line, castagnoli)), nil
}

func decodeRecord(text []byte) (record, error) {
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	if string(rest) != fmt.Sprintf("%08x\n", crc32.Checksum(line, castagnoli)) {
		return record{}, errors.New("its checksum does not match")
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	var r record
	if err := decoder.Decode(&r); err != nil {
		return record{}, fmt.Errorf("it is malformed: %w", err)
	}
	if r.Version != identityVersion || r.ID.IsZero() {
		return record{}, fmt.Errorf("it is of version %d, and names disk %s", r.Version, r.ID)
	}
	return r, nil
}

// record returns the identity's record for a place.
func (d *Disk) record(at place) record {
	return record{
		Version: identityVersion, Place: at, ID: d.ID, Original: d.Original, Learner: d.Learner,
	}
}

// write puts an identity into a folder, whole or not at all. A file cannot name its inode before it
// exists. So write creates it under another name, reads its inode and birth time, fills and syncs
// it, and renames it. A rename changes neither the inode nor the birth time.
func (d *Disk) write(dir string, r record) (err error) {
	prefix := "." + DiskFile + "."
	if err := removeRemains(dir, prefix); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, prefix+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", filepath.Join(dir, DiskFile), err)
			_ = os.Remove(file.Name()) // if this fails, the next write removes it
		}
	}()
	if r.File, err = nameOf(file); err != nil {
		return errors.Join(err, file.Close())
	}
	d.NoBirthTime = r.File.Born == 0
	text, err := r.encode()
	if err == nil {
		_, err = file.Write(text)
	}
	if err = errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), filepath.Join(dir, DiskFile)); err != nil {
		return err
	}
	return syncFolder(dir)
}

// removeRemains removes files that a crash left half written.
func removeRemains(dir, prefix string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), prefix) {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// bootID returns the kernel's name of this boot, or "" if the kernel has none.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// differs returns why the file now is not the named file, or "" if it is.
//
// Inode and birth time must be the same. The device's number does not always identify the device.
// Numbers are assigned anew when the machine boots. File systems without a device of their own
// (major number 0: overlay, btrfs, network file systems) get a number when they are mounted. A
// shard whose machines all lost power must not take all its files for copies. So a different number
// counts only within one boot and for real devices: that detects a snapshot of a volume mounted in
// its place. Without birth times it always counts, because inode numbers alone repeat easily.
func (n *fileName) differs(now fileName) string {
	switch {
	case n.Inode != now.Inode:
		return fmt.Sprintf("it has inode %d and names inode %d", now.Inode, n.Inode)
	case n.Born != now.Born:
		return fmt.Sprintf("it was born at %d ns and names a file born at %d ns", now.Born, n.Born)
	case n.Device == now.Device:
		return ""
	}
	sameBoot := n.Boot != "" && n.Boot == now.Boot
	numbered := unix.Major(n.Device) != 0 && unix.Major(now.Device) != 0
	if n.Born == 0 || sameBoot && numbered {
		return fmt.Sprintf("it is on device %d and names device %d", now.Device, n.Device)
	}
	return ""
}

// identityFile is the result of reading one identity file.
type identityFile struct {
	record record
	found  bool
	wrong  string // why a file that exists does not count
}

func lookForRecord(path string, at place) (s identityFile, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return identityFile{}, nil
	}
	if err != nil {
		return identityFile{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	text, err := io.ReadAll(io.LimitReader(file, identityMax))
	if err != nil {
		return identityFile{}, fmt.Errorf("read %s: %w", path, err)
	}
	name, err := nameOf(file)
	if err != nil {
		return identityFile{}, err
	}
	s.found = true
	s.record, err = decodeRecord(text)
	switch {
	case err != nil:
		s.wrong = fmt.Sprintf("%s is damaged: %v", path, err)
	case s.record.Place != at:
		s.wrong = fmt.Sprintf("%s is a file for the %s folder", path, s.record.Place)
	default:
		if why := s.record.File.differs(name); why != "" {
			s.wrong = fmt.Sprintf("%s is a copy: %s", path, why)
		}
	}
	return s, nil
}

// found holds the files and facts from which judge decides whether a disk remembers.
type found struct {
	home, data identityFile
	blocks     bool // the data folder holds a ledger store
	promises   bool
}

func (h *Home) lookForDisk() (f found, err error) {
	if f.home, err = lookForRecord(filepath.Join(h.Dir, DiskFile), placeHome); err != nil {
		return f, err
	}
	if f.data, err = lookForRecord(filepath.Join(h.Data(), DiskFile), placeData); err != nil {
		return f, err
	}
	if f.promises, err = exists(h.Generation()); err != nil {
		return f, err
	}
	for _, name := range []string{"tip", "badger"} { // files of the ledger store
		there, err := exists(filepath.Join(h.Data(), name))
		if err != nil {
			return f, err
		}
		f.blocks = f.blocks || there
	}
	return f, nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// verdict is a home's conclusion about its disk.
type verdict int

const (
	remembers verdict = iota
	unnamed           // there is no identity, and nothing rules out an original one
	forgot
)

const promisesGone = "what this node promised is gone: there is no file " + GenerationFile

// judge decides whether the disk remembers, and returns why not.
func (f *found) judge() (verdict, string) {
	at, data := &f.home, &f.data
	switch {
	case !at.found && !data.found:
		switch {
		case f.blocks == f.promises:
			return unnamed, ""
		case f.blocks:
			// This holds even if the store has no block. An older version that ran for a moment
			// after everything was lost leaves the same files.
			return forgot, promisesGone
		}
		return forgot, "what this node promised is there, and the blocks are gone"
	case !at.found:
		return forgot, "the file " + DiskFile +
			" beside the data is gone, or the data are another home's"
	case at.wrong != "":
		return forgot, at.wrong
	case at.record.Start == 0 && !data.found:
		return remembers, "" // no start was completed: the disk held and promised nothing
	case !data.found && !f.blocks:
		return forgot, "the data folder was removed"
	case !data.found:
		return forgot, "the data folder is not the one that was here: it holds no file " + DiskFile
	case data.wrong != "":
		return forgot, data.wrong
	case data.record.ID != at.record.ID || data.record.Original != at.record.Original:
		return forgot, fmt.Sprintf("the data folder belongs to disk %s and the home to disk %s",
			data.record.ID, at.record.ID)
	case data.record.Start != at.record.Start && data.record.Start != at.record.Next:
		return forgot, fmt.Sprintf("the data folder or the home is an older one: "+
			"they count %d and %d starts", data.record.Start, at.record.Start)
	case !f.promises:
		return forgot, promisesGone
	case at.record.Held && !f.blocks:
		return forgot, "the blocks were removed from the data folder"
	}
	return remembers, ""
}
