package home

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/ledger/store"
)

// run starts and stops a node as far as its disk is concerned, and returns the disk.
func run(t *testing.T, h *Home) *Disk {
	t.Helper()
	d, err := h.OpenDisk()
	if err != nil {
		t.Fatal(err)
	}
	// A child that was just forked holds a copy of the lock. The lock is released all the same.
	forked, err := unix.Dup(int(d.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(forked)
	hold(t, h.Data(), "blocks")
	if err := errors.Join(d.Confirm(), d.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.Generation()); err != nil {
		t.Fatalf("a node that starts has no place for its promises: %v", err)
	}
	return d
}

// hold puts a ledger store into a data folder, as far as a home can see.
func hold(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tip"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// at is the home of the same node in another folder.
func at(h *Home, dir string) *Home {
	moved := *h
	moved.Dir = dir
	return &moved
}

func command(t *testing.T, name string, arguments ...string) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(),
		name, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, arguments, err, output)
	}
}

func remove(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// older makes a home look as an older version left it.
func older(t *testing.T, h *Home) {
	t.Helper()
	remove(t, filepath.Join(h.Dir, DiskFile), filepath.Join(h.Data(), DiskFile))
}

// A story happens to the home of a node that ran. It returns the home to start next. If the disk
// must become a new one, learner is in the reason.
func TestDiskStories(t *testing.T) {
	t.Parallel()
	type story struct {
		happens func(t *testing.T, h *Home) *Home
		learner string
		other   bool // gets another identity, although an original one
	}
	// The identity in an older version's promises gets its files.
	const upgraded = "an older version made it"
	beside := func(h *Home) string { return filepath.Join(h.Dir, DiskFile) }
	inside := func(h *Home) string { return filepath.Join(h.Data(), DiskFile) }
	// backup is a copy of the home, with as many of its attributes as cp can keep.
	backup := func(t *testing.T, h *Home) string {
		dir := filepath.Join(t.TempDir(), "backup")
		command(t, "cp", "-a", h.Dir, dir)
		return dir
	}
	for name, s := range map[string]story{
		"nothing happens": {happens: func(_ *testing.T, h *Home) *Home { return h }},
		"it starts thrice": {happens: func(t *testing.T, h *Home) *Home {
			run(t, h)
			run(t, h)
			return h
		}},
		"it is renamed": {happens: func(t *testing.T, h *Home) *Home {
			dir := filepath.Join(filepath.Dir(h.Dir), "elsewhere")
			command(t, "mv", h.Dir, dir)
			return at(h, dir)
		}},
		"its data folder goes and comes back": {happens: func(t *testing.T, h *Home) *Home {
			rename(t, h.Data(), h.Data()+".away")
			rename(t, h.Data()+".away", h.Data())
			return h
		}},
		"owners and modes change": {happens: func(t *testing.T, h *Home) *Home {
			command(t, "chmod", "-R", "u+rwX,go-rwx", h.Dir)
			return h
		}},
		"its data are removed": {func(t *testing.T, h *Home) *Home {
			remove(t, h.Data())
			return h
		}, "removed", true},
		"its promises are removed": {func(t *testing.T, h *Home) *Home {
			remove(t, h.Generation())
			return h
		}, "promised is gone", true},
		"data and promises are gone": {func(t *testing.T, h *Home) *Home {
			remove(t, h.Data(), h.Generation())
			return h
		}, "removed", true},
		"only its blocks are removed": {func(t *testing.T, h *Home) *Home {
			remove(t, filepath.Join(h.Data(), "tip"))
			return h
		}, "blocks were removed", true},
		"the identity beside the data is removed": {func(t *testing.T, h *Home) *Home {
			remove(t, beside(h))
			return h
		}, "beside the data is gone", true},
		"the identity in the data is removed": {func(t *testing.T, h *Home) *Home {
			remove(t, inside(h))
			return h
		}, "no file disk", true},
		"an identity is damaged": {func(t *testing.T, h *Home) *Home {
			text, err := os.ReadFile(inside(h))
			if err != nil {
				t.Fatal(err)
			}
			text[len(text)/2] ^= 4
			if err := os.WriteFile(inside(h), text, 0o644); err != nil {
				t.Fatal(err)
			}
			return h
		}, "damaged", true},
		"an identity is cut short": {func(t *testing.T, h *Home) *Home {
			if err := os.Truncate(beside(h), 10); err != nil {
				t.Fatal(err)
			}
			return h
		}, "damaged", true},
		"the home is a copy": {func(t *testing.T, h *Home) *Home {
			return at(h, backup(t, h))
		}, "is a copy", true},
		"the home was beside its copy": {happens: func(t *testing.T, h *Home) *Home {
			run(t, at(h, backup(t, h)))
			return h
		}},
		"the home is from an archive": {func(t *testing.T, h *Home) *Home {
			archive, dir := filepath.Join(t.TempDir(), "home.tar"), t.TempDir()
			command(t, "tar", "-cpf", archive, "-C", h.Dir, ".")
			remove(t, h.Dir)
			command(t, "tar", "-xpf", archive, "-C", dir)
			rename(t, dir, h.Dir)
			return h
		}, "is a copy", true},
		"an older copy takes the home's place": {func(t *testing.T, h *Home) *Home {
			dir := backup(t, h)
			run(t, h)
			remove(t, h.Dir)
			rename(t, dir, h.Dir)
			return h
		}, "is a copy", true},
		"an older copy is written over the files": {func(t *testing.T, h *Home) *Home {
			dir := backup(t, h)
			run(t, h)
			command(t, "cp", "-a", dir+"/.", h.Dir)
			return h
		}, "is a copy", true},
		"an older copy of the data is written over the files": {func(t *testing.T, h *Home) *Home {
			dir := backup(t, h)
			run(t, h)
			command(t, "cp", "-a", filepath.Join(dir, DataFolder)+"/.", h.Data())
			return h
		}, "is a copy", true},
		"the data are another home's": {func(t *testing.T, h *Home) *Home {
			other := create(t, filepath.Join(t.TempDir(), "other"))
			run(t, other)
			remove(t, h.Data())
			rename(t, other.Data(), h.Data())
			return h
		}, "belongs to disk", true},
		"the old data come back after new ones": {func(t *testing.T, h *Home) *Home {
			rename(t, h.Data(), h.Data()+".away")
			run(t, h)
			remove(t, h.Data())
			rename(t, h.Data()+".away", h.Data())
			return h
		}, "belongs to disk", true},
		"the file system beneath the data is rolled back": {func(t *testing.T, h *Home) *Home {
			before := h.Data() + ".before"
			keepInodes(t, h.Data(), before)
			run(t, h)
			remove(t, h.Data())
			rename(t, before, h.Data())
			return h
		}, "older one", true},
		"the file system beneath the home is rolled back": {func(t *testing.T, h *Home) *Home {
			before := beside(h) + ".before"
			if err := os.Link(beside(h), before); err != nil {
				t.Fatal(err)
			}
			run(t, h)
			rename(t, before, beside(h))
			return h
		}, "older one", true},
		"one identity stands in for the other": {func(t *testing.T, h *Home) *Home {
			remove(t, inside(h))
			if err := os.Link(beside(h), inside(h)); err != nil {
				t.Fatal(err)
			}
			return h
		}, "for the home folder", true},
		upgraded: {happens: func(t *testing.T, h *Home) *Home { older(t, h); return h }},
		"an older version made it, and lost the promises": {func(t *testing.T, h *Home) *Home {
			older(t, h)
			remove(t, h.Generation())
			return h
		}, "promised is gone", true},
		"an older version lost everything, and began with an empty store": {func(t *testing.T,
			h *Home) *Home {
			older(t, h)
			remove(t, h.Data(), h.Generation())
			opened, err := store.Open(h.Data(), h.Genesis, store.Options{})
			if err == nil {
				err = opened.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			return h
		}, "promised is gone", true},
		"an older version made it, and lost the data": {func(t *testing.T, h *Home) *Home {
			older(t, h)
			remove(t, h.Data())
			return h
		}, "blocks are gone", true},
		"an older version made it, and never started": {happens: func(t *testing.T, h *Home) *Home {
			older(t, h)
			remove(t, h.Data(), h.Generation())
			return h
		}, other: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := create(t, filepath.Join(t.TempDir(), "node-0"))
			before := run(t, h)
			if !before.Original || before.Learner != "" || before.Renewed || before.ID.IsZero() {
				t.Fatalf("a new home's disk is %+v", before)
			}
			h = s.happens(t, h)
			foretold, err := h.Disk()
			if err != nil {
				t.Fatal(err)
			}
			after := run(t, h)
			if foretold.Original != after.Original || foretold.Learner != after.Learner {
				t.Errorf("foretold %+v, found %+v", foretold, after)
			}
			if s.learner == "" && (!after.Original || after.Learner != "") ||
				s.learner != "" && (after.Original || !strings.Contains(after.Learner, s.learner)) {
				t.Fatalf("the disk is %+v", after)
			}
			changed := s.learner != "" || s.other
			if (after.ID != before.ID) != changed || after.Renewed != (changed ||
				name == upgraded) {
				t.Fatalf("the disk was %v and is %+v", before.ID, after)
			}
			// The verdict stays, with its reason.
			for range 2 {
				again := run(t, h)
				if again.ID != after.ID || again.Original != after.Original ||
					again.Learner != after.Learner || again.Renewed {
					t.Fatalf("the disk was %+v and is %+v", after, again)
				}
			}
			if present, err := h.Disk(); err != nil || present.ID != after.ID || present.Renewed {
				t.Fatalf("the home shows %+v, %v", present, err)
			}
		})
	}
}

// keepInodes links a folder's files into a second folder: the same files, not copies. It simulates
// a file system that is rolled back, which brings back files with their inodes.
func keepInodes(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if err := os.Link(filepath.Join(from, entry.Name()),
			filepath.Join(to, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// A home that was never started needs no data and no promises. A copy of it is still a copy.
func TestDiskBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	h := create(t, filepath.Join(t.TempDir(), "node-0"))
	dir := filepath.Join(t.TempDir(), "copy")
	command(t, "cp", "-a", h.Dir, dir)
	if d := run(t, at(h, dir)); d.Original || !strings.Contains(d.Learner, "is a copy") {
		t.Errorf("the copy is %+v", d)
	}
	hold(t, h.Data(), "a snapshot")
	if d := run(t, h); !d.Original || d.Renewed {
		t.Errorf("with a snapshot: %+v", d)
	}
}

// The tests without t.Parallel open disks while no other test starts commands.

// A start that is interrupted at any step neither makes a learner nor makes one original again.
func TestDiskCrashes(t *testing.T) {
	for _, started := range []bool{false, true} {
		for _, forgets := range []bool{false, true} {
			// Steps of a start: home's file, promises, data's file, store, home's file.
			for steps := range 5 {
				h := create(t, filepath.Join(t.TempDir(), "node-0"))
				var before *Disk
				if started {
					before = run(t, h)
				}
				if forgets {
					forgotten, err := h.Forget("an operator said so")
					if err != nil {
						t.Fatal(err)
					}
					before = forgotten
				}
				cutStart(t, h, steps)
				after := run(t, h)
				if after.Original == forgets || before != nil && after.ID != before.ID {
					t.Errorf("started %v, forgets %v, cut after %d steps: %+v", started, forgets,
						steps, after)
				}
				if again := run(t, h); again.ID != after.ID {
					t.Errorf("started %v, forgets %v, cut after %d steps: then %+v", started,
						forgets, steps, again)
				}
			}
		}
	}
}

// cutStart makes the first steps of a start.
func cutStart(t *testing.T, h *Home, steps int) {
	t.Helper()
	identity := func(path string) ([]byte, bool) {
		text, err := os.ReadFile(path)
		return text, err == nil
	}
	beside, inside := filepath.Join(h.Dir, DiskFile), filepath.Join(h.Data(), DiskFile)
	found, err := h.lookForDisk()
	if err != nil {
		t.Fatal(err)
	}
	if steps == 0 {
		return
	}
	// Keep the data's old file, and restore it if the start is cut before the new one is made.
	kept := inside + ".kept"
	if _, there := identity(inside); there {
		if err := os.Link(inside, kept); err != nil {
			t.Fatal(err)
		}
	}
	hadPromises, hadData := found.promises, found.data.found
	d, err := h.OpenDisk()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if steps < 3 {
		remove(t, inside)
		if hadData {
			rename(t, kept, inside)
		}
	}
	remove(t, kept)
	if steps < 2 && !hadPromises {
		remove(t, h.Generation())
	}
	if steps >= 4 {
		hold(t, h.Data(), "blocks")
	}
	if _, there := identity(beside); !there {
		t.Fatal("there is no identity beside the data")
	}
}

// A data folder that replaces the current one belongs to the same disk, whenever the process ends.
// Half a copy does not hide that the current one is gone.
func TestDiskSetAside(t *testing.T) {
	for name, test := range map[string]struct {
		ends    func(t *testing.T, h *Home, d *Disk, aside string)
		holds   string
		learner bool
	}{
		"after all": {func(t *testing.T, _ *Home, d *Disk, aside string) {
			if err := errors.Join(d.NameFresh(), d.SetAside(aside)); err != nil {
				t.Fatal(err)
			}
		}, "fresh", false},
		"before it is named": {func(*testing.T, *Home, *Disk, string) {}, "blocks", false},
		"when it is named": {func(t *testing.T, _ *Home, d *Disk, _ string) {
			if err := d.NameFresh(); err != nil {
				t.Fatal(err)
			}
		}, "blocks", false},
		"after it could not be renamed": {func(t *testing.T, h *Home, d *Disk, _ string) {
			nowhere := filepath.Join(h.Dir, "no", "folder")
			if err := errors.Join(d.NameFresh(), d.SetAside(nowhere)); !errors.Is(err,
				os.ErrNotExist) {
				t.Fatal(err)
			}
		}, "blocks", false},
		"before the renames": {func(t *testing.T, h *Home, d *Disk, aside string) {
			if err := errors.Join(d.NameFresh(), d.SetAside(aside)); err != nil {
				t.Fatal(err)
			}
			rename(t, h.Data(), d.Fresh())
			rename(t, aside, h.Data())
			// SetAside removes the identity of the old folder as its last step.
			r := d.record(placeData)
			r.Start = d.start
			if err := d.write(h.Data(), r); err != nil {
				t.Fatal(err)
			}
		}, "blocks", false},
		"between the renames": {func(t *testing.T, h *Home, d *Disk, aside string) {
			if err := errors.Join(d.NameFresh(), d.SetAside(aside)); err != nil {
				t.Fatal(err)
			}
			rename(t, h.Data(), d.Fresh())
		}, "fresh", false},
		"half made, and the data are removed": {func(t *testing.T, h *Home, _ *Disk, _ string) {
			remove(t, h.Data())
		}, "", true},
		"between the renames, in an older version": {func(t *testing.T, h *Home, _ *Disk,
			aside string) {
			rename(t, h.Data(), aside)
			remove(t, filepath.Join(h.Dir, DiskFile), filepath.Join(aside, DiskFile))
		}, "fresh", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := create(t, filepath.Join(t.TempDir(), "node-0"))
			run(t, h)
			d, err := h.OpenDisk()
			if err != nil {
				t.Fatal(err)
			}
			hold(t, d.Fresh(), "fresh")
			test.ends(t, h, d, h.Data()+".rolled-back-3-1")
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			after, err := h.OpenDisk()
			if err != nil {
				t.Fatal(err)
			}
			defer after.Close()
			if text, _ := os.ReadFile(filepath.Join(h.Data(), "tip")); string(text) != test.holds ||
				after.Original == test.learner {
				t.Fatalf("the data folder holds %q, and the disk is %+v", text, after)
			}
			if _, err := os.Lstat(d.Fresh()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the fresh folder is still there: %v", err)
			}
		})
	}
}

// A folder that was set aside is no longer this disk's data.
func TestDiskSetAsideComesBack(t *testing.T) {
	h := create(t, filepath.Join(t.TempDir(), "node-0"))
	d, err := h.OpenDisk()
	if err != nil {
		t.Fatal(err)
	}
	hold(t, h.Data(), "blocks")
	hold(t, d.Fresh(), "fresh")
	aside := h.Data() + ".rolled-back-3-1"
	if err := errors.Join(d.Confirm(), d.NameFresh(), d.SetAside(aside), d.Close()); err != nil {
		t.Fatal(err)
	}
	remove(t, h.Data())
	rename(t, aside, h.Data())
	if d := run(t, h); d.Original || !strings.Contains(d.Learner, "not the one that was here") {
		t.Errorf("the disk is %+v", d)
	}
}

// Only one process can use a home.
func TestDiskIsLocked(t *testing.T) {
	h := create(t, filepath.Join(t.TempDir(), "node-0"))
	d, err := h.OpenDisk()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.OpenDisk(); !errors.Is(err, ErrLocked) {
		t.Errorf("a second start: %v", err)
	}
	if _, err := h.Forget("why"); !errors.Is(err, ErrLocked) {
		t.Errorf("forgetting while it runs: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// A node of an older version locks its ledger store only.
	store, err := flock(filepath.Join(h.Data(), "lock"), os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Forget("why"); !errors.Is(err, ErrLocked) {
		t.Errorf("forgetting while an older version's node runs: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if again := run(t, h); again.ID != d.ID || !again.Original {
		t.Errorf("the disk was %v and is %+v", d.ID, again)
	}
}

func TestForget(t *testing.T) {
	h := create(t, filepath.Join(t.TempDir(), "node-0"))
	before := run(t, h)
	forgotten, err := h.Forget("the volume was rolled back")
	if err != nil || forgotten.Original || forgotten.ID == before.ID {
		t.Fatalf("%+v, %v", forgotten, err)
	}
	after := run(t, h)
	if after.ID != forgotten.ID || after.Original ||
		after.Learner != "the volume was rolled back" || after.Renewed {
		t.Fatalf("the disk is %+v", after)
	}
	if text, err := os.ReadFile(filepath.Join(h.Data(), "tip")); err != nil ||
		string(text) != "blocks" {
		t.Errorf("the blocks are %q, %v", text, err)
	}
}

// These differences make a file a copy of the one that it names.
func TestFileNames(t *testing.T) {
	t.Parallel()
	disk, other, overlay, mounted := unix.Mkdev(259, 1), unix.Mkdev(259, 2), unix.Mkdev(0, 41),
		unix.Mkdev(0, 57)
	named := fileName{Device: disk, Inode: 7, Born: 99, Boot: "a"}
	with := func(change func(*fileName)) fileName {
		changed := named
		change(&changed)
		return changed
	}
	birthless := with(func(n *fileName) { n.Born = 0 })
	virtual := with(func(n *fileName) { n.Device = overlay })
	for name, c := range map[string]struct {
		named, now fileName
		same       bool
	}{
		"the same": {named, named, true},
		"another inode": {named, with(func(n *fileName) {
			n.Inode++
		}), false},
		"another birth":                      {named, with(func(n *fileName) { n.Born++ }), false},
		"a birth that is not known any more": {named, birthless, false},
		"another device after a boot": {named, with(func(n *fileName) {
			n.Device, n.Boot = other, "b"
		}), true},
		"another device without a boot": {named, with(func(n *fileName) {
			n.Device = other
		}), false},
		"another device, boots unknown": {with(func(n *fileName) {
			n.Boot = ""
		}), with(func(n *fileName) { n.Device, n.Boot = other, "" }), true},
		"an overlay is mounted again": {virtual, with(func(n *fileName) {
			n.Device = mounted
		}), true},
		"without births the same": {birthless, birthless, true},
		"without births another inode": {birthless, with(func(n *fileName) {
			n.Born = 0
			n.Inode++
		}), false},
		"without births another device": {birthless, with(func(n *fileName) {
			n.Born = 0
			n.Device = other
		}), false},
		"without births, a boot, same device": {birthless, with(func(n *fileName) {
			n.Born = 0
			n.Boot = "b"
		}), true},
	} {
		if why := c.named.differs(c.now); (why == "") != c.same {
			t.Errorf("%s: %q", name, why)
		}
	}
}

func TestDiskID(t *testing.T) {
	t.Parallel()
	id := newDiskID()
	text, err := json.Marshal(id)
	if err != nil || string(text) != `"`+id.String()+`"` || len(id.String()) != 32 {
		t.Fatalf("%s, %v", text, err)
	}
	var read DiskID
	if err := json.Unmarshal(text, &read); err != nil || read != id {
		t.Errorf("%v, %v", read, err)
	}
	for _, wrong := range []string{"", id.String()[1:], id.String() + "00",
		strings.Repeat("x", 32)} {
		if err := read.UnmarshalText([]byte(wrong)); err == nil {
			t.Errorf("%q is read", wrong)
		}
	}
}

func FuzzIdentity(f *testing.F) {
	r := record{Version: identityVersion, Place: placeData, ID: DiskID{1}, Start: 3,
		File: fileName{Device: 1, Inode: 2, Born: 3}}
	text, err := r.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("{}\n00000000\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		read, err := decodeRecord(text)
		if err != nil {
			return
		}
		again, err := read.encode()
		if err != nil {
			t.Fatal(err)
		}
		if second, err := decodeRecord(again); err != nil || second != read {
			t.Fatalf("%+v, then %+v, %v", read, second, err)
		}
	})
}
