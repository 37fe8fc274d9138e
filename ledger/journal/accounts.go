package journal

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// hledger and beancount write what programs of plain text accounting read. Their journals say the
// same in two languages, which differ in the names of accounts and assets.
var (
	hledger = Format{name: "hledger", block: "; block ", end: "; end ", mark: blockMark,
		make: func(out *bufio.Writer, source Source, options *Options) writer {
			return newAccounts(out, source, options.To, hledgerWords{})
		}}
	beancount = Format{name: "beancount", block: "; block ", end: "; end ", mark: blockMark,
		make: func(out *bufio.Writer, source Source, options *Options) writer {
			return newAccounts(out, source, options.To, beancountWords{})
		}}
)

// blockMark returns height and hash from "; block HEIGHT HASH TIME".
func blockMark(line []byte) (height ledger.Height, hash ledger.Hash, err error) {
	fields := bytes.Fields(line)
	if len(fields) < 4 {
		return 0, hash, errors.New("a line of a block is cut short")
	}
	if _, err := fmt.Sscanf(string(fields[2]), "%d", &height); err != nil {
		return 0, hash, fmt.Errorf("the height of a block: %w", err)
	}
	hash, err = ledger.ParseHash(string(fields[3]))
	return height, hash, err
}

// words are the language of a program.
type words interface {
	// account returns the name of an account below its root, Assets or Equity.
	account(path ledger.AccountPath) string
	asset(name ledger.AssetName) string
	// crossings returns the account for what other shards give and take, which is no other one.
	crossings() string
	// open opens an account, with its own name if it is one of the ledger's.
	open(date, account string, path ledger.AccountPath) string
	// commodity declares an asset with its decimals.
	commodity(date, asset string, name ledger.AssetName, decimals int) string
	// entry returns the first lines of an entry.
	entry(date string, id ledger.Hash, place string, t *ledger.Transaction) string
}

const (
	// knownIssuers bounds the accounts of which the writer remembers whether they are issuers.
	knownIssuers = 1 << 16
)

// accounts writes a journal for a program of plain text accounting.
type accounts struct {
	out    *bufio.Writer
	source Source
	words  words
	// to is the last block. Amounts have the decimals that assets have after it, all of them: also
	// those before a registration, so that sums are right.
	to ledger.Height
	// declared are the assets that the journal has declared, with their decimals.
	declared map[ledger.AssetName]int
	issuers  map[ledger.AccountPath]bool
	opened   map[ledger.AccountPath]bool // in this block
}

func newAccounts(out *bufio.Writer, source Source, to ledger.Height, words words) *accounts {
	return &accounts{out: out, source: source, to: to, words: words,
		declared: map[ledger.AssetName]int{},
		issuers:  map[ledger.AccountPath]bool{}, opened: map[ledger.AccountPath]bool{}}
}

func (w *accounts) begin() error {
	genesis := w.source.Genesis()
	block := genesis.Block()
	_, err := fmt.Fprintf(w.out, "; journal of shard %d of the chain %s, genesis %s\n"+
		"; Each amount is exact. Beancount computes with 28 digits unless told otherwise.\n%s\n",
		genesis.Shard, genesis.Chain, genesis.Hash(), w.words.open(
			timeOf(block).Format("2006-01-02"), w.words.crossings(), ""))
	return err
}

// recall notes which assets are declared: "; asset NAME", or "; asset NAME DECIMALS".
func (w *accounts) recall(line []byte) error {
	text, number, some := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(line)), recalled),
		" ")
	name, count := ledger.AssetName(text), 0
	if some {
		var err error
		if count, err = strconv.Atoi(number); err != nil {
			return fmt.Errorf("the decimals of %.32q: %w", text, err)
		}
	}
	if DecimalsOf(w.source, name, w.to) != count {
		return fmt.Errorf("%w: %s", ErrRegistered, name)
	}
	w.declared[name] = count
	return nil
}

func (w *accounts) finish(last *ledger.Block) error {
	_, err := fmt.Fprintf(w.out, "; end at block %d %s, %d transactions\n", last.Header.Height,
		last.Hash, last.Header.Total)
	return err
}

