// Package house keeps the rules of the house: which room may import which, what an engine must
// not touch, and how code is named and explained. It has no code of its own. Its test reads every
// source file of the repository and names the file and the line of each violation.
//
//	go test ./house                    # check
//	go test ./house -run Rooms -write  # bring the table in ARCHITECTURE.md up to date
//
// The table of rooms is in rooms_test.go: the purpose of each room and what it may import. A new
// engine, provider or dependency is a line there. ARCHITECTURE.md shows the table, generated. The
// rules are pure functions over the contents of files (rules_test.go), and planted violations prove
// each of them.
//
// What always holds while the test passes:
//
//   - Imports are those of the table, within the project and out of it. A room imports only rooms
//     above it. A room that is not in the table is an error.
//   - ARCHITECTURE.md shows the table as it is, and every room has a purpose.
//   - Engines, the contracts, the digraphs and the ledger are pure: no clock, random source,
//     network, file, log or goroutine.
//   - Only tests import packages that serve tests (fabrictest, ledgertest, apitest).
//   - Every package has its story and every exported name its comment. No package is called after
//     nothing (util, common, helpers, manager).
//   - No file is a crowd, no end is left open, and the repository names no path or host of one
//     machine.
package house
