// Engines that ignore requests or do not answer, and containers that the platform does not own.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Engine } from '../../../src/engine/engine.ts';
import { docker } from '../../support/containers/docker.ts';
import { EngineRelay } from '../../support/containers/engine-relay.ts';
import type { DockerGround } from './docker-ground.ts';
import type { EngineStage } from './engine-stage.ts';

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

    it('of another platform is not listed', async () => {
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

    it('of another vendor are refused', async () => {
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

    it('an engine is reached over TCP', async () => {
      const spec = stage.spec();
      await engine.create(spec);
      await engine.start(spec.id);
      expect(await stage.engine.inspect(spec.id)).toMatchObject({ state: 'running' });
    });

    it('an engine that ignores a request for GPUs is detected', async () => {
      const spec = stage.spec({ gpus: ['GPU-5a1c'] });
      relay.rule = { rewrite: (_url, body) => withoutRequest(body) };
      await expect(engine.create(spec)).rejects.toMatchObject({ code: 'refused' });
      expect(await stage.engine.list()).toEqual([]);
    });

    it('it is detected even if the platform was killed before it could inspect', async () => {
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
      'no answer is waited for forever: %s',
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
        while (heard.length < count) await sleep(10);
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
