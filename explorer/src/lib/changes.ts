// Changes of the book's shards for display: how far they have come in words, and the arrows that
// show them in the drawing of the tree.
import type { Tree } from "../gen/ledgerd/v1/ledgerd_pb";
import type { ShardChange } from "../gen/ledgerd/v1/shards_pb";
import { plural } from "./format";
import type { Word } from "./modes";
import { shardList, type TreeLayout } from "./shards";

/** How long the drawing shows a change that is over. The list shows it for longer. */
const arrowForMs = 20_000;
/** The most arrows in the drawing. Further changes are only in the list. */
const arrowsMost = 6;
/** The room under the lowest shards, or beside them, that an arrow takes. */
const arrowRoom = 34;

/** Whether nothing comes of a change any more. */
export function isOver(change: Pick<ShardChange, "state">): boolean {
  return change.state === "done" || change.state === "never";
}

/** What a change does. */
export function changeTitle({ kind, organisation, shard, from, to }: ShardChange): string {
  switch (kind) {
    case "move":
      return `${organisation} moves from shard ${from} to shard ${to}`;
    case "addition":
      return `shard ${shard} is added below shard ${to}`;
    case "rehang":
      return `shard ${shard} is hung below shard ${to} instead of shard ${from}`;
    default:
      return "a change that this explorer does not know";
  }
}

/** How far a change has come, in a word or two. */
export function changeWord({ kind, state }: Pick<ShardChange, "kind" | "state">): Word {
  const words: Readonly<{ [state: string]: Word }> = {
    ordered: { text: "ordered", title: "", colour: "accent" },
    departing: { text: "leaving", title: "", colour: "accent" },
    arriving: { text: "on its way", title: "", colour: "accent" },
    moving: { text: "coming over", title: "", colour: "accent" },
    done: {
      text: kind === "move" ? "arrived" : kind === "addition" ? "runs" : "done",
      title: "",
      colour: "good",
    },
    never: { text: "lost", title: "", colour: "bad" },
    unknown: { text: "no answer", title: "", colour: "warn" },
  };
  return words[state] ?? { text: state || "unknown", title: "", colour: "" };
}

/** How far a change has come and what it waits for, in a sentence. */
export function changeState(change: ShardChange, tree: Pick<Tree, "shards">): string {
  const { kind, state, from, to, waitsFor } = change;
  const awaited = shardList(waitsFor);
  switch (`${kind} ${state}`) {
    case "move ordered":
      return `It waits until shard ${to} knows of it.`;
    case "move departing": {
      const others = tree.shards.find((shard) => shard.shard === from)?.waitsFor ?? [];
      const list = shardList(others.map((wait) => wait.shard));
      return (
        `It waits until shard ${from} has settled what came before` +
        (others.length === 0 ? "." : `; transactions there wait for ${list}.`)
      );
    }
    case "move arriving":
      return `What it has is on its way from shard ${from}.`;
    case "move done":
      return `It lives in shard ${to}.`;
    case "move never":
      return "It never arrives: a shard that it was coming from, or going to, is lost.";
    case "move unknown":
      return `Shard ${to} does not answer, so nobody can tell whether it has arrived.`;
    case "addition ordered":
      return `It waits until more than half of the nodes of ${awaited} run.`;
    case "addition done":
      return "It orders.";
    case "rehang moving":
      return waitsFor.includes(change.shard)
        ? `Shard ${change.shard} is silent: it waits until that is back.`
        : `It still takes entries from ${awaited}.`;
    case "rehang done":
      return `It takes its entries from shard ${to}.`;
    default:
      return "";
  }
}

/** The newest changes first, those under way before all others. */
export function changeList(changes: readonly ShardChange[]): ShardChange[] {
  return changes
    .toReversed()
    .sort((a, b) => Number(isOver(a)) - Number(isOver(b)) || Number(b.sinceMs - a.sinceMs));
}

export interface Arrow {
  key: string;
  from: number;
  to: number;
  /** The line from one shard's box to the other's, as an SVG path. */
  path: string;
  /** The middle of its text, or the right end of it beside an indented tree. */
  label: { x: number; y: number };
  /** What moves, and how far it has come. */
  what: string;
  word: Word;
  over: boolean;
}

