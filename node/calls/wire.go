package calls

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// The kinds of frames.
const (
	kindRequest     byte = 1
	kindRequestPart byte = 2
	kindCancel      byte = 3
	kindAnswer      byte = 4
	kindAnswerPart  byte = 5
	kindWorking     byte = 6
)

// Sizes of the fixed beginnings of frames, and bounds of their contents, in bytes or in number.
const (
	idEnd             = 1 + 8
	requestHeaderSize = idEnd + 4 + 4 + 4
	answerHeaderSize  = idEnd + 2 + 4 + 4
	partHeaderSize    = idEnd + 4
	headMax           = 64 << 10
	headersMax        = 256
	textMax           = 1<<16 - 1
	workingMax        = 256
	statusMin         = 200
	statusMax         = 599
)

// errFrame means that a frame is malformed.
var errFrame = errors.New("malformed frame")

// request is the first frame of a call.
type request struct {
	id             uint64
	milliseconds   uint32 // the caller's remaining time
	total          int    // the length of the body
	method, target string
	header         http.Header
	// body is the beginning of the body, or all of it.
	body []byte
}

// answer is the first frame of an answer.
type answer struct {
	id     uint64
	status int
	total  int
	header http.Header
	body   []byte
}

// part is a later piece of a body.
type part struct {
	id     uint64
	offset int
	bytes  []byte
}

// encode returns the frames of a request, with the body cut into pieces of piece bytes.
func (r *request) encode(head, body []byte, piece int) [][]byte {
	first := min(len(body), piece)
	frame := append(make([]byte, 0, requestHeaderSize+len(head)+first), kindRequest)
	frame = binary.LittleEndian.AppendUint64(frame, r.id)
	frame = binary.LittleEndian.AppendUint32(frame, r.milliseconds)
	return appendBody(frame, r.id, kindRequestPart, head, body, piece)
}

// encode returns the frames of an answer.
func (a *answer) encode(head, body []byte, piece int) [][]byte {
	first := min(len(body), piece)
	frame := append(make([]byte, 0, answerHeaderSize+len(head)+first), kindAnswer)
	frame = binary.LittleEndian.AppendUint64(frame, a.id)
	frame = binary.LittleEndian.AppendUint16(frame, uint16(a.status))
	return appendBody(frame, a.id, kindAnswerPart, head, body, piece)
}

// appendBody completes a first frame, and returns it with the frames of the further parts.
func appendBody(frame []byte, id uint64, kind byte, head, body []byte, piece int) [][]byte {
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(body)))
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(head)))
	frame = append(frame, head...)
	first := min(len(body), piece)
	frames := [][]byte{append(frame, body[:first]...)}
	for at := first; at < len(body); at += piece {
		bytes := body[at:min(len(body), at+piece)]
		frame := append(make([]byte, 0, partHeaderSize+len(bytes)), kind)
		frame = binary.LittleEndian.AppendUint64(frame, id)
		frame = binary.LittleEndian.AppendUint32(frame, uint32(at))
		frames = append(frames, append(frame, bytes...))
	}
	return frames
}

func encodeCancel(id uint64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{kindCancel}, id)
}

func encodeWorking(ids []uint64) []byte {
	frame := append(make([]byte, 0, 1+8*len(ids)), kindWorking)
	for _, id := range ids {
		frame = binary.LittleEndian.AppendUint64(frame, id)
	}
	return frame
}

func decodeRequest(frame []byte) (*request, error) {
	if len(frame) < requestHeaderSize || frame[0] != kindRequest {
		return nil, fmt.Errorf("%w: a request of %d bytes", errFrame, len(frame))
	}
	r := &request{id: frameID(frame), milliseconds: binary.LittleEndian.Uint32(frame[idEnd:])}
	if r.milliseconds < 1 {
		return nil, fmt.Errorf("%w: a request with no time left", errFrame)
	}
	head, err := decodeBody(frame[idEnd+4:], &r.total, &r.body)
	if err != nil {
		return nil, err
	}
	if r.method, head, err = takeText(head, 1); err != nil {
		return nil, err
	}
	if r.method != http.MethodGet && r.method != http.MethodPost {
		return nil, fmt.Errorf("%w: a method that is not carried", errFrame)
	}
	if r.target, head, err = takeText(head, 2); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(r.target, "/") {
		return nil, fmt.Errorf("%w: a target that does not begin with a slash", errFrame)
	}
	if r.header, err = decodeHeaders(head); err != nil {
		return nil, err
	}
	return r, nil
}

