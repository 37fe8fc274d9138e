package ledger

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestVerifiersAgreeOnEdgeCases pins what counts as a good signature. All nodes have to agree, or
// their chains part: alone and in a batch, with a key that was seen before and with a new one.
func TestVerifiersAgreeOnEdgeCases(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/ed25519-edge-cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	seed := bytes.Repeat([]byte{7}, ed25519.SeedSize)
	private := ed25519.NewKeyFromSeed(seed)
	good := signed{message: []byte("good"), signatures: make([]Signature, 1)}
	copy(good.signatures[0].Key[:], private[ed25519.SeedSize:])
	copy(good.signatures[0].Bytes[:], ed25519.Sign(private, good.message))
	cases := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cases++
		fields := strings.Fields(line)
		decoded := make([][]byte, 3)
		for i := range decoded {
			if decoded[i], err = hex.DecodeString(fields[i]); err != nil {
				t.Fatal(err)
			}
		}
		edge := signed{message: decoded[0], signatures: make([]Signature, 1)}
		copy(edge.signatures[0].Key[:], decoded[1])
		copy(edge.signatures[0].Bytes[:], decoded[2])
		want := -1
		if fields[3] == "false" {
			want = 0
		}
		v := NewVerifier()
		for _, seen := range []bool{false, true} {
			for name, batch := range map[string][]signed{"alone": {edge},
				"with itself":       {edge, edge},
				"before a good one": {edge, good}, "after good ones": {good, good, edge}} {
				got := v.verify(batch)
				for i := range batch {
					expected := -1
					if batch[i].signatures[0] == edge.signatures[0] {
						expected = want
					}
					if got[i] != expected {
						t.Errorf("case %d, %s, key seen %v: element %d: %d, want %d", cases-1, name,
							seen, i, got[i], expected)
					}
				}
			}
		}
	}
	if cases != 12 {
		t.Errorf("%d cases, want 12", cases)
	}
}

