package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// described is the description that a node serves, for a check of what it answers.
type described struct {
	t        *testing.T
	door     string
	compiler *jsonschema.Compiler
	methods  map[string]any // of the description's paths
}

const servicePath = "/ledgerd.v1.LedgerService/"

// describedBy reads a node's description. In it, no message may have fields that it does not name.
func describedBy(t *testing.T, door string) *described {
	t.Helper()
	answer, err := http.Get(door + "/openapi.json")
	must(t, err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK ||
		answer.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("the description: %s, %s", answer.Status, answer.Header.Get("Content-Type"))
	}
	document, err := jsonschema.UnmarshalJSON(answer.Body)
	must(t, err)
	whole := document.(map[string]any)
	schemas := whole["components"].(map[string]any)["schemas"].(map[string]any)
	for _, schema := range schemas {
		schema := schema.(map[string]any)
		if schema["type"] == "object" {
			schema["additionalProperties"] = false
		}
	}
	d := &described{t: t, door: door, compiler: jsonschema.NewCompiler(),
		methods: whole["paths"].(map[string]any)}
	d.compiler.AssertContent()
	d.compiler.DefaultDraft(jsonschema.Draft2020) // that of OpenAPI 3.1
	must(t, d.compiler.AddResource("openapi.json", document))
	return d
}

// valid reports what is wrong with JSON as an instance of a schema.
func (d *described) valid(schema string, text []byte) error {
	d.t.Helper()
	compiled, err := d.compiler.Compile("openapi.json#/components/schemas/" + schema)
	must(d.t, err)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return compiled.Validate(value)
}

// check checks an answer of a call, or the error of one that failed.
func (d *described) check(method string, status int, header http.Header, text []byte) {
	d.t.Helper()
	operation := d.methods[servicePath+method].(map[string]any)["post"].(map[string]any)
	responses := operation["responses"].(map[string]any)
	if responses[fmt.Sprint(status)] == nil {
		d.t.Errorf("%s answers %d, which is not described", method, status)
	}
	schema := "Error"
	if status == http.StatusOK {
		content := responses["200"].(map[string]any)["content"].(map[string]any)
		reference := content["application/json"].(map[string]any)["schema"].(map[string]any)
		schema = strings.TrimPrefix(reference["$ref"].(string), "#/components/schemas/")
	} else if header.Get("Content-Type") != "application/json" {
		d.t.Errorf("%s: the error is %s", method, header.Get("Content-Type"))
	}
	if err := d.valid(schema, text); err != nil {
		d.t.Errorf("%s, %d: %s\n%v", method, status, text, err)
	}
	if status == http.StatusOK {
		return
	}
	var failed struct{ Code string }
	must(d.t, json.Unmarshal(text, &failed))
	if !slices.Contains(errorStatuses[fmt.Sprint(status)], failed.Code) {
		d.t.Errorf("%s: code %s with status %d", method, failed.Code, status)
	}
}

// post makes a call and returns its status.
func (d *described) post(method, request string) int {
	d.t.Helper()
	answer, err := http.Post(d.door+servicePath+method, "application/json",
		strings.NewReader(request))
	return d.answered(method, answer, err)
}

func (d *described) answered(method string, answer *http.Response, err error) int {
	d.t.Helper()
	must(d.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(d.t, err)
	d.check(method, answer.StatusCode, answer.Header, text)
	return answer.StatusCode
}

// stream makes a call whose answer is a stream, and checks its first message.
func (d *described) stream(method, request string) {
	d.t.Helper()
	envelope := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request)))
	answer, err := http.Post(d.door+servicePath+method, "application/connect+json",
		bytes.NewReader(append(envelope, request...)))
	must(d.t, err)
	defer answer.Body.Close()
	var head [5]byte
	_, err = io.ReadFull(answer.Body, head[:])
	must(d.t, err)
	text := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err = io.ReadFull(answer.Body, text)
	must(d.t, err)
	if head[0] == 2 { // the end: the stream has no message
		var end struct{ Error json.RawMessage }
		must(d.t, json.Unmarshal(text, &end))
		if err := d.valid("Error", end.Error); err != nil {
			d.t.Errorf("%s: %s\n%v", method, text, err)
		}
		return
	}
	if err := d.valid(method+"Response", text); err != nil {
		d.t.Errorf("%s: %s\n%v", method, text, err)
	}
}

