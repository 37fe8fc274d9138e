package iso20022

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
)

// ErrAmount means that an amount does not fit into the message.
var ErrAmount = errors.New("iso20022: an amount has more than 18 digits, which the message " +
	"cannot say")

// ErrDecimals means that an asset has more decimals than the message can say.
var ErrDecimals = errors.New("iso20022: an amount has more than 5 decimals, which the message " +
	"cannot say")

// ErrEmpty means that no account has an entry.
var ErrEmpty = errors.New("iso20022: no account has an entry, and the message must have one")

const (
	namespace = "urn:iso:std:iso:20022:tech:xsd:camt.053.001.08"
	// maxDigits, maxAccount, maxReference, maxNote and maxInformation are the message's bounds.
	maxDigits      = 18
	maxDecimals    = 5
	maxAccount     = 34
	maxReference   = 35
	maxNote        = 140
	maxInformation = 500
	// noCurrency is the code of ISO 4217 for no currency.
	noCurrency = "XXX"
)

// entry is an entry of a statement.
type entry struct {
	Height  ledger.Height
	Index   int
	Posting int
	Time    ledger.Milliseconds
	// Effective is the date that the entry counts for: Time if it says none.
	Effective ledger.Milliseconds
	ID        ledger.Hash
	Signer    ledger.OrganisationName
	Amount    ledger.Amount
	Note      []byte `json:",omitempty"`
}

// ExportFile writes the statements of all accounts of a chain. The file is whole or not there, and
// replaces an earlier one.
func ExportFile(ctx context.Context, path string, source journal.Source,
	options journal.Options) (err error) {
	out, err := os.Create(path + ".partial")
	if err != nil {
		return fmt.Errorf("iso20022: %w", err)
	}
	err = Export(ctx, out, source, options)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(path+".partial"))
	}
	if err := os.Rename(path+".partial", path); err != nil {
		return fmt.Errorf("iso20022: %w", err)
	}
	return nil
}

// Export writes the statements of all accounts of a chain, by account and asset.
func Export(ctx context.Context, to io.Writer, source journal.Source,
	options journal.Options) error {
	return export(ctx, to, source, options, spoolBytes)
}

func export(ctx context.Context, to io.Writer, source journal.Source, options journal.Options,
	most int) (err error) {
	sorted, err := newSpool(most)
	if err != nil {
		return fmt.Errorf("iso20022: %w", err)
	}
	defer func() { err = errors.Join(err, sorted.Close()) }()
	last := source.Genesis().Block()
	for height := ledger.Height(1); height <= options.To; height++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if last, err = source.Block(height); err != nil {
			return fmt.Errorf("iso20022: block %d: %w", height, err)
		}
		if err := addBlock(sorted, source, last); err != nil {
			return fmt.Errorf("iso20022: block %d: %w", height, err)
		}
		if options.Progress != nil {
			options.Progress(height, options.To)
		}
	}
	m := &message{out: bufio.NewWriterSize(to, 1<<16), genesis: source.Genesis(), last: last,
		decimals: func(asset ledger.AssetName) int {
			return journal.DecimalsOf(source, asset, options.To)
		}}
	return errors.Join(m.write(ctx, sorted), m.out.Flush())
}

func addBlock(to *spool, source journal.Source, block *ledger.Block) error {
	return journal.Movements(source, block, func(m *journal.Movement) error {
		for i := range m.Postings {
			p := &m.Postings[i]
			effective := block.Header.Time
			if d := m.Transaction.Details; d != nil && d.Effective != 0 {
				effective = d.Effective
			}
			value, err := json.Marshal(entry{Height: block.Header.Height, Index: m.Index,
				Posting: i, Time: block.Header.Time, Effective: effective, ID: m.ID,
				Signer: m.Transaction.Signer, Amount: p.Amount, Note: m.Transaction.Note})
			if err != nil {
				return err
			}
			if err := to.add([]byte(string(p.Account)+"\x00"+string(p.Asset)),
				value); err != nil {
				return err
			}
		}
		return nil
	})
}

// message writes the message.
type message struct {
	out     *bufio.Writer
	genesis *ledger.Genesis
	last    *ledger.Block
	number  int // of the statement
	depth   int
	// decimals are those that an asset has after the last block.
	decimals func(asset ledger.AssetName) int
}

