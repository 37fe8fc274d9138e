package main

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// shardChangeReport is a change of the shards that is under way, or was made lately, in a
// treeReport.
type shardChangeReport struct {
	Kind   string `json:"kind"`             // move, addition or rehang
	Number uint64 `json:"number,omitempty"` // of the change of the book; none for an addition
	// Organisation moves. Shard is added, or hangs elsewhere.
	Organisation string  `json:"organisation,omitempty"`
	Shard        *uint32 `json:"shard,omitempty"`
	From         *uint32 `json:"from,omitempty"`
	To           uint32  `json:"to"`
	// State is ordered, departing, arriving, moving, done, never or unknown.
	State    string   `json:"state"`
	WaitsFor []uint32 `json:"waits_for"`
	Since    string   `json:"since,omitempty"`
}

// reportChanges converts the changes that a node shows with the tree.
func reportChanges(changes []*ledgerdv1.ShardChange) []shardChangeReport {
	reports := []shardChangeReport{}
	for _, each := range changes {
		report := shardChangeReport{Kind: each.GetKind(), Number: each.GetNumber(),
			Organisation: each.GetOrganisation(), From: each.From, To: each.GetTo(),
			State: each.GetState(), WaitsFor: append([]uint32{}, each.GetWaitsFor()...)}
		if shard := each.GetShard(); each.GetOrganisation() == "" {
			report.Shard = &shard
		}
		if at := each.GetSinceMs(); at > 0 {
			report.Since = time.UnixMilli(int64(at)).UTC().Format(time.RFC3339)
		}
		reports = append(reports, report)
	}
	return reports
}

// line says what changes, or "" if the change is over.
func (r *shardChangeReport) line() string {
	var text, waits string
	switch {
	case r.Organisation != "" && r.From != nil:
		text = fmt.Sprintf("%s moves from shard %d to shard %d",
			sanitize(r.Organisation, ledger.MaxOrganisationName), *r.From, r.To)
	case r.Shard != nil && r.From != nil:
		text = fmt.Sprintf("shard %d comes from below shard %d to below shard %d", *r.Shard,
			*r.From, r.To)
	case r.Shard != nil:
		text = fmt.Sprintf("shard %d is added below shard %d", *r.Shard, r.To)
	}
	switch r.State {
	case api.ChangeDone, api.ChangeNever:
		return ""
	case api.ChangeArriving:
		waits = "what it has is on its way"
	case api.ChangeUnknown:
		waits = "no node there says whether it has arrived"
	default:
		if len(r.WaitsFor) > 0 {
			waits = "it waits for " + shardsInWords(r.WaitsFor)
		}
	}
	if r.Since != "" {
		text += ", since " + r.Since
	}
	if waits != "" {
		text += ": " + waits
	}
	return text
}
