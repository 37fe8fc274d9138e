package detector

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

var testTiming = Timing{Heartbeat: 100 * time.Millisecond, Timeout: time.Second,
	Grace: 300 * time.Millisecond}

// story runs a machine that watches servers 1 and 2 through lines "at 250ms heard 1 #7", and
// returns its suspicions and their times.
func story(t *testing.T, lines string) string {
	t.Helper()
	start := time.Unix(1_000_000, 0)
	m, err := NewMachine(testTiming, []order.ServerID{1, 2}, start)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	tell := func(now time.Time, suspicions []Suspicion) {
		for _, s := range suspicions {
			if s.TakenBack {
				told = append(told, fmt.Sprintf("%v: %d is trusted again", now.Sub(start),
					s.Server))
				continue
			}
			told = append(told, fmt.Sprintf("%v: %d, %v", now.Sub(start), s.Server, s.Cause))
		}
	}
	now := start
	// tickUntil advances the clock from one tick to the next, as Detector does.
	tickUntil := func(until time.Time) {
		for m.Next().Before(until) {
			now = m.Next()
			_, suspicions := m.Tick(now)
			tell(now, suspicions)
		}
		now = until
	}
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		var at, event string
		var server order.ServerID
		var incarnation rdmanet.Incarnation
		if _, err := fmt.Sscanf(line, "at %s %s %d #%d", &at, &event, &server,
			&incarnation); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		offset, err := time.ParseDuration(at)
		if err != nil {
			t.Fatal(err)
		}
		if event == "wake" { // after a pause without ticks
			now = start.Add(offset)
			_, suspicions := m.Tick(now)
			tell(now, suspicions)
			continue
		}
		tickUntil(start.Add(offset))
		var suspicions []Suspicion
		switch event {
		case "heard":
			suspicions = m.Heard(server, incarnation, 0, now)
		case "down":
			m.Disconnected(server, now)
		case "up":
			m.Connected(server)
		case "restarted":
			suspicions = m.Restarted(server, incarnation)
		case "unreachable":
			suspicions = m.Unreachable(server, incarnation, errors.New("lane broke"))
		case "lost":
			suspicions = m.Lost(server, errors.New("frames are lost"))
		case "elsewhere", "later":
			suspicions = m.HeardElsewhere(server, incarnation, event == "later", 0, now)
		case "until":
		default:
			t.Fatalf("%q", line)
		}
		tell(now, suspicions)
	}
	return strings.Join(told, "\n")
}

