package api

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/intake"
)

// Bounds of a metadatum that is asked for. With them a lookup in a note costs a bounded work,
// however deep the objects in the note are.
const (
	maxMetadataName = 256
	maxMetadataDots = 8
)

// metadatum is a member that the JSON object in a note must have, with a value unless any will do.
type metadatum struct {
	name, value string
	any         bool
}

// parseMetadata parses NAME and NAME=VALUE.
func parseMetadata(texts []string) ([]metadatum, error) {
	if len(texts) > intake.MaxMetadata {
		return nil, invalid("metadata: at most %d", intake.MaxMetadata)
	}
	var all []metadatum
	for _, text := range texts {
		name, value, valued := strings.Cut(text, "=")
		switch {
		case name == "":
			return nil, invalid("metadata %.50q: give a name, or a name and a value such as "+
				"invoice=4711", text)
		case len(name) > maxMetadataName, strings.Count(name, ".") > maxMetadataDots:
			return nil, invalid("metadata %.50q: a name has at most %d bytes and %d dots", name,
				maxMetadataName, maxMetadataDots)
		case len(text) > ledger.MaxNote:
			return nil, invalid("metadata: at most %d bytes", ledger.MaxNote)
		}
		all = append(all, metadatum{name, value, !valued})
	}
	return all, nil
}

// hasMetadata reports whether a note is a JSON object with all of the metadata.
func hasMetadata(note []byte, all []metadatum) bool {
	if len(all) == 0 {
		return true
	}
	if note = bytes.TrimSpace(note); len(note) == 0 || note[0] != '{' {
		return false
	}
	decoder := json.NewDecoder(bytes.NewReader(note))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil || decoder.More() {
		return false
	}
	for i := range all {
		if !all[i].isIn(object) {
			return false
		}
	}
	return true
}

// isIn reports whether an object has the member. A name with dots is that of a member, or leads
// into objects: a.b is the member a.b, or the member b of the object a.
func (m *metadatum) isIn(object map[string]any) bool {
	if value, has := object[m.name]; has && (m.any || m.equals(value)) {
		return true
	}
	for at := range len(m.name) {
		if m.name[at] != '.' {
			continue
		}
		inner, is := object[m.name[:at]].(map[string]any)
		rest := metadatum{m.name[at+1:], m.value, m.any}
		if is && rest.isIn(inner) {
			return true
		}
	}
	return false
}

// equals reports whether a value is the wanted one. Numbers are compared as they are written, so
// that no digit is lost. Of a list, one element has to match.
func (m *metadatum) equals(value any) bool {
	switch value := value.(type) {
	case string:
		return value == m.value
	case json.Number:
		return value.String() == m.value
	case bool:
		return m.value == map[bool]string{false: "false", true: "true"}[value]
	case nil:
		return m.value == "null"
	case []any:
		for _, each := range value {
			if m.equals(each) {
				return true
			}
		}
	}
	return false
}
