package ledger

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// OrganisationName names an organisation: 1 to 64 ASCII letters, digits, '-', '_' and '.', starting
// with a letter or digit. It is case sensitive.
type OrganisationName string

// AssetName names an asset: 1 to 32 ASCII letters, digits, '-', '_' and '.', starting with a letter
// or digit. It is case sensitive.
type AssetName string

// DefaultAsset is the asset of a posting that names none.
const DefaultAsset AssetName = "unit"

// AccountPath names an account: `organisation:segment`, optionally with more segments, at most 128
// bytes in all. A segment has at least one character. Its characters are ASCII letters, digits and
// - _ . ~ @ + = $ ! * /. The first segment is an OrganisationName. A path is case sensitive.
type AccountPath string

// RecordKey names a record. It has the form of an AccountPath, and the first segment is the
// organisation that owns the record.
type RecordKey string

// Bounds of names, in bytes.
const (
	MaxOrganisationName = 64
	MaxAssetName        = 32
	MaxAccountPath      = 128
	MaxAlias            = 128
)

// ErrName reports that a text is not a name of the required kind.
var ErrName = errors.New("ledger: malformed name")

// Character classes of names.
const (
	inWord = 1 << iota
	inSegment
	atStart
)

var characterClass = func() (class [256]uint8) {
	for c := range 256 {
		character := rune(c)
		switch {
		case c < 128 && (unicode.IsLetter(character) || unicode.IsDigit(character)):
			class[c] = inWord | inSegment | atStart
		case c < 128 && strings.ContainsRune("-_.", character):
			class[c] = inWord | inSegment
		case c < 128 && strings.ContainsRune("~@+=$!*/", character):
			class[c] = inSegment
		}
	}
	return class
}()

func validWord(text string, most int) bool {
	if len(text) == 0 || len(text) > most || characterClass[text[0]]&atStart == 0 {
		return false
	}
	for i := range len(text) {
		if characterClass[text[i]]&inWord == 0 {
			return false
		}
	}
	return true
}

// validPath reports whether text is an organisation and at least one more segment, within
// MaxAccountPath.
func validPath(text string) bool {
	if len(text) == 0 || len(text) > MaxAccountPath || characterClass[text[0]]&atStart == 0 {
		return false
	}
	first := 1 // the end of the organisation
	for first < len(text) && characterClass[text[first]]&inWord != 0 {
		first++
	}
	if first > MaxOrganisationName || first == len(text) || text[first] != ':' {
		return false
	}
	empty := true
	for i := first + 1; i < len(text); i++ {
		if text[i] == ':' {
			if empty {
				return false
			}
			empty = true
			continue
		}
		if characterClass[text[i]]&inSegment == 0 {
			return false
		}
		empty = false
	}
	return !empty
}

func organisationOf(path string) OrganisationName {
	organisation, _, _ := strings.Cut(path, ":")
	return OrganisationName(organisation)
}

// Validate returns ErrName unless the name is well-formed.
func (n OrganisationName) Validate() error {
	if !validWord(string(n), MaxOrganisationName) {
		return fmt.Errorf("%w: %.80q is no organisation name (1 to %d letters, digits, '-', "+
			"'_', '.')", ErrName, string(n), MaxOrganisationName)
	}
	return nil
}

// Validate returns ErrName unless the name is well-formed.
func (n AssetName) Validate() error {
	if !validWord(string(n), MaxAssetName) {
		return fmt.Errorf("%w: %.80q is no asset name (1 to %d letters, digits, '-', '_', '.')",
			ErrName, string(n), MaxAssetName)
	}
	return nil
}

// Validate returns ErrName unless the path is well-formed.
func (p AccountPath) Validate() error {
	if !validPath(string(p)) {
		return fmt.Errorf("%w: %.150q is no account (organisation:name, at most %d characters, "+
			"letters, digits and -_.~@+=$!*/)", ErrName, string(p), MaxAccountPath)
	}
	return nil
}

// ParseAccountPath returns text as an account path. It returns ErrName if the path is not
// well-formed.
func ParseAccountPath(text string) (AccountPath, error) {
	return AccountPath(text), AccountPath(text).Validate()
}

// Organisation returns the first segment, the organisation that owns the account.
func (p AccountPath) Organisation() OrganisationName { return organisationOf(string(p)) }

// Validate returns ErrName unless the key is well-formed.
func (k RecordKey) Validate() error {
	if !validPath(string(k)) {
		return fmt.Errorf("%w: %.150q is no record key (organisation:name, at most %d "+
			"characters, letters, digits and -_.~@+=$!*/)", ErrName, string(k), MaxAccountPath)
	}
	return nil
}

// Organisation returns the first segment, the organisation that owns the record.
func (k RecordKey) Organisation() OrganisationName { return organisationOf(string(k)) }

// validAlias reports whether text is UTF-8 of printable characters, at most MaxAlias bytes. The
// empty alias means no alias.
func validAlias(text string) bool {
	return len(text) <= MaxAlias && printable(text)
}

// printable reports whether text is UTF-8 of printable characters.
func printable(text string) bool {
	if !utf8.ValidString(text) {
		return false
	}
	for _, character := range text {
		if !unicode.IsPrint(character) {
			return false
		}
	}
	return true
}
