// The tree of shards for display: its layout, and the state of each shard and its stream in words.
import type {
  Organisation,
  ShardMember,
  ShardPlace,
  Shard,
  TransactionStatus,
  TransactionSummary,
  Tree,
} from "../gen/ledgerd/v1/ledgerd_pb";
import type { ShardRefusal } from "../gen/ledgerd/v1/shards_pb";
import type { BookChange } from "../gen/ledgerd/v1/transaction_pb";
import { formatCount, plural } from "./format";
import { modeWords, type Mode, type Word } from "./modes";

const modes: Readonly<{ [mode: string]: Word }> = {
  ordering: { text: "ordering", title: "A majority of its nodes orders", colour: "good" },
  halted: {
    text: "halted",
    title: "It has no majority. Transactions that need it wait until it is back",
    colour: "bad",
  },
  silent: {
    text: "silent",
    title: "No recent message from any of its nodes",
    colour: "warn dashed",
  },
  lost: {
    text: "lost",
    title: "The operators settled with it. The other shards go on without it",
    colour: "bad",
  },
};

/** A shard's mode. */
export function modeWord(mode: string): Word {
  return modes[mode] ?? { text: mode || "unknown", title: "", colour: "" };
}

/** The mode of a member of a shard; undefined without a recent message from it. */
export function memberMode(member: ShardMember): Mode | undefined {
  return Object.hasOwn(modeWords, member.mode) ? (member.mode as Mode) : undefined;
}

/** The state of a member of a shard. */
export function memberWord(member: ShardMember): Word {
  const mode = memberMode(member);
  if (mode) return modeWords[mode];
  return member.lastHeardMs > 0n
    ? { text: "silent", title: "No recent message from it", colour: "bad dashed" }
    : { text: "never heard", title: "No message from it yet", colour: "dashed" };
}

/** How many members run, whatever their mode: those with a recent message. */
export function membersRunning(shard: Shard): number {
  return shard.members.filter((member) => memberMode(member) !== undefined).length;
}

export interface Stream {
  /** Entries in the parent's chain, and how many of them the child has. */
  streamed: bigint;
  carried: bigint;
  behind: bigint;
}

/**
 * The stream from a shard's parent; undefined for the root. The child's own report may be newer
 * than its parent's.
 */
export function streamTo(tree: Tree, child: Shard): Stream | undefined {
  if (child.root) return undefined;
  const told = tree.shards
    .find((shard) => shard.shard === child.parent)
    ?.streams.find((stream) => stream.child === child.shard);
  const carried = told && told.carried > child.carried ? told.carried : child.carried;
  const streamed = told && told.streamed > carried ? told.streamed : carried;
  return { streamed, carried, behind: streamed - carried };
}

/** The lag of a stream, in words. */
export function lagWord(stream: Stream): string {
  return stream.behind === 0n
    ? "up to date"
    : `${plural(stream.behind, "entry", "entries")} behind`;
}

/** Entries of a shard's chain that have waited for another shard for longer than the bound. */
export interface Overdue {
  /** The shard that is waited for. */
  awaited: number;
  /** The shard in whose chain they are. */
  shard: number;
  /** Transactions that lack a verdict, or entries of the stream that a child has not taken. */
  kind: "verdict" | "stream";
  count: bigint;
  /** Those of the stream that no member of the shard has any more, so that they are lost. */
  lost: bigint;
  /** Since when the oldest waits; 0 if that is not known. */
  sinceMs: bigint;
}

/** What is overdue in a tree, by the shard that is waited for, the longest wait first. */
export function overdueIn(tree: Pick<Tree, "shards">): Overdue[] {
  const found = tree.shards.flatMap((shard) =>
    (["verdict", "stream"] as const).flatMap((kind) =>
      (kind === "verdict" ? shard.waitsFor : shard.untakenBy)
        .filter((wait) => wait.overdue > 0n)
        .map((wait) => ({
          awaited: wait.shard,
          shard: shard.shard,
          kind,
          count: wait.overdue,
          lost: wait.lost,
          sinceMs: wait.sinceMs,
        })),
    ),
  );
  return found.sort(
    (a, b) => a.awaited - b.awaited || Number(a.sinceMs - b.sinceMs) || a.shard - b.shard,
  );
}

/** What is overdue, in words that follow the name of the shard that is waited for. */
export function overdueText({ shard, kind, count, lost }: Overdue): string {
  const wait = count === 1n ? "waits" : "wait";
  return kind === "verdict"
    ? `${plural(count, "transaction")} of shard ${shard} ${wait} for its verdict`
    : `it has not taken ${plural(count, "entry", "entries")} that shard ${shard} streamed to it` +
        (lost === 0n ? "" : `, of which ${lost} cannot be had any more: no member there has them`);
}

