package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram"
)

// Bounds of a deployment.
const (
	// ServersMax is the maximum number of replicas of one group.
	ServersMax = protected.ServersMax
	// ClientsMax is the maximum number of clients.
	ClientsMax = 1 << 16
	// SlotsMax is the maximum number of slots of one buffer.
	SlotsMax = 1 << 20
)

// Errors of this package. It also returns order.ErrTooLarge, order.ErrNotNow and order.ErrHalted.
var (
	// ErrOptions is returned for options that are inconsistent or out of bounds.
	ErrOptions = errors.New("bad options")
	// ErrMessage is returned for bytes that AppendMessage does not write.
	ErrMessage = errors.New("malformed message")
)

// Options describe a deployment. All its processes must be given the same options, except Note and
// Fault. A zero field means its default.
type Options struct {
	// Tree connects the groups. Required.
	Tree *tram.Tree
	// Replicas are the incarnations of the replicas' hosts, by group and server: 1 to ServersMax
	// servers a group. An incarnation that ended is never replaced: replicas crash and stay away.
	Replicas [][]rdmanet.Peer
	// Clients are the incarnations of the clients' hosts.
	Clients []rdmanet.Peer
	// PayloadMax is the maximum size of a payload, in bytes. The default is 1,024.
	PayloadMax int
	// BufferSlots is how many messages of one client, or of the parent, a replica has room for. The
	// default is 256.
	BufferSlots int
	// Window is the maximum number of entries that a leader has under way before the first of them
	// is ordered. The default is 64. The paper's is 1.
	Window int
	// LogSlots is how many entries the log holds, at least twice Window. The default is 1,024. A
	// member that is down and not excluded stops its group after that many.
	LogSlots int
	// Patience is how long a process waits for an answer before it asks again. The default is 1
	// millisecond. It waits longer each time.
	Patience time.Duration
	// Quiet is how long a leader has nothing to order before it orders a no-op, which tells its
	// followers that the last entry is ordered. The default is 50 microseconds.
	Quiet time.Duration
	// Note is called with the steps of the protocol, for traces. It may be nil.
	Note func(format string, arguments ...any)
	// Fault plants a bug, to prove that a checker finds it. It is FaultNone in production.
	Fault Fault
}

// Fault is a bug that is planted on purpose, to show that a judge of replicas can reject one.
type Fault uint8

// The bugs that can be planted.
const (
	// FaultNone is the correct protocol.
	FaultNone Fault = iota
	// FaultNoPermissionCheck grants the log to any process that asks, under any ticket, and lets
	// the old leader keep its permission.
	FaultNoPermissionCheck
	// FaultSlotReusedEarly makes a leader overwrite slots of the log that members have not read
	// yet.
	FaultSlotReusedEarly
	// FaultNoTreeCatchUp makes a new leader hand on to the children only what is ordered from then
	// on.
	FaultNoTreeCatchUp
	// FaultNoGroupCatchUp makes a new leader take its own log for the group's.
	FaultNoGroupCatchUp
	// FaultBufferReusedEarly makes a client, and a parent's leader, overwrite slots of buffers
	// whose messages are not ordered yet.
	FaultBufferReusedEarly
	// FaultRewrittenInPlace makes a new leader overwrite another leader's entry without erasing its
	// mark first.
	FaultRewrittenInPlace
	// FaultDecidedEarly treats an entry as ordered as soon as it is in the leader's own log.
	FaultDecidedEarly
	// FaultFirstHole makes a new leader take the first empty slot of a member's log for its end.
	FaultFirstHole
	// FaultOwnMarkKept makes a replica put an entry into its own log without erasing the mark of
	// another one of the same index first.
	FaultOwnMarkKept
	// FaultLentReused makes a process put other bytes where a write under way takes its own from.
	FaultLentReused
	faultsEnd
)

var faultNames = [...]string{"", "no-permission-check", "slot-reused-early", "no-tree-catch-up",
	"no-group-catch-up", "buffer-reused-early", "rewritten-in-place", "decided-early",
	"first-hole", "own-mark-kept", "lent-reused"}

// String returns the fault's name, "" for FaultNone.
func (f Fault) String() string {
	if int(f) < len(faultNames) {
		return faultNames[f]
	}
	return fmt.Sprintf("fault %d", uint8(f))
}

// Faults lists the bugs that can be planted.
func Faults() []Fault {
	var all []Fault
	for f := FaultNone + 1; f < faultsEnd; f++ {
		all = append(all, f)
	}
	return all
}

