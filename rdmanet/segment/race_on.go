//go:build race

package segment

import (
	"runtime"
	"unsafe"
)

// raceRead reports to the race detector a read that it cannot see.
func raceRead(bytes []byte) {
	if len(bytes) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&bytes[0]), len(bytes))
	}
}

// raceWrite reports to the race detector a write that it cannot see.
func raceWrite(bytes []byte) {
	if len(bytes) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&bytes[0]), len(bytes))
	}
}
