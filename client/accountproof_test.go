package client

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// A node that proves another account than the one that it was asked for is not believed, although
// the proof holds.
func TestProofOfAnotherAccount(t *testing.T) {
	t.Parallel()
	genesis := packingGenesis()
	genesis.Version = ledger.NewestVersion
	cluster := apitest.NewCluster(t, apitest.Options{Genesis: genesis})
	address, err := url.Parse(apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	if err != nil {
		t.Fatal(err)
	}
	beginBank(t, newTestClient(t, address.String()), testKey(t, "acme"))
	through := httputil.NewSingleHostReverseProxy(address)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/GetAccountProof") {
			other, err := proto.Marshal(&ledgerdv1.GetAccountProofRequest{Account: "acme:b"})
			if err != nil {
				t.Error(err)
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(other)), int64(len(other))
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c := newTestClient(t, server.URL)
	proven, err := c.ProvenAccount(testContext(t), "acme:a", cluster.Genesis())
	if err == nil || !strings.Contains(err.Error(), "it is of another account") {
		t.Errorf("%+v, %v", proven, err)
	}
}
