package api_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// A client submits, gets the answer at the level, and reads its own write at once.
func TestSubmitThenRead(t *testing.T) {
	t.Parallel()
	for _, level := range []ledgerdv1.Level{
		ledgerdv1.Level_LEVEL_ORDERED, ledgerdv1.Level_LEVEL_STORED, ledgerdv1.Level_LEVEL_DURABLE,
		ledgerdv1.Level_LEVEL_UNSPECIFIED,
	} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			b := newBank(t, apitest.Options{}, api.Options{})
			for i := range int64(20) {
				answer := b.submit(level, b.sign(transfer("bank:mint", "bank:a", 1)))
				if state := answer.Transactions[0].State; state <
					ledgerdv1.TransactionState_TRANSACTION_STATE_ORDERED ||
					state > ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
					t.Fatalf("state %v", state)
				}
				account, err := b.client.GetAccount(b.context(),
					connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "bank:a"}))
				if err != nil {
					t.Fatal(err)
				}
				if got, want := account.Msg.Account.Balances[0].Amount,
					ledger.NewAmount(i+1).String(); got != want {
					t.Fatalf("after %d transfers the balance is %s, want %s", i+1, got, want)
				}
				found, err := b.client.GetTransaction(b.context(),
					connect.NewRequest(&ledgerdv1.GetTransactionRequest{
						IdHex: answer.Transactions[0].IdHex}))
				if err != nil || found.Msg.Transaction.Status.Height !=
					answer.Transactions[0].Height {
					t.Fatalf("the transaction cannot be read: %v, %v", found, err)
				}
			}
		})
	}
}

// A transaction goes from pending to durable, one level after the other.
func TestLevels(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{Manual: true}, api.Options{})
	bundle := b.sign(transfer("bank:mint", "bank:a", 5))
	id := bundle.ID(0)
	_, err := b.client.GetTransaction(b.context(),
		connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: id[:]}))
	codeIs(t, err, connect.CodeNotFound)

	steps := []struct {
		do    func()
		state ledgerdv1.TransactionState
	}{
		{func() {
			b.submit(ledgerdv1.Level_LEVEL_ADMITTED, bundle)
		}, ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING},
		{func() {
			must(t, b.cluster.Order())
		}, ledgerdv1.TransactionState_TRANSACTION_STATE_ORDERED},
		{func() {
			must(t, b.cluster.Store())
		}, ledgerdv1.TransactionState_TRANSACTION_STATE_STORED},
		{b.cluster.Durable, ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE},
	}
	for _, step := range steps {
		step.do()
		found, err := b.client.GetTransaction(b.context(),
			connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: id[:]}))
		must(t, err)
		if found.Msg.Transaction.Status.State != step.state {
			t.Fatalf("state %v, want %v", found.Msg.Transaction.Status.State, step.state)
		}
	}
	// A second submission returns the outcome of the first.
	again := b.submit(ledgerdv1.Level_LEVEL_DURABLE, bundle).Transactions[0]
	if again.State != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE || again.Height != 2 {
		t.Fatalf("second submission: %v", again)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A caller that waits for a level that is not reached gets the current status at its deadline.
func TestDeadlineTellsStatus(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{Manual: true}, api.Options{})
	bundle := b.sign(transfer("bank:mint", "bank:a", 5))
	submit := func() (*connect.Response[ledgerdv1.SubmitResponse], error) {
		ctx, cancel := context.WithTimeout(b.context(), 400*time.Millisecond)
		defer cancel()
		return b.client.Submit(ctx, connect.NewRequest(
			&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(bundle)}))
	}
	answer, err := submit()
	for range 50 { // a busy machine may need more time for an answer than is left
		if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			break
		}
		answer, err = submit()
	}
	must(t, err)
	if answer.Msg.Transactions[0].State != ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING {
		t.Fatalf("state %v", answer.Msg.Transactions[0].State)
	}
}

