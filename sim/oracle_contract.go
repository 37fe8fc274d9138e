package sim

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/ledgerd/ledgerd/order"
)

// Contract is the contract of order.Broadcaster apart from deliveries: an engine does not panic,
// does not refuse valid input, and sends no frame to itself or to an unknown server.
const Contract order.Property = "contract"

// breach records a breach of the contract by a server's engine.
func (s *simulation) breach(id order.ServerID, what string) {
	s.broken = append(s.broken, &order.Violation{Property: Contract,
		Evidence: []string{fmt.Sprintf("server %d at %v: %s", id, s.now, what)}})
}

// halted reports whether an engine refuses something because it has halted, which is allowed. The
// liveness phase judges whether it had reason to.
func (s *simulation) halted(id order.ServerID, err error) bool {
	if !errors.Is(err, order.ErrHalted) {
		return false
	}
	s.trace.Say(s.now, "%d has halted: %s", id, s.servers[id].engine.Status().Halted)
	return true
}

// recoverPanic turns a panic of an engine into a breach. It is deferred around the whole run.
func (s *simulation) recoverPanic() {
	cause := recover()
	if cause == nil {
		return
	}
	s.breach(s.current, fmt.Sprintf("panic: %v", cause))
	evidence := &s.broken[len(s.broken)-1].Evidence
	// The relevant frames of the stack follow those of the panic itself. Each is a pair of lines,
	// function and place.
	lines := strings.Split(string(debug.Stack()), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "panic(") && i+2 < len(lines) {
			for _, shown := range lines[i+2 : min(i+14, len(lines))] {
				*evidence = append(*evidence, strings.TrimSpace(shown))
			}
			return
		}
	}
}
