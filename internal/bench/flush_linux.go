package bench

import (
	"errors"
	"os"
	"syscall"
)

// flush makes a file's contents durable.
func flush(file *os.File) error {
	for {
		if err := syscall.Fdatasync(int(file.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
