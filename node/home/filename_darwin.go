package home

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// nameOf asks the file system for the identity of an open file. A file system that keeps no birth
// time reports 0.
func nameOf(file *os.File) (fileName, error) {
	var status unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &status); err != nil {
		return fileName{}, fmt.Errorf("fstat %s: %w", file.Name(), err)
	}
	return fileName{Device: uint64(uint32(status.Dev)), Inode: status.Ino, Boot: bootID(),
		Born: status.Btim.Nano()}, nil
}
