// Command ledgerd is the whole product on the command line. It runs nodes, uses a ledger, and
// studies the engines.
//
//	main.go     signals and the exit status
//	root.go     the tree of commands, its three groups, and how errors are printed
//	remote.go   shared by the commands that talk to nodes: addresses, keyring, levels, completion
//	output.go   tables, JSON, colours
//	the others  one file for each command, named after it
//
// # What always holds
//
//   - The result goes to the standard output, everything else to the standard error. With --json
//     the standard output holds JSON and nothing else. JSON names are in lower case and do not
//     change; hashes are hex and amounts are decimal text.
//   - An error is one sentence that ends with what to do next. The exit status is 0 for success, 1
//     for a failure, and 2 for a wrong command line. A command whose answer is a failure (a failed
//     transaction, a refused line) shows the answer and exits with 1.
//   - The first interrupt ends a command in good order, a second one at once.
//   - Text that others wrote (notes, names of chains, reasons) is printed without anything that
//     controls a terminal.
package main
