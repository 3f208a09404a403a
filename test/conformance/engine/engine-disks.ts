// Which files of a container survive stops, new generations, removal, and the end of the platform in the middle of a call.
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { ContainerMount, ContainerSpec } from '../../../src/engine/engine.ts';
import { type EngineStage, MOUNT, shell } from './engine-stage.ts';

const GRACE_MS = 10_000;

export function describeDisks(stage: EngineStage): void {
  const persistent: ContainerMount = { kind: 'persistent', source: 'data', path: MOUNT };
  /** A script that prints the previous content of the file, writes to it, and waits. */
  const note = (path: string) =>
    `was=$(cat ${path} 2>/dev/null); echo kept > ${path}; echo "found [$was]"; exec sleep 1000`;

  async function runAgain(id: string, generation: number, mounts: ContainerMount[], path: string) {
    await stage.start(stage.spec({ id, generation, mounts, args: shell(note(path)) }));
    return stage.untilPrinted(id, 'found [');
  }

  const isLost = stage.under.diskOverStop === 'lost';

  describe('the disk', () => {
    it.runIf(isLost)('is new after stop and start', async () => {
      const { id } = await stage.run(note('./note'));
      await stage.untilPrinted(id, 'found []');
      await stage.engine.stop(id, GRACE_MS);
      await stage.engine.start(id);
      expect(await stage.untilPrinted(id, 'found [')).toContain('found []');
    });

    it.skipIf(isLost)('stays across stop and start', async () => {
      const { id } = await stage.run(note('./note'));
      expect(await stage.untilPrinted(id, 'found [')).toContain('found []');
      await stage.until(id, ({ state }) => state === 'running');
      await stage.engine.stop(id, GRACE_MS);
      await stage.engine.start(id);
      expect(await stage.untilPrinted(id, 'found [kept]')).toContain('found [kept]');
    });

    it('is new in a new generation', async () => {
      const { id } = await stage.run(note('./note'));
      await stage.untilPrinted(id, 'found []');
      await stage.engine.remove(id, 'keep');
      expect(await runAgain(id, 2, [], './note')).toContain('found []');
      expect(await stage.engine.inspect(id)).toMatchObject({ generation: 2 });
    });

    it('is separate for each container', async () => {
      await stage.untilPrinted((await stage.run(note('./note'))).id, 'found []');
      const other = await stage.run(note('./note'));
      expect(await stage.untilPrinted(other.id, 'found [')).toContain('found []');
    });
  });

  describe('a network volume of a user', () => {
    const source = 'network-0123456789abcdef01234567';
    const mounts: ContainerMount[] = [{ kind: 'network', source, path: MOUNT, sizeGb: 1 }];
    const path = `${stage.mount}/note`;

    it('outlives its pods, is shared by them, and is removed on request, again without effect', async () => {
      const volumes = stage.engine.networkVolumes;
      if (!volumes) throw new Error('the engine has no network volumes');
      const { id } = await stage.run(note(path), { mounts });
      expect(await stage.untilPrinted(id, 'found [')).toContain('found []');
      await stage.engine.remove(id, 'remove');
      const next = await stage.run(note(path), { mounts });
      expect(await stage.untilPrinted(next.id, 'found [')).toContain('found [kept]');
      await stage.engine.remove(next.id, 'remove');
      if (volumes.list) expect(await volumes.list()).toContain(source);
      await volumes.grow?.(source, 2);
      await volumes.remove(source);
      await volumes.remove(source);
      if (volumes.list) expect(await volumes.list()).not.toContain(source);
      // Of a volume that does not exist.
      await volumes.grow?.(source, 3);
      const last = await stage.run(note(path), { mounts });
      expect(await stage.untilPrinted(last.id, 'found [')).toContain('found []');
      await stage.engine.remove(last.id, 'remove');
      await volumes.remove(source);
    });
  });

  describe('a persistent mount', () => {
    const path = `${stage.mount}/note`;

    it('survives the container and belongs to the next generation', async () => {
      const { id } = await stage.run(note(path), { mounts: [persistent] });
      await stage.untilPrinted(id, 'found []');
      await stage.engine.stop(id, GRACE_MS);
      await stage.engine.remove(id, 'keep');
      expect(await runAgain(id, 2, [persistent], path)).toContain('found [kept]');
    });

    it('is removed with the pod', async () => {
      const { id } = await stage.run(note(path), { mounts: [persistent] });
      await stage.untilPrinted(id, 'found []');
      await stage.engine.stop(id, GRACE_MS);
      await stage.engine.remove(id, 'remove');
      expect(await runAgain(id, 2, [persistent], path)).toContain('found []');
    });

    it('is removed with the pod even if the container no longer exists', async () => {
      const { id } = await stage.run(note(path), { mounts: [persistent] });
      await stage.untilPrinted(id, 'found []');
      await stage.engine.stop(id, GRACE_MS);
      await stage.engine.remove(id, 'keep');
      await stage.engine.remove(id, 'remove');
      expect(await runAgain(id, 2, [persistent], path)).toContain('found []');
    });

    it('is separate for each pod', async () => {
      const { id } = await stage.run(note(path), { mounts: [persistent] });
      await stage.untilPrinted(id, 'found []');
      const other = await stage.run(note(path), { mounts: [persistent] });
      expect(await stage.untilPrinted(other.id, 'found [')).toContain('found []');
    });

    it('may move to another path', async () => {
      const { id } = await stage.run(note(path), { mounts: [persistent] });
      await stage.untilPrinted(id, 'found []');
      await stage.engine.stop(id, GRACE_MS);
      await stage.engine.remove(id, 'keep');
      const moved = { ...persistent, path: '/deeply/nested/place' };
      const at = path.replace(MOUNT, moved.path);
      expect(await runAgain(id, 2, [moved], at)).toContain('found [kept]');
    });
  });

  describe('a network mount', () => {
    it('is an existing folder that stays', async () => {
      writeFileSync(join(stage.shared, 'note'), 'before');
      chmodSync(join(stage.shared, 'note'), 0o666);
      const { id } = await stage.run(note(`${stage.mount}/note`), {
        mounts: [stage.sharedMount],
      });
      expect(await stage.untilPrinted(id, 'found [')).toContain('found [before]');
      await stage.engine.stop(id, GRACE_MS);
      await stage.engine.remove(id, 'remove');
      expect(readFileSync(join(stage.shared, 'note'), 'utf8')).toBe('kept\n');
    });

    it('is shared by its containers', async () => {
      mkdirSync(join(stage.shared, 'inside'));
      chmodSync(join(stage.shared, 'inside'), 0o777);
      const mounts: ContainerMount[] = [stage.sharedMount];
      const path = `${stage.mount}/inside/note`;
      await stage.untilPrinted((await stage.run(note(path), { mounts })).id, 'found []');
      await stage
        .run(`until [ "$(cat ${path})" = kept ]; do sleep 0.05; done; echo same`, { mounts })
        .then(({ id }) => stage.untilPrinted(id, 'same'));
      expect(readFileSync(join(stage.shared, 'inside/note'), 'utf8')).toBe('kept\n');
    });
  });
}

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
