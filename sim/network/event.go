package network

// eventKind is the kind of an internal event.
type eventKind uint8

const (
	// linkFree: a host's outgoing link is free for the next chunk.
	linkFree eventKind = iota
	// headArrived: the head of a chunk is at the switch port that leads to its receiver.
	headArrived
	// fibrePassed: the head of a chunk is at the switch behind a fibre.
	fibrePassed
	// tailArrived: the oldest chunk on a host's incoming link has arrived.
	tailArrived
	// received: the processor has received the oldest frame in its inbox.
	received
	// windowOpen: acknowledgements have arrived on a connection that waits for them.
	windowOpen
	// timer is a timer of the caller's.
	timer
)

// event is an internal event. It is small, since a large model has many under way.
type event struct {
	// number is a server, a connection, a flight or a timer, depending on the kind.
	number int32
	kind   eventKind
}
