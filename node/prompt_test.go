package node_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
)

// prompting makes all nodes deliver promptly.
func prompting(_ int, config *home.Config) { config.Ordering.Prompt = true }

// TestPromptShard: with prompt delivery, nodes take writes, go on when one is killed, and keep what
// was acknowledged as durable when all are.
func TestPromptShard(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, prompting)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for life := range 2 {
		for k := range 20 {
			s.submit(k%3, report.LevelDurable, s.transfer())
		}
		s.kill(life)
		for k := range 10 {
			s.submit((life+1+k%2)%3, report.LevelDurable, s.transfer())
		}
		s.start(life)
		s.ordering(s.all()...)
		s.same()
		s.killAllAndStart(func() {})
	}
	s.submit(0, report.LevelDurable, s.transfer())
	s.same()
}
