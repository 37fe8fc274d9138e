package home

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// nameOf asks the file system for the identity of an open file.
func nameOf(file *os.File) (fileName, error) {
	var status unix.Statx_t
	const flags = unix.AT_EMPTY_PATH | unix.AT_STATX_SYNC_AS_STAT
	const wanted = unix.STATX_INO | unix.STATX_BTIME
	if err := unix.Statx(int(file.Fd()), "", flags, wanted, &status); err != nil {
		return fileName{}, fmt.Errorf("statx %s: %w", file.Name(), err)
	}
	device := unix.Mkdev(status.Dev_major, status.Dev_minor)
	name := fileName{Device: device, Inode: status.Ino, Boot: bootID()}
	if status.Mask&unix.STATX_BTIME != 0 {
		name.Born = status.Btime.Sec*1e9 + int64(status.Btime.Nsec)
	}
	return name, nil
}