func (w *accounts) writeBlock(block *ledger.Block) error {
	fmt.Fprintf(w.out, "; block %d %s %s\n", block.Header.Height, block.Hash, timeText(block))
	clear(w.opened)
	date := timeOf(block).Format("2006-01-02")
	for i, entry := range block.All() {
		t := entry.Transaction()
		if outcome, reason := outcomeOf(entry, t); outcome == failed {
			fmt.Fprintf(w.out, "; %s failed: %s\n", entry.ID, reason)
			continue
		}
		if err := w.open(block, date, entry, t); err != nil {
			return err
		}
		moved, err := movementOf(w.source, entry, t)
		if err != nil {
			return err
		}
		if moved == nil {
			continue
		}
		if err := w.write(date, fmt.Sprintf("%d/%d", block.Header.Height, i), moved); err != nil {
			return err
		}
	}
	return nil
}

// open opens the accounts that an entry opens. An entry may open an account that is open.
func (w *accounts) open(block *ledger.Block, date string, entry *ledger.Entry,
	t *ledger.Transaction) error {
	if !entry.Result.OK() {
		return nil
	}
	for i := range t.Openings {
		path := t.Openings[i].Account
		account, err := w.source.Account(path)
		if err != nil {
			return fmt.Errorf("account %s: %w", path, err)
		}
		if account.Opened != block.Header.Height || w.opened[path] {
			continue
		}
		w.opened[path] = true
		name, err := w.name(path)
		if err != nil {
			return err
		}
		fmt.Fprintln(w.out, w.words.open(date, name, path))
	}
	return nil
}

// name returns the name of an account: below Equity if it is an issuer, and else below Assets.
func (w *accounts) name(path ledger.AccountPath) (string, error) {
	issuer, known := w.issuers[path]
	if !known {
		account, err := w.source.Account(path)
		if err != nil {
			return "", fmt.Errorf("account %s: %w", path, err)
		}
		if len(w.issuers) == knownIssuers {
			clear(w.issuers)
		}
		issuer = account.Issuer
		w.issuers[path] = issuer
	}
	if issuer {
		return "Equity:" + w.words.account(path), nil
	}
	return "Assets:" + w.words.account(path), nil
}

func (w *accounts) write(date, place string, m *Movement) error {
	for i := range m.Postings {
		w.declare(date, m.Postings[i].Asset)
	}
	for i := range m.Abroad {
		w.declare(date, m.Abroad[i].Asset)
	}
	w.out.WriteString(w.words.entry(date, m.ID, place, m.Transaction))
	for i := range m.Postings {
		name, err := w.name(m.Postings[i].Account)
		if err != nil {
			return err
		}
		w.posting(name, m.Postings[i].Amount, m.Postings[i].Asset)
	}
	for i := range m.Abroad {
		w.posting(w.words.crossings(), m.Abroad[i].Amount, m.Abroad[i].Asset)
	}
	return w.out.WriteByte('\n')
}

func (w *accounts) posting(account string, amount ledger.Amount, asset ledger.AssetName) {
	fmt.Fprintf(w.out, "    %s  %s %s\n", account, amount.Decimal(w.declared[asset]),
		w.words.asset(asset))
}

// declare declares an asset before its first use.
func (w *accounts) declare(date string, name ledger.AssetName) {
	if _, declared := w.declared[name]; declared {
		return
	}
	count, decimals := DecimalsOf(w.source, name, w.to), ""
	if w.declared[name] = count; count > 0 {
		decimals = fmt.Sprintf(" %d", count)
	}
	fmt.Fprintf(w.out, "%s%s%s\n%s", recalled, name, decimals, w.words.commodity(date,
		w.words.asset(name), name, count))
}

// effectiveDay returns the day that an entry counts for, in UTC, or "" if it says none.
func effectiveDay(t *ledger.Transaction) string {
	if t.Details == nil || t.Details.Effective == 0 {
		return ""
	}
	return time.UnixMilli(int64(t.Details.Effective)).UTC().Format(time.DateOnly)
}

// hledgerWords are the language of hledger, whose accounts may have the names that ours have.
type hledgerWords struct{}

func (hledgerWords) account(path ledger.AccountPath) string { return string(path) }

func (hledgerWords) asset(name ledger.AssetName) string { return `"` + string(name) + `"` }