/** What a node refuses, in words. */
export function refusedText({ shard, awaited }: Pick<ShardRefusal, "shard" | "awaited">): string {
  return awaited === undefined
    ? `transactions that cross to shard ${shard}, which is down`
    : `transactions between shards ${shard} and ${awaited}, since too many wait there already`;
}

export interface TreeNode {
  shard: number;
  parent: number | undefined;
  depth: number;
  children: readonly number[];
}

/**
 * The shards from the root down: each before its children, children by number. Shards that hang on
 * no root, or appear twice, are left out.
 */
export function walk(shards: readonly Pick<Shard, "shard" | "parent" | "root">[]): TreeNode[] {
  const children = new Map<number, number[]>();
  for (const { shard, parent, root } of shards)
    if (!root) children.set(parent, [...(children.get(parent) ?? []), shard]);
  for (const list of children.values()) list.sort((a, b) => a - b);
  const nodes: TreeNode[] = [];
  const seen = new Set<number>();
  const rest = shards
    .filter((shard) => shard.root)
    .map(({ shard }): { shard: number; parent: number | undefined; depth: number } => ({
      shard,
      parent: undefined,
      depth: 0,
    }));
  for (let at = rest.shift(); at; at = rest.shift()) {
    if (seen.has(at.shard)) continue;
    seen.add(at.shard);
    const { shard, depth } = at;
    const below = children.get(shard) ?? [];
    nodes.push({ ...at, children: below });
    rest.unshift(...below.map((child) => ({ shard: child, parent: shard, depth: depth + 1 })));
  }
  return nodes;
}

export interface Box {
  shard: number;
  x: number;
  y: number;
}

export interface Edge {
  parent: number;
  child: number;
  /** The line from the parent's box to the child's, as an SVG path. */
  path: string;
  /** The start of its text, at half the text's height. */
  label: { x: number; y: number };
}

export interface TreeLayout {
  width: number;
  height: number;
  boxWidth: number;
  boxHeight: number;
  boxes: Box[];
  edges: Edge[];
  /**
   * From the top down with usual or compact boxes. Where the shards do not fit beside each other,
   * an indented list.
   */
  form: "down" | "compact" | "indented";
}

export interface BoxSizes {
  width: number;
  height: number;
  gap: number;
  /** The space between a level and the level below. */
  rise: number;
}

/**
 * Lays out the tree for a picture of the given width, in pixels. It uses boxes of the usual size,
 * or compact boxes if only these fit beside each other, or an indented list.
 */
export function layOutTree(
  nodes: readonly TreeNode[],
  width: number,
  usual: BoxSizes,
  compact: BoxSizes = usual,
): TreeLayout {
  const leaves = nodes.filter((node) => node.children.length === 0).length;
  const fits = (sizes: BoxSizes): boolean =>
    leaves * sizes.width + Math.max(0, leaves - 1) * sizes.gap <= width;
  if (fits(usual)) return layOutDown(nodes, width, usual, leaves);
  if (fits(compact)) return { ...layOutDown(nodes, width, compact, leaves), form: "compact" };
  return layOutIndented(nodes, width, usual);
}

