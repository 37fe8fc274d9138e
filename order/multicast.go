package order

import "fmt"

// GroupID identifies a group of an atomic multicast. The groups of one deployment are disjoint
// [TRAM, section 2.2].
type GroupID uint32

// Clients takes the place of a group in the names of processes that are in no group:
// Replica{Clients, 3} is client 3. A client A-multicasts messages and A-delivers none [TRAM,
// section 2.1].
const Clients GroupID = 1<<32 - 1

// Replica identifies a process of an atomic multicast: a server of a group, or a client.
type Replica struct {
	Group  GroupID
	Server ServerID
}

// String returns the name of the process: 2/0 is server 0 of group 2.
func (r Replica) String() string {
	if r.Group == Clients {
		return fmt.Sprintf("client %d", r.Server)
	}
	return fmt.Sprintf("%d/%d", r.Group, r.Server)
}

// MessageID identifies a message permanently: the process that A-multicast it, and its sequence
// number among the messages of that process, starting from 1.
type MessageID struct {
	Sender   Replica
	Sequence uint64
}

// String returns the name of the message: m2/0.5 is the fifth of replica 2/0, c3.5 the fifth of
// client 3.
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
	// groups A-deliver the message. To never changes after the A-multicast.
	To []GroupID
	// Payload never changes after the A-multicast. Receivers may keep it and must not write to it.
	Payload []byte
}

// Multicaster is atomic multicast as a pure state machine, at one replica. Its other inputs
// (messages, polls of shared memory, suspicions) and outputs differ from engine to engine. This
// interface is the part that users and the checker see of every engine. Its driver calls one method
// at a time:
//
//	for {
//		engine.Multicast(message)          // when a client has one
//		...                                // the engine's own inputs and outputs
//		for _, m := range engine.Delivered() { apply(m) }
//	}
type Multicaster interface {
	// Multicast A-multicasts a message. The engine keeps its slices, which must not change
	// afterwards. It returns ErrTooLarge for a message over the configured bound, ErrNotNow if the
	// engine has no room until other messages are delivered, and ErrHalted if it delivers no more.
	Multicast(m Multicast) error
	// Delivered returns the messages A-delivered here since the last call, in order. The engine
	// owns the slice, which is valid until the next call of any of its methods. The caller may keep
	// the messages.
	Delivered() []Multicast
}
