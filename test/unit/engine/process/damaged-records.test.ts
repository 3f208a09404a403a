// A pod that runs as the platform's user can damage the engine's records. The engine must still remove the
// pod and end all of its processes.
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findCgroupHome, NO_CGROUPS } from '../../../../src/engine/process/cgroups.ts';
import { isThere, makeSpec, OnePod, shell } from '../../../support/containers/one-pod.ts';
import { until } from '../../../support/until.ts';

let pod: OnePod;

beforeEach(() => {
  pod = new OnePod();
});

afterEach(() => pod.clear());

/** Prints the PIDs of its processes; the last one is a daemon in its own session. */
const TREE =
  'sh -c "echo \\$\\$; exec sleep 1000" & (setsid sh -c "echo \\$\\$; exec sleep 1000" &); echo $$; wait';

const damages: [string, () => void][] = [
  ['an empty container.json', () => writeFileSync(join(pod.home, 'container.json'), '')],
  [
    'a container.json of something else',
    () => writeFileSync(join(pod.home, 'container.json'), '[1]'),
  ],
  ['a container.json of another pod', () => rewrite('container.json', '"pod_a"', '"pod_b"')],
  [
    'a container.json that names a disk elsewhere',
    () => rewrite('container.json', /pod_a\.1\.\w+/, '..'),
  ],
  ['no container.json', () => rmSync(join(pod.home, 'container.json'))],
  ['a folder for a container.json', () => replaceByFolder('container.json')],
  ['no record of its run', () => rmSync(join(pod.home, 'run-1'))],
  ['a damaged record of its run', () => writeFileSync(join(pod.home, 'run-1'), 'x')],
  ['a folder for the record of its run', () => replaceByFolder('run-1')],
  ['a record of another process', () => rewrite('run-1', /^\d+/, `${process.pid}`)],
  ['no records at all', () => rmSync(pod.home, { recursive: true })],
  ['no folder at all', () => rmSync(join(pod.home, '..'), { recursive: true })],
  ['a file for its folder', () => replaceByFile(join(pod.home, '..'))],
  ['a closed folder', () => chmodSync(pod.home, 0)],
  ['no disk', () => rmSync(pod.disk, { recursive: true })],
  ['a disk elsewhere', () => renameSync(pod.disk, join(pod.folder, 'disks/elsewhere'))],
];

function rewrite(name: string, from: string | RegExp, to: string): void {
  const path = join(pod.home, name);
  writeFileSync(path, readFileSync(path, 'utf8').replace(from, to));
}

function replaceByFolder(name: string): void {
  rmSync(join(pod.home, name));
  mkdirSync(join(pod.home, name));
}

function replaceByFile(path: string): void {
  rmSync(path, { recursive: true });
  writeFileSync(path, '');
}

function list(name: string): string[] {
  const path = join(pod.folder, name);
  return existsSync(path) ? readdirSync(path) : [];
}

async function startTree(): Promise<number[]> {
  await pod.start({ args: shell(TREE) });
  return until(async () => {
    const numbers = (await pod.readLog()).split('\n').filter(Boolean).map(Number);
    return numbers.length === 3 && numbers;
  });
}

const homes = [NO_CGROUPS, findCgroupHome()].filter(
  ({ tracking }, index) => index === 0 || tracking !== null,
);

describe.each(homes)('with control groups at $tracking', (cgroups) => {
  describe.each(damages)('a pod with %s', (_what, damage) => {
    it('is removed by the next platform with all of its processes', async () => {
      pod.engine = pod.open({ cgroups });
      const numbers = await startTree();
      damage();
      const next = pod.open({ cgroups });
      await next.list();
      await next.inspect('pod_a');
      await next.remove('pod_a', 'remove');
      expect(numbers.filter(isThere)).toEqual([]);
      expect(await next.inspect('pod_a')).toBeUndefined();
      expect(await next.list()).toEqual([]);
      expect(list('containers')).toEqual([]);
      expect(list('discarded')).toEqual([]);
    });
  });
});

describe('a container whose record cannot be read', () => {
  it('is shown without a generation, so that a new container replaces it', async () => {
    await startTree();
    writeFileSync(join(pod.home, 'container.json'), '{');
    const damaged = { id: 'pod_a', generation: 0, state: 'exited' };
    expect(await pod.engine.inspect('pod_a')).toMatchObject(damaged);
    expect(await pod.engine.list()).toMatchObject([damaged]);
    await expect(pod.engine.create(makeSpec())).rejects.toMatchObject({ code: 'unavailable' });
    await pod.engine.remove('pod_a', 'keep');
    await pod.engine.create(makeSpec());
    expect(await pod.engine.inspect('pod_a')).toMatchObject({ generation: 1, state: 'created' });
  });

  it('does not hide other containers', async () => {
    await pod.start();
    mkdirSync(join(pod.folder, 'containers/pod_b/1'), { recursive: true });
    writeFileSync(join(pod.folder, 'containers/pod_b/1/container.json'), '{');
    expect(await pod.engine.list()).toMatchObject([
      { id: 'pod_a', generation: 1 },
      { id: 'pod_b' },
    ]);
    await pod.engine.remove('pod_b', 'keep');
    expect(await pod.engine.list()).toMatchObject([{ id: 'pod_a' }]);
  });

  it('ends before another container of its pod is created', async () => {
    const numbers = await startTree();
    rmSync(join(pod.home, '..'), { recursive: true });
    await pod.open().create(makeSpec());
    expect(numbers.filter(isThere)).toEqual([]);
  });
});

describe('records', () => {
  it('are outside of the pod’s disk and its parent folder', async () => {
    await pod.printed({ args: shell('ls -a .. > files') });
    const around = readFileSync(join(pod.disk, 'files'), 'utf8').split('\n');
    expect(around.filter((name) => !/^(\.*|pod_a\.1\.\w+)$/.test(name))).toEqual([]);
    expect(readdirSync(pod.disk)).toEqual(['files', 'tmp']);
  });

  it('leave no disk behind for containers that were never created', async () => {
    await pod.start();
    mkdirSync(join(pod.folder, 'disks/pod_b.1.0123456789ab/tmp'), { recursive: true });
    await pod.open().list();
    expect(list('disks')).toEqual([expect.stringMatching(/^pod_a\./)]);
  });
});