/** Puts leaves side by side, and each other shard above the middle of its children. */
function layOutDown(
  nodes: readonly TreeNode[],
  width: number,
  sizes: BoxSizes,
  leaves: number,
): TreeLayout {
  const boxWidth = sizes.width;
  // Spare room goes between the leaves, up to a bound that keeps a small tree together.
  const gap = leaves > 1 ? Math.min((width - leaves * boxWidth) / (leaves - 1), sizes.gap * 3) : 0;
  const used = leaves * boxWidth + Math.max(0, leaves - 1) * gap;
  const at = new Map<number, { x: number; y: number }>();
  let leaf = 0;
  // In reverse order all children come before their parent. Counting the leaves from the right
  // keeps their order.
  for (const node of nodes.toReversed()) {
    const y = node.depth * (sizes.height + sizes.rise);
    const below = node.children.map((child) => at.get(child)?.x ?? 0);
    const x =
      below.length === 0
        ? (width + used) / 2 - boxWidth - leaf++ * (boxWidth + gap)
        : ((below[0] ?? 0) + (below.at(-1) ?? 0)) / 2;
    at.set(node.shard, { x, y });
  }
  const boxes = nodes.map(({ shard }) => ({
    shard,
    x: round(at.get(shard)?.x ?? 0),
    y: at.get(shard)?.y ?? 0,
  }));
  const edges = nodes.flatMap((node): Edge[] => {
    const from = at.get(node.parent ?? -1);
    const to = at.get(node.shard);
    if (node.parent === undefined || !from || !to) return [];
    const [x1, y1, x2, y2] = [
      from.x + boxWidth / 2,
      from.y + sizes.height,
      to.x + boxWidth / 2,
      to.y,
    ];
    // A curve to above the child, then straight down into it. The text is beside the straight part.
    const end = y2 - Math.min(28, sizes.rise / 2);
    const bend = (end - y1) * 0.6;
    return [
      {
        parent: node.parent,
        child: node.shard,
        path:
          `M${round(x1)} ${y1}C${round(x1)} ${round(y1 + bend)} ` +
          `${round(x2)} ${round(end - bend)} ${round(x2)} ${end}V${y2}`,
        label: { x: round(x2 + 4), y: y2 - 13 },
      },
    ];
  });
  const depth = Math.max(0, ...nodes.map((node) => node.depth));
  return {
    width,
    height: depth * (sizes.height + sizes.rise) + sizes.height,
    boxWidth,
    boxHeight: sizes.height,
    boxes,
    edges,
    form: "down",
  };
}

