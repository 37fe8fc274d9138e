// In which zone times are shown: the browser's, or UTC. This browser stores the choice.

const storageKey = "ledgerd.utc";

class Clock {
  utc = $state(read());

  toggle(): void {
    this.utc = !this.utc;
    try {
      if (this.utc) localStorage.setItem(storageKey, "yes");
      else localStorage.removeItem(storageKey);
    } catch {
      // Storage is forbidden here. The choice lasts until the page is closed.
    }
  }
}

function read(): boolean {
  try {
    return localStorage.getItem(storageKey) === "yes";
  } catch {
    return false;
  }
}

/** The browser's zone, such as "Europe/Berlin". */
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** A moment in words of the browser's language, in its zone, and in UTC: what a tooltip shows. */
export function inFull(ms: number): string {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return "";
  const local = date.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
  return `${local}\n${date.toISOString()}`;
}

export const clock = new Clock();
