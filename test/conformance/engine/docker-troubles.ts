// Engines that ignore requests or do not answer, and containers that the platform does not own.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { Pods } from '../../../src/control/pods/pods.ts';
import { Reconciler } from '../../../src/control/pods/reconciler.ts';
import type { Engine } from '../../../src/engine/engine.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import { OWNER } from '../../../src/store/store.ts';
import { podCreation } from '../../../src/wire/resources/pod.ts';
import { docker } from '../../support/containers/docker.ts';
import { EngineRelay } from '../../support/containers/engine-relay.ts';
import { CPU, createCatalog } from '../../support/containers/pod-world.ts';
import { NO_NAMES } from '../../support/no-names.ts';
import { until } from '../../support/until.ts';
import type { DockerGround } from './docker-ground.ts';
import { type EngineStage, shell } from './engine-stage.ts';

export function describeTroubles(stage: EngineStage, ground: DockerGround): void {
  const verbs: [string, (engine: Engine) => Promise<unknown>][] = [
    ['create', (engine) => engine.create(stage.spec())],
    ['start', (engine) => engine.start('pod_1')],
    ['stop', (engine) => engine.stop('pod_1', 100)],
    ['remove', (engine) => engine.remove('pod_1', 'keep')],
    ['inspect', (engine) => engine.inspect('pod_1')],
    ['list', (engine) => engine.list()],
    ['stats', (engine) => engine.stats('pod_1')],
    ['readLog', (engine) => engine.readLog('pod_1', 100)],
  ];

  describe('an unreachable engine', () => {
    it.each(verbs)('is unavailable: %s', async (_name, verb) => {
      const engine = ground.openEngine({ host: 'unix:///nowhere/docker.sock' });
      await expect(verb(engine)).rejects.toMatchObject({ code: 'unavailable' });
    });
  });

  describe('a container of another program', () => {
    it('is not listed, inspected or removed', async () => {
      const spec = stage.spec();
      const name = `${ground.platform}-${spec.id}`;
      await docker('create', '--name', name, stage.under.image, 'true');
      try {
        expect(await stage.engine.list()).toEqual([]);
        expect(await stage.engine.inspect(spec.id)).toBeUndefined();
        await stage.engine.remove(spec.id, 'remove');
        expect(await docker('inspect', '--format', '{{.State.Status}}', name)).toBe('created');
      } finally {
        await docker('rm', name);
      }
    });

    it('is not listed if another platform made it', async () => {
      const spec = stage.spec();
      await stage.engine.create(spec);
      const other = ground.openEngine({ platform: `${ground.platform}-other` });
      expect(await other.list()).toEqual([]);
      expect(await other.inspect(spec.id)).toBeUndefined();
    });
  });

  describe('GPUs on an engine without any', () => {
    it('are refused', async () => {
      const spec = stage.spec({ gpus: ['GPU-5a1c'] });
      const made = stage.engine.create(spec).then(() => stage.engine.start(spec.id));
      await expect(made).rejects.toMatchObject({ code: 'refused' });
    });

    it('are refused if they are of another vendor', async () => {
      const made = stage.engine.create(stage.spec({ gpus: ['amd-0'] }));
      await expect(made).rejects.toMatchObject({ code: 'refused' });
    });

    it('are not visible in a container without GPUs', async () => {
      const env = { NVIDIA_VISIBLE_DEVICES: 'all' };
      const { id } = await stage.run('echo "[$NVIDIA_VISIBLE_DEVICES]"', { env });
      expect(await stage.untilPrinted(id, '\n')).toBe('[void]\n');
    });
  });

  describe('through a relay', () => {
    let relay: EngineRelay;
    let engine: Engine;

    beforeEach(async () => {
      relay = await EngineRelay.start(ground.host);
      engine = ground.openEngine({ host: relay.host });
    });
    afterEach(async () => {
      await engine.close();
      await relay.stop();
    });

    it('reaches an engine over TCP', async () => {
      const spec = stage.spec();
      await engine.create(spec);
      await engine.start(spec.id);
      expect(await stage.engine.inspect(spec.id)).toMatchObject({ state: 'running' });
    });

    it('detects an engine that ignores a request for GPUs', async () => {
      const spec = stage.spec({ gpus: ['GPU-5a1c'] });
      relay.rule = { rewrite: (_url, body) => withoutRequest(body) };
      await expect(engine.create(spec)).rejects.toMatchObject({ code: 'refused' });
      expect(await stage.engine.list()).toEqual([]);
    });

    it('detects it even if the platform was killed before it could inspect', async () => {
      const spec = stage.spec({ gpus: ['GPU-5a1c'] });
      relay.rule = {
        rewrite: (url, body) => {
          // The platform may first try to create the container with a disk limit.
          const isMade = url.startsWith('/containers/create') && !body.includes('StorageOpt');
          if (isMade) relay.rule = { answer: 'none' };
          return withoutRequest(body);
        },
      };
      await expect(engine.create(spec)).rejects.toMatchObject({ code: 'unavailable' });
      expect(await stage.engine.list()).toHaveLength(1);
      await expect(stage.engine.create(spec)).rejects.toMatchObject({ code: 'refused' });
      expect(await stage.engine.list()).toEqual([]);
    });

    it.each(['none', 'half', 'silent'] as const)(
      'waits for no answer forever: %s',
      async (answer) => {
        await stage.engine.create(stage.spec());
        relay.rule = { answer };
        const hasty = ground.openEngine({ host: relay.host, callLimitMs: 300 });
        await expect(hasty.list()).rejects.toMatchObject({ code: 'unavailable' });
      },
    );

    it('changes are reported again after the connection was lost', async () => {
      const { id } = await stage.run('exec sleep 1000');
      const heard: string[] = [];
      const end = engine.watch((changed) => heard.push(changed));
      const untilHeard = async (count: number) => {
        await until(() => heard.length >= count);
      };
      await untilHeard(1);
      relay.cut();
      // Reset before the stop: the engine may report the change before the stop returns.
      heard.length = 0;
      await stage.engine.stop(id, 0);
      await untilHeard(1);
      expect(new Set(heard)).toEqual(new Set([id]));
      end();
    });
  });
}

/** Removes the GPU request from a JSON body. */
function withoutRequest(body: string): string {
  return body.replace(/"DeviceRequests":\[.*?\}\]/, '"DeviceRequests":[]');
}

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
