package shard

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// A removed member stays until each majority of the remaining members contains one that knows of
// the removal. A server that left as well, and a learner, do not count: their knowledge is lost
// with them.
func TestStaysUntilEnoughKnow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		know    []order.ServerID
		learner bool
		ends    bool
	}{
		"one of three":             {know: []order.ServerID{1}},
		"one that left as well":    {know: []order.ServerID{4}},
		"two of three":             {know: []order.ServerID{1, 2}, ends: true},
		"two, of which one forgot": {know: []order.ServerID{1, 2}, learner: true},
	} {
		m, chain := newTestMember(t, 5)
		chain.membership = generation.Membership{Number: 2, Members: []order.ServerID{1, 2, 3}}
		chain.former = []Former{{Server: 0, Left: 7}, {Server: 4, Left: 6}}
		for server := order.ServerID(1); server < 5; server++ {
			m.peer(server).Heights.Durable = 6
		}
		for _, server := range c.know {
			m.peer(server).Heights.Durable = 7
		}
		m.peer(2).Learner = c.learner
		for range m.config.Timing.Removed + 2 {
			m.leave()
			m.now++
		}
		if ended := errors.Is(m.end, ErrRemoved); ended != c.ends {
			t.Errorf("%s: ended %v", name, ended)
		}
	}
}
