"""A client of ledgerd, written from the published encodings (docs/encoding.md).

Everything that needs no node is plain functions of bytes: transactions and bundles
(:class:`Transaction`, :class:`AssetChange`, :class:`Bundle`, :class:`PackedBundle`), keys
(:mod:`ledgerd.keys`), proofs and certificates (:class:`CertifiedProof`, :class:`Auditor`). A
:class:`Client` submits and reads through a node's API, and a :class:`Sender` posts for one
organisation.

What always holds: decoders take only the one encoding of a value, and raise MalformedError for all
other bytes; what is said to be verified was verified with the genesis alone, whatever a node says;
a call ends within its time.
"""

from . import keys
from .answers import (
    ADMITTED,
    DURABLE,
    DURABLE_EVERYWHERE,
    ORDERED,
    STORED,
    Account,
    Balance,
    Block,
    BlockHeader,
    HistoryEntry,
    Node,
    Status,
)
from .asset import AssetChange, Issuer, decimal, parse_decimal
from .bundle import OPERATOR, Bundle, Signature, bundles_of
from .certificate import (
    Auditor,
    Certificate,
    CertificateError,
    CertifiedProof,
    Finality,
    Seal,
)
from .client import Client
from .codec import MalformedError
from .ed25519 import PrivateKey, verify
from .errors import (
    ApiError,
    ConnectionFailed,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    LedgerdError,
    MalformedAnswer,
    NotDone,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    TransactionExpired,
    TransactionFailed,
    TransactionPending,
    Unauthenticated,
    Unavailable,
    require,
)
from .genesis import Genesis, Shard, home
from .merkle import ProofError
from .packed import PackedBody, PackedBundle, Transfer
from .proof import Header, Placing, Proof, Result
from .sender import Sender
from .supply import AssetProof, Issuance, ProvenAsset, ShardProof, Supply, SupplyProof, supply_of
from .transaction import (
    Cancellation,
    Details,
    Member,
    MembershipChange,
    Opening,
    Posting,
    Record,
    Registration,
    Transaction,
    transaction_id,
    transfer,
)

__version__ = "0.1.0"

__all__ = [
    "keys",
    "ADMITTED",
    "Account",
    "ApiError",
    "AssetChange",
    "AssetProof",
    "Auditor",
    "Balance",
    "Block",
    "BlockHeader",
    "Bundle",
    "Cancellation",
    "Details",
    "Certificate",
    "CertificateError",
    "CertifiedProof",
    "Client",
    "ConnectionFailed",
    "DURABLE",
    "DURABLE_EVERYWHERE",
    "DataLoss",
    "DeadlineExceeded",
    "FailedPrecondition",
    "Finality",
    "Genesis",
    "Header",
    "HistoryEntry",
    "InvalidArgument",
    "Issuance",
    "Issuer",
    "LedgerdError",
    "MalformedAnswer",
    "MalformedError",
    "Member",
    "MembershipChange",
    "Node",
    "NotDone",
    "NotFound",
    "OPERATOR",
    "ORDERED",
    "Opening",
    "PackedBody",
    "PackedBundle",
    "PermissionDenied",
    "Placing",
    "Posting",
    "PrivateKey",
    "Proof",
    "ProofError",
    "ProvenAsset",
    "Record",
    "Registration",
    "ResourceExhausted",
    "Result",
    "STORED",
    "Seal",
    "Sender",
    "Shard",
    "ShardProof",
    "Signature",
    "Status",
    "Supply",
    "SupplyProof",
    "Transaction",
    "TransactionExpired",
    "TransactionFailed",
    "TransactionPending",
    "Transfer",
    "Unauthenticated",
    "Unavailable",
    "bundles_of",
    "decimal",
    "home",
    "parse_decimal",
    "require",
    "supply_of",
    "transaction_id",
    "transfer",
    "verify",
]
