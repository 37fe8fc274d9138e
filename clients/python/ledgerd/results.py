"""The results of transactions: the codes of docs/encoding.md, and the API's words for them."""

from __future__ import annotations

APPLIED = 0
NO_ITEM = (1 << 32) - 1

# By code. The words never change.
_REASONS = (
    "",
    "wrong_ledger",
    "expired",
    "unknown_organisation",
    "unauthorised",
    "stale_nonce",
    "unbalanced",
    "overflow",
    "unknown_account",
    "insufficient_funds",
    "organisation_exists",
    "account_exists",
    "too_many_assets",
    "membership_changing",
    "member_name_taken",
    "member_key_taken",
    "member_address_taken",
    "unknown_member",
    "last_member",
    "too_many_members",
    "set_aside",
    "relayed",
    "settled",
    "released",
    "opening_across_shards",
    "registration_not_alone",
    "unknown_shard",
    "too_many_waiting",
    "out_of_place",
    "member_disk_taken",
    "too_many_disks",
    "too_few_signatures",
    "policy_outdated",
    "asset_refused",
    "charter_outdated",
    "stream_quota",
    "account_quota",
    "asset_quota",
    "record_quota",
    "pending_quota",
    "deadline_passed",
    "deadline_missing",
    "deadline_too_far",
    "cancelled",
    "cancelled_too_late",
    "too_many_cancelled",
    "book_outdated",
    "too_many_shards",
    "shard_lost",
    "organisation_moving",
    "organisation_home",
    "shard_needed",
    "heard_agreement",
    "heard_nothing",
    "departed",
    "bad_parent",
    "asset_taken",
    "unknown_asset",
    "asset_outdated",
    "terms_fixed",
    "too_many_registered",
    "not_issuer",
    "issuance_closed",
    "supply_exceeded",
    "unknown_hold",
    "hold_over",
    "hold_ending",
    "hold_differs",
    "hold_time",
    "too_many_holds",
)

CODES = len(_REASONS)


def reason_code(code: int) -> str:
    """Return the API's word for a code, "" for applied."""
    return _REASONS[code] if code < CODES else f"code_{code}"
