package segment

import "golang.org/x/sys/unix"

// advise asks for huge pages; without any the memory is as good.
func advise(bytes []byte) { _ = unix.Madvise(bytes, unix.MADV_HUGEPAGE) }