/** An arrow for each two shards between which something moves now, or did a moment ago. */
export function arrowsIn(
  changes: readonly ShardChange[],
  layout: TreeLayout,
  nowMs: number,
): Arrow[] {
  const together = new Map<string, ShardChange[]>();
  for (const change of changeList(changes)) {
    if (change.from === undefined) continue;
    // A shard that hangs elsewhere comes from its former parent. Its edge shows the new one.
    const at = Number(change.kind === "move" ? change.doneMs : change.sinceMs);
    if (change.state === "never" || (isOver(change) && nowMs - at > arrowForMs)) continue;
    const to = change.kind === "move" ? change.to : change.shard;
    const key = `${change.kind} ${change.from} ${to}`;
    together.set(key, [...(together.get(key) ?? []), change]);
  }
  const arrows: Arrow[] = [];
  const levels = new Map<number, number>();
  for (const [key, list] of together) {
    const [first] = list;
    if (arrows.length === arrowsMost || first?.from === undefined) break;
    const to = first.kind === "move" ? first.to : first.shard;
    const line = lineBetween(layout, first.from, to, levels);
    if (!line) continue;
    const name = first.kind === "move" ? first.organisation : `shard ${first.shard}`;
    arrows.push({
      key,
      from: first.from,
      to,
      ...line,
      what: list.length === 1 ? name : `${name} and ${plural(list.length - 1, "other")}`,
      word: changeWord(first),
      over: isOver(first),
    });
  }
  return arrows;
}

/** How much higher a drawing has to be for its arrows. */
export function roomBelow(arrows: readonly Arrow[], layout: TreeLayout): number {
  return Math.max(0, ...arrows.map(({ label }) => label.y + 14 - layout.height));
}

/** How much narrower the boxes of a drawing have to be for its arrows. */
export function roomBeside(layout: TreeLayout): number {
  return layout.form === "indented" ? arrowRoom : 0;
}

/** A line between two shards. levels counts the texts at each height. */
function lineBetween(
  layout: TreeLayout,
  from: number,
  to: number,
  levels: Map<number, number>,
): Pick<Arrow, "path" | "label"> | undefined {
  const [a, b] = [from, to].map((shard) => layout.boxes.find((box) => box.shard === shard));
  if (!a || !b || a === b) return undefined;
  const { boxWidth, boxHeight } = layout;
  if (layout.form === "indented") {
    // Beside the boxes, from one to the other.
    const [x1, x2] = [a.x + boxWidth - arrowRoom, b.x + boxWidth - arrowRoom];
    const [y1, y2] = [a.y + boxHeight / 2, b.y + boxHeight / 2];
    const out = Math.max(x1, x2) + arrowRoom - 6;
    // Its text is between the boxes, where there is none yet, or else below all of them.
    const gaps = [b, a]
      .flatMap((box) => [box.y - 15, box.y + boxHeight + 15])
      .filter((y) => y > 0 && y < layout.height);
    let y = gaps.find((gap) => !levels.has(gap)) ?? layout.height + 15;
    while (levels.has(y)) y += 24;
    levels.set(y, 1);
    return {
      path: `M${x1} ${y1}C${out} ${y1} ${out} ${y2} ${x2 + 2} ${y2}`,
      label: { x: x2, y },
    };
  }
  const [x1, x2] = [a.x + boxWidth / 2, b.x + boxWidth / 2];
  if (a.y === b.y) {
    const level = levels.get(a.y) ?? 0;
    levels.set(a.y, level + 1);
    const [y, deep] = [a.y + boxHeight, arrowRoom + level * 30];
    return {
      path: `M${x1} ${y}C${x1} ${y + deep * 1.34} ${x2} ${y + deep * 1.34} ${x2} ${y + 2}`,
      label: { x: (x1 + x2) / 2, y: y + deep },
    };
  }
  // To the left of the edges, which end in the middle of the boxes.
  const aside = boxWidth * 0.3;
  const [y1, y2] = a.y < b.y ? [a.y + boxHeight, b.y - 2] : [a.y, b.y + boxHeight + 2];
  const middle = (y1 + y2) / 2;
  const [left, right] = [x1 - aside, x2 - aside];
  return {
    path: `M${left} ${y1}C${left} ${middle} ${right} ${middle} ${right} ${y2}`,
    label: { x: (left + right) / 2, y: middle },
  };
}
