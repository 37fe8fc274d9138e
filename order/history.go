package order

import (
	"fmt"
	"slices"
	"strings"
)

// History records one run: which messages were submitted and A-delivered, and which processes
// failed. Make it with NewHistory.
type History struct {
	// NonUniform limits the properties to correct processes, as [Poke19, section 2.2.1] does before
	// it introduces uniformity. Set it before judging.
	NonUniform bool

	groups    [][]int // the processes of each group
	processes []process
	messages  []message
	byID      map[MessageID]int
	// failedClients holds the clients that failed. A client has no other state.
	failedClients map[ServerID]bool
}

// process is one replica's part of a history.
type process struct {
	replica   Replica
	faulty    bool
	delivered []delivered
}

// delivered is one A-delivery.
type delivered struct {
	message int // index into History.messages
	epoch   Epoch
	round   Round // 0 where the engine has no rounds
}

// message is one message of a history.
type message struct {
	id        MessageID
	to        []GroupID
	submitted bool
}

// NewHistory starts the history of a deployment with groups 0, 1, ... Each size is the number of
// servers of one group.
func NewHistory(sizes ...int) *History {
	h := &History{byID: make(map[MessageID]int), failedClients: make(map[ServerID]bool)}
	for group, size := range sizes {
		var members []int
		for server := range size {
			members = append(members, len(h.processes))
			h.processes = append(h.processes, process{replica: Replica{GroupID(group),
				ServerID(server)}})
		}
		h.groups = append(h.groups, members)
	}
	return h
}

// Submit records that a process (a replica or a client) A-multicasts a message to a set of groups,
// or A-broadcasts it to the only group.
func (h *History) Submit(id MessageID, to ...GroupID) {
	m := &h.messages[h.intern(id)]
	m.to, m.submitted = slices.Clone(to), true
}

// Deliver records that a replica A-delivers a message. It panics if the replica is outside the
// deployment.
func (h *History) Deliver(at Replica, id MessageID) {
	p := &h.processes[h.process(at)]
	p.delivered = append(p.delivered, delivered{message: h.intern(id)})
}

// Fail records that a process has failed. From now on liveness is required neither of it nor of
// messages that only it submitted.
func (h *History) Fail(at Replica) {
	if at.Group == Clients {
		h.failedClients[at.Server] = true
		return
	}
	h.processes[h.process(at)].faulty = true
}

// failed reports whether a process (a replica or a client) has failed.
func (h *History) failed(at Replica) bool {
	if at.Group == Clients {
		return h.failedClients[at.Server]
	}
	return h.processes[h.process(at)].faulty
}

// Judge runs the oracles and returns the violations, safety first, one for each broken property.
func (h *History) Judge(moment Moment) []*Violation {
	var broken []*Violation
	for _, o := range oracles {
		if o.from > moment {
			continue
		}
		if v := o.judge(h); v != nil {
			broken = append(broken, v)
		}
	}
	return broken
}

func (h *History) intern(id MessageID) int {
	at, known := h.byID[id]
	if !known {
		at = len(h.messages)
		h.byID[id] = at
		h.messages = append(h.messages, message{id: id})
	}
	return at
}

func (h *History) process(at Replica) int {
	if int(at.Group) >= len(h.groups) || int(at.Server) >= len(h.groups[at.Group]) {
		panic(fmt.Sprintf("order: replica %d/%d is outside the deployment", at.Group, at.Server))
	}
	return h.groups[at.Group][at.Server]
}

// binds reports whether the safety properties bind a process.
func (h *History) binds(process int) bool { return !h.NonUniform || !h.processes[process].faulty }

// places returns the position at which each process first A-delivers each message.
// places[process][message] counts from 1; 0 means never.
func (h *History) places() [][]int {
	places := make([][]int, len(h.processes))
	for p := range h.processes {
		places[p] = make([]int, len(h.messages))
		for at, d := range h.processes[p].delivered {
			if places[p][d.message] == 0 {
				places[p][d.message] = at + 1
			}
		}
	}
	return places
}

// destinations returns the processes of a message's destination groups.
func (h *History) destinations(message int) []int {
	var all []int
	for _, group := range h.messages[message].to {
		if int(group) < len(h.groups) {
			all = append(all, h.groups[group]...)
		}
	}
	return all
}

// who returns the name of a replica, as users know it.
func (h *History) who(process int) string { return h.name(h.processes[process].replica) }

// name returns the name of a process (a replica or a client).
func (h *History) name(r Replica) string {
	switch {
	case r.Group == Clients:
		return r.String()
	case len(h.groups) == 1:
		return fmt.Sprintf("server %d", r.Server)
	}
	return "replica " + r.String()
}

// what returns the name of a message: m1.2 is the second message of server 1, m3/1.2 the second of
// replica 3/1, c4.2 the second of client 4.
func (h *History) what(message int) string {
	id := h.messages[message].id
	if len(h.groups) > 1 || id.Sender.Group == Clients {
		return id.String()
	}
	if id.Sequence > forged {
		return fmt.Sprintf("a payload (unknown %d) as a message of %d", id.Sequence-forged,
			id.Sender.Server)
	}
	return fmt.Sprintf("m%d.%d", id.Sender.Server, id.Sequence)
}

// sent returns the name of a message with its destinations. With a single group they are left out.
func (h *History) sent(message int) string {
	if len(h.groups) == 1 {
		return h.what(message)
	}
	to := make([]string, len(h.messages[message].to))
	for i, group := range h.messages[message].to {
		to[i] = fmt.Sprint(group)
	}
	return fmt.Sprintf("%s to groups %s", h.what(message), strings.Join(to, ", "))
}

// when describes a delivery of a process. The position at counts from 0.
func (h *History) when(process, at int) string {
	d := h.processes[process].delivered[at]
	if d.round != 0 {
		return fmt.Sprintf("%s (epoch %d, round %d)", h.what(d.message), d.epoch, d.round)
	}
	return fmt.Sprintf("%s (its delivery number %d)", h.what(d.message), at+1)
}

// fate returns a remark in parentheses if the process fails later, and else nothing.
func (h *History) fate(process int) string {
	if h.processes[process].faulty {
		return " (it fails later)"
	}
	return ""
}
