package calls

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/node/wire"
)

// kindCall is the kind of all requests.
const kindCall = 1

// answerHeaderSize is the size of an answer before its headers: the status (2) and the length of
// the headers (4).
const answerHeaderSize = 2 + 4

// Bounds of messages, in bytes or in number.
const (
	headMax    = wire.HeadMax
	headersMax = 256
	textMax    = 1<<16 - 1
	statusMin  = 200
	statusMax  = 599
	answerMax  = answerHeaderSize + headMax + BodyMax
)

// errMessage means that a request or an answer is malformed.
var errMessage = errors.New("malformed message")

// request is the head of a call.
type request struct {
	method, target string
	header         http.Header
}

// answer is a whole answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func decodeRequest(head []byte) (r request, err error) {
	if r.method, head, err = takeText(head, 1); err != nil {
		return r, err
	}
	if r.method != http.MethodGet && r.method != http.MethodPost {
		return r, fmt.Errorf("%w: a method that is not carried", errMessage)
	}
	if r.target, head, err = takeText(head, 2); err != nil {
		return r, err
	}
	if !strings.HasPrefix(r.target, "/") {
		return r, fmt.Errorf("%w: a target that does not begin with a slash", errMessage)
	}
	r.header, err = decodeHeaders(head)
	return r, err
}

// decodeAnswer decodes the first chunk of an answer, with the beginning of the body, which shares
// the chunk's memory.
func decodeAnswer(chunk []byte) (*answer, error) {
	if len(chunk) < answerHeaderSize {
		return nil, fmt.Errorf("%w: an answer of %d bytes", errMessage, len(chunk))
	}
	a := &answer{status: int(binary.LittleEndian.Uint16(chunk))}
	if a.status < statusMin || a.status > statusMax {
		return nil, fmt.Errorf("%w: status %d", errMessage, a.status)
	}
	size := binary.LittleEndian.Uint32(chunk[2:])
	rest := chunk[answerHeaderSize:]
	if size > headMax || uint64(size) > uint64(len(rest)) {
		return nil, fmt.Errorf("%w: a head of %d bytes in %d", errMessage, size, len(rest))
	}
	var err error
	if a.header, err = decodeHeaders(rest[:size]); err != nil {
		return nil, err
	}
	a.body = rest[size:]
	return a, nil
}

// readAnswer reads an answer that is whole.
func readAnswer(asked *wire.Asked) (*answer, error) {
	chunk, _ := asked.Next()
	a, err := decodeAnswer(chunk)
	if err != nil {
		return nil, err
	}
	rest, size := [][]byte(nil), len(a.body)
	for chunk, ok := asked.Next(); ok; chunk, ok = asked.Next() {
		rest, size = append(rest, chunk), size+len(chunk)
	}
	if size > BodyMax {
		return nil, fmt.Errorf("%w: a body of %d bytes, at most %d are carried", errMessage, size,
			BodyMax)
	}
	if rest != nil {
		a.body = slices.Concat(append([][]byte{a.body}, rest...)...)
	}
	return a, nil
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
		return nil, fmt.Errorf("%w: no number of headers", errMessage)
	}
	count := int(binary.LittleEndian.Uint16(head))
	if head = head[2:]; count > headersMax {
		return nil, fmt.Errorf("%w: %d headers", errMessage, count)
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
			return nil, fmt.Errorf("%w: an invalid header", errMessage)
		}
		header.Add(name, value)
	}
	if len(head) != 0 {
		return nil, fmt.Errorf("%w: %d bytes too many in the head", errMessage, len(head))
	}
	return header, nil
}

// takeText reads a text after its length, which has one byte or two.
func takeText(data []byte, size int) (text string, rest []byte, err error) {
	if len(data) < size {
		return "", nil, fmt.Errorf("%w: it ends before a text", errMessage)
	}
	length := int(data[0])
	if size == 2 {
		length = int(binary.LittleEndian.Uint16(data))
	}
	if data = data[size:]; len(data) < length {
		return "", nil, fmt.Errorf("%w: it ends in a text", errMessage)
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
