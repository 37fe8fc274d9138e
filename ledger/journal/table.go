package journal

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// Row is a line of the table that a chain is. What a row is about is in its Type:
//
//	block         Hash, and Time of all rows of the block
//	entry         ID, Signer, Outcome, Reason and Note of a transaction
//	signature     Organisation, Key and Value (the signature) of the entry's bundle
//	registration  Organisation and Key, a row for each key
//	opening       Account, and Value: issuer if it is one
//	posting       Account, Asset and Amount, an exact integer of the smallest unit
//	record        Key and Value
//	judged        ID of the transaction that the entry, a verdict, is about
//
// Rows of an entry come after it, and entries after their block. The postings of an entry have
// taken effect if its outcome is applied. Those of one that is waiting take effect at a later entry
// with the outcome settled, whose row judged names it.
type Row struct {
	Type         string
	Height       ledger.Height
	Index        int // of the entry in the block; -1 in the row of the block
	Time         string
	ID           string
	Outcome      string
	Reason       string
	Signer       string
	Organisation string
	Account      string
	Asset        string
	Amount       string
	// AmountDecimal is the amount with the decimals of its asset, if the asset is registered up to
	// this block and has some.
	AmountDecimal string
	Key           string
	Value         string
	Note          string
	Hash          string
}

// columns are the names of the columns, in the order of Row.
var columns = []string{"type", "height", "index", "time", "id", "outcome", "reason", "signer",
	"organisation", "account", "asset", "amount", "amount_decimal", "key", "value", "note", "hash"}

// Rows calls visit with each row of a block. Texts that clients chose are visible: see the page
// docs/journals.md. visit must not keep the row.
func Rows(source Source, block *ledger.Block, visit func(*Row) error) error {
	time := timeText(block)
	if err := visit(&Row{Type: "block", Height: block.Header.Height, Index: -1, Time: time,
		Hash: block.Hash.String()}); err != nil {
		return err
	}
	for i, entry := range block.All() {
		t := entry.Transaction()
		at := Row{Height: block.Header.Height, Index: i, Time: time}
		if err := entryRows(source, at, &block.Bundles[entry.Bundle], entry, t,
			visit); err != nil {
			return err
		}
	}
	return nil
}

func entryRows(source Source, at Row, bundle *ledger.BundleSeal, entry *ledger.Entry,
	t *ledger.Transaction, visit func(*Row) error) error {
	var failure error
	put := func(kind string, fill func(*Row)) {
		row := at
		row.Type = kind
		fill(&row)
		if failure == nil {
			failure = visit(&row)
		}
	}
	put("entry", func(r *Row) {
		r.ID, r.Signer, r.Note = entry.ID.String(), string(t.Signer), Visible(t.Note)
		r.Outcome, r.Reason = outcomeOf(entry, t)
	})
	for i := range bundle.Signatures {
		put("signature", func(r *Row) {
			r.Organisation = string(bundle.Signatures[i].Organisation)
			r.Key, r.Value = bundle.Signatures[i].Key.String(), bundle.Signatures[i].Bytes.String()
		})
	}
	for i := range t.Registrations {
		for _, key := range t.Registrations[i].Keys {
			put("registration", func(r *Row) {
				r.Organisation, r.Key = string(t.Registrations[i].Name), key.String()
			})
		}
	}
	for i := range t.Openings {
		put("opening", func(r *Row) {
			if r.Account = string(t.Openings[i].Account); t.Openings[i].Issuer {
				r.Value = "issuer"
			}
		})
	}
	for i := range t.Postings {
		put("posting", func(r *Row) {
			r.Account, r.Asset = string(t.Postings[i].Account), string(t.Postings[i].Asset)
			r.Amount = t.Postings[i].Amount.String()
			if count := DecimalsOf(source, t.Postings[i].Asset, at.Height); count > 0 {
				r.AmountDecimal = t.Postings[i].Amount.Decimal(count)
			}
		})
	}
	for i := range t.Records {
		put("record", func(r *Row) {
			r.Key, r.Value = string(t.Records[i].Key), Visible(t.Records[i].Value)
		})
	}
	if d := t.Details; d != nil {
		if d.Effective != 0 {
			put("effective", func(r *Row) { r.Value = fmt.Sprint(d.Effective) })
		}
		if d.Key != "" {
			put("key", func(r *Row) { r.Key = d.Key })
		}
		if d.Refundable != 0 {
			put("refundable", func(r *Row) { r.Value = fmt.Sprint(d.Refundable) })
		}
		if d.Refund != nil {
			put("refund", func(r *Row) {
				r.Organisation, r.Value = string(d.Refund.Organisation), d.Refund.Entry.String()
			})
		}
	}
	if h := t.Hold; h != nil {
		put("hold", func(r *Row) {
			r.Organisation, r.Account, r.Asset = string(h.Poster), string(h.From), string(h.Asset)
			r.Amount = h.Amount.String()
			if count := DecimalsOf(source, h.Asset, at.Height); count > 0 {
				r.AmountDecimal = h.Amount.Decimal(count)
			}
			r.Value = fmt.Sprint(h.Expires)
		})
	}
	if t.HoldEnd != nil {
		put("hold_end", func(r *Row) {
			r.Account, r.Value = string(t.HoldEnd.From), t.HoldEnd.Hold.String()
		})
	}
	if s := t.Schedule; s != nil {
		put("schedule", func(r *Row) { r.Value = s.Words() })
	}
	if t.ScheduleEnd != nil {
		put("schedule_end", func(r *Row) { r.Value = t.ScheduleEnd.Schedule.String() })
	}
	if o := t.Occurrence; o != nil {
		put("occurrence", func(r *Row) {
			r.Value = fmt.Sprintf("%s %d %d", o.Schedule, o.Number, o.Time)
		})
	}
	if t.Verdict != nil {
		put("judged", func(r *Row) { r.ID = t.Verdict.ID.String() })
	}
	return failure
}

