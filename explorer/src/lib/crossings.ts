// What crosses between shards: counts by pair, and how the map draws them.
import type { Figures } from "../gen/ledgerd/v1/figures_pb";
import type { Shard, TransactionSummary } from "../gen/ledgerd/v1/ledgerd_pb";
import { periodsShown, startsOf, type ShardFigures } from "./figures";
import { passesThrough, walk, type TreeNode } from "./shards";

/** Since the beginning, or in the last hours, days or months. */
export const spans = ["all", "hours", "days", "months"] as const;
export type Span = (typeof spans)[number];

export const spanWords: Readonly<Record<Span, string>> = {
  all: "Since the beginning",
  hours: `${periodsShown.hours} hours`,
  days: `${periodsShown.days} days`,
  months: `${periodsShown.months} months`,
};

/** The beginning of a span; undefined if it has none. */
export function spanStart(span: Span, nowMs: number): number | undefined {
  return span === "all" ? undefined : startsOf(span, periodsShown[span], nowMs)[0];
}

/** What a shard's chain says about its crossings with another shard. */
export interface Side {
  /** Undefined if the shard did not answer, or has forgotten. */
  transactions: bigint | undefined;
  /** Verdicts of the other shard in this chain; undefined as above. */
  verdicts: bigint | undefined;
}

/** Two shards, the lower number first. */
export interface Pair {
  a: number;
  b: number;
  /** What the chain that has more says. One chain may be behind, or not answer. */
  transactions: bigint;
  inA: Side;
  inB: Side;
}

/** The figures of a span: the total, or the periods in it. */
function figuresIn(answer: ShardFigures["answer"], span: Span, nowMs: number): Figures[] {
  if (!answer) return [];
  if (span === "all") return answer.total ? [answer.total] : [];
  const start = spanStart(span, nowMs) ?? 0;
  return answer[span].filter(({ startMs }) => Number(startMs) >= start);
}

/** Whether a shard's node has forgotten crossings of the span. */
export function hasForgotten({ answer }: ShardFigures, span: Span, nowMs: number): boolean {
  return figuresIn(answer, span, nowMs).some(({ crossingsForgotten }) => crossingsForgotten);
}

/** The pairs of shards with crossings in a span, those with most first. */
export function pairsOf(shards: readonly ShardFigures[], span: Span, nowMs: number): Pair[] {
  const answered = new Map<number, boolean>();
  const sides = new Map<string, Side>();
  const seen = new Map<string, [number, number]>();
  for (const each of shards) {
    answered.set(each.shard, each.answer !== undefined && !hasForgotten(each, span, nowMs));
    for (const { crossings } of figuresIn(each.answer, span, nowMs))
      for (const { shard: other, transactions, verdicts } of crossings) {
        const key = `${each.shard} ${other}`;
        const side = sides.get(key) ?? { transactions: 0n, verdicts: 0n };
        sides.set(key, {
          transactions: (side.transactions ?? 0n) + transactions,
          verdicts: (side.verdicts ?? 0n) + verdicts,
        });
        const pair: [number, number] = [Math.min(each.shard, other), Math.max(each.shard, other)];
        seen.set(pair.join(" "), pair);
      }
  }
  const sideOf = (chain: number, other: number): Side =>
    sides.get(`${chain} ${other}`) ?? {
      transactions: answered.get(chain) ? 0n : undefined,
      verdicts: answered.get(chain) ? 0n : undefined,
    };
  return [...seen.values()]
    .map(([a, b]): Pair => {
      const [inA, inB] = [sideOf(a, b), sideOf(b, a)];
      const [one, two] = [inA.transactions ?? 0n, inB.transactions ?? 0n];
      return { a, b, transactions: one > two ? one : two, inA, inB };
    })
    .sort((x, y) =>
      x.transactions === y.transactions
        ? x.a - y.a || x.b - y.b
        : x.transactions > y.transactions
          ? -1
          : 1,
    );
}

