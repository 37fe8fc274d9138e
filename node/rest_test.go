package node_test

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
)

// TestIdleNodesRest: nodes without traffic rest, with each way of delivery. A transaction wakes all
// of them, and so does the end of one of them.
func TestIdleNodesRest(t *testing.T) {
	t.Parallel()
	for name, prompt := range map[string]bool{"prompt": true, "not prompt": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShard(t, 3, func(_ int, config *home.Config) {
				config.Ordering.Prompt = prompt
			})
			rest := func(rest bool, which ...int) {
				t.Helper()
				for _, i := range which {
					s.eventually(fmt.Sprintf("node %d rests: %v", i, rest), func() bool {
						return s.nodes[i].Rests() == rest
					})
				}
			}
			s.start(s.all()...)
			s.ordering(s.all()...)
			rest(true, s.all()...)
			s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
			rest(false, s.all()...)
			rest(true, s.all()...)
			s.kill(2)
			rest(false, 0, 1)
			s.submit(1, report.LevelDurable, s.transfer())
			s.same()
			s.start(2)
			s.ordering(s.all()...)
			s.same()
		})
	}
}
