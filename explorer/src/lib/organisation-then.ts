// The keys, the policy and the home of an organisation at a place in the past. They follow from its
// registration, from its changes of its policy, and from the changes of the book that moved it.
import { create } from "@bufbuild/protobuf";
import type { Organisation } from "../gen/ledgerd/v1/ledgerd_pb";
import { PolicySchema, type Policy, type TransactionBody } from "../gen/ledgerd/v1/transaction_pb";
import { api, callTimeoutMs } from "./api";
import { findListed } from "./look-through";
import type { Then } from "./open-then";
import type { TreeThen } from "./tree-then";

/** Finds the policy of then, with its keys; undefined if the look did not come to it. */
export async function policyThen(
  { name, policy }: Pick<Organisation, "name" | "policy">,
  then: Then,
  signal: AbortSignal,
): Promise<Policy | undefined> {
  if (policy?.number === 0n) return policy; // it never changed
  const change = await lastOf("policy", name, then, signal);
  if (change) return change.policy;
  // The look is from then back. So if it comes to the registration, nothing is between.
  const registered = (await lastOf("registration", name, then, signal))?.organisations.find(
    (each) => each.name === name,
  );
  return (
    registered &&
    create(PolicySchema, {
      threshold: 1,
      keys: registered.publicKeys.map((publicKey) => ({ publicKey, role: "all" })),
    })
  );
}

/** The last transaction of a kind up to then that an organisation signs, or that registers it. */
async function lastOf(
  kind: "policy" | "registration",
  organisation: string,
  then: Then,
  signal: AbortSignal,
): Promise<TransactionBody | undefined> {
  const request = {
    kind,
    organisation,
    status: "applied",
    toTimeMs: then.untilMs,
    pageSize: 1000,
  };
  const found = await findListed(
    request,
    ({ transaction }) =>
      transaction?.status !== undefined &&
      !then.isLater(transaction.status) &&
      (kind === "registration" || transaction.signer === organisation),
    signal,
  );
  const idHex = found.listed?.transaction?.status?.idHex;
  if (idHex === undefined) return undefined;
  return (await api.getTransaction({ idHex }, { signal, timeoutMs: callTimeoutMs })).transaction
    ?.body;
}

/** Says where an organisation lived, or was on its way to; undefined if that is not known. */
export function homeThen(
  { name, shard, earlierHomes }: Pick<Organisation, "name" | "shard" | "earlierHomes">,
  { changes, complete }: Pick<TreeThen, "changes" | "complete">,
): number | undefined {
  if (earlierHomes.length === 0) return shard; // it never moved
  for (const { transaction } of changes) {
    const change = transaction.book?.change;
    if (change?.case === "move" && change.value.organisation === name) return change.value.to;
  }
  return complete ? earlierHomes[0]?.shard : undefined;
}
