package allconcur

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// TestStories runs the protocol traces in testdata/stories (under P) and testdata/eventual (under
// ◇P), which read as stories. After an intended change, rewrite them with -rewrite and read the
// difference.
//
//	group engine=allconcur+ servers=3 [degree=3] [nonuniform]
//	      [detector=perfect|eventual|eventual-paper]
//	                               a new group, over the complete digraph or GS(n,d)
//	broadcast server=0 [payload=x] A-broadcast
//	deliver from=0 to=1 [frames=2] deliver the next frames of a channel, all without a number
//	flow [only=deliveries|nothing] [to=1] [within=(0,1)]
//	                               deliver all frames and what follows, channel by channel
//	settle [only=deliveries]       flow, with A-broadcasts of empty messages when due
//	crash server=0 [after=2]       at once, or after it sent that many more frames
//	suspect server=1 of=0          server 1's failure detector suspects server 0
//	trust server=1 of=0            and no longer
//	cut side=(0,1)                 lose what is under way between the two sides for good
//	inject from=0 to=1 kind=bcast|rbcast|fwd|fail ...
//	                               a frame that no server sent
//	status [server=0]              every server's state, or one's
func TestStories(t *testing.T) {
	t.Parallel()
	for folder, detector := range map[string]Detector{"testdata/stories": DetectorPerfect,
		"testdata/eventual": DetectorEventual} {
		datadriven.Walk(t, folder, func(t *testing.T, path string) {
			s := &story{t: t, detector: detector.String()}
			datadriven.RunTest(t, path, s.command)
		})
	}
}

func detectorNamed(name string) Detector {
	for d := range detectorEnd {
		if d.String() == name {
			return d
		}
	}
	return detectorEnd
}

type story struct {
	t *testing.T
	w *network
	// detector is the detector of groups that name none.
	detector string
}

func (s *story) command(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "group" {
		return s.group(d)
	}
	s.w.trace.Reset()
	err := s.act(d)
	text := s.w.trace.String()
	if hasArgument(d, "only", "nothing") {
		text = ""
	}
	if hasArgument(d, "only", "deliveries") {
		text = onlyDeliveries(text)
	}
	if err != nil {
		text += "error: " + err.Error() + "\n"
	}
	if text == "" {
		return "ok\n"
	}
	return text
}

func (s *story) group(d *datadriven.TestData) string {
	config := Config{Detector: detectorNamed(argument(d, "detector", s.detector)),
		Engine: argument(d, "engine", EngineAllConcurPlus), Servers: s.number(d, "servers", 3),
		NonUniform: d.HasArg("nonuniform"), Generation: 1}
	var err error
	if degree := s.number(d, "degree", 0); degree > 0 {
		config.Reliable, err = digraph.GS(config.Servers, degree)
	} else {
		config.Reliable, err = digraph.Complete(config.Servers)
	}
	if err != nil {
		return err.Error() + "\n"
	}
	s.w, err = newNetwork(1, config)
	if err != nil {
		return err.Error() + "\n"
	}
	s.w.trace = &strings.Builder{}
	return fmt.Sprintf("%d servers, %d may fail\n", config.Servers, s.w.engines[0].tolerated)
}

func (s *story) act(d *datadriven.TestData) error {
	w := s.w
	server := s.number(d, "server", 0)
	switch d.Cmd {
	case "broadcast":
		payload := argument(d, "payload", "")
		if err := w.engines[server].Broadcast([]byte(payload)); err != nil {
			return err
		}
		w.pump(server)
	case "deliver":
		from, to := s.number(d, "from", 0), s.number(d, "to", 0)
		return s.deliver(from, to, s.number(d, "frames", len(w.channels[from*w.n()+to])))
	case "flow":
		return s.flow(s.number(d, "to", -1), listArgument(d, "within"))
	case "settle":
		return s.settle()
	case "crash":
		if w.crashAfter[server] = s.number(d, "after", 0); w.crashAfter[server] == 0 {
			w.crash(server)
		}
	case "suspect":
		if err := w.engines[server].Suspect(order.ServerID(s.number(d, "of", 0))); err != nil {
			return err
		}
		w.pump(server)
	case "trust":
		if err := w.engines[server].Trust(order.ServerID(s.number(d, "of", 0))); err != nil {
			return err
		}
		w.pump(server)
	case "inject":
		return s.inject(d)
	case "status":
		s.status(s.number(d, "server", -1))
	default:
		return fmt.Errorf("no command %s", d.Cmd)
	}
	return nil
}

