package template

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/ledger"
)

// Kind is what a parameter's values are.
type Kind string

// The kinds.
const (
	Any          Kind = "text"         // one line of text
	Organisation Kind = "organisation" // acme
	Account      Kind = "account"      // acme:cash
	Asset        Kind = "asset"        // EUR
	Amount       Kind = "amount"       // above zero: 12 or 12.50
	Integer      Kind = "integer"      // digits
	Date         Kind = "date"         // 2026-01-31
)

// Kinds are all kinds.
var Kinds = []Kind{Any, Organisation, Account, Asset, Amount, Integer, Date}

func (k Kind) known() error {
	if slices.Contains(Kinds, k) {
		return nil
	}
	var names []string
	for _, each := range Kinds {
		names = append(names, string(each))
	}
	return fmt.Errorf("kind %.60q: the kinds are %s", string(k), strings.Join(names, ", "))
}

// check checks a value of a kind.
func (k Kind) check(value string) error {
	switch k {
	case Organisation:
		return ledger.OrganisationName(value).Validate()
	case Account:
		return ledger.AccountPath(value).Validate()
	case Asset:
		return ledger.AssetName(value).Validate()
	case Amount:
		return checkAmount(value)
	case Integer:
		if value == "" || strings.Trim(value, "0123456789") != "" {
			return fmt.Errorf("%.60q is no integer: write digits", value)
		}
	case Date:
		if _, err := time.Parse(time.DateOnly, value); err != nil {
			return fmt.Errorf("%.60q is no date: write it as 2026-01-31", value)
		}
	}
	return nil
}

// checkAmount checks an amount without its sign. How many decimals it has to have depends on the
// asset, and is checked when the entry is posted.
func checkAmount(text string) error {
	_, decimals, _ := strings.Cut(text, ".")
	amount, err := ledger.ParseDecimal(text, min(len(decimals), ledger.MaxDecimals))
	if err == nil && amount.Sign() <= 0 {
		err = errors.New("an amount is above zero: the template says which accounts give")
	}
	if err != nil {
		return fmt.Errorf("%.60q is no amount, such as 12 or 12.50: %w", text, err)
	}
	return nil
}

// check checks a value of a parameter.
func (p *Parameter) check(value string) error {
	switch {
	case len(value) > MaxValue:
		return fmt.Errorf("a value has at most %d bytes", MaxValue)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Errorf("%.60q is not one line of text", value)
	}
	if err := p.Kind.check(value); err != nil {
		return err
	}
	if p.pattern != nil && !p.pattern.MatchString(value) {
		return fmt.Errorf("%.60q does not match the pattern %s", value, p.Pattern)
	}
	return nil
}

// Text is a text of the entry with the names of parameters in it.
type Text struct {
	Source string // as the file has it
	Line   int    // of the file
	pieces []piece
}

// piece is literal text, or the value of a parameter.
type piece struct{ literal, parameter string }

// Entry is a filled entry. Amounts are text: a number with the decimals of the asset.
type Entry struct {
	Signer, Deadline, Note string
	// EffectiveDate, IdempotencyKey and Refundable are the details of the entry, as text, or "".
	EffectiveDate, IdempotencyKey, Refundable string

	Postings []EntryPosting
	Records  []EntryRecord
}

// EntryPosting is a posting of a filled entry.
type EntryPosting struct {
	Account ledger.AccountPath
	Amount  string
	Asset   ledger.AssetName // the default asset if the template names none
	Line    int              // of the amount in the file
}

// EntryRecord is a record of a filled entry.
type EntryRecord struct {
	Key   ledger.RecordKey
	Value string
}

func (t *Template) parameter(name string) (*Parameter, bool) {
	at := slices.IndexFunc(t.Parameters, func(p Parameter) bool { return p.Name == name })
	if at < 0 {
		return nil, false
	}
	return &t.Parameters[at], true
}

func (t *Template) names() string {
	var names []string
	for _, parameter := range t.Parameters {
		names = append(names, parameter.Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (t *Template) wrong(parameter *Parameter, err error) error {
	return &Error{t.File, parameter.Line, parameter.Name, err}
}

// Missing returns the names of the parameters that have no default and no value.
func (t *Template) Missing(values map[string]string) (names []string) {
	for _, parameter := range t.Parameters {
		if _, given := values[parameter.Name]; !given && !parameter.Optional {
			names = append(names, parameter.Name)
		}
	}
	return names
}

// Fill puts values into the entry, and defaults where there is no value. An error matches Error. It
// names the parameter, or the line if what the values make is wrong.
func (t *Template) Fill(values map[string]string) (*Entry, error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, known := t.parameter(name); !known {
			return nil, &Error{File: t.File, Err: fmt.Errorf("there is no parameter %.60q: the "+
				"parameters are %s", name, t.names())}
		}
	}
	all := make(map[string]string, len(t.Parameters))
	for i := range t.Parameters {
		parameter := &t.Parameters[i]
		value, given := values[parameter.Name]
		switch {
		case given:
			if err := parameter.check(value); err != nil {
				return nil, t.wrong(parameter, err)
			}
		case parameter.Optional:
			value = parameter.Default
		default:
			return nil, t.wrong(parameter, errors.New("it has no value"))
		}
		all[parameter.Name] = value
	}
	f := filler{t.File, all, nil}
	made := &Entry{}
	for _, posting := range t.Postings {
		filled := EntryPosting{Account: ledger.AccountPath(f.fill(posting.Account)),
			Amount: f.fill(posting.Amount), Asset: ledger.AssetName(f.fill(posting.Asset)),
			Line: posting.Amount.Line}
		if filled.Asset == "" {
			filled.Asset = ledger.DefaultAsset
		}
		f.check(posting.Account, filled.Account.Validate())
		f.check(posting.Asset, filled.Asset.Validate())
		made.Postings = append(made.Postings, filled)
	}
	for _, record := range t.Records {
		filled := EntryRecord{Key: ledger.RecordKey(f.fill(record.Key)),
			Value: f.fill(record.Value)}
		f.check(record.Key, filled.Key.Validate())
		made.Records = append(made.Records, filled)
	}
	made.Note, made.Signer, made.Deadline = f.fill(t.Note), f.fill(t.Signer), f.fill(t.Deadline)
	made.EffectiveDate, made.Refundable = f.fill(t.EffectiveDate), f.fill(t.Refundable)
	if made.IdempotencyKey = f.fill(t.IdempotencyKey); made.IdempotencyKey != "" &&
		!ledger.ValidIdempotencyKey(made.IdempotencyKey) {
		f.check(t.IdempotencyKey, fmt.Errorf("idempotency key %.80q: 1 to %d characters of "+
			"printable ASCII", made.IdempotencyKey, ledger.MaxIdempotencyKey))
	}
	if made.Signer != "" {
		f.check(t.Signer, ledger.OrganisationName(made.Signer).Validate())
	}
	if f.err != nil {
		return nil, f.err
	}
	return made, nil
}

// filler puts values into texts. It keeps the first error.
type filler struct {
	file   string
	values map[string]string
	err    error
}

func (f *filler) fill(text Text) string {
	var filled strings.Builder
	for _, each := range text.pieces {
		filled.WriteString(each.literal)
		filled.WriteString(f.values[each.parameter])
		if filled.Len() > maxFilled {
			f.check(text, fmt.Errorf("it has more than %d bytes with its values", maxFilled))
			break
		}
	}
	return filled.String()
}

func (f *filler) check(text Text, err error) {
	if err != nil && f.err == nil {
		f.err = &Error{File: f.file, Line: text.Line, Err: err}
	}
}
