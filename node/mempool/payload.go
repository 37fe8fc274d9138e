package mempool

import (
	"errors"
	"fmt"
)

// ErrPayload says that a round message's payload is none of ours.
var ErrPayload = errors.New("mempool: malformed payload")

// Marks are said beside a batch, to every node at the same place in the order.
type Marks uint8

// MarkRegroup ends the generation after the round that it is delivered in, so that a node can enter the group.
const MarkRegroup Marks = 1

// SplitPayload gives the batch, empty where the sender had only marks, and the marks. They share the payload's memory.
func SplitPayload(payload []byte) (batch []byte, marks Marks, err error) {
	if len(payload) == 0 {
		return nil, 0, nil
	}
	marks = Marks(payload[len(payload)-1])
	if marks&^MarkRegroup != 0 {
		return nil, 0, fmt.Errorf("%w: marks %#x", ErrPayload, uint8(marks))
	}
	return payload[:len(payload)-1], marks, nil
}
