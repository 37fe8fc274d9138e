package network

import "time"

// LogP is the LogP model with the common assumption o > g [Poke19, section 5.6], and a rate for
// messages that are not short.
type LogP struct {
	// Name is for people.
	Name string
	// Latency is L, the time on the wire. Overhead is o, the time that a processor takes to send or
	// to receive a message.
	Latency, Overhead time.Duration
	// Rate is the rate of a server's link in each direction. 0 gives plain LogP, for short
	// messages.
	Rate BitsPerSecond
}

// The parameters of figure 5.10, measured by its author on the cluster IB-hsw.
var (
	// InfiniBand is InfiniBand Verbs. The rate is the data rate of 4X QDR, which signals at 40
	// Gbit/s.
	InfiniBand = LogP{Name: "InfiniBand Verbs", Latency: 1250 * time.Nanosecond,
		Overhead: 380 * time.Nanosecond, Rate: 32 * Gigabit}
	// TCP is TCP over the same network. The rate is not the author's: it is common for TCP over IP
	// over InfiniBand QDR.
	TCP = LogP{Name: "TCP", Latency: 12 * time.Microsecond, Overhead: 1800 * time.Nanosecond,
		Rate: 12 * Gigabit}
	// Cray is TCP on the Cray XC40. Latency and overhead are those of TCP. The rate follows from
	// the 8.6 Gbit/s that 8 servers agree on, with each message received three times [Poke19,
	// section 5.7.4]: 8.6 · 3 · 7/8.
	Cray = LogP{Name: "TCP on XC40", Latency: 12 * time.Microsecond,
		Overhead: 1800 * time.Nanosecond, Rate: 22_600 * Megabit}
)

// Model returns the network for the given number of servers.
func (l LogP) Model(servers int) Model {
	return Model{Name: l.Name, Servers: servers, Overhead: l.Overhead, HostRate: l.Rate,
		HostDelay: l.Latency / 2}
}

// Transmission returns the time to transmit a short message, T = L + 2o.
func (l LogP) Transmission() time.Duration { return l.Latency + 2*l.Overhead }

// Work returns the lower bound of a round of AllConcur by a server's work, 2(n-1)do [Poke19,
// section 5.6.1].
func (l LogP) Work(servers, degree int) time.Duration {
	return 2 * time.Duration(servers-1) * time.Duration(degree) * l.Overhead
}

// Depth returns the time to agree on a single message, by the length of its way and of the empty
// messages' way back: twice (L + o_s + o)D with o_s = o + (d-1)o/2 [Poke19, section 5.6.2.1].
func (l LogP) Depth(degree, diameter int) time.Duration {
	sending := l.Overhead + time.Duration(degree-1)*l.Overhead/2
	return 2 * (l.Latency + sending + l.Overhead) * time.Duration(diameter)
}
