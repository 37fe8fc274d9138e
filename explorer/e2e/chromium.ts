import { existsSync } from "node:fs";

const system = process.env["CHROMIUM"] ?? "/usr/bin/chromium";

/** The system's Chromium if there is one, else the Chromium that Playwright installed. */
export const chromiumOptions = {
  ...(existsSync(system) ? { executablePath: system } : {}),
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
};