// WaitTransaction also waits for a transaction that is submitted later.
func TestWaitTransaction(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{Manual: true}, api.Options{})
	bundle := b.sign(transfer("bank:mint", "bank:a", 5))
	heard := make(chan *ledgerdv1.Transaction, 1)
	go func() {
		answer, err := b.client.WaitTransaction(b.context(),
			connect.NewRequest(&ledgerdv1.WaitTransactionRequest{
				IdHex: bundle.ID(0).String(), Wait: ledgerdv1.Level_LEVEL_STORED,
			}))
		if err != nil {
			t.Errorf("waiting: %v", err)
		}
		heard <- answer.Msg.GetTransaction()
	}()
	b.submit(ledgerdv1.Level_LEVEL_ADMITTED, bundle)
	must(t, b.cluster.Order())
	must(t, b.cluster.Store())
	if got := <-heard; got.GetStatus().GetState() !=
		ledgerdv1.TransactionState_TRANSACTION_STATE_STORED {
		t.Fatalf("%v", got)
	}
}

// A failed transaction reports the reason, and changes nothing.
func TestFailedTransaction(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	cases := []struct {
		name, code, reason string
		transaction        ledger.Transaction
	}{
		{"overdraft", "insufficient_funds", "bank:a", transfer("bank:a", "bank:b", 1)},
		{"unknown account", "unknown_account", "bank:nobody",
			transfer("bank:mint", "bank:nobody", 1)},
		{"another kind of account", "account_exists", "bank:a",
			ledger.Transaction{Openings: []ledger.Opening{{Account: "bank:a", Issuer: true}}}},
	}
	for _, c := range cases {
		status := b.submit(ledgerdv1.Level_LEVEL_DURABLE, b.sign(c.transaction)).Transactions[0]
		if status.State != ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED ||
			status.ReasonCode != c.code || !strings.Contains(status.Reason, c.reason) ||
			status.Height == 0 {
			t.Errorf("%s: %v", c.name, status)
		}
	}
}

// A bad bundle is refused at once with its fault.
func TestRefusals(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	good := func() *ledgerdv1.Bundle {
		return api.BundleToProto(b.sign(transfer("bank:mint", "bank:a", 1)))
	}
	stranger := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	cases := []struct {
		name   string
		bundle func() *ledgerdv1.Bundle
		code   connect.Code
		says   string
	}{
		{"nothing", func() *ledgerdv1.Bundle {
			return nil
		}, connect.CodeInvalidArgument, "transactions"},
		{"no bytes of a transaction", func() *ledgerdv1.Bundle {
			return &ledgerdv1.Bundle{Transactions: [][]byte{[]byte("hello")}}
		}, connect.CodeInvalidArgument, "malformed"},
		{"a byte too many", func() *ledgerdv1.Bundle {
			bundle := good()
			bundle.Transactions[0] = append(bytes.Clone(bundle.Transactions[0]), 0)
			return bundle
		}, connect.CodeInvalidArgument, "too many"},
		{"a short signature", func() *ledgerdv1.Bundle {
			bundle := good()
			bundle.Signatures[0].Signature = bundle.Signatures[0].Signature[1:]
			return bundle
		}, connect.CodeInvalidArgument, "64"},
		{"a wrong signature", func() *ledgerdv1.Bundle {
			bundle := good()
			bundle.Signatures[0].Signature = bytes.Clone(bundle.Signatures[0].Signature)
			bundle.Signatures[0].Signature[3] ^= 1
			return bundle
		}, connect.CodePermissionDenied, "signature"},
		{"no signature", func() *ledgerdv1.Bundle {
			bundle := good()
			bundle.Signatures = nil
			return bundle
		}, connect.CodePermissionDenied, "sign"},
		{"an unknown organisation", func() *ledgerdv1.Bundle {
			t := transfer("nobody:a", "bank:a", 1)
			t.Ledger, t.Signer = b.cluster.Genesis().Hash(), "nobody"
			bundle, _ := ledger.NewBundle(t)
			_ = bundle.Sign("nobody", stranger)
			return api.BundleToProto(bundle)
		}, connect.CodeFailedPrecondition, "register"},
		{"unbalanced", func() *ledgerdv1.Bundle {
			t := transfer("bank:mint", "bank:a", 1)
			t.Postings[0].Amount = ledger.NewAmount(-2)
			return api.BundleToProto(b.sign(t))
		}, connect.CodeInvalidArgument, "unbalanced"},
		{"another ledger", func() *ledgerdv1.Bundle {
			t := transfer("bank:mint", "bank:a", 1)
			t.Signer = "bank"
			bundle, _ := ledger.NewBundle(t)
			_ = bundle.Sign("bank", b.key)
			return api.BundleToProto(bundle)
		}, connect.CodeInvalidArgument, "another ledger"},
		{"expired", func() *ledgerdv1.Bundle {
			b.done(transfer("bank:mint", "bank:a", 1))
			t := transfer("bank:mint", "bank:a", 1)
			t.LastValid = 1
			return api.BundleToProto(b.sign(t))
		}, connect.CodeFailedPrecondition, "valid"},
	}
	for _, c := range cases {
		_, err := b.client.Submit(b.context(),
			connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: c.bundle()}))
		if err == nil || connect.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v and %q", c.name, err, c.code, c.says)
		}
	}
}