// logFaults are the bugs that lie in package protected.
var logFaults = map[Fault]protected.Fault{
	FaultNoPermissionCheck: protected.FaultNoPermissionCheck,
	FaultSlotReusedEarly:   protected.FaultSlotReusedEarly,
	FaultNoGroupCatchUp:    protected.FaultNoGroupCatchUp,
	FaultRewrittenInPlace:  protected.FaultRewrittenInPlace,
	FaultDecidedEarly:      protected.FaultDecidedEarly,
	FaultFirstHole:         protected.FaultFirstHole,
	FaultOwnMarkKept:       protected.FaultOwnMarkKept,
	FaultLentReused:        protected.FaultLentReused,
}

// fault returns the planted bug, if it is one of package protected.
func (o *Options) fault() protected.Fault { return logFaults[o.Fault] }

// withDefaults replaces zero values by their defaults.
func (o Options) withDefaults() Options {
	for field, value := range map[*int]int{&o.PayloadMax: 1024, &o.BufferSlots: 256, &o.Window: 64,
		&o.LogSlots: 1024} {
		if *field == 0 {
			*field = value
		}
	}
	if o.Patience == 0 {
		o.Patience = time.Millisecond
	}
	if o.Quiet == 0 {
		o.Quiet = 50 * time.Microsecond
	}
	return o
}

// check returns ErrOptions with the reason.
func (o *Options) check() error {
	if o.Tree == nil {
		return fmt.Errorf("%w: no tree", ErrOptions)
	}
	if len(o.Replicas) != o.Tree.Groups() {
		return fmt.Errorf("%w: replicas of %d groups for a tree of %d groups", ErrOptions,
			len(o.Replicas), o.Tree.Groups())
	}
	for group, peers := range o.Replicas {
		if len(peers) < 1 || len(peers) > ServersMax {
			return fmt.Errorf("%w: group %d has %d replicas, want 1 to %d", ErrOptions, group,
				len(peers), ServersMax)
		}
	}
	for _, bound := range []struct {
		what            string
		value, low, top int
	}{
		{"clients", len(o.Clients), 0, ClientsMax},
		{"bytes of a payload", o.PayloadMax, 0, rdmanet.RegionSizeMax / 2},
		{"buffer slots", o.BufferSlots, 2, SlotsMax},
		{"entries of the window", o.Window, 1, SlotsMax},
		{"log slots", o.LogSlots, 2 * o.Window, SlotsMax},
	} {
		if bound.value < bound.low || bound.value > bound.top {
			return fmt.Errorf("%w: %d %s, want %d to %d", ErrOptions, bound.value, bound.what,
				bound.low, bound.top)
		}
	}
	if o.Patience < 0 || o.Quiet < 0 {
		return fmt.Errorf("%w: a negative Patience or Quiet", ErrOptions)
	}
	log := protected.LogSize(o.LogSlots, o.messageMax())
	for _, size := range []int{log, o.bufferRing().Size()} {
		if size > rdmanet.RegionSizeMax || size < 0 {
			return fmt.Errorf("%w: a region of %d bytes, want up to %d; use fewer slots or a "+
				"smaller payload", ErrOptions, size, rdmanet.RegionSizeMax)
		}
	}
	return nil
}

// processes counts replicas and clients. Their numbers start with the replicas, group by group,
// followed by the clients.
func (o *Options) processes() int {
	return o.number(order.Replica{Group: order.Clients}) + len(o.Clients)
}

// number returns a process's number.
func (o *Options) number(of order.Replica) int {
	number := 0
	for group, peers := range o.Replicas {
		if order.GroupID(group) == of.Group {
			break
		}
		number += len(peers)
	}
	return number + int(of.Server)
}

// has reports whether the process belongs to the deployment.
func (o *Options) has(process order.Replica) bool {
	if process.Group == order.Clients {
		return int64(process.Server) < int64(len(o.Clients))
	}
	return o.Tree.Has(process.Group) &&
		int64(process.Server) < int64(len(o.Replicas[process.Group]))
}

// messageMax is the maximum size of a message's encoding, in bytes.
func (o *Options) messageMax() int { return messageHeader + 4*o.Tree.Groups() + o.PayloadMax }

// note reports a step to Note.
func (o *Options) note(format string, arguments ...any) {
	if o.Note != nil {
		o.Note(format, arguments...)
	}
}
