// The console in a real Chromium: sessions and scopes, versions, storage, registries and the bill, and the keyboard. These tests run at the same time.
import { afterAll, beforeAll, describe } from 'vitest';
import { launchBrowser } from '../support/browser.ts';
import { describeCosts } from './console/costs.ts';
import { describeKeyboard } from './console/keyboard.ts';
import { describeScopes } from './console/scopes.ts';
import { describeSessions } from './console/sessions.ts';
import { describeStorage } from './console/storage.ts';
import { describeVersions } from './console/versions.ts';
import { openWorld, type World } from './console/world.ts';

let world: World | undefined;

beforeAll(async () => {
  world = await openWorld(await launchBrowser());
});

afterAll(async () => {
  await world?.close();
});

function ready(): World {
  if (!world) throw new Error('the platform has not started');
  return world;
}

describe.concurrent('the console', () => {
  describeSessions(ready);
  describeScopes(ready);
  describeVersions(ready);
  describeStorage(ready);
  describeCosts(ready);
  describeKeyboard(ready);
});
