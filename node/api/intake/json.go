package intake

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxDepth bounds how deep a JSON request nests. No request needs half of it.
const maxDepth = 16

// costOfValue is what a JSON value costs above its text: a token, and the value that it becomes.
const costOfValue = 48

// level is an object or a list that is open.
type level struct {
	object   bool
	message  *shape // of an object, or of a list's elements; nil if unknown
	limit    int    // of a list
	elements int
	field    *field // of the value that follows in an object; nil if unknown
	key      bool   // whether an object's next text is a name
}

// CheckJSON reports an error if the request, as JSON, is over the limits of its call. It does not
// check that the JSON is well-formed: the decoder does.
func (t *Table) CheckJSON(request protoreflect.FullName, data []byte) error {
	entry := t.requests[request]
	if entry == nil {
		return fmt.Errorf("%s is not a request", request)
	}
	if len(data) > entry.limits.Bytes {
		return fmt.Errorf("the request has %d bytes, at most %d are allowed", len(data),
			entry.limits.Bytes)
	}
	scan := jsonScan{call: entry, spending: entry.spendingFor(len(data))}
	for at := 0; at < len(data); {
		next, err := scan.token(data, at)
		if err != nil {
			return err
		}
		at = next
	}
	return nil
}

type jsonScan struct {
	call     *call
	spending *spending
	levels   [maxDepth]level
	depth    int
}

// token reads the token at a place and returns the place of the next.
func (s *jsonScan) token(data []byte, at int) (next int, err error) {
	switch data[at] {
	case ' ', '\t', '\r', '\n', ':':
		return at + 1, nil
	case ',':
		if top := s.top(); top != nil {
			top.key = top.object
		}
		return at + 1, nil
	case '{', '[':
		return at + 1, s.open(data[at] == '{')
	case '}', ']':
		if s.depth > 0 {
			s.depth--
		}
		return at + 1, nil
	case '"':
		end := endOfText(data, at+1)
		text := data[at+1 : end]
		next = min(end+1, len(data))
		if top := s.top(); top != nil && top.key {
			top.key = false
			top.field = nil
			if top.message != nil {
				top.field = top.message.named[string(text)]
			}
			return next, s.spending.take(costOfScalar)
		}
		return next, s.value(len(text))
	}
	end := at + 1
	for end < len(data) && bytes.IndexByte([]byte(" \t\r\n:,{}[]\""), data[end]) < 0 {
		end++
	}
	return end, s.value(end - at)
}

func (s *jsonScan) top() *level {
	if s.depth == 0 {
		return nil
	}
	return &s.levels[s.depth-1]
}

// value counts a value that is neither an object nor a list.
func (s *jsonScan) value(bytes int) error {
	if err := s.element(); err != nil {
		return err
	}
	return s.spending.take(costOfValue + bytes)
}

// element counts a value of any kind in the list that it is in.
func (s *jsonScan) element() error {
	top := s.top()
	if top == nil || top.object {
		return nil
	}
	if top.elements++; top.elements > top.limit {
		return fmt.Errorf("a list has more than the %d elements that it may have", top.limit)
	}
	return nil
}

func (s *jsonScan) open(object bool) error {
	if err := s.element(); err != nil {
		return err
	}
	if s.depth == maxDepth {
		return errors.New("the request nests too deep")
	}
	cost := costOfElement
	if object {
		cost += s.call.largest
	}
	if err := s.spending.take(cost); err != nil {
		return err
	}
	opened := level{object: object, key: object, limit: s.call.longest}
	switch top := s.top(); {
	case top == nil:
		opened.message = s.call.shape
	case !top.object:
		opened.message = top.message
	case top.field != nil:
		opened.message = top.field.message
		if top.field.list {
			opened.limit = top.field.limit
		}
	}
	s.levels[s.depth] = opened
	s.depth++
	return nil
}

// endOfText returns the place of the quote that ends a text, or the end of the data.
func endOfText(data []byte, at int) int {
	for ; at < len(data); at++ {
		switch data[at] {
		case '"':
			return at
		case '\\':
			at++
		}
	}
	return len(data)
}
