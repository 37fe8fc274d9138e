package ledger_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// assembled assembles the parts of a bundle, and checks that nothing is lost.
func assembled(t testing.TB, bundle *ledger.Bundle) *ledger.Bundle {
	t.Helper()
	bodies := make([][]byte, bundle.Len())
	for i := range bodies {
		bodies[i] = bundle.Body(i)
	}
	made, err := ledger.AssembleBundle(bodies, bundle.Signatures())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made.Encode(), bundle.Encode()) || made.Root() != bundle.Root() ||
		!reflect.DeepEqual(made.IDs(), bundle.IDs()) {
		t.Errorf("assembled %x, want %x", made.Encode(), bundle.Encode())
	}
	return made
}

func TestAssembleBundle(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	bundle := client.Bundle(client.Register("issuer", "a"),
		client.Transfer("acme:issuer", "acme:a", 5), client.Next())
	made := assembled(t, bundle)
	decoded, err := ledger.DecodeBundle(bundle.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(made, decoded) {
		t.Errorf("assembled %+v, decoded %+v", made, decoded)
	}
	assembled(t, client.Bundle(client.Next()))
	unsigned, err := ledger.NewBundle(client.Next())
	if err != nil {
		t.Fatal(err)
	}
	assembled(t, unsigned)
}

// AssembleBundle refuses what NewBundle and AddSignature refuse.
func TestAssembleBundleRefuses(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	body := client.Bundle(client.Next()).Body(0)
	join := ledgertest.NewOperator(ledgertest.Genesis()).Join(ledgertest.Member(7)).Body(0)
	long := client.Next()
	long.Note = bytes.Repeat([]byte{1}, 1000)
	large := client.Bundle(long).Body(0)
	repeated := func(body []byte, times int) (bodies [][]byte) {
		for range times {
			bodies = append(bodies, body)
		}
		return bodies
	}
	signed := func(names ...ledger.OrganisationName) (signatures []ledger.Signature) {
		for _, name := range names {
			signatures = append(signatures, ledger.Signature{Organisation: name})
		}
		return signatures
	}
	tooLarge := ledger.MaxBundleBytes / (len(large) + 3) // without room for signatures
	if tooLarge > ledger.MaxBundleTransactions {
		t.Fatalf("%d bodies of %d bytes are too many", tooLarge, len(large))
	}
	for name, refused := range map[string]struct {
		bodies     [][]byte
		signatures []ledger.Signature
		want       error
	}{
		"no transaction":        {nil, nil, ledger.ErrBundleSize},
		"too many transactions": {repeated(body, 4097), nil, ledger.ErrBundleSize},
		"too many bytes":        {repeated(large, tooLarge), nil, ledger.ErrBundleSize},
		"no body":               {[][]byte{body, nil}, nil, ledger.ErrMalformed},
		"a body with a byte more": {[][]byte{append(bytes.Clone(body), 0)}, nil,
			ledger.ErrMalformed},
		"a change beside another": {[][]byte{body, join}, nil, ledger.ErrMalformed},
		"a bad name":              {[][]byte{body}, signed("acme", "A b"), ledger.ErrName},
		"too many signatures": {[][]byte{body}, make([]ledger.Signature,
			ledger.MaxBundleSignatures+1), ledger.ErrBundleSize},
	} {
		if _, err := ledger.AssembleBundle(refused.bodies,
			refused.signatures); !errors.Is(err, refused.want) {
			t.Errorf("%s: %v, want %v", name, err, refused.want)
		}
	}
	_, err := ledger.AssembleBundle([][]byte{body}, signed("acme", "A b"))
	if err == nil || !strings.HasPrefix(err.Error(), "signature 1: ") {
		t.Errorf("the error does not name the signature: %v", err)
	}
}

// VerifyBatchWith takes a bundle that was decoded from the same bytes as it is, and ignores
// everything else that it is given. The result is always that of VerifyBatch.
func TestVerifyBatchWith(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	built := client.Bundle(client.Transfer("acme:issuer", "acme:a", 1), client.Next())
	encoded := built.Encode()
	forged := bytes.Clone(encoded)
	forged[len(forged)-1] ^= 1
	decode := func(data []byte) *ledger.Bundle {
		bundle, err := ledger.DecodeBundle(data)
		if err != nil {
			t.Fatal(err)
		}
		return bundle
	}
	decoded, wrong := decode(bytes.Clone(encoded)), decode(bytes.Clone(forged))
	signedAgain := decode(bytes.Clone(encoded))
	if err := signedAgain.Sign("acme", ed25519.PrivateKey(ledgertest.Key("acme"))); err != nil {
		t.Fatal(err)
	}
	data := ledger.EncodeBatch(ledger.BatchHeader{Time: 5},
		[][]byte{encoded, forged, []byte("no bundle"), encoded})
	want, err := ledger.VerifyBatch(data)
	if err != nil {
		t.Fatal(err)
	}
	for name, found := range map[string]*ledger.Bundle{"nothing": nil, "the bundle": decoded,
		"the forged one": wrong, "one that was not decoded": built,
		"one with a signature more": signedAgain} {
		got, err := ledger.VerifyBatchWith(data, func([]byte) *ledger.Bundle { return found })
		if err != nil {
			t.Fatal(err)
		}
		for i := range want.Proposals {
			is, should := &got.Proposals[i], &want.Proposals[i]
			if (is.Err == nil) != (should.Err == nil) ||
				(is.Bundle == nil) != (should.Bundle == nil) {
				t.Fatalf("%s, bundle %d: %v, want %v", name, i, is.Err, should.Err)
			}
			if is.Bundle == nil {
				continue
			}
			if !bytes.Equal(is.Encode(), should.Encode()) ||
				!reflect.DeepEqual(is.Transaction(0), should.Transaction(0)) ||
				!reflect.DeepEqual(is.Signatures(), should.Signatures()) {
				t.Errorf("%s, bundle %d differs", name, i)
			}
			taken := found == decoded && i != 1 || found == wrong && i == 1
			if (is.Bundle == found) != taken {
				t.Errorf("%s, bundle %d: taken is %v, want %v", name, i, !taken, taken)
			}
		}
	}
	if _, err := ledger.VerifyBatchWith([]byte("no batch"), nil); err == nil {
		t.Error("no batch was decoded")
	}
}

// BenchmarkVerifyBatchWith verifies a batch of one bundle of 400 transactions, as a node does that
// has its signature verified already: at a node that admitted it, and at one that did not.
func BenchmarkVerifyBatchWith(b *testing.B) {
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	transactions := make([]ledger.Transaction, 400)
	for i := range transactions {
		transactions[i] = client.Transfer("acme:issuer", "acme:a", 1)
	}
	admitted := assembled(b, client.Bundle(transactions...))
	data := ledger.EncodeBatch(ledger.BatchHeader{Time: 5}, [][]byte{admitted.Encode()})
	for name, found := range map[string]*ledger.Bundle{"admitted": admitted, "other": nil} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ledger.VerifyBatchWith(data,
					func([]byte) *ledger.Bundle { return found }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
