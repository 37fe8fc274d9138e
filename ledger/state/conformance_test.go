package state_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// conformance is where the cases are, and conformancePage the page that explains each of them.
const (
	conformance     = "testdata/conformance"
	conformancePage = "../../docs/conformance.md"
)

// TestConformance runs the semantics that TigerBeetle documents for accounts and transfers, as they
// are expressed in this ledger: once with both organisations in one shard, and once in two shards,
// with the same outcomes. After an intended change, rewrite them with -rewrite and read the
// difference.
//
//	case name=x             a new book: acme and shop, each with an issuer account and two others
//	post by=(acme) [name=x] transactions in one bundle, a line each: account amount, ...
//	again name=x            the bundle once more
//	hold name=x by=acme from=acme:a to=(shop:a) amount=10 [poster=shop] seconds=60
//	end hold=x by=shop      posts what the line says of the hold, or voids it without one
//	terms account=acme:a [floor=5] [ceiling=9] [velocity=3 seconds=60] [no-debits] [no-credits]
//	      [freeze=owner] [closed]   replaces the terms of the account
//	clock seconds=5         the clock goes on, at most ten seconds
//	show                    the balances that are not zero
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, home := range []struct {
		name       string
		acme, shop ledger.ShardID
	}{{"one shard", 0, 0}, {"two shards", 1, 2}} {
		t.Run(home.name, func(t *testing.T) {
			datadriven.Walk(t, conformance, func(t *testing.T, path string) {
				var c *conforming
				datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
					if d.Cmd == "case" {
						c = newConforming(t, home.acme, home.shop)
						return ""
					}
					if c == nil {
						d.Fatalf(t, "%s before the first case", d.Cmd)
					}
					return c.command(t, d)
				})
			})
		})
	}
}

