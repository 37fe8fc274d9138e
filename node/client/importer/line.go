package importer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// ErrLine says that a line is no journal entry.
var ErrLine = errors.New("not a journal entry")

// lineBuilder makes transactions of lines.
type lineBuilder struct {
	organisation ledger.OrganisationName
	issuers      map[string]bool
	genesis      ledger.Hash
	stream       uint64
}

type linePosting struct {
	Account *string        `json:"account"`
	Amount  *ledger.Amount `json:"amount"`
	Asset   string         `json:"asset"`
}

// transaction makes the transaction of a line, and tells its size in bytes. ErrLine says what is wrong with the line.
func (b *lineBuilder) transaction(line []byte, number uint64) (ledger.Transaction, int, error) {
	transaction, err := b.build(line, number)
	if err == nil {
		err = transaction.Validate()
	}
	if err != nil {
		return ledger.Transaction{}, 0, fmt.Errorf("%w: %w", ErrLine, err)
	}
	body, err := transaction.EncodeBody()
	if err != nil {
		return ledger.Transaction{}, 0, fmt.Errorf("%w: %w", ErrLine, err)
	}
	return transaction, len(body), nil
}

func (b *lineBuilder) build(line []byte, number uint64) (ledger.Transaction, error) {
	postings, note, err := parseLine(line)
	if err != nil {
		return ledger.Transaction{}, err
	}
	transaction := ledger.Transaction{
		Ledger: b.genesis,
		Signer: b.organisation,
		Nonce:  ledger.Nonce{Stream: b.stream, Sequence: number},
		Note:   note,
	}
	opened := make(map[string]ledger.AccountPath, len(postings))
	for i, posting := range postings {
		if posting.Account == nil || posting.Amount == nil {
			return ledger.Transaction{}, fmt.Errorf(`posting %d needs "account" and "amount"`, i+1)
		}
		name := *posting.Account
		path, known := opened[name]
		if !known {
			if path, err = AccountPath(b.organisation, name); err != nil {
				return ledger.Transaction{}, fmt.Errorf("posting %d: %w", i+1, err)
			}
			opened[name] = path
			transaction.Openings = append(transaction.Openings, ledger.Opening{Account: path, Issuer: b.issuers[name], Alias: name})
		}
		asset := ledger.AssetName(posting.Asset)
		if asset == "" {
			asset = ledger.DefaultAsset
		}
		transaction.Postings = append(transaction.Postings, ledger.Posting{Account: path, Asset: asset, Amount: *posting.Amount})
	}
	return transaction, nil
}

// parseLine takes a line apart: its postings, and the other fields, in their order, as compact JSON.
func parseLine(line []byte) ([]linePosting, []byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, nil, errors.New("it is no JSON object")
	}
	var postings []linePosting
	var note bytes.Buffer
	found := false
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, nil, err
		}
		if key != "postings" {
			if err := addNote(&note, key, value); err != nil {
				return nil, nil, err
			}
			continue
		}
		if found {
			return nil, nil, errors.New(`it has "postings" twice`)
		}
		found = true
		if postings, err = parsePostings(value); err != nil {
			return nil, nil, err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return nil, nil, errors.New("it is cut short")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("there is something after its end")
	}
	if !found {
		return nil, nil, errors.New(`it has no "postings"`)
	}
	if note.Len() > 0 {
		note.WriteByte('}')
	}
	return postings, note.Bytes(), nil
}

func parsePostings(value json.RawMessage) ([]linePosting, error) {
	var postings []linePosting
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.DisallowUnknownFields() // nothing of an entry is dropped without a word
	if err := decoder.Decode(&postings); err != nil {
		return nil, fmt.Errorf("postings: %w", err)
	}
	return postings, nil
}

func addNote(note *bytes.Buffer, key json.Token, value json.RawMessage) error {
	separator := byte(',')
	if note.Len() == 0 {
		separator = '{'
	}
	note.WriteByte(separator)
	name, err := json.Marshal(key)
	if err != nil {
		return err
	}
	note.Write(name)
	note.WriteByte(':')
	return json.Compact(note, value)
}

// escapeMark begins an escaped byte in an account's path, =7c, or the hash of a name that is too long, =~...
const escapeMark = "="

// AccountPath is the account of a name in a file. A name that fits the grammar of accounts and has no = in it stays as it is, colons
// included; in another name each byte that does not fit, and each = and colon, becomes = and two hex digits. Where that is too long, its end is
// replaced by a hash. Two names never have one path.
func AccountPath(organisation ledger.OrganisationName, name string) (ledger.AccountPath, error) {
	if name == "" || len(name) > ledger.MaxAlias {
		return "", fmt.Errorf("account name %.40q: 1 to %d bytes are allowed", name, ledger.MaxAlias)
	}
	prefix := string(organisation) + ":"
	if plain := ledger.AccountPath(prefix + name); !strings.Contains(name, escapeMark) && plain.Validate() == nil {
		return plain, nil
	}
	var escaped strings.Builder
	for i := range len(name) {
		if letter := name[i : i+1]; letter != escapeMark && letter != ":" && ledger.AccountPath(prefix+letter).Validate() == nil {
			escaped.WriteString(letter)
		} else {
			fmt.Fprintf(&escaped, "%s%02x", escapeMark, name[i])
		}
	}
	path := prefix + escaped.String()
	if len(path) > ledger.MaxAccountPath {
		sum := sha256.Sum256([]byte(name))
		tail := escapeMark + "~" + hex.EncodeToString(sum[:16])
		room := max(0, ledger.MaxAccountPath-len(prefix)-len(tail))
		path = prefix + strings.TrimRight(escaped.String()[:room], escapeMark) + tail
	}
	account := ledger.AccountPath(path)
	return account, account.Validate()
}
