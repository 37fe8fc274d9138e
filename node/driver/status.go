package driver

import "github.com/ledgerd/ledgerd/order"

// Status is a published copy of what a driver knows. Servers are places in Config.Peers. It is shared: do not change it.
type Status struct {
	// Group is the generation that runs or ran last; its Generation is 0 before the first activation.
	Group Group
	// Running tells whether its engine runs: it was neither frozen nor halted.
	Running bool
	// Halted says why the engine delivers no more, "" while it does and after Freeze.
	Halted string
	// Engine is the engine's own account; its Awaited tells whom the round waits for.
	Engine order.Status
	// Lost are the members whose lane broke or whose frames were malformed in this generation, ascending.
	Lost []order.ServerID
	// Parked are the members whose lanes have no room, ascending, and ParkedBytes what waits for them.
	Parked      []order.ServerID
	ParkedBytes int
	Traffic     Traffic
}

// Traffic counts what went through the driver in the generation.
type Traffic struct {
	// FramesSent and BytesSent count what was put on lanes, a frame once for each receiver, without the fabric's own headers.
	FramesSent, BytesSent uint64
	// FramesReceived and BytesReceived count what the engine was given.
	FramesReceived, BytesReceived uint64
	// Broadcasts counts own messages, EmptyBroadcasts those without a payload.
	Broadcasts, EmptyBroadcasts uint64
	// Rounds, Messages and PayloadBytes count what was delivered to the Sink; empty messages are not counted.
	Rounds, Messages, PayloadBytes uint64
	// Batches counts the turns of the loop in which frames were received.
	Batches uint64
}