// A node that takes no writes names nodes that do.
func TestNotWriting(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{Nodes: 2}, api.Options{})
	b.cluster.Node(0).SetMode(report.ModeFollowing,
		"it follows the chain until the shard's next generation")
	_, err := b.client.Submit(b.context(),
		connect.NewRequest(&ledgerdv1.SubmitRequest{
			Bundle: api.BundleToProto(b.sign(transfer("bank:mint", "bank:a", 1)))}))
	codeIs(t, err, connect.CodeUnavailable)
	failure := new(connect.Error)
	if !asConnect(err, &failure) || failure.Meta().Get(api.HeaderRetry) != "true" ||
		failure.Meta().Get(api.HeaderWriters) != "http://127.0.0.1:8082" ||
		!strings.Contains(err.Error(), "http://127.0.0.1:8082") {
		t.Fatalf("%v, %v", err, failure.Meta())
	}
}

func TestSubmitMany(t *testing.T) {
	t.Parallel()
	broken := &ledgerdv1.Bundle{Transactions: [][]byte{{1, 2, 3}}}
	cases := []struct {
		name     string
		inOrder  bool
		overload int
		bundles  string // g: good, x: malformed
		want     string // a: admitted, r: refused for now, x: refused
	}{
		{"all good", false, 0, "ggg", "aaa"},
		{"a malformed one stops no others", false, 0, "gxg", "axa"},
		{"overload passes", false, 1, "ggg", "raa"},
		{"in order, nothing overtakes what is refused for now", true, 1, "ggg", "rrr"},
		{"in order, nothing overtakes what is malformed", true, 0, "gxgg", "axrr"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, apitest.Options{}, api.Options{})
			request := &ledgerdv1.SubmitManyRequest{InOrder: c.inOrder,
				Wait: ledgerdv1.Level_LEVEL_STORED}
			for _, kind := range c.bundles {
				bundle := broken
				if kind == 'g' {
					bundle = api.BundleToProto(b.sign(transfer("bank:mint", "bank:a", 1),
						transfer("bank:a", "bank:b", 1)))
				}
				request.Bundles = append(request.Bundles, bundle)
			}
			b.cluster.Node(0).Overload(c.overload)
			answer, err := b.client.SubmitMany(b.context(), connect.NewRequest(request))
			must(t, err)
			got := ""
			for _, outcome := range answer.Msg.Outcomes {
				switch {
				case outcome.Refused == "" && len(outcome.Transactions) == 2 &&
					outcome.Transactions[1].Height > 0:
					got += "a"
				case outcome.Refused != "" && outcome.Retry:
					got += "r"
				case outcome.Refused != "":
					got += "x"
				default:
					t.Fatalf("%v", outcome)
				}
			}
			if got != c.want {
				t.Fatalf("outcomes %s, want %s", got, c.want)
			}
		})
	}
}

// A series of bundles continues only at a node that knows its predecessor: a node that lost its
// pool refuses the later bundles.
func TestAfter(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{Manual: true}, api.Options{})
	first, second := b.sign(transfer("bank:mint", "bank:a", 5)),
		b.sign(transfer("bank:a", "bank:b", 5))
	after := first.ID(0)
	send := func(bundle *ledger.Bundle, after []byte) *ledgerdv1.BundleOutcome {
		t.Helper()
		answer, err := b.client.SubmitMany(b.context(),
			connect.NewRequest(&ledgerdv1.SubmitManyRequest{
				Bundles: []*ledgerdv1.Bundle{api.BundleToProto(bundle)}, InOrder: true,
				After: after,
				Wait:  ledgerdv1.Level_LEVEL_ADMITTED,
			}))
		must(t, err)
		return answer.Msg.Outcomes[0]
	}
	if outcome := send(second, after[:]); outcome.Refused == "" || !outcome.Retry {
		t.Fatalf("a bundle overtook its predecessor: %v", outcome)
	}
	if outcome := send(first, nil); outcome.Refused != "" {
		t.Fatal(outcome)
	}
	b.cluster.Node(0).Crash()
	if outcome := send(second, after[:]); outcome.Refused == "" || !outcome.Retry {
		t.Fatalf("after a crash a bundle overtook its predecessor: %v", outcome)
	}
	send(first, nil)
	if outcome := send(second, after[:]); outcome.Refused != "" {
		t.Fatal(outcome)
	}
	b.advance()
	if outcome := send(second, after[:]); outcome.Refused != "" ||
		outcome.Transactions[0].State != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
		t.Fatal(outcome)
	}
	_, err := b.client.SubmitMany(b.context(),
		connect.NewRequest(&ledgerdv1.SubmitManyRequest{Bundles: []*ledgerdv1.Bundle{{}},
			After: after[:]}))
	codeIs(t, err, connect.CodeInvalidArgument)
}

