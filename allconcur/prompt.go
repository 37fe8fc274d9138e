package allconcur

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Prompt delivery. An unreliable round is complete at a server when all members' messages are here.
// Without prompt delivery it waits for two more rounds, since it may be rerun without the message
// of a server that crashed. With prompt delivery its messages are A-delivered as soon as every
// member is known to hold all of them. Then each rerun has them, with any members.
//
// A round's content is the set of its messages that are not empty. The servers agree on it first.
// Votes (vote.go) close the round later, and only decide who is left in the group. A closed round
// has the content that was A-delivered. The rules:
//
//   - A server that A-broadcasts in an unreliable round vouches for the content that it holds by
//     then: its message names the origins.
//   - A server that A-broadcasts again, in a rerun of the round, sends copies of all that it
//     vouched for along with its own message. If it completed the round in an earlier state, these
//     are all other messages of the round. The copies count as messages of the round, and their
//     origins need not be in the group any more.
//   - A round is A-delivered promptly if the rounds before it are A-delivered, it is complete, its
//     content is small, and each member is known to hold the content: it vouches for all of it, or
//     its message of the next round is here, so it completed the round, or it is this server.
//   - A round with a change of the group, and those after it, wait to be closed.
//
// docs/design/prompt.md has the proof.

const (
	// promptBytesMax and promptMessagesMax bound the content that is small enough to be copied. A
	// server vouches for no more, including its own message.
	promptBytesMax    = 64 << 10
	promptMessagesMax = 64
	// promptAhead is how many rounds a server may have A-broadcast in after the last closed one.
	promptAhead = 3
)

// content is one message of a round that is not empty.
type content struct {
	origin order.ServerID
	// since is the epoch in which the origin A-broadcast it first.
	since   order.Epoch
	payload []byte
}

// deliverPromptly A-delivers the complete rounds whose content every member holds.
func (e *Engine) deliverPromptly() {
	if !e.config.Prompt || e.reliable || e.last != 0 {
		return
	}
	for _, pair := range [...][2]*roundSet{{e.older, e.newer}, {e.newer, e.current}} {
		set := pair[0]
		if !set.filled || set.round != e.prompted+1 || !e.isHeld(set, pair[1]) {
			continue
		}
		before := len(e.out.messages)
		d := e.contentOf(set)
		if e.config.Change != nil && e.config.Change(d) {
			e.out.messages = e.out.messages[:before]
			set.waits = true
			return
		}
		e.deliverContent(d)
	}
}

// isHeld reports whether the content of a complete set is small, and all members are known to hold
// it. The other set is that of the next round.
func (e *Engine) isHeld(set, next *roundSet) bool {
	if !set.asked {
		e.askWhoHolds(set)
	}
	missing := 0
	for i, word := range set.unheld {
		missing += bits.OnesCount64(word &^ next.present[i])
	}
	switch e.config.Fault {
	case FaultPromptUnheld:
		missing = 0
	case FaultPromptOneMissing:
		missing = max(0, missing-1)
	}
	return set.small && !set.waits && missing == 0
}

// askWhoHolds notes which members do not say in a complete set that they hold its content.
func (e *Engine) askWhoHolds(set *roundSet) {
	e.contents = set.appendContents(e.contents[:0])
	set.asked, set.small = true, e.isSmall(e.contents)
	for p, more := set.present.next(0); more && set.small; p, more = set.present.next(p + 1) {
		if p != e.self && !vouchesForAll(set.frames[p], p, e.contents) {
			set.unheld.add(p)
		}
	}
	clear(e.contents)
}

// isSmall reports whether contents are small enough for copies.
func (e *Engine) isSmall(contents []content) bool {
	size := 0
	for i := range contents {
		size += len(contents[i].payload)
	}
	return len(contents) <= promptMessagesMax && size <= e.promptBytes()
}

// promptBytes bounds the content that a message carries: its own payload and the copies.
func (e *Engine) promptBytes() int { return min(promptBytesMax, e.config.MaxPayload) }

// contentOf returns a round with its content, to be A-delivered or not.
func (e *Engine) contentOf(set *roundSet) order.Delivery {
	e.contents = set.appendContents(e.contents[:0])
	d := order.Delivery{Round: set.round}
	start := len(e.out.messages)
	for _, c := range e.contents {
		e.out.messages = append(e.out.messages, order.Message{Origin: c.origin, Payload: c.payload})
		d.Epoch = max(d.Epoch, c.since)
	}
	end := len(e.out.messages)
	d.Messages = e.out.messages[start:end:end]
	clear(e.contents)
	return d
}

