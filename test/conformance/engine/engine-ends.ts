// How containers start and end: on their own, by a stop, and together with their child processes.
import { describe, expect, it } from 'vitest';
import { EngineError } from '../../../src/engine/engine.ts';
import { type EngineStage, shell } from './engine-stage.ts';

const GRACE_MS = 10_000;

export function describeEnds(stage: EngineStage): void {
  const isLost = stage.under.diskOverStop === 'lost';

  describe('ending', () => {
    it.each([0, 1, 42, 255])('shows the exit code %i', async (code) => {
      const { id } = await stage.run(`exit ${code}`);
      const ended = await stage.untilExited(id);
      expect(ended).toMatchObject({ exitCode: code, outOfMemory: false, ports: [] });
      expect(ended.endedAt).toBeGreaterThanOrEqual(ended.startedAt ?? Number.POSITIVE_INFINITY);
    });

    it.each([
      ['KILL', 137],
      ['TERM', 143],
      ['SEGV', 139],
    ])('shows an end by SIG%s as %i', async (signal, code) => {
      const { id } = await stage.run(`kill -${signal} $$`);
      expect(await stage.untilExited(id)).toMatchObject({ exitCode: code });
    });

    it('stops a container with SIGTERM and a grace period', async () => {
      const { id } = await stage.run(
        'trap "echo leaving; exit 7" TERM; echo up; while :; do sleep 0.1; done',
      );
      await stage.untilPrinted(id, 'up');
      await stage.engine.stop(id, GRACE_MS);
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'exited', exitCode: 7 });
      expect(await stage.printed(id)).toContain('leaving');
    });

    it('leaves the other processes to the first process', async () => {
      const child = `sh -c 'trap "echo hit" TERM; echo up; sleep 0.5; echo done' &`;
      const { id } = await stage.run(`trap : TERM; ${child} wait; wait; exit 6`);
      await stage.untilPrinted(id, 'up');
      await stage.engine.stop(id, GRACE_MS);
      expect(await stage.printed(id)).toBe('up\ndone\n');
      expect(await stage.engine.inspect(id)).toMatchObject({ exitCode: 6 });
    });

    it('kills a container that ignores SIGTERM', async () => {
      const { id } = await stage.run('trap "" TERM; echo deaf; while :; do sleep 0.1; done');
      await stage.untilPrinted(id, 'deaf');
      await stage.engine.stop(id, 100);
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'exited', exitCode: 137 });
    });

    it('stops a container that has just started', async () => {
      const { id } = await stage.run('exec sleep 1000');
      await stage.engine.stop(id, GRACE_MS);
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'exited' });
    });

    it('does nothing for a stopped container', async () => {
      const spec = stage.spec();
      await stage.engine.stop('pod_nowhere', GRACE_MS);
      await stage.engine.create(spec);
      await stage.engine.stop(spec.id, GRACE_MS);
      expect(await stage.engine.inspect(spec.id)).toMatchObject({ state: 'created' });
      await stage.engine.start(spec.id);
      await Promise.all([stage.engine.stop(spec.id, 100), stage.engine.stop(spec.id, 100)]);
      await stage.engine.stop(spec.id, GRACE_MS);
      expect(await stage.engine.inspect(spec.id)).toMatchObject({ state: 'exited' });
    });

    it.skipIf(!isLost)('starts a container anew after a stop and after an exit', async () => {
      const { id } = await stage.run('echo run; exit 5');
      await stage.untilExited(id);
      await stage.engine.start(id);
      await stage.untilExited(id);
      const kept = await stage.run('echo run; exec sleep 1000');
      await stage.untilPrinted(kept.id, 'run\n');
      await stage.engine.stop(kept.id, 100);
      await stage.engine.start(kept.id);
      expect(await stage.untilPrinted(kept.id, 'run\n')).toBe('run\n');
      expect(await stage.engine.inspect(kept.id)).toMatchObject({
        state: 'running',
        endedAt: null,
      });
    });

    it.skipIf(isLost)('restarts a container after a stop and after an exit', async () => {
      const { id } = await stage.run('echo run; [ -e ran ] && exec sleep 1000; touch ran; exit 5');
      await stage.untilExited(id);
      await stage.engine.start(id);
      await stage.untilPrinted(id, 'run\nrun\n');
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'running', exitCode: null });
      await stage.engine.stop(id, 100);
      await stage.engine.start(id);
      await stage.untilPrinted(id, 'run\nrun\nrun\n');
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'running', endedAt: null });
    });

    it('removes a container with its disk at once', async () => {
      const { id } = await stage.run('trap "" TERM; echo deaf; while :; do sleep 0.1; done');
      await stage.untilPrinted(id, 'deaf');
      await stage.engine.remove(id, 'keep');
      expect(await stage.engine.inspect(id)).toBeUndefined();
      expect(await stage.engine.list()).toEqual([]);
    });

    it('accepts the removal of an unknown container', async () => {
      await stage.engine.remove('pod_nowhere', 'remove');
      await stage.engine.remove('pod_nowhere', 'keep');
      expect(await stage.engine.list()).toEqual([]);
    });
  });

  describeTrees(stage);

  describe.skipIf(!stage.under.limitsMemory)('limits', () => {
    it('ends a container that exceeds its memory limit, with the reason', async () => {
      const grow = 'const all = []; for (;;) all.push(Buffer.alloc(10_000_000, 1));';
      const spec = stage.spec({
        args: `${stage.under.node} -e '${grow}'`,
        limits: { vcpus: 1, memoryGb: 0.125 },
      });
      await stage.start(spec);
      expect(await stage.untilExited(spec.id)).toMatchObject({ exitCode: 137, outOfMemory: true });
    });
  });
}

