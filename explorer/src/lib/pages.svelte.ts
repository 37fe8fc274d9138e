// The page of a list that the address names, so that a link leads to it.
import { router } from "./router.svelte";

/**
 * Follows "page" in the address. key names the list, with its filters: another one begins with its
 * first page. The way back is known only as far as the reader came.
 */
export class AddressPages {
  private steps = $state.raw<{ key: string; trail: string[] }>({ key: "", trail: [""] });
  readonly token = $derived(router.query.get("page") ?? "");
  readonly trail: string[] = $derived.by(() => {
    const { key, trail } = this.steps;
    if (key === this.key() && trail.at(-1) === this.token) return trail;
    return this.token === "" ? [""] : ["", this.token];
  });

  constructor(
    private readonly path: string,
    private readonly key: () => string,
  ) {}

  readonly turn = (trail: string[]): void => {
    this.steps = { key: this.key(), trail };
    const query = new URLSearchParams(router.query);
    const page = trail.at(-1) ?? "";
    if (page === "") query.delete("page");
    else query.set("page", page);
    router.go(query.size === 0 ? this.path : `${this.path}?${query}`);
    window.scrollTo(0, 0);
  };
}
