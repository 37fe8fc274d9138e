package p2p

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// The messages of the region protocol. All integers are big-endian. A stream carries requests in
// one direction and a response to each, in the same order, in the other. Every message starts with
// a magic number, which reveals a stream out of step at the next message.
const (
	regionHelloMagic  = 0x72_64_67_31 // "rdg1"
	regionAnswerMagic = 0x72_64_67_61 // "rdga"
	requestMagic      = 0x72          // "r"
	responseMagic     = 0x73          // "s"
)

const (
	regionHelloSize  = 32
	regionAnswerSize = 16
	requestSize      = 16
	responseSize     = 8
	attachedSize     = 8
)

// pieceMax bounds the bytes that one request writes or reads. Longer operations are split into
// pieces. An owner holds one piece of a read.
const pieceMax = 256 << 10

// responsesMax bounds how many requests one response answers.
const responsesMax = 1<<16 - 1

// errRegionProtocol: the peer sent something that the region protocol does not allow.
var errRegionProtocol = errors.New("region protocol violated")

// regionHello is the attaching host's first message on a stream.
type regionHello struct {
	// sender is the attaching host's incarnation. receiver is the incarnation that attachments must
	// lead to, or 0 for any.
	sender, receiver rdmanet.Incarnation
	// opening counts the sender's region streams to that peer, from 1.
	opening uint64
	// trusted: the network is trusted and nothing is sealed.
	trusted bool
}

func (h regionHello) append(b []byte) []byte {
	flags := uint32(0)
	if h.trusted {
		flags |= helloTrusted
	}
	b = binary.BigEndian.AppendUint32(b, regionHelloMagic)
	b = binary.BigEndian.AppendUint32(b, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(h.sender))
	b = binary.BigEndian.AppendUint64(b, uint64(h.receiver))
	return binary.BigEndian.AppendUint64(b, h.opening)
}

func readRegionHello(r io.Reader) (regionHello, error) {
	var b [regionHelloSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return regionHello{}, fmt.Errorf("region hello: %w", err)
	}
	h := regionHello{
		sender:   rdmanet.Incarnation(binary.BigEndian.Uint64(b[8:])),
		receiver: rdmanet.Incarnation(binary.BigEndian.Uint64(b[16:])),
		opening:  binary.BigEndian.Uint64(b[24:]),
	}
	magic, flags := binary.BigEndian.Uint32(b[:]), binary.BigEndian.Uint32(b[4:])
	h.trusted = flags&helloTrusted != 0
	if magic != regionHelloMagic || flags&^helloTrusted != 0 || h.sender == 0 || h.opening == 0 {
		return regionHello{}, fmt.Errorf("%w: hello starts with %x, incarnation %s, opening %d",
			errRegionProtocol, b[:8], h.sender, h.opening)
	}
	return h, nil
}

// regionAnswer is the owner's reply to a hello. The status is statusWelcome, statusRestarted,
// statusStale, statusClosing or statusTrust.
type regionAnswer struct {
	status      status
	incarnation rdmanet.Incarnation // the owner's
}

func (a regionAnswer) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, regionAnswerMagic)
	b = binary.BigEndian.AppendUint32(b, uint32(a.status))
	return binary.BigEndian.AppendUint64(b, uint64(a.incarnation))
}

func readRegionAnswer(r io.Reader) (regionAnswer, error) {
	var b [regionAnswerSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return regionAnswer{}, fmt.Errorf("region answer: %w", err)
	}
	code := binary.BigEndian.Uint32(b[4:])
	a := regionAnswer{status: status(code),
		incarnation: rdmanet.Incarnation(binary.BigEndian.Uint64(b[8:]))}
	if magic := binary.BigEndian.Uint32(b[:]); magic != regionAnswerMagic || code > 0xff ||
		a.incarnation == 0 {
		return regionAnswer{}, fmt.Errorf("%w: answer starts with %x, incarnation %s",
			errRegionProtocol, b[:8], a.incarnation)
	}
	switch a.status {
	case statusWelcome, statusRestarted, statusStale, statusClosing, statusTrust:
		return a, nil
	default:
		return regionAnswer{}, fmt.Errorf("%w: answer with status %d", errRegionProtocol, code)
	}
}

// requestKind is the kind of a request.
type requestKind uint8

const (
	requestWrite requestKind = iota + 1 // length bytes follow
	requestRead                         // the response carries length bytes
	// length bytes with the region's name follow; the response carries an attached.
	requestAttach
	// The attachment ends. There is no response.
	requestDetach
)

// request is the header of a request.
type request struct {
	kind requestKind
	// ring wakes the waiters at the owner. Writes only.
	ring bool
	// attachment is a number that the attaching host chooses. It is never 0, and grows with each
	// attach of a stream.
	attachment uint32
	// offset and length give the range in the region, in bytes.
	offset, length uint32
}

