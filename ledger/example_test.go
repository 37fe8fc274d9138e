package ledger_test

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// Amounts have 128 bits. They do not wrap around.
func ExampleParseAmount() {
	amount, err := ledger.ParseAmount("170141183460469231731687303715884105727")
	fmt.Println(amount, err)
	_, err = amount.Add(ledger.NewAmount(1))
	fmt.Println(err)
	// Output:
	// 170141183460469231731687303715884105727 <nil>
	// ledger: amount overflows 128 bits
}