func decodeAnswer(frame []byte) (*answer, error) {
	if len(frame) < answerHeaderSize || frame[0] != kindAnswer {
		return nil, fmt.Errorf("%w: an answer of %d bytes", errFrame, len(frame))
	}
	a := &answer{id: frameID(frame), status: int(binary.LittleEndian.Uint16(frame[idEnd:]))}
	if a.status < statusMin || a.status > statusMax {
		return nil, fmt.Errorf("%w: status %d", errFrame, a.status)
	}
	head, err := decodeBody(frame[idEnd+2:], &a.total, &a.body)
	if err != nil {
		return nil, err
	}
	if a.header, err = decodeHeaders(head); err != nil {
		return nil, err
	}
	return a, nil
}

// frameID returns the id of a frame that is long enough to have one.
func frameID(frame []byte) uint64 { return binary.LittleEndian.Uint64(frame[1:]) }

// decodeBody reads the lengths, returns the head, and stores the body's length and beginning. data
// is long enough for both lengths.
func decodeBody(data []byte, total *int, body *[]byte) (head []byte, err error) {
	whole, size := binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[4:])
	data = data[8:]
	switch {
	case whole > BodyMax:
		return nil, fmt.Errorf("%w: a body of %d bytes, at most %d are carried", errFrame, whole,
			BodyMax)
	case size > headMax || uint64(size) > uint64(len(data)):
		return nil, fmt.Errorf("%w: a head of %d bytes in %d", errFrame, size, len(data))
	case uint64(len(data))-uint64(size) > uint64(whole):
		return nil, fmt.Errorf("%w: %d bytes of a body of %d", errFrame, len(data)-int(size), whole)
	case uint64(len(data)) == uint64(size) && whole > 0:
		return nil, fmt.Errorf("%w: nothing of a body of %d bytes", errFrame, whole)
	}
	*total, *body = int(whole), data[size:]
	return data[:size], nil
}

func decodePart(frame []byte) (part, error) {
	if len(frame) <= partHeaderSize {
		return part{}, fmt.Errorf("%w: a part of %d bytes", errFrame, len(frame))
	}
	offset := binary.LittleEndian.Uint32(frame[idEnd:])
	if offset > BodyMax {
		return part{}, fmt.Errorf("%w: a part at %d", errFrame, offset)
	}
	return part{id: frameID(frame), offset: int(offset), bytes: frame[partHeaderSize:]}, nil
}

func decodeCancel(frame []byte) (uint64, error) {
	if len(frame) != idEnd {
		return 0, fmt.Errorf("%w: a cancel of %d bytes", errFrame, len(frame))
	}
	return frameID(frame), nil
}

func decodeWorking(frame []byte) ([]uint64, error) {
	data := frame[1:]
	if len(data) == 0 || len(data)%8 != 0 || len(data) > 8*workingMax {
		return nil, fmt.Errorf("%w: a sign of %d bytes", errFrame, len(frame))
	}
	ids := make([]uint64, 0, len(data)/8)
	for ; len(data) > 0; data = data[8:] {
		ids = append(ids, binary.LittleEndian.Uint64(data))
	}
	return ids, nil
}

// encodeHead returns a request's head, with those of its headers that are carried. It returns
// ErrNotCarried if the head is too long.
func encodeHead(method, target string, header http.Header) ([]byte, error) {
	if len(target) > textMax {
		return nil, fmt.Errorf("%w: a target of %d bytes", ErrNotCarried, len(target))
	}
	head := append([]byte{byte(len(method))}, method...)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(target)))
	return appendHeaders(append(head, target...), header, carried)
}

