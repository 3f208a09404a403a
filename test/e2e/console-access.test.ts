// The console in a real Chromium: sessions and scopes, versions, and the keyboard. These tests run at the same time.
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe } from 'vitest';
import { launchBrowser } from '../support/browser.ts';
import { describeKeyboard } from './console/keyboard.ts';
import { describeScopes } from './console/scopes.ts';
import { describeSessions } from './console/sessions.ts';
import { describeVersions } from './console/versions.ts';
import { openWorld, type World } from './console/world.ts';

let browser: Browser | undefined;
let world: World | undefined;

beforeAll(async () => {
  browser = await launchBrowser();
  world = await openWorld(browser);
});

afterAll(async () => {
  await browser?.close();
  await world?.platform.close();
});

function ready(): World {
  if (!world) throw new Error('the platform has not started');
  return world;
}

describe.concurrent('the console', () => {
  describeSessions(ready);
  describeScopes(ready);
  describeVersions(ready);
  describeKeyboard(ready);
});
