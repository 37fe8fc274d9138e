package template

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Bounds of a template.
const (
	MaxBytes      = 32 << 10 // of a file
	MaxParameters = 64
	MaxPattern    = 256   // bytes of a pattern
	MaxValue      = 1_024 // bytes of a value
	// maxFilled bounds a text after the values are in, in bytes. No part of an entry is longer.
	maxFilled = 64 << 10
)

// Error says what is wrong with a template or with a value, and where.
type Error struct {
	File      string
	Line      int    // 0 if the whole file is meant
	Parameter string // "" if it is about none
	Err       error
}

// Error returns the place, then what is wrong.
func (e *Error) Error() string {
	text := e.File
	if e.Line > 0 {
		text += fmt.Sprintf(":%d", e.Line)
	}
	if e.Parameter != "" {
		text += ": parameter " + e.Parameter
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Parameter is a part of the entry that each posting says anew.
type Parameter struct {
	Name    string
	Kind    Kind
	Default string
	// Optional parameters have a default.
	Optional bool
	Pattern  string // a regular expression for the whole value; "" for none
	Help     string
	Line     int // of the file

	pattern *regexp.Regexp
}

// Posting is a posting of the entry, before the values are in.
type Posting struct{ Account, Amount, Asset Text }

// Record is a record of the entry, before the values are in.
type Record struct{ Key, Value Text }

// Template is a checked template.
type Template struct {
	File       string // its name
	Title      string
	Parameters []Parameter // in the order of the file

	Postings               []Posting
	Records                []Record
	Note, Signer, Deadline Text
	// EffectiveDate, IdempotencyKey and Refundable are the details of the entry.
	EffectiveDate, IdempotencyKey, Refundable Text
}

// document is the form of a file.
type document struct {
	Title      string                   `toml:"title"`
	Parameters map[string]documentValue `toml:"parameters"`
	Entry      documentEntry            `toml:"entry"`
}

type documentValue struct {
	Kind    string  `toml:"kind"`
	Default *string `toml:"default"`
	Pattern string  `toml:"pattern"`
	Help    string  `toml:"help"`
}

type documentEntry struct {
	Signer   string `toml:"signer"`
	Deadline string `toml:"deadline"`
	Note     string `toml:"note"`

	EffectiveDate  string `toml:"effective_date"`
	IdempotencyKey string `toml:"idempotency_key"`
	Refundable     string `toml:"refundable"`

	Postings []struct {
		Account string `toml:"account"`
		Amount  string `toml:"amount"`
		Asset   string `toml:"asset"`
	} `toml:"postings"`
	Records []struct {
		Key   string `toml:"key"`
		Value string `toml:"value"`
	} `toml:"records"`
}

// Read reads and checks a file.
func Read(path string) (*Template, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > MaxBytes {
		return nil, tooLong(filepath.Base(path))
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(filepath.Base(path), content)
}

func tooLong(name string) error {
	return &Error{File: name, Err: fmt.Errorf("a template has at most %d bytes", MaxBytes)}
}

// parser makes a template of a document.
type parser struct {
	made  *Template
	lines map[string]int // of the keys, by their paths
	used  map[string]bool
}

// Parse checks the content of a file. Its name is for errors. They match Error.
func Parse(name string, content []byte) (*Template, error) {
	if len(content) > MaxBytes {
		return nil, tooLong(name)
	}
	var read document
	decoder := toml.NewDecoder(bytes.NewReader(content)).DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return nil, tomlError(name, err)
	}
	p := &parser{made: &Template{File: name, Title: read.Title}, used: map[string]bool{},
		lines: linesOf(content)}
	if err := p.parameters(read.Parameters); err != nil {
		return nil, err
	}
	if err := p.entry(&read.Entry); err != nil {
		return nil, err
	}
	for _, parameter := range p.made.Parameters {
		if !p.used[parameter.Name] {
			return nil, p.made.wrong(&parameter, errors.New("the entry does not use it"))
		}
	}
	return p.made, nil
}

// tomlError says in which line the TOML is wrong.
func tomlError(name string, err error) error {
	wrong := &Error{File: name, Err: err}
	strict, decoding := (*toml.StrictMissingError)(nil), (*toml.DecodeError)(nil)
	switch {
	case errors.As(err, &strict) && len(strict.Errors) > 0:
		first := strict.Errors[0]
		wrong.Line, _ = first.Position()
		wrong.Err = fmt.Errorf("there is no key %s", strings.Join(first.Key(), "."))
	case errors.As(err, &decoding):
		wrong.Line, _ = decoding.Position()
	}
	return wrong
}

// linesOf returns the lines of the keys of a document that is valid TOML, by their paths in lower
// case, such as entry.postings[1].amount.
func linesOf(content []byte) map[string]int {
	lines, tables := map[string]int{}, map[string]int{}
	var p unstable.Parser
	p.Reset(content)
	lineOf := func(node *unstable.Node) int {
		return 1 + bytes.Count(content[:min(int(node.Raw.Offset), len(content))], []byte("\n"))
	}
	join := func(prefix string, keys unstable.Iterator) (path string, line int) {
		path = prefix
		for keys.Next() {
			if path != "" {
				path += "."
			}
			path += strings.ToLower(string(keys.Node().Data))
			line = lineOf(keys.Node())
		}
		return path, line
	}
	var walk func(prefix string, pair *unstable.Node)
	walk = func(prefix string, pair *unstable.Node) {
		path, line := join(prefix, pair.Key())
		lines[path] = line
		inside := func(path string, table *unstable.Node) {
			for pairs := table.Children(); pairs.Next(); {
				walk(path, pairs.Node())
			}
		}
		switch value := pair.Value(); value.Kind {
		case unstable.InlineTable:
			inside(path, value)
		case unstable.Array:
			at := 0
			for elements := value.Children(); elements.Next(); {
				if elements.Node().Kind == unstable.InlineTable {
					element := fmt.Sprintf("%s[%d]", path, at)
					lines[element] = line
					inside(element, elements.Node())
					at++
				}
			}
		}
	}
	prefix := ""
	for p.NextExpression() {
		switch node := p.Expression(); node.Kind {
		case unstable.Table, unstable.ArrayTable:
			path, line := join("", node.Key())
			if node.Kind == unstable.ArrayTable {
				tables[path]++
				path = fmt.Sprintf("%s[%d]", path, tables[path]-1)
			}
			prefix, lines[path] = path, line
		case unstable.KeyValue:
			walk(prefix, node)
		}
	}
	return lines
}

// parameterName is the grammar of the names of parameters.
var parameterName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// parameters checks the parameters.
func (p *parser) parameters(read map[string]documentValue) error {
	if len(read) > MaxParameters {
		return &Error{File: p.made.File, Err: fmt.Errorf("%d parameters: at most %d are possible",
			len(read), MaxParameters)}
	}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		value, path := read[name], "parameters."+strings.ToLower(name)
		parameter := Parameter{Name: name, Kind: Kind(value.Kind), Pattern: value.Pattern,
			Help: value.Help, Line: p.lines[path]}
		wrong := func(key string, err error) error {
			line := p.lines[path+"."+key]
			if line == 0 {
				line = parameter.Line
			}
			return &Error{p.made.File, line, name, err}
		}
		if !parameterName.MatchString(name) {
			return wrong("", errors.New("a name has up to 40 letters a to z, digits and _, and "+
				"begins with a letter"))
		}
		if err := parameter.Kind.known(); err != nil {
			return wrong("kind", err)
		}
		if len(value.Pattern) > MaxPattern {
			return wrong("pattern", fmt.Errorf("a pattern has at most %d bytes", MaxPattern))
		}
		if value.Pattern != "" {
			var err error
			if parameter.pattern, err = regexp.Compile(`^(?:` + value.Pattern + `)$`); err != nil {
				return wrong("pattern", err)
			}
		}
		if value.Default != nil {
			parameter.Default, parameter.Optional = *value.Default, true
			if err := parameter.check(*value.Default); err != nil {
				return wrong("default", fmt.Errorf("the default: %w", err))
			}
		}
		p.made.Parameters = append(p.made.Parameters, parameter)
	}
	slices.SortStableFunc(p.made.Parameters, func(a, b Parameter) int { return a.Line - b.Line })
	return nil
}

// entry checks the entry.
func (p *parser) entry(read *documentEntry) error {
	made := p.made
	if len(read.Postings) == 0 && len(read.Records) == 0 {
		return &Error{File: made.File, Line: p.lines["entry"],
			Err: errors.New("the entry has neither postings nor records")}
	}
	var firstErr error
	text := func(source, path string, needed bool) Text {
		made, err := p.text(source, path, needed)
		if firstErr == nil {
			firstErr = err
		}
		return made
	}
	for i, posting := range read.Postings {
		path := fmt.Sprintf("entry.postings[%d]", i)
		made.Postings = append(made.Postings, Posting{
			Account: text(posting.Account, path+".account", true),
			Amount:  text(posting.Amount, path+".amount", true),
			Asset:   text(posting.Asset, path+".asset", false),
		})
		if firstErr == nil {
			firstErr = p.amount(&made.Postings[i].Amount)
		}
	}
	for i, record := range read.Records {
		path := fmt.Sprintf("entry.records[%d]", i)
		made.Records = append(made.Records, Record{Key: text(record.Key, path+".key", true),
			Value: text(record.Value, path+".value", false)})
	}
	made.Note = text(read.Note, "entry.note", false)
	made.Signer = text(read.Signer, "entry.signer", false)
	made.Deadline = text(read.Deadline, "entry.deadline", false)
	made.EffectiveDate = text(read.EffectiveDate, "entry.effective_date", false)
	made.IdempotencyKey = text(read.IdempotencyKey, "entry.idempotency_key", false)
	made.Refundable = text(read.Refundable, "entry.refundable", false)
	return firstErr
}

// text parses one text of the entry.
func (p *parser) text(source, path string, needed bool) (Text, error) {
	made := Text{Source: source, Line: p.lines[path]}
	if made.Line == 0 { // it is missing: name the table that lacks it
		above, _, _ := strings.Cut(path, "].")
		made.Line = max(p.lines[above+"]"], p.lines["entry"])
	}
	wrong := func(parameter, format string, arguments ...any) (Text, error) {
		return made, &Error{p.made.File, made.Line, parameter, fmt.Errorf(format, arguments...)}
	}
	key := path[strings.LastIndexByte(path, '.')+1:]
	if needed && source == "" {
		return wrong("", "%s is missing", key)
	}
	if !utf8.ValidString(source) {
		return wrong("", "%s is not UTF-8", key)
	}
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			made.pieces = append(made.pieces, piece{literal: literal.String()})
			literal.Reset()
		}
	}
	for rest := source; rest != ""; {
		at := strings.IndexAny(rest, "{}")
		if at < 0 {
			literal.WriteString(rest)
			break
		}
		literal.WriteString(rest[:at])
		rest = rest[at:]
		if strings.HasPrefix(rest, "{{") || strings.HasPrefix(rest, "}}") {
			literal.WriteByte(rest[0])
			rest = rest[2:]
			continue
		}
		name, after, closed := strings.Cut(rest[1:], "}")
		if rest[0] == '}' || !closed {
			return wrong("", "%s has a single brace: write {{ or }} for a brace, and {NAME} for "+
				"the value of a parameter", key)
		}
		if _, known := p.made.parameter(name); !known {
			return wrong("", "there is no parameter %.60q: the parameters are %s", name,
				p.made.names())
		}
		flush()
		made.pieces = append(made.pieces, piece{parameter: name})
		p.used[name], rest = true, after
	}
	flush()
	return made, nil
}

// amount checks that an amount is one number, with or without a minus sign. A sum or a share would
// be a language.
func (p *parser) amount(text *Text) error {
	wrong := &Error{File: p.made.File, Line: text.Line}
	pieces := text.pieces
	if len(pieces) == 1 && pieces[0].parameter == "" {
		if err := checkAmount(strings.TrimPrefix(pieces[0].literal, "-")); err != nil {
			wrong.Err = err
			return wrong
		}
		return nil
	}
	if len(pieces) == 2 && pieces[0].literal == "-" {
		pieces = pieces[1:]
	}
	if len(pieces) != 1 || pieces[0].parameter == "" {
		wrong.Err = fmt.Errorf("amount %.60q: write a number or {NAME}, with or without a minus "+
			"sign", text.Source)
		return wrong
	}
	parameter, _ := p.made.parameter(pieces[0].parameter)
	if parameter.Kind != Amount {
		wrong.Parameter = parameter.Name
		wrong.Err = fmt.Errorf("an amount needs a parameter of the kind amount, and it is %s",
			parameter.Kind)
		return wrong
	}
	return nil
}
