// Package cometbft tests the ABCI adapter against CometBFT's own application and clients. It is a
// module of its own, so that ledgerd depends on nothing of CometBFT.
//
// The tests run kvstore as a process, unchanged (abci-cli kvstore), beside ledgerd's nodes and
// adapters, which are processes, too. LEDGERD_BINARY names the program to test. scripts/test
// cometbft runs them.
package cometbft
