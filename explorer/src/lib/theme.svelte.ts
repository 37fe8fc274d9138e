// The colours: the system's, or a choice that this browser stores.

export type Theme = "system" | "light" | "dark";
const storageKey = "ledgerd.theme";

class ThemeChoice {
  choice = $state<Theme>("system");
  private systemDark = $state(false);
  readonly dark = $derived(this.choice === "dark" || (this.choice === "system" && this.systemDark));

  start(): void {
    const query = window.matchMedia("(prefers-color-scheme: dark)");
    this.systemDark = query.matches;
    query.addEventListener("change", (event) => (this.systemDark = event.matches));
    const chosen = document.documentElement.dataset["theme"];
    if (chosen === "light" || chosen === "dark") this.choice = chosen;
  }

  /**
   * Steps to the next choice. The opposite of the system's colours comes first, because a click
   * most likely asks for that.
   */
  next(): void {
    const steps: Theme[] = this.systemDark
      ? ["system", "light", "dark"]
      : ["system", "dark", "light"];
    this.choice = steps[(steps.indexOf(this.choice) + 1) % steps.length] ?? "system";
    if (this.choice === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = this.choice;
    try {
      if (this.choice === "system") localStorage.removeItem(storageKey);
      else localStorage.setItem(storageKey, this.choice);
    } catch {
      // Storage is forbidden here. The choice lasts until the page is closed.
    }
  }
}

export const theme = new ThemeChoice();