func (m *message) open(names ...string) {
	for _, name := range names {
		m.indent()
		m.out.WriteString("<" + name + ">\n")
		m.depth++
	}
}

func (m *message) close(names ...string) {
	for _, name := range names {
		m.depth--
		m.indent()
		m.out.WriteString("</" + name + ">\n")
	}
}

func (m *message) indent() { m.out.WriteString(strings.Repeat(" ", m.depth)) }

// text writes an element with text.
func (m *message) text(name, value string) {
	m.indent()
	m.out.WriteString("<" + name + ">")
	_ = xml.EscapeText(m.out, []byte(value)) // Flush returns the error
	m.out.WriteString("</" + name + ">\n")
}

func moment(at ledger.Milliseconds) string {
	return time.UnixMilli(int64(at)).UTC().Format("2006-01-02T15:04:05.000Z")
}

func day(at ledger.Milliseconds) string {
	return time.UnixMilli(int64(at)).UTC().Format("2006-01-02")
}

// write writes the whole message. It reads the records twice, side by side: a statement begins with
// the balance at its end.
func (m *message) write(ctx context.Context, sorted *spool) (err error) {
	ahead, err := sorted.sorted()
	if err != nil {
		return fmt.Errorf("iso20022: %w", err)
	}
	defer func() { err = errors.Join(err, ahead.Close()) }()
	behind, err := sorted.sorted()
	if err != nil {
		return fmt.Errorf("iso20022: %w", err)
	}
	defer func() { err = errors.Join(err, behind.Close()) }()
	m.out.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n")
	m.out.WriteString(`<Document xmlns="` + namespace + `">` + "\n")
	m.depth++
	m.open("BkToCstmrStmt", "GrpHdr")
	m.text("MsgId", fmt.Sprintf("ledgerd-%d-%d", m.genesis.Shard, m.last.Header.Height))
	m.text("CreDtTm", moment(m.last.Header.Time))
	m.text("AddtlInf", limit(fmt.Sprintf("chain %s, genesis %s, shard %d, block %d %s",
		m.genesis.Chain, m.genesis.Hash(), m.genesis.Shard, m.last.Header.Height, m.last.Hash),
		maxInformation))
	m.close("GrpHdr")
	for {
		first, more := behind.peek()
		if !more {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := m.statement(first.key, ahead, behind); err != nil {
			return err
		}
	}
	m.close("BkToCstmrStmt", "Document")
	if m.number == 0 {
		return ErrEmpty // the message must have a statement
	}
	return nil
}

// each calls visit with the entries of a key.
func each(from *merge, key []byte, visit func(*entry) error) error {
	for {
		next, more := from.peek()
		if !more || !bytes.Equal(next.key, key) {
			return nil
		}
		var e entry
		if err := json.Unmarshal(next.value, &e); err != nil {
			return fmt.Errorf("iso20022: a temporary file is damaged: %w", err)
		}
		if err := visit(&e); err != nil {
			return err
		}
		if err := from.advance(); err != nil {
			return err
		}
	}
}

func (m *message) statement(key []byte, ahead, behind *merge) error {
	account, asset, _ := strings.Cut(string(key), "\x00")
	var sum ledger.Amount
	if err := each(ahead, key, func(e *entry) (err error) {
		sum, err = sum.Add(e.Amount)
		return err
	}); err != nil {
		return err
	}
	m.number++
	currency := unit{currencyOf(asset), m.decimals(ledger.AssetName(asset))}
	m.open("Stmt")
	m.text("Id", fmt.Sprintf("%d-%d-%d", m.genesis.Shard, m.last.Header.Height, m.number))
	m.text("CreDtTm", moment(m.last.Header.Time))
	m.open("FrToDt")
	m.text("FrDtTm", moment(m.genesis.Time))
	m.text("ToDtTm", moment(m.last.Header.Time))
	m.close("FrToDt")
	m.open("Acct", "Id", "Othr")
	m.text("Id", accountOf(account))
	m.open("SchmeNm")
	m.text("Prtry", "ledgerd")
	m.close("SchmeNm", "Othr", "Id")
	m.text("Ccy", currency.code)
	m.close("Acct")
	if err := m.balance("OPBD", ledger.Amount{}, currency, m.genesis.Time); err != nil {
		return err
	}
	if err := m.balance("CLBD", sum, currency, m.last.Header.Time); err != nil {
		return fmt.Errorf("the balance of %s: %w", account, err)
	}
	if err := each(behind, key, func(e *entry) error { return m.entry(e, currency) }); err != nil {
		return err
	}
	m.text("AddtlStmtInf", limit(fmt.Sprintf("account %s, asset %s", account, asset),
		maxInformation))
	m.close("Stmt")
	return nil
}

// unit is an asset as the message says it.
type unit struct {
	code     string
	decimals int
}

func (m *message) balance(kind string, amount ledger.Amount, currency unit,
	at ledger.Milliseconds) error {
	m.open("Bal", "Tp", "CdOrPrtry")
	m.text("Cd", kind)
	m.close("CdOrPrtry", "Tp")
	if err := m.amount(amount, currency); err != nil {
		return err
	}
	m.open("Dt")
	m.text("Dt", day(at))
	m.close("Dt", "Bal")
	return nil
}

// amount writes an amount without its sign, and then the sign.
func (m *message) amount(amount ledger.Amount, currency unit) error {
	digits, debit := strings.CutPrefix(amount.Decimal(currency.decimals), "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	if len(fraction) > maxDecimals { // zeros at the end say nothing
		fraction = fraction[:max(maxDecimals, len(strings.TrimRight(fraction, "0")))]
		digits = whole + "." + fraction
	}
	switch {
	case len(fraction) > maxDecimals:
		return fmt.Errorf("%w: %s", ErrDecimals, digits)
	case len(whole)+len(fraction) > maxDigits:
		return fmt.Errorf("%w: %s", ErrAmount, digits)
	}
	m.indent()
	m.out.WriteString(`<Amt Ccy="` + currency.code + `">` + digits + "</Amt>\n")
	sign := "CRDT"
	if debit {
		sign = "DBIT"
	}
	m.text("CdtDbtInd", sign)
	return nil
}

func (m *message) entry(e *entry, currency unit) error {
	m.open("Ntry")
	m.text("NtryRef", fmt.Sprintf("%d/%d/%d", e.Height, e.Index, e.Posting))
	if err := m.amount(e.Amount, currency); err != nil {
		return fmt.Errorf("transaction %s: %w", e.ID, err)
	}
	m.open("Sts")
	m.text("Cd", "BOOK")
	m.close("Sts")
	m.open("BookgDt")
	m.text("DtTm", moment(e.Time))
	m.close("BookgDt")
	m.open("ValDt")
	m.text("DtTm", moment(e.Effective))
	m.close("ValDt")
	m.text("AcctSvcrRef", e.ID.String()[:maxReference])
	m.open("BkTxCd", "Prtry")
	m.text("Cd", "TRANSFER")
	m.text("Issr", "ledgerd")
	m.close("Prtry", "BkTxCd")
	if len(e.Note) > 0 {
		m.open("NtryDtls", "TxDtls", "RmtInf")
		for rest := []rune(journal.Visible(e.Note)); len(rest) > 0; {
			part := rest[:min(maxNote, len(rest))]
			rest = rest[len(part):]
			m.text("Ustrd", string(part))
		}
		m.close("RmtInf", "TxDtls", "NtryDtls")
	}
	m.text("AddtlNtryInf", limit(fmt.Sprintf("id %s, signed by %s", e.ID, e.Signer),
		maxInformation))
	m.close("Ntry")
	return nil
}

// currencyOf returns the code of an asset.
func currencyOf(asset string) string {
	if len(asset) != len(noCurrency) || strings.ToUpper(asset) != asset ||
		strings.ContainsAny(asset, "0123456789-_.") {
		return noCurrency
	}
	return asset
}

// accountOf returns an account as it is if it is short enough, and else its beginning and a hash.
func accountOf(account string) string {
	if len(account) <= maxAccount {
		return account
	}
	sum := sha256.Sum256([]byte(account))
	tail := fmt.Sprintf("~%x", sum[:6])
	return account[:maxAccount-len(tail)] + tail
}

// limit cuts a text of ASCII to a number of characters.
func limit(text string, most int) string { return text[:min(most, len(text))] }
