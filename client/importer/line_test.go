package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

func TestAccountPath(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, path string }{
		{"coinbase", "acme:coinbase"},
		{"1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", "acme:1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"},
		{"bank:cash", "acme:bank:cash"},
		{"a b", "acme:a=20b"},
		{"a=b", "acme:a=3db"},
		{"a::b", "acme:a=3a=3ab"},
		{":", "acme:=3a"},
		{"Zürich", "acme:Z=c3=bcrich"},
		{strings.Repeat("x", 123), "acme:" + strings.Repeat("x", 123)},
		{"", ""},
		{strings.Repeat("x", 129), ""},
	}
	for _, c := range cases {
		path, err := AccountPath("acme", c.name)
		if (err == nil) != (c.path != "") || (err == nil && string(path) != c.path) {
			t.Errorf("%q: %q, %v, want %q", c.name, path, err, c.path)
		}
	}
}

// No two names have the same path, and every path is valid.
func TestAccountPathsDiffer(t *testing.T) {
	t.Parallel()
	name := rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune("ab:=~ 3d0")), 1, 6, -1),
		rapid.StringN(1, 128, 128),
		rapid.StringOfN(rapid.SampledFrom([]rune("é ")), 60, 64, 128),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		first, err := AccountPath("acme", a)
		if err != nil {
			t.Fatal(err)
		}
		second, err := AccountPath("acme", b)
		if err != nil {
			t.Fatal(err)
		}
		if (a == b) != (first == second) {
			t.Fatalf("%q and %q have the paths %s and %s", a, b, first, second)
		}
	})
}

func builderForTest() *lineBuilder {
	return &lineBuilder{organisations: []organisation{{name: "acme", lines: 9}},
		issuers: map[string]bool{"mint": true}, book: ledger.Hash{1}}
}

// transaction returns the transaction of a line if there is one organisation.
func (b *lineBuilder) transaction(text []byte, number uint64) (ledger.Transaction, int, error) {
	made, err := b.line(text, number)
	if err != nil {
		return ledger.Transaction{}, 0, err
	}
	return made.posting.transaction, made.posting.size, nil
}

func TestLines(t *testing.T) {
	t.Parallel()
	good := []struct{ line, note string }{
		{`{"postings":[{"account":"mint","amount":-1},{"account":"a","amount":1}]}`, ``},
		{
			`{"z":1,"postings":[{"account":"mint","amount":"-1"},{"account":"a","amount":1,"asset":"unit"}],"a":[1, {"b": null}]}`, `{"z":1,"a":[1,{"b":null}]}`},
		{
			` { "postings" : [{"account":"mint","amount":-1},{"account":"a","amount":1}] , "x" : "ä" } `, `{"x":"ä"}`},
		{
			`{"postings":[{"account":"mint","amount":-170141183460469231731687303715884105727},{"account":"a","amount":170141183460469231731687303715884105727}]}`, ``},
	}
	for _, c := range good {
		transaction, _, err := builderForTest().transaction([]byte(c.line), 5)
		if err != nil || string(transaction.Note) != c.note || len(transaction.Openings) != 2 ||
			!transaction.Openings[0].Issuer || transaction.Openings[1].Issuer ||
			transaction.Nonce != (ledger.Nonce{Stream: 9, Sequence: 5}) {
			t.Errorf("%s: %+v, %v", c.line, transaction, err)
		}
	}
	bad := []string{
		``, `7`, `[]`, `{}`, `{"postings":[]}`, `{"postings":[{"account":"a","amount":0}]}`,
		`{"postings":7}`,
		`{"postings":[{"account":"a","amount":1},{"account":"b","amount":-2}]}`,
		`{"postings":[{"account":"a","amount":1.0},{"account":"b","amount":-1}]}`,
		`{"postings":[{"account":"a","amount":1e3},{"account":"b","amount":-1000}]}`,
		`{"postings":[{"account":"a","amount":null},{"account":"b","amount":0}]}`,
		`{"postings":[{"account":"a"},{"account":"b","amount":0}]}`,
		`{"postings":[{"amount":0},{"account":"b","amount":0}]}`,
		`{"postings":[{"account":"","amount":0},{"account":"b","amount":0}]}`,
		`{"postings":[{"account":"a","amount":0,"memo":"x"},{"account":"b","amount":0}]}`,
		`{"postings":[{"account":"a","amount":0,"asset":"a b"},{"account":"b","amount":0}]}`,
		`{"postings":[{"account":"a","amount":170141183460469231731687303715884105728},{"account":"b","amount":0}]}`,
		`{"postings":[{"account":"a","amount":0},{"account":"b","amount":0}]} x`,
		`{"postings":[{"account":"a","amount":0},{"account":"b","amount":0}]`,
		`{"postings":[{"account":"a","amount":0},{"account":"b","amount":0}],"postings":[]}`,
		`{"postings":[{"account":"a","amount":0},{"account":"b","amount":0}],"x":"` +
			strings.Repeat("x", ledger.MaxNote) + `"}`,
		`{"postings":[{"account":"a\u0001","amount":0},{"account":"b","amount":0}]}`,
	}
	for _, line := range bad {
		if transaction, _, err := builderForTest().transaction([]byte(line), 5); !errors.Is(err,
			ErrLine) {
			t.Errorf("%.100s: %+v, %v", line, transaction, err)
		}
	}
}

