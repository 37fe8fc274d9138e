package ledgertest

import "github.com/ledgerd/ledgerd/ledger"

// ChangeAsset returns the transaction with which the client's organisation registers an asset,
// which is number 1, or changes its terms.
func (c *Client) ChangeAsset(asset ledger.AssetName, number uint64,
	terms ledger.AssetTerms) ledger.Transaction {
	transaction := c.Next()
	transaction.Asset = &ledger.AssetChange{Asset: asset, Number: number, AssetTerms: terms}
	return transaction
}

// Capped returns the terms of an asset with two decimals whose supply is capped, with the same
// allowance for each issuer. The issuers are in ascending order.
func Capped(allowance int64, issuers ...ledger.OrganisationName) ledger.AssetTerms {
	terms := ledger.AssetTerms{Decimals: 2, Supply: ledger.SupplyCapped,
		Cap: ledger.NewAmount(allowance * int64(len(issuers)))}
	for _, name := range issuers {
		terms.Issuers = append(terms.Issuers, ledger.Issuer{Organisation: name,
			Allowance: ledger.NewAmount(allowance)})
	}
	return terms
}
