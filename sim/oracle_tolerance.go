package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// Tolerance is the property that a group goes on only while no more servers have failed than it
// tolerates. After that it halts. Which majorities meet depends on memberships that change one at a
// time from run to run, so a run has one change at most.
const Tolerance order.Property = "tolerance"

// judgeTolerance looks for a delivery after too many failures.
func (s *simulation) judgeTolerance(id order.ServerID, d order.Delivery) {
	v := &s.servers[id]
	v.removed += len(d.Removed)
	if v.removed > s.options.tolerated {
		s.broken = append(s.broken, &order.Violation{Property: Tolerance, Evidence: []string{
			fmt.Sprintf("server %d A-delivers [epoch %d, round %d], with which %d servers have "+
				"been removed", id, d.Epoch, d.Round, v.removed),
			fmt.Sprintf("the group tolerates %d failures", s.options.tolerated),
		}})
	}
}
