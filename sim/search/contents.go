package search

import "encoding/binary"

// contents numbers the contents of channels. Equal sequences of frames have the same number, so a
// channel is one word of a state. 0 is the empty channel. Frames are numbered, too. No engine sends
// the frame endOfChannel: it stands behind the last frame of a server that stopped.
type contents struct {
	frames   [][]byte
	frameIDs map[string]uint32

	// sequences holds all sequences one after another. Sequence i begins at starts[i] and ends
	// where the next one begins.
	sequences []uint32
	starts    []uint32
	ids       map[string]uint32
	// rests[i] is sequence i without its first frame, plus 1. It is 0 until it is needed.
	rests []uint32
	// joined maps the numbers of two sequences to the number of their concatenation.
	joined map[uint64]uint32
	key    []byte
	both   []uint32
}

// endOfChannel is the frame that announces that a channel's sender has stopped.
const endOfChannel = uint32(0)

func newContents() *contents {
	c := &contents{
		frames: [][]byte{nil}, frameIDs: map[string]uint32{}, starts: []uint32{0, 0},
		ids: map[string]uint32{"": 0}, rests: []uint32{0},
		joined: map[uint64]uint32{},
	}
	return c
}

// frame numbers a frame. It keeps the bytes.
func (c *contents) frame(frame []byte) uint32 {
	id, known := c.frameIDs[string(frame)]
	if !known {
		id = uint32(len(c.frames))
		c.frames = append(c.frames, frame)
		c.frameIDs[string(frame)] = id
	}
	return id
}

// sequence numbers a sequence of frames.
func (c *contents) sequence(frames []uint32) uint32 {
	c.key = c.key[:0]
	for _, frame := range frames {
		c.key = binary.LittleEndian.AppendUint32(c.key, frame)
	}
	id, known := c.ids[string(c.key)]
	if !known {
		id = uint32(len(c.rests))
		c.sequences = append(c.sequences, frames...)
		c.starts = append(c.starts, uint32(len(c.sequences)))
		c.rests = append(c.rests, 0)
		c.ids[string(c.key)] = id
	}
	return id
}

// of returns the frames of a sequence.
func (c *contents) of(id uint32) []uint32 { return c.sequences[c.starts[id]:c.starts[id+1]] }

// head returns the first frame of a sequence that is not empty.
func (c *contents) head(id uint32) uint32 { return c.sequences[c.starts[id]] }

// rest returns a sequence without its first frame.
func (c *contents) rest(id uint32) uint32 {
	if c.rests[id] == 0 {
		rest := c.sequence(c.of(id)[1:])
		c.rests[id] = rest + 1
	}
	return c.rests[id] - 1
}

// join returns the concatenation of two sequences.
func (c *contents) join(first, second uint32) uint32 {
	if first == 0 {
		return second
	}
	if second == 0 {
		return first
	}
	key := uint64(first)<<32 | uint64(second)
	id, known := c.joined[key]
	if !known {
		c.both = append(append(c.both[:0], c.of(first)...), c.of(second)...)
		id = c.sequence(c.both)
		c.joined[key] = id
	}
	return id
}
