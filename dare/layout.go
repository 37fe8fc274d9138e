package dare

import (
	"encoding/binary"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
)

const word = protected.Word

// The words of a server's row on the control boards, by index. They are the paper's arrays of
// control data [Poke19, section 4.3.1.1].
const (
	// A vote request is three words, the term last. The other two carry the term's last bits, so
	// that words of two requests are never taken for one.
	wordLastIndex = protected.WordsShared + iota
	wordLastTerm
	wordRequest
	// wordVote is the term in which the row's server voted for the board's owner.
	wordVote
	// wordBeat is a leader's heartbeat: its term, and a counter in the lower half.
	wordBeat
	// wordOutdated is the term of a server that heard a leader of a lower one.
	wordOutdated
	// wordLeft is the term of a leader whose log does not hold any more what the board's owner
	// needs.
	wordLeft
	// wordPrivate is the last vote of the row's server: the term, and the candidate in the last
	// byte. It is the private data array.
	wordPrivate
	// wordRemoved is the entry with which the board's owner left the group.
	wordRemoved
	// wordWants is the round up to which a leader lacks messages (Server.wants).
	wordWants
	controlWords
)

const tagBits = 16

// tagged puts the last bits of a term behind a number.
func tagged(number, term uint64) uint64 { return number<<tagBits | term&(1<<tagBits-1) }

// The words of a log before its entries, as offsets. The owner writes the first line and the list
// of the entries that may not be committed, the leader the second line.
const (
	logApplied     = 0 * word
	logBase        = 1 * word // the commit pointer when the list was made
	logCount       = 2 * word // entries in the list
	logTerm        = 3 * word // the owner's term
	logCommit      = 8 * word
	logTail        = 9 * word
	logUncommitted = 16 * word // of each entry behind base, the term of birth
)

// The words behind the bytes of an entry, as offsets from the slot's end.
const (
	entryTrailer = 4 * word
	entryLength  = -4 * word
	entryBorn    = -3 * word
	entryStamp   = -2 * word
	entryIndex   = -1 * word
)

// entry is an entry of a log without its bytes.
type entry struct {
	index uint64
	// born is the term of the leader that appended the entry. It and the index are the entry's
	// identity. stamp is the term of the last leader that made it its own.
	born, stamp uint64
	kind        kind
	length      int
}

// kind is what the body of an entry is.
type kind uint8

const (
	kindOperations kind = iota // messages, one of each seat, or nothing
	kindConfig                 // a configuration
	kindRemoval                // the server without which the run ends

	kindLast = kindRemoval
)

// kindShift is where the word with an entry's length has its kind.
const kindShift = 32

// layout is the layout of a log.
type layout struct {
	slots, slot int
}

// layout returns the layout of the logs. They have one slot more than LogSlots, for the entry that
// removes a server which keeps a log full, or ends the run without it (G4).
func (c *Config) layout() layout {
	body := max(c.Seats*messageHead+c.messagesMax(), configurationMax(c.Seats))
	return layout{c.LogSlots + 1, protected.Padded(body) + entryTrailer}
}

// header returns the size of what precedes the entries.
func (l layout) header() int { return logUncommitted + l.slots*word }

func (l layout) size() int { return l.header() + l.slots*l.slot }

func (l layout) place(index uint64) int { return int((index - 1) % uint64(l.slots)) }

// end returns the offset at which an entry's slot ends.
func (l layout) end(index uint64) int { return l.header() + (l.place(index)+1)*l.slot }

// messageHead is the size of what precedes each message of a body: its number and its length.
const messageHead = 8 + 4

// proposal is a message of an entry, with its number among those of its origin. Number 0: the
// origin had nothing to send.
type proposal struct {
	number  uint64
	payload []byte
}

// appendBody appends the body of an entry: one proposal of each server.
func appendBody(b []byte, proposals []proposal) []byte {
	for _, p := range proposals {
		b = binary.BigEndian.AppendUint64(b, p.number)
		b = binary.BigEndian.AppendUint32(b, uint32(len(p.payload)))
		b = append(b, p.payload...)
	}
	return b
}

// removalSize is the length of the body of an entry that takes a server out of the group: its
// number.
const removalSize = 4

// appendRemoval appends the body of an entry that takes a server out of the group.
func appendRemoval(b []byte, server int) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(server))
}

// readRemoval reads the body of an entry that takes a server out of a group. It reports whether the
// body is one that a leader writes.
func readRemoval(b []byte, servers int) (server int, is bool) {
	if len(b) != removalSize {
		return 0, false
	}
	removed := binary.BigEndian.Uint32(b)
	return int(removed), uint64(removed) < uint64(servers)
}

// readBody reads the body of an entry into proposals, one for each server. It reports whether the
// body is one that a leader writes. An empty body has no proposals.
func readBody(b []byte, proposals []proposal) bool {
	clear(proposals)
	if len(b) == 0 {
		return true
	}
	for i := range proposals {
		if len(b) < messageHead {
			return false
		}
		length := binary.BigEndian.Uint32(b[8:])
		if uint64(length) > uint64(len(b)-messageHead) {
			return false
		}
		proposals[i] = proposal{binary.BigEndian.Uint64(b), b[messageHead:][:length]}
		b = b[messageHead+int(length):]
	}
	return len(b) == 0
}

// tail is the own log's tail: the index of its last entry.
func (s *Server) tail() uint64 { return s.held.Region.Load(logTail) }

