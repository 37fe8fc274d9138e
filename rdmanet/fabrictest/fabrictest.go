// Package fabrictest is the suite that every provider of the fabric passes: the promises of package
// rdmanet's comment, each as a Case that plays a story on a small fabric and gives an error that
// says what did not hold.
//
// A provider's test hands Run a Factory:
//
//	func TestFabric(t *testing.T) {
//		fabrictest.Run(t, func(t testing.TB, config fabrictest.Config) fabrictest.Fabric { ... })
//	}
//
// and, where its hosts have regions, RunRegions the same Factory. It runs goleak in its TestMain,
// so that a goroutine left behind by any case is found. The suite itself is tested with faults
// planted between it and a sound provider: it must find every one.
package fabrictest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Config is what a case needs of its fabric. Zero values mean the provider's defaults.
type Config struct {
	// Members is the number of members; they are known by their index.
	Members int
	// WindowBytes, WindowFrames and FrameMax are the limits of all lanes.
	WindowBytes, WindowFrames, FrameMax int
	// MendTimeout is how long a lane may be broken before it counts as lost.
	MendTimeout time.Duration
	// Cuts says that the case uses Cut.
	Cuts bool
}

// Fabric is a set of members under test, and the misfortunes that can befall them. The factory sees
// to it that all that was started is closed when the test ends.
type Fabric interface {
	// ID is the identity of member i, the same over restarts.
	ID(i int) rdmanet.PeerID
	// Start starts member i; again, as a new incarnation, after Kill or the host's Close.
	Start(i int) (rdmanet.Host, error)
	// Kill ends member i as a crash does, without waiting for receive calls that run.
	Kill(i int)
	// Sever breaks the connections between members i and j once; nothing hinders new ones.
	Sever(i, j int)
	// Cut makes the wire between members i and j swallow everything until Mend.
	Cut(i, j int)
	// Mend takes Cut back.
	Mend(i, j int)
	// Stranger starts a host that knows the members and is none. Nil without an error: the provider
	// has no member set.
	Stranger() (rdmanet.Host, error)
}

// Factory makes a fabric of which no member is started.
type Factory func(t testing.TB, config Config) Fabric

// Case is one promise of the fabric.
type Case struct {
	Name   string
	Config Config
	// Check plays the story; it gives up when ctx ends. An error says what did not hold.
	Check func(ctx context.Context, f Fabric) error
}

// caseTimeout bounds one case: far more than any needs, so that its end means that something hung.
// The handshakes between 16 peers take 8 s of processor time under the race detector, of which a
// busy machine gives a tenth.
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

// errSkip is what a case gives that needs more of a Fabric than it has.
var errSkip = errors.New("the fabric cannot play this")

// Mend timeouts of the cases: one that is not to end, and one that is.
const (
	mendLong  = caseTimeout
	mendShort = 3500 * time.Millisecond
	// mendSlack is what a busy machine may add.
	mendSlack = 5 * time.Second
)

// Cases lists the suite.
func Cases() []Case {
	return []Case{
		{"fifo", Config{Members: 2}, checkFIFO},
		{"names", Config{Members: 2, MendTimeout: mendLong}, checkNames},
		{"concurrent senders", Config{Members: 2, WindowFrames: 64}, checkConcurrentSenders},
		{"ownership along a relay", Config{Members: 3}, checkRelay},
		{"many peers", Config{Members: 16, MendTimeout: mendLong}, checkManyPeers},
		{"window of frames", Config{Members: 2, WindowFrames: 64, MendTimeout: mendLong},
			checkFrameWindow},
		{"window of bytes", Config{Members: 2, WindowBytes: 256 << 10, FrameMax: 64 << 10,
			MendTimeout: mendLong}, checkByteWindow},
		{"frame sizes", Config{Members: 2, FrameMax: 4 << 20, WindowBytes: 6 << 20}, checkSizes},
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
			MendTimeout: 4 * time.Second, Cuts: true}, checkHealing},
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
