package p2p

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// The lane protocol's messages, all integers big-endian. Every message starts with a number of its own, so that a stream out of
// step is noticed at the next one.
const (
	helloMagic  = 0x6c_64_67_31 // "ldg1"
	answerMagic = 0x6c_64_67_61 // "ldga"
	ticketMagic = 0x6c_64_67_74 // "ldgt"
	batchMagic  = 0x6c_62       // "lb"
	ackMagic    = 0x6c_61       // "la"
)

const (
	helloSize       = 64 // without the lane's name
	answerSize      = 32
	batchHeaderSize = 16
	lengthSize      = 4
	ackSize         = 16
)

// A batch has at most batchFramesMax frames, and at most batchBytesMax bytes of them unless it is a single frame.
const (
	batchFramesMax = 4096
	batchBytesMax  = 256 << 10
)

// errProtocol: the peer sent what the lane protocol does not allow.
var errProtocol = errors.New("lane protocol violated")

// hello opens a stream: the sender's greeting.
type hello struct {
	lane string
	// sender is the sender's incarnation, receiver the one that the lane leads to, 0 if it leads to whoever answers.
	sender, receiver rdmanet.Incarnation
	// opening counts the sender's lanes of that name to that peer, from 1.
	opening uint64
	// lost counts frames that earlier openings gave up on their way to incarnation lostBy, or to anyone if that is 0.
	lost   uint64
	lostBy rdmanet.Incarnation
	// frameMax bounds the sender's frames, in bytes; windowBytes and windowFrames what it keeps unacknowledged.
	frameMax, windowBytes, windowFrames uint32
	// trusted: the lane's data is to go over a direct connection.
	trusted bool
}

// helloTrusted is the flag of a hello that stands for trusted.
const helloTrusted = 1

func (h hello) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, helloMagic)
	b = binary.BigEndian.AppendUint64(b, uint64(h.sender))
	b = binary.BigEndian.AppendUint64(b, uint64(h.receiver))
	b = binary.BigEndian.AppendUint64(b, h.opening)
	b = binary.BigEndian.AppendUint64(b, h.lost)
	b = binary.BigEndian.AppendUint64(b, uint64(h.lostBy))
	b = binary.BigEndian.AppendUint32(b, h.frameMax)
	b = binary.BigEndian.AppendUint32(b, h.windowBytes)
	b = binary.BigEndian.AppendUint32(b, h.windowFrames)
	flags := uint32(0)
	if h.trusted {
		flags |= helloTrusted
	}
	b = binary.BigEndian.AppendUint32(b, flags)
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.lane)))
	return append(b, h.lane...)
}

func readHello(r io.Reader) (hello, error) {
	var b [helloSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return hello{}, fmt.Errorf("hello: %w", err)
	}
	if magic := binary.BigEndian.Uint32(b[:]); magic != helloMagic {
		return hello{}, fmt.Errorf("%w: hello starts with %#x", errProtocol, magic)
	}
	h := hello{
		sender:       rdmanet.Incarnation(binary.BigEndian.Uint64(b[4:])),
		receiver:     rdmanet.Incarnation(binary.BigEndian.Uint64(b[12:])),
		opening:      binary.BigEndian.Uint64(b[20:]),
		lost:         binary.BigEndian.Uint64(b[28:]),
		lostBy:       rdmanet.Incarnation(binary.BigEndian.Uint64(b[36:])),
		frameMax:     binary.BigEndian.Uint32(b[44:]),
		windowBytes:  binary.BigEndian.Uint32(b[48:]),
		windowFrames: binary.BigEndian.Uint32(b[52:]),
	}
	flags, length := binary.BigEndian.Uint32(b[56:]), binary.BigEndian.Uint32(b[60:])
	h.trusted = flags&helloTrusted != 0
	switch {
	case flags&^helloTrusted != 0:
		return hello{}, fmt.Errorf("%w: hello with flags %#x", errProtocol, flags)
	case h.sender == 0 || h.opening == 0:
		return hello{}, fmt.Errorf("%w: hello of incarnation %s, opening %d", errProtocol, h.sender, h.opening)
	case length == 0 || length > rdmanet.LaneNameMax:
		return hello{}, fmt.Errorf("%w: hello with a lane name of %d bytes", errProtocol, length)
	}
	name := make([]byte, length)
	if _, err := io.ReadFull(r, name); err != nil {
		return hello{}, fmt.Errorf("hello: %w", err)
	}
	h.lane = string(name)
	return h, nil
}

// status is the receiver's word on a hello.
type status uint8

const (
	statusWelcome    status = iota + 1 // the stream carries the lane from now on
	statusRestarted                    // the lane leads to an older incarnation of the receiver
	statusStale                        // the receiver knows a newer incarnation of the sender, or a newer opening
	statusNoReceiver                   // no receiver of that lane name is registered (yet)
	statusFrameMax                     // the sender's frames may be larger than the receiver accepts
	statusClosing                      // the receiver closes
	statusTrust                        // one end has a trusted network, the other has none
)

func (s status) String() string {
	switch s {
	case statusWelcome:
		return "welcome"
	case statusRestarted:
		return "the peer restarted"
	case statusStale:
		return "the peer knows a newer incarnation of this host, or a newer opening of this lane"
	case statusNoReceiver:
		return "the peer does not receive lanes of that name"
	case statusFrameMax:
		return "the peer's frame bound is smaller"
	case statusClosing:
		return "the peer closes"
	case statusTrust:
		return "one end has fabric " + FabricTrusted + ", the other " + Fabric
	default:
		return fmt.Sprintf("status %d", uint8(s))
	}
}

// answer is the receiver's reply to a hello.
type answer struct {
	status      status
	incarnation rdmanet.Incarnation // the receiver's
	// next is the number of the frame that the stream goes on with, delivered the number of frames that the receive function is done
	// with; delivered <= next.
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
	if code < uint32(statusWelcome) || code > uint32(statusTrust) || a.incarnation == 0 || a.delivered > a.next {
		return answer{}, fmt.Errorf("%w: answer %d of incarnation %s, next %d, delivered %d",
			errProtocol, code, a.incarnation, a.next, a.delivered)
	}
	return a, nil
}

// ack tells the sender how many frames are delivered; with goodbye, also that the receiver closes.
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
	magic, kind, zero := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[4:])
	if magic != ackMagic || kind > 1 || zero != 0 {
		return ack{}, fmt.Errorf("%w: acknowledgement starts with %x", errProtocol, b[:8])
	}
	return ack{delivered: binary.BigEndian.Uint64(b[8:]), goodbye: kind == 1}, nil
}
