// Package engine is the one table of the engines of atomic broadcast: what each is called, how it
// is made, how its frames are read, what it can do, and whether a node may run it. Help texts,
// completions and checks of names come from the table, so a new engine is a new row.
//
//	made, err := engine.Of("allconcur+")
//	e, err := made.New(engine.Config{Self: 2, Servers: 5, Reliable: g, Run: 1, FirstRound: 1})
//	...
//	nodes := engine.All().With(engine.Engine.RunsInNode)
//	usage := "engine: " + nodes.String() // allconcur+, allconcur, trains or dare
//
// The simulator and the exhaustive search have tables of their own, of how they run an engine with
// its planted bugs. They name engines as this table does, which a test of the command line checks.
package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/trains"
)

// Errors; match them with errors.Is.
var (
	// ErrUnknown is returned for a name that no engine has.
	ErrUnknown = errors.New("unknown engine")
	// ErrTooLarge is returned for a group that is too large for an engine.
	ErrTooLarge = errors.New("too many members for the engine")
)

// Kind says what carries an engine's operations, and so what it needs of the fabric.
type Kind uint8

const (
	// Frames is an engine that takes and sends frames. It needs lanes, and node/driver drives it.
	Frames Kind = iota + 1
	// Polled is an engine that works on one-sided memory and is polled. It needs regions
	// (rdmanet.RegionHost).
	Polled
)

