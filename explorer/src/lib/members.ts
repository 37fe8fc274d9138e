import { MemberStanding, type ClusterState, type MemberState, type NodeState } from "../gen/ledgerd/v1/ledgerd_pb";
import { formatSpan } from "./format";

/** The standing of a member, as another member sees it. */
export type Standing = "up" | "suspected" | "away" | "following" | "removed";

export function standing(member: MemberState): Standing {
  if (!member.member) return member.standing === MemberStanding.FOLLOWING ? "following" : "removed";
  if (member.suspected) return "suspected";
  return member.connected || member.self ? "up" : "away";
}

export const standingWords: Readonly<Record<Standing, { text: string; title: string; colour: string }>> = {
  up: { text: "up", title: "In the group that orders, and connected", colour: "good" },
  suspected: { text: "suspected", title: "Its heartbeats are missing; the group goes on without it if they stay away", colour: "warn" },
  away: { text: "not connected", title: "In the group, but this node has no connection to it", colour: "bad" },
  following: { text: "following", title: "It answers and follows the chain, but does not order: it was benched because the others waited for it, is catching up, or has a new disk", colour: "warn" },
  removed: { text: "removed", title: "Not in the group that orders now", colour: "" },
};

/** How long the rounds waited for a member alone, or "" if they did not. */
export function heldUpWords(member: MemberState): string {
  return member.heldUpMs === 0 ? "" : `the rounds waited for it alone for ${(member.heldUpMs / 1000).toFixed(1)} of the last 3 s`;
}

/** The distance of a node's clock from the members' median. */
export function clockWords(node: NodeState): string {
  const offset = node.clockOffsetMs;
  if (offset === undefined) return "has no clocks from a majority";
  const [far, where] = offset < 0n ? [-offset, "behind"] : [offset, "ahead of"];
  if (far < 10n) return "as the members' median";
  return `${far < 60_000n ? `${(Number(far) / 1000).toFixed(2)} s` : formatSpan(Number(far))} ${where} the members' median`;
}

/**
 * How many more nodes may fail: the failures that the digraph tolerates, minus its nodes that are
 * already down.
 */
export function spareWords(cluster: ClusterState): string {
  const inDigraph = new Set(cluster.edges.flatMap((edge) => [edge.from, edge.to]));
  const failed = cluster.members.filter((member) => inDigraph.has(member.index) && standing(member) !== "up").length;
  const spare = Math.max(0, cluster.toleratedFailures - failed);
  if (failed > 0) return `${spare === 0 ? "no" : spare} more may fail`;
  return `${spare === 0 ? "none" : spare} may fail`;
}
