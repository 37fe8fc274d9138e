package intake

import (
	"bytes"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// unmarshal decodes a request in the wire form that CheckWire has accepted.
func unmarshal(data []byte, into proto.Message) error {
	if request, is := into.(*ledgerdv1.SubmitRequest); is && readSubmit(data, request) {
		return nil
	}
	return proto.Unmarshal(data, into)
}

// Fields of the messages that readSubmit reads.
const (
	submitBundle          = 1
	submitWait            = 2
	bundleTransactions    = 1
	bundleSignatures      = 2
	bundlePacked          = 3
	signatureOrganisation = 1
	signatureKey          = 2
	signatureBytes        = 3
)

// readSubmit decodes a SubmitRequest as encoders write it. The transactions are parts of one copy
// of the data, where protobuf's decoder copies each by itself. It reports false for any other form,
// with unknown fields or two bundles to merge: then the message is undefined, and protobuf's
// decoder has to read the data.
func readSubmit(data []byte, into *ledgerdv1.SubmitRequest) bool {
	into.Reset()
	return eachField(bytes.Clone(data), func(field protowire.Number, value []byte) bool {
		if field != submitBundle || into.Bundle != nil {
			return false
		}
		into.Bundle = new(ledgerdv1.Bundle)
		return readBundle(value, into.Bundle)
	}, func(field protowire.Number, value uint64) bool {
		into.Wait = ledgerdv1.Level(int32(value))
		return field == submitWait
	})
}

func readBundle(data []byte, into *ledgerdv1.Bundle) bool {
	transactions := 0
	if !eachField(data, func(field protowire.Number, _ []byte) bool {
		if field == bundleTransactions {
			transactions++
		}
		return true
	}, noNumber) {
		return false
	}
	into.Transactions = make([][]byte, 0, transactions)
	return eachField(data, func(field protowire.Number, value []byte) bool {
		switch field {
		case bundleTransactions:
			into.Transactions = append(into.Transactions, value)
			return true
		case bundlePacked:
			into.Packed = value
			return true
		case bundleSignatures:
			signature := new(ledgerdv1.Signature)
			into.Signatures = append(into.Signatures, signature)
			return readSignature(value, signature)
		}
		return false
	}, noNumber)
}

func readSignature(data []byte, into *ledgerdv1.Signature) bool {
	return eachField(data, func(field protowire.Number, value []byte) bool {
		switch field {
		case signatureOrganisation:
			into.Organisation = string(value)
			return utf8.Valid(value)
		case signatureKey:
			into.PublicKey = value
			return true
		case signatureBytes:
			into.Signature = value
			return true
		}
		return false
	}, noNumber)
}

// eachField passes the fields of a message to functions for those with a length and for numbers,
// until one of them returns false. It reports whether all returned true, and there is nothing else.
func eachField(data []byte, lengthed func(protowire.Number, []byte) bool,
	number func(protowire.Number, uint64) bool) bool {
	for len(data) > 0 {
		field, kind, length := protowire.ConsumeTag(data)
		if length < 0 {
			return false
		}
		data = data[length:]
		switch kind {
		case protowire.BytesType:
			value, length := protowire.ConsumeBytes(data)
			if length < 0 || !lengthed(field, value[:len(value):len(value)]) {
				return false
			}
			data = data[length:]
		case protowire.VarintType:
			value, length := protowire.ConsumeVarint(data)
			if length < 0 || !number(field, value) {
				return false
			}
			data = data[length:]
		default:
			return false
		}
	}
	return true
}

// noNumber refuses numbers, for messages that have none.
func noNumber(protowire.Number, uint64) bool { return false }
