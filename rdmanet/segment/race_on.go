//go:build race

package segment

import (
	"runtime"
	"unsafe"
)

// raceRead tells the race detector of a read that it does not see.
func raceRead(bytes []byte) {
	if len(bytes) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&bytes[0]), len(bytes))
	}
}

// raceWrite tells the race detector of a write that it does not see.
func raceWrite(bytes []byte) {
	if len(bytes) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&bytes[0]), len(bytes))
	}
}
