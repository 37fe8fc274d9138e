package demo

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/ledger"
)

// The organisations.
const (
	meridian  ledger.OrganisationName = "meridian"  // a bank, euro
	harbour   ledger.OrganisationName = "harbour"   // a bank, dollar
	skylark   ledger.OrganisationName = "skylark"   // an airline
	aurora    ledger.OrganisationName = "aurora"    // an airline
	northgate ledger.OrganisationName = "northgate" // an exchange
)

// The assets. Amounts of money are in cents, of seats and shares in pieces, of gold in grams.
const (
	euro   ledger.AssetName = "EUR"
	dollar ledger.AssetName = "USD"
	seat   ledger.AssetName = "SEAT"
	gold   ledger.AssetName = "GOLD"
	shares ledger.AssetName = "SKYL"
)

// organisations are in the order of their registration.
var organisations = []ledger.OrganisationName{meridian, harbour, skylark, aurora, northgate}

// accounts are the accounts of each organisation. The first one is an issuer.
var accounts = map[ledger.OrganisationName][]string{
	meridian: {"issue", "reserves", "customers:ada", "customers:ben", "customers:chloe",
		"customers:dmitri", "customers:skylark"},
	harbour: {"issue", "reserves", "customers:elif", "customers:femi", "customers:grace",
		"customers:hugo", "customers:aurora"},
	skylark: {"seats", "passengers:ada", "passengers:ben", "passengers:elif"},
	aurora:  {"seats", "passengers:chloe", "passengers:femi", "passengers:hugo"},
	northgate: {"listing", "fees", "members:atlas-fund", "members:borealis-fund",
		"members:cedar-trading"},
}

// customers are the accounts that customers pay from and to.
var customers = []ledger.AccountPath{
	"meridian:customers:ada", "meridian:customers:ben", "meridian:customers:chloe",
	"meridian:customers:dmitri",
	"harbour:customers:elif", "harbour:customers:femi", "harbour:customers:grace",
	"harbour:customers:hugo",
}

var members = []ledger.AccountPath{"northgate:members:atlas-fund",
	"northgate:members:borealis-fund", "northgate:members:cedar-trading"}

// airlines sell seats to passengers. A passenger's bank pays to the airline's account at the
// airline's bank.
var airlines = []struct {
	name       ledger.OrganisationName
	account    ledger.AccountPath
	passengers []string
	flights    []string
}{
	{skylark, "meridian:customers:skylark", []string{"ada", "ben", "elif"},
		[]string{"SK204", "SK318", "SK77"}},
	{aurora, "harbour:customers:aurora", []string{"chloe", "femi", "hugo"},
		[]string{"AU12", "AU640", "AU981"}},
}

// Act is a transaction to submit, with its signers. The first signer provides the nonce.
type Act struct {
	Transaction ledger.Transaction
	Signers     []ledger.OrganisationName
}

// opening returns the accounts that an organisation opens.
func opening(name ledger.OrganisationName) []ledger.Opening {
	var openings []ledger.Opening
	for i, account := range accounts[name] {
		openings = append(openings, ledger.Opening{Account: at(name, account), Issuer: i == 0})
	}
	return openings
}

func at(name ledger.OrganisationName, account string) ledger.AccountPath {
	return ledger.AccountPath(string(name) + ":" + account)
}

// funding returns the transactions that issue assets before the traffic begins.
func funding() []Act {
	acts := []Act{
		act(note("shares listed", nil), move("northgate:listing", members[0], shares, 40_000),
			move("northgate:listing", members[1], shares, 25_000),
			move("northgate:listing", members[2], shares, 12_000)),
		act(note("gold listed", nil), move("northgate:listing", members[0], gold, 4_000),
			move("northgate:listing", members[1], gold, 9_000),
			move("northgate:listing", members[2], gold, 6_500)),
		act(note("euro issued", nil), move("meridian:issue", "meridian:reserves", euro,
			90_000_000_00), move("meridian:issue", members[0], euro, 3_000_000_00),
			move("meridian:issue", members[1], euro, 4_000_000_00),
			move("meridian:issue", members[2], euro, 2_500_000_00)),
		act(note("dollars issued", nil), move("harbour:issue", "harbour:reserves",
			dollar, 75_000_000_00)),
		act(note("settlement balances", nil), move("meridian:reserves", "harbour:reserves",
			euro, 20_000_000_00)),
		act(note("settlement balances", nil), move("harbour:reserves", "meridian:reserves",
			dollar, 20_000_000_00)),
	}
	for _, customer := range customers {
		acts = append(acts, salary(customer, 4_200_00))
	}
	return acts
}

// movement is an amount that goes from one account to another.
type movement struct {
	from, to ledger.AccountPath
	asset    ledger.AssetName
	amount   int64
}

func move(from, to ledger.AccountPath, asset ledger.AssetName, amount int64) movement {
	return movement{from, to, asset, amount}
}

// act makes an Act from movements. Every organisation that gives something signs, in the order of
// the movements.
func act(note []byte, movements ...movement) Act {
	a := Act{Transaction: ledger.Transaction{Note: note}}
	for _, m := range movements {
		a.Transaction.Postings = append(a.Transaction.Postings,
			ledger.Posting{Account: m.from, Asset: m.asset, Amount: ledger.NewAmount(-m.amount)},
			ledger.Posting{Account: m.to, Asset: m.asset, Amount: ledger.NewAmount(m.amount)})
		a.sign(m.from.Organisation())
	}
	return a
}

func (a *Act) sign(name ledger.OrganisationName) {
	for _, signer := range a.Signers {
		if signer == name {
			return
		}
	}
	a.Signers = append(a.Signers, name)
}

