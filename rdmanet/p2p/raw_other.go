//go:build !linux

package p2p

import "syscall"

// rawWrite writes the first piece to a descriptor that does not wait. It returns how many bytes the
// kernel took.
func rawWrite(fd uintptr, pieces [][]byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), pieces[0])
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
