package wire

import "time"

// NextBeat returns when what is due once in a period is due next: when the time of day is a whole
// multiple of the period, counted from 1970. So the loops of a process wake together, and with
// them those that get the messages of other processes whose clocks agree. Each time that an idle
// process wakes costs some ten switches of threads, whatever it then does. If the clock is set, one
// gap is shorter than the period, none is longer.
func NextBeat(now time.Time, period time.Duration) time.Time {
	into := time.Duration(now.UnixNano() % int64(period))
	if into < 0 {
		into += period // before 1970
	}
	return now.Add(period - into)
}
