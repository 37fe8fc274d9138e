package mempool

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrPayload says that a round message's payload is none of ours.
var ErrPayload = errors.New("mempool: malformed payload")

// Entrant is a node that wants to take part in the group that orders: by its index in the chain,
// and a ticket that its process drew and gives to nobody else.
type Entrant struct {
	Server uint32
	Ticket uint64
	// Disk is the identity of the disk that the node counts with.
	Disk [16]byte
}

// Marks are said beside a batch, to every node at the same place in the order. They change the
// group after a few more rounds.
type Marks struct {
	// Regroup ends the generation, so that the next one takes in a node that cannot enter this one
	// any more.
	Regroup bool
	// Entrants are to be in the next eon's group.
	Entrants []Entrant
	// Benched are not to be in the next eon's group, since they hold up the rounds; at most one a
	// payload.
	Benched []uint32
}

// Any tells whether something is marked.
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

// appendMarks puts the marks behind a batch.
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

// SplitPayload gives the batch, empty where the sender had only marks, and the marks. The batch
// shares the payload's memory. It allocates only where there are entrants.
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
