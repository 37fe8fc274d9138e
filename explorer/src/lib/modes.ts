// The modes of a node in words and colours, the same on every page. Each mode also has a shape in
// the drawings, so colour is never the only sign.
import { NodeMode } from "../gen/ledgerd/v1/ledgerd_pb";

export interface Word {
  text: string;
  title: string;
  /**
   * Classes of the chip that shows the word: a colour, and whether the chip is filled, hollow or
   * dashed. Only a node that does not answer, or may not, has a dashed one.
   */
  colour:
    "good" | "warn" | "bad" | "accent" | "" | "hollow" | "dashed" | "warn dashed" | "bad dashed";
}

export type Mode = "starting" | "ordering" | "following" | "halted" | "stopping";

/** The name of a node's mode, as the API's other fields write it; undefined if it is unknown. */
export function modeName(mode: NodeMode | undefined): Mode | undefined {
  switch (mode) {
    case NodeMode.STARTING:
      return "starting";
    case NodeMode.ORDERING:
      return "ordering";
    case NodeMode.FOLLOWING:
      return "following";
    case NodeMode.HALTED:
      return "halted";
    case NodeMode.STOPPING:
      return "stopping";
    default:
      return undefined;
  }
}

export const modeWords: Readonly<Record<Mode, Word>> = {
  ordering: { text: "ordering", title: "In the group that orders", colour: "good" },
  starting: {
    text: "starting",
    title: "It looks for a majority or fetches blocks, and does not order yet",
    colour: "",
  },
  following: {
    text: "following",
    title:
      "It answers and follows the chain, but does not order: it was benched because the others " +
      "waited for it, is catching up, or has a new disk",
    colour: "warn",
  },
  halted: {
    text: "halted",
    title: "It runs, but cannot order: its group has no majority, or its store is damaged",
    colour: "bad",
  },
  stopping: {
    text: "stopping",
    title: "It shuts down, and does not order any more",
    colour: "hollow",
  },
};
