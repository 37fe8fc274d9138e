// Package demo makes believable traffic for a ledger on display: two banks, two airlines and an
// exchange that keep one book.
//
//	actors, err := demo.NewActors(rand.Reader, 1)
//	err = actors.Begin(ctx, nodes[0])              // registers all, opens accounts, issues money
//	actors.Run(ctx, nodes, demo.Options{Rate: 20}) // until ctx ends
//	tally := actors.Tally()
//
// Passengers buy seats for money at their bank, in one transaction that the bank and the airline
// sign. Customers pay each other, within a bank and between banks. Banks settle euro against
// dollar. Funds trade at the exchange, which takes a fee. Airlines and the exchange keep records of
// flights and prices. A few transactions are refused, as in life: a customer lacks the money, or
// mistypes an account.
//
// In a book of several shards the organisations are spread over them, so that many of their
// transactions cross shards.
//
// What always holds: the number of transactions under way is bounded, and none is left when Run
// returns. The ledger decides about each transaction; this package does not predict its decision.
package demo
