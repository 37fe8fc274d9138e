package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	hugeBytes = 1 << 20
	// hugeOutstanding is the number of outstanding writes or reads of hugeBytes. smallOutstanding
	// is the same for smallBytes.
	hugeOutstanding  = 2
	smallOutstanding = 256
	// comparedBytes is the size of the region for bulk writes and reads, and of the local memory
	// for them.
	comparedBytes  = hugeOutstanding * hugeBytes
	comparedRegion = "compare"
)

// touched returns memory that is not one shared page of zeros.
func touched(size int) []byte { return bytes.Repeat([]byte{1}, size) }

// newTCPColumn measures one connection with pings and one with bulk data.
func newTCPColumn(ctx context.Context) (*comparisonColumn, error) {
	near, far, endPings, err := connectionPair(ctx)
	if err != nil {
		return nil, err
	}
	from, to, endBulk, err := connectionPair(ctx)
	if err != nil {
		endPings()
		return nil, err
	}
	echoed, drained := make(chan struct{}), make(chan struct{})
	received := make(chan int, 1024)
	go func() {
		defer close(echoed)
		buffer := make([]byte, smallBytes)
		for {
			if _, err := io.ReadFull(far, buffer); err != nil {
				return
			}
			if _, err := far.Write(buffer); err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(drained)
		defer close(received)
		buffer := make([]byte, hugeBytes)
		for {
			n, err := to.Read(buffer)
			if err != nil {
				return
			}
			received <- n
		}
	}()
	source := touched(comparedBytes)
	ping := func(ctx context.Context, slice time.Duration) (float64, error) {
		return tcpPings(ctx, near, slice)
	}
	bulk := func(size, places int) measurement {
		return func(ctx context.Context, slice time.Duration) (float64, error) {
			return tcpBulk(ctx, from, received, source[:places*size], size, slice)
		}
	}
	large, huge := bulk(largeBytes, writesOutstanding), bulk(hugeBytes, hugeOutstanding)
	return &comparisonColumn{
		name: BesideTCP,
		rows: map[string]measurement{
			rowRoundTrip: ping, rowWrite: ping, rowRead: ping,
			rowLane64K: large, rowWrite64K: large, rowRead64K: large,
			rowLane1M: huge, rowWrite1M: huge, rowRead1M: huge,
		},
		end: func() error {
			endPings()
			endBulk()
			for range received { // until the reader has ended
			}
			<-echoed
			<-drained
			return nil
		},
	}, nil
}

// tcpPings returns the median round trip in microseconds.
func tcpPings(ctx context.Context, conn net.Conn, slice time.Duration) (float64, error) {
	buffer := make([]byte, smallBytes)
	return medianOf(slice, func() error {
		if _, err := conn.Write(buffer); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		if _, err := io.ReadFull(conn, buffer); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		return nil
	})
}

// tcpBulk returns the bytes a second that arrive with writes of the given size, which take their
// data from one place of source after the other.
func tcpBulk(ctx context.Context, conn net.Conn, received <-chan int, source []byte, size int,
	slice time.Duration) (float64, error) {
	begun := time.Now()
	sent, left := 0, 0
	for at := 0; sent == 0 || time.Since(begun) < slice; at = (at + size) % len(source) {
		if _, err := conn.Write(source[at : at+size]); err != nil {
			return 0, errors.Join(context.Cause(ctx), err)
		}
		sent, left = sent+size, left+size
		for more := true; more; {
			select {
			case n := <-received:
				left -= n
			default:
				more = false
			}
		}
	}
	for left > 0 {
		n, ok := <-received
		if !ok {
			return 0, errors.Join(context.Cause(ctx), io.ErrUnexpectedEOF)
		}
		left -= n
	}
	return float64(sent) / time.Since(begun).Seconds(), nil
}

// newMemcpyColumn measures copies, between as many places as the writes to regions use.
func newMemcpyColumn() *comparisonColumn {
	from, to := touched(comparedBytes), touched(comparedBytes)
	bulk := func(size, places int) measurement {
		return func(ctx context.Context, slice time.Duration) (float64, error) {
			begun := time.Now()
			at, copied := 0, 0
			for copied == 0 || time.Since(begun) < slice {
				copied += copy(to[at:at+size], from[at:at+size])
				at = (at + size) % (places * size)
			}
			return float64(copied) / time.Since(begun).Seconds(), ctx.Err()
		}
	}
	large, huge := bulk(largeBytes, writesOutstanding), bulk(hugeBytes, hugeOutstanding)
	return &comparisonColumn{
		name: BesideMemcpy,
		rows: map[string]measurement{rowWrite64K: large, rowRead64K: large, rowWrite1M: huge,
			rowRead1M: huge},
		end: func() error { return nil },
	}
}

// medianOf calls once repeatedly, at least one time. It returns the median time of a call in
// microseconds.
func medianOf(slice time.Duration, once func() error) (float64, error) {
	var latency Histogram
	begun := time.Now()
	for last, first := begun, true; first || last.Sub(begun) < slice; first = false {
		if err := once(); err != nil {
			return 0, err
		}
		now := time.Now()
		latency.Add(now.Sub(last))
		last = now
	}
	return float64(latency.Quantile(0.50)) / 1e3, nil
}

// newFabricColumn measures one fabric.
func newFabricColumn(ctx context.Context, hosts FabricHosts) (_ *comparisonColumn, err error) {
	if len(hosts.Hosts) != FabricTargetsMax+1 {
		return nil, fmt.Errorf("%w: %d hosts, want %d", ErrParameters, len(hosts.Hosts),
			FabricTargetsMax+1)
	}
	column := &comparisonColumn{name: string(hosts.Kind), end: func() error { return nil }}
	column.beside = BesideTCP
	if hosts.Kind == fabric.Memory {
		column.beside = BesideMemcpy
	}
	if _, err := AnswerFabric(hosts.Hosts[1]); err != nil {
		return nil, err
	}
	m, err := newFabricMeasurer(hosts.Hosts[0], hosts.Hosts[1].ID())
	if err != nil {
		return nil, err
	}
	ask := touched(smallBytes)
	ask[0] = wantEcho
	frames := func(size, together int, pick func(bytes, frames float64) float64) measurement {
		frame := touched(size)
		frame[0] = wantNone
		all := make([][]byte, together)
		for i := range all {
			all[i] = frame
		}
		return func(ctx context.Context, slice time.Duration) (float64, error) {
			bytes, frames, err := m.stream(ctx, slice, all)
			return pick(bytes, frames), err
		}
	}
	inBytes := func(bytes, _ float64) float64 { return bytes }
	column.rows = map[string]measurement{
		rowRoundTrip: func(ctx context.Context, slice time.Duration) (float64, error) {
			return medianOf(slice, func() error { _, err := m.ask(ctx, ask); return err })
		},
		rowFrames: frames(smallBytes, framesPerCall, func(_, frames float64) float64 {
			return frames
		}),
		rowLane64K: frames(largeBytes, 1, inBytes),
		rowLane1M:  frames(hugeBytes, 1, inBytes),
	}
	if _, can := hosts.Hosts[0].(rdmanet.RegionHost); !can {
		return column, nil
	}
	regions, err := newComparedRegions(ctx, hosts.Hosts)
	if err != nil {
		return nil, err
	}
	regions.measure(column.rows)
	column.end = regions.end
	return column, nil
}
