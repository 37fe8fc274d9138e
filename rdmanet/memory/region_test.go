package memory_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// regionPair returns two hosts, a region of the first that the second may write, its attachment and
// a queue.
func regionPair(t *testing.T, ctx context.Context) (*memory.Network, [2]*memory.Host,
	rdmanet.Region, rdmanet.Attachment, rdmanet.Queue) {
	t.Helper()
	network := memory.NewNetwork()
	var hosts [2]*memory.Host
	for i := range hosts {
		host, err := network.Host(rdmanet.PeerID("host-" + strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := host.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		hosts[i] = host
	}
	region, err := hosts[0].Expose("log", 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := region.Grant(rdmanet.Peer{ID: hosts[1].ID(), Incarnation: hosts[1].Incarnation()},
		rdmanet.PermissionReadWrite); err != nil {
		t.Fatal(err)
	}
	attachment, err := hosts[1].Attach(ctx, hosts[0].ID(), "log")
	if err != nil {
		t.Fatal(err)
	}
	queue, err := hosts[1].Queue(16)
	if err != nil {
		t.Fatal(err)
	}
	return network, hosts, region, attachment, queue
}

func write(t *testing.T, ctx context.Context, queue rdmanet.Queue, to rdmanet.Attachment) error {
	t.Helper()
	if err := queue.Post(rdmanet.Operation{To: to, Kind: rdmanet.OperationWrite,
		Bytes: make([]byte, 8)}); err != nil {
		t.Fatal(err)
	}
	var into [1]rdmanet.Completion
	if _, err := queue.Wait(ctx, into[:]); err != nil {
		t.Fatal(err)
	}
	return into[0].Err
}

// TestRegionAllocations checks that a round of a write and a read allocates nothing.
func TestRegionAllocations(t *testing.T) {
	ctx := t.Context()
	_, _, _, attachment, queue := regionPair(t, context.Background())
	operations := []rdmanet.Operation{
		{To: attachment, Kind: rdmanet.OperationWrite, Bytes: make([]byte, 64), Ring: true},
		{To: attachment, Kind: rdmanet.OperationRead, Bytes: make([]byte, 64)},
	}
	var into [2]rdmanet.Completion
	if n := testing.AllocsPerRun(100, func() {
		if err := queue.Post(operations...); err != nil {
			t.Error(err)
		}
		if n, err := queue.Wait(ctx, into[:]); n != 2 || err != nil {
			t.Error(n, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRegionMembers checks that a removed member loses its grants and that attachments to it end.
func TestRegionMembers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		at   int // the host whose member set loses the other
		want error
	}{{"owner", 0, rdmanet.ErrAccess}, {"peer", 1, rdmanet.ErrNotMember}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, hosts, region, attachment, queue := regionPair(t, context.Background())
			if err := write(t, ctx, queue, attachment); err != nil {
				t.Error(err)
			}
			set := func(members map[rdmanet.PeerID]string) {
				t.Helper()
				if err := hosts[test.at].SetMembers(members); err != nil {
					t.Fatal(err)
				}
			}
			set(map[rdmanet.PeerID]string{hosts[0].ID(): "", hosts[1].ID(): ""})
			if err := write(t, ctx, queue, attachment); err != nil {
				t.Errorf("as long as both are members: %v", err)
			}
			set(map[rdmanet.PeerID]string{hosts[test.at].ID(): ""})
			if err := write(t, ctx, queue, attachment); !errors.Is(err, test.want) {
				t.Errorf("after one left: %v, want %v", err, test.want)
			}
			if test.at == 0 {
				if err := region.Grant(rdmanet.Peer{ID: hosts[1].ID(),
					Incarnation: hosts[1].Incarnation()}, rdmanet.PermissionRead); !errors.Is(err,
					rdmanet.ErrNotMember) {
					t.Errorf("granting to who is no member: %v", err)
				}
			}
			set(nil)
			if err := write(t, ctx, queue, attachment); !errors.Is(err, test.want) {
				t.Errorf("an attachment that is over, after all are members again: %v, want %v",
					err, test.want)
			}
		})
	}
}

// TestClosedBehindCut checks operations that wait for a cut link. They complete in order when their
// attachment or their host is closed, and the Post behind them waits its turn.
func TestClosedBehindCut(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*memory.Network, [2]*memory.Host,
		rdmanet.Attachment) error{
		"attachment": func(_ *memory.Network, _ [2]*memory.Host, a rdmanet.Attachment) error {
			return a.Close()
		},
		"host": func(_ *memory.Network, hosts [2]*memory.Host, _ rdmanet.Attachment) error {
			return hosts[1].Close(context.Background())
		},
		"killed": func(network *memory.Network, hosts [2]*memory.Host, _ rdmanet.Attachment) error {
			network.Kill(hosts[1].ID())
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			network, hosts, region, attachment, queue := regionPair(t, context.Background())
			network.Cut(hosts[0].ID(), hosts[1].ID())
			for tag := range uint64(5) {
				if err := queue.Post(rdmanet.Operation{To: attachment, Kind: rdmanet.OperationWrite,
					Bytes: []byte{1, 1, 1, 1, 1, 1, 1, 1}, Tag: tag}); err != nil {
					t.Fatal(err)
				}
			}
			if n := queue.Outstanding(); n != 5 {
				t.Errorf("%d outstanding", n)
			}
			if err := end(network, hosts, attachment); err != nil {
				t.Error(err)
			}
			var into [1]rdmanet.Completion
			for tag := range uint64(5) {
				if n, err := queue.Wait(ctx, into[:]); n != 1 || err != nil || into[0].Tag != tag ||
					!errors.Is(into[0].Err, rdmanet.ErrClosed) {
					t.Fatalf("%d completions, %v, %v", n, into[0], err)
				}
			}
			network.Mend(hosts[0].ID(), hosts[1].ID())
			if region.Load(0) != 0 {
				t.Error("it landed")
			}
		})
	}
}
