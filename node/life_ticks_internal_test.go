package node

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/node/home"
)

// A member that rests gets its ticks late, but never too few or too many of them, whatever wakes
// the loop meanwhile.
func TestTicksOfAMemberThatRests(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := time.UnixMilli(rapid.Int64Range(0, 10_000).Draw(t, "start"))
		now := start
		var p tickPace
		p.plan(now, 1)
		timer := now.Add(tickEvery)
		ticks, wakes, beats := 0, 0, 0
		for now.Before(start.Add(30 * time.Second)) {
			input := now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t,
				"an input after ms")) * time.Millisecond)
			due := !input.Before(timer)
			if now = input; due {
				now = timer
			}
			late := p.passed(now, due)
			ticks += late
			if due {
				ticks, wakes = ticks+1, wakes+1
			}
			passed := now.Sub(start)
			if behind := passed - time.Duration(ticks)*tickEvery; behind < -tickEvery ||
				behind > 2*tickEvery {
				t.Fatalf("%d ticks in %v", ticks, passed)
			}
			if due || p.resting() {
				wait := p.next(now, 10)
				if timer = now.Add(wait); wait > 11*tickEvery {
					t.Fatalf("the next tick comes after %v", wait)
				}
				if timer.UnixMilli()%restBeat.Milliseconds() == 0 {
					beats++
				}
			}
		}
		if wakes > 61 || beats == 0 {
			t.Fatalf("%d ticks woke the loop in 30 s, %d plans were for a beat", wakes, beats)
		}
	})
}

// A loop that does not rest gets one tick each time, also after the process stood still. After a
// rest it gets no more than it meant to sleep for.
func TestTicksAfterAPause(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	var p tickPace
	p.plan(now, 1)
	now = now.Add(time.Hour)
	if late := p.passed(now, false); late != 0 {
		t.Errorf("%d late ticks without a rest", late)
	}
	if late := p.passed(now, true); late != 0 {
		t.Errorf("%d late ticks without a rest", late)
	}
	if wait := p.next(now, 1); wait != tickEvery || p.resting() {
		t.Errorf("the next tick after %v", wait)
	}
	for _, due := range []bool{false, true} {
		p.plan(now, 1)
		if wait := p.next(now, 10); wait != time.Second || !p.resting() {
			t.Errorf("the next tick after %v", wait)
		}
		now = now.Add(time.Hour)
		if late := p.passed(now, due); late != 9 {
			t.Errorf("%d late ticks after a rest for 10, due: %v", late, due)
		}
	}
}

// Rounds wake a loop that rests, and no other.
func TestRoundsWakeTheLoop(t *testing.T) {
	t.Parallel()
	l := newLife(&Node{home: &home.Home{Dir: t.TempDir()}})
	l.pace.movedAt.Store(time.Now().UnixNano())
	for _, rests := range []bool{false, true} {
		l.pace.rests.Store(rests)
		l.onMoved()
		select {
		case <-l.wake:
			if !rests {
				t.Error("the loop was woken for nothing")
			}
		default:
			if rests {
				t.Error("the loop goes on resting")
			}
		}
	}
}