// deliverContent A-delivers the messages of a round.
func (e *Engine) deliverContent(d order.Delivery) {
	assert(d.Round == e.prompted+1, "the messages of rounds are A-delivered in order, each once")
	e.prompted = d.Round
	e.out.deliveries = append(e.out.deliveries, d)
}

// close closes a round: the group agreed on its set. It A-delivers the messages if that has not
// been done promptly.
func (e *Engine) close(set *roundSet, removed []order.ServerID) {
	e.out.closings = append(e.out.closings, order.Closing{Epoch: set.epoch, Round: set.round,
		Removed: removed})
	if set.round <= e.prompted {
		return // it contains no change of the group
	}
	d := e.contentOf(set)
	e.deliverContent(d)
	e.noteChange(d)
}

// deliveryOf returns a round with its contents.
func deliveryOf(round order.Round, contents []content) order.Delivery {
	d := order.Delivery{Round: round}
	for _, c := range contents {
		d.Messages = append(d.Messages, order.Message{Origin: c.origin, Payload: c.payload})
		d.Epoch = max(d.Epoch, c.since)
	}
	return d
}

// expectsContent reports whether this server knows of content of the current round, and has none
// yet. Its own message waits for it, so that it can vouch: the round cannot be complete without.
func (e *Engine) expectsContent() bool {
	if !e.config.Prompt || e.reliable || e.current.payloadCount > 0 {
		return false
	}
	for p, more := e.current.present.next(0); more; p, more = e.current.present.next(p + 1) {
		frame := e.current.frames[p]
		for i := range entryCount(frame) {
			if e.members.has(entryOf(frame, i).origin) {
				return true
			}
		}
	}
	return false
}

// vouch lists the messages of others that this server holds as it A-broadcasts a payload for the
// first time in the current round, and vouches for: as many as it can send along in a rerun.
func (e *Engine) vouch(payload []byte) (vouched []content) {
	if !e.config.Prompt || e.reliable || e.current.payloadCount == 0 {
		return nil
	}
	e.contents = e.current.appendContents(e.contents[:0])
	left := e.promptBytes() - len(payload)
	for _, c := range e.contents {
		if len(c.payload) <= left && len(vouched) < promptMessagesMax {
			left -= len(c.payload)
			vouched = append(vouched, c)
		}
	}
	clear(e.contents)
	return vouched
}

// vouchForComplete remembers, before a failure takes this server from an unreliable round to a
// rerun of the one before, that it holds all messages of that round: others may have taken its
// message of the interrupted round as a sign of that.
func (e *Engine) vouchForComplete() {
	if !e.config.Prompt || !e.newer.filled {
		return
	}
	if e.config.Fault == FaultInterruptedForgotten {
		e.own[e.round%2].vouched = nil
	}
	own := &e.own[e.newer.round%2]
	assert(own.held && own.round == e.newer.round, "a complete round has this server's message")
	contents := e.newer.appendContents(nil)
	if e.isSmall(contents) && e.config.Fault != FaultCompleteForgotten {
		own.vouched = slices.DeleteFunc(contents, func(c content) bool {
			return c.origin == e.self
		})
	}
}

// Held lists what this server holds of the rounds that it has not closed, by ascending round. A
// round two before the current one may be missing: Votes has this server's vote for it. If a round
// was A-delivered promptly anywhere, and no value of it passes by votes, its content is, in the
// promises of a majority, what the server holds that A-broadcast in the round in the last state
// listed; of two such states of one epoch, the unreliable one is the last. It allocates.
func (e *Engine) Held() []order.Held {
	if !e.config.Prompt {
		return nil
	}
	var all []order.Held
	for round := e.delivered + 1; round <= e.delivered+promptAhead; round++ {
		own := &e.own[round%2]
		if !own.held || own.round != round {
			continue
		}
		contents := slices.Clone(own.vouched)
		if e.newer.filled && !e.newer.reliable && e.newer.round == round {
			if complete := e.newer.appendContents(nil); e.isSmall(complete) {
				contents = complete
			}
		}
		at, known := searchContents(contents, e.self)
		if !known && len(own.payload) > 0 {
			contents = slices.Insert(contents, at, content{origin: e.self, since: own.since,
				payload: own.payload})
		}
		all = append(all, order.Held{Round: round, Epoch: own.epoch, Reliable: own.reliable,
			Delivery: deliveryOf(round, contents)})
	}
	return all
}

// searchContents returns the index of a server's message in contents, or where it would be.
func searchContents(contents []content, origin order.ServerID) (int, bool) {
	return slices.BinarySearchFunc(contents, origin, func(c content, origin order.ServerID) int {
		return cmp.Compare(c.origin, origin)
	})
}

