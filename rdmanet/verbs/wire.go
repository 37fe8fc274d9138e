package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// errProtocol: the peer sent something that the control protocol or a lane's stream does not allow.
var errProtocol = errors.New("verbs protocol violated")

// messageKind is the kind of a message on the control plane.
type messageKind uint8

const (
	messageReply   messageKind = iota + 1 // to a request, with its call
	messageAttach                         // request: access to a region, for the given queue pair
	messageAsk                            // request: the state of an attachment
	messageRevoked                        // notice of the owner: the attachment is over
	messageDetach                         // notice of the attaching side: the attachment is over
	messageLane                           // request: a queue pair for a lane
	// notice of a lane's receiver: its end of the queue pair is over. The number is that of the
	// queue pair's other end.
	messageEnded
)

// status is the result in a reply.
type status uint8

const (
	statusWelcome status = iota + 1
	statusAccess         // nothing is granted, or the attachment's grant is over
	statusNoRegion
	statusStale      // the peer knows a newer opening of the lane
	statusNoReceiver // no receiver with that lane name is registered (yet)
	statusFrameMax   // the sender's frames may be larger than the receiver accepts
	statusClosing    // the peer is closing
	statusFailed     // the peer's device or memory refuses the request
	statusRestarted  // the lane leads to an older incarnation of the receiver
)

// String returns the status in words.
func (s status) String() string {
	words := [...]string{statusWelcome: "welcome", statusAccess: "no access",
		statusNoRegion:   "no such region",
		statusStale:      "the peer knows a newer opening of this lane",
		statusNoReceiver: "the peer does not receive lanes of that name",
		statusFrameMax:   "the peer's frame bound is smaller", statusClosing: "the peer closes",
		statusFailed: "the peer's device refuses", statusRestarted: "the peer restarted"}
	if int(s) < len(words) && words[s] != "" {
		return words[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// endpoint is the address of a queue pair. Its numbers are those of libibverbs.
type endpoint struct {
	number, sequence, lid, mtu uint32
	gid                        [16]byte
}

// remoteMemory is a window of remote memory: its address at the owner, its key and its size.
type remoteMemory struct {
	base uint64
	key  uint32
	size uint64
}

// message is any message on the control plane. Fields that a kind does not need are zero.
type message struct {
	kind       messageKind
	status     status
	permission rdmanet.Permission
	call       uint64 // of a request, chosen by its sender, and of its reply
	attachment uint64 // chosen by the attaching host
	endpoint   endpoint
	memory     remoteMemory

	// Used for lanes; the numbers are those of package p2p's hello and answer.
	receiver, lostBy                    rdmanet.Incarnation
	opening, lost, next, delivered      uint64
	frameMax, windowBytes, windowFrames uint32

	name string // of the region or the lane
}

const (
	messageMagic = 0x76_62_73_31 // "vbs1"
	messageSize  = 144           // without the name
	nameMax      = max(rdmanet.LaneNameMax, rdmanet.RegionNameMax)
)

func (m message) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, messageMagic)
	b = append(b, byte(m.kind), byte(m.status), byte(m.permission), byte(len(m.name)))
	b = binary.BigEndian.AppendUint64(b, m.call)
	b = binary.BigEndian.AppendUint64(b, m.attachment)
	for _, n := range [...]uint32{m.endpoint.number, m.endpoint.sequence, m.endpoint.lid,
		m.endpoint.mtu} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	b = append(b, m.endpoint.gid[:]...)
	b = binary.BigEndian.AppendUint64(b, m.memory.base)
	b = binary.BigEndian.AppendUint64(b, m.memory.size)
	for _, n := range [...]uint32{m.memory.key, m.frameMax, m.windowBytes, m.windowFrames} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	for _, n := range [...]uint64{uint64(m.receiver), uint64(m.lostBy), m.opening, m.lost, m.next,
		m.delivered} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = binary.BigEndian.AppendUint64(b, 0)
	return append(b, m.name...)
}

func parseMessage(b []byte) (message, error) {
	if len(b) < messageSize || len(b) > messageSize+nameMax ||
		binary.BigEndian.Uint32(b) != messageMagic || len(b) != messageSize+int(b[7]) {
		return message{}, fmt.Errorf("%w: a message of %d bytes that starts with %x", errProtocol,
			len(b), b[:min(len(b), 8)])
	}
	m := message{kind: messageKind(b[4]), status: status(b[5]),
		permission: rdmanet.Permission(b[6]), name: string(b[messageSize:])}
	rest := b[8:]
	number64 := func() uint64 {
		n := binary.BigEndian.Uint64(rest)
		rest = rest[8:]
		return n
	}
	number32 := func() uint32 {
		n := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		return n
	}
	m.call, m.attachment = number64(), number64()
	m.endpoint.number, m.endpoint.sequence, m.endpoint.lid, m.endpoint.mtu = number32(), number32(),
		number32(), number32()
	copy(m.endpoint.gid[:], rest)
	rest = rest[16:]
	m.memory.base, m.memory.size = number64(), number64()
	m.memory.key, m.frameMax, m.windowBytes, m.windowFrames = number32(), number32(), number32(),
		number32()
	m.receiver, m.lostBy = rdmanet.Incarnation(number64()), rdmanet.Incarnation(number64())
	m.opening, m.lost, m.next, m.delivered = number64(), number64(), number64(), number64()
	sound := m.kind >= messageReply && m.kind <= messageEnded && m.status <= statusRestarted &&
		m.permission <= rdmanet.PermissionReadWrite &&
		m.endpoint.number < 1<<24 && m.endpoint.sequence < 1<<24 && m.endpoint.lid < 1<<16 &&
		m.endpoint.mtu <= 5 &&
		m.memory.size <= rdmanet.RegionSizeMax && m.memory.base <= 1<<63 && m.delivered <= m.next &&
		number64() == 0
	if !sound {
		return message{}, fmt.Errorf("%w: message %x", errProtocol, b[:messageSize])
	}
	return m, nil
}
