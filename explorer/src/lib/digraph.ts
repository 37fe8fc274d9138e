// Lays out the reliable digraph: servers evenly on a circle, the first at the top. Edges are arcs
// that bend towards the middle.

export interface Edge {
  from: number;
  to: number;
}

export interface Point {
  x: number;
  y: number;
}

export interface LaidEdge extends Edge {
  path: string;
}

export interface Layout {
  size: number;
  nodeRadius: number;
  nodes: (Point & { index: number; label: Point; anchor: "start" | "middle" | "end" })[];
  edges: LaidEdge[];
}

/** With more servers, all edges together are unreadable: only the selected server's are drawn. */
export const maxServersWithAllEdges = 64;

/**
 * Lays out servers and edges. The servers' numbers need not be contiguous. An edge to a server that
 * is not listed is left out.
 */
export function layOut(servers: readonly number[], edges: readonly Edge[], size = 400): Layout {
  const sorted = [...new Set(servers)].sort((a, b) => a - b);
  const count = sorted.length;
  const centre = size / 2;
  const ring = count <= 1 ? 0 : size * 0.36;
  const nodeRadius = Math.max(2.5, Math.min(18, (ring * Math.PI) / Math.max(count, 1) / 1.8));
  const nodes = sorted.map((index, place) => {
    const angle = (2 * Math.PI * place) / count - Math.PI / 2;
    const cos = Math.cos(angle);
    const sin = Math.sin(angle);
    const outside = ring + nodeRadius + 13;
    const anchor: "start" | "middle" | "end" =
      count === 1 || Math.abs(cos) < 0.3 ? "middle" : cos > 0 ? "start" : "end";
    return {
      index,
      x: round(centre + ring * cos),
      y: round(centre + ring * sin),
      label: { x: round(centre + (outside - 4) * cos), y: round(centre + outside * sin + 4) },
      anchor,
    };
  });
  const at = new Map(nodes.map((node) => [node.index, node]));
  const laid: LaidEdge[] = [];
  for (const { from, to } of edges) {
    const start = at.get(from);
    const end = at.get(to);
    if (!start || !end || from === to) continue;
    laid.push({ from, to, path: arc(start, end, centre, nodeRadius) });
  }
  return { size, nodeRadius, nodes, edges: laid };
}

/**
 * A quadratic curve between the rims of two circles. It bends to its own left, so an edge and its
 * reverse do not cover each other.
 */
function arc(start: Point, end: Point, centre: number, nodeRadius: number): string {
  const dx = end.x - start.x;
  const dy = end.y - start.y;
  const length = Math.hypot(dx, dy);
  const bend = Math.min(length * 0.12, 26);
  const control = {
    x: (start.x + end.x) / 2 + (dy / length) * bend + (centre - (start.x + end.x) / 2) * 0.12,
    y: (start.y + end.y) / 2 - (dx / length) * bend + (centre - (start.y + end.y) / 2) * 0.12,
  };
  const from = towards(start, control, nodeRadius + 1);
  const to = towards(end, control, nodeRadius + 4);
  return `M${place(from)}Q${place(control)} ${place(to)}`;
}

const place = (point: Point): string => `${round(point.x)} ${round(point.y)}`;

function towards(from: Point, to: Point, distance: number): Point {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  return {
    x: from.x + ((to.x - from.x) / length) * distance,
    y: from.y + ((to.y - from.y) / length) * distance,
  };
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
