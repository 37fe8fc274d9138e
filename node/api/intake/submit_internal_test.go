package intake

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// submission returns an encoded SubmitRequest.
func submission(tb testing.TB, transactions int) []byte {
	tb.Helper()
	request := &ledgerdv1.SubmitRequest{Bundle: &ledgerdv1.Bundle{
		Signatures: []*ledgerdv1.Signature{{Organisation: "acmé", PublicKey: make([]byte, 32),
			Signature: make([]byte, 64)}, {}}}, Wait: ledgerdv1.Level_LEVEL_DURABLE}
	for i := range transactions {
		request.Bundle.Transactions = append(request.Bundle.Transactions,
			bytes.Repeat([]byte{byte(i)}, 130))
	}
	data, err := proto.Marshal(request)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// checkSubmit reads a SubmitRequest and reports whether readSubmit can. If it can, protobuf's
// decoder can, with the same result, which keeps nothing of the data.
func checkSubmit(t *testing.T, data []byte) bool {
	t.Helper()
	got, want := new(ledgerdv1.SubmitRequest), new(ledgerdv1.SubmitRequest)
	got.Wait = ledgerdv1.Level_LEVEL_ORDERED // of an earlier use
	given := bytes.Clone(data)
	if !readSubmit(given, got) {
		return false
	}
	clear(given)
	if err := proto.Unmarshal(data, want); err != nil || !proto.Equal(got, want) {
		t.Fatalf("%x is read as %v, want %v, %v", data, got, want, err)
	}
	for i, transaction := range got.GetBundle().GetTransactions() {
		if cap(transaction) != len(transaction) {
			t.Fatalf("transaction %d may be appended to over the next", i)
		}
	}
	return true
}

// Requests as encoders write them are read by hand, and all others by protobuf's decoder.
func TestReadSubmit(t *testing.T) {
	t.Parallel()
	one := submission(t, 1)
	twice := append(bytes.Clone(one), one...)
	for name, want := range map[string]struct {
		data []byte
		good bool
	}{
		"nothing":            {nil, true},
		"a bundle":           {one, true},
		"many transactions":  {submission(t, 400), true},
		"two bundles":        {twice, false},
		"an unknown field":   {append(bytes.Clone(one), 9<<3, 1), false},
		"a bundle's number":  {[]byte{0x0a, 2, 1 << 3, 1}, false},
		"a signature's":      {[]byte{0x0a, 4, 0x12, 2, 1 << 3, 1}, false},
		"a fixed number":     {protowire.AppendTag(nil, 2, protowire.Fixed32Type), false},
		"the wrong kind":     {[]byte{1 << 3, 0}, false},
		"cut off":            {one[:len(one)-1], false},
		"a name, not UTF-8":  {[]byte{0x0a, 5, 0x12, 3, 0x0a, 1, 0xff}, false},
		"a level, sign bits": {protowire.AppendVarint([]byte{2 << 3}, ^uint64(0)), true},
	} {
		if good := checkSubmit(t, want.data); good != want.good {
			t.Errorf("%s is read by hand: %v", name, good)
		}
		into, same := new(ledgerdv1.SubmitRequest), new(ledgerdv1.SubmitRequest)
		err, wantErr := unmarshal(want.data, into), proto.Unmarshal(want.data, same)
		if (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(into, same) {
			t.Errorf("%s: %v, %v; protobuf reads %v, %v", name, into, err, same, wantErr)
		}
	}
}

// Whatever is read by hand is read in the same way by protobuf's decoder.
func FuzzReadSubmit(f *testing.F) {
	f.Add(submission(f, 0))
	f.Add(submission(f, 3))
	f.Add([]byte{0x0a, 2, 0x0a, 0, 0x10, 1, 0x10, 2})
	f.Fuzz(func(t *testing.T, data []byte) { checkSubmit(t, data) })
}

// BenchmarkUnmarshalSubmit decodes a bundle of 400 transactions.
func BenchmarkUnmarshalSubmit(b *testing.B) {
	data := submission(b, 400)
	for name, decode := range map[string]func([]byte, proto.Message) error{
		"ours": unmarshal, "protobuf": proto.Unmarshal,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(data, new(ledgerdv1.SubmitRequest)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
