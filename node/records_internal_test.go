package node

import (
	"crypto/sha256"
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

func exampleRecord() (shard.Record, []order.Delivery) {
	messages := []order.Message{{Origin: 1, Payload: []byte{}}, {Origin: 4, Payload: []byte("a")}}
	return shard.Record{Run: 7 << 16, Height: 5, Hash: [32]byte{9}, After: 11},
		[]order.Delivery{{Epoch: 3, Round: 12, Messages: messages[:1]},
			{Epoch: 3, Round: 13, Messages: messages}}
}

func TestRecordsRoundTrip(t *testing.T) {
	t.Parallel()
	want, rounds := exampleRecord()
	whole := encodeRecord(&want, rounds)
	var contents [][]byte
	got, err := decodeRecord(whole, func(content []byte) [32]byte {
		contents = append(contents, content)
		return sha256.Sum256(content)
	})
	if err != nil || len(contents) != 2 || got.Run != want.Run || got.Height != want.Height ||
		got.Hash != want.Hash || got.After != want.After || got.Last() != 13 ||
		!reflect.DeepEqual(got.Names(), want.Names()) ||
		!reflect.DeepEqual(got.Rounds[1].Origins, []order.ServerID{1, 4}) ||
		got.Rounds[1].Content != sha256.Sum256(encodeRound(rounds[1])) {
		t.Fatalf("%+v, %v", got, err)
	}
	first := recordHeadSize + 4 + len(encodeRound(rounds[0]))
	for length := range whole {
		_, err := decodeRecord(whole[:length], func(content []byte) [32]byte { return [32]byte{} })
		if (err == nil) != (length == first) {
			t.Errorf("%d of %d bytes: %v", length, len(whole), err)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	record, rounds := exampleRecord()
	f.Add(encodeRecord(&record, rounds))
	f.Add(encodeRecord(&record, rounds[1:]))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		r, err := decodeRecord(b, func(content []byte) [32]byte {
			again = binary.LittleEndian.AppendUint32(again, uint32(len(content)))
			again = append(again, content...)
			return sha256.Sum256(content)
		})
		if err == nil && (len(r.Rounds) == 0 || string(b[recordHeadSize:]) != string(again)) {
			t.Fatalf("%x was taken and means %+v", b, r)
		}
	})
}

func FuzzDecodeRecorded(f *testing.F) {
	f.Add(encodeRecorded(5, []shard.Recorded{{Round: 4, Epoch: 2}}))
	f.Add(encodeRecorded(5, []shard.Recorded{{Round: 4, Epoch: 2}, {Round: 5, Epoch: 2}}))
	f.Add(encodeRecorded(5, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		run, rounds := decodeRecorded(b)
		if len(rounds) > recordedMax {
			t.Fatalf("%d rounds", len(rounds))
		}
		if len(rounds) > 0 && string(encodeRecorded(run, rounds)) != string(b) {
			t.Fatalf("%x was taken and means %d, %+v", b, run, rounds)
		}
	})
}
