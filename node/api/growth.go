package api

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

func bookChangeToProto(change *ledger.BookChange) *ledgerdv1.BookChange {
	if change == nil {
		return nil
	}
	message := &ledgerdv1.BookChange{Number: change.Number}
	switch {
	case change.Addition != nil:
		addition := &ledgerdv1.ShardAddition{Parent: uint32(change.Addition.Parent)}
		for _, member := range change.Addition.Members {
			addition.Members = append(addition.Members, &ledgerdv1.Member{Name: member.Name,
				Key: member.Key, Address: member.Address})
		}
		message.Change = &ledgerdv1.BookChange_Addition{Addition: addition}
	case change.Move != nil:
		message.Change = &ledgerdv1.BookChange_Move{Move: &ledgerdv1.OrganisationMove{
			Organisation: string(change.Move.Organisation), To: uint32(change.Move.To)}}
	case change.Loss != nil:
		message.Change = &ledgerdv1.BookChange_LostShard{LostShard: uint32(change.Loss.Shard)}
	case change.Rehang != nil:
		message.Change = &ledgerdv1.BookChange_Rehang{Rehang: &ledgerdv1.ShardRehang{
			Shard: uint32(change.Rehang.Shard), Parent: uint32(change.Rehang.Parent)}}
	}
	return message
}

// bookChangeFromProto reads a change of the book's shards, or nil if there is none.
func bookChangeFromProto(message *ledgerdv1.BookChange) (*ledger.BookChange, error) {
	if message == nil {
		return nil, nil
	}
	read := &ledger.BookChange{Number: message.GetNumber()}
	switch change := message.GetChange().(type) {
	case *ledgerdv1.BookChange_Addition:
		read.Addition = &ledger.ShardAddition{Parent: ledger.ShardID(change.Addition.GetParent())}
		for _, member := range change.Addition.GetMembers() {
			read.Addition.Members = append(read.Addition.Members, ledger.Member{
				Name: member.GetName(), Key: member.GetKey(), Address: member.GetAddress()})
		}
	case *ledgerdv1.BookChange_Move:
		read.Move = &ledger.OrganisationMove{
			Organisation: ledger.OrganisationName(change.Move.GetOrganisation()),
			To:           ledger.ShardID(change.Move.GetTo())}
	case *ledgerdv1.BookChange_LostShard:
		read.Loss = &ledger.ShardLoss{Shard: ledger.ShardID(change.LostShard)}
	case *ledgerdv1.BookChange_Rehang:
		read.Rehang = &ledger.ShardRehang{Shard: ledger.ShardID(change.Rehang.GetShard()),
			Parent: ledger.ShardID(change.Rehang.GetParent())}
	default:
		return nil, fmt.Errorf("a change of the book's shards without a change")
	}
	return read, nil
}
