package allconcur

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// The frames of a group. All numbers are little-endian.
//
//	a message (BCAST, RBCAST)
//	offset size
//	0      1    version, 1
//	1      1    kind, 1 BCAST or 2 RBCAST
//	2      2    number of revocations
//	4      4    origin
//	8      8    generation
//	16     8    epoch
//	24     8    round
//	32     8·   revocations: target, 4, and sequence number, 4
//	       -    payload
//
//	a message (BCAST, RBCAST) of a group with prompt delivery (prompt.go)
//	offset size
//	0      1    version, 2
//	1      1    kind, 1 BCAST or 2 RBCAST
//	2      2    number of revocations
//	4      4    origin
//	8      8    generation
//	16     8    epoch
//	24     8    round
//	32     8    since: the epoch in which the origin A-broadcast this message first
//	40     2    number of entries
//	42     6    zero
//	48     8·   revocations: target, 4, and sequence number, 4
//	       -    entries, by ascending server. If since is epoch, the servers that the origin vouches
//	            for: server, 4. Otherwise copies of the messages that it vouched for: server, 4,
//	            size, 4, and that message's since, 8
//	       -    the payloads of the copies
//	       -    payload
//
//	a failure notification (FAIL)
//	offset size
//	0      1    version, 1
//	1      1    kind, 3
//	2      2    zero
//	4      4    target
//	8      8    generation
//	16     4    owner
//	20     4    sequence number, 0 under P
//
//	a vote (FWD, BWD)
//	offset size
//	0      1    version, 1
//	1      1    kind, 4 FWD or 5 BWD
//	2      1    phase, 1 decided or 2 confirmed
//	3      1    zero
//	4      4    origin: the voter
//	8      8    generation
//	16     8    epoch
//	24     8    round
//	32     8·   the set: bit i of word i/64 is server i
const (
	frameVersion      = 1
	promptVersion     = 2
	messageHeaderSize = 32
	promptHeaderSize  = 48
	failureFrameSize  = 24
	revocationSize    = 8
	vouchedSize       = 4
	copySize          = 16
	// revocationsMax bounds the revocations in one message; more wait for the next.
	revocationsMax = 16
)

// frameKind is the kind of a frame.
type frameKind uint8

const (
	// kindUnreliable is ⟨BCAST, m⟩ of AllConcur+: a message of an unreliable round, which travels
	// over G_U.
	kindUnreliable frameKind = 1
	// kindReliable is ⟨RBCAST, m⟩, ⟨BCAST, m⟩ of AllConcur: a message of a reliable round, which
	// travels over G_R.
	kindReliable frameKind = 2
	// kindFailure is ⟨FAIL, p_j, p_k⟩: owner p_k says that its predecessor p_j failed.
	kindFailure frameKind = 3
	// kindForward is ⟨FWD, p_j⟩: a vote. It travels over G_R, and under DetectorEventual over the
	// transpose of G_R too.
	kindForward frameKind = 4
	// kindBackward is ⟨BWD, p_j⟩ of DetectorEventualPaper: the same vote over the transpose of G_R.
	kindBackward frameKind = 5
)

// frameHeader is a decoded frame without its payload. Only the fields of its kind are set.
type frameHeader struct {
	kind       frameKind
	generation uint64
	epoch      order.Epoch
	round      order.Round
	origin     order.ServerID
	target     order.ServerID
	owner      order.ServerID
	sequence   uint32
	// revocations counts the revocations before a message's payload.
	revocations int
	// prompt says that it is a message of a group with prompt delivery, which has since and the
	// number of entries, too.
	prompt  bool
	since   order.Epoch
	entries int
	phase   votePhase
}

// revocation is revoke_{j,k,s} in the message of server p_k [Poke19, section 6.3.3.1]: its
// notifications of p_j's failure up to that sequence number are no longer valid.
type revocation struct {
	target   order.ServerID
	sequence uint32
}

// FrameSizeMax returns the size in bytes of the largest frame of a group whose payloads are bounded
// by maxPayload. Lanes are sized by it.
func FrameSizeMax(maxPayload int) int {
	return max(messageHeaderSize+digraph.MaxOrder/8,
		promptHeaderSize+revocationsMax*revocationSize+promptMessagesMax*copySize+maxPayload)
}