/** Each process tree keeps a pipe open until its last process ends. */
function describeTrees(stage: EngineStage): void {
  const deaf = `sh -c 'trap "" TERM HUP; while :; do sleep 0.1; done' > ${stage.mount}/pipe`;
  const child = `${deaf} &`;
  const daemon = `setsid ${deaf} < /dev/null 2>&1 &`;
  const trees: [string, string][] = [
    ['a child', child],
    ['one in a session of its own', daemon],
    ['both', child + daemon],
  ];

  async function runTree(script: string) {
    const { closed, release } = await stage.makePipe('pipe');
    const { id } = await stage.run(script, {
      mounts: [stage.sharedMount],
    });
    const untilAllEnded = () => {
      // On a busy machine a process may be killed before it opens the pipe.
      release();
      return closed;
    };
    return { id, untilAllEnded };
  }

  describe('the processes of a container', () => {
    it.each(trees)('end with it when it is stopped: %s', async (_what, tree) => {
      const { id, untilAllEnded } = await runTree(`${tree} echo up; exec sleep 1000`);
      await stage.untilPrinted(id, 'up');
      await stage.engine.stop(id, GRACE_MS);
      await untilAllEnded();
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'exited', exitCode: 143 });
    });

    it.each(trees)('end with it when it exits: %s', async (_what, tree) => {
      const { id, untilAllEnded } = await runTree(`${tree} sleep 0.2; exit 3`);
      expect(await stage.untilExited(id)).toMatchObject({ exitCode: 3 });
      await untilAllEnded();
    });

    it.each(trees)('end with it when it is removed: %s', async (_what, tree) => {
      const { id, untilAllEnded } = await runTree(`${tree} echo up; exec sleep 1000`);
      await stage.untilPrinted(id, 'up');
      await stage.engine.remove(id, 'keep');
      await untilAllEnded();
      expect(await stage.engine.inspect(id)).toBeUndefined();
    });
  });
}

