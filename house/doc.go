// Package house keeps the rules of the house: the imports that each room may have, the packages
// that an engine must not use, and the names and comments of code. It has no code of its own. Its
// test reads every source file of the repository and prints the file and the line of each
// violation.
//
//	go test ./house                      # check
//	go test ./house -run Rooms -write    # bring the table in ARCHITECTURE.md up to date
//	go test ./house -run Surface -write  # record a change to the public rooms
//
// The table of rooms is in rooms_test.go: the purpose of each room and its allowed imports. A new
// engine, provider or dependency is a line there. ARCHITECTURE.md shows the table, generated. The
// rules are pure functions over the contents of files (rules_test.go), and planted violations prove
// each of them.
//
// What always holds while the test passes:
//
//   - All imports are in the table, within the project and out of it. A room imports only rooms
//     above it. A room that is not in the table is an error.
//   - ARCHITECTURE.md shows the current table, and every room has a purpose.
//   - Engines, the contracts, the digraphs and the ledger are pure: no clock, random source,
//     network, file, log or goroutine.
//   - Only tests import packages that serve tests (fabrictest, ledgertest, apitest).
//   - The exported declarations of the public rooms are those of testdata/surface. The other rooms
//     may change as the product needs.
//   - Every package has a package comment, and every exported name has a comment. No package has a
//     name without a meaning (util, common, helpers, manager).
//   - No file is longer than 900 lines, no marker of unfinished work is left, and the repository
//     names no path or host of one machine.
package house
