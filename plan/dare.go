package plan

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/sim/network"
)

// DARE is lower bounds of the times that a request to DARE's leader takes, in an idle group and
// without failures [Poke19, section 4.5.2]. They count transfers only, and no computation.
//
// The formulas have all polls for completions behind the wait. A leader that polls while it waits
// hides all but the last poll of each wait, so it can be quicker by (q-2)o_poll in Reads and by
// twice that in Writes. On the other hand, the formulas let the links carry all data at once.
type DARE struct {
	// Datagrams is the time of the request and its reply, t_UD: one of them has the data.
	Datagrams time.Duration
	// Reads is the time in which the leader reads the terms of a majority, t_RDMA/rd.
	Reads time.Duration
	// Writes is the time in which it writes the data into the logs of a majority, moves their
	// tails and posts their commit pointers, t_RDMA/wr.
	Writes time.Duration
}

// ReadLatency bounds the latency of a request that reads data.
func (l DARE) ReadLatency() time.Duration { return l.Datagrams + l.Reads }

// WriteLatency bounds the latency of a request that writes data.
func (l DARE) WriteLatency() time.Duration { return l.Datagrams + l.Writes }

// DAREOf returns the bounds for a group of servers and requests for bytes of data. The gap per
// byte counts for the data alone, as in the paper. The error wraps ErrQuestion.
func DAREOf(model network.RDMA, servers, bytes int) (DARE, error) {
	switch {
	case servers < 1 || servers > ServersMax:
		return DARE{}, fmt.Errorf("%w: %d servers, want 1 to %d", ErrQuestion, servers,
			ServersMax)
	case bytes < 1 || bytes > payloadMax:
		return DARE{}, fmt.Errorf("%w: %d bytes, want 1 to %d", ErrQuestion, bytes, payloadMax)
	}
	l := DARE{Datagrams: model.DatagramTime(1) + model.DatagramTime(bytes)}
	if servers == 1 {
		return l, nil // there is no remote memory
	}
	others := time.Duration(memoryQuorum(servers) - 1) // of which the leader needs the answers
	beyond := time.Duration(tolerated(servers))        // f further servers get the same, meanwhile
	poll, read := model.Polling, model.Read
	l.Reads = others*read.Overhead + max(beyond*read.Overhead, read.Latency) + others*poll
	short, long := model.WriteInline, model.WriteOf(bytes)
	l.Writes = 2*others*short.Overhead + short.Latency + 2*others*poll +
		others*long.Overhead + max(beyond*long.Overhead, long.Latency+long.Bytes(bytes))
	return l, nil
}

// tolerated returns f = ⌊(n-1)/2⌋, the number of failures that a leader's group survives.
func tolerated(servers int) int { return (servers - 1) / 2 }