// appendContents appends the messages of a set that are not empty, by ascending origin: those that
// their origins A-broadcast in the state, and the copies in messages of others.
func (s *roundSet) appendContents(contents []content) []content {
	if s.payloadCount == 0 {
		return contents
	}
	first := len(contents)
	for p, more := s.present.next(0); more; p, more = s.present.next(p + 1) {
		if frame := s.frames[p]; len(frame) > payloadStart(frame) {
			contents = append(contents, content{origin: p, since: sinceOf(frame),
				payload: payloadOf(frame)})
		}
	}
	if s.copyCount == 0 {
		return contents
	}
	for p, more := s.present.next(0); more; p, more = s.present.next(p + 1) {
		for _, c := range copiesOf(s.frames[p]) {
			if at, known := searchContents(contents[first:], c.origin); !known {
				contents = slices.Insert(contents, first+at, c)
			}
		}
	}
	return contents
}

// vouchesForAll reports whether a server's message says that the server holds the contents: each is
// its own, or one that it vouches for or sends along.
func vouchesForAll(frame []byte, origin order.ServerID, contents []content) bool {
	at, count := 0, entryCount(frame)
	for _, c := range contents {
		for at < count && entryOf(frame, at).origin < c.origin {
			at++
		}
		if c.origin != origin && (at == count || entryOf(frame, at).origin != c.origin) {
			return false
		}
	}
	return true
}

// entry is what a message with prompt delivery says about another message of its round. Size and
// since are those of a copy.
type entry struct {
	origin order.ServerID
	size   int
	since  order.Epoch
}

// encodePrompt returns the frame of this server's message of the current round.
func (e *Engine) encodePrompt(kind frameKind, own *ownMessage, revocations []revocation) []byte {
	since, vouched := own.since, own.vouched
	if since < e.epoch && e.config.Fault == FaultRerunForgets {
		vouched = nil
	}
	if e.config.Fault == FaultPromptRerunEpoch && len(vouched) == 0 {
		since = e.epoch
	}
	return encodePrompt(kind, e.config.Generation, e.epoch, e.round, e.self, own.payload, since,
		vouched, revocations...)
}

// encodePrompt returns the frame of a message of a group with prompt delivery. It has copies of the
// contents if it is a rerun, and otherwise only names them.
func encodePrompt(kind frameKind, generation uint64, epoch order.Epoch, round order.Round,
	origin order.ServerID, payload []byte, since order.Epoch, contents []content,
	revocations ...revocation) []byte {
	size, copies := vouchedSize, 0
	if since != epoch {
		size = copySize
		for i := range contents {
			copies += len(contents[i].payload)
		}
	}
	entries := promptHeaderSize + len(revocations)*revocationSize
	end := entries + len(contents)*size
	frame := make([]byte, end, end+copies+len(payload))
	frame[0], frame[1] = promptVersion, byte(kind)
	binary.LittleEndian.PutUint16(frame[2:], uint16(len(revocations)))
	binary.LittleEndian.PutUint32(frame[4:], uint32(origin))
	binary.LittleEndian.PutUint64(frame[8:], generation)
	binary.LittleEndian.PutUint64(frame[16:], uint64(epoch))
	binary.LittleEndian.PutUint64(frame[24:], uint64(round))
	binary.LittleEndian.PutUint64(frame[32:], uint64(since))
	binary.LittleEndian.PutUint16(frame[40:], uint16(len(contents)))
	for i, r := range revocations {
		at := promptHeaderSize + i*revocationSize
		binary.LittleEndian.PutUint32(frame[at:], uint32(r.target))
		binary.LittleEndian.PutUint32(frame[at+4:], r.sequence)
	}
	for i, c := range contents {
		at := entries + i*size
		binary.LittleEndian.PutUint32(frame[at:], uint32(c.origin))
		if since != epoch {
			binary.LittleEndian.PutUint32(frame[at+4:], uint32(len(c.payload)))
			binary.LittleEndian.PutUint64(frame[at+8:], uint64(c.since))
			frame = append(frame, c.payload...)
		}
	}
	return append(frame, payload...)
}

