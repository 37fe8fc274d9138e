package bench

import (
	"time"

	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/order"
)

// paced is a server's engine with several rounds in flight, which begin at even distances. The
// workload asks Hold before it makes a batch.
type paced struct {
	*interleave.Engine
	pace  *interleave.Pace
	begun time.Time
}

func newPaced(engine *interleave.Engine, inFlight int) *paced {
	return &paced{Engine: engine, pace: interleave.NewPace(inFlight), begun: time.Now()}
}

// Hold returns how long the next round should wait.
func (p *paced) Hold() time.Duration {
	if p.Solicited() {
		return 0
	}
	return p.pace.Wait(time.Since(p.begun))
}

// Undelivered implements order.Broadcaster. An empty message waits like any other.
func (p *paced) Undelivered() bool { return p.Engine.Undelivered() && p.Hold() == 0 }

// Broadcast implements order.Broadcaster.
func (p *paced) Broadcast(payload []byte) error {
	err := p.Engine.Broadcast(payload)
	if err == nil {
		now := time.Since(p.begun)
		p.pace.Broadcast(now)
		p.pace.Observe(now, p.InFlight())
	}
	return err
}

// Receive implements order.Broadcaster.
func (p *paced) Receive(from order.ServerID, frame []byte) error {
	err := p.Engine.Receive(from, frame)
	p.pace.Observe(time.Since(p.begun), p.InFlight())
	return err
}
