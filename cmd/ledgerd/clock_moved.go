//go:build movedclock

package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// wallClock returns the clock that the node in a home uses for the time of day. The file
// clock-offset in the home moves it from the machine's clock by a duration such as 262800h. This is
// for tests only: the program has such a clock only when it is built with the tag movedclock.
func wallClock(home string) func() time.Time {
	return func() time.Time {
		now := time.Now()
		text, err := os.ReadFile(filepath.Join(home, "clock-offset"))
		if err != nil {
			return now // no file: the clock is right
		}
		offset, err := time.ParseDuration(strings.TrimSpace(string(text)))
		if err != nil {
			return now
		}
		return now.Add(offset)
	}
}