// decodeFrame decodes a frame, strictly: it accepts exactly the bytes that an encoder returns. An
// error wraps order.ErrFrame.
func decodeFrame(frame []byte, maxPayload int) (frameHeader, error) {
	if len(frame) < failureFrameSize {
		return frameHeader{}, fmt.Errorf("%w: %d bytes are too few", order.ErrFrame, len(frame))
	}
	isMessage := frameKind(frame[1]) == kindUnreliable || frameKind(frame[1]) == kindReliable
	if frame[0] != frameVersion && !(frame[0] == promptVersion && isMessage) {
		return frameHeader{}, fmt.Errorf("%w: version %d, want %d", order.ErrFrame, frame[0],
			frameVersion)
	}
	header := frameHeader{kind: frameKind(frame[1]), prompt: frame[0] == promptVersion,
		generation: binary.LittleEndian.Uint64(frame[8:])}
	server := order.ServerID(binary.LittleEndian.Uint32(frame[4:]))
	switch header.kind {
	case kindUnreliable, kindReliable:
		header.revocations = int(binary.LittleEndian.Uint16(frame[2:]))
		if header.revocations > revocationsMax || header.revocations > 0 &&
			header.kind == kindUnreliable {
			return frameHeader{}, fmt.Errorf("%w: %d revocations in a message of kind %d",
				order.ErrFrame, header.revocations, header.kind)
		}
		if header.prompt {
			if err := header.decodePrompt(server, frame, maxPayload); err != nil {
				return frameHeader{}, err
			}
			break
		}
		if start := messageHeaderSize + header.revocations*revocationSize; len(frame) < start ||
			len(frame) > start+maxPayload {
			return frameHeader{}, fmt.Errorf("%w: a message of %d bytes, want %d to %d",
				order.ErrFrame, len(frame), start, start+maxPayload)
		}
		if err := header.decodeState(server, frame); err != nil {
			return frameHeader{}, err
		}
	case kindFailure:
		if len(frame) != failureFrameSize || frame[2] != 0 || frame[3] != 0 {
			return frameHeader{}, fmt.Errorf("%w: a failure notification of %d bytes, want %d "+
				"with the reserved ones zero", order.ErrFrame, len(frame), failureFrameSize)
		}
		header.sequence = binary.LittleEndian.Uint32(frame[20:])
		header.target = server
		header.owner = order.ServerID(binary.LittleEndian.Uint32(frame[16:]))
	case kindForward, kindBackward:
		header.phase = votePhase(frame[2])
		if size := len(frame) - messageHeaderSize; size < 8 || size%8 != 0 ||
			size > digraph.MaxOrder/8 || header.phase < phaseDecided ||
			header.phase > phaseConfirmed || frame[3] != 0 {
			return frameHeader{}, fmt.Errorf("%w: a vote of %d bytes in phase %d", order.ErrFrame,
				len(frame), header.phase)
		}
		if err := header.decodeState(server, frame); err != nil {
			return frameHeader{}, err
		}
	default:
		return frameHeader{}, fmt.Errorf("%w: kind %d", order.ErrFrame, frame[1])
	}
	return header, nil
}

// decodeState decodes the sender of a message or a vote, and its state.
func (h *frameHeader) decodeState(origin order.ServerID, frame []byte) error {
	h.origin = origin
	h.epoch = order.Epoch(binary.LittleEndian.Uint64(frame[16:]))
	h.round = order.Round(binary.LittleEndian.Uint64(frame[24:]))
	if h.epoch == 0 || h.round == 0 {
		return fmt.Errorf("%w: epoch %d, round %d, both count from 1", order.ErrFrame, h.epoch,
			h.round)
	}
	return nil
}

