package allconcur

import "github.com/ledgerd/ledgerd/order"

// roundSet is a set of messages that were A-broadcast in one state (the paper's M_i, M_i^prev and
// M_i^next), at most one for each server. Sets are reused.
type roundSet struct {
	epoch order.Epoch
	round order.Round
	// reliable is the kind of the messages.
	reliable bool
	// filled says that the set stands for a state. Otherwise it is empty.
	filled  bool
	present serverSet
	count   int
	// frames holds the frame of each present server. A payload follows the frame's header.
	frames [][]byte
	// payloadCount counts the messages whose payload is not empty, or that have copies of others'
	// messages. copyCount counts those with copies.
	payloadCount int
	copyCount    int
	// asked says that small and unheld are known of a complete set, with prompt delivery: whether
	// its content is small, and who of the others does not say in it that it holds the content.
	asked  bool
	small  bool
	unheld serverSet
	// waits says that the round changes the group, and so waits to be closed.
	waits bool
}

func newRoundSet(n int) *roundSet {
	return &roundSet{present: newServerSet(n), frames: make([][]byte, n), unheld: newServerSet(n)}
}

// begin makes the set stand for a state, without messages.
func (s *roundSet) begin(epoch order.Epoch, round order.Round, reliable bool) {
	s.reset()
	s.epoch, s.round, s.reliable, s.filled = epoch, round, reliable, true
}

func (s *roundSet) reset() {
	if s.count > 0 {
		s.present.clear()
		clear(s.frames)
	}
	s.epoch, s.round, s.reliable, s.filled = 0, 0, false, false
	s.count, s.payloadCount, s.copyCount = 0, 0, 0
	if s.asked {
		s.unheld.clear()
	}
	s.asked, s.small, s.waits = false, false, false
}

// is reports whether the set stands for the state.
func (s *roundSet) is(epoch order.Epoch, round order.Round, reliable bool) bool {
	return s.filled && s.epoch == epoch && s.round == round && s.reliable == reliable
}

// add adds the frame of a message. The set must not have a message of that origin.
func (s *roundSet) add(origin order.ServerID, frame []byte) {
	s.present.add(origin)
	s.count++
	s.frames[origin] = frame
	s.countPayload(frame, 1)
}

// countPayload adds a frame to the counts of payloads and copies, or takes it out with -1.
func (s *roundSet) countPayload(frame []byte, by int) {
	copies := copyCount(frame) > 0
	if copies {
		s.copyCount += by
	}
	if copies || len(frame) > payloadStart(frame) {
		s.payloadCount += by
	}
}

// drop forgets the message of a server, if it is there.
func (s *roundSet) drop(origin order.ServerID) {
	if !s.present.has(origin) {
		return
	}
	s.countPayload(s.frames[origin], -1)
	s.present.remove(origin)
	s.frames[origin] = nil
	s.count--
}

func (s *roundSet) clone() *roundSet {
	c := *s
	c.present, c.unheld = s.present.clone(), s.unheld.clone()
	c.frames = append([][]byte(nil), s.frames...)
	return &c
}
