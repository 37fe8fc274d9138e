package cometbft

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cometbft/cometbft/abci/example/kvstore"
	abci "github.com/cometbft/cometbft/abci/types"
	cryptoencoding "github.com/cometbft/cometbft/crypto/encoding"
	"github.com/cometbft/cometbft/rpc/client"
	"github.com/cometbft/cometbft/types"
)

// CometBFT's own test of kvstore over a node runs as it is. Only the ports differ: curl and
// abci-cli on its path are wrappers that replace them.
func TestScript(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bash", "curl", "hexdump", "jq"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed, which CometBFT's script needs", name)
		}
	}
	r := newReplica(t, newOwner(t, "script"), 0, false)
	folder := t.TempDir()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"curl": fmt.Sprintf(`exec %s "${@/127.0.0.1:26657/127.0.0.1:%d}"`, curl, r.rpc),
		"abci-cli": fmt.Sprintf(`exec %s "$@" --address tcp://127.0.0.1:%d`, abciCLI,
			r.app),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/bash\n"+text+"\n"),
			0o700); err != nil {
			t.Fatal(err)
		}
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/cometbft/cometbft").Output()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("bash", filepath.Join(strings.TrimSpace(string(module)), "test", "app",
		"kvstore_test.sh"), "ledgerd")
	command.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	text, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "Passed Test: ledgerd") {
		t.Fatalf("%v\n%s", err, text)
	}
}