func (r request) append(b []byte) []byte {
	flags := byte(0)
	if r.ring {
		flags = 1
	}
	b = append(b, requestMagic, byte(r.kind), flags, 0)
	b = binary.BigEndian.AppendUint32(b, r.attachment)
	b = binary.BigEndian.AppendUint32(b, r.offset)
	return binary.BigEndian.AppendUint32(b, r.length)
}

// parseRequest decodes a header of requestSize bytes.
func parseRequest(b []byte) (request, error) {
	_ = b[requestSize-1]
	r := request{
		kind:       requestKind(b[1]),
		ring:       b[2] == 1,
		attachment: binary.BigEndian.Uint32(b[4:]),
		offset:     binary.BigEndian.Uint32(b[8:]),
		length:     binary.BigEndian.Uint32(b[12:]),
	}
	sound := b[0] == requestMagic && b[2] <= 1 && b[3] == 0 && r.attachment != 0
	switch r.kind {
	case requestWrite:
		sound = sound && r.length <= pieceMax
	case requestRead:
		sound = sound && r.length <= pieceMax && !r.ring
	case requestAttach:
		sound = sound && r.length > 0 && r.length <= rdmanet.RegionNameMax && r.offset == 0 &&
			!r.ring
	case requestDetach:
		sound = sound && r.length == 0 && r.offset == 0 && !r.ring
	default:
		sound = false
	}
	if !sound {
		return request{}, fmt.Errorf("%w: request %x", errRegionProtocol, b[:requestSize])
	}
	return r, nil
}

// outcome is the owner's result of a request.
type outcome uint8

const (
	outcomeDone     outcome = iota + 1
	outcomeAccess           // no such access was granted, or it has changed
	outcomeBounds           // past the region's end
	outcomeNoRegion         // an attach for a region that is not there
	outcomeTooMany          // an attach beyond the limit of attachments per peer
)

// err returns the fabric's error for an outcome, nil for outcomeDone.
func (o outcome) err() error {
	switch o {
	case outcomeDone:
		return nil
	case outcomeAccess:
		return rdmanet.ErrAccess
	case outcomeBounds:
		return rdmanet.ErrBounds
	case outcomeNoRegion:
		return rdmanet.ErrNoRegion
	case outcomeTooMany:
		return fmt.Errorf("%w: more than %d attachments that work", rdmanet.ErrTooLarge,
			attachmentsMax)
	default:
		return fmt.Errorf("%w: outcome %d", errRegionProtocol, uint8(o))
	}
}

// response is the header of a response. It answers count requests with the same outcome. If bytes
// follow, it answers one.
type response struct {
	outcome outcome
	count   uint16
	length  uint32
}

func (r response) append(b []byte) []byte {
	b = append(b, responseMagic, byte(r.outcome))
	b = binary.BigEndian.AppendUint16(b, r.count)
	return binary.BigEndian.AppendUint32(b, r.length)
}

// parseResponse decodes a header of responseSize bytes.
func parseResponse(b []byte) (response, error) {
	_ = b[responseSize-1]
	r := response{outcome: outcome(b[1]), count: binary.BigEndian.Uint16(b[2:]),
		length: binary.BigEndian.Uint32(b[4:])}
	sound := b[0] == responseMagic && r.outcome >= outcomeDone && r.outcome <= outcomeTooMany &&
		r.count > 0
	if r.length > 0 {
		sound = sound && r.length <= pieceMax && r.count == 1 && r.outcome == outcomeDone
	}
	if !sound {
		return response{}, fmt.Errorf("%w: response %x", errRegionProtocol, b[:responseSize])
	}
	return r, nil
}

// attached follows the response to a successful attach.
type attached struct {
	size       uint32 // of the region, in bytes
	permission rdmanet.Permission
}

func (a attached) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, a.size)
	return append(b, byte(a.permission), 0, 0, 0)
}

// parseAttached decodes attachedSize bytes.
func parseAttached(b []byte) (attached, error) {
	_ = b[attachedSize-1]
	a := attached{size: binary.BigEndian.Uint32(b), permission: rdmanet.Permission(b[4])}
	granted := a.permission == rdmanet.PermissionRead || a.permission == rdmanet.PermissionReadWrite
	if a.size == 0 || a.size > rdmanet.RegionSizeMax || a.size%rdmanet.WordSize != 0 || !granted ||
		b[5]|b[6]|b[7] != 0 {
		return attached{}, fmt.Errorf("%w: attached %x", errRegionProtocol, b[:attachedSize])
	}
	return a, nil
}
