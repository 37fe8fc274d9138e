// Command ledgerd is the whole product on the command line: it runs nodes, uses a ledger, and
// studies the engines.
//
//	main.go     signals and the exit status
//	root.go     the tree of commands, its three groups, and how errors are told
//	remote.go   what the commands that talk to nodes share: addresses, keyring, levels, completion
//	output.go   tables, JSON, colours
//	the others  one file for each command, named as it is
//
// # What always holds
//
//   - The result goes to the standard output, everything else to the standard error. With --json
//     the standard output holds JSON and nothing else, with names in lower case that do not change;
//     hashes are hex and amounts decimal text.
//   - An error is one sentence that says what to do next. The exit status is 0 when all is well, 1
//     when something failed, 2 when the command line was wrong. A command whose answer is a failure
//     (a failed transaction, a line that was refused) shows it and exits with 1.
//   - The first interrupt ends a command in good order, a second one at once.
//   - Text that others wrote (notes, names of chains, reasons) is shown without anything that
//     steers a terminal.
package main
