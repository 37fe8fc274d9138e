package trains

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// EngineName is the name of this package's engine on a command line.
const EngineName = "trains"

const (
	// ServersMax is the largest ring. A wagon visits every server of a ring one after the other, so
	// larger rings would only be slow.
	ServersMax = 64
	// TrainsDefault is the number of trains if Config.Trains is 0. The paper measures with 10.
	TrainsDefault = 4
	// TrainsMax is the largest number of trains.
	TrainsMax = 64
	// TrainSizeDefault is the size that flow control aims at if Config.TrainSize is 0, in bytes.
	// The paper measures with 4 KiB.
	TrainSizeDefault = 32 << 10
	// TrainSizeMax is the largest value of Config.TrainSize, in bytes.
	TrainSizeMax = 1 << 30
	// MaxPayloadDefault is the bound on one wagon's payload if Config.MaxPayload is 0, in bytes.
	MaxPayloadDefault = 4 << 20
	// MaxPayloadLimit is the largest value of Config.MaxPayload, in bytes.
	MaxPayloadLimit = 1 << 30
	// WagonFrameMinDefault is the size of a payload, in bytes, from which its wagon has a frame of
	// its own if Config.WagonFrameMin is 0. Below it a copy costs less than one more frame.
	WagonFrameMinDefault = 4 << 10
)

// ErrConfig says that a Config is not valid; match it with errors.Is.
var ErrConfig = errors.New("trains: wrong configuration")

// Config describes one server's engine. All servers of a group must have equal values except for
// Self.
type Config struct {
	// Self is this server, below Servers.
	Self order.ServerID
	// Servers is n, the size of the initial ring; its members are 0 to n-1, in this order.
	Servers int
	// Trains is NB_TR, the number of trains [TRAINS, section III-A]; 0 means TrainsDefault.
	Trains int
	// TrainSize is OPTIM_TR_SIZE, the size of a train that flow control aims at, in bytes [TRAINS,
	// section IV]; 0 means TrainSizeDefault.
	TrainSize int
	// Generation distinguishes this run of the group from others. Frames of another generation are
	// ignored.
	Generation uint64
	// FirstRound is the number of the first round; 0 means 1.
	FirstRound order.Round
	// Change reports whether an A-delivered round contains a change of the group. The engine calls
	// it once for each A-delivered round with a payload, in order. It must be a function of the
	// round alone and must not call the engine. eon.go says which round is then the last. nil means
	// never.
	Change func(order.Delivery) bool
	// MaxPayload bounds one wagon's payload, in bytes; 0 means MaxPayloadDefault.
	MaxPayload int
	// WagonFrameMin is the size of a payload, in bytes, from which this server gives its wagon a
	// frame of its own (wire.go); 0 means WagonFrameMinDefault. The paper's layout has no such
	// frames.
	WagonFrameMin int
	// Detector is the class of failure detector that the engine may rely on. The zero value is
	// DetectorEventual.
	Detector Detector
	// Layout is the form of the frames. The zero value is LayoutHouse.
	Layout Layout
	// Fault plants a bug, to prove that a checker finds it. Production leaves it FaultNone.
	Fault Fault
}

// Detector is the class of failure detectors that a group assumes.
type Detector uint8

const (
	// DetectorEventual is ◇P, eventually perfect: suspicions may be false. A ring then never goes
	// on without a member. It stands still until a new generation of the group takes over, which
	// starts from Engine.Votes. No mistake of the detector makes two servers A-deliver different
	// rounds.
	DetectorEventual Detector = iota
	// DetectorPerfect is P: only servers that failed are suspected, and only after the last frame
	// that they sent to the server that suspects them. A ring goes on without them, down to one.
	DetectorPerfect
	detectorEnd
)

// String returns the detector's name as used on a command line.
func (d Detector) String() string {
	switch d {
	case DetectorEventual:
		return "eventual"
	case DetectorPerfect:
		return "perfect"
	default:
		return fmt.Sprintf("detector(%d)", uint8(d))
	}
}

// Layout is the form of the frames (wire.go).
type Layout uint8

const (
	// LayoutHouse is the project's form: with a generation, and with clocks that never wrap.
	LayoutHouse Layout = iota
	// LayoutPaper is the form of [TRAINS, appendix A], byte by byte. It exists to measure the
	// throughput efficiency that the paper computes. It has no generation.
	LayoutPaper
	layoutEnd
)

// String returns the layout's name as used on a command line.
func (l Layout) String() string {
	switch l {
	case LayoutHouse:
		return "house"
	case LayoutPaper:
		return "paper"
	default:
		return fmt.Sprintf("layout(%d)", uint8(l))
	}
}

// LayoutNamed returns the layout with a name. The error wraps ErrConfig.
func LayoutNamed(name string) (Layout, error) {
	for layout := range layoutEnd {
		if layout.String() == name {
			return layout, nil
		}
	}
	return 0, fmt.Errorf("%w: no layout %q: use %v or %v", ErrConfig, name, LayoutHouse,
		LayoutPaper)
}

// Validate returns an error that wraps ErrConfig if the configuration is wrong.
func (c Config) Validate() error {
	switch {
	case c.Servers < 1 || c.Servers > ServersMax:
		return fmt.Errorf("%w: a ring of %d servers, want 1 to %d", ErrConfig, c.Servers,
			ServersMax)
	case uint64(c.Self) >= uint64(c.Servers):
		return fmt.Errorf("%w: server %d is none of 0 to %d", ErrConfig, c.Self, c.Servers-1)
	case c.Trains < 0 || c.Trains > TrainsMax:
		return fmt.Errorf("%w: %d trains, want 1 to %d (0 for the default)", ErrConfig, c.Trains,
			TrainsMax)
	case c.TrainSize < 0 || c.TrainSize > TrainSizeMax:
		return fmt.Errorf("%w: trains of %d bytes, want 1 to %d (0 for the default)", ErrConfig,
			c.TrainSize, TrainSizeMax)
	case c.MaxPayload < 0 || c.MaxPayload > MaxPayloadLimit:
		return fmt.Errorf("%w: a payload bound of %d bytes, want 1 to %d (0 for the default)",
			ErrConfig, c.MaxPayload, MaxPayloadLimit)
	case c.WagonFrameMin < 0:
		return fmt.Errorf("%w: frames of their own for wagons of %d bytes, want 1 or more (0 for "+
			"the default)", ErrConfig, c.WagonFrameMin)
	case c.Detector >= detectorEnd:
		return fmt.Errorf("%w: no such detector, %d", ErrConfig, c.Detector)
	case c.Layout >= layoutEnd:
		return fmt.Errorf("%w: no such layout, %d", ErrConfig, c.Layout)
	case c.Layout == LayoutPaper && c.Generation != 0:
		return fmt.Errorf("%w: the paper's layout has no generation, so frames of another one "+
			"would be taken; use the house's", ErrConfig)
	case c.Fault >= faultEnd:
		return fmt.Errorf("%w: no such fault, %d", ErrConfig, c.Fault)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Trains == 0 {
		c.Trains = TrainsDefault
	}
	if c.TrainSize == 0 {
		c.TrainSize = TrainSizeDefault
	}
	if c.FirstRound == 0 {
		c.FirstRound = 1
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = MaxPayloadDefault
	}
	if c.WagonFrameMin == 0 {
		c.WagonFrameMin = WagonFrameMinDefault
	}
	return c
}
