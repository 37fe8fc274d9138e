package allconcur

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// A conversation of four servers, of which the last one lies: beside what its engine says, it says
// what it heard before, to any server and out of order, and withholds what it should say. The
// schedule and the lies follow from a script.
type conversation struct {
	*network
	script []byte
	heard  [][]byte
	// silenced[p] says that server p takes nothing more from the liar, as a driver ensures after
	// bytes that are no frame.
	silenced []bool
	// verbatim says that the liar changes no frame. Otherwise it may split a round.
	verbatim bool
}

// liar is the place of the server that lies.
const liar = 3

func newConversation(t testing.TB, script []byte) *conversation {
	t.Helper()
	c := &conversation{script: script, silenced: make([]bool, liar+1)}
	config := Config{Engine: EngineAllConcurPlus, Servers: liar + 1,
		Reliable: overlays(t, liar+1)[0], MaxPayload: 64, Detector: DetectorEventual}
	if c.choose(2) == 1 {
		config.Engine = EngineAllConcur
	}
	c.verbatim = c.choose(2) == 1
	var err error
	if c.network, err = newNetwork(1, config); err != nil {
		t.Fatal(err)
	}
	return c
}

// choose returns a number below n, or 0 at the end of the script.
func (c *conversation) choose(n int) int {
	if len(c.script) == 0 {
		return 0
	}
	choice := int(c.script[0]) % n
	c.script = c.script[1:]
	return choice
}

// hear keeps what is on its way to and from the liar.
func (c *conversation) hear() {
	c.heard = c.heard[max(0, len(c.heard)-256):]
	for p := range liar {
		for _, channel := range [][][]byte{c.channels[p*c.n()+liar], c.channels[liar*c.n()+p]} {
			if len(channel) > 0 {
				c.heard = append(c.heard, bytes.Clone(channel[len(channel)-1]))
			}
		}
	}
}

// say gives a server a frame from the liar, and reports an impossible state.
func (c *conversation) say(t *testing.T, to int, frame []byte) {
	t.Helper()
	if c.silenced[to] {
		return
	}
	if err := c.engines[to].Receive(liar, frame); err != nil {
		c.silenced[to] = true
		_ = c.engines[to].Suspect(liar)
	}
	c.pump(to)
}

func (c *conversation) step(t *testing.T) {
	t.Helper()
	c.hear()
	switch kind := c.choose(16); kind {
	case 1, 2: // an old frame, perhaps changed
		if len(c.heard) == 0 {
			return
		}
		frame := bytes.Clone(c.heard[c.choose(len(c.heard))])
		if kind == 2 && !c.verbatim {
			frame[c.choose(len(frame))] ^= 1 << c.choose(8)
		}
		c.say(t, c.choose(liar), frame)
	case 3: // nothing, where something was due
		if channel := &c.channels[liar*c.n()+c.choose(liar)]; len(*channel) > 0 {
			*channel = (*channel)[1:]
		}
	case 4: // the detector errs, or no longer does
		p, q := c.choose(liar), c.choose(c.n())
		if p == q || !c.engines[p].config.Reliable.HasEdge(q, p) {
			return
		}
		if suspected := &c.suspected[p*c.n()+q]; *suspected && !(q == liar && c.silenced[p]) {
			*suspected = false
			_ = c.engines[p].Trust(order.ServerID(q))
		} else {
			*suspected = true
			_ = c.engines[p].Suspect(order.ServerID(q))
		}
		c.pump(p)
	default:
		actions := c.actions(true)
		if len(actions) == 0 {
			return
		}
		switch a := actions[c.choose(len(actions))]; {
		case a.kind == "receive" && a.from == liar:
			channel := &c.channels[a.from*c.n()+a.to]
			frame := (*channel)[0]
			*channel = (*channel)[1:]
			c.say(t, a.to, frame)
		default:
			_ = c.take(a) // an engine that halted refuses
		}
	}
}

// judge checks that true servers A-delivered the same rounds, unless the liar changed frames, and
// that no engine keeps more than it may.
func (c *conversation) judge(t *testing.T) {
	t.Helper()
	for p := range liar {
		if e := c.engines[p]; e.held > 3*heldMax(c.n()) {
			t.Fatalf("server %d holds %d", p, e.held)
		}
		for q := range p {
			short, long := p, q
			if len(c.delivered[q]) < len(c.delivered[p]) {
				short, long = q, p
			}
			if err := c.comparePrefix(short, long); err != nil && c.verbatim {
				t.Fatal(err)
			}
		}
	}
}

// FuzzConversation: a member that repeats what it heard, out of order and to any other, and
// withholds the rest, splits no round. One that says anything ends no engine in a panic, and fills
// no memory.
func FuzzConversation(f *testing.F) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 2))
		script := make([]byte, 256<<(seed/2))
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 1<<13 {
			return
		}
		c := newConversation(t, script)
		for len(c.script) > 0 {
			c.step(t)
		}
		c.judge(t)
	})
}

// TestConversations is FuzzConversation with scripts from seeds.
func TestConversations(t *testing.T) {
	t.Parallel()
	rounds := 0
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 3))
		script := make([]byte, 4096)
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		script[1] = byte(min(1, seed%4)) // three in four are verbatim
		c := newConversation(t, script)
		for len(c.script) > 0 {
			c.step(t)
		}
		c.judge(t)
		rounds += len(c.delivered[0])
	}
	t.Logf("%d rounds", rounds)
	if rounds < 1000 {
		t.Errorf("the conversations went through %d rounds", rounds)
	}
}
