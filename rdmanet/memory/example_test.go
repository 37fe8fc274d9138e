package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// Two hosts in one process. A lane carries frames from one to the other, in order.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := sendFrames(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// alice: hello
	// alice: how are you?
}

func sendFrames(ctx context.Context) error {
	network := memory.NewNetwork()
	alice, err := network.Host("alice")
	if err != nil {
		return err
	}
	defer alice.Close(ctx)
	bob, err := network.Host("bob")
	if err != nil {
		return err
	}
	defer bob.Close(ctx)

	if err := bob.Receive("greetings", func(from rdmanet.Peer, frames [][]byte) {
		for _, frame := range frames {
			fmt.Printf("%s: %s\n", from.ID, frame)
		}
	}); err != nil {
		return err
	}
	lane, err := alice.Lane("bob", "greetings")
	if err != nil {
		return err
	}
	if err := lane.Send(ctx, []byte("hello"), []byte("how are you?")); err != nil {
		return err
	}
	return lane.Flushed(ctx) // bob has taken them
}

// A region is memory that a peer writes without the owner's program. The owner waits for the last
// word, which lands after everything before it.
func ExampleHost_Expose() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := writeRegion(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// an entry
}

func writeRegion(ctx context.Context) error {
	network := memory.NewNetwork()
	owner, err := network.Host("owner")
	if err != nil {
		return err
	}
	defer owner.Close(ctx)
	writer, err := network.Host("writer")
	if err != nil {
		return err
	}
	defer writer.Close(ctx)

	log, err := owner.Expose("log", 2*rdmanet.WordSize)
	if err != nil {
		return err
	}
	if err := log.Grant(rdmanet.Peer{ID: writer.ID(), Incarnation: writer.Incarnation()},
		rdmanet.PermissionReadWrite); err != nil {
		return err
	}
	remote, err := writer.Attach(ctx, "owner", "log")
	if err != nil {
		return err
	}
	queue, err := writer.Queue(1)
	if err != nil {
		return err
	}
	defer queue.Close()
	entry := append([]byte("an entry"), 1, 0, 0, 0, 0, 0, 0, 0) // the mark
	if err := queue.Post(rdmanet.Operation{To: remote, Kind: rdmanet.OperationWrite, Bytes: entry,
		Ring: true}); err != nil {
		return err
	}
	if err := log.Await(ctx, func() bool {
		return log.Load(rdmanet.WordSize) != 0
	}); err != nil {
		return err
	}
	fmt.Printf("%s\n", log.Bytes()[:rdmanet.WordSize])
	var completions [1]rdmanet.Completion
	if _, err := queue.Wait(ctx, completions[:]); err != nil {
		return err
	}
	return completions[0].Err
}
