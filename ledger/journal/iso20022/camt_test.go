package iso20022

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// element is an element of the message, as the schema camt.053.001.08 has it: which elements it may
// have in it, in which order, how many of each, and which text.
type element struct {
	name     string
	min, max int
	children []element
	text     *regexp.Regexp // of an element without children
	choice   bool           // exactly one of the children
}

func text(most int) *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf(`^(?s).{1,%d}$`, most))
}

var (
	date     = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
	dateTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)
	// totalDigits 18, fractionDigits 5
	number = regexp.MustCompile(`^(\d{1,18}|\d{1,17}\.\d|\d{1,16}\.\d\d|\d{1,15}\.\d{3,3}|` +
		`\d{1,14}\.\d{4,4}|\d{1,13}\.\d{5,5})$`)
	currency = regexp.MustCompile(`^[A-Z]{3,3}$`)
	sign     = regexp.MustCompile(`^(CRDT|DBIT)$`)
	unbound  = 1 << 30
)

func one(name string, children ...element) element {
	return element{name: name, min: 1, max: 1, children: children}
}

func leaf(name string, text *regexp.Regexp) element {
	return element{name: name, min: 1, max: 1, text: text}
}

func optional(e element) element { e.min = 0; return e }

func many(least int, e element) element { e.min, e.max = least, unbound; return e }

func either(e element) element { e.choice = true; return e }

// dateChoice is DateAndDateTime2Choice.
func dateChoice(name string) element {
	return either(one(name, leaf("Dt", date), leaf("DtTm", dateTime)))
}

// schema is the part of camt.053.001.08 that has the elements of our messages, and those without
// which there is no message.
var schema = one("Document", one("BkToCstmrStmt",
	one("GrpHdr", leaf("MsgId", text(35)), leaf("CreDtTm", dateTime),
		optional(leaf("AddtlInf", text(500)))),
	many(1, one("Stmt", leaf("Id", text(35)), optional(leaf("ElctrncSeqNb", number)),
		optional(leaf("CreDtTm", dateTime)),
		optional(one("FrToDt", leaf("FrDtTm", dateTime), leaf("ToDtTm", dateTime))),
		one("Acct",
			either(one("Id", leaf("IBAN", regexp.MustCompile(`^[A-Z]{2}\d{2}[A-Za-z0-9]{1,30}$`)),
				one("Othr", leaf("Id", text(34)), optional(either(one("SchmeNm",
					leaf("Cd", text(4)), leaf("Prtry", text(35))))), optional(leaf("Issr",
					text(35)))))),
			optional(leaf("Ccy", currency)), optional(leaf("Nm", text(70)))),
		many(1, one("Bal",
			one("Tp", either(one("CdOrPrtry", leaf("Cd", regexp.MustCompile(
				`^(OPBD|CLBD|CLAV|OPAV|PRCD|ITBD|ITAV|FWAV|INFO|XPCD)$`)),
				leaf("Prtry", text(35))))),
			leaf("Amt", number), leaf("CdtDbtInd", sign), dateChoice("Dt"))),
		many(0, one("Ntry", optional(leaf("NtryRef", text(35))), leaf("Amt", number),
			leaf("CdtDbtInd", sign), optional(leaf("RvslInd", regexp.MustCompile(`^(true|false)$`))),
			either(one("Sts", leaf("Cd", regexp.MustCompile(`^(BOOK|PDNG|FUTR|INFO)$`)),
				leaf("Prtry", text(35)))),
			optional(dateChoice("BookgDt")), optional(dateChoice("ValDt")),
			optional(leaf("AcctSvcrRef", text(35))),
			one("BkTxCd", optional(one("Prtry", leaf("Cd", text(35)),
				optional(leaf("Issr", text(35)))))),
			many(0, one("NtryDtls", many(0, one("TxDtls",
				optional(one("RmtInf", many(0, leaf("Ustrd", text(140))))))))),
			optional(leaf("AddtlNtryInf", text(500))))),
		optional(leaf("AddtlStmtInf", text(500)))))))

// node is an element of a message that was read.
type node struct {
	name     string
	currency string
	text     string
	children []*node
}

func (n *node) find(path ...string) (found []*node) {
	if len(path) == 0 {
		return []*node{n}
	}
	for _, child := range n.children {
		if child.name == path[0] {
			found = append(found, child.find(path[1:]...)...)
		}
	}
	return found
}

func read(t *testing.T, message []byte) *node {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(message))
	root := &node{}
	stack := []*node{root}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return root.children[0]
		}
		if err != nil {
			t.Fatal(err)
		}
		top := stack[len(stack)-1]
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Space != namespace {
				t.Fatalf("%s is of %q", token.Name.Local, token.Name.Space)
			}
			element := &node{name: token.Name.Local}
			for _, attribute := range token.Attr {
				if attribute.Name.Local == "Ccy" {
					element.currency = attribute.Value
				} else if attribute.Name.Local != "xmlns" {
					t.Errorf("%s has %s", element.name, attribute.Name.Local)
				}
			}
			top.children = append(top.children, element)
			stack = append(stack, element)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			top.text += string(token)
		}
	}
}

