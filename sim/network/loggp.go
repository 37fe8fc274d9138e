package network

import "time"

// gapUnit is the number of bytes for which LogGP's gaps are given.
const gapUnit = 1024

// LogGP is the LogGP model of one kind of transfer, with a second gap for long ones [Poke19,
// section 4.5.1].
type LogGP struct {
	// Overhead is o, and Latency L. An access of remote memory has the latency of its request or
	// its acknowledgement in L.
	Overhead, Latency time.Duration
	// Gap is G, the time of each 1,024 bytes up to MTU. GapLater is G_m, that of the bytes behind
	// them. An MTU of 0 means that Gap holds for all bytes.
	Gap, GapLater time.Duration
	MTU           int
}

// Bytes returns the time that a transfer's bytes take behind the first: (s-1)G, or
// (m-1)G + (s-m)G_m if there are more than m.
func (l LogGP) Bytes(bytes int) time.Duration {
	first, later := bytes-1, 0
	if l.MTU > 0 && bytes > l.MTU {
		first, later = l.MTU-1, bytes-l.MTU
	}
	return (time.Duration(max(0, first))*l.Gap + time.Duration(later)*l.GapLater) / gapUnit
}

// RDMA is the model of a network's accesses of remote memory and of its datagrams.
type RDMA struct {
	// Name is for people.
	Name string
	// Inline transfers have their bytes in the request itself, which the processor writes to the
	// adapter.
	Read, Write, WriteInline, Datagram, DatagramInline LogGP
	// Polling is o_poll, the overhead of polling for a completion.
	Polling time.Duration
	// InlineMax is the size of the largest transfer that is sent inline.
	InlineMax int
}

// InfiniBandRDMA is the cluster of 12 nodes on which DARE was measured [Poke19, Table 4.1]. The
// dissertation does not give the largest inline transfer. This one is that of package rdmanet.
var InfiniBandRDMA = RDMA{
	Name: "InfiniBand RDMA",
	Read: LogGP{Overhead: 290 * time.Nanosecond, Latency: 1380 * time.Nanosecond,
		Gap: 750 * time.Nanosecond, GapLater: 260 * time.Nanosecond, MTU: 4096},
	Write: LogGP{Overhead: 260 * time.Nanosecond, Latency: 1610 * time.Nanosecond,
		Gap: 760 * time.Nanosecond, GapLater: 250 * time.Nanosecond, MTU: 4096},
	WriteInline: LogGP{Overhead: 360 * time.Nanosecond, Latency: 930 * time.Nanosecond,
		Gap: 2210 * time.Nanosecond},
	Datagram: LogGP{Overhead: 620 * time.Nanosecond, Latency: 850 * time.Nanosecond,
		Gap: 770 * time.Nanosecond},
	DatagramInline: LogGP{Overhead: 470 * time.Nanosecond, Latency: 540 * time.Nanosecond,
		Gap: 1920 * time.Nanosecond},
	Polling:   70 * time.Nanosecond,
	InlineMax: 128,
}

// ReadTime returns the time of a read, until its completion is taken [Poke19, equation 4.1].
func (r RDMA) ReadTime(bytes int) time.Duration { return r.access(r.Read, bytes) }

// WriteTime returns the time of a write, until its completion is taken [Poke19, equation 4.1].
func (r RDMA) WriteTime(bytes int) time.Duration {
	return r.access(r.WriteOf(bytes), bytes)
}

func (r RDMA) access(l LogGP, bytes int) time.Duration {
	return l.Overhead + l.Latency + l.Bytes(bytes) + r.Polling
}

// DatagramTime returns the time of a datagram, from one program to another [Poke19, equation 4.2].
func (r RDMA) DatagramTime(bytes int) time.Duration {
	l := r.DatagramOf(bytes)
	return 2*l.Overhead + l.Latency + l.Bytes(bytes)
}

// WriteOf returns the model of a write of that many bytes: inline if it can be.
func (r RDMA) WriteOf(bytes int) LogGP {
	if bytes <= r.InlineMax {
		return r.WriteInline
	}
	return r.Write
}

// DatagramOf returns the model of a datagram of that many bytes: inline if it can be.
func (r RDMA) DatagramOf(bytes int) LogGP {
	if bytes <= r.InlineMax {
		return r.DatagramInline
	}
	return r.Datagram
}
