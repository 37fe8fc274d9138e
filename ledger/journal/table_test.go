package journal_test

import (
	"bytes"
	"encoding/csv"
	"maps"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
)

// The applied postings of the table add up to the ledger's balances, and each value is in one line.
func TestTable(t *testing.T) {
	t.Parallel()
	s := chain(t)
	text := export(t, journal.FromStore(s), "csv", journal.Options{To: s.Head().Height})
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != bytes.Count(text, []byte("\n")) {
		t.Errorf("%d rows in %d lines", len(rows), bytes.Count(text, []byte("\n")))
	}
	const kind, height, outcome, account, asset, amount, decimal = 0, 1, 5, 9, 10, 11, 12
	kinds, counts := map[string]int{}, false
	sums := map[string]ledger.Amount{}
	for _, row := range rows[1:] {
		kinds[row[kind]]++
		switch row[kind] {
		case "entry":
			counts = row[outcome] == "applied"
		case "posting":
			value, err := ledger.ParseAmount(row[amount])
			if err != nil {
				t.Fatal(row, err)
			}
			// The registration of EUR is in block 8.
			want := ""
			if row[asset] == "EUR" && len(row[height]) > 1 || row[asset] == "EUR" &&
				row[height] >= "8" {
				want = value.Decimal(2)
			}
			if row[decimal] != want {
				t.Errorf("%v, want %q", row, want)
			}
			if counts {
				key := row[account] + " " + row[asset]
				if sums[key], err = sums[key].Add(value); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	got := map[string]string{}
	for key, sum := range sums {
		if sum.Sign() != 0 {
			got[key] = sum.String()
		}
	}
	if want := balances(t, s, false); !maps.Equal(got, want) {
		t.Errorf("the table says\n%v\nand the ledger has\n%v", got, want)
	}
	head := s.Head()
	if kinds["block"] != int(head.Height) || kinds["entry"] != int(head.Total) ||
		kinds["end"] != 1 || kinds["record"] != 2 || kinds["signature"] < kinds["entry"]-2 {
		t.Errorf("%v, head %+v", kinds, head)
	}
}
