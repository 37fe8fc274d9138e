package replica

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram"
)

// Bounds of a deployment.
const (
	// ServersMax bounds the replicas of one group.
	ServersMax = 255
	// ClientsMax bounds the clients.
	ClientsMax = 1 << 16
	// SlotsMax bounds the slots of one buffer.
	SlotsMax = 1 << 20
)

// Errors of this package; order.ErrTooLarge, order.ErrNotNow and order.ErrHalted come beside them.
var (
	// ErrOptions: the options do not fit together, or are out of bounds.
	ErrOptions = errors.New("bad options")
	// ErrMessage: bytes are no message as AppendMessage writes it.
	ErrMessage = errors.New("malformed message")
)

// Options describe a deployment. All its processes must be given the same, but for Note and Fault.
type Options struct {
	// Tree connects the groups. Required.
	Tree *tram.Tree
	// Replicas are the lives of the replicas' hosts, by group and server: 1 to ServersMax servers a
	// group. A life that ended is never replaced: replicas crash and stay away.
	Replicas [][]rdmanet.Peer
	// Clients are the lives of the clients' hosts.
	Clients []rdmanet.Peer
	// PayloadMax bounds a payload, in bytes: 1,024.
	PayloadMax int
	// BufferSlots is how many messages of one client, or of the parent, a replica has room for:
	// 256.
	BufferSlots int
	// Window is how many entries a leader has under way, at most, before the first of them is
	// ordered: 64. The paper's is 1.
	Window int
	// LogSlots is how many entries the log holds, at least twice Window: 1,024. A member that is
	// down and not excluded stops its group after that many.
	LogSlots int
	// Patience is how long a process waits for an answer before it asks again; it waits longer each
	// time: 1 millisecond.
	Patience time.Duration
	// Quiet is how long a leader has nothing to order before it orders a no-op, from which its
	// followers learn that the last entry is ordered: 50 microseconds.
	Quiet time.Duration
	// Note is told of the steps of the protocol, for traces; nil for nobody.
	Note func(format string, arguments ...any)
	// Fault plants a bug, to prove that a checker finds it. Production leaves it FaultNone.
	Fault Fault
}

// Fault is a bug to plant on purpose: whoever judges replicas shows with it that the judge can say
// no.
type Fault uint8

// The bugs that can be planted.
const (
	// FaultNone is the protocol as it should be.
	FaultNone Fault = iota
	// FaultNoPermissionCheck grants the log to whoever asks, under whatever ticket, and lets the
	// old leader keep its permission.
	FaultNoPermissionCheck
	// FaultSlotReusedEarly has a leader write over slots of the log that members have still to
	// read.
	FaultSlotReusedEarly
	// FaultNoTreeCatchUp has a new leader hand on to the children only what is ordered from then
	// on.
	FaultNoTreeCatchUp
	// FaultNoGroupCatchUp has a new leader take its own log for the group's.
	FaultNoGroupCatchUp
	// FaultBufferReusedEarly has a client, and a parent's leader, write over slots of buffers whose
	// messages nobody has ordered yet.
	FaultBufferReusedEarly
	// FaultRewrittenInPlace has a new leader write over an entry that is another's without taking
	// its mark away before.
	FaultRewrittenInPlace
	// FaultDecidedEarly takes an entry for ordered as soon as it is in the leader's own log.
	FaultDecidedEarly
	faultsEnd
)

var faultNames = [...]string{"", "no-permission-check", "slot-reused-early", "no-tree-catch-up",
	"no-group-catch-up", "buffer-reused-early", "rewritten-in-place", "decided-early"}

// String gives the fault's name, "" for FaultNone.
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

// withDefaults fills in what is zero.
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

// check gives ErrOptions with the reason.
func (o *Options) check() error {
	if o.Tree == nil {
		return fmt.Errorf("%w: no tree", ErrOptions)
	}
	if len(o.Replicas) != o.Tree.Groups() {
		return fmt.Errorf("%w: replicas of %d groups, and a tree of %d", ErrOptions,
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
		return fmt.Errorf("%w: a span below zero", ErrOptions)
	}
	for _, size := range []int{o.logRing().size(), o.bufferRing().size()} {
		if size > rdmanet.RegionSizeMax || size < 0 {
			return fmt.Errorf("%w: a region of %d bytes, want up to %d: fewer slots, or a "+
				"smaller payload", ErrOptions, size, rdmanet.RegionSizeMax)
		}
	}
	return nil
}

// processes counts replicas and clients. They are numbered: the replicas group by group, and then
// the clients.
func (o *Options) processes() int {
	return o.number(order.Replica{Group: order.Clients}) + len(o.Clients)
}

// number is a process's number.
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

// has tells whether the process is one of the deployment.
func (o *Options) has(process order.Replica) bool {
	if process.Group == order.Clients {
		return int64(process.Server) < int64(len(o.Clients))
	}
	return o.Tree.Has(process.Group) &&
		int64(process.Server) < int64(len(o.Replicas[process.Group]))
}

// messageMax bounds a message's encoding, in bytes.
func (o *Options) messageMax() int { return messageHeader + 4*o.Tree.Groups() + o.PayloadMax }

// note tells of a step.
func (o *Options) note(format string, arguments ...any) {
	if o.Note != nil {
		o.Note(format, arguments...)
	}
}

// ticket asks for a permission [TRAM, section 5.4]: the paper's timestamp, a counter and then the
// server that counts, and behind it the number of the request, because who lost its way to a memory
// asks anew under the same timestamp. Tickets of two servers are never equal, and a higher one is
// the later.
type ticket uint64

// timestamp orders the leaders of a group: the paper's tmp. 0 is none.
type timestamp uint64

const (
	requestBits = 16
	serverBits  = 8
)

func makeTimestamp(counter uint64, server order.ServerID) timestamp {
	return timestamp(counter<<serverBits | uint64(server))
}

func (t timestamp) counter() uint64 { return uint64(t) >> serverBits }

func (t timestamp) server() order.ServerID { return order.ServerID(t & (1<<serverBits - 1)) }

// ticket is the timestamp's request of that number.
func (t timestamp) ticket(request uint64) ticket { return ticket(uint64(t)<<requestBits | request) }

func (t ticket) timestamp() timestamp { return timestamp(t >> requestBits) }

// requestsMax is how often one timestamp can ask one replica.
const requestsMax = 1<<requestBits - 1

// longer is how long to wait at the try of that number, from 0.
func (o *Options) longer(try int) time.Duration {
	return min(o.Patience<<min(try, 6), math.MaxInt64/2)
}
