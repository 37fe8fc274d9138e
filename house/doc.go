// Package house keeps the rules of the house: which room may import which, what an engine must not touch, and how code is named and
// explained. It has no code of its own; its test reads every source file of the repository and names the file and the line of each rule that is broken.
//
//	go test ./house
//
// The rooms and what each may import stand in rooms_test.go, in the order of ARCHITECTURE.md's table: a new engine, provider or dependency
// is a line there. The rules are pure functions over the contents of files (rules_test.go), so each is proven on planted violations.
//
// What always holds while the test passes:
//
//   - Imports are those of the table, within the project and out of it; a room that is not in the table is an error.
//   - Engines, the contracts, the digraphs and the ledger are pure: no clock, random source, network, file, log or goroutine.
//   - Packages that serve tests (fabrictest, ledgertest, apitest) are imported by tests only.
//   - Every package has its story, every exported name its comment; no package is called after nothing (util, common, helpers, manager).
//   - No file is a crowd, no end is left open, and no path or host of one machine is in the repository.
package house
