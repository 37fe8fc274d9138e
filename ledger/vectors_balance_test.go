package ledger_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// accountVectors are the content of accounts.json.
type accountVectors struct {
	// Accounts are values of entries of the state; the hash of each is that of its leaf.
	Accounts []vector `json:"accounts"`
	// Proofs are those of their balances, in a tree of them, without finality.
	Proofs []vector `json:"proofs"`
}

// provenExample is an account of the tree. Its number is its place, from 1.
type provenExample struct {
	name    string
	account ledger.AccountPath
	entry   parts
}

// accountVectors makes a tree of five accounts, so that a node of it moves up unchanged.
func (e *examples) accountVectors(t *testing.T) (v accountVectors) {
	t.Helper()
	change := e.find(t, "a change of the terms of an account").Account
	all := make([]provenExample, 5)
	for i := range all {
		all[i] = provenExample{account: ledger.AccountPath(fmt.Sprintf("alice:%d", i+1))}
		all[i].entry.uvarint("number", uint64(i+1))
		all[i].entry.bool("issuer", i == 3)
		alias := ""
		if i == 2 {
			alias = change.Alias
		}
		all[i].entry.string("alias", []byte(alias))
		all[i].entry.uvarint("height of the block that opened it", 1)
		all[i].entry.uvarint("transactions in its history", uint64(20+i))
	}
	amountOf := func(i int, what, text string) {
		all[i].entry.add(what+" "+text, amount(decimal(text))...)
	}
	balances := func(i int, texts ...string) {
		all[i].entry.uvarint("balances, count", uint64(len(texts)))
		for j, text := range texts {
			asset := []string{"EUR", "unit"}[j]
			all[i].entry.string(fmt.Sprintf("balance %d, asset", j), []byte(asset))
			amountOf(i, fmt.Sprintf("balance %d, amount", j), text)
		}
	}
	held := func(i int, setAside, incoming string) {
		all[i].entry.uvarint("set aside or expected, count", 1)
		all[i].entry.string("set aside or expected 0, asset", []byte("unit"))
		amountOf(i, "set aside", setAside)
		amountOf(i, "expected", incoming)
	}
	terms := func(i int, changes uint64, of *ledger.AccountTerms) {
		all[i].entry.uvarint("changes of the terms", changes)
		termsParts(&all[i].entry, of)
	}

	all[0].name = "an account"
	balances(0, "500", "42")
	all[1].name = "an account of which something is set aside, and that expects something"
	balances(1, "500", "42")
	held(1, "7", "1")
	all[2].name = "an account with a velocity, whose terms a guardian changed twice"
	balances(2, "500", "42")
	all[2].entry.uvarint("set aside or expected, count", 0)
	terms(2, 5, &change.AccountTerms)
	all[2].entry.uvarint("limit 1, number of the newest quarter", 78_703)
	for i, text := range []string{"300", "0", "256", "1", "44"} {
		amountOf(2, fmt.Sprintf("limit 1, quarter %d before it,", i), text)
	}
	all[2].entry.uvarint("changes by guardians", 2)
	all[3].name = "an issuer"
	balances(3, "-1500", "-170141183460469231731687303715884105728")
	all[4].name = "an account that was closed"
	balances(4)
	all[4].entry.uvarint("set aside or expected, count", 0)
	terms(4, 1, &ledger.AccountTerms{Closed: true})

	leaves := make([][]byte, len(all))
	for i, each := range all {
		leaves[i] = leafOf([]byte("a"), []byte(each.account), []byte{0}, each.entry.bytes())
		v.Accounts = append(v.Accounts, vector{Name: each.name, Parts: each.entry,
			Encoded: each.entry.hex(), Hash: hex.EncodeToString(leaves[i])})
	}
	left := hashOf(append([][]byte{{1}}, leaves[:4]...)...)
	others := hashOf([]byte("all but the accounts"))
	block := e.blocks[0]
	block.header.StateDigest = ledger.Hash(hashOf(domain("ledgerd/state/2"),
		bigEndian(uint64(len(all)), 8), hashOf([]byte{1}, left, leaves[4]), others))
	for i, each := range all {
		siblings := [][]byte{left}
		if i < 4 {
			siblings = slices.Delete(slices.Clone(leaves), i, i+1)
		}
		var p parts
		p.add("version", 4)
		p.uvarint("finality, length", 0)
		p.nested("header", block.headerParts(e.previous(0)))
		p.string("account", []byte(each.account))
		p.string("entry", each.entry.bytes())
		p.uvarint("accounts", uint64(len(all)))
		p.path("siblings", siblings)
		p.add("digest of all other entries", others...)
		made := vector{Name: each.name, Parts: p, Encoded: p.hex()}
		compareAccountProof(t, &made, each)
		v.Proofs = append(v.Proofs, made)
	}
	return v
}

// compareAccountProof fails the test unless package ledger makes the proof of a vector, it holds,
// and it has the account.
func compareAccountProof(t *testing.T, v *vector, of provenExample) {
	t.Helper()
	proof, err := ledger.DecodeAccountProof(fromHex(v.Encoded))
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	same(t, v.Name, v.Encoded, proof.Encode())
	account, _, err := ledger.VerifyAccountProof(proof)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	if account.Path != of.account {
		t.Errorf("%s: the proof is of %s", v.Name, account.Path)
	}
	if s := account.Standing; s != nil {
		suffix := hex.EncodeToString(s.AppendStanding(nil))
		if entry := of.entry.hex(); entry[len(entry)-len(suffix):] != suffix {
			t.Errorf("%s: the entry is %s, and package ledger makes %s of its terms", v.Name, entry,
				suffix)
		}
	}
}
