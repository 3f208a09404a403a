// Model processes that are forks of a launcher: a real launcher, real forks, and what their worker sees of them.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { createModelProcess, type ModelProcessOptions } from 'millrace/process';
import { describe, expect, it, onTestFinished } from 'vitest';
import { isRunning, RecordedLog } from '../../support/models/model-stand.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';

const FOLDER = resolve(import.meta.dirname, '../../support/models/preload');
const PROGRAM = resolve(FOLDER, 'launched.py');
const caught = (promise: Promise<unknown>) => promise.then(undefined, (error: unknown) => error);

interface Description {
  argv: string[];
  forked: boolean;
  parent: number;
  random: number;
  [name: string]: unknown;
}

async function startModel(options: Partial<ModelProcessOptions> = {}) {
  const log = new RecordedLog();
  const model = createModelProcess({
    command: 'python3',
    args: [PROGRAM, '--flag'],
    preload: ['quiet'],
    maxBackoffMs: 10,
    ...options,
  });
  onTestFinished(() => model.stop());
  await model.start({ log });
  const count = (message: string) => log.messages.filter((each) => each === message).length;
  const waitFor = (message: string, times = 1) =>
    expect.poll(() => count(message)).toBeGreaterThanOrEqual(times);
  const kill = () => process.kill(model.pid ?? 0, 'SIGKILL');
  return {
    log,
    model,
    waitFor,
    kill,
    /** The next start is a fork. */
    untilFork: (times = 1) => waitFor('fork waits for the next start', times),
    /** Ends the child; the next call gets another one. */
    async replace() {
      const { pid } = model;
      kill();
      await expect.poll(() => model.pid !== undefined && model.pid !== pid).toBe(true);
    },
    describe: () => model.call<Description>('describe', {}),
    findReason: (message: string) =>
      Reflect.get(log.entries.find((each) => each.message === message)?.fields ?? {}, 'reason'),
  };
}

const isLinux = process.platform === 'linux';

