package node

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/home"
)

// Transient errors are distinguished from others, and a reason names the file system.
func TestCannotWrite(t *testing.T) {
	t.Parallel()
	n := &Node{home: &home.Home{Dir: t.TempDir()}}
	n.disk = newDiskWatch(n.home.Dir, store.Options{}, slog.New(slog.DiscardHandler))
	failed := func(number syscall.Errno) error {
		return fmt.Errorf("write: %w", &fs.PathError{Op: "write", Path: "file", Err: number})
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{store.ErrDiskFull, "the disk is full (mounted at /"},
		{failed(syscall.ENOSPC), "free some space"},
		{fmt.Errorf("%w: %w", store.ErrFailed, failed(syscall.ENOSPC)), "free some space"},
		{failed(syscall.EDQUOT), "the disk quota is used up (mounted at /"},
		{failed(syscall.EMFILE), "raise its limit"},
		{store.ErrNoDescriptors, "raise its limit"},
		{failed(syscall.EROFS), "the file system is read-only (mounted at /"},
		{failed(syscall.EIO), ""},
		{errors.Join(failed(syscall.ENOSPC), failed(syscall.EIO)), ""},
		{store.ErrDamaged, ""},
	} {
		got := n.cannotWrite(c.err)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
