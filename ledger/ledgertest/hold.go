package ledgertest

import "github.com/ledgerd/ledgerd/ledger"

// PlaceHold returns the transaction with which the client's organisation holds an amount of asset
// unit for an account. The account's organisation may post it.
func (c *Client) PlaceHold(from, to ledger.AccountPath, amount int64,
	expires ledger.Milliseconds) ledger.Transaction {
	transaction := c.Next()
	transaction.Hold = &ledger.Hold{From: from, Asset: ledger.DefaultAsset,
		Amount: ledger.NewAmount(amount), To: []ledger.AccountPath{to}, Poster: to.Organisation(),
		Expires: expires}
	return transaction
}

// EndHold returns the transaction with which the client's organisation posts an amount of a hold,
// or voids the hold if the amount is 0.
func (c *Client) EndHold(hold ledger.Hash, from, to ledger.AccountPath,
	amount int64) ledger.Transaction {
	transaction := c.Next()
	if amount != 0 {
		transaction = c.Transfer(from, to, amount)
	}
	transaction.HoldEnd = &ledger.HoldEnd{Hold: hold, From: from}
	return transaction
}
