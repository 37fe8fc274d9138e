package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/order"
)

// wallClock is the time of day of a server's machine. It advances while no process runs.
type wallClock struct {
	// skew is the difference between the clock and the true time while the clock is right, up to
	// accuracy.
	skew clock.Milliseconds
	// wrong is by how much the clock was moved at the instant moved. gains is how many milliseconds
	// it gains in each second since then.
	wrong clock.Milliseconds
	moved Instant
	gains clock.Milliseconds
}

const (
	// genesisTime is the time of the genesis block.
	genesisTime clock.Milliseconds = 1_700_000_000_000
	// accuracy is the maximum difference between a right clock and the true time.
	accuracy clock.Milliseconds = 2_000

	minuteMs = 60_000
	dayMs    = 1_440 * minuteMs
	yearMs   = 365 * dayMs
)

// drawDawn draws the true time at the beginning of a run: the shard is new, or nothing was written
// for a while.
func drawDawn(random *rand.Rand) clock.Milliseconds {
	return genesisTime + []clock.Milliseconds{0, 5_000, 10 * minuteMs, 7 * dayMs,
		2 * yearMs}[random.IntN(5)]
}

// drawSkew draws the difference between a right clock and the true time.
func drawSkew(random *rand.Rand) clock.Milliseconds {
	return clock.Milliseconds(random.Int64N(int64(2*accuracy))) - accuracy
}

// trueTime returns the time of day that a perfect clock shows now.
func (s *simulation) trueTime() clock.Milliseconds {
	return s.life.dawn + clock.Milliseconds(s.now/millisecond)
}

// timeOfDay returns what a server's clock shows now.
func (s *simulation) timeOfDay(id order.ServerID) clock.Milliseconds {
	w := &s.servers[id].wall
	return s.trueTime() + w.skew + w.off(s.now)
}

// off returns the difference between the clock and its right reading.
func (w *wallClock) off(now Instant) clock.Milliseconds {
	return w.wrong + w.gains*clock.Milliseconds((now-w.moved)/millisecond)/1000
}

// clockFault is a fault of a server's clock. The zero value sets the clock right.
type clockFault struct {
	wrong, gains clock.Milliseconds
	// stays reports that the clock is not set right afterwards.
	stays bool
	// down reports that the clock is moved while the server is down, between beginning and end.
	down bool
}

// String describes the fault.
func (f clockFault) String() string {
	text := fmt.Sprintf("clock moved by %v", time.Duration(f.wrong)*time.Millisecond)
	if f.gains != 0 {
		text = fmt.Sprintf("clock gains %d ms a second", f.gains)
	}
	if f.down {
		text += " while it is down"
	}
	if f.stays {
		text += ", for good"
	}
	return text
}

// clockFails moves a server's clock, and sets it right. A clock that is moved while its server is
// down is wrong from the next process on.
func (s *simulation) clockFails(d *disturbance, begins bool) {
	switch {
	case !d.clock.down && begins:
		s.moveClock(d.server, d.clock)
	case !d.clock.down && !d.clock.stays:
		s.moveClock(d.server, clockFault{})
	case !d.clock.down:
	case begins:
		if v := &s.servers[d.server]; v.process != nil && v.process.up() {
			s.stop(d.server)
			v.disk.crash(s.life.disks, s.mayBe(d.server, torn))
		}
	default:
		s.moveClock(d.server, d.clock)
		if s.servers[d.server].process != nil {
			s.bear(d.server)
		}
	}
}

func (s *simulation) moveClock(id order.ServerID, f clockFault) {
	w := &s.servers[id].wall
	w.wrong, w.gains, w.moved = f.wrong, f.gains, s.now
	s.trace.Note(s.now, 116, uint64(id), uint64(f.wrong), uint64(f.gains))
	s.trace.Say(s.now, "the clock of %d is %v from the right time",
		id, time.Duration(f.wrong)*time.Millisecond)
}

// clocks plans wrong clocks, mostly of fewer than a majority, so that the others decide the time.
// Several may agree on the wrong time.
func (d *disturber) clocks() {
	most := d.options.Servers / 2
	if most == 0 || d.random.IntN(8) == 0 {
		most = d.options.Servers
	}
	servers := d.random.Perm(d.options.Servers)[:1+d.random.IntN(most)]
	agreed := d.drawMove()
	for range 1 + d.random.IntN(4) {
		server := order.ServerID(servers[d.random.IntN(len(servers))])
		f := clockFault{wrong: agreed, stays: d.random.IntN(3) == 0}
		switch d.random.IntN(6) {
		case 0, 1:
			f.wrong = d.drawMove()
		case 2:
			f.wrong, f.gains = 0, clock.Milliseconds(d.random.IntN(2000)-1000)
		case 3:
			d.swings(server)
			continue
		}
		// Crashed servers stay away if more than a minority may crash.
		f.down = d.random.IntN(4) == 0 && d.options.Crashes <= (d.options.Servers-1)/2
		d.addClock(server, f)
	}
}

// swings plans that a clock jumps back and forth.
func (d *disturber) swings(server order.ServerID) {
	far := d.drawMove()
	for range 2 + d.random.IntN(4) {
		d.addClock(server, clockFault{wrong: far})
		far = -far
	}
}

func (d *disturber) addClock(server order.ServerID, f clockFault) {
	d.add(FaultClock, server, nil, fmt.Sprintf("%d's %v", server, f))
	d.plan[len(d.plan)-1].clock = f
}

// drawMove draws by how much a clock is moved: by decades, by slightly more or less than what other
// clocks still confirm, or by something between.
func (d *disturber) drawMove() clock.Milliseconds {
	size := []clock.Milliseconds{
		30 * yearMs, 60 * yearMs, clock.Milliseconds(d.random.Int64N(int64(7 * dayMs))),
		clock.Milliseconds(d.random.Int64N(minuteMs)),
		clock.Bound - accuracy + clock.Milliseconds(d.random.Int64N(int64(2*accuracy))),
	}[d.random.IntN(5)]
	if d.random.IntN(2) == 0 {
		return -size
	}
	return size
}
