//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/ledgerd/ledgerd/scripts/verbsguest/agenda"
)

// archive writes an initial RAM disk: a cpio archive of the "new ASCII" form, which the kernel
// unpacks into memory. It keeps the first error, which finish returns.
type archive struct {
	to    *bufio.Writer
	err   error
	inode uint32
	made  map[string]bool
}

func newArchive(to io.Writer) *archive {
	return &archive{to: bufio.NewWriterSize(to, 1<<20), made: map[string]bool{"/": true}}
}

// Kinds of entries, as part of the mode.
const (
	kindFolder = 0o040000
	kindFile   = 0o100000
)

// entry writes the header of an entry and its name. The contents follow.
func (a *archive) entry(name string, mode uint32, size int64) {
	if a.err != nil {
		return
	}
	if size >= 1<<32 {
		a.err = fmt.Errorf("%s is too large for the archive: %d bytes", name, size)
		return
	}
	a.inode++
	relative := name
	if len(name) > 1 && name[0] == '/' {
		relative = name[1:]
	}
	// The fields are: magic, inode, mode, owner, group, links, time, size, two device numbers of
	// two parts each, length of the name, no checksum.
	_, a.err = fmt.Fprintf(a.to, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(relative)+1, 0, relative)
	a.pad(110 + int64(len(relative)) + 1)
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad(written int64) {
	if rest := int(-written & 3); rest > 0 && a.err == nil {
		_, a.err = a.to.Write(make([]byte, rest))
	}
}

// folder adds a folder and its parents.
func (a *archive) folder(name string) {
	name = path.Clean(name)
	if a.made[name] {
		return
	}
	a.folder(path.Dir(name))
	a.made[name] = true
	a.entry(name, kindFolder|0o755, 0)
}

// write adds a file with these contents.
func (a *archive) write(name string, contents []byte) {
	if a.made[name] {
		return
	}
	a.folder(path.Dir(name))
	a.made[name] = true
	a.entry(name, kindFile|0o644, int64(len(contents)))
	if a.err == nil {
		_, a.err = a.to.Write(contents)
	}
	a.pad(int64(len(contents)))
}

// copy adds a file of this machine. It does nothing if the name exists already.
func (a *archive) copy(name, from string, mode uint32) {
	if a.made[name] || a.err != nil {
		return
	}
	file, err := os.Open(from)
	if err != nil {
		a.err = err
		return
	}
	defer func() { _ = file.Close() }() // opened for reading only
	info, err := file.Stat()
	if err != nil {
		a.err = err
		return
	}
	a.folder(path.Dir(name))
	a.made[name] = true
	a.entry(name, kindFile|mode, info.Size())
	if a.err == nil {
		_, a.err = io.CopyN(a.to, file, info.Size())
	}
	a.pad(info.Size())
}

// finish adds the agenda and ends the archive.
func (a *archive) finish(todo agenda.Agenda) error {
	text, err := json.Marshal(todo)
	if err != nil {
		return err
	}
	a.write(agenda.Path, text)
	a.entry("TRAILER!!!", 0, 0)
	return errors.Join(a.err, a.to.Flush())
}
