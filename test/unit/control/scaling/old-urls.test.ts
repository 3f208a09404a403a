// A platform that starts again at another URL: its workers call the old one.
import { expect, it, onTestFinished } from 'vitest';
import { FleetWorld, type FleetWorldOptions } from '../../../support/containers/fleet-world.ts';

async function openWorld(options?: FleetWorldOptions): Promise<FleetWorld> {
  const world = await FleetWorld.open(options);
  onTestFinished(() => world.close());
  return world;
}

async function moveTo(world: FleetWorld, url: string): Promise<void> {
  await world.leave();
  world.url = url;
  await world.start();
}

it('workers that cannot reach the platform any more are replaced, and no job is lost', async () => {
  const world = await openWorld({ jobMs: 30_000 });
  const id = await world.createEndpoint({ workersMin: 1, workersMax: 2 });
  await world.submit(id, 2);
  await world.run(2_000);
  const before = world.listRunning();
  await moveTo(world, 'http://platform.test:8001');
  await world.run(5_000);
  const urls = world.listRunning().map((pod) => world.host.get(pod).spec.env['MILLRACE_URL']);
  expect(urls).toContain('http://platform.test:8001');
  await world.until(async () => (await world.countJobs(id)).completed === 2, 200_000);
  expect(await world.countJobs(id)).toMatchObject({ completed: 2, failed: 0 });
  const isOldLeft = () => world.listRunning().some((pod) => before.includes(pod));
  await world.until(() => !isOldLeft(), 60_000);
});

it('workers that still reach it finish their jobs first', async () => {
  const world = await openWorld({ jobMs: 30_000 });
  const id = await world.createEndpoint({ workersMin: 1 });
  await world.submit(id);
  await world.run(2_000);
  const [old = ''] = world.listRunning();
  world.oldUrls.add(world.url);
  await moveTo(world, 'http://other.test');
  await world.run(10_000);
  expect(world.listRunning()).toHaveLength(2);
  await world.until(() => !world.listRunning().includes(old), 60_000);
  expect(await world.countJobs(id)).toMatchObject({ completed: 1, retried: 0 });
});

it('workers stay if the URL is the same', async () => {
  const world = await openWorld();
  await world.createEndpoint({ workersMin: 2 });
  await world.run(2_000);
  const before = world.listRunning();
  await moveTo(world, world.url);
  await world.run(60_000);
  expect(world.listRunning()).toEqual(before);
});
