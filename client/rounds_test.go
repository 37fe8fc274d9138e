package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// silentRounds is a node that sends so many messages of its rounds, and then nothing.
type silentRounds struct {
	ledgerdv1connect.UnimplementedLedgerServiceHandler
	messages int
}

func (s silentRounds) WatchRounds(ctx context.Context,
	_ *connect.Request[ledgerdv1.WatchRoundsRequest],
	stream *connect.ServerStream[ledgerdv1.WatchRoundsResponse]) error {
	for range s.messages {
		if err := stream.Send(&ledgerdv1.WatchRoundsResponse{
			Recording: &ledgerdv1.Recording{}}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// Who watches the rounds of a node that fell silent learns it, before the first message and after.
func TestWatchRoundsOfSilentNode(t *testing.T) {
	t.Parallel()
	for _, messages := range []int{0, 2} {
		mux := http.NewServeMux()
		mux.Handle(ledgerdv1connect.NewLedgerServiceHandler(silentRounds{messages: messages}))
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		c := newTestClient(t, server.URL)
		if messages == 0 {
			c.options.CallTime = 50 * time.Millisecond
		}
		seen := 0
		err := c.watchRounds(testContext(t), 50*time.Millisecond,
			func(*ledgerdv1.Recording) error {
				seen++
				return nil
			})
		if err == nil || !strings.Contains(err.Error(), "nothing of its rounds") ||
			seen != messages {
			t.Errorf("%d messages: %v", seen, err)
		}
	}
}