func TestStories(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, lines, want string }{
		{"silence", `
			at 900ms heard 1 #7
			at 1500ms until 0 #0`,
			"1s: 2, no heartbeat for 1s"},
		{"a heartbeat that is just too late, and more patience since", `
			at 900ms heard 2 #7
			at 1001ms heard 1 #7
			at 1500ms heard 2 #7
			at 2300ms heard 2 #7
			at 2890ms until 0 #0`,
			"1s: 1, no heartbeat for 1s\n1.001s: 1 is trusted again"},
		{"silence that a heartbeat of another eon breaks", `
			at 900ms heard 2 #7
			at 900ms elsewhere 1 #7
			at 1700ms later 1 #7
			at 1800ms heard 2 #7
			at 2600ms until 0 #0`,
			""},
		{"a last life's heartbeat of an earlier eon, overtaken", `
			at 500ms heard 1 #8
			at 600ms elsewhere 1 #7
			at 600ms heard 2 #1
			at 700ms later 2 #2`,
			"700ms: 2, it restarted as incarnation 2"},
		{"refused, and there all the same", `
			at 500ms heard 1 #7
			at 600ms down 1 #0
			at 610ms unreachable 1 #7
			at 620ms heard 1 #7
			at 700ms up 1 #0
			at 800ms heard 1 #7
			at 900ms unreachable 1 #7`,
			"610ms: 1, lane broke\n800ms: 1 is trusted again\n900ms: 1, lane broke"},
		{"what is lost is not forgiven", `
			at 500ms heard 1 #7
			at 500ms heard 2 #7
			at 600ms lost 1 #0
			at 600ms unreachable 2 #7
			at 700ms heard 1 #7
			at 700ms lost 2 #0
			at 800ms heard 2 #7`,
			"600ms: 1, frames are lost\n600ms: 2, lane broke"},
		{"nor is a restart", `
			at 500ms heard 1 #7
			at 600ms heard 1 #8
			at 700ms heard 1 #7
			at 800ms heard 1 #8
			at 900ms heard 2 #1`,
			"600ms: 1, it restarted as incarnation 8"},
		{"suspected once", `
			at 900ms heard 2 #7
			at 1200ms unreachable 1 #0
			at 1300ms restarted 1 #9
			at 1400ms until 0 #0`,
			"1s: 1, no heartbeat for 1s"},
		{"a connection that does not come back", `
			at 500ms heard 1 #7
			at 500ms heard 2 #7
			at 600ms down 1 #0
			at 1400ms until 0 #0`,
			"900ms: 1, its connection is down for 300ms"},
		{"a connection that comes back late, and more patience since", `
			at 500ms heard 1 #7
			at 500ms heard 2 #7
			at 600ms down 1 #0
			at 1000ms up 1 #0
			at 1100ms heard 1 #7
			at 1200ms down 1 #0
			at 1200ms heard 2 #7
			at 1750ms up 1 #0
			at 1755ms heard 1 #7
			at 1760ms down 1 #0
			at 2000ms heard 2 #7
			at 2360ms until 0 #0
			at 2361ms until 0 #0`,
			"900ms: 1, its connection is down for 300ms\n1.1s: 1 is trusted again\n2.36s: 1, " +
				"its connection is down for 600ms"},
		{"a connection that comes back", `
			at 600ms heard 1 #7
			at 600ms heard 2 #7
			at 600ms down 1 #0
			at 899ms up 1 #0
			at 1500ms until 0 #0`,
			""},
		{"restart", `
			at 100ms heard 1 #7
			at 200ms restarted 1 #7
			at 300ms restarted 1 #8`,
			"300ms: 1, it restarted as incarnation 8"},
		{"restart that only its heartbeat tells", `
			at 100ms heard 1 #7
			at 300ms heard 1 #8`,
			"300ms: 1, it restarted as incarnation 8"},
		{"news of the life that it takes part in", `
			at 100ms restarted 1 #7
			at 200ms heard 1 #7
			at 300ms until 0 #0`,
			""},
		{"a lane breaks", `
			at 100ms heard 1 #7
			at 200ms unreachable 1 #7`,
			"200ms: 1, lane broke"},
		{"a lane to its earlier life breaks", `
			at 100ms heard 1 #7
			at 200ms unreachable 1 #6
			at 300ms until 0 #0`,
			""},
		{"not watched here", `
			at 100ms unreachable 3 #6
			at 100ms down 3 #0
			at 300ms restarted 3 #9`,
			""},
		{"this process was stopped", `
			at 100ms heard 1 #7
			at 100ms heard 2 #7
			at 150ms down 2 #0
			at 60s wake 0 #0
			at 60100ms up 2 #0
			at 60900ms heard 1 #7
			at 61500ms until 0 #0`,
			"1m1s: 2, no heartbeat for 1s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := story(t, test.lines); got != test.want {
				t.Errorf("suspected\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// A server that is heard in time is never suspected. A server that falls silent is always
// suspected, within the timeout that the past taught.
func TestCompleteAndAccurate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		m, err := NewMachine(testTiming, []order.ServerID{1, 2}, now)
		if err != nil {
			t.Fatal(err)
		}
		end := now.Add(10 * time.Second)
		dies := now.Add(time.Duration(rapid.IntRange(0, 8000).Draw(t,
			"server 2 dies after ms")) * time.Millisecond)
		heard := map[order.ServerID]time.Time{1: now, 2: now}
		beats := 0
		for now.Before(end) {
			now = now.Add(time.Duration(rapid.IntRange(1, 150).Draw(t, "ms")) * time.Millisecond)
			beat, suspicions := m.Tick(now)
			if beat {
				beats++
			}
			for _, s := range suspicions {
				if now.Sub(heard[s.Server]) < testTiming.Timeout {
					t.Fatalf("%d is suspected %v after it was heard", s.Server,
						now.Sub(heard[s.Server]))
				}
				if s.Server == 1 {
					t.Fatal("the one that is heard is suspected")
				}
			}
			if now.Sub(heard[1]) >= 500*time.Millisecond {
				heard[1] = now
				m.Heard(1, 7, 0, now)
			}
			if now.Before(dies) {
				heard[2] = now
				m.Heard(2, 7, 0, now)
			}
			w := m.find(2)
			timeout := w.link.timeout(m.timing)
			if timeout < testTiming.Timeout || timeout > 2*testTiming.Timeout {
				t.Fatalf("a timeout of %v", timeout)
			}
			if silence := now.Sub(heard[2]); w.state == trusted &&
				silence > timeout+150*time.Millisecond || w.state != trusted && silence < timeout {
				t.Fatalf("server 2, silent for %v with a timeout of %v: state %d", silence, timeout,
					w.state)
			}
			if m.Next().Sub(now) > testTiming.Heartbeat {
				t.Fatal("the next heartbeat is late")
			}
		}
		if beats < 60 {
			t.Fatalf("%d heartbeats in 10 s", beats)
		}
	})
}