// The bytes of Prepare, once signed, are a valid bundle.
func TestPrepareSignSubmit(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	body := &ledgerdv1.TransactionBody{
		Accounts: []*ledgerdv1.AccountOpening{{Account: "bank:new", Alias: "n"}},
		Postings: []*ledgerdv1.Posting{{Account: "bank:mint",
			Amount: "-170141183460469231731687303715884105727"},
			{Account: "bank:new", Amount: "170141183460469231731687303715884105727",
				Asset: "unit"}},
		Records: []*ledgerdv1.Record{{Key: "bank:rate", Value: []byte("3")}},
		Note:    "hello",
		Signer:  "bank",
		Nonce:   &ledgerdv1.Nonce{Stream: 9, Sequence: 1},
	}
	prepared, err := b.client.Prepare(b.context(),
		connect.NewRequest(&ledgerdv1.PrepareRequest{
			Transactions: []*ledgerdv1.TransactionBody{body}}))
	must(t, err)
	public := b.public()
	answer, err := b.client.Submit(b.context(),
		connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: &ledgerdv1.Bundle{
			Transactions: prepared.Msg.Transactions,
			Signatures: []*ledgerdv1.Signature{{Organisation: "bank", PublicKey: public[:],
				Signature: ed25519.Sign(b.key, prepared.Msg.ToSign)}},
		}}))
	must(t, err)
	if !bytes.Equal(answer.Msg.Transactions[0].Id, prepared.Msg.Ids[0]) {
		t.Fatal("Prepare and Submit tell different ids")
	}
	found, err := b.client.GetTransaction(b.context(),
		connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: prepared.Msg.Ids[0]}))
	must(t, err)
	body.Postings[0].Asset = "unit"
	if got := found.Msg.Transaction; got.Body.String() != body.String() || got.BundleSize != 1 ||
		len(got.Signatures) != 1 {
		t.Fatalf("read back:\n%v\nwant\n%v", got.Body, body)
	}
	record, err := b.client.GetRecord(b.context(),
		connect.NewRequest(&ledgerdv1.GetRecordRequest{Key: "bank:rate"}))
	must(t, err)
	if string(record.Msg.Record.Value) != "3" || record.Msg.Height == 0 {
		t.Fatalf("%v", record.Msg)
	}

	wrong := []*ledgerdv1.TransactionBody{
		{},
		{Signer: "bank"},
		{Signer: "bank", Postings: []*ledgerdv1.Posting{{Account: "bank:a", Amount: "1"}}},
		{Signer: "bank", Postings: []*ledgerdv1.Posting{{Account: "bank:a", Amount: "1.5"},
			{Account: "bank:b", Amount: "-1.5"}}},
		{Signer: "bank", Postings: []*ledgerdv1.Posting{{Account: "bank", Amount: "1"},
			{Account: "bank:b", Amount: "-1"}}},
		{Signer: "b b", Records: []*ledgerdv1.Record{{Key: "bank:k"}}},
		{Signer: "bank", Organisations: []*ledgerdv1.OrganisationRegistration{{Name: "x",
			PublicKeys: [][]byte{{1}}}}},
	}
	for _, body := range wrong {
		_, err := b.client.Prepare(b.context(),
			connect.NewRequest(&ledgerdv1.PrepareRequest{
				Transactions: []*ledgerdv1.TransactionBody{body}}))
		codeIs(t, err, connect.CodeInvalidArgument)
	}
}
