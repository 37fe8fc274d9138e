package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// watched is the engine of a life as its turns see it. What package shard/turn guarantees of a turn
// is judged as it happens: with generations around the engines, votes count by majorities, and a
// wrong order of sends and deliveries hardly ever has a consequence.
type watched struct {
	order.Broadcaster
	// weighed says that the engine was told an opinion in this turn, and unsent that it wants
	// something sent which was not.
	weighed, unsent bool
	// wrong is what a turn did in the wrong order.
	wrong string
}

// Receive is to come before the turn's opinions.
func (w *watched) Receive(from order.ServerID, frame []byte) error {
	if w.weighed {
		w.wrong = fmt.Sprintf("a turn gives it a frame of %d after an opinion", from)
	}
	return w.Broadcaster.Receive(from, frame)
}

// Suspect notes an opinion.
func (w *watched) Suspect(server order.ServerID) error {
	w.weighed = true
	return w.Broadcaster.Suspect(server)
}

// Trust notes an opinion.
func (w *watched) Trust(server order.ServerID) error {
	w.weighed = true
	return w.Broadcaster.Trust(server)
}

// Ready notes whether there is something to send.
func (w *watched) Ready() order.Ready {
	ready := w.Broadcaster.Ready()
	w.unsent = len(ready.Sends) > 0
	return ready
}

// judgeTurn judges what a turn wants done next.
func (s *simulation) judgeTurn(p *process, wrong bool, what string) {
	if wrong && !s.options.group.ByConsequence {
		s.breach(p.self, what)
	}
}
