package state

import (
	"encoding/binary"

	"github.com/ledgerd/ledgerd/ledger"
)

// attemptPolicy decides on a change of an organisation's policy. It changes nothing. The decision
// depends only on the directory, so all shards of a book decide alike.
func (s *State) attemptPolicy(t *ledger.Transaction, root ledger.Hash,
	signatures []ledger.Signature) ledger.Code {
	found := s.organisations[t.Signer]
	if found == nil {
		return ledger.UnknownOrganisation
	}
	return mayChangePolicy(&found.Organisation, t, root, signatures)
}

// mayChangePolicy decides on a change of a registered organisation's policy. It verifies the
// signatures again.
func mayChangePolicy(o *ledger.Organisation, t *ledger.Transaction, root ledger.Hash,
	signatures []ledger.Signature) ledger.Code {
	good := ledger.GoodSignatures(root, t.Signer, signatures)
	if code := o.Consents(t, good); code != ledger.Applied {
		return code
	}
	present := o.PresentPolicy()
	if t.Policy.Number != present.Number+1 {
		return ledger.PolicyOutdated
	}
	return ledger.Applied
}

// changePolicy makes a change that attemptPolicy allowed. It takes effect for the transactions
// after this one.
func (s *State) changePolicy(t *ledger.Transaction) {
	found := s.organisations[t.Signer]
	if !found.mark.touched {
		found.mark = s.keep(found.appendEntry)
		s.touchedOrganisations = append(s.touchedOrganisations, found)
	}
	policy := t.Policy.Clone()
	found.Policy, found.Keys = &policy, policy.PublicKeys()
}

// refuses reports whether the organisation of a posting's account refuses the asset. It refuses
// nothing that it signed for.
func (s *State) refuses(p *ledger.Posting, t *ledger.Transaction,
	signatures []ledger.Signature) bool {
	return s.mustAccept(p) &&
		s.authorised(p.Account.Organisation(), t, signatures) != ledger.Applied
}

// mustAccept reports whether the organisation of a posting's account receives an asset that it has
// to sign for.
func (s *State) mustAccept(p *ledger.Posting) bool {
	if p.Amount.Sign() <= 0 {
		return false
	}
	found := s.organisation(p.Account.Organisation())
	return found != nil && found.Policy != nil && !found.Policy.Accepts(p.Asset)
}

// appendPolicy appends the end of an organisation's entry. The entry of an organisation whose
// policy never changed has no such end, and so is the same as in versions without policies. The
// keys come before, so only their roles are here.
func (o *organisation) appendPolicy(to []byte) []byte {
	p := o.Policy
	to = binary.AppendUvarint(to, p.Number)
	for i := range p.Keys {
		to = append(to, byte(p.Keys[i].Role))
	}
	return p.AppendRules(to)
}

// policy reads the end of an organisation's entry.
func (r *reader) policy(keys []ledger.PublicKey) *ledger.Policy {
	p := &ledger.Policy{Number: r.Uvarint(), Keys: make([]ledger.PolicyKey, len(keys))}
	for i := range keys {
		p.Keys[i] = ledger.PolicyKey{Key: keys[i], Role: ledger.Role(r.Byte())}
	}
	p.Threshold = r.Count("signatures", ledger.MaxKeys, 0)
	p.Limits = make([]ledger.Limit, r.Count("limits", ledger.MaxLimits, 3))
	for i := range p.Limits {
		p.Limits[i] = ledger.Limit{Asset: r.assetName(), Above: r.amount(),
			Signatures: r.Count("signatures", ledger.MaxKeys, 0)}
	}
	p.RefuseAssets = r.Bool()
	p.Assets = make([]ledger.AssetName, r.Count("assets", ledger.MaxPolicyAssets, 2))
	for i := range p.Assets {
		p.Assets[i] = r.assetName()
	}
	if r.Err == nil && (p.Number == 0 || p.Validate() != nil) {
		r.Fail("policy")
	}
	return p
}
