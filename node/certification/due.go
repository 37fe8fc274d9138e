package certification

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// CheckpointEvery is the distance between the blocks that members sign while the chain moves. The
// proof that a block is final has at most as many headers.
const CheckpointEvery = 64

// checkpointsMax bounds the checkpoints that a node signs at a time. While it catches up it passes
// many that the others certified long ago.
const checkpointsMax = 16

// due returns the heights to sign, ascending: those above signed and up to durable that are
// checkpoints, durable itself if the chain rests there, and those of changes, the heights of
// changes of the members that have no certificate.
func due(signed, durable ledger.Height, rests bool, changes []ledger.Height) []ledger.Height {
	var heights []ledger.Height
	for _, height := range changes {
		if height <= durable {
			heights = append(heights, height)
		}
	}
	last := durable - durable%CheckpointEvery
	for range checkpointsMax {
		if last <= signed || last == 0 {
			break
		}
		heights = append(heights, last)
		last -= CheckpointEvery
	}
	if rests && durable > signed {
		heights = append(heights, durable)
	}
	slices.Sort(heights)
	return slices.Compact(heights)
}
