// Pods on a real platform that is killed in the middle of every transition, and comes back.
import { readFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cpuFlavorList, gpuTypeList } from '../../src/wire/resources/catalog.ts';
import {
  type PodAction,
  type PodStatus,
  podList,
  podRecord,
} from '../../src/wire/resources/pod.ts';
import { sayingOf, standInFolder } from '../support/nvidia-smi/stand-in.ts';
import { PlatformProcess } from '../support/processes.ts';
import { until } from '../support/until.ts';

/** How long after the answers the platform is killed. */
const DELAYS_MS = [0, 3, 10, 30, 100];

let platform: PlatformProcess;

beforeEach(async () => {
  const env = {
    PATH: `${standInFolder}${delimiter}${process.env['PATH']}`,
    ...sayingOf('eight-a100'),
  };
  platform = await PlatformProcess.start({ endpoints: [], args: ['--engine', 'process'], env });
});

afterEach(async () => {
  const pods = await listPods();
  await Promise.all(pods.map(({ id }) => platform.fetch(`/v2/pods/${id}`, { method: 'DELETE' })));
  await Promise.all(pods.map(({ name }) => untilRuns(name, 0)));
  await platform.close();
});

/** Each of its processes writes its id into a file of the pod's name, and lives until it is ended. */
function lasting(name: string): string {
  return `sh -c 'echo $$ >> ${join(platform.folder, name)}; exec sleep 1000'`;
}

async function listPods() {
  return podList.parse(await (await platform.fetch('/v2/pods')).json()).pods;
}

async function create(name: string, args = lasting(name)): Promise<string> {
  const { cpus } = cpuFlavorList.parse(await (await platform.fetch('/v2/catalog/cpus')).json());
  const [flavor] = cpus;
  const cpu = flavor && { id: flavor.id, vcpuCount: Math.min(...flavor.vcpuCounts), memory: 1 };
  const response = await platform.post('/v2/pods', { name, image: 'none', args, cpu });
  expect(response.status).toBe(201);
  return podRecord.parse(await response.json()).id;
}

async function act(id: string, action: PodAction): Promise<void> {
  const { status } = await platform.post(`/v2/pods/${id}/action`, { action });
  expect(status).toBe(action === 'terminate' ? 204 : 200);
}

async function untilIn(status: PodStatus, id: string): Promise<void> {
  await until(
    async () => {
      const pod = podRecord.parse(await (await platform.fetch(`/v2/pods/${id}`)).json());
      return pod.status === status;
    },
    { everyMs: 50 },
  );
}

async function listRuns(name: string): Promise<number[]> {
  const pids = await readFile(join(platform.folder, name), 'utf8').catch(() => '');
  return pids
    .split('\n')
    .filter((line) => line !== '')
    .map(Number);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** So many of its processes live. */
async function untilRuns(name: string, count: number): Promise<void> {
  await until(async () => (await listRuns(name)).filter(isAlive).length === count, {
    everyMs: 50,
  });
}

interface Transition {
  prepare?: (id: string) => Promise<void>;
  act: (id: string) => Promise<unknown>;
  expected: { status: PodStatus; alive: 0 | 1; runs: number };
}

const stop = async (id: string) => {
  await act(id, 'stop');
  await untilIn('EXITED', id);
};

const transitions: Record<string, Transition> = {
  stop: {
    act: (id) => act(id, 'stop'),
    expected: { status: 'EXITED', alive: 0, runs: 1 },
  },
  start: {
    prepare: async (id) => {
      await stop(id);
      await untilRuns('start', 0);
    },
    act: (id) => act(id, 'start'),
    expected: { status: 'RUNNING', alive: 1, runs: 2 },
  },
  restart: {
    act: (id) => act(id, 'restart'),
    expected: { status: 'RUNNING', alive: 1, runs: 2 },
  },
  change: {
    act: (id) =>
      platform.fetch(`/v2/pods/${id}`, {
        method: 'PATCH',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ env: { A: '1' } }),
      }),
    expected: { status: 'RUNNING', alive: 1, runs: 2 },
  },
  terminate: {
    act: (id) => act(id, 'terminate'),
    expected: { status: 'TERMINATED', alive: 0, runs: 1 },
  },
  crash: {
    act: async () => {
      const [pid = 0] = await listRuns('crash');
      process.kill(pid, 'SIGKILL');
    },
    expected: { status: 'RUNNING', alive: 1, runs: 2 },
  },
};

