// Package demo makes believable traffic for a ledger that is to be looked at: two banks, two
// airlines and an exchange that keep one book.
//
//	actors := demo.NewActors(rand.Reader, 1)
//	err := actors.Begin(ctx, nodes)                  // registers everybody, opens accounts, issues money
//	err = actors.Run(ctx, nodes, demo.Options{Rate: 20}) // until ctx ends
//	tally := actors.Tally()
//
// Passengers buy seats, against money of their bank, in one transaction that bank and airline sign;
// customers pay each other, within a bank and between banks; banks settle euro against dollar;
// funds trade at the exchange, which takes a fee; airlines and the exchange keep records of flights
// and prices. A few transactions are refused, as in life: somebody has not got the money, or
// mistypes an account.
//
// In a book of several shards the organisations are spread over them, so that much of what they do
// with each other crosses shards.
//
// What always holds: what is under way is bounded, and when Run returns nothing is. The ledger
// decides; nothing here looks at what it is going to say.
package demo
