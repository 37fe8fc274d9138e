package order

import (
	"fmt"
	"slices"
)

// forged is the base of the sequence numbers given to messages that are A-delivered but that no
// server A-broadcast.
const forged = uint64(1) << 63

// RoundHistory is the history of an atomic broadcast, recorded round by round and judged as it
// grows. Make it with NewRoundHistory.
//
// The first server to A-deliver a round writes it into the log. The deliveries of other servers are
// compared with the log. While they agree, a server's deliveries are a prefix of the log, stored as
// its length. A server that differs keeps its own sequence from there on.
type RoundHistory struct {
	history *History
	servers int
	log     sequence
	places  []place
	// known maps a payload to the messages of a server with that payload, in the order of their
	// A-broadcasts.
	known     []map[string][]int
	sequences []uint64
	forgeries uint64
	broken    []*Violation
	// prompt says that deliveries hold only messages with a payload. closings are the rounds
	// closed, each by the first server to close it, which closers names. closed is how many rounds
	// each server has closed.
	prompt   bool
	closings []Closing
	closers  []ServerID
	closed   []int
}

// place is how far a server has come in the log, and its own sequence once it differs.
type place struct {
	agreed int
	own    *sequence
}

// sequence is a sequence of A-delivered rounds and the state derived from it.
type sequence struct {
	rounds []Delivery
	// writers[i] is the server that A-delivered round i first.
	writers []ServerID
	// messages are the A-deliveries of messages with a payload. ends[i] is their number after round
	// i.
	messages []delivered
	ends     []int
	// members are the servers of the group after the last round.
	members []bool
	// taken is the set of messages in the messages field.
	taken map[int]bool
}

// NewRoundHistory starts the history of a group of servers 0 to servers-1.
func NewRoundHistory(servers int) *RoundHistory {
	h := &RoundHistory{
		history: NewHistory(servers), servers: servers, log: newSequence(servers),
		places: make([]place, servers),
		known:  make([]map[string][]int, servers), sequences: make([]uint64, servers),
	}
	for s := range h.known {
		h.known[s] = make(map[string][]int)
	}
	return h
}

func newSequence(servers int) sequence {
	return sequence{members: slices.Repeat([]bool{true}, servers), taken: make(map[int]bool)}
}

// NonUniform limits the properties to correct servers. Deliveries of servers that may yet fail are
// then judged only by Judge, at the end. Call it before the first Deliver.
func (h *RoundHistory) NonUniform() { h.history.NonUniform = true }

// Prompt says that the servers deliver promptly: deliveries hold only messages with a payload, and
// closings say who is removed. Call it before the first Deliver.
func (h *RoundHistory) Prompt() {
	h.prompt = true
	h.closed = make([]int, h.servers)
}

// Close records that a server closes a round, and judges its agreement with the other servers. It
// returns the violation that it finds, or nil. Judge returns the violation again.
func (h *RoundHistory) Close(server ServerID, c Closing) *Violation {
	at := h.closed[server]
	h.closed[server]++
	c.Removed = slices.Clone(c.Removed)
	if at == len(h.closings) {
		h.closings, h.closers = append(h.closings, c), append(h.closers, server)
		return nil
	}
	other := h.closings[at]
	if c.Epoch == other.Epoch && c.Round == other.Round && slices.Equal(c.Removed, other.Removed) {
		return nil
	}
	v := &Violation{SetAgreement, []string{
		fmt.Sprintf("server %d closes [epoch %d, round %d], removing %v", h.closers[at],
			other.Epoch, other.Round, other.Removed),
		fmt.Sprintf("server %d closes [epoch %d, round %d], removing %v", server, c.Epoch, c.Round,
			c.Removed),
	}}
	h.broken = append(h.broken, v)
	return v
}

// Broadcast records that a server A-broadcasts a payload. An empty payload does not count as a
// message.
func (h *RoundHistory) Broadcast(server ServerID, payload []byte) {
	if len(payload) == 0 {
		return
	}
	h.sequences[server]++
	id := MessageID{Replica{0, server}, h.sequences[server]}
	h.history.Submit(id, 0)
	h.known[server][string(payload)] = append(h.known[server][string(payload)], h.history.byID[id])
}

// Deliver records that a server A-delivers a round, and at once judges its form and its agreement
// with the other servers. The history keeps the payloads, which must not change afterwards, but not
// the slices that hold them. It returns the violation that it finds, or nil. Judge returns the
// violation again.
func (h *RoundHistory) Deliver(server ServerID, d Delivery) *Violation {
	p := &h.places[server]
	if p.own == nil && p.agreed < len(h.log.rounds) {
		if sameRound(&h.log.rounds[p.agreed], &d) {
			p.agreed++
			return nil
		}
		p.own = h.log.prefix(p.agreed, h.servers)
		violation := h.extend(p.own, server, d)
		if !h.history.NonUniform {
			differs := judgeSetAgreement(h.log.writers[p.agreed], &h.log.rounds[p.agreed], server,
				&d)
			h.broken = append(h.broken, differs)
			violation = differs
		}
		return violation
	}
	if p.own != nil {
		return h.extend(p.own, server, d)
	}
	p.agreed++
	return h.extend(&h.log, server, d)
}