// decodePrompt decodes the header of a message with prompt delivery and checks its entries.
func (h *frameHeader) decodePrompt(origin order.ServerID, frame []byte, maxPayload int) error {
	if !entriesFit(frame) {
		return fmt.Errorf("%w: a message of %d bytes, too few for its entries", order.ErrFrame,
			len(frame))
	}
	if err := h.decodeState(origin, frame); err != nil {
		return err
	}
	h.since, h.entries = sinceOf(frame), entryCount(frame)
	if h.since == 0 || h.since > h.epoch || h.entries > promptMessagesMax ||
		[6]byte(frame[42:48]) != [6]byte{} {
		return fmt.Errorf("%w: a message of epoch %d with %d entries, since epoch %d",
			order.ErrFrame, h.epoch, h.entries, h.since)
	}
	carried := len(frame) - entriesStart(frame) - h.entries*entrySize(frame)
	for i := range h.entries {
		item := entryOf(frame, i)
		if i > 0 && item.origin <= entryOf(frame, i-1).origin || item.origin == origin ||
			h.since < h.epoch && (item.size == 0 || item.since == 0 || item.since > h.epoch) {
			return fmt.Errorf("%w: entry %d of a message, %+v", order.ErrFrame, i, item)
		}
	}
	if carried > maxPayload {
		return fmt.Errorf("%w: %d bytes of payload and copies, more than %d", order.ErrFrame,
			carried, maxPayload)
	}
	return nil
}

// areEntries reports whether the entries of a message name servers of the group.
func (e *Engine) areEntries(header frameHeader, frame []byte) bool {
	return header.entries == 0 ||
		uint64(entryOf(frame, header.entries-1).origin) < uint64(e.n) // ascending
}

// sinceOf returns the epoch in which a message with prompt delivery was A-broadcast first.
func sinceOf(frame []byte) order.Epoch {
	return order.Epoch(binary.LittleEndian.Uint64(frame[32:]))
}

// isRerun reports whether a message with prompt delivery was A-broadcast before, in an earlier
// state.
func isRerun(frame []byte) bool {
	return binary.LittleEndian.Uint64(frame[32:]) != binary.LittleEndian.Uint64(frame[16:])
}

// entryCount returns the number of entries of a message, 0 without prompt delivery.
func entryCount(frame []byte) int {
	if frame[0] != promptVersion {
		return 0
	}
	return int(binary.LittleEndian.Uint16(frame[40:]))
}

// copyCount returns the number of copies in a message.
func copyCount(frame []byte) int {
	if frame[0] != promptVersion || !isRerun(frame) {
		return 0
	}
	return entryCount(frame)
}

func entrySize(frame []byte) int {
	if isRerun(frame) {
		return copySize
	}
	return vouchedSize
}

func entriesStart(frame []byte) int {
	return promptHeaderSize + revocationCount(frame)*revocationSize
}

// entriesFit reports whether a message with prompt delivery is long enough for its entries and the
// copies. The sizes of hostile copies may be more than an int of 32 bits holds.
func entriesFit(frame []byte) bool {
	if len(frame) < promptHeaderSize {
		return false
	}
	first := entriesStart(frame)
	left := int64(len(frame) - first - entryCount(frame)*entrySize(frame))
	for i := range copyCount(frame) {
		if left < 0 {
			break
		}
		left -= int64(binary.LittleEndian.Uint32(frame[first+i*copySize+4:]))
	}
	return left >= 0
}

// entryOf returns the entry at an index.
func entryOf(frame []byte, index int) entry {
	at := entriesStart(frame) + index*entrySize(frame)
	item := entry{origin: order.ServerID(binary.LittleEndian.Uint32(frame[at:]))}
	if isRerun(frame) {
		item.size = int(binary.LittleEndian.Uint32(frame[at+4:]))
		item.since = order.Epoch(binary.LittleEndian.Uint64(frame[at+8:]))
	}
	return item
}

// copiesOf returns the copies in a message, in the frame's memory.
func copiesOf(frame []byte) []content {
	count := copyCount(frame)
	if count == 0 {
		return nil
	}
	copies := make([]content, count)
	at := entriesStart(frame) + count*copySize
	for i := range copies {
		item := entryOf(frame, i)
		copies[i] = content{origin: item.origin, since: item.since,
			payload: frame[at : at+item.size : at+item.size]}
		at += item.size
	}
	return copies
}

// promptPayloadStart returns where the payload begins in a message with prompt delivery whose
// entries begin at an offset.
func promptPayloadStart(frame []byte, entries int) int {
	count := entryCount(frame)
	if !isRerun(frame) {
		return entries + count*vouchedSize
	}
	start := entries + count*copySize
	for i := range count {
		start += entryOf(frame, i).size
	}
	return start
}

// appendVouched appends what AppendState needs of prompt delivery.
func (o *ownMessage) appendVouched(state []byte) []byte {
	state = appendNumber(state, uint64(o.since), uint64(o.epoch), uint64(len(o.vouched)))
	state = appendFlag(state, o.reliable)
	for _, c := range o.vouched {
		state = appendNumber(state, uint64(c.origin), uint64(c.since), uint64(len(c.payload)))
		state = append(state, c.payload...)
	}
	return state
}
