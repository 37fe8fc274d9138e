package allconcur

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// The engines of this room, as Config.Engine names them.
const (
	// EngineAllConcur is AllConcur: every round is reliable [Poke19, chapter 5].
	EngineAllConcur = "allconcur"
	// EngineAllConcurPlus is AllConcur+: rounds are unreliable, and cheap, until a server fails [Poke19, chapter 6].
	EngineAllConcurPlus = "allconcur+"
)

const (
	// MaxPayloadDefault is the bound on one message's payload where Config.MaxPayload is 0, in bytes.
	MaxPayloadDefault = 4 << 20
	// MaxPayloadLimit is the largest bound that Config.MaxPayload may state, in bytes.
	MaxPayloadLimit = 1 << 30
)

// ErrConfig says that a Config describes no engine; match it with errors.Is.
var ErrConfig = errors.New("allconcur: wrong configuration")

// Config describes one server's engine. All servers of a group agree on all of it but Self.
type Config struct {
	// Engine is EngineAllConcur or EngineAllConcurPlus.
	Engine string
	// Self is this server, below Servers.
	Self order.ServerID
	// Servers is n, the size of the initial group; its members are 0 to n-1.
	Servers int
	// Reliable is the reliable digraph G_R over the initial group. It must be strongly connected; its connectivity bounds the failures tolerated,
	// f = digraph.Tolerated(Reliable). It is shared, never changed.
	Reliable *digraph.Digraph
	// Generation tells this run of the group from earlier ones: frames of another generation are ignored.
	Generation uint64
	// FirstRound is the number of the first round; 0 means 1.
	FirstRound order.Round
	// NonUniform makes AllConcur+ A-deliver an unreliable round as soon as the next one is complete, as [Poke19, section 6.2.3] has it: then what a server
	// A-delivers just before it fails may differ from what the others A-deliver. AllConcur is uniform anyway.
	NonUniform bool
	// MaxPayload bounds one message's payload, in bytes; 0 means MaxPayloadDefault.
	MaxPayload int
	// Fault plants a bug, to prove that a checker finds it. Production leaves it FaultNone.
	Fault Fault
}

// Fault is a bug to plant on purpose: whoever judges engines (this room's tests, the simulator) shows with it that the judge can say no.
type Fault uint8

const (
	// FaultNone is the engine as it should be.
	FaultNone Fault = iota
	// FaultDroppedForward takes messages and does not relay them.
	FaultDroppedForward
	// FaultEarlyDelivery A-delivers an unreliable round when it is complete, before the next one is.
	FaultEarlyDelivery
	// FaultPrunedTooSoon gives a message up for lost at the first notification of its sender's failure.
	FaultPrunedTooSoon
	faultEnd
)

// String names the fault as a command line would.
func (f Fault) String() string {
	switch f {
	case FaultNone:
		return "none"
	case FaultDroppedForward:
		return "dropped-forward"
	case FaultEarlyDelivery:
		return "early-delivery"
	case FaultPrunedTooSoon:
		return "pruned-too-soon"
	default:
		return fmt.Sprintf("fault(%d)", uint8(f))
	}
}

// Validate says what is wrong with the configuration; the error wraps ErrConfig.
func (c Config) Validate() error {
	switch {
	case c.Engine != EngineAllConcur && c.Engine != EngineAllConcurPlus:
		return fmt.Errorf("%w: engine %q, want %q or %q", ErrConfig, c.Engine, EngineAllConcur, EngineAllConcurPlus)
	case c.Servers < 1 || c.Servers > digraph.MaxOrder:
		return fmt.Errorf("%w: a group of %d servers, want 1 to %d", ErrConfig, c.Servers, digraph.MaxOrder)
	case uint64(c.Self) >= uint64(c.Servers):
		return fmt.Errorf("%w: server %d is none of 0 to %d", ErrConfig, c.Self, c.Servers-1)
	case c.Reliable == nil:
		return fmt.Errorf("%w: no reliable digraph", ErrConfig)
	case c.Reliable.Order() != c.Servers:
		return fmt.Errorf("%w: a reliable digraph over %d vertices for %d servers", ErrConfig, c.Reliable.Order(), c.Servers)
	case c.Servers > 1 && c.Reliable.Connectivity() < 1:
		return fmt.Errorf("%w: the reliable digraph is not strongly connected, so that some server's messages never reach some other", ErrConfig)
	case c.MaxPayload < 0 || c.MaxPayload > MaxPayloadLimit:
		return fmt.Errorf("%w: a payload bound of %d bytes, want 1 to %d (0 for the default)", ErrConfig, c.MaxPayload, MaxPayloadLimit)
	case c.Fault >= faultEnd:
		return fmt.Errorf("%w: no such fault, %d", ErrConfig, c.Fault)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.FirstRound == 0 {
		c.FirstRound = 1
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = MaxPayloadDefault
	}
	return c
}
