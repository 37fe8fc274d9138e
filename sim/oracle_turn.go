package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// watched wraps the engine of a life, and checks what package shard/turn guarantees of a turn as it
// happens. With generations around the engines, votes count by majorities, and a wrong order of
// sends and deliveries hardly ever has a consequence.
type watched struct {
	order.Broadcaster
	turn.Completer
	// weighed reports that the engine was told an opinion in this turn, and unsent that it has
	// sends that were not made.
	weighed, unsent bool
	// wrong is what a turn did in the wrong order.
	wrong string
}

// Receive must come before the turn's opinions.
func (w *watched) Receive(from order.ServerID, frame []byte) error {
	if w.weighed {
		w.wrong = fmt.Sprintf("a turn gives it a frame of %d after an opinion", from)
	}
	return w.Broadcaster.Receive(from, frame)
}

// Suspect records an opinion.
func (w *watched) Suspect(server order.ServerID) error {
	w.weighed = true
	return w.Broadcaster.Suspect(server)
}

// Probe is an opinion, too. An engine that needs no probes gets none.
func (w *watched) Probe() {
	w.weighed = true
	if prober, probes := w.Broadcaster.(order.Prober); probes {
		prober.Probe()
	}
}

// Trust records an opinion.
func (w *watched) Trust(server order.ServerID) error {
	w.weighed = true
	return w.Broadcaster.Trust(server)
}

// Ready records whether there is something to send.
func (w *watched) Ready() order.Ready {
	ready := w.Broadcaster.Ready()
	w.unsent = len(ready.Sends) > 0
	return ready
}

// judgeTurn judges the next action of a turn.
func (s *simulation) judgeTurn(p *process, wrong bool, what string) {
	if wrong && !s.options.group.ByConsequence {
		s.breach(p.self, what)
	}
}
