package template

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const rent = `title = "Rent"
[parameters.tenant]
kind = "organisation"
[parameters.sum]
kind = "amount"
default = "850.00"
[parameters.month]
kind = "text"
pattern = "[0-9]{4}-[0-9]{2}"
[entry]
note = "{month} {{of}} {tenant}"
[[entry.postings]]
account = "{tenant}:cash"
amount = "-{sum}"
asset = "EUR"
[[entry.postings]]
account = "house:rents"
amount = "{sum}"
asset = "EUR"
[[entry.records]]
key = "house:rents/{month}"
value = "paid"
`

func TestFill(t *testing.T) {
	t.Parallel()
	made, err := Parse("rent.toml", []byte(rent))
	if err != nil {
		t.Fatal(err)
	}
	if missing := made.Missing(nil); !reflect.DeepEqual(missing, []string{"tenant", "month"}) {
		t.Errorf("missing %v", missing)
	}
	got, err := made.Fill(map[string]string{"tenant": "acme", "month": "2026-01"})
	if err != nil {
		t.Fatal(err)
	}
	want := &Entry{Note: "2026-01 {of} acme", Postings: []EntryPosting{
		{"acme:cash", "-850.00", "EUR", 14}, {"house:rents", "850.00", "EUR", 18}},
		Records: []EntryRecord{{"house:rents/2026-01", "paid"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// Braces in a value mean nothing, and the value of a long amount is not touched.
	long := strings.Repeat("9", 30) + ".01"
	free := strings.Replace(rent, `pattern = "[0-9]{4}-[0-9]{2}"`, "", 1)
	free = strings.Replace(free, `"house:rents/{month}"`, `"house:rents"`, 1)
	if made, err = Parse("rent.toml", []byte(free)); err != nil {
		t.Fatal(err)
	}
	got, err = made.Fill(map[string]string{"tenant": "acme", "month": "{tenant}", "sum": long})
	if err != nil || got.Note != "{tenant} {of} acme" || got.Postings[0].Amount != "-"+long {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestValues: what does not fit a parameter is refused, with the parameter and its line.
func TestValues(t *testing.T) {
	t.Parallel()
	made, err := Parse("rent.toml", []byte(rent))
	if err != nil {
		t.Fatal(err)
	}
	good := map[string]string{"tenant": "acme", "month": "2026-01", "sum": "1"}
	for _, test := range []struct{ name, value, want string }{
		{"tenant", "acme:evil", "rent.toml:2: parameter tenant: "},
		{"tenant", "", "rent.toml:2: parameter tenant: "},
		{"month", "2026-01x", `rent.toml:7: parameter month: "2026-01x" does not match`},
		{"month", "2026-01\n", "is not one line of text"},
		{"month", strings.Repeat("1", MaxValue+1), "at most 1024 bytes"},
		{"sum", "0", "rent.toml:4: parameter sum: "},
		{"sum", "0.00", "above zero"},
		{"sum", "-1", "is no amount"},
		{"sum", "+1", "is no amount"},
		{"sum", "01", "is no amount"},
		{"sum", "1.", "is no amount"},
		{"sum", "1e3", "is no amount"},
		{"sum", "1," + "5", "is no amount"},
		{"sum", strings.Repeat("9", 40), "is no amount"},
		{"summ", "1", `there is no parameter "summ": the parameters are tenant, sum, month`},
	} {
		values := map[string]string{test.name: test.value}
		for name, value := range good {
			if name != test.name {
				values[name] = value
			}
		}
		_, err := made.Fill(values)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s=%.60q: %v, want %q", test.name, test.value, err, test.want)
		}
	}
	delete(good, "month")
	if _, err := made.Fill(good); err == nil ||
		err.Error() != "rent.toml:7: parameter month: it has no value" {
		t.Error(err)
	}
}

// TestFaults: each fault of a file is reported with its line.
func TestFaults(t *testing.T) {
	t.Parallel()
	replaced := func(old, now string) string {
		if !strings.Contains(rent, old) {
			t.Fatalf("no %q", old)
		}
		return strings.Replace(rent, old, now, 1)
	}
	for _, test := range []struct{ text, want string }{
		{"", "neither postings nor records"},
		{"[entry]\nnote = \"x\"\n", "x.toml:1: the entry has neither"},
		{"x = ", "x.toml:1: toml: "},
		{replaced("title", "titel"), "x.toml:1: there is no key titel"},
		{replaced("default", "defalt"), "x.toml:6: there is no key parameters.sum.defalt"},
		{replaced(`"amount"`, `"money"`), `x.toml:5: parameter sum: kind "money": the kinds are`},
		{replaced(`kind = "amount"`, ``), `x.toml:4: parameter sum: kind ""`},
		{replaced(`"850.00"`, `850.00`), "x.toml:6: toml: "},
		{replaced(`"850.00"`, `"-850"`), "x.toml:6: parameter sum: the default: "},
		{replaced(`[0-9]{4}`, `[0-9{4}`), "x.toml:9: parameter month: error parsing regexp"},
		{replaced(`[0-9]{4}`, strings.Repeat("x", 300)), "x.toml:9: parameter month: a pattern"},
		{replaced("parameters.tenant", "parameters.Tenant"), "x.toml:2: parameter Tenant: a name"},
		{replaced("{month} {{of}}", "{moth}"), `x.toml:11: there is no parameter "moth"`},
		{replaced("{{of}}", "{of"), `x.toml:11: there is no parameter "of {tenant"`},
		{replaced("{{of}}", "of}"), "x.toml:11: note has a single brace"},
		{replaced(`"{sum}"`, `"{sum} + {sum}"`), "x.toml:18: amount"},
		{replaced(`"-{sum}"`, `"--{sum}"`), "x.toml:14: amount"},
		{replaced(`"-{sum}"`, `"-{month}"`), "x.toml:14: parameter month: an amount needs"},
		{replaced(`"-{sum}"`, `"1.5.5"`), `x.toml:14: "1.5.5" is no amount`},
		{replaced(`amount = "-{sum}"`, ``), "x.toml:12: amount is missing"},
		{replaced(`amount = "-{sum}"`, `amount = -5`), "x.toml:14: toml: "},
		{replaced("{tenant}:cash", "acme:cash") + "# " + "\n", ""},
		{strings.ReplaceAll(rent, "{tenant}", "acme"), "x.toml:2: parameter tenant: the entry " +
			"does not use it"},
		{strings.Repeat("#", MaxBytes+1), "at most 32768 bytes"},
		{rent + "[parameters.tenant]\n", "x.toml:23: toml: "},
		{replaced(`"{tenant}:cash"`, `"{tenant}cash:"`), ""}, // it depends on the value
	} {
		_, err := Parse("x.toml", []byte(test.text))
		if (err == nil) != (test.want == "") || err != nil &&
			(!strings.Contains(err.Error(), test.want) || !errors.As(err, new(*Error))) {
			t.Errorf("%v, want %q, for\n%.400s", err, test.want, test.text)
		}
	}
	bad, err := Parse("x.toml", []byte(replaced(`"{tenant}:cash"`, `"{tenant}cash:"`)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bad.Fill(map[string]string{"tenant": "acme", "month": "2026-01"}); err == nil ||
		!strings.Contains(err.Error(), "x.toml:13: ") {
		t.Error(err)
	}
	many := "[entry]\nnote = \"x\"\n"
	for i := range MaxParameters + 1 {
		many += fmt.Sprintf("[parameters.p%d]\nkind = \"text\"\n", i)
	}
	if _, err := Parse("x.toml", []byte(many)); err == nil ||
		!strings.Contains(err.Error(), "at most 64") {
		t.Error(err)
	}
}

// TestInlineTables: lines are right in other forms of TOML, too.
func TestInlineTables(t *testing.T) {
	t.Parallel()
	text := "parameters = {sum = {kind = \"amount\"}}\nentry.note = \"x\"\nentry.postings = [\n" +
		" {account = \"a:b\", amount = \"-{sum}\"},\n" +
		" {account = \"a:c\",\n  amount = \"{som}\"},\n]\n"
	if _, err := Parse("x.toml", []byte(text)); err == nil ||
		!strings.Contains(err.Error(), `x.toml:6: there is no parameter "som"`) {
		t.Error(err)
	}
	made, err := Parse("x.toml", []byte(strings.Replace(text, "som", "sum", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := made.Fill(nil); err == nil ||
		!strings.Contains(err.Error(), "x.toml:1: parameter sum: it has no value") {
		t.Error(err)
	}
	entry, err := made.Fill(map[string]string{"sum": "5"})
	if err != nil || entry.Postings[1].Asset != "unit" || entry.Postings[1].Line != 6 {
		t.Errorf("%+v, %v", entry, err)
	}
}

// TestFilledIsBounded: a file and values cannot make a text of any size.
func TestFilledIsBounded(t *testing.T) {
	t.Parallel()
	made, err := Parse("x.toml", []byte("[parameters.x]\nkind = \"text\"\n[entry]\nnote = \""+
		strings.Repeat("{x}", 10_000)+"\"\nrecords = [{key = \"a:b\", value = \"c\"}]"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := made.Fill(map[string]string{"x": strings.Repeat("y", MaxValue)}); err == nil ||
		!strings.Contains(err.Error(), "x.toml:4: it has more than 65536 bytes") {
		t.Error(err)
	}
}

// examples returns the templates of the repository.
func examples(t testing.TB) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../examples/templates/*.toml")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	contents := map[string]string{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		contents[path] = string(content)
	}
	return contents
}

func TestExamples(t *testing.T) {
	t.Parallel()
	values := map[Kind]string{Any: "2026-01", Organisation: "acme", Account: "acme:cash",
		Asset: "EUR", Amount: "12.50", Integer: "7", Date: "2026-01-31"}
	for path := range examples(t) {
		made, err := Read(path)
		if err != nil {
			t.Error(err)
			continue
		}
		given := map[string]string{}
		for _, parameter := range made.Parameters {
			given[parameter.Name] = values[parameter.Kind]
		}
		if _, err := made.Fill(given); err != nil {
			t.Error(err)
		}
	}
	if _, err := Read("none.toml"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// FuzzTemplate: any file gives an error or a template whose entry is valid, and amounts are the
// values and nothing else.
func FuzzTemplate(f *testing.F) {
	f.Add(rent, "acme", "12.50")
	for _, text := range examples(f) {
		f.Add(text, "2026-01", "7")
	}
	f.Add("\"entry\".\"n\\u006fte\" = \"\"\"\n{{\"\"\"\n", "", "")
	f.Add("[[entry.postings]]\namount='-1'\naccount='a:b'\n[[entry.postings]]", "x", "1")
	f.Add("ENTRY.Records=[{key='a:b'},{}]", "x", "1")
	f.Fuzz(func(t *testing.T, text, other, amount string) {
		made, err := Parse("x.toml", []byte(text))
		if err != nil {
			if !errors.As(err, new(*Error)) {
				t.Fatalf("%v is no Error", err)
			}
			return
		}
		values := map[string]string{}
		lines := 1 + strings.Count(text, "\n")
		for _, parameter := range made.Parameters {
			if parameter.Line < 1 || parameter.Line > lines {
				t.Fatalf("parameter %s is in line %d of %d", parameter.Name, parameter.Line, lines)
			}
			values[parameter.Name] = other
			if parameter.Kind == Amount {
				values[parameter.Name] = amount
			}
		}
		entry, err := made.Fill(values)
		if err != nil {
			if !errors.As(err, new(*Error)) {
				t.Fatalf("%v is no Error", err)
			}
			return
		}
		for i, posting := range entry.Postings {
			err := errors.Join(posting.Account.Validate(), posting.Asset.Validate())
			if err != nil {
				t.Fatal(err)
			}
			sum := strings.TrimPrefix(posting.Amount, "-")
			if checkAmount(sum) != nil ||
				sum != amount && !strings.Contains(made.Postings[i].Amount.Source, sum) {
				t.Fatalf("amount %q", posting.Amount)
			}
		}
	})
}