// appendMessage appends the frame of a message.
func appendMessage(b []byte, kind frameKind, generation uint64, epoch order.Epoch,
	round order.Round, origin order.ServerID, payload []byte, revocations ...revocation) []byte {
	b = append(b, frameVersion, byte(kind))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(revocations)))
	b = binary.LittleEndian.AppendUint32(b, uint32(origin))
	b = binary.LittleEndian.AppendUint64(b, generation)
	b = binary.LittleEndian.AppendUint64(b, uint64(epoch))
	b = binary.LittleEndian.AppendUint64(b, uint64(round))
	for _, r := range revocations {
		b = binary.LittleEndian.AppendUint32(b, uint32(r.target))
		b = binary.LittleEndian.AppendUint32(b, r.sequence)
	}
	return append(b, payload...)
}

// encodeMessage returns the frame of a message. It copies the revocations and the payload.
func encodeMessage(kind frameKind, generation uint64, epoch order.Epoch, round order.Round,
	origin order.ServerID, payload []byte, revocations ...revocation) []byte {
	var room [messageHeaderSize + revocationsMax*revocationSize]byte
	header := appendMessage(room[:0], kind, generation, epoch, round, origin, nil, revocations...)
	// Unlike make, Join does not clear the memory that it then fills.
	return bytes.Join([][]byte{header, payload}, nil)
}

func encodeFailure(generation uint64, target, owner order.ServerID, sequence uint32) []byte {
	frame := make([]byte, failureFrameSize)
	frame[0], frame[1] = frameVersion, byte(kindFailure)
	binary.LittleEndian.PutUint32(frame[4:], uint32(target))
	binary.LittleEndian.PutUint64(frame[8:], generation)
	binary.LittleEndian.PutUint32(frame[16:], uint32(owner))
	binary.LittleEndian.PutUint32(frame[20:], sequence)
	return frame
}

// encodeVote returns the frame of a vote for a set.
func encodeVote(kind frameKind, phase votePhase, generation uint64, epoch order.Epoch,
	round order.Round, origin order.ServerID, set serverSet) []byte {
	frame := make([]byte, messageHeaderSize+8*len(set))
	frame[0], frame[1], frame[2] = frameVersion, byte(kind), byte(phase)
	binary.LittleEndian.PutUint32(frame[4:], uint32(origin))
	binary.LittleEndian.PutUint64(frame[8:], generation)
	binary.LittleEndian.PutUint64(frame[16:], uint64(epoch))
	binary.LittleEndian.PutUint64(frame[24:], uint64(round))
	for i, word := range set {
		binary.LittleEndian.PutUint64(frame[messageHeaderSize+8*i:], word)
	}
	return frame
}

// messageStart returns where the revocations of a message's frame begin.
func messageStart(frame []byte) int {
	if frame[0] == promptVersion {
		return promptHeaderSize
	}
	return messageHeaderSize
}

// payloadStart returns where the payload of a message's frame begins.
func payloadStart(frame []byte) int {
	start := messageStart(frame) + revocationCount(frame)*revocationSize
	if frame[0] == promptVersion {
		return promptPayloadStart(frame, start)
	}
	return start
}

// revocationCount returns the number of revocations in a message's frame.
func revocationCount(frame []byte) int { return int(binary.LittleEndian.Uint16(frame[2:])) }

// revocationOf returns the revocation at an index in a message's frame.
func revocationOf(frame []byte, index int) revocation {
	at := messageStart(frame) + index*revocationSize
	return revocation{target: order.ServerID(binary.LittleEndian.Uint32(frame[at:])),
		sequence: binary.LittleEndian.Uint32(frame[at+4:])}
}

// sameSet reports whether a vote's frame is for the set.
func sameSet(frame []byte, set serverSet) bool {
	for i, word := range set {
		if binary.LittleEndian.Uint64(frame[messageHeaderSize+8*i:]) != word {
			return false
		}
	}
	return true
}

// copySet copies the set of a vote's frame.
func copySet(set serverSet, frame []byte) {
	for i := range set {
		set[i] = binary.LittleEndian.Uint64(frame[messageHeaderSize+8*i:])
	}
}

// payloadOf returns the payload of a message's frame, nil if it is empty. An append to it cannot
// write into the frame.
func payloadOf(frame []byte) []byte {
	start := payloadStart(frame)
	if len(frame) <= start {
		return nil
	}
	return frame[start:len(frame):len(frame)]
}
