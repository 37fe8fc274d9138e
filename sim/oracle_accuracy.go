package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// Accuracy is the property that only failed servers are removed. It holds under a perfect detector
// only.
const Accuracy order.Property = "accuracy"

// judgeAccuracy checks that no live server is removed.
func (s *simulation) judgeAccuracy(id order.ServerID, d order.Delivery) {
	for _, removed := range d.Removed {
		if int(removed) < len(s.servers) && !s.servers[removed].crashed {
			s.broken = append(s.broken, &order.Violation{Property: Accuracy, Evidence: []string{
				fmt.Sprintf("server %d A-delivers [epoch %d, round %d], which removes server %d",
					id, d.Epoch, d.Round, removed),
				fmt.Sprintf("server %d has not failed", removed),
			}})
		}
	}
}
