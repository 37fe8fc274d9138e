package intake_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/intake"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

var table = intake.NewTable(16<<20, 256)

func nameOf(message proto.Message) protoreflect.FullName {
	return message.ProtoReflect().Descriptor().FullName()
}

// requests returns an empty request of each method.
func requests() map[string]proto.Message {
	found := map[string]proto.Message{}
	service := ledgerdv1.File_ledgerd_v1_ledgerd_proto.Services().ByName("LedgerService")
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		message := messageOf(method.Input().FullName())
		for name, other := range found {
			if nameOf(other) == nameOf(message) {
				panic(fmt.Sprintf("%s and %s have one request type: their limits would be one",
					name, method.Name()))
			}
		}
		found[string(method.Name())] = message
	}
	return found
}

// The largest requests that the ledger can take are within the limits, in both forms.
func TestUsefulRequestsPass(t *testing.T) {
	bundle := func(transactions, size int) *ledgerdv1.Bundle {
		made := &ledgerdv1.Bundle{}
		for range transactions {
			made.Transactions = append(made.Transactions, make([]byte, size))
		}
		for range ledger.MaxBundleSignatures {
			made.Signatures = append(made.Signatures, &ledgerdv1.Signature{
				Organisation: "a", PublicKey: make([]byte, 32), Signature: make([]byte, 64)})
		}
		return made
	}
	many := &ledgerdv1.SubmitManyRequest{}
	for range 256 {
		many.Bundles = append(many.Bundles, bundle(512, 70))
	}
	small := &ledgerdv1.SubmitManyRequest{}
	for range 256 {
		one := bundle(1, 48)
		one.Signatures = one.Signatures[:1]
		small.Bundles = append(small.Bundles, one)
	}
	parts := &ledgerdv1.PrepareRequest{}
	for i := range ledger.MaxBundleTransactions {
		parts.Transactions = append(parts.Transactions, &ledgerdv1.TransactionBody{Signer: "a",
			Nonce: &ledgerdv1.Nonce{Sequence: uint64(i + 1)},
			Postings: []*ledgerdv1.Posting{{Account: "a:b", Amount: "-1"},
				{Account: "a:c", Amount: "1"}}})
	}
	postings := &ledgerdv1.PrepareRequest{}
	for range 16 {
		body := &ledgerdv1.TransactionBody{Signer: "a", Note: strings.Repeat("n", ledger.MaxNote)}
		for range ledger.MaxPostings {
			body.Postings = append(body.Postings, &ledgerdv1.Posting{Account: "acme:cash",
				Amount: "1", Asset: "unit"})
		}
		postings.Transactions = append(postings.Transactions, body)
	}
	waited := &ledgerdv1.WaitTransactionsRequest{}
	for range intake.MaxWaited {
		waited.Ids = append(waited.Ids, make([]byte, 32))
	}
	chain, breadth, empty := &ledgerdv1.ListAccountsRequest{Prefix: "a"},
		&ledgerdv1.ListAccountsRequest{}, &ledgerdv1.GetAccountRequest{}
	for shard := range uint64(ledger.MaxShards) {
		place := &ledgerdv1.Place{Height: 1<<40 + shard, Entries: 7, Carried: 1<<50 + shard}
		breadth.Cut = append(breadth.Cut, place)
		breadth.Cut[0].Streamed = append(breadth.Cut[0].Streamed, 1<<63)
		chain.Cut = append(chain.Cut, proto.CloneOf(place))
		chain.Cut[shard].Streamed = []uint64{1 << 50}
		empty.Cut = append(empty.Cut, &ledgerdv1.Place{})
	}
	for name, request := range map[string]proto.Message{
		"a cut of a chain":     chain,
		"a cut of breadth":     breadth,
		"an empty cut":         empty,
		"streams":              &ledgerdv1.GetPlaceRequest{Streamed: breadth.Cut[0].Streamed},
		"a bundle of many":     &ledgerdv1.SubmitRequest{Bundle: bundle(4096, 64)},
		"a bundle of few":      &ledgerdv1.SubmitRequest{Bundle: bundle(4, 256<<10)},
		"many bundles":         many,
		"many small bundles":   small,
		"parts":                parts,
		"parts with postings":  postings,
		"waited":               waited,
		"an account":           &ledgerdv1.GetAccountRequest{Account: "acme:cash"},
		"a page":               &ledgerdv1.ListHistoryRequest{Account: "a:b", PageToken: "h12"},
		"nothing":              &ledgerdv1.GetTreeRequest{},
		"a small registration": &ledgerdv1.PrepareRequest{Transactions: parts.Transactions[:1]},
	} {
		wire, err := proto.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := table.CheckWire(nameOf(request), wire); err != nil {
			t.Errorf("%s, %d bytes: %v", name, len(wire), err)
		}
		text, err := protojson.MarshalOptions{Multiline: len(wire) < 1<<10}.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := table.CheckJSON(nameOf(request), text); err != nil {
			t.Errorf("%s as JSON, %d bytes: %v", name, len(text), err)
		}
	}
}