async function prepare(name: string, transition: Transition): Promise<string> {
  const id = await create(name);
  await untilIn('RUNNING', id);
  await untilRuns(name, 1);
  await transition.prepare?.(id);
  return id;
}

describe('a platform that is killed', () => {
  it.each(DELAYS_MS)(
    'completes every transition after its restart: killed after %i ms',
    async (delayMs) => {
      const plans = Object.entries(transitions);
      const ids = await Promise.all(plans.map(([name, plan]) => prepare(name, plan)));
      const acts = plans.map(([, plan], index) => plan.act(ids[index] ?? ''));
      const [created] = await Promise.all([create('creation'), ...acts]);
      await sleep(delayMs);
      await platform.kill();
      await platform.restart();
      await untilIn('RUNNING', created);
      await untilRuns('creation', 1);
      for (const [index, [name, { expected }]] of plans.entries()) {
        const { alive, runs, status } = expected;
        await untilRuns(name, alive);
        await untilIn(status, ids[index] ?? '');
        expect([name, await listRuns(name)]).toEqual([name, Array(runs).fill(expect.any(Number))]);
      }
    },
  );
});

describe('the GPUs of a stopped pod', () => {
  const readGpus = async () => {
    const { gpus } = gpuTypeList.parse(await (await platform.fetch('/v2/catalog/gpus')).json());
    return gpus[0] ?? { id: '', total: 0, available: 0 };
  };

  async function createOnGpus(name: string, count: number): Promise<string> {
    const note = `echo "$CUDA_VISIBLE_DEVICES $(cat ./kept)" >> ${join(platform.folder, name)}`;
    const args = `sh -c '${note}; echo kept > ./kept; exec sleep 1000'`;
    const gpu = { id: (await readGpus()).id, count };
    const response = await platform.post('/v2/pods', { name, image: 'none', args, gpu });
    expect(response.status).toBe(201);
    const { id } = podRecord.parse(await response.json());
    await untilIn('RUNNING', id);
    return id;
  }

  /** For each of its runs the GPUs, and what it found on its disk. */
  async function readRuns(name: string, count: number) {
    const lines = await until(async () => {
      const text = await readFile(join(platform.folder, name), 'utf8').catch(() => '');
      const whole = text.split('\n').slice(0, -1);
      return whole.length >= count && whole;
    });
    return lines.map((line) => {
      const [gpus = '', disk = ''] = line.split(' ');
      return { gpus: gpus.split(','), disk };
    });
  }

  it('go to other pods; it starts again on free ones, with its disk, also if the platform is killed', async () => {
    const first = await createOnGpus('first', 3);
    await act(first, 'stop');
    await untilIn('EXITED', first);
    await until(async () => (await readGpus()).available === 8, { everyMs: 50 });
    await createOnGpus('second', 4);
    expect(await readGpus()).toMatchObject({ total: 8, available: 4 });
    await act(first, 'start');
    await platform.kill();
    await platform.restart();
    await untilIn('RUNNING', first);
    const [own, other] = [await readRuns('first', 2), await readRuns('second', 1)];
    expect(own.map(({ disk }) => disk)).toEqual(['', 'kept']);
    expect(own[1]?.gpus).toHaveLength(3);
    expect(own[1]?.gpus.filter((uuid) => other[0]?.gpus.includes(uuid))).toEqual([]);
    expect(await readGpus()).toMatchObject({ available: 1 });
  });
});
