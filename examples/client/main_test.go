package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// TestClient runs the example against three nodes in this process.
func TestClient(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := func(ctx context.Context, at *home.Home, fabric rdmanet.Host) (testnet.Node, error) {
		return node.Start(ctx, node.Options{Home: at, Host: fabric,
			Logger: slog.New(slog.DiscardHandler),
			Store:  store.Options{MemTableBytes: 4 << 20, ReserveBytes: 1 << 20}})
	}
	ledger, err := testnet.Embed(ctx, testnet.EmbedOptions{Dir: filepath.Join(t.TempDir(), "net"),
		Ports: make([]int, 3), Chain: "example", Start: start})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopping, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := ledger.Stop(stopping); err != nil {
			t.Error(err)
		}
	})
	if err := ledger.Ordering(ctx); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(ctx, &out, ledger.URLs()); err != nil {
		t.Fatalf("%v, after\n%s", err, out.String())
	}
	want := regexp.MustCompile(`^shop-\w{8} is registered, with the accounts \S+ and \S+
transfer \w{64} is ordered
it is durable, in block 2
shop-\w{8}:till holds 100 unit
the proof holds; 3 nodes have its block
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("the example prints\n%s", out.String())
	}
}
