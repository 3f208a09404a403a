// A real Chromium for tests of the console: one browser, a context of its own for each page, and everything that a
// page complains of.
import { existsSync } from 'node:fs';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';

const PROGRAMS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

const ARGS = [
  ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
  ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
  // Containers have a small /dev/shm.
  '--disable-dev-shm-usage',
];

/** Runs in the page. */
const WATCH_VIOLATIONS = `
  document.addEventListener('securitypolicyviolation', (event) => {
    globalThis.noteViolation(event.effectiveDirective + ' ' + event.blockedURI);
  });
`;

/** @throws Error if the machine has no Chromium */
export async function launchBrowser(): Promise<Browser> {
  const executablePath = PROGRAMS.find((path) => existsSync(path));
  if (!executablePath) {
    throw new Error('The tests of the console need Chromium: install the package chromium');
  }
  return chromium.launch({ executablePath, args: ARGS });
}

/** A page, and what its browser has complained of. */
export interface WatchedPage {
  page: Page;
  /** Messages of the console, uncaught errors, and violations of the content security policy. */
  complaints: string[];
  close: () => Promise<void>;
}

export async function openPage(
  browser: Browser,
  options: BrowserContextOptions = {},
): Promise<WatchedPage> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const complaints: string[] = [];
  await context.exposeFunction('noteViolation', (text: string) => {
    complaints.push(`policy: ${text}`);
  });
  await context.addInitScript({ content: WATCH_VIOLATIONS });
  const page = await context.newPage();
  page.on('console', (message) => {
    complaints.push(`${message.type()}: ${message.text()} ${message.location().url}`);
  });
  page.on('pageerror', (error) => {
    complaints.push(`error: ${error.stack ?? error.message}`);
  });
  return { page, complaints, close: () => context.close() };
}
