package replica

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// messageHeader is the size in bytes of a message's encoding before its destinations: the sender's
// group and server, its sequence, and the number of destinations.
const messageHeader = 4 + 4 + 8 + 4

// AppendMessage appends a message as it lies in buffers and logs: the header, four bytes a
// destination, and the payload to the end. All numbers are little-endian.
func AppendMessage(b []byte, m order.Multicast) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(m.ID.Sender.Group))
	b = binary.LittleEndian.AppendUint32(b, uint32(m.ID.Sender.Server))
	b = binary.LittleEndian.AppendUint64(b, m.ID.Sequence)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.To)))
	for _, group := range m.To {
		b = binary.LittleEndian.AppendUint32(b, uint32(group))
	}
	return append(b, m.Payload...)
}

// messageSize returns the length of a message's encoding, in bytes.
func messageSize(m order.Multicast) int { return messageHeader + 4*len(m.To) + len(m.Payload) }

// DecodeMessage reads what AppendMessage wrote. The payload is a part of b. It returns ErrMessage
// for anything else, including destinations that are not ascending.
func DecodeMessage(b []byte) (order.Multicast, error) {
	destinations, payload, err := splitMessage(b)
	if err != nil {
		return order.Multicast{}, err
	}
	m := order.Multicast{ID: messageID(b), To: make([]order.GroupID, 0, len(destinations)/4),
		Payload: payload}
	for at := 0; at < len(destinations); at += 4 {
		group := order.GroupID(binary.LittleEndian.Uint32(destinations[at:]))
		if at > 0 && group <= m.To[len(m.To)-1] {
			return order.Multicast{}, fmt.Errorf("%w: destination %d behind %d", ErrMessage,
				group, m.To[len(m.To)-1])
		}
		m.To = append(m.To, group)
	}
	return m, nil
}

// splitMessage returns a message's destinations and its payload.
func splitMessage(b []byte) (destinations, payload []byte, err error) {
	if len(b) < messageHeader {
		return nil, nil, fmt.Errorf("%w: %d bytes, want at least %d", ErrMessage, len(b),
			messageHeader)
	}
	count := binary.LittleEndian.Uint32(b[16:])
	if count < 1 || count > tram.GroupsMax || int(count)*4 > len(b)-messageHeader {
		return nil, nil, fmt.Errorf("%w: %d destinations in %d bytes", ErrMessage, count, len(b))
	}
	split := messageHeader + 4*int(count)
	return b[messageHeader:split:split], b[split:len(b):len(b)], nil
}

// messageID reads the identity of a message that splitMessage accepted.
func messageID(b []byte) order.MessageID {
	return order.MessageID{
		Sender: order.Replica{Group: order.GroupID(binary.LittleEndian.Uint32(b)),
			Server: order.ServerID(binary.LittleEndian.Uint32(b[4:]))},
		Sequence: binary.LittleEndian.Uint64(b[8:]),
	}
}

// course is what a group does with messages to one destination set.
type course struct {
	to       []order.GroupID
	here     bool  // this group is a destination
	children []int // places of the children that the message is handed on to
	entered  bool  // this group is the lca of the destinations, as a client's message requires
}

// coursesMax is the maximum number of destination sets that a replica remembers.
const coursesMax = 4096

// courses remembers what to do with each destination set.
type courses struct {
	tree *tram.Tree
	self order.GroupID
	sets map[string]*course
}

// of returns the course for the destinations, given as they lie in a message.
func (c *courses) of(destinations []byte) *course {
	if known := c.sets[string(destinations)]; known != nil {
		return known
	}
	found := c.find(destinations)
	if len(c.sets) < coursesMax {
		c.sets[string(destinations)] = found
	}
	return found
}

func (c *courses) find(destinations []byte) *course {
	found := &course{}
	for at := 0; at < len(destinations); at += 4 {
		found.to = append(found.to, order.GroupID(binary.LittleEndian.Uint32(destinations[at:])))
	}
	if c.tree.CheckDestinations(found.to) != nil {
		return found
	}
	found.entered = c.tree.LCA(found.to) == c.self
	route := c.tree.Route(c.self, found.to)
	for place, child := range c.tree.Children(c.self) {
		for _, on := range route {
			if on == child {
				found.children = append(found.children, place)
			}
		}
	}
	for _, group := range found.to {
		found.here = found.here || group == c.self
	}
	return found
}
