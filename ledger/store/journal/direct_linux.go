package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// bypassCache makes the writes of a file go to the disk, or back through the system's cache. It
// reports whether the file system can do that.
func bypassCache(file *os.File, bypass bool) bool {
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return false
	}
	if flags &^= unix.O_DIRECT; bypass {
		flags |= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(file.Fd(), unix.F_SETFL, flags)
	return err == nil
}

// isMisaligned reports whether a write failed because the disk needs larger units. Nothing was
// written then.
func isMisaligned(err error) bool { return errors.Is(err, unix.EINVAL) }