// What TestKVStoreKV and TestPersistentKVStoreKV of CometBFT check, over its RPC client.
func TestKV(t *testing.T) {
	t.Parallel()
	for _, persist := range []bool{false, true} {
		r := newReplica(t, newOwner(t, "kv"), 1, persist)
		for _, tx := range []string{"abc:def", "abc=def"} {
			answer, err := r.client.BroadcastTxCommit(context.Background(), types.Tx(tx))
			if err != nil {
				t.Fatal(err)
			}
			if answer.CheckTx.Code != kvstore.CodeTypeOK || answer.TxResult.IsErr() ||
				!bytes.Equal(answer.Hash, types.Tx(tx).Hash()) || answer.Height == 0 {
				t.Fatalf("%+v", answer)
			}
			info, err := r.client.ABCIInfo(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if info.Response.LastBlockHeight < answer.Height {
				t.Fatalf("%+v after block %d", info.Response, answer.Height)
			}
			for _, prove := range []bool{false, true} {
				found, err := r.client.ABCIQueryWithOptions(context.Background(), "/store",
					[]byte("abc"), client.ABCIQueryOptions{Prove: prove})
				if err != nil {
					t.Fatal(err)
				}
				if got := found.Response; got.Code != kvstore.CodeTypeOK ||
					string(got.Key) != "abc" || string(got.Value) != "def" ||
					got.Height < answer.Height || got.Log != "exists" {
					t.Fatalf("%+v", got)
				}
			}
		}
	}
}

// What TestCheckTx and TestPersistentKVStoreEmptyTX of CometBFT check: each transaction gets the
// code that kvstore gives it, and what it does not take is not in the chain.
func TestCheck(t *testing.T) {
	t.Parallel()
	r := newReplica(t, newOwner(t, "check"), 2, false)
	validator := kvstore.RandVal()
	for i, each := range []struct {
		code uint32
		tx   []byte
	}{
		{kvstore.CodeTypeOK, kvstore.NewTx("hello", "world")},
		{kvstore.CodeTypeInvalidTxFormat, []byte("hello")},
		{kvstore.CodeTypeOK, []byte("space:jam")},
		{kvstore.CodeTypeInvalidTxFormat, []byte("=hello")},
		{kvstore.CodeTypeInvalidTxFormat, []byte("hello=")},
		{kvstore.CodeTypeOK, []byte("a=b")},
		{kvstore.CodeTypeInvalidTxFormat, []byte("val=hello")},
		{kvstore.CodeTypeInvalidTxFormat, []byte("val=hi!5")},
		{kvstore.CodeTypeInvalidTxFormat, []byte("")},
		{kvstore.CodeTypeOK, kvstore.MakeValSetChangeTx(validator.PubKey, 10)},
	} {
		checked, err := r.client.CheckTx(context.Background(), each.tx)
		if err != nil {
			t.Fatal(i, err)
		}
		if checked.Code != each.code {
			t.Errorf("%q has code %d, want %d", each.tx, checked.Code, each.code)
		}
		answer, err := r.client.BroadcastTxCommit(context.Background(), each.tx)
		if err != nil {
			t.Fatal(i, err)
		}
		if answer.CheckTx.Code != each.code || (answer.Height > 0) != (each.code == 0) {
			t.Errorf("%q: %+v", each.tx, answer)
		}
	}
	if size(agree(t, r)) != 4 {
		t.Errorf("kvstore has %d transactions, want 4", size(agree(t, r)))
	}
}

// size returns how many transactions kvstore has executed: it is all that its hash says.
func size(hash []byte) int64 {
	count, _ := binary.Varint(hash)
	return count
}

// What TestValUpdates of CometBFT checks: validators come with the genesis, and blocks change them.
func TestValidators(t *testing.T) {
	t.Parallel()
	const total, initial = 10, 5
	all := kvstore.RandVals(total)
	genesis := types.GenesisDoc{ChainID: "validators", GenesisTime: time.Unix(1700000000, 0).UTC(),
		InitialHeight: 1, ConsensusParams: types.DefaultConsensusParams()}
	for _, each := range all[:initial] {
		key, err := cryptoencoding.PubKeyFromProto(each.PubKey)
		if err != nil {
			t.Fatal(err)
		}
		genesis.Validators = append(genesis.Validators, types.GenesisValidator{PubKey: key,
			Power: each.Power})
	}
	path := filepath.Join(t.TempDir(), "genesis.json")
	if err := genesis.SaveAs(path); err != nil {
		t.Fatal(err)
	}
	r := newReplica(t, newOwner(t, "validators"), 0, false, fmt.Sprintf("genesis = %q", path))
	powers := make([]int64, total)
	for i := range initial {
		powers[i] = all[i].Power
	}
	check := func() {
		t.Helper()
		for i, each := range all {
			key, err := cryptoencoding.PubKeyFromProto(each.PubKey)
			if err != nil {
				t.Fatal(err)
			}
			found, err := r.client.ABCIQuery(context.Background(), "/val", key.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			var update abci.ValidatorUpdate
			if value := found.Response.Value; len(value) > 0 {
				if err := abci.ReadMessage(bytes.NewReader(value), &update); err != nil {
					t.Fatal(err)
				}
			}
			if update.Power != powers[i] {
				t.Errorf("validator %d has power %d, want %d", i, update.Power, powers[i])
			}
		}
	}
	check()
	change := func(changes map[int]int64) {
		t.Helper()
		for i, power := range changes {
			answer, err := r.client.BroadcastTxCommit(context.Background(),
				kvstore.MakeValSetChangeTx(all[i].PubKey, power))
			if err != nil || answer.TxResult.IsErr() {
				t.Fatal(err, answer)
			}
			powers[i] = power
			block, err := r.client.BlockResults(context.Background(), &answer.Height)
			if err != nil {
				t.Fatal(err)
			}
			if len(block.ValidatorUpdates) != 1 || block.ValidatorUpdates[0].Power != power ||
				!block.ValidatorUpdates[0].PubKey.Equal(all[i].PubKey) {
				t.Errorf("block %d has the updates %+v", answer.Height, block.ValidatorUpdates)
			}
		}
		check()
	}
	change(map[int]int64{initial: 3, initial + 1: 4})                 // add some
	change(map[int]int64{initial - 2: 0, initial - 1: 0, initial: 0}) // remove some
	change(map[int]int64{0: all[0].Power%7 + 1})                      // update one
}

// What an unchanged client asks beside posting.
func TestClient(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	by := newOwner(t, "client")
	r := newReplica(t, by, 1, false)
	if _, err := r.client.Health(ctx); err != nil {
		t.Fatal(err)
	}
	for name, post := range map[string]func() ([]byte, error){
		"sync": func() ([]byte, error) {
			answer, err := r.client.BroadcastTxSync(ctx, types.Tx("sync=1"))
			if err != nil {
				return nil, err
			}
			return answer.Hash, nil
		},
		"async": func() ([]byte, error) {
			answer, err := r.client.BroadcastTxAsync(ctx, types.Tx("async=1"))
			if err != nil {
				return nil, err
			}
			return answer.Hash, nil
		},
	} {
		hash, err := post()
		if err != nil {
			t.Fatal(name, err)
		}
		eventually(t, name+" is in a block", func() error {
			found, err := r.client.Tx(ctx, hash, false)
			if err != nil {
				return err
			}
			if found.TxResult.IsErr() || string(found.Tx) != name+"=1" || found.Height == 0 {
				t.Fatalf("%+v", found)
			}
			block, err := r.client.BlockResults(ctx, &found.Height)
			if err != nil {
				t.Fatal(err)
			}
			if len(block.TxsResults) <= int(found.Index) ||
				len(block.TxsResults[found.Index].Events) == 0 {
				t.Fatalf("%+v", block)
			}
			return nil
		})
		if r.get(name) != "1" {
			t.Errorf("%s: kvstore has %q", name, r.get(name))
		}
		if _, err := post(); err == nil || !strings.Contains(err.Error(),
			"tx already exists in cache") {
			t.Errorf("%s: posted twice: %v", name, err)
		}
	}
	eventually(t, "the pool is empty", func() error {
		left, err := r.client.NumUnconfirmedTxs(ctx)
		if err == nil && left.Count > 0 {
			err = fmt.Errorf("%d are left", left.Count)
		}
		return err
	})
	status, err := r.client.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if status.NodeInfo.Network != by.name || len(status.SyncInfo.LatestBlockHash) != 32 ||
		status.SyncInfo.LatestBlockTime.IsZero() {
		t.Errorf("%+v", status)
	}
	// A record that kvstore does not accept is left out, and costs its neighbours nothing.
	ledger(t, "tx", "put", by.name+":abci/"+by.name, "no-pair", "--keys", r.keys)
	ledger(t, "tx", "put", by.name+":abci/"+by.name+"/x", "a=pair", "--keys", r.keys)
	eventually(t, "the record of ledgerd tx put is there", func() error {
		if got := r.get("a"); got != "pair" {
			return fmt.Errorf("kvstore has %q", got)
		}
		return nil
	})
	if got := size(agree(t, r)); got != 3 {
		t.Errorf("kvstore executed %d transactions, want 3", got)
	}
	if _, err := r.client.BroadcastTxSync(ctx, make(types.Tx, 64<<10+1)); err == nil ||
		!strings.Contains(err.Error(), "too large") {
		t.Errorf("a huge transaction: %v", err)
	}
}

// Two replicas execute the same, each transaction once, while clients post at both, one replica's
// application is killed again and again, and the adapters are stopped and killed.
func TestCrashes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	by := newOwner(t, "crash")
	// One replica keeps its state, the other one replays from the beginning.
	kept := newReplica(t, by, 0, true)
	fresh := newReplica(t, by, 2, false)
	const rounds, each = 3, 8
	want := 0
	for round := range rounds {
		var clients sync.WaitGroup
		errs := make(chan error, 2*each)
		for i, r := range []*replica{kept, fresh} {
			clients.Go(func() {
				for number := range each {
					_, err := r.client.BroadcastTxSync(ctx, types.Tx(fmt.Sprintf("k%d-%d-%d=%d",
						round, i, number, number)))
					errs <- err
				}
			})
		}
		clients.Wait()
		for range 2 * each {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		want += 2 * each
		// While these are on their way, the first application is killed.
		kept.kvstore.stop(syscall.SIGKILL)
		kept.startApp()
		for _, r := range []*replica{kept, fresh} {
			what := fmt.Sprint("everything of round ", round, " is executed once")
			eventually(t, what, func() error {
				status, err := r.client.Status(ctx)
				if err != nil {
					return err
				}
				if got := size(status.SyncInfo.LatestAppHash); got != int64(want) {
					return fmt.Errorf("%d transactions, want %d", got, want)
				}
				return nil
			})
		}
		agree(t, kept, fresh)
		switch round {
		case 0: // everything is killed, and the application replays
			fresh.adapter.stop(syscall.SIGKILL)
			fresh.kvstore.stop(syscall.SIGKILL)
			fresh.startApp()
			fresh.startAdapter()
			kept.adapter.stop(syscall.SIGKILL)
			kept.startAdapter()
		case 1: // the adapter is stopped, and the application goes on
			fresh.adapter.stop(syscall.SIGTERM)
			fresh.startAdapter()
		}
	}
	hash := agree(t, kept, fresh)
	if size(hash) != int64(want) {
		t.Fatalf("%d transactions were executed, want %d", size(hash), want)
	}
	for round := range rounds {
		for i := range 2 {
			for number := range each {
				key := fmt.Sprintf("k%d-%d-%d", round, i, number)
				for _, r := range []*replica{kept, fresh} {
					if got := r.get(key); got != fmt.Sprint(number) {
						t.Errorf("%s is %q", key, got)
					}
				}
			}
		}
	}
}

// An application that lost a part of its state, or has another one, is refused.
func TestRefused(t *testing.T) {
	t.Parallel()
	by := newOwner(t, "refused")
	r := newReplica(t, by, 0, true)
	other := newReplica(t, by, 1, true, fmt.Sprintf("chain_id = %q", by.name+"-other"))
	// All of them are before the height of the other one, so that its application gets none later.
	for _, each := range []struct {
		*replica
		tx string
	}{{r, "a=b"}, {r, "c=d"}, {other, "e=f"}} {
		if _, err := each.client.BroadcastTxCommit(context.Background(),
			types.Tx(each.tx)); err != nil {
			t.Fatal(err)
		}
	}
	// The other one is stopped first, so it is not ahead.
	other.adapter.stop(syscall.SIGTERM)
	at, err := other.client.Status(context.Background())
	if err == nil {
		t.Fatalf("the adapter was stopped: %+v", at)
	}
	info, err := exec.Command(abciCLI, "info", "--address", fmt.Sprintf("tcp://127.0.0.1:%d",
		other.app)).CombinedOutput()
	if err != nil || !strings.Contains(string(info), `"size":1`) {
		t.Fatalf("%v: %s", err, info)
	}
	ledger(t, "tx", "put", by.name+":later", "than the other one", "--keys", by.keys)
	agree(t, r)
	for _, each := range []*process{other.kvstore, r.adapter, r.kvstore} {
		each.stop(syscall.SIGTERM)
	}
	// The folders of the two applications are mixed up.
	if err := os.RemoveAll(filepath.Join(r.folder, "db")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(other.folder, "db"), filepath.Join(r.folder,
		"db")); err != nil {
		t.Fatal(err)
	}
	r.startApp()
	bounded, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text, err := exec.CommandContext(bounded, ledgerd, "abci", "--config",
		filepath.Join(r.folder, "adapter.toml"), "--keys", by.keys, "--node",
		strings.Join(nodes, ",")).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "the application's hash is") {
		t.Fatalf("%v: %s", err, text)
	}
}

// An application that keeps nothing is killed while the adapter goes on: it gets its whole chain
// again before anything else, also if a client posts at once.
func TestForgetful(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newReplica(t, newOwner(t, "forget"), 0, false)
	for round := range 3 {
		if _, err := r.client.BroadcastTxCommit(ctx, types.Tx(fmt.Sprintf("before%d=x",
			round))); err != nil {
			t.Fatal(err)
		}
		r.kvstore.stop(syscall.SIGKILL)
		r.startApp()
		eventually(t, "a client posts", func() error {
			_, err := r.client.BroadcastTxSync(ctx, types.Tx(fmt.Sprintf("after%d=y", round)))
			return err
		})
		eventually(t, "the application has everything", func() error {
			info, err := r.client.ABCIInfo(ctx)
			if err != nil {
				return err
			}
			if got := size(info.Response.LastBlockAppHash); got != int64(2*round+2) {
				return fmt.Errorf("%d transactions of %d", got, 2*round+2)
			}
			return nil
		})
	}
	if log := r.adapterLog(); !strings.Contains(log, "the application is at height 0; it was at") {
		t.Errorf("the adapter does not say what happened: %s", log)
	}
}

// An application that hangs is waited for. The adapter says so, status answers, and nothing is lost
// once it goes on.
func TestHangs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	by := newOwner(t, "hang")
	r := newReplica(t, by, 1, false, fmt.Sprintf("chain_id = %q", by.name), "[timing]",
		`slow = "100ms"`)
	if _, err := r.client.BroadcastTxCommit(ctx, types.Tx("a=b")); err != nil {
		t.Fatal(err)
	}
	if err := r.kvstore.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ledger(t, "tx", "put", by.name+":abci/"+by.name, "c=d", "--keys", r.keys)
	eventually(t, "the adapter says what it waits for", func() error {
		if log := r.adapterLog(); !strings.Contains(log, "no answer to ProcessProposal of block") {
			return fmt.Errorf("its log: %s", log)
		}
		return nil
	})
	status, err := r.client.Status(ctx)
	if err != nil || !status.SyncInfo.CatchingUp {
		t.Errorf("%+v, %v", status, err)
	}
	if err := r.kvstore.command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the application goes on", func() error {
		if got := r.get("c"); got != "d" {
			return fmt.Errorf("kvstore has %q", got)
		}
		return nil
	})
	// The adapter knows of the block once the application has answered.
	eventually(t, "the adapter has both transactions", func() error {
		if got := size(agree(t, r)); got != 2 {
			return fmt.Errorf("kvstore executed %d transactions, want 2", got)
		}
		return nil
	})
}

// The node that the adapter reads from dies while clients post: the adapter goes on with another
// one, and each transaction is executed once.
func TestNodeDies(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	by := newOwner(t, "node")
	door := newDoor(t, nodes[0])
	r := newReplicaOver(t, by, []string{door.url, nodes[1], nodes[2]}, false)
	const count = 40
	taken := 0
	for number := range count {
		if number == count/4 {
			door.close()
		}
		// What is under way when the node dies may fail, with an error that says so.
		_, err := r.client.BroadcastTxCommit(ctx, types.Tx(fmt.Sprintf("k%d=v", number)))
		if err != nil && number >= count/4+1 {
			t.Errorf("transaction %d, after the node died: %v", number, err)
		}
		if err == nil {
			taken++
		}
	}
	if got := size(agree(t, r)); int(got) < taken || int(got) > count {
		t.Errorf("%d transactions were executed, and %d of %d taken", got, taken, count)
	}
	for number := range count {
		if number != count/4 && r.get(fmt.Sprintf("k%d", number)) != "v" {
			t.Errorf("k%d is missing", number)
		}
	}
}