export function describeLives(stage: EngineStage): void {
  describe('starting', () => {
    it('creates a container without starting it', async () => {
      const spec = stage.spec();
      await stage.engine.create(spec);
      expect(await stage.engine.inspect(spec.id)).toMatchObject({
        id: spec.id,
        generation: 1,
        labels: { color: 'green' },
        state: 'created',
        exitCode: null,
        startedAt: null,
        endedAt: null,
        ports: [],
      });
    });

    it('keeps a container of the same generation', async () => {
      const { id } = await stage.run('echo first; exec sleep 1000');
      await stage.untilPrinted(id, 'first');
      await stage.engine.create(stage.spec({ id, args: shell('echo second') }));
      expect(await stage.engine.inspect(id)).toMatchObject({ generation: 1, state: 'running' });
      expect(await stage.engine.list()).toHaveLength(1);
    });

    it('does not replace an existing generation', async () => {
      const { id } = await stage.run('exec sleep 1000');
      const next = stage.spec({ id, generation: 2 });
      await expect(stage.engine.create(next)).rejects.toBeInstanceOf(EngineError);
      expect(await stage.engine.inspect(id)).toMatchObject({ generation: 1, state: 'running' });
    });

    it('starts a created container, and does nothing if it runs', async () => {
      const { id } = await stage.run('echo here; exec sleep 1000');
      await stage.untilPrinted(id, 'here');
      const first = await stage.engine.inspect(id);
      await stage.engine.start(id);
      const second = await stage.engine.inspect(id);
      expect(first).toMatchObject({ state: 'running', exitCode: null, endedAt: null });
      expect(first?.startedAt).toBeGreaterThan(0);
      expect(second?.startedAt).toBe(first?.startedAt);
      expect(await stage.printed(id)).toBe('here\n');
    });

    it('splits arguments as a shell does, and expands nothing', async () => {
      const script = 'console.log(JSON.stringify(process.argv.slice(1)))';
      const args = `${stage.under.node} -e '${script}' -- "a  b" c\\ d '' $HOME '*' "it's"`;
      const spec = stage.spec({ args });
      await stage.start(spec);
      await stage.untilExited(spec.id);
      const printed = await stage.untilPrinted(spec.id, '\n');
      expect(JSON.parse(printed)).toEqual(['a  b', 'c d', '', '$HOME', '*', "it's"]);
    });

    it('refuses arguments with an open quote', async () => {
      const spec = stage.spec({ args: 'echo "half' });
      await expect(stage.engine.create(spec)).rejects.toMatchObject({ code: 'refused' });
      expect(await stage.engine.inspect(spec.id)).toBeUndefined();
    });

    it('shows a missing command as exited with 127, or refuses to start it', async () => {
      const spec = stage.spec({ args: 'no-such-command-anywhere' });
      await stage.engine.create(spec);
      const refusal = await stage.engine.start(spec.id).catch((error: unknown) => error);
      if (refusal !== undefined) expect(refusal).toMatchObject({ code: 'refused' });
      else expect(await stage.untilExited(spec.id)).toMatchObject({ exitCode: 127 });
    });

    it('cannot start an unknown container', async () => {
      await expect(stage.engine.start('pod_nowhere')).rejects.toBeInstanceOf(EngineError);
    });
  });

  describe('the environment', () => {
    it('contains only its spec and the documented variables of the engine', async () => {
      const env = {
        PLAIN: 'one',
        EMPTY: '',
        'dotted.and-dashed': 'two',
        LINES: 'a\nb "c" $d \'e\' \\f',
        IFS: ':',
      };
      process.env['MILLRACE_TEST_SECRET'] = 'of the platform';
      const print = 'console.log(JSON.stringify(process.env))';
      const spec = stage.spec({ args: `${stage.under.node} -e '${print}'`, env });
      await stage.start(spec);
      await stage.untilExited(spec.id);
      const seen = JSON.parse(await stage.untilPrinted(spec.id, '}'));
      expect(seen).toMatchObject(env);
      const expected = new Set([...Object.keys(env), ...stage.under.addedVariables]);
      expect(Object.keys(seen).filter((name) => !expected.has(name))).toEqual([]);
    });
  });
}
