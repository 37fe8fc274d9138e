package api_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// bomb is a request that is small on the wire and large in memory.
type bomb struct {
	name, method string
	header       map[string]string
	body         []byte
}

func compressed(data []byte) []byte {
	var buffer bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&buffer, gzip.BestCompression)
	_, _ = writer.Write(data)
	_ = writer.Close()
	return buffer.Bytes()
}

// bombs returns the requests of an attacker that has read the protocol: empty elements, each of
// which costs a struct.
func bombs() []bomb {
	const size = 16 << 20
	empty := bytes.Repeat([]byte{0x0a, 0}, size/2)
	empties := []byte(`{"transactions":[` + strings.Repeat(`{},`, size/3-16) + `{}]}`)
	// A SubmitMany of one bundle of empty transactions, and one of empty bundles.
	inner := empty[:size-16]
	one := append(binary.AppendUvarint([]byte{0x0a}, uint64(len(inner))), inner...)
	// Postings in one transaction; signatures in one bundle; postings without a name, as JSON.
	postings := bytes.Repeat([]byte{0x1a, 0}, size/2-8)
	nested := append(binary.AppendUvarint([]byte{0x0a}, uint64(len(postings))), postings...)
	signatures := bytes.Repeat([]byte{0x12, 0}, size/2-8)
	signed := append(binary.AppendUvarint([]byte{0x0a}, uint64(len(signatures))), signatures...)
	binaryForm := map[string]string{"Content-Type": "application/proto"}
	zipped := map[string]string{"Content-Type": "application/proto", "Content-Encoding": "gzip"}
	grpcForm := map[string]string{"Content-Type": "application/grpc-web+proto"}
	grpcZipped := map[string]string{"Content-Type": "application/grpc-web+proto",
		"Grpc-Encoding": "gzip"}
	jsonForm := map[string]string{"Content-Type": "application/json"}
	jsonZipped := map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}
	envelope := func(flags byte, data []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
	}
	return []bomb{
		{"Prepare, gzip", "Prepare", zipped, compressed(empty)},
		{"Prepare", "Prepare", binaryForm, empty},
		{"Prepare, gRPC-Web", "Prepare", grpcForm, envelope(0, empty)},
		{"Prepare, gRPC-Web, gzip", "Prepare", grpcZipped, envelope(1, compressed(empty))},
		{"Prepare of postings", "Prepare", binaryForm, nested},
		{"Prepare, JSON", "Prepare", jsonForm, empties},
		{"Prepare, JSON, gzip", "Prepare", jsonZipped, compressed(empties)},
		{"SubmitMany of bundles", "SubmitMany", binaryForm, empty},
		{"SubmitMany of transactions", "SubmitMany", binaryForm, one},
		{"SubmitMany of signatures", "SubmitMany", binaryForm, signed},
		{"SubmitMany, JSON", "SubmitMany", jsonForm,
			[]byte(strings.Replace(string(empties), "transactions", "bundles", 1))},
		{"Submit in many parts", "Submit", binaryForm, empty},
		{"WaitTransactions", "WaitTransactions", binaryForm, empty},
		{"an unknown field of JSON", "GetNode", jsonForm,
			[]byte(`{"x":[` + strings.Repeat(`{},`, size/3-16) + `{}]}`)},
	}
}

// No request takes more memory than a small multiple of what a useful request of its kind takes.
func TestRequestsThatGrowInMemory(t *testing.T) {
	cluster := apitest.NewCluster(t, apitest.Options{})
	door := apitest.Serve(t, cluster.Node(0), api.Options{Logger: slog.New(slog.DiscardHandler),
		CallsPerSecond: -1})
	send := func(t *testing.T, b bomb) int {
		request, err := http.NewRequest("POST",
			door.URL+"/ledgerd.v1.LedgerService/"+b.method, bytes.NewReader(b.body))
		must(t, err)
		for key, value := range b.header {
			request.Header.Set(key, value)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0 // the server may close the connection before it has read the body
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		if answer.StatusCode == http.StatusOK && answer.Header.Get("Grpc-Status") == "0" {
			t.Errorf("%s was accepted: %s", b.name, text)
		}
		return answer.StatusCode
	}
	for _, b := range bombs() {
		t.Run(b.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var sending sync.WaitGroup
			const parallel = 2
			for range parallel {
				sending.Go(func() { send(t, b) })
			}
			sending.Wait()
			runtime.ReadMemStats(&after)
			each := (after.TotalAlloc - before.TotalAlloc) / parallel >> 20
			t.Logf("%d bytes on the wire: allocated %d MiB", len(b.body), each)
			if limit := uint64(96); each > limit {
				t.Errorf("allocated %d MiB, want at most %d", each, limit)
			}
		})
	}
}

// All requests under way share one budget. A request that finds it spent is refused at once, may be
// sent again, and is taken once the others have ended.
func TestBudgetOfRequests(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{MaxRequestMemory: 1 << 20, CallsPerSecond: -1})
	address := b.door.URL + "/ledgerd.v1.LedgerService/"
	// Bodies that arrive in part hold what has arrived.
	var writers []*io.PipeWriter
	var sending sync.WaitGroup
	for range 4 {
		reader, writer := io.Pipe()
		request, err := http.NewRequest("POST", address+"SubmitMany", reader)
		must(t, err)
		request.Header.Set("Content-Type", "application/proto")
		sending.Go(func() {
			if answer, err := http.DefaultClient.Do(request); err == nil {
				_ = answer.Body.Close()
			}
		})
		_, err = writer.Write(make([]byte, 40<<10))
		must(t, err)
		writers = append(writers, writer)
	}
	ordinary := func() (int, http.Header) {
		code, header, _ := ask(t, "POST", address+"GetNode",
			map[string]string{"Content-Type": "application/json"}, `{}`)
		return code, header
	}
	deadline := time.Now().Add(patience)
	for {
		code, header := ordinary()
		if code == http.StatusTooManyRequests {
			if header.Get(api.HeaderRetry) != "true" {
				t.Errorf("refused without %s: %v", api.HeaderRetry, header)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the budget is never spent")
		}
		for _, writer := range writers {
			_, _ = writer.Write(make([]byte, 1<<10))
		}
	}
	for _, writer := range writers {
		_ = writer.Close()
	}
	sending.Wait()
	if code, _ := ordinary(); code != http.StatusOK {
		t.Errorf("after the others have ended: %d", code)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		_, _, text := ask(t, "GET", b.door.URL+"/metrics", nil, "")
		if strings.Contains(text, "ledgerd_api_request_bytes 0\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("memory stays reserved without a request")
		}
	}
}
