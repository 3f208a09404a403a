import { type ChildProcess, spawn } from 'node:child_process';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ContainerSpec } from '../../../../src/engine/engine.ts';
import { findCgroupHome, NO_CGROUPS } from '../../../../src/engine/process/cgroups.ts';
import { isThere, makeSpec, OnePod, shell } from '../../../support/containers/one-pod.ts';
import { until } from '../../../support/until.ts';

const ENGINE = fileURLToPath(
  new URL('../../../../src/engine/process/process-engine.ts', import.meta.url),
);
const LOG = fileURLToPath(new URL('../../../../src/base/log.ts', import.meta.url));

const groups = findCgroupHome().tracking;

let pod: OnePod;

beforeEach(() => {
  pod = new OnePod();
});

afterEach(() => pod.clear());

describe('the end of a run', () => {
  it('has exit code 137 if its shell was killed, and its processes end', async () => {
    await pod.start({ args: shell('echo $$; exec sleep 1000') });
    const main = Number(await pod.untilPrinted('\n'));
    process.kill(pod.readRun().pid, 'SIGKILL');
    expect(await pod.untilExited()).toMatchObject({ exitCode: 137, outOfMemory: false });
    expect(isThere(main)).toBe(false);
  });

  it('has exit code 137 if another process has its PID, and that process survives', async () => {
    await pod.start();
    await pod.engine.stop('pod_a', 1_000);
    const { file, lines } = pod.readRun();
    const [stat = '', boot = '', note = ''] = lines;
    // As of this very process, started at another time.
    const other = stat.replace(/^\d+/, `${process.pid}`);
    rmSync(join(pod.home, pod.readRun().exitFile));
    writeFileSync(file, `${[other, boot, note].join('\n')}\n`);
    const after = pod.open();
    expect(await after.inspect('pod_a')).toMatchObject({ state: 'exited', exitCode: 137 });
    await after.stop('pod_a', 0);
    await after.remove('pod_a', 'keep');
    expect(isThere(process.pid)).toBe(true);
  });

  it('does not delay the exit of the platform, and the next one completes the stop', async () => {
    await pod.start({ args: shell('trap "" TERM; echo up; while :; do sleep 0.1; done') });
    await pod.untilPrinted('up');
    const { pid } = pod.readRun();
    const stopped = pod.engine.stop('pod_a', 1_000_000);
    const refused = expect(stopped).rejects.toMatchObject({ code: 'unavailable' });
    await pod.engine.close();
    await refused;
    expect(isThere(pid)).toBe(true);
    await pod.open().stop('pod_a', 0);
    expect(isThere(pid)).toBe(false);
  });

  it('is the same at the second inspection', async () => {
    await pod.start();
    process.kill(pod.readRun().pid, 'SIGKILL');
    const seen = await pod.untilExited();
    expect(await pod.open().inspect('pod_a')).toEqual(seen);
  });

  it('has no time if its shell was killed while no engine looked', async () => {
    await pod.start();
    const { pid } = pod.readRun();
    process.kill(pid, 'SIGKILL');
    await until(() => !isThere(pid));
    const seen = await pod.open().inspect('pod_a');
    expect(seen).toMatchObject({ state: 'exited', exitCode: 137, endedAt: null });
    expect(await pod.engine.inspect('pod_a')).toEqual(seen);
  });

  it('has a time if the engine has only seen the run, and not started it', async () => {
    await pod.start();
    const next = pod.open();
    await next.inspect('pod_a');
    const { pid } = pod.readRun();
    process.kill(pid, 'SIGKILL');
    await until(() => !isThere(pid));
    expect(await next.inspect('pod_a')).toMatchObject({ endedAt: expect.any(Number) });
  });

  const hide =
    'env -i setsid sh -c "echo \\$\\$ > hidden; exec /bin/sleep 1000" & until [ -s hidden ]; do sleep 0.02; done';
  const readHidden = () => Number(readFileSync(join(pod.disk, 'hidden'), 'utf8'));

  it.skipIf(groups === null)(
    'ends processes that left its session, its parent and its environment',
    async () => {
      await pod.start({ args: shell(`${hide}; exit 0`) });
      await pod.untilExited();
      expect(isThere(readHidden())).toBe(false);
    },
  );

  it('ends such processes without control groups too, while their parent lives', async () => {
    pod.engine = pod.open({ cgroups: NO_CGROUPS });
    await pod.start({ args: shell(`${hide}; echo up; exec sleep 1000`) });
    await pod.untilPrinted('up');
    await pod.engine.stop('pod_a', 1_000);
    expect(isThere(readHidden())).toBe(false);
  });

  it('does not affect the next run, which has another name', async () => {
    const args = shell('echo $MILLRACE_RUN; [ -e again ] && exec sleep 1000; touch again');
    await pod.printed({ args });
    await pod.engine.start('pod_a');
    const names = await pod.untilPrinted('run-2\n');
    expect(names).toBe(`${pod.home}/run-1\n${pod.home}/run-2\n`);
  });

  it('ends its remaining processes before the next run starts', async () => {
    const leave =
      '[ -e left ] && exec sleep 1000; setsid sh -c "echo \\$\\$ > left; exec sleep 1000" &';
    await pod.start({ args: shell(`${leave} until [ -s left ]; do sleep 0.02; done; exit 0`) });
    const exited = () => readFileSync(join(pod.home, pod.readRun().exitFile), 'utf8') !== '';
    await until(exited);
    const left = Number(readFileSync(join(pod.disk, 'left'), 'utf8'));
    await pod.engine.start('pod_a');
    expect(isThere(left)).toBe(false);
    expect(await pod.engine.inspect('pod_a')).toMatchObject({ state: 'running' });
  });
});

