package multicast

import (
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram"
)

// Deployment says what groups there are, and what a form has to make do with. It does not change
// during a run.
type Deployment struct {
	// Sizes are the numbers of replicas of the groups 0, 1, ...
	Sizes []int
	// Tree connects the groups.
	Tree *tram.Tree
	// Clients counts the clients.
	Clients int
	// Slots is how many entries a finite buffer of the form holds, at least 2: small, so that
	// buffers wrap around in a run. A form that needs more for a kind of buffer takes a small
	// multiple.
	Slots int
	// PayloadMax bounds the payloads, in bytes.
	PayloadMax int
	// Patience is how long a process waits for another before it does something about it, in
	// virtual time: retries, takes over, sends a no-op. It may be less than what an operation
	// takes.
	Patience time.Duration
	// OperationTimeout is when an operation on a region completes at the latest.
	OperationTimeout time.Duration
}

// Groups counts the groups.
func (d *Deployment) Groups() int { return len(d.Sizes) }

// Tolerated is how many replicas of a group may fail: f of 2f+1 [TRAM, section 2.2].
func (d *Deployment) Tolerated(group order.GroupID) int { return (d.Sizes[group] - 1) / 2 }

// Members lists a group's replicas, ascending.
func (d *Deployment) Members(group order.GroupID) []order.Replica {
	members := make([]order.Replica, d.Sizes[group])
	for i := range members {
		members[i] = order.Replica{Group: group, Server: order.ServerID(i)}
	}
	return members
}

// Processes lists all replicas, group by group, and then the clients.
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

// PeerOf is a process's name on the fabric.
func PeerOf(process order.Replica) rdmanet.PeerID {
	return rdmanet.PeerID(strings.ReplaceAll(process.String(), " ", "-"))
}
