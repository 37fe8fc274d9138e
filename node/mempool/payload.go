package mempool

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrPayload reports that a round message's payload is malformed.
var ErrPayload = errors.New("mempool: malformed payload")

// Entrant is a node that wants to take part in the group that orders: its index in the chain, and a
// ticket that its process drew and that no other process has.
type Entrant struct {
	Server uint32
	Ticket uint64
	// Disk is the identity of the disk that the node counts with.
	Disk [16]byte
}

// Marks go with a batch to every node, at the same place in the order. They change the group after
// a few more rounds.
type Marks struct {
	// Regroup ends the generation. The next generation takes in a node that can no longer enter
	// this one.
	Regroup bool
	// Entrants enter the next eon's group.
	Entrants []Entrant
	// Benched members are left out of the next eon's group because they hold up the rounds. A
	// payload has at most one.
	Benched []uint32
}

// Any reports whether any mark is set.
func (m Marks) Any() bool { return m.Regroup || len(m.Entrants) > 0 || len(m.Benched) > 0 }

// EntrantsMax bounds the entrants of one payload.
const EntrantsMax = 16

// A payload is a batch, the entrants (28 bytes each, little-endian: server u32, ticket u64, disk)
// and one byte: the number of entrants, and the flags. With flagBench the member to bench, u32,
// comes right before that byte.
const (
	entrantSize = 4 + 8 + 16
	benchSize   = 4
	flagRegroup = 0x80
	flagBench   = 0x40
)

// appendMarks appends the marks to a batch.
func appendMarks(batch []byte, marks Marks) []byte {
	for _, e := range marks.Entrants {
		batch = binary.LittleEndian.AppendUint32(batch, e.Server)
		batch = binary.LittleEndian.AppendUint64(batch, e.Ticket)
		batch = append(batch, e.Disk[:]...)
	}
	last := byte(len(marks.Entrants))
	if marks.Regroup {
		last |= flagRegroup
	}
	if len(marks.Benched) > 0 {
		last |= flagBench
		batch = binary.LittleEndian.AppendUint32(batch, marks.Benched[0])
	}
	return append(batch, last)
}

// SplitPayload returns the batch, empty if the sender had only marks, and the marks. The batch
// shares the payload's memory. SplitPayload allocates only if there are entrants or benched
// members.
func SplitPayload(payload []byte) (batch []byte, marks Marks, err error) {
	if len(payload) == 0 {
		return nil, Marks{}, nil
	}
	last := payload[len(payload)-1]
	batch = payload[:len(payload)-1]
	marks.Regroup = last&flagRegroup != 0
	if last&flagBench != 0 {
		if len(batch) < benchSize {
			return nil, Marks{}, fmt.Errorf("%w: a bench in %d bytes", ErrPayload, len(batch))
		}
		marks.Benched = []uint32{binary.LittleEndian.Uint32(batch[len(batch)-benchSize:])}
		batch = batch[:len(batch)-benchSize]
	}
	count := int(last &^ (flagRegroup | flagBench))
	if count > EntrantsMax || count*entrantSize > len(batch) {
		return nil, Marks{}, fmt.Errorf("%w: %d entrants in %d bytes", ErrPayload,
			count, len(batch))
	}
	if count == 0 {
		return batch, marks, nil
	}
	encoded := batch[len(batch)-count*entrantSize:]
	batch = batch[:len(batch)-len(encoded)]
	for ; len(encoded) > 0; encoded = encoded[entrantSize:] {
		marks.Entrants = append(marks.Entrants, Entrant{
			Server: binary.LittleEndian.Uint32(encoded),
			Ticket: binary.LittleEndian.Uint64(encoded[4:]),
			Disk:   [16]byte(encoded[12:]),
		})
	}
	return batch, marks, nil
}
