package api

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// A node sends a bounded number of directories at a time, since each is in memory.
func TestSeedsAreBounded(t *testing.T) {
	t.Parallel()
	s := NewService(nil, Options{})
	s.seeds.Store(maxSeeds)
	err := s.GetSeed(t.Context(), connect.NewRequest(&ledgerdv1.GetSeedRequest{}), nil)
	coded, is := err.(*connect.Error)
	if !is || coded.Code() != connect.CodeResourceExhausted ||
		coded.Meta().Get(HeaderRetry) != "true" {
		t.Errorf("%v", err)
	}
	if s.seeds.Load() != maxSeeds {
		t.Errorf("%d places are taken", s.seeds.Load())
	}
}
