package ledgertest

import "github.com/ledgerd/ledgerd/ledger"

// ShardedGenesis returns the genesis of shard 0 of a book with one operator and one shard for each
// parent. Each shard has this number of members; Member(0), Member(1) and so on are numbered over
// all shards. ForShard returns the genesis of another shard.
func ShardedGenesis(members int, parents ...ledger.ShardID) *ledger.Genesis {
	genesis := &ledger.Genesis{Chain: "test", Time: 1_700_000_000_000,
		Operators: []ledger.PublicKey{PublicKey("operator")}, Tree: parents}
	for shard := range parents {
		var group []ledger.Member
		for i := range members {
			group = append(group, Member(shard*members+i))
		}
		genesis.Shards = append(genesis.Shards, group)
	}
	genesis.Members = genesis.Shards[0]
	return genesis
}
