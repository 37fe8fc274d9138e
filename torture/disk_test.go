//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

const (
	diskBytes    = 160 << 20
	reserveBytes = 24 << 20
)

// smallReserve makes a node keep little space free, so that it can use a small disk.
var smallReserve = fmt.Sprintf("LEDGERD_NODE_STORE_RESERVE_BYTES=%d", reserveBytes)

// moveToSmallDisk moves a node's home to a small file system of its own. It skips the test if that
// is not allowed.
func (s *shard) moveToSmallDisk(i int) {
	s.t.Helper()
	dir := s.homes[i].Dir
	aside := dir + ".aside"
	if err := os.Rename(dir, aside); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0,
		fmt.Sprintf("size=%d", diskBytes)); err != nil {
		s.t.Skipf("a small disk cannot be made, which takes root: %v", err)
	}
	s.t.Cleanup(func() {
		s.kill(i)
		if err := syscall.Unmount(dir, 0); err != nil {
			s.t.Errorf("unmount %s: %v", dir, err)
		}
	})
	if err := os.CopyFS(dir, os.DirFS(aside)); err != nil {
		s.t.Fatal(err)
	}
}

// fill extends a file until the given number of bytes is left on its disk; 0 means to the last
// byte.
func fill(t *testing.T, path string, left uint64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	block := make([]byte, 64<<10)
	for len(block) > 0 {
		var disk syscall.Statfs_t
		if err := syscall.Statfs(path, &disk); err != nil {
			t.Fatal(err)
		}
		if left > 0 && disk.Bavail*uint64(disk.Bsize) <= left {
			return
		}
		if _, err := file.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDisk fills the disk of one node to the last byte while it takes writes.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	const full = 0
	s := newShard(t, 4, smallReserve)
	s.moveToSmallDisk(full)
	s.start(s.all()...)
	s.ordering(s.all()...)
	acme := s.newParty("acme", []string{"cash"}, 1, 2, 3)
	s.same(s.all()...) // a node that is behind refuses an organisation that it does not know
	here := acme.at(s.clientOf(full))
	here.post(t, here.put("first", "1"), ledgerdv1.Level_LEVEL_DURABLE)

	// The disk is full without any writes, and the group changes. The full node cannot write down
	// the promises for that. So it takes no part, but stays alive.
	big := filepath.Join(s.homes[full].Dir, "big")
	s.same(s.all()...)
	fill(t, big, 0)
	s.kill(3)
	s.start(3)
	s.ordering(s.others(full)...)
	s.alive(full)
	if err := os.Remove(big); err != nil {
		t.Fatal(err)
	}
	s.ordering(s.all()...)

	// The same under writes.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var kept []promise
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		kept = acme.at(s.clientOf(s.others(full)...)).writer(ctx, "elsewhere")
	}()
	fill(t, big, reserveBytes/2)
	begun := time.Now()

	// It refuses writes, and gives the reason.
	short, err := client.New(s.urls(full), client.Options{Tries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	s.eventually("the full node refuses writes", func() error {
		s.alive(full)
		within, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := short.Post(within, []client.Key{acme.Key}, acme.put("refused", "x"),
			ledgerdv1.Level_LEVEL_ORDERED)
		if err == nil {
			return errors.New("it takes writes")
		}
		if !strings.Contains(err.Error(), "disk") {
			return fmt.Errorf("it says: %w", err)
		}
		return nil
	})
	state, err := s.state(full)
	if err != nil {
		t.Fatal(err)
	}
	if !state.GetReadsOnly() || !strings.Contains(state.GetReason(), "disk") {
		t.Errorf("the full node's state does not say that its disk is full: %v", state)
	}

	// If another program then takes the space to the last byte, that does no harm: the reserve is
	// for the writes that were under way.
	fill(t, big, 0)

	// The others go on. The full node serves reads and stays alive.
	from, err := s.state(1)
	if err != nil {
		t.Fatal(err)
	}
	s.eventually("the others go on", func() error {
		s.alive(s.all()...)
		state, err := s.state(1)
		if err == nil && state.GetDurableHeight() < from.GetOrderedHeight()+20 {
			err = fmt.Errorf("durable height %d, ordered %d when the disk was full",
				state.GetDurableHeight(), from.GetOrderedHeight())
		}
		return err
	})
	t.Logf("the others went on without the full node, %v after its disk was full",
		time.Since(begun).Round(time.Millisecond))
	if answer, err := s.nodes[full].Record(ctx, acme.record("first")); err != nil ||
		string(answer.GetRecord().GetValue()) != "1" {
		t.Errorf("the full node does not serve reads: %v, %v", answer, err)
	}

	// With free space it comes back by itself.
	if err := os.Remove(big); err != nil {
		t.Fatal(err)
	}
	s.ordering(s.all()...)
	cancel()
	<-ended
	here.post(t, here.put("last", "1"), ledgerdv1.Level_LEVEL_DURABLE)
	s.same(s.all()...)
	s.kept(acme, kept)
	s.exports(s.all()...)
	s.stop(s.all()...)
	s.verified(s.all()...)
}

// TestDiskFillsWhileEonChanges fills a node's disk at several moments around a change of the group,
// without traffic. Once there is space again, the node returns to the group, although no write
// shows the others that it is there.
func TestDiskFillsWhileEonChanges(t *testing.T) {
	t.Parallel()
	const full, other = 0, 3
	// The offsets are relative to the start of the other node, in milliseconds.
	moments := []time.Duration{-100, 0, 20, 100, 400, 1500}
	if testing.Short() {
		moments = moments[1:3]
	}
	s := newShard(t, 4, smallReserve)
	s.moveToSmallDisk(full)
	s.start(s.all()...)
	s.ordering(s.all()...)
	big := filepath.Join(s.homes[full].Dir, "big")
	for _, moment := range moments {
		s.kill(other)
		s.ordering(s.others(other)...)
		if moment < 0 {
			fill(t, big, 0)
			<-time.After(-moment * time.Millisecond)
			s.start(other)
		} else {
			s.start(other)
			<-time.After(moment * time.Millisecond)
			fill(t, big, 0)
		}
		s.eventually("the others order, and the full node says what is wrong or orders",
			func() error {
				s.alive(s.all()...)
				for _, i := range []int{1, 2, other} {
					state, err := s.state(i)
					if err != nil || state.GetMode() != ledgerdv1.NodeMode_NODE_MODE_ORDERING {
						return fmt.Errorf("node %d: %v, %w", i, state, err)
					}
				}
				state, err := s.state(full)
				orders := state.GetMode() == ledgerdv1.NodeMode_NODE_MODE_ORDERING
				if err == nil && !orders && !strings.Contains(state.GetReason(), "disk") {
					err = fmt.Errorf("the full node: %v", state)
				}
				return err
			})
		if err := os.Remove(big); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		s.ordering(s.all()...)
		t.Logf("filled %d ms after the start of another node: all order %v after there was space",
			moment, time.Since(begun).Round(time.Millisecond))
	}
	acme := s.newParty("acme", []string{"cash"}, full)
	acme.post(t, acme.put("last", "1"), ledgerdv1.Level_LEVEL_DURABLE)
	s.same(s.all()...)
	s.exports(s.all()...)
	s.stop(s.all()...)
	s.verified(s.all()...)
}