/** The address of the list of what crossed between two shards, as the chain of the first has it. */
export function crossingPath({ a, b, inA }: Pair, span: Span, nowMs: number): string {
  const start = spanStart(span, nowMs);
  const [shard, other] = inA.transactions === undefined ? [b, a] : [a, b];
  const query = new URLSearchParams({ shard: String(shard), with: String(other) });
  if (start !== undefined) query.set("from", new Date(start).toISOString().replace(".000Z", "Z"));
  return `/transactions?${query}`;
}

/** A table has at most so many pairs. */
export const rowsMost = 500;

export const crossingHeader = ["shard", "with", "transactions", "verdicts of the other"];

/** A row for each chain and other shard, as the chain counts it. */
export function crossingRows(pairs: readonly Pair[]): (string | number | bigint)[][] {
  return pairs.flatMap(({ a, b, inA, inB }) => [
    [a, b, inA.transactions ?? "", inA.verdicts ?? ""],
    [b, a, inB.transactions ?? "", inB.verdicts ?? ""],
  ]);
}

export interface MapRow {
  shard: number;
  x: number;
  y: number;
}

export interface MapEdge {
  parent: number;
  child: number;
  path: string;
}

export interface MapArc {
  pair: Pair;
  path: string;
  /** From the second shard to the first. */
  back: string;
  width: number;
  /** The middle of its label. */
  label: { x: number; y: number };
}

export interface MapLayout {
  width: number;
  height: number;
  boxWidth: number;
  boxHeight: number;
  rows: MapRow[];
  edges: MapEdge[];
  arcs: MapArc[];
}

/** The map has at most so many shards, those with most crossings, and so many arcs. */
export const shardsOnMap = 24;
export const arcsOnMap = 120;

const gap = 18;
const marginRight = 34;

/**
 * Lays out the map for a width in pixels: a row for each shard, in the order of the tree and
 * indented by it, and at the right an arc for each pair with crossings. No arc crosses a box, and
 * arcs with the same middle reach out differently far, so labels do not meet.
 */
export function layOutMap(
  nodes: readonly TreeNode[],
  pairs: readonly Pair[],
  width: number,
  boxHeight: number,
): MapLayout {
  const narrow = width < 560;
  const depth = Math.max(0, ...nodes.map((node) => node.depth));
  const step = Math.min(narrow ? 12 : 28, depth === 0 ? 0 : (width * 0.2) / depth);
  const boxWidth = Math.round(Math.min(320, width * (narrow ? 0.56 : 0.4) - depth * step * 0.5));
  const rows = nodes.map((node, i) => ({
    shard: node.shard,
    x: Math.round(node.depth * step),
    y: i * (boxHeight + gap),
  }));
  const at = new Map(rows.map((row, i) => [row.shard, { ...row, i }]));
  const edges = nodes.flatMap((node): MapEdge[] => {
    const [from, to] = [at.get(node.parent ?? -1), at.get(node.shard)];
    if (node.parent === undefined || !from || !to) return [];
    const x = from.x + Math.max(5, step / 2);
    const middle = to.y + boxHeight / 2;
    const path =
      to.x - x > 4
        ? `M${x} ${from.y + boxHeight}V${middle - 6}q0 6 6 6H${to.x}`
        : `M${x} ${from.y + boxHeight}V${to.y}`;
    return [{ parent: node.parent, child: node.shard, path }];
  });
  const left = depth * step + boxWidth;
  const room = Math.max(30, width - left - marginRight);
  const most = Number(pairs[0]?.transactions ?? 1n) || 1;
  const arcs = pairs.slice(0, arcsOnMap).flatMap((pair): MapArc[] => {
    const [a, b] = [at.get(pair.a), at.get(pair.b)];
    if (!a || !b) return [];
    const [y1, y2] = [a.y + boxHeight / 2, b.y + boxHeight / 2];
    const far = nodes.length > 2 ? (Math.abs(a.i - b.i) - 1) / (nodes.length - 2) : 0;
    const reach = Math.min(room, 40 + far * Math.min(room - 40, 130 * (nodes.length - 2)));
    // A curve comes to three quarters of its handles.
    const out = Math.round(left + (reach * 4) / 3);
    const [x1, x2] = [a.x + boxWidth, b.x + boxWidth];
    const curve = (xa: number, ya: number, xb: number, yb: number): string =>
      `M${xa} ${ya}H${left}C${out} ${ya} ${out} ${yb} ${left} ${yb}H${xb}`;
    return [
      {
        pair,
        path: curve(x1, y1, x2, y2),
        back: curve(x2, y2, x1, y1),
        width: Math.round(10 * (1.5 + 5 * Math.sqrt(Number(pair.transactions) / most))) / 10,
        label: { x: Math.round(left + reach), y: (y1 + y2) / 2 },
      },
    ];
  });
  return {
    width,
    height: Math.max(0, rows.length * (boxHeight + gap) - gap),
    boxWidth,
    boxHeight,
    rows,
    edges,
    arcs,
  };
}

