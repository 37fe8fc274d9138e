package p2p

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

// The messages of the lane protocol. All integers are big-endian. Every message starts with a magic
// number, which reveals a stream out of step at the next message.
const (
	helloMagic  = 0x6c_64_67_31 // "ldg1"
	answerMagic = 0x6c_64_67_61 // "ldga"
	ticketMagic = 0x6c_64_67_74 // "ldgt"
	ackMagic    = 0x6c_61       // "la"
)

const (
	helloSize  = 64 // without the lane's name
	answerSize = 32
	ackSize    = 16
)

var (
	// errProtocol: the peer sent something that the lane protocol does not allow.
	errProtocol = lane.ErrProtocol
	// errGoodbye: the peer announced that its incarnation closes.
	errGoodbye = lane.ErrGoodbye
)

// hello is the sender's first message on a stream.
type hello struct {
	lane.Hello
	// trusted: the sender's network is trusted, so the direct connection is not sealed.
	trusted bool
}

// helloTrusted is the flag of a hello that encodes trusted.
const helloTrusted = 1

func (h hello) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, helloMagic)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Sender))
	b = binary.BigEndian.AppendUint64(b, uint64(h.Receiver))
	b = binary.BigEndian.AppendUint64(b, h.Opening)
	b = binary.BigEndian.AppendUint64(b, h.Lost)
	b = binary.BigEndian.AppendUint64(b, uint64(h.LostBy))
	b = binary.BigEndian.AppendUint32(b, h.FrameMax)
	b = binary.BigEndian.AppendUint32(b, h.WindowBytes)
	b = binary.BigEndian.AppendUint32(b, h.WindowFrames)
	flags := uint32(0)
	if h.trusted {
		flags |= helloTrusted
	}
	b = binary.BigEndian.AppendUint32(b, flags)
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.Name)))
	return append(b, h.Name...)
}

func readHello(r io.Reader) (hello, error) {
	var b [helloSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return hello{}, fmt.Errorf("hello: %w", err)
	}
	if magic := binary.BigEndian.Uint32(b[:]); magic != helloMagic {
		return hello{}, fmt.Errorf("%w: hello starts with %#x", errProtocol, magic)
	}
	h := hello{Hello: lane.Hello{
		Sender:       rdmanet.Incarnation(binary.BigEndian.Uint64(b[4:])),
		Receiver:     rdmanet.Incarnation(binary.BigEndian.Uint64(b[12:])),
		Opening:      binary.BigEndian.Uint64(b[20:]),
		Lost:         binary.BigEndian.Uint64(b[28:]),
		LostBy:       rdmanet.Incarnation(binary.BigEndian.Uint64(b[36:])),
		FrameMax:     binary.BigEndian.Uint32(b[44:]),
		WindowBytes:  binary.BigEndian.Uint32(b[48:]),
		WindowFrames: binary.BigEndian.Uint32(b[52:]),
	}}
	flags, length := binary.BigEndian.Uint32(b[56:]), binary.BigEndian.Uint32(b[60:])
	h.trusted = flags&helloTrusted != 0
	switch {
	case flags&^helloTrusted != 0:
		return hello{}, fmt.Errorf("%w: hello with flags %#x", errProtocol, flags)
	case h.Sender == 0 || h.Opening == 0:
		return hello{}, fmt.Errorf("%w: hello of incarnation %s, opening %d", errProtocol, h.Sender,
			h.Opening)
	case length == 0 || length > rdmanet.LaneNameMax:
		return hello{}, fmt.Errorf("%w: hello with a lane name of %d bytes", errProtocol, length)
	}
	name := make([]byte, length)
	if _, err := io.ReadFull(r, name); err != nil {
		return hello{}, fmt.Errorf("hello: %w", err)
	}
	h.Name = string(name)
	return h, nil
}

// status is the receiver's verdict on a hello: one of package lane's, where the provider's refusal
// (StatusRefused) means a mismatch of the networks.
type status uint8

const (
	statusWelcome   = status(lane.StatusWelcome)
	statusRestarted = status(lane.StatusRestarted)
	statusStale     = status(lane.StatusStale)
	statusClosing   = status(lane.StatusClosing)
	// One end has a trusted network, the other does not.
	statusTrust = status(lane.StatusRefused)
)

func (s status) String() string {
	if s == statusTrust {
		return "one end has fabric " + FabricTrusted + ", the other " + Fabric
	}
	return lane.Status(s).String()
}

// answer is the receiver's reply to a hello.
type answer struct {
	status      status
	incarnation rdmanet.Incarnation // the receiver's
	// next is the number of the frame with which the stream continues. delivered is the number of
	// frames for which the receive function has returned. delivered <= next.
	next, delivered uint64
}

func (a answer) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, answerMagic)
	b = binary.BigEndian.AppendUint32(b, uint32(a.status))
	b = binary.BigEndian.AppendUint64(b, uint64(a.incarnation))
	b = binary.BigEndian.AppendUint64(b, a.next)
	return binary.BigEndian.AppendUint64(b, a.delivered)
}

func readAnswer(r io.Reader) (answer, error) {
	var b [answerSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return answer{}, fmt.Errorf("answer: %w", err)
	}
	if magic := binary.BigEndian.Uint32(b[:]); magic != answerMagic {
		return answer{}, fmt.Errorf("%w: answer starts with %#x", errProtocol, magic)
	}
	code := binary.BigEndian.Uint32(b[4:])
	a := answer{
		status:      status(code),
		incarnation: rdmanet.Incarnation(binary.BigEndian.Uint64(b[8:])),
		next:        binary.BigEndian.Uint64(b[16:]),
		delivered:   binary.BigEndian.Uint64(b[24:]),
	}
	if code < uint32(statusWelcome) || code > uint32(statusTrust) || a.incarnation == 0 ||
		a.delivered > a.next {
		return answer{}, fmt.Errorf("%w: answer %d of incarnation %s, next %d, delivered %d",
			errProtocol, code, a.incarnation, a.next, a.delivered)
	}
	return a, nil
}

// ack reports to the sender how many frames are delivered. With goodbye it also announces that the
// receiver closes.
type ack struct {
	delivered uint64
	goodbye   bool
}

func (a ack) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, ackMagic)
	kind := uint16(0)
	if a.goodbye {
		kind = 1
	}
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint32(b, 0)
	return binary.BigEndian.AppendUint64(b, a.delivered)
}

func readAck(r io.Reader, scratch *[ackSize]byte) (ack, error) {
	b := scratch[:]
	if _, err := io.ReadFull(r, b); err != nil {
		return ack{}, fmt.Errorf("acknowledgement: %w", err)
	}
	magic, kind, zero := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]),
		binary.BigEndian.Uint32(b[4:])
	if magic != ackMagic || kind > 1 || zero != 0 {
		return ack{}, fmt.Errorf("%w: acknowledgement starts with %x", errProtocol, b[:8])
	}
	return ack{delivered: binary.BigEndian.Uint64(b[8:]), goodbye: kind == 1}, nil
}
