package api_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// A field of JSON that no message has is refused, and the answer names it, at any depth.
func TestUnknownFieldsAreRefused(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	door := apitest.Serve(t, cluster.Node(0), api.Options{
		Logger: slog.New(slog.DiscardHandler), CallsPerSecond: -1})
	for _, each := range []struct {
		method, request, field string
		status                 int
	}{
		{"GetNode", `{}`, "", http.StatusOK},
		{"GetNode", `{"verbose":true}`, "verbose", http.StatusBadRequest},
		{"ListBlocks", `{"pageSize":1}`, "", http.StatusOK},
		{"ListBlocks", `{"pagesize":1}`, "pagesize", http.StatusBadRequest},
		{"Prepare", `{"transactions":[{"postings":[{"amout":"5"}]}]}`, "amout",
			http.StatusBadRequest},
	} {
		answer, err := http.Post(door.URL+"/ledgerd.v1.LedgerService/"+each.method,
			"application/json", strings.NewReader(each.request))
		must(t, err)
		text, err := io.ReadAll(answer.Body)
		must(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode != each.status || !strings.Contains(string(text), each.field) {
			t.Errorf("%s %s: %d %s", each.method, each.request, answer.StatusCode, text)
		}
	}
}