// carried reports whether to send a request's header: those that Connect needs, and ledgerd's own.
func carried(name string) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Content-Encoding", "Content-Type", "User-Agent":
		return true
	}
	return strings.HasPrefix(name, "Connect-") || strings.HasPrefix(name, "Ledgerd-")
}

// all carries every header.
func all(string) bool { return true }

// appendHeaders appends the headers that are carried, ordered by name. It returns ErrNotCarried if
// they are too many or too long.
func appendHeaders(head []byte, header http.Header, carried func(name string) bool) ([]byte,
	error) {
	at, count := len(head), 0
	head = append(head, 0, 0)
	names := make([]string, 0, len(header))
	for name := range header {
		if carried(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range header[name] {
			if !validName(name) || !validValue(value) || len(value) > textMax {
				return nil, fmt.Errorf("%w: header %q", ErrNotCarried, name)
			}
			head = binary.LittleEndian.AppendUint16(head, uint16(len(name)))
			head = append(head, name...)
			head = binary.LittleEndian.AppendUint16(head, uint16(len(value)))
			head = append(head, value...)
			count++
		}
	}
	if count > headersMax || len(head) > headMax {
		return nil, fmt.Errorf("%w: %d headers, a head of %d bytes", ErrNotCarried,
			count, len(head))
	}
	binary.LittleEndian.PutUint16(head[at:], uint16(count))
	return head, nil
}

func decodeHeaders(head []byte) (http.Header, error) {
	if len(head) < 2 {
		return nil, fmt.Errorf("%w: no number of headers", errFrame)
	}
	count := int(binary.LittleEndian.Uint16(head))
	if head = head[2:]; count > headersMax {
		return nil, fmt.Errorf("%w: %d headers", errFrame, count)
	}
	header := make(http.Header, count)
	for range count {
		var name, value string
		var err error
		if name, head, err = takeText(head, 2); err != nil {
			return nil, err
		}
		if value, head, err = takeText(head, 2); err != nil {
			return nil, err
		}
		if !validName(name) || !validValue(value) {
			return nil, fmt.Errorf("%w: an invalid header", errFrame)
		}
		header.Add(name, value)
	}
	if len(head) != 0 {
		return nil, fmt.Errorf("%w: %d bytes too many in the head", errFrame, len(head))
	}
	return header, nil
}

// takeText reads a text after its length, which has one byte or two.
func takeText(data []byte, size int) (text string, rest []byte, err error) {
	if len(data) < size {
		return "", nil, fmt.Errorf("%w: it ends before a text", errFrame)
	}
	length := int(data[0])
	if size == 2 {
		length = int(binary.LittleEndian.Uint16(data))
	}
	if data = data[size:]; len(data) < length {
		return "", nil, fmt.Errorf("%w: it ends in a text", errFrame)
	}
	return string(data[:length]), data[length:], nil
}

// validName reports whether a text can be a header's name.
func validName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return name != "" && len(name) <= 256
}

// validValue reports whether a text can be a header's value.
func validValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// bodyBuffer is a body that arrives in pieces.
type bodyBuffer struct {
	total int
	bytes []byte
}

// newBodyBuffer begins with the first piece. A body that is complete at once is not copied.
func newBodyBuffer(total int, first []byte) bodyBuffer {
	if len(first) == total {
		return bodyBuffer{total: total, bytes: first}
	}
	return bodyBuffer{total: total, bytes: append(make([]byte, 0, total), first...)}
}

func (g *bodyBuffer) complete() bool { return len(g.bytes) == g.total }

// add appends a piece, which must follow the previous one.
func (g *bodyBuffer) add(p part) error {
	if p.offset != len(g.bytes) || len(p.bytes) > g.total-len(g.bytes) {
		return fmt.Errorf("%w: a part of %d bytes at %d, %d of %d are here", errFrame, len(p.bytes),
			p.offset, len(g.bytes), g.total)
	}
	g.bytes = append(g.bytes, p.bytes...)
	return nil
}
