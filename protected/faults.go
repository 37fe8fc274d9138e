package protected

// Fault is a bug that is planted on purpose, to show that a judge can reject an engine with it.
type Fault uint8

// The bugs that can be planted.
const (
	// FaultNone is the correct protocol.
	FaultNone Fault = iota
	// FaultNoPermissionCheck lets the old holder of a region keep its permission.
	FaultNoPermissionCheck
)
