package route

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// A registration travels from the root down the tree, so a shard may not know yet an organisation
// that another shard knows. Where a bundle enters depends on the homes of its organisations. A node
// therefore first waits for the organisations that the root knows. Bundles from another shard's
// node wait until their signers are known.

// unknownIn returns the organisations of bundles that this shard does not know and that the bundle
// itself does not register: the signers, and with all also the owners of the accounts.
func (r *router) unknownIn(bundles []*ledger.Bundle,
	all bool) (unknown []ledger.OrganisationName) {
	opened := r.backend.Store()
	for _, bundle := range bundles {
		if bundle == nil {
			continue
		}
		need := func(name ledger.OrganisationName) {
			if _, known := opened.Organisation(name); !known && name != ledger.Operator &&
				!slices.Contains(unknown, name) && !registers(bundle, name) {
				unknown = append(unknown, name)
			}
		}
		for _, signature := range bundle.Signatures() {
			need(signature.Organisation)
		}
		for i := range bundle.Len() {
			for _, posting := range bundle.Transaction(i).Postings {
				if all {
					need(posting.Account.Organisation())
				}
			}
		}
	}
	return unknown
}

func registers(bundle *ledger.Bundle, name ledger.OrganisationName) bool {
	for i := range bundle.Len() {
		if slices.ContainsFunc(bundle.Transaction(i).Registrations,
			func(r ledger.Registration) bool {
				return r.Name == name
			}) {
			return true
		}
	}
	return false
}

// maxLearnt bounds how many of a submission's organisations the node looks up at the root.
const maxLearnt = 16

// learn waits until this shard knows those organisations of the bundles that the root knows. It
// returns the organisations that the root does not know.
func (r *router) learn(ctx context.Context,
	bundles []*ledger.Bundle) (nobody []ledger.OrganisationName) {
	unknown := r.unknownIn(bundles, true)
	if len(unknown) == 0 {
		return nil
	}
	root := r.shards.Tree().Root()
	if root == r.shards.Own() {
		return unknown
	}
	var coming []ledger.OrganisationName
	for _, name := range unknown[:min(len(unknown), maxLearnt)] {
		bounded, cancel := context.WithTimeout(ctx, askTime)
		_, err := r.shards.Client(root).GetOrganisation(bounded,
			connect.NewRequest(&ledgerdv1.GetOrganisationRequest{Name: string(name)}))
		cancel()
		switch {
		case err == nil:
			coming = append(coming, name)
		case connect.CodeOf(err) == connect.CodeNotFound:
			nobody = append(nobody, name)
		default:
			return nobody // the root does not answer; the node that admits the bundle decides
		}
	}
	r.awaitOrganisations(ctx, coming)
	return nobody
}

// awaitOrganisations waits up to learnTime for registrations to reach this shard.
func (r *router) awaitOrganisations(ctx context.Context, names []ledger.OrganisationName) {
	deadline := time.NewTimer(learnTime)
	defer deadline.Stop()
	for {
		_, changed := r.backend.Heights()
		opened := r.backend.Store()
		if !slices.ContainsFunc(names, func(name ledger.OrganisationName) bool {
			_, known := opened.Organisation(name)
			return !known
		}) {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// unregistered refuses a bundle signed by one of these organisations, which no shard knows.
func unregistered(bundle *ledger.Bundle, nobody []ledger.OrganisationName) *report.Refusal {
	for _, signature := range bundle.Signatures() {
		if slices.Contains(nobody, signature.Organisation) &&
			!registers(bundle, signature.Organisation) {
			return &report.Refusal{Code: report.RefusedUnknownOrganisation,
				Reason: fmt.Sprintf("unknown organisation: %s; register it first",
					signature.Organisation)}
		}
	}
	return nil
}

// entrance is the Backend of this node's shard for bundles that another shard's node passed on.
type entrance struct {
	api.Backend
	router *router
}

// Admit implements api.Backend. It waits until the bundles' signers are known here, and records
// which shards decide the admitted bundles.
func (e *entrance) Admit(ctx context.Context, bundles []*ledger.Bundle,
	inOrder bool) []*report.Refusal {
	if unknown := e.router.unknownIn(bundles, false); len(unknown) > 0 {
		e.router.awaitOrganisations(ctx, unknown)
	}
	refusals := e.router.admitHere(ctx, bundles, inOrder)
	for i, bundle := range bundles {
		if refusals[i] == nil {
			e.router.noteAdmitted(bundle)
		}
	}
	return refusals
}
