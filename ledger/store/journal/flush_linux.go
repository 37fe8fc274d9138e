package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// SyncData makes a file's contents durable. Its times need not be.
func SyncData(file *os.File) error {
	for {
		if err := unix.Fdatasync(int(file.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