// No name of ours has a space.
func (hledgerWords) crossings() string { return "Equity:other shards" }

func (hledgerWords) open(_, account string, _ ledger.AccountPath) string {
	return "account " + account
}

func (hledgerWords) commodity(_, asset string, _ ledger.AssetName, decimals int) string {
	return fmt.Sprintf("commodity %s\n    format 1000.%s %s\n", asset,
		strings.Repeat("0", decimals), asset)
}

func (hledgerWords) entry(date string, id ledger.Hash, place string, t *ledger.Transaction) string {
	note, counts := "", ""
	if len(t.Note) > 0 {
		note = "    ; note: " + Visible(t.Note) + "\n"
	}
	if effective := effectiveDay(t); effective != "" {
		counts = "=" + effective // the secondary date, which --date2 reads
	}
	return fmt.Sprintf("%s%s * (%s) %s\n    ; id: %s\n%s", date, counts, place, t.Signer, id,
		note)
}

// beancountWords are the language of Beancount. The parts of its accounts begin with a capital
// letter or a digit, and have letters, digits and hyphens besides; its currencies are in capitals.
type beancountWords struct{}

// account gives each account a name of its own. The first letter of a part becomes a capital one.
// A hyphen is doubled, and any other sign becomes a hyphen and two hex digits. A part that does not
// begin with a small letter or a digit begins with X-U instead.
func (beancountWords) account(path ledger.AccountPath) string {
	parts := strings.Split(string(path), ":")
	for i, part := range parts {
		var to strings.Builder
		if first := part[0]; first >= 'a' && first <= 'z' {
			to.WriteByte(first - 'a' + 'A')
			part = part[1:]
		} else if first < '0' || first > '9' {
			to.WriteString("X-U")
		}
		for j := range len(part) {
			switch c := part[j]; {
			case c == '-':
				to.WriteString("--")
			case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
				to.WriteByte(c)
			default:
				fmt.Fprintf(&to, "-%02X", c)
			}
		}
		parts[i] = to.String()
	}
	return strings.Join(parts, ":")
}

const (
	// maxCurrency is the longest name of a currency in Beancount.
	maxCurrency = 24
	// hashedCurrency is how many digits of a hash stand for a name that is no currency: 110 bits,
	// so nobody finds two names that get the same one.
	hashedCurrency = 22
)

// asset returns a name that is a currency as it is. One in small letters becomes the same in
// capitals with 'L at its end, and any other one H' and a hash. No name has an apostrophe, so they
// cannot be mixed up. The commodity's directive says which asset it is.
func (beancountWords) asset(name ledger.AssetName) string {
	upper := strings.ToUpper(string(name))
	letter := upper[0] >= 'A' && upper[0] <= 'Z'
	last := upper[len(upper)-1]
	fits := letter && (last >= 'A' && last <= 'Z' || last >= '0' && last <= '9')
	switch {
	case upper == string(name) && fits && len(upper) > 1 && len(upper) <= maxCurrency:
		return upper
	case strings.ToLower(string(name)) == string(name) && letter && len(upper) <= maxCurrency-2:
		return upper + "'L"
	}
	sum := sha256.Sum256([]byte(name))
	return "H'" + base32.StdEncoding.EncodeToString(sum[:])[:hashedCurrency]
}

// A part of a name that begins like this goes on with a U.
func (beancountWords) crossings() string { return "Equity:X-Crossings" }

func (beancountWords) open(date, account string, path ledger.AccountPath) string {
	if path == "" {
		return date + " open " + account
	}
	return fmt.Sprintf("%s open %s\n  account: \"%s\"", date, account, path)
}

func (beancountWords) commodity(date, asset string, name ledger.AssetName, _ int) string {
	return fmt.Sprintf("%s commodity %s\n  asset: \"%s\"\n", date, asset, name)
}

func (beancountWords) entry(date string, id ledger.Hash, place string,
	t *ledger.Transaction) string {
	text := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(Visible(t.Note))
	counts := ""
	if effective := effectiveDay(t); effective != "" {
		counts = "  effective: " + effective + "\n"
	}
	return fmt.Sprintf("%s * \"%s\" \"%s\"\n  id: \"%s\"\n  place: \"%s\"\n%s", date, t.Signer,
		text, id, place, counts)
}