// While a server is quiet, its heartbeats come seldom, and they say so. A watcher never suspects it
// as it becomes quiet and busy. Once it falls silent, a watcher knows after the timeout if the last
// heartbeat said that the next comes soon, and else as much later as that one was to come.
func TestQuietHeartbeats(t *testing.T) {
	t.Parallel()
	const delay = 5 * time.Millisecond
	rapid.Check(t, func(t *rapid.T) {
		timing, err := testTiming.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		start := time.Unix(1_000_000, 0)
		sender, err := NewMachine(testTiming, nil, start)
		if err != nil {
			t.Fatal(err)
		}
		watcher, err := NewMachine(testTiming, []order.ServerID{1}, start)
		if err != nil {
			t.Fatal(err)
		}
		watcher.SetQuiet(rapid.Bool().Draw(t, "the watcher is quiet itself"))
		now, quiet := start, false
		var heard time.Time
		var said time.Duration
		beats := map[bool]int{}
		tick := func(at time.Time) {
			for watcher.Next().Before(at) {
				if _, suspicions := watcher.Tick(watcher.Next()); len(suspicions) > 0 {
					t.Fatalf("suspected after %v: %v", watcher.Next().Sub(start), suspicions)
				}
			}
			now = at
			sender.SetQuiet(quiet)
			if due, _ := sender.Tick(now); due {
				beats[quiet]++
				heard, said = now.Add(delay), sender.UntilNext(now)
				watcher.Heard(1, 7, said, heard)
			}
		}
		tick(start)
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			for until := now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t,
				"ms")) * time.Millisecond); ; {
				if !sender.Next().Before(until) {
					now = until
					break
				}
				tick(sender.Next())
			}
			if quiet = !quiet; !quiet {
				tick(now) // Hurry
				if next := sender.Next().Sub(now); next > timing.Heartbeat {
					t.Fatalf("hurried, the next heartbeat comes after %v", next)
				}
			}
		}
		if most := int(now.Sub(start)/timing.Heartbeat) + 2; beats[true]+beats[false] > most {
			t.Fatalf("%v heartbeats in %v", beats, now.Sub(start))
		}
		want := max(timing.Timeout, said+timing.Timeout-timing.Heartbeat)
		for {
			next := watcher.Next()
			if _, suspicions := watcher.Tick(next); len(suspicions) == 0 {
				continue
			}
			if after := next.Sub(heard); after < want || after > want+delay {
				t.Fatalf("suspected %v after a heartbeat that promised the next within %v; "+
					"want %v", after, said, want)
			}
			return
		}
	})
}

