// Package beat makes what is due once in a period due at the same moments everywhere: when the time
// of day is a whole multiple of the period, counted from 1970.
//
// Each time that an idle process wakes costs some ten switches of threads, whatever it then does.
// So the loops of a process wake together, and with them those that get the messages of other
// processes whose clocks agree. Periods should divide each other, as 0.5, 1 and 2.5 s do, so that
// the longer ones wake nothing by themselves.
package beat

import "time"

// Next returns when what is due once in a period is due next. If the clock is set, one gap is
// shorter than the period, none is longer.
func Next(now time.Time, period time.Duration) time.Time {
	return now.Add(Until(now, period))
}

// Until returns how long it is until Next.
func Until(now time.Time, period time.Duration) time.Duration {
	into := time.Duration(now.UnixNano() % int64(period))
	if into < 0 {
		into += period // before 1970
	}
	return period - into
}
