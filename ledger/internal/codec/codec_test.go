package codec_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// A reader reads what was appended. Cut short, or followed by another byte, it is malformed.
func TestReaderReadsWhatWasAppended(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text, yes := rapid.String().Draw(t, "text"), rapid.Bool().Draw(t, "yes")
		number := rapid.Uint64().Draw(t, "number")
		high, low := rapid.Uint64().Draw(t, "high"), rapid.Uint64().Draw(t, "low")
		negative := rapid.Bool().Draw(t, "negative") && high|low != 0
		data := codec.AppendBool(codec.AppendString(nil, text), yes)
		data = codec.AppendAmount(data, negative, high, low)
		data = binary.AppendUvarint(data, number)
		data = binary.BigEndian.AppendUint64(data, number)
		read := func(data []byte) error {
			r := codec.Reader{Data: data}
			readText, readYes := r.String("bytes", 1<<20), r.Bool()
			readNegative, readHigh, readLow := r.Amount()
			readNumber, fixed := r.Uvarint(), r.Uint64()
			if r.Err == nil && (readText != text || readYes != yes || readNegative != negative ||
				readHigh != high || readLow != low || readNumber != number || fixed != number) {
				t.Fatalf("%x reads as other values", data)
			}
			return r.End()
		}
		if err := read(data); err != nil {
			t.Fatal(err)
		}
		if err := read(append(data, 0)); !errors.Is(err, codec.ErrMalformed) {
			t.Fatalf("a byte too many: %v", err)
		}
		cut := rapid.IntRange(0, len(data)-1).Draw(t, "cut")
		if err := read(data[:cut]); !errors.Is(err, codec.ErrMalformed) {
			t.Fatalf("%d of %d bytes: %v", cut, len(data), err)
		}
	})
}

// Each value has one encoding.
func TestReaderRefusesOtherForms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data []byte
		read func(*codec.Reader)
	}{
		"a boolean of 2":        {[]byte{2}, func(r *codec.Reader) { r.Bool() }},
		"a long uvarint":        {[]byte{0x81, 0}, func(r *codec.Reader) { r.Uvarint() }},
		"a uvarint of 65 bits":  {[]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 2}, uvarint},
		"a shard of 33 bits":    {[]byte{255, 255, 255, 255, 16}, shard},
		"an amount of minus 0":  {[]byte{0x80}, amount},
		"a magnitude that is 0": {[]byte{1, 0}, amount},
		"a magnitude that is long": {[]byte{17, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
			16, 17}, amount},
		"a count above the bound": {[]byte{3, 1, 2, 3}, func(r *codec.Reader) { r.Bytes("", 2) }},
		"a count beyond the data": {[]byte{2, 1, 2}, func(r *codec.Reader) { r.Count("", 9, 2) }},
	} {
		r := codec.Reader{Data: c.data}
		c.read(&r)
		if !errors.Is(r.Err, codec.ErrMalformed) || len(r.Data) > 0 {
			t.Errorf("%s: %v, %d bytes left", name, r.Err, len(r.Data))
		}
	}
}

func uvarint(r *codec.Reader) { r.Uvarint() }

func shard(r *codec.Reader) { r.Uvarint32("shard") }

func amount(r *codec.Reader) { r.Amount() }
