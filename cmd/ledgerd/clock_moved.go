//go:build movedclock

package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// wallClock returns the clock that the node of a home tells the time of day by. The file
// clock-offset in the home moves it from the machine's, by a duration as 262800h. This is for
// tests alone: the program has no such clock unless it is built with the tag movedclock.
func wallClock(home string) func() time.Time {
	return func() time.Time {
		now := time.Now()
		text, err := os.ReadFile(filepath.Join(home, "clock-offset"))
		if err != nil {
			return now // there is no file as long as the clock is right
		}
		offset, err := time.ParseDuration(strings.TrimSpace(string(text)))
		if err != nil {
			return now
		}
		return now.Add(offset)
	}
}
