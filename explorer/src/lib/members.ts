import {
  MemberStanding,
  type ClusterState,
  type MemberState,
  type NodeState,
} from "../gen/ledgerd/v1/ledgerd_pb";
import { formatSpan } from "./format";
import { modeName, modeWords, type Mode, type Word } from "./modes";

/** The standing of a member, as another member sees it: its mode, or why its mode is not known. */
export type Standing = Mode | "suspected" | "away" | "unreachable" | "never" | "unknown";

export function standing(member: MemberState): Standing {
  if (member.member && member.suspected && !member.self) return "suspected";
  if (!member.self && !member.connected && member.standing !== MemberStanding.FOLLOWING) {
    if (member.member) return "away";
    return member.standing === MemberStanding.NEVER_SEEN ? "never" : "unreachable";
  }
  // Only a node that says that it orders is shown as one: a mode that is not known is not green.
  const mode = modeName(member.mode);
  if (mode === undefined) return member.member ? "unknown" : "following";
  return mode === "ordering" && !member.member ? "following" : mode;
}

export const standingWords: Readonly<Record<Standing, Word>> = {
  ...modeWords,
  suspected: {
    text: "suspected",
    title: "Its heartbeats are missing; the group goes on without it if they stay away",
    colour: "warn dashed",
  },
  away: {
    text: "not connected",
    title: "In the group, but this node has no connection to it",
    colour: "bad dashed",
  },
  unreachable: {
    text: "unreachable",
    title: "It does not answer, and the group goes on without it",
    colour: "dashed",
  },
  never: {
    text: "never seen",
    title: "No message from it since this node started",
    colour: "dashed",
  },
  unknown: {
    text: "unknown",
    title: "It answers, but does not say whether it orders",
    colour: "hollow",
  },
};

/** How many members order now, as far as this node sees. */
export function membersOrdering(cluster: ClusterState): number {
  return cluster.members.filter((member) => standing(member) === "ordering").length;
}

/** How long the rounds waited for a member alone, or "" if they did not. */
export function heldUpWords(member: MemberState): string {
  return member.heldUpMs === 0
    ? ""
    : `the rounds waited for it alone for ${(member.heldUpMs / 1000).toFixed(1)} of the last 3 s`;
}

/** The distance of a node's clock from the members' median. */
export function clockWords(node: NodeState): string {
  const offset = node.clockOffsetMs;
  if (offset === undefined) return "has no clocks from a majority";
  const [far, where] = offset < 0n ? [-offset, "behind"] : [offset, "ahead of"];
  if (far < 10n) return "as the members' median";
  const span = far < 60_000n ? `${(Number(far) / 1000).toFixed(2)} s` : formatSpan(Number(far));
  return `${span} ${where} the members' median`;
}

/**
 * How many more nodes may fail: the failures that the digraph tolerates, minus its nodes that are
 * already down.
 */
export function spareWords(cluster: ClusterState): string {
  const inDigraph = new Set(cluster.edges.flatMap((edge) => [edge.from, edge.to]));
  const failed = cluster.members.filter(
    (member) => inDigraph.has(member.index) && standing(member) !== "ordering",
  ).length;
  const spare = Math.max(0, cluster.toleratedFailures - failed);
  if (failed > 0) return `${spare === 0 ? "no" : spare} more may fail`;
  return `${spare === 0 ? "none" : spare} may fail`;
}
