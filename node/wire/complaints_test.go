package wire

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// What one peer sends is complained about now and then, and the memory for that is bounded.
func TestComplaints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c complaints
		for _, step := range []struct {
			peer rdmanet.PeerID
			wait time.Duration
			due  bool
		}{{"a", 0, true}, {"a", 0, false}, {"b", 0, true}, {"a", complaintEvery, true}} {
			time.Sleep(step.wait)
			if due := c.due(step.peer); due != step.due {
				t.Errorf("%+v: due %v", step, due)
			}
		}
		for i := range 3 * complaintsMax {
			c.due(rdmanet.PeerID(fmt.Sprint(i)))
		}
		if len(c.last) > complaintsMax {
			t.Errorf("%d peers are remembered", len(c.last))
		}
	})
}