func TestOverTheLimits(t *testing.T) {
	prepare := nameOf(&ledgerdv1.PrepareRequest{})
	submit := nameOf(&ledgerdv1.SubmitRequest{})
	node := nameOf(&ledgerdv1.GetNodeRequest{})
	repeat := func(part string, count int) []byte { return bytes.Repeat([]byte(part), count) }
	fullBody := &ledgerdv1.TransactionBody{}
	for range 72 {
		fullBody.Postings = append(fullBody.Postings, &ledgerdv1.Posting{Account: "acme:abc"})
	}
	full := &ledgerdv1.PrepareRequest{}
	for range ledger.MaxBundleTransactions {
		full.Transactions = append(full.Transactions, fullBody)
	}
	manyPostings, err := proto.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		request protoreflect.FullName
		json    bool
		data    []byte
		says    string
	}{
		{"transactions", prepare, false, repeat("\x0a\x0a\x32\x08abcdefgh", 4097),
			"more than the 4096"},
		{"a bundle twice", submit, false, repeat("\x0a\x00", 2), "more than the 1 "},
		{"empty elements", prepare, false, repeat("\x0a\x00", 1000), "too much memory"},
		{"elements that are not empty", prepare, false, manyPostings, "too much memory"},
		{"unknown fields", submit, false, repeat("\xf8\x07\x01", 60000), "too much memory"},
		{"bytes", node, false, repeat("\xf8\x07\x01", 30000), "at most 65536"},
		{"no request", nameOf(&ledgerdv1.Posting{}), false, nil, "not a request"},
		{"JSON: transactions", submit, true, []byte(`{"bundle":{"transactions":[` +
			strings.Repeat(`"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",`, 4096) + `""]}}`),
			"more than the 4096"},
		{"JSON: after an escaped quote", submit, true, []byte(`{"x":"\"","bundle":{"transactions":[` +
			strings.Repeat(`"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",`, 4096) + `""]}}`),
			"more than the 4096"},
		{"JSON: an escaped name", submit, true, []byte(`{"bundl\u0065":{"transactions":[` +
			strings.Repeat(`"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",`, 4097) + `""]}}`),
			"more than the 4096"},
		{"JSON: empty elements", prepare, true, []byte(`{"transactions":[` +
			strings.Repeat(`{},`, 1000) + `{}]}`), "too much memory"},
		{"JSON: depth", submit, true, repeat("[", 1000), "too deep"},
		{"JSON: bytes", submit, true, repeat(" ", 3<<20), "at most"},
	} {
		check := table.CheckWire
		if c.json {
			check = table.CheckJSON
		}
		if err := check(c.request, c.data); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.says)
		}
	}
}

func TestLimitsOfTheNode(t *testing.T) {
	t.Parallel()
	small := intake.NewTable(1000, 1)
	for _, method := range []string{"Submit", "GetNode"} {
		if got := small.Of(method).Bytes; got != 1000 {
			t.Errorf("%s may have %d bytes, want 1000", method, got)
		}
	}
}

func TestBudget(t *testing.T) {
	budget := intake.NewBudget(200 << 10)
	first := budget.Open("a")
	if first == nil || !first.Grow(60<<10) {
		t.Fatal("the budget is refused although it is free")
	}
	if first.Grow(60 << 10) {
		t.Error("an address gets more than half of the budget")
	}
	second := budget.Open("a")
	if second == nil || budget.Open("a") != nil {
		t.Errorf("%d bytes used: want room for one more call of the address and no other",
			budget.Used())
	}
	other := budget.Open("b")
	if other == nil || !other.Grow(60<<10) {
		t.Error("another address finds no room")
	}
	third := budget.Open("c")
	if third == nil || third.Grow(40<<10) {
		t.Error("more than the budget has")
	}
	first.Shrink(1 << 30)
	for _, each := range []*intake.Reservation{first, second, other, third} {
		each.Close()
	}
	if budget.Used() != 0 || budget.Refused() != 3 {
		t.Errorf("%d bytes used, %d refused, want 0 and 3", budget.Used(), budget.Refused())
	}
}
