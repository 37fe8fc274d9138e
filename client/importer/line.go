package importer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// ErrLine means that a line is not a journal entry.
var ErrLine = errors.New("not a journal entry")

// lineBuilder converts lines of a file to lines under way.
type lineBuilder struct {
	organisations []organisation
	issuers       map[string]bool
	book          ledger.Hash
	tree          *ledger.ShardTree // nil in a book of one shard
	// conflicting reports whether conflicts between lines matter. They do not if all lines go one
	// way.
	conflicting bool
	decimals    map[ledger.AssetName]int // of the assets whose amounts had a point so far
}

type linePosting struct {
	Account *string     `json:"account"`
	Amount  *lineAmount `json:"amount"`
	Asset   string      `json:"asset"`
}

// lineAmount is an amount of a line: an integer of the smallest unit, as text or as number, or text
// with a point and all decimals of a registered asset.
type lineAmount struct {
	ledger.Amount
	decimal string // the text with a point
}

// UnmarshalJSON reads an amount. What has a point is read with the decimals of its asset, later.
func (a *lineAmount) UnmarshalJSON(data []byte) error {
	if bytes.IndexByte(data, '.') >= 0 && data[0] == '"' {
		return json.Unmarshal(data, &a.decimal)
	}
	return a.Amount.UnmarshalJSON(data)
}

// unknownDecimals is the error of a line whose amount has a point: nobody asked for the decimals of
// its asset yet.
type unknownDecimals struct{ asset ledger.AssetName }

func (e *unknownDecimals) Error() string {
	return fmt.Sprintf("the decimals of %s are not known", e.asset)
}

// amount returns the amount of a posting. It has to be written with all decimals. They never
// change, so the same line is the same transaction in every run.
func (b *lineBuilder) amount(posting *linePosting, asset ledger.AssetName) (ledger.Amount, error) {
	text := posting.Amount.decimal
	if text == "" {
		return posting.Amount.Amount, nil
	}
	count, known := b.decimals[asset]
	if !known {
		return ledger.Amount{}, &unknownDecimals{asset}
	}
	amount, err := ledger.ParseDecimal(text, count)
	if _, fraction, _ := strings.Cut(text, "."); err == nil && len(fraction) < count {
		return amount, fmt.Errorf("%s has %d decimals: write all of them, %s", asset, count,
			amount.Decimal(count))
	}
	return amount, err
}

// line is an entry under way.
type line struct {
	number  uint64
	posting job
	// shards are the shards that the posting concerns, ascending. entry is where it enters the
	// tree.
	shards []ledger.ShardID
	entry  ledger.ShardID
	// openings must be done before a posting that crosses shards, one for each organisation. Any
	// other posting opens its accounts itself.
	openings []*opening
	touches  []touch
	segment  *segment
	group    *group // whose gate it is; nil for a line of the file

	standing standing
	waits    int     // the number of lines and openings that it waits for
	onQueued []*line // lines that wait until it is queued
	onOver   []*line // lines that wait until it is over
	id       ledger.Hash
	failure  *LineFailure
	pause    time.Duration // before the next query whether it is over
}

// crosses reports whether the line concerns several shards.
func (l *line) crosses() bool { return len(l.shards) > 1 }

// job is a transaction to submit.
type job struct {
	transaction ledger.Transaction
	size        int   // in bytes
	signers     []int // the organisations that must sign it
	line        *line
	opening     *opening   // nil for the posting of the line
	run         *packedRun // nil if it cannot be packed
}

// opening opens the accounts of one organisation that a line needs.
type opening struct {
	job
	organisation int
	begun        bool
	again        int // how often its nonce came too late
	waiters      []*line
}

// line makes the transactions of a line. Its error is ErrLine with the reason.
func (b *lineBuilder) line(text []byte, number uint64) (*line, error) {
	made, err := b.build(text, number)
	if err == nil {
		err = made.posting.check()
	}
	for i := 0; err == nil && i < len(made.openings); i++ {
		err = made.openings[i].check()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLine, err)
	}
	return made, nil
}

// check validates the transaction and sets its size.
func (j *job) check() error {
	if err := j.transaction.Validate(); err != nil {
		return err
	}
	body, err := j.transaction.EncodeBody()
	j.size = len(body)
	return err
}

// home returns the home shard of one of the organisations.
func (b *lineBuilder) home(name ledger.OrganisationName) ledger.ShardID {
	at := slices.IndexFunc(b.organisations, func(o organisation) bool { return o.name == name })
	return b.organisations[at].home
}

// lineNonce returns the nonce of a line's transaction: the line's number in the only stream, or its
// share of one of several streams.
func (b *lineBuilder) lineNonce(stream, number uint64) ledger.Nonce {
	if len(b.organisations) == 1 {
		return ledger.Nonce{Stream: stream, Sequence: number}
	}
	return ledger.Nonce{Stream: stream + number%nonceStreams, Sequence: number / nonceStreams}
}