// Every line gives a valid transaction or an error, and the same one again.
func FuzzLine(f *testing.F) {
	for _, line := range strings.Split(strings.TrimSpace(chain(3)), "\n") {
		f.Add([]byte(line))
	}
	f.Add(
		[]byte(
			`{"postings":[{"account":"a","amount":"-1"},{"account":"a:b","amount":1,"asset":"EUR"}],"x":{"y":[]}}`))
	f.Add([]byte(`{"postings":null}`))
	f.Add([]byte(`{"postings":[{"account":"a","amount":"-1.50","asset":"EUR"}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		transaction, size, err := builderForTest().transaction(line, 3)
		if err != nil {
			return
		}
		if err := transaction.Validate(); err != nil {
			t.Fatal(err)
		}
		body, err := transaction.EncodeBody()
		if err != nil || len(body) != size {
			t.Fatal(err)
		}
		if len(transaction.Note) > 0 && !json.Valid(transaction.Note) {
			t.Fatalf("note %q", transaction.Note)
		}
		again, _, err := builderForTest().transaction(bytes.Clone(line), 3)
		if err != nil {
			t.Fatal(err)
		}
		if other, _ := again.EncodeBody(); !bytes.Equal(body, other) {
			t.Fatal("the same line gave two transactions")
		}
	})
}

// A damaged progress file counts as none.
func FuzzProgressFile(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add(
		[]byte(
			`{"version":1,"genesis":"0100000000000000000000000000000000000000000000000000000000000000","organisation":"acme","stream":9,"line":3,"last_id":"00ff"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := writeFile(t, string(text))
		saved, err := loadProgress(path, &savedProgress{Version: progressVersion,
			Genesis: ledger.Hash{1}, Organisation: "acme", Stream: 9})
		if err != nil && !errors.Is(err, ErrOrganisations) || saved != nil &&
			(saved.Line == 0 || saved.LastID.IsZero()) {
			t.Fatalf("%+v, %v", saved, err)
		}
	})
}

// The transactions that an import makes of a line never change: otherwise a file that an older
// release imported would be imported twice.
func TestGolden(t *testing.T) {
	t.Parallel()
	lines := strings.Split(chain(2), "\n")
	if stream := streamOf("acme", []byte(lines[0])); stream != 4266083252888694607 {
		t.Errorf("stream %d", stream)
	}
	spread := &lineBuilder{issuers: map[string]bool{"mint": true}, book: ledger.Hash{1},
		tree: ledgertest.ShardedGenesis(1, 0, 0).ShardTree()}
	for i, name := range []ledger.OrganisationName{"acme-0", "acme-1", "acme-2"} {
		spread.organisations = append(spread.organisations,
			organisation{name: name, home: ledger.ShardID(i % 2), lines: uint64(100 * i),
				openings: uint64(100*i + 50)})
	}
	for _, c := range []struct {
		builder  *lineBuilder
		text     string
		number   uint64
		posting  string
		openings []string
	}{
		{builderForTest(), lines[0], 1,
			"29f1c7f280f9ca1a3992a23421934c8d425c2368a7c25c0c4168c9586b80e1ce", nil},
		{builderForTest(), lines[1], 2,
			"3d2a9c5e20c92237d3a4d098a1b3dd4f12e9ff2224b1e013b0e463b33263908f", nil},
		{spread, lines[0], 1, "b868213e86401dacacab095342854123cc0123d00f78c2874f3f23bbf3f4e85b",
			[]string{
				"9e391e39cdcf759f241b60230ee70852a85523da1e89d1b5c420c8c6cba982d9",
				"2ca8aba000822d2d211749ccd276f69d4615173c78b18c63b1f73df7c2033337",
			}},
		{spread, lines[1], 70, "ede0ebeea79adb57120bda37999b4c77d4956fe23fcc2f7870188524cd959671",
			nil},
	} {
		made, err := c.builder.line([]byte(c.text), c.number)
		if err != nil {
			t.Fatal(err)
		}
		id := func(j *job) string {
			body, err := j.transaction.EncodeBody()
			if err != nil {
				t.Fatal(err)
			}
			return ledger.TransactionID(body).String()
		}
		var openings []string
		for _, its := range made.openings {
			openings = append(openings, id(&its.job))
		}
		if got := id(&made.posting); got != c.posting || !slices.Equal(openings, c.openings) {
			t.Errorf("line %d: %q, %q", c.number, got, openings)
		}
	}
}