// csvTable is the table in CSV (RFC 4180, with a line feed at the end of each line). No value has
// a line's end in it.
var csvTable = Format{name: "csv", block: "block,", end: "end,",
	mark: func(line []byte) (height ledger.Height, hash ledger.Hash, err error) {
		fields := strings.Split(strings.TrimSpace(string(line)), ",")
		if len(fields) != len(columns) {
			return 0, hash, errors.New("a row of a block is cut short")
		}
		if _, err := fmt.Sscanf(fields[1], "%d", &height); err != nil {
			return 0, hash, fmt.Errorf("the height of a block: %w", err)
		}
		hash, err = ledger.ParseHash(fields[len(fields)-1])
		return height, hash, err
	},
	make: func(out *bufio.Writer, source Source, options *Options) writer {
		return &table{to: csv.NewWriter(out), source: source, genesis: source.Genesis()}
	},
}

// table writes a table in CSV.
type table struct {
	to      *csv.Writer
	source  Source
	genesis *ledger.Genesis
}

func (w *table) recall([]byte) error { return nil }

// begin writes the names of the columns, and a row that says of which chain the table is.
func (w *table) begin() error {
	if err := w.to.Write(columns); err != nil {
		return err
	}
	return w.end("journal", &Row{Index: -1, Value: fmt.Sprintf("%s shard %d", w.genesis.Chain,
		w.genesis.Shard), Hash: w.genesis.Hash().String()})
}

func (w *table) finish(last *ledger.Block) error {
	return w.end("end", &Row{Height: last.Header.Height, Index: -1, Time: timeText(last),
		Hash: last.Hash.String()})
}

func (w *table) end(kind string, row *Row) error {
	row.Type = kind
	if err := w.write(row); err != nil {
		return err
	}
	w.to.Flush()
	return w.to.Error()
}

func (w *table) writeBlock(block *ledger.Block) error {
	if err := Rows(w.source, block, w.write); err != nil {
		return err
	}
	w.to.Flush()
	return w.to.Error()
}

func (w *table) write(r *Row) error {
	index := ""
	if r.Index >= 0 {
		index = strconv.Itoa(r.Index)
	}
	return w.to.Write([]string{r.Type, strconv.FormatUint(uint64(r.Height), 10), index, r.Time,
		r.ID, r.Outcome, r.Reason, r.Signer, r.Organisation, r.Account, r.Asset, r.Amount,
		r.AmountDecimal, r.Key, r.Value, r.Note, r.Hash})
}
