import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import {
  forbidForks,
  hasRunOutOfMemory,
  joinGroups,
  listContainerGroups,
  listGroups,
  listMembers,
  locateOwn,
  makeGroups,
  NO_CGROUPS,
  nameGroup,
  parseMounts,
  removeEmptyGroups,
  removeGroups,
} from '../../../../src/engine/process/cgroups.ts';

const MOUNTS = `
25 1 0:22 / /proc rw,nosuid - proc proc rw
30 24 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 /outer /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
`;

describe('the location of control groups', () => {
  it('is read from the mounts', () => {
    expect(parseMounts(MOUNTS)).toMatchObject([
      { mount: '/sys/fs/cgroup/memory', root: '/outer', isUnified: false },
      { mount: '/sys/fs/cgroup/cpu,cpuacct', root: '/', controllers: ['rw', 'cpu', 'cpuacct'] },
      { mount: '/sys/fs/cgroup/unified', isUnified: true, controllers: [] },
    ]);
  });

  it('is found for this process in each hierarchy', () => {
    const membership = '4:memory:/outer/inner\n2:cpu,cpuacct:/batch\n0::/user.slice/a\n';
    const found = parseMounts(MOUNTS).map((each) => locateOwn(each, membership));
    expect(found).toEqual([
      '/sys/fs/cgroup/memory/inner',
      '/sys/fs/cgroup/cpu,cpuacct/batch',
      '/sys/fs/cgroup/unified/user.slice/a',
    ]);
  });

  it('is the root of the mount if the path is outside of it', () => {
    const [memory] = parseMounts(MOUNTS);
    if (!memory) throw new Error('there is no memory hierarchy');
    expect(locateOwn(memory, '4:memory:/stranger')).toBe('/sys/fs/cgroup/memory');
    expect(locateOwn(memory, '')).toBe('/sys/fs/cgroup/memory');
  });
});

describe('a group of a run', () => {
  let folder: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'millrace-groups-'));
  });

  afterEach(() => rmSync(folder, { recursive: true }));

  /** A kernel makes the files with the folder. */
  function pretend(home: string, files: Record<string, string>): string {
    mkdirSync(join(home, 'run'), { recursive: true });
    for (const [name, text] of Object.entries(files)) writeFileSync(join(home, 'run', name), text);
    return home;
  }

  const read = (name: string) => readFileSync(join(folder, name), 'utf8');

  it('has its limits in one folder in version 2', () => {
    const files = { 'memory.max': '', 'memory.swap.max': '', 'cpu.max': '' };
    const home = pretend(folder, files);
    writeFileSync(join(home, 'run/cgroup.procs'), '');
    const groups = makeGroups({ tracking: home, memory: home, cpu: home, pids: home }, 'run', {
      limits: { vcpus: 1.5, memoryGb: 2 },
      processes: 9,
    });
    expect(read('run/pids.max')).toBe('9');
    forbidForks(join(home, 'run'));
    expect(read('run/pids.max')).toBe('0');
    expect(read('run/memory.max')).toBe('2147483648');
    expect(read('run/memory.swap.max')).toBe('0');
    expect(read('run/cpu.max')).toBe('150000 100000');
    joinGroups(groups, 12);
    expect(read('run/cgroup.procs')).toBe('12');
  });

  it('has a folder for each in version 1', () => {
    const memory = pretend(join(folder, 'm'), { 'memory.memsw.limit_in_bytes': '' });
    const cpu = pretend(join(folder, 'c'), {});
    const pids = pretend(join(folder, 'p'), {});
    const groups = makeGroups({ tracking: memory, memory, cpu, pids }, 'run', {
      limits: { vcpus: 2, memoryGb: 1 },
      processes: 0,
    });
    expect(() => read('p/run/pids.max')).toThrow('ENOENT');
    expect(read('m/run/memory.limit_in_bytes')).toBe('1073741824');
    expect(read('m/run/memory.memsw.limit_in_bytes')).toBe('1073741824');
    expect(read('c/run/cpu.cfs_quota_us')).toBe('200000');
    joinGroups(groups, 12);
    const joined = ['m', 'c', 'p'].map((part) => read(`${part}/run/cgroup.procs`));
    expect(joined).toEqual(['12', '12', '12']);
  });

  it('is not created if none can be', () => {
    const groups = makeGroups(NO_CGROUPS, 'run', {
      limits: { vcpus: 1, memoryGb: 1 },
      processes: 64,
    });
    expect(groups).toEqual(NO_CGROUPS);
    joinGroups(groups, 12);
    expect(hasRunOutOfMemory(groups)).toBe(false);
  });

  it.each([
    ['memory.events', 'low 0\nhigh 0\nmax 4\noom 1\noom_kill 1\n', true],
    ['memory.events', 'low 0\nhigh 0\nmax 4\noom 0\noom_kill 0\n', false],
    ['memory.oom_control', 'oom_kill_disable 0\nunder_oom 0\noom_kill 2\n', true],
    ['memory.oom_control', 'oom_kill_disable 0\nunder_oom 0\noom_kill 0\n', false],
  ])('shows by %s whether memory ran out', (name, text, hasRunOut) => {
    const home = pretend(folder, { [name]: text });
    const memory = join(home, 'run');
    expect(hasRunOutOfMemory({ ...NO_CGROUPS, memory })).toBe(hasRunOut);
  });

  it('is found by its name prefix if it was left behind', () => {
    for (const name of ['mine.a', 'mine.b/c', 'others'])
      mkdirSync(join(folder, name), { recursive: true });
    writeFileSync(join(folder, 'mine.b/c/busy'), '');
    removeEmptyGroups(listGroups({ ...NO_CGROUPS, tracking: folder, memory: folder }, 'mine.'));
    expect(readdirSync(folder).sort()).toEqual(['mine.b', 'others']);
  });

  it('is found by the name of a container, but not by that of a container with a longer name', () => {
    const home = { ...NO_CGROUPS, tracking: folder, memory: folder };
    const run = { id: 'pod_a', generation: 1, number: 1, once: 'ab' };
    for (const other of [{}, { generation: 2 }, { number: 11 }, { id: 'pod_a.1' }]) {
      mkdirSync(join(folder, nameGroup('mine.', { ...run, ...other })));
    }
    const found = (part: { id: string; generation?: number }) =>
      listContainerGroups(home, 'mine.', part).map((path) => basename(path));
    expect(found({ id: 'pod_a' }).sort()).toEqual([
      'mine.pod_a.1.1-ab',
      'mine.pod_a.1.11-ab',
      'mine.pod_a.2.1-ab',
    ]);
    expect(found({ id: 'pod_a', generation: 2 })).toEqual(['mine.pod_a.2.1-ab']);
    expect(found({ id: 'pod_a.1' })).toEqual(['mine.pod_a.1.1.1-ab']);
  });

  it('contains the members of its subgroups and is removed with them', async () => {
    const tracking = join(pretend(folder, {}), 'run');
    mkdirSync(join(tracking, 'a/b'), { recursive: true });
    writeFileSync(join(tracking, 'cgroup.procs'), '1\n');
    writeFileSync(join(tracking, 'a/b/cgroup.procs'), '2\n3\n');
    const groups = { ...NO_CGROUPS, tracking };
    expect(listMembers(tracking)).toEqual([1, 2, 3]);
    rmSync(join(tracking, 'cgroup.procs'));
    rmSync(join(tracking, 'a/b/cgroup.procs'));
    await removeGroups(groups, systemClock);
    expect(() => readFileSync(tracking)).toThrow('ENOENT');
  });
});