func TestQuietHeartbeatsAreFewer(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	m, err := NewMachine(testTiming, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	count := func(quiet bool) (beats int) {
		m.SetQuiet(quiet)
		for end := now.Add(10 * time.Second); m.Next().Before(end); {
			now = m.Next()
			if due, _ := m.Tick(now); due {
				beats++
			}
		}
		return beats
	}
	if busy, quiet := count(false), count(true); busy < 99 || quiet > 21 || quiet < 19 {
		t.Errorf("%d heartbeats in 10 s, %d in quiet ones", busy, quiet)
	}
}

// A process that stood still finds no fault with the others for it, however long that was, whether
// it was quiet or not, and with any timeout.
func TestPausesAreNobodysFault(t *testing.T) {
	t.Parallel()
	const heartbeat = 100 * time.Millisecond
	for timeout := 3 * heartbeat; timeout <= 10*heartbeat; timeout += heartbeat {
		for _, quiet := range []bool{false, true} {
			for i := range 1000 {
				pause := 2*heartbeat + time.Duration(i/20)*heartbeat/5
				now := time.Unix(1_000_000, 0)
				m, err := NewMachine(Timing{Heartbeat: heartbeat, Timeout: timeout},
					[]order.ServerID{1}, now)
				if err != nil {
					t.Fatal(err)
				}
				m.SetQuiet(quiet)
				end, heard := now.Add(2*time.Second+time.Duration(i%20)*heartbeat/4), now
				for now.Before(end) {
					if now = m.Next(); !now.Before(heard) {
						now, heard = heard, heard.Add(heartbeat)
						m.Heard(1, 7, heartbeat, now)
						continue
					}
					if _, suspicions := m.Tick(now); len(suspicions) > 0 {
						t.Fatalf("suspected: %v", suspicions)
					}
				}
				now = now.Add(pause)
				_, suspicions := m.Tick(now)
				if len(suspicions) > 0 {
					t.Errorf("timeout %v, quiet: %v, suspected after a pause of %v", timeout, quiet,
						pause)
				}
			}
		}
	}
}

// A member that promises its next heartbeat for tomorrow is not trusted until then.
func TestNobodyIsQuietForLong(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	m, err := NewMachine(testTiming, []order.ServerID{1}, now)
	if err != nil {
		t.Fatal(err)
	}
	m.Heard(1, 7, 24*time.Hour, now)
	if timeout := m.find(1).link.timeout(m.timing); timeout > m.timing.Quiet+m.timing.Timeout {
		t.Errorf("a timeout of %v", timeout)
	}
}

// Detectors that began at different times send their heartbeats at the same times, and nothing else
// wakes them while all is well. So one that watches another wakes once in a period.
func TestBeatsCoincide(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		timing := testTiming
		timing.Heartbeat = time.Duration(rapid.IntRange(1, 300).Draw(t, "heartbeat in ms")) *
			time.Millisecond
		start := time.Unix(rapid.Int64Range(-1000, 2_000_000_000).Draw(t, "start"), 0)
		end := start.Add(20 * timing.Heartbeat)
		wakes := make(map[time.Time]int)
		for i := range 2 {
			now := start.Add(time.Duration(rapid.Int64Range(0, int64(timing.Heartbeat)-1).Draw(t,
				"began after")))
			m, err := NewMachine(timing, []order.ServerID{order.ServerID(1 + i)}, now)
			if err != nil {
				t.Fatal(err)
			}
			if beat, _ := m.Tick(now); !beat {
				t.Fatal("the first heartbeat is not due at once")
			}
			for next := m.Next(); next.Before(end); next = m.Next() {
				if gap := next.Sub(now); gap <= 0 || gap > timing.Heartbeat {
					t.Fatalf("heartbeats %v apart", gap)
				}
				now = next
				if beat, suspicions := m.Tick(now); !beat || len(suspicions) > 0 {
					t.Fatalf("it woke for no heartbeat, suspicions: %v", suspicions)
				}
				m.Heard(order.ServerID(1+i), 7, 0, now)
				wakes[now]++
			}
		}
		for at, count := range wakes {
			if count != 2 && at.Sub(start) >= timing.Heartbeat {
				t.Fatalf("only %d of 2 woke after %v", count, at.Sub(start))
			}
		}
		if len(wakes) > 21 {
			t.Fatalf("%d times in 20 periods", len(wakes))
		}
	})
}

