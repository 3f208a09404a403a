import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import {
  findBeneath,
  findByVariable,
  isAlive,
  parseStat,
  readCommandLine,
  readProcess,
  readProcesses,
  signalProcess,
} from '../../../../src/base/process/process-table.ts';
import { until } from '../../../support/until.ts';

const bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
const own = readProcess(process.pid);
const startTicks = own?.startTicks ?? '';

describe('a line of stat', () => {
  it('is parsed for any name of the program', () => {
    const zeros = Array(30).fill('0').join(' ');
    const line = `12 (a) R (b) S 3 4 5 6 7 8 9 10 11 12 20 30 40 50 13 14 15 16 777 ${zeros}`;
    expect(parseStat(line)).toEqual({
      pid: 12,
      parentPid: 3,
      sessionId: 5,
      startTicks: '777',
      isDead: false,
      cpuTicks: 140,
    });
  });

  it.each(['', '12', '12 (cut', '12 (cut) S 1 2 3'])('is invalid: %j', (line) => {
    expect(parseStat(line)).toBeUndefined();
  });

  it('contains the parent of this process', () => {
    expect(own).toMatchObject({ pid: process.pid, parentPid: process.ppid, isDead: false });
  });
});

describe('a process', () => {
  it('is identified by its PID, its start time and the boot of the machine', () => {
    expect(isAlive({ pid: process.pid, startTicks, bootId })).toBe(true);
  });

  it('is not a later process with the same PID', () => {
    expect(isAlive({ pid: process.pid, startTicks: '1', bootId })).toBe(false);
  });

  it('is not a process from before a reboot', () => {
    expect(isAlive({ pid: process.pid, startTicks, bootId: 'another' })).toBe(false);
  });

  it('gets no signal for an earlier process with the same PID', () => {
    // This would end the tests.
    signalProcess({ pid: process.pid, startTicks: '1' }, 'SIGKILL');
    expect(readProcess(process.pid)).toBeDefined();
  });
});

describe('finding processes', () => {
  const children: ReturnType<typeof spawn>[] = [];

  afterEach(async () => {
    for (const child of children.splice(0)) {
      if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) {
        process.kill(-child.pid, 'SIGKILL');
        await once(child, 'exit');
      }
    }
  });

  async function start(script: string, env: Record<string, string> = {}) {
    const child = spawn('sh', ['-c', script], {
      env: { PATH: '/usr/bin:/bin', ...env },
      detached: true,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    children.push(child);
    await once(child.stdout, 'data');
    const { pid = 0 } = child;
    return { pid, startTicks: readProcess(pid)?.startTicks ?? '', bootId };
  }

  it('ignores zombies', async () => {
    const leader = await start('sleep 0.1 & echo up; exec sleep 100');
    const findChild = () => readProcesses().find(({ parentPid }) => parentPid === leader.pid);
    let dead = findChild();
    while (!dead?.isDead) {
      await sleep(10);
      dead = findChild();
    }
    const { pid, startTicks } = dead;
    expect(isAlive({ pid, startTicks, bootId })).toBe(false);
    expect(findBeneath(new Set([leader.pid]), readProcesses())).toMatchObject([
      { pid: leader.pid },
    ]);
  });

  it('finds all descendants, even in other sessions', async () => {
    // The other session reports itself, so that it is there when the leader has printed something.
    const leader = await start('sleep 100 & setsid sh -c "echo up; exec sleep 200" & wait');
    const found = findBeneath(new Set([leader.pid]), readProcesses());
    const outside = found.filter(({ sessionId }) => sessionId !== leader.pid);
    for (const each of outside) signalProcess(each, 'SIGKILL');
    expect(found).toHaveLength(3);
    expect(outside).toHaveLength(1);
  });

  it.each([0, 1, process.pid])('finds no descendants of process %i', (pid) => {
    expect(findBeneath(new Set([pid]), readProcesses())).toEqual([]);
  });

  it('misses no process that is starting a program', async () => {
    // The kernel needs some time to place so many variables.
    const many = Object.fromEntries(Array.from({ length: 80_000 }, (_, n) => [`v${n}`, '']));
    const child = spawn('env', [...Array(25).fill('env'), 'sleep', '100'], {
      env: { PATH: '/usr/bin:/bin', MILLRACE_MARK: '/b/1', ...many },
      detached: true,
      stdio: 'ignore',
    });
    children.push(child);
    await once(child, 'spawn');
    const { pid = 0 } = child;
    let misses = 0;
    while (!readCommandLine(pid).startsWith('sleep')) {
      const entry = readProcess(pid);
      if (!entry || entry.isDead) throw new Error('the process has ended');
      const { found, unknown } = findByVariable('MILLRACE_MARK', '/b/1', [entry]);
      if (found.length + unknown.length === 0) misses += 1;
    }
    expect(misses).toBe(0);
  });

  it('finds processes by the exact value of a variable', async () => {
    const { pid } = await start('echo up; exec sleep 100', { MILLRACE_MARK: '/a/1' });
    await start('echo up; exec sleep 100', { MILLRACE_MARK: '/a/10' });
    const find = (value: string) => findByVariable('MILLRACE_MARK', value, readProcesses()).found;
    // Variables cannot be read while a process starts its program.
    await until(() => find('/a/').length >= 2);
    expect(find('/a/1').map((each) => each.pid)).toEqual([pid]);
    expect(find('/a/')).toHaveLength(2);
  });
});
