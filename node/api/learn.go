package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// A registration travels from the root down the tree, so a shard may not know yet an organisation
// that another shard knows. Where a bundle enters depends on the homes of its organisations. A node
// therefore first waits for the organisations that the root knows. Bundles from another shard's
// node wait until their signers are known.

// unknownIn returns the organisations of bundles that this shard does not know and that the bundle
// itself does not register: the signers, and with all also the owners of the accounts.
func (s *service) unknownIn(bundles []*ledger.Bundle,
	all bool) (unknown []ledger.OrganisationName) {
	opened := s.backend.Store()
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
func (s *service) learn(ctx context.Context, others Shards,
	bundles []*ledger.Bundle) (nobody []ledger.OrganisationName) {
	unknown := s.unknownIn(bundles, true)
	if len(unknown) == 0 {
		return nil
	}
	root := others.Tree().Root()
	if root == others.Own() {
		return unknown
	}
	var coming []ledger.OrganisationName
	for _, name := range unknown[:min(len(unknown), maxLearnt)] {
		bounded, cancel := context.WithTimeout(ctx, askTime)
		_, err := others.Client(root).GetOrganisation(bounded,
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
	s.awaitOrganisations(ctx, coming)
	return nobody
}

// awaitOrganisations waits up to learnTime for registrations to reach this shard.
func (s *service) awaitOrganisations(ctx context.Context, names []ledger.OrganisationName) {
	deadline := time.NewTimer(learnTime)
	defer deadline.Stop()
	for {
		_, changed := s.backend.Heights()
		opened := s.backend.Store()
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

// awaitSigners makes a bundle from another shard's node wait until its signers are known here.
func (s *service) awaitSigners(ctx context.Context, bundles []*ledger.Bundle) {
	if s.backend.Shards() == nil {
		return
	}
	if unknown := s.unknownIn(bundles, false); len(unknown) > 0 {
		s.awaitOrganisations(ctx, unknown)
	}
}
