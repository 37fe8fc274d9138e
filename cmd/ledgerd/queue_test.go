package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	reported "github.com/ledgerd/ledgerd/node/report"
)

// Each command that submits what may cross shards says which shard is down, and since when. With
// --queue it submits all the same.
func TestQueue(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, ledgertest.ShardedGenesis(1, 0, 0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(1)}}
	for shard := range 3 {
		name := fmt.Sprint("org", shard)
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must("account open " + name + ":mint --issuer %n %k")
	}
	s.must("tx post --posting org1:mint=-3 --posting org2:mint=3 --out %d/signed.tx %n %k")
	lines := filepath.Join(s.folder, "lines")
	var entries strings.Builder
	for i := range 20 { // over three shards, so some lines cross
		fmt.Fprintf(&entries, `{"postings":[{"account":"mint","amount":-1},{"account":"a%d",`+
			`"amount":1}]}`+"\n", i)
	}
	if err := os.WriteFile(lines, []byte(entries.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	book.Obstruct(reported.Obstacle{Shard: 2, Since: time.Unix(1_700_000_000, 0)})
	for _, line := range []string{
		"tx transfer org1:mint org2:mint 5 %n %k",
		"tx post --posting org1:mint=-3 --posting org2:mint=3 %n %k",
		"tx submit %d/signed.tx %n %k",
		"tx import %d/lines --org many --orgs 3 --issuer mint --state %d/state --quiet " +
			"--patience 1s %n %k",
	} {
		refused := s.run(line)
		if refused.status != 1 || !strings.Contains(refused.errs,
			"shard 2 is down since 2023-11-14T22:13:20Z") ||
			!strings.Contains(refused.errs, "--queue") {
			t.Errorf("%s: %+v", line, refused)
		}
		s.must(line + " --queue")
	}
}
