package api

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

func policyToProto(policy *ledger.Policy) *ledgerdv1.Policy {
	shown := &ledgerdv1.Policy{Number: policy.Number, Threshold: uint32(policy.Threshold),
		RefuseAssets: policy.RefuseAssets}
	for i := range policy.Keys {
		shown.Keys = append(shown.Keys, &ledgerdv1.PolicyKey{PublicKey: policy.Keys[i].Key[:],
			Role: policy.Keys[i].Role.String()})
	}
	for i := range policy.Limits {
		limit := &policy.Limits[i]
		shown.Limits = append(shown.Limits, &ledgerdv1.PolicyLimit{Asset: string(limit.Asset),
			Above: limit.Above.String(), Signatures: uint32(limit.Signatures)})
	}
	for _, asset := range policy.Assets {
		shown.Assets = append(shown.Assets, string(asset))
	}
	return shown
}

func changeOfPolicyToProto(change *ledger.PolicyChange) *ledgerdv1.Policy {
	if change == nil {
		return nil
	}
	return policyToProto(&change.Policy)
}

// PolicyFromProto reads a policy. It checks the form of its parts, and Policy.Validate checks the
// rest.
func PolicyFromProto(message *ledgerdv1.Policy) (ledger.Policy, error) {
	policy := ledger.Policy{Number: message.GetNumber(),
		Threshold:    int(min(message.GetThreshold(), 1<<16)),
		RefuseAssets: message.GetRefuseAssets()}
	for i, key := range message.GetKeys() {
		read := ledger.PolicyKey{}
		if len(key.GetPublicKey()) != len(read.Key) {
			return policy, fmt.Errorf("policy: key %d: a public key has 32 bytes, not %d", i+1,
				len(key.GetPublicKey()))
		}
		copy(read.Key[:], key.GetPublicKey())
		if role := key.GetRole(); role != "" {
			if err := read.Role.UnmarshalText([]byte(role)); err != nil {
				return policy, fmt.Errorf("policy: key %d: %w", i+1, err)
			}
		}
		policy.Keys = append(policy.Keys, read)
	}
	for i, limit := range message.GetLimits() {
		above, err := ledger.ParseAmount(limit.GetAbove())
		if err != nil {
			return policy, fmt.Errorf("policy: limit %d: %w", i+1, err)
		}
		asset := ledger.AssetName(limit.GetAsset())
		if asset == "" {
			asset = ledger.DefaultAsset
		}
		policy.Limits = append(policy.Limits, ledger.Limit{Asset: asset, Above: above,
			Signatures: int(min(limit.GetSignatures(), 1<<16))})
	}
	for _, asset := range message.GetAssets() {
		policy.Assets = append(policy.Assets, ledger.AssetName(asset))
	}
	return policy, nil
}

// changeOfPolicyFromProto reads a change of a policy, or nil if there is none.
func changeOfPolicyFromProto(message *ledgerdv1.Policy) (*ledger.PolicyChange, error) {
	if message == nil {
		return nil, nil
	}
	policy, err := PolicyFromProto(message)
	return &ledger.PolicyChange{Policy: policy}, err
}

func charterToProto(charter *ledger.Charter) *ledgerdv1.Charter {
	return &ledgerdv1.Charter{Number: charter.Number, Operators: keysToProto(charter.Operators),
		Threshold:               uint32(charter.Threshold),
		RegistrationByOperators: charter.RegistrationByOperators,
		Quotas:                  quotasToProto(charter.Quotas), Version: uint32(charter.Version)}
}

func quotasToProto(quotas ledger.Quotas) *ledgerdv1.Quotas {
	return &ledgerdv1.Quotas{Streams: quotas.Streams, Accounts: quotas.Accounts,
		Assets: quotas.Assets, Records: quotas.Records, Pending: quotas.Pending}
}

// QuotasFromProto reads quotas, or what an organisation keeps.
func QuotasFromProto(message *ledgerdv1.Quotas) ledger.Quotas {
	return ledger.Quotas{Streams: message.GetStreams(), Accounts: message.GetAccounts(),
		Assets: message.GetAssets(), Records: message.GetRecords(), Pending: message.GetPending()}
}

func changeOfCharterToProto(change *ledger.CharterChange) *ledgerdv1.Charter {
	if change == nil {
		return nil
	}
	return charterToProto(&change.Charter)
}

// CharterFromProto reads a charter. It checks the form of its parts, and Charter.Validate checks
// the rest.
func CharterFromProto(message *ledgerdv1.Charter) (ledger.Charter, error) {
	charter := ledger.Charter{Number: message.GetNumber(),
		Threshold:               int(min(message.GetThreshold(), 1<<16)),
		RegistrationByOperators: message.GetRegistrationByOperators(),
		Quotas:                  QuotasFromProto(message.GetQuotas()),
		Version:                 int(message.GetVersion())}
	for i, key := range message.GetOperators() {
		var read ledger.PublicKey
		if len(key) != len(read) {
			return charter, fmt.Errorf("charter: operator %d: a public key has 32 bytes, not %d",
				i+1, len(key))
		}
		copy(read[:], key)
		charter.Operators = append(charter.Operators, read)
	}
	return charter, nil
}

// changeOfCharterFromProto reads a change of the charter, or nil if there is none.
func changeOfCharterFromProto(message *ledgerdv1.Charter) (*ledger.CharterChange, error) {
	if message == nil {
		return nil, nil
	}
	charter, err := CharterFromProto(message)
	return &ledger.CharterChange{Charter: charter}, err
}
