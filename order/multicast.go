package order

// GroupID names a group of an atomic multicast. The groups of one deployment are disjoint [TRAM, section 2.2].
type GroupID uint32

// Replica names a process of an atomic multicast: a server of a group.
type Replica struct {
	Group  GroupID
	Server ServerID
}

// MessageID names a message for ever: the process that A-multicast it, and how many it had A-multicast by then, the first being 1.
type MessageID struct {
	Sender   Replica
	Sequence uint64
}

// Multicast is one message of an atomic multicast.
type Multicast struct {
	ID MessageID
	// To is the destination set: ascending, without repeats, never empty. Only servers of these groups A-deliver the message. It is never changed
	// after the A-multicast.
	To []GroupID
	// Payload is never changed after the A-multicast; whoever receives it may keep it and must not write to it.
	Payload []byte
}

// Multicaster is atomic multicast as a pure state machine, at one replica. What else it is fed (messages, polls of shared memory, suspicions) and
// asks for differs from engine to engine; this is what their users and the checker see of all of them. Its driver calls one method at a time:
//
//	for {
//		engine.Multicast(message)          // when a client has one
//		...                                // the engine's own inputs and outputs
//		for _, m := range engine.Delivered() { apply(m) }
//	}
type Multicaster interface {
	// Multicast A-multicasts a message. The engine keeps its slices, which nobody may change from here on. It reports ErrTooLarge past the configured
	// bound, ErrNotNow where the engine has no room before others are delivered, ErrHalted where it delivers no more.
	Multicast(m Multicast) error
	// Delivered returns the messages A-delivered here since the last call, in order. The slice is the engine's and valid until the next call of any
	// of its methods; the messages may be kept.
	Delivered() []Multicast
}
