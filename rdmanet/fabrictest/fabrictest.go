// Package fabrictest is the test suite that every provider of the fabric passes. Each guarantee in
// the package comment of rdmanet is a Case. A Case plays a scenario on a small fabric and returns
// an error that states which guarantee did not hold.
//
// A provider's test passes a Factory to Run:
//
//	func TestFabric(t *testing.T) {
//		fabrictest.Run(t, func(t testing.TB, config fabrictest.Config) fabrictest.Fabric { ... })
//	}
//
// If its hosts have regions, it also passes the Factory to RunRegions. It runs goleak in its
// TestMain, which finds goroutines left behind by any case. The suite itself is tested with faults
// planted between it and a sound provider: it must find every one.
package fabrictest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Config describes the fabric that a case needs. Zero values mean the provider's defaults.
type Config struct {
	// Members is the number of members. They are identified by their index.
	Members int
	// WindowBytes, WindowFrames and FrameMax are the limits of all lanes.
	WindowBytes, WindowFrames, FrameMax int
	// MendTimeout is how long a lane may be broken before it counts as lost.
	MendTimeout time.Duration
	// Cuts reports whether the case uses Cut.
	Cuts bool
}

// Fabric is a set of members under test, with the failures that can be injected. The factory must
// ensure that everything that was started is closed when the test ends.
type Fabric interface {
	// ID returns the identity of member i, the same over restarts.
	ID(i int) rdmanet.PeerID
	// Start starts member i. After Kill or the host's Close it starts the member again, as a new
	// incarnation.
	Start(i int) (rdmanet.Host, error)
	// Kill ends member i as a crash would, without waiting for running receive calls.
	Kill(i int)
	// Sever breaks the connections between members i and j once. New connections are not prevented.
	Sever(i, j int)
	// Cut makes the link between members i and j drop everything until Mend.
	Cut(i, j int)
	// Mend undoes Cut.
	Mend(i, j int)
	// Stranger starts a host that knows the members and is not one itself. It returns nil without
	// an error if the provider has no member set.
	Stranger() (rdmanet.Host, error)
}

// Factory makes a fabric in which no member is started.
type Factory func(t testing.TB, config Config) Fabric

// Case is one guarantee of the fabric.
type Case struct {
	Name   string
	Config Config
	// Check plays the scenario and gives up when ctx ends. Its error states what did not hold.
	Check func(ctx context.Context, f Fabric) error
}

// caseTimeout bounds one case. It is far more than any case needs, so a timeout means that
// something hung. The handshakes between 16 peers take 8 s of processor time under the race
// detector, of which a busy machine gives a tenth.
const caseTimeout = 4 * time.Minute

// Run runs every case against the provider, in parallel.
func Run(t *testing.T, factory Factory) { run(t, factory, Cases()) }

func run(t *testing.T, factory Factory, cases []Case) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			f := factory(t, c.Config)
			ctx, cancel := withPatience(f)
			defer cancel()
			if err := c.Check(ctx, f); errors.Is(err, errSkip) {
				t.Skip(err)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// errSkip is returned by a case that needs more of a Fabric than it supports.
var errSkip = errors.New("the fabric cannot play this")

// Mend timeouts of the cases: mendLong must not expire during a case, mendShort must.
const (
	mendLong  = caseTimeout
	mendShort = 3500 * time.Millisecond
	// mendSlack is the delay that a busy machine may add.
	mendSlack = 5 * time.Second
)

// Cases returns the suite.
func Cases() []Case {
	return []Case{
		{"fifo", Config{Members: 2, MendTimeout: mendLong}, checkFIFO},
		{"names", Config{Members: 2, MendTimeout: mendLong}, checkNames},
		{"concurrent senders", Config{Members: 2, WindowFrames: 64, MendTimeout: mendLong},
			checkConcurrentSenders},
		{"ownership along a relay", Config{Members: 3, MendTimeout: mendLong}, checkRelay},
		{"many peers", Config{Members: 16, MendTimeout: mendLong}, checkManyPeers},
		{"window of frames", Config{Members: 2, WindowFrames: 64, MendTimeout: mendLong},
			checkFrameWindow},
		{"window of bytes", Config{Members: 2, WindowBytes: 256 << 10, FrameMax: 64 << 10,
			MendTimeout: mendLong}, checkByteWindow},
		{"frame sizes", Config{Members: 2, FrameMax: 4 << 20, WindowBytes: 6 << 20,
			MendTimeout: mendLong}, checkSizes},
		{"killed peer", Config{Members: 2, WindowFrames: 128, MendTimeout: mendShort},
			checkKilledPeer},
		{"killed while it receives", Config{Members: 2, WindowFrames: 16, MendTimeout: mendShort},
			checkKilledReceiver},
		{"absent peer", Config{Members: 2, WindowFrames: 16, MendTimeout: mendShort},
			checkAbsentPeer},
		{"silent peer", Config{Members: 2, WindowFrames: 16, MendTimeout: mendShort, Cuts: true},
			checkSilentPeer},
		{"severed connections", Config{Members: 2, WindowFrames: 512, MendTimeout: mendLong},
			checkSevered},
		{"severed while it receives", Config{Members: 2, WindowFrames: 512, MendTimeout: mendLong},
			checkSeveredReceiver},
		{"partition that heals", Config{Members: 2, WindowFrames: 2048,
			MendTimeout: 8 * time.Second, Cuts: true}, checkHealing},
		{"lane given up and opened again", Config{Members: 2, WindowFrames: 512,
			MendTimeout: mendShort, Cuts: true}, checkReopened},
		{"receiver restarts", Config{Members: 2, WindowFrames: 64, MendTimeout: mendLong},
			checkReceiverRestarts},
		{"sender restarts", Config{Members: 2, MendTimeout: mendLong}, checkSenderRestarts},
		{"close delivers", Config{Members: 2, MendTimeout: mendLong}, checkCloseDelivers},
		{"close acknowledges", Config{Members: 2, MendTimeout: mendLong}, checkCloseAcknowledges},
		{"close refuses", Config{Members: 2, WindowFrames: 16, MendTimeout: mendLong},
			checkCloseRefuses},
		{"lane closed", Config{Members: 2, MendTimeout: mendLong}, checkLaneClosed},
		{"stranger", Config{Members: 2, MendTimeout: mendShort}, checkStranger},
	}
}