// at returns the entry of an index in the own log, without an index if the slot holds another one.
func (s *Server) at(index uint64) entry {
	end, log := s.layout.end(index), s.held.Region
	length := log.Load(end + entryLength)
	e := entry{index: index, born: log.Load(end + entryBorn), stamp: log.Load(end + entryStamp),
		kind: kind(length >> kindShift), length: int(length & (1<<kindShift - 1))}
	if index == 0 || log.Load(end+entryIndex) != index || length>>kindShift > uint64(kindLast) ||
		e.length > s.layout.slot-entryTrailer {
		return entry{}
	}
	return e
}

// body returns the bytes of an entry, in the log.
func (s *Server) body(e entry) []byte {
	start := s.layout.end(e.index) - entryTrailer - protected.Padded(e.length)
	return s.held.Region.Bytes()[start : start+e.length]
}

// put writes an entry into the own log, and moves the tail.
func (s *Server) put(e entry, body []byte) {
	end, log := s.layout.end(e.index), s.held.Region
	copy(log.Bytes()[end-entryTrailer-protected.Padded(e.length):], body)
	log.Store(end+entryLength, uint64(e.kind)<<kindShift|uint64(e.length))
	log.Store(end+entryBorn, e.born)
	log.Store(end+entryStamp, e.stamp)
	log.Store(end+entryIndex, e.index)
	log.Store(logTail, e.index)
}

// last returns index and stamp of the own log's last entry. An entry is more recent than another if
// its stamp is higher, or the same with a higher index [Poke19, section 4.3.2.3].
func (s *Server) last() (index, stamp uint64) {
	index = s.tail()
	return index, s.at(index).stamp
}

// list writes the list of the entries that may not be committed, for the next leader. Nobody else
// may write the log meanwhile. A leader reuses only slots of committed entries, so all that a whole
// log lies behind the tail are committed, even if the commit pointer did not come.
func (s *Server) list() {
	log, tail := s.held.Region, s.tail()
	base := max(s.known(), tail-min(tail, uint64(s.layout.slots)))
	count := max(tail, base) - base
	for i := range count {
		log.Store(logUncommitted+int(i)*word, s.at(base+1+i).born)
	}
	log.Store(logBase, base)
	log.Store(logCount, count)
}

// known returns the greatest index that is committed, as far as this server knows.
func (s *Server) known() uint64 {
	s.commit = max(s.commit, s.held.Region.Load(logCommit))
	return s.commit
}

// staged holds entries in this process's own memory, from which they are written to others.
type staged struct {
	bytes []byte
	keys  [][2]uint64 // by slot: index and stamp of the entry that is there
	lent  []int       // by slot: the writes under way whose bytes lie there
}

// stage returns an entry as it is written to others, and the counter of these writes. It returns
// nil while writes of an earlier entry still use the slot.
func (s *Server) stage(e entry) ([]byte, *int) {
	place, key := s.layout.place(e.index), [2]uint64{e.index, e.stamp}
	slot := s.staged.bytes[place*s.layout.slot:][:s.layout.slot]
	size := entryTrailer + protected.Padded(e.length)
	if s.staged.keys[place] != key {
		if s.staged.lent[place] > 0 {
			return nil, nil
		}
		s.staged.keys[place] = key
		end := s.layout.end(e.index)
		copy(slot[s.layout.slot-size:], s.held.Region.Bytes()[end-size:end])
	}
	return slot[s.layout.slot-size:], &s.staged.lent[place]
}

// delivery makes a round of an entry, the one after the given number of rounds of this run. It has
// a message of each seat that is held in the last configuration that this server applied, and the
// seats that became free since the last round. It leaves the entry's proposals in s.proposals, and
// shares their payloads with the log. It reports false for an entry that is no round, or that no
// leader writes.
func (s *Server) delivery(e entry, rounds uint64) (order.Delivery, bool) {
	d := order.Delivery{Epoch: order.Epoch(e.born),
		Round: s.config.FirstRound + order.Round(rounds)}
	body, out := s.body(e), none
	switch {
	case e.kind == kindRemoval && s.config.Change != nil:
		removed, is := readRemoval(body, len(s.config.Peers))
		if !is {
			return d, false
		}
		clear(s.proposals)
		out, d.Removed = removed, []order.ServerID{order.ServerID(removed)}
	case e.kind != kindOperations || !readBody(body, s.proposals):
		return d, false
	}
	group := &s.configs[0].Configuration
	for seat, p := range s.proposals {
		switch {
		case group.held(seat) && seat != out:
			d.Messages = append(d.Messages, order.Message{Origin: order.ServerID(seat),
				Payload: p.payload})
		case !group.held(seat) && s.seated>>seat&1 == 1:
			d.Removed = append(d.Removed, order.ServerID(seat))
		}
	}
	return d, true
}

// before returns how many rounds of the run come before an entry behind those that were applied.
func (s *Server) before(index uint64) uint64 {
	rounds := s.rounds
	for at := s.applied + 1; at < index; at++ {
		if e := s.at(at); e.length > 0 && e.kind != kindConfig {
			rounds++
		}
	}
	return rounds
}

// copied gives a round payloads of its own, in place of those in the log.
func copied(d order.Delivery) order.Delivery {
	for i := range d.Messages {
		m := &d.Messages[i]
		m.Payload = append([]byte(nil), m.Payload...)
	}
	return d
}

// ends reports whether a round is the last one of the run: it changes the group.
func (s *Server) ends(d order.Delivery) bool {
	return s.config.Change != nil && (len(d.Removed) > 0 || s.config.Change(d))
}
