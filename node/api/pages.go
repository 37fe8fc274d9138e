package api

import (
	"strconv"
	"strings"
)

// maxPageSize is the largest page of any list.
const maxPageSize = 1_000

// PageSize returns the requested size, or the default for 0.
func PageSize(asked uint32, byDefault int) (int, error) {
	if asked == 0 {
		return byDefault, nil
	}
	if asked > maxPageSize {
		return 0, invalid("page_size %d: at most %d, then go on with next_page_token", asked,
			maxPageSize)
	}
	return int(asked), nil
}

// numberToken makes a page token: the list's letter, then numbers in base 36 with dots between
// them. Only the server interprets its form.
func numberToken(list byte, numbers ...uint64) string {
	token := []byte{list}
	for i, number := range numbers {
		if i > 0 {
			token = append(token, '.')
		}
		token = strconv.AppendUint(token, number, 36)
	}
	return string(token)
}

// parseNumberToken reads a token that numberToken made.
func parseNumberToken(list byte, token string, numbers ...*uint64) error {
	parts := strings.Split(strings.TrimPrefix(token, string(list)), ".")
	if token[0] != list || len(parts) != len(numbers) {
		return badToken()
	}
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 36, 64)
		if err != nil {
			return badToken()
		}
		*numbers[i] = number
	}
	return nil
}

func badToken() error {
	return invalid("page_token is not from this list: begin without one")
}
