package multicast

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Letter is a message from one process to another.
type Letter struct {
	From  order.Replica
	Bytes []byte
}

// appendMessage appends a message in the encoding that decodeMessage reads. Drivers that carry
// messages in letters and logs use it.
func appendMessage(b []byte, m order.Multicast) []byte {
	b = binary.AppendUvarint(b, uint64(m.ID.Sender.Group))
	b = binary.AppendUvarint(b, uint64(m.ID.Sender.Server))
	b = binary.AppendUvarint(b, m.ID.Sequence)
	b = binary.AppendUvarint(b, uint64(len(m.To)))
	for _, group := range m.To {
		b = binary.AppendUvarint(b, uint64(group))
	}
	return append(b, m.Payload...)
}

// errMessage is returned for bytes that appendMessage does not write.
var errMessage = errors.New("multicast: malformed message")

// decodeMessage reads what appendMessage wrote. The payload is a part of b.
func decodeMessage(b []byte) (order.Multicast, error) {
	next := func() uint64 {
		value, length := binary.Uvarint(b)
		if length <= 0 {
			b = nil
			return 0
		}
		b = b[length:]
		return value
	}
	var m order.Multicast
	m.ID.Sender = order.Replica{Group: order.GroupID(next()), Server: order.ServerID(next())}
	m.ID.Sequence = next()
	count := next()
	if b == nil || count == 0 || count > uint64(len(b)) {
		return order.Multicast{}, fmt.Errorf("%w: %d destinations in %d bytes", errMessage,
			count, len(b))
	}
	for range count {
		m.To = append(m.To, order.GroupID(next()))
	}
	if b == nil {
		return order.Multicast{}, fmt.Errorf("%w: it ends in its destinations", errMessage)
	}
	m.Payload = slices.Clip(b)
	return m, nil
}
