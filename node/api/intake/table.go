package intake

import (
	"errors"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// base is what a call may take beside its request's bytes.
const base = 16 << 10

// Limits bound one call's request.
type Limits struct {
	// Bytes bounds the encoded request.
	Bytes int
	// Growth bounds the decoded form's bytes a byte of the encoded form.
	Growth int
	// Memory bounds the decoded form's bytes.
	Memory int
	// Each says that the client streams requests, and that the bounds are those of each of them.
	Each bool
}

// Needs returns what a request of so many bytes takes at most, beside base: its bytes, in a buffer
// that grows by doubling, and its decoded form.
func (l Limits) Needs(bytes int) int64 {
	return int64(copies*bytes + min(l.Growth*bytes, l.Memory))
}

// Encoded returns the part of Needs that is free once the request is decoded.
func (l Limits) Encoded(bytes int) int64 { return int64(copies * bytes) }

// copies is how often a request's bytes are in memory until it is decoded.
const copies = 2

// ordinary bounds the calls that the table does not name: they ask for one thing.
var ordinary = Limits{Bytes: 64 << 10, Growth: 8, Memory: 256 << 10}

// calls bounds the calls that carry more. A bundle has at most a mebibyte; JSON writes its bytes in
// base64. The parts of a bundle for Prepare are longer than its canonical bytes, and grow more.
var calls = map[string]Limits{
	"Submit":           {Bytes: 2 * ledger.MaxBundleBytes, Growth: 4, Memory: 8 << 20},
	"SubmitStream":     {Bytes: 2 * ledger.MaxBundleBytes, Growth: 4, Memory: 8 << 20},
	"DryRun":           {Bytes: 2 * ledger.MaxBundleBytes, Growth: 4, Memory: 8 << 20},
	"SubmitMany":       {Bytes: 16 << 20, Growth: 4, Memory: 64 << 20},
	"Prepare":          {Bytes: 4 * ledger.MaxBundleBytes, Growth: 32, Memory: 32 << 20},
	"WaitTransactions": {Bytes: 2 << 20, Growth: 4, Memory: 4 << 20},
	"GetAccount":       ofCut,
	"ListAccounts":     ofCut,
	"GetAsset":         ofCut,
	"ListAssets":       ofCut,
}

// ofCut bounds the calls that may name a cut: a place of each shard, which is short.
var ofCut = Limits{Bytes: 256 << 10, Growth: 64, Memory: 640 << 10}

// MaxWaited bounds the transactions of one WaitTransactions call.
const MaxWaited = 16_384

// MaxAssetNames bounds the names of one ListAssets call.
const MaxAssetNames = 100

// MaxMetadata bounds the metadata that one ListHistory call filters by.
const MaxMetadata = 8

// counts bounds the elements of each list of a request. A list without a line holds none.
var counts = map[protoreflect.FullName]int{
	"ledgerd.v1.Bundle.transactions":                  ledger.MaxBundleTransactions,
	"ledgerd.v1.Bundle.signatures":                    ledger.MaxBundleSignatures,
	"ledgerd.v1.PrepareRequest.transactions":          ledger.MaxBundleTransactions,
	"ledgerd.v1.WaitTransactionsRequest.ids":          MaxWaited,
	"ledgerd.v1.TransactionBody.organisations":        ledger.MaxRegistrations,
	"ledgerd.v1.TransactionBody.accounts":             ledger.MaxOpenings,
	"ledgerd.v1.TransactionBody.postings":             ledger.MaxPostings,
	"ledgerd.v1.TransactionBody.records":              ledger.MaxRecords,
	"ledgerd.v1.OrganisationRegistration.public_keys": ledger.MaxKeys,
	"ledgerd.v1.SubscribeRequest.begin":               ledger.MaxShards,
	"ledgerd.v1.GetAccountRequest.cut":                ledger.MaxShards,
	"ledgerd.v1.ListAccountsRequest.cut":              ledger.MaxShards,
	"ledgerd.v1.GetAssetRequest.cut":                  ledger.MaxShards,
	"ledgerd.v1.ListAssetsRequest.cut":                ledger.MaxShards,
	"ledgerd.v1.ListAssetsRequest.names":              MaxAssetNames,
	"ledgerd.v1.ListHistoryRequest.metadata":          MaxMetadata,
	"ledgerd.v1.Schedule.postings":                    ledger.MaxSchedulePostings,
	"ledgerd.v1.Hold.to":                              ledger.MaxHoldAccounts,
	"ledgerd.v1.GetPlaceRequest.streamed":             ledger.MaxShards,
	"ledgerd.v1.Place.streamed":                       ledger.MaxShards,
}

// bundlesOf is the list that the node's options bound.
const bundlesOf = "ledgerd.v1.SubmitManyRequest.bundles"

// Table has the limits of all calls of the service. Make it with NewTable. It is not changed.
type Table struct {
	calls    map[string]*call
	requests map[protoreflect.FullName]*call
}

type call struct {
	limits Limits
	shape  *shape
	// largest is the largest message of the request, and longest the bound of its longest list.
	largest, longest int
}

// shape is what the walks need of a message's type.
type shape struct {
	size   int
	fields map[protoreflect.FieldNumber]*field
	named  map[string]*field // by the names that JSON may use
}

type field struct {
	index   int // in its message
	name    protoreflect.FullName
	message *shape // nil for others
	text    bool   // string or bytes
	varint  bool   // a number whose last byte in the wire form shows that it is the last
	list    bool
	limit   int
}

// NewTable makes the table. No request has more bytes than maxBytes, and no SubmitMany more bundles
// than maxBundles.
func NewTable(maxBytes, maxBundles int) *Table {
	t := &Table{calls: map[string]*call{}, requests: map[protoreflect.FullName]*call{}}
	shapes := map[protoreflect.FullName]*shape{}
	service := ledgerdv1.File_ledgerd_v1_ledgerd_proto.Services().ByName("LedgerService")
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		limits, named := calls[string(method.Name())]
		if !named {
			limits = ordinary
		}
		limits.Bytes = min(limits.Bytes, maxBytes)
		limits.Each = method.IsStreamingClient()
		entry := &call{limits: limits, shape: shapeOf(method.Input(), maxBundles, shapes)}
		entry.measure(entry.shape, map[*shape]bool{})
		t.calls[string(method.Name())] = entry
		t.requests[method.Input().FullName()] = entry
	}
	return t
}