describe.skipIf(!isLinux || leaveOutWithoutPython('launcher.test.ts'))('a launcher', () => {
  it('forks the next child, which finds everything as a child of the worker does', async () => {
    const stand = await startModel({ cwd: FOLDER, env: { OWN: 'mine' } });
    const plain = await stand.describe();
    expect(plain).toMatchObject({
      argv: [PROGRAM, '--flag'],
      cwd: FOLDER,
      main: `__main__ ${PROGRAM}`,
      path: FOLDER,
      own: 'mine',
      group: true,
      stdin: '/dev/null',
      forked: false,
    });
    const randoms = new Set([plain.random]);
    for (let time = 1; time <= 2; time += 1) {
      await stand.untilFork(time);
      await stand.replace();
      const { parent, random, ...forked } = await stand.describe();
      expect({ ...forked, parent, random }).toEqual({ ...plain, forked: true, parent, random });
      expect(parent).not.toBe(process.pid);
      randoms.add(random);
    }
    expect(randoms.size).toBe(3);
  });

  it('passes on how a fork ended, with what it printed', async () => {
    const stand = await startModel();
    await stand.untilFork();
    await stand.replace();
    await stand.untilFork(2);
    expect(await caught(stand.model.call('leave', {}))).toMatchObject({
      blame: 'culprit',
      message: expect.stringMatching(
        /exited with code 7; its last lines on standard error:\nit leaves$/,
      ),
    });
    expect(await caught(stand.model.call('crash', 1))).toMatchObject({
      message: expect.stringContaining('was killed by SIGABRT'),
    });
    expect(stand.log.messages).toContain('printed 1');
  });

  it('shows the traceback of a program that fails, without its own lines', async () => {
    const stand = await startModel({ args: [PROGRAM, '--fail'] });
    await stand.untilFork();
    stand.kill();
    await stand.waitFor('model process did not start, retrying');
    const reason = stand.findReason('model process did not start, retrying');
    expect(reason).toContain('ValueError: no weights');
    expect(reason).not.toContain('millrace_launch');
  });

  it('lets a fork clean up when it is stopped, and ends with it', async () => {
    const stand = await startModel();
    await stand.untilFork();
    await stand.replace();
    const { parent } = await stand.describe();
    const { pid } = stand.model;
    await stand.model.stop();
    expect(stand.log.messages).toContain('cleaned up');
    await expect.poll(() => isRunning(parent) || isRunning(pid ?? 0)).toBe(false);
  });

  it.each([
    ['torch', 'PyTorch has initialized CUDA'],
    ['threads', 'the packages have started threads: watcher'],
    ['native_threads', 'threads of the packages still run after a fork: 1'],
    [
      'no_such_package',
      "cannot import no_such_package: ModuleNotFoundError: No module named 'no_such_package'",
    ],
  ])('does without forks with the package %s', async (name, reason) => {
    const stand = await startModel({ preload: [name] });
    const message = 'launcher cannot fork, model processes start without it';
    await stand.waitFor(message);
    expect(stand.findReason(message)).toBe(reason);
    await stand.replace();
    expect(await stand.describe()).toMatchObject({ forked: false });
  });

  it('is replaced if it dies; a start in between does without', async () => {
    const stand = await startModel();
    await stand.untilFork();
    const launcher = Number(
      Reflect.get(
        stand.log.entries.find(({ message }) => message === 'launcher ready')?.fields ?? {},
        'pid',
      ),
    );
    process.kill(launcher, 'SIGKILL');
    await stand.waitFor('launcher ended, restarting');
    // The child is not a fork, so it lives on.
    expect(await stand.describe()).toMatchObject({ forked: false });
    await stand.replace();
    expect(await stand.describe()).toMatchObject({ forked: false });
    await stand.untilFork(2);
    await stand.replace();
    expect(await stand.describe()).toMatchObject({ forked: true });
  });

  it('takes its forks with it when it is killed', async () => {
    const stand = await startModel();
    await stand.untilFork();
    await stand.replace();
    const { parent } = await stand.describe();
    const { pid } = stand.model;
    process.kill(parent, 'SIGKILL');
    await expect.poll(() => stand.model.pid !== pid && stand.model.pid !== undefined).toBe(true);
    expect(isRunning(pid ?? 0)).toBe(false);
  });

  it('dies with its worker, and its forks too', async () => {
    const code = `
      import { createModelProcess } from '${resolve('src/process.ts')}';
      const model = createModelProcess({ command: 'python3', args: ['${PROGRAM}'], preload: ['quiet'] });
      const silent = () => undefined;
      const forked = Promise.withResolvers();
      await model.start({ log: { debug: forked.resolve, info: silent, warn: silent, error: silent } });
      setInterval(silent, 1000);
      await forked.promise;
      process.kill(model.pid, 'SIGKILL');
      while ((await model.call('describe', {}).catch(silent))?.forked !== true);
      console.log(JSON.stringify([(await model.call('describe', {})).parent, model.pid]));
    `;
    const worker = spawn(process.execPath, ['--input-type=module', '-e', code], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [line] = await once(worker.stdout, 'data', { signal: AbortSignal.timeout(30_000) });
    const pids: number[] = JSON.parse(String(line));
    expect(pids.every(isRunning)).toBe(true);
    worker.kill('SIGKILL');
    await expect.poll(() => pids.some(isRunning)).toBe(false);
  });

  it.skipIf(leaveOutWithoutPython('numpy in launcher.test.ts', 'numpy'))(
    'forks numpy with its threads of BLAS',
    async () => {
      const stand = await startModel({ preload: ['numpy'] });
      const results = [await stand.model.call('multiply', { size: 400 })];
      for (let time = 1; time <= 2; time += 1) {
        await stand.untilFork(time);
        await stand.replace();
        results.push(await stand.model.call('multiply', { size: 400 }));
      }
      expect(results).toEqual(Array(3).fill({ value: 400, random: expect.any(Number) }));
      expect(new Set(results.map((result) => JSON.stringify(result))).size).toBe(3);
    },
  );

  it.each([
    [
      { preload: ['a b'] },
      'preload is ["a b"]; give an array of at most 100 names of Python packages',
    ],
    [
      { command: 'node' },
      /preload is for python3 with a file, or -m and a module, .* not for \["node"/,
    ],
    [{ args: ['-c', 'pass'] }, /^createModelProcess: preload is for python3 with a file/],
  ])('refuses the options %j', (options, message) => {
    const whole = { command: 'python3', args: ['model.py'], preload: ['torch'], ...options };
    expect(() => createModelProcess(whole)).toThrow(message);
  });
});
