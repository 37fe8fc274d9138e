package bench

import "github.com/ledgerd/ledgerd/node/driver"

var _ driver.BorrowingSink = (*workload)(nil)

// Borrows implements driver.BorrowingSink: deliveries are hashed and forgotten.
func (*workload) Borrows() {}
