package turn_test

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// TestStories runs the transcripts in testdata/stories. After an intended change, rewrite them with
// -rewrite and read the difference.
//
//	group servers=3 [engine=allconcur] [detector=eventual] [fault=deliver-first] [held=2]
//	                                     a new group in run 1
//	submit server=0 payload=a            a batch for the server's pool
//	deliver from=0 to=1 [frames=2]       the next frames of a lane reach the gate; default all
//	bytes from=0 to=1 hex=00             bytes that no server should send
//	suspect|trust server=1 of=0          an opinion of server 1's detector
//	cut server=0 of=1                    their connection breaks, frames under way are lost
//	restart server=0                     its frames have another incarnation from here on
//	crowd|room server=0 of=1             too much is parked for server 1, or no longer
//	linger server=0                      the timer expires
//	crash server=0                       with its next delivery
//	activate server=0 run=2              the next run begins there
//	turn server=0                        one turn
//	flow                                 turns and deliveries until nothing moves
//	settle                               the same, and timers expire
func TestStories(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := &story{}
		datadriven.RunTest(t, path, s.command)
	})
}

type story struct{ w *world }

func (s *story) command(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "group" {
		s.w = newWorld(t, allconcur.Config{
			Servers:  number(t, d, "servers", 3),
			Engine:   argument(d, "engine", allconcur.EngineAllConcurPlus),
			Detector: detectorNamed(argument(d, "detector", "eventual")),
		}, faultNamed(argument(d, "fault", "none")), number(t, d, "held", 100))
		return "ok\n"
	}
	s.w.trace.Reset()
	s.act(t, d)
	for _, v := range s.w.broken {
		s.w.say("%v", v)
	}
	s.w.broken = nil
	if text := s.w.trace.String(); text != "" {
		return text
	}
	return "ok\n"
}

func (s *story) act(t *testing.T, d *datadriven.TestData) {
	w := s.w
	id, of := order.ServerID(number(t, d, "server", 0)), order.ServerID(number(t, d, "of", 0))
	from, to := order.ServerID(number(t, d, "from", 0)), order.ServerID(number(t, d, "to", 0))
	at := w.servers[id]
	switch d.Cmd {
	case "submit":
		at.pool = append(at.pool, []byte(argument(d, "payload", "")))
	case "deliver":
		w.deliver(from, to, number(t, d, "frames", len(w.lanes[from][to])))
	case "bytes":
		frame, err := hex.DecodeString(argument(d, "hex", ""))
		if err != nil {
			t.Fatal(err)
		}
		w.say("%s", w.admit(from, to, frame))
	case "suspect":
		at.gate.Suspect(uint64(number(t, d, "run", 1)), of, errSilent)
	case "trust":
		at.gate.Trust(uint64(number(t, d, "run", 1)), of)
	case "cut":
		w.cut(id, of)
	case "restart":
		for _, other := range w.servers {
			other.incarnations[id]++
		}
	case "crowd", "room":
		at.machine.Crowded(of, d.Cmd == "crowd")
	case "linger":
		at.machine.LingerOver()
	case "crash":
		at.crashing = true
	case "activate":
		w.activate(id, uint64(number(t, d, "run", 1)))
	case "turn":
		w.turn(id)
	case "flow", "settle":
		w.flow(d.Cmd == "settle")
	default:
		t.Fatalf("no command %s", d.Cmd)
	}
}

var errSilent = fmt.Errorf("no heartbeat")

func number(t *testing.T, d *datadriven.TestData, key string, otherwise int) int {
	text := argument(d, key, "")
	if text == "" {
		return otherwise
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func argument(d *datadriven.TestData, key, otherwise string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return strings.Join(a.Vals, ",")
		}
	}
	return otherwise
}

func detectorNamed(name string) allconcur.Detector {
	if name == allconcur.DetectorPerfect.String() {
		return allconcur.DetectorPerfect
	}
	return allconcur.DetectorEventual
}

func faultNamed(name string) turn.Fault {
	for f := turn.FaultNone; f <= turn.FaultStaleFrames; f++ {
		if f.String() == name {
			return f
		}
	}
	return turn.FaultNone
}