describe('the data of a container', () => {
  it('is readable by its owner only', async () => {
    await pod.start({ env: { SECRET: 'word' } });
    const home = pod.home;
    expect(statSync(join(home, 'container.json')).mode & 0o077).toBe(0);
    expect(statSync(join(home, 'log')).mode & 0o077).toBe(0);
    expect(statSync(home).mode & 0o077).toBe(0);
  });

  it('contains the last run only', async () => {
    for (let run = 0; run < 3; run++) {
      await pod.start({ args: 'true' });
      await pod.untilExited();
    }
    const names = readdirSync(pod.home).sort();
    expect(names).toEqual(['container.json', expect.stringMatching(/^exit-/), 'log', 'run-3']);
  });

  it('keeps its ports across a stop', async () => {
    await pod.start({ ports: [{ private: 80, protocol: 'http' }] });
    const before = (await pod.engine.inspect('pod_a'))?.ports;
    await pod.engine.stop('pod_a', 1_000);
    await pod.engine.start('pod_a');
    expect(before).toHaveLength(1);
    expect((await pod.engine.inspect('pod_a'))?.ports).toEqual(before);
  });

  it('is removed with the pod', async () => {
    const mounts = [{ kind: 'persistent' as const, source: 'data', path: '/a' }];
    await pod.start({ mounts });
    await pod.engine.remove('pod_a', 'remove');
    const left = readdirSync(pod.folder, { recursive: true }).map(String).sort();
    expect(left).toEqual(['containers', 'discarded', 'disks', 'new', 'volumes']);
  });
});

