package p2p

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// regionDecodeError reports whether a decoder of the region protocol may return err.
func regionDecodeError(err error) bool {
	return errors.Is(err, errRegionProtocol) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}

func TestHostileRegionMessages(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]request{
		"no kind":           {attachment: 1},
		"an unknown kind":   {kind: 9, attachment: 1},
		"no attachment":     {kind: requestWrite},
		"a write too long":  {kind: requestWrite, attachment: 1, length: pieceMax + 1},
		"a read too long":   {kind: requestRead, attachment: 1, length: pieceMax + 1},
		"a read that rings": {kind: requestRead, attachment: 1, ring: true},
		"a name too long": {kind: requestAttach, attachment: 1,
			length: rdmanet.RegionNameMax + 1},
		"no name":                   {kind: requestAttach, attachment: 1},
		"an attach with an offset":  {kind: requestAttach, attachment: 1, length: 1, offset: 8},
		"a detach with a length":    {kind: requestDetach, attachment: 1, length: 1},
		"a detach that rings":       {kind: requestDetach, attachment: 1, ring: true},
		"a detach of no attachment": {kind: requestDetach},
	} {
		if got, err := parseRequest(r.append(nil)); !errors.Is(err, errRegionProtocol) {
			t.Errorf("%s: %+v, error %v", name, got, err)
		}
	}
	for name, r := range map[string]response{
		"no outcome":                {count: 1},
		"an unknown outcome":        {outcome: 77, count: 1},
		"an answer to nothing":      {outcome: outcomeDone},
		"too many bytes":            {outcome: outcomeDone, count: 1, length: pieceMax + 1},
		"bytes for several":         {outcome: outcomeDone, count: 2, length: 8},
		"bytes of a refused access": {outcome: outcomeAccess, count: 1, length: 8},
	} {
		if got, err := parseResponse(r.append(nil)); !errors.Is(err, errRegionProtocol) {
			t.Errorf("%s: %+v, error %v", name, got, err)
		}
	}
	for name, a := range map[string]attached{
		"no size":     {permission: rdmanet.PermissionRead},
		"half a word": {size: 12, permission: rdmanet.PermissionRead},
		"too large": {size: rdmanet.RegionSizeMax + 8,
			permission: rdmanet.PermissionRead},
		"no permission":         {size: 8},
		"an unknown permission": {size: 8, permission: 9},
	} {
		if got, err := parseAttached(a.append(nil)); !errors.Is(err, errRegionProtocol) {
			t.Errorf("%s: %+v, error %v", name, got, err)
		}
	}
}

func FuzzRegionHello(f *testing.F) {
	f.Add(regionHello{sender: 7, receiver: 5, opening: 2}.append(nil))
	f.Add(regionHello{sender: 7, opening: 2, trusted: true}.append(nil))
	f.Add(regionAnswer{status: statusWelcome, incarnation: 9}.append(nil))
	f.Add(regionAnswer{status: statusClosing, incarnation: 1}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readRegionHello(bytes.NewReader(b))
		if err == nil && !bytes.Equal(h.append(nil), b[:regionHelloSize]) || err != nil &&
			!regionDecodeError(err) {
			t.Fatalf("%x gave %+v, error %v", b, h, err)
		}
		a, err := readRegionAnswer(bytes.NewReader(b))
		if err == nil && !bytes.Equal(a.append(nil), b[:regionAnswerSize]) || err != nil &&
			!regionDecodeError(err) {
			t.Fatalf("%x gave %+v, error %v", b, a, err)
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add(request{kind: requestWrite, ring: true, attachment: 3, offset: 1 << 29,
		length: 64}.append(nil))
	f.Add(request{kind: requestRead, attachment: 3, offset: 8, length: pieceMax}.append(nil))
	f.Add(request{kind: requestAttach, attachment: 3, length: 3}.append(nil))
	f.Add(request{kind: requestDetach, attachment: 3}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < requestSize {
			return
		}
		r, err := parseRequest(b)
		if err == nil && !bytes.Equal(r.append(nil), b[:requestSize]) || err != nil &&
			!errors.Is(err, errRegionProtocol) {
			t.Fatalf("%x gave %+v, error %v", b, r, err)
		}
	})
}

func FuzzResponse(f *testing.F) {
	f.Add(response{outcome: outcomeDone, count: responsesMax}.append(nil))
	f.Add(response{outcome: outcomeAccess, count: 1}.append(nil))
	f.Add(response{outcome: outcomeDone, count: 1, length: pieceMax}.append(nil))
	f.Add(attached{size: 4096, permission: rdmanet.PermissionRead}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < responseSize {
			return
		}
		r, err := parseResponse(b)
		if err == nil && !bytes.Equal(r.append(nil), b[:responseSize]) || err != nil &&
			!errors.Is(err, errRegionProtocol) {
			t.Fatalf("%x gave %+v, error %v", b, r, err)
		}
		a, err := parseAttached(b)
		if err == nil && !bytes.Equal(a.append(nil), b[:attachedSize]) || err != nil &&
			!errors.Is(err, errRegionProtocol) {
			t.Fatalf("%x gave %+v, error %v", b, a, err)
		}
	})
}

// TestPieces checks that the pieces of an operation are its bytes, in order, within the bound, and
// cut between words of the region.
func TestPieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		near := rapid.IntRange(0, 3).Draw(t, "pieces") * pieceMax
		operation := rdmanet.Operation{
			Offset: rapid.IntRange(0, 20).Draw(t, "offset"),
			Bytes:  make([]byte, max(0, near+rapid.IntRange(-20, 20).Draw(t, "more"))),
		}
		count, sum := pieces(&operation), 0
		for i := range count {
			from, until := pieceOf(&operation, i)
			if from != sum || until < from || until-from > pieceMax || from == until &&
				len(operation.Bytes) > 0 {
				t.Fatalf("piece %d of %d is %d to %d, after %d", i, count, from, until, sum)
			}
			if until < len(operation.Bytes) && (operation.Offset+until)%rdmanet.WordSize != 0 {
				t.Fatalf("piece %d ends within a word, at %d", i, operation.Offset+until)
			}
			sum = until
		}
		if sum != len(operation.Bytes) {
			t.Fatalf("%d pieces have %d bytes of %d", count, sum, len(operation.Bytes))
		}
	})
}
