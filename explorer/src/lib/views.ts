// Saved views: pages with their filters and their moment, under names that the reader gives. The
// browser keeps them. A file of JSON takes them to another one.

export interface View {
  name: string;
  /** The page's path with its query. It begins with one slash. */
  path: string;
}

const storageKey = "ledgerd.views";
export const maxViews = 100;
const maxName = 80;
const maxPath = 2000;
export const maxFileBytes = 1 << 20;

const isView = (value: unknown): value is View => {
  const { name, path } = (value ?? {}) as Partial<Record<keyof View, unknown>>;
  return (
    typeof name === "string" &&
    name.trim() !== "" &&
    name.length <= maxName &&
    typeof path === "string" &&
    path.length <= maxPath &&
    /^\/(?![/\\])/.test(path)
  );
};

/** The views of a text as a file has it, or undefined if it is none. Wrong ones are left out. */
export function parseViews(text: string): { views: View[]; dropped: number } | undefined {
  try {
    const read: unknown = JSON.parse(text);
    const list = Array.isArray(read) ? read : (read as { views?: unknown } | null)?.views;
    if (!Array.isArray(list)) return undefined;
    const views = list.filter(isView).map(({ name, path }) => ({ name: name.trim(), path }));
    return { views: merge([], views), dropped: list.length - views.length };
  } catch {
    return undefined;
  }
}

/** Views with others added. One of the same name is replaced. At most maxViews are kept. */
export function merge(views: readonly View[], added: readonly View[]): View[] {
  const byName = new Map(views.map((view) => [view.name, view]));
  for (const view of added) byName.set(view.name, view);
  return [...byName.values()]
    .sort((a, b) => (a.name.toLowerCase() < b.name.toLowerCase() ? -1 : 1))
    .slice(0, maxViews);
}

/** The file of views. */
export const viewsFile = (views: readonly View[]): string =>
  `${JSON.stringify({ format: "ledgerd views 1", views }, null, 2)}\n`;

export function readViews(): View[] {
  try {
    return parseViews(localStorage.getItem(storageKey) ?? "[]")?.views ?? [];
  } catch {
    return []; // Storage is forbidden here.
  }
}

/** Keeps views, and reports whether the browser did. */
export function keepViews(views: readonly View[]): boolean {
  try {
    localStorage.setItem(storageKey, JSON.stringify(views));
    return true;
  } catch {
    return false;
  }
}