// signedBundle makes a bundle of one record, signed by a key of acme.
func signedBundle(t *testing.T, key byte, nonce uint64) *Bundle {
	t.Helper()
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{key}, ed25519.SeedSize))
	bundle, err := NewBundle(Transaction{Signer: "acme", Nonce: Nonce{Sequence: nonce},
		Records: []Record{{Key: "acme:k", Value: []byte{key}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := bundle.Sign("acme", private); err != nil {
		t.Fatal(err)
	}
	return bundle
}

// spoiled returns the encoding of a bundle with a wrong signature.
func spoiled(t *testing.T, bundle *Bundle) []byte {
	t.Helper()
	encoded := bytes.Clone(bundle.Encode())
	encoded[len(encoded)-1] ^= 1
	if _, err := DecodeBundle(encoded); err != nil {
		t.Fatal(err)
	}
	return encoded
}

// TestForgedBundlesAreFound: in a batch of many bundles, exactly those with a wrong signature are
// forged, and those that cannot be decoded are malformed.
func TestForgedBundlesAreFound(t *testing.T) {
	t.Parallel()
	for _, forged := range [][]int{{}, {0}, {4}, {1, 3}, {0, 1, 2, 3, 4}} {
		batch := Batch{Header: BatchHeader{Time: 5}}
		wrong := map[int]bool{}
		for _, i := range forged {
			wrong[i] = true
		}
		for i := range 5 {
			bundle := signedBundle(t, byte(i%2+1), uint64(i))
			if wrong[i] {
				batch.Bundles = append(batch.Bundles, spoiled(t, bundle))
			} else {
				batch.Bundles = append(batch.Bundles, bundle.Encode())
			}
		}
		batch.Bundles = append(batch.Bundles, []byte("no bundle"))
		verified, err := VerifyBatch(batch.Encode())
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range verified.Proposals {
			is := errors.Is(p.Err, ErrSignature)
			malformed := i == 5
			if is != wrong[i] || (p.Err == nil) == (wrong[i] || malformed) ||
				(p.Bundle == nil) != malformed {
				t.Errorf("forged %v: bundle %d: %v", forged, i, p.Err)
			}
		}
		if count, _ := verified.Forged(); count != len(forged) {
			t.Errorf("forged %v: counts %d", forged, count)
		}
	}
}

// TestGoodSignaturesAreRemembered: what was verified is known afterwards, exactly: not with another
// key, other bytes or for another message. What is wrong is never remembered, and the memory is
// bounded.
func TestGoodSignaturesAreRemembered(t *testing.T) {
	t.Parallel()
	v := NewVerifier()
	bundle := signedBundle(t, 1, 1)
	good := signed{bundle.SigningMessage(), bundle.Signatures()}
	other := signed{signedBundle(t, 1, 2).SigningMessage(), bundle.Signatures()}
	if v.known(&good) || v.verify([]signed{good, other})[0] != -1 || !v.known(&good) {
		t.Error("a good signature is not known once it was verified")
	}
	first := &good.signatures[0]
	if !v.good(first, good.message) || v.good(first, other.message) {
		t.Error("one signature of a message is good for that message, and for no other")
	}
	if v.known(&other) {
		t.Error("a signature of another message is known")
	}
	for _, spoil := range []func(*Signature){
		func(s *Signature) { s.Bytes[63] ^= 1 }, func(s *Signature) { s.Bytes[0] ^= 1 },
		func(s *Signature) { s.Key[0] ^= 1 },
	} {
		wrong := signed{good.message, []Signature{good.signatures[0]}}
		spoil(&wrong.signatures[0])
		both := signed{good.message, []Signature{good.signatures[0], wrong.signatures[0]}}
		if v.known(&wrong) || v.known(&both) || v.verify([]signed{wrong})[0] != 0 ||
			v.verify([]signed{both})[0] != 1 || v.known(&wrong) || v.known(&both) ||
			v.good(&wrong.signatures[0], wrong.message) {
			t.Errorf("%+v is taken for the good one", wrong.signatures[0])
		}
	}
	wrong := other.signatures[0]
	two := []Signature{wrong, wrong}
	if at := NewVerifier().verify([]signed{{other.message, two}}); at[0] != 0 {
		t.Errorf("the first of two wrong signatures is %d", at[0])
	}
	if v.known(&signed{message: good.message}) {
		t.Error("no signatures are known")
	}
	for i := range 3 * verifierMessages {
		v.remember(&signed{[]byte(fmt.Sprint(i)), good.signatures})
	}
	if len(v.recent) > verifierMessages || len(v.older) > verifierMessages || v.known(&good) {
		t.Errorf("remembers %d and %d messages", len(v.recent), len(v.older))
	}
}

// TestManySignaturesOfAMessageAreRemembered: the consents of many organisations to a bundle, and
// the members' signatures of the same voucher, one after the other. Both stay bounded.
func TestManySignaturesOfAMessageAreRemembered(t *testing.T) {
	t.Parallel()
	v := NewVerifier()
	seal := func(message, number int) Signature {
		var s Signature
		binary.BigEndian.PutUint64(s.Key[:], uint64(message)<<32|uint64(number))
		return s
	}
	all := func(message, count int) signed {
		many := signed{message: []byte(fmt.Sprint("message ", message))}
		for i := range count {
			many.signatures = append(many.signatures, seal(message, i))
		}
		return many
	}
	most := all(0, MaxBundleSignatures)
	for i := range most.signatures {
		v.remember(&signed{most.message, most.signatures[i : i+1]})
		v.remember(&signed{most.message, most.signatures[:1]}) // again
	}
	if !v.known(&most) || v.signatures != MaxBundleSignatures {
		t.Errorf("remembers %d signatures of a message, and not all that it was shown",
			v.signatures)
	}
	one := signed{most.message, []Signature{seal(1, 0)}}
	if v.remember(&one); !v.known(&one) || v.known(&most) || v.signatures != MaxBundleSignatures {
		t.Errorf("remembers %d signatures of a message that has more than a bundle may have",
			v.signatures)
	}
	last := verifierSignatures/MaxBundleSignatures + 1
	for message := range last {
		many := all(message+2, MaxBundleSignatures)
		if v.remember(&many); !v.known(&many) {
			t.Fatalf("message %d is not known", message)
		}
		count := 0
		for _, good := range v.recent {
			count += len(good)
		}
		if v.signatures != count || count > verifierSignatures {
			t.Fatalf("remembers %d signatures, and counts %d", count, v.signatures)
		}
	}
	if count := len(v.recent); count >= last || len(v.older) == 0 {
		t.Errorf("all %d messages are recent", count)
	}
}

// TestBatchesKeepTheirOrder: VerifyBatches returns batches in their order, without empty ones.
func TestBatchesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	var payloads [][]byte
	for i := range 20 {
		payloads = append(payloads, nil, EncodeBatch(BatchHeader{Time: Milliseconds(i)},
			[][]byte{signedBundle(t, byte(i), uint64(i)).Encode()}), []byte("no batch"))
	}
	verified := VerifyBatches(payloads)
	if len(verified) != 40 {
		t.Fatalf("%d batches, want 40", len(verified))
	}
	for i, batch := range verified {
		if malformed := i%2 == 1; (batch == nil) != malformed {
			t.Errorf("batch %d: %+v", i, batch)
		} else if !malformed && batch.Header.Time != Milliseconds(i/2) {
			t.Errorf("batch %d has time %d", i, batch.Header.Time)
		}
	}
	if got := VerifyBatches(nil); len(got) != 0 {
		t.Errorf("no batches: %v", got)
	}
}

// FuzzVerifyBatch: no batch makes the verifier panic, and a bundle is as good in the batch as
// alone.
func FuzzVerifyBatch(f *testing.F) {
	good, err := NewBundle(Transaction{Signer: "acme"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(EncodeBatch(BatchHeader{}, [][]byte{good.Encode(), nil}))
	f.Fuzz(func(t *testing.T, data []byte) {
		verified, err := VerifyBatch(data)
		if err != nil {
			return
		}
		for i, p := range verified.Proposals {
			if p.Bundle == nil {
				continue
			}
			alone := NewVerifier().Bundles([]*Bundle{p.Bundle})[0]
			if (alone == nil) != (p.Err == nil) {
				t.Errorf("bundle %d: %v in the batch, %v alone", i, p.Err, alone)
			}
		}
	})
}

// BenchmarkVerifyBatch measures a batch of 400 bundles of one signature, and one of one bundle.
func BenchmarkVerifyBatch(b *testing.B) {
	for _, bundles := range []int{1, 400} {
		b.Run(fmt.Sprint(bundles), func(b *testing.B) {
			private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
			var encoded [][]byte
			for i := range bundles {
				bundle, err := NewBundle(Transaction{Signer: "acme",
					Nonce: Nonce{Sequence: uint64(i)}})
				if err == nil {
					err = bundle.Sign("acme", private)
				}
				if err != nil {
					b.Fatal(err)
				}
				encoded = append(encoded, bundle.Encode())
			}
			data := EncodeBatch(BatchHeader{}, encoded)
			b.ReportAllocs()
			for b.Loop() {
				verifier.recent, verifier.older = map[string][][96]byte{}, nil
				if _, err := VerifyBatch(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
