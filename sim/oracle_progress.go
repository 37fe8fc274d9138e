package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// Progress is the property that a group with no more failures than it tolerates comes to rest,
// within bounded time after the last fault and submission, and with nothing left to do.
const Progress order.Property = "progress"

// judgeProgress looks for survivors with work left. It is called when no event is left, or when
// time is up.
func (s *simulation) judgeProgress(timeUp bool) {
	var evidence []string
	if timeUp {
		evidence = append(evidence, fmt.Sprintf("at %v, after %d events, there is no rest, "+
			"though the last fault or submission was before %v", s.now, s.events, s.faultsEnd))
	}
	for id := range s.servers {
		v := &s.servers[id]
		if v.crashed {
			continue
		}
		status := v.engine.Status()
		if status.Halted != "" || len(v.pool) > 0 || v.engine.Undelivered() || timeUp {
			evidence = append(evidence, fmt.Sprintf("server %d: %s",
				id, describeStatus(status, len(v.pool))))
		}
	}
	const shown = 8
	if more := len(evidence) - shown; more > 0 {
		evidence = append(evidence[:shown], fmt.Sprintf("and %d more", more))
	}
	if evidence != nil {
		s.broken = append(s.broken, &order.Violation{Property: Progress, Evidence: evidence})
	}
}

// describeStatus describes the state of a server.
func describeStatus(status order.Status, pool int) string {
	mode := "unreliable"
	if status.Reliable {
		mode = "reliable"
	}
	text := fmt.Sprintf("epoch %d, %s round %d, awaits %v, suspects %v, %d completed rounds "+
		"undelivered, %d payloads not broadcast",
		status.Epoch, mode, status.Round, status.Awaited, status.Suspected, status.Undelivered,
		pool)
	if status.Halted != "" {
		text += ", halted: " + status.Halted
	}
	return text
}
