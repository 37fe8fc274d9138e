import type { ClusterState, MemberState } from "../gen/ledgerd/v1/ledgerd_pb";

/** How a member stands, as another member sees it. */
export type Standing = "up" | "suspected" | "away" | "removed";

export function standing(member: MemberState): Standing {
  if (!member.member) return "removed";
  if (member.suspected) return "suspected";
  return member.connected || member.self ? "up" : "away";
}

export const standingWords: Readonly<Record<Standing, { text: string; title: string; colour: string }>> = {
  up: { text: "up", title: "In the group that orders, and connected", colour: "good" },
  suspected: { text: "suspected", title: "Its heartbeats are missing; the group goes on without it if they stay away", colour: "warn" },
  away: { text: "not connected", title: "In the group, but this node has no connection to it", colour: "bad" },
  removed: { text: "removed", title: "Not in the group that orders now", colour: "" },
};

/** How many more nodes may fail: what the digraph tolerates, less those of its nodes that are not up already. */
export function spareWords(cluster: ClusterState): string {
  const inDigraph = new Set(cluster.edges.flatMap((edge) => [edge.from, edge.to]));
  const failed = cluster.members.filter((member) => inDigraph.has(member.index) && standing(member) !== "up").length;
  const spare = Math.max(0, cluster.toleratedFailures - failed);
  if (failed > 0) return `${spare === 0 ? "no" : spare} more may fail`;
  return `${spare === 0 ? "none" : spare} may fail`;
}
