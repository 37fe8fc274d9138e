package multicast

import (
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram"
)

// Deployment describes the groups, and the resources of a form. It does not change during a run.
type Deployment struct {
	// Sizes are the numbers of replicas of the groups 0, 1, and so on.
	Sizes []int
	// Tree connects the groups.
	Tree *tram.Tree
	// Clients is the number of clients.
	Clients int
	// Slots is how many entries a finite buffer of the form holds, at least 2. It is small, so that
	// buffers wrap around in a run. A form that needs more for some kind of buffer takes a small
	// multiple.
	Slots int
	// PayloadMax is the maximum size of a payload, in bytes.
	PayloadMax int
	// Patience is how long a process waits for another before it acts, in virtual time: it retries,
	// takes over or sends a no-op. It may be shorter than an operation takes.
	Patience time.Duration
	// OperationTimeout is the time after which an operation on a region completes at the latest.
	OperationTimeout time.Duration
}

// Groups returns the number of groups.
func (d *Deployment) Groups() int { return len(d.Sizes) }

// Tolerated returns how many replicas of a group may fail: f of 2f+1 [TRAM, section 2.2].
func (d *Deployment) Tolerated(group order.GroupID) int { return (d.Sizes[group] - 1) / 2 }

// Members lists a group's replicas, ascending.
func (d *Deployment) Members(group order.GroupID) []order.Replica {
	members := make([]order.Replica, d.Sizes[group])
	for i := range members {
		members[i] = order.Replica{Group: group, Server: order.ServerID(i)}
	}
	return members
}

// Processes lists all replicas, group by group, followed by the clients.
func (d *Deployment) Processes() []order.Replica {
	var all []order.Replica
	for group := range d.Sizes {
		all = append(all, d.Members(order.GroupID(group))...)
	}
	for client := range d.Clients {
		all = append(all, order.Replica{Group: order.Clients, Server: order.ServerID(client)})
	}
	return all
}

// PeerOf returns a process's name on the fabric.
func PeerOf(process order.Replica) rdmanet.PeerID {
	return rdmanet.PeerID(strings.ReplaceAll(process.String(), " ", "-"))
}