/** The shards to draw, in the tree's order: all, or those with most crossings and those above. */
export function nodesOnMap(
  shards: readonly Pick<Shard, "shard" | "parent" | "root">[],
  pairs: readonly Pair[],
): TreeNode[] {
  const nodes = walk(shards);
  if (nodes.length <= shardsOnMap) return nodes;
  const parents = new Map(nodes.map(({ shard, parent }) => [shard, parent]));
  const drawn = new Set<number>();
  for (const shard of [...pairs.flatMap(({ a, b }) => [a, b]), ...parents.keys()]) {
    const way: number[] = [];
    for (let up: number | undefined = shard; up !== undefined; up = parents.get(up))
      if (!drawn.has(up)) way.push(up);
    if (drawn.size + way.length <= shardsOnMap) for (const each of way) drawn.add(each);
  }
  return nodes.filter(({ shard }) => drawn.has(shard));
}

/** What moves on the map when a shard orders a block. */
export interface Move {
  from: number;
  to: number;
  /** An entry goes down an edge of the tree; a verdict goes along an arc. */
  kind: "entry" | "verdict";
  count: number;
}

/** A transaction that crosses, when it comes into a chain that executes it. */
export interface Crossing {
  idHex: string;
  shard: number;
  destinations: readonly number[];
  signer: string;
  timeMs: bigint;
}

/** The lowest shard above all of these; undefined if they hang on no common one. */
export function lowestAbove(
  parents: ReadonlyMap<number, number | undefined>,
  shards: readonly number[],
): number | undefined {
  const way = (shard: number): number[] => {
    const up: number[] = [];
    for (
      let at: number | undefined = shard;
      at !== undefined && up.length <= parents.size;
      at = parents.get(at)
    )
      up.push(at);
    return up;
  };
  const [first, ...rest] = shards.map(way);
  return first?.find((shard) => rest.every((each) => each.includes(shard)));
}

/**
 * What a block of a shard shows on the map, given each shard's parent. An entry that concerns
 * several shards came from the parent, unless it entered the tree here.
 */
export function movesIn(
  shard: number,
  entries: readonly TransactionSummary[],
  timeMs: bigint,
  parents: ReadonlyMap<number, number | undefined>,
): { moves: Move[]; crossings: Crossing[] } {
  const moves = new Map<string, Move>();
  const crossings: Crossing[] = [];
  const add = (from: number, to: number, kind: Move["kind"]): void => {
    const key = `${from} ${kind}`;
    const move = moves.get(key);
    if (move) move.count++;
    else moves.set(key, { from, to, kind, count: 1 });
  };
  for (const { verdict, verdictShard, status, signer } of entries) {
    if (verdict !== "") {
      add(verdictShard, shard, "verdict");
      continue;
    }
    if (!status || status.destinations.length < 2) continue;
    const parent = parents.get(shard);
    if (parent !== undefined && lowestAbove(parents, status.destinations) !== shard)
      add(parent, shard, "entry");
    if (!passesThrough(status, shard) && shard === Math.min(...status.destinations))
      crossings.push({
        idHex: status.idHex,
        shard,
        destinations: status.destinations,
        signer,
        timeMs,
      });
  }
  return { moves: [...moves.values()], crossings };
}

