package api

import (
	"fmt"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
)

// OtherShardError reports that a request names another shard of the book than this node's.
type OtherShardError struct{ Own, Asked ledger.ShardID }

// Error implements error.
func (e *OtherShardError) Error() string {
	return fmt.Sprintf("this node is of shard %d: ask a node of shard %d", e.Own, e.Asked)
}

// answersFor returns an error if a request names another shard than this node's: an OtherShardError
// if the book has that shard.
func (s *Service) answersFor(asked *uint32) error {
	opened := s.backend.Store()
	own := opened.Shard()
	if asked == nil || ledger.ShardID(*asked) == own {
		return nil
	}
	count := 1
	if tree := opened.ShardTree(); tree != nil {
		count = tree.Shards()
	}
	if uint64(*asked) >= uint64(count) {
		return invalid("there is no shard %d: the book has %d, from 0 to %d", *asked, count,
			count-1)
	}
	return Retryable(connect.CodeUnavailable,
		&OtherShardError{Own: own, Asked: ledger.ShardID(*asked)}, nil)
}
