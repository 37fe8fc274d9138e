package intake_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/intake"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

func messageOf(name protoreflect.FullName) proto.Message {
	found, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		panic(err)
	}
	return found.New().Interface()
}

// longest is the bound of each list that a request may have.
var longest = map[protoreflect.Name]int{
	"bundles": 256, "ids": intake.MaxWaited, "signatures": ledger.MaxBundleSignatures,
	"postings": ledger.MaxPostings, "accounts": ledger.MaxOpenings, "records": ledger.MaxRecords,
	"organisations": ledger.MaxRegistrations, "public_keys": ledger.MaxKeys,
	"transactions": ledger.MaxBundleTransactions, "begin": ledger.MaxShards,
	"cut": ledger.MaxShards, "streamed": ledger.MaxShards,
}

// within reports whether all lists of a decoded message are within their bounds.
func within(message protoreflect.Message) (good bool) {
	good = true
	message.Range(func(described protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case described.IsList():
			good = good && value.List().Len() <= longest[described.Name()]
			for i := 0; described.Message() != nil && i < value.List().Len(); i++ {
				good = good && within(value.List().Get(i).Message())
			}
		case described.Message() != nil:
			good = good && within(value.Message())
		}
		return good
	})
	return good
}

func seeds(f *testing.F, marshal func(proto.Message) ([]byte, error)) []string {
	var names []string
	for name := range requests() {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		f.Add(uint8(i), []byte("\x0a\x00\x0a\x00"))
		f.Add(uint8(i), []byte(`{"transactions":[{},{}],"x":[[["\""]]]}`))
		if name != "Prepare" {
			continue
		}
		data, err := marshal(&ledgerdv1.PrepareRequest{Transactions: []*ledgerdv1.TransactionBody{{
			Signer: "a", Nonce: &ledgerdv1.Nonce{Sequence: 1},
			Organisations: []*ledgerdv1.OrganisationRegistration{{Name: "a",
				PublicKeys: [][]byte{make([]byte, 32)}}},
			Postings: []*ledgerdv1.Posting{{Account: "a:b", Amount: "1"}}}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
	}
	return names
}

// Whatever passes the walk of the wire form decodes to lists within their bounds.
func FuzzCheckWire(f *testing.F) {
	names := seeds(f, proto.Marshal)
	empty := requests()
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		into := proto.Clone(empty[names[int(kind)%len(names)]])
		if table.CheckWire(nameOf(into), data) == nil && proto.Unmarshal(data, into) == nil &&
			!within(into.ProtoReflect()) {
			t.Fatalf("%T: a list is over its bound", into)
		}
	})
}

// Whatever passes the walk of JSON decodes to a message that passes the walk of the wire form,
// except that a walk of JSON may know less of a list's place.
func FuzzCheckJSON(f *testing.F) {
	names := seeds(f, protojson.Marshal)
	empty := requests()
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		into := proto.Clone(empty[names[int(kind)%len(names)]])
		if table.CheckJSON(nameOf(into), data) != nil ||
			protojson.Unmarshal(data, into) != nil {
			return
		}
		if proto.Size(into) > len(data)+16<<10 {
			t.Fatalf("%T: %d bytes of JSON become %d", into, len(data), proto.Size(into))
		}
	})
}