// TestConformanceIsExplained: the page and the files have the same cases.
func TestConformanceIsExplained(t *testing.T) {
	t.Parallel()
	names := func(pattern string, files ...string) map[string]int {
		found := make(map[string]int)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all := regexp.MustCompile(pattern).FindAllSubmatch(text, -1)
			for _, match := range all {
				found[string(match[1])]++
			}
		}
		return found
	}
	files, err := filepath.Glob(conformance + "/*")
	if err != nil {
		t.Fatal(err)
	}
	run := names(`(?m)^case name=(\S+)$`, files...)
	explained := names("(?m)^\\| `([a-z-]+)` \\|", conformancePage)
	for name, count := range run {
		if count != 1 || explained[name] != 1 {
			t.Errorf("case %s runs %d times and has %d rows", name, count, explained[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(explained)) {
		if run[name] == 0 {
			t.Errorf("case %s has a row and does not run", name)
		}
	}
	if len(run) < 20 {
		t.Errorf("%d cases", len(run))
	}
}

// conforming is the book of one case. After each command every shard's chain is checked, and its
// state is restored from its entries.
type conforming struct {
	*airlines
	homes   map[ledger.OrganisationName]ledger.ShardID
	clients map[ledger.OrganisationName]*ledgertest.Client
	bundles map[string]*ledger.Bundle
	holds   map[string]ledger.Transaction
	ids     map[string]ledger.Hash
	// changes counts those of the terms of each account.
	changes map[ledger.AccountPath]uint64
}

func newConforming(t *testing.T, acme, shop ledger.ShardID) *conforming {
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.NewestVersion
	c := &conforming{airlines: newAirlinesOf(t, genesis),
		homes:   map[ledger.OrganisationName]ledger.ShardID{"acme": acme, "shop": shop},
		clients: make(map[ledger.OrganisationName]*ledgertest.Client),
		bundles: make(map[string]*ledger.Bundle), holds: make(map[string]ledger.Transaction),
		ids: make(map[string]ledger.Hash), changes: make(map[ledger.AccountPath]uint64)}
	for _, name := range slices.Sorted(maps.Keys(c.homes)) {
		client := ledgertest.NewClient(genesis, name)
		c.clients[name] = client
		c.register(client, c.homes[name])
		opening := client.Next()
		opening.Openings = []ledger.Opening{{Account: client.Account("b")}}
		c.outcomes(client.Bundle(opening))
	}
	return c
}

// outcomes lets the book decide on a bundle, and returns what it decided, a line for each
// transaction. What one shard refuses takes effect nowhere.
func (c *conforming) outcomes(bundle *ledger.Bundle) string {
	entry := c.shards[0].state.BundleEntry(bundle)
	if _, known := c.shards[entry].places[bundle.ID(0)]; known {
		return "decided before"
	}
	c.submit(entry, bundle)
	c.flush()
	c.check()
	var lines []string
	for i := range bundle.Len() {
		outcome, applied := "", true
		for shard, chain := range c.shards {
			place, here := chain.places[bundle.ID(i)]
			if !here {
				continue
			}
			switch result := chain.entries[place].Result; result.Code {
			case ledger.Relayed, ledger.Applied:
			case ledger.SetAside:
				applied = applied && chain.outcomes[bundle.ID(i)]
			default:
				applied = false
				if outcome != "" && outcome != result.String() {
					c.t.Errorf("shard %d says %s, and another one %s", shard, result, outcome)
				}
				outcome = result.String()
			}
		}
		if applied != (outcome == "") {
			c.t.Errorf("took effect is %v, and refused: %q", applied, outcome)
		}
		lines = append(lines, cmp.Or(outcome, "applied"))
	}
	for _, chain := range c.shards {
		restoredFrom(c.t, chain.genesis, chain.state)
	}
	return strings.Join(lines, "\n")
}

func (c *conforming) command(t *testing.T, d *datadriven.TestData) string {
	has := func(key string) bool { return d.HasArg(key) }
	text := func(key string) (value string) {
		d.ScanArgs(t, key, &value)
		return value
	}
	seconds := func() ledger.Milliseconds {
		var value int64
		d.ScanArgs(t, "seconds", &value)
		return ledger.Milliseconds(1000 * value)
	}
	amount := func(text string) ledger.Amount {
		value, err := ledger.ParseAmount(text)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return value
	}
	// signed puts the transactions into a bundle that all of by sign.
	signed := func(transactions ...ledger.Transaction) *ledger.Bundle {
		for i := range transactions {
			if transactions[i].Account == nil { // it does not expire
				transactions[i].Deadline = c.time + 1000
			}
		}
		bundle, err := ledger.NewBundle(transactions...)
		for _, name := range argument(d, "by") {
			if err == nil {
				err = bundle.Sign(ledger.OrganisationName(name), ledgertest.Key(name))
			}
		}
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return bundle
	}
	client := func() *ledgertest.Client {
		return c.clients[ledger.OrganisationName(argument(d, "by")[0])]
	}
	postings := func(line string) (all []ledger.Posting) {
		for leg := range strings.SplitSeq(line, ",") {
			fields := strings.Fields(leg)
			if len(fields) < 2 || len(fields) > 3 {
				d.Fatalf(t, "%q is no account, amount and asset", leg)
			}
			asset := ledger.DefaultAsset
			if len(fields) == 3 {
				asset = ledger.AssetName(fields[2])
			}
			all = append(all, ledger.Posting{Account: ledger.AccountPath(fields[0]), Asset: asset,
				Amount: amount(fields[1])})
		}
		return all
	}
	switch d.Cmd {
	case "post":
		var transactions []ledger.Transaction
		for line := range strings.Lines(d.Input) {
			transaction := client().Next()
			transaction.Postings = postings(line)
			transactions = append(transactions, transaction)
		}
		for i := range transactions {
			if err := transactions[i].Validate(); err != nil {
				return "invalid: " + err.Error()
			}
		}
		bundle := signed(transactions...)
		if has("name") {
			c.bundles[text("name")], c.ids[text("name")] = bundle, bundle.ID(0)
		}
		return c.outcomes(bundle)
	case "again":
		return c.outcomes(c.bundles[text("name")])
	case "hold":
		transaction := client().Next()
		hold := &ledger.Hold{From: ledger.AccountPath(text("from")), Asset: ledger.DefaultAsset,
			Amount: amount(text("amount")), Poster: "shop", Expires: c.time + seconds()}
		for _, path := range argument(d, "to") {
			hold.To = append(hold.To, ledger.AccountPath(path))
		}
		if has("poster") {
			hold.Poster = ledger.OrganisationName(text("poster"))
		}
		transaction.Hold = hold
		bundle := signed(transaction)
		c.holds[text("name")], c.ids[text("name")] = transaction, bundle.ID(0)
		return c.outcomes(bundle)
	case "end":
		name := text("hold")
		transaction := client().Next()
		transaction.HoldEnd = &ledger.HoldEnd{Hold: c.ids[name], From: "acme:a"}
		if placed, known := c.holds[name]; known {
			transaction.HoldEnd.From = placed.Hold.From
		}
		if d.Input != "" {
			transaction.Postings = postings(d.Input)
		}
		if err := transaction.Validate(); err != nil {
			return "invalid: " + err.Error()
		}
		return c.outcomes(signed(transaction))
	case "terms":
		path := ledger.AccountPath(text("account"))
		transaction := c.clients[path.Organisation()].ChangeAccount(path, c.changes[path]+1, "",
			c.terms(t, d))
		if err := transaction.Validate(); err != nil {
			return "invalid: " + err.Error()
		}
		outcome := c.outcomes(c.clients[path.Organisation()].Bundle(transaction))
		if outcome == "applied" {
			c.changes[path]++
		}
		return outcome
	case "clock":
		c.time += seconds()
		return ""
	case "show":
		return c.show()
	default:
		d.Fatalf(t, "there is no command %s", d.Cmd)
		return ""
	}
}

// terms returns the terms that a command has.
func (c *conforming) terms(t *testing.T, d *datadriven.TestData) ledger.AccountTerms {
	number := func(key string) int64 {
		value := int64(-1)
		if d.HasArg(key) {
			d.ScanArgs(t, key, &value)
		}
		return value
	}
	terms := ledger.AccountTerms{NoDebits: d.HasArg("no-debits"),
		NoCredits: d.HasArg("no-credits"), Closed: d.HasArg("closed")}
	if d.HasArg("floor") || d.HasArg("ceiling") || d.HasArg("velocity") {
		terms.Limits = ledgertest.Limited(number("floor"), number("ceiling"), number("velocity"),
			uint32(max(0, number("seconds")))).Limits
	}
	if d.HasArg("freeze") {
		terms.Freeze = ledger.FreezeOwner
	}
	return terms
}

// argument returns the values of an argument of a command.
func argument(d *datadriven.TestData, key string) []string {
	for _, each := range d.CmdArgs {
		if each.Key == key {
			return each.Vals
		}
	}
	return nil
}

// show returns the balances that are not zero, a line each.
func (c *conforming) show() string {
	var lines []string
	for _, name := range []ledger.OrganisationName{"acme", "shop"} {
		for _, account := range []string{"a", "b", "issuer"} {
			found, open := c.shards[c.homes[name]].state.Account(c.clients[name].Account(account))
			if !open {
				continue
			}
			for _, b := range found.Balances {
				if b.Amount.Sign() == 0 && b.SetAside.Sign() == 0 {
					continue
				}
				line := fmt.Sprintf("%s %s %s", found.Path, b.Amount, b.Asset)
				if b.SetAside.Sign() != 0 {
					line += fmt.Sprintf(", %s set aside", b.SetAside)
				}
				lines = append(lines, line)
			}
		}
	}
	return strings.Join(lines, "\n")
}