// However late heartbeats come, if there is a bound, mistakes end after a few. And the patience is
// bounded.
func TestMistakesEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		m, err := NewMachine(testTiming, []order.ServerID{1}, now)
		if err != nil {
			t.Fatal(err)
		}
		limit := rapid.IntRange(100, 8000).Draw(t, "longest gap in ms")
		mistakes := 0
		for range 300 {
			next := now.Add(time.Duration(rapid.IntRange(1, limit).Draw(t,
				"gap in ms")) * time.Millisecond)
			for m.Next().Before(next) {
				now = m.Next()
				_, suspicions := m.Tick(now)
				mistakes += len(suspicions)
			}
			now = next
			if trusts := m.Heard(1, 7, 0, now); len(trusts) > 1 || m.find(1).state != trusted {
				t.Fatalf("heard: %v, state %d", trusts, m.find(1).state)
			}
			if timeout := m.find(1).link.timeout(m.timing); timeout > m.timing.TimeoutMax ||
				timeout < m.timing.Timeout {
				t.Fatalf("a timeout of %v", timeout)
			}
		}
		// The margin of 900 ms is 7.2 s after three mistakes, plus the average gap.
		if mistakes > 4 {
			t.Fatalf("%d mistakes with gaps of up to %d ms", mistakes, limit)
		}
	})
}

// The machine of the next run knows what the last one learned. Ten minutes without a mistake
// restore the original patience.
func TestPatienceOutlivesRunsAndFades(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	first, err := NewMachine(testTiming, []order.ServerID{1, 2}, now)
	if err != nil {
		t.Fatal(err)
	}
	first.Heard(1, 7, 0, now)
	var suspicions []Suspicion
	for range 30 {
		now = now.Add(100 * time.Millisecond)
		_, more := first.Tick(now)
		suspicions = append(suspicions, more...)
	}
	if len(suspicions) != 2 {
		t.Fatalf("%v", suspicions)
	}
	if trusts := first.Heard(1, 7, 0, now); len(trusts) != 1 || !trusts[0].TakenBack {
		t.Fatalf("%v", trusts)
	}
	second, err := NewMachine(testTiming, []order.ServerID{1, 3}, now)
	if err != nil {
		t.Fatal(err)
	}
	second.learn(first)
	if timeout := second.find(1).link.timeout(second.timing); timeout != 1900*time.Millisecond ||
		!second.find(1).deadline.Equal(now.Add(timeout)) {
		t.Errorf("a timeout of %v", timeout)
	}
	if timeout := second.find(3).link.timeout(second.timing); timeout != time.Second {
		t.Errorf("a timeout of %v for a new one", timeout)
	}
	for range calmBeats {
		now = now.Add(100 * time.Millisecond)
		second.Heard(1, 7, 0, now)
	}
	if timeout := second.find(1).link.timeout(second.timing); timeout > 1001*time.Millisecond {
		t.Errorf("a timeout of %v after a long calm", timeout)
	}
}

func TestTimingsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for _, timing := range []Timing{{Heartbeat: -1}, {Heartbeat: time.Second, Timeout: time.Second},
		{Quiet: 1}, {Quiet: time.Hour}, {Grace: -1}, {Grace: time.Hour}, {Timeout: -1},
		{TimeoutMax: time.Second}} {
		if _, err := NewMachine(timing, nil, time.Now()); err == nil {
			t.Errorf("%+v is taken", timing)
		}
	}
}
