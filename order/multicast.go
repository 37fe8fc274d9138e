package order

import "fmt"

// GroupID names a group of an atomic multicast. The groups of one deployment are disjoint [TRAM,
// section 2.2].
type GroupID uint32

// Clients is what stands for a group in the names of processes that are in none: Replica{Clients,
// 3} is client 3. A client A-multicasts messages, and A-delivers none [TRAM, section 2.1].
const Clients GroupID = 1<<32 - 1

// Replica names a process of an atomic multicast: a server of a group, or a client.
type Replica struct {
	Group  GroupID
	Server ServerID
}

// String names the process: 2/0 is server 0 of group 2.
func (r Replica) String() string {
	if r.Group == Clients {
		return fmt.Sprintf("client %d", r.Server)
	}
	return fmt.Sprintf("%d/%d", r.Group, r.Server)
}

// MessageID names a message for ever: the process that A-multicast it, and how many it had
// A-multicast by then, the first being 1.
type MessageID struct {
	Sender   Replica
	Sequence uint64
}

// String names the message: m2/0.5 is the fifth of replica 2/0, c3.5 the fifth of client 3.
func (id MessageID) String() string {
	if id.Sender.Group == Clients {
		return fmt.Sprintf("c%d.%d", id.Sender.Server, id.Sequence)
	}
	return fmt.Sprintf("m%s.%d", id.Sender, id.Sequence)
}

// Multicast is one message of an atomic multicast.
type Multicast struct {
	ID MessageID
	// To is the destination set: ascending, without repeats, never empty. Only servers of these
	// groups A-deliver the message. It is never changed after the A-multicast.
	To []GroupID
	// Payload is never changed after the A-multicast; whoever receives it may keep it and must not
	// write to it.
	Payload []byte
}

// Multicaster is atomic multicast as a pure state machine, at one replica. What else it is fed
// (messages, polls of shared memory, suspicions) and asks for differs from engine to engine; this
// is what their users and the checker see of all of them. Its driver calls one method at a time:
//
//	for {
//		engine.Multicast(message)          // when a client has one
//		...                                // the engine's own inputs and outputs
//		for _, m := range engine.Delivered() { apply(m) }
//	}
type Multicaster interface {
	// Multicast A-multicasts a message. The engine keeps its slices, which nobody may change from
	// here on. It reports ErrTooLarge past the configured bound, ErrNotNow where the engine has no
	// room before others are delivered, ErrHalted where it delivers no more.
	Multicast(m Multicast) error
	// Delivered returns the messages A-delivered here since the last call, in order. The slice is
	// the engine's and valid until the next call of any of its methods; the messages may be kept.
	Delivered() []Multicast
}
