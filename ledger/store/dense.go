package store

import (
	"encoding/binary"
	"slices"
)

// A chunk of steps of histories is mostly zeros and what the record before has, too. It is packed
// into numbers of variable length, which takes a fraction of the space that a compressor leaves.
// For each record these are: the account's number after the one before, the ordinal of the first
// step, the number of steps with the lowest bit set if they are in several blocks, the height after
// the one before, and for each step the distance of its block from that of the step before, if they
// are in several, and its index, which in one block is after the one before.

// denseMark begins a packed chunk of steps. No other chunk of steps does: their keys are longer.
const denseMark = 1

// appendDense appends a packed chunk of steps. It reports whether the chunk could be packed.
func appendDense(to, chunk []byte) (dense []byte, ok bool) {
	to = append(to, denseMark)
	var lastNumber, lastHeight uint64
	for len(chunk) > 0 {
		key, value, rest, err := runKind(rowSteps).cut(chunk)
		if err != nil || len(key) != stepKeySize || len(value) < 8 {
			return nil, false
		}
		number, height := binary.BigEndian.Uint64(key), binary.BigEndian.Uint64(value)
		size, several := 4, height/severalBlocks
		if several == 1 {
			size, height = 8, height&^severalBlocks
		}
		steps := value[8:]
		if len(steps)%size != 0 {
			return nil, false
		}
		to = binary.AppendUvarint(to, number-lastNumber)
		to = binary.AppendUvarint(to, binary.BigEndian.Uint64(key[8:]))
		to = binary.AppendUvarint(to, uint64(len(steps)/size)<<1|several)
		to = binary.AppendVarint(to, int64(height-lastHeight))
		var last uint32
		for ; len(steps) > 0; steps = steps[size:] {
			next := binary.BigEndian.Uint32(steps)
			to = binary.AppendUvarint(to, uint64(next-last))
			last = next
			if several == 1 {
				to = binary.AppendUvarint(to, uint64(binary.BigEndian.Uint32(steps[4:])))
			}
		}
		lastNumber, lastHeight, chunk = number, height, rest
	}
	return to, true
}

// numbers reads numbers of variable length.
type numbers struct {
	data []byte
	at   int
	bad  bool
}

func (n *numbers) next() uint64 {
	if n.at < len(n.data) && n.data[n.at] < 1<<7 { // most are small
		n.at++
		return uint64(n.data[n.at-1])
	}
	return n.large()
}

func (n *numbers) large() uint64 {
	value, size := binary.Uvarint(n.data[n.at:])
	if size <= 0 {
		n.bad, size = true, len(n.data)-n.at
	}
	n.at += size
	return value
}

// appendSteps appends the chunk that a packed chunk of steps has, without its mark.
func appendSteps(to, dense []byte) ([]byte, error) {
	from := numbers{data: dense}
	var number, height uint64
	to = slices.Grow(to, 4*len(dense))
	for from.at < len(dense) {
		number += from.next()
		ordinal, steps := from.next(), from.next()
		count, several, size := steps>>1, steps&1, uint64(4)
		if several == 1 {
			size = 8
		}
		distance := from.next() // as binary.AppendVarint has it
		height += distance>>1 ^ -(distance & 1)
		// Each step has a byte or more, so what follows cannot be too large either.
		if from.bad || count > uint64(len(dense)-from.at) || height >= severalBlocks ||
			len(to) > maxUnpacked {
			return nil, errPacked
		}
		to = binary.AppendUvarint(append(to, stepKeySize), 8+count*size)
		to = appendStepKey(to, number, ordinal)
		to = binary.BigEndian.AppendUint64(to, height|several*severalBlocks)
		begin := len(to)
		to = slices.Grow(to, int(count*size))[:begin+int(count*size)]
		var last uint32
		for values := to[begin:]; len(values) > 0; values = values[size:] {
			last += uint32(from.next())
			binary.BigEndian.PutUint32(values, last)
			if several == 1 {
				binary.BigEndian.PutUint32(values[4:], uint32(from.next()))
			}
		}
	}
	if from.bad {
		return nil, errPacked
	}
	return to, nil
}
