package ledgertest

import "github.com/ledgerd/ledgerd/ledger"

// ChangeAccount returns the transaction with which the client's organisation sets the terms of an
// account. Number is one above that of the last change.
func (c *Client) ChangeAccount(account ledger.AccountPath, number uint64, alias string,
	terms ledger.AccountTerms) ledger.Transaction {
	transaction := c.Next()
	transaction.Account = &ledger.AccountChange{Account: account, Number: number, Alias: alias,
		AccountTerms: terms}
	return transaction
}

// Guard returns the transaction with which the client's organisation, an account's guardian, makes
// or lifts its freeze. Number is one above the count of guardians' changes.
func (c *Client) Guard(account ledger.AccountPath, number uint64,
	freeze ledger.Freeze) ledger.Transaction {
	return c.ChangeAccount(account, number, "", ledger.AccountTerms{Freeze: freeze,
		Guardian: c.Organisation})
}

// Limited returns terms with one limit of the asset that postings of clients have. A negative
// number is no such limit.
func Limited(floor, ceiling, velocity int64, seconds uint32) ledger.AccountTerms {
	limit := ledger.AccountLimit{Asset: ledger.DefaultAsset}
	amount := func(value int64) *ledger.Amount {
		if value < 0 {
			return nil
		}
		of := ledger.NewAmount(value)
		return &of
	}
	limit.Floor, limit.Ceiling = amount(floor), amount(ceiling)
	if velocity >= 0 {
		limit.Velocity = &ledger.Velocity{Amount: ledger.NewAmount(velocity), Seconds: seconds}
	}
	return ledger.AccountTerms{Limits: []ledger.AccountLimit{limit}}
}
