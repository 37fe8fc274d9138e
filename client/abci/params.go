package abci

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// kind is that of a parameter of the RPC.
type kind int

const (
	kindText kind = iota
	kindNumber
	kindTruth
	kindBytes // base64 in JSON
	kindHex   // hex in JSON
)

// param is a parameter of a method.
type param struct {
	name string
	kind kind
}

// params are the values that a call gives. Text has bytes, too.
type params struct {
	text    map[string]string
	numbers map[string]int64
	truth   map[string]bool
}

func newParams() params {
	return params{make(map[string]string), make(map[string]int64), make(map[string]bool)}
}

// uriParams reads the parameters of a URI, in the forms of CometBFT: "text" in quotes, 0x with hex,
// numbers and truth values.
func uriParams(wanted []param, form url.Values) (params, error) {
	given := newParams()
	for _, each := range wanted {
		text := form.Get(each.name)
		if text == "" {
			continue
		}
		if err := given.setFromURI(each, text); err != nil {
			return given, fmt.Errorf("%s: %w", each.name, err)
		}
	}
	return given, nil
}

func (p params) setFromURI(each param, text string) (err error) {
	switch each.kind {
	case kindNumber:
		p.numbers[each.name], err = parseNumber(text)
	case kindTruth:
		p.truth[each.name], err = strconv.ParseBool(text)
	default:
		var value []byte
		switch {
		case len(text) >= 2 && (text[:2] == "0x" || text[:2] == "0X"):
			value, err = hex.DecodeString(text[2:])
			p.text[each.name] = string(value)
		case strings.HasPrefix(text, `"`):
			var unquoted string
			err = json.Unmarshal([]byte(text), &unquoted)
			p.text[each.name] = unquoted
		default:
			return fmt.Errorf("%.60s: write \"text\" in quotes, or 0x and hex", text)
		}
	}
	return err
}

func parseNumber(text string) (int64, error) {
	return strconv.ParseInt(strings.Trim(text, `"`), 10, 64)
}

// jsonParams reads the parameters of JSON-RPC: an object, or an array in the order of the method.
func jsonParams(wanted []param, text json.RawMessage) (params, error) {
	given := newParams()
	if len(text) == 0 {
		return given, nil
	}
	named := make(map[string]json.RawMessage)
	if err := json.Unmarshal(text, &named); err != nil {
		var listed []json.RawMessage
		if json.Unmarshal(text, &listed) != nil {
			return given, fmt.Errorf("params are neither an object nor an array")
		}
		if len(listed) != len(wanted) {
			return given, fmt.Errorf("expected %d parameters, got %d", len(wanted), len(listed))
		}
		for i, each := range wanted {
			named[each.name] = listed[i]
		}
	}
	for _, each := range wanted {
		value, found := named[each.name]
		if !found || string(value) == "null" {
			continue
		}
		if err := given.setFromJSON(each, value); err != nil {
			return given, fmt.Errorf("%s: %w", each.name, err)
		}
	}
	return given, nil
}

func (p params) setFromJSON(each param, value json.RawMessage) (err error) {
	switch each.kind {
	case kindNumber:
		p.numbers[each.name], err = parseNumber(string(value))
		return err
	case kindTruth:
		p.truth[each.name], err = strconv.ParseBool(string(value))
		return err
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return err
	}
	var decoded []byte
	switch each.kind {
	case kindBytes:
		decoded, err = base64.StdEncoding.DecodeString(text)
		text = string(decoded)
	case kindHex:
		decoded, err = hex.DecodeString(text)
		text = string(decoded)
	}
	p.text[each.name] = text
	return err
}