// validate checks an element against its schema.
func validate(n *node, e *element, path string) error {
	path += "/" + n.name
	if n.name != e.name {
		return fmt.Errorf("%s: want %s", path, e.name)
	}
	if len(e.children) == 0 {
		if len(n.children) > 0 || !e.text.MatchString(n.text) || !utf8.ValidString(n.text) {
			return fmt.Errorf("%s: %q is not %s", path, n.text, e.text)
		}
		if (n.name == "Amt") != currency.MatchString(n.currency) {
			return fmt.Errorf("%s: the currency is %q", path, n.currency)
		}
		return nil
	}
	if strings.TrimSpace(n.text) != "" {
		return fmt.Errorf("%s: there is text: %q", path, n.text)
	}
	rest := n.children
	for i := range e.children {
		child := &e.children[i]
		count := 0
		for ; len(rest) > 0 && rest[0].name == child.name; rest = rest[1:] {
			if err := validate(rest[0], child, path); err != nil {
				return err
			}
			count++
		}
		if least := child.min; !e.choice && (count < least || count > child.max) {
			return fmt.Errorf("%s: %d of %s", path, count, child.name)
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("%s: %s is not there, or not at this place", path, rest[0].name)
	}
	if e.choice && len(n.children) != 1 {
		return fmt.Errorf("%s: %d elements of a choice", path, len(n.children))
	}
	return nil
}

// fixed is a chain in memory.
type fixed struct {
	journal.Source
	genesis *ledger.Genesis
	blocks  []*ledger.Block
	// decimals are those of the assets that are registered, in block 9.
	decimals map[ledger.AssetName]uint8
}

func (f *fixed) Asset(name ledger.AssetName) (ledger.Asset, bool) {
	count, known := f.decimals[name]
	return ledger.Asset{Registered: 9, AssetTerms: ledger.AssetTerms{Decimals: count}}, known
}

func (f *fixed) Genesis() *ledger.Genesis { return f.genesis }

func (f *fixed) Block(height ledger.Height) (*ledger.Block, error) {
	return f.blocks[height-1], nil
}

// chain returns a chain with transfers of several assets and accounts, and notes of all kinds.
func chain(largest string) *fixed {
	f := &fixed{genesis: ledgertest.Genesis(), decimals: map[ledger.AssetName]uint8{"EUR": 2}}
	f.genesis.Time = 1_790_000_000_000
	client := ledgertest.NewClient(f.genesis, "acme")
	long := strings.Repeat("long-", 20)
	add := func(transactions ...ledger.Transaction) {
		parent := f.genesis.Block()
		if len(f.blocks) > 0 {
			parent = f.blocks[len(f.blocks)-1]
		}
		f.blocks = append(f.blocks, ledgertest.After(parent, client.Bundle(transactions...)))
	}
	add(client.Register("mint", "cash", long))
	for i := range 40 {
		transfer := client.Transfer("acme:mint", "acme:cash", int64(i+1))
		if i%3 == 0 {
			transfer.Postings[0].Asset, transfer.Postings[1].Asset = "EUR", "EUR"
		}
		if i%5 == 0 {
			transfer.Postings[1].Account = "acme:" + ledger.AccountPath(long)
		}
		transfer.Note = []byte(strings.Repeat("<é&\n\xff>]]>\" ", i))
		add(transfer)
	}
	large := client.Transfer("acme:mint", "acme:cash", 1)
	large.Postings[0].Asset, large.Postings[1].Asset = "large", "large"
	large.Postings[1].Amount, _ = ledger.ParseAmount(largest)
	large.Postings[0].Amount, _ = large.Postings[1].Amount.Neg()
	add(large)
	return f
}

func made(t *testing.T, f *fixed, most int) ([]byte, error) {
	t.Helper()
	var out bytes.Buffer
	err := export(t.Context(), &out, f, journal.Options{To: ledger.Height(len(f.blocks))}, most)
	return out.Bytes(), err
}

// The message has the structure of the schema. Each statement's entries add up to its closing
// balance, which is the account's, and notes are whole. The bytes do not depend on how much fits
// into memory.
func TestMessage(t *testing.T) {
	t.Parallel()
	f := chain("999999999999999999")
	text, err := made(t, f, spoolBytes)
	if err != nil {
		t.Fatal(err)
	}
	if small, err := made(t, f, 1000); err != nil || !bytes.Equal(small, text) {
		t.Errorf("sorted in many runs, the message differs: %v", err)
	}
	document := read(t, text)
	if err := validate(document, &schema, ""); err != nil {
		t.Fatal(err)
	}
	want := map[string]ledger.Amount{}
	notes := map[string]int{}
	for _, block := range f.blocks {
		for _, entry := range block.All() {
			for _, p := range entry.Transaction().Postings {
				key := fmt.Sprintf("account %s, asset %s", p.Account, p.Asset)
				want[key], _ = want[key].Add(p.Amount)
				notes[journal.Visible(entry.Transaction().Note)]++
			}
		}
	}
	signed := func(n *node) ledger.Amount {
		decimals := 0
		if strings.Contains(n.find("Amt")[0].text, ".") {
			decimals = 2
		}
		if (n.find("Amt")[0].currency == "EUR") != (decimals == 2) {
			t.Errorf("%+v", n.find("Amt")[0])
		}
		amount, err := ledger.ParseDecimal(n.find("Amt")[0].text, decimals)
		if err != nil {
			t.Fatal(err)
		}
		if n.find("CdtDbtInd")[0].text == "DBIT" {
			amount, _ = amount.Neg()
		}
		return amount
	}
	got := map[string]ledger.Amount{}
	seen := map[string]int{}
	for _, statement := range document.find("BkToCstmrStmt", "Stmt") {
		var sum ledger.Amount
		for _, entry := range statement.find("Ntry") {
			sum, _ = sum.Add(signed(entry))
			note := ""
			for _, part := range entry.find("NtryDtls", "TxDtls", "RmtInf", "Ustrd") {
				note += part.text
			}
			seen[note]++
		}
		key := statement.find("AddtlStmtInf")[0].text
		balances := statement.find("Bal")
		if opening := signed(balances[0]); opening.Sign() != 0 || signed(balances[1]) != sum {
			t.Errorf("%s: from %s to %s, and the entries add up to %s", key, opening,
				signed(balances[1]), sum)
		}
		if code := statement.find("Acct", "Ccy")[0].text; (code == "EUR") !=
			strings.HasSuffix(key, "EUR") || code != "EUR" && code != noCurrency {
			t.Errorf("%s has the currency %s", key, code)
		}
		got[key] = sum
	}
	if len(want) != 8 || !maps.Equal(got, want) || !maps.Equal(seen, notes) {
		t.Errorf("the statements say %v, want %v", got, want)
	}
}

// What the message cannot say is refused, and leaves no file.
func TestRefuses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "statement.xml")
	f := chain("1000000000000000000")
	for name, c := range map[string]struct {
		to   ledger.Height
		want error
	}{"19 digits": {ledger.Height(len(f.blocks)), ErrAmount}, "no entries": {1, ErrEmpty},
		"all is well": {5, nil}} {
		err := ExportFile(t.Context(), path, f, journal.Options{To: c.to})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(path + ".partial"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Amounts have up to 5 decimals. Zeros beyond them say nothing; other digits are refused.
func TestDecimals(t *testing.T) {
	t.Parallel()
	for largest, want := range map[string]error{"1234500000000000000000": nil,
		"1234567000000000000000": nil, "1000000000000": ErrDecimals,
		"10000000000000000000000000000000": ErrAmount, "1": ErrDecimals} {
		f := chain(largest)
		f.decimals["large"] = 18
		text, err := made(t, f, spoolBytes)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", largest, err, want)
		}
		if err == nil {
			if err := validate(read(t, text), &schema, ""); err != nil {
				t.Error(err)
			}
		}
	}
	f := chain("1")
	text, err := made(t, f, spoolBytes)
	if err != nil || !bytes.Contains(text, []byte(`<Amt Ccy="EUR">0.01</Amt>`)) {
		t.Errorf("no amount with decimals: %v", err)
	}
	var early bytes.Buffer
	if err := Export(t.Context(), &early, f, journal.Options{To: 8}); err != nil ||
		bytes.Contains(early.Bytes(), []byte(`0.01`)) {
		t.Errorf("decimals before the registration: %v", err)
	}
}

// The validator finds what is wrong with a message.
func TestValidatorCatches(t *testing.T) {
	t.Parallel()
	text, err := made(t, chain("1"), spoolBytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"<CreDtTm>", "<CreDtTm>x"}, {"CLBD", "CLOSE"},
		{`Ccy="EUR"`, `Ccy="euro"`}, {"<NtryRef>", "<NtryRef>" + strings.Repeat("x", 40)},
		{"<Sts>", "<Sts><Cd>BOOK</Cd>"}, {"BkTxCd", "Unknown"}} {
		wrong := bytes.ReplaceAll(text, []byte(c[0]), []byte(c[1]))
		if err := validate(read(t, wrong), &schema, ""); err == nil {
			t.Errorf("%s for %s was not found", c[1], c[0])
		}
	}
}