// TestOpenAPI makes every call of the API and checks requests and answers with the description that
// the node itself serves.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{CallsPerSecond: -1})
	payment := transfer("bank:mint", "bank:a", 12)
	payment.Note = []byte("lunch")
	payment.Records = []ledger.Record{{Key: "bank:r", Value: []byte("x")}}
	id := b.done(payment)[0]
	bundle := func(transaction ledger.Transaction) string {
		text, err := protojson.Marshal(api.BundleToProto(b.sign(transaction)))
		must(t, err)
		return string(text)
	}
	failing := bundle(transfer("bank:b", "bank:a", 1000))
	id64 := base64.StdEncoding.EncodeToString(id[:])
	d := describedBy(t, b.door.URL)

	requests := map[string]string{
		"Submit": `{"bundle":` + bundle(transfer("bank:mint", "bank:b", 1)) +
			`,"wait":"LEVEL_DURABLE"}`,
		"SubmitMany": `{"bundles":[` + failing + `],"wait":"LEVEL_DURABLE"}`,
		"DryRun":     `{"bundle":` + bundle(transfer("bank:mint", "bank:b", 2)) + `}`,
		"Prepare": `{"transactions":[{"signer":"bank","nonce":{"sequence":"99"},"postings":[` +
			`{"account":"bank:a","amount":"-1"},{"account":"bank:b","amount":"1"}]}]}`,
		"GetTransaction":    `{"idHex":"` + id.String() + `"}`,
		"WaitTransaction":   `{"id":"` + id64 + `"}`,
		"WaitTransactions":  `{"ids":["` + id64 + `"]}`,
		"GetBlock":          `{"head":true}`,
		"ListBlocks":        `{"pageSize":2}`,
		"ReadChain":         `{"fromHeight":"1"}`,
		"GetAccount":        `{"account":"bank:a"}`,
		"GetAccountProof":   `{"account":"bank:a"}`,
		"ListAccounts":      `{"prefix":"bank:"}`,
		"ListHistory":       `{"account":"bank:a"}`,
		"GetRecord":         `{"key":"bank:r"}`,
		"ListTransactions":  `{"record":"bank:r"}`,
		"ListRecords":       `{}`,
		"GetOrganisation":   `{"name":"bank"}`,
		"ListOrganisations": `{}`,
		"GetAsset":          `{"name":"EUR"}`,
		"ListAssets":        `{}`,
		"GetHold":           `{"holdHex":"` + strings.Repeat("ab", 32) + `"}`,
		"GetKey":            `{"organisation":"bank","key":"order 1"}`,
		"GetRefundable":     `{"organisation":"bank","entryHex":"` + strings.Repeat("ab", 32) + `"}`,
		"ListHolds":         `{"organisation":"bank"}`,
		"GetSchedule":       `{"scheduleHex":"` + strings.Repeat("ab", 32) + `"}`,
		"ListSchedules":     `{"organisation":"bank"}`,
		"GetNonce":          `{"organisation":"bank"}`,
		"GetUse":            `{"organisation":"bank"}`,
		"GetCut":            `{}`,
		"GetPlace":          `{}`,
		"GetProof":          `{"idHex":"` + id.String() + `"}`,
		"GetCertificate":    `{"height":"1"}`,
		"ListEvidence":      `{}`,
		"GetFigures":        `{}`,
		"Search":            `{"query":"bank"}`,
		"GetNode":           `{}`,
		"GetCluster":        `{}`,
		"GetTree":           `{}`,
		"GetGenesis":        `{}`,
		"GetRounds":         `{}`,
	}
	mayFail := []string{"GetAccountProof", "GetAsset", "GetCertificate", "GetHold", "GetKey",
		"GetPlace", "GetRefundable", "GetRounds", "GetSchedule"}
	streams := map[string]string{
		"GetSnapshot":  `{}`,
		"GetSeed":      `{}`,
		"Subscribe":    `{"fromHeight":"1"}`,
		"WatchCluster": `{}`,
		"WatchTree":    `{}`,
		"WatchRounds":  `{}`,
	}
	service := ledgerdv1.File_ledgerd_v1_ledgerd_proto.Services().Get(0)
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		name := string(method.Name())
		request, unary := requests[name]
		if !unary {
			request = streams[name]
		}
		switch {
		case name == "SubmitStream":
			// It needs HTTP/2; submit_stream_test.go speaks it.
			if d.methods[servicePath+name] == nil {
				t.Errorf("%s is not described", name)
			}
			continue
		case request == "":
			t.Errorf("%s is not checked: give it a request", name)
			continue
		}
		if err := d.valid(string(method.Input().Name()), []byte(request)); err != nil {
			t.Errorf("%s: the request %s\n%v", name, request, err)
		}
		if !unary {
			d.stream(name, request)
			continue
		}
		if status := d.post(name, request); status != http.StatusOK &&
			!slices.Contains(mayFail, name) {
			t.Errorf("%s %s: status %d", name, request, status)
		}
		if d.methods[servicePath+name].(map[string]any)["get"] == nil {
			continue
		}
		answer, err := http.Get(d.door + servicePath + name + "?connect=v1&encoding=json&message=" +
			url.QueryEscape(request))
		if status := d.answered(name, answer, err); status != http.StatusOK &&
			!slices.Contains(mayFail, name) {
			t.Errorf("GET of %s %s: status %d", name, request, status)
		}
	}
}

