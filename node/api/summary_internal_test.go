package api

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
)

// A summary names all organisations of a transaction, each once, or says how many it leaves out.
// Each that it names may see it.
func TestSummaryNamesOrganisations(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.Custom(func(t *rapid.T) ledger.OrganisationName {
			return ledger.OrganisationName(rapid.StringMatching("[a-e][a-i]").Draw(t, "name"))
		})
		transaction := &ledger.Transaction{Signer: name.Draw(t, "signer")}
		names := []string{string(transaction.Signer)}
		of := func() ledger.OrganisationName {
			names = append(names, string(name.Draw(t, "of")))
			return ledger.OrganisationName(names[len(names)-1])
		}
		for range rapid.IntRange(0, 30).Draw(t, "postings") {
			transaction.Postings = append(transaction.Postings,
				ledger.Posting{Account: ledger.AccountPath(of() + ":a")})
		}
		for range rapid.IntRange(0, 9).Draw(t, "records") {
			transaction.Records = append(transaction.Records,
				ledger.Record{Key: ledger.RecordKey(of() + ":r")})
		}
		for range rapid.IntRange(0, 3).Draw(t, "openings") {
			transaction.Openings = append(transaction.Openings,
				ledger.Opening{Account: ledger.AccountPath(of() + ":o")})
		}
		summary := new(Service).summaryOf(&ledger.Entry{Decoded: transaction}, report.Status{})
		got := []string{summary.GetSigner()}
		for _, posting := range summary.GetPostings() {
			got = append(got, string(ledger.AccountPath(posting.GetAccount()).Organisation()))
		}
		slices.Sort(got)
		got = slices.Compact(got)
		further := summary.GetFurtherOrganisations()
		if slices.ContainsFunc(further, func(name string) bool {
			return slices.Contains(got, name)
		}) || !slices.IsSorted(further) || len(slices.Compact(slices.Clone(further))) !=
			len(further) {
			t.Fatalf("%v beside %v", further, got)
		}
		got = append(got, further...)
		slices.Sort(got)
		slices.Sort(names)
		names = slices.Compact(names)
		left := int(summary.GetFurtherOrganisationCount()) - len(further)
		if len(got)+left != len(names) || left > 0 && len(further) != summaryOrganisations ||
			left == 0 && !slices.Equal(got, names) {
			t.Fatalf("%v and %d more, want %v", got, left, names)
		}
		for _, name := range got {
			if !summaryConcerns(name, summary) {
				t.Fatalf("%s may not see %v", name, summary)
			}
		}
		if summaryConcerns("z", summary) {
			t.Fatalf("z may see %v", summary)
		}
	})
}
