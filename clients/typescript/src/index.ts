// A client of ledgerd, written from the published encodings (docs/encoding.md).
//
// Everything that needs no node is plain functions of bytes: transactions and bundles, keys, proofs
// and certificates. A Client submits and reads through a node's API.
//
// What always holds: decoders take only the one encoding of a value, and throw MalformedError for
// all other bytes; what is said to be verified was verified with the genesis alone, whatever a node
// says; a call ends within its time.

export {
  type Account,
  balance,
  type Balance,
  type BlockHeader,
  type ChartLine,
  type HistoryEntry,
  type Json,
  type Level,
  type OpenHold,
  type OpenSchedule,
  type Place,
  reached,
  type Status,
} from "./answers.js";
export {
  AssetChange,
  type AssetTerms,
  decimal,
  type Issuer,
  parseDecimal,
} from "./asset.js";
export * from "./balance.js";
export * from "./body.js";
export * from "./book.js";
export * from "./bundle.js";
export * from "./certificate.js";
export * from "./client.js";
export { base64, fromBase64, fromHex, hex, MalformedError } from "./codec.js";
export { PrivateKey, verify } from "./ed25519.js";
export { Genesis, home, type Shard } from "./genesis.js";
export * from "./hold.js";
export * from "./keys.js";
export { leafHash, pathOf, ProofError, rootOf, verifyPath } from "./merkle.js";
export * as names from "./names.js";
export * from "./packed.js";
export * from "./policy.js";
export * from "./proof.js";
export { APPLIED, CODES, NO_ITEM, reasonCode } from "./results.js";
export * from "./schedule.js";
export * from "./sender.js";
export * from "./supply.js";
export * from "./terms.js";
export * from "./transaction.js";
