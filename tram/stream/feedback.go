package stream

import "encoding/binary"

// FeedbackSize is the size of a Feedback in memory, in bytes: two words, each meaningful by itself.
const FeedbackSize = 2 * wordSize

// releasedBits is the number of bits of a word that count released bytes.
const releasedBits = 48

// Life distinguishes successive rings between the same writer and carrier. A carrier increments it
// with each Attach of that writer. It wraps around, which is harmless unless feedback is 65,536
// lives late.
type Life uint16

// Feedback is what a carrier tells a writer.
type Feedback struct {
	// Position is the last number that the child's log has durably. It never goes back, whichever
	// carrier reports it.
	Position uint64
	// Life is the life of the ring.
	Life Life
	// Released counts the bytes of the ring that its reader released since the beginning of the
	// ring's life, modulo 2^48.
	Released uint64
}

// words returns the feedback as it lies in memory.
func (f Feedback) words() (uint64, uint64) {
	return f.Position, uint64(f.Life)<<releasedBits | f.Released&(1<<releasedBits-1)
}

// Append appends the feedback as FeedbackSize bytes. A carrier writes them into memory of the
// writer, or sends them to it.
func (f Feedback) Append(b []byte) []byte {
	first, second := f.words()
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, first), second)
}

// FeedbackAt reads the feedback that a carrier wrote at an offset divisible by 8. All zeros mean no
// feedback yet and are harmless. It may run while the carrier writes.
func FeedbackAt(memory Memory, offset int) Feedback {
	// The carrier writes the second word last, so read it first.
	second := load(memory, offset+wordSize)
	return feedbackOf(load(memory, offset), second)
}

// FeedbackFrom reads the first FeedbackSize bytes, as Append wrote them. It returns the zero
// Feedback for fewer bytes.
func FeedbackFrom(b []byte) Feedback {
	if len(b) < FeedbackSize {
		return Feedback{}
	}
	return feedbackOf(binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[wordSize:]))
}

func feedbackOf(first, second uint64) Feedback {
	return Feedback{Position: first, Life: Life(second >> releasedBits),
		Released: second & (1<<releasedBits - 1)}
}