func (s *story) deliver(from, to, frames int) error {
	for range frames {
		if len(s.w.channels[from*s.w.n()+to]) == 0 {
			return fmt.Errorf("nothing is under way from %d to %d", from, to)
		}
		if err := s.w.receive(from, to); err != nil {
			return err
		}
	}
	return nil
}

// flow delivers frames channel by channel, all that a channel holds at a time, until none is under
// way (to one server, among some, or at all).
func (s *story) flow(only int, within []string) error {
	n := s.w.n()
	for again := true; again; {
		again = false
		for c := range s.w.channels {
			frames := len(s.w.channels[c])
			if frames == 0 || only >= 0 && c%n != only || outside(within, c/n) ||
				outside(within, c%n) {
				continue
			}
			again = true
			if err := s.deliver(c/n, c%n, frames); err != nil {
				s.w.note("%v", err)
			}
		}
	}
	return nil
}

// outside reports whether a list leaves out a server; nil contains all.
func outside(within []string, server int) bool {
	return within != nil && !slices.Contains(within, strconv.Itoa(server))
}

func (s *story) settle() error {
	for range 100 {
		if err := s.flow(-1, nil); err != nil {
			return err
		}
		rest := true
		for p, engine := range s.w.engines {
			if !s.w.crashed[p] && engine.CanBroadcast() &&
				(engine.Solicited() || engine.Undelivered()) {
				rest = false
				if err := engine.Broadcast(nil); err != nil {
					return err
				}
				s.w.pump(p)
			}
		}
		if rest {
			return nil
		}
	}
	return fmt.Errorf("no rest")
}

func (s *story) inject(d *datadriven.TestData) error {
	from, to := s.number(d, "from", 0), s.number(d, "to", 0)
	generation := uint64(s.number(d, "generation", 1))
	epoch, round := order.Epoch(s.number(d, "epoch", 1)), order.Round(s.number(d, "round", 1))
	origin, payload := order.ServerID(s.number(d, "origin", from)),
		[]byte(argument(d, "payload", ""))
	var frame []byte
	switch argument(d, "kind", "") {
	case "bcast":
		frame = encodeMessage(kindUnreliable, generation, epoch, round, origin, payload)
	case "rbcast":
		frame = encodeMessage(kindReliable, generation, epoch, round, origin, payload)
	case "fwd":
		set := newServerSet(s.w.n())
		for _, p := range listArgument(d, "set") {
			number, err := strconv.Atoi(p)
			if err != nil {
				return err
			}
			set.add(order.ServerID(number))
		}
		frame = encodeVote(kindForward, phaseDecided, generation, epoch, round, origin, set)
	case "fail":
		frame = encodeFailure(generation, order.ServerID(s.number(d, "target", 0)),
			order.ServerID(s.number(d, "owner", 0)), uint32(s.number(d, "sequence", 0)))
	default:
		frame = []byte(argument(d, "bytes", ""))
	}
	if err := s.w.engines[to].Receive(order.ServerID(from), frame); err != nil {
		return err
	}
	s.w.pump(to)
	return nil
}

func (s *story) status(only int) {
	for p, engine := range s.w.engines {
		if s.w.crashed[p] || only >= 0 && p != only {
			continue
		}
		st := engine.Status()
		state := fmt.Sprintf("[%d,%d]", st.Epoch, st.Round)
		if st.Reliable {
			state = "[" + state + "]"
		}
		s.w.note("%d %s members %v%s%s%s%s%s%s%s", p, state, st.Members,
			list(" suspected", st.Suspected), list(" awaits", st.Awaited),
			when(st.Undelivered > 0, " undelivered "+strconv.Itoa(st.Undelivered)),
			when(engine.Solicited(), " solicited"), when(st.Decided, " decided"),
			when(engine.OutsideMajority(), " outside of a majority"),
			when(st.Halted != "", " halted: "+st.Halted))
	}
}

func list(name string, servers []order.ServerID) string {
	return when(len(servers) > 0, fmt.Sprint(name, servers))
}

func when(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

func onlyDeliveries(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, "A-delivers") || strings.Contains(line, "crashes") ||
			strings.Contains(line, "halted") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func argument(d *datadriven.TestData, key, otherwise string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) == 1 {
			return a.Vals[0]
		}
	}
	return otherwise
}

// listArgument returns the values of key=(1,2).
func listArgument(d *datadriven.TestData, key string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func hasArgument(d *datadriven.TestData, key, value string) bool {
	return argument(d, key, "") == value
}

func (s *story) number(d *datadriven.TestData, key string, otherwise int) int {
	text := argument(d, key, "")
	if text == "" {
		return otherwise
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatalf("%s: %s=%q is no number", d.Pos, key, text)
	}
	return number
}
