package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

// decimals knows with how many decimals amounts of assets are written, as a node says. It asks once
// for each asset.
type decimals struct {
	nodes *client.Client
	// genesis, if it is given, has the chain prove the decimals, and no node is believed. A node
	// may deny that an asset is registered. Then amounts with a point are refused, and the others
	// are what they are written as.
	genesis *ledger.Genesis
	known   map[ledger.AssetName]int
}

func newDecimals(nodes *client.Client) *decimals {
	return &decimals{nodes: nodes, known: make(map[ledger.AssetName]int)}
}

// of returns the decimals of an asset. An asset that is not registered has none, and so have all in
// a ledger whose nodes do not know assets yet.
func (d *decimals) of(ctx context.Context, name ledger.AssetName) (int, error) {
	if count, known := d.known[name]; known || name == ledger.DefaultAsset {
		return count, nil
	}
	count, err := d.ask(ctx, name)
	if code := client.CodeOf(err); code == connect.CodeNotFound ||
		code == connect.CodeUnimplemented {
		err = nil
	}
	if err != nil {
		return 0, err
	}
	d.known[name] = count
	return count, nil
}

// ask asks the nodes for the decimals of an asset.
func (d *decimals) ask(ctx context.Context, name ledger.AssetName) (int, error) {
	if d.genesis != nil {
		asset, _, err := d.nodes.CertifiedAsset(ctx, name, d.genesis.Shard, d.genesis)
		if err != nil {
			return 0, err
		}
		return int(asset.Decimals), nil
	}
	asset, err := d.nodes.Asset(ctx, name)
	return int(asset.GetTerms().GetDecimals()), err
}

// count returns the decimals of an asset if a node was asked for them.
func (d *decimals) count(name ledger.AssetName) (int, bool) {
	if d == nil {
		return 0, false
	}
	count, known := d.known[name]
	return count, known
}

// parseFull parses an amount of an asset with this many decimals, which has to be written with all
// of them. Any organisation may register a name that is in use, and give it decimals. If 100 were
// read as 100.00 from then on, that would multiply what scripts pay. So it is refused.
func parseFull(text string, count int, name string) (ledger.Amount, error) {
	amount, err := ledger.ParseDecimal(text, count)
	if err != nil || count == 0 {
		return amount, err
	}
	_, fraction, point := strings.Cut(text, ".")
	switch {
	case !point:
		return amount, fmt.Errorf("%s has %s: write %s for %s, or %s for %s of the smallest unit",
			name, plural(count, "decimal"), amount.Decimal(count), text,
			ledger.PlacePoint(text, count), text)
	case len(fraction) < count:
		return amount, fmt.Errorf("%s has %s: write all of them, %s", name,
			plural(count, "decimal"), amount.Decimal(count))
	}
	return amount, nil
}

// fullParser returns parseFull for amounts of an asset with these terms.
func fullParser(name string, terms *ledger.AssetTerms) func(sum string) (ledger.Amount, error) {
	count := int(terms.Decimals)
	return func(sum string) (ledger.Amount, error) { return parseFull(sum, count, name) }
}

// parse parses an amount of an asset, written with all of its decimals.
func (d *decimals) parse(ctx context.Context, text string, name ledger.AssetName) (ledger.Amount,
	error) {
	count, err := d.of(ctx, name)
	if err != nil {
		return ledger.Amount{}, err
	}
	amount, err := parseFull(text, count, string(name))
	switch {
	case errors.Is(err, ledger.ErrDecimals) && count == 0:
		return amount, usagef("%w (ledgerd asset show %s says how many decimals an asset has)",
			err, name)
	case errors.Is(err, ledger.ErrAmount) && count > 0:
		return amount, usagef("amount %q: write digits with a point and %s of %s, such as 1250.%s,"+
			" up to 39 digits in all", text, plural(count, "decimal"), name,
			strings.Repeat("0", count))
	case errors.Is(err, ledger.ErrAmount), errors.Is(err, ledger.ErrDecimals):
		return amount, asUsage(err) // it has the text
	case err != nil:
		return amount, usagef("amount %q: %w", text, err)
	}
	return amount, nil
}

// show writes an amount that a node gave with the decimals of its asset. A text that is no amount
// stays what it is.
func (d *decimals) show(ctx context.Context, text, asset string) string {
	count, err := d.of(ctx, ledger.AssetName(asset))
	if err != nil {
		return text
	}
	return withDecimals(text, count)
}

// withDecimals writes an exact integer with this many decimals. A sum may have more digits than an
// amount.
func withDecimals(text string, count int) string {
	if digits := strings.TrimPrefix(text, "-"); digits == "" || count == 0 ||
		strings.Trim(digits, "0123456789") != "" {
		return text
	}
	return ledger.PlacePoint(text, count)
}

// decimalForm returns an amount with decimals for --json, beside the exact integer: "" if the asset
// has none.
func decimalForm(text string, count int) string {
	if shown := withDecimals(text, count); strings.Contains(shown, ".") {
		return shown
	}
	return ""
}
