// The members of a chain at a place in the past: those of the genesis, as the changes of the
// members up to there made them. Nodes keep only the present ones and who left when.
import { Code, ConnectError } from "@connectrpc/connect";
import type { ClusterState, TransactionSummary } from "../gen/ledgerd/v1/ledgerd_pb";
import { api, callTimeoutMs } from "./api";
import { equalBytes } from "./bytes";
import { decodeGenesis, type Genesis } from "./genesis";
import { gatherListed } from "./look-through";
import type { Then } from "./open-then";
import { inShard } from "./shards";

export interface MemberThen {
  index: number;
  name: string;
  key: Uint8Array;
  /** Where the others reached it; undefined if the look did not find it. */
  address: string | undefined;
  /** The block that admitted it; 0 if it is in the genesis. */
  joinedHeight: bigint;
  /** The disk that counted for it; empty if the chain had named none, and undefined as above. */
  disk: string | undefined;
}

export interface MemberChange {
  height: bigint;
  timeMs: bigint;
  idHex: string;
  kind: "join" | "leave" | "admit" | "engine";
  /** -1 for an engine, and for a member that is not known. */
  index: number;
  /** Of the member, or of the engine. */
  name: string;
}

export interface MembersThen {
  /** Undefined if the look did not find all changes, and nothing else says who they were. */
  members: readonly MemberThen[] | undefined;
  /** The changes up to then that were found, the newest first. */
  changes: readonly MemberChange[];
  /** Whether the look was through all blocks up to then. */
  complete: boolean;
}

/** A change of the members, with the time of its block. */
interface Changed {
  transaction: TransactionSummary;
  timeMs: bigint;
}

/** Reads the genesis of a shard's chain from the node. */
export async function genesisOf(
  shard: number | undefined,
  signal: AbortSignal,
): Promise<Genesis> {
  const options = { signal, timeoutMs: callTimeoutMs };
  const decoded = await decodeGenesis((await api.getGenesis(inShard(shard), options)).canonical);
  if (decoded.problem === undefined) return decoded.value;
  throw new ConnectError(`the genesis cannot be read: ${decoded.problem}`, Code.DataLoss);
}

/**
 * Returns what a chain has of a kind up to then, the oldest first. complete says that these are
 * all: the look came to the first block, and the node has that.
 */
export async function appliedUntil(
  then: Then,
  kind: string,
  shard: number | undefined,
  signal: AbortSignal,
): Promise<{ found: Changed[]; complete: boolean }> {
  const request = { kind, status: "applied", toTimeMs: then.untilMs, ...inShard(shard) };
  const [{ listed, complete }, { fromHeight }] = await Promise.all([
    gatherListed(request, signal),
    api.getFigures(inShard(shard), { signal, timeoutMs: callTimeoutMs }),
  ]);
  const found = listed.flatMap(({ transaction, timeMs }) =>
    transaction?.status && !then.isLater(transaction.status) ? [{ transaction, timeMs }] : [],
  );
  return { found: found.reverse(), complete: complete && fromHeight <= 1n };
}

/**
 * Finds the members of a shard's chain. `cluster` is the state of that chain, if the node knows it:
 * it says who was a member then even if the look does not come to the first block.
 */
export async function membersThen(
  then: Then,
  shard: number | undefined,
  cluster: ClusterState | undefined,
  isLater: (height: bigint) => boolean,
  signal: AbortSignal,
): Promise<MembersThen> {
  const [genesis, { found, complete }] = await Promise.all([
    genesisOf(shard, signal),
    appliedUntil(then, "members", shard, signal),
  ]);
  const folded = fold(genesis, found);
  if (complete) return { ...folded, complete };
  if (!cluster) return { changes: folded.changes, complete, members: undefined };
  const disks = new Map(
    found.flatMap(({ transaction: { membershipChange } }): [number, string][] =>
      membershipChange?.change.case === "admit"
        ? [[membershipChange.change.value.index, membershipChange.change.value.disk]]
        : [],
    ),
  );
  return { changes: namedBy(cluster, found), complete, members: known(cluster, isLater, disks) };
}

/** The members after changes, the oldest change first. */
export function fold(
  genesis: Pick<Genesis, "members">,
  changes: readonly Changed[],
): { members: MemberThen[]; changes: MemberChange[] } {
  let next = 0;
  const members = new Map<number, MemberThen>();
  const names = new Map<number, string>();
  const add = (
    { name, key, address }: { name: string; key: Uint8Array; address: string },
    joinedHeight: bigint,
  ): number => {
    const present = [...members.values()].find((each) => equalBytes(each.key, key));
    if (present) return present.index; // a join that repeats what is so changes nothing
    const index = next++;
    members.set(index, { index, name, key, address, joinedHeight, disk: "" });
    names.set(index, name);
    return index;
  };
  for (const member of genesis.members) add(member, 0n);
  const told: MemberChange[] = [];
  for (const { transaction, timeMs } of changes) {
    const { height = 0n, idHex = "" } = transaction.status ?? {};
    const change = transaction.membershipChange?.change;
    if (change?.case === undefined) continue;
    let index: number;
    if (change.case === "join") index = add(change.value, height);
    else if (change.case === "leave") {
      index = change.value;
      members.delete(index);
    } else if (change.case === "engine") {
      told.push({ height, timeMs, idHex, kind: change.case, index: -1, name: change.value });
      continue;
    } else {
      index = change.value.index;
      const member = members.get(index);
      if (member) members.set(index, { ...member, disk: change.value.disk });
    }
    const name = names.get(index) ?? "";
    told.push({ height, timeMs, idHex, kind: change.case, index, name });
  }
  return { members: [...members.values()], changes: told.reverse() };
}

/** The members of then by what the node says of the present members and of those that left. */
function known(
  cluster: ClusterState,
  isLater: (height: bigint) => boolean,
  disks: ReadonlyMap<number, string>,
): MemberThen[] {
  const present = cluster.members
    .filter(({ joinedHeight }) => !isLater(joinedHeight))
    .map(({ index, name, key, address, joinedHeight }) => ({
      index,
      name,
      key,
      address,
      joinedHeight,
      disk: disks.get(index),
    }));
  const left = cluster.former
    .filter(({ joinedHeight, leftHeight }) => !isLater(joinedHeight) && isLater(leftHeight))
    .map(({ index, name, key, joinedHeight }) => ({
      index,
      name,
      key,
      address: undefined,
      joinedHeight,
      disk: disks.get(index),
    }));
  return [...present, ...left].sort((a, b) => a.index - b.index);
}

/** The changes that were found, with the names that the node knows; the newest first. */
function namedBy(cluster: ClusterState, changes: readonly Changed[]): MemberChange[] {
  const all = [...cluster.members, ...cluster.former];
  const names = new Map(all.map(({ index, name }) => [index, name]));
  return changes
    .flatMap(({ transaction: { status, membershipChange }, timeMs }): MemberChange[] => {
      const change = membershipChange?.change;
      if (!status || change?.case === undefined) return [];
      const { height, idHex } = status;
      if (change.case === "engine")
        return [{ height, timeMs, idHex, kind: change.case, index: -1, name: change.value }];
      const joined =
        change.case === "join"
          ? all.find(({ key }) => equalBytes(key, change.value.key))?.index
          : undefined;
      const index =
        change.case === "join"
          ? (joined ?? -1)
          : change.case === "leave"
            ? change.value
            : change.value.index;
      const name = change.case === "join" ? change.value.name : (names.get(index) ?? "");
      return [{ height, timeMs, idHex, kind: change.case, index, name }];
    })
    .reverse();
}
