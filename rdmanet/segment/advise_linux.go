package segment

import "golang.org/x/sys/unix"

// advise asks for huge pages. The memory works as well without them.
func advise(bytes []byte) { _ = unix.Madvise(bytes, unix.MADV_HUGEPAGE) }