// note returns the JSON note of a transaction.
func note(what string, more map[string]any) []byte {
	fields := map[string]any{"what": what}
	for key, value := range more {
		fields[key] = value
	}
	text, err := json.Marshal(fields) // with sorted keys
	if err != nil {
		panic("demo: a note of words and numbers has a JSON form: " + err.Error())
	}
	return text
}

// scene chooses the next transaction. It depends on its random source only.
type scene struct{ random *rand.Rand }

// scenes and their weights in a hundred. The last three are refused.
var scenes = []struct {
	weight int
	play   func(scene) Act
}{
	{30, scene.payment}, {22, scene.ticket}, {18, scene.trade}, {10, scene.salary},
	{6, scene.settlement}, {6, scene.price}, {4, scene.flight},
	{2, scene.overdraft}, {1, scene.mistyped}, {1, scene.oversold},
}

// next chooses a scene by its weight.
func (s scene) next() Act {
	dice := s.random.IntN(100)
	for _, candidate := range scenes {
		if dice -= candidate.weight; dice < 0 {
			return candidate.play(s)
		}
	}
	panic("demo: the scenes' weights are less than a hundred")
}

func pick[T any](s scene, from []T) T { return from[s.random.IntN(len(from))] }

// between draws an amount.
func (s scene) between(least, most int64) int64 { return least + s.random.Int64N(most-least+1) }

// money returns the asset that a bank's customers use.
func money(account ledger.AccountPath) ledger.AssetName {
	if account.Organisation() == harbour {
		return dollar
	}
	return euro
}

func (s scene) payment() Act {
	from, to := pick(s, customers), pick(s, customers)
	for to == from {
		to = pick(s, customers)
	}
	what := pick(s, []string{"rent", "dinner", "groceries", "concert tickets", "a bicycle",
		"thank you", "invoice", "birthday present"})
	return act(note(what, nil), move(from, to, money(from), s.between(3_00, 160_00)))
}

func (s scene) ticket() Act {
	airline := pick(s, airlines)
	passenger := pick(s, airline.passengers)
	var payer ledger.AccountPath
	for _, customer := range customers {
		if customer == at(meridian, "customers:"+passenger) ||
			customer == at(harbour, "customers:"+passenger) {
			payer = customer
		}
	}
	place := fmt.Sprintf("%d%c", s.between(1, 38), 'A'+rune(s.random.IntN(6)))
	return act(note("ticket", map[string]any{"flight": pick(s, airline.flights), "seat": place}),
		move(payer, airline.account, money(payer), s.between(49_00, 480_00)),
		move(at(airline.name, "seats"), at(airline.name, "passengers:"+passenger), seat, 1))
}

func (s scene) trade() Act {
	asset, buyer, seller := pick(s, []ledger.AssetName{shares, gold}), pick(s, members),
		pick(s, members)
	for seller == buyer {
		seller = pick(s, members)
	}
	pieces := s.between(1, 12)
	price := pieces * s.between(58_00, 64_00)
	return act(note("trade", map[string]any{"pieces": pieces, "price": price / pieces}),
		move(seller, buyer, asset, pieces), move(buyer, seller, euro, price),
		move(buyer, "northgate:fees", euro, max(1, price/1000)))
}

func (s scene) salary() Act { return salary(pick(s, customers), s.between(600_00, 1_400_00)) }

// salary pays a customer from the reserves of the bank.
func salary(customer ledger.AccountPath, amount int64) Act {
	return act(note("salary", nil), move(at(customer.Organisation(), "reserves"), customer,
		money(customer), amount))
}

func (s scene) settlement() Act {
	cents := s.between(10_000_00, 90_000_00)
	rate := s.between(10_750, 10_950)
	return act(note("settlement", map[string]any{"EUR-USD": fmt.Sprintf("%d.%04d", rate/10_000,
		rate%10_000)}),
		move("meridian:reserves", "harbour:reserves", euro, cents),
		move("harbour:reserves", "meridian:reserves", dollar, cents*rate/10_000))
}

func (s scene) price() Act {
	asset := pick(s, []ledger.AssetName{gold, shares})
	cents := s.between(58_00, 64_00)
	return record(northgate, "prices:"+string(asset),
		fmt.Sprintf("%d.%02d EUR", cents/100, cents%100))
}

func (s scene) flight() Act {
	airline := pick(s, airlines)
	return record(airline.name, "flights:"+pick(s, airline.flights),
		pick(s, []string{"on time", "boarding", "delayed by 20 minutes", "departed", "landed"}))
}

func record(owner ledger.OrganisationName, key, value string) Act {
	return Act{
		Transaction: ledger.Transaction{Records: []ledger.Record{
			{Key: ledger.RecordKey(string(owner) + ":" + key), Value: []byte(value)}}},
		Signers: []ledger.OrganisationName{owner},
	}
}

// overdraft is refused: no customer has that much.
func (s scene) overdraft() Act {
	from := pick(s, customers)
	return act(note("a villa", nil), move(from, "northgate:fees", money(from),
		s.between(2_000_000_000_00, 9_000_000_000_00)))
}

// mistyped is refused: there is no such account.
func (s scene) mistyped() Act {
	from := pick(s, customers)
	return act(note("rent", nil), move(from, "harbour:customers:gracce", money(from),
		s.between(3_00, 90_00)))
}

// oversold is refused: a passenger returns more seats than there are.
func (s scene) oversold() Act {
	airline := pick(s, airlines)
	return act(note("seats returned", nil), move(at(airline.name,
		"passengers:"+pick(s, airline.passengers)), at(airline.name, "seats"), seat, 1_000_000))
}
