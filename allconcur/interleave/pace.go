package interleave

import "time"

// Pace spreads the A-broadcasts of a server that always has something to say over the time that a
// round takes. Without it, the rounds in flight may bunch: all of them begin together, and a
// message that just missed them waits for a whole round, as with one in flight. A round that began
// late delays those after it, and nothing ever makes up for that.
//
// The driver has the clock. It calls Broadcast for each A-broadcast and Observe after each input,
// and A-broadcasts once Wait returns 0. It must not wait if the engine is solicited.
type Pace struct {
	// inFlight is k.
	inFlight int
	// began are the instants of the A-broadcasts in rounds that are in flight, oldest first. last
	// is that of the latest.
	began []time.Duration
	last  time.Duration
	// takes is how long rounds took lately, from A-broadcast to completion.
	takes time.Duration
}

// takesShare is the weight of one round in Pace.takes, as a part of the whole: one in so many.
const takesShare = 8

// NewPace returns the pace of a server with that many rounds in flight.
func NewPace(inFlight int) *Pace { return &Pace{inFlight: inFlight} }

// Broadcast says that the server A-broadcasts.
func (p *Pace) Broadcast(now time.Duration) {
	p.began = append(p.began, now)
	p.last = now
}

// Observe says how many rounds are in flight.
func (p *Pace) Observe(now time.Duration, flying int) {
	for len(p.began) > flying {
		took := now - p.began[0]
		p.began = p.began[:copy(p.began, p.began[1:])]
		if p.takes == 0 {
			p.takes = took
			continue
		}
		p.takes += (took - p.takes) / takesShare
	}
}

// Wait returns how long to wait before the next A-broadcast: until nine tenths of an even share of
// a round have passed since the last one. The tenth is room for rounds that come early. It is 0 if
// nothing is in flight.
func (p *Pace) Wait(now time.Duration) time.Duration {
	if len(p.began) == 0 {
		return 0
	}
	return max(0, p.last+p.takes/time.Duration(p.inFlight)*9/10-now)
}
