package ledgertest

import "github.com/ledgerd/ledgerd/ledger"

// ShardedGenesis returns the genesis of shard 0 of a book with as many shards as parents are given,
// each of so many members: Member(0) and so on over all shards. There is one operator. ForShard
// gives the other shards'.
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
