// What the tests of the console share: a platform with a worker, a browser, and pages that are signed in.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import axe from 'axe-core';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { expect } from 'vitest';
import { createClient } from '../../../src/client.ts';
import { openPage, type WatchedPage } from '../../support/browser.ts';
import { sayingOf, standInFolder } from '../../support/nvidia-smi/stand-in.ts';
import { PlatformProcess } from '../../support/processes.ts';

export const ENDPOINT = 'console';
/** Its worker has a handler with an input of many parts. */
export const FORM = 'form';
/** Its workers are those of a test. */
export const HOSTILE = 'hostile';

export interface World {
  platform: PlatformProcess;
  browser: Browser;
  close(): Promise<void>;
}

/** With prices, a data center and a volume of the operator. */
const CATALOG = fileURLToPath(new URL('catalog.json', import.meta.url));

export async function openWorld(browser: Browser): Promise<World> {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-test-'));
  const secretsKey = join(folder, 'secrets-key');
  writeFileSync(secretsKey, `${randomBytes(32).toString('base64')}\n`);
  const platform = await PlatformProcess.start({
    endpoints: [ENDPOINT, 'quiet', FORM, HOSTILE],
    args: ['--engine', 'process', '--catalog', CATALOG, '--secrets-key-file', secretsKey],
    env: { PATH: `${standInFolder}${delimiter}${process.env['PATH']}`, ...sayingOf('eight-a100') },
  });
  const worker = platform.startWorker(ENDPOINT, 'console.ts');
  const form = platform.startWorker(FORM, 'console-form.ts');
  await Promise.all([worker.find(/connected/), form.find(/connected/)]);
  return {
    ...{ platform, browser },
    async close() {
      await browser.close();
      await platform.close();
      rmSync(folder, { recursive: true });
    },
  };
}

/** `allow`: what the browser may complain of, because the test makes it happen. */
export interface VisitOptions extends BrowserContextOptions {
  key?: string;
  allow?: RegExp;
}

/**
 * Opens a page of the console with a key, has a test use it, and checks that nothing was complained of.
 * `path`: below /console.
 */
export async function visit(
  { browser, platform }: World,
  path: string,
  use: (page: Page, watched: WatchedPage) => Promise<void>,
  { allow, key = platform.adminKey, ...options }: VisitOptions = {},
): Promise<void> {
  const watched = await openPage(browser, options);
  try {
    const { page } = watched;
    // The browser keeps the cookie: a page finds its session as after a sign-in.
    const answer = await page.request.post(`${platform.url}/v1/session`, {
      data: { key },
      headers: { 'Millrace-Console': '1' },
    });
    expect(answer.status()).toBe(201);
    await page.goto(`${platform.url}/console${path}`);
    await use(page, watched);
    expect(watched.complaints.filter((text) => !allow?.test(text))).toEqual([]);
  } finally {
    await watched.close();
  }
}

interface AxeResult {
  violations: { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[];
}

/** Checks the page with axe: no serious or critical finding. */
export async function expectAccessible(page: Page): Promise<void> {
  // Not as a script of the page, which its policy would refuse.
  await page.evaluate(axe.source);
  const result = await page.evaluate<AxeResult>('axe.run()');
  const serious = result.violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, nodes }) =>
      nodes.map(({ failureSummary, html }) => ({ id, html, failureSummary })),
    );
  expect(serious).toEqual([]);
}

/** The page is not wider than the window. */
export async function expectNoSidewaysScroll(page: Page): Promise<void> {
  const width = await page.evaluate<number>('document.documentElement.scrollWidth');
  expect(width).toBeLessThanOrEqual(page.viewportSize()?.width ?? 0);
}

export function clientOf({ platform }: World) {
  return createClient({ url: platform.url, key: platform.adminKey, endpoint: ENDPOINT });
}
