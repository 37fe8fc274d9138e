package generation

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// A conversation of four synods, of which the last one's server lies: beside what its synod says,
// it says what it heard before, also changed, to any server. Messages are lost, doubled and
// reordered. Which, follows from a script.
type conversation struct {
	synods  []*Synod
	script  []byte
	flight  []flying
	heard   [][]byte
	decided int // decisions that true servers learned
}

const liar order.ServerID = 3

func newConversation(t testing.TB, script []byte) *conversation {
	t.Helper()
	c := &conversation{script: script}
	for self := range liar + 1 {
		s, err := NewSynod(Config{Self: self, Original: true, Grace: 2, Patience: 5,
			State: State{Disk: DiskID{1 + byte(self)}},
			Report: Report{Head: Head{Hash: [32]byte{7}},
				Membership: Membership{Members: members(int(liar) + 1)}}})
		if err != nil {
			t.Fatal(err)
		}
		for other := range liar + 1 {
			s.Linked(other, true)
		}
		c.synods = append(c.synods, s)
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

// drain sends what a synod wants sent.
func (c *conversation) drain(self order.ServerID) {
	ready := c.synods[self].Ready()
	for _, envelope := range ready.Messages {
		if self == liar || envelope.To == liar {
			c.heard = append(c.heard[max(0, len(c.heard)-255):], envelope.Message.Encode(nil))
		}
		if len(c.flight) < 1000 {
			c.flight = append(c.flight, flying{self, envelope.To, envelope.Message})
		}
	}
	if ready.Decided != nil && self != liar {
		c.decided++
	}
}

func (c *conversation) deliver(at int) {
	m := c.flight[at]
	c.flight = append(c.flight[:at], c.flight[at+1:]...)
	if int(m.to) < len(c.synods) {
		c.synods[m.to].Receive(m.from, m.message)
		c.drain(m.to)
	}
}

func (c *conversation) step() {
	switch kind := c.choose(8); kind {
	case 0, 1, 2:
		self := order.ServerID(c.choose(len(c.synods)))
		c.synods[self].Tick()
		c.drain(self)
	case 3, 4, 5:
		if len(c.flight) > 0 {
			c.deliver(c.choose(len(c.flight)))
		}
	default:
		if len(c.heard) == 0 {
			return
		}
		said := append([]byte(nil), c.heard[c.choose(len(c.heard))]...)
		if kind == 7 {
			for range 1 + c.choose(3) {
				said[c.choose(256)*len(said)/256] ^= 1 << c.choose(8)
			}
		}
		message, err := DecodeMessage(said)
		to := order.ServerID(c.choose(int(liar)))
		if err == nil && !(kind == 7 && c.foretells(&message, to)) {
			c.synods[to].Receive(liar, message)
			c.drain(to)
		}
	}
}

// foretells reports whether a changed message says what its receiver has to believe, because the
// sender may be the only one left that knows it: a decision that the receiver does not know yet, a
// value for such a decision, or what the sender's disk holds (docs/security.md).
func (c *conversation) foretells(m *Message, to order.ServerID) bool {
	next := c.synods[to].Next()
	return m.Kind == KindPromise || m.Known != nil && m.Known.Generation >= next ||
		m.Value != nil && m.Value.Generation >= next
}

// goOn lets the true servers talk without the liar, and reports what keeps them from going on.
func (c *conversation) goOn() error {
	c.flight = nil
	before := Generation(0)
	for self, s := range c.synods[:liar] {
		s.Linked(liar, false)
		before = max(before, s.Next())
		c.drain(order.ServerID(self))
	}
	for range 1000 {
		for self := range liar {
			c.synods[self].Tick()
			c.drain(self)
			for range 200 {
				if len(c.flight) == 0 {
					break
				}
				if m := c.flight[0]; m.to == liar {
					c.flight = c.flight[1:]
					continue
				}
				c.deliver(0)
			}
		}
	}
	for self, s := range c.synods[:liar] {
		if s.Err() != nil {
			return fmt.Errorf("server %d: %w", self, s.Err())
		}
		if s.Next() <= before+1 {
			return fmt.Errorf("server %d knows of generation %d only, %d was the next", self,
				s.Next()-1, before)
		}
		if n := len(s.stated); n > len(c.synods) {
			return fmt.Errorf("server %d remembers %d statements", self, n)
		}
	}
	return nil
}

func converse(t *testing.T, script []byte) *conversation {
	t.Helper()
	c := newConversation(t, script)
	for len(c.script) > 0 {
		c.step()
	}
	if err := c.goOn(); err != nil {
		t.Fatal(err)
	}
	return c
}

// FuzzConversation: whatever a member says, except for what the others have to believe, they decide
// once it is gone. None of them is ended by what one member says.
func FuzzConversation(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(scriptOf(seed, 256<<(seed/2)))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) <= 1<<13 {
			converse(t, script)
		}
	})
}

func scriptOf(seed uint64, size int) []byte {
	random := rand.New(rand.NewPCG(seed, 2))
	script := make([]byte, size)
	for i := range script {
		script[i] = byte(random.Uint32())
	}
	return script
}

// TestConversations is FuzzConversation with scripts from seeds.
func TestConversations(t *testing.T) {
	t.Parallel()
	decided := 0
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			decided += converse(t, scriptOf(seed, 4096)).decided
		})
	}
	if decided < 60 {
		t.Errorf("%d decisions in all conversations", decided)
	}
}
