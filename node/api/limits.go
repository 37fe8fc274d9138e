package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"
)

// maxAddresses bounds how many remote addresses are tracked.
const maxAddresses = 8_192

// limits counts calls, streams and reads far back by remote address.
type limits struct {
	callsPerSecond      rate.Limit
	burst               int
	maxStreams          int
	maxStreamsOfAddress int
	maxFarOfAddress     int
	// far has a place for each read far back.
	far chan struct{}

	mutex     sync.Mutex
	addresses map[string]*addressLimits
	streams   int
}

type addressLimits struct {
	calls   *rate.Limiter
	streams int
	// far has a place for each read far back of the address. farReads are those that have one or
	// wait for one.
	far      chan struct{}
	farReads int
	lastUsed time.Time
}

func newLimits(options Options) *limits {
	l := &limits{
		callsPerSecond:      options.CallsPerSecond,
		burst:               options.CallBurst,
		maxStreams:          options.MaxStreams,
		maxStreamsOfAddress: options.MaxStreamsPerAddress,
		maxFarOfAddress:     options.MaxFarReadsPerAddress,
		far:                 make(chan struct{}, farAddresses*options.MaxFarReadsPerAddress),
		addresses:           make(map[string]*addressLimits),
	}
	if l.callsPerSecond < 0 {
		l.callsPerSecond = rate.Inf
	}
	return l
}

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// of returns an address's counters. The caller holds the mutex.
func (l *limits) of(host string, now time.Time) *addressLimits {
	found := l.addresses[host]
	if found == nil {
		if len(l.addresses) >= maxAddresses {
			l.forgetOldest()
		}
		found = &addressLimits{calls: rate.NewLimiter(l.callsPerSecond, l.burst),
			far: make(chan struct{}, l.maxFarOfAddress)}
		l.addresses[host] = found
	}
	found.lastUsed = now
	return found
}

// forgetOldest makes room: it samples a few addresses that have nothing under way and drops the
// least recently used.
func (l *limits) forgetOldest() {
	const sample = 16
	var oldest string
	var oldestUsed time.Time
	seen := 0
	for host, entry := range l.addresses {
		if entry.streams+entry.farReads > 0 {
			continue
		}
		if seen == 0 || entry.lastUsed.Before(oldestUsed) {
			oldest, oldestUsed = host, entry.lastUsed
		}
		if seen++; seen == sample {
			break
		}
	}
	delete(l.addresses, oldest)
}

// gate refuses a call from an address that calls too often, before its body is read.
func (l *limits) gate(ctx context.Context, _ connect.Spec, peer connect.Peer,
	_ http.Header) (context.Context, error) {
	if refused := l.count(peer.Addr); refused != nil {
		return nil, refused
	}
	return ctx, nil
}

// count counts a call, or a bundle of a stream. It returns an error if the address calls too often.
func (l *limits) count(address string) *connect.Error {
	if l.callsPerSecond == rate.Inf {
		return nil
	}
	now := time.Now()
	l.mutex.Lock()
	allowed := l.of(hostOf(address), now).calls.AllowN(now, 1)
	l.mutex.Unlock()
	if !allowed {
		return Retryable(connect.CodeResourceExhausted,
			errors.New("too many calls from this address: wait a moment and try again"), nil)
	}
	return nil
}

// openStream reserves a place for a stream. The caller releases it with the returned function.
func (l *limits) openStream(address string) (func(), error) {
	host := hostOf(address)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	entry := l.of(host, time.Now())
	if l.streams >= l.maxStreams {
		return nil, Retryable(connect.CodeResourceExhausted,
			errors.New("this node already serves its maximum of streams: try again later or ask "+
				"another node"), nil)
	}
	if entry.streams >= l.maxStreamsOfAddress {
		return nil, Retryable(connect.CodeResourceExhausted,
			errors.New("too many streams from this address: end one first"), nil)
	}
	l.streams++
	entry.streams++
	return func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.streams--
		entry.streams--
	}, nil
}

// farAddresses is how many addresses may have all the reads far back that one may have at once.
const farAddresses = 4

// readFarBack waits until an address may read far back, at most until ctx ends. The caller releases
// the place with the returned function.
func (l *limits) readFarBack(ctx context.Context, address string) (func(), error) {
	l.mutex.Lock()
	entry := l.of(hostOf(address), time.Now())
	entry.farReads++
	l.mutex.Unlock()
	release := func(places ...chan struct{}) {
		for _, place := range places {
			<-place
		}
		l.mutex.Lock()
		entry.farReads--
		l.mutex.Unlock()
	}
	if !take(ctx, entry.far) {
		release()
		return nil, Retryable(connect.CodeResourceExhausted, errors.New("too many reads at early "+
			"cuts from this address: wait until one of them ends, and try again"), nil)
	}
	if !take(ctx, l.far) {
		release(entry.far)
		return nil, Retryable(connect.CodeResourceExhausted, errors.New("this node is busy with "+
			"reads at early cuts: try again later or ask another node"), nil)
	}
	return func() { release(entry.far, l.far) }, nil
}

// take takes a place, if one gets free before ctx ends.
func take(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
