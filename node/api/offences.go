package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/ledgerd/ledgerd/node/doors"
)

const (
	// offencesPerSecond and offenceBurst are what one address may commit before it is put off.
	offencesPerSecond = 20
	offenceBurst      = 500
	// maxUnheard bounds the addresses that the kernel's filter compares with a packet.
	maxUnheard = 64
	// bytesPerOffence: a refused request counts once more for so many bytes that were read of it.
	bytesPerOffence = 64 << 10
	// youngStream: a stream that is reset later, and whose request had begun to arrive, has been
	// waited for and is no offence.
	youngStream = 5 * time.Millisecond
)

// The kinds of offences.
const (
	offenceRequest    = "request"    // a request whose body was read and is not within its limits
	offenceReset      = "reset"      // a stream taken back at once, or before its request came
	offenceConnection = "connection" // a connection that the client closed without a request
)

// The kinds of what is refused to an address that is put off.
const (
	refusedConnection = "connection"
	refusedRequest    = "request"
)

// offences puts addresses off that commit in masses what costs the node work and serves no client.
// New connections of such an address are not accepted, and those on which it offended are closed.
// Its other connections go on. It is safe for concurrent use.
type offences struct {
	now    func() time.Time
	logger *slog.Logger
	off    bool // nothing counts
	time   time.Duration

	committed *prometheus.CounterVec
	putOff    prometheus.Counter
	refused   *prometheus.CounterVec

	mutex     sync.Mutex
	addresses map[netip.Prefix]*offender

	listening sync.Mutex // held to change a listener's filter
	listeners []net.Listener
	// lift calls tellListeners when the next address is no longer put off. It is nil until one is.
	lift   *time.Timer
	closed bool
}

type offender struct {
	allowed  *rate.Limiter
	until    time.Time // put off until then
	lastUsed time.Time
}

// newOffences registers its metrics with Options.Registry.
func newOffences(options Options, now func() time.Time) (*offences, error) {
	o := &offences{now: now, logger: options.Logger, off: options.CallsPerSecond < 0,
		time:      options.PutOffTime,
		addresses: make(map[netip.Prefix]*offender),
		committed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ledgerd_api_offences_total",
			Help: "What clients did that costs work for nothing, by kind: request (refused for " +
				"its form after it was read), reset (of a stream that just began, or brought no " +
				"request), connection (closed without a request).",
		}, []string{"kind"}),
		putOff: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ledgerd_api_addresses_put_off_total",
			Help: "Times that an address was put off for its offences.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ledgerd_api_put_off_refused_total",
			Help: "What was refused to addresses that are put off, by kind: connection or request.",
		}, []string{"kind"}),
	}
	for _, collector := range []prometheus.Collector{o.committed, o.putOff, o.refused} {
		if err := options.Registry.Register(collector); err != nil {
			return nil, fmt.Errorf("api: registering metrics: %w", err)
		}
	}
	for _, kind := range []string{offenceRequest, offenceReset, offenceConnection} {
		o.committed.WithLabelValues(kind) // shown from the start, as 0
	}
	for _, kind := range []string{refusedConnection, refusedRequest} {
		o.refused.WithLabelValues(kind)
	}
	return o, nil
}

// commit counts an offence of an address, of a weight from 1. It reports whether the address is put
// off.
func (o *offences) commit(from netip.Prefix, kind string, weight int) bool {
	if o.off {
		return false
	}
	o.committed.WithLabelValues(kind).Inc()
	now := o.now()
	o.mutex.Lock()
	by := o.addresses[from]
	if by == nil {
		if len(o.addresses) >= maxAddresses {
			o.forgetOldest()
		}
		by = &offender{allowed: rate.NewLimiter(offencesPerSecond, offenceBurst)}
		o.addresses[from] = by
	}
	by.lastUsed = now
	if now.Before(by.until) {
		o.mutex.Unlock()
		return true
	}
	if by.allowed.AllowN(now, min(weight, offenceBurst)) {
		o.mutex.Unlock()
		return false
	}
	by.until = now.Add(o.time)
	o.mutex.Unlock()
	o.putOff.Inc()
	o.tellListeners()
	o.logger.Warn("an address is put off for what it does in masses", "address", from,
		"kind", kind, "seconds", o.time.Seconds())
	return true
}

// forgetOldest makes room: it samples a few addresses and drops the least recently used. The caller
// holds the mutex.
func (o *offences) forgetOldest() {
	const sample = 16
	var oldest netip.Prefix
	var found *offender
	seen := 0
	for from, by := range o.addresses {
		if found == nil || by.lastUsed.Before(found.lastUsed) {
			oldest, found = from, by
		}
		if seen++; seen == sample {
			break
		}
	}
	delete(o.addresses, oldest)
}

