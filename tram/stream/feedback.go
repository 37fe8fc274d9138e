package stream

import "encoding/binary"

// FeedbackSize is how many bytes a Feedback takes in memory: two words, each of which makes sense
// by itself.
const FeedbackSize = 2 * wordSize

// releasedBits is how much of a word counts what was released.
const releasedBits = 48

// Life tells the rings between the same writer and carrier apart, one after the other: a carrier
// counts it up with each Attach of that writer. It wraps around, which is harmless unless feedback
// is 65,536 lives late.
type Life uint16

// Feedback is what a carrier lets a writer know.
type Feedback struct {
	// Position is the last number that the child's log has for good. It never goes back, whoever
	// says it.
	Position uint64
	// Life is the ring's.
	Life Life
	// Released counts the bytes of the ring that its reader gave back, since the beginning of its
	// life, modulo 2^48.
	Released uint64
}

// words gives the feedback as it lies in memory.
func (f Feedback) words() (uint64, uint64) {
	return f.Position, uint64(f.Life)<<releasedBits | f.Released&(1<<releasedBits-1)
}

// Append appends the feedback as FeedbackSize bytes, which a carrier writes into memory of the
// writer, or sends it.
func (f Feedback) Append(b []byte) []byte {
	first, second := f.words()
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, first), second)
}

// FeedbackAt reads what a carrier has written to an offset that 8 divides; all zero means nothing
// yet, and harms nobody. It may be read while it is written.
func FeedbackAt(memory Memory, offset int) Feedback {
	// The second word is written last, so it is taken first.
	second := load(memory, offset+wordSize)
	return feedbackOf(load(memory, offset), second)
}

// FeedbackFrom reads the first FeedbackSize bytes, as Append wrote them; of fewer, it makes
// nothing.
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
