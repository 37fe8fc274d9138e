package api

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/ledgerd/ledgerd/node/doors"
)

// Options of a Server. The zero value of each field means its default.
type Options struct {
	Logger *slog.Logger // default: slog.Default()
	// Registry holds the API's metrics and is what /metrics shows; default: a new one.
	Registry *prometheus.Registry
	// Version is the program's, which /version shows.
	Version string
	// Explorer is served at /; default: a line of text that names the API.
	Explorer http.Handler
	// Docs is served at /docs/; default: nothing but what the explorer answers there.
	Docs http.Handler

	// Doors decide which requests are served, and whether over TLS; default: those for loopback
	// hosts, without TLS.
	Doors *doors.Doors
	// AllowedOrigins are the origins, as "https://example.org", whose pages may call this API from
	// a browser. Same-origin needs no entry.
	AllowedOrigins []string

	MaxMessageBytes int // of a request; default 16 MiB
	MaxBundles      int // of a SubmitMany; default 256
	// MaxRequestMemory bounds what all requests under way may take, encoded and decoded; default
	// 256 MiB.
	MaxRequestMemory int64

	// CallsPerSecond and CallBurst limit each remote address; default 20,000 and 40,000. A negative
	// rate means no limit.
	CallsPerSecond rate.Limit
	CallBurst      int
	// PutOffTime is how long an address is put off that sends malformed or too large requests,
	// takes streams back or opens connections for nothing, in masses; default 10 s. No address is
	// put off if there is no limit of calls.
	PutOffTime time.Duration

	MaxStreams           int    // in all; default 1,024
	MaxStreamsPerAddress int    // default 64
	MaxConcurrentCalls   uint32 // of one HTTP/2 connection; default 256

	// MaxConnections bounds the connections in all; default: half of the descriptors that the
	// process may open, at most 4,096. MaxConnectionsPerAddress defaults to a quarter of it.
	MaxConnections, MaxConnectionsPerAddress int

	// MaxHeaderTime bounds the time in which a request's header must arrive; default 10 s.
	MaxHeaderTime time.Duration
	// MaxBodyPatience bounds how far a request's body may fall behind the least rate of 32 KiB a
	// second; default 10 s.
	MaxBodyPatience time.Duration
	// MaxIdleTime bounds how long a connection may carry no call, and a stream of bundles no
	// bundle; default 2 min.
	MaxIdleTime time.Duration

	MaxReadTime time.Duration // of a call that only reads; default 30 s
	// MaxReadEffort bounds the work of a call that reads at a cut (store.Effort), and with it how
	// far back it can read an account that changes often; default 2,000,000, which takes some
	// seconds. Of calls that take more than a thirtieth of it, one address may have
	// MaxFarReadsPerAddress at once, default 2, and all together four times as many. The others
	// wait.
	MaxReadEffort, MaxFarReadsPerAddress int
	// Of a call that waits for a level; default 60 s. The call then returns the statuses of that
	// moment.
	MaxWaitTime time.Duration
	// A stream whose reader takes nothing for this long is cut off; default 2 min.
	MaxStuckTime time.Duration

	// RecordsRounds says that the node records its rounds also if nobody watches.
	RecordsRounds bool

	// AlarmAfter is how long a transaction may wait for other shards before it is shown as overdue;
	// default: as long as it takes.
	AlarmAfter time.Duration
	// Clock returns the time of day that deadlines and AlarmAfter are compared with; default:
	// time.Now.
	Clock func() time.Time

	// The minimum time between two messages of WatchCluster; default 250 ms.
	ClusterInterval time.Duration
}

func (o Options) withDefaults() Options {
	defaultTo(&o.MaxMessageBytes, 16<<20)
	defaultTo(&o.MaxBundles, 256)
	defaultTo(&o.MaxRequestMemory, 256<<20)
	defaultTo(&o.CallsPerSecond, 20_000)
	defaultTo(&o.CallBurst, 40_000)
	defaultTo(&o.PutOffTime, 10*time.Second)
	defaultTo(&o.MaxStreams, 1_024)
	defaultTo(&o.MaxStreamsPerAddress, 64)
	defaultTo(&o.MaxConcurrentCalls, 256)
	if o.MaxConnections == 0 {
		o.MaxConnections = defaultConnections()
	}
	defaultTo(&o.MaxConnectionsPerAddress, max(fewest, o.MaxConnections/4))
	defaultTo(&o.MaxHeaderTime, 10*time.Second)
	defaultTo(&o.MaxBodyPatience, 10*time.Second)
	defaultTo(&o.MaxIdleTime, 2*time.Minute)
	defaultTo(&o.MaxReadTime, 30*time.Second)
	if o.MaxReadEffort <= 0 {
		o.MaxReadEffort = 2_000_000
	}
	if o.MaxFarReadsPerAddress <= 0 {
		o.MaxFarReadsPerAddress = 2
	}
	defaultTo(&o.MaxWaitTime, 60*time.Second)
	defaultTo(&o.MaxStuckTime, 2*time.Minute)
	defaultTo(&o.ClusterInterval, 250*time.Millisecond)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Doors == nil {
		o.Doors = doors.Loopback()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Explorer == nil {
		o.Explorer = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write(
				[]byte("This is the API of a ledgerd node; this build has no explorer.\n"))
		})
	}
	return o
}

func defaultTo[T comparable](value *T, byDefault T) {
	var zero T
	if *value == zero {
		*value = byDefault
	}
}
