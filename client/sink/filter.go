package sink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// Filter says which entries are streamed. An entry must match each list that is not empty, in at
// least one of its items. An account and an asset are looked for in the same posting. An entry that
// is a verdict matches if the transaction that it is about does.
type Filter struct {
	// Accounts are paths, or beginnings of paths that end with ":*", such as "acme:till:*".
	Accounts      []string
	Assets        []ledger.AssetName
	Organisations []ledger.OrganisationName
}

// Validate returns an error if a filter names what cannot exist.
func (f *Filter) Validate() error {
	for _, account := range f.Accounts {
		path, wild := strings.CutSuffix(account, ":*")
		if wild {
			path += ":any"
		}
		if _, err := ledger.ParseAccountPath(path); err != nil {
			return fmt.Errorf("filter: account %q: %w: write acme:cash, or acme:till:* for all "+
				"below", account, err)
		}
	}
	for _, asset := range f.Assets {
		if err := asset.Validate(); err != nil {
			return fmt.Errorf("filter: asset %q: %w", asset, err)
		}
	}
	for _, name := range f.Organisations {
		if err := name.Validate(); err != nil {
			return fmt.Errorf("filter: organisation %q: %w", name, err)
		}
	}
	return nil
}

// all reports whether the filter lets everything through.
func (f *Filter) all() bool {
	return len(f.Accounts)+len(f.Assets)+len(f.Organisations) == 0
}

// matches reports whether a transaction, other than a verdict, matches.
func (f *Filter) matches(t *ledger.Transaction) bool {
	if f.all() {
		return true
	}
	for i := range t.Postings {
		if p := &t.Postings[i]; f.asset(p.Asset) && f.account(p.Account) &&
			f.organisation(p.Account.Organisation()) {
			return true
		}
	}
	if t.Asset != nil && len(f.Accounts) == 0 && f.asset(t.Asset.Asset) &&
		f.organisation(t.Signer) {
		return true
	}
	if len(f.Assets) > 0 {
		return false // nothing else has an asset
	}
	for i := range t.Openings {
		if path := t.Openings[i].Account; f.account(path) &&
			f.organisation(path.Organisation()) {
			return true
		}
	}
	if len(f.Accounts) > 0 {
		return false // nothing else has an account
	}
	if t.Signer != "" && f.organisation(t.Signer) {
		return true
	}
	for i := range t.Registrations {
		if f.organisation(t.Registrations[i].Name) {
			return true
		}
	}
	for i := range t.Records {
		if f.organisation(t.Records[i].Key.Organisation()) {
			return true
		}
	}
	return t.Book != nil && t.Book.Move != nil && f.organisation(t.Book.Move.Organisation)
}

func (f *Filter) asset(name ledger.AssetName) bool {
	return len(f.Assets) == 0 || slices.Contains(f.Assets, name)
}

func (f *Filter) organisation(name ledger.OrganisationName) bool {
	return len(f.Organisations) == 0 || slices.Contains(f.Organisations, name)
}

func (f *Filter) account(path ledger.AccountPath) bool {
	return len(f.Accounts) == 0 || slices.ContainsFunc(f.Accounts, func(wanted string) bool {
		if below, wild := strings.CutSuffix(wanted, "*"); wild {
			return strings.HasPrefix(string(path), below)
		}
		return string(path) == wanted
	})
}