describe('a platform that was killed', () => {
  const children: ChildProcess[] = [];

  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
  });

  /** Starts the container in a platform process, and kills that process. */
  async function startAndDie(spec: ContainerSpec): Promise<void> {
    const code = `
      import { ProcessEngine } from ${JSON.stringify(ENGINE)};
      import { silentLog } from ${JSON.stringify(LOG)};
      const engine = new ProcessEngine({ folder: ${JSON.stringify(pod.folder)}, log: silentLog });
      await engine.create(${JSON.stringify(spec)});
      await engine.start(${JSON.stringify(spec.id)});
      setInterval(() => {}, 1_000);
      console.log('started');`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
      stdio: ['ignore', 'pipe', 'inherit'],
      detached: true,
    });
    children.push(child);
    await once(child.stdout, 'data');
    // Kills the whole process group, as a terminal does.
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    await once(child, 'exit');
  }

  it('leaves its containers running, and the next one reads their exit codes', async () => {
    const script = 'until [ -e go ]; do sleep 0.02; done; exit 21';
    await startAndDie(makeSpec({ args: shell(script) }));
    expect(await pod.engine.inspect('pod_a')).toMatchObject({ state: 'running' });
    writeFileSync(join(pod.disk, 'go'), '');
    expect(await pod.untilExited()).toMatchObject({ exitCode: 21 });
  });

  it('leaves an unfinished removal to the next one', async () => {
    await startAndDie(makeSpec({ args: shell('echo $$; exec sleep 1000') }));
    const main = Number(await pod.untilPrinted('\n'));
    // The removal stopped here.
    mkdirSync(join(pod.folder, 'discarded'));
    renameSync(pod.home, join(pod.folder, 'discarded/pod_a@1@abc'));
    expect(isThere(main)).toBe(true);
    await pod.engine.create(makeSpec({ generation: 2 }));
    expect(isThere(main)).toBe(false);
    expect(readdirSync(join(pod.folder, 'discarded'))).toEqual([]);
  });

  it.skipIf(groups === null)(
    'leaves unused control groups, which the next one removes',
    async () => {
      await pod.start();
      const prefix = `millrace-${hash('sha256', pod.folder, 'hex').slice(0, 8)}.`;
      const listOwn = () => readdirSync(groups ?? '').filter((name) => name.startsWith(prefix));
      const running = listOwn();
      mkdirSync(join(groups ?? '', `${prefix}pod_a.1.2-abc`));
      const next = pod.open();
      // A container that starts before the check does not keep them.
      await next.create(makeSpec({ id: 'b' }));
      await next.start('b');
      await next.list();
      await next.remove('b', 'remove');
      const left = listOwn();
      expect(left).toEqual(running);
      expect(left).toHaveLength(1);
    },
  );

  it('leaves incomplete folders, which the next one removes', async () => {
    mkdirSync(join(pod.folder, 'new/container-abc/disk'), { recursive: true });
    mkdirSync(join(pod.folder, 'discarded/pod_b@1@abc/disk'), { recursive: true });
    expect(await pod.engine.list()).toEqual([]);
    expect(existsSync(join(pod.folder, 'new/container-abc'))).toBe(false);
    expect(existsSync(join(pod.folder, 'discarded/pod_b@1@abc'))).toBe(false);
  });
});

describe.skipIf(findCgroupHome().pids === null)('a pod that starts processes without end', () => {
  const BOMB = 'echo lit; bomb() { bomb | bomb & bomb | bomb; }; bomb';

  it('ends alone, with all of its processes, and starts no more than its limit', async () => {
    const MAX = 64;
    pod.engine = pod.open({ maxProcesses: MAX });
    expect(pod.engine.capabilities.limits.processes).toBe(true);
    const other = makeSpec({ id: 'pod_b', args: shell('while :; do sh -c :; done') });
    await pod.engine.create(other);
    await pod.engine.start(other.id);
    await pod.start({ args: shell(BOMB) });
    await pod.untilPrinted('lit');
    const group = readGroup('pids');
    const count = () => Number(readFileSync(join(group, 'pids.current'), 'utf8'));
    const hasRefused = () => /^max [1-9]/m.test(readFileSync(join(group, 'pids.events'), 'utf8'));
    await until(hasRefused);
    expect(count()).toBeLessThanOrEqual(MAX);
    // Another platform process ends it.
    pod.engine = pod.open({ maxProcesses: MAX });
    await pod.engine.stop('pod_a', 100);
    expect(await pod.engine.inspect('pod_a')).toMatchObject({ state: 'exited' });
    expect(existsSync(group)).toBe(false);
    expect(await pod.engine.inspect(other.id)).toMatchObject({ state: 'running' });
  });

  it('has no limit if the operator wants none', async () => {
    pod.engine = pod.open({ maxProcesses: 0 });
    await pod.start();
    expect(readFileSync(join(readGroup('pids'), 'pids.max'), 'utf8')).toBe('max\n');
    expect(pod.engine.capabilities.limits.processes).toBe(false);
  });

  function readGroup(name: string): string {
    const { groups } = JSON.parse(pod.readRun().lines[2] ?? '');
    return groups[name];
  }
});
