package importer_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/importer"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// Run imports lines, each exactly once. Running it again, after an interruption of any kind,
// imports what is left. A line that the ledger refuses is no error: it is in the result.
func ExampleRun() {
	nodes, key, end := ledgerOfExample() // client.New and Keyring.LoadOrCreate
	defer end()
	source, err := importer.Stream(strings.NewReader(
		`{"postings":[{"account":"mint","amount":-10},{"account":"alice","amount":10}]}
{"postings":[{"account":"alice","amount":-4},{"account":"bob","amount":4}],"memo":"lunch"}
{"postings":[{"account":"bob","amount":-5},{"account":"alice","amount":5}]}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := importer.Run(context.Background(), nodes, source,
		importer.Options{Key: key, Issuers: []string{"mint"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Imported, "imported")
	for _, failure := range result.Failures {
		fmt.Println("line", failure.Line, failure.Code)
	}
	// Output:
	// 2 imported
	// line 3 insufficient_funds
}

// ledgerOfExample runs a ledger until end is called.
func ledgerOfExample() (nodes *client.Client, key client.Key, end func()) {
	run := new(exampleRun)
	server := apitest.Serve(run, apitest.NewCluster(run, apitest.Options{}).Node(0), api.Options{})
	nodes, err := client.New([]string{server.URL}, client.Options{})
	if err != nil {
		panic(err)
	}
	run.Cleanup(nodes.Close)
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	return nodes, client.NewKey("shop", private), run.end
}

// exampleRun stands for the test of an example, which has none.
type exampleRun struct {
	testing.TB
	cleanups []func()
}

func (r *exampleRun) Helper() {}

func (r *exampleRun) Context() context.Context { return context.Background() }

func (r *exampleRun) TempDir() string {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (r *exampleRun) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *exampleRun) Errorf(format string, arguments ...any) { fmt.Printf(format, arguments...) }

func (r *exampleRun) Fatalf(format string, arguments ...any) {
	panic(fmt.Sprintf(format, arguments...))
}

func (r *exampleRun) end() {
	for len(r.cleanups) > 0 {
		last := r.cleanups[len(r.cleanups)-1]
		r.cleanups = r.cleanups[:len(r.cleanups)-1]
		last()
	}
}
