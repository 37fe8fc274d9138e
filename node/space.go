package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"github.com/ledgerd/ledgerd/ledger/store"
)

// A disk may be full, a quota used up, or a file system read-only for a while, or the process may
// have used up its descriptors. Such a failed write does not end the node: it logs the reason,
// keeps what it has, and tries again. Any other error ends it. After a failed sync, the contents of
// the disk are unknown.

// cannotWrite returns why the disk takes no writes now and what to do, if err of the file system or
// of the store means that. Otherwise it returns "".
func (n *Node) cannotWrite(err error) string {
	switch {
	case errors.Is(err, syscall.EIO):
	case errors.Is(err, store.ErrDiskFull), errors.Is(err, syscall.ENOSPC):
		return fmt.Sprintf("the disk is full (%s, %d MiB free): free some space",
			fileSystemOf(n.home.Dir), n.disk.bytes()>>20)
	case errors.Is(err, syscall.EDQUOT):
		return fmt.Sprintf("the disk quota is used up (%s): free some space, or raise the quota",
			fileSystemOf(n.home.Dir))
	case errors.Is(err, store.ErrNoDescriptors), errors.Is(err, syscall.EMFILE),
		errors.Is(err, syscall.ENFILE):
		return "this process can open no more files: raise its limit (ulimit -n), or end other " +
			"work on this machine"
	case errors.Is(err, syscall.EROFS):
		return readOnly(n.home.Dir)
	}
	return ""
}

// readOnly returns a message that a file system takes no writes, and what to do.
func readOnly(dir string) string {
	return fmt.Sprintf("the file system is read-only (%s); the kernel does this after a disk "+
		"error: look at the kernel's log, repair it, and mount it for writing", fileSystemOf(dir))
}

// fileSystemOf names the file system that holds a folder by its mount point.
func fileSystemOf(dir string) string {
	at, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	for {
		parent := filepath.Dir(at)
		device, known := deviceOf(at)
		above, knownAbove := deviceOf(parent)
		if parent == at || !known || !knownAbove || above != device {
			return "mounted at " + at
		}
		at = parent
	}
}

func deviceOf(dir string) (uint64, bool) {
	var status syscall.Stat_t
	err := syscall.Stat(dir, &status)
	return uint64(status.Dev), err == nil // an int32 on macOS
}
