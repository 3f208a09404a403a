// The console in a real Chromium, on a real platform with a real worker.
import { afterAll, beforeAll, describe } from 'vitest';
import { launchBrowser } from '../support/browser.ts';
import { describeBatches } from './console/batches.ts';
import { describeEndpoint } from './console/endpoint.ts';
import { describeFlows } from './console/flows.ts';
import { describeInputForm } from './console/input-form.ts';
import { describeJobs } from './console/jobs.ts';
import { describePlayground } from './console/playground.ts';
import { describeResources } from './console/resources.ts';
import { describeShell } from './console/shell.ts';
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

describe('the console', () => {
  describeShell(ready);
  describeEndpoint(ready);
  describePlayground(ready);
  describeInputForm(ready);
  describeJobs(ready);
  describeFlows(ready);
  describeBatches(ready);
  describeResources(ready);
});
