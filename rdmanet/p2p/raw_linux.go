package p2p

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls in this file never wait. So they are made without telling Go's scheduler. It
// would suspect each of a wait, wake a thread that watches over them, and give the caller's place
// to another thread if the kernel runs another process meanwhile.

// rawEpollWait returns how many events there are.
func rawEpollWait(epoll uintptr, events []unix.EpollEvent) int {
	for {
		n, _, err := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, epoll,
			uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		switch err {
		case 0:
			return int(n)
		case syscall.EINTR:
		default:
			return 0
		}
	}
}

// rawRead reads from a descriptor that does not wait.
func rawRead(fd uintptr, b []byte) (int, error) {
	for {
		n, _, err := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&b[0])),
			uintptr(len(b)))
		switch err {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, err
		}
	}
}

// piecesMax bounds the pieces of one system call. Linux allows 1,024.
const piecesMax = 64

// rawWrite writes the first of the pieces, at least one, to a descriptor that does not wait. It
// returns how many bytes the kernel took.
func rawWrite(fd uintptr, pieces [][]byte) (int, error) {
	var vectors [piecesMax]unix.Iovec
	count := 0
	for _, piece := range pieces[:min(len(pieces), piecesMax)] {
		if len(piece) > 0 {
			vectors[count].Base = &piece[0]
			vectors[count].SetLen(len(piece))
			count++
		}
	}
	for {
		n, _, err := syscall.RawSyscall(syscall.SYS_WRITEV, fd,
			uintptr(unsafe.Pointer(&vectors[0])), uintptr(count))
		switch err {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, err
		}
	}
}
