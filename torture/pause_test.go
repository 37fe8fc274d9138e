//go:build linux

package torture

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestPaused stops a node that takes writes for longer than the others wait for it, and lets it go
// on. It does so with two nodes in turn.
func TestPaused(t *testing.T) {
	t.Parallel()
	const suspectAfter = 1500 * time.Millisecond
	s := newRunningShard(t, 4, "LEDGERD_NODE_ORDERING_HEARTBEAT=200ms",
		"LEDGERD_NODE_ORDERING_SUSPECT_AFTER="+suspectAfter.String())
	acme := s.newParty("acme", []string{"cash"}, 0, 1, 2, 3)
	var promises []promise
	for round, paused := range []int{3, 0} {
		// The paused node has writes under way, which it admitted just before.
		ctx, cancel := context.WithCancel(context.Background())
		var kept []promise
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			kept = acme.at(s.clientOf(paused)).writer(ctx, fmt.Sprintf("paused-%d", round))
		}()
		s.eventually("the node to be paused takes writes", func() error {
			_, err := s.nodes[paused].Record(ctx, acme.record(fmt.Sprintf("paused-%d-3", round)))
			return err
		})
		s.signal(syscall.SIGSTOP, paused)
		begun := time.Now()
		others := s.others(paused)
		writer := acme.at(s.clientOf(others...))
		for k := 0; k < 20 || time.Since(begun) < 2*suspectAfter; k++ {
			name := fmt.Sprintf("during-%d-%d", round, k)
			status := writer.post(t, writer.put(name, name), ledgerdv1.Level_LEVEL_DURABLE)
			promises = append(promises, promise{status.GetId(), status.GetHeight(), name, name})
		}
		s.ordering(others...)
		s.signal(syscall.SIGCONT, paused)
		s.ordering(s.all()...)
		cancel()
		<-ended
		promises = append(promises, kept...)
		s.same(s.all()...)
		t.Logf("node %d was paused for %v, and is back", paused,
			time.Since(begun).Round(time.Millisecond))
	}
	s.kept(acme, promises)
	s.exports(s.all()...)
	s.stop(s.all()...)
	s.verified(s.all()...)
}
