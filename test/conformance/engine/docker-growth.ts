// Tests which disks of a pod survive a PATCH that enlarges them, with pods and reconciler on a real engine.
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { Pods } from '../../../src/control/pods/pods.ts';
import { Reconciler } from '../../../src/control/pods/reconciler.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import { OWNER } from '../../../src/store/store.ts';
import { podCreation } from '../../../src/wire/resources/pod.ts';
import { docker } from '../../support/containers/docker.ts';
import { CPU, createCatalog } from '../../support/containers/pod-world.ts';
import { NO_NAMES } from '../../support/no-names.ts';
import type { DockerGround } from './docker-ground.ts';
import { type EngineStage, shell } from './engine-stage.ts';

const COUNT = 'echo run >> runs; echo "runs: $(wc -l < runs)"; exec sleep 1000';

export function describeGrowth(stage: EngineStage, ground: DockerGround): void {
  async function openPods(): Promise<Pods> {
    const { engine } = stage;
    const clock = systemClock;
    const catalog = createCatalog();
    const store = openSqliteStore({ path: ':memory:' });
    const templates = { ...NO_NAMES, find: () => undefined };
    const pods = await Pods.open({ store, clock, engine, catalog, templates });
    const reconciler = new Reconciler({
      ...{ pods: pods.live, meter: pods.meter, engine, catalog, clock },
      log: silentLog,
    });
    await reconciler.start();
    onTestFinished(async () => {
      reconciler.close();
      await store.close();
    });
    return pods;
  }

  async function untilRunning(pods: Pods, id: string, generation: number): Promise<void> {
    for (;;) {
      const { status } = await pods.find(OWNER, id);
      if (status === 'RUNNING' && pods.seen(id)?.generation === generation) return;
      await sleep(20);
    }
  }

  describe('a PATCH that only enlarges the disk', () => {
    it('keeps the disk unless the engine limits disks', async () => {
      const pods = await openPods();
      const pod = { name: 'a', image: stage.under.image, cpu: CPU, disk: 1, args: shell(COUNT) };
      const { id } = await pods.create(OWNER, podCreation.parse(pod));
      await untilRunning(pods, id, 1);
      await stage.untilPrinted(id, 'runs: 1\n');
      const name = `${ground.platform}-${id}`;
      const size = await docker('inspect', '--format', '{{.HostConfig.StorageOpt.size}}', name);
      const isLimited = /^\d/.test(size);
      const generation = isLimited ? 2 : 1;
      expect(await pods.update(OWNER, id, { disk: 2 })).toMatchObject({ generation });
      await untilRunning(pods, id, generation);
      await pods.act(OWNER, id, 'stop');
      await stage.untilExited(id);
      await pods.act(OWNER, id, 'start');
      await stage.untilPrinted(id, 'runs: 2\n');
      expect(await pods.update(OWNER, id, { env: { A: '1' } })).toMatchObject({
        generation: generation + 1,
        spec: { disk: 2 },
      });
      await untilRunning(pods, id, generation + 1);
      expect(await stage.untilPrinted(id, 'runs: ')).toContain('runs: 1\n');
      await pods.act(OWNER, id, 'terminate');
    });
  });
}