// Rounds returns how many rounds a server has A-delivered.
func (h *RoundHistory) Rounds(server ServerID) int {
	if own := h.places[server].own; own != nil {
		return len(own.rounds)
	}
	return h.places[server].agreed
}

// Fail records that a server has failed. From now on no liveness is required of it.
func (h *RoundHistory) Fail(server ServerID) { h.history.Fail(Replica{0, server}) }

// Judge returns the violations, safety first, one for each broken property.
func (h *RoundHistory) Judge(moment Moment) []*Violation {
	broken := slices.Clone(h.broken)
	if h.history.NonUniform {
		if v := h.judgeCorrectServers(); v != nil {
			broken = append(broken, v)
		}
	}
	for s := range h.servers {
		h.history.processes[s].delivered = h.sequenceOf(s)
	}
	found := make(map[Property]bool)
	return slices.DeleteFunc(append(broken, h.history.Judge(moment)...), func(v *Violation) bool {
		again := found[v.Property]
		found[v.Property] = true
		return again
	})
}

// sequenceOf returns the messages that a server has A-delivered. Servers that agree share the
// memory.
func (h *RoundHistory) sequenceOf(server int) []delivered {
	p := h.places[server]
	switch {
	case p.own != nil:
		return p.own.messages
	case p.agreed == 0:
		return nil
	}
	return h.log.messages[:h.log.ends[p.agreed-1]]
}

// roundsOf returns the rounds that a server has A-delivered.
func (h *RoundHistory) roundsOf(server int) []Delivery {
	if p := h.places[server]; p.own == nil {
		return h.log.rounds[:p.agreed]
	}
	return h.places[server].own.rounds
}

// judgeCorrectServers judges set agreement among the servers that did not fail. It compares each
// with the server that went furthest: two servers that equal it, as far as they go, equal each
// other.
func (h *RoundHistory) judgeCorrectServers() *Violation {
	furthest := -1
	for s := range h.servers {
		if h.history.binds(s) && (furthest < 0 || len(h.roundsOf(s)) > len(h.roundsOf(furthest))) {
			furthest = s
		}
	}
	for s := range h.servers {
		if !h.history.binds(s) {
			continue
		}
		theirs := h.roundsOf(furthest)
		for at, mine := range h.roundsOf(s) {
			if v := judgeSetAgreement(ServerID(furthest), &theirs[at], ServerID(s),
				&mine); v != nil {
				return v
			}
		}
	}
	return nil
}

// extend appends a round to a sequence and judges its form.
func (h *RoundHistory) extend(s *sequence, server ServerID, d Delivery) *Violation {
	var before *Delivery
	if len(s.rounds) > 0 {
		before = &s.rounds[len(s.rounds)-1]
	}
	wrong := ""
	if h.prompt {
		wrong = judgePromptForm(lastWithMessages(s.rounds), before, &d, h.servers)
	} else {
		wrong = judgeRoundForm(before, &d, s.members)
	}
	d.Messages, d.Removed = slices.Clone(d.Messages), slices.Clone(d.Removed)
	s.rounds = append(s.rounds, d)
	s.writers = append(s.writers, server)
	for _, m := range d.Messages {
		if len(m.Payload) > 0 {
			s.messages = append(s.messages, delivered{h.identify(s, m), d.Epoch, d.Round})
		}
	}
	s.ends = append(s.ends, len(s.messages))
	s.remove(d.Removed)
	if wrong == "" {
		return nil
	}
	v := &Violation{RoundForm, []string{fmt.Sprintf("server %d A-delivers %s", server,
		describeRound(&d)), wrong}}
	h.broken = append(h.broken, v)
	return v
}

// identify returns the A-broadcast from which a message of a round comes: the first with this
// payload that is not in the sequence yet. If all of them are in the sequence, it returns the last
// one again. If there are none, it returns a new forged message. The integrity oracle reports both.
func (h *RoundHistory) identify(s *sequence, m Message) int {
	var candidates []int
	if int(m.Origin) < h.servers {
		candidates = h.known[m.Origin][string(m.Payload)]
	}
	for _, candidate := range candidates {
		if !s.taken[candidate] {
			s.taken[candidate] = true
			return candidate
		}
	}
	if len(candidates) > 0 {
		return candidates[len(candidates)-1]
	}
	h.forgeries++
	return h.history.intern(MessageID{Replica{0, m.Origin}, forged + h.forgeries})
}

// remove takes servers out of the group. It ignores servers that do not exist; judgeRoundForm
// reports them.
func (s *sequence) remove(servers []ServerID) {
	for _, removed := range servers {
		if int(removed) < len(s.members) {
			s.members[removed] = false
		}
	}
}

// prefix returns a copy of the first rounds of a sequence.
func (s *sequence) prefix(rounds, servers int) *sequence {
	own := newSequence(servers)
	if rounds == 0 {
		return &own
	}
	own.rounds = slices.Clone(s.rounds[:rounds])
	own.writers = slices.Clone(s.writers[:rounds])
	own.ends = slices.Clone(s.ends[:rounds])
	own.messages = slices.Clone(s.messages[:s.ends[rounds-1]])
	for _, d := range own.rounds {
		own.remove(d.Removed)
	}
	for _, d := range own.messages {
		own.taken[d.message] = true
	}
	return &own
}
