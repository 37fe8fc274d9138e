package interleave

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
)

// Engine is one server's k engines, an order.Broadcaster. The loop that drives it is that of
// package allconcur. It is not safe for concurrent use.
type Engine struct {
	config  Config
	engines []*allconcur.Engine
	// round is the round in which this server A-broadcasts next. It is of engine turn.
	round order.Round
	turn  int
	// touched says which engines may have output that was not collected.
	touched []bool
	// halted is why this server stopped, once an engine has said so.
	halted string
	merge
}

var _ order.Borrower = (*Engine)(nil)

// New returns the engine of one server. An error wraps allconcur.ErrConfig.
func New(config Config) (*Engine, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Engine.FirstRound == 0 {
		config.Engine.FirstRound = 1
	}
	e := &Engine{config: config, round: config.Engine.FirstRound,
		touched: make([]bool, config.InFlight), merge: newMerge(config)}
	for number := range config.InFlight {
		engine, err := allconcur.New(config.engineConfig(number))
		if err != nil {
			return nil, fmt.Errorf("interleave: engine %d: %w", number, err)
		}
		e.engines = append(e.engines, engine)
	}
	return e, nil
}

// CanBroadcast reports whether this server may A-broadcast its message of the next round: the
// round's engine has completed the one before.
func (e *Engine) CanBroadcast() bool { return e.halted == "" && e.engines[e.turn].CanBroadcast() }

// Solicited reports whether CanBroadcast is true and some engine waits for a message of this
// server. If that engine has a later turn, the rounds up to its turn are due as well.
func (e *Engine) Solicited() bool {
	if !e.CanBroadcast() {
		return false
	}
	for _, engine := range e.engines {
		if engine.Solicited() {
			return true
		}
	}
	return false
}

// Undelivered reports whether a message waits for later rounds: in its engine, or for its turn.
func (e *Engine) Undelivered() bool {
	if e.halted != "" {
		return false
	}
	for _, engine := range e.engines {
		if engine.Undelivered() {
			return true
		}
	}
	return e.hasWaiting()
}

// InFlight returns how many rounds have this server's message and are not complete here.
func (e *Engine) InFlight() int {
	flying := 0
	for _, engine := range e.engines {
		if !engine.CanBroadcast() {
			flying++
		}
	}
	return flying
}

// Broadcast A-broadcasts payload as this server's message of the next round.
func (e *Engine) Broadcast(payload []byte) error {
	e.begin()
	if e.halted != "" {
		return e.haltedError()
	}
	if err := e.engines[e.turn].Broadcast(payload); err != nil {
		return e.checked(err)
	}
	e.touched[e.turn] = true
	e.round++
	if e.turn++; e.turn == len(e.engines) {
		e.turn = 0
	}
	return nil
}

// Receive takes one frame from a lane and gives it to its engine.
func (e *Engine) Receive(from order.ServerID, frame []byte) error {
	e.begin()
	if e.halted != "" {
		return e.haltedError()
	}
	number, err := numberOf(frame)
	switch {
	case err != nil:
		return fmt.Errorf("server %d: %w", from, err)
	case number >= len(e.engines):
		return fmt.Errorf("%w: from server %d for engine %d of %d", order.ErrFrame, from, number,
			len(e.engines))
	}
	e.touched[number] = true
	return e.checked(e.engines[number].Receive(from, frame))
}

// Suspect reports that the failure detector suspects a predecessor in the reliable digraph. All
// engines learn of it.
func (e *Engine) Suspect(server order.ServerID) error {
	e.begin()
	return e.tellAll(func(engine *allconcur.Engine) error { return engine.Suspect(server) })
}

// Trust reports that the detector no longer suspects a server. A server that an engine removed
// stays suspected.
func (e *Engine) Trust(server order.ServerID) error {
	e.begin()
	if e.isGone(server) {
		return nil
	}
	return e.tellAll(func(engine *allconcur.Engine) error { return engine.Trust(server) })
}

// tellAll tells all engines an opinion of the detector.
func (e *Engine) tellAll(tell func(*allconcur.Engine) error) error {
	if e.halted != "" {
		return e.haltedError()
	}
	for number, engine := range e.engines {
		e.touched[number] = true
		if err := tell(engine); err != nil {
			return e.checked(err)
		}
		if e.config.Fault == FaultOneEngineSuspects {
			break
		}
	}
	return nil
}

// UseMemory makes the engines take the memory of their own messages from a function.
func (e *Engine) UseMemory(take func(size int) []byte) {
	for _, engine := range e.engines {
		engine.UseMemory(take)
	}
}

// Horizon returns the round after which no engine has a use for any frame that it has received or
// made so far, or 0 if an engine knows of no such round.
func (e *Engine) Horizon() order.Round {
	last := order.Round(0)
	for number, engine := range e.engines {
		own := engine.Horizon()
		if own == 0 {
			return 0
		}
		last = max(last, e.config.numbered(number, own))
	}
	return last
}

// checked notes that an engine has halted, if that is its error.
func (e *Engine) checked(err error) error {
	if errors.Is(err, order.ErrHalted) {
		e.halted = e.haltedEngine()
	}
	return err
}

// haltedEngine returns why the first of the engines halted, or "".
func (e *Engine) haltedEngine() string {
	for number, engine := range e.engines {
		if reason := engine.Status().Halted; reason != "" {
			if len(e.engines) == 1 {
				return reason
			}
			return fmt.Sprintf("in engine %d: %s", number, reason)
		}
	}
	return ""
}

// haltedError matches order.ErrHalted and order.ErrNotNow.
func (e *Engine) haltedError() error {
	return fmt.Errorf("%w: %s (%w)", order.ErrHalted, e.halted, order.ErrNotNow)
}
