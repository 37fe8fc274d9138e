package node

import (
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/internal/beat"
)

// A member that rests gets no ticks for up to a second, and then those that are due, all at once.
// Before any other input it gets the ticks that passed by then. So the machine counts as if it had
// got each tick in time, and the process sleeps meanwhile. Once rounds run, ticks come at their
// time again.

// restBeat is when a member that rests gets its ticks: at whole multiples of this, as heartbeats
// that are sent seldom.
const restBeat = 500 * time.Millisecond

// quietAfter is how long no round may have run before a node counts as quiet.
const quietAfter = 2 * time.Second

// tickPace knows when ticks are given. Only the loop uses it, except for rests and movedAt.
type tickPace struct {
	from    time.Time // when the last tick was given, or would have been
	planned int       // ticks from then until the timer
	// rests says that the loop may sleep for longer than a tick. movedAt is when rounds ran last,
	// in nanoseconds since 1970.
	rests   atomic.Bool
	movedAt atomic.Int64
}

// plan sets how many ticks pass until the timer.
func (p *tickPace) plan(from time.Time, ticks int) { p.from, p.planned = from, ticks }

// resting reports whether more than one tick was to pass.
func (p *tickPace) resting() bool { return p.planned > 1 }

// passed returns how many ticks are late, and counts them. With due, the timer rang, and one more
// tick is due now. If the process stood still, no more ticks passed than were planned.
func (p *tickPace) passed(now time.Time, due bool) (late int) {
	if due {
		late = int((now.Sub(p.from) + tickEvery/2) / tickEvery)
		late = max(min(late, p.planned), 1) - 1
		p.from, p.planned = now, 1
		return late
	}
	if !p.resting() {
		return 0
	}
	late = max(0, min(int(now.Sub(p.from)/tickEvery), p.planned-1))
	p.from, p.planned = p.from.Add(time.Duration(late)*tickEvery), p.planned-late
	return late
}

// next plans the next tick, if the machine needs none before that many have passed. It returns how
// long it is until then.
func (p *tickPace) next(now time.Time, rest int) time.Duration {
	last := p.from.Add(time.Duration(rest) * tickEvery)
	if before := last.Add(-restBeat); before.After(now) {
		last = beat.Next(before, restBeat)
	}
	if ticks := int((last.Sub(p.from) + tickEvery/2) / tickEvery); rest > 1 && ticks > 1 {
		p.plan(p.from, ticks)
		return max(last.Sub(now), 0)
	}
	p.plan(p.from, 1)
	return beat.Until(now, tickEvery) // with the heartbeats
}

// nextTick plans the next tick and returns how long it is until then.
func (l *life) nextTick() time.Duration {
	l.pace.rests.Store(true) // from here on onMoved wakes the loop
	rest := 1
	if l.quiet() {
		l.mu.Lock()
		rest = l.machine.Rest()
		l.mu.Unlock()
	}
	wait := l.pace.next(time.Now(), rest)
	l.pace.rests.Store(l.pace.resting())
	return wait
}

// onMoved is called by the driver while rounds run.
func (l *life) onMoved() {
	now := time.Now().UnixNano()
	if before := l.pace.movedAt.Swap(now); now-before > int64(quietAfter) {
		l.detector.Hurry()
	}
	if l.pace.rests.Load() {
		l.wakeUp()
	}
}

// quiet reports whether no round runs, and none has run for a while.
func (l *life) quiet() bool {
	if status := l.driver.Status(); !status.WaitingSince.IsZero() {
		return false
	}
	return time.Since(time.Unix(0, l.pace.movedAt.Load())) > quietAfter
}
