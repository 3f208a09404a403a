// Observing containers: state, list, events, log, usage and ports.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { Engine, PublicPort } from '../../../src/engine/engine.ts';
import type { EngineStage } from './engine-stage.ts';

const GRACE_MS = 10_000;

interface HeldContainer {
  id: string;
  /** Lets the container exit. */
  end(): Promise<void>;
}

export function describeSights(stage: EngineStage): void {
  async function runUntilEnd(exitCode: number): Promise<HeldContainer> {
    const mounts = [stage.sharedMount];
    const script = `until [ -e ${stage.mount}/end ]; do sleep 0.02; done; exit ${exitCode}`;
    const { id } = await stage.run(script, { mounts });
    return { id, end: () => writeFile(join(stage.shared, 'end'), '') };
  }

  describe('inspecting', () => {
    it('finds nothing for an unknown ID', async () => {
      expect(await stage.engine.inspect('pod_nowhere')).toBeUndefined();
      expect(await stage.engine.stats('pod_nowhere')).toBeUndefined();
      expect(await stage.engine.readLog('pod_nowhere', 1_000)).toHaveLength(0);
    });

    it('lists containers in every state, with generation and labels', async () => {
      const created = stage.spec({ generation: 4, labels: { endpoint: 'ep_1', user: 'a' } });
      await stage.engine.create(created);
      const running = await stage.run('exec sleep 1000', { labels: {} });
      const ended = await stage.run('exit 1');
      await stage.untilExited(ended.id);
      const found = (await stage.engine.list()).sort((a, b) => (a.id < b.id ? -1 : 1));
      expect(found).toMatchObject([
        { id: created.id, generation: 4, labels: created.labels, state: 'created' },
        { id: running.id, generation: 1, state: 'running' },
        { id: ended.id, generation: 1, labels: { color: 'green' }, state: 'exited', exitCode: 1 },
      ]);
      expect(found[0]?.labels).toEqual(created.labels);
      expect(found[1]?.labels).toEqual({});
    });

    it('finds unchanged containers after a platform restart', async () => {
      const running = await stage.run('exec sleep 1000', { labels: { user: 'a' }, generation: 3 });
      const before = await stage.engine.inspect(running.id);
      const after = stage.reopen();
      expect(await after.inspect(running.id)).toEqual(before);
      expect(await after.list()).toEqual([before]);
    });

    it('shows how a container ended while no platform ran', async () => {
      const { id, end } = await runUntilEnd(9);
      await stage.engine.close();
      await end();
      // A slow machine may need longer than that.
      await sleep(400);
      stage.reopen();
      expect(await stage.untilExited(id)).toMatchObject({ exitCode: 9 });
    });

    it('keeps containers running when it is closed', async () => {
      const { id } = await stage.run('exec sleep 1000');
      const before = await stage.engine.inspect(id);
      await stage.engine.close();
      expect(await stage.reopen().inspect(id)).toEqual(before);
    });

    it('stops and removes containers of another platform process', async () => {
      const { id } = await stage.run('echo up; exec sleep 1000');
      // Until then its init may not forward signals.
      await stage.untilPrinted(id, 'up');
      await stage.reopen().stop(id, GRACE_MS);
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'exited', exitCode: 143 });
      await stage.reopen().remove(id, 'remove');
      expect(await stage.engine.list()).toEqual([]);
    });
  });

  describe('watching', () => {
    it('reports a container that ends', async () => {
      await untilToldOfEnd(stage.engine, await runUntilEnd(1));
    });

    it('reports a container that ends, even if another platform process started it', async () => {
      const held = await runUntilEnd(1);
      await untilToldOfEnd(stage.reopen(), held);
    });

    it('calls a removed listener no more', async () => {
      const heard: string[] = [];
      stage.engine.watch((id) => heard.push(id))();
      await untilToldOfEnd(stage.engine, await runUntilEnd(1));
      expect(heard).toEqual([]);
    });
  });

  describe('the log', () => {
    it('contains both outputs in order of arrival', async () => {
      const { id } = await stage.run('echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three');
      await stage.untilExited(id);
      expect(await stage.untilPrinted(id, 'three')).toBe('one\ntwo\nthree\n');
    });

    it('is truncated at the front to the given bytes', async () => {
      const count = 'i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo "line $i"; done';
      const { id } = await stage.run(count);
      await stage.untilExited(id);
      await stage.untilPrinted(id, 'line 3000\n');
      const end = Buffer.from(await stage.engine.readLog(id, 100)).toString();
      expect(end.length).toBeLessThanOrEqual(100);
      expect(end).toMatch(/line 2999\nline 3000\n$/);
    });

    it.skipIf(stage.under.diskOverStop === 'lost')('is kept across stop and start', async () => {
      const { id } = await stage.run('echo again; exec sleep 1000');
      await stage.untilPrinted(id, 'again');
      await stage.engine.stop(id, GRACE_MS);
      await stage.engine.start(id);
      expect(await stage.untilPrinted(id, 'again\nagain\n')).toBe('again\nagain\n');
    });
  });

  describe('the usage', () => {
    it('is a share of its limit', async () => {
      const { id } = await stage.run('while :; do :; done', {
        limits: { vcpus: 2, memoryGb: 1 },
      });
      let seen = await stage.engine.stats(id);
      while (!seen || seen.cpu === 0 || seen.memory === 0) {
        await sleep(50);
        seen = await stage.engine.stats(id);
      }
      expect(seen.cpu).toBeLessThanOrEqual(100);
      expect(seen.memory).toBeLessThanOrEqual(100);
    });

    it('is empty if nothing runs', async () => {
      const { id } = await stage.run('exit 0');
      await stage.untilExited(id);
      expect(await stage.engine.stats(id)).toBeUndefined();
    });
  });

  describe('ports', () => {
    const serve = (variable: string, port: number) =>
      `require("node:http").createServer((q, s) => s.end("${port}")).listen(process.env.${variable} || ${port});`;

    it('are reachable from this machine while it runs', async () => {
      const code = serve('PORT', 8000) + serve('MILLRACE_PORT_9000', 9000);
      const spec = stage.spec({
        args: `${stage.under.node} -e '${code}'`,
        ports: [
          { private: 8000, protocol: 'http' },
          { private: 9000, protocol: 'tcp' },
        ],
      });
      await stage.start(spec);
      const { ports } = await stage.until(spec.id, (seen) => seen.ports.length === 2);
      expect(ports).toMatchObject([
        { private: 8000, type: 'http' },
        { private: 9000, type: 'tcp' },
      ]);
      expect(await Promise.all(ports.map(fetchText))).toEqual(['8000', '9000']);
      await stage.engine.stop(spec.id, 100);
      expect(await stage.engine.inspect(spec.id)).toMatchObject({ ports: [] });
    });

    it('differ between two containers', async () => {
      const ports = [{ private: 8000, protocol: 'http' as const }];
      const args = `${stage.under.node} -e '${serve('PORT', 8000)}'`;
      const specs = [stage.spec({ args, ports }), stage.spec({ args, ports })];
      await Promise.all(specs.map((spec) => stage.engine.create(spec)));
      await Promise.all(specs.map(({ id }) => stage.engine.start(id)));
      const seen = await Promise.all(
        specs.map(({ id }) => stage.until(id, (each) => each.ports.length === 1)),
      );
      const [a, b] = seen.map((each) => each.ports[0]);
      expect(a?.public).toBeGreaterThan(0);
      expect(b?.public).toBeGreaterThan(0);
      expect(`${a?.ip}:${a?.public}`).not.toBe(`${b?.ip}:${b?.public}`);
      for (const { ports } of seen)
        expect(await Promise.all(ports.map(fetchText))).toEqual(['8000']);
    });
  });

  describe.skipIf(stage.under.gpus.length === 0)('GPUs', () => {
    it('are listed in the given order', async () => {
      const gpus = stage.under.gpus.slice(0, 2);
      const { id } = await stage.run('exec sleep 1000', { gpus });
      expect(await stage.engine.inspect(id)).toMatchObject({ gpus });
      expect(await stage.reopen().inspect(id)).toMatchObject({ gpus });
    });

    it.runIf(stage.under.gpusAtStart)('are those of the last start, on the same disk', async () => {
      const [first = '', second = ''] = stage.under.gpus;
      const script = 'ls ./note; touch ./note; echo "on $CUDA_VISIBLE_DEVICES"; exec sleep 1000';
      const { id } = await stage.run(script, { gpus: [first] });
      await stage.untilPrinted(id, `on ${first}`);
      await stage.engine.stop(id, GRACE_MS);
      await stage.reopen().start(id, [second]);
      expect(await stage.untilPrinted(id, `on ${second}`)).toContain('./note\n');
      for (const engine of [stage.engine, stage.reopen()]) {
        expect(await engine.inspect(id)).toMatchObject({ gpus: [second], gpusAtStart: true });
      }
      await stage.engine.stop(id, GRACE_MS);
      expect(await stage.engine.inspect(id)).toMatchObject({ gpus: [second] });
      await expect(stage.engine.start(id, ['GPU-gone'])).rejects.toMatchObject({ code: 'refused' });
    });

    it('are refused if they do not exist', async () => {
      const spec = stage.spec({ gpus: ['GPU-of-another-machine'] });
      await expect(stage.engine.create(spec)).rejects.toMatchObject({ code: 'refused' });
      expect(await stage.engine.list()).toEqual([]);
    });
  });
}

/** Inspects the container only when the engine reports a change. */
/** Ends the container as soon as the engine watches it. */
function untilToldOfEnd(engine: Engine, { end, id }: HeldContainer): Promise<void> {
  return new Promise((resolve, reject) => {
    const look = async () => {
      if ((await engine.inspect(id))?.state !== 'exited') return end();
      close();
      resolve();
    };
    const close = engine.watch((changed) => {
      if (changed === id) look().catch(reject);
    });
  });
}

/** Fetches the text, with retries until the container listens. */
async function fetchText({ ip, public: port }: PublicPort): Promise<string> {
  for (;;) {
    try {
      return await (await fetch(`http://${ip}:${port}/`)).text();
    } catch {
      await sleep(20);
    }
  }
}