// String returns what the engine needs of the fabric.
func (k Kind) String() string {
	switch k {
	case Frames:
		return "lanes"
	case Polled:
		return "regions"
	default:
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
}

// Config is what an engine is made from: a server's place in a run, and the settings of the group.
// They are equal on all servers of the group, except for Self. An engine ignores what it has no use
// for.
type Config struct {
	// Self is the server's place in the group, and Servers the size of the group.
	Self    order.ServerID
	Servers int
	// Shard is the number of members of the shard, of which the group is a part. 0 means Servers.
	Shard int
	// Reliable is the group's reliable digraph. A server's successors watch it.
	Reliable *digraph.Digraph
	// Run is the number of the run, which all of its frames carry. FirstRound is the number of its
	// first round.
	Run        uint64
	FirstRound order.Round
	// MaxPayload bounds a message in bytes.
	MaxPayload int
	// MinPayload is the least that an engine may lower MaxPayload to, if it has to have room for
	// messages of all servers. 0 means MaxPayload.
	MinPayload int
	// FullRounds makes all servers that are not missing take part in each round, also if the engine
	// could go on without them.
	FullRounds bool
	// Perfect makes the engine rely on a failure detector that makes no mistakes. Without it, no
	// mistake makes servers A-deliver different rounds.
	Perfect bool
	// Prompt delivers small rounds as soon as all servers hold them. It needs Engine.Prompt.
	Prompt bool
	// Change reports whether a round changes the group. It may be nil. It must not keep payloads.
	Change func(order.Delivery) bool
	// InFlight is the number of rounds in flight, up to Engine.InFlightMax. 0 means 1.
	InFlight int
	// Trains is the number of trains of TRAINS. 0 means trains.TrainsDefault.
	Trains int
	// Timeout is how long a leader may be silent before its followers elect another one. 0 means
	// TimeoutDefault.
	Timeout time.Duration
	// Layout is the form of TRAINS' frames. With trains.LayoutPaper they do not have the number of
	// the run, so Run must be 0, and FrameRun does not read them.
	Layout trains.Layout
}

// TimeoutDefault is the timeout of leaders over a network of the usual kind, where processes share
// processors. It is the smaller the sooner order goes on without a leader, and the larger the less
// often one is left that works.
const TimeoutDefault = 30 * time.Millisecond

// Machine is a polled engine of atomic broadcast: dare.Server. Package poller drives it.
type Machine interface {
	protected.Machine
	// CanBroadcast reports whether Broadcast takes a message.
	CanBroadcast() bool
	// PayloadMax returns the most bytes of a message.
	PayloadMax() int
	// Solicited reports whether CanBroadcast is true and another server waits for this one's
	// message, even an empty one. It is false without Config.FullRounds.
	Solicited() bool
	// NextRound returns the round of the server's next message, or a lower bound.
	NextRound() order.Round
	// Broadcast A-broadcasts a message, which is copied. The error wraps order.ErrNotNow,
	// order.ErrTooLarge or order.ErrHalted.
	Broadcast(payload []byte) error
	// Deliveries returns the rounds A-delivered since the last call, in order. The slice is valid
	// until the next call; the messages may be kept.
	Deliveries() []order.Delivery
	// Missing says that a failure detector suspects a server, or no longer does. The machine may
	// elect another leader, and end the run without a server that keeps it from going on.
	Missing(server order.ServerID, missing bool)
	// Waiting reports whether something was A-broadcast, by any server, and not A-delivered here.
	Waiting() bool
	// Ended reports whether the last round of the run was A-delivered (Config.Change).
	Ended() bool
	// Freeze ends this server's part in the run for good. Nothing that others write lands in its
	// memory from then on. It returns what the log has behind what was A-delivered. Close follows.
	Freeze() (order.FrozenLog, error)
	// Exclude makes the machine keep nothing for a server that is gone for good. It starts no
	// election. The caller must not err.
	Exclude(server order.ServerID)
	// Leader returns the server that this one follows, which may be itself.
	Leader() (leader order.ServerID, known bool)
	// Halted returns why the machine stopped, or "".
	Halted() string
	Status() order.Status
}

// Message is a message in a frame. The other fields name it among all messages: Epoch and Round are
// whatever the engine's frames tell messages of one origin apart by.
type Message struct {
	Run     uint64
	Epoch   order.Epoch
	Round   order.Round
	Origin  order.ServerID
	Payload []byte
}

// Engine is a row of the table. The frames of one engine are no frames of another one, unless both
// have the same.
type Engine struct {
	// Name is the engine's name in configurations, flags and reports.
	Name string
	// Story describes the engine in half a line: for which deployments it is.
	Story string
	Kind  Kind
	// InNode says that a node may run it.
	InNode bool
	// Prompt says that it can deliver promptly, and LogRounds that it reports complete rounds,
	// which a node may sync before they are ordered. Both need an eventually perfect detector.
	Prompt, LogRounds bool
	// Perfect says that a node may run it with a detector that is treated as perfect.
	Perfect bool
	// Trains says that a number of trains belongs to the settings of its group.
	Trains bool
	// WatchAll says that every server has to watch every other one: each has to learn of any
	// failure.
	WatchAll bool
	// ServersMax is the largest group, 0 for no bound of its own.
	ServersMax int
	// VotesMax returns how many rounds a server may have voted for without having A-delivered them
	// (order.Voter). Only engines of frames that nodes run have it.
	VotesMax func(Config) int
	// InFlightMax is the maximum number of rounds in flight, or of messages of a server if it is
	// polled. NodeInFlight is how many messages a node then has in flight.
	InFlightMax  int
	NodeInFlight int
	// New makes the engine of a server, if it takes frames. The error says what is wrong with the
	// configuration.
	New func(Config) (order.Broadcaster, error)
	// NewMachine makes the engine of a server, if it is polled. peers are the incarnations of the
	// servers, by place, and host is that of this one.
	NewMachine func(config Config, peers []rdmanet.Peer, host rdmanet.RegionHost) (Machine, error)
	// FrameRun reads the number of the run from a frame. An error means that the bytes are not a
	// frame.
	FrameRun func(frame []byte) (uint64, error)
	// FrameHead reads what a frame's header says, for people who watch. It reports false for bytes
	// that are no frame. Only engines of frames that nodes run have it.
	FrameHead func(frame []byte) (order.FrameHead, bool)
	// FrameMessages calls yield for the messages in a frame. It keeps their payloads in the frame's
	// memory, and does not examine the rest: whether the engine takes the frame is another
	// question. Other frames, and bytes that are no frame, have none. Only engines of frames that
	// nodes run have it.
	FrameMessages func(frame []byte, yield func(Message))
}

// Takes returns an error if the engine takes no group of this size.
func (e Engine) Takes(servers int) error {
	if e.ServersMax > 0 && servers > e.ServersMax {
		return fmt.Errorf("%w: %s takes up to %d members, not %d", ErrTooLarge, e.Name,
			e.ServersMax, servers)
	}
	return nil
}

// Watches returns the digraph along which the servers of a group watch each other, given the one
// that is reliable enough.
func (e Engine) Watches(reliable *digraph.Digraph) (*digraph.Digraph, error) {
	if e.WatchAll {
		return digraph.Complete(reliable.Order())
	}
	return reliable, nil
}

// RunsInNode reports whether a node may run the engine.
func (e Engine) RunsInNode() bool { return e.InNode }

// TakesFrames reports whether node/driver can drive the engine.
func (e Engine) TakesFrames() bool { return e.Kind == Frames }

// HasPrompt reports whether the engine can deliver promptly.
func (e Engine) HasPrompt() bool { return e.Prompt }

// LogsRounds reports whether the engine reports complete rounds.
func (e Engine) LogsRounds() bool { return e.LogRounds }

// List is a list of engines, the default one first.
type List []Engine

// All lists the engines.
func All() List { return slices.Clone(engines) }

// Of returns the engine with a name. The error wraps ErrUnknown and lists the names.
func Of(name string) (Engine, error) { return engines.Of(name) }

// Of returns the engine with a name, if it is in the list. The error wraps ErrUnknown and lists the
// names.
func (l List) Of(name string) (Engine, error) {
	at := slices.IndexFunc(l, func(e Engine) bool { return e.Name == name })
	if at < 0 {
		return Engine{}, fmt.Errorf("%w %q: use %v", ErrUnknown, name, l)
	}
	return l[at], nil
}

// Has reports whether the engine with a name is in the list.
func (l List) Has(name string) bool {
	_, err := l.Of(name)
	return err == nil
}

// With returns the engines that have a property.
func (l List) With(property func(Engine) bool) List {
	return slices.DeleteFunc(slices.Clone(l), func(e Engine) bool { return !property(e) })
}

// FrameRun reads the number of the run from a frame of one of the engines that nodes run. A member
// may not know yet which engine a run has whose first frames arrive. An error wraps order.ErrFrame.
func FrameRun(frame []byte) (run uint64, err error) {
	_, run, err = engines.inNode(frame)
	return run, err
}

// FrameHead is Engine.FrameHead for a frame of one of the engines that nodes run.
func FrameHead(frame []byte) (order.FrameHead, bool) {
	if e, _, err := engines.inNode(frame); err == nil {
		return e.FrameHead(frame)
	}
	return order.FrameHead{}, false
}

// FrameMessages is Engine.FrameMessages for a frame of one of the engines that nodes run.
func FrameMessages(frame []byte, yield func(Message)) {
	if e, _, err := engines.inNode(frame); err == nil {
		e.FrameMessages(frame, yield)
	}
}

// inNode returns the first engine that nodes run and that takes a frame for its own, and the number
// of the frame's run. AllConcur and AllConcur+ have the same frames.
func (l List) inNode(frame []byte) (e *Engine, run uint64, err error) {
	err = order.ErrFrame
	for i := range l {
		if e = &l[i]; e.InNode && e.TakesFrames() {
			if run, err = e.FrameRun(frame); err == nil {
				return e, run, nil
			}
		}
	}
	return nil, 0, err
}

// Names returns the engines' names.
func (l List) Names() []string {
	names := make([]string, len(l))
	for i, e := range l {
		names[i] = e.Name
	}
	return names
}

// String returns the names for a sentence: "a", "a or b", "a, b or c".
func (l List) String() string {
	names := l.Names()
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