/** Puts shards below each other, children indented under their parent. Deep trees indent less. */
function layOutIndented(nodes: readonly TreeNode[], width: number, sizes: BoxSizes): TreeLayout {
  const depth = Math.max(0, ...nodes.map((node) => node.depth));
  const least = Math.min(sizes.width, width);
  const step = depth === 0 ? 0 : Math.max(0, Math.min(26, (width - least) / depth));
  const boxWidth = Math.min(width - depth * step, sizes.width * 2.4);
  const rise = 30;
  const boxes = nodes.map((node, row) => ({
    shard: node.shard,
    x: round(node.depth * step),
    y: row * (sizes.height + rise),
  }));
  const at = new Map(boxes.map((box) => [box.shard, box]));
  const edges = nodes.flatMap((node): Edge[] => {
    const from = at.get(node.parent ?? -1);
    const to = at.get(node.shard);
    if (node.parent === undefined || !from || !to) return [];
    // Down along the parent's left side, then into the child's.
    const x = from.x + Math.max(6, step / 2);
    const middle = to.y + sizes.height / 2;
    const path =
      to.x - x > 4
        ? `M${round(x)} ${from.y + sizes.height}V${middle - 6}q0 6 6 6H${to.x}`
        : `M${round(x)} ${from.y + sizes.height}V${to.y}`;
    return [
      { parent: node.parent, child: node.shard, path, label: { x: round(to.x + 12), y: to.y - 9 } },
    ];
  });
  return {
    width,
    height: Math.max(0, nodes.length * (sizes.height + rise) - rise),
    boxWidth: round(boxWidth),
    boxHeight: sizes.height,
    boxes,
    edges,
    form: "indented",
  };
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

const placeStates: Readonly<{ [state: string]: Word }> = {
  settled: { text: "settled", title: "It took effect here", colour: "good" },
  refused: { text: "refused", title: "It changed nothing here", colour: "bad" },
  waiting: {
    text: "waiting",
    title: "Its amounts are set aside until all verdicts are here",
    colour: "warn",
  },
  passed: { text: "passed on", title: "Only passed on to the shards below", colour: "" },
  absent: { text: "not there yet", title: "It is on its way to this shard", colour: "warn" },
  unanswered: { text: "no answer", title: "No node of this shard answers now", colour: "bad" },
};

export function placeWord(place: ShardPlace): Word {
  return placeStates[place.state] ?? { text: place.state || "unknown", title: "", colour: "" };
}

/** Whether an entry in a shard's chain is only passed on to the shards below. */
export function passesThrough(status: TransactionStatus, shard: number | undefined): boolean {
  return (
    status.reasonCode === "relayed" ||
    (shard !== undefined && status.destinations.length > 1 && !status.destinations.includes(shard))
  );
}

/**
 * Counts a shard's entries by kind, in words: "9 transactions, 2 verdicts, 1 only passed on". A
 * transaction that concerns the shard is a user's, or a change of the members.
 */
export function kindsOfEntries(entries: readonly TransactionSummary[], shard: number): string {
  const verdicts = entries.filter((entry) => entry.verdict !== "").length;
  const arrivals = entries.filter((entry) => entry.arrivalOf > 0n).length;
  const passed = entries.filter(
    (entry) =>
      entry.verdict === "" &&
      entry.arrivalOf === 0n &&
      entry.status &&
      passesThrough(entry.status, shard),
  ).length;
  const kinds = [plural(entries.length - verdicts - arrivals - passed, "transaction")];
  if (arrivals > 0) kinds.push(plural(arrivals, "arrival"));
  if (verdicts > 0) kinds.push(plural(verdicts, "verdict"));
  if (passed > 0) kinds.push(`${formatCount(passed)} only passed on`);
  return kinds.join(", ");
}

/** The label of a number that covers one shard, in a book of several shards. */
export function shardLabel(label: string, shard: number | undefined): string {
  return shard === undefined ? label : `${label}, shard\u00a0${shard}`;
}

/**
 * What a chain's total counts. In a book of several shards the API counts all entries of a shard's
 * chain, and does not tell the kinds apart.
 */
export const entriesExplained =
  "Entries are transactions and changes of the members, verdicts of other shards, " +
  "and transactions that are only passed on. Failed ones count too.";

/** A shard's verdict in words: "good", or its reason's code. */
export function verdictText(verdict: string): string {
  return verdict.replaceAll("_", " ");
}

/**
 * What came of a cancellation in its shard, given its own success and the place of the transaction
 * that it cancels in the same chain.
 */
export function cancellationText(took: boolean, place: ShardPlace | undefined): string {
  switch (place?.state) {
    case "absent":
      return took
        ? "The shard has not executed it, and refuses it if it concerns this shard, this " +
          "organisation has to sign it, and it has a deadline that is not later."
        : "The shard has not executed it.";
    case "refused":
      return "The transaction changed nothing.";
    case "settled":
      return "It was too late: the transaction took effect.";
    case "waiting":
      return "It was too late here: the shard had agreed, and the other shards decide.";
    default:
      return "This node does not know what came of it.";
  }
}

/** Whether a place can still change. */
export function placeMoves(place: ShardPlace): boolean {
  return place.state === "waiting" || place.state === "absent" || place.state === "unanswered";
}

/** What a change of the book does, in words: its title, and what it means for everybody. */
export function bookChangeWords(change: BookChange): { title: string; meaning: string } {
  switch (change.change.case) {
    case "addition": {
      const { parent, members } = change.change.value;
      return {
        title: `adds a shard of ${plural(members.length, "node")} below shard ${parent}`,
        meaning:
          "The new shard begins empty. " +
          "Organisations that are registered in it or move to it live there.",
      };
    }
    case "move": {
      const { organisation, to } = change.change.value;
      return {
        title: `moves ${organisation} to shard ${to}`,
        meaning:
          "What it has follows from its old home. " +
          "Its transactions wait until all of it has arrived.",
      };
    }
    case "lostShard":
      return {
        title: `settles with shard ${change.change.value}, which is lost for good`,
        meaning:
          "The others decide on what waited for it, and refuse what concerns it. " +
          "What it had is gone.",
      };
    case "rehang": {
      const { shard, parent } = change.change.value;
      return {
        title: `hangs shard ${shard} below shard ${parent}`,
        meaning:
          "What comes after it goes down the new tree. " +
          "The shard takes from its parent before what came before it.",
      };
    }
    default:
      return { title: "changes the shards in a way that this explorer does not know", meaning: "" };
  }
}

/** An organisation's way between shards, in words; empty if it lives where its home is. */
export function wayWords(organisation: Pick<Organisation, "moving" | "arrivalUnknown">): string {
  if (organisation.arrivalUnknown)
    return "which does not answer, so nobody can tell whether it has arrived";
  return organisation.moving ? "on its way there" : "";
}

/** "shard 2", "shards 1 and 2", "shards 0, 1 and 2". */
export function shardList(shards: readonly number[]): string {
  const sorted = [...new Set(shards)].sort((a, b) => a - b);
  const last = sorted.pop();
  return sorted.length === 0 ? `shard ${last ?? "–"}` : `shards ${sorted.join(", ")} and ${last}`;
}

/** The shards whose verdicts an entry waits for, over all its places. */
export function waitsFor(places: readonly ShardPlace[]): number[] {
  return [...new Set(places.flatMap((place) => place.waitsFor))].sort((a, b) => a - b);
}

/** An optional shard, in the form that requests take. */
export function inShard(shard: number | undefined): { shard?: number } {
  return shard === undefined ? {} : { shard };
}
