// The platform dies during a call; the next platform process repeats the call and reaches the same state.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { ContainerSpec } from '../../../src/engine/engine.ts';
import { type EngineStage, shell } from './engine-stage.ts';

/** Time from the first call to the start of the second platform process. */
const DELAYS_MS = [0, 1, 5, 20];

export function describeCuts(stage: EngineStage): void {
  /** The container appends a line to a file for each process that it starts. */
  function countingSpec(): ContainerSpec {
    return stage.spec({
      args: shell(`echo run >> ${stage.mount}/runs; echo up; exec sleep 1000`),
      mounts: [stage.sharedMount],
    });
  }

  const runs = () => readFileSync(join(stage.shared, 'runs'), 'utf8');

  async function cutOff(call: Promise<unknown>, delayMs: number): Promise<void> {
    call.catch(() => {});
    await (delayMs === 0 ? nextTurn() : sleep(delayMs));
    stage.reopen();
  }

  describe.each(stage.under.cutDelaysMs ?? DELAYS_MS)('killed after %i ms', (delayMs) => {
    it('creates a container', async () => {
      const spec = countingSpec();
      await cutOff(stage.engine.create(spec), delayMs);
      await stage.engine.create(spec);
      expect(await stage.engine.list()).toMatchObject([{ id: spec.id, state: 'created' }]);
      await stage.engine.start(spec.id);
      await stage.untilPrinted(spec.id, 'up');
      expect(runs()).toBe('run\n');
    });

    it('starts a process', async () => {
      const spec = countingSpec();
      await stage.engine.create(spec);
      await cutOff(stage.engine.start(spec.id), delayMs);
      await stage.engine.start(spec.id);
      await stage.untilPrinted(spec.id, 'up');
      expect(await stage.engine.list()).toMatchObject([{ id: spec.id, state: 'running' }]);
      expect(runs()).toBe('run\n');
    });

    it('stops a container', async () => {
      const spec = countingSpec();
      await stage.start(spec);
      await stage.untilPrinted(spec.id, 'up');
      await cutOff(stage.engine.stop(spec.id, 5_000), delayMs);
      await stage.engine.stop(spec.id, 5_000);
      expect(await stage.engine.inspect(spec.id)).toMatchObject({ state: 'exited', exitCode: 143 });
    });

    it('removes a container and creates the next generation', async () => {
      const spec = countingSpec();
      await stage.start(spec);
      await stage.untilPrinted(spec.id, 'up');
      await cutOff(stage.engine.remove(spec.id, 'keep'), delayMs);
      await stage.engine.remove(spec.id, 'keep');
      expect(await stage.engine.inspect(spec.id)).toBeUndefined();
      await stage.engine.create({ ...spec, generation: 2 });
      await stage.engine.start(spec.id);
      await stage.untilPrinted(spec.id, 'up');
      expect(await stage.engine.list()).toMatchObject([{ generation: 2, state: 'running' }]);
      expect(runs()).toBe('run\nrun\n');
    });

    it('removes a container that is starting', async () => {
      const pipe = await stage.makePipe('pipe');
      const spec = countingSpec();
      const args = shell(`exec sleep 1000 > ${stage.mount}/pipe`);
      await stage.engine.create({ ...spec, args });
      await cutOff(stage.engine.start(spec.id), delayMs);
      await stage.engine.remove(spec.id, 'remove');
      expect(await stage.engine.list()).toEqual([]);
      // The container may have died before it opened the pipe.
      pipe.release();
      await pipe.closed;
    });
  });
}
