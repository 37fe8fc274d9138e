package crossing

import (
	"testing"

	"github.com/ledgerd/ledgerd/node/mempool"
)

// Verdicts have a quarter of a batch's room, but do not keep the stream's largest entry out for
// ever.
func TestVerdictsLeaveRoomForTheLargestEntry(t *testing.T) {
	t.Parallel()
	largest := mempool.LargestBeside()
	for _, room := range []int{0, largest - 1, largest, largest + 1, largest + largest/4,
		2 * largest, 8 * largest} {
		b := new(book)
		fits, shares := false, false
		for range 2 {
			share := b.verdictRoom(room)
			if share < 0 || share > room/4 {
				t.Errorf("verdicts may have %d of %d bytes", share, room)
			}
			fits, shares = fits || share+largest <= room, shares || share == room/4
		}
		if fits != (room >= largest) || !shares {
			t.Errorf("of %d bytes the largest entry, of %d, has its turn: %v; the verdicts have "+
				"theirs: %v", room, largest, fits, shares)
		}
	}
}
