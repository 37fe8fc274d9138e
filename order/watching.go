package order

// FrameHead is what the header of an engine's frame says, for people who watch the frames pass.
type FrameHead struct {
	// Name is the frame's kind as the engine's paper names it, such as BCAST or FAIL.
	Name string
	// Epoch and Round are of a message or a vote. A notification has none.
	Epoch Epoch
	Round Round
	// Origin is the server that A-broadcast the message or that votes. Of a notification it is the
	// owner, and Target is the server that failed.
	Origin, Target ServerID
	// Votes reports that it is a vote, and Failure that it is a notification.
	Votes, Failure bool
}

// Progress says which round a server is in, and which servers that round waits for. An engine may
// have a method
//
//	Progress(awaited []ServerID) Progress
//
// that appends these servers to a list that the caller may use again. It says less than
// Broadcaster.Status, and allocates nothing.
type Progress struct {
	Epoch    Epoch
	Round    Round
	Reliable bool
	// Decided: the set of the round is decided, and the server waits for votes.
	Decided bool
	// Failures counts the valid failure notifications.
	Failures int
	// Awaited are the servers whose message, or vote, is missing, ascending.
	Awaited []ServerID
}
