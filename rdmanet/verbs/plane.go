//go:build verbs

package verbs

import "github.com/ledgerd/ledgerd/rdmanet/p2p"

// Limits of the control plane's lanes, which carry small messages.
const (
	controlWindowBytes  = 1 << 20
	controlWindowFrames = 4096
	controlFrameMax     = 4096
)

// plane returns the options of the control plane.
func (o Options) plane() p2p.Options {
	plane := o.Control
	plane.WindowBytes, plane.WindowFrames, plane.FrameMax = controlWindowBytes, controlWindowFrames,
		controlFrameMax
	return plane
}