func (b *lineBuilder) build(text []byte, number uint64) (*line, error) {
	postings, note, err := parseLine(text)
	if err != nil {
		return nil, err
	}
	made := &line{number: number}
	made.posting.line = made
	transaction := &made.posting.transaction
	transaction.Ledger, transaction.Note = b.book, note
	var openings []ledger.Opening
	var owners []int // of the accounts in openings
	opened := make(map[string]int, len(postings))
	signer := -1
	for i, posting := range postings {
		if posting.Account == nil || posting.Amount == nil {
			return nil, fmt.Errorf(`posting %d needs "account" and "amount"`, i+1)
		}
		name := *posting.Account
		place, known := opened[name]
		if !known {
			owner := placeOf(name, len(b.organisations))
			path, err := AccountPath(b.organisations[owner].name, name)
			if err != nil {
				return nil, fmt.Errorf("posting %d: %w", i+1, err)
			}
			place = len(openings)
			opened[name] = place
			openings, owners = append(openings, ledger.Opening{Account: path,
				Issuer: b.issuers[name], Alias: name}), append(owners, owner)
		}
		asset := ledger.AssetName(posting.Asset)
		if asset == "" {
			asset = ledger.DefaultAsset
		}
		amount, err := b.amount(&posting, asset)
		if err != nil {
			return nil, fmt.Errorf("posting %d: %w", i+1, err)
		}
		debit := amount.Sign() < 0
		if debit && signer < 0 {
			signer = owners[place]
		}
		if b.conflicting && !b.issuers[name] {
			made.touch(openings[place].Account, debit)
		}
		transaction.Postings = append(transaction.Postings,
			ledger.Posting{Account: openings[place].Account, Asset: asset, Amount: amount})
	}
	if signer < 0 && len(owners) > 0 {
		signer = owners[0] // nothing is debited
	}
	signer = max(signer, 0)
	transaction.Signer, transaction.Nonce = b.organisations[signer].name,
		b.lineNonce(b.organisations[signer].lines, number)
	b.place(made, signer, openings, owners)
	return made, nil
}

func (l *line) touch(account ledger.AccountPath, debit bool) {
	for i := range l.touches {
		if l.touches[i].account == account {
			l.touches[i].debit = l.touches[i].debit || debit
			return
		}
	}
	l.touches = append(l.touches, touch{account, debit})
}

// place sets the line's entry and signers, and the transactions that open its accounts.
func (b *lineBuilder) place(l *line, signer int, openings []ledger.Opening, owners []int) {
	l.posting.signs(signer)
	l.shards = []ledger.ShardID{b.organisations[signer].home}
	for _, owner := range owners {
		if home := b.organisations[owner].home; !slices.Contains(l.shards, home) {
			l.shards = append(l.shards, home)
		}
	}
	slices.Sort(l.shards)
	if !l.crosses() {
		l.entry, l.posting.transaction.Openings = l.shards[0], openings
		for _, owner := range owners {
			l.posting.signs(owner)
		}
		return
	}
	l.entry = b.tree.Entry(l.shards)
	for _, posting := range l.posting.transaction.Postings {
		if posting.Amount.Sign() < 0 {
			l.posting.signs(owners[slices.IndexFunc(openings, func(o ledger.Opening) bool {
				return o.Account == posting.Account
			})])
		}
	}
	for i, owner := range owners {
		at := slices.IndexFunc(l.openings, func(o *opening) bool { return o.organisation == owner })
		if at < 0 {
			its := &b.organisations[owner]
			added := &opening{organisation: owner, job: job{line: l,
				transaction: ledger.Transaction{Ledger: b.book, Signer: its.name,
					Nonce: b.lineNonce(its.openings, l.number)}}}
			added.opening = added
			added.signs(owner)
			at, l.openings = len(l.openings), append(l.openings, added)
		}
		l.openings[at].transaction.Openings = append(l.openings[at].transaction.Openings,
			openings[i])
	}
}

func (j *job) signs(organisation int) {
	if !slices.Contains(j.signers, organisation) {
		j.signers = append(j.signers, organisation)
	}
}

// parseLine parses a line into its postings and the other fields, in their order, as compact JSON.
func parseLine(line []byte) ([]linePosting, []byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, nil, errors.New("it is not a JSON object")
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
		return nil, nil, errors.New("there is text after its end")
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
	decoder.DisallowUnknownFields() // no part of an entry is dropped silently
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

// escapeMark begins an escaped byte in an account's path, =7c, or the hash of a name that is too
// long, =~...
const escapeMark = "="

// AccountPath returns the account of a name in a file. A name that fits the grammar of accounts and
// has no = in it stays unchanged, including its colons. In any other name each byte that does not
// fit, and each = and colon, becomes = and two hex digits. If the result is too long, its end is
// replaced by a hash. No two names have the same path.
func AccountPath(organisation ledger.OrganisationName, name string) (ledger.AccountPath, error) {
	if name == "" || len(name) > ledger.MaxAlias {
		return "", fmt.Errorf("account name %.40q: 1 to %d bytes are allowed", name,
			ledger.MaxAlias)
	}
	prefix := string(organisation) + ":"
	if plain := ledger.AccountPath(prefix + name); !strings.Contains(name, escapeMark) &&
		plain.Validate() == nil {
		return plain, nil
	}
	var escaped strings.Builder
	for i := range len(name) {
		if letter := name[i : i+1]; letter != escapeMark && letter != ":" &&
			ledger.AccountPath(prefix+letter).Validate() == nil {
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