// listen begins to keep what addresses that are put off send from a listener.
func (o *offences) listen(listener net.Listener) {
	o.listening.Lock()
	defer o.listening.Unlock()
	o.listeners = append(o.listeners, listener)
}

// tellListeners lets the listeners hear all addresses but those that are put off now. Those beyond
// the bound, or of a kernel without filters, are accepted and closed.
func (o *offences) tellListeners() {
	o.listening.Lock()
	defer o.listening.Unlock()
	if o.closed {
		return
	}
	var off []netip.Prefix
	var next time.Time
	now := o.now()
	o.mutex.Lock()
	for from, by := range o.addresses {
		if !now.Before(by.until) {
			continue
		}
		if next.IsZero() || by.until.Before(next) {
			next = by.until
		}
		if from.IsValid() && len(off) < maxUnheard {
			off = append(off, from)
		}
	}
	o.mutex.Unlock()
	switch {
	case next.IsZero():
	case o.lift == nil:
		o.lift = time.AfterFunc(next.Sub(now), o.tellListeners)
	default:
		o.lift.Reset(next.Sub(now))
	}
	for _, listener := range o.listeners {
		if err := unheard(listener, off); err != nil {
			o.logger.Debug("the kernel drops nothing of addresses that are put off", "error", err)
		}
	}
}

// close ends the changes of the listeners' filters.
func (o *offences) close() {
	o.listening.Lock()
	defer o.listening.Unlock()
	o.closed, o.listeners = true, nil
	if o.lift != nil {
		o.lift.Stop()
	}
}

// isPutOff reports whether an address is put off.
func (o *offences) isPutOff(from netip.Prefix) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	by := o.addresses[from]
	return by != nil && o.now().Before(by.until)
}

// refusesConnection reports whether a new connection is closed at once.
func (o *offences) refusesConnection(from netip.Prefix) bool {
	if !o.isPutOff(from) {
		return false
	}
	o.refused.WithLabelValues(refusedConnection).Inc()
	return true
}

type connectionKey struct{}

// withConnection puts a connection into the context of its requests.
func withConnection(ctx context.Context, served net.Conn) context.Context {
	if open := connectionOf(served); open != nil {
		return context.WithValue(ctx, connectionKey{}, open)
	}
	return ctx
}

// offend counts an offence on a request's connection. It reports whether the address is put off.
func (o *offences) offend(ctx context.Context, kind string, weight int) bool {
	open, _ := ctx.Value(connectionKey{}).(*connection)
	if open == nil {
		return false // of a transport that has authenticated the caller
	}
	open.offended.Store(true)
	return o.commit(open.from, kind, weight)
}

// watch refuses the requests of an address that is put off, on connections on which it offended. It
// counts streams that are reset at once, and closes the connection once the address is put off.
func (o *offences) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open, _ := r.Context().Value(connectionKey{}).(*connection)
		if open == nil {
			next.ServeHTTP(w, r)
			return
		}
		open.used.Store(true)
		if open.offended.Load() && o.isPutOff(open.from) {
			o.refused.WithLabelValues(refusedRequest).Inc()
			w.Header().Set("Connection", "close")
			doors.Refuse(w, r, http.StatusTooManyRequests, Retryable(connect.CodeResourceExhausted,
				fmt.Errorf("this address sent too many requests that are malformed, too large or "+
					"taken back: try again in %v", o.time), nil))
			return
		}
		begin, arrives := time.Now(), (*arrivingBody)(nil)
		if r.ProtoMajor == 2 && r.Body != http.NoBody {
			arrives = &arrivingBody{ReadCloser: r.Body}
			r.Body = arrives
		}
		next.ServeHTTP(w, r)
		if r.ProtoMajor == 2 && r.Context().Err() != nil &&
			(time.Since(begin) < youngStream || (arrives != nil && !arrives.begun)) &&
			o.offend(r.Context(), offenceReset, 1) {
			_ = open.Close()
		}
	})
}

// arrivingBody notes whether anything of a body arrived, if only its end.
type arrivingBody struct {
	io.ReadCloser
	begun bool
}

// Read implements io.Reader.
func (b *arrivingBody) Read(buffer []byte) (int, error) {
	n, err := b.ReadCloser.Read(buffer)
	b.begun = b.begun || n > 0 || errors.Is(err, io.EOF)
	return n, err
}