// TestOpenAPIErrors makes calls that fail, each in another way, and checks the errors. What the
// server refuses as no request, the description does not allow either.
func TestOpenAPIErrors(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{CallsPerSecond: -1})
	d := describedBy(t, b.door.URL)
	nobody := strings.Repeat("ab", 32)
	for _, test := range []struct {
		method, request string
		status          int
		invalid         bool // by the description
	}{
		{"GetAccount", `{"account":"bank:none"}`, http.StatusNotFound, false},
		{"GetAccount", `{"acount":"bank:a"}`, http.StatusBadRequest, true},
		{"GetAccount", `{"account":7}`, http.StatusBadRequest, true},
		{"ListBlocks", `{"pageSize":-1}`, http.StatusBadRequest, true},
		{"ListBlocks", `{"pageSize":4294967296}`, http.StatusBadRequest, true},
		{"Submit", `{"bundle":{"transactions":["no base64!"]}}`, http.StatusBadRequest, true},
		{"Submit", `{"wait":"LEVEL_SOON"}`, http.StatusBadRequest, true},
		{"Submit", `{"bundle":{}}`, http.StatusBadRequest, false},
		{"Prepare", `{"transactions":[{"postings":[{"amount":"1.5"}]}]}`, http.StatusBadRequest,
			true},
		{"GetTransaction", `{"idHex":"` + nobody + `"}`, http.StatusNotFound, false},
		{"GetTransaction", `{"idHex":"xyz"}`, http.StatusBadRequest, true},
		{"GetAccount", `{`, http.StatusBadRequest, true},
		{"GetAccount", `{"account":"` + strings.Repeat("x", 1<<22) + `"}`,
			http.StatusTooManyRequests, false},
	} {
		if status := d.post(test.method, test.request); status != test.status {
			t.Errorf("%s %.80s: status %d, want %d", test.method, test.request, status, test.status)
		}
		err := d.valid(test.method+"Request", []byte(test.request))
		if test.invalid == (err == nil) {
			t.Errorf("%s %.80s: by the description %v", test.method, test.request, err)
		}
	}

	// Too many calls, and calls without an identity.
	slow := apitest.Serve(t, b.cluster.Node(0), api.Options{CallsPerSecond: 1,
		CallBurst: 2, Logger: slog.New(slog.DiscardHandler)})
	hasty := describedBy(t, slow.URL)
	for hasty.post("GetNode", `{}`) != http.StatusTooManyRequests {
	}
	guardedURL, tokens := guardedTokens(t, b)
	guarded := describedBy(t, guardedURL)
	if status := guarded.post("GetNode", `{}`); status != http.StatusUnauthorized {
		t.Errorf("a call without an identity: %d", status)
	}
	request, err := http.NewRequest(http.MethodPost, guardedURL+servicePath+"GetAccount",
		strings.NewReader(`{"account":"bank:a"}`))
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+tokens["other"])
	answer, err := http.DefaultClient.Do(request)
	if status := guarded.answered("GetAccount", answer, err); status != http.StatusForbidden {
		t.Errorf("a call about another's account: %d", status)
	}
}
