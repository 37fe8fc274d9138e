package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTemplates: a template is checked, shown, tried and posted, with exact amounts.
func TestTemplates(t *testing.T) {
	t.Parallel()
	s := newAssetShell(t)
	s.must("asset register EUR --organisation acme --decimals 2 --cap 5000.00 --issuer acme %n %k")
	content, err := os.ReadFile("../../examples/templates/rent.toml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("house:rents", "bank:cash", "{tenant}:cash", "{tenant}:mint",
		`"850"`, `"850.00"`, `amount = "{rent}"`, "amount = \"{rent}\"\nasset = \"EUR\"",
		`amount = "-{rent}"`, "amount = \"-{rent}\"\nasset = \"EUR\"").Replace(string(content))
	if err := os.WriteFile(filepath.Join(s.folder, "rent.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.must("tx template check %d/rent.toml"); got !=
		"rent.toml is a template with 3 parameters and 2 postings\n" {
		t.Error(got)
	}
	wantKeys(t, s.object("tx template check %d/rent.toml"), "file valid")
	shown := s.object("tx template show %d/rent.toml")
	wantKeys(t, shown, "file title parameters entry")
	wantKeys(t, shown["parameters"].([]any)[2].(map[string]any), "name kind default line")
	if got := s.must("tx template show %d/rent.toml"); !strings.Contains(got,
		"rent       amount        850.00") || !strings.Contains(got, "-{rent} EUR  {tenant}:mint") {
		t.Error(got)
	}

	const post = "tx template post %d/rent.toml %n %k --set tenant=acme --set month=2026-01"
	before := s.must("export --balances %n")
	if got := s.must(post + " --dry-run"); !strings.Contains(got, "-850.00 EUR  acme:mint") ||
		!strings.Contains(got, "signed by  acme\nnothing was sent\n") {
		t.Error(got)
	}
	dry := s.must(post + " --dry-run --json")
	if s.must("export --balances %n") != before {
		t.Error("a dry run has changed the balances")
	}
	posted := s.object(post)
	if posted["state"] != "durable" {
		t.Error(posted)
	}
	s.must("tx post - %n %k", dry) // what a dry run shows is what tx post takes
	s.must(post + " --set rent=0.01 --out %d/rent.tx")
	s.must("tx submit %d/rent.tx %n")
	if got := s.must("account show bank:cash %n"); !strings.Contains(got, "1700.01  EUR") {
		t.Error(got)
	}
	if got := s.must("tx status " + posted["id"].(string) + " %n"); !strings.Contains(got,
		"rent of acme for 2026-01") {
		t.Error(got)
	}

	faulty := strings.Replace(text, `"{tenant}:mint"`, `"{tenants}:mint"`, 1)
	for _, test := range []struct {
		line, input, want string
		status            int
	}{
		{"check -", faulty, `standard input:20: there is no parameter "tenants"`, exitFailure},
		{"show -", faulty, "standard input:20: ", exitFailure},
		{"check %d/none.toml", "", "no such file", exitFailure},
		{"check", "", "accepts 1 arg", exitUsage},
		{"post - --set tenant=acme --set month=2026-01 --dry-run", faulty, "input:20", exitFailure},
		{"post - --set tenant=acme --dry-run", text,
			"parameter month: it has no value: give a value with --set month=VALUE", exitFailure},
		{"post - --set tenant --dry-run", text, "write NAME=VALUE", exitUsage},
		{"post - --set tenant=a --set tenant=b --dry-run", text, "two values", exitUsage},
		{"post - --set tenant=acme --set month=2026-13 --dry-run", text, "parameter month: ",
			exitFailure},
		{"post - --set tenant=acme --set month=2026-01 --set rent=850 --dry-run", text,
			`standard input:21: the posting of acme:mint: amount "-850": EUR has 2 decimals`, exitFailure},
		{"post - --set tenant=acme --set month=2026-01 --set rent=0.001 --dry-run", text,
			"never rounded", exitFailure},
		{"post - --set tenant=acme --set month=2026-01 --dry-run",
			strings.Replace(text, `"{rent}"`, `"1.00"`, 1), "unbalanced", exitFailure},
		{"post - --set tenant=other --set month=2026-01", text, "ledgerd keys create other",
			exitFailure},
	} {
		line := "tx template " + test.line
		if strings.HasPrefix(test.line, "post") {
			line += " %n %k"
		}
		if result := s.run(line, test.input); result.status != test.status ||
			!strings.Contains(result.errs, test.want) {
			t.Errorf("%s: %d, no %q in %s", line, result.status, test.want, result.errs)
		}
	}
}