// Of returns a call's limits; an unknown method has those of an ordinary call.
func (t *Table) Of(method string) Limits {
	if entry := t.calls[method]; entry != nil {
		return entry.limits
	}
	return ordinary
}

func shapeOf(message protoreflect.MessageDescriptor, maxBundles int,
	shapes map[protoreflect.FullName]*shape) *shape {
	if found := shapes[message.FullName()]; found != nil {
		return found
	}
	made := &shape{size: sizeOf(message), fields: map[protoreflect.FieldNumber]*field{},
		named: map[string]*field{}}
	shapes[message.FullName()] = made
	for i := range message.Fields().Len() {
		described := message.Fields().Get(i)
		entry := &field{index: i, name: described.FullName(), list: described.IsList(),
			limit: 1}
		if described.Message() != nil {
			entry.message = shapeOf(described.Message(), maxBundles, shapes)
		}
		entry.text = described.Kind() == protoreflect.StringKind ||
			described.Kind() == protoreflect.BytesKind
		entry.varint = described.Kind() == protoreflect.Uint64Kind
		switch {
		case entry.name == bundlesOf:
			entry.limit = maxBundles
		case entry.list || described.IsMap():
			entry.limit = counts[entry.name]
		}
		made.fields[described.Number()] = entry
		made.named[described.JSONName()], made.named[described.TextName()] = entry, entry
	}
	return made
}

// sizeOf returns the bytes of a message's struct, without what it points to.
func sizeOf(message protoreflect.MessageDescriptor) int {
	found, err := protoregistry.GlobalTypes.FindMessageByName(message.FullName())
	if err != nil {
		return 1 << 10 // a type without a struct of its own
	}
	return int(reflect.TypeOf(found.Zero().Interface()).Elem().Size())
}

func (c *call) measure(message *shape, seen map[*shape]bool) {
	if seen[message] {
		return
	}
	seen[message] = true
	c.largest = max(c.largest, message.size)
	for _, entry := range message.fields {
		c.longest = max(c.longest, entry.limit)
		if entry.message != nil {
			c.measure(entry.message, seen)
		}
	}
}

var errGrowth = errors.New("the request takes too much memory for its size: send fewer or fuller " +
	"elements")

// spending is the memory that a request may still take.
type spending struct{ left int }

// take takes memory for something new: its bytes, and what the allocator and a growing list add.
func (s *spending) take(bytes int) error {
	s.left -= bytes
	if s.left < 0 {
		return errGrowth
	}
	return nil
}

// spendingFor returns what a request of a size may take.
func (c *call) spendingFor(bytes int) *spending {
	return &spending{left: min(c.limits.Memory, c.limits.Growth*bytes+base)}
}

func tooMany(name protoreflect.FullName, limit int) error {
	return fmt.Errorf("%s: more than the %d that a request may have", name, limit)
}
