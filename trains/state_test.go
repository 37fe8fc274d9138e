package trains

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// effect describes what an engine did since the last Ready, and its state.
func effect(e *Engine, err error) string {
	text := fmt.Sprintf("%v;", err)
	ready := e.Ready()
	for _, send := range ready.Sends {
		text += fmt.Sprintf(" %v<-%x", send.To, send.Frame)
	}
	for _, d := range ready.Deliveries {
		text += fmt.Sprintf(" %+v", d)
	}
	return text + fmt.Sprintf(" %+v %t %t %t %d %v %x", e.Status(), e.CanBroadcast(),
		e.Solicited(), e.Undelivered(), e.BatchMax(), e.Votes(), e.AppendState(nil))
}

// inputs are what an engine of a ring may take next: frames that were sent in the run, failures and
// payloads.
func inputs(w *network, p int) map[string]func(e *Engine) error {
	all := map[string]func(e *Engine) error{
		"payload": func(e *Engine) error { return e.Broadcast([]byte("payload")) },
		"empty":   func(e *Engine) error { return e.Broadcast(nil) },
	}
	for q := range w.n() {
		from := order.ServerID(q)
		all[fmt.Sprintf("suspect %d", q)] = func(e *Engine) error { return e.Suspect(from) }
		all[fmt.Sprintf("trust %d", q)] = func(e *Engine) error { return e.Trust(from) }
		if channel := w.channels[q*w.n()+p]; len(channel) > 0 {
			frame := channel[0]
			all[fmt.Sprintf("frame of %d, %x", q, frame)] = func(e *Engine) error {
				return e.Receive(from, frame)
			}
		}
	}
	return all
}

// TestStatesTell runs many schedules of small rings. Whatever a clone takes, the original stays as
// it was and goes on as the clone did. Two engines with equal states, from whatever schedules, do
// the same with the same input, and come to equal states.
func TestStatesTell(t *testing.T) {
	t.Parallel()
	for _, detector := range []Detector{DetectorPerfect, DetectorEventual} {
		for _, count := range []int{1, 2} {
			for _, apart := range []int{0, 1} {
				t.Run(fmt.Sprintf("%v/%d/%d", detector, count, apart), func(t *testing.T) {
					t.Parallel()
					seen := map[string]string{}
					again := 0
					for seed := range uint64(15) {
						again += tellStates(t, seed, Config{Servers: 3, Trains: count,
							TrainSize: 64, Detector: detector, WagonFrameMin: apart,
							Change: func(d order.Delivery) bool { return d.Round > 6 }}, seen)
					}
					if again < 300 || len(seen) < 300 {
						t.Errorf("%d effects, %d of them seen again: too few", len(seen), again)
					}
				})
			}
		}
	}
}

// tellStates plays one schedule and notes the effect of each input in each state in seen. It
// returns how many were there.
func tellStates(t *testing.T, seed uint64, config Config, seen map[string]string) (again int) {
	t.Helper()
	w, err := newNetwork(config, seeded(seed))
	if err != nil {
		t.Fatal(err)
	}
	for p := range w.n() {
		w.submit(p, w.choose(4))
	}
	w.start()
	for crashes := w.choose(3); w.broken == nil; {
		if crashes > 0 && w.choose(20) == 0 {
			w.crash(w.choose(w.n()))
			crashes--
		}
		for p, engine := range w.engines {
			state := engine.AppendState(nil)
			for name, take := range inputs(w, p) {
				clone, other := engine.Clone(), engine.Clone()
				did := effect(clone, take(clone))
				if !bytes.Equal(engine.AppendState(nil), state) {
					t.Fatalf("seed %d: %q of a clone changed server %d", seed, name, p)
				}
				if did != effect(other, take(other)) {
					t.Fatalf("seed %d: two clones of server %d take %q differently", seed, p, name)
				}
				key := fmt.Sprintf("%d %s %x", p, name, state)
				if before, known := seen[key]; !known {
					seen[key] = did
				} else if again++; before != did {
					t.Fatalf("seed %d: server %d took %q in this state before, and\n%s\nnow\n%s",
						seed, p, name, before, did)
				}
			}
			if err := engine.Check(); err != nil {
				t.Fatalf("seed %d: server %d: %v", seed, p, err)
			}
		}
		all := w.possible()
		if len(all) == 0 {
			break
		}
		w.take(all[w.choose(len(all))])
	}
	return again
}

// TestClonesKeepOutput: a clone of an engine whose output was not taken yet has it, too.
func TestClonesKeepOutput(t *testing.T) {
	t.Parallel()
	engine, err := New(Config{Self: 1, Servers: 2, Trains: 3, Detector: DetectorPerfect})
	if err != nil {
		t.Fatal(err)
	}
	clone := engine.Clone()
	if sends := clone.Ready().Sends; len(sends) != 3 {
		t.Errorf("the clone has %d trains to send", len(sends))
	}
	if sends := engine.Ready().Sends; len(sends) != 3 {
		t.Errorf("the engine has %d trains to send", len(sends))
	}
}
