package journal

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// The grammar of Beancount 2.3.5.
var (
	beancountAccount  = regexp.MustCompile(`^[A-Z0-9][A-Za-z0-9-]*(:[A-Z0-9][A-Za-z0-9-]*)+$`)
	beancountCurrency = regexp.MustCompile(`^[A-Z][A-Z0-9'._-]{0,22}[A-Z0-9]$`)
)

// Names fit the grammar of Beancount, and different accounts and assets have different names.
func TestBeancountNames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Few letters make names that are nearly alike.
		account := rapid.StringMatching(`[aAxX5U][aAU5F._-]{0,3}:[aAxX5U._~@=$!*/-]{1,4}`)
		asset := rapid.OneOf(rapid.StringMatching(`[aA5xX][aA5._-]{0,3}`),
			rapid.StringMatching(`[a-zA-Z0-9][a-zA-Z0-9._-]{0,31}`))
		a := ledger.AccountPath(account.Draw(t, "account"))
		b := ledger.AccountPath(account.Draw(t, "other account"))
		nameA, nameB := beancountWords{}.account(a), beancountWords{}.account(b)
		if !beancountAccount.MatchString(nameA) || (nameA == nameB) != (a == b) {
			t.Errorf("%s is %s, and %s is %s", a, nameA, b, nameB)
		}
		x := ledger.AssetName(asset.Draw(t, "asset"))
		y := ledger.AssetName(asset.Draw(t, "other asset"))
		nameX, nameY := beancountWords{}.asset(x), beancountWords{}.asset(y)
		if !beancountCurrency.MatchString(nameX) || (nameX == nameY) != (x == y) {
			t.Errorf("%s is %s, and %s is %s", x, nameX, y, nameY)
		}
	})
	for path, want := range map[ledger.AccountPath]string{"x-a:5": "X--a:5", "x-5Fa:b": "X--5Fa:B",
		"X:_a": "X-UX:X-U-5Fa", "alice:cash": "Alice:Cash", "ACME:a_b": "X-UACME:A-5Fb"} {
		if got := (beancountWords{}).account(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	for name, want := range map[ledger.AssetName]string{"EUR": "EUR", "unit": "UNIT'L"} {
		if got := (beancountWords{}).asset(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// Any data is one line of text that is shown, and different data are different.
func TestVisible(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SampledFrom([]byte("\\nx0a\n\r\t\x00\xff\xe2\x80\xa8u{}"))
		data := rapid.SliceOfN(letters, 0, 9)
		a, b := data.Draw(t, "data"), data.Draw(t, "other data")
		text := Visible(a)
		if strings.ContainsAny(text, "\n\r\t\x00\u2028") || !utf8.ValidString(text) ||
			(text == Visible(b)) != (string(a) == string(b)) {
			t.Errorf("%q is %s, and %q is %s", a, text, b, Visible(b))
		}
	})
	if got := Visible([]byte("a\\\n\x00\xffé")); got != `a\\\n\u{0}\xffé` {
		t.Error(got)
	}
}

// An entry has the day that it counts for beside that of its block, in UTC, if it says one.
func TestEffectiveDays(t *testing.T) {
	t.Parallel()
	entry := &ledger.Transaction{Signer: "acme", Details: &ledger.Details{Key: "k"}}
	for _, words := range []words{hledgerWords{}, beancountWords{}} {
		plain := words.entry("2026-02-03", ledger.Hash{}, "1/0",
			&ledger.Transaction{Signer: "acme"})
		if got := words.entry("2026-02-03", ledger.Hash{}, "1/0", entry); got != plain {
			t.Errorf("%T: %q, want %q", words, got, plain)
		}
	}
	entry.Details.Effective = 1_769_903_999_999 // 2026-01-31T23:59:59.999Z
	got := hledgerWords{}.entry("2026-02-03", ledger.Hash{}, "1/0", entry)
	if !strings.HasPrefix(got, "2026-02-03=2026-01-31 * ") {
		t.Errorf("hledger: %q", got)
	}
	got = beancountWords{}.entry("2026-02-03", ledger.Hash{}, "1/0", entry)
	if !strings.HasSuffix(got, "\n  effective: 2026-01-31\n") {
		t.Errorf("beancount: %q", got)
	}
}
